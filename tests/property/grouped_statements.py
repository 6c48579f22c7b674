"""Statements with filters and groups, made at random: what a statement looks like comes from one seed, its constants from another.

So a statement can be asked again with other constants, as programs do, and what was prepared for the first must fit the second. Of every
statement it is known how far its answer is one: whether rows come in an order, whether the order has ties, and which sums depend on the
order in which rows are added up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.property.grouped_tables import Column, Kept

SIGNS = ("=", "<", "<=", ">", ">=", "<>", "!=")
UNITS = ("second", "minute", "HOUR", "day", "week", "Month", "quarter", "year", "decade", "minutes", "hours")
PARTS = ("hour", "minute", "second", "DAY", "dow", "isodow", "doy", "week", "month", "year", "quarter", "epoch", "millisecond")
WIDTHS = ("5 minutes", "1 hour", "2 days", "90 seconds", "1 week", "1 month", "500 milliseconds")
NUMBERS = ("whole", "float", "decimal")
_CALL = re.compile(r"(?!CAST)\w+\([^()]*\)")


@dataclass(frozen=True)
class Statement:
    """A statement and what is certain of its answer."""

    text: str
    parameters: list[Any] | dict[str, Any] | None = None
    whole: str | None = None
    """The statement without LIMIT and OFFSET, if some of its rows may be chosen as one likes."""
    order: tuple[int, ...] | None = None
    """The columns of the answer by which its rows are ordered; none: in no order."""
    total: bool = False
    """The order has no ties, except among rows that are the same."""
    limit: int | None = None
    offset: int = 0
    loose: dict[int, float] = field(default_factory=dict)
    """Columns that depend a little on the order in which floats are added up, and the most that the floats' sizes add up to. Floats of
    either sign may leave next to nothing of that."""
    looser: frozenset[int] = frozenset()
    """Standard deviations and variances: there is more than one way to the last digits."""

    def __str__(self) -> str:
        return self.text if self.parameters is None else f"{self.text}  -- {self.parameters}"


@dataclass
class Item:
    """One of what is selected."""

    text: str
    loose: int = 0
    size: float = 0.0
    """If it is loose: the most that the sizes of what it adds up add up to; 0: its own size."""
    name: str | None = None
    number: int = -1

    @property
    def said(self) -> str:
        return self.text if self.name is None else f"{self.text} AS {self.name}"


@dataclass
class Maker:
    """One statement over one table."""

    kept: Kept
    shape: random.Random
    constants: random.Random
    parameters: list[Any] | None = None
    """None: constants stand in the text."""
    exactly: bool = False
    """Only aggregates that are the same in any order of rows."""

    GROUPS: ClassVar[Sequence[int]] = (0, 1, 1, 1, 2, 2, 3)
    AGGREGATES: ClassVar[Sequence[int]] = (1, 2, 3, 5)
    OVER: ClassVar[float] = 0.2
    """How often something is worked out of aggregates."""

    # ---- columns and constants ------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.shape.random() < share

    def pick(self, *kinds: str, small: bool = False, exact: bool = False) -> Column:
        found = [
            one for one in self.kept.columns if (not kinds or one.kind in kinds) and (one.small or not small) and (one.exact or not exact)
        ]
        return self.shape.choice(found)

    def any_column(self) -> Column:
        """Often the key or the time: these are what tables are asked by."""
        at = self.shape.random()
        if at < 0.2:
            return self.shape.choice(self.kept.keys)
        return self.kept.time if at < 0.35 else self.pick()

    def constant(self, column: Column) -> str:
        if self.parameters is not None and column.kind in ("whole", "text", "float", "decimal", "bool", "binary"):
            self.parameters.append(self.constants.choice(column.values))
            return "?"
        return column.literal(self.constants)

    def interval(self, column: Column) -> str:
        if self.parameters is not None:
            return f"{self.constant(column)} AND {self.constant(column)}"
        return " AND ".join(column.pair(self.constants))

    def odd_constant(self) -> str:
        return self.constants.choice(
            ["0", "1", "-1", "0.5", "2.5e0", "NULL", "1e20", "'1'", "18446744073709551615", "0.1::FLOAT", "3::UTINYINT", "true"]
        )

    def whole_number(self, lo: int, hi: int) -> str:
        return str(self.constants.randrange(lo, hi))

    # ---- conditions -----------------------------------------------------------------------------------------

    def where(self) -> str:
        """Often with ranges of key and time, which decide what is read at all."""
        parts = []
        if self.chance(0.4):
            parts.append(self.key_range())
        if self.chance(0.35):
            lo, hi = self.kept.time.pair(self.constants)
            parts.append(f"ts {self.shape.choice(['>=', '>'])} {lo}")
            if self.chance(0.7):
                parts.append(f"ts {self.shape.choice(['<=', '<'])} {hi}")
        if self.chance(0.7) or not parts:
            parts.append(self.condition())
        if self.parameters is None:
            self.shape.shuffle(parts)
        return " WHERE " + " AND ".join(parts) if self.chance(0.88) else self.without_parameters()

    def without_parameters(self) -> str:
        if self.parameters is not None:
            self.parameters.clear()
        return ""

    def key_range(self) -> str:
        key = self.shape.choice(self.kept.keys)
        if not self.kept.ordered or self.chance(0.25):
            return f"{key.name} IN ({', '.join(self.constant(key) for _ in range(self.shape.choice([1, 3, 8])))})"
        if self.chance(0.2):
            return f"{key.name} = {self.constant(key)}"
        if self.chance(0.5):
            return f"{key.name} {self.shape.choice(SIGNS[1:5])} {self.constant(key)}"
        return f"{key.name} BETWEEN {self.interval(key)}"

    def condition(self, depth: int = 0) -> str:
        if depth < 3 and self.chance(0.4):
            parts = [self.condition(depth + 1) for _ in range(self.shape.choice([2, 2, 3]))]
            return "(" + self.shape.choice([" AND ", " OR "]).join(parts) + ")"
        if self.chance(0.15):
            return f"NOT ({self.condition(depth + 1)})"
        return self.simple()

    def simple(self) -> str:
        rng, column = self.shape, self.any_column()
        name = '"Odd name"' if " " in column.name else column.name
        if column.kind == "nested":
            return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
        key = column in self.kept.keys and not self.kept.ordered
        signs = ("=", "<>") if key else SIGNS
        forms: list[Callable[[], str]] = [
            lambda: f"{name} {rng.choice(signs)} {self.constant(column)}",
            lambda: f"{name} {rng.choice(signs)} {self.constant(column)}",
            lambda: f"{self.constant(column)} {rng.choice(signs)} {name}",
            lambda: f"{name} {rng.choice(['', 'NOT '])}IN ({', '.join(self.constant(column) for _ in range(rng.randrange(1, 7)))})",
            lambda: f"{name} {rng.choice(['', 'NOT '])}IN ({self.constant(column)}, NULL, {self.constant(column)})",
            lambda: f"{name} IS {rng.choice(['', 'NOT '])}NULL",
            lambda: f"{name} IS {rng.choice(['', 'NOT '])}DISTINCT FROM {self.constant(column)}",
        ]
        if not key:
            forms += [
                lambda: f"{name} BETWEEN {self.interval(column)}",
                lambda: f"{name} NOT BETWEEN {self.interval(column)}",
            ]
        if column.kind in NUMBERS:
            forms += [lambda: f"{name} {rng.choice(SIGNS)} {self.odd_constant()}"]
            if column.small:
                forms += [
                    lambda: f"{name} + 1 > {self.constant(column)}", lambda: f"{name} * 2 = {self.constant(column)}",
                    lambda: f"{name} {rng.choice(SIGNS)} {other(self)}",
                ]  # fmt: skip
            forms += [lambda: f"{name}::DOUBLE {rng.choice(SIGNS)} {self.constant(column)}"]
        if column.kind == "text" and not key:
            patterns = ["a%", "common%", "%", "", "a", "_", "a_", "%o%", "%b", "commonprefix/%", "10.0.1%", "100\\%", "ä%", "B%", "日%"]
            forms += [
                lambda: f"{name} {rng.choice(['', 'NOT '])}LIKE '{self.constants.choice(patterns[:6])}'",
                lambda: f"{name} {rng.choice(['', 'NOT '])}LIKE '{self.constants.choice(patterns)}'",
                lambda: f"{name} ILIKE '{self.constants.choice(patterns)}'",
                lambda: f"starts_with({name}, '{self.constants.choice(['a', 'commonprefix', 'b', ''])}')",
                lambda: f"{rng.choice(['prefix', 'contains', 'suffix'])}({name}, '{self.constants.choice(['a', 'o', ''])}')",
                lambda: f"length({name}) > {self.whole_number(0, 5)}",
            ]
        if column.kind == "bool":
            forms += [
                lambda: name,
                lambda: f"NOT {name}",
                lambda: f"{name} IS {rng.choice(['TRUE', 'FALSE', 'NOT TRUE', 'NOT FALSE'])}",
            ] * 2
        if column.kind in ("moment", "zoned", "date"):
            forms += [
                lambda: f"{name}::DATE = DATE '2026-01-{self.constants.randrange(1, 13):02d}'",
                lambda: f"date_trunc('day', {name}) = TIMESTAMP '2026-01-{self.constants.randrange(1, 13):02d}'",
                lambda: f"extract('month' FROM {name}) = {self.whole_number(1, 13)}",
                lambda: f"{name} >= TIMESTAMP '2026-01-01' + INTERVAL '{self.constants.randrange(12)} days'",
            ]
        if self.parameters is None:
            forms += [lambda: rng.choice(["true", "false", "NULL", "1 = 1", "NULL = 1"])]
        return rng.choice(forms)()

    # ---- what rows are grouped by ---------------------------------------------------------------------------

    def group(self) -> str:
        rng = self.shape
        if self.chance(0.45):
            return named(self.any_column())
        return rng.choice([self.moments, self.moments, self.moments, self.numbers, self.numbers, self.texts, self.casts, self.predicates])()

    def moments(self) -> str:
        rng = self.shape
        column = self.kept.time if self.chance(0.6) and self.kept.time.kind != "whole" else self.pick("moment", "zoned", "date")
        name = column.name
        unit, part, width = self.constants.choice(UNITS), self.constants.choice(PARTS), self.constants.choice(WIDTHS)
        if column.kind == "date":
            unit, part = rng.choice(("week", "month", "YEAR", "quarter", "day")), rng.choice(("month", "dow", "year", "doy"))
        forms = [
            f"date_trunc('{unit}', {name})", f"date_trunc('{unit}', {name})", f"DATE_TRUNC('{unit}', {name})",
            f"time_bucket(INTERVAL '{width}', {name})", f"time_bucket(INTERVAL '{width}', {name})",
            f"extract({part} FROM {name})", f"date_part('{part}', {name})",
            f"{rng.choice(['year', 'month', 'day', 'dayofweek'])}({name})",
            f"{name}::DATE", f"CAST({name} AS DATE)", f"strftime({name}, '%Y-%m')", f"last_day({name})",
        ]  # fmt: skip
        if column.kind == "moment" and name != "far":
            forms += [
                f"time_bucket(INTERVAL '{self.constants.choice(WIDTHS[:2])}', {name}, INTERVAL '{self.whole_number(1, 5)} minutes')",
                f"time_bucket(INTERVAL '1 day', {name}, TIMESTAMP '2026-01-03 05:00:00')", f"hour({name})", f"epoch({name})",
                f"{name} - INTERVAL '{self.whole_number(1, 60)} minutes'", f"date_diff('day', DATE '2026-01-01', {name}::DATE)",
                f"epoch_ms({name}) // {self.constants.choice([60_000, 3_600_000])}",
            ]  # fmt: skip
        return rng.choice(forms)

    def numbers(self) -> str:
        rng = self.shape
        column = self.pick("whole", "float", "decimal", small=True)
        name, c = named(column), self.whole_number(2, 9)
        forms = [
            f"{name} + {c}", f"{name} * {c}", f"-{name}", f"{name} - {c}", f"abs({name})", f"{name} / {c}", f"floor({name} / {c})",
            f"ceil({name} / {c})",
            f"round({name} / {c})", f"sign({name})", f"coalesce({name}, {c})",
            f"CASE WHEN {name} > {c} THEN 'high' WHEN {name} IS NULL THEN 'none' ELSE 'low' END",
            f"{name} + {other(self)}", f"least({name}, {c})",
        ]  # fmt: skip
        if column.kind == "whole":
            forms += [f"{name} % {c}", f"{name} // {c}", f"mod({name}, {c})", f"{name} & 3", f"{name} >> 1", f"({name} % {c}) * 2 + 1"] * 2
        if column.kind == "float":
            forms += [f"floor({name})", f"round({name}, 1)", f"trunc({name})", f"floor({name} / 10.0) * 10"] * 2
        return rng.choice(forms)

    def texts(self) -> str:
        column = self.pick("text")
        name = column.name
        forms = [
            f"lower({name})", f"upper({name})", f"substr({name}, 1, {self.whole_number(1, 4)})", f"left({name}, 1)", f"length({name})",
            f"{name}[1]",
            f"{name} || 'x'", f"nullif({name}, 'a')", f"concat({name}, '-', g)", f"split_part({name}, '/', 1)",
        ]  # fmt: skip
        return self.shape.choice(forms)

    def casts(self) -> str:
        rng = self.shape
        forms = [
            f"{self.pick('whole').name}::DOUBLE", f"{self.pick('whole', small=True).name}::TINYINT",
            f"{self.pick('whole').name}::VARCHAR",
            f"CAST({self.pick('decimal').name} AS DOUBLE)", "d9::INTEGER", "q::INTEGER", "q::BIGINT", "CAST(q AS DECIMAL(12, 1))",
            "ok::INTEGER",
            "day::TIMESTAMP", "day::VARCHAR", "n::BIGINT", "i4::BIGINT", "u4::BIGINT", "i8::DOUBLE", "f4::DOUBLE",
            "TRY_CAST(i8 AS INTEGER)",
            "TRY_CAST(t AS INTEGER)", "sec::TIMESTAMP", "us::TIME", "ms::TIMESTAMP_S", "n::UTINYINT", "b::VARCHAR", "n::FLOAT",
            "n::DECIMAL(6, 2)",
        ]  # fmt: skip
        return rng.choice(forms).replace("Odd name", '"Odd name"')

    def predicates(self) -> str:
        rng = self.shape
        forms = [
            f"n > {self.whole_number(0, 20)}", "f8 IS NULL", "t LIKE 'a%'", "ok", "NOT ok", f"sure % {self.whole_number(2, 5)} = 0",
            "t IS NOT NULL", "g IN ('bus', 'car')",
            "p.n", "p.x", "l[1]", "len(l)",
        ]  # fmt: skip
        return rng.choice(forms)

    # ---- aggregates -----------------------------------------------------------------------------------------

    def aggregate(self) -> Item:
        rng = self.shape
        forms = [
            self.counts, self.counts, self.sums, self.sums, self.ends, self.ends, self.ends, self.averages, self.averages, self.by_time,
            self.by_time, self.truths, self.spreads, self.distinct, self.odd_ones,
        ]  # fmt: skip
        while (item := rng.choice(forms)()).loose and self.exactly:
            pass
        if self.chance(0.25) and _CALL.fullmatch(item.text):
            parameters, self.parameters = self.parameters, None
            item.text += f" FILTER (WHERE {self.condition(2)})"
            self.parameters = parameters
        return item

    def counts(self) -> Item:
        return Item(self.shape.choice(["count(*)", "count(*)", "count()", "COUNT( * )", f"count({named(self.any_column())})"]))

    def sums(self) -> Item:
        column = self.pick(*NUMBERS)
        while column.name == "fx":  # as large as doubles get: whether a sum of them is infinite depends on the order
            column = self.pick(*NUMBERS)
        name, loose = named(column), int(not column.exact)
        forms = [f"sum({name})"] * 4 + [f"SUM( {name} )"]
        if column.kind == "whole" and column.small:
            forms += [f"sum({name})::BIGINT", f"sum({name})::DOUBLE", f"sum({name})::INTEGER", f"CAST(sum({name}) AS VARCHAR)"]
        size, product = 0.0 if column.exact else 2 * self.kept.rows * column.greatest, ""
        if column.small:
            by = self.pick("whole", "float", small=True, exact=True)
            product = f"sum({name} * {named(by)})"
            forms += [
                f"sum({name}::DOUBLE)", f"sum({name} * 2)", f"sum({name} + 1)",
                f"sum(CASE WHEN {name} > 3 THEN {name} ELSE 0 END)", f"sum(abs({name}))", product,
            ]  # fmt: skip
        text = self.shape.choice(forms)
        if text == product:
            size *= by.greatest
        return Item(text, max(loose, int("DOUBLE)" in text and column.kind != "float")), size)

    def ends(self) -> Item:
        what = self.shape.choice(["min", "max"])
        column = self.any_column() if self.chance(0.9) else self.pick(*NUMBERS, small=True)
        forms = [f"{what}({named(column)})"] * 5
        if column.kind == "whole" and column.small:
            forms += [f"{what}({named(column)} * 2)", f"{what}({named(column)})::DOUBLE", f"{what}(-{named(column)})"]
        if column.kind == "moment" and column.name != "far":
            forms += [f"{what}({column.name})::DATE", f"{what}(date_trunc('hour', {column.name}))"]
        return Item(self.shape.choice(forms))

    def averages(self) -> Item:
        column = self.pick(*NUMBERS)
        while column.name == "fx":  # as large as doubles get: whether a sum of them is infinite depends on the order
            column = self.pick(*NUMBERS)
        forms = [f"avg({named(column)})"] * 4
        if column.small and column.exact:
            forms += [f"avg({named(column)} * 2)", f"mean({named(column)})", f"avg({named(column)})::FLOAT"]
        # a mean of decimals is a float, whose last digit depends on what else DuckDB knows of the column
        return Item(self.shape.choice(forms), int(not column.exact or column.kind == "decimal"), 0.0 if column.exact else column.greatest)

    def by_time(self) -> Item:
        """The first and the last of something, in an order that has no ties."""
        column, by = self.any_column(), "ts" if self.kept.unique and self.chance(0.7) else "serial"
        name = named(column)
        forms = [
            f"arg_max({name}, {by})", f"arg_min({name}, {by})", f"max_by({name}, {by})", f"argmin({name}, {by})",
            f"last({name} ORDER BY {by})",
            f"first({name} ORDER BY {by})", f"first({name} ORDER BY {by} DESC)", f"last({name} ORDER BY {by} DESC)",
            f"arg_max_null({name}, {by})",
        ]  # fmt: skip
        return Item(self.shape.choice(forms))

    def truths(self) -> Item:
        what = self.shape.choice(["bool_and", "bool_or"])
        return Item(
            self.shape.choice(
                [f"{what}(ok)", f"{what}(n > {self.whole_number(0, 20)})", f"{what}(t IS NOT NULL)", "count_if(ok)", "sum(ok::INTEGER)"]
            )
        )

    def spreads(self) -> Item:
        what = self.shape.choice(["stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"])
        return Item(f"{what}({self.shape.choice(['n', 'sure', 'q', 'd4', 'q'])})", 2)

    def distinct(self) -> Item:
        column = self.any_column()
        forms = [f"count(DISTINCT {named(column)})"] * 4 + [
            "count(DISTINCT n % 5)",
            "sum(DISTINCT n)",
            "count(DISTINCT date_trunc('day', us))",
            "avg(DISTINCT sure)",
        ]
        return Item(self.shape.choice(forms))

    def odd_ones(self) -> Item:
        forms = [
            "bit_or(sure)", "bit_xor(i8)", "median(n)", "quantile_cont(n, 0.25)", "string_agg(t, ',' ORDER BY serial)",
            "list(n ORDER BY serial)", "mad(n)",
            "approx_count_distinct(n) >= 0", "max(n, 2)", "min(p)", "max(l)", "any_value(7)", "sum(void)", "avg(void)", "min(void)",
            "product(sure % 2 + 1)",
            "min(ok)", "max(ok)", "max(tod)", "sum(1)", "sum(2.5)", "min('x')", "histogram(n % 3)", "max(ts) - min(ts)",
        ]  # fmt: skip
        return Item(self.shape.choice(forms))

    def over_aggregates(self) -> Item:
        exactly, self.exactly = self.exactly, True
        c = self.whole_number(1, 9)
        forms = [
            "sum(n) / count(*)", "max(n) - min(n)", f"count(*) * 100.0 / {c}", "round(avg(q), 2)",
            f"CASE WHEN count(*) > {c} THEN 'many' ELSE 'few' END",
            f"coalesce(sum(n), -{c})", f"count(*) > {c}", "sum(sure) + count(n)", "avg(q) * 2 + 1", "greatest(max(n), max(sure))",
            "max(us) - min(us)",
            f"(sum(q) + {c}) / nullif(count(q), 0)", "sum(n)::DOUBLE / count(*)", "coalesce(max(t), '-') || count(*)",
            "sum(count(*)) OVER ()",
            "rank() OVER (ORDER BY count(*) DESC)", "count(*) FILTER (WHERE ok) / count(*)", "min(n) IS NULL", "-sum(n)",
            "date_trunc('hour', max(us))", "sqrt(count(*))", "sum(n) / nullif(count(n), 0)", "sign(sum(n))", "isnan(max(f8))",
            "concat_ws('-', count(*), max(t))", "strftime(max(us), '%Y-%m')", "pow(count(*), 2)", "length(max(t))", "mod(count(*), 3)",
        ]  # fmt: skip
        self.exactly = exactly
        return Item(self.shape.choice(forms))

    def having(self, keys: Sequence[Item], items: Sequence[Item]) -> str:
        """Of what is selected and of what is not, of keys and of both."""
        rng = self.shape
        parts = [self.having_part(keys, items) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]
        said = rng.choice([" AND ", " AND ", " OR "]).join(parts)
        return f" HAVING NOT ({said})" if self.chance(0.1) else f" HAVING {said}"

    def having_part(self, keys: Sequence[Item], items: Sequence[Item]) -> str:
        rng, c = self.shape, self.whole_number(0, 12)
        known = {named(column): column for column in self.kept.columns if column.kind != "nested"}
        plain = [known[key.text] for key in keys if key.text in known]
        counts = [item.name for item in items if item.name and item.text.lower().startswith("count(")]
        if plain and self.chance(0.25):
            column = rng.choice(plain)
            sign = rng.choice(["=", "<>"] if column in self.kept.keys and not self.kept.ordered else SIGNS)
            forms = [f"{named(column)} {sign} {self.constant(column)}", f"{named(column)} IS {rng.choice(['', 'NOT '])}NULL"]
            return forms[0] if self.parameters is not None else rng.choice(forms)
        if counts and self.chance(0.4):
            return f"{rng.choice(counts)} {rng.choice(SIGNS)} {c}"
        if self.chance(0.35):
            column = self.any_column()
            while column.kind in ("nested", "binary", "text") or column in self.kept.keys and not self.kept.ordered:
                column = self.any_column()
            end = f"{rng.choice(['min', 'max'])}({named(column)})"
            if self.parameters is not None or self.chance(0.6):
                return f"{end} {rng.choice(SIGNS)} {self.constant(column)}"
            return f"{end} BETWEEN {self.interval(column)}"
        forms = [
            f"count(*) > {c}", f"count(*) > {c}", f"count(*) = {c}", f"sum(n) > {c}", "sum(n) IS NOT NULL", f"max(q) <= {c}",
            f"count(*) > 1 AND min(n) < {c}", f"avg(sure) >= {c}", f"{c} <= avg(sure)", f"sum(sure) IN ({c}, 20, 35)",
            "count(DISTINCT t) > 2", "max(t) LIKE 'a%'", "bool_or(ok)", "bool_and(ok) IS NOT TRUE", f"NOT (count(n) > {c})",
            f"count(*) BETWEEN 2 AND {c}", "min(f8) < 0", f"max(n) > {c}.5", f"sum(n) IS DISTINCT FROM {c}", f"avg(n) / 2 < {c}",
        ]  # fmt: skip
        return rng.choice(forms)

    # ---- whole statements -----------------------------------------------------------------------------------

    def named_items(self, items: list[Item]) -> list[Item]:
        """Some get a name; no two have the same, as far as this can be seen."""
        seen: set[str] = set()
        for number, item in enumerate(items):
            plain = item.text.strip('"').lower().replace(" ", "")
            if self.chance(0.55) or plain in seen:
                item.name = f"c{number}"
            item.number = number
            seen.add(plain)
        return items

    def grouped(self) -> Statement:
        """SELECT groups and aggregates … GROUP BY … HAVING … ORDER BY … LIMIT."""
        rng = self.shape
        ending = Ending.at_random(self)
        self.exactly = self.exactly or ending.limited
        groups = list(dict.fromkeys(self.group() for _ in range(rng.choice(self.GROUPS))))
        keys = [Item(text) for text in groups]
        aggregates = [
            self.over_aggregates() if self.chance(0.15) else self.aggregate()
            for _ in range(rng.choice([0 if keys else 1, *self.AGGREGATES]))
        ]
        hidden = keys.pop() if len(keys) > 1 and self.chance(0.1) else None
        items = keys + aggregates
        if self.chance(0.3):
            rng.shuffle(items)
        self.named_items(items)
        text = f"SELECT {', '.join(item.said for item in items)} FROM {self.kept.name}{self.where()}"
        if groups:
            text += " GROUP BY " + self.group_by(keys, hidden)
        if groups and self.chance(0.3):
            text += self.having(keys if hidden is None else [*keys, hidden], items)
        return self.ended(text, items, keys if hidden is None and groups else [], ending, single=not groups)

    def group_by(self, keys: list[Item], hidden: Item | None) -> str:
        if hidden is None and self.chance(0.15):
            return "ALL"
        said = [self.shape.choice([key.text, key.text, str(key.number + 1), key.name or key.text]) for key in keys]
        return ", ".join(said + ([hidden.text] if hidden else []))

    def within(self) -> Statement:
        """Groups that are a part of a statement, which filters them by what they came to and by their keys."""
        rng = self.shape
        known = {named(column): column for column in self.kept.columns if column.kind != "nested"}
        keys = [Item(text) for text in dict.fromkeys(self.group() for _ in range(rng.choice([1, 1, 2])))]
        items = [*keys, Item("count(*)"), *(self.aggregate() for _ in range(rng.choice([0, 1, 2])))]
        for number, item in enumerate(items):
            item.name, item.number = f"c{number}", number
        if rng.random() < 0.1:
            items.append(Item(f"rank() OVER (ORDER BY count(*), {', '.join(key.text for key in keys)})", name="place", number=len(items)))
        inner = f"SELECT {', '.join(item.said for item in items)} FROM {self.kept.name}{self.where()}"
        inner += f" GROUP BY {', '.join(key.text for key in keys)}"
        if self.chance(0.3):
            inner += self.having(keys, [])
        parts = [f"g.c{len(keys)} {rng.choice(SIGNS)} {self.whole_number(0, 12)}"]
        column = known.get(keys[0].text)
        if column is not None and self.chance(0.5):
            sign = rng.choice(["=", "<>"] if column in self.kept.keys and not self.kept.ordered else SIGNS)
            parts.append(f"g.c0 {sign} {self.constant(column)}")
        if self.parameters is None and self.chance(0.3):
            parts.append("g.c0 IS NOT NULL")
        where = f" WHERE {rng.choice([' AND ', ' AND ', ' OR ']).join(parts)}"
        text = f"WITH g AS ({inner}) SELECT * FROM g{where}" if self.chance(0.4) else f"SELECT g.* FROM ({inner}) AS g{where}"
        loose, looser = (frozenset(item.number for item in items if item.loose == how) for how in (1, 2))
        return self.statement(text, loose=loose, looser=looser)

    def distinct_rows(self) -> Statement:
        ending = Ending.at_random(self)
        items = self.named_items([Item(text) for text in dict.fromkeys(self.group() for _ in range(self.shape.choice([1, 1, 2, 3])))])
        text = f"SELECT DISTINCT {', '.join(item.said for item in items)} FROM {self.kept.name}{self.where()}"
        return self.ended(text, items, items, ending)

    def rows(self) -> Statement:
        """Rows in the order of something: key, time or another column."""
        rng = self.shape
        by = (
            [self.kept.time]
            if self.chance(0.3)
            else [rng.choice(self.kept.keys)]
            if self.chance(0.4)
            else [self.any_column() for _ in range(rng.choice([1, 1, 2]))]
        )
        more = [self.pick() for _ in range(rng.choice([1, 2, 3]))]
        columns = list(dict.fromkeys([*(named(c) for c in by), *(named(c) for c in more)]))
        total = self.chance(0.6)
        items = self.named_items([Item(name) for name in [*columns, "serial"]])
        order = [(item, self.direction()) for item in items if item.text in {named(c) for c in by}]
        if total:
            order.append((items[-1], ""))
        limit, offset = self.constants.choice([1, 5, 10, 40, 1000]), self.constants.choice([0, 3, 50]) if self.chance(0.25) else 0
        text = f"SELECT {', '.join(item.said for item in items)} FROM {self.kept.name}{self.where()}"
        return self.finished(text, items, order, total, limit, offset)

    def last_rows(self) -> Statement:
        """The last (or first) row of each key in its forms."""
        rng, by = self.shape, "ts" if self.kept.unique else "serial"
        keys = [key.name for key in self.kept.keys] if self.chance(0.75) else [named(self.pick("whole", "text", "bool", "date"))]
        columns = list(dict.fromkeys([*keys, *(named(self.pick()) for _ in range(rng.choice([1, 2, 4])))]))
        where, source, down = self.where(), self.kept.name, self.shape.choice(["DESC", "DESC", "DESC", "ASC"])
        partition, shown = ", ".join(keys), ", ".join(columns)
        order = f"{by} {down}" if by == "serial" or self.chance(0.7) else f"{by} {down}, serial"
        match rng.randrange(5):
            case 0:
                what = "arg_max" if down == "DESC" else "arg_min"
                items = [*keys, *(f"{what}({c}, {by}) AS v{i}" for i, c in enumerate(columns)), f"max({by}) AS upto"]
                return self.statement(f"SELECT {', '.join(items)} FROM {source}{where} GROUP BY {partition}")
            case 1:
                text = f"SELECT DISTINCT ON ({partition}) {shown} FROM {source}{where} ORDER BY {partition}, {order}"
                return self.statement(text, order=tuple(columns.index(key) for key in keys), total=True)
            case 2:
                text = f"SELECT {shown} FROM {source}{where} QUALIFY row_number() OVER (PARTITION BY {partition} ORDER BY {order}) = 1"
                return self.statement(text)
            case 3:
                numbered = f"SELECT *, row_number() OVER (PARTITION BY {partition} ORDER BY {order}) AS r FROM {source}{where}"
                return self.statement(f"SELECT {shown} FROM ({numbered}) WHERE r = 1")
        key = self.kept.keys[0]
        if self.parameters is not None:
            self.parameters.clear()
        text = f"SELECT {shown}, serial FROM {source} WHERE {key.name} = {self.constant(key)} ORDER BY ts {down}"
        if not self.kept.unique:
            text += ", serial"
        return self.finished(text, [], [], True, self.constants.choice([1, 1, 3]), 0, ordered=True)

    def around(self) -> Statement:
        """A grouped statement inside another one."""
        rng = self.shape
        key, source = named(self.pick("whole", "text", "date")), self.kept.name
        where = self.where()
        c = self.whole_number(1, 9)
        counted = f"SELECT {key} AS g0, count(*) AS n0, sum(sure) AS s0 FROM {source}{where} GROUP BY"
        forms = [
            f"WITH q AS ({counted} 1) SELECT g0, n0, s0, n0 * 100.0 / (SELECT sum(n0) FROM q) AS share FROM q",
            f"SELECT count(*), max(n0), sum(s0) FROM ({counted} ALL)",
            f"SELECT e.serial, q.n0 FROM {source} e JOIN ({counted} g0) q ON e.{key} = q.g0 WHERE e.serial % 50 = {c}",
            f"SELECT serial FROM {source} WHERE {key} IN (SELECT {key} FROM {source}{where} GROUP BY 1 HAVING count(*) > {c})",
            f"SELECT {key}, count(*) AS n0, rank() OVER (ORDER BY count(*) DESC) AS r FROM {source}{where} GROUP BY 1 QUALIFY r <= {c}",
            f"SELECT 'a' AS part, count(*) AS n0 FROM {source}{where} UNION ALL SELECT {key}::VARCHAR, count(*) FROM {source} GROUP BY 1",
            f"SELECT {key}, ok, count(*) FROM {source}{where} GROUP BY ROLLUP ({key}, ok)",
            f"SELECT {key}, ok, count(*), grouping({key}) FROM {source}{where} GROUP BY GROUPING SETS (({key}), (ok), ())",
            f"SELECT (SELECT max(sure) FROM {source}{where}) AS m, count(*) FROM {source} WHERE n > {c}",
        ]
        text = rng.choice(forms)
        if text.count("?") != len(self.parameters or ()):
            return Maker(self.kept, self.shape, self.constants).grouped()
        return self.statement(text)

    # ---- the end of a statement -----------------------------------------------------------------------------

    def direction(self) -> str:
        return self.shape.choice(["", "", " ASC", " DESC", " DESC"]) + self.shape.choice(["", "", "", " NULLS FIRST", " NULLS LAST"])

    def ended(self, text: str, items: list[Item], keys: list[Item], ending: Ending, single: bool = False) -> Statement:
        """`keys`: those items that tell rows apart."""
        order: list[tuple[Item, str]] = []
        total = False
        if ending.ordered and not single:
            firm = [item for item in items if not item.loose]
            some = self.shape.sample(firm, self.shape.randrange(1, len(firm) + 1)) if firm else []
            total = bool(keys) and self.chance(0.6)
            some += [key for key in keys if total and key not in some]
            order = [(item, self.direction()) for item in some]
            total = bool(keys) and all(key in some for key in keys)
        limit = self.constants.choice([0, 1, 3, 10, 50, 10_000]) if ending.limited else None
        offset = self.constants.choice([1, 4, 100]) if ending.limited and ending.skipping else 0
        return self.finished(text, items, order, total, limit, offset)

    def finished(
        self,
        text: str,
        items: list[Item],
        order: list[tuple[Item, str]],
        total: bool,
        limit: int | None,
        offset: int,
        ordered: bool = False,
    ) -> Statement:
        """`ordered`: it says so itself."""
        if order:
            text += " ORDER BY " + ", ".join(
                self.shape.choice([item.text, str(item.number + 1), item.name or item.text]) + how for item, how in order
            )
        whole = None if total or limit is None else text
        if limit is not None:
            text += f" LIMIT {limit}" + (f" OFFSET {offset}" if offset else "")
        by = tuple(item.number for item, _ in order) if order else () if ordered else None
        loose = {item.number: item.size for item in items if item.loose == 1}
        looser = frozenset(item.number for item in items if item.loose == 2)
        return self.statement(text, whole=whole, order=by, total=total, limit=limit, offset=offset, loose=loose, looser=looser)

    def statement(self, text: str, **more: Any) -> Statement:
        if not self.parameters:
            return Statement(text, **more)
        if self.chance(0.5):
            return Statement(text, list(self.parameters), **more)
        for number in range(len(self.parameters)):
            text = text.replace("?", f"$p{number}", 1)
            if more.get("whole"):
                more["whole"] = more["whole"].replace("?", f"$p{number}", 1)
        return Statement(text, {f"p{number}": value for number, value in enumerate(self.parameters)}, **more)


@dataclass(frozen=True)
class Ending:
    ordered: bool
    limited: bool
    skipping: bool

    @classmethod
    def at_random(cls, maker: Maker) -> Ending:
        ordered = maker.chance(0.5)
        limited = maker.chance(0.5 if ordered else 0.08)
        return cls(ordered, limited, maker.chance(0.3))


def named(column: Column) -> str:
    return '"Odd name"' if " " in column.name else column.name


def other(maker: Maker) -> str:
    """Another number that overflows nothing."""
    return named(maker.pick("whole", "float", small=True))
