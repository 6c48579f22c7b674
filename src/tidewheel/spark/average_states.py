"""The hidden columns of definitions with averages: Spark's plan of a definition, extended by the sum and the count of each average.

The text of a query is not looked at: an aggregate of the analysed plan gets two more columns for an average, of the same argument and with
the same FILTER, and what lies above hands them on. So it holds for SQL and for functions, however they are written. Which definitions that
is done for is decided by `derive.mode_merge`, which only lets pass what is known here: one aggregate, below nodes that order, rename or
leave out columns.

Sums are what Spark's own average keeps: of decimals a decimal, of all other numbers a double.

The plan is extended in Java (`AverageStates.java`): from Python every step would be a call to the other process, 160 of them and 60 ms for
two averages, each time.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import resources

import pyarrow as pa
from pyspark.sql import DataFrame

from tidewheel.errors import SparkError
from tidewheel.model.derived import COUNT, SUM
from tidewheel.spark.jvm import analyzed, frame_of, java_object
from tidewheel.spark.types import arrow_schema


def with_states(frame: DataFrame, wanted: Collection[str]) -> DataFrame:
    """The same rows with these hidden columns behind the others. The session of the frame is the active one."""
    if not wanted:
        return frame
    spark = frame.sparkSession
    source = resources.files(__package__).joinpath("AverageStates.java").read_text()
    plan = java_object(spark, source, "AverageStates", f"{SUM} {COUNT}").extended(analyzed(frame), " ".join(wanted))
    if plan is None or (made := frame_of(spark, plan)).columns != [*frame.columns, *wanted]:
        raise SparkError(f"Spark {spark.version} plans this definition in another way than the one it was made with: make it anew")
    return made


def state_fields(frame: DataFrame, wanted: Collection[str]) -> list[pa.Field]:
    """The hidden columns, with their types."""
    schema = arrow_schema(with_states(frame, wanted).schema)
    return [pa.field(name, schema.field(name).type) for name in wanted]
