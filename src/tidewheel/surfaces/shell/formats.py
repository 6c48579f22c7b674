"""Answers as other programs take them: JSON, CSV, Markdown, Arrow, Parquet. All are written batch by batch, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from tidewheel.model.visible_text import visible
from tidewheel.surfaces.shell.cells import is_number, json_texts, texts

Batches = Iterable[pa.RecordBatch]

_MARKDOWN = re.compile(r"[\\|`*_<>]")
_QUOTED = re.compile(r'[",\r\n]|\A\Z|\A[ \t]|[ \t]\Z')


def write(format_: str, schema: pa.Schema, batches: Batches, sink: IO[bytes]) -> int:
    """Write all batches into a sink, and return how many rows there were."""
    counted = CountedBatches(batches)
    if format_ in _TEXTS:
        for text in _TEXTS[format_](schema, counted):
            sink.write(text.encode())
    else:
        with _arrow_writer(format_, schema, sink) as writer:
            for batch in counted:
                writer.write_batch(batch)
    return counted.rows


class CountedBatches:
    """Batches, and how many rows they had so far."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _arrow_writer(format_: str, schema: pa.Schema, sink: IO[bytes]) -> Any:
    if format_ == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(sink, schema, compression="zstd")
    return pa.ipc.new_stream(sink, schema) if format_ == "stream" else pa.ipc.new_file(sink, schema)


def _json(schema: pa.Schema, batches: Batches) -> Iterator[str]:
    """An array of objects, one on each line."""
    before = "[\n"
    for line in _json_rows(schema, batches):
        yield before + line
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _json_lines(schema: pa.Schema, batches: Batches) -> Iterator[str]:
    for line in _json_rows(schema, batches):
        yield line + "\n"


def _json_rows(schema: pa.Schema, batches: Batches) -> Iterator[str]:
    names = [json.dumps(name, ensure_ascii=False) for name in schema.names]
    for batch in batches:
        columns = [[f"{name}: {text}" for text in json_texts(column)] for name, column in zip(names, batch.columns, strict=True)]
        for row in zip(*columns, strict=True):
            yield "{" + ", ".join(row) + "}"


def _csv(schema: pa.Schema, batches: Batches) -> Iterator[str]:
    """With a header. Null is nothing at all, an empty text is a pair of quotes."""
    yield ",".join(map(_csv_field, schema.names)) + "\n"
    for batch in batches:
        columns = [_fields(column, _csv_field) for column in batch.columns]
        yield "".join(",".join(row) + "\n" for row in zip(*columns, strict=True))


def _fields(column: pa.Array, written: Callable[[str], str]) -> list[str]:
    """Values as fields of a line: nothing for null; numbers and times have nothing in them that must be written otherwise."""
    if is_number(column.type) or pa.types.is_timestamp(column.type):
        return ["" if text is None else text for text in texts(column)]
    return ["" if text is None else written(text) for text in texts(column)]


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _markdown(schema: pa.Schema, batches: Batches) -> Iterator[str]:
    yield _markdown_row(map(_markdown_cell, schema.names))
    yield _markdown_row("---:" if is_number(field.type) else "---" for field in schema)
    for batch in batches:
        columns = [_fields(column, _markdown_cell) for column in batch.columns]
        yield "".join(map(_markdown_row, zip(*columns, strict=True)))


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _markdown_cell(text: str) -> str:
    return "<br>".join(visible(line) for line in _MARKDOWN.sub(r"\\\g<0>", text).splitlines())


_TEXTS: dict[str, Callable[[pa.Schema, Batches], Iterator[str]]] = {
    "json": _json, "jsonl": _json_lines, "csv": _csv, "markdown": _markdown
}  # fmt: skip
