"""A query and what an answer says about itself, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Bounds = tuple[Any, Any]
Predicate = str | Callable[[Any], Any]


@dataclass(slots=True)
class Query:
    """What was asked; nobody changes it. Intervals are closed on both ends; None is open."""

    key: Bounds | None = None
    box: Sequence[Any] | None = None
    time: Bounds | None = None
    where: Predicate | None = None
    columns: Sequence[str] | None = None
    order_by: str | Sequence[str] | None = None
    limit: int | None = None
    aggregate: Mapping[str, str] | None = None
    group_by: Sequence[str] | None = None
    timeout: float | None = None


@dataclass(slots=True)
class Stats:
    """What a query cost. Complete once the result was read."""

    regions_considered: int = 0
    regions_read: int = 0
    leaves_read: int = 0
    leaves_skipped: int = 0
    rows_scanned: int = 0
    """Rows whose key or time had to be looked at."""
    rows_returned: int = 0
    bytes: int = 0
    milliseconds: float = 0.0


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
