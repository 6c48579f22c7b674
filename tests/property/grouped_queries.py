"""table.query with aggregates and groups, made at random like the statements, each with the statement that means the same."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.property.grouped_plain import maker_of
from tests.property.grouped_statements import Maker, Statement
from tests.property.grouped_tables import PER_SECOND, TABLES, Kept, said

SORTED = ("whole", "text", "bool", "date", "moment", "decimal")
"""Kinds that Arrow puts in the order of DuckDB: NaN is at the end in either direction."""


@dataclass(frozen=True)
class Question:
    table: str
    asked: dict[str, Any]
    statement: Statement

    def __str__(self) -> str:
        return f"{self.table}.query({', '.join(f'{name}={value!r}' for name, value in self.asked.items())})\n = {self.statement}"


def question(shape: int, constants: int, tables: Sequence[Kept] = TABLES) -> Question:
    rng = random.Random(shape)
    maker = maker_of(rng, random.Random(constants), tables, parameters=False)
    kept = maker.kept
    limited = maker.chance(0.35)
    maker.exactly = limited
    asked, conditions = bounds(maker)
    if maker.chance(0.6):
        asked["where"] = maker.condition()
        conditions.append(f"({asked['where']})")
    texts = list(dict.fromkeys(maker.group() for _ in range(rng.choice([0, 1, 1, 2]))))
    plain = {one.name: one for one in kept.columns}
    groups = [text if text in plain else f"{text} AS g{i}" for i, text in enumerate(texts)]
    aggregates = [maker.aggregate() for _ in range(rng.choice([0 if groups else 1, 1, 2, 3]))]
    if aggregates:
        asked["aggregate"] = {f"a{i}": item.text for i, item in enumerate(aggregates)}
    if groups:
        asked["group_by"] = groups
    items = [*groups, *(f"{item.text} AS a{i}" for i, item in enumerate(aggregates))]
    text = f"SELECT {', '.join(items)} FROM {kept.name}" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")
    if texts:
        text += f" GROUP BY {', '.join(texts)}"
    loose = {len(groups) + i: item.size for i, item in enumerate(aggregates) if item.loose == 1}
    looser = frozenset(len(groups) + i for i, item in enumerate(aggregates) if item.loose == 2)
    order = [i for i, one in enumerate(texts) if one in plain and plain[one].kind in SORTED] if maker.chance(0.6) else []
    how = [rng.choice(["", " desc"]) for _ in order]
    if order:
        asked["order_by"] = ", ".join(texts[i] + down for i, down in zip(order, how, strict=True))
        text += " ORDER BY " + ", ".join(f"{texts[i]}{down} NULLS LAST" for i, down in zip(order, how, strict=True))
    total = bool(order) and len(order) == len(texts)
    whole, limit, offset = None, None, 0
    if limited:
        limit, offset = maker.constants.choice([0, 1, 5, 30, 10_000]), maker.constants.choice([0, 2]) if maker.chance(0.3) else 0
        asked |= {"limit": limit, "offset": offset}
        whole = None if total else text
        text += f" LIMIT {limit} OFFSET {offset}"
    by = tuple(order) if order else None
    return Question(kept.name, asked, Statement(text, None, whole, by, total, limit, offset, loose, looser))


def bounds(maker: Maker) -> tuple[dict[str, Any], list[str]]:
    """`key=` and `time=`, and the conditions that are the same."""
    kept, constants = maker.kept, maker.constants
    asked: dict[str, Any] = {}
    conditions: list[str] = []
    key, time = kept.keys[0], kept.time
    if len(kept.keys) == 1 and kept.ordered and maker.chance(0.4):
        listed = maker.chance(0.3)
        values = [constants.choice(key.values) for _ in range(3 if listed else 2)]
        asked["key"] = values if listed else tuple(values)
        texts = [said(value, key, constants) for value in values]
        if key.kind == "float":
            texts = [f"'{value}'::DOUBLE" for value in values]
        conditions.append(f"{key.name} IN ({', '.join(texts)})" if listed else f"{key.name} BETWEEN {texts[0]} AND {texts[1]}")
    if maker.chance(0.4):
        values = [constants.choice(time.values) for _ in range(2)]
        lo, hi = values if maker.chance(0.2) else sorted(values)
        asked["time"] = (moment_of(lo, kept), moment_of(hi, kept))
        conditions.append(f"ts BETWEEN {literal_of(lo, kept)} AND {literal_of(hi, kept)}")
    return asked, conditions


def moment_of(value: int, kept: Kept) -> Any:
    if kept.epoch:
        return value
    if kept.time.kind == "date":
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=value // PER_SECOND[kept.time.type.unit])


def literal_of(value: int, kept: Kept) -> str:
    if kept.epoch:
        return str(value)
    if kept.time.kind == "date":
        return f"DATE '{moment_of(value, kept)}'"
    return f"TIMESTAMPTZ '{moment_of(value, kept)}+00'" if kept.time.kind == "zoned" else f"TIMESTAMP '{moment_of(value, kept)}'"
