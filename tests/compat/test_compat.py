"""Old data stays readable: every warehouse in this folder is opened (as a copy), compared with its rows, and written to."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidewheel as tw
from tests.compat.make_samples import DAILY, HOURLY
from tidewheel.engine.refresher import refresh
from tidewheel.model.query import Query
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import Probe, engine_of

HERE = Path(__file__).parent
VERSIONS = sorted(p.name for p in HERE.iterdir() if p.is_dir() and (p / "warehouse.zip").exists())
TABLES = ["empty", "everything", "floats", "flows", "points"]


def expected(version: str, name: str) -> pa.Table:
    return pa.ipc.open_file(HERE / version / "expected" / f"{name}.arrow").read_all()


def by_number(table: pa.Table, mask: pa.ChunkedArray | None = None) -> list[dict[str, object]]:
    """The rows (that a mask keeps) in a fixed order. Not by `Table.filter`: Arrow filters no views."""
    keep = [True] * table.num_rows if mask is None else mask.to_pylist()
    return sorted((row for row, k in zip(table.to_pylist(), keep, strict=True) if k), key=lambda row: (row["n"], str(row)))


@pytest.fixture(params=VERSIONS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, tw.Warehouse]]:
    shutil.unpack_archive(HERE / request.param / "warehouse.zip", tmp_path / "wh")
    with tw.open(tmp_path / "wh") as wh:
        yield request.param, wh


def test_there_is_a_sample_of_every_version() -> None:
    assert VERSIONS == ["log1", "log2", "log2-replaced", "v1", "v2", "v3"]
    for version in VERSIONS:
        size = sum(f.stat().st_size for f in (HERE / version).rglob("*") if f.is_file())
        assert 0 < size < 200 * 1024


def test_all_rows_of_all_tables(opened: tuple[str, tw.Warehouse]) -> None:
    version, wh = opened
    assert wh.tables() == TABLES
    for name in TABLES:
        want, table = expected(version, name), wh.table(name)
        assert table.schema.equals(want.schema), name
        got = table.query().to_arrow()
        got.validate(full=True)
        assert by_number(got) == by_number(want), name
        assert table.rows == len(table.query()) == want.num_rows


def test_a_log_is_replayed(opened: tuple[str, tw.Warehouse]) -> None:
    version, wh = opened
    replayed = {table.table: table.rows for table in wh.recovery.tables}
    if version.startswith("log"):
        assert replayed == {"everything": 70, "points": 8, "flows": 120, "flows$rejects": 1, "floats": 5}
    else:
        assert replayed == {}
    flows = Probe(wh.table("flows"))
    assert flows.last_batch("sensors") == (7 if version.startswith("log2") else None)
    assert wh.table("flows").insert(expected(version, "flows").slice(0, 1), package="file").duplicate == version.startswith("log2")


def test_keys_and_times_prune_and_decide(opened: tuple[str, tw.Warehouse]) -> None:
    version, wh = opened

    def check(name: str, mask: pa.ChunkedArray, **query: object) -> None:
        want = by_number(expected(version, name), mask)
        got = wh.table(name).query(**query).to_arrow()  # type: ignore[arg-type]
        assert want and by_number(got) == want, (name, query)

    everything = expected(version, "everything")
    plates = everything["plate"]
    check(
        "everything",
        pc.and_(pc.greater_equal(plates, "city/taxi-010"), pc.less_equal(plates, "city/taxi-030")),
        key=("city/taxi-010", "city/taxi-030"),
    )
    start = dt.datetime(2026, 1, 1, 1, tzinfo=dt.UTC)
    check("everything", pc.greater_equal(everything["ts"], start), time=(start, None))
    points = expected(version, "points")
    x, y = points["x"].to_numpy(), points["y"].to_numpy()
    check("points", pa.chunked_array([(x >= 2) & (x <= 5) & (y >= 2) & (y <= 5)]), box=(2, 2, 5, 5))
    check("points", pa.chunked_array([y > 1e299]), box=(0, 1e299, 10, 1e301))
    check("points", pc.less(points["seen"], 100), time=(None, 99))
    check("floats", pa.chunked_array([np.abs(expected(version, "floats")["level"].to_numpy()) <= 1]), key=(-1, 1))
    flows = expected(version, "flows")
    check("flows", pc.starts_with(flows["src"], "10.0.3."), key=("10.0.3.0", "10.0.3.255"))
    check("flows", pc.equal(flows["day"], dt.date(2026, 1, 5)), time=dt.date(2026, 1, 5))
    check("everything", pc.equal(everything["kind"].cast(pa.string()), "kind 2"), where="kind = 'kind 2'")


def test_divided_text_keys_came_with_version_3(opened: tuple[str, tw.Warehouse]) -> None:
    version, wh = opened
    table = wh.table("everything")
    formats = {chunk.record.format for chunk in Probe(table).chunks}
    assert (3 in formats) == (version == "v3")
    assert formats <= {int(version[-1]), 2} if version.startswith("v") else formats <= {1, 2}
    plates = expected(version, "everything")["plate"].to_pylist()
    for plate in set(plates[::9]):
        assert len(table.query(key=plate)) == plates.count(plate)


def test_packages_and_rejects_are_remembered(opened: tuple[str, tw.Warehouse]) -> None:
    version, wh = opened
    assert wh.table("everything").insert(expected(version, "everything"), package="first").duplicate
    rejects = wh.table("flows").rejects().to_arrow().to_pylist()
    assert [(r["column"], r["package"]) for r in rejects] == [("src", "dirty")] and "nowhere" in rejects[0]["row"]


def test_rows_know_the_generation_they_came_with(opened: tuple[str, tw.Warehouse]) -> None:
    version, wh = opened

    def came_with(name: str, generation: int) -> list[int]:
        result = Probe(wh.table(name)).query(Query(columns=["n"], after=generation - 1, upto=generation))
        return sorted(result.to_arrow()["n"].to_pylist())

    for name in TABLES:
        if name != "floats":  # some of its rows were replaced
            last = wh.table(name).state().generation
            found = [n for generation in range(1, last + 1) for n in came_with(name, generation)]
            assert sorted(found) == sorted(expected(version, name)["n"].to_pylist()), name
    if version in ("v2", "v3"):
        assert [len(came_with("flows", g)) for g in range(1, 19)] == [7] * 17 + [1]
        assert came_with("flows", 2) == list(range(7, 14))
        assert came_with("everything", 1) == list(range(80)) and came_with("everything", 7) == list(range(115, 120))
        was = Probe(wh.table("floats")).query(Query(upto=18)).to_arrow()
        assert sorted(was["n"].to_pylist()) == list(range(120))  # before some were replaced


def test_what_was_replaced_before_chunks_left_their_tables(tmp_path: Path) -> None:
    """Its catalog is upgraded, and chunks of which nothing is seen go."""
    shutil.unpack_archive(HERE / "log2-replaced" / "warehouse.zip", tmp_path)

    def files() -> int:
        return len(list((tmp_path / "tables" / "5").glob("*.arrow")))  # those of `floats`; number 4 has the rejects of `flows`

    assert files() > 4
    for _ in range(2):
        with tw.open(tmp_path) as wh:
            table = wh.table("floats")
            table.flush()
            assert by_number(table.query().to_arrow()) == by_number(expected("log2-replaced", "floats"))
            assert files() == table.state().chunks <= 4 and wh.check().ok
            with pytest.raises(tw.QueryError, match="earliest generation"):
                Probe(table).query(Query(upto=1))


def test_derived_tables_go_on(tmp_path: Path) -> None:
    """They have the rows that they had, know what is stale, and follow their sources."""
    shutil.unpack_archive(HERE / "derived" / "derived.zip", tmp_path / "wh")
    duck = DuckCompute()
    with tw.open(tmp_path / "wh") as wh:
        for name in ("taxi", "hourly", "daily"):
            assert by_value(wh.table(name).query().to_arrow()) == by_value(expected("derived", name)), name
        stale = {row["table_name"]: row["stale"] for row in wh.sql("SELECT table_name, stale FROM system.derived").to_pylist()}
        assert stale == {"hourly": 1, "daily": 0}
        report = refresh(engine_of(wh), duck)
        assert [(one.name, one.mode, one.partitions) for one in report.tables] == [("hourly", "merge", 1), ("daily", "recompute", 1)]
        for name, text in (("hourly", HOURLY), ("daily", DAILY)):
            assert by_value(wh.table(name).query().to_arrow()) == by_value(wh.sql(text).to_arrow())
        assert wh.check().ok
    duck.close()


def by_value(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_tables_go_on(opened: tuple[str, tw.Warehouse]) -> None:
    version, wh = opened
    for name in TABLES:
        table, rows = wh.table(name), expected(version, "floats" if name == "empty" else name)
        before = table.rows
        table.insert(rows)
        table.flush()
        assert table.rows == before + rows.num_rows == len(table.query())


@pytest.mark.parametrize("version", VERSIONS)
def test_chunks_are_ordinary_arrow_files(version: str, tmp_path: Path) -> None:
    shutil.unpack_archive(HERE / version / "warehouse.zip", tmp_path)
    chunks = list((tmp_path / "tables").rglob("*.arrow"))
    assert len(chunks) >= (8 if version.startswith("v") else 3)
    for chunk in chunks:
        with pa.memory_map(str(chunk)) as source:
            file = pa.ipc.open_file(source)
            assert b"tidewheel.chunk" in file.schema.metadata and b"tidewheel.index" in file.schema.metadata
            file.read_all().validate(full=True)
