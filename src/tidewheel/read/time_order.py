"""The first or the last rows in the order of time, or of a whole number or a text that is the key, from that end of the index: only as
much of the time, or of the keys, is read as has them.

Tried is the part that would have them if rows came evenly, then a part at least eight times as wide, and so on: what is looked
at in vain is little beside what is read at last. Where all rows within the bounds are wanted, a look counts them without reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.index.version import Version
from tidewheel.model.pieces import KMAX, KMIN, ROWS, TMAX, TMIN
from tidewheel.model.query import Query, pair
from tidewheel.model.schema import ColumnKey
from tidewheel.read.local_result import LocalResult
from tidewheel.read.ordering import SortKey
from tidewheel.read.planner import Planner, check_limit, check_offset, sort_keys

MOST = 10_000
"""Rows of an answer that are looked for from an end."""

WORTH = 5_000
"""Rows of a table that are worth a look."""

_STEP = 8


def from_an_end(planner: Planner, version: Version, query: Query) -> Query:
    """A query of less time, or fewer keys, with the same first rows; the query itself if it has no such order and limit, or the rows are
    too many."""
    order = _order(planner, query)
    if order is None:
        return query
    wanted = (check_limit(query.limit) or 0) + check_offset(query.offset)
    rows = int(_regions(version)[:, 0].sum())
    if 0 < wanted <= MOST and rows >= WORTH and _is_text(planner, order.column):
        return _of_fewer_texts(planner, version, query, order, wanted, rows)
    by_time = order.column == planner.spec.time.column
    ends = ends_of_time(version) if by_time else _ends_of_keys(version, planner)
    if not 0 < wanted <= MOST or rows < WORTH or ends is None:
        return query
    if by_time:
        first, last = planner.spec.time.interval(*pair(query.time, "time"))
    else:
        lo, hi = pair(query.key, "key")
        first, last = ends[0] if lo is None else int(lo), ends[1] if hi is None else int(hi)
    first, last = max(first, ends[0]), min(last, ends[1])
    looks = replace(query, columns=[planner.spec.time.column], order_by=None, limit=wanted, offset=0, max_rows=math.inf)
    if query.key is not None or query.box is not None:
        rows = LocalResult(planner, version, replace(looks, limit=None)).found.rows
        if rows < WORTH:  # as of one key: to look for its end takes longer than to read them all
            return query

    def within(asked: Query, width: int) -> Query:
        part = (last - width, last) if order.descending else (first, first + width)
        return replace(asked, time=part) if by_time else replace(asked, key=part)

    width = wide_enough(last - first, wanted, rows, lambda width: len(LocalResult(planner, version, within(looks, width))))
    return query if width is None else within(query, width)


def _of_fewer_texts(planner: Planner, version: Version, query: Query, order: SortKey, wanted: int, rows: int) -> Query:
    """The same of keys that are texts: tried are keys that stand where shares of some rows end."""
    shares = [share for n in range(1, 5) if (share := 2 * wanted / rows * _STEP**n) < 1 / _STEP]
    keys = LocalResult(planner, version, Query(columns=[order.column], time=query.time))
    if not shares or keys.found.rows < WORTH:
        return query
    ends = keys.sampled([1 - share for share in shares] if order.descending else shares).column(0).to_pylist()
    looks = replace(query, columns=[planner.spec.time.column], order_by=None, limit=wanted, offset=0, max_rows=math.inf)
    for end in reversed(ends) if order.descending else ends:
        part = (end, None) if order.descending else (None, end)
        if len(LocalResult(planner, version, replace(looks, key=part))) >= wanted:
            return replace(query, key=part)
    return query


def _is_text(planner: Planner, column: str) -> bool:
    type_ = planner.spec.schema.field(column).type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _ends_of_keys(version: Version, planner: Planner) -> tuple[int, int] | None:
    """Numbers between which all keys are; None if there are no rows."""
    regions = [version.chunks.matrix[: version.chunks.count], *(tree.matrix[: tree.count] for tree in version.trees)]
    keys = np.concatenate([region[:, (KMIN, KMAX)] for region in regions])
    base = 1 << 63 if pa.types.is_uint64(planner.spec.schema.field(planner.spec.key.columns[0]).type) else 0
    return (int(keys[:, 0].min()) + base, int(keys[:, 1].max()) + base) if len(keys) else None


def ends_of_time(version: Version) -> tuple[int, int] | None:
    """Codes between which all times are, those of replaced rows too; None if there are no rows."""
    regions = _regions(version)
    return (int(regions[:, 1].min()), int(regions[:, 2].max())) if len(regions) else None


def _regions(version: Version) -> npt.NDArray[np.int64]:
    """Rows, least and greatest time of every chunk and run."""
    pieces = [version.chunks.matrix[: version.chunks.count], *(tree.matrix[: tree.count] for tree in version.trees)]
    return np.concatenate([piece[:, (ROWS, TMIN, TMAX)] for piece in pieces])


def wide_enough(span: int, wanted: int, rows: int, count: Callable[[int], int | None]) -> int | None:
    """A part of a span of time, at its end, that has so many rows of all; None if that is most of it. `count`: the rows in such a part."""
    width = max(1, span * wanted // rows)
    while width < span // _STEP:
        found = count(width)
        if found is None or found >= wanted:
            return width if found is not None else None
        width = int(width * max(_STEP, 2 * wanted / found if found else 0))
    return None


def _order(planner: Planner, query: Query) -> SortKey | None:
    """What rows are ordered by, if that is the time or a key; None if all of them are wanted."""
    if query.limit is None or query.order_by is None or query.latest or query.aggregate is not None or query.group_by is not None:
        return None
    if query.on_corrupt != "error" or callable(query.where):
        return None
    if query.columns is not None and not planner.are_columns(query.columns):
        return None  # an expression may have the name of the time column
    order, spec = sort_keys(planner, query.order_by, planner.names)[0], planner.spec
    if order.column == spec.time.column:
        return order
    if not isinstance(spec.key, ColumnKey) or order.column != spec.key.column or isinstance(query.key, list) or query.box is not None:
        return None
    if _is_text(planner, order.column):
        return order if query.key is None else None
    whole = pa.types.is_integer(spec.schema.field(order.column).type)
    return order if whole and all(one is None or type(one) is int for one in pair(query.key, "key")) else None
