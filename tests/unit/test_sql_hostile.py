"""Statements that mean harm: each is refused with an error of ours, or ended by its limits, and the process goes on unharmed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.hostile_statements import measured
from tidewheel.errors import InputError

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Warehouse]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "secret.csv").write_text("a,b\n1,2\n")
    before = os.getcwd()
    os.chdir(folder)
    with tw.open(folder / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(pa.table([pa.array(range(1000)), pa.array(range(1000), pa.timestamp("us")), pa.array([1.0] * 1000)], schema=SCHEMA))
        yield wh
    os.chdir(before)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


REFUSED = [
    # files
    "SELECT * FROM read_csv('secret.csv')",
    "SELECT * FROM read_csv_auto('secret.csv')",
    "SELECT * FROM 'secret.csv'",
    'SELECT * FROM "secret.csv"',
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_parquet('x.parquet')",
    "SELECT * FROM parquet_metadata('x.parquet')",
    "SELECT * FROM read_json('x.json')",
    "SELECT * FROM read_ndjson_objects('x.json')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('secret.csv')",
    "SELECT * FROM parquet_scan('x')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM python_map_function(1, 2)",
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM read_csv('secret.csv'))",
    "WITH x AS (FROM read_text('/etc/passwd')) SELECT * FROM x",
    "SELECT (SELECT count(*) FROM glob('*'))",
    "SELECT * FROM t, LATERAL (SELECT * FROM read_csv('secret.csv')) q",
    "COPY t TO 'out.csv'",
    "COPY t FROM 'secret.csv'",
    "COPY (SELECT 1) TO '/tmp/out.parquet' (FORMAT parquet)",
    "EXPORT DATABASE 'dir'",
    "IMPORT DATABASE 'dir'",
    # network, extensions, other databases
    "SELECT * FROM 'https://example.com/x.csv'",
    "SELECT * FROM read_csv('https://example.com/x.csv')",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FORCE INSTALL spatial FROM community",
    "ATTACH 'other.db'",
    "ATTACH 'catalog.db' AS c (TYPE sqlite)",
    "DETACH memory",
    "USE memory",
    "SELECT * FROM other.main.t",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM sqlite_master",
    "CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'y')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT which_secret('s3://x', 's3')",
    # configuration and the process
    "SET memory_limit = '100GB'",
    "SET enable_external_access = true",
    "RESET memory_limit",
    "SET VARIABLE x = 3",
    "PRAGMA memory_limit = '100GB'",
    "PRAGMA database_list",
    "SELECT current_setting('memory_limit')",
    "SELECT getenv('HOME')",
    "SELECT getvariable('x')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_functions()",
    "SELECT * FROM pragma_version()",
    "SELECT * FROM duckdb_logs()",
    "SELECT write_log('x')",
    "CALL pragma_version()",
    "CALL enable_logging()",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('t')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT nextval('s')",
    "SHOW DATABASES",
    "SHOW ALL TABLES",
    # writing
    "CREATE TABLE x (a INT)",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE VIEW x AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "CREATE FUNCTION f(x) AS x",
    "CREATE TYPE mood AS ENUM ('a')",
    "CREATE SEQUENCE s",
    "CREATE SCHEMA x",
    "INSERT INTO t VALUES (1, now(), 1.0) ON CONFLICT DO NOTHING",
    "INSERT INTO t VALUES (1, now(), 1.0) RETURNING id",
    "INSERT OR REPLACE INTO t VALUES (1, now(), 1.0)",
    "UPDATE t SET v = 1",
    "DELETE FROM t",
    "TRUNCATE t",
    "DROP TABLE t CASCADE",
    "DROP TABLE t, t",
    "DROP VIEW t",
    "DROP SCHEMA main",
    "ALTER TABLE t ADD COLUMN x INT",
    "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "WITH x AS (SELECT 1) DELETE FROM t",
    "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
    "SELECT * FROM (INSERT INTO t VALUES (1, now(), 1.0))",
    "BEGIN TRANSACTION",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE t",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "DEALLOCATE p",
    "COMMENT ON TABLE t IS 'x'",
    # the statements that change something, where they must not
    "INSERT INTO t SELECT 1, now(), length(content) FROM read_text('/etc/passwd')",
    "INSERT INTO t SELECT * FROM read_csv('secret.csv')",
    "INSERT INTO t FROM 'secret.csv'",
    "INSERT INTO t SELECT 1, now(), length(getenv('HOME'))",
    "INSERT INTO t SELECT 1, now(), nextval('s')",
    "INSERT INTO t WITH x AS (FROM glob('*')) SELECT 1, now(), count(*) FROM x",
    "INSERT INTO t SELECT 1, now(), length(repeat('x', 10000000000))",
    "INSERT INTO t VALUES (1, now(), 1.0); DROP TABLE t",
    "INSERT INTO t (id, ts) VALUES (1, now())) --",
    "INSERT INTO system.tables VALUES ('x')",
    "INSERT INTO system.main.t VALUES (1, now(), 1.0)",
    "INSERT INTO other.t VALUES (1, now(), 1.0)",
    'INSERT INTO "system.tables" VALUES (1)',
    'INSERT INTO "t·rows" VALUES (1, now(), 1.0)',
    "INSERT INTO 'secret.csv' VALUES (1)",
    "INSERT INTO t VALUES " + ", ".join(["(1, '2026-01-01', 1.0)"] * 60_000),
    "INSERT INTO t VALUES (" + "(" * 5000 + "1" + ")" * 5000 + ", now(), 1.0)",
    "INSERT INTO nothing SELECT * FROM t",
    "DROP TABLE system.tables",
    "DROP TABLE IF EXISTS system.tables",
    "DROP TABLE other.t",
    "DROP TABLE main.t.t",
    'DROP TABLE "t; DROP TABLE t"',
    "DROP TABLE nothing",
    "CREATE TABLE x AS SELECT * FROM read_csv('secret.csv')",
    "CREATE TABLE x WITH (time = 'ts', key = 'id') AS SELECT * FROM t",
    "CREATE TEMP TABLE x (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a')",
    "CREATE OR REPLACE TABLE t (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a')",
    "CREATE TABLE system.x (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a')",
    "CREATE TABLE other.x (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a')",
    "CREATE TABLE x (a INT, ts TIMESTAMP DEFAULT now()) WITH (time = 'ts', key = 'a')",
    "CREATE TABLE x (a INT CHECK (a > getenv('HOME')), ts TIMESTAMP) WITH (time = 'ts', key = 'a')",
    "CREATE TABLE x (a ENUM (SELECT v FROM t), ts TIMESTAMP) WITH (time = 'ts', key = 'a')",
    "CREATE TABLE x (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a', file = '/etc/passwd')",
    "CREATE TABLE x (a INT, ts TIMESTAMP) WITH (time = 'ts', key = getenv('HOME'))",
    "CREATE TABLE x (a INT, ts TIMESTAMP) WITH (time = 'ts', key = (SELECT 1))",
    "CREATE TABLE x (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a') AS SELECT 1",
    "CREATE TABLE x (a INT" + "[]" * 5000 + ", ts TIMESTAMP) WITH (time = 'ts', key = 'ts')",
    "CREATE TABLE x (LIKE t) WITH (time = 'ts', key = 'id')",
    "CREATE TABLE \"x'; --\" (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a')",
    "CREATE TABLE \"../x\" (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a')",
    "CREATE TABLE x (a INT, ts TIMESTAMP) WITH (time = 'ts', key = 'a', partition = '1 fortnight')",
    # much out of little
    "SELECT repeat('x', 10000000000)",
    "SELECT repeat('xxxxxxxxxx', 100000000)",
    "SELECT length(repeat('x', 1000 * 1000 * 1000))",
    "SELECT length(lpad('x', 2000000000, 'y'))",
    "SELECT length(rpad('x', 2000000000, 'y'))",
    "SELECT length(range(1000000000))",
    "SELECT length(generate_series(0, 1000000000))",
    "SELECT length(range(TIMESTAMP '1900-01-01', TIMESTAMP '2100-01-01', INTERVAL 1 SECOND))",
    "SELECT length(list_resize([1], 1000000000))",
    "SELECT length(array_resize([1], 1000000000, 0))",
    "SELECT length(printf('%900000000d', 1))",
    "SELECT length(format('{:>900000000}', 'x'))",
    "SELECT system.main.repeat('x', 1000000000)",
    # shapes
    "SELECT 1; DROP TABLE t",
    "SELECT 1;; SELECT 2",
    "EXPLAIN DROP TABLE t",
    "EXPLAIN ANALYZE INSERT INTO t SELECT * FROM t",
    "EXPLAIN EXPLAIN SELECT 1",
    "/* x */ SET threads = 1",
    "-- only a comment",
    "",
    "SELECT\0 1",
    "SELECT '\ud800'",
    "(" * 5000 + "1" + ")" * 5000,
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT " + "+".join(["1"] * 900),
    "SELECT " + "+".join(["1"] * 50_000),
    "SELECT " + "NOT " * 5000 + "true",
    "SELECT * FROM " + "(SELECT * FROM " * 600 + "t" + ")" * 600,
    "SELECT " + "CASE WHEN true THEN " * 900 + "1" + " END" * 900,
    "SELECT 1 " + " " * (1 << 20),
    'SELECT * FROM "t·rows"',
    'SELECT * FROM "system.tables"',
    "SELECT * FROM system.duckdb_tables",
    "SELECT * FROM system.main.t",
]


def test_there_are_enough_of_them() -> None:
    assert len(REFUSED) + len(LIMITED) >= 60


@pytest.mark.parametrize("statement", REFUSED, ids=lambda s: s[:60])
def test_it_is_refused(wh: tw.Warehouse, statement: str) -> None:
    before = sorted(os.listdir())
    with pytest.raises(InputError) as refused:
        wh.sql(statement).to_arrow()
    assert wh.tables() == ["t"]
    assert str(refused.value) and "Internal" not in str(refused.value)
    assert sorted(os.listdir()) == before
    assert wh.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 1000}]


LIMITED = [
    "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x) SELECT count(*) FROM x",
    "WITH RECURSIVE x AS (SELECT 1::BIGINT AS a UNION SELECT (a * 3 + 1) % 1000000007 FROM x) SELECT max(a) FROM x",
    "SELECT count(*) FROM range(1000000000000)",
    "SELECT sum(a.id * b.id * c.id * d.id) FROM t a, t b, t c, t d",
    "SELECT list(i) FROM range(10000000000) q(i)",
    "SELECT string_agg(repeat('x', 10000), '') FROM range(1000000)",
    "SELECT i, count(*) FROM range(10000000000) q(i) GROUP BY i",
    "SELECT * FROM range(10000000000) q(i) ORDER BY hash(i)",
    "SELECT a.id FROM t a, t b, t c ORDER BY hash(a.id + b.id * 1000 + c.id * 1000000)",
    "SELECT max(length(repeat('x', 90000) || i)) FROM range(100000000) q(i)",
    "SELECT max(length(regexp_replace(repeat('a', 30000) || i, 'a*?b', 'c', 'g'))) FROM range(1000000) q(i)",
    "SELECT max(length(x)) FROM (SELECT list(repeat('x', 90000) || i) AS x FROM range(1000000) q(i))",
    "INSERT INTO t SELECT i, TIMESTAMP '2026-01-01', 1.0 FROM range(10000000000) q(i)",
    "INSERT INTO t SELECT 1, TIMESTAMP '2026-01-01', sum(a.id * b.id * c.id * d.id) FROM t a, t b, t c, t d",
    "EXPLAIN ANALYZE SELECT sum(a.id * b.id * c.id * d.id) FROM t a, t b, t c, t d",
]


@pytest.mark.parametrize("statement", LIMITED, ids=lambda s: s[:60])
def test_it_is_ended_by_a_limit(wh: tw.Warehouse, statement: str) -> None:
    with measured(0.5) as peak, pytest.raises(tw.LimitError):
        wh.sql(statement, timeout=0.5, max_bytes=128 << 20).to_arrow()
    assert peak.seconds < 0.5 + 2 + peak.late, f"{peak.seconds} s, of which {peak.late} s for want of a core"
    assert wh.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 1000}]


def test_rows_are_limited(wh: tw.Warehouse) -> None:
    with pytest.raises(tw.LimitError, match="more than 10 rows"):
        wh.sql("SELECT * FROM range(1000000)", max_rows=10).to_arrow()
    with pytest.raises(tw.LimitError, match="max_bytes"):
        wh.sql("SELECT repeat('x', 1000) FROM range(1000000)", max_bytes=64 << 20).to_arrow()


def test_a_name_is_not_a_way_out(tmp_path: Path) -> None:
    """Columns may be called anything: they stay names."""
    name = 'x" FROM t; DROP TABLE t; --'
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), (name, pa.string()), ("·", pa.int64())])
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("t", schema, time="ts", key="id").insert(
            pa.table([[1], pa.array([1], pa.timestamp("us")), ["a"], [5]], schema=schema)
        )
        assert wh.sql("SELECT * FROM t").to_pylist()[0][name] == "a"
        assert wh.sql("SELECT count(*) AS n, max(·) AS m FROM t").to_pylist() == [{"n": 1, "m": 5}]
        quoted = name.replace('"', '""')
        assert wh.sql(f'SELECT "{quoted}" AS a FROM t WHERE "{quoted}" = \'a\'').to_pylist() == [{"a": "a"}]
        assert wh.tables() == ["t"]
