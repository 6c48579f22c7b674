"""Queries and their results, over rows that are partly in chunks and partly in memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidewheel as tw
from tests.hand_clock import HandClock

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("speed", pa.float64()), ("kind", pa.string())])
N = 10_000
SECOND = 1_000_000


def rows(start: int, stop: int) -> pa.Table:
    """Row n has id n % 100, second n, speed n % 70; every ninth has no kind."""
    n = np.arange(start, stop)
    kind = pa.array([None if i % 9 == 0 else f"k{i % 4}" for i in n], pa.string())
    return pa.table([n % 100, pa.array(n * SECOND, pa.timestamp("us")), (n % 70).astype(float), kind], schema=SCHEMA)


@pytest.fixture(scope="module")
def taxi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Table]:
    """Three chunks, a live tree of two large runs and some small ones. Opened for the module: no test changes it."""
    root = tmp_path_factory.mktemp("query") / "wh"
    wh = tw.open(root, settings=tw.Settings(leaf_rows=64))
    table = wh.create_table("taxi", SCHEMA, time="ts", key="id")
    for lo in (0, 2000, 4000):
        table.insert(rows(lo, lo + 2000))
        table.flush()
    table.insert(rows(6000, 8000))
    table.insert(rows(8000, 9990))
    for i in range(9990, N):
        table.insert(rows(i, i + 1))
    yield table
    wh.close()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """The module's warehouse stays open between its tests."""


def numbers(result: tw.Result | pa.Table) -> list[int]:
    """Which rows an answer has, by their second."""
    table = result if isinstance(result, pa.Table) else result.to_arrow()
    return sorted(t // SECOND for t in table["ts"].cast(pa.int64()).to_pylist())


class TestBounds:
    @pytest.mark.parametrize("key", [(10, 20), (None, 3), (97, None), 50, (50, 50), (20, 10), (-5, 500), (10.5, 11.5), np.int64(7)])
    @pytest.mark.parametrize("span", [None, (0, 1500), (3900, 6100), (9980, None), (None, 0), (20_000, 30_000)])
    def test_key_and_time(self, taxi: tw.Table, key: Any, span: Any) -> None:
        lo, hi = key if isinstance(key, tuple) else (key, key)
        first, last = span or (None, None)
        want = [
            n for n in range(N)
            if (lo is None or n % 100 >= lo) and (hi is None or n % 100 <= hi)
            and (first is None or n >= first) and (last is None or n <= last)
        ]  # fmt: skip
        time = None if span is None else tuple(None if s is None else s * SECOND for s in span)
        result = taxi.query(key=key, time=time)
        assert numbers(result) == want
        assert len(taxi.query(key=key, time=time)) == len(want)

    @pytest.mark.parametrize(
        "wrong, said",
        [
            ({"key": ("a", "b")}, "'a' is no int64, the type of key column 'id'"),
            ({"key": (1, 2, 3)}, "key is an interval"),
            ({"time": (1, 2, 3)}, "time is an interval"),
            ({"limit": -1}, "limit is a whole number"),
            ({"limit": 2.5}, "limit is a whole number"),
            ({"columns": ["id", "sped"]}, "no column 'sped'. Did you mean 'speed'"),
            ({"order_by": "sped"}, "no column 'sped'.*Did you mean 'speed'"),
            ({"order_by": "speed upwards"}, "order_by is like"),
            ({"order_by": 5}, "order_by is like"),
            ({"aggregate": {}}, "aggregate is a mapping"),
            ({"aggregate": "count(*)"}, "aggregate is a mapping"),
            ({"aggregate": {"n": "count(*)"}, "columns": ["id"]}, "columns cannot be given together"),
            ({"aggregate": {"n": "sum(sped)"}}, "sped.*Did you mean 'speed'"),
            ({"aggregate": {"n": "speed"}}, "aggregate"),
            ({"group_by": ["sped"]}, "no column 'sped'. Did you mean 'speed'"),
            ({"group_by": 5}, "group_by"),
            ({"timeout": "soon"}, "timeout"),
            ({"box": (0, 0, 1, 1)}, "no z-order key"),
        ],
    )
    def test_wrong_questions_are_explained_before_any_row_is_read(self, taxi: tw.Table, wrong: dict[str, Any], said: str) -> None:
        with pytest.raises(tw.QueryError, match=said):
            taxi.query(**wrong)


class TestWhere:
    @pytest.mark.parametrize(
        "where, keep",
        [
            ("speed > 60", lambda n: n % 70 > 60),
            ("SPEED > 60 and Kind = 'k1'", lambda n: n % 70 > 60 and n % 9 and n % 4 == 1),
            ("kind is null", lambda n: n % 9 == 0),
            ("kind = 'k0'", lambda n: n % 9 and n % 4 == 0),
            ("speed", lambda n: n % 70 != 0),
            ("ts between timestamp '1970-01-01 00:01:00' and timestamp '1970-01-01 00:02:00'", lambda n: 60 <= n <= 120),
            ("kind in ('k0', 'k1') or speed = 3 -- a comment", lambda n: n % 9 and n % 4 in (0, 1) or n % 70 == 3),
            ("abs(speed - 35) < 1", lambda n: n % 70 == 35),
            ("false", lambda n: False),
            ("null", lambda n: False),
            ("true", lambda n: True),
        ],
    )
    def test_sql_text(self, taxi: tw.Table, where: str, keep: Any) -> None:
        assert numbers(taxi.query(key=(10, 60), where=where)) == [n for n in range(N) if 10 <= n % 100 <= 60 and keep(n)]
        assert len(taxi.query(where=where, columns=["id"])) == sum(1 for n in range(N) if keep(n))

    def test_a_function_sees_every_column(self, taxi: tw.Table) -> None:
        want = [n for n in range(N) if n % 70 > 60]
        assert numbers(taxi.query(where=lambda b: pc.greater(b["speed"], 60))) == want
        as_numpy = taxi.query(where=lambda b: b["speed"].to_numpy() > 60, columns=["ts"])
        assert as_numpy.schema.names == ["ts"] and numbers(as_numpy) == want

    @pytest.mark.parametrize(
        "where, said",
        [
            ("sped > 3", "sped.*Did you mean 'speed'"),
            ("speed >", "cannot read the expression 'speed >'"),
            ("", "an expression is SQL text"),
            ("speed > (select 1)", "sub-query"),
            ("true) from t; drop table t; --", "cannot read the expression"),
            ("speed > 1) from read_csv('/etc/passwd') --", "cannot read the expression"),
            ("ts > 3", "TIMESTAMP"),
            ("count(*) > 1", "aggregate|count"),
            (5, "SQL text or a function"),
        ],
    )
    def test_bad_expressions_are_explained(self, taxi: tw.Table, where: Any, said: str) -> None:
        with pytest.raises(tw.QueryError, match=said):
            taxi.query(where=where).to_arrow()

    @pytest.mark.parametrize("answer", [lambda b: b["speed"], lambda b: [True], lambda b: pa.array([True]), lambda b: None])
    def test_a_function_must_return_a_mask(self, taxi: tw.Table, answer: Any) -> None:
        with pytest.raises(tw.QueryError, match="one boolean per row"):
            taxi.query(where=answer).to_arrow()

    def test_no_file_can_be_read(self, taxi: tw.Table) -> None:
        with pytest.raises(tw.QueryError):
            taxi.query(where="(read_text('/etc/hostname')).content = 'x'").to_arrow()


class TestColumnsOrderLimit:
    def test_columns_come_in_the_order_asked_for(self, taxi: tw.Table) -> None:
        table = taxi.query(columns=["speed", "id"], key=5, where="kind = 'k1'").to_arrow()
        assert table.column_names == ["speed", "id"]
        assert table.num_rows == sum(1 for n in range(N) if n % 100 == 5 and n % 9 and n % 4 == 1)

    def test_no_columns_is_still_a_number_of_rows(self, taxi: tw.Table) -> None:
        result = taxi.query(columns=[], key=5)
        assert len(result) == 100 and sum(b.num_rows for b in result) == 100

    def test_order(self, taxi: tw.Table) -> None:
        got = taxi.query(key=(3, 4), order_by="speed desc, ts", columns=["ts"]).to_arrow()["ts"].cast(pa.int64()).to_pylist()
        want = sorted((n for n in range(N) if n % 100 in (3, 4)), key=lambda n: (-(n % 70), n))
        assert [t // SECOND for t in got] == want

    def test_nulls_come_last(self, taxi: tw.Table) -> None:
        kinds = taxi.query(order_by=["kind", "ts desc"], columns=["kind"]).to_arrow()["kind"].to_pylist()
        assert kinds[0] == "k0" and kinds[-1] is None

    def test_the_last_rows_first(self, taxi: tw.Table) -> None:
        assert numbers(taxi.query(order_by="ts desc", limit=3)) == [9997, 9998, 9999]

    @pytest.mark.parametrize("limit", [0, 1, 17, 2000, 5000, 50_000])
    def test_limit(self, taxi: tw.Table, limit: int) -> None:
        assert taxi.query(limit=limit).to_arrow().num_rows == min(limit, N)
        assert len(taxi.query(limit=limit)) == min(limit, N)
        assert taxi.query(limit=limit, where="speed > 60").to_arrow().num_rows == min(limit, len(taxi.query(where="speed > 60")))

    def test_a_limit_stops_early(self, taxi: tw.Table) -> None:
        seen = []
        taxi.query(limit=5, where=lambda b: seen.append(b.num_rows) or np.ones(b.num_rows, bool)).to_arrow()
        assert sum(seen) < N or len(seen) == 1


class TestAggregates:
    def test_one_row_for_all(self, taxi: tw.Table) -> None:
        result = taxi.query(time=(0, 999 * SECOND), aggregate={"n": "count(*)", "v": "avg(speed)", "last": "max(ts)"})
        want = {"n": 1000, "v": sum(n % 70 for n in range(1000)) / 1000, "last": rows(999, 1000)["ts"][0].as_py()}
        assert result.to_arrow().to_pylist() == [want]
        assert len(result) == 1

    def test_groups(self, taxi: tw.Table) -> None:
        result = taxi.query(key=(0, 9), where="speed > 30", aggregate={"n": "count(*)"}, group_by=["id"], order_by="id")
        want = [{"id": i, "n": sum(1 for n in range(i, N, 100) if n % 70 > 30)} for i in range(10)]
        assert result.to_arrow().to_pylist() == want

    def test_order_and_limit_over_groups(self, taxi: tw.Table) -> None:
        result = taxi.query(aggregate={"n": "count(*)"}, group_by="kind", order_by="n desc, kind", limit=2)
        assert result.to_arrow().num_rows == 2 and result.schema.names == ["kind", "n"]

    def test_groups_alone_are_the_different_values(self, taxi: tw.Table) -> None:
        assert set(taxi.query(group_by=["kind"]).to_arrow()["kind"].to_pylist()) == {None, "k0", "k1", "k2", "k3"}

    def test_nothing_to_aggregate(self, taxi: tw.Table) -> None:
        assert taxi.query(key=5000, aggregate={"n": "count(*)", "m": "max(speed)"}).to_arrow().to_pylist() == [{"n": 0, "m": None}]
        assert taxi.query(key=5000, aggregate={"n": "count(*)"}, group_by=["id"]).to_arrow().num_rows == 0


class TestTimeout:
    @staticmethod
    def slow(batch: pa.RecordBatch) -> Any:
        time.sleep(0.05)
        return np.ones(batch.num_rows, bool)

    def test_a_query_that_takes_too_long_is_ended(self, tmp_path: Path, clock: HandClock) -> None:
        calls: list[int] = []

        def slow(batch: pa.RecordBatch) -> Any:
            clock.advance(1)
            calls.append(batch.num_rows)
            return np.ones(batch.num_rows, bool)

        with tw.open(tmp_path / "wh", settings=tw.Settings(batch_rows=100)) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            table.insert(rows(0, 5000))
            with pytest.raises(tw.LimitError, match=r"timeout of 2\.5 s"):
                for _ in table.query(where=slow, timeout=2.5):
                    pass
            assert calls == [100, 100, 100]
            assert table.query(timeout=60).to_arrow().num_rows == 5000

    def test_also_while_it_aggregates(self, taxi: tw.Table) -> None:
        with pytest.raises(tw.LimitError, match="timeout"):
            taxi.query(where=self.slow, aggregate={"n": "count(*)"}, timeout=0.0).to_arrow()


class TestResult:
    def test_it_can_be_taken_in_every_form(self, taxi: tw.Table) -> None:
        query = {"key": (10, 12), "order_by": "ts"}
        arrow = taxi.query(**query).to_arrow()
        assert arrow.schema.equals(SCHEMA) and arrow.num_rows == 300
        arrow.validate(full=True)
        assert pa.Table.from_batches(list(taxi.query(**query))).equals(arrow)
        assert pa.table(taxi.query(**query)).combine_chunks().equals(arrow.combine_chunks())
        assert pa.RecordBatchReader.from_stream(taxi.query(**query)).read_all().num_rows == 300
        assert taxi.query(**query).to_pylist() == arrow.to_pylist()

    def test_pandas(self, taxi: tw.Table) -> None:
        frame = taxi.query(key=5, order_by="ts").to_pandas()
        assert list(frame.columns) == SCHEMA.names and len(frame) == 100

    def test_polars(self, taxi: tw.Table) -> None:
        assert taxi.query(key=5).to_polars().shape == (100, 4)
        assert pl.DataFrame(taxi.query(key=5)).shape == (100, 4)

    def test_duckdb_reads_it(self, taxi: tw.Table) -> None:
        import duckdb

        result = taxi.query(key=(5, 6)).to_arrow()
        with duckdb.connect() as con:
            con.register("r", result)
            assert con.execute("select count(*) from r").fetchone() == (200,)

    def test_reading_twice_gives_the_same(self, taxi: tw.Table) -> None:
        result = taxi.query(key=5)
        assert result.to_arrow().equals(result.to_arrow()) and len(result) == 100

    def test_repr_shows_the_first_rows(self, taxi: tw.Table) -> None:
        shown = repr(taxi.query(key=5, columns=["id", "kind"])).split("\n")
        assert shown[0].split() == ["id", "kind"]
        assert len(shown) == 12 and shown[-1] == "100 rows, the first 10 shown"
        assert repr(taxi.query(key=5, limit=1)).endswith("\n1 row")
        assert repr(taxi.query(key=500)).endswith("\n0 rows")

    def test_repr_of_a_filtered_result_says_when_that_is_all(self, taxi: tw.Table) -> None:
        assert repr(taxi.query(where="speed = 3 and id = 3 and ts < '1970-01-01 00:10:00'")).endswith("\n1 row")

    def test_stats(self, taxi: tw.Table) -> None:
        result = taxi.query(key=(10, 12), time=(0, 1999 * SECOND))
        result.to_arrow()
        s = result.stats
        assert s.regions_considered > s.regions_read == 1  # one of the three chunks; the trees are newer
        assert s.leaves_read and s.leaves_skipped and s.rows_returned == 60
        assert s.bytes > 0 and s.milliseconds > 0

    @pytest.mark.parametrize("text", [True, False])
    def test_bytes_count_the_columns_that_were_read(self, tmp_path: Path, text: bool) -> None:
        schema = SCHEMA if text else SCHEMA.remove(3)
        with tw.open(tmp_path / "wh") as wh:
            table = wh.create_table("t", schema, time="ts", key="id")
            table.insert(rows(0, 1000).select(schema.names))
            sizes = []
            for columns in (["id"], ["id", "ts", "speed"]):
                result = table.query(columns=columns)
                result.to_arrow()
                sizes.append(result.stats.bytes)
            assert sizes == [8000, 24000]

    def test_plan_and_explain(self, taxi: tw.Table) -> None:
        plan = taxi.query(key=(10, 12)).plan
        assert plan.table == "taxi" and plan.key_intervals == ((10, 12),)
        places = [s.place for s in plan.subqueries]
        assert places.count("chunk") == 3 and "live tree" in places
        assert sum(s.rows for s in plan.subqueries) == 300
        text = taxi.explain(key=(10, 12), time=("1970-01-01", None))
        assert text.startswith("table taxi, generation") and "10 .. 12" in text and "1970-01-01 00:00:00 .. +∞" in text
        assert taxi.query(key=(10, 12)).explain().count("chunk") == 3

    def test_an_empty_table_answers(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            assert table.query().to_arrow().equals(SCHEMA.empty_table())
            assert len(table.query(where="speed > 3", order_by="ts")) == 0
            assert "0 read of 0" in table.explain()


def test_a_result_shows_the_moment_it_was_asked(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(rows(0, 1000))
        table.flush()
        table.insert(rows(1000, 2000))
        before = table.query()
        table.insert(rows(2000, 3000))
        table.flush()
        table.replace(rows(5, 6), time=(0, 1500 * SECOND))
        assert numbers(before) == list(range(2000)) and len(before) == 2000
        assert numbers(table.query()) == [5, *range(1501, 3000)]
        assert before.generation < table.query().generation


def test_iterating_a_huge_result_keeps_memory_bounded(tmp_path: Path) -> None:
    code = f"""
import numpy as np, pyarrow as pa, tidewheel as tw
def private():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) / 1024
schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("text", pa.string())])
with tw.open({str(tmp_path / "wh")!r}) as wh:
    t = wh.create_table("t", schema, time="ts", key="id")
    text = pa.array(["x" * 40] * 200_000)
    for i in range(15):
        n = np.arange(200_000) * 15 + i
        t.insert(pa.table([n % 997, pa.array(n, pa.timestamp("us")), text], schema=schema))
    t.flush()
    list(t.query(limit=200_000))
    pa.default_memory_pool().release_unused()
    before, most, rows = private(), 0, 0
    for batch in t.query(where=lambda b: np.arange(b.num_rows) % 2 == 0):  # a filter copies: these are no slices of the files
        rows += batch.num_rows
        most = max(most, private())
    print(rows, int(most - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, grown = map(int, done.stdout.split())
    assert 1_400_000 < count < 1_600_000  # 3 million rows, 170 MB: half of them were kept
    assert grown < 60, f"{grown} MB more than before"
