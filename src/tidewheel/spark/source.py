"""The data source `tidewheel`: what Spark calls for `format("tidewheel")`, to read and to write, tables and streams.

It only checks the options and hands out readers and writers. Everything here runs in small Python processes of the driver's,
which Spark keeps for some time and calls again. There are several, so each loads only what it hands out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructField, StructType

from tidewheel.engine.operations import BeginLoad, GetDerived
from tidewheel.errors import ExistsError, InputError, NotFoundError, TidewheelError
from tidewheel.model.schema import TableSpec
from tidewheel.spark import connections, options
from tidewheel.spark.options import TablePath
from tidewheel.spark.plain_errors import plainly
from tidewheel.spark.types import NANOSECONDS, check_wanted, read_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "tidewheel"

_LOCATION = "tidewheel.location"
"""Metadata of a column of a table in Spark's catalog: Spark forgets the options of CREATE TABLE, but not the schema."""


class TidewheelSource(DataSource):
    """Spark makes one for every load, save and start, and sends copies of it about."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    # ---- reading ----------------------------------------------------------------------------------------

    @plainly
    def schema(self) -> StructType:
        """For a load that names no schema, and for CREATE TABLE."""
        given = self._options()
        options.check(given, options.CHANGES)
        place = options.place_of(given)
        spec = _created(place) if options.is_created(given) else _spec(place)
        found = read_schema(spec, options.names(given, "columns"), _nanoseconds(given))
        if not options.is_created(given):
            return found
        kept = json.dumps(
            {"warehouse": place.root, "table": place.table} | {k: v for k, v in given.items() if k in ("nanoseconds", "partitions")}
        )
        return StructType([StructField(f.name, f.dataType, f.nullable, {_LOCATION: kept}) for f in found])

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from tidewheel.spark.table_reader import SHARED, TableReader, carried

        given = self._located(schema)
        options.check(given, options.READ)
        place = options.place_of(given)
        whole = schema if options.SCHEMA not in given else StructType.fromJson(json.loads(given[options.SCHEMA]))
        spec, nanoseconds = _read_table(place, whole, given), _nanoseconds(given)
        check_wanted(spec, whole, nanoseconds)
        step, asked = given.get(options.STEP, SHARED), carried(given.get(options.ASK))
        if (part := given.get(options.PART)) is not None:
            asked = replace(asked, part=options.TablePart.from_option(part))
        return TableReader(place, spec, schema, nanoseconds, options.count(given, "partitions"), step, asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidewheel.spark.change_reader import RefusedReader

        try:
            return self._change_reader(schema)
        except TidewheelError as e:  # if this raised, Spark would stumble over a variable of its own, and our sentence be lost
            return RefusedReader(e)

    def _change_reader(self, schema: StructType) -> DataSourceStreamReader:
        from tidewheel.spark.change_reader import ChangeReader

        given = self._located(schema)
        options.check(given, options.CHANGES)
        place = options.place_of(given)
        spec, nanoseconds = _spec(place), _nanoseconds(given)
        _check_has_changes(place)
        check_wanted(spec, schema, nanoseconds)
        start = None if given.get("startingGeneration", "").lower() == "latest" else options.count(given, "startingGeneration", 0) or 0
        limit = options.count(given, "maxRowsPerTrigger")
        return ChangeReader(place, spec, schema, nanoseconds, options.count(given, "partitions"), start, limit)

    # ---- writing ----------------------------------------------------------------------------------------

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidewheel.spark.bulk_sink import BulkSink, NoSink
        from tidewheel.spark.target_table import target

        given = self._options()
        options.check(given, options.WRITE)
        place = options.place_of(given)
        on_bad = options.choice(given, "onBad", ("error", "reject"))
        if_exists = options.choice(given, "ifExists", ("append", "error", "ignore"))
        spec, made = target(place, schema, given)
        if not made and not overwrite and if_exists != "append":
            if if_exists == "ignore":
                return NoSink()
            raise ExistsError(
                f'table {place.table!r} is in {place.root} already; add to it with mode("append"), or mode("overwrite") it; in SQL, CREATE '
                "TABLE … USING tidewheel without AS SELECT, then INSERT INTO or INSERT OVERWRITE"
            )
        load = connections.do(place, BeginLoad())
        return BulkSink(place, spec, load, overwrite, on_bad, made)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tidewheel.spark.stream_sink import StreamSink
        from tidewheel.spark.target_table import target

        given = self._options()
        options.check(given, options.STREAM)
        if overwrite:
            raise InputError(
                'a stream only adds rows to a table: use outputMode("append"), or replace the table by foreachBatch with df.write and '
                'mode("overwrite")'
            )
        place = options.place_of(given)
        decode = given.get(options.DECODE)
        if decode is not None:  # records that are no rows yet: their columns are not the table's
            from tidewheel.spark.sources.decoding_sink import DecodingSink

            return DecodingSink(place, given.get("streamName"), decode)
        target(place, schema, given, hidden=True)  # for every batch: a millisecond, and the table may be dropped and made anew
        return StreamSink(place, given.get("streamName"))

    def _options(self) -> Mapping[str, str]:
        return self.options

    def _located(self, schema: StructType) -> Mapping[str, str]:
        """The options, with those that Spark's catalog kept for a table where none say where it is."""
        given = self._options()
        return given if options.names_a_place(given) else CaseInsensitiveDict({**_kept(schema), **given})


def _check_has_changes(place: TablePath) -> None:
    """Rows of a derived table are exchanged, partition by partition: a stream of what came would repeat most of them."""
    state = connections.do(place, GetDerived())
    if state is not None:
        sources = ", ".join(one.source for one in state.dependencies)
        raise InputError(
            f"table {place.table!r} is derived, so it cannot be read as a stream: a refresh computes whole partitions anew. Stream what it "
            f"is made of ({sources}), derive another table from it, or read it with spark.read after each refresh"
        )


def _spec(place: TablePath) -> TableSpec:
    connections.forget(place)  # it may have been dropped and made anew since this process last looked
    return connections.spec(place)


def _created(place: TablePath) -> TableSpec:
    """The table that CREATE TABLE names without saying its columns."""
    try:
        return _spec(place)
    except NotFoundError as e:
        raise NotFoundError(
            f"{str(e).rstrip('.')}. To have it made, say its columns, its time and its key: CREATE TABLE {place.table} (plate BIGINT, "
            "ts TIMESTAMP, …) USING tidewheel OPTIONS (path '…', time 'ts', key 'plate'), or AS SELECT"
        ) from None


def _read_table(place: TablePath, columns: StructType, given: Mapping[str, str]) -> TableSpec:
    """The table that is read. One that CREATE TABLE said all of is made when it is first used."""
    from tidewheel.spark.target_table import target

    try:
        return _spec(place)
    except NotFoundError:
        if options.CATALOG not in given or "time" not in given or "key" not in given:
            raise
        return target(place, columns, given)[0]


def _nanoseconds(given: Mapping[str, str]) -> str:
    return options.choice(given, "nanoseconds", NANOSECONDS)


def _kept(schema: StructType) -> Mapping[str, str]:
    """Where a table in Spark's catalog lies."""
    found: dict[str, str] = next((json.loads(f.metadata[_LOCATION]) for f in schema if _LOCATION in (f.metadata or {})), {})
    return found


def install(spark: SparkSession) -> None:
    """Make a session know the format, with all that Spark's Python sources lack. May be called again."""
    from tidewheel.spark import java_provider, jvm, run_again, save_modes
    from tidewheel.spark.splits import SLOTS

    if jvm.is_classic(spark):
        spark.sparkContext.environment[SLOTS] = str(spark.sparkContext.defaultParallelism)
    spark.dataSource.register(TidewheelSource)
    save_modes.install(FORMAT)
    run_again.install()
    java_provider.install(spark)
