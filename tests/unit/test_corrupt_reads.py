"""Damaged files and queries: an error that says what and where, or, if asked for, exactly what can still be read."""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidewheel as tw
from tests.chunks import ChunkFile
from tests.conftest import examples

N = 40_000
FRESH = 300
SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us")),
        ("speed", pa.float64()),
        ("kind", pa.string()),
        ("busy", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("colour", pa.dictionary(pa.int32(), pa.string())),
        ("n", pa.int32()),
    ]
)


def rows(start: int, stop: int) -> pa.Table:
    """Row n has key n % 1000 and second n."""
    n = np.arange(start, stop)
    columns = [
        n % 1000,
        pa.array(n * SECOND, pa.timestamp("us")),
        pa.array(n / 3, mask=n % 11 == 0),
        pa.array([f"kind {i % 7}" for i in n]),
        pa.array(n % 2 == 0),
        pa.array([["a"] * (i % 3) for i in n], pa.list_(pa.string())),
        pa.array([f"c{i % 5}" for i in n]).dictionary_encode(),
        pa.array(n, pa.int32()),
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two chunks of three blocks each, to be copied and damaged."""
    root = tmp_path_factory.mktemp("corrupt") / "wh"
    with tw.open(root, settings=tw.Settings(leaf_rows=100)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        for lo in (0, N):
            table.insert(rows(lo, lo + N))
            table.flush()
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "wh")
    return tmp_path / "wh"


def first_chunk(root: Path) -> ChunkFile:
    return ChunkFile(min(root.rglob("*.arrow")))


@pytest.fixture(params=[True, False], ids=["mapped", "by range"])
def opened(root: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], tw.Table]]:
    """Opens the warehouse, once it is damaged, with some rows in memory too."""
    opened: list[tw.Warehouse] = []

    def table() -> tw.Table:
        opened.append(tw.open(root, settings=tw.Settings(map_chunks=request.param)))
        table = opened[0].table("t")
        table.insert(rows(2 * N, 2 * N + FRESH))
        return table

    yield table
    for wh in opened:
        wh.close()


def numbers(result: tw.Result | pa.Table) -> list[int]:
    table = result if isinstance(result, pa.Table) else result.to_arrow()
    table.validate(full=True)
    return sorted(table["n"].to_pylist())


def damage(chunk: ChunkFile, what: str) -> None:
    match what:
        case "speed":  # block 1 of a fixed column
            chunk.flip(chunk.place("speed", 1, 8 * 20_000))
        case "nulls":
            chunk.flip(chunk.place("speed", 0, 20_000 // 8))
        case "kind":  # text: the offsets
            chunk.flip(chunk.place("kind", 1, 4 * 20_000 + 3))
        case "text":
            chunk.flip(chunk.place("kind", 2, 6 * 20_000))
        case "busy":
            chunk.flip(chunk.place("busy", 1, 20_000 // 8))
        case "tags":  # the first offset of a list, which Arrow would follow
            chunk.flip(chunk.place("tags", 1, 3), 0x7F)
        case "colour":
            chunk.flip(chunk.place("colour", 1, 4 * 20_000))
        case "id":
            chunk.flip(chunk.place("id", 1, 8 * 20_000 + 6))
        case "ts":
            chunk.flip(chunk.place("ts", 1, 8 * 20_000 + 6))
        case "head":
            chunk.flip(200)
        case "foot":
            chunk.flip(len(chunk.bytes) - 100)
        case "missing":
            chunk.path.unlink()
        case "cut":
            os.truncate(chunk.path, len(chunk.bytes) - 5000)
        case "empty":
            os.truncate(chunk.path, 0)


BLOCKS = ["speed", "nulls", "kind", "text", "busy", "tags", "colour", "id", "ts"]
WHOLE = ["head", "foot", "missing", "cut", "empty"]
NAMED = {"nulls": "speed", "text": "kind"}


READERS: dict[str, Callable[[tw.Table], Any]] = {
    "whole": lambda t: t.query().to_arrow(),
    "iterated": lambda t: list(t.query()),
    "where": lambda t: t.query(where="speed >= 0 and kind <> '' and busy is not null and id + n >= 0 and len(tags) < 9").to_arrow(),
    "function": lambda t: t.query(where=lambda b: pc.greater_equal(b["speed"], 0)).to_arrow(),
    "ordered": lambda t: t.query(order_by="n desc").to_arrow(),
    "top": lambda t: t.query(order_by="n", limit=30_000).to_arrow(),
    "aggregate": lambda t: t.query(aggregate={c: f"count({c})" for c in SCHEMA.names}).to_arrow(),
    "groups": lambda t: t.query(group_by=SCHEMA.names[:5], aggregate={"a": "max(len(tags))", "b": "max(colour)"}).to_arrow(),
    "limit": lambda t: t.query(limit=2 * N - 1000).to_arrow(),
    "counted": lambda t: len(t.query(where=lambda b: np.ones(b.num_rows, bool))),
    "range": lambda t: t.query(key=(1, 998), time=(3 * SECOND, (2 * N - 3) * SECOND)).to_arrow(),
}  # fmt: skip


@pytest.mark.parametrize("what", [*BLOCKS, *WHOLE])
def test_no_way_to_read_gives_a_partial_answer(root: Path, opened: Callable[[], tw.Table], what: str) -> None:
    chunk = first_chunk(root)
    damage(chunk, what)
    table = opened()
    block = 0 if what == "tags" or what == "colour" else 1
    said = rf"{chunk.path.name}: block {block} of column '{NAMED.get(what, what)}' is damaged" if what in BLOCKS else chunk.path.name
    for name, read in READERS.items():
        if what == "colour" and name == "where":
            continue  # it does not read this column
        with pytest.raises(tw.CorruptionError, match=said) as error:
            read(table)
        assert "restore the file from a backup" in str(error.value), name
        assert error.value.file == str(chunk.path.relative_to(root)), name
        assert not error.value.retryable


@pytest.mark.parametrize("what", BLOCKS)
def test_what_does_not_touch_the_damage_is_answered(root: Path, opened: Callable[[], tw.Table], what: str) -> None:
    damage(first_chunk(root), what)
    table = opened()
    assert len(table.query()) == table.rows == 2 * N + FRESH  # counted in the frame
    assert numbers(table.query(time=(N * SECOND, None))) == list(range(N, 2 * N + FRESH))
    assert numbers(table.query(columns=["n"])) == list(range(2 * N + FRESH))
    table.insert(rows(0, 5))  # and the table goes on
    table.flush()
    assert table.rows == 2 * N + FRESH + 5


class TestSkip:
    @staticmethod
    def expected(chunk: ChunkFile, what: str) -> list[int]:
        """All rows but those that are lost."""
        n = chunk.batch.column("n").to_numpy()
        lost = n if what in WHOLE or what in ("tags", "colour") else n[chunk.lost(1)]
        return sorted(set(range(2 * N + FRESH)) - set(lost.tolist()))

    @pytest.mark.parametrize("what", [*BLOCKS, *WHOLE])
    def test_exactly_the_rows_of_the_damaged_leaves_are_left_out(self, root: Path, opened: Callable[[], tw.Table], what: str) -> None:
        chunk = first_chunk(root)
        want = self.expected(chunk, what)
        damage(chunk, what)
        table = opened()
        with pytest.warns(tw.CorruptionWarning, match=rf"left out .*{chunk.path.name} is damaged") as said:
            result = table.query(on_corrupt="skip")
        assert said[0].filename == __file__
        assert len(result) == len(want)
        assert numbers(result) == want
        stats = result.stats
        assert stats.rows_left_out == 2 * N + FRESH - len(want)
        assert stats.corrupt_files == (str(chunk.path.relative_to(root)),)
        whole = what in WHOLE or what in ("tags", "colour")
        assert (stats.corrupt_chunks, stats.corrupt_blocks) == ((1, 0) if whole else (0, 1))
        with pytest.warns(tw.CorruptionWarning):
            assert numbers(pa.Table.from_batches(list(table.query(on_corrupt="skip")))) == want
        column = "id" if what in WHOLE else NAMED.get(what, what)
        with pytest.warns(tw.CorruptionWarning):
            ordered = table.query(on_corrupt="skip", order_by="n", limit=100, columns=["n", column])
        assert numbers(ordered) == want[:100]
        if what in BLOCKS:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert len(table.query(on_corrupt="skip", columns=["n"]).to_arrow()) == 2 * N + FRESH  # it needs nothing that is damaged

    @pytest.mark.parametrize("what", ["id", "ts", "kind"])
    def test_ranges_over_damage(self, root: Path, opened: Callable[[], tw.Table], what: str) -> None:
        """Keys and times that are damaged must not decide about rows of other blocks."""
        chunk = first_chunk(root)
        want = self.expected(chunk, what)
        damage(chunk, what)
        table = opened()
        for lo, hi, t0, t1 in [(0, 999, 0, N), (300, 600, 1000, 20_000), (415, 422, 7, 79_000), (900, 990, 39_000, 41_000)]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", tw.CorruptionWarning)
                result = table.query(key=(lo, hi), time=(t0 * SECOND, t1 * SECOND), on_corrupt="skip")
            there = want if result.stats.rows_left_out else range(2 * N + FRESH)
            assert numbers(result) == [n for n in there if lo <= n % 1000 <= hi and t0 <= n <= t1]

    def test_all_of_it(self, root: Path, opened: Callable[[], tw.Table]) -> None:
        for path in root.rglob("*.arrow"):
            damage(ChunkFile(path), "head")
        table = opened()
        with pytest.warns(tw.CorruptionWarning, match="and 1 more are damaged"):
            result = table.query(on_corrupt="skip", where="n >= 0")
        assert numbers(result) == list(range(2 * N, 2 * N + FRESH))
        assert result.stats.corrupt_chunks == 2 and result.stats.rows_left_out == 2 * N

    def test_nothing_damaged_nothing_said(self, opened: Callable[[], tw.Table]) -> None:
        table = opened()
        result = table.query(on_corrupt="skip")
        assert numbers(result) == list(range(2 * N + FRESH))
        assert result.stats.rows_left_out == result.stats.corrupt_blocks == result.stats.corrupt_chunks == 0
        assert result.stats.corrupt_files == ()

    def test_a_replaced_interval_stays_hidden(self, root: Path, opened: Callable[[], tw.Table]) -> None:
        chunk = first_chunk(root)
        want = self.expected(chunk, "speed")
        damage(chunk, "speed")
        table = opened()
        table.replace(rows(0, 0), time=(100 * SECOND, 30_000 * SECOND))
        with pytest.warns(tw.CorruptionWarning):
            assert numbers(table.query(on_corrupt="skip")) == [n for n in want if not 100 <= n <= 30_000]

    def test_it_is_asked_for_by_name(self, opened: Callable[[], tw.Table]) -> None:
        with pytest.raises(tw.QueryError, match='on_corrupt is "error" or "skip", not \'ignore\''):
            opened().query(on_corrupt="ignore")


def test_random_damage_and_random_questions(template: Path, tmp_path: Path) -> None:
    """Whatever is damaged: with skip, every row returned is right, those of untouched leaves are all there, and the loss is bounded."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    everything = rows(0, 2 * N)
    for number in range(examples(12)):
        root = tmp_path / str(number)
        shutil.copytree(template, root)
        chunk = first_chunk(root)
        n_of = chunk.batch.column("n").to_numpy()
        touched: dict[str, set[int]] = {}
        for _ in range(rng.randrange(1, 6)):
            column, block = rng.choice(["id", "ts", "speed", "kind", "busy"]), rng.randrange(3)
            row = rng.randrange(block << 14, min(chunk.rows, (block + 1) << 14))
            width = {"kind": 4, "busy": 0}.get(column, 8)
            if block not in touched.setdefault(column, set()):
                chunk.flip(chunk.place(column, 1, row * width if width else row // 8), rng.choice([1, 0x80, 0xFF]))
                touched[column].add(block)
        with tw.open(root, settings=tw.Settings(map_chunks=number % 2 == 0)) as wh, warnings.catch_warnings():
            warnings.simplefilter("ignore", tw.CorruptionWarning)
            for _ in range(4):
                lo, t0 = rng.randrange(1000), rng.randrange(2 * N)
                hi, t1 = lo + rng.choice([0, 5, 400]), t0 + rng.choice([10, 5000, 2 * N])
                columns = ["n", *rng.sample(["speed", "kind", "busy"], rng.randrange(3))]
                result = wh.table("t").query(key=(lo, hi), time=(t0 * SECOND, t1 * SECOND), columns=columns, on_corrupt="skip")
                got = result.to_arrow()
                full = {n for n in range(2 * N) if lo <= n % 1000 <= hi and t0 <= n <= t1}
                bad = [c for c in touched if c in (*columns, "id", "ts")]
                may_lack = set(n_of[np.any([chunk.lost(b) for c in bad for b in touched[c]], axis=0)].tolist()) if bad else set()
                found = set(got["n"].to_pylist())
                assert found <= full and len(found) == got.num_rows
                assert full - found <= may_lack, (lo, hi, t0, t1, touched)
                assert len(full - found) <= result.stats.rows_left_out
                right = everything.take(pa.array(got["n"].to_pylist(), pa.int64())).select(columns)
                assert got.to_pylist() == right.to_pylist()
