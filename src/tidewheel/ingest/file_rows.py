"""Files as rows: by their name a format and a compression, in pieces of bounded size. A file that cannot be read to its end is broken."""

from __future__ import annotations

import csv
import errno
import io
import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidewheel.errors import TidewheelError
from tidewheel.ingest.parsed import Parsed, Part, Payload, extra_fields, only_wanted
from tidewheel.ingest.payload_avro import container_rows, wanted_records
from tidewheel.ingest.payload_csv import CsvPayload
from tidewheel.ingest.payload_json import JsonPayload
from tidewheel.ingest.row_maker import Records, RowMaker, payload_text
from tidewheel.ingest.rules import Rules
from tidewheel.ingest.text_lines import Numbers, closed_quotes, text_lines
from tidewheel.model.dead_letters import letters_batch, rows_batch
from tidewheel.model.schema import nearest

FORMATS = {
    "csv": "csv", "tsv": "tsv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet", "pq": "parquet", "avro": "avro",
    "arrow": "arrow", "arrows": "arrow", "feather": "arrow", "ipc": "arrow",
}  # fmt: skip
CODECS = {"gz": "gzip", "zst": "zstd", "bz2": "bz2", "lz4": "lz4", "br": "brotli"}
GLOB = f"*.{{{','.join(FORMATS)}}}{{,{','.join('.' + c for c in CODECS)}}}"
"""The names of files that can be read."""

SOME_ROWS = 16_384
BIG = 64 << 20
"""Bytes from which on a file is read twice, first to see whether it is whole, instead of being held in memory."""


class Broken(Exception):
    """The file cannot be read, and why."""


class FileRows:
    """Reads files as rows of one table."""

    def __init__(self, maker: RowMaker, rules: Rules) -> None:
        self._maker = maker
        self._rules = rules
        self._schema = maker.spec.schema

    def read(self, path: str, length: int, content: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """The file's rows and dead letters, in batches with the hidden columns. It is this call that raises `Broken`, not its iterator."""
        try:
            if length < BIG:
                return iter(list(self._batches(path, content)))
            for _ in self._batches(path, content):
                pass
        except pa.ArrowMemoryError as e:
            if length < BIG:  # it is damaged where it says how long something is
                raise Broken(_why(e)) from e
            raise
        except (MemoryError, TidewheelError):
            raise
        except OSError as e:
            if e.errno is not None and e.errno != errno.ENOENT:
                raise  # the system's trouble, not the file's: the batch comes again
            raise Broken(_why(e)) from e
        except Exception as e:  # whatever damaged bytes make of a parser: it is the file that is broken, and the stream goes on
            raise Broken(_why(e)) from e
        return self._batches(path, content)

    def _batches(self, path: str, content: bytes | None) -> Iterator[pa.RecordBatch]:
        for parsed, records in self.parts(path, content):
            rows, letters = self._maker.make(parsed, records)
            yield from map(rows_batch, rows)
            if letters:
                yield letters_batch(self._schema, letters)

    def parts(self, path: str, content: bytes | None = None) -> Iterator[tuple[Parsed, Records]]:
        """The file's records, parsed but not typed, some at a time."""
        format_, codec = named(path, self._rules.payload)
        with opened(path, codec, content) as stream:
            match format_:
                case "csv" | "tsv":
                    yield from self._csv(path, stream, "\t" if format_ == "tsv" else self._rules.delimiter)
                case "json":
                    yield from self._json(path, stream)
                case "avro":
                    for at, found in _counted(container_rows(stream, SOME_ROWS)):
                        rows = wanted_records(found, self._maker.wanted, self._rules.extra)
                        yield self._typed(path, at, rows, len(found))
                case "parquet":
                    with pq.ParquetFile(stream) as file:
                        yield from self._columns(path, file.schema_arrow, file.iter_batches(SOME_ROWS))
                case "arrow":
                    yield from self._columns(path, *arrow_batches(stream))

    # ---- text: one record per line ----------------------------------------------------------------------

    def _csv(self, path: str, stream: pa.NativeFile, delimiter: str) -> Iterator[tuple[Parsed, Records]]:
        names = list(self._rules.columns)
        payload: CsvPayload | None = None
        for numbers, lines in closed_quotes(text_lines(stream)):
            if payload is None:
                if not names:
                    names, lines, numbers = csv_header(lines[0].as_py(), delimiter), lines.slice(1), numbers[1:]
                self._check_names(names)
                payload = CsvPayload(self._maker.wanted, names, delimiter, self._rules.nulls)
            yield self._parsed(path, numbers, lines, payload)

    def _json(self, path: str, stream: pa.NativeFile) -> Iterator[tuple[Parsed, Records]]:
        payload = JsonPayload(self._maker.wanted, self._rules.extra)
        blocks = text_lines(stream)
        for numbers, lines in blocks:
            first = lines[0].as_py()
            if numbers[0] == 1 and first.lstrip().startswith(b"[") and not _is_json(first):  # one list over many lines
                yield self._json_list(path, b"\n".join(chain(lines.to_pylist(), *(more.to_pylist() for _, more in blocks))))
                return
            yield self._parsed(path, numbers, lines, payload)

    def _json_list(self, path: str, data: bytes) -> tuple[Parsed, Records]:
        objects = json.loads(data)
        texts = [json.dumps(one, ensure_ascii=False) for one in objects]
        parsed = JsonPayload(self._maker.wanted, self._rules.extra).parse(pa.array([t.encode() for t in texts], pa.binary()))
        return parsed, Records(lambda i: f"{path}: item {i + 1}", lambda i: texts[i])

    def _parsed(self, path: str, numbers: Numbers, lines: pa.Array, payload: Payload) -> tuple[Parsed, Records]:
        """Lines as records; blank ones are none."""
        full = pc.indices_nonzero(pc.binary_length(pc.ascii_trim_whitespace(lines.view(pa.large_string()))))
        if len(full) < len(lines):
            numbers, lines = numbers[full.to_numpy()], lines.take(full)
        return payload.parse(lines), Records(lambda i: f"{path}:{numbers[i]}", lambda i: payload_text(lines[i].as_py()))

    # ---- columns ----------------------------------------------------------------------------------------

    def _columns(self, path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Parsed, Records]]:
        self._check_names(schema.names)
        for at, batch in _counted(batches):
            batch.validate(full=True)
            yield self._typed(path, at, only_wanted(batch, self._maker.wanted), batch.num_rows)

    def _typed(self, path: str, at: int, rows: Any, count: int) -> tuple[Parsed, Records]:
        if isinstance(rows, str):
            raise Broken(rows)
        return Parsed([Part(rows, np.arange(count))]), Records(lambda i: f"{path}: row {at + i + 1}", lambda i: "", textual=False)

    def _check_names(self, names: list[str]) -> None:
        """A file without time or key is no file for this table; other columns may be missing."""
        spec = self._maker.spec
        for name in (spec.time.column, *spec.key.columns):
            if name not in names and name in self._maker.wanted.names:
                raise Broken(f"it has no column {name!r}.{nearest(name, names)} Its columns: {', '.join(names[:20])}")
        if len(set(names)) < len(names):
            raise Broken(f"it has two columns named {next(n for n in names if names.count(n) > 1)!r}")
        if self._rules.extra == "reject" and (why := extra_fields(names, self._maker.wanted)):
            raise Broken(f"it {why}")


def named(path: str, payload: str = "") -> tuple[str, str]:
    """(format, compression) of a file, by its name; the payload, if given, says the format of all files."""
    parts = path.rpartition("/")[2].lower().split(".")
    codec = CODECS.get(parts[-1], "")
    ending = parts[-2] if codec and len(parts) > 1 else parts[-1]
    format_ = payload or FORMATS.get(ending, "")
    if not format_:
        raise Broken(f"its name says no format; known endings: {', '.join(FORMATS)}, each also with {', '.join(CODECS)}")
    return format_, codec


def opened(path: str, codec: str, content: bytes | None = None) -> pa.NativeFile:
    """The bytes of a file, unpacked."""
    raw = pa.BufferReader(content) if content is not None else pa.OSFile(local_path(path))
    if not codec:
        return raw
    return pa.CompressedInputStream(raw, codec)


def local_path(path: str) -> str:
    """The path of a file URI on this machine."""
    return re.sub("^file:/+", "/", path)


def broken_package(path: str, length: int, modified: object) -> str:
    """The name under which a broken file is remembered: until it changes, it is rejected once."""
    return f"{path} (broken, {length} bytes, {modified})"


def csv_header(line: bytes, delimiter: str) -> list[str]:
    """The names in a CSV file's first line."""
    text = line.decode("utf-8-sig").rstrip("\r\n")
    return [name.strip() for name in next(csv.reader(io.StringIO(text), delimiter=delimiter), [])]


def _counted(batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """(rows before, some rows)."""
    at = 0
    for batch in batches:
        yield at, batch
        at += len(batch) if isinstance(batch, list) else batch.num_rows


def arrow_batches(stream: pa.NativeFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the batches of an IPC file or stream."""
    if not stream.seekable():
        stream = pa.BufferReader(stream.read_buffer())
    magic = stream.read(6)
    stream.seek(0)
    if magic != b"ARROW1":
        reader = pa.ipc.open_stream(stream)
        return reader.schema, iter(reader)
    file = pa.ipc.open_file(stream)
    return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _why(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"the file cannot be read: {text}" if isinstance(error, Broken) else f"the file cannot be read: {type(error).__name__}: {text}"
