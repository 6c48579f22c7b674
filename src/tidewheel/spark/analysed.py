"""What Spark says of a definition before any row is there: its sources, its analysed plan, its columns.

Definitions are analysed over empty tables, in a session of their own whose settings are `PINNED`: what the user's session is set to, and
what views and functions it has, changes nothing. Afterwards the user's session is the active one again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidewheel.derive.plan_tree import PlanError
from tidewheel.derive.plan_words import normalised, relations, writes
from tidewheel.errors import SchemaError, SparkError
from tidewheel.model.schema import nearest
from tidewheel.spark.jvm import active_session, is_classic, is_command, is_deterministic, parsed_json, plan_json, set_active_session
from tidewheel.spark.no_actions import no_actions
from tidewheel.spark.types import TRUNCATE, arrow_schema, known_schema

PINNED: Mapping[str, str] = MappingProxyType({
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.join.asofJoin.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.groupByAliases": "true",
    "spark.sql.orderByOrdinal": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
})  # fmt: skip
"""Settings that change what a definition means; they are stored with it, and every refresh sets them."""


@dataclass(frozen=True, slots=True)
class Analysed:
    """A definition, as Spark understands it. `source_columns` are those that each source had: what `SELECT *` stands for from now on."""

    plan_json: str
    schema: pa.Schema
    deterministic: bool
    columns: tuple[str, ...]
    source_columns: Mapping[str, tuple[str, ...]]
    frame: DataFrame


def sources_of(spark: SparkSession, sql: str, confs: Mapping[str, str] = PINNED) -> list[str]:
    """The tables that a query names, each once, in order. SchemaError, if it is no query, or names one with a schema."""
    with pinned_session(spark, confs) as fresh:
        return _sources(fresh, sql)


def _sources(spark: SparkSession, sql: str) -> list[str]:
    try:
        command = is_command(spark, sql)
        parsed = parsed_json(spark, sql)
        written = "a command" if command else writes(parsed)
        names = relations(parsed)
    except PySparkException as e:
        raise SchemaError(f"Spark cannot read this definition: {_sentence(e)}") from None
    except PlanError as e:
        raise SchemaError(f"this definition cannot be looked through: {e}") from None
    if written is not None:
        raise SchemaError("a definition is one query (SELECT …, WITH …, FROM …), and this is a statement that does something")
    for name in names:
        if len(name) > 1:
            raise SchemaError(f"{'.'.join(name)}: tables of a warehouse have no schema before their name; write {name[-1]}")
    first: dict[str, str] = {}
    for (one,) in names:
        first.setdefault(one.lower(), one)
    return list(first.values())


@contextmanager
def pinned_session(spark: SparkSession, confs: Mapping[str, str] = PINNED) -> Iterator[SparkSession]:
    """A new session beside the user's with these settings and nothing else; the user's is the active one afterwards."""
    _check_classic(spark)
    before = active_session()
    fresh = spark.newSession()
    try:
        for name, value in confs.items():
            fresh.conf.set(name, value)
        set_active_session(fresh)  # whose settings the parser asks for
        yield fresh
    finally:
        set_active_session(before)


def analyse_sql(session: SparkSession, sql: str, tables: Mapping[str, pa.Schema], confs: Mapping[str, str] = PINNED) -> Analysed:
    """A query over these tables. SchemaError with Spark's reason, if Spark does not accept it, or it names others."""
    with pinned_session(session, confs) as fresh:
        wanted = _chosen(_sources(fresh, sql), tables)
        _show(fresh, wanted)
        try:
            return _analysed(fresh.sql(sql), wanted)
        except PySparkException as e:
            raise SchemaError(f"Spark does not accept this definition: {_sentence(e)}") from None


def analyse_function(
    session: SparkSession, function: Callable[..., Any], tables: Mapping[str, pa.Schema], confs: Mapping[str, str] = PINNED
) -> Analysed:
    """A function of DataFrames whose parameters are named like these tables. It is called twice, with empty ones: SchemaError, if it asks
    for rows, or returns something else the second time."""
    names = parameters(function)
    wanted = _chosen(names, tables)
    with pinned_session(session, confs) as fresh:
        _show(fresh, wanted)
        try:
            one, two = (_analysed(called(function, fresh, names), wanted) for _ in range(2))
        except PySparkException as e:
            raise SchemaError(f"Spark does not accept what {_name(function)} does: {_sentence(e)}") from None
    if normalised(one.plan_json) != normalised(two.plan_json):
        raise SchemaError(f"{_name(function)} made two different plans of the same tables: it must depend on its parameters alone")
    return one


def parameters(function: Callable[..., Any]) -> list[str]:
    """The sources of a function, which are its parameters."""
    if not callable(function):
        raise SchemaError(f"a definition is SQL, or a function whose parameters are named like its sources; not {function!r}")
    kinds = inspect.signature(function).parameters.values()
    if not kinds or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) or p.default is not p.empty for p in kinds):
        raise SchemaError(f"{_name(function)}: its parameters are its sources; give it one for each, by name, without defaults")
    return [parameter.name for parameter in kinds]


def called(function: Callable[..., Any], session: SparkSession, names: list[str]) -> DataFrame:
    """What a function makes of the views of these names in a session, while nothing can ask for rows."""
    with no_actions(_name(function)):
        frame = function(**{name: session.table(_quoted(name)) for name in names})
    if not isinstance(frame, DataFrame):
        raise SchemaError(f"{_name(function)} returned {type(frame).__name__}, not a DataFrame")
    if frame.sparkSession is not session:
        raise SchemaError(f"{_name(function)} returned a DataFrame of another session: make everything of its parameters")
    return frame


def _analysed(frame: DataFrame, tables: Mapping[str, pa.Schema]) -> Analysed:
    names = tuple(frame.columns)
    doubled = sorted({name for name in names if [n.lower() for n in names].count(name.lower()) > 1})
    if doubled:
        raise SchemaError(f"columns come out twice: {', '.join(doubled)}; give them different names with AS")
    columns = {name: tuple(known_schema(schema, TRUNCATE).names) for name, schema in tables.items()}
    return Analysed(plan_json(frame), arrow_schema(frame.schema), is_deterministic(frame), names, MappingProxyType(columns), frame)


def _chosen(names: list[str], tables: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """The tables of these names, whatever their case, as they are called."""
    known = {name.lower(): name for name in tables}
    for name in names:
        if name.lower() not in known:
            there = list(tables)
            raise SchemaError(f"there is no table {name!r}.{nearest(name, there)} Tables: {', '.join(there)}")
    return {known[name.lower()]: tables[known[name.lower()]] for name in names}


def _show(session: SparkSession, tables: Mapping[str, pa.Schema]) -> None:
    """Empty tables, as views."""
    for name, schema in tables.items():
        columns = known_schema(schema, TRUNCATE)
        empty = to_arrow_schema(columns, timezone="UTC").empty_table()
        session.createDataFrame(empty, columns).createTempView(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _sentence(error: PySparkException) -> str:
    """Spark's reason without the plan and the place in Java that follow it."""
    text = (error.getMessage() or str(error)).split("\n\nJVM stacktrace")[0].split("\n== SQL")[0]
    return text.split(";\n'")[0].strip()


def _name(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__name__', 'the function')}()"


def _check_classic(spark: SparkSession) -> None:
    if not is_classic(spark):
        raise SparkError("derived tables need a Spark session in this process; this is one of Spark Connect: use tws.session()")
