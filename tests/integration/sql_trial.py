"""What people type first who know SQL, statement by statement; and their mistakes.

The files are loaded by `tidewheel load`. What reads them is asked of Tidewheel and of DuckDB over the same rows, and the answers have to
be the same; what DuckDB does not know stands with what it should answer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb

import tidewheel as tw
from tests.integration import trial_files
from tests.integration.trial import Line, make_mistakes, type_lines
from tidewheel.surfaces import cli
from tidewheel.surfaces.shell.advice import advised, names_python

LOADED = {
    "taxi": ("rides.parquet", "ts", "plate"),
    "bike": ("bikes.csv", "start_ts", "start_station"),
    "events": ("events.jsonl.gz", "timestamp", "session"),
    "logins": ("logins.parquet", "ts", "src_ip"),
    "weather": ("weather.parquet", "date", "station"),
}

ASKED = [
    "SELECT count(*) FROM taxi",
    "SELECT * FROM taxi WHERE plate = 3",
    "SELECT * FROM taxi ORDER BY ts, plate, lon, lat LIMIT 10",
    "SELECT plate, ts FROM taxi WHERE plate BETWEEN 2 AND 5 AND ts >= '2008-02-03' AND ts < '2008-02-04'",
    "SELECT min(ts), max(ts), count(DISTINCT plate) FROM taxi",
    "SELECT plate, count(*) AS n, max(lon) FROM taxi GROUP BY plate ORDER BY n DESC, plate",
    "SELECT plate, count(*) AS n FROM taxi GROUP BY ALL HAVING n > 100 ORDER BY ALL",
    "SELECT date_trunc('hour', ts) AS hour, count(*) FROM taxi GROUP BY 1 ORDER BY 1",
    "SELECT time_bucket(INTERVAL '15 minutes', ts) AS bucket, count(*) FROM taxi WHERE plate = 2 GROUP BY bucket ORDER BY bucket",
    "SELECT extract('hour' FROM ts) AS h, count(*) FROM taxi GROUP BY h ORDER BY h",
    "SELECT DISTINCT plate FROM taxi ORDER BY plate",
    "SELECT * FROM taxi WHERE lon > 116.5 AND lat BETWEEN 39.8 AND 39.9",
    "SELECT * FROM taxi WHERE plate IN (2, 4, 9)",
    "SELECT * FROM taxi WHERE plate = 2 OR plate = 4",
    "SELECT * FROM taxi WHERE NOT plate = 2",
    "SELECT * FROM taxi WHERE ts::DATE = DATE '2008-02-04'",
    "SELECT * FROM taxi WHERE ts > (SELECT max(ts) FROM taxi) - INTERVAL '1 hour'",
    "SELECT count(*) FROM taxi WHERE ts > now() - INTERVAL '5 minutes'",
    "SELECT plate, arg_max(lon, ts) AS lon FROM taxi GROUP BY plate ORDER BY plate",
    "SELECT DISTINCT ON (plate) plate, ts FROM taxi ORDER BY plate, ts DESC",
    "SELECT plate, ts FROM (SELECT *, row_number() OVER (PARTITION BY plate ORDER BY ts DESC) AS r FROM taxi) WHERE r = 1 ORDER BY ALL",
    "SELECT plate, ts FROM taxi QUALIFY rank() OVER (PARTITION BY plate ORDER BY ts DESC) = 1",
    "SELECT plate, ts, ts - lag(ts) OVER (PARTITION BY plate ORDER BY ts) AS pause FROM taxi WHERE plate = 3",
    "WITH busy AS (SELECT plate FROM taxi GROUP BY plate HAVING count(*) > 500) SELECT count(*) FROM taxi JOIN busy USING (plate)",
    "SELECT a.plate, count(*) FROM taxi a JOIN taxi b ON a.plate = b.plate AND a.ts = b.ts WHERE a.plate < 4 GROUP BY a.plate",
    "SELECT count(*) FILTER (WHERE lon > 116.4) AS east, count(*) AS n FROM taxi",
    "SELECT CASE WHEN lon > 116.4 THEN 'east' ELSE 'west' END AS side, count(*) FROM taxi GROUP BY side ORDER BY side",
    "SELECT quantile_cont(lon, 0.5), stddev(lat) FROM taxi WHERE plate = 2",
    "SELECT median(duration), mode(start_station) IS NOT NULL FROM bike",
    "SELECT * FROM bike WHERE start_station = 72 ORDER BY ALL LIMIT 5",
    "SELECT start_station, end_station, count(*) AS n FROM bike GROUP BY ALL ORDER BY n DESC, 1, 2 LIMIT 5",
    "SELECT birth_year // 10 * 10 AS decade, round(avg(duration)) FROM bike GROUP BY decade ORDER BY decade",
    "SELECT count(*), count(start_lat) FROM bike",
    "SELECT count(*) FROM bike WHERE start_lat IS NULL",
    "SELECT subscriber, sum(duration) FROM bike GROUP BY ROLLUP (subscriber) ORDER BY ALL",
    "SELECT strftime(start_ts, '%Y-%m-%d %H') AS hour, count(*) FROM bike GROUP BY hour ORDER BY hour LIMIT 3",
    "SELECT coalesce(start_lat, 0) AS lat FROM bike ORDER BY lat LIMIT 3",
    "SELECT agent.browser AS browser, count(*) AS n FROM events GROUP BY browser ORDER BY n DESC, browser LIMIT 3",
    "SELECT geo_ip.country, count(DISTINCT session) FROM events GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5",
    "SELECT count(*) FROM events WHERE agent.browser LIKE 'Chr%' AND session_length > 1000",
    "SELECT len(language), count(*) FROM events GROUP BY 1 ORDER BY 1",
    "SELECT unnest(string_split(session, '5')) AS part, count(*) FROM events GROUP BY part ORDER BY part LIMIT 5",
    "SELECT src_ip, count(*) AS n FROM logins GROUP BY src_ip ORDER BY n DESC, src_ip LIMIT 5",
    "SELECT count(*) FROM logins WHERE message LIKE '%login attempt%'",
    "SELECT count(*) FROM logins WHERE message ILIKE '%LOGIN%'",
    "SELECT count(*) FROM logins WHERE regexp_matches(message, '^[Rr]emote')",
    "SELECT split_part(src_ip, '.', 1) AS net, count(*) FROM logins GROUP BY net ORDER BY net LIMIT 5",
    "SELECT upper(left(message, 5)), count(*) FROM logins GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3",
    "SELECT count(*) FROM logins WHERE src_ip LIKE '5%'",
    "SELECT element, count(*), avg(value) FROM weather GROUP BY element ORDER BY element",
    "SELECT station, min(date), max(date) FROM weather GROUP BY station ORDER BY station",
    "SELECT year(date) AS y, max(value) / 10.0 FROM weather WHERE element = 'TMAX' GROUP BY y ORDER BY y",
    "SELECT * FROM weather WHERE station = 'USC00011084' AND date BETWEEN '2010-01-01' AND '2010-01-31' ORDER BY ALL",
    "SELECT date_trunc('month', date) AS m, sum(value) FROM weather WHERE element = 'PRCP' GROUP BY m ORDER BY m LIMIT 12",
    "SELECT * FROM weather WHERE value = (SELECT max(value) FROM weather WHERE element = 'TMAX') AND element = 'TMAX'",
    "PIVOT (SELECT year(date) AS y, element, value FROM weather) ON element IN ('TMAX', 'TMIN') USING avg(value) GROUP BY y ORDER BY y",
    "SELECT 'taxi' AS t, count(*) FROM taxi UNION ALL SELECT 'bike', count(*) FROM bike ORDER BY t",
    "SELECT plate FROM taxi EXCEPT SELECT plate FROM taxi WHERE lon > 116.4 ORDER BY plate",
    "SELECT Plate FROM TAXI WHERE PLATE = 2 LIMIT 1",
]
"""Over the loaded tables, alike in both."""

OURS: list[Line] = [
    ("sorted(ask('SHOW TABLES'))", "[(name,) for name in sorted(LOADED)]"),
    ("[row[0] for row in ask('DESCRIBE taxi')]", "['plate', 'ts', 'lon', 'lat']"),
    ("len(ask('SUMMARIZE taxi'))", "4"),
    ("sorted(ask('SELECT name FROM system.tables'))", "[(name,) for name in sorted(LOADED)]"),
    ("ask(\"SELECT count(*) FROM system.columns WHERE table_name = 'taxi'\")", "[(4,)]"),
    (
        "ask(\"SELECT count(*) FROM logins WHERE ip_in(src_ip, '59.0.0.0/8')\")",
        "ask(\"SELECT count(*) FROM logins WHERE src_ip LIKE '59.%'\")",
    ),
    ("'region' in str(ask('EXPLAIN SELECT * FROM taxi WHERE plate = 3'))", "True"),
    ("'returned' in str(ask('EXPLAIN ANALYZE SELECT * FROM taxi WHERE plate = 3'))", "True"),
    ("ask(\"CREATE TABLE notes (id INT, ts TIMESTAMP, note VARCHAR) WITH (time = 'ts', key = 'id')\")", "[('notes',)]"),
    ("ask(\"INSERT INTO notes VALUES (1, '2026-01-01', 'first'), (2, '2026-01-02 08:00', NULL)\")", "[(2,)]"),
    ('ask("INSERT INTO notes (id, ts) SELECT plate, min(ts) FROM taxi GROUP BY plate")', "ask('SELECT count(DISTINCT plate) FROM taxi')"),
    ("ask('INSERT INTO notes VALUES (?, ?, ?)', [3, '2026-01-03', 'third'])", "[(1,)]"),
    ("ask('SELECT note FROM notes WHERE id = $id AND note IS NOT NULL', {'id': 3})", "[('third',)]"),
    ("ask(\"CREATE TABLE IF NOT EXISTS notes (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'id')\")", "[]"),
    ("ask('DROP TABLE notes')", "[('notes',)]"),
    ("ask('DROP TABLE IF EXISTS notes')", "[]"),
]

MISTAKES = [
    ("ask('SELEC count(*) FROM taxi')", "syntax error"),
    ("ask('SELECT count(* FROM taxi')", "syntax error"),
    ("ask('SELECT * FROM taxis')", "there is no table 'taxis'. Did you mean 'taxi'?"),
    ("ask('SELECT plates FROM taxi')", 'Candidate bindings: "plate"'),
    ("ask('SELECT plate, count(*) FROM taxi')", "must appear in the GROUP BY clause or must be part of an aggregate function"),
    ("ask('SELECT plate FROM taxi GROUP BY plate HAVING lon > 1')", "must appear in the GROUP BY clause"),
    ("ask('SELECT * FROM taxi WHERE count(*) > 1')", "WHERE clause cannot contain aggregates"),
    ("ask('SELECT * FROM taxi WHERE plate = \"3\"')", "single quotes"),
    ("ask(\"SELECT * FROM taxi WHERE plate = 'three'\")", "Could not convert string 'three' to INT64"),
    ("ask(\"SELECT * FROM taxi WHERE ts > 'yesterday'\")", "expected format is (YYYY-MM-DD HH:MM"),
    ("ask('SELECT cuont(*) FROM taxi')", 'Did you mean "count"?'),
    ("ask('SELECT datetrunk(ts) FROM taxi')", 'Did you mean "datetrunc"?'),
    ("ask('SELECT 1; SELECT 2')", "one statement at a time: there are 2 here"),
    ("ask('')", "a statement is SQL text like 'SELECT count(*) FROM taxi'"),
    ("ask('SELECT * FROM taxi JOIN bike')", "syntax error"),
    ("ask('SELECT plate FROM taxi a JOIN taxi b ON a.ts = b.ts')", "(use: 'a.plate' or 'b.plate')"),
    ("ask('SELECT * FROM taxi ORDER BY speed')", 'Referenced column "speed" not found'),
    ("ask('SELECT * FROM taxi LIMIT ten')", 'Referenced column "ten"'),
    ("ask('UPDATE taxi SET lon = 1')", "UPDATE is not run here: rows are not changed one by one"),
    ("ask('DELETE FROM taxi WHERE plate = 1')", "DELETE is not run here: rows are not deleted one by one"),
    ("ask('TRUNCATE taxi')", "TRUNCATE is not run here: rows are not deleted one by one"),
    (
        "ask('ALTER TABLE taxi ADD COLUMN speed DOUBLE')",
        "a table keeps its columns; make another one and fill it with INSERT INTO … SELECT …",
    ),
    ("ask('CREATE TABLE t2 AS SELECT * FROM taxi')", "without rows; fill it with INSERT INTO … SELECT …"),
    ("ask('CREATE VIEW v AS SELECT * FROM taxi')", "of all that can be created, a warehouse has tables"),
    ("ask('CREATE INDEX i ON taxi (lon)')", "of all that can be created, a warehouse has tables"),
    (
        "ask('CREATE TABLE t2 (id INT, ts TIMESTAMP)')",
        "a table needs a time column and a key: write WITH (time = 'ts', key = 'id') behind its columns",
    ),
    ("ask(\"CREATE TABLE t2 (id INT, ts TIMESTAMP) WITH (time = 'tss', key = 'id')\")", "Did you mean 'ts'?"),
    ("ask(\"CREATE TABLE t2 (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'id', partitions = '1 day')\")", "Did you mean 'partition'?"),
    (
        "ask(\"CREATE TABLE t2 (id INT PRIMARY KEY, ts TIMESTAMP) WITH (time = 'ts', key = 'id')\")",
        "a column has a type and perhaps NOT NULL, nothing else\n\nLINE 1",
    ),
    (
        "ask(\"CREATE TABLE taxi (id INT, ts TIMESTAMP) WITH (time = 'ts', key = 'id')\")",
        "table 'taxi' is there already; say IF NOT EXISTS, or drop it first",
    ),
    ("ask('DROP TABLE taxis')", "Did you mean 'taxi'?"),
    ('ask("INSERT INTO taxi VALUES (1)")', "the rows have 1 column, and 4 columns are to be filled: plate, ts, lon, lat"),
    ("ask(\"INSERT INTO taxi VALUES ('x', '2026-01-01', 1, 2)\")", "column 'plate': 1 row doesn't fit int64"),
    ('ask("INSERT INTO taxi (plate) VALUES (1)")', "no value in the time column"),
    ('ask("INSERT INTO taxi (plate, ts, speed) VALUES (1, now(), 2)")', "table 'taxi' has no column 'speed'. Columns: plate, ts, lon, lat"),
    ("ask('INSERT INTO taxis SELECT * FROM taxi')", "Did you mean 'taxi'?"),
    ("ask('SELECT * FROM taxi WHERE plate = ?')", "Values were not provided for the following parameters: 1"),
    ("ask('SELECT * FROM taxi WHERE plate = ?', [1, 2])", "identifiers of the excess parameters: 2"),
    ("ask(\"SELECT * FROM read_csv('bikes.csv')\")", "no files and no network. A file becomes a table with"),
    ("ask(\"SELECT * FROM 'rides.parquet'\")", "A file becomes a table with"),
    ("ask(\"COPY taxi TO 'out.csv'\")", "COPY is not run here: write"),
    ("ask(\"ATTACH 'other.db'\")", "ATTACH is not run here: a statement knows one warehouse"),
    ("ask('SET threads = 8')", "SET is not run here: limits are"),
    ("ask('INSTALL httpfs')", "INSTALL is not run here: extensions are not loaded"),
    ("ask('BEGIN')", "BEGIN is not run here: every statement reads one consistent set of versions"),
    ("ask('SELECT * FROM system.chunk')", "Did you mean 'chunks'?"),
    ("ask('SELECT * FROM information_schema.tables')", "tables have none, or are in 'system'; system.tables lists them"),
    ("ask('SELECT 1 / 0 + CAST(\\'a\\' AS INT)')", "Could not convert"),
    ("ask('SELECT sum(message) FROM logins')", "No function matches the given name and argument types 'sum(VARCHAR)'"),
    ("ask('SELECT * FROM taxi WHERE plate = :p', {'p': 3})", "Parameters are written ?, with their values in a list, or $name"),
    ("ask('SELECT * FROM taxi WHERE plate = %s', [3])", "Parameters are written ?, with their values in a list, or $name"),
    ("ask('SELECT TOP 10 * FROM taxi')", "The first rows are SELECT … LIMIT 10"),
    ("ask('SELECT avg(lon) FROM taxi SAMPLE BY 1h')", "time_bucket('1 hour', time)"),
    ("ask('SELECT * FROM logins WHERE src_ip = localhost')", "A text is written in single quotes: 'localhost'"),
    ("ask('SELECT * FROM taxi AS OF TIMESTAMP now()')", "syntax error"),
]


def typed(here: Path) -> list[str]:
    """Type all of it in a folder for the files of `trial_files`; returns what went another way than it should."""
    trial_files.write_all(here)
    wrong = []
    for table, (file, time, key) in LOADED.items():
        if cli.main(["load", table, str(here / file), "--time", time, "--key", key, "-w", str(here / "wh")]):
            wrong.append(f"tidewheel load {table} failed")
    with tw.open(here / "wh") as wh, duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for table in LOADED:
            duck.register(f"{table}_rows", wh.table(table).query().to_arrow())
            duck.execute(f"CREATE TABLE {table} AS FROM {table}_rows")

        def ask(statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
            return wh.sql(statement, parameters).fetchall()

        for statement in ASKED:
            try:
                saw, wanted = wh.sql(statement).to_pylist(), duck.sql(statement).to_arrow_table().to_pylist()
                ordered = "ORDER BY" in re.sub(r"\(.*\)", "", statement)
                if saw != wanted and (ordered or sorted(map(repr, saw)) != sorted(map(repr, wanted))):
                    wrong.append(f"{statement}\n    saw {saw[:3]} …, not {wanted[:3]} …")
            except Exception as e:
                wrong.append(f"{statement}\n    {type(e).__name__}: {str(e)[:2000]}")
        names: dict[str, Any] = {"ask": ask, "LOADED": LOADED}
        wrong += type_lines(names, OURS)
        before = {name: wh[name].rows for name in wh}

        def ask_in_the_shell(statement: str, parameters: Any = None) -> None:
            try:
                ask(statement, parameters)
            except tw.TidewheelError as e:
                said = advised(str(e))
                raise tw.TidewheelError(
                    f"advises a call of Python: {said}" if names_python(said) and "Python:" not in said else said
                ) from None

        wrong += make_mistakes(names, MISTAKES, tw.TidewheelError)
        wrong += make_mistakes({"ask": ask_in_the_shell}, MISTAKES, tw.TidewheelError)
        if (after := {name: wh[name].rows for name in wh}) != before:
            wrong.append(f"mistakes made {after} of {before}")
    return wrong
