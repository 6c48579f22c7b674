"""The first records of a source, enough to say which columns a table for them has. Never all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidewheel.errors import InputError
from tidewheel.ingest.file_rows import Broken, arrow_batches, csv_header, named, opened, whole
from tidewheel.ingest.infer import type_of, type_of_texts
from tidewheel.ingest.json_lists import Beginning, items
from tidewheel.ingest.payload_arrow import ArrowPayload
from tidewheel.ingest.payload_avro import AvroPayload, container_rows
from tidewheel.ingest.payload_csv import CsvPayload
from tidewheel.ingest.rules import Rules
from tidewheel.ingest.text_lines import closed_quotes, text_lines

MOST = 1000


@dataclass(frozen=True, slots=True)
class Sample:
    """Some records: by name the values that were found, and the type they have together."""

    values: dict[str, list[Any]]
    schema: pa.Schema
    records: int
    source: str

    @classmethod
    def of_messages(cls, values: Sequence[bytes], rules: Rules, source: str) -> Sample:
        """InputError: none of them can be read."""
        values = values[:MOST]
        match rules.payload:
            case "json":
                return cls._objects(_json(values), source, f"is a JSON object (the first begins {_shown(values)})")
            case "avro" | "confluent-avro":
                payload = AvroPayload(_ANY, rules.avro_schema, rules.payload != "avro")
                return cls._objects(payload.records(values), source, "is Avro of this schema; give it with the option avro_schema")
            case "arrow":
                batches = (b for v in values for b in ArrowPayload(_ANY).batches(pa.py_buffer(v)))
                if (first := next(batches, None)) is not None:
                    return cls._table(pa.Table.from_batches([first]).slice(0, MOST), source)
            case "csv":
                if not rules.columns:
                    raise InputError(
                        f"CSV messages of {source} have no header: name their fields in their order (--columns plate,ts,speed)"
                    )
                return cls._texts(pa.array(values, pa.large_binary()), rules.columns, rules.delimiter, rules, source)
        raise InputError(f"none of the first {len(values)} records of {source} is {rules.payload}; the option payload says what they are")

    @classmethod
    def of_file(cls, path: str, content: bytes | None, rules: Rules) -> Sample:
        """`Broken`: it cannot be read."""
        format_, codec = named(path, rules.payload)
        try:
            with opened(path, codec, content) as stream:
                match format_:
                    case "csv" | "tsv":
                        delimiter = "\t" if format_ == "tsv" else rules.delimiter
                        _, lines = next(closed_quotes(text_lines(stream, 1 << 20)))
                        names = rules.columns or tuple(csv_header(lines[0].as_py(), delimiter))
                        return cls._texts(lines.slice(0 if rules.columns else 1, MOST), names, delimiter, rules, path)
                    case "json":
                        return cls._objects(_json_file(stream), path, "is a JSON object")
                    case "avro":
                        return cls._objects(next(container_rows(stream, MOST), []), path, "is a record")
                    case "parquet":
                        with pq.ParquetFile(stream if stream.seekable() else pa.BufferReader(whole(stream))) as file:
                            some = list(islice(file.iter_batches(MOST), 1))
                            return cls._table(pa.Table.from_batches(some, file.schema_arrow), path)
                    case _:
                        schema, batches = arrow_batches(stream, lambda: opened(path, codec, content))
                        return cls._table(pa.Table.from_batches(list(islice(batches, 1)), schema).slice(0, MOST), path)
        except Exception as e:  # as in FileRows.read
            raise Broken(str(e) or "it is empty") from e

    @classmethod
    def _objects(cls, found: list[Any], source: str, what: str) -> Sample:
        objects = [one for one in found if isinstance(one, dict) and one]
        if not objects:
            raise InputError(f"none of the first records of {source} {what}; the option payload says what they are")
        names = dict.fromkeys(str(name) for one in objects for name in one)
        values = {name: [one.get(name) for one in objects] for name in names}
        return cls(values, pa.schema([(name, type_of(column)) for name, column in values.items()]), len(objects), source)

    @classmethod
    def _texts(cls, lines: pa.Array, names: Sequence[str], delimiter: str, rules: Rules, source: str) -> Sample:
        if len(set(names)) < len(names):
            raise InputError(f"{source} has two columns named {next(n for n in names if names.count(n) > 1)!r}")
        wanted = pa.schema([(name, pa.string()) for name in names])
        parsed = CsvPayload(wanted, names, delimiter, rules.nulls).parse(lines)
        table = pa.Table.from_batches([part.rows for part in parsed.parts], wanted)
        if not table.num_rows:
            raise InputError(
                f"none of the first records of {source} has {len(names)} fields separated by {delimiter!r}: {', '.join(names)}"
            )
        values = table.to_pydict()
        return cls(values, pa.schema([(name, type_of_texts(column)) for name, column in values.items()]), table.num_rows, source)

    @classmethod
    def _table(cls, table: pa.Table, source: str) -> Sample:
        fields = [pa.field(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in table.schema]
        plain = [n for n, f in zip(table.column_names, fields, strict=True) if pa.types.is_integer(f.type) or pa.types.is_string(f.type)]
        return cls(table.select(plain).to_pydict(), pa.schema(fields), table.num_rows, source)


_ANY = pa.schema([])


def _json(values: Sequence[bytes]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        try:
            one = json.loads(value)
        except (ValueError, RecursionError):
            continue
        found += one if isinstance(one, list) else [one]
    return found[:MOST]


def _json_file(stream: pa.NativeFile) -> list[Any]:
    beginning = Beginning(stream)
    if beginning.is_one_list():
        return _json([text.encode() for text in next(items(beginning, MOST), [])])
    _, lines = next(text_lines(beginning, 1 << 20))
    return _json(lines.slice(0, MOST).to_pylist())


def _shown(values: Sequence[bytes]) -> str:
    return repr(values[0][:60].decode("utf-8", "replace")) if values else "''"
