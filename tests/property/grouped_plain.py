"""The statements that are asked most: plain conditions, groups and aggregates of common types, few of them at once.

Among `Maker`'s statements such a one is rare: something odd is nearly always beside it, and then DuckDB answers the whole of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import ClassVar

from tests.property.grouped_statements import NUMBERS, SIGNS, UNITS, WIDTHS, Item, Maker, Statement, named
from tests.property.grouped_tables import TABLES, Column, Kept

PREFIXES = ("a%", "common%", "commonprefix/%", "ä%", "B%", "%", "10.0.1%", "")
PARTS = ("hour", "minute", "DAY", "dow", "month", "year")
RARE = ("binary", "time", "zoned", "decimal")


class Plain(Maker):
    GROUPS: ClassVar[Sequence[int]] = (0, 1, 1, 1, 1, 2, 2)
    AGGREGATES: ClassVar[Sequence[int]] = (1, 1, 2, 3)
    OVER: ClassVar[float] = 0.04

    def pick(self, *kinds: str, small: bool = False, exact: bool = False) -> Column:
        while True:
            column = super().pick(*kinds, small=small, exact=exact)
            if column.kind != "nested" and (column.kind not in RARE or kinds or self.chance(0.15)):
                return column

    def condition(self, depth: int = 0) -> str:
        if depth < 2 and self.chance(0.3):
            parts = [self.condition(depth + 1) for _ in range(2)]
            return "(" + self.shape.choice([" AND ", " AND ", " OR "]).join(parts) + ")"
        return f"NOT ({self.condition(depth + 1)})" if self.chance(0.1) else self.simple()

    def simple(self) -> str:
        rng, column = self.shape, self.any_column()
        if self.chance(0.03):
            return super().simple()
        name = named(column)
        key = column in self.kept.keys and not self.kept.ordered
        forms: list[Callable[[], str]] = [
            lambda: f"{name} = {self.constant(column)}",
            lambda: f"{name} IN ({', '.join(self.constant(column) for _ in range(rng.choice([1, 2, 4, 9])))})",
        ]
        if not key:
            forms += [
                lambda: f"{name} {rng.choice(SIGNS)} {self.constant(column)}",
                lambda: f"{name} {rng.choice(SIGNS)} {self.constant(column)}",
                lambda: f"{name} BETWEEN {self.interval(column)}",
            ]
        if self.chance(0.3):
            forms = [
                lambda: f"{name} IS {rng.choice(['', 'NOT '])}NULL",
                lambda: f"{name} NOT IN ({self.constant(column)}, {self.constant(column)})",
                lambda: f"{name} <> {self.constant(column)}",
                lambda: f"{self.constant(column)} {rng.choice(['=', '<>'] if key else SIGNS)} {name}",
            ]
        if column.kind == "text" and not key and self.chance(0.4):
            forms = [lambda: f"{name} {rng.choice(['', '', 'NOT '])}LIKE '{self.constants.choice(PREFIXES)}'"]
        if column.kind == "bool":
            forms = [lambda: name, lambda: f"NOT {name}", lambda: f"{name} = {self.constant(column)}", lambda: f"{name} IS NULL"]
        return rng.choice(forms)()

    def group(self) -> str:
        if self.chance(0.04):
            return super().group()
        return named(self.any_column()) if self.chance(0.5) else self.shape.choice([self.moments, self.moments, self.numbers])()

    def moments(self) -> str:
        rng = self.shape
        column = self.kept.time if self.chance(0.6) and self.kept.time.kind != "whole" else self.pick("moment", "date", "zoned")
        name, unit, part, width = column.name, *(self.constants.choice(some) for some in (UNITS, PARTS, WIDTHS))
        if column.kind == "date":
            unit, part = self.constants.choice(("week", "month", "YEAR", "quarter", "day")), self.constants.choice(("month", "dow", "year"))
        forms = [f"date_trunc('{unit}', {name})"] * 4 + [f"time_bucket(INTERVAL '{width}', {name})"] * 2
        forms += [
            f"extract({part} FROM {name})",
            f"{name}::DATE",
            f"CAST({name} AS DATE)",
            f"{rng.choice(['year', 'month', 'day'])}({name})",
        ]
        return rng.choice(forms)

    def numbers(self) -> str:
        column = self.pick("whole", "whole", "float", small=True)
        name, c = named(column), self.whole_number(2, 9)
        if column.kind == "float":
            return self.shape.choice(
                [f"floor({name})", f"floor({name} / {c})", f"{name} + {c}", f"{name}::INTEGER" if name == "q" else f"floor({name} * 2)"]
            )
        forms = [f"{name} % {c}", f"{name} // {c}", f"{name} + {c}", f"{name} * {c}", f"{name} - {c}", f"floor({name} / {c})"]
        return self.shape.choice([*forms, f"{name}::BIGINT", f"{name}::DOUBLE"])

    def aggregate(self) -> Item:
        if self.chance(0.03):
            return super().aggregate()
        while (
            item := self.shape.choice([self.counts, self.counts, self.sums, self.sums, self.ends, self.averages, self.others])()
        ).loose and self.exactly:
            pass
        return item

    def sums(self) -> Item:
        column = self.pick("whole", "whole", "float") if self.chance(0.9) else self.pick("decimal")
        while column.name == "fx":
            column = self.pick("whole", "float")
        name = named(column)
        forms = [f"sum({name})"] * 4 + ([f"sum({name})::BIGINT", f"sum({name})::DOUBLE"] if column.small and column.kind == "whole" else [])
        return Item(self.shape.choice(forms), int(not column.exact), 0.0 if column.exact else 2 * self.kept.rows * column.greatest)

    def ends(self) -> Item:
        return Item(f"{self.shape.choice(['min', 'max'])}({named(self.any_column())})")

    def averages(self) -> Item:
        column = self.pick("whole", "float")
        while column.name == "fx":
            column = self.pick(*NUMBERS)
        return Item(f"avg({named(column)})", int(not column.exact))

    def others(self) -> Item:
        rng, name = self.shape, named(self.any_column())
        by = "ts" if self.kept.unique and self.chance(0.8) else "serial"
        forms = [
            f"count(DISTINCT {name})", f"count(DISTINCT {name})", f"arg_max({name}, {by})", f"arg_min({name}, {by})",
            f"arg_max({name}, {by})", f"{rng.choice(['bool_and', 'bool_or'])}(ok)",
            f"last({name} ORDER BY {by})", f"first({name} ORDER BY {by})",
        ]  # fmt: skip
        if self.chance(0.3):
            return self.spreads()
        return Item(rng.choice(forms))


KINDS: Sequence[tuple[str, int]] = (("grouped", 11), ("within", 2), ("distinct_rows", 2), ("rows", 3), ("last_rows", 2), ("around", 2))


def statement(shape: int, constants: int, tables: Sequence[Kept] = TABLES) -> Statement:
    """The statement of a shape with some constants; the same shape with others is the same statement but for them."""
    rng = random.Random(shape)
    maker = maker_of(rng, random.Random(constants), tables)
    (kind,) = rng.choices([name for name, _ in KINDS], [weight for _, weight in KINDS])
    made: Statement = getattr(maker, kind)()
    return made


def maker_of(rng: random.Random, constants: random.Random, tables: Sequence[Kept], parameters: bool = True) -> Maker:
    """Two of three are plain; some take their constants as parameters."""
    kept = rng.choices(tables, [4 if one.name == "events" else 0.3 if one.name == "nothing" else 1 for one in tables])[0]
    kind = Plain if rng.random() < 0.67 else Maker
    return kind(kept, rng, constants, [] if parameters and rng.random() < 0.15 else None)
