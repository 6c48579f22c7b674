"""Groups of values that lie where numbers of kernels end, or that DuckDB calls an error: its answers, and its errors."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.property.test_partitioned_groups import Spy, spy  # noqa: F401
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.partitions import planning

DAY = dt.datetime(2026, 1, 1)


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as opened:
        yield opened


def table_of(wh: tw.Warehouse, **columns: pa.Array) -> pa.Table:
    """A table `t` of these columns, each row with a time of its own; and its rows."""
    n = len(next(iter(columns.values())))
    rows = pa.table({"k": pa.array(range(n), pa.int32()), "ts": pa.array([DAY + dt.timedelta(seconds=i) for i in range(n)])} | columns)
    wh.create_table("t", rows.schema, time="ts", key="k").insert(rows)
    return rows


def asked(rows: pa.Table, said: str) -> pa.Table:
    with duckdb.connect() as duck:
        duck.register("t", rows)
        found: pa.Table = duck.sql(said).to_arrow_table()
        return found


@pytest.mark.parametrize("what", ["var_samp", "var_pop", "stddev_samp", "stddev_pop"])
def test_deviations_of_numbers_without_a_sign(warehouse: tw.Warehouse, what: str) -> None:
    numbers = [1, 2, 3, None, 2**40, 2**63 - 1, 2**63, 2**63 + 2**40, 2**64 - 1, 2**64 - 2**11]
    rows = table_of(warehouse, u=pa.array(numbers, pa.uint64()), g=pa.array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3], pa.int32()))
    said = f"SELECT g, {what}(u) AS v FROM t GROUP BY g ORDER BY g"
    ours, theirs = warehouse.sql(said).to_arrow(), asked(rows, said)
    assert ours["v"].to_pylist() == pytest.approx(theirs["v"].to_pylist(), rel=1e-12)
    assert ours["v"].to_pylist()[0] == pytest.approx({"var_samp": 1, "var_pop": 2 / 3}.get(what, theirs["v"][0].as_py()))


@pytest.mark.parametrize("odd", [[], [0.5], [math.inf, -math.inf, math.nan]])
def test_the_floors_of_large_floats(warehouse: tw.Warehouse, odd: list[float]) -> None:
    ends = [sign * (2.0**53 + more) for sign in (1, -1) for more in (-1, 0, 2)]
    for ours_alone in (ends[:1], ends[3:4], ends[4:5], ends):
        values = [*ours_alone, *odd]
        rows = table_of(warehouse, x=pa.array(values, pa.float64()))
        said = "SELECT floor(x) AS f, count(*) AS n FROM t GROUP BY f ORDER BY f"
        assert str(warehouse.sql(said).to_arrow().to_pylist()) == str(asked(rows, said).to_pylist())
        warehouse.drop_table("t")


COUNTED = ["i * 2", "i + 1", "i::TINYINT", "x::INTEGER"]


@pytest.mark.parametrize("expression", COUNTED)
@pytest.mark.parametrize("by", ["", " GROUP BY k % 2"])
def test_counted_expressions_that_overflow(warehouse: tw.Warehouse, expression: str, by: str) -> None:
    whole = pa.array([1, None, 2**31 - 1, 4], pa.int32())
    rows = table_of(warehouse, i=whole, x=pa.array([1.0, None, 1e300, 2.0]))
    said = f"SELECT count({expression}) AS n FROM t WHERE k >= 0{{}}{by} ORDER BY n"
    with pytest.raises(duckdb.Error):
        asked(rows, said.format(""))
    with pytest.raises(tw.QueryError):
        warehouse.sql(said.format("")).to_arrow()
    query: dict[str, Any] = {"aggregate": {"n": f"count({expression})"}, "group_by": ["k % 2 AS g"] if by else None}
    with pytest.raises(tw.QueryError):
        warehouse.table("t").query(**query).to_arrow()
    known = " AND k <> 2"
    assert warehouse.sql(said.format(known)).to_arrow().equals(asked(rows, said.format(known)))
    result = warehouse.table("t").query(**query, key=(0, 1))
    assert isinstance(result._pipeline._aggregation, Grouping)  # type: ignore[attr-defined]
    assert sum(result.to_arrow()["n"].to_pylist()) == 1


@pytest.mark.parametrize("expression", COUNTED)
def test_counted_expressions_that_overflow_in_partitions(
    warehouse: tw.Warehouse,
    expression: str,
    spy: Spy,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "RUN", 1 << 20)
    n = 5000
    whole, real = [*range(10, 60)] * (n // 50), [*range(50)] * (n // 50)
    whole[7] = real[7] = None  # type: ignore[call-overload]
    table_of(warehouse, i=pa.array(whole, pa.int32()), x=pa.array(real, pa.float64()))
    query: dict[str, Any] = {"aggregate": {"n": f"count({expression})"}, "group_by": ["k // 2 AS g"]}
    assert sum(warehouse.table("t").query(**query).to_arrow()["n"].to_pylist()) == n - 1
    assert spy.answered == 1
    whole[8], real[8] = 2**31 - 1, 1e300  # type: ignore[call-overload]
    warehouse.drop_table("t")
    table_of(warehouse, i=pa.array(whole, pa.int32()), x=pa.array(real, pa.float64()))
    with pytest.raises(tw.QueryError):
        warehouse.table("t").query(**query).to_arrow()
