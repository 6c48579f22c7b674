"""From a source to a table in one call: `tws.ingest(spark, "kafka://host/rides", "data/wh/taxi", time="ts", key="plate")`.

Spark reads the source, counts its offsets and retries its tasks; the sink's tasks decode the records (`sources/decode.py`) and the owner
publishes each batch once. A stream is known by its checkpoint: started again with it, it goes on where it was.
"""

from __future__ import annotations

import json
import os
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel.chunk import names
from tidewheel.cluster.start_owner import summon
from tidewheel.engine.protocol import Engine
from tidewheel.errors import InputError, NotFoundError, OwnerLostError, StorageError
from tidewheel.ingest.new_table import NewTable, define
from tidewheel.ingest.rules import MESSAGES, Rules, rules_from_json
from tidewheel.model.definition import key_of, time_of
from tidewheel.model.schema import Epoch, KeyRule, TableSpec, nearest
from tidewheel.model.times import parse_duration
from tidewheel.spark.options import DECODE, TablePath, place_of
from tidewheel.spark.sources.kafka import META
from tidewheel.spark.sources.source_address import parse_source
from tidewheel.spark.sources.stream_source import ARRIVED, ReadingOptions, StreamSource, stream_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

DEFINITION = "ingest.json"
"""In the checkpoint: what the stream is, so that it goes on as it began."""
OBSERVED = "tidewheel"
_RULES = tuple(f.name for f in fields(Rules) if f.name not in ("kind", "meta"))


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """What a user asks for. Everything but source and path can be left out."""

    source: str
    path: str
    """The folder of the warehouse, then the table's name."""
    time: str | Epoch | None = None
    key: str | KeyRule | None = None
    partition: str | None = None
    meta: Sequence[str] = ()
    start: str = "earliest"
    trigger: str | None = None
    checkpoint: str | None = None
    name: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream that is ready to start: its table is there."""

    source: StreamSource
    place: TablePath
    spec: TableSpec
    rules: Rules
    reading: ReadingOptions
    name: str
    checkpoint: str
    trigger: Mapping[str, Any]
    created: NewTable | None = None
    """If its table was made just now."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """What the sink gets; on the way Spark notes when the records arrived."""
        from pyspark.sql import functions as f

        raw = self.source.read(spark, self.reading, self.rules.meta)
        moment = f.unix_micros(ARRIVED)
        return raw.observe(OBSERVED, f.min(moment).alias("oldest"), f.max(moment).alias("newest")).drop(ARRIVED)

    def start(self, spark: SparkSession) -> StreamingQuery:
        _remember(self)
        writer = self.frame(spark).writeStream.format("tidewheel").queryName(self.name).trigger(**self.trigger)
        if self.source.kind:
            writer = writer.option(DECODE, self.rules.to_json())
        return writer.option("checkpointLocation", self.checkpoint).start(str(self.place))


def ingest(
    spark: SparkSession,
    source: str,
    path: str | os.PathLike[str],
    *,
    time: str | Epoch | None = None,
    key: str | KeyRule | None = None,
    partition: str | None = None,
    meta: Sequence[str] = (),
    start: str = "earliest",
    trigger: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    **rules: Any,
) -> StreamingQuery:
    """Start a stream from a source (`kafka://host:port/topic`, a folder, `rate://1000`, `socket://host:port`) into a table.

    `path` is the warehouse's folder and the table's name. A table that is not there is created from the first records, with `time`, `key`
    and `partition`. Records that cannot be rows are in the table's rejects, with the reason and where they came from.

    `meta` names what of a message is wanted besides its payload: key, headers, topic, partition, offset, timestamp, as columns `_key` …, or
    under a name of yours: `key=plate`. `start` is where a new stream begins: earliest, latest, an ISO time, Spark's JSON of offsets.
    `trigger` is the time between batches ("1s", "0"), or "once" to read what is there and end. `checkpoint` is a folder, by default
    one in the warehouse; the same checkpoint goes on where it was. `options` go to Spark's source as they are.

    `rules` are: `payload` (json, csv, avro, confluent-avro, arrow), `time_format`, `extra`, `columns`, `delimiter`, `nulls`, `avro_schema`.
    """
    request = IngestRequest(
        source, os.fspath(path), time, key, partition, meta, start, trigger, None if checkpoint is None else os.fspath(checkpoint), name,
        options or {}, rules,
    )  # fmt: skip
    return prepare(spark, request).start(spark)


def prepare(spark: SparkSession, request: IngestRequest, waiting: Callable[[], None] | None = None) -> Stream:
    """Everything up to the start: the table exists, the rules are known.

    If there is neither a table nor a record to make one from, `waiting` is called every second until there is; without it, it is an error.
    """
    plan = check(request)
    if plan.source.connectors:
        from tidewheel.spark.jars import connector

        connector(spark, *plan.source.connectors)
    created: NewTable | None = None
    rules = plan.rules
    try:
        spec = ask(plan.place.root, lambda owner: owner.table(plan.place.table).spec)
    except NotFoundError:
        created = new = _new_table(spark, request, plan, waiting)
        spec = ask(plan.place.root, lambda owner: owner.create(new.spec, "open").spec)
        rules = replace(rules, time_format=created.time_format)
    return replace(plan, spec=spec, rules=replace(rules, meta=_columns_of(request.meta, spec, plan.source)), created=created)


def ask(root: str, question: Callable[[Engine], T]) -> T:
    """Ask the owner of a warehouse, which is started if there is none, something that may be asked twice. Nothing stays open."""
    for last in (False, False, True):
        owner = summon(root)
        try:
            return question(owner)
        except OwnerLostError:
            if last:
                raise
        finally:
            owner.close()
    raise AssertionError


def check(request: IngestRequest) -> Stream:
    """What can be said of a request without Spark: InputError if it cannot work. Its table is not known yet."""
    source = parse_source(request.source)
    place = place_of({"path": request.path})
    name = request.name or stream_name(place.table, source)
    if "/" in name or name.startswith("."):
        raise InputError(f"the name of a stream is a word, because it names a folder, not {name!r}")
    checkpoint = os.path.abspath(request.checkpoint) if request.checkpoint else os.path.join(place.root, names.stream_folder(name))
    absent = [what for what in _named(request.meta).values() if what not in source.around]
    if absent:
        raise InputError(f"{source.address} has no {absent[0]} to fill a column with; Kafka's messages have")
    unknown = sorted(set(request.rules) - set(_RULES))
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}.{nearest(unknown[0], list(_RULES))} Known: {', '.join(_RULES)}")
    given = {rule: value for rule, value in request.rules.items() if value is not None}
    given |= {rule: tuple(given[rule]) for rule in ("columns", "nulls") if rule in given}
    before = _remembered(checkpoint, source, place)
    rules = replace(before, **given) if before else Rules(source.kind, **given)
    if source.kind == MESSAGES and not rules.payload:
        rules = replace(rules, payload="json")
    reading = ReadingOptions(request.start, request.options)
    spec: Any = None  # known when the table is
    return Stream(source, place, spec, rules, reading, name, checkpoint, trigger(request.trigger, source.pace))


def trigger(text: str | None, pace: float) -> Mapping[str, Any]:
    """Spark's trigger for "1s", "500 ms", "0" or "once"."""
    if text is None:
        return {"processingTime": f"{round(pace * 1000)} milliseconds"}
    if text == "once":
        return {"availableNow": True}
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else parse_duration(text) / 1e9
    except ValueError:
        raise InputError(f"a trigger is a time between batches such as 1s, 500ms or 0, or once, not {text!r}") from None
    return {"processingTime": f"{round(seconds * 1000)} milliseconds"}


def _new_table(spark: SparkSession, request: IngestRequest, plan: Stream, waiting: Callable[[], None] | None) -> NewTable:
    """The definition of a table for the first records of the source."""
    if os.path.isdir(os.path.join(plan.checkpoint, "offsets")):
        raise InputError(
            f"there is no table {plan.place.table!r}, but its stream {plan.name} has been read before. To read it again from the start, "
            f"remove {plan.checkpoint}; to go on after what was read, create the table first"
        )
    while (sample := plan.source.sample(spark, plan.reading, plan.rules)) is None:
        if waiting is None or "availableNow" in plan.trigger or not plan.source.sampled:
            raise NotFoundError(
                f"there is no table {plan.place.table!r}, and {plan.source.address} has no record yet to make one from. "
                "Create it first: tw.open(folder).create_table(...)"
            )
        waiting()
        clock.sleep(1.0)
    return define(
        plan.place.table,
        sample,
        {column: META[what] for column, what in _named(request.meta).items()},
        time=time_of(request.time) if isinstance(request.time, str) else request.time,
        key=key_of(request.key) if isinstance(request.key, str) else request.key,
        partition=request.partition,
        time_format=plan.rules.time_format,
    )


def _named(meta: Sequence[str]) -> dict[str, str]:
    """`key=plate` as {"plate": "key"}; `offset` as {"_offset": "offset"}."""
    found: dict[str, str] = {}
    for one in meta:
        what, _, column = one.partition("=")
        if what not in META:
            raise InputError(f"a message has {', '.join(META)}, not {what!r}.{nearest(what, list(META))}")
        found[column or f"_{what}"] = what
    return found


def _columns_of(meta: Sequence[str], spec: TableSpec, source: StreamSource) -> dict[str, str]:
    """Which columns of the table are filled from around the message: those that were asked for, and those that are named so."""
    asked = _named(meta)
    missing = [column for column in asked if column not in spec.schema.names]
    if missing:
        raise InputError(f"table {spec.name!r} has no column {missing[0]!r} to be filled with each message's {asked[missing[0]]}")
    return {f"_{what}": what for what in source.around if f"_{what}" in spec.schema.names} | asked


# ---- what a stream remembers of itself ------------------------------------------------------------------------


def _remembered(checkpoint: str, source: StreamSource, place: TablePath) -> Rules | None:
    """The rules a stream had when it was started first. InputError: the checkpoint is another stream's."""
    try:
        with open(os.path.join(checkpoint, DEFINITION), encoding="utf-8") as file:
            saved = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise StorageError(f"cannot read {os.path.join(checkpoint, DEFINITION)}: {e}") from e
    if (saved["source"], saved["table"]) != (source.address, place.table):
        raise InputError(
            f"the checkpoint {checkpoint} is that of a stream from {saved['source']} into {saved['table']!r}; "
            f"give the stream from {source.address} into {place.table!r} another name or checkpoint"
        )
    return rules_from_json(saved["rules"])


def _remember(stream: Stream) -> None:
    saved = {"source": stream.source.address, "table": stream.place.table, "rules": stream.rules.to_json()}
    try:
        os.makedirs(stream.checkpoint, exist_ok=True)
        draft = os.path.join(stream.checkpoint, DEFINITION + names.TEMPORARY)
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(saved, file, indent=2)
        os.replace(draft, os.path.join(stream.checkpoint, DEFINITION))
    except OSError as e:
        raise StorageError(f"cannot write the checkpoint {stream.checkpoint}: {e.strerror or e}") from e
