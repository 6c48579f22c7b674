"""Definitions as this Spark analyses them: the same as recorded, refused where they should be; and bounds hold for rows that come."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import SOAK
from tests.unit.plans.definitions import DEFINITIONS, KEYS, TABLES, TIMES, Definition
from tests.unit.plans.random_definitions import Maker
from tests.unit.plans.record import analyse, recorded
from tidewheel.derive.bounds import Bounds
from tidewheel.derive.determinism import judge
from tidewheel.derive.inference import infer
from tidewheel.derive.modes import Append, Keys, Merge, Mode, decide
from tidewheel.derive.plan_words import normalised
from tidewheel.errors import SchemaError
from tidewheel.spark.analysed import PINNED, analyse_function, analyse_sql, called, parameters, pinned_session, sources_of
from tidewheel.spark.no_actions import no_actions
from tidewheel.spark.types import known_schema

PLANS = recorded()
FAST = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
QUARTER = 900 * 10**6
STARTS = (1_767_225_600 * 10**6, 1_767_225_600 * 10**6, -3 * 4 * QUARTER)
"""2026-01-01, in microseconds; and three hours before 1970, towards which some functions round."""


# ---- analysis -----------------------------------------------------------------------------------------------


def test_plans_are_as_recorded(spark: SparkSession) -> None:
    """All of them in a soak; plans of another Spark may look different as long as they mean the same."""
    names = (
        list(DEFINITIONS) if SOAK else ["tumbling", "cte_twice", "band_join", "lateral", "asof_band", "range_frame", "windowed", "try_sum"]
    )
    for name in names:
        definition = DEFINITIONS[name]
        live = analyse(spark, definition)
        assert infer(live.plan_json, TIMES, definition.time) == infer(PLANS[name], TIMES, definition.time), name
        assert normalised(live.plan_json) == PLANS[name], (
            f"{name}: record it again (python -m tests.unit.plans.record), and look at what changed"
        )


def test_columns_and_types(spark: SparkSession) -> None:
    found = analyse_sql(spark, "SELECT *, date_trunc('hour', ts) h FROM Taxi", TABLES)
    assert found.columns == ("plate", "ts", "speed", "n", "h")
    assert found.schema.types == [pa.int32(), pa.timestamp("us"), pa.float64(), pa.int64(), pa.timestamp("us", tz="UTC")]
    assert found.source_columns == {"taxi": ("plate", "ts", "speed", "n")}
    assert found.deterministic
    assert not analyse_sql(spark, "SELECT ts, rand() FROM taxi", TABLES).deterministic


def test_the_users_session_stays_as_it_is(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.sql("SELECT 1 AS taxi").createOrReplaceTempView("taxi")  # another taxi, which nobody means
    try:
        assert SparkSession.active() is spark
        found = analyse_sql(spark, "SELECT ts, CAST(code AS INT) c FROM alarm JOIN taxi USING (ts)", TABLES)
        assert found.columns == ("ts", "c")
        assert SparkSession.active() is spark
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
        assert spark.catalog.tableExists("taxi") and not spark.catalog.tableExists("alarm")
        with pytest.raises(SchemaError):
            analyse_sql(spark, "SELECT nothing FROM taxi", TABLES)
        assert SparkSession.active() is spark
        assert [tuple(row) for row in spark.sql("SELECT * FROM taxi").collect()] == [(1,)]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.catalog.dropTempView("taxi")


def test_sources(spark: SparkSession) -> None:
    assert sources_of(spark, "SELECT * FROM Taxi JOIN alarm USING (plate) WHERE plate IN (SELECT plate FROM taxi)") == ["Taxi", "alarm"]
    assert sources_of(spark, "WITH taxi AS (SELECT * FROM taxi), b AS (SELECT * FROM taxi) SELECT * FROM b, LATERAL (SELECT * FROM c)") == [
        "taxi",
        "c",
    ]
    assert sources_of(spark, "SELECT 1") == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT (ts FROM taxi", "Spark cannot read this definition: .*PARSE_SYNTAX_ERROR"),
        ("DROP TABLE taxi", "a definition is one query"),
        ("INSERT INTO taxi SELECT * FROM taxi2", "a definition is one query"),
        ("WITH a AS (SELECT * FROM taxi) INSERT INTO taxi2 SELECT * FROM a", "a definition is one query"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM taxi", "a definition is one query"),
        ("SELECT * FROM other.taxi", "write taxi"),
        ("SELECT * FROM taxis", "there is no table 'taxis'"),
        ("SELECT velocity, ts FROM taxi", "velocity"),
        ("SELECT ts, ts AS TS FROM taxi", "columns come out twice"),
        ("SELECT ts, NULL AS nothing FROM taxi", "'nothing' is void"),
    ],
)
def test_refused(spark: SparkSession, sql: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        analyse_sql(spark, sql, TABLES)


# ---- functions ----------------------------------------------------------------------------------------------


def collects(taxi: DataFrame) -> DataFrame:
    plates = [row.plate for row in taxi.select("plate").distinct().collect()]
    return taxi.where(taxi.plate.isin(plates))


def pivots(taxi: DataFrame) -> DataFrame:
    return taxi.groupBy("ts").pivot("plate").count()


def writes_rows(taxi: DataFrame) -> DataFrame:
    taxi.write.format("noop").mode("append").save()
    return taxi


def returns_nothing(taxi: DataFrame) -> None:
    return None


def changes(taxi: DataFrame) -> DataFrame:
    changes.calls = getattr(changes, "calls", 0) + 1  # type: ignore[attr-defined]
    return taxi.where(f"plate > {changes.calls}")  # type: ignore[attr-defined]


def knows_no_such_table(taxis: DataFrame) -> DataFrame:
    return taxis


def takes_anything(**tables: DataFrame) -> DataFrame:
    return tables["taxi"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (collects, r"collects\(\) calls collect"),
        (pivots, "give pivot\\(\\) the values"),
        (writes_rows, "calls write"),
        (returns_nothing, "returned NoneType"),
        (changes, "two different plans"),
        (knows_no_such_table, "there is no table 'taxis'"),
        (takes_anything, "its parameters are its sources"),
    ],
)
def test_functions_refused(spark: SparkSession, function: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        analyse_function(spark, function, TABLES)
    assert SparkSession.active() is spark


def test_of_another_session(spark: SparkSession) -> None:
    other = spark.range(1).selectExpr("CAST(NULL AS TIMESTAMP) ts")
    with pytest.raises(SchemaError, match="of another session"):
        analyse_function(spark, lambda taxi: other, TABLES)


def test_no_actions_is_for_this_thread(spark: SparkSession) -> None:
    import threading

    found: list[int] = []
    with no_actions("f()"):
        with pytest.raises(SchemaError, match="f\\(\\) calls count"):
            spark.range(3).count()
        other = threading.Thread(target=lambda: found.append(spark.range(3).count()))
        other.start()
        other.join()
    assert found == [3] and spark.range(4).count() == 4


# ---- bounds hold --------------------------------------------------------------------------------------------


def bounded(plan: str, time: str = "ts") -> Mapping[str, Bounds] | None:
    """The bounds of a definition that can be tried: all are known, and it depends on nothing but its rows."""
    if judge(plan, trusted=frozenset({"*"})).refusals:
        return None
    found = infer(plan, TIMES, time)
    return None if found.refusals else found.bounds


Row = dict[str, Any]

NEAR = (0, 0, 0, -1, 1, 60 * 10**6, 90 * 10**6, 300 * 10**6, 300 * 10**6 - 1)


def moment(rng: random.Random, start: int, spread: int) -> int:
    """Microseconds: often at, or beside, the beginning of a quarter of an hour, or as far from it as definitions look."""
    at = start + rng.randrange(spread)
    return at if rng.random() < 0.3 else at // QUARTER * QUARTER + rng.choice(NEAR)


def row(rng: random.Random, table: str, start: int, spread: int) -> Row:
    stamps = {
        name: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=moment(rng, start, spread)) for name in ("ts", "valid_from", "valid_to")
    }
    made: dict[str, Any] = {}
    for field in TABLES[table]:
        if pa.types.is_timestamp(field.type):
            made[field.name] = stamps[field.name]
        elif pa.types.is_decimal(field.type):
            made[field.name] = rng.randrange(100)
        elif pa.types.is_string(field.type):
            made[field.name] = rng.choice("abc")
        else:
            made[field.name] = rng.randrange(0, 200) / 2 if field.name == "speed" else rng.randrange(1, 4)
        if field.nullable and field.name not in ("plate", "host") and rng.random() < 0.1:
            made[field.name] = None
    return made


def answer(session: SparkSession, definition: Definition, rows: Mapping[str, list[Row]]) -> list[Row]:
    for name, several in rows.items():
        table = pa.Table.from_pylist(several, schema=TABLES[name])
        session.createDataFrame(table, known_schema(TABLES[name])).createOrReplaceTempView(name)
    text = definition.text
    frame = called(text, session, parameters(text)) if callable(text) else session.sql(text)
    found: list[Row] = frame.toArrow().to_pylist()
    return found


def bag(rows: list[Row]) -> Counter[tuple[Any, str]]:
    return Counter((row.get("ts"), repr(sorted(row.items()))) for row in rows)


def nanoseconds(time: Any) -> int:
    if not isinstance(time, dt.datetime):
        time = dt.datetime(time.year, time.month, time.day)
    return (time.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1000


def mutations(spark: SparkSession, name: str, definition: Definition, plan: str, seed: int, count: int) -> int:
    """Insert so many rows, one by one, each time into the first rows. What changes lies within bounds, and what the modes do instead of
    computing all anew gives the same; returns how often the answer changed."""
    bounds = bounded(plan)
    assert bounds is not None
    rng = random.Random(f"{name} {seed}")
    spread = rng.choice((2, 6, 6, 24 * 40)) * 4 * QUARTER
    start = rng.choice(STARTS)
    rows = {table: [row(rng, table, start, spread) for _ in range(rng.choice((3, 12, 30)))] for table in bounds}
    changed = 0
    with pinned_session(spark, {**PINNED, **FAST, **definition.confs}) as session:
        before = answer(session, definition, rows)
        for _ in range(count):
            source = rng.choice(list(bounds))
            new = row(rng, source, start, spread)
            after = answer(session, definition, {**rows, source: [*rows[source], new]})
            differ = (bag(before) - bag(after)) + (bag(after) - bag(before))
            at = nanoseconds(new[TIMES[source]])
            lo, hi = bounds[source].reach(at, at)
            outside = [one for one in differ if not lo <= nanoseconds(one[0]) <= hi]
            assert not outside, f"{name}: {new} of {source} reaches {lo}..{hi} ({bounds[source]}), but these changed: {outside[:3]}"
            # now with rows of other sources that come at the same time
            came = {source: [new]} | {other: [row(rng, other, start, spread)] for other in bounds if other != source and rng.random() < 0.5}
            after = (
                after if len(came) == 1 else answer(session, definition, {table: [*rows[table], *came.get(table, [])] for table in rows})
            )
            for mode in decide(plan, DERIVED_KEYS.get(name, KEYS[source]), KEYS).holds:
                made = maintained(session, definition, mode, rows, before, came)
                assert made is None or bag(made) == bag(after), f"{name}, {mode}: {came}, seed {seed}"
            changed += bool(differ)
    return changed


DERIVED_KEYS = {"merge_filtered": "cab"}


def maintained(
    session: SparkSession,
    definition: Definition,
    mode: Mode,
    rows: Mapping[str, list[Row]],
    before: list[Row],
    came: Mapping[str, list[Row]],
) -> list[Row] | None:
    """What a mode makes of the rows that are there when source rows come; None: nothing of its own."""
    match mode:
        case Append() | Merge():
            few = next((some for some in mode.sources if set(came) <= set(some)), None)
            if few is None:
                return None
            found = answer(session, definition, {table: came.get(table, []) if table in few else rows[table] for table in rows})
            return [*before, *found] if isinstance(mode, Append) else merged(mode, before, found)
        case Keys() if set(came) <= set(mode.sources):
            keys = {one[mode.sources[table]] for table, several in came.items() for one in several}
            some = {table: [*several, *came.get(table, [])] for table, several in rows.items()}
            some |= {table: [one for one in some[table] if one[key] in keys] for table, key in mode.sources.items() if table in some}
            anew = answer(session, definition, some)
            return [one for one in before if one[mode.column] not in keys] + [one for one in anew if one[mode.column] in keys]
    return None


def merged(mode: Merge, before: list[Row], new: list[Row]) -> list[Row]:
    how = {"sum": sum, "min": min, "max": max}
    found = {tuple(one[name] for name in mode.groups): dict(one) for one in before}
    assert len(found) == len(before)
    for one in new:
        group = tuple(one[name] for name in mode.groups)
        there = found.get(group)
        if there is None:
            found[group] = one
            continue
        for name, what in mode.combine.items():
            values = [value for value in (there[name], one[name]) if value is not None]
            there[name] = how[what](values) if values else None
        for name, (total, n) in mode.ratios.items():
            there[name] = there[total] / there[n] if there[n] else None
    return list(found.values())


def test_bounds_hold(spark: SparkSession) -> None:
    """Four definitions with a row each, other ones each time; all of them with many in a soak."""
    seed = random.randrange(10**6)
    names = [name for name in DEFINITIONS if bounded(PLANS[name]) is not None]
    some = names if SOAK else random.Random(seed).sample(names, 4)
    turns, count = (5, 10) if SOAK else (1, 1)
    changed = sum(mutations(spark, n, DEFINITIONS[n], PLANS[n], seed + turn, count) for n in some for turn in range(turns))
    assert changed > len(names) // 4 or not SOAK, f"next to nothing changed, seed {seed}"


def test_bounds_of_random_definitions_hold(spark: SparkSession) -> None:
    first = random.randrange(10**6)
    tried = changed = 0
    for seed in range(first, first + (400 if SOAK else 2)):
        definition = Definition(Maker(seed).definition(), {})
        plan = analyse(spark, definition).plan_json
        if bounded(plan) is not None:
            tried += 1
            changed += mutations(spark, str(definition.text), definition, plan, seed, 3 if SOAK else 1)
    assert tried > 200 and changed > 200 or not SOAK, f"next to nothing was tried from seed {first} on"
