"""A pass of refreshes, with DuckDB as the computer: every mode gives what the query gives from scratch."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.derive.bounds import EVERYTHING, Bounds, declared
from tidewheel.engine import source_reading
from tidewheel.engine.compute import SourceRows
from tidewheel.engine.operations import CommitRefresh, CreateDerived, GetDerived, PlanRefresh
from tidewheel.engine.protocol import Engine
from tidewheel.engine.refresh_loop import RefreshLoop
from tidewheel.engine.refresher import refresh
from tidewheel.engine.source_reading import RefreshReads
from tidewheel.engine.verifier import verify
from tidewheel.errors import ClosedError, ConflictError, OwnerLostError
from tidewheel.model.derived import APPEND, KEYS, MERGE, RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.schema import make_spec
from tidewheel.model.touched_keys import MOST_KEYS
from tidewheel.testing.duck_compute import DuckCompute

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("plate", pa.int64()), ("speed", pa.int64())])
HOURLY = "SELECT date_trunc('hour', ts) AS hour, plate, count(*) AS n, sum(speed) AS total, max(speed) AS top FROM taxi GROUP BY 1, 2"
START = dt.datetime(2026, 1, 1)

ANEW = Mode(RECOMPUTE, "")
MERGED = Mode(MERGE, "", groups=("hour", "plate"), combine=(("n", "sum"), ("total", "sum"), ("top", "max")))
BY_KEYS = Mode(KEYS, "", column="plate", source_column="plate")
ADDED = Mode(APPEND, "")
HOUR = declared("0", "0", "1 hour")


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate")
        yield wh


@pytest.fixture
def duck() -> Iterator[DuckCompute]:
    duck = DuckCompute()
    yield duck
    duck.close()


def rows(*three: tuple[float, int, int]) -> pa.Table:
    """(hours since the start, plate, speed)."""
    times = [START + dt.timedelta(hours=hour) for hour, _, _ in three]
    return pa.table([times, [p for _, p, _ in three], [s for _, _, s in three]], schema=SCHEMA)


def derive(
    wh: tw.Warehouse, duck: DuckCompute, name: str, sql: str, bounds: Mapping[str, Bounds], modes: Sequence[Mode] = (), **how: Any
) -> None:
    schema = duck.schema(sql, {source: wh.table(source).schema for source in bounds})
    spec = make_spec(name, schema, time=how.pop("time", "hour"), key=how.pop("key", "plate"), partition=how.pop("partition", None))
    definition = Definition(SPARK_SQL, sql, "", (*modes, ANEW), **how)
    wh._engine.do(CreateDerived(spec, definition, tuple((s, b.to_json()) for s, b in bounds.items()), "error"))


def expected(wh: tw.Warehouse, sql: str) -> list[tuple[Any, ...]]:
    return in_order(wh.sql(sql).to_arrow())


def in_order(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def check(wh: tw.Warehouse, name: str, sql: str) -> None:
    assert in_order(wh.table(name).query().to_arrow()) == expected(wh, sql)


def pass_over(wh: tw.Warehouse, duck: DuckCompute, *names: str, **how: Any) -> Any:
    return refresh(wh._engine, duck, names or None, **how)


# ---- a pass ---------------------------------------------------------------------------------------------------


def test_nothing_to_do(wh: tw.Warehouse, duck: DuckCompute) -> None:
    report = pass_over(wh, duck)
    assert report.ok and not report.tables and "no derived table" in str(report)
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    report = pass_over(wh, duck)
    assert report["hourly"].partitions == 0 and report["hourly"].mode == "" and duck.runs == []


def test_only_stale_partitions_are_computed(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    wh.table("taxi").insert(rows((0, 1, 10), (0.5, 1, 30), (1, 2, 5), (7, 1, 1)))
    told: list[tuple[str, int, int]] = []
    report = pass_over(wh, duck, progress=lambda *far: told.append(far))
    assert (report["hourly"].partitions, report["hourly"].changed, report["hourly"].mode) == (3, 3, RECOMPUTE)
    assert (report["hourly"].rows_read, report["hourly"].rows_written) == (4, 3)
    assert told == [("hourly", 3, 3)]
    check(wh, "hourly", HOURLY)
    wh.table("taxi").insert(rows((1.5, 2, 50)))
    report = pass_over(wh, duck)
    assert (report["hourly"].partitions, report["hourly"].rows_read) == (1, 2)
    check(wh, "hourly", HOURLY)
    assert pass_over(wh, duck)["hourly"].partitions == 0


def test_full_and_time(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    wh.table("taxi").insert(rows((0, 1, 10), (1, 2, 5), (7, 1, 1)))
    assert pass_over(wh, duck, "hourly", time=("2026-01-01 00:10", "2026-01-01 00:20"))["hourly"].partitions == 1
    assert pass_over(wh, duck)["hourly"].partitions == 2
    assert pass_over(wh, duck, "hourly", full=True)["hourly"].partitions == 3
    assert pass_over(wh, duck, "hourly", full=True, time=("2026-01-01 07:00", None))["hourly"].partitions == 1
    check(wh, "hourly", HOURLY)


def test_a_chain_and_what_is_named(wh: tw.Warehouse, duck: DuckCompute) -> None:
    daily = "SELECT date_trunc('day', hour) AS hour, plate, sum(n) AS n FROM hourly GROUP BY 1, 2"
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    derive(wh, duck, "daily", daily, {"hourly": declared("0", "0", "1 day")}, partition="1 day")
    derive(wh, duck, "other", HOURLY, {"taxi": HOUR})
    wh.table("taxi").insert(rows((0, 1, 10), (1, 2, 5), (30, 1, 1)))
    report = pass_over(wh, duck, "daily")
    assert [one.name for one in report] == ["hourly", "daily"]
    check(wh, "daily", daily)
    with pytest.raises(tw.NotFoundError):
        pass_over(wh, duck, "dayly")
    with pytest.raises(tw.InputError, match="no derived table"):
        pass_over(wh, duck, "taxi")


def test_a_table_that_fails_stops_only_what_is_made_of_it(wh: tw.Warehouse) -> None:
    def fails(definition: Definition, sources: Mapping[str, SourceRows]) -> None:
        if "broken" in definition.text:
            raise ZeroDivisionError("broken by hand")

    duck = DuckCompute(fails)
    derive(wh, duck, "one", f"{HOURLY} -- broken", {"taxi": HOUR})
    derive(wh, duck, "two", "SELECT * FROM one", {"one": Bounds()})
    derive(wh, duck, "three", HOURLY, {"taxi": HOUR})
    wh.table("taxi").insert(rows((0, 1, 10)))
    report = pass_over(wh, duck)
    assert not report.ok and set(report.errors) == {"one", "two"}
    assert report["one"].error == "broken by hand" and isinstance(report["one"].cause, ZeroDivisionError)
    assert "'one', which it is made of" in report["two"].error
    assert report["three"].changed == 1
    assert "2 errors" in str(report) and "one: broken by hand" in str(report)
    duck.close()


def test_rows_that_do_not_fit_are_an_error_of_their_table(wh: tw.Warehouse, duck: DuckCompute) -> None:
    sql = "SELECT ts AS hour, CASE WHEN speed > 5 THEN plate END AS plate FROM taxi"
    derive(wh, duck, "clean", sql, {"taxi": Bounds()})
    wh.table("taxi").insert(rows((0, 1, 10), (1, 2, 5)))
    report = pass_over(wh, duck)
    assert "1 of 2 rows without 'plate', their key: leave these out with WHERE plate IS NOT NULL" in report["clean"].error
    cause = report["clean"].cause
    assert isinstance(cause, tw.BadRowsError) and (cause.table, cause.column) == ("clean", "plate")


def test_rows_without_a_key_that_are_of_no_touched_key(wh: tw.Warehouse, duck: DuckCompute) -> None:
    """An outer join over the rows of few keys makes rows that the whole has not: these are nobody's."""
    wh.create_table("lanes", pa.schema([("ts", pa.timestamp("us")), ("lane", pa.int64())]), time="ts", key="lane")
    hours = "(SELECT DISTINCT time_bucket(INTERVAL '1 hour', ts) AS hour FROM lanes)"
    taxis = "(SELECT time_bucket(INTERVAL '1 hour', ts) AS hour, plate, median(speed) AS speed FROM taxi GROUP BY 1, 2)"
    sql = f"SELECT coalesce(t.hour, l.hour) AS hour, t.plate, t.speed FROM {taxis} t FULL JOIN {hours} l ON t.hour = l.hour"
    keys = Mode(KEYS, "", column="plate", source_keys=(("taxi", "plate"),))
    derive(wh, duck, "both", sql, {"taxi": HOUR, "lanes": HOUR}, [keys])
    wh.table("lanes").insert([{"ts": START + dt.timedelta(hours=hour), "lane": 1} for hour in (0, 1)])
    wh.table("taxi").insert(rows((0, 1, 10), (1, 2, 5)))
    pass_over(wh, duck)
    wh.table("taxi").insert(rows((0, 1, 30), (1, 3, 4)))
    report = pass_over(wh, duck)
    assert report["both"].mode == KEYS and report["both"].error == ""
    check(wh, "both", sql)


def test_what_lies_outside_of_the_partitions_is_dropped(wh: tw.Warehouse, duck: DuckCompute) -> None:
    sql = "SELECT ts + INTERVAL 1 HOUR AS hour, plate, speed FROM taxi"
    derive(wh, duck, "later", sql, {"taxi": declared("1 hour", "-1 hour")})
    wh.table("taxi").insert(rows(*((hour, 1, hour) for hour in range(10))))
    pass_over(wh, duck, "later", time=("2026-01-01 03:00", "2026-01-01 04:30"))
    assert [row["speed"] for row in wh.table("later").query(order_by="hour").to_pylist()] == [2, 3]
    pass_over(wh, duck)
    check(wh, "later", sql)


def test_all_of_a_source(wh: tw.Warehouse, duck: DuckCompute) -> None:
    wh.create_table(
        "colours", pa.schema([("since", pa.timestamp("us")), ("plate", pa.int64()), ("colour", pa.string())]), time="since", key="plate"
    )
    sql = "SELECT ts AS hour, taxi.plate AS plate, colour FROM taxi JOIN colours ON taxi.plate = colours.plate"
    derive(wh, duck, "coloured", sql, {"taxi": Bounds(), "colours": EVERYTHING})
    wh.table("colours").insert([{"since": START, "plate": 1, "colour": "red"}])
    wh.table("taxi").insert(rows((0, 1, 10), (5, 2, 5)))
    assert pass_over(wh, duck)["coloured"].partitions == 2
    check(wh, "coloured", sql)
    wh.table("colours").insert([{"since": START, "plate": 2, "colour": "blue"}])
    assert pass_over(wh, duck)["coloured"].partitions == 2
    check(wh, "coloured", sql)


# ---- modes ----------------------------------------------------------------------------------------------------


def test_append_reads_only_what_came_since(wh: tw.Warehouse, duck: DuckCompute) -> None:
    sql = "SELECT ts AS hour, plate, speed FROM taxi WHERE speed > 5"
    derive(wh, duck, "fast", sql, {"taxi": Bounds()}, [ADDED])
    wh.table("taxi").insert(rows(*((hour / 2, hour % 3, hour) for hour in range(20))))
    assert pass_over(wh, duck)["fast"].mode == RECOMPUTE
    wh.table("taxi").insert(rows((1.2, 7, 70), (1.3, 7, 1), (4.1, 8, 80), (40, 1, 100)))
    report = pass_over(wh, duck)
    assert report["fast"].mode == "recompute, append" and report["fast"].rows_read == 4
    check(wh, "fast", sql)
    wh.table("taxi").replace(rows((1.1, 3, 9)), time=(START + dt.timedelta(hours=1), START + dt.timedelta(hours=1.9)))
    assert pass_over(wh, duck)["fast"].mode == RECOMPUTE
    check(wh, "fast", sql)


SPED = "SELECT ts AS hour, plate, speed FROM taxi WHERE speed > 5"
MEANS = "SELECT date_trunc('hour', ts) AS hour, plate, avg(speed) AS mean FROM taxi GROUP BY 1, 2"


@pytest.mark.parametrize(("mode", "sql", "bounds"), [(ADDED, SPED, Bounds()), (MERGED, HOURLY, HOUR), (BY_KEYS, MEANS, HOUR)])
def test_sets_are_bounded_by_bytes_in_every_mode(wh: tw.Warehouse, duck: DuckCompute, mode: Mode, sql: str, bounds: Bounds) -> None:
    derive(wh, duck, "one", sql, {"taxi": bounds}, [mode])
    for speed in (10, 20):
        wh.table("taxi").insert(rows(*((hour, 1, speed) for hour in range(8))))
        if speed == 10:
            pass_over(wh, duck)
    wh.table("taxi").flush()
    table = wh._engine.table("one")
    seen = []
    for most in (1, 1, 1 << 29):
        plan = table.do(PlanRefresh(most_bytes=most))
        assert plan is not None and plan.mode.name == mode.name
        seen.append((len(plan.partitions), plan.left))
        if most == 1:
            pass_over(wh, duck, "one", time=(plan.intervals[0][0], plan.intervals[0][0]))
    assert seen == [(1, 7), (1, 6), (6, 0)]
    pass_over(wh, duck)
    check(wh, "one", sql)


def test_new_rows_are_looked_for_and_not_held(wh: tw.Warehouse, duck: DuckCompute, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are so many that Spark reads them by tasks."""
    monkeypatch.setattr(source_reading, "AT_ONCE", -1)
    derive(wh, duck, "fast", SPED, {"taxi": Bounds()}, [ADDED])
    taxi = wh.table("taxi")
    taxi.insert(rows((0, 1, 10), (9, 1, 10)))
    pass_over(wh, duck)
    taxi.insert(rows((0, 2, 10), (9, 3, 10)))
    taxi.flush()
    plan = wh._engine.table("fast").do(PlanRefresh())
    assert plan is not None and plan.mode == ADDED

    def held() -> pa.Table:
        raise AssertionError("all rows were read")

    reading = RefreshReads(wh._engine)
    source = replace(reading.source(plan.sources[0]), arrow=held)
    assert reading.brings_rows(source)
    assert not reading.brings_rows(replace(source, read=replace(source.read, after=source.read.upto)))
    assert sorted(reading.new_keys(source.read, "plate").to_pylist()) == [2, 3]
    assert pass_over(wh, duck)["fast"].mode == APPEND
    check(wh, "fast", SPED)


@pytest.mark.parametrize("plates", [3, MOST_KEYS + 500])
def test_merge_adds_to_the_sums_that_are_there(wh: tw.Warehouse, duck: DuckCompute, plates: int) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR}, [MERGED])
    wh.table("taxi").insert(rows(*((i % 5 / 2, i % plates, i) for i in range(3 * plates))))
    pass_over(wh, duck)
    wh.table("taxi").insert(rows(*((i % 5 / 2, i, 1000) for i in range(plates + 1))))
    duck.runs.clear()
    report = pass_over(wh, duck)
    assert report["hourly"].mode == MERGE
    assert [of for _, of in duck.runs] == [{"taxi": plates + 1}]
    check(wh, "hourly", HOURLY)


def test_merge_of_a_sum_that_overflows_is_no_wrong_sum(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR}, [MERGED])
    wh.table("taxi").insert(rows((0, 1, 2**63 - 2)))
    pass_over(wh, duck)
    wh.table("taxi").insert(rows((0, 1, 5)))
    report = pass_over(wh, duck)
    assert report.errors
    assert wh.table("hourly").query().to_pylist()[0]["total"] == 2**63 - 2


def test_try_sum_is_not_merged_though_the_definition_says_so(wh: tw.Warehouse, duck: DuckCompute) -> None:
    """As definitions do that were made before this was known: a null may be a sum that was too large."""
    derive(wh, duck, "hourly", HOURLY + " -- and not Try_Sum(speed)", {"taxi": HOUR}, [MERGED])
    for speed in (10, 20):
        wh.table("taxi").insert(rows((0, 1, speed)))
        assert pass_over(wh, duck)["hourly"].mode == RECOMPUTE
    check(wh, "hourly", HOURLY)


def test_keys_computes_only_the_keys_that_changed(wh: tw.Warehouse, duck: DuckCompute) -> None:
    sql = "SELECT date_trunc('hour', ts) AS hour, plate, avg(speed) AS mean, count(DISTINCT speed) AS speeds FROM taxi GROUP BY 1, 2"
    derive(wh, duck, "means", sql, {"taxi": HOUR}, [BY_KEYS])
    wh.table("taxi").insert(rows(*((i / 10, i % 20, i) for i in range(400))))
    pass_over(wh, duck)
    wh.table("taxi").insert(rows(*((hour + 0.5, 7, 1) for hour in range(40)), (3.5, 99, 1)))
    duck.runs.clear()
    report = pass_over(wh, duck)
    assert report["means"].mode == KEYS and report["means"].error == ""
    assert [of for _, of in duck.runs] == [{"taxi": 20 + 41}]
    check(wh, "means", sql)


def test_many_keys_are_computed_as_whole_partitions(wh: tw.Warehouse, duck: DuckCompute) -> None:
    sql = "SELECT date_trunc('hour', ts) AS hour, plate, avg(speed) AS mean FROM taxi GROUP BY 1, 2"
    derive(wh, duck, "means", sql, {"taxi": HOUR}, [BY_KEYS])
    wh.table("taxi").insert(rows((0, 1, 1)))
    pass_over(wh, duck)
    wh.table("taxi").insert(rows(*((0, i, 1) for i in range(MOST_KEYS + 1))))
    assert pass_over(wh, duck)["means"].mode == RECOMPUTE
    check(wh, "means", sql)


def test_keys_of_very_many_rows_are_computed_as_whole_partitions(
    wh: tw.Warehouse, duck: DuckCompute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A computer gets the rows of keys by value, so there is a bound to them."""
    sql = "SELECT date_trunc('hour', ts) AS hour, plate, count(DISTINCT speed) AS speeds FROM taxi GROUP BY 1, 2"
    derive(wh, duck, "means", sql, {"taxi": HOUR}, [BY_KEYS])
    wh.table("taxi").insert(rows(*((0.5, i % 3, i) for i in range(900))))
    pass_over(wh, duck)
    for most, mode in ((1 << 20, KEYS), (900 * 8, RECOMPUTE)):
        monkeypatch.setattr(source_reading, "AT_ONCE", most)
        wh.table("taxi").insert(rows(*((0.5, i, -most) for i in range(3))))
        done = pass_over(wh, duck)["means"]
        assert (done.mode, done.error) == (mode, "")
        check(wh, "means", sql)


@pytest.mark.parametrize(("type_", "less"), [(pa.timestamp("ns"), "TIMESTAMP"), (pa.time64("ns"), "TIME"), (pa.float64(), "DOUBLE")])
def test_keys_that_spark_does_not_tell_apart_are_not_looked_up(wh: tw.Warehouse, duck: DuckCompute, type_: pa.DataType, less: str) -> None:
    """Rows of other keys of the source may be of the same key in Spark, which has microseconds."""
    moments = wh.create_table(
        "moments", pa.schema([("ts", pa.timestamp("us")), ("moment", type_), ("v", pa.int64())]), time="ts", key="moment"
    )
    sql = f"SELECT date_trunc('hour', ts) AS hour, CAST(moment AS {less}) AS moment, max(v) AS v FROM moments GROUP BY 1, 2"
    derive(wh, duck, "tops", sql, {"moments": HOUR}, [Mode(KEYS, "", column="moment", source_column="moment")], key="moment")
    for keys in ([1001, 2002], [1003, 5005]):
        moments.insert(pa.table([[START] * 2, pa.array(keys).cast(type_), [1, 2]], schema=moments.schema))
        assert pass_over(wh, duck)["tops"].mode == RECOMPUTE
        check(wh, "tops", sql)


def test_many_scattered_partitions_are_read_by_few_queries(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    wh.table("taxi").insert(rows(*((hour, 1, 1) for hour in range(400))))
    pass_over(wh, duck)
    wh.table("taxi").insert(rows(*((hour, 1, 1) for hour in range(0, 400, 2))))
    duck.runs.clear()
    assert pass_over(wh, duck)["hourly"].rows_read == 400
    assert [of for _, of in duck.runs] == [{"taxi": 400}]
    check(wh, "hourly", HOURLY)


def test_a_table_that_grows_by_a_partition_at_a_time_does_not_fall_to_pieces(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    for hour in range(12):
        wh.table("taxi").insert(rows((hour, 1, 1)))
        pass_over(wh, duck)
    assert wh.table("hourly").state().chunks == 1
    check(wh, "hourly", HOURLY)


# ---- others at the same time ----------------------------------------------------------------------------------


def test_nor_does_one_whose_rows_are_divided_among_servers(tmp_path: Path, duck: DuckCompute) -> None:
    with tw.open(tmp_path / "wh2", settings=tw.Settings(indexing_servers=2)) as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate")
        derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
        for hour in range(12):
            wh.table("taxi").insert(rows((hour, 1, hour), (hour + 0.5, 1 << 40, hour), (hour + 0.6, 2, hour)))
            pass_over(wh, duck)
        assert wh.table("hourly").state().chunks <= 4
        check(wh, "hourly", HOURLY)


def test_late_rows_during_a_refresh_are_for_the_next(wh: tw.Warehouse) -> None:
    late = [(0.5, 1, 100)]
    duck = DuckCompute(lambda *_: wh.table("taxi").insert(rows(late.pop())) if late else None)
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    wh.table("taxi").insert(rows((0, 1, 10)))
    pass_over(wh, duck)
    assert wh.table("hourly").query().to_pylist()[0]["n"] == 1
    assert pass_over(wh, duck)["hourly"].partitions == 1
    check(wh, "hourly", HOURLY)
    duck.close()


def test_rows_that_waited_are_not_forgotten_when_more_come_during_the_refresh_of_another_time(wh: tw.Warehouse) -> None:
    """The label of the hour that is not computed says only when its last rows came: after the cut. Others had come before it."""
    taxi = wh.table("taxi")
    late: list[tuple[float, int, int]] = []

    def meanwhile(*_: Any) -> None:
        if late:
            taxi.insert(rows(late.pop()))
            taxi.flush()

    duck = DuckCompute(meanwhile)
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR}, [MERGED])
    taxi.insert(rows((0, 1, 10), (5, 1, 20)))
    pass_over(wh, duck)
    taxi.insert(rows((5, 1, 300)))
    late.append((5, 1, 4000))
    assert pass_over(wh, duck, "hourly", time=(START, START + dt.timedelta(minutes=59)), full=True)["hourly"].partitions == 1
    assert not late
    assert pass_over(wh, duck)["hourly"].mode == MERGE
    check(wh, "hourly", HOURLY)
    duck.close()


def test_a_faster_refresh_means_a_new_plan(wh: tw.Warehouse, duck: DuckCompute) -> None:
    others = [1, 1]

    def meanwhile(*_: Any) -> None:
        if others:
            others.pop()
            pass_over(wh, duck)

    slow = DuckCompute(meanwhile)
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR}, [MERGED])
    wh.table("taxi").insert(rows((0, 1, 10)))
    assert pass_over(wh, slow).ok
    check(wh, "hourly", HOURLY)
    wh.table("taxi").insert(rows((0, 1, 20)))
    assert pass_over(wh, slow).ok
    check(wh, "hourly", HOURLY)
    slow.close()


def test_a_source_that_is_replaced_while_it_is_read(wh: tw.Warehouse) -> None:
    taxi = wh.table("taxi")
    again = [1, 1]

    def meanwhile(*_: Any) -> None:
        if again:
            again.pop()
            taxi.replace(rows((0.1, 2, 77)), time=(None, None))
            taxi.flush()

    duck = DuckCompute(meanwhile)
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    taxi.insert(rows((0, 1, 10), (1, 1, 20)))
    report = pass_over(wh, duck)
    assert report.ok, report
    pass_over(wh, duck)
    check(wh, "hourly", HOURLY)
    duck.close()


class _Losing:
    """An engine whose owner is lost during calls of some kind: before they are done, or after."""

    def __init__(self, engine: Engine, kind: type, after: bool, times: int) -> None:
        self._engine, self._kind, self._after, self.times = engine, kind, after, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def table(self, name: str) -> Any:
        return _LosingTable(self._engine.table(name), self)

    def lose(self, what: Any, do: Any) -> Any:
        if not isinstance(what, self._kind) or not self.times:
            return do()
        self.times -= 1
        if self._after:
            do()
        raise OwnerLostError("lost by hand")


class _LosingTable:
    def __init__(self, table: Any, engine: _Losing) -> None:
        self._table, self._engine = table, engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def do(self, operation: Any) -> Any:
        return self._engine.lose(operation, lambda: self._table.do(operation))

    def give(self, delivery: Any, rows: Any) -> Any:
        return self._engine.lose(delivery, lambda: self._table.give(delivery, rows))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", [PlanRefresh, CommitRefresh])
def test_a_lost_owner_is_found_again(wh: tw.Warehouse, duck: DuckCompute, kind: type, after: bool) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR}, [MERGED])
    wh.table("taxi").insert(rows((0, 1, 10)))
    pass_over(wh, duck)
    wh.table("taxi").insert(rows((0, 1, 20)))
    engine: Any = _Losing(wh._engine, kind, after, 2)
    report = refresh(engine, duck, anew=lambda: engine)
    assert report["hourly"].partitions == 1
    check(wh, "hourly", HOURLY)
    state = wh._engine.table("hourly").do(GetDerived())
    assert state is not None and len(state.refreshes) == 2


def test_a_lost_owner_ends_a_pass_that_cannot_find_it(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    wh.table("taxi").insert(rows((0, 1, 10)))
    engine: Any = _Losing(wh._engine, CommitRefresh, True, 1)
    with pytest.raises(OwnerLostError):
        refresh(engine, duck)


class _Beaten(_Losing):
    def lose(self, what: Any, do: Any) -> Any:
        if isinstance(what, CommitRefresh):
            self.times += 1
            raise ConflictError("beaten by hand")
        return do()


def test_a_refresh_that_is_always_beaten_ends(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    wh.table("taxi").insert(rows((0, 1, 10)))
    engine: Any = _Beaten(wh._engine, CommitRefresh, True, 0)
    report = refresh(engine, duck)
    assert "beaten by hand" in report["hourly"].error and engine.times == 5
    assert isinstance(report["hourly"].cause, ConflictError)


def waits_since(wh: tw.Warehouse) -> float | None:
    state = wh._engine.table("hourly").do(GetDerived())
    assert state is not None
    return state.stale_since


def test_the_age_is_that_of_the_oldest_change_however_many_come_after_it(tmp_path: Path, duck: DuckCompute) -> None:
    with tw.open(tmp_path / "wh") as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="plate")
        derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
        assert waits_since(wh) is None
        taxi.insert(rows((0, 1, 10)))
        pass_over(wh, duck)
        assert waits_since(wh) is None
        began = time.time()
        taxi.insert(rows((0, 1, 10)))
        in_memory = waits_since(wh)
        assert in_memory is not None and in_memory >= began - 60
        taxi.flush()
        first = waits_since(wh)
        assert first is not None and abs(first - in_memory) < 60  # two clocks
        for n in range(3):
            taxi.insert(rows((n, 1, 10)))
            assert waits_since(wh) == first
            taxi.flush()
            assert waits_since(wh) == first
    with tw.open(tmp_path / "wh") as wh:  # and never looks younger than it is
        state = wh._engine.table("hourly").do(GetDerived())
        assert state is not None and state.stale_since == state.refreshes[-1].began
        pass_over(wh, duck)
        assert waits_since(wh) is None
        wh.table("taxi").insert(rows((0, 1, 10)))
        wh.table("taxi").flush()
        again = waits_since(wh)
        assert again is not None and again > state.stale_since


def test_all_is_contained_that_was_there_whatever_comes_meanwhile(wh: tw.Warehouse) -> None:
    """Rows that come to a partition after the cut say nothing of those that were there: it was not stale when the plan was made."""
    taxi = wh.table("taxi")
    late = [(5, 1, 10), (9, 1, 10)]

    def meanwhile(*_: Any) -> None:
        if len(duck.runs) == 1:
            taxi.insert(rows(*late))
            taxi.flush()

    duck = DuckCompute(meanwhile)
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    taxi.insert(rows((0, 1, 10), (5, 1, 20)))
    pass_over(wh, duck)
    cut = taxi.insert(rows((0, 1, 30))).generation
    pass_over(wh, duck)
    state = wh._engine.table("hourly").do(GetDerived())
    assert state is not None and state.stale == 2 and state.dependencies[0].verified == cut
    pass_over(wh, duck)
    check(wh, "hourly", HOURLY)
    duck.close()


def test_system_tables(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR}, [MERGED], begin=0)
    wh.table("taxi").insert(rows((0, 1, 10), (1, 1, 10)))
    (row,) = wh.sql("SELECT * FROM system.derived").to_pylist()
    assert (row["table_name"], row["sources"], row["mode"], row["partitions"], row["stale"]) == ("hourly", "taxi", "merge", 0, 2)
    assert row["definition"] == HOURLY and row["refreshed_at"] is None and row["begin_at"] == dt.datetime(1970, 1, 1)
    pass_over(wh, duck)
    wh.table("taxi").insert(rows((1, 1, 20)))
    wh.table("taxi").flush()
    (row,) = wh.sql("SELECT * FROM system.derived").to_pylist()
    assert (row["partitions"], row["stale"]) == (2, 1) and row["refreshed_at"] is not None
    assert row["stale_since"] >= row["refreshed_at"] and row["stale_seconds"] >= 0
    pass_over(wh, duck)
    found = wh.sql(
        "SELECT table_name, refresh, mode, partitions, changed, rows_read, rows_written, vector FROM system.refreshes"
    ).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("hourly", 1, "recompute", 2, 2, 2, 2, "taxi 1"),
        ("hourly", 2, "merge", 1, 1, 2, 1, "taxi 2"),
    ]


# ---- verified -------------------------------------------------------------------------------------------------


def test_verify_finds_nothing_where_all_is_right(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR}, [MERGED])
    derive(wh, duck, "again", "SELECT * FROM hourly", {"hourly": Bounds()})
    assert verify(wh._engine, duck, "hourly").partitions == 0
    for speed in range(3):
        wh.table("taxi").insert(rows((0, 1, 10), (1, 2, speed), (7, 1, 1)))
        pass_over(wh, duck)
    for name in ("hourly", "again"):
        found = verify(wh._engine, duck, name, 2)
        assert found.ok and (found.partitions, found.left_out) == (2, 0), found
    wh.table("taxi").insert(rows((0, 1, 10)))
    assert verify(wh._engine, duck, "hourly", 9).partitions == 3  # at the generations that it was made of
    wh.table("taxi").replace(rows((0, 1, 99)), time=("2026-01-01", "2026-01-01 00:59"))
    found = verify(wh._engine, duck, "hourly", 9)
    assert found.ok and "left out" in str(found) or found.partitions == 3
    with pytest.raises(tw.InputError):
        verify(wh._engine, duck, "taxi")
    with pytest.raises(tw.InputError):
        verify(wh._engine, duck, "hourly", 0)


def test_verify_finds_wrong_bounds(wh: tw.Warehouse, duck: DuckCompute) -> None:
    sql = "SELECT date_trunc('day', ts) AS hour, plate, count(*) AS n FROM taxi GROUP BY 1, 2"
    derive(wh, duck, "daily", sql, {"taxi": HOUR})
    for hour in (0, 1, 7):
        wh.table("taxi").insert(rows((hour, 1, 10)))
        pass_over(wh, duck)
    found = verify(wh._engine, duck, "daily")
    assert not found.ok and len(found.differences) == 1
    assert found.differences[0].stored is not None and found.differences[0].stored["n"] == 1
    assert found.differences[0].computed is not None and found.differences[0].computed["n"] == 3
    assert "1 difference" in str(found) and "bounds" in str(found)


# ---- again and again ------------------------------------------------------------------------------------------


def wait_for(what: Any) -> None:
    give_up = time.monotonic() + 30
    while not what():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_loop_follows(wh: tw.Warehouse, duck: DuckCompute) -> None:
    derive(wh, duck, "hourly", HOURLY, {"taxi": HOUR})
    with RefreshLoop(lambda without: pass_over(wh, duck, without=without), 0.01) as loop:
        for n in range(3):
            wh.table("taxi").insert(rows((0, 1, n)))
            wait_for(lambda n=n: [row["n"] for row in wh.table("hourly").query().to_pylist()] == [n + 1])
    assert loop.report is not None and loop.report.ok and loop.errors == {}


def test_a_loop_leaves_alone_what_fails_and_raises_it_in_the_end(wh: tw.Warehouse) -> None:
    tries: list[str] = []

    def fails(definition: Definition, sources: Mapping[str, SourceRows]) -> None:
        if "broken" in definition.text:
            tries.append(definition.text)
            raise ZeroDivisionError("broken by hand")

    duck = DuckCompute(fails)
    derive(wh, duck, "one", f"{HOURLY} -- broken", {"taxi": HOUR})
    derive(wh, duck, "two", "SELECT * FROM one", {"one": Bounds()})
    derive(wh, duck, "three", HOURLY, {"taxi": HOUR})
    with (
        pytest.raises(ZeroDivisionError, match="by hand"),
        RefreshLoop(lambda without: pass_over(wh, duck, without=without), 0.01) as loop,
    ):
        for n in range(5):
            wh.table("taxi").insert(rows((0, 1, n)))
            wait_for(lambda n=n: [row["n"] for row in wh.table("three").query().to_pylist()] == [n + 1])
        assert loop.errors == {"one": "broken by hand"} and len(tries) <= 2
    with pytest.raises(KeyError), RefreshLoop(lambda without: pass_over(wh, duck, without=without), 0.01) as loop:
        wait_for(lambda: loop.errors)
        raise KeyError("of the body")
    duck.close()


def test_a_loop_ends_with_its_warehouse(tmp_path: Path, duck: DuckCompute) -> None:
    wh = tw.open(tmp_path / "closed")
    loop = RefreshLoop(lambda without: refresh(wh._live(), duck, without=without), 0.01)
    with pytest.raises(ClosedError), loop:
        wh.close()
        loop.wait()
