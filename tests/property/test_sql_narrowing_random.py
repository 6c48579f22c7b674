"""Conditions at random, of the kinds that become bounds: the answers are DuckDB's, whatever was read for them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left, examples
from tests.sql_tables import told
from tests.unit.test_sql_narrowing import NOW, at_the_moment
from tidewheel.duck import statement_time
from tidewheel.sql import small
from tidewheel.sql.statement import Statement

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int32())])
ZONED = pa.schema([("id", pa.int64()), ("seen", pa.timestamp("us", tz="UTC")), ("n", pa.int32())])
COARSE = pa.schema([("id", pa.int32()), ("ms", pa.timestamp("ms")), ("n", pa.int32())])
DAYS = pa.schema([("s", pa.string()), ("d", pa.date32()), ("n", pa.int32())])
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "abd",
    "ab%",
    "a_b",
    "b",
    "é",
    "日本",
    "日本語",
    "\ud7ff",
    "\ue000",
    "\U0010ffff",
    "a\U0010ffff",
    "a\U0010ffffz",
    "B",
    "zz",
]
UTC = NOW.replace(tzinfo=None)


def moments(rng: random.Random) -> dt.datetime:
    around = [
        UTC,
        UTC.replace(microsecond=0),
        UTC.replace(minute=0, second=0, microsecond=0),
        UTC.replace(hour=0, minute=0, second=0, microsecond=0),
    ]
    spread = rng.choice([1, 10**3, 10**6, 60 * 10**6, 3600 * 10**6, 86_400 * 10**6])
    if rng.random() < 0.05:
        return dt.datetime(1969, 12, 31, 23, 59, 59, rng.randrange(10**6))
    return rng.choice(around) + dt.timedelta(microseconds=rng.choice([0, 0, -1, 1, rng.randrange(-spread, spread + 1)]))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any]]:
    rng = random.Random(3)
    with tw.open(tmp_path_factory.mktemp("random") / "wh", settings=tw.Settings(leaf_rows=32)) as wh, duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.execute("SET threads = 1")
        wh.create_table("t", SCHEMA, time="ts", key="k")
        wh.create_table("z", ZONED, time="seen", key="id")
        wh.create_table("c", COARSE, time="ms", key="id")
        wh.create_table("y", DAYS, time="d", key="s", partition="1 day")
        for part in range(4):
            for name in wh.tables():
                rows = []
                for _ in range(120):
                    at = moments(rng)
                    key: Any = rng.choice(TEXTS) if name in "ty" else rng.randrange(40)
                    time: Any = {
                        "t": at,
                        "z": at.replace(tzinfo=dt.UTC),
                        "c": at.replace(microsecond=at.microsecond // 1000 * 1000),
                        "y": at.date(),
                    }[name]
                    schema = wh.table(name).schema
                    rows.append(dict(zip(schema.names, (key, time, rng.choice([None, rng.randrange(40)])), strict=True)))
                wh.table(name).insert(rows)
                if part < 2:
                    wh.table(name).flush()
        for name in wh.tables():
            duck.register("given", wh.table(name).query().to_arrow())
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            duck.unregister("given")
        yield wh, duck


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    check_nothing_left()


class Conditions:
    """Makes statements."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def span(self) -> str:
        unit = self.rng.choice(["microseconds", "seconds", "minutes", "hours", "days", "weeks", "months"])
        return self.rng.choice([f"INTERVAL '{self.rng.randrange(9)} {unit}'", f"INTERVAL {self.rng.randrange(9)} {unit}"])

    def moment(self) -> str:
        rng = self.rng
        base = rng.choice(
            [
                *("now()", "current_timestamp", "localtimestamp", "now()::TIMESTAMP", "current_date", "today()"),
                *(f"TIMESTAMP '{moments(rng)}'", f"TIMESTAMPTZ '{moments(rng)}+00'", f"DATE '{moments(rng).date()}'"),
                *("(SELECT max(ts) FROM t)", "(SELECT min(seen) FROM z)", "(SELECT max(ts) FROM t WHERE k = 'nosuch')"),
                "(SELECT max(ms) - INTERVAL 1 HOUR FROM c WHERE id < 20)",
            ]
        )
        if rng.random() < 0.4:
            base = f"{base} {rng.choice('+-')} {self.span()}"
        if rng.random() < 0.2:
            base = f"date_trunc('{rng.choice(['minute', 'hour', 'day', 'week', 'month'])}', {base})"
        return base

    def time(self, column: str) -> str:
        rng = self.rng
        op = rng.choice(["=", "<", "<=", ">", ">=", "<>"])
        match rng.randrange(9):
            case 0 | 1 | 2:
                return f"{column} {op} {self.moment()}"
            case 3:
                return f"{column} BETWEEN {self.moment()} AND {self.moment()}"
            case 4:
                day = rng.choice(["current_date", "today() - 1", f"DATE '{moments(rng).date()}'", self.moment()])
                return f"{column}::DATE {op} {day}"
            case 5:
                part = rng.choice(["second", "minute", "hour", "day", "week", "month", "year"])
                return f"date_trunc('{part}', {column}) {op} {self.moment()}"
            case 6:
                function, unit = rng.choice([("epoch", 1), ("epoch_ms", 10**3), ("epoch_us", 10**6)])
                return f"{function}({column}::TIMESTAMP) {op} {(NOW.timestamp() + rng.choice([0, 1, -3600])) * unit:.0f}"
            case 7:
                return f"now()::TIMESTAMP - {column}::TIMESTAMP {op} {self.span()}"
        return f"{column} {rng.choice('+-')} {self.span()} {op} {self.moment()}"

    def text(self, column: str) -> str:
        rng = self.rng
        word = rng.choice(TEXTS)
        match rng.randrange(7):
            case 0 | 1:
                return f"{column} {rng.choice(['', 'NOT '])}LIKE '{word}{rng.choice(['%', '_', '', '%a', '%%'])}'"
            case 2:
                return f"{rng.choice(['starts_with', 'prefix'])}({column}, '{word}')"
            case 3:
                return f"{column} ^@ '{word}'"
            case 4:
                return f"{rng.choice(['left(' + column, 'substr(' + column + ', 1'])}, {rng.randrange(4)}) = '{word}'"
            case 5:
                return f"{column} LIKE '{word.replace('_', '$_').replace('%', '$%')}%' ESCAPE '$'"
        return f"{column} IN (SELECT {rng.choice(['k FROM t', 's FROM y'])} WHERE n < {rng.randrange(10)})"

    def number(self, column: str) -> str:
        rng = self.rng
        low, high = sorted(rng.choices(range(-2, 45), k=2))
        return rng.choice(
            [
                *(f"{column} = {low} + 1", f"{column} > {low} AND {column} <= {high}", f"{column} = ANY([{low}, {high}])"),
                f"{column} IN (SELECT n FROM t WHERE n BETWEEN {low} AND {high})",
                f"EXISTS (SELECT 1 FROM t AS other WHERE other.n = {column} AND other.n < {high})",
            ]
        )

    def condition(self, names: dict[str, str], depth: int = 0) -> str:
        rng = self.rng
        if depth < 2 and rng.random() < 0.5:
            parts = [self.condition(names, depth + 1) for _ in range(rng.randrange(2, 4))]
            joined = f" {rng.choice(['AND', 'AND', 'OR'])} ".join(f"({one})" for one in parts)
            return f"NOT ({joined})" if rng.random() < 0.2 else joined
        kind = rng.choice([*names, "other"])
        if kind == "other":
            return rng.choice(["n IS NULL", "n > 5", "n % 2 = 0"]).replace("n", names["prefix"] + "n", 1)
        return getattr(self, {"text": "text", "time": "time", "number": "number"}[kind])(names[kind]) if kind != "prefix" else "true"

    def statement(self) -> str:
        rng = self.rng
        name = rng.choice("tzcy")
        columns = {"t": {"text": "k", "time": "ts"}, "z": {"number": "id", "time": "seen"}, "c": {"number": "id", "time": "ms"},
                   "y": {"text": "s", "time": "d"}}[name]  # fmt: skip
        quoted = {kind: f'x."{column}"' for kind, column in columns.items()} | {"prefix": "x."}
        where = self.condition(quoted)
        match rng.randrange(6):
            case 0:
                return f"SELECT count(*) AS n FROM {name} AS x WHERE {where}"
            case 1:
                return f"WITH r AS (SELECT * FROM {name}) SELECT n, count(*) AS m FROM r AS x WHERE {where} GROUP BY n"
            case 2:
                key = "id" if "number" in columns else "n"
                return f"SELECT x.n, o.id FROM {name} AS x JOIN (SELECT id FROM z WHERE n < 3) o ON x.{key} = o.id WHERE {where}"
            case 3:
                return f"SELECT o.n, x.n AS m FROM c AS o LEFT JOIN {name} AS x ON o.n = x.n AND ({where}) WHERE o.id < 4"
            case 4:
                return f"SELECT n FROM (SELECT * FROM {name} AS x WHERE {where}) AS q WHERE n > 3"
        return f"SELECT * FROM {name} AS x WHERE {where}"


def test_the_answers_are_duckdbs(pair: tuple[tw.Warehouse, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_time, "moment", lambda: NOW)
    monkeypatch.setattr(small, "_WORTH", 0)
    monkeypatch.setattr(small, "_PART", 1)
    changed: list[str] = []
    meaning = Statement.meaning
    monkeypatch.setattr(Statement, "meaning", lambda self, node: changed.append(self.original) or meaning(self, node))
    wh, duck = pair
    seed = random.randrange(10**9) if examples(1) > 1 else 20260302
    print(f"seed {seed}")
    made = Conditions(seed)
    answered = 0
    for _ in range(examples(150)):
        statement = made.statement()
        try:
            expected = told(duck.sql(at_the_moment(statement)).to_arrow_table())
        except duckdb.Error:
            with pytest.raises(tw.QueryError):
                wh.sql(statement).to_arrow()
            continue
        answered += 1
        assert told(wh.sql(statement).to_arrow()) == expected, statement
    assert answered > examples(100) and len(changed) > examples(50)


def test_the_where_of_a_query_has_duckdbs_answers(pair: tuple[tw.Warehouse, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_time, "moment", lambda: NOW)
    wh, duck = pair
    seed = random.randrange(10**9) if examples(1) > 1 else 20260303
    print(f"seed {seed}")
    made = Conditions(seed)
    answered = 0
    while answered < examples(100):
        name, names = made.rng.choice(
            [("t", {"text": "k", "time": "ts"}), ("z", {"time": "seen"}), ("c", {"time": "ms"}), ("y", {"text": "s"})]
        )
        where = made.condition(names | {"prefix": ""})
        if "SELECT" in where:
            continue
        answered += 1
        try:
            expected = told(duck.sql(f"SELECT * FROM {name} WHERE {at_the_moment(where)}").to_arrow_table())
        except duckdb.Error:
            continue
        assert told(wh.table(name).query(where=where).to_arrow()) == expected, where
