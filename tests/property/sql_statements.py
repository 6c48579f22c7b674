"""Statements made at random, from a seed: every one has an answer, and the same one whatever order rows come in."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable

from tests.sql_tables import DAY, NOTES

Literal = Callable[[random.Random], str]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _moment(rng: random.Random) -> str:
    at = DAY + dt.timedelta(hours=rng.randrange(260), seconds=rng.choice([0, 0, 1, rng.randrange(3600)]))
    return f"TIMESTAMP '{at.isoformat(sep=' ')}'"


def _zoned(rng: random.Random) -> str:
    return "TIMESTAMPTZ" + _moment(rng).removeprefix("TIMESTAMP")[:-1] + "+00'"


def _date(rng: random.Random) -> str:
    return f"DATE '{(DAY + dt.timedelta(days=rng.randrange(12))).date()}'"


def _number(rng: random.Random) -> str:
    return rng.choice([str(rng.randrange(-3, 60)), str(rng.randrange(60)), f"{rng.uniform(-50, 60):.3f}", "0", "1.5", "-2.25"])


def _whole(rng: random.Random) -> str:
    return str(rng.choice([rng.randrange(-3, 65), rng.randrange(60)]))


COLUMNS: dict[str, dict[str, Literal]] = {
    "trips": {
        "id": _whole, "ts": _moment, "speed": _number, "load": _number, "note": lambda r: _quoted(r.choice(NOTES)),
        "kind": lambda r: _quoted(r.choice(["bus", "car", "taxi", "tram"])), "fare": _number, "day": _date, "tiny": _whole,
        "big": lambda r: r.choice(["0", "1", "9223372036854775808", "18446744073709551615", "50"]), "seen": _zoned,
        "blob": lambda r: r.choice(["'ab'::BLOB", "'\\xFF\\xFE'::BLOB", "''::BLOB"]), "ms": _moment,
    },
    "spots": {"lon": _number, "lat": _number, "stamp": _moment, "n": _whole, "name": lambda r: _quoted(r.choice(NOTES))},
    "words": {
        "word": lambda r: _quoted(r.choice([*NOTES, "commonprefix/a", "commonprefix/b", "commonprefix", "commonprefix/longer", "zzz"])),
        "seen": _date, "n": _whole, "x": _number,
    },
    "flows": {
        "src": lambda r: _quoted(r.choice(["10.0.1.7", "10.0.5.35", "::1", "fe80::1", "10.0.9.63", "nonsense"])),
        "ms": lambda r: str(1767225600000 + r.randrange(9 * 10**8)), "bytes": lambda r: str(r.randrange(10**6)),
    },
}  # fmt: skip
COLUMNS["nothing"] = COLUMNS["trips"]

TEXTS = {"note", "kind", "name", "word", "src"}
SUMS = {"id", "tiny", "n", "bytes", "fare"}
"""Columns whose sums do not depend on the order of rows."""


class Statements:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def one(self) -> str:
        return self.rng.choice([self.plain, self.plain, self.plain, self.grouped, self.joined, self.common, self.window, self.united])()

    # ---- conditions -------------------------------------------------------------------------------------

    def condition(self, table: str, alias: str = "", depth: int = 0) -> str:
        rng = self.rng
        if depth < 3 and rng.random() < 0.45:
            parts = [self.condition(table, alias, depth + 1) for _ in range(rng.choice([2, 2, 3]))]
            return "(" + rng.choice([" AND ", " OR "]).join(parts) + ")"
        if rng.random() < 0.1:
            return f"NOT ({self.condition(table, alias, depth + 1)})"
        return self.simple(table, alias)

    def simple(self, table: str, alias: str) -> str:
        rng = self.rng
        name, literal = rng.choice(list(COLUMNS[table].items()))
        column = alias + name
        text = f"({column} || '')" if name == "src" else column  # addresses are in no order, unless it is that of their texts

        def compared(*signs: str) -> tuple[str, str]:
            sign = rng.choice(signs)
            return column if sign in ("=", "<>") else text, sign

        shapes = [
            lambda: "{} {} {}".format(*compared("=", "<", "<=", ">", ">=", "<>"), literal(rng)),
            lambda: "{} {} {}".format(*compared("=", "<", "<=", ">", ">="), literal(rng)),
            lambda: "{2} {1} {0}".format(*compared("=", "<", "<=", ">", ">="), literal(rng)),
            lambda: f"{text} BETWEEN {literal(rng)} AND {literal(rng)}",
            lambda: f"{column} {rng.choice(['', 'NOT '])}IN ({', '.join(literal(rng) for _ in range(rng.randrange(1, 6)))})",
            lambda: f"{column} IS {rng.choice(['', 'NOT '])}NULL",
            lambda: f"{column} IS {rng.choice(['', 'NOT '])}DISTINCT FROM {literal(rng)}",
        ]
        if name in TEXTS:
            shapes += [
                lambda: f"{column} LIKE {_quoted(rng.choice(['a%', '%o%', 'b', 'common%', '10.%', '_']))}",
                lambda: f"starts_with({column}, {_quoted(rng.choice(['a', 'commonprefix', 'z', '']))})",
                lambda: f"length({column}) > {rng.randrange(5)}",
            ]
        if name in ("ts", "stamp", "ms") and table != "flows":
            shapes += [
                lambda: f"{column}::DATE = {_date(rng)}",
                lambda: f"date_trunc('day', {column}) = {_date(rng)}",
                lambda: f"hour({column}) < {rng.randrange(24)}",
            ]
        if name in ("id", "tiny", "n"):
            shapes += [
                lambda: f"{column} % {rng.randrange(2, 5)} = 0",
                lambda: f"{column} + 1 > {_whole(rng)}",
                lambda: f"{column}::DOUBLE < {_number(rng)}",
                lambda: f"{column} = (SELECT max(n) FROM words WHERE n < {_whole(rng)})",
                lambda: f"{column} IN (SELECT n FROM words WHERE x > {_number(rng)})",
            ]
        if name == "ok":
            shapes += [lambda: column]
        return rng.choice(shapes)()

    def where(self, table: str, alias: str = "") -> str:
        return f" WHERE {self.condition(table, alias)}" if self.rng.random() < 0.9 else ""

    def table(self) -> str:
        return self.rng.choice(["trips", "trips", "spots", "spots", "words", "flows", "nothing"])

    # ---- statements -------------------------------------------------------------------------------------

    def plain(self) -> str:
        rng, table = self.rng, self.table()
        columns = list(COLUMNS[table])
        chosen = rng.sample(columns, rng.randrange(1, min(5, len(columns)) + 1))
        what = rng.choice(["*", ", ".join(chosen), "count(*)", "DISTINCT " + ", ".join(chosen[:2])])
        text = f"SELECT {what} FROM {table}{self.where(table)}"
        if what == ", ".join(chosen) and rng.random() < 0.3:  # ordered by all that is shown, so that ties do not matter
            order = ", ".join(f"{column} {rng.choice(['', 'DESC'])} NULLS LAST" for column in chosen)
            text += f" ORDER BY {order} LIMIT {rng.randrange(30)}"
        return text

    def aggregates(self, table: str, alias: str = "") -> str:
        rng = self.rng
        columns = list(COLUMNS[table])
        made = ["count(*)"]
        for column in rng.sample(columns, min(2, len(columns))):
            made.append(
                f"{rng.choice(['min', 'max', 'count', 'count_distinct'])}({alias}{column})".replace("count_distinct(", "count(DISTINCT ")
            )
        sums = [column for column in columns if column in SUMS]
        if sums:
            made.append(f"sum({alias}{rng.choice(sums)})")
        return ", ".join(made)

    def grouped(self) -> str:
        rng, table = self.rng, self.table()
        groups = rng.sample(list(COLUMNS[table]), rng.randrange(0, 3))
        text = f"SELECT {', '.join([*groups, self.aggregates(table)])} FROM {table}{self.where(table)}"
        if groups:
            text += " GROUP BY " + ", ".join(groups) + (" HAVING count(*) > 1" if rng.random() < 0.3 else "")
        return text

    def joined(self) -> str:
        rng = self.rng
        kind = rng.choice(["JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN", "FULL JOIN"])
        condition = f"{self.condition('trips', 'a.')}"
        what = "count(*), min(a.ts), max(a.fare)" if kind in ("SEMI JOIN", "ANTI JOIN") else "count(*), sum(a.id), max(b.n), min(b.lat)"
        extra = f" AND {self.condition('spots', 'b.', 2)}" if kind in ("JOIN", "LEFT JOIN") and rng.random() < 0.6 else ""
        if kind == "FULL JOIN":
            return f"SELECT {what} FROM trips a FULL JOIN spots b ON a.id = b.n WHERE {condition}"
        if rng.random() < 0.15:
            return (
                "SELECT count(*), sum(b.n) FROM trips a ASOF JOIN (SELECT n, max(seen)::TIMESTAMP AS at FROM words GROUP BY n) b "
                f"ON a.id = b.n AND a.ts >= b.at WHERE {condition}"
            )
        return f"SELECT {what} FROM trips a {kind} spots b ON a.id = b.n WHERE {condition}{extra}"

    def common(self) -> str:
        inner = self.condition("trips")
        outer = self.condition("trips", "c.", 2)
        return (
            f"WITH c AS (SELECT * FROM trips WHERE {inner}), d AS (SELECT id, count(*) AS k FROM c GROUP BY id) "
            f"SELECT c.id, d.k, count(*), max(c.note) FROM c JOIN d ON c.id = d.id WHERE {outer} GROUP BY ALL"
        )

    def window(self) -> str:
        table = self.rng.choice(["trips", "words"])
        key, measure = ("id", "tiny") if table == "trips" else ("word", "n")
        return (
            f"SELECT {key}, {measure}, sum({measure}) OVER (PARTITION BY {key}) AS s, "
            f"rank() OVER (PARTITION BY {key} ORDER BY {measure}) AS r "
            f"FROM {table}{self.where(table)} QUALIFY r <= {self.rng.randrange(1, 5)}"
        )

    def united(self) -> str:
        how = self.rng.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT"])
        return f"SELECT n FROM words{self.where('words')} {how} SELECT n FROM spots{self.where('spots')}"
