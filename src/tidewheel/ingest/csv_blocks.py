"""CSV files in blocks of whole lines, each of which can be parsed by itself, in any thread; and their fast way into typed columns.

`csv_blocks` cuts: a block begins and ends between records, also where quoted fields go over several lines. `TypedCsv` reads a block whose
lines are records each, straight into the table's types. It is quick and judges no row: where anything about a block is odd, its caller
reads it again by `CsvPayload`, which says of every record what it is. What `TypedCsv` does read, it reads as that one would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from tidewheel.ingest.parsed import only_wanted
from tidewheel.ingest.payload_csv import trimmed
from tidewheel.ingest.text_lines import BOM, MOST_LINES, Line, Lines, check_line, close_quotes, lines_of
from tidewheel.model.arrow_types import is_text

BLOCK = 8 << 20
"""Bytes of a block: large enough to forget what a call costs, small enough that many fit the memory."""

_QUOTE, _NEWLINE = ord('"'), ord("\n")
_TRUE, _FALSE = ["true", "True", "TRUE", "1"], ["false", "False", "FALSE", "0"]


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """Lines of a file, the first of them with this number."""

    number: int
    data: bytes
    records: Lines | None = None
    """The records, if some of them have several lines, or quotes that do not close; else each line is one."""


def csv_blocks(stream: pa.NativeFile, block: int = BLOCK) -> Iterator[CsvBlock]:
    """All of a file. A line is in memory as a whole, and so are up to `MOST_LINES` lines of one record."""
    rest: list[bytes] = []
    number = 1
    while data := stream.read(block):
        if number == 1 and not rest:
            data = data.removeprefix(BOM)
        end = data.rfind(b"\n") + 1
        if not end:
            rest.append(data)
            check_line(number, rest)
            continue
        data, tail = b"".join([*rest, data[:end]]), data[end:]
        count = data.count(b"\n")
        if _is_simple(data):
            yield CsvBlock(number, data)
            number, rest = number + count, [tail]
            continue
        done, waiting = close_quotes([], _numbered(data[:-1], number), MOST_LINES)
        if done:
            yield CsvBlock(number, data, lines_of(done))
        number = waiting[0][0] if waiting else number + count
        rest = [*(text + b"\n" for _, text, _ in waiting), tail]
    last = b"".join(rest)
    while last:
        if _is_simple(last):
            yield CsvBlock(number, last)
            return
        done, waiting = close_quotes([], _numbered(last.removesuffix(b"\n"), number), MOST_LINES)
        if waiting:  # a quote that nothing closes is a mistake of its line alone
            done, waiting = [*done, waiting[0]], waiting[1:]
        yield CsvBlock(number, last, lines_of(done))
        number = waiting[0][0] if waiting else number
        last = b"\n".join(text for _, text, _ in waiting)


def header_of(block: CsvBlock) -> tuple[bytes, CsvBlock]:
    """The first record of a file, and its first block without it."""
    if block.records is None:
        head, _, data = block.data.partition(b"\n")
        return head, CsvBlock(block.number + 1, data)
    numbers, records = block.records
    return records[0].as_py(), CsvBlock(block.number, block.data, (numbers[1:], records.slice(1)))


def halves(block: CsvBlock) -> tuple[CsvBlock, CsvBlock] | None:
    """A block of simple lines as two; None if it is one line."""
    middle = block.data.rfind(b"\n", 0, len(block.data) // 2) + 1 or block.data.find(b"\n") + 1
    if not 0 < middle < len(block.data):
        return None
    first, second = block.data[:middle], block.data[middle:]
    return CsvBlock(block.number, first), CsvBlock(block.number + first.count(b"\n"), second)


def lines_in(block: CsvBlock) -> Lines:
    """The records of a block, with their numbers."""
    if block.records is not None:
        return block.records
    lines = pc.split_pattern(pa.array([block.data.removesuffix(b"\n")], pa.large_binary()), b"\n").values
    return np.arange(block.number, block.number + len(lines)), lines


class TypedCsv:
    """Reads blocks straight into the types of a table. May be used from any thread."""

    def __init__(
        self, wanted: pa.Schema, names: Sequence[str], delimiter: str, nulls: Sequence[str], times: Mapping[str, pa.DataType]
    ) -> None:
        """`times`: columns whose times have a format of their own, and the types they are read as."""
        self._wanted = wanted
        self._names = list(names)
        here = [field for field in wanted if field.name in names]
        told = {f.name: times.get(f.name) or _read_as(f.type) for f in here}
        self._zoned = [f.name for f in here if pa.types.is_timestamp(told[f.name])]
        self._floats = [f.name for f in here if pa.types.is_floating(told[f.name])]
        # what is no text has no use for spaces around it
        self._spaced = {f.name for f in here if pa.types.is_string(told[f.name]) and not is_text(f.type)}
        self._parsing = pcsv.ParseOptions(delimiter=delimiter)
        zones = ("", "UTC") if self._zoned else ("",)
        """Arrow reads either times with a zone or times without; what was right for the last block is tried first."""
        self._ways = [
            pcsv.ConvertOptions(
                column_types={n: pa.timestamp(t.unit, zone or None) if n in self._zoned else t for n, t in told.items()},
                include_columns=[f.name for f in here], null_values=list(nulls), strings_can_be_null=True,
                quoted_strings_can_be_null=False, true_values=_TRUE, false_values=_FALSE,
            )
            for zone in zones
        ]  # fmt: skip

    def read(self, block: CsvBlock) -> pa.RecordBatch | None:
        """The rows, one for each line that is not empty; None: something about it is odd."""
        if block.records is not None or not block.data:
            return None
        for way in list(self._ways):
            batch = self._read(block.data, way)
            if batch is None:
                continue
            if way is not self._ways[0]:
                self._ways.reverse()
            full = block.data.count(b"\n") + (not block.data.endswith(b"\n"))
            if batch.num_rows != full and batch.num_rows != _full_lines(block):
                return None  # a carriage return in the middle of a line, say
            return batch
        return None

    def _read(self, data: bytes, way: pcsv.ConvertOptions) -> pa.RecordBatch | None:
        reading = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._names)
        try:
            table = pcsv.read_csv(pa.BufferReader(data), reading, self._parsing, way)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        batches = table.combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
        for name in self._floats:  # a number beyond all floats would have become infinite
            if pc.any(pc.is_inf(batch.column(name))).as_py():
                return None
        for name in self._zoned:  # all time is UTC
            given = batch.column(name)
            wanted = self._wanted.field(name).type
            if given.type != wanted:
                batch = batch.set_column(batch.schema.get_field_index(name), name, given.view(wanted))
        return only_wanted(trimmed(batch, self._spaced), self._wanted)


def _read_as(type_: pa.DataType) -> pa.DataType:
    """The type that Arrow's CSV reader is told; text where its idea of a type may not be that of `write.casts`."""
    t = pa.types
    if t.is_integer(type_) or t.is_float32(type_) or t.is_float64(type_) or t.is_boolean(type_):
        return type_
    if t.is_timestamp(type_) or t.is_date32(type_):
        return type_
    return pa.string()


def _is_simple(data: bytes) -> bool:
    """Whether every line has an even number of quotes."""
    if b'"' not in data:
        return True
    found = np.frombuffer(data, np.uint8)
    before = np.searchsorted(np.flatnonzero(found == _QUOTE), np.flatnonzero(found == _NEWLINE))
    odd = bool((before & 1).any())
    return not odd and (data.endswith(b"\n") or data.count(b'"') % 2 == 0)


def _numbered(data: bytes, number: int) -> Iterator[Line]:
    return ((number + i, line, line.count(b'"') % 2 == 1) for i, line in enumerate(data.split(b"\n")))


def _full_lines(block: CsvBlock) -> int:
    return sum(1 for line in block.data.split(b"\n") if line.rstrip(b"\r"))
