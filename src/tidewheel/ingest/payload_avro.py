"""Avro records: bare ones of a schema that is given, ones behind a registry's header, or whole container files that bring their schema."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa

from tidewheel.errors import InputError
from tidewheel.ingest.parsed import Parsed, Part, extra_fields

CONTAINER = b"Obj\x01"
SINGLE_OBJECT = b"\xc3\x01"
HEADER = 5  # of a schema registry: a zero byte and the schema's number


class AvroPayload:
    """Reads the wanted fields of Avro records. `registry`: each message has a schema registry's header before the record."""

    def __init__(self, wanted: pa.Schema, schema: str = "", registry: bool = False, extra: str = "ignore") -> None:
        self._wanted = wanted
        self._registry = registry
        self._extra = extra
        self._schema = parsed_schema(schema) if schema else None

    def parse(self, values: pa.Array) -> Parsed:
        out = Parsed()
        rows: list[dict[str, Any]] = []
        records: list[int] = []
        for number, data in enumerate(values.to_pylist()):
            found = self._found(data)
            wanted = found if isinstance(found, str) else wanted_records(found, self._wanted, self._extra)
            if isinstance(wanted, str):
                out.failures.append((number, wanted))
            else:
                rows += wanted
                records += [number] * len(wanted)
        if rows:
            out.parts.append(Part(rows, np.array(records, dtype=np.int64)))
        return out

    def records(self, values: Iterable[bytes]) -> list[dict[str, Any]]:
        """All fields of the records that can be read."""
        found = [self._found(data) for data in values]
        return [one for some in found if not isinstance(some, str) for one in some if isinstance(one, dict)]

    def _found(self, data: bytes) -> list[Any] | str:
        fastavro = _fastavro()
        try:
            if data.startswith(CONTAINER):
                found = list(fastavro.reader(io.BytesIO(data)))
            else:
                if self._schema is None:
                    return "is bare Avro, and no schema was given to read it with"
                at = HEADER if self._registry else 10 if data.startswith(SINGLE_OBJECT) else 0
                if self._registry and (len(data) < HEADER or data[0]):
                    return "lacks the header of a schema registry (a zero byte and the schema's number)"
                stream = io.BytesIO(data[at:])
                found = [fastavro.schemaless_reader(stream, self._schema)]
                if stream.tell() != len(data) - at:
                    return f"has {len(data) - at - stream.tell()} bytes more than the record of its schema"
        except Exception as e:  # whatever a damaged record makes of the parser
            return f"is not Avro of this schema: {type(e).__name__}: {e}"
        return found


def wanted_records(found: list[Any], wanted: pa.Schema, extra: str) -> list[dict[str, Any]] | str:
    """The wanted fields of records, or why they are no rows."""
    for one in found:
        if not isinstance(one, dict):
            return f"is a {type(one).__name__}, not a record"
        if extra == "reject" and (why := extra_fields(one, wanted)):
            return why
    return [{name: one.get(name) for name in wanted.names} for one in found] or "has no record"


def container_rows(stream: IO[bytes], at_once: int) -> Iterator[list[Any]]:
    """The records of a container file, some at a time."""
    some: list[Any] = []
    for one in _fastavro().reader(stream):
        some.append(one)
        if len(some) == at_once:
            yield some
            some = []
    if some:
        yield some


def parsed_schema(text: str) -> Any:
    """An Avro schema from its JSON text."""
    fastavro = _fastavro()
    try:
        schema = fastavro.parse_schema(json.loads(text))
    except Exception as e:
        raise InputError(f"this is no Avro schema: {' '.join(str(e).split())}") from e
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InputError("the Avro schema of a stream describes a record")
    return schema


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise InputError("reading Avro needs fastavro: pip install fastavro") from None
    return fastavro
