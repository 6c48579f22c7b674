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
from tidewheel.engine.compute import Defined
from tidewheel.errors import SchemaError
from tidewheel.model.derived import APPEND, KEYS, MERGE, PYTHON, RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.schema import TableSpec, nearest
from tidewheel.model.times import TimeAxis
from tidewheel.spark.analysed import PINNED, analyse_function, analyse_sql, parameters, sources_of
from tidewheel.spark.derived_compute import running_session
from tidewheel.spark.functions import digest_of, register_function


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
    session = running_session(spark)
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
    inferred = infer(found.plan_json, {name: _time_of(spec) for name, spec in specs.items()}, time, bounds).required()
    judged = judge(found.plan_json, found.deterministic, deterministic)
    if judged.refusals:
        raise SchemaError("\n".join(judged.refusals))
    decided = decide(found.plan_json, key, {name: _key_of(spec) for name, spec in specs.items()}, floats=True)
    modes, unusable = usable(decided, names, derived, incremental)
    apart = pairs_partitions(found.plan_json, inferred.values())
    conf, made_with = tuple(PINNED.items()), pyspark.__version__
    definition = Definition(language, text, digest, modes, unusable, incremental, conf=conf, apart=apart, made_with=made_with)
    return Defined(definition, found.schema, tuple((name, inferred[name].to_json()) for name in names), judged.warnings)


def usable(decided: Modes, names: Sequence[str], derived: Collection[str], incremental: str) -> tuple[tuple[Mode, ...], tuple[Mode, ...]]:
    """The modes that refreshes of a definition may use, the best first; and the others, with the reasons."""
    no = ""
    if incremental == "never":
        no = "incremental='never' asks for whole partitions"
    elif len(names) > 1:
        no = f"it has {len(names)} sources, and only new rows of a single one are computed by themselves"
    holds = [_stored(one) for one in decided.holds]
    other = [Mode(name, reason) for name, reason in decided.reasons.items()]
    if names[0] in derived:  # a derived source tells which keys it changed, not which rows came
        why = f"{names[0]} is a derived table itself: its rows are replaced, not only added"
        other = [*(replace(mode, reason=why) for mode in holds if mode.name in (APPEND, MERGE)), *other]
        holds = [mode for mode in holds if mode.name not in (APPEND, MERGE)]
    if no:
        other = [*(replace(mode, reason=no) for mode in holds if mode.name != RECOMPUTE), *other]
        holds = [Mode(RECOMPUTE, no)]
    if incremental == "strict" and len(holds) == 1:
        said = "\n".join(f"  {mode.name}: {mode.reason}" for mode in other)
        raise SchemaError(f"incremental='strict', but this definition can only be computed by whole partitions:\n{said}")
    return tuple(holds), tuple(other)


def _stored(mode: Append | Merge | Keys | Recompute) -> Mode:
    reason = str(mode).partition(": ")[2]
    match mode:
        case Append():
            return Mode(APPEND, reason)
        case Merge():
            ratios = tuple((name, *two) for name, two in mode.ratios.items())
            return Mode(MERGE, reason, groups=mode.groups, combine=tuple(mode.combine.items()), ratios=ratios)
        case Keys():
            return Mode(KEYS, reason, column=mode.column, source_column=next(iter(mode.sources.values())))
        case Recompute():
            return Mode(RECOMPUTE, reason)


def _time_of(spec: TableSpec) -> str | TimeAxis:
    """The time column; with its unit, if it is one of whole numbers."""
    column = spec.time.column
    return spec.time if pa.types.is_integer(spec.schema.field(column).type) else column


def _key_of(spec: TableSpec) -> str | None:
    return spec.key.columns[0] if len(spec.key.columns) == 1 else None


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
