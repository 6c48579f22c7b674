"""What a statement needs is all that is read: for each shape of statement, the regions, the leaves and the columns of its scans."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left
from tests.sql_tables import refused
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.sql_result import SqlResult

DAY = dt.datetime(2026, 1, 1)
HOURS, KEYS, EACH = 20, 500, 4
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64()), ("s", pa.string()), ("n", pa.int32())])
SPOTS = pa.schema([("lon", pa.float64()), ("lat", pa.float64()), ("ts", pa.timestamp("us")), ("n", pa.int32())])
WORDS = pa.schema([("word", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
FINE = pa.schema([("id", pa.int32()), ("ts", pa.timestamp("ns")), ("v", pa.int64())])
FLOWS = pa.schema([("src", pa.string()), ("ms", pa.int64()), ("n", pa.int64())])


def hour_of(h: int) -> pa.Table:
    """One hour: every key a few times."""
    i = np.arange(KEYS * EACH)
    times = (np.datetime64(DAY) + np.timedelta64(h, "h")).astype("datetime64[us]").astype(np.int64) + i * (3_600_000_000 // len(i))
    text = [None if k % 5 == 0 else f"s{k % 7}" for k in i]
    return pa.table([i % KEYS, pa.array(times, pa.timestamp("us")), i / 2, text, pa.array(i % 100, pa.int32())], schema=SCHEMA)


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path_factory.mktemp("pushdown") / "wh", settings=tw.Settings(leaf_rows=32)) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        for h in range(HOURS):
            taxi.insert(hour_of(h))
            if h < HOURS - 1:  # each hour a chunk, the last one in memory
                taxi.flush()
        rng = np.random.default_rng(5)
        spots = wh.create_table("spots", SPOTS, time="ts", key=tw.zorder("lon", "lat", bounds=(0, 0, 100, 100)))
        n = 20_000
        spots.insert(
            pa.table(
                [rng.uniform(0, 100, n), rng.uniform(0, 100, n), pa.array(np.arange(n) * 10**6, pa.timestamp("us")), np.arange(n)],
                schema=SPOTS,
            )
        )
        spots.flush()
        words = wh.create_table("words", WORDS, time="ts", key="word")
        words.insert(
            pa.table(
                [[f"word {i % 2000:05}" for i in range(n)], pa.array(np.arange(n) * 10**6, WORDS.field(1).type), np.arange(n)], schema=WORDS
            )
        )
        words.flush()
        flows = wh.create_table("flows", FLOWS, time=tw.epoch("ms", "ms"), key=tw.ip("src"))
        flows.insert(pa.table([[f"10.0.{i % 100}.{i % 7}" for i in range(n)], np.arange(n) * 1000, np.arange(n)], schema=FLOWS))
        flows.flush()
        fine = wh.create_table("fine", FINE, time="ts", key="id")
        for h in range(5):
            rows = hour_of(h)
            fine.insert(
                pa.table([rows["id"].cast(pa.int32()), rows["ts"].cast(pa.timestamp("ns")), rows["n"].cast(pa.int64())], schema=FINE)
            )
            fine.flush()
        yield wh


@pytest.fixture(scope="module")
def duck(wh: tw.Warehouse) -> Iterator[Any]:
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for name in wh.tables():
            given = wh.table(name).query().to_arrow()
            duck.register("given", given)
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            duck.unregister("given")
        yield duck


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


KEY_LEAVES = HOURS * 3
"""A key lies in one leaf or two of each hour."""

SHAPES: list[tuple[str, int, int, list[str]]] = [
    # statement, most regions read, most leaves read, the columns of its first scan
    ("SELECT v FROM taxi WHERE id = 7", HOURS, KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE 7 = id", HOURS, KEY_LEAVES, ["v"]),
    ("SELECT id, v FROM taxi WHERE id BETWEEN 7 AND 9", HOURS, KEY_LEAVES, ["id", "v"]),
    ("SELECT v FROM taxi WHERE id > 6 AND id < 10", HOURS, KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE id IN (7, 8, 400)", 2 * HOURS, 2 * KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE id = 7 OR id = 400", 2 * HOURS, 2 * KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE id BETWEEN 7 AND 9 OR id BETWEEN 400 AND 402", 2 * HOURS, 2 * KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE id < 3 OR id > 497", 2 * HOURS, 2 * KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE id + 1 = 8", HOURS, KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE NOT (id > 4)", HOURS, KEY_LEAVES, ["v"]),
    ("SELECT count(*) FROM taxi WHERE id = 7", HOURS, KEY_LEAVES, []),
    ("SELECT v FROM taxi WHERE ts >= '2026-01-01 03:00:00' AND ts < '2026-01-01 04:00:00'", 1, 80, ["v"]),
    ("SELECT v FROM taxi WHERE ts::DATE = '2026-01-01' AND ts < TIMESTAMP '2026-01-01 01:00:00'", 1, 80, ["v"]),
    ("SELECT v FROM taxi WHERE date_trunc('hour', ts) = '2026-01-01 05:00:00'", 1, 80, ["v"]),
    ("SELECT v FROM taxi WHERE ts < '2026-01-01 01:00' OR ts >= '2026-01-01 19:00'", 2, 160, ["v"]),
    ("SELECT v FROM taxi WHERE id = 7 AND ts < '2026-01-01 02:00:00'", 2, 6, ["v"]),
    ("SELECT v FROM taxi WHERE id = 7 AND ts = '2026-01-01 01:00:12.6'", 1, 3, ["v"]),
    ("SELECT s FROM taxi WHERE id = 7 AND v > 100 AND s IS NOT NULL", HOURS, KEY_LEAVES, ["s"]),
    ("SELECT v FROM taxi WHERE id = 7 AND s = 's3'", HOURS, KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE id = 7 AND s LIKE 's_%'", HOURS, KEY_LEAVES, ["v", "s"]),
    ("SELECT v FROM taxi WHERE id = 7 AND s IS NULL", HOURS, KEY_LEAVES, ["v"]),
    ("SELECT v FROM taxi WHERE id IS NULL", 0, 0, ["v"]),
    ("SELECT v FROM taxi WHERE id = 7 AND id = 8", 0, 0, []),
    ("SELECT v FROM taxi WHERE (id = 7 AND ts < '2026-01-01 01:00') OR (id = 9 AND ts >= '2026-01-01 19:00')", 2, 8, ["v"]),
    ("SELECT q.v FROM (SELECT id, v FROM taxi) q WHERE q.id = 7", HOURS, KEY_LEAVES, ["v"]),
    ("WITH a AS (SELECT * FROM taxi) SELECT sum(v) FROM a WHERE id = 7", HOURS, KEY_LEAVES, ["v"]),
    ("SELECT id, avg(v) FROM taxi WHERE id < 3 GROUP BY id", HOURS, KEY_LEAVES, ["id", "v"]),
    ("SELECT id, avg(v) FROM taxi GROUP BY id HAVING id = 7", HOURS, KEY_LEAVES, ["id", "v"]),
    ("SELECT v, row_number() OVER (PARTITION BY id ORDER BY v) FROM taxi WHERE id = 7", HOURS, KEY_LEAVES, ["id", "v"]),
    ("SELECT v FROM taxi WHERE id = 7 UNION ALL SELECT v FROM taxi WHERE id = 8", 2 * HOURS, 2 * KEY_LEAVES, ["v"]),
    ("SELECT max(ts) FROM taxi WHERE id = 499", HOURS, KEY_LEAVES, ["ts"]),
    ("SELECT a.v FROM taxi a JOIN taxi b ON a.id = b.id WHERE a.id = 7 AND b.ts < '2026-01-01 01:00'", HOURS + 1, KEY_LEAVES + 80, []),
    ("SELECT n FROM spots WHERE lon BETWEEN 10 AND 12 AND lat BETWEEN 10 AND 12", 1, 60, ["n"]),
    ("SELECT n FROM spots WHERE lon > 10 AND lon < 12 AND lat >= 50 AND lat <= 52", 1, 60, ["n"]),
    ("SELECT count(*) FROM spots WHERE lon < 2 AND lat < 2", 1, 40, []),
    ("SELECT n FROM spots WHERE lon BETWEEN 10 AND 12 AND lat BETWEEN 10 AND 12 AND ts < '1970-01-01 01:00:00'", 1, 60, ["n"]),
    ("SELECT n FROM words WHERE word = 'word 00017'", 1, 3, ["n"]),
    ("SELECT n FROM words WHERE word BETWEEN 'word 00017' AND 'word 00019'", 1, 4, ["n"]),
    ("SELECT n FROM words WHERE word IN ('word 00017', 'word 01900')", 2, 6, ["n"]),
    ("SELECT n FROM words WHERE word > 'word 01998'", 1, 4, ["n"]),
    ("SELECT word FROM words WHERE ts < '1970-01-01 00:01:00+00' AND word < 'word 00003'", 1, 4, ["word"]),
    # bounds that DuckDB does not hand to a scan
    ("SELECT v FROM taxi WHERE id < 1.5", HOURS, KEY_LEAVES, []),
    ("SELECT v FROM taxi WHERE id = 7.0", HOURS, KEY_LEAVES, []),
    ("SELECT v FROM fine WHERE ts < '2026-01-01 01:00:00'", 2, 80, []),
    ("SELECT v FROM fine WHERE ts BETWEEN '2026-01-01 01:00:00.000001' AND TIMESTAMP '2026-01-01 01:30:00'", 1, 80, []),
    ("SELECT v FROM fine WHERE TIMESTAMP '2026-01-01 04:00:00' <= ts AND id = 7", 1, 3, []),
    ("SELECT a.v FROM fine a JOIN spots b ON a.id = b.n WHERE a.ts >= DATE '2026-01-02'", 1, 800, []),
    ("SELECT count(*) FROM fine WHERE ts = '2026-01-01 02:00:00'", 1, 80, ["ts"]),
    ("SELECT n FROM flows WHERE src = '10.0.17.3'", 1, 8, ["n"]),
    ("SELECT n FROM flows WHERE src IN ('10.0.17.3', '10.0.18.4')", 2, 16, ["n"]),
    ("SELECT n FROM flows WHERE ms BETWEEN 1000 AND 5000 AND src = '10.0.1.1'", 1, 8, ["n"]),
]


def test_there_are_enough_shapes() -> None:
    assert len(SHAPES) >= 30


@pytest.mark.parametrize("way", ["short", "long"])
@pytest.mark.parametrize("statement, regions, leaves, columns", SHAPES, ids=[shape[0] for shape in SHAPES])
def test_only_what_is_needed_is_read(
    wh: tw.Warehouse,
    duck: Any,
    statement: str,
    regions: int,
    leaves: int,
    columns: list[str],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through DuckDB, and without it where a statement is so plain that it is not needed."""
    if way == "long":
        monkeypatch.setattr("tidewheel.sql.direct.Prepared.asked", refused)
    result = wh.sql(statement)
    rows = result.to_arrow()
    assert sorted(map(str, rows.to_pylist())) == sorted(map(str, duck.sql(statement).to_arrow_table().to_pylist()))
    assert result.stats.regions_read <= regions
    assert result.stats.leaves_read <= leaves
    assert isinstance(result, (SqlResult, DirectResult))
    if columns or "count(*)" in statement:
        read = sorted(result.scans[0].columns)
        assert read == sorted(columns) or way == "short" and not read  # without DuckDB, the index alone may know how many there are


@pytest.mark.parametrize("condition", ["s LIKE 's%'", "starts_with(s, 's1')", "s NOT LIKE '%3'", "contains(s, '2')"])
def test_texts_are_searched_where_rows_lie(wh: tw.Warehouse, duck: Any, condition: str) -> None:
    statement = f"SELECT v FROM taxi WHERE id = 7 AND {condition}"
    result = wh.sql(statement)
    assert sorted(map(str, result.to_pylist())) == sorted(map(str, duck.sql(statement).to_arrow_table().to_pylist()))
    assert isinstance(result, DirectResult) and result.scans[0].columns == ["v"]


def test_counting_reads_no_rows(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT count(*) AS n FROM taxi WHERE ts >= '2026-01-01 02:00'")
    assert result.to_pylist() == [{"n": 18 * KEYS * EACH}]
    assert isinstance(result, DirectResult) and [scan.stats.bytes for scan in result.scans] == [0]


def test_parameters_prune_too(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT v FROM taxi WHERE id = ? AND ts < ?", [7, DAY + dt.timedelta(hours=2)])
    assert len(result) == 2 * EACH and result.stats.regions_read == 2
    result = wh.sql("SELECT v FROM taxi WHERE id IN ($a, $b)", {"a": 7, "b": 8})
    assert len(result) == 2 * EACH * HOURS and result.stats.leaves_read <= KEY_LEAVES


def test_long_lists(wh: tw.Warehouse, duck: Any) -> None:
    for column, values in (
        ("id", range(0, 6000, 3)),
        ("n", range(0, 6000, 3)),
        ("v", [i / 2 for i in range(-1, 3000)]),
        ("s", [f"'s{i}'" for i in range(2000)]),
    ):
        statement = f"SELECT count(*) AS n, max(id) AS m FROM taxi WHERE {column} IN ({', '.join(map(str, values))})"
        assert wh.sql(statement).to_pylist() == duck.sql(statement).to_arrow_table().to_pylist()
    result = wh.sql(f"SELECT count(*) FROM taxi WHERE id IN ({', '.join(map(str, range(490, 3000)))})")
    result.to_arrow()
    assert result.stats.leaves_read <= 2 * KEY_LEAVES


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM fine a LEFT JOIN fine b ON a.id = b.id AND b.ts < '2026-01-01 01:00' WHERE a.id < 3",
        "SELECT count(*) FROM spots b LEFT JOIN fine a ON a.id = b.n WHERE a.ts IS NULL OR a.ts < '2026-01-01 01:00'",
        "SELECT count(*) FROM spots b FULL JOIN fine a ON a.id = b.n WHERE a.ts < '2026-01-01 01:00'",
        "SELECT count(*) FROM fine WHERE ts < '2026-01-01 01:00' OR id = 3",
        "SELECT count(*) FROM fine WHERE NOT (ts < '2026-01-01 01:00')",
        "SELECT count(*) FROM fine WHERE id > 3.5 AND id < 1e1 AND ts <> '2026-01-01 01:00'",
        "WITH fine AS (SELECT 1 AS id, TIMESTAMP_NS '2026-01-01 03:00' AS ts) SELECT count(*) FROM fine WHERE ts < '2026-01-01 01:00'",
        "SELECT (SELECT count(*) FROM spots b WHERE b.n < a.id) FROM fine a WHERE a.ts < '2026-01-01 00:00:10' AND a.id < 3.5",
        "SELECT count(*) FROM (SELECT id AS ts, ts AS id FROM fine) q WHERE ts < 3.5",
        "SELECT count(*) FROM fine AS f(ts, id) WHERE ts < 3.5",
    ],
)
def test_hints_never_lose_a_row(wh: tw.Warehouse, duck: Any, statement: str) -> None:
    assert sorted(map(str, wh.sql(statement).to_pylist())) == sorted(map(str, duck.sql(statement).to_arrow_table().to_pylist()))


def test_parameters_are_hints_too(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT v FROM fine WHERE ts < ? AND id = ?", [HOUR, 7])
    assert len(result) == EACH and result.stats.regions_read <= 2  # hints are a little wider
    result = wh.sql("SELECT v FROM fine WHERE ts >= $lo AND ts < $hi", {"lo": HOUR, "hi": HOUR + dt.timedelta(hours=1)})
    assert len(result) == KEYS * EACH and result.stats.regions_read <= 3
    result = wh.sql("SELECT v FROM taxi WHERE id < ?", [1.5])
    assert len(result) == 2 * EACH * HOURS and result.stats.leaves_read <= KEY_LEAVES


HOUR = DAY + dt.timedelta(hours=1)


def test_the_dataset_prunes_in_duckdb_and_polars(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidewheel.sql import dataset

    made: list[Any] = []

    class Seen(dataset.TableScan):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(dataset, "TableScan", Seen)
    taxi = wh.table("taxi").dataset()
    with duckdb.connect() as own:
        own.register("taxi", taxi)
        assert own.sql("SELECT count(*) FROM taxi WHERE id IN (7, 8) AND ts < '2026-01-01 02:00'").fetchall() == [(4 * EACH,)]
    lazy = pl.scan_pyarrow_dataset(taxi)
    asked = lazy.filter((pl.col("id") == 7) & (pl.col("ts") < DAY + dt.timedelta(hours=2))).select("v").collect()
    assert asked.shape == (2 * EACH, 1)
    assert taxi.to_table(filter=(pc.field("id") == 7) & (pc.field("ts") < DAY + dt.timedelta(hours=2)), columns=["s"]).num_rows == 2 * EACH
    assert [scan.stats.regions_read for scan in made] == [2, 2, 2]
    assert all(scan.stats.leaves_read <= 6 for scan in made)
    assert [scan.columns for scan in made] == [["id"], ["id", "ts", "v"], ["s"]]  # Polars asks for what it filters by, too
