"""From a condition to the program that the kernels interpret: for a conjunction of parts, the cheapest first.

Comparisons are those of `read/condition_mask.py`, which are DuckDB's. What cannot be asked in a kernel, or is not certain to mean the same
there, has no program.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.codes import fixed
from tidewheel.model.conditions import Both, Comparison, Condition, Either, HasText, IsNull, Negation, OneOf, all_of, conjuncts
from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import later
from tidewheel.model.pieces import COLUMNS, OTHER, SLOTS, VAR32, VAR64, column_kind
from tidewheel.read.filters import step_codes as c
from tidewheel.read.filters.number_ranges import WholeColumn, ends_of, float_range, stored_as, whole_range

texts = later("tidewheel.read.filters.texts.kernels")

_ORDERS = {"=": 2, "!=": 5, "<": 1, "<=": 3, ">": 4, ">=": 6}
_PLACES = {"begin": c.TEXT_BEGINS, "end": c.TEXT_ENDS, "inside": c.TEXT_HAS}
_RANGES = {0: c.BIT, 1: c.BYTES1, 2: c.BYTES2, 4: c.BYTES4, 8: c.BYTES8, 16: c.BYTES16}
_KINDS = {(1, True): c.INT1, (2, True): c.INT2, (4, True): c.INT4, (1, False): c.UINT1, (2, False): c.UINT2, (4, False): c.UINT4}

_LONGEST_TABLE = 1 << 16
"""Bytes of a table of numbers: it stays in a near cache."""

_SPARSE = 8
"""Places in a table for each text of a list, so that most are empty."""

_MOST_STEPS = 4096
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Program:
    """Hold on to it while its steps are in use: they point to its constants."""

    steps: npt.NDArray[np.int64]
    reads: tuple[str, ...]
    """The columns that it looks at."""
    constants: tuple[Any, ...]
    marked: bool = False
    """It is to be asked only of rows in segments with a mark; the others are sure."""


NO_PROGRAM = Program(np.empty((0, c.WIDTH), np.int64), (), ())
"""It is true of every row."""


def program_of(condition: Condition | None, schema: pa.Schema) -> Program | None:
    """The program of a condition on rows of a table with this schema; None if a part of it is not for the kernels."""
    program, rest = divided(condition, schema)
    return program if rest is None else None


def divided(condition: Condition | None, schema: pa.Schema) -> tuple[Program, Condition | None]:
    """A program, and the rest of the condition: rows satisfy it if the program is true of them and the rest too."""
    parts, rest = list[_Part](), list[Condition]()
    room = _MOST_STEPS
    for one in conjuncts(condition):
        try:
            part = _part(one, schema, False, 0)
            if part.depth >= c.MASKS or len(part.asked) > room:
                raise _NotOursError
        except _NotOursError:
            rest.append(one)
        else:
            room -= len(part.asked)
            parts.append(part)
    return _program(_merged(parts)), all_of(rest)


class _NotOursError(Exception):
    """A part that is not for the kernels."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One row of the matrix, but for the address of its constants."""

    asked: int
    column: str = ""
    slot: int = 0
    turned: bool = False
    first: int = 0
    second: int = 0
    count: int = 0
    constants: tuple[npt.NDArray[Any], ...] = ()
    """The first is the one that the step points to; the others are what that points to."""
    cost: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a conjunction."""

    asked: tuple[_Step, ...]
    depth: int
    """Masks at a time."""
    cost: int
    span: tuple[int, int, WholeColumn] | None = None
    """If it is a range of whole numbers: that."""


_CHEAP = 4
"""Steps up to this cost are worth asking of all rows of a block, as they lie there."""


def _program(parts: Sequence[_Part]) -> Program:
    if not parts:
        return NO_PROGRAM
    rows, kept = list[list[int]](), list[Any]()
    for part in sorted(parts, key=lambda part: part.cost):
        for n, step in enumerate(part.asked):
            kept += step.constants
            address = int(step.constants[0].ctypes.data) if step.constants else 0
            keep, sift = n == len(part.asked) - 1, n == 0 and part.cost > _CHEAP
            rows.append(
                [step.asked, step.slot, int(step.turned), _bits(step.first), _bits(step.second), address, step.count, int(keep), int(sift)]
            )
    reads = dict.fromkeys(step.column for part in parts for step in part.asked if step.column)
    return Program(np.array(rows, np.int64), tuple(reads), tuple(kept))


def _bits(number: int) -> int:
    """As eight bytes, signed."""
    number &= 0xFFFFFFFFFFFFFFFF
    return number - (1 << 64) if number >> 63 else number


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    """With one range where there are several of one column."""
    found = list[_Part]()
    spans: dict[str, int] = {}
    for part in parts:
        column = part.asked[0].column
        if part.span is None or column not in spans:
            if part.span is not None:
                spans[column] = len(found)
            found.append(part)
            continue
        before = found[spans[column]]
        assert before.span is not None
        least, most = max(before.span[0], part.span[0]), min(before.span[1], part.span[1])
        stored = part.span[2]
        step = before.asked[0]
        met = replace(step, first=least, second=most - least) if least <= most else _everything(step, stored)
        found[spans[column]] = _Part((met,), 1, step.cost, (least, most, stored) if least <= most else None)
        if least > most:
            del spans[column]
    return found


def _everything(step: _Step, stored: WholeColumn) -> _Step:
    """That a number is none of all there are."""
    return replace(step, turned=True, first=stored.least, second=stored.most - stored.least)


# ---- parts ----------------------------------------------------------------------------------------------------


def _part(condition: Condition, schema: pa.Schema, turned: bool, depth: int) -> _Part:
    """`turned`: where the condition is false. De Morgan's rules hold with nulls too, so negations end in the steps."""
    if depth > _DEEPEST:
        raise _NotOursError
    match condition:
        case Negation(of):
            return _part(of, schema, not turned, depth + 1)
        case Both(left, right) | Either(left, right):
            one, two = _part(left, schema, turned, depth + 1), _part(right, schema, turned, depth + 1)
            if two.depth > one.depth:  # the deeper first: so fewer masks wait for others
                one, two = two, one
            joins = c.BOTH if isinstance(condition, Both) != turned else c.EITHER
            return _Part((*one.asked, *two.asked, _Step(joins)), max(one.depth, two.depth + 1), one.cost + two.cost)
        case IsNull(column):
            slot, type_ = _column(column, schema)
            step = _Step(c.IS_NULL, column, slot, turned, cost=2)
        case Comparison(column, op, value):
            slot, type_ = _column(column, schema)
            step = _compared(_Step(0, column, slot), op, value, type_)
            step = replace(step, turned=step.turned != turned)
            stored = stored_as(type_)
            if stored is not None and not step.turned:
                return _Part((step,), 1, step.cost, (step.first, step.first + step.second, stored))
        case OneOf(column, values):
            slot, type_ = _column(column, schema)
            step = _listed(_Step(0, column, slot, turned), values, type_)
        case HasText(column, place, text) if (size := _offset_bytes(schema.field(column).type)) and place in _PLACES:
            slot, type_ = _column(column, schema)
            if not (pa.types.is_string(type_) or pa.types.is_large_string(type_)):
                raise _NotOursError
            data, count = _text(text)
            step = _Step(_PLACES[place], column, slot, turned, size, 0, count, (data,), 40 if place == "inside" else 12)
        case _:
            raise _NotOursError
    return _Part((step,), 1, step.cost)


def _column(name: str, schema: pa.Schema) -> tuple[int, pa.DataType]:
    number = schema.get_field_index(name)
    if number < 0 or column_kind(schema.types[number])[0] == OTHER:
        raise _NotOursError
    return COLUMNS + SLOTS * number, schema.types[number]


def _offset_bytes(type_: pa.DataType) -> int:
    """Bytes of an offset of a column of texts; 0: it is none."""
    return {VAR32: 4, VAR64: 8}.get(column_kind(type_)[0], 0)


def _text(text: str | bytes) -> tuple[npt.NDArray[np.uint8], int]:
    """Its bytes, and how many they are: eight more follow, so that short ones can be compared at once."""
    try:
        given = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise _NotOursError from None
    return np.frombuffer(given + bytes(8), np.uint8).copy(), len(given)


def _alike(value: pa.DataType, column: pa.DataType) -> bool:
    """Whether both are texts, or both are bytes."""
    t = pa.types
    if t.is_string(column) or t.is_large_string(column):
        return bool(t.is_string(value) or t.is_large_string(value) or t.is_string_view(value))
    return bool(t.is_binary(value) or t.is_large_binary(value) or t.is_binary_view(value))


def _compared(step: _Step, op: str, value: pa.Scalar, type_: pa.DataType) -> _Step:
    if not value.is_valid:
        raise _NotOursError
    t = pa.types
    if size := _offset_bytes(type_):
        if not _alike(value.type, type_):
            raise _NotOursError
        given, count = _text(value.as_py())
        if op in ("=", "!="):
            return replace(step, asked=c.TEXT_IS, turned=op == "!=", first=size, count=count, constants=(given,), cost=8)
        return replace(step, asked=c.TEXT_ORDER, first=size, second=_ORDERS[op], count=count, constants=(given,), cost=12)
    if t.is_float32(type_) or t.is_float64(type_):
        if (floats := float_range(op, value, type_)) is None:
            raise _NotOursError
        ends = np.array([floats.least, floats.most], np.float32 if t.is_float32(type_) else np.float64)
        asked = c.FLOAT4 if t.is_float32(type_) else c.FLOAT8
        return replace(step, asked=asked, turned=floats.turned, first=int(floats.nan), count=2, constants=(ends,), cost=2)
    stored = stored_as(type_)
    ends_found = None if stored is None else ends_of(value, type_)
    if stored is None or ends_found is None:
        raise _NotOursError
    span = whole_range(op, ends_found, stored)
    return replace(step, asked=_RANGES[stored.bytes], turned=span.turned, first=span.least, second=span.most - span.least, cost=1)


# ---- lists ----------------------------------------------------------------------------------------------------


def _listed(step: _Step, values: pa.Array, type_: pa.DataType) -> _Step:
    t = pa.types
    if values.null_count:
        raise _NotOursError
    if size := _offset_bytes(type_):
        return _listed_texts(replace(step, asked=c.TEXT_LISTED, first=size, cost=16), values, type_)
    if t.is_float32(type_) or t.is_float64(type_):
        if not t.is_floating(values.type):
            raise _NotOursError
        wide = values.cast(pa.float32()) if t.is_float16(values.type) else values
        floats = np.asarray(wide.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64) + 0.0
        nan = np.isnan(floats)
        given = np.unique(floats[~nan])
        return replace(
            step, asked=c.LISTED_FLOAT, first=type_.bit_width // 8, second=int(nan.any()), count=len(given), constants=(given,), cost=8
        )
    stored = stored_as(type_)
    if stored is None:
        raise _NotOursError
    return _listed_wholes(step, _wholes(values, type_, stored), stored)


def _wholes(values: pa.Array, type_: pa.DataType, stored: WholeColumn) -> list[int]:
    """Those that a column can have, in rising order, each once."""
    t = pa.types
    if values.type == type_ and (t.is_integer(type_) or t.is_timestamp(type_) or t.is_date32(type_)):
        plain = values if t.is_integer(type_) else values.view(pa.int32() if t.is_date32(type_) else pa.int64())
        known = plain.to_numpy(zero_copy_only=False) if plain.null_count else fixed(plain, plain.type.to_pandas_dtype())
        return np.unique(known).tolist()  # type: ignore[no-any-return]
    found = set()
    for value in values:
        if (ends := ends_of(value, type_)) is None:
            raise _NotOursError
        if ends[0] == ends[1] and stored.least <= ends[0] <= stored.most:
            found.add(ends[0])
    return sorted(found)


def _listed_wholes(step: _Step, known: list[int], stored: WholeColumn) -> _Step:
    plain = replace(step, asked=_RANGES[stored.bytes], cost=1)
    if not known:
        return replace(_everything(plain, stored), turned=not step.turned)
    span = known[-1] - known[0]
    if span == len(known) - 1:
        return replace(plain, first=known[0], second=span)
    if not stored.bytes:
        raise AssertionError("a bit has two values, and they are neighbours")
    kind = {8: c.INT8, 16: c.INT16}.get(stored.bytes) or _KINDS[stored.bytes, stored.signed]
    if span < _LONGEST_TABLE and len(known) > c.FEW:
        table = np.zeros(span + 2, np.uint8)
        table[np.array([number - known[0] for number in known])] = 1
        return replace(step, asked=c.TABLED, first=kind, second=known[0], count=span + 1, constants=(table,), cost=3)
    given = np.sort(np.array([_bits(number) for number in known], np.int64))
    return replace(step, asked=c.LISTED, first=kind, count=len(given), constants=(given,), cost=3 if len(given) <= c.FEW else 8)


def _listed_texts(step: _Step, values: pa.Array, type_: pa.DataType) -> _Step:
    if not _alike(values.type, type_):
        raise _NotOursError
    known = sorted({value.encode() if isinstance(value, str) else value for value in values.to_pylist()})
    ends = np.cumsum([0, *map(len, known)], dtype=np.int64)
    data = np.frombuffer(b"".join(known) + bytes(8), np.uint8).copy()
    table = np.empty(1 << (_SPARSE * len(known)).bit_length(), np.int32)
    seed = secrets.randbits(62)
    texts.laid_out(ends, data, seed, table)
    what = np.array([ends.ctypes.data, data.ctypes.data, table.ctypes.data, len(table) - 1, seed], np.int64)
    return replace(step, count=len(known), constants=(what, ends, data, table))
