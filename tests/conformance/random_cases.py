"""Files of cases that are made at random, from a seed: expressions, aggregates, ranges of keys, and joins of many tables."""

from __future__ import annotations

import random
from collections.abc import Callable

EACH = 60
NUMBERS = ("a", "b", "c", "d", "e")


def files() -> dict[str, str]:
    """Each file's text, by its name; types and answers are filled in by `make.py`."""
    made = {}
    for seed, (name, (about, one)) in enumerate(_KINDS.items()):
        rng = random.Random(seed)
        records = [f"# {about}; made by random_cases.py", "hash-threshold 24"]
        records += [f"query ? rowsort\n{one(rng)}\n----" for _ in range(EACH)]
        made[f"{name}.test"] = "\n\n".join(records) + "\n"
    return made


def _number(rng: random.Random, depth: int = 2) -> str:
    """An expression over the numbers of t1 that never overflows and never divides by 0."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*NUMBERS, str(rng.randrange(-9, 100)), "NULL" if rng.random() < 0.2 else "7"])
    x, y, z = (_number(rng, depth - 1) for _ in range(3))
    return rng.choice([
        f"({x} + {y})", f"({x} - {y})", f"-({x})", f"abs({x})", f"coalesce({x}, {y})", f"nullif({x}, {y})",
        f"({x} * {rng.randrange(-3, 4)})", f"({x} % {rng.randrange(2, 9)})", f"({x} // nullif({y}, 0))",
        f"CASE WHEN {_truth(rng, depth - 1)} THEN {x} ELSE {y} END", f"CASE {x} WHEN {y} THEN {z} END",
        f"greatest({x}, {y})", f"least({x}, {z})", f"CAST({x} AS BIGINT)",
    ])  # fmt: skip


def _truth(rng: random.Random, depth: int = 2) -> str:
    if depth and rng.random() < 0.4:
        joined = f" {rng.choice(['AND', 'OR'])} ".join(_truth(rng, depth - 1) for _ in range(2))
        return f"NOT ({joined})" if rng.random() < 0.3 else f"({joined})"
    x, y, z = (_number(rng, min(depth, 1)) for _ in range(3))
    column, low = rng.choice(NUMBERS), rng.randrange(-20, 80)
    listed = ", ".join(str(rng.randrange(0, 100)) for _ in range(rng.randrange(1, 6)))
    return rng.choice([
        f"{x} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {y}", f"{x} IS {rng.choice(['', 'NOT '])}NULL",
        f"{x} {rng.choice(['', 'NOT '])}BETWEEN {y} AND {z}", f"{column} BETWEEN {low} AND {low + rng.randrange(40)}",
        f"{column} {rng.choice(['', 'NOT '])}IN ({listed})", f"{column} < {low}", f"{low} <= {column}",
    ])  # fmt: skip


def _expression(rng: random.Random) -> str:
    what = ", ".join(_number(rng) for _ in range(rng.randrange(1, 4)))
    return f"SELECT {rng.choice(['', 'DISTINCT '])}{what} FROM t1 WHERE {_truth(rng)}"


def _aggregate(rng: random.Random) -> str:
    what = []
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice(["sum", "min", "max", "avg", "count", "sum(DISTINCT", "count(DISTINCT", "count(*)"])
        made = name if name == "count(*)" else f"{name}{' ' if '(' in name else '('}{_number(rng, 1)})"
        what.append(made + (f" FILTER (WHERE {_truth(rng, 0)})" if rng.random() < 0.2 else ""))
    text = f"FROM t1 WHERE {_truth(rng)}" if rng.random() < 0.7 else "FROM t1"
    if rng.random() < 0.3:
        return f"SELECT {', '.join(what)} {text}"
    group = rng.choice(["d", "b", "a % 7", "f", "coalesce(d, b)", "c // 20"])
    having = f" HAVING {rng.choice(['count(*) > 2', 'min(a) < 40', 'sum(c) > 500', 'max(b) IS NOT NULL'])}" if rng.random() < 0.4 else ""
    return f"SELECT {group}, {', '.join(what)} {text} GROUP BY {group}{having}"


def _range(rng: random.Random) -> str:
    """Of the table with many types: about its key, its time and other columns."""
    low, days = rng.randrange(-5, 60), rng.randrange(1, 12)
    parts = [
        f"id BETWEEN {low} AND {low + rng.randrange(20)}", f"id {rng.choice(['<', '<=', '>', '>=', '=', '<>'])} {low}",
        f"id IN ({', '.join(str(rng.randrange(65)) for _ in range(rng.randrange(1, 9)))})",
        f"ts >= TIMESTAMP '2026-01-{days:02} {rng.randrange(24):02}:00:00'", f"ts < '2026-01-{days:02} {rng.randrange(24):02}:30:01'",
        f"ts::DATE = '2026-01-{days:02}'", f"hour(ts) < {rng.randrange(1, 24)}", f"fare > {rng.randrange(-300, 4000) / 100}",
        f"speed <= {rng.randrange(-100, 300) / 8}", f"kind = '{rng.choice(['bus', 'car', 'taxi'])}'", "note IS NULL", "note >= 'b'",
        f"day < DATE '2026-01-{days + 10:02}'", "ok", "NOT ok", f"tiny > {rng.randrange(-130, 130)}",
        f"seen < TIMESTAMPTZ '2026-01-{days:02} 00:00:00+00'",
    ]  # fmt: skip
    chosen = rng.sample(parts, rng.randrange(1, 5))
    condition = chosen[0]
    for part in chosen[1:]:
        condition = f"({condition}) {rng.choice(['AND', 'AND', 'OR', 'AND NOT'])} ({part})"
    order = rng.choice(["", f" ORDER BY id {rng.choice(['', 'DESC '])}, ts LIMIT {rng.randrange(1, 40)}"])
    return (
        f"SELECT {rng.choice(['id, ts', 'id, ts, note, fare', 'ts, id, kind, day', 'id, ts, speed'])} FROM rides WHERE {condition}{order}"
    )


def _joined(rng: random.Random) -> str:
    """A chain or a star of three to eight tables."""
    tables = rng.sample(range(1, 9), rng.randrange(3, 9))
    conditions = []
    for number, table in enumerate(tables[1:]):
        other = tables[number] if rng.random() < 0.7 else tables[0]
        conditions.append(rng.choice([f"a{table} = b{other}", f"b{table} = a{other}", f"a{other} = a{table}"]))
    one = rng.choice(tables)
    conditions.append(rng.choice([
        f"a{one} = {rng.randrange(10)}", f"b{one} < {rng.randrange(3, 10)}", f"a{one} IN ({rng.randrange(5)}, {rng.randrange(5, 10)})",
        f"x{one} LIKE 'j%{rng.randrange(10)}'", f"ts{one} > TIMESTAMP '2026-01-01 0{rng.randrange(8)}:00:00'",
        f"(a{one} = {rng.randrange(10)} OR b{one} = {rng.randrange(10)})",
    ]))  # fmt: skip
    rng.shuffle(conditions)
    what = ", ".join(f"x{table}" for table in rng.sample(tables, rng.randrange(1, len(tables) + 1)))
    return f"SELECT {what} FROM {', '.join(f'j{table}' for table in tables)} WHERE {' AND '.join(conditions)}"


_KINDS: dict[str, tuple[str, Callable[[random.Random], str]]] = {
    "random_expressions": ("Expressions and conditions over whole numbers with nulls", _expression),
    "random_aggregates": ("Aggregates of expressions, with groups and without", _aggregate),
    "random_ranges": ("Ranges of keys and times, lists, orders", _range),
    "random_joins": ("Joins of three to eight tables", _joined),
}
