"""Definitions of derived tables: what Spark makes of a query or a function before there is a table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidewheel.derive.bounds import Bounds
from tidewheel.engine.compute import Analysed
from tidewheel.errors import SchemaError
from tidewheel.model.derived import PYTHON, RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.schema import TableSpec
from tidewheel.spark import jvm
from tidewheel.spark.derived_compute import running_session, source_schema
from tidewheel.spark.functions import digest_of, register_function, sources_of
from tidewheel.spark.launch import reason
from tidewheel.spark.types import arrow_schema


def define(
    spark: SparkSession | None,
    what: Any,
    spec_of: Callable[[str], TableSpec],
    time: str,
    key: Any,
    bounds: Mapping[str, Bounds],
    incremental: str,
) -> Analysed:
    """A query in Spark SQL, or a function of DataFrames, as a definition, with its columns and bounds. Nothing is read."""
    spark = running_session(spark)
    with jvm.own_active_session(spark):
        try:
            return _analysed(spark, what, spec_of, bounds, incremental)
        except PySparkException as e:
            raise SchemaError(f"Spark: {reason(e)}") from e


def _analysed(
    spark: SparkSession, what: Any, spec_of: Callable[[str], TableSpec], bounds: Mapping[str, Bounds], incremental: str
) -> Analysed:
    session = spark.newSession()
    conf = (("spark.sql.session.timeZone", "UTC"), ("spark.sql.ansi.enabled", "true"))
    for name, value in conf:
        session.conf.set(name, value)
    sources = list(bounds) if isinstance(what, str) else sources_of(what)
    if missing := [name for name in sources if name not in bounds]:
        raise SchemaError(f"say the bounds of {missing[0]!r}: bounds={{{missing[0]!r}: tw.bounds(…)}}, or 'all'")
    for name in sources:
        schema = source_schema(spec_of(name))
        session.createDataFrame(to_arrow_schema(schema, timezone="UTC").empty_table(), schema).createOrReplaceTempView(name)
    modes = (Mode(RECOMPUTE, "works for every definition"),)
    made = Definition(SPARK_SQL, "", "", modes, incremental=incremental, conf=conf, made_with=pyspark.__version__)
    if isinstance(what, str):
        frame = session.sql(what)
        definition = replace(made, text=what, digest=hashlib.sha256(what.encode()).hexdigest())
    else:
        frame = what(**{name: session.table(name) for name in sources})
        definition = replace(made, language=PYTHON, text=register_function(what), digest=digest_of(what))
    return Analysed(definition, arrow_schema(frame.schema), tuple((name, bounds[name].to_json()) for name in sources))
