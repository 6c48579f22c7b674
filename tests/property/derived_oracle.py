"""Derived tables of the machine in `test_derived.py`: random definitions over one schema, and a slow computer of their rows.

All tables have the columns (ts, k, v), so any of them can be a source of any other. The oracle shares no code with the engine: rows are
tuples, a definition is a Python function over lists of all rows of its sources.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidewheel.derive.bounds import EVERYTHING, Bounds, declared
from tidewheel.model.derived import APPEND, KEYS, MERGE, RECOMPUTE, Mode

Row = tuple[int, int, int]
"""Time in microseconds, key, value."""

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())])
MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

ANEW = Mode(RECOMPUTE, "")
ADDED = Mode(APPEND, "")
BY_KEY = Mode(KEYS, "", column="k", source_column="k")


def merged(how: str) -> Mode:
    return Mode(MERGE, "", groups=("ts", "k"), combine=(("v", how),))


@dataclass(frozen=True)
class Recipe:
    """One derived table: its SQL, its bounds, the modes that are right for it, and its rows by hand."""

    name: str
    sources: tuple[str, ...]
    sql: str
    bounds: tuple[Bounds, ...]
    modes: tuple[Mode, ...]
    rows: Callable[..., list[Row]]
    partition: str


def recipe(rng: random.Random, name: str, known: Sequence[str]) -> Recipe:
    """A random definition over tables that are known."""
    a = rng.choice(known)
    b = rng.choice([one for one in known if one != a] or [a])
    partition = rng.choice(["1 hour", "3 hours", "1 day", "1 month"])
    same, hour, day = Bounds(), declared("0", every="1 hour"), declared("0", every="1 day")
    alone = ["project", "hourly", "hourly", "daily", "top", "spread", "spread", "shift"]
    match rng.choice(alone if len(known) < 4 else [*alone, "band", "band", "union", "lookup"]):
        case "project":
            sql = f"SELECT ts, k, v * 2 AS v FROM {a} WHERE v % 3 <> 0"
            return Recipe(name, (a,), sql, (same,), (ADDED, BY_KEY, ANEW), lambda s: [(t, k, 2 * v) for t, k, v in s if v % 3], partition)
        case "shift":
            sql = f"SELECT ts + INTERVAL 90 MINUTE AS ts, k, v FROM {a}"
            moved = Bounds(bl=90 * MINUTE * 1000, bh=90 * MINUTE * 1000)
            return Recipe(name, (a,), sql, (moved,), (ADDED, ANEW), lambda s: [(t + 90 * MINUTE, k, v) for t, k, v in s], partition)
        case "hourly":
            sql = f"SELECT date_trunc('hour', ts) AS ts, k, CAST(sum(v) AS BIGINT) AS v FROM {a} GROUP BY 1, 2"
            return Recipe(name, (a,), sql, (hour,), (merged("sum"), BY_KEY, ANEW), lambda s: grouped(s, HOUR, sum), partition)
        case "daily":
            sql = f"SELECT date_trunc('day', ts) AS ts, k, count(*) AS v FROM {a} GROUP BY 1, 2"
            return Recipe(name, (a,), sql, (day,), (merged("sum"), ANEW), lambda s: grouped(s, DAY, len), partition)
        case "top":
            sql = f"SELECT date_trunc('hour', ts) AS ts, k, max(v) AS v FROM {a} GROUP BY 1, 2"
            return Recipe(name, (a,), sql, (hour,), (merged("max"), ANEW), lambda s: grouped(s, HOUR, max), partition)
        case "spread":
            sql = f"SELECT date_trunc('hour', ts) AS ts, k, max(v) - min(v) AS v FROM {a} GROUP BY 1, 2"
            return Recipe(name, (a,), sql, (hour,), (BY_KEY, ANEW), lambda s: grouped(s, HOUR, lambda v: max(v) - min(v)), partition)
        case "union":
            sql = f"SELECT ts, k, v FROM {a} UNION ALL SELECT ts, k, -v AS v FROM {b}"
            if a == b:
                return Recipe(name, (a,), sql, (same,), (ANEW,), lambda s: [*s, *((t, k, -v) for t, k, v in s)], partition)
            return Recipe(name, (a, b), sql, (same, same), (ANEW,), lambda s, r: [*s, *((t, k, -v) for t, k, v in r)], partition)
        case "lookup":
            if a == b:
                return recipe(rng, name, known)
            sql = f"SELECT ts, k, v + (SELECT count(*) FROM {b}) AS v FROM {a}"
            return Recipe(name, (a, b), sql, (same, EVERYTHING), (ANEW,), lambda s, r: [(t, k, v + len(r)) for t, k, v in s], partition)
        case _:
            if a == b:
                return recipe(rng, name, known)
            on = "x.k = y.k AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts + INTERVAL 10 MINUTE"
            sql = f"SELECT x.ts AS ts, x.k AS k, x.v + y.v AS v FROM {a} x JOIN {b} y ON {on}"
            return Recipe(name, (a, b), sql, (same, declared("1 hour", "10 minutes")), (ANEW,), banded, partition)


def grouped(rows: Sequence[Row], width: int, total: Callable[[list[int]], int]) -> list[Row]:
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for t, k, v in rows:
        found[t // width * width, k].append(v)
    return [(t, k, total(values)) for (t, k), values in found.items()]


def banded(left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    by_key: dict[int, list[Row]] = defaultdict(list)
    for row in right:
        by_key[row[1]].append(row)
    return [(t, k, v + w) for t, k, v in left for u, _, w in by_key[k] if t - HOUR <= u <= t + 10 * MINUTE]


class BaseOracle:
    """A base table: every row with the generations that it was there from and to."""

    def __init__(self) -> None:
        self._rows: list[tuple[Row, int, int]] = []

    def insert(self, rows: Sequence[Row], generation: int) -> None:
        self._rows += [(row, generation, 1 << 62) for row in rows]

    def replace(self, rows: Sequence[Row], lo: int, hi: int, generation: int) -> None:
        self._rows = [(r, born, generation if lo <= r[0] <= hi and died > generation else died) for r, born, died in self._rows]
        self.insert(rows, generation)

    def at(self, generation: int) -> list[Row]:
        return [row for row, born, died in self._rows if born <= generation < died]


def counted(rows: Sequence[Row]) -> Counter[Row]:
    return Counter(rows)


def table_of(rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def rows_of(table: pa.Table) -> list[Row]:
    columns = [table.column("ts").cast(pa.int64()).to_pylist(), table.column("k").to_pylist(), table.column("v").to_pylist()]
    return list(zip(*columns, strict=True))
