"""CREATE TABLE, DROP TABLE and INSERT through wh.sql: they do what the calls of Python do, and what is wrong is said with its place."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.errors import ExistsError, InputError
from tidewheel.model.schema import ColumnKey, Ip, ZOrder
from tidewheel.sql.system import TABLES
from tidewheel.testing.probe import Probe

DAY = dt.datetime(2026, 1, 1)
SCHEMA = pa.schema([("plate", pa.int32()), ("ts", pa.timestamp("us")), ("speed", pa.float32()), ("note", pa.string())])
TAXI = "CREATE TABLE taxi (plate INT, ts TIMESTAMP, speed REAL, note VARCHAR) WITH (time = 'ts', key = 'plate')"


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        yield wh


def told(wh: tw.Warehouse, statement: str, given: Any = None) -> list[Any]:
    """The values of what a statement says."""
    return [value for row in wh.sql(statement, given).to_pylist() for value in row.values()]


# ---- CREATE TABLE -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "like"),
    [
        (TAXI, {"schema": SCHEMA, "time": "ts", "key": "plate"}),
        (
            "create table main.taxi(plate integer NOT NULL, ts timestamp null, speed float4, \"note\" text)\n"
            "with (KEY = plate, TIME = \"ts\", partition = '1 day') -- done\n;",
            {
                "schema": pa.schema([pa.field("plate", pa.int32(), False), *list(SCHEMA)[1:]]), "time": "ts", "key": "plate",
                "partition": "1 day",
            },
        ),
        (
            "CREATE TABLE taxi (lon DOUBLE, lat DOUBLE, ms BIGINT) WITH (time = 'epoch(ms, ms)', key = 'zorder(lon, lat)', "
            "bounds = '115.4, 39.4, 117.6, 41.1')",
            {
                "schema": pa.schema([("lon", pa.float64()), ("lat", pa.float64()), ("ms", pa.int64())]), "time": tw.epoch("ms", "ms"),
                "key": tw.zorder("lon", "lat", bounds=(115.4, 39.4, 117.6, 41.1)),
            },
        ),
        (
            "CREATE TABLE taxi (a INT, b INT, s UINTEGER) WITH (time = epoch(S, s), key = zorder(B, A), bounds = (-1, 0, 5, 1e3))",
            {
                "schema": pa.schema([("a", pa.int32()), ("b", pa.int32()), ("s", pa.uint32())]), "time": tw.epoch("s", "s"),
                "key": tw.zorder("b", "a", bounds=(-1, 0, 5, 1000)),
            },
        ),
        (
            "CREATE TABLE taxi (\"src ip\" VARCHAR, day DATE) WITH (time = 'day', key = 'ip(src ip)', partition = '7 days')",
            {"schema": pa.schema([("src ip", pa.string()), ("day", pa.date32())]), "time": "day", "key": tw.ip("src ip"),
             "partition": "7 days"},
        ),
        (
            "CREATE TABLE taxi (\"ip(x)\" VARCHAR, \"it's\" TIMESTAMP_NS) WITH (time = 'it''s', key = 'ip(x)')",
            {"schema": pa.schema([("ip(x)", pa.string()), ("it's", pa.timestamp("ns"))]), "time": "it's", "key": "ip(x)"},
        ),
    ],
    ids=["plain", "written otherwise", "z-order and epoch", "without quotes", "ip", "odd names"],
)  # fmt: skip
def test_a_table_is_made_as_python_makes_it(wh: tw.Warehouse, tmp_path: Path, statement: str, like: dict[str, Any]) -> None:
    assert wh.sql(statement).to_pylist() == [{"created": "taxi"}]
    with tw.open(tmp_path / "other") as other:
        other.create_table("taxi", **like)
        assert Probe(wh.table("taxi")).spec == Probe(other.table("taxi")).spec


TYPES = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "INT8": pa.int64(), "UBIGINT": pa.uint64(), "DOUBLE PRECISION": pa.float64(),
    "DECIMAL(10, 2)": pa.decimal128(10, 2), "CHAR(3)": pa.string(), "BYTEA": pa.binary(), "TIME": pa.time64("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"), "TIMESTAMP_MS": pa.timestamp("ms"), "INT[]": pa.list_(pa.int32()),
    "FLOAT[3]": pa.list_(pa.float32(), 3), "STRUCT(a INT, \"b c\" TEXT[])": pa.struct([("a", pa.int32()), ("b c", pa.list_(pa.string()))]),
    "MAP(VARCHAR, BIGINT)": pa.map_(pa.string(), pa.int64()), "JSON": pa.string(), "INTERVAL": pa.month_day_nano_interval(),
}  # fmt: skip


def test_types(wh: tw.Warehouse) -> None:
    columns = ", ".join(f"c{i} {name}" for i, name in enumerate(TYPES))
    wh.sql(f"CREATE TABLE t (id INT, ts TIMESTAMP, {columns}) WITH (time = 'ts', key = 'id')")
    assert wh.table("t").schema.types[2:] == list(TYPES.values())
    wh.sql(
        "INSERT INTO t SELECT 1, '2026-01-01', true, 1, 2, 18446744073709551615, 0.1, 1.5, 'abc', 'x'::BLOB, TIME '01:02:03', "
        "TIMESTAMPTZ '2026-01-01 01:00:00+01', TIMESTAMP '2026-01-01', [1, NULL], [1, 2, 3]::FLOAT[3], {'a': 1, 'b c': ['x']}, "
        "MAP {'k': 5}, '{\"j\": 1}', INTERVAL 3 DAY"
    )
    (row,) = wh.table("t").query().to_pylist()
    assert (row["c3"], row["c5"], row["c9"], row["c10"], row["c13"]) == (
        2**64 - 1, Decimal("1.50"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), DAY, {"a": 1, "b c": ["x"]},
    )  # fmt: skip


def test_a_table_that_is_there(wh: tw.Warehouse) -> None:
    wh.sql(TAXI)
    wh.table("taxi").insert([{"plate": 1, "ts": DAY, "speed": 1.0, "note": None}])
    with pytest.raises(ExistsError, match="'taxi' is there already; say IF NOT EXISTS"):
        wh.sql(TAXI.replace("taxi", "Taxi"))
    result = wh.sql("CREATE TABLE IF NOT EXISTS TAXI (other INT, ts TIMESTAMP) WITH (time = 'ts', key = 'other')")
    assert result.schema.names == ["created"] and len(result) == 0
    assert wh.tables() == ["taxi"] and wh.table("taxi").rows == 1


WITH = "WITH (time = 'ts', key = 'id')"
WRONG = [
    ("CREATE TABLE x (id INT, ts TIMESTAMP)", "a table needs a time column and a key", ""),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'ts')", "and key is missing", "x"),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'ts', kay = 'id')", "no option 'kay'. Did you mean 'key'?", "kay"),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'id', key = 'id')", "Duplicate option", ""),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'tss', key = 'id')", "no column 'tss'. Did you mean 'ts'?", "'tss'"),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'id', key = 'ts')", "time = 'epoch(id, ms)'", "'id'"),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'epoch(id, h)', key = 'ts')", "one of s, ms, us, ns", "'epoch(id, h)'"),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'zorder(id, ts)')", "key is a column", "'zorder(id, ts)'"),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'id', bounds = '1, 2')", "bounds are those of a z-order", "'1, 2'"),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'id', partition = '1 moon')", "a partition looks like", "x"),
    ("CREATE TABLE x (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'ip(id)')", "needs a text column", "x"),
    (f"CREATE TABLE x (id INTT, ts TIMESTAMP) {WITH}", "column id: Type with name INTT does not exist!", "INTT"),
    (f"CREATE TABLE x (id INT, ts TIMESTAMP, u UUID) {WITH}", "column u: a table has no columns of type UUID; use VARCHAR", "UUID"),
    (f"CREATE TABLE x (id INT, ts TIMESTAMP, u STRUCT(a HUGEINT)) {WITH}", "HUGEINT; use DECIMAL(38, 0)", "STRUCT(a HUGEINT)"),
    (f"CREATE TABLE x (id INT PRIMARY KEY, ts TIMESTAMP) {WITH}", "perhaps NOT NULL, nothing else", "PRIMARY"),
    (f"CREATE TABLE x (id INT DEFAULT 1, ts TIMESTAMP) {WITH}", "perhaps NOT NULL, nothing else", "DEFAULT"),
    (f"CREATE TABLE x (id INT, ts TIMESTAMP, UNIQUE (id)) {WITH}", "no constraints but NOT NULL", "UNIQUE"),
    (f"CREATE TABLE x (id INT, ts TIMESTAMP, ID INT) {WITH}", "already exists", ""),
    ("CREATE TABLE x AS SELECT 1 AS id", "fill it with INSERT INTO … SELECT", "AS"),
    (f"CREATE OR REPLACE TABLE x (id INT, ts TIMESTAMP) {WITH}", "DROP TABLE IF EXISTS", "TABLE"),
    (f'CREATE TABLE "no name" (id INT, ts TIMESTAMP) {WITH}', "letters, digits and _", '"no name"'),
    ("DROP TABLE nothing", "there is no table 'nothing'. Tables: none yet", "nothing"),
    ("DROP TABLE system.tables", "cannot be changed", "system"),
    ("DROP TABLE x CASCADE", "the name of one table", "CASCADE"),
    ("DELETE FROM taxi WHERE plate = 1", "table.replace([], time=(first, last))", ""),
    ("TRUNCATE taxi", "TRUNCATE is not run here", ""),
    ("UPDATE taxi SET plate = 1", "table.replace(rows, time=(first, last))", ""),
    ("ALTER TABLE taxi ADD COLUMN x INT", "fill it with INSERT INTO", ""),
    ("CREATE VIEW v AS SELECT 1", "CREATE TABLE name", ""),
    ("CREATE VIEW v AS SELECT 1", "wh.create_derived(name, sql", ""),
    ("create or replace materialized view v AS SELECT 1", "wh.create_derived(name, sql", ""),
    ("REFRESH MATERIALIZED VIEW v", "wh.refresh()", ""),
    ("COPY taxi TO 'x.csv'", "to_parquet(...)", ""),
    ("EXPLAIN DROP TABLE taxi", "EXPLAIN is of statements that read", ""),
    ("EXPLAIN (FORMAT json) SELECT 1", "have no options", "FORMAT"),
    ("SELECT count(*) FROM (SHOW TABLES)", "ask system.tables", ""),
    ("EXPLAIN SHOW TABLES", "ask system.tables", ""),
]


@pytest.mark.parametrize(("statement", "said", "marked"), WRONG, ids=[one[0][:60] for one in WRONG])
def test_what_is_wrong_is_said_with_its_place(wh: tw.Warehouse, statement: str, said: str, marked: str) -> None:
    with pytest.raises(InputError) as wrong:
        wh.sql(statement)
    message = str(wrong.value)
    assert said in message and wh.tables() == []
    assert _marked(message) == marked


def _marked(message: str) -> str:
    """What the mark of a message stands under."""
    if "\n\nLINE " not in message:
        return ""
    *_, line, mark = message.split("\n")
    return line[len(mark) - mark.count("^") : len(mark)]


def test_parameters_are_for_rows(wh: tw.Warehouse) -> None:
    with pytest.raises(tw.QueryError, match="takes no parameters"):
        wh.sql("DROP TABLE IF EXISTS taxi", [1])


# ---- DROP TABLE ---------------------------------------------------------------------------------------------


def test_drop(wh: tw.Warehouse) -> None:
    wh.sql(TAXI)
    assert wh.sql("DROP TABLE IF EXISTS nothing").to_pylist() == []
    assert wh.sql('/* /* so */ */ DROP TABLE "TAXI"').to_pylist() == [{"dropped": "taxi"}]
    assert wh.tables() == []
    wh.sql(TAXI)
    for name in ("a", "A"):
        wh.create_table(name, SCHEMA, time="ts", key="plate")
    wh.sql("DROP TABLE a")
    assert wh.tables() == ["A", "taxi"]


# ---- INSERT -------------------------------------------------------------------------------------------------


def rows_of(wh: tw.Warehouse, table: str = "taxi") -> list[tuple[Any, ...]]:
    found = wh.table(table).query().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


INSERTS: list[tuple[str, Any, list[dict[str, Any]]]] = [
    (
        "INSERT INTO taxi VALUES (1, '2026-01-01', 1.5, 'a'), (2, '2026-01-01 00:00:01', 0.1, NULL)", None,
        [{"plate": 1, "ts": DAY, "speed": 1.5, "note": "a"}, {"plate": 2, "ts": DAY + dt.timedelta(seconds=1), "speed": 0.1, "note": None}],
    ),
    ("insert into Taxi(TS, \"plate\") values (?, ?), (?, 4);", [DAY, 3, "2026-01-02T00:00:00Z"],
     [{"plate": 3, "ts": DAY}, {"plate": 4, "ts": "2026-01-02"}]),
    ("INSERT INTO main.taxi (plate, ts, note) VALUES ($p, $t, $p::VARCHAR)", {"p": 5, "t": DAY}, [{"plate": 5, "ts": DAY, "note": "5"}]),
    ("INSERT INTO taxi (plate, ts) (SELECT 6, DATE '2026-01-01')", None, [{"plate": 6, "ts": DAY}]),
    ("INSERT INTO taxi (SELECT 6, DATE '2026-01-01', 1, 'x')", None, [{"plate": 6, "ts": DAY, "speed": 1.0, "note": "x"}]),
    ("WITH x AS (SELECT 7 AS p) INSERT INTO taxi (plate, ts)\n-- rows\nSELECT p, TIMESTAMP '2026-01-01' FROM x", None,
     [{"plate": 7, "ts": DAY}]),
    ("INSERT INTO taxi BY NAME SELECT 'n' AS note, 8 AS Plate, '2026-01-01' AS ts", None, [{"plate": 8, "ts": DAY, "note": "n"}]),
    ("INSERT INTO taxi SELECT sum(i), '2026-01-01', avg(i), 'RETURNING; ON CONFLICT DO' FROM range(10) q(i)", None,
     [{"plate": 45, "ts": DAY, "speed": 4.5, "note": "RETURNING; ON CONFLICT DO"}]),
    ("INSERT INTO taxi SELECT * FROM taxi WHERE false", None, []),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "given", "like"), INSERTS, ids=[one[0][:50] for one in INSERTS])
def test_rows_are_inserted_as_python_inserts_them(wh: tw.Warehouse, statement: str, given: Any, like: list[dict[str, Any]]) -> None:
    wh.sql(TAXI)
    wh.create_table("twin", SCHEMA, time="ts", key="plate").insert([{name: row.get(name) for name in SCHEMA.names} for row in like])
    result = wh.sql(statement, given)
    assert rows_of(wh) == rows_of(wh, "twin"), "visible when the statement returns"
    assert result.to_pylist() == result.to_pylist() == [{"rows": len(like)}] and len(result) == 1 and "rows" in repr(result)


def test_a_statement_is_one_insert(wh: tw.Warehouse) -> None:
    wh.sql(TAXI)
    result = wh.sql("INSERT INTO taxi (plate, ts) SELECT i, TIMESTAMP '2026-01-01' + to_seconds(i) FROM range(300000) q(i)")
    assert result.to_pylist() == [{"rows": 300_000}]
    table = Probe(wh.table("taxi"))
    assert table.rows_by_generation(0, None, None) == [(result.generation, 300_000)]
    before = wh.sql("SELECT sum(plate) AS s FROM taxi")
    again = wh.sql("INSERT INTO taxi SELECT * FROM taxi")  # the rows that were there when it began
    assert again.to_pylist() == [{"rows": 300_000}] and again.stats.rows_scanned + again.stats.leaves_read > 0
    assert (
        wh.table("taxi").rows == 600_000
        and before.to_pylist()[0]["s"] * 2 == wh.sql("SELECT sum(plate) AS s FROM taxi").to_pylist()[0]["s"]
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("VALUES (1, '2026-01-01', 1, 'a'), (1.5, '2026-01-01', 1, 'a')", "column 'plate': 1 row doesn't fit int32"),
        ("VALUES (1, '2026-01-01', 1, 'a'), (NULL, '2026-01-01', 1, 'a')", "no value in the key column .first: row 1"),
        ("VALUES (1, '2026-01-01', 1, 'a'), (2, 'yesterday', 1, 'a')", "'yesterday'"),
        ("SELECT i, TIMESTAMP '2026-01-01', 1, 'a' FROM range(2147483640, 2147483700) q(i)", "52 rows don't fit int32"),
        ("SELECT 1, TIMESTAMP '2026-01-01', [1], 'a'", "column 'speed'"),
        ("SELECT 1, TIMESTAMP '2026-01-01', 1e300, 'a'", "column 'speed': 1 row doesn't fit float"),
        ("SELECT i, TIMESTAMP '2026-01-01', 1, error('on purpose') FROM range(5) q(i)", "on purpose"),
    ],
)
def test_nothing_of_it_is_inserted_if_a_row_is_bad(wh: tw.Warehouse, rows: str, said: str) -> None:
    wh.sql(TAXI)
    with pytest.raises(InputError, match=said):
        wh.sql(f"INSERT INTO taxi {rows}")
    assert wh.table("taxi").rows == 0 and wh.table("taxi").state().generation == 0
    assert wh.sql("SELECT state FROM system.queries ORDER BY id DESC LIMIT 1").to_pylist() == [{"state": "failed"}]


def test_a_list_of_values_is_not_rounded(wh: tw.Warehouse) -> None:
    wh.sql("CREATE TABLE t (id BIGINT, ts TIMESTAMP, d DOUBLE) WITH (time = 'ts', key = 'id')")
    with pytest.raises(tw.QueryError, match="column 'id': the list mixes large numbers with ones like 1e0"):
        wh.sql("INSERT INTO t VALUES (9007199254740993, '2026-01-01', 1e300), (1e0, '2026-01-01', 1)")
    wh.sql("INSERT INTO t VALUES (9007199254740993, '2026-01-01', 1e300), (1.0, '2026-01-01', NULL), (2, '2026-01-01', 0.1)")
    assert [row[0] for row in rows_of(wh, "t")] == [1, 2, 9007199254740993]


def test_the_page_about_sql_says_what_can_be_typed(wh: tw.Warehouse) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    answers = [wh.sql(statement).to_pylist() for statement in block.split(";") if statement.strip()]
    assert answers == [[{"created": "taxi"}], [{"rows": 2}], [{"rows": 2}], [{"dropped": "taxi"}]]
    for options in re.findall(r"^\| `((?:time|key|partition) = [^`]*)`", page, re.MULTILINE):
        rest = "".join(f", {name} = '{column}'" for name, column in (("time", "ts"), ("key", "plate")) if not options.startswith(name))
        columns = "plate INT, ts TIMESTAMP, ms_seen BIGINT, lon DOUBLE, lat DOUBLE, src_ip VARCHAR"
        wh.sql(f"CREATE TABLE t ({columns}) WITH ({options}{rest})")
        wh.sql("DROP TABLE t")


def test_not_null_is_kept(wh: tw.Warehouse) -> None:
    wh.sql(TAXI.replace("note VARCHAR", "note VARCHAR NOT NULL"))
    with pytest.raises(tw.BadRowsError, match="column 'note': 1 row has no value in the non-nullable column"):
        wh.sql("INSERT INTO taxi (plate, ts) VALUES (1, '2026-01-01')")


WRONG_INSERTS = [
    ("INSERT INTO taxy VALUES (1)", "there is no table 'taxy'. Did you mean 'taxi'?", "taxy"),
    ("INSERT INTO taxi (plate, sped) VALUES (1, 2)", "no column 'sped'. Did you mean 'speed'?", "sped"),
    ("INSERT INTO taxi (plate, PLATE) VALUES (1, 2)", "column 'plate' is named twice", "PLATE"),
    ("INSERT INTO taxi VALUES (1, 2)", "the rows have 2 columns, and 4 columns are to be filled: plate, ts, speed, note", "taxi"),
    ("INSERT INTO taxi (plate) VALUES (1, 2)", "the rows have 2 columns, and 1 column", "plate"),
    ("INSERT INTO taxi BY NAME SELECT 1 AS sped", "no column 'sped'", "taxi"),
    ("INSERT INTO taxi (plate)\nVALUES\n  (DEFAULT)", "columns have no defaults", "DEFAULT"),
    ("INSERT INTO taxi (plate) VALUES (wrong)", 'column "wrong"', "wrong"),
    ("INSERT INTO taxi SELECT sped FROM taxi", 'column "sped" not found', "sped"),
    ("INSERT INTO taxi SELECT * FROM taxy", "there is no table 'taxy'", "taxy"),
    ("INSERT INTO taxi SELECT * FROM read_csv('x')", "no files and no network", "read_csv('x')"),
    ("INSERT INTO taxi DEFAULT VALUES", "those left out are null", "DEFAULT"),
    ("INSERT INTO taxi VALUES (1) ON CONFLICT DO NOTHING", "no unique keys", "ON"),
    ("INSERT INTO taxi VALUES (1) RETURNING plate", "ask for the rows with SELECT", "RETURNING"),
    ("INSERT OR IGNORE INTO taxi VALUES (1)", "write INSERT INTO", "OR"),
    ("INSERT INTO taxi VALUES (1,", "syntax error", None),
    ("INSERT INTO taxi VALUES (?, ?, 1, 'a')", "parameter", None),
]


@pytest.mark.parametrize(("statement", "said", "marked"), WRONG_INSERTS, ids=[one[0][:50] for one in WRONG_INSERTS])
def test_what_is_wrong_with_an_insert(wh: tw.Warehouse, statement: str, said: str, marked: str | None) -> None:
    wh.sql(TAXI)
    with pytest.raises(tw.QueryError) as wrong:
        wh.sql(statement)
    message = str(wrong.value)
    assert said in message and wh.table("taxi").rows == 0
    if marked is not None:
        assert _marked(message) == marked, message


def test_the_reading_of_an_insert_has_limits_and_can_be_cancelled(wh: tw.Warehouse) -> None:
    wh.sql(TAXI)
    endless = "INSERT INTO taxi (plate, ts) SELECT i, '2026-01-01' FROM range(100000000000) q(i) WHERE hash(i) = 1"
    with pytest.raises(tw.LimitError, match="timeout"):
        wh.sql(endless, timeout=0.2)
    with pytest.raises(tw.LimitError, match="max_bytes"):
        wh.sql("INSERT INTO taxi SELECT i, '2026-01-01', 1, repeat('x', 1000) FROM range(1000000) q(i)", max_bytes=64 << 20)
    assert wh.sql("INSERT INTO taxi (plate, ts) SELECT i, '2026-01-01' FROM range(20) q(i)", max_rows=1).to_pylist() == [{"rows": 20}]

    def cancel() -> None:
        while not (found := wh.sql("SELECT id FROM system.queries WHERE state = 'running' AND statement LIKE 'INSERT%'").to_pylist()):
            time.sleep(0.01)
        wh.cancel(found[0]["id"])

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(tw.CancelledError):
        wh.sql(endless)
    thread.join()
    assert wh.table("taxi").rows == 20


def test_keys_of_other_kinds(wh: tw.Warehouse) -> None:
    wh.sql("CREATE TABLE flows (src VARCHAR, ms BIGINT, kind VARCHAR) WITH (time = 'epoch(ms, ms)', key = 'ip(src)')")
    wh.sql(
        "CREATE TABLE spots (lon DOUBLE, lat DOUBLE, ts TIMESTAMPTZ) WITH (time = 'ts', key = 'zorder(lon, lat)', bounds = '0, 0, 9, 9')"
    )
    assert isinstance(wh.table("flows").key, Ip) and isinstance(wh.table("spots").key, ZOrder)
    wh.sql("INSERT INTO flows VALUES ('10.0.0.1', TIMESTAMP '2026-01-01', 'a'), ('::1', '2026-01-01', 'b')")
    wh.sql("INSERT INTO spots SELECT i, i, to_timestamp(i) FROM range(10) q(i)")
    assert len(wh.table("flows").query(key="10.0.0.1", time=("2026-01-01", "2026-01-01"))) == 1
    assert len(wh.table("spots").query(box=(2, 2, 4, 4))) == 3
    with pytest.raises(tw.BadRowsError, match="no key"):
        wh.sql("INSERT INTO flows VALUES ('10.0.0.300', 1, 'a')")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("DOUBLE", ("1.5", "'1.55'")),
        ("DOUBLE", ("2", "'1.5'")),
        ("DECIMAL(9, 2)", ("1", "'1.55'")),
        ("TIMESTAMP", ("DATE '2026-01-02'", "'2026-01-01 10:00'")),
        ("TIMESTAMP_NS", ("TIMESTAMP '2026-01-02'", "'2026-01-01 00:00:00.123456789'")),
        ("BIGINT", ("9007199254740993", "1e0")),
        ("BIGINT", ("16777217", "1::REAL")),
    ],
)
@pytest.mark.parametrize("form", ["INSERT INTO v {}", "/* a list */ INSERT INTO v ({})", "WITH q AS (SELECT 1) INSERT INTO v {}"])
def test_a_list_of_values_changes_none_of_them(wh: tw.Warehouse, column: str, values: tuple[str, str], form: str) -> None:
    """DuckDB gives all of a list one type, and would make other values of them on the way."""
    wh.sql(f"CREATE TABLE v (id INT, ts TIMESTAMP, x {column}) WITH (time = 'ts', key = 'id')")
    rows = ", ".join(f"({i}, '2026-01-01', {value})" for i, value in enumerate(values))
    with pytest.raises(tw.QueryError, match="column 'x': the list mixes"):
        wh.sql(form.format(f"VALUES {rows}"))
    assert wh.table("v").rows == 0


def test_lists_of_values_that_may_mix(wh: tw.Warehouse) -> None:
    wh.sql("CREATE TABLE v (id INT, ts TIMESTAMP, x DOUBLE, s VARCHAR) WITH (time = 'ts', key = 'id')")
    wh.sql("INSERT INTO v VALUES (1, TIMESTAMP '2026-01-01', 1e0, 'a'), (2, '2026-01-02 10:00', '1.55', lower('B'))")
    assert told(wh, "SELECT x FROM v ORDER BY id") == [1.0, 1.55]
    assert told(wh, "SELECT ts FROM v WHERE id = 2") == [dt.datetime(2026, 1, 2, 10)]


@pytest.mark.parametrize("column", ["REAL", "DOUBLE"])
def test_numbers_with_a_point_are_the_floats_that_are_written_so(wh: tw.Warehouse, column: str) -> None:
    """SQL takes them for decimals."""
    numbers = ["116.397128", "1.005", "-0.1", "39.9", "123456789.123"]
    wh.sql(f"CREATE TABLE v (id INT, ts TIMESTAMP, x {column}) WITH (time = 'ts', key = 'id')")
    wh.sql("INSERT INTO v VALUES " + ", ".join(f"({i}, '2026-01-01', {number})" for i, number in enumerate(numbers)))
    expected = pa.array([float(number) for number in numbers]).cast(pa.float32() if column == "REAL" else pa.float64())
    assert told(wh, "SELECT x FROM v ORDER BY id") == expected.to_pylist()
    with pytest.raises(tw.BadRowsError, match="doesn't fit"):
        wh.sql("INSERT INTO v VALUES (9, '2026-01-01', 12345678901234567891)")


def test_a_column_that_is_given_twice_by_name(wh: tw.Warehouse) -> None:
    wh.sql("CREATE TABLE v (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'id')")
    with pytest.raises(tw.QueryError, match="'id' is named twice"):
        wh.sql("INSERT INTO v BY NAME SELECT 1 AS id, TIMESTAMP '2026-01-01' AS ts, 2 AS \"ID\"")
    assert wh.table("v").rows == 0


def test_columns_that_differ_only_in_case(wh: tw.Warehouse) -> None:
    """SQL cannot tell them apart, and must not read one for the other."""
    schema = pa.schema([("id", pa.int64()), ("ID", pa.string()), ("ts", pa.timestamp("us")), ("id_1", pa.float16())])
    wh.create_table("t", schema, time="ts", key="id").insert([{"id": i, "ID": f"x{i}", "ts": DAY, "id_1": 0.5} for i in range(3)])
    names = wh.sql("SELECT * FROM t").schema.names
    assert len({name.lower() for name in names} | {"id"}) == 5 and names[2:] == ["ts", "id_1"]
    for statement in ("SELECT * FROM t", "SELECT * FROM t ORDER BY ALL", "SELECT DISTINCT * FROM t", "FROM (FROM t)"):
        assert sorted(tuple(row.values()) for row in wh.sql(statement).to_pylist()) == [(i, f"x{i}", DAY, 0.5) for i in range(3)], statement
    assert told(wh, f'SELECT "{names[0]}" FROM t WHERE "{names[1]}" = \'x2\'') == [2]
    assert told(wh, f'SELECT "{names[1]}" FROM t WHERE "{names[0]}" >= 2') == ["x2"] and told(wh, "SELECT count(*) FROM t") == [3]
    for statement in ("SELECT id FROM t", 'SELECT "ID" FROM t', "SELECT max(id) FROM t", "SELECT ts FROM t WHERE id = 1"):
        with pytest.raises(tw.QueryError, match='(?i)column "id"'):
            wh.sql(statement)
    wh.sql("INSERT INTO t (id, \"ID\", ts) VALUES (7, 'seven', '2026-01-01')")
    assert len(wh.table("t").query(key=7)) == 1
    with pytest.raises(tw.QueryError, match="differ only in case; write the one that is meant"):
        wh.sql("INSERT INTO t (Id, ts) VALUES (1, '2026-01-01')")


def test_dictionary_columns(wh: tw.Warehouse) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("kind", pa.dictionary(pa.int32(), pa.string()))])
    wh.create_table("t", schema, time="ts", key="id")
    wh.sql("INSERT INTO t VALUES (1, '2026-01-01', 'a'), (2, '2026-01-01', NULL), (3, '2026-01-01', 'b')")
    wh.sql("INSERT INTO t SELECT id + 10, ts, kind FROM t")
    assert [row[2] for row in sorted(rows_of(wh, "t"))] == ["a", None, "b"] * 2
    assert isinstance(wh.table("t").key, ColumnKey)


# ---- EXPLAIN ------------------------------------------------------------------------------------------------


def test_explain_analyze_runs_when_it_is_read_and_can_be_cancelled(wh: tw.Warehouse) -> None:
    wh.sql(TAXI)
    wh.sql("INSERT INTO taxi (plate, ts) SELECT i, '2026-01-01' FROM range(1000) q(i)")
    result = wh.sql("EXPLAIN ANALYZE SELECT sum(a.plate + b.plate + c.plate + d.plate) FROM taxi a, taxi b, taxi c, taxi d")
    timer = threading.Timer(0.2, result.cancel)
    timer.start()
    began = time.monotonic()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    timer.join()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    assert time.monotonic() - began < 5
    short = wh.sql("/* a /* plan */ */ EXPLAIN -- and its cost\nANALYZE SELECT count(plate) FROM taxi")
    assert [row["explain_key"] for row in short.to_pylist()] == ["tidewheel: taxi"] and len(short) == len(short.to_pylist())
    assert len(wh.sql("EXPLAIN (SELECT median(plate) FROM taxi)")) == 2
    assert len(short) == 1 and "explain_key" in repr(short)
    with pytest.raises(tw.LimitError, match="timeout"):
        wh.sql(
            "EXPLAIN ANALYZE SELECT sum(a.plate + b.plate + c.plate + d.plate) FROM taxi a, taxi b, taxi c, taxi d", timeout=0.1
        ).to_arrow()


# ---- many at once -------------------------------------------------------------------------------------------


def test_system_tables_while_tables_come_and_go(wh: tw.Warehouse) -> None:
    wh.sql(TAXI)
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            wh.sql(TAXI.replace("taxi", "other"))
            wh.sql("INSERT INTO other (plate, ts) VALUES (1, '2026-01-01')")
            wh.sql("DROP TABLE other")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        give_up = time.monotonic() + 1
        while time.monotonic() < give_up:
            for name in TABLES:
                wh.sql(f"SELECT * FROM system.{name}").to_arrow()
    finally:
        over.set()
        thread.join()
    assert told(wh, "SELECT name FROM system.tables") == ["taxi"]
