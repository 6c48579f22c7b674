"""Groups that are given up here are DuckDB's from the beginning: nothing of the attempt is kept, and who asks is told why."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.read import two_threads
from tidewheel.read.groups import gathering, groups_found, texts_found
from tidewheel.read.groups.aggregates import Aggregate
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.keys import Key
from tidewheel.read.groups.left_to_duck import LeftToDuckError
from tidewheel.read.groups.partitions import near_groups
from tidewheel.read.limits import NEVER, Limits, Watch

N = 30_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("i", pa.int32()), ("x", pa.float64()), ("s", pa.string())])


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as opened:
        yield opened


@pytest.fixture
def table(warehouse: tw.Warehouse) -> tw.Table:
    i = np.arange(N)
    whole = np.where(i == N - 1, 2**31 - 1, i).astype(np.int32)
    rows = pa.table(
        [i, pa.array(i, pa.timestamp("us")), whole, np.where(i == N - 1, -(2.0**53), i), [f"text of row {j}" for j in i]], schema=SCHEMA
    )
    made = warehouse.create_table("t", SCHEMA, time="ts", key="k")
    made.insert(rows.slice(0, N // 2))
    made.flush()
    made.insert(rows.slice(N // 2))
    return made


def ask(table: tw.Table, by: str, **more: Any) -> Any:
    return table.query(aggregate={"n": "count(*)"}, group_by=[by], **more)


def _refused(*_: Any) -> None:
    raise AssertionError("these groups are not for DuckDB")


# ---- what is too much -----------------------------------------------------------------------------------------


def test_more_texts_than_an_array_can_have(table: tw.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ask(table, "s").to_arrow()
    size = sum(len(text) for text in ours["s"].to_pylist())
    with monkeypatch.context() as patched:
        patched.setattr(gathering, "Aggregation", _refused)
        patched.setattr(texts_found, "MOST_BYTES", size)
        assert ask(table, "s").to_arrow().num_rows == N
        patched.setattr(texts_found, "MOST_BYTES", size - 1)
        with pytest.raises(AssertionError, match="not for DuckDB"):
            ask(table, "s").to_arrow()
    monkeypatch.setattr(texts_found, "MOST_BYTES", size - 1)
    result = ask(table, "s")
    assert result.to_arrow().sort_by("s").equals(ours.sort_by("s"))
    assert "more than 2 GB" in result.how["grouped"]


@pytest.mark.parametrize("order", [{}, {"order_by": "n desc, k", "limit": 9000}])
def test_the_answer_counts_as_memory(table: tw.Table, monkeypatch: pytest.MonkeyPatch, order: dict[str, Any]) -> None:
    plain, room = groups_found.answer, 0

    def answer(*given: Any) -> pa.RecordBatch:
        watch = given[-1]
        watch.limits = Limits(NEVER, NEVER, watch.held + room)
        return plain(*given)

    monkeypatch.setattr(gathering, "Aggregation", _refused)
    monkeypatch.setattr(groups_found, "answer", answer)
    room = 20 * N
    assert ask(table, "k", **order).to_arrow().num_rows == order.get("limit", N)
    room = 16 * N - 1
    with pytest.raises(AssertionError, match="not for DuckDB"):
        ask(table, "k", **order).to_arrow()


def test_tables_of_partitions_count_what_they_have() -> None:
    of = Grouping({"k": Key("k")}, {"n": Aggregate("sum", Key("i"))}, SCHEMA)
    watch = Watch(Limits(NEVER, NEVER, NEVER), _Never())
    near = near_groups.NearTables(None, of, None, watch)  # type: ignore[arg-type]
    for most in (1 << 12, 1 << 14):
        near._room(most)
        assert watch.held == near._known.nbytes + near._words.nbytes + near._table.nbytes


# ---- what is left of an attempt -------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("by", ["i * 2 AS g", "s"])
def test_nothing_is_kept_of_an_attempt(table: tw.Table, monkeypatch: pytest.MonkeyPatch, threads: int, by: str) -> None:
    monkeypatch.setattr(gathering, "cores", lambda: threads)
    monkeypatch.setattr(gathering, "SHARED_ROWS", 50)
    monkeypatch.setattr(two_threads, "_GRACE", 60.0)
    if by == "s":
        monkeypatch.setattr(texts_found, "MOST_BYTES", 1000)
    made, alive, plain = list[weakref.ref[Any]](), list[Any](), gathering.Groups

    def groups(*given: Any) -> Any:
        found = plain(*given)
        made.append(weakref.ref(found))
        return found

    class Begun(Exception):
        pass

    def begin(*_: Any) -> None:
        alive.extend(ref() for ref in made)
        raise Begun

    monkeypatch.setattr(gathering, "Groups", groups)
    monkeypatch.setattr(gathering, "Aggregation", begin)
    gc.disable()
    try:
        with pytest.raises(Begun):
            ask(table, by).to_arrow()
    finally:
        gc.enable()
    assert alive == [None] * threads


def test_a_half_that_nobody_waits_for_reads_what_is_there(
    table: tw.Table, warehouse: tw.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be at its rows for longer than it is waited for, and these may be gone from the table, and the table from the warehouse."""
    monkeypatch.setattr(gathering, "cores", lambda: 2)
    monkeypatch.setattr(gathering, "SHARED_ROWS", 50)
    monkeypatch.setattr(two_threads, "_GRACE", 0.01)
    begun, go_on, ended, counts, plain = threading.Event(), threading.Event(), threading.Event(), list[int](), groups_found.Groups.add

    def add(groups: groups_found.Groups, *rows: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(60)
            raise LeftToDuckError("for a test")
        begun.set()
        try:
            assert go_on.wait(60)
            groups._watch = Watch(Limits(NEVER, NEVER, NEVER), _Never())
            plain(groups, *rows)
            counts.append(groups._slots.count)
        finally:
            ended.set()

    monkeypatch.setattr(groups_found.Groups, "add", add)
    result = ask(table, "k")
    assert result.to_arrow().num_rows == N and "for a test" in result.how["grouped"]
    result.cancel()
    del result
    table.flush()
    warehouse.drop_table("t")
    gc.collect()
    go_on.set()
    assert ended.wait(60) and counts == [N // 2]


# ---- who is told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "most", "why"),
    [
        ("k", 1 << 24, ""),
        ("k", 1 << 14, ", since they are more than 16,384"),
        ('floor("x")', 1 << 24, ", since a value may be too large, or lie beyond the calendar"),
    ],
)
def test_explain_says_why_groups_were_left_to_duckdb(
    table: tw.Table, warehouse: tw.Warehouse, monkeypatch: pytest.MonkeyPatch, by: str, most: int, why: str
) -> None:
    monkeypatch.setattr(groups_found, "MOST", most)
    said = f"SELECT {by} AS g, count(*) FROM t GROUP BY g"
    ours = f"  grouped    by us: by {by}; count(*)\n  answered   without DuckDB, which only parsed the statement"
    theirs = f"  grouped    by DuckDB, over the rows as they are read{why}: by {by}; count(*)\n  answered   by one query of the table"
    (plan,) = warehouse.sql(f"EXPLAIN {said}").to_pylist()
    assert plan["explain_value"].endswith(ours)
    (cost,) = warehouse.sql(f"EXPLAIN ANALYZE {said}").to_pylist()
    assert cost["explain_value"].endswith(theirs if why else ours)


class _Never:
    cancelled = False
