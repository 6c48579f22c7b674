"""The tables of the cases, from `tables.test`: in DuckDB as its own, and in a warehouse half in memory, half in chunks, some rows late.

The statements of that file run in DuckDB. A comment before each CREATE TABLE says the table's key and time:

    # key=id time=ts        # key=zorder:lon,lat:0,0,100,100 time=stamp        # key=ip:src time=epoch:ms:ms
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import tidewheel as tw
from tests.conformance.records import Record, Statement, parse

HERE = Path(__file__).parent
TABLES = HERE / "tables.test"


def connect() -> duckdb.DuckDBPyConnection:
    """DuckDB without rows; so few are read faster by one thread."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute("SET threads = 1")
    return duck


def in_duckdb() -> duckdb.DuckDBPyConnection:
    duck = connect()
    for record in _statements():
        duck.execute(record.sql)
    return duck


def in_warehouse(root: Path) -> tw.Warehouse:
    """Each INSERT is one insert. All but a table's last two are flushed, so that its rows lie in both places. The caller closes it."""
    wh = tw.open(root, settings=tw.Settings(leaf_rows=32, batch_rows=100, zero_copy_rows=64))
    names = [_table(record.sql) for record in _statements()]
    with connect() as duck:
        seen: dict[str, int] = {}
        for number, record in enumerate(_statements()):
            duck.execute(record.sql)
            name = names[number]
            rows: Any = duck.sql(f"SELECT * FROM {name} ORDER BY rowid").to_arrow_table()
            if record.sql.upper().startswith("CREATE TABLE"):
                wh.create_table(name, rows.schema, **declared(record.comments))
                continue
            wh.table(name).insert(rows.slice(seen.get(name, 0)))
            seen[name] = len(rows)
            if names[number + 1 :].count(name) >= 2:
                wh.table(name).flush()
    return wh


def _statements() -> list[Statement]:
    records: Sequence[Record] = parse(TABLES.read_text())
    return [record for record in records if isinstance(record, Statement)]


def _table(sql: str) -> str:
    """CREATE TABLE name(… or INSERT INTO name …"""
    return sql.split()[2].partition("(")[0]


def declared(comments: Sequence[str]) -> dict[str, Any]:
    """The key and the time that the comments before a table say."""
    said = dict(word.split("=", 1) for line in comments for word in line.split() if "=" in word)
    match said["key"].split(":"):
        case ["zorder", columns, bounds]:
            key: Any = tw.zorder(*columns.split(","), bounds=tuple(map(float, bounds.split(","))))
        case ["ip", column]:
            key = tw.ip(column)
        case [column]:
            key = column
        case _:
            raise ValueError(said["key"])
    match said["time"].split(":"):
        case ["epoch", column, unit]:
            time: Any = tw.epoch(column, unit)
        case [column]:
            time = column
        case _:
            raise ValueError(said["time"])
    return {"key": key, "time": time, "partition": said.get("partition", "1_day").replace("_", " ")}


def types_of(schema: pa.Schema) -> str:
    """A letter for each column: I, R or T."""
    return "".join(map(_letter, schema.types))


def _letter(type_: pa.DataType) -> str:
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return "I"
    if pa.types.is_decimal(type_) and type_.scale == 0:
        return "I"
    return "R" if pa.types.is_floating(type_) or pa.types.is_decimal(type_) else "T"


def rows_of(answer: pa.Table) -> list[tuple[Any, ...]]:
    """By position, not by name: two columns may have one."""
    return list(zip(*(column.to_pylist() for column in answer.columns), strict=True))
