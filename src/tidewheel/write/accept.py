"""The first step of the write path: rows that fit their table go on, all others are named.

Contract: an `Acceptor` is made once per table and may be used from any thread; it holds no state. What it returns has
exactly the table's schema, its buffers can be read safely, and its key, time and non-nullable columns hold neither null nor
a key without a code. Input that is Arrow of the right schema passes uncopied, after checks only.

Each row is accepted or refused by itself: a column that it does not have is null, if the table allows that, whatever other
rows of the input have.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.errors import BadRowsError, InputError
from tidewheel.model.arrays import named_as
from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import pc
from tidewheel.model.pieces import Shape
from tidewheel.model.schema import TableSpec, nearest
from tidewheel.write.arrow_input import MOST_ROWS, InputColumns, by_name, to_batches
from tidewheel.write.casts import NeverFits, fit
from tidewheel.write.soundness import SoundnessCheck, as_bytes, readable

Refuse = Callable[[pa.RecordBatch], "tuple[np.ndarray[Any, Any], str] | None"]

SHOWN = 5  # bad rows in a message
ENOUGH = 1000  # bad values after which an error stops counting: finding each costs a dozen casts


@dataclass(frozen=True, slots=True)
class Rejected:
    """One bad row: where it was in the input, why it is bad, and the row itself as JSON text."""

    position: int
    column: str
    reason: str
    row: str
    origin: str | None = None
    """The row's place before it came here: a file and line, or a topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The rows that go on, in their order, and those that do not."""

    batches: list[pa.RecordBatch]
    rejected: list[Rejected]


@dataclass(frozen=True, slots=True)
class _Problem:
    """Bad rows of one column for one reason; `part` and `start` lead from a position to the row as it was given."""

    column: str
    one: str
    many: str
    rows: np.ndarray[Any, Any]  # positions in the part
    part: InputColumns
    start: int


class Acceptor:
    """Checks and types the input of one table."""

    def __init__(self, spec: TableSpec, refuse: Refuse, most_bytes: int = sys.maxsize) -> None:
        self.spec = spec
        self._refuse = refuse
        self._shape = Shape(spec)
        self._most_bytes = most_bytes
        row_bytes = self._shape.row_bytes
        self._most_rows = min(MOST_ROWS, most_bytes // row_bytes) if row_bytes else MOST_ROWS
        """Rows of a batch that need not be looked at more closely for their size; where rows differ in size, they must be."""
        self._schema = spec.stored
        roles = dict.fromkeys(spec.key.columns, "key") | {spec.time.column: "time"}
        self._required = {
            i: roles.get(f.name, "non-nullable") for i, f in enumerate(self._schema) if f.name in roles or not f.nullable
        }  # fmt: skip
        # (column, whether its null count tells all: nulls may hide in a dictionary's values)
        self._checks = tuple((i, _plain(self._schema.field(i).type)) for i in self._required)
        self._look = SoundnessCheck(self._schema)

    def accept(self, data: Any, on_bad: str = "error") -> Accepted:
        """The rows of `data` that fit the table. A bad row raises BadRowsError, or with on_bad="reject" is returned apart.

        Arrow data that cannot be read safely is refused as a whole, because nobody can say what its rows are.
        """
        if on_bad != "error" and on_bad != "reject":
            raise InputError(f'on_bad is "error" or "reject", not {on_bad!r}')
        if type(data) is pa.RecordBatch and self._passes(data):
            if not self._shape.row_bytes:
                self._check_size([data])
            return Accepted([data], [])
        batches: list[pa.RecordBatch] = []
        problems: list[_Problem] = []
        start = size = 0
        parts = to_batches(data, self.spec)
        at_once = isinstance(parts, list)
        for part in parts:
            if isinstance(part, pa.RecordBatch):
                if self._fits_as_it_is(part):
                    batches.append(part)
                    start += part.num_rows
                    size = 0 if at_once else self.grown(size, part)
                    continue
                part = by_name(part, self.spec)
            batch, found = self._typed(part, start, ENOUGH if on_bad == "error" else 0)
            problems += found
            start += part.rows
            if batch.num_rows:
                batches += [batch.slice(lo, MOST_ROWS) for lo in range(0, batch.num_rows, MOST_ROWS)]
                size = 0 if at_once else self.grown(size, batch)
        if problems and on_bad == "error":
            raise self._error(problems)
        self._check_size(batches)
        rejected = [r for p in problems for r in _rejected(p)]
        return Accepted(batches, sorted(rejected, key=lambda r: r.position))

    def typed(self, part: InputColumns) -> pa.RecordBatch | None:
        """The rows of a part as the table has them, or None if one of them does not fit: `accept` says which and why."""
        try:
            batch, problems = self._typed(part, 0, 1)
        except BadRowsError:
            return None
        return None if problems else batch

    def grown(self, size: int, batch: pa.RecordBatch) -> int:
        """The bytes of rows so far. An iterator may go on for ever: it is read no further than an insert can be large."""
        size += self._shape.bytes_of(batch)
        if size > self._most_bytes:
            raise InputError(
                f"table {self.spec.name!r}: this input has more than {self._most_bytes:,} bytes of rows, and one insert, which becomes "
                "visible at once, takes no more. Nothing was inserted; insert it in parts, raise Settings.max_batch_bytes, or load files "
                "with wh.load"
            )
        return size

    def _check_size(self, batches: list[pa.RecordBatch]) -> None:
        """A batch becomes visible at once, so all of it is in memory at once."""
        # how large the buffers are is known at once; how much of them these rows are has to be worked out
        if sum(batch.get_total_buffer_size() for batch in batches) <= self._most_bytes:
            return
        size = sum(self._shape.bytes_of(batch) for batch in batches)
        if size > self._most_bytes:
            raise InputError(
                f"table {self.spec.name!r}: this batch has {size:,} bytes of rows, and one insert takes at most {self._most_bytes:,}. "
                f"Nothing was inserted; insert it in {-(-size // self._most_bytes)} or more parts, or raise Settings.max_batch_bytes"
            )

    def _passes(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch from outside can be taken as it is: nothing of it is read before it is known to be sound."""
        if not 0 < batch.num_rows <= self._most_rows or not batch.schema.equals(self._schema, True):
            return False
        return self._look.is_sound(batch) and self._look.is_settled(batch) and self._has_values(batch)

    def _fits_as_it_is(self, batch: pa.RecordBatch) -> bool:
        """Whether a sound batch has the table's schema, values where they must be, and keys that can be encoded."""
        return batch.schema.equals(self._schema, True) and self._has_values(batch)

    def _has_values(self, batch: pa.RecordBatch) -> bool:
        for i, plain in self._checks:
            column = batch.column(i)
            if column.null_count or (not plain and pc.is_null(column).true_count):
                return False
        return self._refuse(batch) is None

    def _check_names(self, part: InputColumns) -> None:
        """Raise if the input as a whole has the wrong columns."""
        known = self._schema.names
        missing = [n for n in known if n not in part.columns and self._schema.get_field_index(n) in self._required]
        unknown = [n for n in part.columns if self._schema.get_field_index(n) < 0]
        if not missing and not unknown:
            return
        said = []
        if missing:
            said.append(f"the input lacks {_columns(missing)}.")
        if unknown:
            absent = [n for n in known if n not in part.columns]
            said.append(f"the table has no {_columns(unknown)}.{nearest(unknown[0], absent or known)}")
        message = f"table {self.spec.name!r}: {' '.join(said)} Columns: {', '.join(known)}"
        raise BadRowsError(message, table=self.spec.name, column=(unknown or missing)[0])

    def _typed(self, part: InputColumns, start: int, limit: int) -> tuple[pa.RecordBatch, list[_Problem]]:
        """The part's good rows in the table's schema, and its bad ones: each row counts for the first reason that applies.

        `limit` as in `fit`; without one, also dicts that lack a column or have one too many are judged one by one. Whatever has columns of
        its own is as a whole for this table, or for another.
        """
        if limit or not all(isinstance(column, list) for column in part.columns.values()):
            self._check_names(part)
        good = np.ones(part.rows, dtype=bool)
        problems: list[_Problem] = []

        def note(column: str, bad: Any, one: str, many: str) -> None:
            rows = np.flatnonzero(bad & good)
            if len(rows):
                problems.append(_Problem(column, one, many, rows, part, start))
                good[rows] = False

        for name, values in part.columns.items():
            if self._schema.get_field_index(name) < 0:
                where = f"a column that the table does not have.{nearest(name, self._schema.names)}"
                note(name, np.array([value is not None for value in values], bool), f"is in {where}", f"are in {where}")
        arrays = []
        for i, field in enumerate(self._schema):
            given: Any = part.columns.get(field.name)
            if given is None:
                given = pa.nulls(part.rows, field.type)
            elif field.name in part.unreadable:
                given, garbled = readable(given)
                note(field.name, garbled, "is not UTF-8 text", "are not UTF-8 text")
            array, bad = self._fit(given, field, limit)
            array = named_as(array, field.type)
            arrays.append(array)
            if bad is not None:
                types = "" if isinstance(given, list) else f" ({given.type} → {field.type})"
                note(field.name, bad, f"doesn't fit {field.type}{types}", f"don't fit {field.type}{types}")
            if i in self._required and (array.null_count or not _plain(field.type)):
                where = f"no value in the {self._required[i]} column"
                note(field.name, pc.is_null(array).to_numpy(zero_copy_only=False), f"has {where}", f"have {where}")
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if problems:
            batch = _keep(batch, good)
        if batch.num_rows and (refused := self._refuse(batch)) is not None:
            mask, reason = refused
            bad = np.zeros(part.rows, dtype=bool)
            bad[np.flatnonzero(good)[mask]] = True
            note(", ".join(self.spec.key.columns), bad, f"has no key: {reason}", f"have no key: {reason}")
            batch = _keep(batch, ~mask)
        return batch, problems

    def _fit(self, column: Any, field: pa.Field, limit: int) -> tuple[pa.Array, np.ndarray[Any, Any] | None]:
        unit = self.spec.time.unit if field.name == self.spec.time.column and pa.types.is_integer(field.type) else ""
        try:
            return fit(column, field.type, unit, limit)
        except NeverFits as e:
            given = "" if isinstance(column, list) else f"{column.type} → {field.type} is no match: "
            message = f"table {self.spec.name!r}, column {field.name!r}: {given}{e}"
            raise BadRowsError(message, table=self.spec.name, column=field.name) from None

    def _error(self, problems: list[_Problem]) -> BadRowsError:
        """The first problem, with its like in later parts of the input."""
        first = problems[0]
        same = [p for p in problems if (p.column, p.many) == (first.column, first.many)]
        count = sum(len(p.rows) for p in same)
        rows = [(p, int(i)) for p in same for i in p.rows[:SHOWN]][:SHOWN]
        shown = ", ".join(f"row {p.start + i}: {_cell(p, i)}" for p, i in rows) + (", …" if count > len(rows) else "")
        number = f"{ENOUGH} or more rows" if count >= ENOUGH else f"{count} row{'s' if count > 1 else ''}"
        what = first.one if count == 1 else first.many
        message = f"table {self.spec.name!r}, column {first.column!r}: {number} {what} (first: {shown})"
        positions = tuple(p.start + int(i) for p in same for i in p.rows[:ENOUGH])
        return BadRowsError(message, table=self.spec.name, column=first.column, rows=positions[:ENOUGH])


def accept(data: Any, spec: TableSpec, refuse: Refuse, on_bad: str = "error") -> Accepted:
    """`Acceptor.accept` for a caller that keeps no acceptor."""
    return Acceptor(spec, refuse).accept(data, on_bad)


def _keep(batch: pa.RecordBatch, good: np.ndarray[Any, Any]) -> pa.RecordBatch:
    try:
        return batch.filter(pa.array(good))
    except pa.ArrowNotImplementedError:  # Arrow filters no views and no run-end encodings; it joins their slices
        edges = np.flatnonzero(np.diff(np.concatenate(([False], good, [False])))).reshape(-1, 2).tolist()
        slices = [batch.slice(lo, hi - lo) for lo, hi in edges] or [batch.slice(0, 0)]
        columns = [pa.concat_arrays([s.column(i) for s in slices]) for i in range(batch.num_columns)]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _plain(type_: pa.DataType) -> bool:
    """Whether the null count of such an array counts all its nulls."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    return not (pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_) or pa.types.is_union(type_))


def _columns(names: list[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _cell(problem: _Problem, row: int) -> str:
    columns = problem.part.columns
    names = [problem.column] if problem.column in columns else problem.column.split(", ")
    values = [_show(columns[name], row) if name in columns else None for name in names]
    text = ", ".join(map(repr, values))
    return text if len(text) <= 80 else text[:77] + "…"


def _rejected(problem: _Problem) -> list[Rejected]:
    out = []
    for row in problem.rows.tolist():
        reason = f"{_cell(problem, row)} {problem.one}"
        out.append(Rejected(problem.start + row, problem.column, reason, row_text(problem.part.columns, row)))
    return out


def row_text(columns: Mapping[str, Any], row: int) -> str:
    """A row as JSON, whatever its values are."""
    return json.dumps({name: _json(_show(column, row)) for name, column in columns.items()}, ensure_ascii=False)


def _show(column: Any, row: int) -> Any:
    """One value as Python has it; as text where Python has no such value (nanoseconds, years beyond 9999)."""
    if isinstance(column, list):
        return column[row]
    type_ = column.type
    one = column.slice(row, 1)
    if pa.types.is_timestamp(type_):  # never as_py: it would import pandas for nanoseconds
        text = one.view(pa.timestamp(type_.unit)).cast(pa.string())[0].as_py()
        return text if text is None or type_.tz is None else text + "Z"
    try:
        return one[0].as_py()
    except UnicodeDecodeError:
        with suppress(pa.ArrowException, ValueError):
            value = as_bytes(one)[0].as_py()
            return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        return " ".join(one.to_string().split())
    except (ValueError, ArithmeticError, pa.ArrowException):  # decimals too can be what Python does not have
        return " ".join(one.to_string().split())


def _json(value: Any) -> Any:
    """The value as JSON can say it: bytes in hex, times in ISO, the rest as text."""
    match value:
        case None | bool() | str():
            return value if not isinstance(value, str) else value.encode("utf-8", "replace").decode()
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case bytes() | bytearray():
            return value.hex()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case Mapping():
            return {str(k): _json(v) for k, v in value.items()}
        case list() | tuple() | np.ndarray():
            return [_json(v) for v in value]
        case np.generic():
            return _json(value.item()) if not isinstance(value.item(), np.generic) else str(value)
    return str(value)
