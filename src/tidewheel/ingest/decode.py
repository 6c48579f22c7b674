"""From what Spark read to what the sink stages: in the task, straight into the table's schema.

The sink hands the batches of a task to `decoder(...)` and stages each `Delivery` it gets back as a slice of its own. Decoding here, and not
in a step before the sink, means that rows cross from Java to Python once, and as bytes; files do not cross at all, only their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.errors import InputError
from tidewheel.ingest.file_rows import Broken, FileRows, broken_package
from tidewheel.ingest.parsed import Parsed, Payload
from tidewheel.ingest.payload_arrow import ArrowPayload
from tidewheel.ingest.payload_avro import AvroPayload
from tidewheel.ingest.payload_csv import CsvPayload
from tidewheel.ingest.payload_json import JsonPayload
from tidewheel.ingest.row_maker import Records, RowMaker, payload_text
from tidewheel.ingest.rules import FILES, Rules, rules_from_json
from tidewheel.model.dead_letters import DeadLetter, letters_batch, rows_batch, with_hidden
from tidewheel.model.schema import TableSpec


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows and dead letters that are staged together. Its batches must be read to the end before the next delivery is asked for."""

    package: str | None
    """Loaded at most once under this name; None: whatever the batch of the stream says."""
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


Decoder = Callable[[Iterator[pa.RecordBatch]], Iterator[Delivery]]


def decoder(rules: str, spec: TableSpec) -> Decoder:
    """The decoder of a task: its batches in, deliveries out."""
    found = rules_from_json(rules)
    maker = RowMaker(spec, found)
    if found.kind == FILES:
        return FileDecoder(maker, found)
    return MessageDecoder(maker, found)


class MessageDecoder:
    """Messages: batches with `value`, and of `topic`, `partition`, `offset`, `timestamp`, `key`, `headers` what was asked for."""

    def __init__(self, maker: RowMaker, rules: Rules) -> None:
        self._maker = maker
        self._rules = rules
        self._payload = payload(rules, maker.wanted)
        self._schema = maker.spec.schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Delivery]:
        yield Delivery(None, with_hidden(self._schema), self._all(batches))

    def _all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows, letters = self.decode(batch)
            yield from map(rows_batch, rows)
            if letters:
                yield letters_batch(self._schema, letters)

    def decode(self, batch: pa.RecordBatch) -> tuple[list[pa.RecordBatch], list[DeadLetter]]:
        """The rows and the dead letters of one batch of messages."""
        values = _bytes(batch.column("value"))
        records = Records(
            _origins(batch), lambda i: payload_text(values[i].as_py() or b""), self._rules.payload in ("json", "csv"), self._meta(batch)
        )
        lengths = pc.fill_null(pc.binary_length(values), 0)
        if pc.min(lengths).as_py():
            return self._maker.make(self._payload.parse(values), records)
        # a message without a value is a record too: it cannot be a row, and it must not disappear
        places = pc.indices_nonzero(lengths).to_numpy().astype("int64")
        parsed = self._payload.parse(values.take(pa.array(places)))
        for i, part in enumerate(parsed.parts):
            parsed.parts[i] = type(part)(part.rows, places[part.records])
        failures = [(int(places[number]), why) for number, why in parsed.failures]
        failures += [(i, "is empty") for i, n in enumerate(lengths.to_pylist()) if not n]
        return self._maker.make(Parsed(parsed.parts, failures), records)

    def _meta(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        names = self._maker.spec.schema
        return {column: _around(batch.column(what), names.field(column).type) for column, what in self._rules.meta.items()}


class FileDecoder:
    """Files: batches with `path`, `length` and `modificationTime`, and `content` where tasks cannot open the file themselves."""

    def __init__(self, maker: RowMaker, rules: Rules) -> None:
        self._files = FileRows(maker, rules)
        self._schema = maker.spec.schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Delivery]:
        for batch in batches:
            for one in batch.to_pylist():
                yield self._deliver(one["path"], one["length"], one["modificationTime"], one.get("content"))

    def _deliver(self, path: str, length: int, modified: object, content: bytes | None) -> Delivery:
        """A file is loaded whole or not at all: before the first of its rows is handed on, all of it has been read."""
        schema = with_hidden(self._schema)
        try:
            return Delivery(path, schema, self._files.read(path, length, content))
        except Broken as e:
            # not under its own name: when it has been mended it may come again
            package = broken_package(path, length, modified)
            return Delivery(package, schema, iter([letters_batch(self._schema, [DeadLetter(0, str(e), "", "", path)])]))


def payload(rules: Rules, wanted: pa.Schema) -> Payload:
    """The parser of a payload."""
    match rules.payload:
        case "json":
            return JsonPayload(wanted, rules.extra)
        case "csv":
            return CsvPayload(wanted, rules.columns or wanted.names, rules.delimiter, rules.nulls)
        case "avro" | "confluent-avro":
            return AvroPayload(wanted, rules.avro_schema, rules.payload != "avro", rules.extra)
        case "arrow":
            return ArrowPayload(wanted, rules.extra)
    raise InputError(f"messages are json, csv, avro, confluent-avro or arrow, not {rules.payload!r}: say it with the option payload")


def _bytes(values: pa.Array) -> pa.Array:
    return values if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type) else values.cast(pa.binary())


def _origins(batch: pa.RecordBatch) -> Callable[[int], str]:
    """Where a message came from: topic/partition@offset, or what the source can tell."""
    names = batch.schema.names
    if "offset" not in names:
        return lambda i: "" if "topic" not in names else str(batch.column("topic")[i].as_py())
    topic, partition, offset = (batch.column(name) for name in ("topic", "partition", "offset"))
    return lambda i: f"{topic[i].as_py()}/{partition[i].as_py()}@{offset[i].as_py()}"


def _around(column: pa.Array, to: pa.DataType) -> pa.Array:
    """A key or header as the column wants it: bytes as they are, or as text. Kafka promises no encoding, so nothing may fail here."""
    if pa.types.is_binary(column.type) and not pa.types.is_binary(to):
        return pa.array([None if v is None else v.decode("utf-8", "backslashreplace") for v in column.to_pylist()], pa.string())
    if pa.types.is_list(column.type):  # headers: a list of (key, value)
        exact = pa.types.is_map(to) and pa.types.is_binary(to.item_type)
        pairs = [
            None if v is None else [(h["key"], h["value"] if exact else (h["value"] or b"").decode("utf-8", "backslashreplace")) for h in v]
            for v in column.to_pylist()
        ]  # fmt: skip
        return pa.array(pairs, pa.map_(pa.string(), pa.binary() if exact else pa.string()))
    return column
