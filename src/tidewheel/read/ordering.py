"""Order and limit: 'ts desc, plate' over batches, keeping no more rows than the answer needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.arrays import take_rows, without_views
from tidewheel.model.codes import fixed
from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import pc
from tidewheel.model.plain_values import numbers_of
from tidewheel.read.foremost import foremost
from tidewheel.read.limits import Watch

_MANY = 1 << 17
"""Rows from which on sorting takes long enough to be watched."""

_TOLD_APART = 1 << 13
"""Rows from which on those that cannot be among the first ones are left out before the others are sorted."""

_TERM = re.compile(r"""\s*(?:"((?:[^"]|"")+)"|(.*?\S))(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*""", re.IGNORECASE)
_TERMS = re.compile(r"""(?:"(?:[^"]|"")*"|[^",])+""")
"""Terms between commas; within quotes, a comma is part of a name."""


@dataclass(frozen=True, slots=True)
class SortKey:
    column: str
    descending: bool
    nulls_first: bool = False


def parse_order(order_by: Any, names: Sequence[str] = ()) -> list[SortKey]:
    """'ts desc, plate' or ['ts desc', 'plate']. Nulls come last, but in 'plate nulls first'. A name with blanks or commas stands in
    quotes, as in '"a b" desc'; in a list, a whole name of `names` needs none."""
    if not isinstance(order_by, (str, list, tuple)):
        raise QueryError(_like(order_by))
    terms = _TERMS.findall(order_by) if isinstance(order_by, str) else list(order_by)
    if isinstance(order_by, str) and (not terms or ",".join(terms) != order_by):
        raise QueryError(_like(order_by))
    return [_key(term, names, order_by) for term in terms]


def _key(term: Any, names: Sequence[str], order_by: Any) -> SortKey:
    if isinstance(term, str) and term in names:
        return SortKey(term, False)
    found = _TERM.fullmatch(term) if isinstance(term, str) else None
    if found is None:
        raise QueryError(_like(order_by))
    column = found[1].replace('""', '"') if found[1] else found[2]
    if not found[1] and column not in names and re.search(r'[\s"]', column):
        raise QueryError(_like(order_by))
    return SortKey(column, (found[3] or "").lower() == "desc", (found[4] or "").lower() == "first")


def _like(order_by: Any) -> str:
    return f"order_by is like 'ts desc, plate', and names with blanks or commas stand in quotes, like '\"a b\" desc'; not {order_by!r}"


def sort(table: pa.Table, keys: list[SortKey]) -> pa.Table:
    """Sorted, stable. NaN is greater than every number. Types that Arrow cannot sort are a QueryError."""
    if not table.num_rows:
        return table  # `take` refuses some types, even to take nothing of them
    if _is_sorted(table, keys[0]):
        return table
    order = in_order(table, keys)
    parts = table.combine_chunks().to_batches()
    if len(parts) == 1:
        return pa.Table.from_batches([take_rows(parts[0], order)], table.schema)
    return table.take(numbers_of(order))


def _is_sorted(table: pa.Table, key: SortKey) -> bool:
    """Whether the first key alone says that the rows are in order, as those of groups by time mostly are."""
    column = table.column(key.column)
    if column.num_chunks != 1 or column.null_count or not (pa.types.is_timestamp(column.type) or pa.types.is_int64(column.type)):
        return False
    numbers = fixed(column.chunk(0), np.int64)
    before, behind = numbers[:-1], numbers[1:]
    return bool((before > behind).all() if key.descending else (before < behind).all())


def in_order(table: pa.Table, keys: list[SortKey]) -> npt.NDArray[np.uint64]:
    """The numbers of its rows, in order. Rows that are alike stay as they are."""
    try:
        columns = {key.column: _with_nan(sortable(table.column(key.column))) for key in keys}
        by = pa.Table.from_arrays([*columns.values()], [*columns])
        return fixed(pc.sort_indices(by, [_arrow(key) for key in keys]), np.uint64)
    except (pa.ArrowException, TypeError) as e:
        raise QueryError(f"order_by: {e}") from None


def _arrow(key: SortKey) -> tuple[str, str, str]:
    return key.column, "descending" if key.descending else "ascending", "at_start" if key.nulls_first else "at_end"


def sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a type that Arrow can sort, in the same order."""
    type_, t = column.type, pa.types
    if t.is_dictionary(type_):
        return sortable(column.cast(type_.value_type))
    if t.is_float16(type_):
        return column.cast(pa.float32())
    if t.is_decimal32(type_) or t.is_decimal64(type_):
        return column.cast(pa.decimal128(type_.precision, type_.scale))
    return column.cast(without_views(type_))


def _with_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with NaN as whole numbers in the order of DuckDB; all else as it is. Arrow has NaN beside the nulls."""
    if not pa.types.is_floating(column.type) or not pc.any(pc.is_nan(column)).as_py():
        return column
    numbers = column.cast(pa.float64()).combine_chunks()
    bits = (numbers.fill_null(0.0).to_numpy() + 0.0).view(np.int64)
    codes = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    nan = pc.is_nan(numbers).fill_null(False).to_numpy(zero_copy_only=False)
    codes[nan] = np.iinfo(np.int64).max
    return pa.chunked_array([pa.array(codes, mask=numbers.is_null().to_numpy(zero_copy_only=False))])


def top(batches: Iterable[pa.RecordBatch], schema: pa.Schema, keys: list[SortKey], limit: int | None, watch: Watch) -> pa.Table:
    """All rows in order, or the first `limit` of them while holding only a few times as many."""
    held: list[pa.RecordBatch] = []
    rows = 0
    most = float("inf") if limit is None else 4 * limit + 65536
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows > most:
            best = _sorted(pa.Table.from_batches(held, schema), keys, limit, watch)
            held, rows = best.combine_chunks().to_batches(), best.num_rows
    return _sorted(pa.Table.from_batches(held, schema), keys, limit, watch)


def _sorted(table: pa.Table, keys: list[SortKey], limit: int | None, watch: Watch) -> pa.Table:
    size = table.nbytes
    watch.take(2 * size)  # joined, then in order
    rows = watch.apart(lambda: _first(table, keys, limit)) if table.num_rows > _MANY else _first(table, keys, limit)
    watch.held = int(rows.nbytes)
    return rows


def _first(table: pa.Table, keys: list[SortKey], limit: int | None) -> pa.Table:
    if limit is None:
        return sort(table, keys)
    if table.num_rows > _TOLD_APART + 2 * limit:
        places = foremost(lambda name: table.column(name).combine_chunks(), table.num_rows, keys, limit)
        table = table if places is None else table.take(numbers_of(places))
    return sort(table, keys).slice(0, limit)


def behind(batches: Iterable[pa.RecordBatch], offset: int) -> Iterator[pa.RecordBatch]:
    """Without the first `offset` rows."""
    for batch in batches:
        if offset >= batch.num_rows:
            offset -= batch.num_rows
        else:
            yield batch.slice(offset) if offset else batch
            offset = 0


def first(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Stop as soon as there are `limit` rows."""
    if limit is None:
        yield from batches
        return
    left = limit
    for batch in batches:
        if left <= 0:
            return
        yield batch if batch.num_rows <= left else batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return
