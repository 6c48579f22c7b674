"""Modes of definitions over several sources, with DuckDB as the computer: each gives what the query gives from scratch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.unit.test_refresher import HOUR, SCHEMA, check, derive, pass_over, rows
from tidewheel.derive.bounds import EVERYTHING, Bounds, declared
from tidewheel.model.derived import APPEND, KEYS, MERGE, Definition, Mode
from tidewheel.testing.duck_compute import DuckCompute

SAME = declared("0", "0")
BOTH = (("taxi", "cab"),)
BOTH_KEYS = (("taxi", "plate"), ("cab", "plate"))

UNION = "SELECT ts AS hour, plate, speed FROM taxi WHERE speed > 2 UNION ALL SELECT ts, plate, speed + 1 FROM cab"
COUNTS = f"SELECT date_trunc('hour', hour) AS hour, plate, count(*) AS n, sum(speed) AS total FROM ({UNION}) GROUP BY 1, 2"
INNER = "SELECT t.ts AS hour, t.plate, t.speed, c.speed AS other FROM taxi t JOIN cab c ON t.plate = c.plate AND t.ts = c.ts"
LEFT = INNER.replace("JOIN", "LEFT JOIN")
MEDIANS = f"SELECT date_trunc('hour', hour) AS hour, plate, median(speed) AS middle FROM ({UNION}) GROUP BY 1, 2"
PAIRS = f"SELECT date_trunc('hour', hour) AS hour, plate, count(*) AS n, max(other) AS top FROM ({INNER}) GROUP BY 1, 2"
MERGED = Mode(MERGE, "", groups=("hour", "plate"), combine=(("n", "sum"), ("total", "sum")), sources=BOTH)
TOPS = Mode(MERGE, "", groups=("hour", "plate"), combine=(("n", "sum"), ("top", "max")), sources=(("taxi",), ("cab",)))
BY_KEYS = Mode(KEYS, "", column="plate", source_keys=BOTH_KEYS)

SHAPES: dict[str, tuple[str, Bounds, tuple[Mode, ...], dict[str, str]]] = {
    # the query, the bounds of both, the modes; and the mode by what changed
    "union": (UNION, SAME, (Mode(APPEND, "", sources=BOTH),), {"taxi": APPEND, "cab": APPEND, "both": APPEND}),
    "counts": (COUNTS, HOUR, (MERGED, BY_KEYS), {"taxi": MERGE, "cab": MERGE, "both": MERGE}),
    "inner": (INNER, SAME, (Mode(APPEND, "", sources=(("taxi",), ("cab",))),), {"taxi": APPEND, "cab": APPEND, "both": "recompute"}),
    "left": (LEFT, SAME, (Mode(APPEND, "", sources=(("taxi",),)), BY_KEYS), {"taxi": APPEND, "cab": KEYS, "both": KEYS}),
    "pairs": (PAIRS, HOUR, (TOPS,), {"taxi": MERGE, "cab": MERGE, "both": "recompute"}),
    "medians": (MEDIANS, HOUR, (BY_KEYS,), {"taxi": KEYS, "cab": KEYS, "both": KEYS}),
}


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        for name in ("taxi", "cab"):
            wh.create_table(name, SCHEMA, time="ts", key="plate", partition="1 hour")
        yield wh


@pytest.fixture
def duck() -> Iterator[DuckCompute]:
    duck = DuckCompute()
    yield duck
    duck.close()


def some(rng: random.Random, n: int) -> pa.Table:
    """Times that often meet, in four hours."""
    return rows(*((rng.randrange(16) / 4, rng.randrange(4), rng.randrange(10)) for _ in range(n)))


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_come_on_each_side_and_on_both(wh: tw.Warehouse, duck: DuckCompute, shape: str) -> None:
    sql, bounds, modes, wanted = SHAPES[shape]
    derive(wh, duck, shape, sql, {"taxi": bounds, "cab": bounds}, modes, partition="1 hour")
    taxi, cab = wh.table("taxi"), wh.table("cab")
    for table in (taxi, cab):
        table.insert(some(random.Random(1), 60))
    assert pass_over(wh, duck)[shape].mode == "recompute"
    check(wh, shape, sql)
    late = rows((1.25, 1, 7), (1.25, 2, 8))
    for changed, mode in wanted.items():
        for table in (taxi, cab):
            if changed in (table.name, "both"):
                table.insert(late)
        report = pass_over(wh, duck)
        assert report.ok and report[shape].mode == mode, (changed, report)
        check(wh, shape, sql)
    for table in (taxi, cab):
        table.replace(rows((1.25, 1, 3)), time=("2026-01-01 01:00", "2026-01-01 01:30"))
        assert pass_over(wh, duck)[shape].mode == "recompute"
        check(wh, shape, sql)
    taxi.insert(late)
    cab.replace(rows((2.25, 1, 3)), time=("2026-01-01 02:00", "2026-01-01 02:30"))
    assert pass_over(wh, duck).ok
    check(wh, shape, sql)


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_happens(wh: tw.Warehouse, duck: DuckCompute, shape: str) -> None:
    sql, bounds, modes, _ = SHAPES[shape]
    derive(wh, duck, shape, sql, {"taxi": bounds, "cab": bounds}, modes, partition="1 hour")
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    used = set()
    for _ in range(12):
        for name in ("taxi", "cab"):
            if rng.random() < 0.6:
                wh.table(name).insert(some(rng, rng.choice((1, 2, 20))))
            if rng.random() < 0.15:
                hour = rng.randrange(4)
                wh.table(name).replace(some(rng, 0), time=(f"2026-01-01 0{hour}:00", f"2026-01-01 0{hour}:30"))
        report = pass_over(wh, duck)
        assert report.ok, f"seed {seed}: {report}"
        used |= set(report[shape].mode.split(", "))
        try:
            check(wh, shape, sql)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}, {report[shape].mode}") from e
    assert used - {"", "recompute"}, f"seed {seed}"


def test_only_new_rows_of_the_side_that_changed_are_read(wh: tw.Warehouse, duck: DuckCompute) -> None:
    facts = "SELECT t.ts AS hour, t.plate, c.speed FROM taxi t LEFT JOIN cab c USING (plate)"
    mode = Mode(APPEND, "", sources=(("taxi",),))
    derive(wh, duck, "facts", facts, {"taxi": SAME, "cab": EVERYTHING}, [mode], partition="1 hour")
    wh.table("taxi").insert(some(random.Random(2), 100))
    wh.table("cab").insert(rows((0, 1, 5), (0, 2, 6)))
    assert pass_over(wh, duck).ok
    duck.runs.clear()
    wh.table("taxi").insert(rows((1, 1, 1), (3, 7, 1)))
    assert pass_over(wh, duck)["facts"].mode == APPEND and duck.runs == [(facts, {"taxi": 2, "cab": 2})]
    check(wh, "facts", facts)
    wh.table("cab").insert(rows((0, 7, 5)))
    assert pass_over(wh, duck)["facts"].mode == "recompute"
    check(wh, "facts", facts)


def test_keys_of_a_derived_source_and_of_a_base_table(wh: tw.Warehouse, duck: DuckCompute) -> None:
    """What the one says that it changed, and what came to the other."""
    hourly = "SELECT date_trunc('hour', ts) AS hour, plate, count(*) AS n FROM taxi GROUP BY 1, 2"
    both = (
        "SELECT h.hour, h.plate, h.n, c.top FROM hourly h LEFT JOIN "
        "(SELECT date_trunc('hour', ts) AS hour, plate, max(speed) AS top FROM cab GROUP BY 1, 2) c "
        "ON h.hour = c.hour AND h.plate = c.plate"
    )
    counted = Mode(MERGE, "", groups=("hour", "plate"), combine=(("n", "sum"),))
    by = Mode(KEYS, "", column="plate", source_keys=(("hourly", "plate"), ("cab", "plate")))
    derive(wh, duck, "hourly", hourly, {"taxi": HOUR}, [counted], partition="1 hour")
    derive(wh, duck, "both", both, {"hourly": HOUR, "cab": HOUR}, [by], partition="1 hour")
    for name in ("taxi", "cab"):
        wh.table(name).insert(some(random.Random(3), 100))
    assert pass_over(wh, duck).ok
    for changed in (("taxi",), ("cab",), ("taxi", "cab")):
        for plate, name in enumerate(changed):
            wh.table(name).insert(rows((1.1, plate, 9)))
        assert pass_over(wh, duck)["both"].mode == KEYS
        check(wh, "both", both)
    wh.table("cab").replace(some(random.Random(4), 0), time=("2026-01-01 01:00", "2026-01-01 02:00"))
    assert pass_over(wh, duck)["both"].mode == "recompute"
    check(wh, "both", both)


def test_stored_modes_are_read_again() -> None:
    made = Definition("spark-sql", UNION, "", (MERGED, BY_KEYS, Mode("recompute", "")))
    assert Definition.from_json(made.to_json()) == made
    assert MERGED.grown_by(("taxi", "cab")) == BOTH and BY_KEYS.keys_by(("taxi", "cab")) == dict(BOTH_KEYS)
    old = Mode(KEYS, "", column="plate", source_column="plate")
    assert old.keys_by(("taxi",)) == {"taxi": "plate"} and old.keys_by(("taxi", "cab")) == {} == {**dict(old.grown_by(("taxi", "cab")))}
