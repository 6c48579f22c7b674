"""What crosses the wire between an owner and the processes attached to it: JSON for values and errors, Arrow IPC for rows.

`encode` is total: a value that no side could make use of becomes a `Stranger`, which looks the same in an error message. `decode`
makes only what is listed here, so a message can hold nothing that acts. A message is a frame: length of the JSON, JSON, Arrow bytes.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
import traceback
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from decimal import Decimal
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel import errors
from tidewheel.cluster import requests
from tidewheel.engine import operations
from tidewheel.errors import TidewheelError
from tidewheel.maintenance import warehouse_care
from tidewheel.metrics import TableMetrics
from tidewheel.model import conditions
from tidewheel.model.delivery import Ack, Load, Pin, ServerState, SliceId, SourceFile, Staged, StreamState, TableState, Written
from tidewheel.model.derived import (
    Definition,
    Dependency,
    DerivedState,
    Mode,
    RefreshedPartition,
    RefreshOutcome,
    RefreshPlan,
    RefreshRecord,
    SourceRead,
)
from tidewheel.model.description import ColumnFacts, TableDescription
from tidewheel.model.packed_plan import PackedPlan
from tidewheel.model.query import Plan, Query, Stats, Subquery
from tidewheel.model.records import ChunkRecord, Lease, MaskRecord
from tidewheel.model.recovery import Recovery, TableRecovery
from tidewheel.model.report import BackupReport, CheckReport, Problem
from tidewheel.model.schema import TableSpec, spec_from_layout
from tidewheel.settings import Settings

Json = Any

_TAG = "$"
_INT64 = 1 << 63
_ALIGN = 64
_LENGTH = struct.Struct("<Q")


class Stranger:
    """Stands for a value of a type that cannot cross: good for being refused, with its own words."""

    def __init__(self, shown: str, text: str, kind: str) -> None:
        self._shown, self._text = shown, text
        self.kind = kind

    def __repr__(self) -> str:
        return self._shown

    def __str__(self) -> str:
        return self._text


# ---- frames -------------------------------------------------------------------------------------------------


def pack(value: Any, rows: pa.Buffer | None = None) -> bytes:
    """A message: a value, and perhaps rows. These start at a multiple of 64 bytes."""
    head = _encoder.encode(encode(value)).encode()
    start = _LENGTH.pack(len(head))
    if rows is None:
        return start + head
    return b"".join((start, head, b" " * (-(_LENGTH.size + len(head)) % _ALIGN), rows))


def unpack(message: pa.Buffer) -> tuple[Any, pa.Buffer]:
    """The value of a message, and its rows (empty if it has none)."""
    view = memoryview(message)
    (size,) = _LENGTH.unpack_from(view)
    end = _LENGTH.size + size
    text = str(view[_LENGTH.size : end], "utf-8")
    found, read = _decoder.raw_decode(text)  # `decode` would look for spaces around it, which takes as long as the rest
    if read != len(text):
        raise ValueError(f"a message ends after {read} of {len(text)} characters")
    value = decode(found)
    rows = message.slice(min(end + -end % _ALIGN, len(view)))
    return value, rows


def stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch] = ()) -> pa.Buffer:
    """Rows as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def unstream(rows: pa.Buffer) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The inverse of `stream`; the rows stay where they are, if they lie where numbers may lie."""
    if rows.address % 8:
        rows = pa.py_buffer(rows.to_pybytes())
    reader = pa.ipc.open_stream(rows)
    return reader.schema, list(reader)


def one_batch(rows: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """A batch that came by itself, as `RecordBatch.serialize` makes it."""
    if rows.address % 8:
        rows = pa.py_buffer(rows.to_pybytes())
    return pa.ipc.read_record_batch(rows, schema)


WRAPPED = pa.schema([("$rows", pa.large_binary())])
"""Of a stream whose batches are wrapped: Flight cannot send dictionaries together with a word about the rows."""


def wrapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch as the bytes of one value."""
    rows = stream(batch.schema, [batch])
    ends = pa.py_buffer(struct.pack("<qq", 0, rows.size))
    return pa.record_batch([pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, rows])], schema=WRAPPED)


def unwrapped(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The inverse of `wrapped`, and any other batch as it is."""
    if batch.schema != WRAPPED:
        return [batch]
    return [one for rows in batch.column(0) for one in unstream(rows.as_buffer())[1]]


def has_dictionary(type_: pa.DataType) -> bool:
    """Whether there is a dictionary in it, however deep."""
    if isinstance(type_, pa.BaseExtensionType):
        return has_dictionary(type_.storage_type)
    return pa.types.is_dictionary(type_) or any(has_dictionary(type_.field(i).type) for i in range(type_.num_fields))


# ---- values -------------------------------------------------------------------------------------------------


def encode(value: Any) -> Json:
    kind = type(value)
    if kind in _PLAIN:
        return value
    writer = _WRITERS.get(kind)
    if writer is not None:
        return writer(value)
    return _encode_other(value)


def decode(value: Json) -> Any:
    kind = type(value)
    if kind is list:
        return [decode(v) for v in value]
    if kind is not dict:
        return value
    return _READERS[value.pop(_TAG)](value)


_PLAIN = frozenset({type(None), bool, float, str})


def _tagged(tag: str, value: Any) -> Json:
    return {_TAG: tag, "v": value}


def _bytes(value: Any) -> str:
    return base64.b64encode(value).decode()


def _encode_int(value: int) -> Json:
    return value if -_INT64 <= value < 2 * _INT64 else _tagged("int", hex(value))  # Python refuses to write very long ones in decimals


def _encode_datetime(value: dt.datetime) -> Json:
    if isinstance(value.tzinfo, zoneinfo.ZoneInfo) and value.tzinfo.key:
        return {_TAG: "datetime", "v": value.replace(tzinfo=None).isoformat(), "zone": value.tzinfo.key, "fold": value.fold}
    return {_TAG: "datetime", "v": value.isoformat(), "fold": value.fold}


def _decode_datetime(value: Json) -> dt.datetime:
    moment = dt.datetime.fromisoformat(value["v"]).replace(fold=value["fold"])
    return moment.replace(tzinfo=zoneinfo.ZoneInfo(value["zone"])) if "zone" in value else moment


def _encode_dict(value: Mapping[Any, Any]) -> Json:
    return _tagged("dict", [[encode(k), encode(v)] for k, v in value.items()])


def _decode_dict(value: Json) -> dict[Any, Any]:
    return {decode(k): decode(v) for k, v in value["v"]}


def _encode_schema(value: pa.Schema) -> Json:
    return _tagged("schema", _bytes(value.serialize()))


def _decode_schema(value: Json) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["v"])))


def _encode_spec(value: TableSpec) -> Json:
    return {
        _TAG: "TableSpec", "name": value.name, "schema": _encode_schema(value.stored), "layout": value.layout_json(),
        "partition": value.partition, "field_ids": list(value.field_ids),
    }  # fmt: skip


def _decode_spec(value: Json) -> TableSpec:
    return spec_from_layout(value["name"], decode(value["schema"]), value["layout"], value["partition"], tuple(value["field_ids"]))


def _encode_other(value: Any) -> Json:
    """Subclasses, and values of NumPy, pandas and Arrow."""
    try:
        match value:
            case TidewheelError() | BaseException():
                return _encode_error(value)
            case pa.Scalar():
                return _tagged("arrow", _bytes(stream(pa.schema([("v", value.type)]), [pa.record_batch([pa.repeat(value, 1)], ["v"])])))
            case pa.Array():
                return _tagged("array", _bytes(conditions.packed(value)))
            case pa.Schema():
                return _encode_schema(value)
            case np.ndarray() | np.generic():
                return _encode_numpy(value)
            case dt.datetime() | dt.timedelta() if type(value).__module__.partition(".")[0] == "pandas":
                return _encode_pandas(value)
            case int():
                return _encode_int(int(value))
            case float():
                return float(value)
            case str():
                return str.__str__(value)
            case bytearray() | memoryview():
                return _tagged("bytes", _bytes(bytes(value)))
            case dt.datetime():
                return _encode_datetime(value)
            case Mapping():
                return _encode_dict(value)
            case list():
                return [encode(v) for v in value]
            case tuple():
                return _tagged("tuple", [encode(v) for v in value])
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError):
        pass
    if type(value).__module__.partition(".")[0] == "pandas" and type(value).__name__ in ("NaTType", "NAType"):
        return None if type(value).__name__ == "NAType" else _encode_numpy(np.datetime64("NaT"))
    return {_TAG: "stranger", "v": repr(value), "text": str(value), "kind": type(value).__name__}


def _encode_numpy(value: Any) -> Json:
    dtype = value.dtype
    if dtype.kind in "OV":
        if isinstance(value, np.ndarray) and value.ndim == 1:
            return [encode(v) for v in value.tolist()]
        raise TypeError
    shape = list(value.shape) if isinstance(value, np.ndarray) else None
    return {_TAG: "numpy", "v": _bytes(value.tobytes()), "dtype": dtype.str, "shape": shape}


def _decode_numpy(value: Json) -> Any:
    array = np.frombuffer(base64.b64decode(value["v"]), np.dtype(value["dtype"]))
    return array[0] if value["shape"] is None else array.reshape(value["shape"])


def _encode_pandas(value: Any) -> Json:
    """As NumPy has it, with all its nanoseconds: the owner need not have pandas."""
    return _encode_numpy(value.to_datetime64() if hasattr(value, "to_datetime64") else value.to_timedelta64())


# ---- errors -------------------------------------------------------------------------------------------------

_ERRORS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, TidewheelError)}


def _encode_error(error: BaseException) -> Json:
    """What is no error of ours is a mistake in here: it crosses as the root of our tree, with the place where it happened."""
    known = type(error).__name__ if _ERRORS.get(type(error).__name__) is type(error) else ""
    message = str(error) if isinstance(error, TidewheelError) else f"{type(error).__name__} in the owner: {error}"
    attributes = {name: encode(v) for name, v in vars(error).items() if not name.startswith("_")}
    notes = list(getattr(error, "__notes__", ()))
    if not isinstance(error, TidewheelError):
        notes += traceback.format_exception(error)[-4:]
    return {_TAG: "error", "v": message, "class": known, "attributes": attributes, "notes": notes}


def _decode_error(value: Json) -> TidewheelError:
    kind = _ERRORS.get(value["class"], TidewheelError)
    error = kind.__new__(kind, value["v"])
    error.args = (value["v"],)
    for name, attribute in value["attributes"].items():
        setattr(error, name, decode(attribute))
    for note in value["notes"]:
        error.add_note(note)
    return error


# ---- classes ------------------------------------------------------------------------------------------------


def _is_of(kind: Any, home: ModuleType) -> bool:
    return isinstance(kind, type) and kind.__module__ == home.__name__


_CLASSES: tuple[type[Any], ...] = (
    Ack, BackupReport, CheckReport, ChunkRecord, ColumnFacts, Definition, Dependency, DerivedState, Lease, Load, MaskRecord, Mode,
    PackedPlan, Pin, Plan, Query, Recovery, RefreshedPartition, RefreshOutcome, RefreshPlan, RefreshRecord, ServerState, Settings, SliceId,
    SourceFile, SourceRead, Staged, Stats, StreamState, Subquery, TableDescription, TableMetrics, TableRecovery, TableState, Written,
    conditions.Comparison, conditions.OneOf, conditions.HasText, conditions.IsNull, conditions.Both, conditions.Either, conditions.Negation,
    conditions.AddressRange,
    *(kind for home in (operations, warehouse_care, requests) for kind in vars(home).values() if _is_of(kind, home)),
)  # fmt: skip


def _writer(kind: type[Any]) -> Callable[[Any], Json]:
    """Fields by name; those that have their default are left out."""
    tag = kind.__name__
    defaults = [(f.name, _default(f)) for f in fields(kind)]

    def write(value: Any) -> Json:
        out: dict[str, Json] = {_TAG: tag}
        for name, default in defaults:
            field = getattr(value, name)
            if field is not default:
                out[name] = encode(field)
        return out

    return write


def _default(field: Field[Any]) -> Any:
    """Only such as are one object: for others it does not matter whether they are left out."""
    return field.default if field.default is not MISSING else MISSING


# What comes with every small answer is written as lists: nothing in it needs a closer look.

_stats = attrgetter(*(f.name for f in fields(Stats)))


def _read_stats(value: Json) -> Stats:
    stats = Stats(*value)
    stats.corrupt_files = tuple(stats.corrupt_files)
    return stats


def _write_packed_plan(value: PackedPlan) -> Json:
    kept = value.table, value.generation, value.intervals, value.time, value.sealed, value.names
    return _tagged("PackedPlan", [*kept, _bytes(value.pieces), _bytes(value.segments)])


def _read_packed_plan(value: Json) -> PackedPlan:
    table, generation, intervals, time, sealed, names, pieces, segments = value["v"]
    spans = tuple([(lo, hi) for lo, hi in intervals])
    return PackedPlan(table, generation, spans, tuple(time), sealed, names, base64.b64decode(pieces), base64.b64decode(segments))


def _write_answer(value: requests.Answer) -> Json:
    kept = value.result, value.generation, _stats(value.stats), value.warning, value.rows, value.cheap, value.bare
    return _tagged("Answer", [*kept, value.plan, value.read])


def _read_answer(value: Json) -> requests.Answer:
    result, generation, stats, warning, rows, cheap, bare, plan, read = value["v"]
    kept = None if read is None else (read[0], read[1], read[2])
    return requests.Answer(result, generation, _read_stats(stats), warning, rows, cheap, bare, plan, kept)


def _reader(kind: type[Any]) -> Callable[[Json], Any]:
    return lambda value: kind(**{name: decode(field) for name, field in value.items()})


_WRITERS: dict[type[Any], Callable[[Any], Json]] = {
    int: _encode_int,
    list: lambda value: [encode(v) for v in value],
    tuple: lambda value: _tagged("tuple", [encode(v) for v in value]),
    dict: _encode_dict,
    bytes: lambda value: _tagged("bytes", _bytes(value)),
    Decimal: lambda value: _tagged("decimal", str(value)),
    dt.datetime: _encode_datetime,
    dt.date: lambda value: _tagged("date", value.isoformat()),
    dt.time: lambda value: {_TAG: "time", "v": value.isoformat(), "fold": value.fold},
    dt.timedelta: lambda value: _tagged("timedelta", [value.days, value.seconds, value.microseconds]),
    TableSpec: _encode_spec,
    Problem: lambda value: _tagged("Problem", [encode(v) for v in value]),
    Stranger: lambda value: {_TAG: "stranger", "v": repr(value), "text": str(value), "kind": value.kind},
    **{kind: _writer(kind) for kind in _CLASSES},
    Stats: lambda value: _tagged("Stats", _stats(value)),
    PackedPlan: _write_packed_plan,
    requests.Answer: _write_answer,
}

_READERS: dict[str, Callable[[Json], Any]] = {
    "int": lambda value: int(value["v"], 16),
    "tuple": lambda value: tuple([decode(v) for v in value["v"]]),
    "dict": _decode_dict,
    "bytes": lambda value: base64.b64decode(value["v"]),
    "decimal": lambda value: Decimal(value["v"]),
    "datetime": _decode_datetime,
    "date": lambda value: dt.date.fromisoformat(value["v"]),
    "time": lambda value: dt.time.fromisoformat(value["v"]).replace(fold=value["fold"]),
    "timedelta": lambda value: dt.timedelta(*value["v"]),
    "arrow": lambda value: unstream(pa.py_buffer(base64.b64decode(value["v"])))[1][0].column(0)[0],
    "array": lambda value: conditions.unpacked(base64.b64decode(value["v"])),
    "numpy": _decode_numpy,
    "schema": _decode_schema,
    "TableSpec": _decode_spec,
    "Problem": lambda value: Problem(*(decode(v) for v in value["v"])),
    "error": _decode_error,
    "stranger": lambda value: Stranger(value["v"], value["text"], value["kind"]),
    **{kind.__name__: _reader(kind) for kind in _CLASSES},
    "Stats": lambda value: _read_stats(value["v"]),
    "PackedPlan": _read_packed_plan,
    "Answer": _read_answer,
}

_decoder = json.JSONDecoder()
_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=encode)
