"""Order and limit: 'ts desc, plate' over batches, keeping no more rows than the answer needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.errors import QueryError
from tidewheel.model.arrays import take_rows, without_views
from tidewheel.read.limits import Watch

_MANY = 1 << 17
"""Rows from which on sorting takes long enough to be watched."""

_TERM = re.compile(r"""\s*(?:"((?:[^"]|"")+)"|([^\s",]+))(?:\s+(asc|desc))?\s*""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SortKey:
    column: str
    descending: bool


def parse_order(order_by: Any) -> list[SortKey]:
    """'ts desc, plate' or ['ts desc', 'plate']. Nulls come last."""
    if order_by is None:
        return []
    if not isinstance(order_by, (str, list, tuple)):
        raise QueryError(f"order_by is like 'ts desc, plate', not {order_by!r}")
    terms = order_by.split(",") if isinstance(order_by, str) else list(order_by)
    keys = []
    for term in terms:
        match = _TERM.fullmatch(term) if isinstance(term, str) else None
        if match is None:
            raise QueryError(f"order_by is like 'ts desc, plate', not {order_by!r}")
        keys.append(SortKey(match[1].replace('""', '"') if match[1] else match[2], (match[3] or "").lower() == "desc"))
    return keys


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
    """The same order in a type that Arrow can sort."""
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
