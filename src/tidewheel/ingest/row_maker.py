"""Parsed records become rows of the table, or dead letters: fields from around the payload, time formats, types, keys.

Contract: a `RowMaker` is made once per task and holds no state. Every record it is given is in its answer: as a row, or as a letter
with the reason, the record's text and where it came from. A record of many rows may be both.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.errors import BadRowsError
from tidewheel.ingest.parsed import Parsed, Part, Rows
from tidewheel.ingest.rules import EPOCHS, Rules
from tidewheel.ingest.time_format import TimeFormat
from tidewheel.model.coders import key_coder
from tidewheel.model.dead_letters import MOST_RAW, DeadLetter
from tidewheel.model.schema import TableSpec
from tidewheel.write.accept import Acceptor, row_text
from tidewheel.write.casts import convert, fit

Bad = tuple[int, str, str, str]
"""(its number, the column, the reason, itself as text) of a row or record."""


@dataclass(frozen=True, slots=True)
class Records:
    """Facts about records beside their rows."""

    origin: Callable[[int], str]
    raw: Callable[[int], str]
    textual: bool = True
    """Whether the text of a record says it best; if not, its rows do (Arrow, Avro, Parquet)."""
    meta: dict[str, pa.Array] = field(default_factory=dict)
    """Columns of the table that are not in the payload, by record."""


class RowMaker:
    """Makes the rows of one table by one set of rules."""

    def __init__(self, spec: TableSpec, rules: Rules) -> None:
        self.spec = spec
        self.wanted = pa.schema([f for f in spec.schema if f.name not in rules.meta])
        self._acceptor = Acceptor(spec, key_coder(spec).refuse)
        self._times: dict[str, TimeFormat] = {}
        if rules.time_format:
            self._times = {f.name: TimeFormat(rules.time_format, unit) for f in self.wanted if (unit := _time_unit(f, spec))}
        self._format = rules.time_format
        # beside a time whose format was said there may be times that need none; and anywhere, if nobody said it
        self._iso = {name for name, f in self._times.items() if not f.is_like_iso and (name != spec.time.column or rules.time_format_found)}
        whole = rules.time_format in EPOCHS
        self.timed = {name: pa.int64() if whole and name not in self._iso else pa.string() for name in self._times}
        """Columns whose times have a declared format, and the types that CSV is read as for them."""

    def make(self, parsed: Parsed, records: Records) -> tuple[list[pa.RecordBatch], list[DeadLetter]]:
        """The rows in the table's schema, and the dead letters."""
        batches: list[pa.RecordBatch] = []
        letters: list[DeadLetter] = [self._letter(records, (number, "", why, "")) for number, why in parsed.failures]
        for part in parsed.parts:
            rows, bad = self._part(part, records)
            batches += rows
            letters += [self._letter(records, one, part) for one in bad]
        return batches, letters

    def _part(self, part: Part, records: Records) -> tuple[list[pa.RecordBatch], list[Bad]]:
        """The rows of a part; and (row, column, reason, the row as text) of the bad ones."""
        rows, places, bad = self._timed(self._whole(part, records))
        if not len(places):
            return [], bad
        try:
            accepted = self._acceptor.accept(rows, "reject")
        except BadRowsError as e:  # not one value is wrong but a column's type
            return [], bad + [(int(i), e.column, _reason(e), "") for i in places]
        return accepted.batches, bad + [(int(places[r.position]), r.column, r.reason, r.row) for r in accepted.rejected]

    def _whole(self, part: Part, records: Records) -> Rows:
        """All columns of the table: those of the payload, and those from around it."""
        if not records.meta:
            return part.rows
        given = {name: column.take(pa.array(part.records)) for name, column in records.meta.items()}
        if isinstance(part.rows, list):
            columns = {name: column.to_pylist() for name, column in given.items()}
            return [{**row, **{name: column[i] for name, column in columns.items()}} for i, row in enumerate(part.rows)]
        names = part.rows.schema.names
        return pa.RecordBatch.from_arrays([*part.rows.columns, *given.values()], names=[*names, *given])

    def _timed(self, rows: Rows) -> tuple[Rows, npt.NDArray[np.int64], list[Bad]]:
        """The rows whose times have the declared format, their places, and the others."""
        n = len(rows) if isinstance(rows, list) else rows.num_rows
        if not self._times:
            return rows, np.arange(n), []
        bad: dict[int, Bad] = {}
        for name, format_ in self._times.items():
            iso = name in self._iso
            for i, value in self._convert(rows, name, format_, iso) if isinstance(rows, list) else ():
                bad.setdefault(i, (i, name, f"{value!r} does not have the time format {self._format}", ""))
            if not isinstance(rows, list):
                at = rows.schema.get_field_index(name)
                given = rows.column(at)
                if pa.types.is_temporal(given.type):  # the source knows its own times
                    continue
                type_ = self.spec.schema.field(name).type
                if iso and (times := _iso_times(given, type_)) is not None:
                    rows = rows.set_column(at, name, times)
                    continue
                counts, wrong = format_.column(given)
                times = _counted(counts, type_)
                if iso and wrong is not None and _is_text(given):
                    others, wrong = fit(pc.if_else(pa.array(wrong), given, None), type_)
                    times = pc.coalesce(times, others)
                rows = rows.set_column(at, name, times)
                for i in np.flatnonzero(wrong).tolist() if wrong is not None else ():
                    bad.setdefault(i, (i, name, f"{given[i].as_py()!r} does not have the time format {self._format}", ""))
        if not bad:
            return rows, np.arange(n), []
        places = np.delete(np.arange(n), list(bad))
        kept: Rows = [rows[i] for i in places.tolist()] if isinstance(rows, list) else rows.take(pa.array(places))
        return kept, places, list(bad.values())

    def _convert(self, rows: list[dict[str, Any]], name: str, format_: TimeFormat, iso: bool) -> Iterator[tuple[int, Any]]:
        """Put counts in the place of times; yields the rows where that cannot be, and their values. `iso`: other texts may stay."""
        for i, row in enumerate(rows):
            value = row[name]
            try:
                row[name] = format_.value(value)
            except (ValueError, ArithmeticError):
                if not iso or not isinstance(value, str):
                    yield i, value

    def _letter(self, records: Records, bad: Bad, part: Part | None = None) -> DeadLetter:
        row, column, reason, text = bad
        number = row if part is None else int(part.records[row])
        origin = records.origin(number)
        if part is not None:
            first = int(np.searchsorted(part.records, number))
            many = first + 1 < len(part.records) and part.records[first + 1] == number
            origin = f"{origin} row {row - first}" if many else origin
            # of a record of many rows, the row: the whole record beside each of them could be any number of bytes
            text = "" if records.textual and not many else text or _as_text(part.rows, row)
        return DeadLetter(number, reason, column, (text or records.raw(number))[:MOST_RAW], origin)


def payload_text(data: bytes | pa.Buffer) -> str:
    """A record as text: as it is, or in hex if it is not text. No more of it than is kept."""
    some = memoryview(data)[: 4 * MOST_RAW]  # a character has up to four bytes
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(bytes(some), final=len(some) == len(data))[:MOST_RAW]
    except UnicodeDecodeError:
        return bytes(some[: MOST_RAW // 2]).hex()


def _reason(error: BadRowsError) -> str:
    """The message of an error without the name of the table, beside which it is kept."""
    return str(error).partition(": ")[2] or str(error)


def _as_text(rows: Rows, row: int) -> str:
    if isinstance(rows, list):
        return json.dumps(rows[row], ensure_ascii=False, default=str)
    try:
        return json.dumps(rows.slice(row, 1).to_pylist()[0], ensure_ascii=False, default=str)
    except (ValueError, ArithmeticError, pa.ArrowException):  # Python has no such value
        return row_text(dict(zip(rows.schema.names, rows.columns, strict=True)), row)


def _time_unit(field_: pa.Field, spec: TableSpec) -> str:
    """The unit in which a column counts time; empty if it does not."""
    if field_.name == spec.time.column:
        return spec.time.unit
    if pa.types.is_timestamp(field_.type):
        return str(field_.type.unit)
    return {pa.date32(): "day", pa.date64(): "ms"}.get(field_.type, "")


def _is_text(array: pa.Array) -> bool:
    return bool(pa.types.is_string(array.type) or pa.types.is_large_string(array.type))


def _iso_times(given: pa.Array, to: pa.DataType) -> pa.Array | None:
    """ISO texts as times; None if there is anything else among them."""
    try:
        return convert(given, to) if _is_text(given) else None
    except (pa.ArrowException, ValueError):
        return None


def _counted(counts: pa.Array, to: pa.DataType) -> pa.Array:
    """Counts as the column's type."""
    if pa.types.is_timestamp(to) or pa.types.is_date64(to):
        return counts.view(to)
    if pa.types.is_date32(to):
        return counts.cast(pa.int32()).view(to)
    return counts
