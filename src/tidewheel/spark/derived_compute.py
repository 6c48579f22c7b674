"""Spark as the computer of derived tables.

Every run has a session of its own, which costs a millisecond: with the settings that the definition was analysed with, without the views,
functions and settings of the user's, and without Spark's means for large queries where the input is small. Rows that fit into memory come
through Arrow, others through `format("tidewheel")`, read by tasks from the chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidewheel.engine.compute import SourceRows
from tidewheel.engine.source_reading import AT_ONCE
from tidewheel.errors import ConflictError, QueryError, SchemaError, SparkError
from tidewheel.model.derived import PYTHON, Definition
from tidewheel.model.schema import TableSpec
from tidewheel.spark import jvm
from tidewheel.spark.analysed import called, pinned_session
from tidewheel.spark.average_states import with_states
from tidewheel.spark.conf import PUSHDOWN
from tidewheel.spark.functions import function_of
from tidewheel.spark.launch import died, launched, log_file, reason
from tidewheel.spark.options import PART, TablePart
from tidewheel.spark.other_version import check_version
from tidewheel.spark.source import FORMAT, install
from tidewheel.spark.spark_sessions import background_session, running_session, session_anew
from tidewheel.spark.types import TRUNCATE, delivery, known_schema

SMALL = AT_ONCE
"""Stored bytes of a source that are handed to Spark as one Arrow table."""

SHARE = 16 << 20
"""Stored bytes that are worth a task of a shuffle."""

TASK_ROWS = 100_000
"""Rows that are worth a task which reads them from Arrow."""

BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"

PATIENCE = 2.0
"""Seconds: a line breaks a moment before the process at its end has ended."""

_PLAIN = {
    # each of these saves milliseconds that a small refresh does not have; none of them changes an answer
    "spark.sql.adaptive.enabled": "false",
    # else Spark turns Arrow into rows of its own on the driver, and sends these to the tasks: three times as long
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    PUSHDOWN: "true",
}


_GONE = ("cannot be read any more as it was", "is not held any more")
"""What `read.planner` and `read.pins` say, in a task or a planning of Spark's, of rows that were replaced meanwhile."""


class SparkCompute:
    """Computes in a session: a user's, or, if none is given, the one that runs in this process, or one of ours.

    A session that nobody gave is started anew once its Java process has died; a user's is the user's to start. `root`: the folder of the
    warehouse, for tasks that read chunks.
    """

    def __init__(self, spark: SparkSession | None, root: Path) -> None:
        self._given = spark is not None
        self._session = spark
        self._root = root
        self._lock = threading.Lock()

    def run(self, definition: Definition, sources: Mapping[str, SourceRows]) -> pa.Table:
        with self._lock:
            spark = self._living()
            try:
                seen = {name: _seen(one) for name, one in sources.items()}
                check_version(spark, self._root, definition, seen)
                return self._pinned(definition, sources)
            except Exception as e:
                if died(PATIENCE if _is_of_the_line(e) else 0.0):
                    raise self._over() from e
                raise

    @property
    def _spark(self) -> SparkSession:
        assert self._session is not None
        return self._session

    def _living(self) -> SparkSession:
        launched()  # a Java process that is dead is forgotten
        if self._session is None:
            self._session = session_for(None)
        elif jvm.is_over(self._session):
            if self._given:
                raise self._over()
            self._session = session_anew()
        return self._session

    def _over(self) -> SparkError:
        log = f" Its log is {log_file()}." if log_file() else ""
        if self._given:
            return SparkError(f"the Spark session that was given has ended: start a new one, and begin anew with that.{log}")
        error = SparkError(f"Spark's Java process died; it is started anew when there is something to compute again.{log}")
        error.retryable = True
        return error

    def _pinned(self, definition: Definition, sources: Mapping[str, SourceRows]) -> pa.Table:
        with pinned_session(self._spark, dict(definition.conf)) as session:
            try:
                return self._run(session, definition, sources)
            except (PySparkException, Py4JError) as e:
                if any(words in str(e) for words in _GONE):
                    raise ConflictError(f"a source was changed while Spark read it: {reason(e)}") from e
                raise QueryError(f"Spark: {reason(e)}") from e

    def _run(self, session: SparkSession, definition: Definition, sources: Mapping[str, SourceRows]) -> pa.Table:
        size = sum(one.read.bytes for one in sources.values())
        tasks = max(1, min(4 * self._spark.sparkContext.defaultParallelism, size // SHARE))
        for name, value in {**_PLAIN, "spark.sql.shuffle.partitions": str(tasks)}.items():
            session.conf.set(name, value)
        for name, one in sources.items():
            self._frame(session, one).createTempView(name)
        if definition.language == PYTHON:
            return in_utc(with_states(called(function_of(definition), session, list(sources)), definition.hidden))
        return in_utc(with_states(session.sql(definition.text), definition.hidden))

    def _frame(self, session: SparkSession, rows: SourceRows) -> DataFrame:
        schema = source_schema(rows.spec, rows.columns)
        if rows.keys is not None or rows.read.bytes <= SMALL:
            deliver = delivery(rows.spec, schema, TRUNCATE)
            columns = schema.names
            batches = [deliver(batch) for batch in rows.arrow().select(columns).to_batches()]
            whole = pa.Table.from_batches(batches, to_arrow_schema(schema, timezone="UTC"))
            return self._local_frame(session, whole, schema)
        install(session)
        read = rows.read
        part = TablePart(read.upto, read.after, read.times)
        return (
            session.read.format(FORMAT)
            .option("warehouse", str(self._root))
            .option("table", rows.spec.name)
            .option("nanoseconds", TRUNCATE)
            .option("columns", ",".join(f'"{name}"' for name in schema.names))
            .option(PART, part.to_option())
            .load()
        )

    def _local_frame(self, session: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
        """Rows in as many batches as tasks are worth it: Spark makes a task of every batch, and a reading has one for each of its queries.

        The setting is that of before when a definition runs: functions in Python get batches by it.
        """
        each = max(TASK_ROWS, -(-rows.num_rows // self._spark.sparkContext.defaultParallelism))
        before = str(session.conf.get(BATCH_ROWS))
        session.conf.set(BATCH_ROWS, str(each))
        try:
            return session.createDataFrame(rows.combine_chunks(), schema)
        finally:
            session.conf.set(BATCH_ROWS, before)


def session_for(spark: SparkSession | None) -> SparkSession:
    """The session that a user gave, or the one that runs in this process, or a new one of ours, which inserts and queries go before."""
    return spark if spark is not None else running_session() or background_session()


def _is_of_the_line(error: BaseException | None) -> bool:
    """Whether an error, or what it came of, says that nobody answers. Py4J says of a call in which Java died only that it failed."""
    while error is not None:
        if isinstance(error, (ConnectionError, EOFError, Py4JError)) and not isinstance(error, Py4JJavaError):
            return True
        error = error.__cause__ or error.__context__
    return False


def source_schema(spec: TableSpec, columns: Sequence[str] | None = None) -> StructType:
    """The columns of a source, all or these, as definitions see them. Times finer than a microsecond are cut off."""
    known = known_schema(spec.schema, TRUNCATE)
    if columns is None:
        return known
    if missing := [name for name in columns if name not in known.names]:
        raise SchemaError(f"{spec.name!r} has no column {missing[0]!r} any more, which this definition was made with: make it anew")
    return StructType([known[name] for name in columns])


def _seen(rows: SourceRows) -> pa.Schema:
    """The columns of a source that a definition is to see, as they are stored."""
    return pa.schema([rows.spec.schema.field(name) for name in source_schema(rows.spec, rows.columns).names])


def in_utc(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame; moments are those of UTC, whatever the session's zone."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    found = frame.toArrow()
    return found if found.schema.equals(schema) else found.cast(pa.schema(schema))
