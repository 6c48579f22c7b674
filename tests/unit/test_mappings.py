"""A process maps a bounded number of chunks, however many its tables have, and answers as if it had mapped them all."""

from __future__ import annotations

import gc
import random
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tidewheel.chunk.mappings import MAPPINGS, Mappings
from tidewheel.chunk.reader import Chunk
from tidewheel.env.local_files import LocalFiles
from tidewheel.env.memory import mappings_for_chunks
from tidewheel.env.store import NoMappingError
from tidewheel.errors import SettingsError, StorageError
from tidewheel.settings import Settings
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("name", pa.string()), ("tags", pa.list_(pa.int32()))])
CHUNKS, ROWS, MOST = 40, 60, 6


def rows_of(chunk: int) -> pa.Table:
    at = range(chunk * ROWS, (chunk + 1) * ROWS)
    names = pa.array([None if i % 7 == 0 else f"name {i}" for i in at])
    tags = pa.array([[i] for i in at], pa.list_(pa.int32()))
    return pa.table([pa.array([i % 100 for i in at]), pa.array(at, pa.timestamp("us")), names, tags], schema=SCHEMA)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many") / "wh"
    with tw.open(root, settings=Settings(leaf_rows=8)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        for chunk in range(CHUNKS):
            table.insert(rows_of(chunk))
            table.insert(rows_of(chunk).slice(0, 1))
            table.flush()
    return root


@pytest.fixture
def table(origin: Path) -> Iterator[tw.Table]:
    gc.collect()
    before = MAPPINGS.count
    with tw.open(origin, settings=Settings(leaf_rows=8, mapped_chunks=before + MOST, zero_copy_rows=4)) as wh:
        yield wh.table("t")


ALL: list[dict[str, Any]] = [
    row for chunk in range(CHUNKS) for part in (rows_of(chunk), rows_of(chunk).slice(0, 1)) for row in part.to_pylist()
]


def by_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["ts"])


def mapped_files() -> int:
    return sum(line.rstrip().endswith(".arrow") for line in Path("/proc/self/maps").read_text().splitlines())


def test_any_query_is_right_and_the_number_of_mappings_is_bounded(table: tw.Table) -> None:
    least = MAPPINGS.count
    for _ in range(2):
        assert by_time(table.query().to_arrow().to_pylist()) == by_time(ALL)
        assert by_time(table.query(key=7).to_arrow().to_pylist()) == by_time([r for r in ALL if r["k"] == 7])
        lo, hi = ALL[300]["ts"], ALL[400]["ts"]
        assert by_time(table.query(time=(lo, hi)).to_arrow().to_pylist()) == by_time([r for r in ALL if lo <= r["ts"] <= hi])
        assert len(table.query(where="name LIKE '%9'").to_arrow()) == sum((r["name"] or "").endswith("9") for r in ALL)
        assert [b for batch in table.query(columns=["k"], order_by="k").to_arrow().to_pylist() for b in batch.values()] == sorted(
            r["k"] for r in ALL
        )
        assert table.query(aggregate={"s": "sum(k)"}).to_arrow().column("s")[0].as_py() == sum(r["k"] for r in ALL)
        assert sum(len(batch) for batch in table.query()) == len(ALL)
        for chunk in range(0, CHUNKS, 3):
            ts = ALL[chunk * (ROWS + 1) + 5]["ts"]
            assert table.query(time=(ts, ts)).to_arrow().to_pylist() == [r for r in ALL if r["ts"] == ts]
        assert MAPPINGS.count <= least + MOST
        if sys.platform == "linux":
            assert mapped_files() <= least + MOST


def test_nothing_stays_mapped(origin: Path) -> None:
    gc.collect()
    before, files = MAPPINGS.count, mapped_files() if sys.platform == "linux" else 0
    with tw.open(origin, settings=Settings(leaf_rows=8, mapped_chunks=before + MOST)) as wh:
        opened = wh.table("t")
        rows = opened.query(time=(ALL[0]["ts"], ALL[50]["ts"])).to_arrow()
        assert len(opened.query().to_arrow()) == len(ALL) and MAPPINGS.count == before + MOST
    del wh, opened
    gc.collect()
    assert len(rows) == 52 and MAPPINGS.count - before <= 1  # what was returned may point into its chunk
    del rows
    gc.collect()
    assert MAPPINGS.count == before
    assert sys.platform != "linux" or mapped_files() == files


def test_what_is_used_stays_mapped_while_a_scan_passes(table: tw.Table) -> None:
    ts = ALL[10]["ts"]
    table.query(time=(ts, ts)).to_arrow()
    chunks = Probe(table).chunks
    mapped = chunks[0].mapped
    assert mapped is not None
    for _ in range(3):
        for _ in range(5):
            table.query(time=(ts, ts)).to_arrow()
        assert len(table.query().to_arrow()) == len(ALL)
        table.query(time=(ts, ts)).to_arrow()
        assert chunks[0].mapped is mapped


def test_a_scan_that_holds_all_mappings_does_not_go_on_to_displace_its_own(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would make no room, and lose them all at its end."""
    gc.collect()
    before, most, asked = MAPPINGS.count, 24, []
    let_go = Chunk.let_go
    monkeypatch.setattr(Chunk, "let_go", lambda self: asked.append(self) or let_go(self))
    with tw.open(origin, settings=Settings(leaf_rows=8, mapped_chunks=before + most)) as wh:
        table = wh.table("t")
        for _ in range(2):
            asked.clear()
            assert len(table.query().to_arrow()) == len(ALL)
            assert len(asked) <= 2 * most and MAPPINGS.count >= before + most - 1
        asked.clear()


def test_fewer_chunks_than_are_to_let_go() -> None:
    """Readers hold what the others had."""

    class Held:
        def let_go(self) -> bool:
            return True

    mappings, chunk = Mappings(), Held()
    assert all(mappings.take(256, displace=False) for _ in range(256))
    mappings.enlist(chunk)
    assert not mappings.take(256, displace=True)
    assert not mappings.take(256, displace=True)


def test_rows_that_are_held_outlive_their_mapping(table: tw.Table) -> None:
    random.seed(7)
    held = []
    for chunk in random.sample(range(CHUNKS), CHUNKS):
        first, last = ALL[chunk * (ROWS + 1)]["ts"], ALL[chunk * (ROWS + 1) + ROWS - 1]["ts"]
        held.append((chunk, table.query(time=(first, last)).to_arrow(), table.query(time=(first, last))))
    assert MAPPINGS.count <= Probe(table).owner.settings.mapped_chunks
    for chunk, rows, lazy in held:
        right = by_time([*rows_of(chunk).to_pylist(), *rows_of(chunk).slice(0, 1).to_pylist()])
        assert by_time(rows.to_pylist()) == right
        assert by_time(lazy.to_arrow().to_pylist()) == right


def test_many_threads_share_few_mappings(table: tw.Table) -> None:
    most, over, wrong = Probe(table).owner.settings.mapped_chunks, [], []

    def ask(seed: int) -> None:
        choose = random.Random(seed)
        held: list[Any] = []
        for _ in range(examples(40)):
            at = choose.randrange(len(ALL))
            lo, hi = sorted((ALL[at]["ts"], ALL[min(len(ALL) - 1, at + choose.choice((0, 5, 300, 2000)))]["ts"]))
            key = choose.choice((None, choose.randrange(100)))
            result = table.query(key=key, time=(lo, hi))
            right = sum(lo <= r["ts"] <= hi and key in (None, r["k"]) for r in ALL)
            found = result.to_arrow()
            if len(found) != right or any(not lo <= ts <= hi for ts in found.column("ts").to_pylist()):
                wrong.append((seed, lo, hi, key))
            held = [*held[-3:], found]
            if MAPPINGS.count > most:
                over.append(MAPPINGS.count)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and not over


def test_changes_are_read_without_a_mapping(table: tw.Table) -> None:
    table.query().to_arrow()
    local = Probe(table)
    assert local.rows_by_generation(0, None, None)[-1][1] == len(ALL)
    assert len(local.changes(0, local.generation(), None).to_arrow()) == len(ALL)


@pytest.mark.parametrize("number", [0, CHUNKS - 1])
def test_damage_is_found_without_a_mapping(table: tw.Table, origin: Path, number: int) -> None:
    """The first chunks of a scan get mappings, the last ones do not."""
    record = Probe(table).chunk_records[number]
    path = origin / record.file
    whole = path.read_bytes()
    hurt = bytearray(whole)
    hurt[record.body_lo] ^= 1
    try:
        path.write_bytes(hurt)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert len(ALL) - 2 * ROWS < len(table.query(on_corrupt="skip").to_arrow()) < len(ALL)
        with pytest.raises(tw.CorruptionError):
            table.query().to_arrow()
    finally:
        path.write_bytes(whole)


def test_a_system_that_refuses_is_read_from_instead(table: tw.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: LocalFiles, *given: Any) -> pa.Buffer:
        raise NoMappingError("none left")

    before = MAPPINGS.count
    monkeypatch.setattr(LocalFiles, "map", refuse)
    assert by_time(table.query().to_arrow().to_pylist()) == by_time(ALL)
    assert MAPPINGS.count == before


def test_the_message_names_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(path: str) -> None:
        raise OSError("Memory mapping file failed: Cannot allocate memory")

    (tmp_path / "f").write_bytes(b"12345678")
    monkeypatch.setattr(pa, "memory_map", no_memory)
    with pytest.raises(NoMappingError, match=r"vm\.max_map_count.*mapped_chunks") as told:
        LocalFiles(tmp_path).map("f", 8)
    assert "None" not in str(told.value)

    def odd(path: str) -> None:
        raise OSError("an odd thing")

    monkeypatch.setattr(pa, "memory_map", odd)
    with pytest.raises(StorageError, match="an odd thing"):
        LocalFiles(tmp_path).map("f", 8)


def test_the_setting() -> None:
    assert Settings().mapped_chunks is None and mappings_for_chunks() >= 1000
    for wrong in (0, -1, 1.5, True, "5"):
        with pytest.raises(SettingsError, match="mapped_chunks"):
            Settings(mapped_chunks=wrong)  # type: ignore[arg-type]
