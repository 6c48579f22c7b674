"""Order and limit: 'ts desc, plate' over batches, keeping no more rows than the answer needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.errors import QueryError
from tidewheel.model.arrays import take_rows, without_views
from tidewheel.read.limits import Watch

_MANY = 1 << 17
"""Rows from which on sorting takes long enough to be watched."""

_TERM = re.compile(r"""\s*(?:"((?:[^"]|"")+)"|(.*?\S))(?:\s+(asc|desc))?\s*""", re.IGNORECASE)
_TERMS = re.compile(r"""(?:"(?:[^"]|"")*"|[^",])+""")
"""Terms between commas; within quotes, a comma is part of a name."""


@dataclass(frozen=True, slots=True)
class SortKey:
    column: str
    descending: bool


def parse_order(order_by: Any, names: Sequence[str] = ()) -> list[SortKey]:
    """'ts desc, plate' or ['ts desc', 'plate']. Nulls come last. A name with blanks or commas stands in quotes, as in '"a b" desc'; in a
    list, a whole name of `names` needs none."""
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
    return SortKey(column, (found[3] or "").lower() == "desc")


def _like(order_by: Any) -> str:
    return f"order_by is like 'ts desc, plate', and names with blanks or commas stand in quotes, like '\"a b\" desc'; not {order_by!r}"


def sort(table: pa.Table, keys: list[SortKey]) -> pa.Table:
    """Sorted, stable, nulls last. Types that Arrow cannot sort are a QueryError."""
    if not table.num_rows:
        return table  # `take` refuses some types, even to take nothing of them
    try:
        by = pa.table({key.column: _sortable(table.column(key.column)) for key in keys})
        order = pc.sort_indices(by, [(k.column, "descending" if k.descending else "ascending", "at_end") for k in keys])
    except (pa.ArrowException, TypeError) as e:
        raise QueryError(f"order_by: {e}") from None
    parts = table.combine_chunks().to_batches()
    if len(parts) == 1:
        return pa.Table.from_batches([take_rows(parts[0], order.to_numpy())], table.schema)
    return table.take(order)


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a type that Arrow can sort, in the same order."""
    type_, t = column.type, pa.types
    if t.is_dictionary(type_):
        return _sortable(column.cast(type_.value_type))
    if t.is_float16(type_):
        return column.cast(pa.float32())
    if t.is_decimal32(type_) or t.is_decimal64(type_):
        return column.cast(pa.decimal128(type_.precision, type_.scale))
    return column.cast(without_views(type_))


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
    rows = watch.apart(lambda: sort(table, keys)) if table.num_rows > _MANY else sort(table, keys)
    best = rows if limit is None else rows.slice(0, limit)
    watch.held = int(best.nbytes)
    return best


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
