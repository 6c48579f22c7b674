"""A query and what an answer says about itself, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tidewheel.errors import QueryError
from tidewheel.model.conditions import Condition
from tidewheel.model.dataclass import dataclass

Bounds = tuple[Any, Any]
Predicate = str | Callable[[Any], Any]


def pair(bounds: Any, role: str) -> tuple[Any, Any]:
    """(lo, hi) of an interval; a single value is an interval of one. A list is none: it would be one of values."""
    if bounds is None:
        return None, None
    if isinstance(bounds, (tuple, list)):
        if isinstance(bounds, list) and len(bounds) == 2:
            raise QueryError(f"{role} is an interval, and that is a tuple: write ({bounds[0]!r}, {bounds[1]!r}), not the list {bounds!r}")
        if len(bounds) != 2:
            raise QueryError(f"{role} is an interval (lo, hi), closed on both ends, None for open; not {bounds!r}")
        return bounds[0], bounds[1]
    return bounds, bounds


def listed(values: Any) -> list[Any] | None:
    """The values of a list, whatever holds them: a set, a range, an array, a column of a frame. None of what is a single value, an
    interval or nothing."""
    if isinstance(values, (list, set, frozenset, range)):
        return list(values)
    if isinstance(values, (str, bytes, tuple)) or not hasattr(values, "__len__") or not hasattr(values, "__iter__"):
        return None
    given = getattr(values, "to_pylist", None) or getattr(values, "tolist", None) or getattr(values, "to_list", None)
    found = given() if callable(given) else None
    return found if isinstance(found, list) else None


def plain_key(key: Any) -> Any:
    """A key, or a list of them, as it is sent to the owner: lists are lists, and addresses texts."""
    keys = listed(key)
    if keys is not None:
        return [str(one) if _is_address(one) else one for one in keys]
    return str(key) if _is_address(key) else key


def _is_address(value: Any) -> bool:
    return type(value).__module__ == "ipaddress"


@dataclass(slots=True)
class Query:
    """What was asked; nobody changes it. Intervals are closed on both ends; None is open."""

    key: Any = None
    """An interval, a single value, or a list of values."""
    box: Sequence[Any] | None = None
    time: Bounds | None = None
    where: Predicate | None = None
    columns: Sequence[str] | None = None
    order_by: str | Sequence[str] | None = None
    limit: int | None = None
    aggregate: Mapping[str, str] | None = None
    group_by: Sequence[str] | None = None
    timeout: float | None = None
    max_rows: float | None = None
    max_bytes: float | None = None
    on_corrupt: str = "error"
    after: int | None = None
    """Only rows that came with a later generation."""
    upto: int | None = None
    """The table as it was at this generation: without rows that came later, with rows that were replaced later."""
    condition: Condition | None = None
    """Rows must satisfy it, besides all else. It decides; whoever makes it also gives the bounds of key and time that follow from it."""
    hidden: bool = False
    """All columns, the hidden ones too, instead of `columns`: what refreshes ask, and nobody else can."""
    offset: int = 0
    """Rows that are left out at the beginning of what `limit` counts."""
    latest: bool = False
    """Of the rows of each key only the last one."""
    aged: bool = False
    """Rows come in the order in which they were inserted, as far as one key and one time are concerned."""


@dataclass(slots=True)
class Stats:
    """What a query cost. Complete once the result was read."""

    regions_considered: int = 0
    regions_read: int = 0
    leaves_read: int = 0
    leaves_skipped: int = 0
    rows_scanned: int = 0
    """Rows that were read, or whose key or time had to be looked at to find them. Until a result is read, the latter alone."""
    rows_returned: int = 0
    bytes: int = 0
    milliseconds: float = 0.0
    corrupt_chunks: int = 0
    """With on_corrupt="skip": chunks that were left out whole."""
    corrupt_blocks: int = 0
    """Damaged blocks of other chunks; the rows of every leaf they touch were left out."""
    rows_left_out: int = 0
    """The most rows that the answer can lack: those that were left out, whether they matched or not."""
    corrupt_files: tuple[str, ...] = ()
    """The damaged files, relative to the warehouse."""


@dataclass(frozen=True, slots=True)
class Subquery:
    """What a query asks of one region: its key interval, and the time that both have in common."""

    place: str
    """`chunk`, `sealed tree` or `live tree`."""
    name: str
    key: tuple[int, int]
    time: tuple[int, int]
    rows: int
    segments: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a query is answered: one subquery per region that is read."""

    table: str
    generation: int
    key_intervals: tuple[tuple[int, int], ...]
    time: tuple[int, int]
    subqueries: tuple[Subquery, ...] = field(default=())
    stats: Stats = field(default_factory=Stats)
