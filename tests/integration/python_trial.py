"""What people type first who know Python, pandas and DuckDB, line by line; and their mistakes. Expectations are over rows of the files."""

from __future__ import annotations

import collections
import datetime as dt
import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

import tidewheel as tw
from tests.integration import trial_files
from tests.integration.trial import Line, make_mistakes, type_lines

FIRST: list[Line] = [
    "import tidewheel as tw",
    "wh = tw.open(WH)",
    ("wh.tables()", "[]"),
    # a file becomes a table
    "report = wh.load('taxi', f'{HERE}/rides.parquet', time='ts', key='plate')",
    ("report.rows", "len(rides)"),
    "taxi = wh['taxi']",
    ("(len(taxi), taxi.rows)", "(len(rides), len(rides))"),
    ("taxi.schema.names", "rides.schema.names"),
    ("wh.load('taxi', f'{HERE}/rides.parquet').rows", "0"),
    ("'taxi' in wh and list(wh) == ['taxi']", "True"),
    ("len(taxi.head(3))", "3"),
    ("len(taxi.head())", "10"),
    ("'lon' in str(taxi.describe())", "True"),
    ("'taxi' in repr(taxi) and 'plate' in repr(taxi)", "True"),
    ("'<table' in taxi.head()._repr_html_()", "True"),
    # a DataFrame becomes a table
    "import pandas as pd",
    "df = pd.read_csv(f'{HERE}/bikes.csv', parse_dates=['start_ts'])",
    "bike = wh.create_table('bike', df, time='start_ts', key='start_station')",
    ("bike.rows", "len(df)"),
    ("bike.query(key=72).df()['duration'].sum()", "df[df.start_station == 72].duration.sum()"),
    "import polars as pl",
    "stations = pl.read_csv(f'{HERE}/stations.csv')",
    # CSV, JSON with fields in fields, addresses
    ("wh.load('trips', f'{HERE}/bikes.csv', time='start_ts', key='start_station').rows", "len(df)"),
    ("wh.load('events', f'{HERE}/events.jsonl.gz', time='timestamp', key='session').rows", "len(events)"),
    "flows = wh.create_table('flows', logins, time='ts', key=tw.ip('src_ip'))",
    ("flows.rows", "len(logins)"),
    # one more row, and it is there
    "now = dt.datetime.now(dt.UTC)",
    "ack = taxi.insert([{'plate': -1, 'ts': now, 'lon': 116.4, 'lat': 39.9}])",
    ("(ack.rows, ack.rejected, ack.duplicate)", "(1, 0, False)"),
    ("taxi.query(key=-1).fetchall()", "[(-1, now, 116.4, 39.9)]"),
    ("taxi.insert(pd.DataFrame({'plate': [-2], 'ts': [now]})).rows", "1"),
    ("taxi.query(key=-2).fetchone()[2:]", "(None, None)"),
    ("taxi.insert(pl.DataFrame({'plate': [-3], 'ts': [now]})).rows", "1"),
    ("taxi.insert(pa.RecordBatch.from_pylist([{'plate': -4, 'ts': now}])).rows", "1"),
    ("taxi.insert({'plate': -5, 'ts': now} for _ in range(3)).rows", "3"),
    ("taxi.insert(rides.slice(0, 5), package='again').rows + taxi.insert(rides.slice(0, 5), package='again').rows", "5"),
    ("taxi.insert(pq.ParquetFile(f'{HERE}/rides.parquet')).rows", "len(rides)"),
    ("taxi.replace(rides, time=(pc.min(rides['ts']).as_py(), pc.max(rides['ts']).as_py())).rows", "len(rides)"),
    ("len(taxi.query(key=(0, None)))", "len(rides)"),
    # questions
    ("len(taxi.query(key=3))", "count(pc.equal(rides['plate'], 3))"),
    ("len(taxi.query(key=(2, 5)))", "count(pc.is_in(rides['plate'], pa.array([2, 3, 4, 5])))"),
    ("len(taxi.query(key=[2, 5]))", "count(pc.is_in(rides['plate'], pa.array([2, 5])))"),
    ("len(taxi.query(key=range(2, 5)))", "count(pc.is_in(rides['plate'], pa.array([2, 3, 4])))"),
    ("len(taxi.query(time=('2008-02-03', '2008-02-04')))", "count(between(rides['ts'], dt.datetime(2008, 2, 3), dt.datetime(2008, 2, 4)))"),
    ("len(taxi.query(time=(None, dt.date(2008, 2, 4)), key=(0, None)))", "count(between(rides['ts'], None, dt.datetime(2008, 2, 4)))"),
    (
        "len(taxi.query(where='lon > 116.5 AND lat < 40', key=(0, None)))",
        "count(pc.and_(pc.greater(rides['lon'], 116.5), pc.less(rides['lat'], 40)))",
    ),
    ("len(taxi.query(where='lon > ?', params=[116.5], key=(0, None)))", "count(pc.greater(rides['lon'], 116.5))"),
    ("len(taxi.query(where='lon > $x', params={'x': 116.5}, key=(0, None)))", "count(pc.greater(rides['lon'], 116.5))"),
    ("len(taxi.query(where=lambda b: pc.greater(b['lon'], 116.5), key=(0, None)))", "count(pc.greater(rides['lon'], 116.5))"),
    ("len(taxi.query(ranges={'lon': (116.3, 116.4)}, key=(0, None)))", "count(between(rides['lon'], 116.3, 116.4))"),
    ("taxi.query(columns=['plate', 'lon * 2 AS twice'], limit=5).columns", "['plate', 'twice']"),
    ("len(taxi.query(limit=7, offset=3))", "7"),
    ("taxi.query(order_by='ts desc', limit=1, columns=['ts'], key=(0, None)).fetchone()[0]", "pc.max(rides['ts']).as_py()"),
    (
        "taxi.query(aggregate={'n': 'count(*)', 'far': 'max(lon)'}, key=(0, None)).fetchall()",
        "[(len(rides), pc.max(rides['lon']).as_py())]",
    ),
    ("len(taxi.query(aggregate={'n': 'count(*)'}, group_by=['plate'], key=(0, None)))", "len(pc.unique(rides['plate']))"),
    (
        "sum(taxi.query(aggregate={'n': 'count(*)'}, group_by=[\"date_trunc('hour', ts) AS hour\"], key=(0, None)).df()['n'])",
        "len(rides)",
    ),
    ("len(taxi.query(group_by=['plate'], key=(0, None)))", "len(pc.unique(rides['plate']))"),
    ("len(taxi.latest(key=(0, None)))", "len(pc.unique(rides['plate']))"),
    ("taxi.latest(key=3).fetchone()[1]", "pc.max(rides.filter(pc.equal(rides['plate'], 3))['ts']).as_py()"),
    ("len(flows.query(key='59.0.0.0/8'))", "count(pc.starts_with(logins['src_ip'], '59.'))"),
    ("wh['events'].query(columns=['agent.browser']).columns", "['browser']"),
    (
        "dict(wh['events'].query(aggregate={'n': 'count(*)'}, group_by=['geo_ip.country AS country']).fetchall())",
        "counted(event['geo_ip']['country'] for event in events)",
    ),
    ("len(wh['events'].query(where=\"agent.browser = 'Chrome'\"))", "sum(event['agent']['browser'] == 'Chrome' for event in events)"),
    # answers
    "r = taxi.query(key=(1, 5))",
    ("r.df().shape", "(len(r), 4)"),
    ("r.pl().shape == r.df().shape == r.arrow().shape == r.to_arrow().shape", "True"),
    ("len(r.fetchall()) == sum(batch.num_rows for batch in r) == len(list(r.to_pylist()))", "True"),
    ("r.to_parquet(f'{HERE}/out.parquet') or pq.read_metadata(f'{HERE}/out.parquet').num_rows", "len(r)"),
    ("'plate' in str(r) and 'rows' in str(r)", "True"),
    ("r.stats.rows_returned", "len(r)"),
    ("'region' in taxi.explain(key=3)", "True"),
    ("pl.DataFrame(r).height", "len(r)"),
    ("pa.table(r).num_rows", "len(r)"),
    # SQL, DuckDB, Polars
    ("wh.sql('SELECT count(*) FROM taxi WHERE plate >= 0').fetchone()", "(len(rides),)"),
    (
        "wh.sql('SELECT max(lon) FROM taxi WHERE plate = ?', [3]).fetchone()[0]",
        "pc.max(rides.filter(pc.equal(rides['plate'], 3))['lon']).as_py()",
    ),
    (
        "wh.sql('SELECT count(*) FROM bike JOIN stations ON station_id = start_station', tables={'stations': stations}).fetchone()[0]",
        "int(df.start_station.isin(stations['station_id'].to_list()).sum())",
    ),
    "import duckdb",
    "cars = taxi.dataset()",
    ("duckdb.sql('SELECT count(*) FROM cars WHERE plate = 3').fetchall()[0][0]", "len(taxi.query(key=3))"),
    ("pl.scan_pyarrow_dataset(cars).filter(pl.col('plate') == 3).collect().height", "len(taxi.query(key=3))"),
    # bad rows
    ("taxi.insert([{'plate': None, 'ts': now}, {'plate': 9, 'ts': now}], on_bad='reject').rejected", "1"),
    ("len(taxi.rejects())", "1"),
    # the same table elsewhere, and later
    ("pickle.loads(pickle.dumps(taxi)).rows", "taxi.rows"),
    ("wh.check().ok", "True"),
    "n = taxi.rows",
    "wh.close()",
    "wh = tw.open(WH, create=False); taxi = wh.table('taxi')",
    ("taxi.rows", "n"),
    "wh.drop_table('trips')",
    ("wh.tables()", "['bike', 'events', 'flows', 'taxi']"),
]

MISTAKES: list[tuple[str, str]] = [
    # names
    ("tw.open(f'{HERE}/typo', create=False)", "there is no warehouse in {HERE}/typo"),
    ("tw.open(HERE)", "{HERE} is no warehouse, and other things are in it"),
    ("tw.open(f'{HERE}/rides.parquet')", "rides.parquet is a file, and a warehouse is a folder"),
    ("tw.open(':memory:')", "there is none in memory"),
    ("tw.open('s3://bucket/wh')", "this version keeps a warehouse in a local folder; give a path"),
    ("wh.table('taxis')", "there is no table 'taxis'. Did you mean 'taxi'?"),
    ("wh['Taxi']", "Did you mean 'taxi'?"),
    ("wh.drop_table('taxy')", "Did you mean 'taxi'?"),
    (
        "wh.create_table('taxi', rides, time='ts', key='plate')",
        "table 'taxi' is there already; open it with wh.table('taxi') or say if_exists='open'",
    ),
    (
        "wh.create_table('my taxi', rides, time='ts', key='plate')",
        "a table's name is made of letters, digits and _, and starts with a letter",
    ),
    # making a table
    ("wh.create_table('x', rides, time='time', key='plate')", "time column 'time' is not in the schema of table 'x'"),
    ("wh.create_table('x', rides, time='ts', key='plates')", "Did you mean 'plate'?"),
    ("wh.create_table('x', rides, time='lon', key='plate')", "is double; it must be a timestamp, a date or an integer with tw.epoch"),
    ("wh.create_table('x', rides, time='plate', key='plate')", "say its unit with time=tw.epoch('plate', 'ms')"),
    ("wh.create_table('x', {'plate': 'int'}, time='ts', key='plate')", "write pyarrow.schema([(name, type), …])"),
    (
        "wh.create_table('x', rides, time='ts', key='plate', partition='1 fortnight')",
        "a partition looks like '1 hour', '15 minutes', '7 days', '1 month' or '1 year', not '1 fortnight'",
    ),
    ("wh.create_table('x', rides, time='ts', key=tw.ip('lon'))", "needs a text column, not double"),
    (
        "wh.create_table('x', rides, time='ts', key=tw.zorder('lon', 'lat', bounds=(117, 39, 115, 41)))",
        "the bounds of 'lon' must be finite and rising",
    ),
    ("wh.create_table('x', rides, time='ts')", "missing 1 required keyword-only argument: 'key'"),
    ("wh.create_table('x', rides, time='ts', key='plate', if_exists='replace')", "if_exists is 'error' or 'open', not 'replace'"),
    # rows
    ("taxi.insert([{'plate': 1}])", "the input lacks column 'ts'. Columns: plate, ts, lon, lat"),
    ("taxi.insert([{'plate': 1, 'ts': now, 'speed': 3}])", "the table has no column 'speed'. Columns: plate, ts, lon, lat"),
    ("taxi.insert([{'plate': 'x', 'ts': now}])", "column 'plate': 1 row doesn't fit int64 (first: row 0: 'x')"),
    ("taxi.insert([{'plate': 1.5, 'ts': now}])", "column 'plate': 1 row doesn't fit int64 (first: row 0: 1.5)"),
    ("taxi.insert([{'plate': None, 'ts': now}])", "no value in the key column"),
    ("taxi.insert(f'{HERE}/rides.parquet')", "Files are loaded by wh.load('taxi', '{HERE}/rides.parquet')"),
    ("taxi.insert(7)", "or an iterator of these, not int"),
    ("taxi.insert([(1, now, 2.0, 3.0)])", "row 0 is a tuple, but every row of a list is a dict of columns and values"),
    ("taxi.insert(rides, on_bad='skip')", 'on_bad is "error" or "reject", not'),
    ("taxi.insert([{'plate': 1, 'ts': 'yesterday'}])", "column 'ts': 1 row doesn't fit timestamp[us, tz=UTC] (first: row 0: 'yesterday')"),
    # files
    ("wh.load('new', f'{HERE}/rides.parquet')", 'to create it, say its time and key (time="ts", key="plate"'),
    ("wh.load('taxi', f'{HERE}/nothing/*.csv')", "no file is like {HERE}/nothing/*.csv"),
    ("wh.load('taxi', f'{HERE}/missing.csv')", "there is no file {HERE}/missing.csv"),
    ("wh.load('taxi', f'{HERE}/bikes.csv')", "it has no column 'ts'. Its columns: start_ts, duration"),
    # questions
    ("taxi.query(key=('a', 'b')).fetchall()", "'a' is no int64, the type of key column 'plate'"),
    ("taxi.query(key=(5, 2, 1)).fetchall()", "key is an interval (lo, hi), closed on both ends, None for open"),
    ("taxi.query(time='2008').fetchall()", "'2008' is not a time; write ISO text like '2026-01-31 12:00:00' or give a datetime"),
    ("taxi.query(time=('yesterday', None)).fetchall()", "'yesterday' is not a time; write ISO text"),
    ("taxi.query(where='speed > 3').fetchall()", "not found in FROM clause! Columns: plate, ts, lon, lat"),
    ("taxi.query(where='lon >').fetchall()", "cannot read the expression 'lon >': syntax error"),
    ("taxi.query(where='lon > ?').fetchall()", "give params=[…]"),
    ("taxi.query(where='lon > ?', params=[1, 2]).fetchall()", "where has 1 parameter, and params gives 2 values"),
    ("taxi.query(where=\"lon = 'a'; DROP TABLE taxi\").fetchall()", "syntax error"),
    ("taxi.query(columns=['lom']).fetchall()", "Did you mean 'lon'?"),
    ("taxi.query(columns='lon').fetchall()", "columns is a list of column names, like ['lon'], not 'lon'"),
    ("taxi.query(order_by='tss').fetchall()", "no column 'tss' in the result of table 'taxi'. Did you mean 'ts'?"),
    ("taxi.query(limit=-1).fetchall()", "limit is a whole number of rows, not -1"),
    ("taxi.query(limit='ten').fetchall()", "limit is a whole number of rows, not 'ten'"),
    ("taxi.query(box=(1, 2, 3, 4)).fetchall()", "table 'taxi' has no z-order key; ask with key=(lo, hi)"),
    ("taxi.query(aggregate={'n': 'cuont(*)'}).fetchall()", "with name cuont does not exist"),
    ("taxi.query(group_by=['plates'], aggregate={'n': 'count(*)'}).fetchall()", "Did you mean 'plate'?"),
    ("taxi.insert({'plate': [1], 'ts': [now]})", "use pyarrow.table(data)"),
    ("taxi.query(ranges={'lom': (1, 2)}).fetchall()", "Did you mean 'lon'?"),
    ("taxi.latest(key='x').fetchall()", "'x' is no int64, the type of key column 'plate'"),
    (
        "flows.query(key='10.0.0.0/33').fetchall()",
        "is no network: write the first address and the number of its fixed bits, as in '10.0.0.0/8'",
    ),
    ("flows.query(key='10.1.0.0/8').fetchall()", "is an address within a network, and not its first; the network is '10.0.0.0/8'"),
    ("flows.query(key='nowhere').fetchall()", "'nowhere' is no IPv4 or IPv6 address, as key column 'src_ip' holds them"),
    ("wh.sql('SELEC 1')", "syntax error at or near"),
    ("wh.sql('SELECT * FROM taxis')", "Did you mean 'taxi'?"),
    (
        "wh.sql('SELECT * FROM rides')",
        "there is no table 'rides'. Tables: bike, events, flows, taxi. DataFrames and other rows of yours get their names with",
    ),
    ("wh.sql('SELECT * FROM taxi WHERE plate = ?').fetchall()", "Values were not provided for the following parameters: 1"),
    ("wh.sql(\"SELECT * FROM 'rides.parquet'\")", "A file becomes a table with wh.load"),
    ("wh.taxi", "'Warehouse' object has no attribute 'taxi'; write wh['taxi']"),
    ("wh.read_csv('bikes.csv')", "write load(table, files)"),
    ("taxi.to_pandas()", "'Table' object has no attribute 'to_pandas'; write query(…).to_pandas()"),
    ("taxi.columns", "write schema.names"),
    ("r.shape", "'Result' object has no attribute 'shape'; write len(result) and columns"),
    ("r.fetchdf()", "write df()"),
    ("pd.DataFrame(r)", "a result is no array: take its rows with df(), pl(), arrow() or fetchall()"),
    ("pickle.dumps(r)", "hand over arrow() or df(), which are its rows, or the table"),
    ("taxi.query(where={'plate': 3}).fetchall()", 'or with values where="speed > ?", params=[30]'),
    ("wh['events'].query(where='agent.browser = Chrome').fetchall()", "A text is written in single quotes: 'Chrome'"),
    ("taxi.query(where='lon > :x', params={'x': 1}).fetchall()", "Parameters are written ?, with their values in a list"),
    ("taxi.query(order_by='-lon').fetchall()", "Falling is 'lon desc'"),
    ("taxi.query(aggregate={'n': 'count'}).fetchall()", "An aggregate is a call: count(*)"),
    ("taxi.insert(taxi)", "The rows of a table are table.query()"),
    ("wh.create_table('x', f'{HERE}/rides.parquet', time='ts', key='plate')", "files become a table with wh.load(table, files"),
    ("wh.sql('SELECT * FROM df', tables=df)", 'tables= takes names with their rows, like {"st": frame}, not DataFrame'),
    ("wh.sql('SELECT * FROM taxi LATEST ON ts PARTITION BY plate')", "The last row of each key is SELECT DISTINCT ON (key)"),
    ("r.to_parquet(f'{HERE}/no/such/folder/x.parquet')", "cannot write {HERE}/no/such/folder/x.parquet: No such file or directory"),
    ("closed.query().fetchall()", "the warehouse {HERE}/other was closed; open it again"),
]


def typed(here: Path) -> list[str]:
    """Type all of it in a folder with the files of `trial_files`; returns what went another way than it should."""

    def between(column: pa.ChunkedArray, least: Any, greatest: Any) -> pa.ChunkedArray:
        def end(value: Any) -> pa.Scalar:
            return pa.scalar(value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) else value, column.type)

        below = pc.less_equal(column, end(greatest))
        return below if least is None else pc.and_(pc.greater_equal(column, end(least)), below)

    trial_files.write_all(here)
    with gzip.open(here / "events.jsonl.gz", "rt") as lines:
        events = [json.loads(line) for line in lines]
    names: dict[str, Any] = {
        "HERE": str(here), "WH": str(here / "wh"), "pa": pa, "pc": pc, "pq": pq, "pcsv": pcsv, "dt": dt, "pickle": pickle,
        "rides": pq.read_table(here / "rides.parquet"), "logins": pq.read_table(here / "logins.parquet"), "events": events,
        "count": lambda mask: int(pc.sum(mask).as_py() or 0), "between": between, "counted": lambda them: dict(collections.Counter(them)),
    }  # fmt: skip
    wrong = type_lines(names, FIRST)
    with tw.open(here / "other") as other:
        names["closed"] = other.create_table("t", names["rides"].schema, time="ts", key="plate")
    names["flows"], names["r"] = names["wh"]["flows"], names["taxi"].query(key=(1, 5))
    before = {name: names["wh"][name].rows for name in names["wh"]}
    wrong += make_mistakes(names, MISTAKES, (tw.TidewheelError, TypeError, AttributeError))
    if (after := {name: names["wh"][name].rows for name in names["wh"]}) != before:
        wrong.append(f"mistakes made {after} of {before}")
    names["wh"].close()
    return wrong
