"""Definitions of derived tables: what is made of a query or a function before there is a table. Nothing is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from tidewheel.derive.bounds import Bounds
from tidewheel.derive.determinism import judge
from tidewheel.derive.inference import infer
from tidewheel.derive.modes import Append, Keys, Merge, Modes, Recompute, decide
from tidewheel.derive.pairings import pairs_partitions
from tidewheel.derive.plan_words import normalised
from tidewheel.derive.used_columns import narrowed, used_columns
from tidewheel.engine.compute import Defined
from tidewheel.errors import SchemaError
from tidewheel.model.derived import APPEND, KEYS, MERGE, PYTHON, RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.schema import TableSpec, is_exact_in_spark, nearest
from tidewheel.model.times import TimeAxis
from tidewheel.spark.analysed import PINNED, Analysed, analyse_function, analyse_sql, parameters, sources_of
from tidewheel.spark.average_states import state_fields
from tidewheel.spark.derived_compute import session_for
from tidewheel.spark.functions import digest_of, register_function
from tidewheel.spark.other_version import columns_made


def define(
    spark: SparkSession | None,
    what: Any,
    tables: Sequence[str],
    derived: Collection[str],
    spec_of: Callable[[str], TableSpec],
    time: str | TimeAxis,
    key: str | None,
    bounds: Mapping[str, Bounds],
    incremental: str,
    deterministic: frozenset[str],
) -> Defined:
    """A query in Spark SQL, or a function of DataFrames, as a definition, with its columns and bounds.

    `tables` are all that there are, `derived` those of them that are derived; `key` is the derived table's key, if it is a column.
    `deterministic` are names of Python functions that give the same each time. SchemaError says what cannot be a derived table.
    """
    session = session_for(spark)
    names = _known(sources_of(session, what) if isinstance(what, str) else parameters(what), tables)
    if odd := [name for name in bounds if name not in names]:
        raise SchemaError(f"bounds: {odd[0]!r} is no source of this definition.{nearest(odd[0], names)} Sources: {', '.join(names)}")
    specs = {name: spec_of(name) for name in names}
    schemas = {name: spec.schema for name, spec in specs.items()}
    if isinstance(what, str):
        found = analyse_sql(session, what, schemas)
        language, text, digest = SPARK_SQL, what, hashlib.sha256(what.encode()).hexdigest()
    else:
        found = analyse_function(session, what, schemas)
        language, text, digest = PYTHON, register_function(what), digest_of(what)
    judged = judge(found.plan_json, found.deterministic, deterministic)
    if judged.refusals:  # no bounds that could be declared help with these
        raise SchemaError("\n".join(judged.refusals))
    inferred = infer(found.plan_json, {name: _time_of(spec) for name, spec in specs.items()}, time, bounds).required()
    keys = {name: _key_of(spec) for name, spec in specs.items()}
    decided = decide(found.plan_json, key, keys, floats=True, hidden=True)
    if any(not _has_number(found.schema.field(name)) for one in decided.holds if isinstance(one, Merge) for name in one.hidden):
        decided = decide(found.plan_json, key, keys, floats=True)
    modes, unusable = usable(decided, names, derived, incremental)
    apart = pairs_partitions(found.plan_json, inferred.values())
    columns = tuple(_read_columns(session, what, found, specs).items())
    conf, made_with = tuple(PINNED.items()), pyspark.__version__
    definition = Definition(
        language, text, digest, modes, unusable, incremental,
        conf=conf, apart=apart, made_with=made_with, columns=columns, output=columns_made(found.schema),
    )  # fmt: skip
    hidden = tuple(state_fields(found.frame, definition.hidden))
    return Defined(definition, found.schema, tuple((name, inferred[name].to_json()) for name in names), judged.warnings, hidden)


def usable(decided: Modes, names: Sequence[str], derived: Collection[str], incremental: str) -> tuple[tuple[Mode, ...], tuple[Mode, ...]]:
    """The modes that refreshes of a definition may use, the best first; and the others, with the reasons."""
    holds = [_stored(one, names) for one in decided.holds]
    other = [Mode(name, reason) for name, reason in decided.reasons.items()]
    if all(name in derived for name in names):  # a derived source tells which keys it changed, not which rows came
        what = f"{names[0]} is a derived table itself: its" if len(names) == 1 else "all sources are derived tables themselves: their"
        why = f"{what} rows are replaced, not only added"
        other = [*(replace(mode, reason=why) for mode in holds if mode.name in (APPEND, MERGE)), *other]
        holds = [mode for mode in holds if mode.name not in (APPEND, MERGE)]
    if incremental == "never":
        no = "incremental='never' asks for whole partitions"
        other = [*(replace(mode, reason=no) for mode in holds if mode.name != RECOMPUTE), *other]
        holds = [Mode(RECOMPUTE, no)]
    if incremental == "strict" and len(holds) == 1:
        said = "\n".join(f"  {mode.name}: {mode.reason}" for mode in other)
        raise SchemaError(f"incremental='strict', but this definition can only be computed by whole partitions:\n{said}")
    return tuple(holds), tuple(other)


def _stored(mode: Append | Merge | Keys | Recompute, names: Sequence[str]) -> Mode:
    """A mode as it is stored, with the sources as the tables are called."""
    reason = str(mode).partition(": ")[2]
    called = {name.lower(): name for name in names}
    match mode:
        case Append():
            sets = tuple(tuple(called[name.lower()] for name in some) for some in mode.sources)
            return Mode(APPEND, reason + _if_only(sets, names), sources=sets)
        case Merge():
            sets = tuple(tuple(called[name.lower()] for name in some) for some in mode.sources)
            ratios = tuple((name, *two) for name, two in (*mode.ratios.items(), *mode.hidden.items()))
            states = dict.fromkeys((name for two in mode.hidden.values() for name in two), "sum")
            combine = (*mode.combine.items(), *states.items())
            return Mode(MERGE, reason + _if_only(sets, names), groups=mode.groups, combine=combine, ratios=ratios, sources=sets)
        case Keys():
            first = next(iter(mode.sources.values()))
            said = reason + _if_only((tuple(mode.sources),), names)
            return Mode(KEYS, said, column=mode.column, source_column=first, source_keys=tuple(mode.sources.items()))
        case Recompute():
            return Mode(RECOMPUTE, reason)


def _if_only(sets: Sequence[Sequence[str]], names: Sequence[str]) -> str:
    """When a mode cannot be used: other sources than those of a set changed."""
    if any(set(some) >= set(names) for some in sets):
        return ""
    return f"; if only {'; or only '.join(' and '.join(some) for some in sets)} changed"


def _read_columns(session: SparkSession, what: Any, found: Analysed, specs: Mapping[str, TableSpec]) -> Mapping[str, tuple[str, ...]]:
    """The columns of each source that a definition has to see; all of them, if it would be another one without the rest."""
    used = used_columns(found.plan_json, found.source_columns)
    # one that only counts rows needs rows all the same
    kept = {name: columns or (specs[name].time.column,) for name, columns in used.items()}
    if kept == found.source_columns:
        return kept
    schemas = {name: pa.schema([specs[name].schema.field(column) for column in columns]) for name, columns in kept.items()}
    try:
        again = analyse_sql(session, what, schemas) if isinstance(what, str) else analyse_function(session, what, schemas)
        same = normalised(again.plan_json) == normalised(narrowed(found.plan_json, kept))
    except Exception:  # whatever a function raises that misses a column: it is not asked to do without
        same = False
    return kept if same else found.source_columns


def _has_number(average: pa.Field) -> bool:
    """Whether an average is one whose sum and count can be kept; intervals have averages, too."""
    return bool(pa.types.is_floating(average.type) or pa.types.is_decimal(average.type))


def _time_of(spec: TableSpec) -> str | TimeAxis:
    """The time column; with its unit, if it is one of whole numbers."""
    column = spec.time.column
    return spec.time if pa.types.is_integer(spec.schema.field(column).type) else column


def _key_of(spec: TableSpec) -> str | None:
    """The column that is the key, if Spark tells its values apart."""
    (column, *more) = spec.key.columns
    return column if not more and is_exact_in_spark(spec.schema.field(column).type) else None


def _known(names: Sequence[str], tables: Sequence[str]) -> list[str]:
    """Sources as the tables are called: Spark does not tell upper from lower case."""
    found = []
    for name in names:
        same = [table for table in tables if table.lower() == name.lower()]
        if not same:
            raise SchemaError(f"there is no table {name!r}.{nearest(name, list(tables))} Tables: {', '.join(tables) or 'none'}")
        found.append(name if name in same else same[0])
    if not found:
        raise SchemaError("this definition has no source: it names no table of the warehouse")
    return found
