"""Groups, DISTINCT, ORDER BY and LIMIT of one table without DuckDB have DuckDB's answer, names and types, here and attached."""

from __future__ import annotations

import datetime as dt
import math
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK, check_nothing_left
from tidewheel.cluster.client import attach
from tidewheel.sql import answer
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.run_statement import ask

SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
DAY = dt.datetime(2026, 1, 1)
TRIES = 1500 if SOAK else 120
ROWS = 6_000  # more than a table has that is not worth a look from its end
SCHEMA = pa.schema(
    [
        ("k", pa.int64()), ("ts", pa.timestamp("us")), ("i1", pa.int8()), ("i4", pa.int32()), ("u8", pa.uint64()), ("f4", pa.float32()),
        ("f8", pa.float64()), ("s", pa.string()), ("ok", pa.bool_()), ("day", pa.date32()), ("d", pa.decimal128(25, 2)),
        ("Odd name", pa.int16()),
    ]
)  # fmt: skip


def _float(rng: random.Random) -> float:
    """Mostly quarters of small numbers: their sums are the same in any order."""
    return rng.choice([rng.randrange(-200, 200) / 4, rng.randrange(-20, 20) / 4, *([math.nan, -0.0, 0.0] if rng.random() < 0.1 else [])])


def _row(rng: random.Random) -> dict[str, Any]:
    values = {
        "i1": rng.choice([-128, 127, 0, rng.randrange(-5, 5)]), "i4": rng.randrange(-40, 40),
        "u8": rng.choice([0, 2**64 - 1, 2**63, rng.randrange(9)]),
        "f4": _float(rng), "f8": _float(rng), "s": rng.choice(["", "a", "ab", "B", "é", "\U0001f600", "b" * 20, "b" * 20 + "c"]),
        "ok": rng.random() < 0.5, "day": (DAY + dt.timedelta(days=rng.randrange(-3, 3))).date(),
        "d": rng.choice([0, 10**20, -(10**20), rng.randrange(50)]),
        "Odd name": rng.randrange(3),
    }  # fmt: skip
    return {"k": rng.randrange(60), "ts": DAY + dt.timedelta(seconds=rng.randrange(3600))} | {
        name: None if rng.random() < 0.15 else value for name, value in values.items()
    }


@pytest.fixture(scope="module", autouse=True)
def nothing_left_at_last() -> Iterator[None]:
    yield
    check_nothing_left()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any, Any]]:
    """Half in chunks, half in memory, some replaced; the engine of a process that is attached; and DuckDB with the same rows."""
    print(f"TIDEWHEEL_SEED={SEED}")
    rng = random.Random(SEED)
    root = tmp_path_factory.mktemp("groups") / "wh"
    with tw.open(root, settings=tw.Settings(leaf_rows=64)) as wh, duckdb.connect() as duck:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        rows = pa.Table.from_pylist([_row(rng) for _ in range(ROWS)], SCHEMA)
        for at in range(0, ROWS // 2, 1000):
            table.insert(rows.slice(at, 1000))
            table.flush()
        for at in range(ROWS // 2, ROWS, 500):
            table.insert(rows.slice(at, 500))
        table.replace([], time=(DAY + dt.timedelta(seconds=100), DAY + dt.timedelta(seconds=130)))
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("held", table.query().to_arrow())
        duck.execute("CREATE TABLE t AS SELECT * FROM held")
        other = attach(root)
        yield wh, other, duck
        other.close()


CONDITIONS = (
    "k = 7", "k BETWEEN 10 AND 30", "k IN (3, 4, 59)", "k < 5 OR k > 55", "ts >= '2026-01-01 00:30:00'", "i4 > 5", "f8 < 0.5", "s = 'a'",
    "s IS NULL", "NOT i4 = 3", "day = DATE '2026-01-01'", "k = 999", "i4 IN (1, 2, 3) AND ts < '2026-01-01 00:10:00'", "f8 IS NOT NULL",
)  # fmt: skip
KEYS = (
    "k", "i1", "i4", "u8", "f4", "f8", "s", "ok", "day", '"Odd name"', "date_trunc('minute', ts)", "date_trunc('hour', ts)",
    "time_bucket(INTERVAL '5 minutes', ts)", "k % 7", "k // 10", "extract(minute FROM ts)", "floor(f8)", "CAST(ts AS DATE)", "t.s",
)  # fmt: skip
AGGREGATES = (
    "count(*)", "count(s)", "sum(i4)", "sum(i4)::BIGINT", "min(f8)", "max(f8)", "avg(i4)", "max(ts)", "min(day)", "max(s)", "sum(f8)",
    "count(DISTINCT i4)", "bool_and(ok)", "min(k)", "max(u8)",
)  # fmt: skip
COLUMNS = ("k", "ts", "i1", "i4", "u8", "f4", "f8", "s", "ok", "day", "d", '"Odd name"')


def _where(rng: random.Random) -> str:
    chosen = rng.sample(CONDITIONS, rng.choice([0, 0, 1, 1, 2]))
    return f" WHERE {' AND '.join(f'({one})' for one in chosen)}" if chosen else ""


def _order(rng: random.Random, terms: list[str]) -> str:
    return ", ".join(term + rng.choice(["", " ASC", " DESC"]) + rng.choice(["", "", " NULLS FIRST", " NULLS LAST"]) for term in terms)


def _tail(rng: random.Random) -> str:
    return rng.choice(["", f" LIMIT {rng.randrange(8)}", f" LIMIT {rng.randrange(1, 40)} OFFSET {rng.randrange(12)}"])


def grouped(rng: random.Random) -> str:
    keys = rng.sample(KEYS, rng.choice([1, 1, 2, 3]))
    aggregates = rng.sample(AGGREGATES, rng.choice([0, 1, 2, 3]))
    named = [
        (one, f"{one} AS c{i}", f"c{i}") if rng.random() < 0.4 else (one, one, str(i + 1)) for i, one in enumerate([*keys, *aggregates])
    ]
    rng.shuffle(named)
    items = [one for _, one, _ in named]
    by = rng.choice([", ".join(keys), "ALL"])
    places = {text: rng.choice([str(i + 1), alias if not alias.isdigit() else text]) for i, (text, _, alias) in enumerate(named)}
    order = [places[one] for one in rng.sample(aggregates, rng.randrange(len(aggregates) + 1))] + [places[key] for key in keys]
    return f"SELECT {', '.join(items)} FROM t{_where(rng)} GROUP BY {by} ORDER BY {_order(rng, order)}{_tail(rng)}"


def distinct(rng: random.Random) -> str:
    keys = rng.sample(KEYS, rng.choice([1, 2, 3]))
    numbers = [str(i + 1) for i in range(len(keys))]
    rng.shuffle(numbers)
    return f"SELECT DISTINCT {', '.join(keys)} FROM t{_where(rng)} ORDER BY {_order(rng, numbers)}{_tail(rng)}"


def ordered(rng: random.Random) -> str:
    """In an order that tells all rows apart, as far as they are shown."""
    shown = rng.sample(COLUMNS, rng.randrange(1, 5))
    first = rng.sample(COLUMNS, rng.randrange(3))
    terms = [*first, *(column for column in shown if column not in first)]
    limit = rng.choice([f" LIMIT {rng.randrange(60)}", f" LIMIT {rng.randrange(1, 30)} OFFSET {rng.randrange(3000)}", ""])
    return f"SELECT {', '.join(shown)} FROM t{_where(rng)} ORDER BY {_order(rng, terms)}{limit}"


def last(rng: random.Random) -> str:
    """The last rows of keys; what is shown of them is the same for all rows with the same key and time."""
    order, tail = _order(rng, ["k", "ts"]), _tail(rng)
    window = "row_number() OVER (PARTITION BY k ORDER BY ts DESC)"
    return rng.choice(
        [
            f"SELECT DISTINCT ON (k) k, ts FROM t{_where(rng)} ORDER BY {rng.choice(['k, ts DESC', 'ts DESC, k'])}{tail}",
            f"SELECT k, ts FROM t{_where(rng)} QUALIFY {window} = 1 ORDER BY {order}{tail}",
            f"SELECT q.ts, k FROM (SELECT *, {window} AS n FROM t{_where(rng)}) AS q WHERE n = 1 ORDER BY {order}{tail}",
            f"SELECT k, max(ts), arg_max(k, ts) FROM t{_where(rng)} GROUP BY k ORDER BY {_order(rng, ['k'])}{tail}",
        ]
    )


REST = (
    "count(*) * 2", "avg(i4) / 10", "sum(i4) + count(*)", "sum(count(*)) OVER ()", "max(f8) - min(f8)", "sum(i4)", "round(avg(i4), 2)",
    "CASE WHEN count(*) > 5 THEN 'many' ELSE 'few' END", "CAST(sum(i4) AS VARCHAR)", "count(DISTINCT s) + 1", "max(ts) - min(ts)",
    "count(*) > 4 AND bool_or(ok)", "sum(k)::BIGINT", "coalesce(sum(i4), 0)",
)  # fmt: skip
HAVING = ("count(*) > 3", "sum(i4) > 10 OR min(i4) IS NULL", "max(f8) < 5", "avg(k) BETWEEN 10 AND 50", "count(DISTINCT i4) <> 2")


def rest(rng: random.Random) -> str:
    """What DuckDB makes of groups."""
    keys = rng.sample(KEYS, rng.choice([0, 1, 1, 2]))
    made = rng.sample(REST, rng.choice([1, 2, 3]))
    numbers = [str(i + 1) for i in range(len(keys))]
    grouped = f" GROUP BY {rng.choice([', '.join(keys), ', '.join(numbers)])}" if keys else ""
    having = f" HAVING {rng.choice(HAVING)}" if rng.random() < 0.5 else ""
    order = f" ORDER BY {_order(rng, numbers)}{_tail(rng)}" if keys else ""
    return f"SELECT {', '.join([*keys, *made])} FROM t{_where(rng)}{grouped}{having}{order}"


ALIASES = ("k", "K", "i4", "x", "X", "ok", "n", "x_1", "k_1")
PLAIN = ("k", "i4", "ok", "i1", "k + 1", "k % 3", "f8")
MADE = ("count(*)", "max(i4)", "sum(i4)", "count(*) / 2", "avg(k) + 1", "min(k)")


def shadowed(rng: random.Random) -> str:
    """Aliases that are names of columns, or of two things, in HAVING and around a part of a statement; some are wrong."""
    keys, made = rng.sample(PLAIN, rng.choice([1, 1, 2, 3])), rng.sample(MADE, rng.choice([1, 1, 2]))
    items = [(one, rng.choice(ALIASES) if rng.random() < 0.6 else "") for one in (*keys, *made)]
    by = (
        "ALL"
        if rng.random() < 0.5
        else ", ".join(rng.choice([key, alias or key, str(i + 1)]) for i, (key, alias) in enumerate(items[: len(keys)]))
    )
    names = [alias or one for one, alias in items if alias or one.isidentifier()] + ["k", "i4", "x"]
    said = ", ".join(f"{one} AS {alias}" if alias else one for one, alias in items)
    text = f"SELECT {said} FROM t{rng.choice(['', ' WHERE i4 > 5'])} GROUP BY {by}"
    if rng.random() < 0.6:
        text += f" HAVING {_compared(rng, [*names, 't.k', 'k + 1', 'max(k)', 'max(x)', 'count(*)'])}"
    around = _compared(rng, [f"{rng.choice(['', 'g.'])}{name}" for name in names])
    return rng.choice(
        [
            text,
            f"SELECT * FROM ({text}) g WHERE {around}",
            f"WITH g AS ({text}) SELECT * FROM g WHERE {around}",
            f"SELECT * FROM ({text}) g {rng.choice(['', 'LEFT '])}JOIN (VALUES (3, 'c'), (7, 'g')) b(k, name) ON g.{names[0]} = b.k",
        ]
    )


def _compared(rng: random.Random, names: list[str]) -> str:
    parts = [f"{rng.choice(names)} {rng.choice(['> 2', '= 3', 'IN (3, 20)', 'BETWEEN 1 AND 30'])}" for _ in range(rng.choice([1, 1, 2]))]
    return rng.choice([" AND ", " OR "]).join(parts)


def shown(table: pa.Table) -> list[str]:
    """Rows as texts: NaN is itself, and both zeros are one."""
    return [repr([value + 0.0 if isinstance(value, float) else value for value in row.values()]) for row in _rows(table)]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return pa.Table.from_arrays(table.columns, [str(i) for i in range(table.num_columns)]).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [grouped, distinct, ordered, last, rest])
@pytest.mark.parametrize("attached", [False, True])
def test_the_answer_is_duckdbs(filled: tuple[tw.Warehouse, Any, Any], kind: Any, attached: bool) -> None:
    wh, other, duck = filled
    rng = random.Random(SEED + attached)
    direct = 0
    for _ in range(TRIES // 3 if attached else TRIES):
        text = kind(rng)
        expected, wrong = None, ""
        try:
            expected = duck.sql(text).to_arrow_table()
        except duckdb.Error as e:
            wrong = str(e)
        if expected is None:
            with pytest.raises(tw.QueryError):
                ask(other, text, None, time.perf_counter()).to_arrow() if attached else wh.sql(text).to_arrow()
            assert wrong, text
            continue
        result = ask(other, text, None, time.perf_counter()) if attached else wh.sql(text)
        found = result.to_arrow()
        direct += isinstance(result, DirectResult) or kind is rest and bool(result.before)
        assert found.schema.names == expected.schema.names, f"seed {SEED}: {text}"
        assert found.schema.types == expected.schema.types, f"seed {SEED}: {text}"
        assert shown(found) == shown(expected), f"seed {SEED}: {text}"
    assert direct > (TRIES // 3 if attached else TRIES) // 3, direct


def test_the_same_statement_through_its_shape(filled: tuple[tw.Warehouse, Any, Any]) -> None:
    wh, _, duck = filled
    for limit in (1, 5, 3):
        for low in (10, -3, 20):
            what = f"SELECT date_trunc('minute', ts) AS m, count(*) FROM t WHERE i4 > {low}"
            text = f"{what} GROUP BY m ORDER BY 2 DESC, m LIMIT {limit} OFFSET 1"
            result = wh.sql(text)
            assert isinstance(result, DirectResult)
            assert result.fetchall() == duck.sql(text).fetchall(), text


def test_names_that_are_those_of_several_things(filled: tuple[tw.Warehouse, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_WORTH", 0)
    wh, _, duck = filled
    rng, answers, tries = random.Random(SEED if SOAK else 15), 0, TRIES // 3
    for _ in range(tries):
        text = shadowed(rng)
        try:
            expected = duck.sql(text).to_arrow_table()
        except duckdb.Error:
            with pytest.raises(tw.QueryError):
                pytest.fail(f"seed {SEED}: {text}: {wh.sql(text).to_arrow().num_rows} rows")
            continue
        answers += 1
        found = wh.sql(text).to_arrow()
        assert found.schema.names == expected.schema.names and found.schema.types == expected.schema.types, f"seed {SEED}: {text}"
        assert sorted(_values(found)) == sorted(_values(expected)), f"seed {SEED}: {text}"
    assert answers > tries // 5


def _values(table: pa.Table) -> list[str]:
    """As `shown`, of columns that may have one name."""
    return shown(table.rename_columns([str(i) for i in range(table.num_columns)]))
