"""Files as rows: by their name a format and a compression, in pieces of bounded size. A file that cannot be read to its end is broken."""

from __future__ import annotations

import csv
import errno
import io
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidewheel.errors import TidewheelError
from tidewheel.ingest.csv_blocks import CsvBlock, TypedCsv, csv_blocks, halves, header_of, lines_in
from tidewheel.ingest.json_lists import Beginning, items
from tidewheel.ingest.parsed import Parsed, Part, Payload, extra_fields, only_wanted
from tidewheel.ingest.payload_avro import container_rows, wanted_records
from tidewheel.ingest.payload_csv import CsvPayload
from tidewheel.ingest.payload_json import JsonPayload
from tidewheel.ingest.row_maker import Records, RowMaker, payload_text
from tidewheel.ingest.rules import Rules
from tidewheel.ingest.text_lines import Lines, Malformed, Numbers, text_lines
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
MOST_HELD = 4 * BIG
"""Bytes of rows that are held; a compressed file may have many."""


MANY_ROWS = 131_072
"""Rows of a Parquet file that are decoded at once."""
SMALL_BLOCK = 128 << 10
"""Bytes of CSV in which something is odd that are read line by line; larger ones are halved to find where it is."""
MOST_UNPACKED = 256 << 20
"""Bytes of a compressed Parquet file, or Arrow file that is no stream, once they are unpacked."""

Parse = Callable[[], Iterator[tuple[Parsed, Records]]]


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Some records of a file. `parse` reads them: once, in any thread, beside other pieces, also when the file was read to its end."""

    end: int
    """About how many bytes of the file were read by then."""
    parse: Parse


class Broken(Exception):
    """The file cannot be read, and why."""


class FileRows:
    """Reads files as rows of one table."""

    def __init__(self, maker: RowMaker, rules: Rules) -> None:
        self._maker = maker
        self._rules = rules
        self._schema = maker.spec.schema

    def may_be_empty(self, path: str) -> bool:
        """Whether a file of no bytes is one of no rows. `Broken`: its name says no format."""
        return named(path, self._rules.payload) in (("csv", ""), ("tsv", ""), ("json", ""))

    def read(self, path: str, length: int, content: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """The file's rows and dead letters, in batches with the hidden columns. It is this call that raises `Broken`, not its iterator."""
        try:
            held: list[pa.RecordBatch] | None = [] if length < BIG else None
            size = 0
            for batch in self._batches(path, content):
                if held is not None:
                    held.append(batch)
                    size += batch.nbytes
                    held = held if size < MOST_HELD else None
            if held is not None:
                return iter(held)
        except pa.ArrowMemoryError as e:
            if length < BIG:  # it is damaged where it says how long something is
                raise Broken(why(e)) from e
            raise
        except (MemoryError, TidewheelError):
            raise
        except OSError as e:
            if e.errno is not None and e.errno != errno.ENOENT:
                raise  # the system's trouble, not the file's: the batch comes again
            raise Broken(why(e)) from e
        except Exception as e:  # whatever damaged bytes make of a parser: it is the file that is broken, and the stream goes on
            raise Broken(why(e)) from e
        return self._batches(path, content)

    def _batches(self, path: str, content: bytes | None) -> Iterator[pa.RecordBatch]:
        for parsed, records in self.parts(path, content):
            rows, letters = self._maker.make(parsed, records)
            yield from map(rows_batch, rows)
            if letters:
                yield letters_batch(self._schema, letters)

    def parts(self, path: str, content: bytes | None = None) -> Iterator[tuple[Parsed, Records]]:
        """The file's records, parsed but not typed, some at a time."""
        for piece in self.pieces(path, content):
            yield from piece.parse()

    def pieces(self, path: str, content: bytes | None = None) -> Generator[FilePiece, None, None]:
        """The file's records, still to be parsed, some at a time. What is wrong with the file is raised here, or where they are parsed."""
        format_, codec = named(path, self._rules.payload)
        with raw_bytes(path, content) as raw, unpacked(raw, codec) as stream:
            match format_:
                case "csv" | "tsv":
                    parses = self._csv(path, stream, "\t" if format_ == "tsv" else self._rules.delimiter)
                case "json":
                    parses = self._json(path, stream)
                case "avro":
                    parses = self._avro(path, stream)
                case "parquet":
                    if not stream.seekable():
                        content = whole(stream)
                    yield from self._parquet(path, pa.BufferReader(content) if content is not None else stream, content)
                    return
                case _:
                    parses = self._columns(path, *arrow_batches(stream, lambda: opened(path, codec, content)))
            length = raw.size()
            for parse in parses:
                yield FilePiece(length if raw.closed else raw.tell(), parse)

    # ---- text: one record per line ----------------------------------------------------------------------

    def _csv(self, path: str, stream: pa.NativeFile, delimiter: str) -> Iterator[Parse]:
        names = list(self._rules.columns)
        readers: tuple[TypedCsv, CsvPayload] | None = None
        for block in csv_blocks(stream):
            if readers is None:
                if not names:
                    head, block = header_of(block)
                    names = csv_header(head, delimiter)
                self._check_names(names)
                wanted, nulls = self._maker.wanted, self._rules.nulls
                readers = (TypedCsv(wanted, names, delimiter, nulls, self._maker.timed), CsvPayload(wanted, names, delimiter, nulls))
            yield partial(self._csv_block, path, block, *readers)

    def _csv_block(self, path: str, block: CsvBlock, typed: TypedCsv, payload: CsvPayload) -> Iterator[tuple[Parsed, Records]]:
        """All at once where nothing is odd; what is, is looked for by halves, and read line by line."""
        batch = typed.read(block)
        if batch is not None:
            yield Parsed([Part(batch, np.arange(batch.num_rows))]), _lines_of(path, block)
            return
        two = halves(block) if block.records is None and len(block.data) > SMALL_BLOCK else None
        if two is None:
            yield self._parsed(path, *lines_in(block), payload)
        else:
            for half in two:
                yield from self._csv_block(path, half, typed, payload)

    def _json(self, path: str, stream: pa.NativeFile) -> Iterator[Parse]:
        payload = JsonPayload(self._maker.wanted, self._rules.extra)
        beginning = Beginning(stream)
        if beginning.is_one_list():
            for at, found in _counted(items(beginning, SOME_ROWS)):
                yield partial(_one, partial(self._items, path, at, found, payload))
            return
        for numbers, lines in text_lines(beginning):
            yield partial(_one, partial(self._parsed, path, numbers, lines, payload))

    def _items(self, path: str, at: int, found: list[str], payload: Payload) -> tuple[Parsed, Records]:
        """Items of a list as records."""
        parsed = payload.parse(pa.array([text.encode() for text in found], pa.large_binary()))
        return parsed, Records(lambda i: f"{path}: item {at + i + 1}", lambda i: found[i])

    def _parsed(self, path: str, numbers: Numbers, lines: pa.Array, payload: Payload) -> tuple[Parsed, Records]:
        """Lines as records; blank ones are none."""
        full = pc.indices_nonzero(pc.binary_length(pc.ascii_trim_whitespace(lines.view(pa.large_string()))))
        if len(full) < len(lines):
            numbers, lines = numbers[full.to_numpy()], lines.take(full)
        return payload.parse(lines), Records(lambda i: f"{path}:{numbers[i]}", lambda i: payload_text(lines[i].as_buffer()))

    # ---- columns ----------------------------------------------------------------------------------------

    def _avro(self, path: str, stream: pa.NativeFile) -> Iterator[Parse]:
        for at, found in _counted(container_rows(stream, SOME_ROWS)):
            rows = wanted_records(found, self._maker.wanted, self._rules.extra)
            yield partial(_one, partial(self._typed, path, at, rows, len(found)))

    def _parquet(self, path: str, stream: pa.NativeFile, content: bytes | pa.Buffer | None) -> Iterator[FilePiece]:
        """A piece for each row group: those who parse them open the file themselves."""
        with pq.ParquetFile(stream) as file:
            self._check_names(file.schema_arrow.names)
            facts = file.metadata
            alone = facts.num_row_groups == 1
        at = end = 0
        for group in range(facts.num_row_groups):
            found = facts.row_group(group)
            end += sum(max(0, found.column(i).total_compressed_size) for i in range(found.num_columns))
            yield FilePiece(end, partial(self._row_group, path, content, facts, group, at, alone))
            at += found.num_rows

    def _row_group(
        self, path: str, content: bytes | pa.Buffer | None, facts: pq.FileMetaData, group: int, start: int, alone: bool
    ) -> Iterator[tuple[Parsed, Records]]:
        """`alone`: there is no other that could be read beside it."""
        with opened(path, "", content) as stream, pq.ParquetFile(stream, metadata=facts) as file:
            for at, batch in _counted(file.iter_batches(MANY_ROWS, [group], use_threads=alone)):
                yield self._batch(path, start + at, batch)

    def _columns(self, path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[Parse]:
        self._check_names(schema.names)
        for at, batch in _counted(batches):
            yield partial(_one, partial(self._batch, path, at, batch))

    def _batch(self, path: str, at: int, batch: pa.RecordBatch) -> tuple[Parsed, Records]:
        batch.validate(full=True)
        return self._typed(path, at, only_wanted(batch, self._maker.wanted), batch.num_rows)

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
        raise Broken(
            f"its name says no format; known endings: {', '.join(FORMATS)}, each also with {', '.join(CODECS)}. Of a file with another "
            "name, say the format: payload csv, json, parquet, avro or arrow"
        )
    return format_, codec


def opened(path: str, codec: str, content: bytes | pa.Buffer | None = None) -> pa.NativeFile:
    """The bytes of a file, unpacked."""
    return unpacked(raw_bytes(path, content), codec)


def raw_bytes(path: str, content: bytes | pa.Buffer | None = None) -> pa.NativeFile:
    return pa.BufferReader(content) if content is not None else pa.OSFile(local_path(path))


def unpacked(raw: pa.NativeFile, codec: str) -> pa.NativeFile:
    return pa.CompressedInputStream(raw, codec) if codec else raw


def whole(stream: pa.NativeFile) -> pa.Buffer:
    """All that is in a compressed file, for formats that are not read from beginning to end."""
    data = stream.read_buffer(MOST_UNPACKED + 1)
    if data.size > MOST_UNPACKED:
        raise Broken(f"unpacked it has more than {MOST_UNPACKED >> 20} MB, and such files are read as a whole: unpack it first")
    return data


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


def arrow_batches(stream: pa.NativeFile, again: Callable[[], pa.NativeFile]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the batches of an IPC file or stream. `again` opens the same bytes from their beginning."""
    with again() as beginning:
        is_file = beginning.read(6) == b"ARROW1"
    if not is_file:
        reader = pa.ipc.open_stream(stream)
        return reader.schema, iter(reader)
    file = pa.ipc.open_file(stream if stream.seekable() else pa.BufferReader(whole(stream)))
    return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))


def _one(parse: Callable[[], tuple[Parsed, Records]]) -> Iterator[tuple[Parsed, Records]]:
    yield parse()


def _lines_of(path: str, block: CsvBlock) -> Records:
    """Records that are the lines of a block which are not empty. Hardly any is ever asked for, so they are looked up then."""

    @cache
    def lines() -> Lines:
        numbers, found = lines_in(block)
        full = pc.indices_nonzero(pc.binary_length(pc.ascii_rtrim(found.view(pa.large_string()), "\r")))
        return numbers[full.to_numpy()], found.take(full)

    return Records(lambda i: f"{path}:{lines()[0][i]}", lambda i: payload_text(lines()[1][i].as_buffer()))


def why(error: Exception) -> str:
    """The reason that a file cannot be read, as people are told."""
    text = " ".join(str(error).split()) or type(error).__name__
    said = text if isinstance(error, (Broken, Malformed)) else f"{type(error).__name__}: {text}"
    return f"the file cannot be read: {said}"
