"""Random definitions over `taxi` and `taxi2`: buckets of buckets, shifts, cases, joins within bands, window functions, subqueries."""

from __future__ import annotations

from random import Random

SPANS = ("30 SECONDS", "1 MINUTE", "5 MINUTES", "20 MINUTES", "1 HOUR", "90 MINUTES", "3 HOURS")


class Maker:
    """Makes texts; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def definition(self) -> str:
        """With a column `ts`, and rows that depend on nothing but the rows of the tables."""
        make = self.rng.choice(
            (self._grouped, self._grouped, self._joined, self._joined, self._windowed, self._windowed, self._filtered, self._union)
        )
        return make()

    def time(self, column: str, depth: int = 2) -> str:
        """An expression of a time, of type TIMESTAMP_NTZ, never null."""
        if depth == 0 or self.rng.random() < 0.25:
            return column
        inner = self.time(column, depth - 1)
        other = self.time(column, depth - 1)
        span = self.rng.choice(SPANS)
        made = self.rng.choice((
            f"date_trunc('{self.rng.choice(('MINUTE', 'HOUR', 'DAY', 'WEEK'))}', {inner})",
            f"time_bucket(INTERVAL {self.rng.choice(('15 MINUTES', '1 HOUR', '7 MINUTES', '6 HOURS'))}, {inner})",
            f"time_bucket(INTERVAL 1 HOUR, {inner}, TIMESTAMP_NTZ '2026-01-01 00:20:00')",
            f"({inner} + INTERVAL {span})",
            f"({inner} - INTERVAL {span})",
            f"CAST({inner} AS DATE)",
            f"timestampadd(MINUTE, {self.rng.randrange(-50, 50)}, {inner})",
            f"CASE WHEN plate > 1 THEN {inner} ELSE {other} END" if "." not in column else f"least({inner}, {other})",
            f"greatest({inner}, {other})",
            f"coalesce({inner}, {other})",
            f"timestamp_seconds(floor(unix_timestamp({inner}) / 900) * 900)",
            f"timestamp_micros(unix_micros(CAST({inner} AS TIMESTAMP)) - pmod(unix_micros(CAST({inner} AS TIMESTAMP)), 60000000))",
        ))  # fmt: skip
        return f"CAST({made} AS TIMESTAMP_NTZ)"

    def _grouped(self) -> str:
        inner = f"SELECT plate, {self.time('ts')} ts, count(*) n, max(speed) speed FROM {self.rng.choice(('taxi', 'taxi2'))} GROUP BY ALL"
        if self.rng.random() < 0.5:
            inner = f"SELECT {self.time('ts')} ts, sum(n) n, min(plate) plate FROM ({inner}) GROUP BY ALL"
        return inner

    def _band(self, one: str, other: str) -> str:
        """A condition that keeps two times close to each other, mostly."""
        a, b = self.time(one, 1), self.time(other, 1)
        return self.rng.choice((
            f"{a} BETWEEN {b} - INTERVAL {self.rng.choice(SPANS)} AND {b} + INTERVAL {self.rng.choice(SPANS)}",
            f"{a} = {b}",
            f"{a} > {b} - INTERVAL {self.rng.choice(SPANS)} AND {a} <= {b}",
            f"{a} - {b} < INTERVAL {self.rng.choice(SPANS)} AND {b} - {a} < INTERVAL {self.rng.choice(SPANS)}",
            f"{a} >= {b} AND {one} < {other} + INTERVAL {self.rng.choice(SPANS)}",
        ))  # fmt: skip

    def _joined(self) -> str:
        kind = self.rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
        right = self.rng.choice(("taxi2", "taxi", f"(SELECT plate, {self.time('ts', 1)} ts, count(*) n FROM taxi2 GROUP BY ALL)"))
        time = {"JOIN": "a.ts", "LEFT JOIN": "a.ts", "RIGHT JOIN": "b.ts", "FULL JOIN": "coalesce(a.ts, b.ts)"}.get(kind, "a.ts")
        if kind == "JOIN":
            time = self.rng.choice(("a.ts", "b.ts", "greatest(a.ts, b.ts)"))
        made = f"SELECT {self.time(time, 1)} ts, a.n n" + ("" if "SEMI" in kind or "ANTI" in kind else ", b.n m")
        return f"{made} FROM taxi a {kind} {right} b ON a.plate = b.plate AND {self._band('a.ts', 'b.ts')}"

    def _windowed(self) -> str:
        keys = self.rng.choice(
            ("plate", f"{self.time('ts', 1)}", f"plate, {self.time('ts', 1)}", f"date_trunc('HOUR', {self.time('ts', 1)})")
        )
        frame = self.rng.choice((
            "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
            f"RANGE BETWEEN INTERVAL {self.rng.randrange(5000)} SECOND PRECEDING AND INTERVAL {self.rng.randrange(5000)} SECOND FOLLOWING",
            f"RANGE BETWEEN INTERVAL {self.rng.choice(SPANS)} PRECEDING AND CURRENT ROW",
        ))  # fmt: skip
        order = f"{self.time('ts', 1)} {self.rng.choice(('ASC', 'DESC'))}"
        function = "max(n)"
        if frame.startswith("ROWS"):
            order, function = f"{order}, plate, ts, n, speed", "sum(n)"
        return f"SELECT plate, {self.time('ts', 1)} ts, {function} OVER (PARTITION BY {keys} ORDER BY {order} {frame}) top FROM taxi"

    def _filtered(self) -> str:
        word = self.rng.choice(("EXISTS", "NOT EXISTS"))
        inner = f"SELECT 1 FROM taxi2 b WHERE b.plate = a.plate AND {self._band('b.ts', 'a.ts')}"
        count = f"(SELECT count(*) FROM taxi2 b WHERE b.plate = a.plate AND {self._band('b.ts', 'a.ts')})"
        return self.rng.choice((
            f"SELECT plate, {self.time('a.ts', 1)} ts FROM taxi a WHERE {word} ({inner})",
            f"SELECT plate, {self.time('a.ts', 1)} ts, {count} c FROM taxi a",
            f"SELECT plate, ts FROM taxi WHERE {self.time('ts', 1)} IN (SELECT {self.time('ts', 1)} FROM taxi2)",
        ))  # fmt: skip

    def _union(self) -> str:
        word = self.rng.choice(("UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
        one, other = (f"SELECT plate, {self.time('ts')} ts FROM {self.rng.choice(('taxi', 'taxi2'))}" for _ in range(2))
        return f"SELECT {self.time('ts', 1)} ts, count(*) n, max(plate) plate FROM ({one} {word} {other}) GROUP BY ALL"
