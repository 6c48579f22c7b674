"""Groups of values that lie where numbers of kernels end, or that DuckDB calls an error: its answers, and its errors."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.property.test_partitioned_groups import Spy, spy  # noqa: F401
from tidewheel.read.groups import gathering, groups_found
from tidewheel.read.groups import group_layout as layout
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


# ---- texts, and values of which only the number is known ------------------------------------------------------

LETTERS = ("", "a", "b", "é", "\0", "zz", "abcdefgh", "abcdefghi", "b" * 20, "b" * 20 + "a", "b" * 21, "ü" * 9)


def _some_texts(rng: random.Random, n: int) -> dict[str, pa.Array]:
    def text() -> str | None:
        return None if rng.random() < 0.2 else rng.choice(LETTERS) + rng.choice(["", str(rng.randrange(40))])

    texts = [text() for _ in range(n)]
    return {
        "s": pa.array(texts), "whole": pa.array([text or "" for text in texts]),
        "b": pa.array([None if text is None else text.encode() + b"\xff" for text in texts]),
        "o": pa.array([None if rng.random() < 0.1 else i for i in rng.sample(range(n), n)], pa.int32()),
        "g": pa.array([rng.randrange(1 + i * 50 // n) for i in range(n)], pa.int32()),
        "never": pa.array([None] * n, pa.string()),
    }  # fmt: skip


KEPT = (
    "min({0})",
    "max({0})",
    "arg_max({0}, ts)",
    "arg_min({0}, o)",
    "arg_max({0}, o)",
    "first({0} ORDER BY ts)",
    "last({0} ORDER BY ts)",
)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("by", ["g", "k // 3", "s", "g % 2, b", ""])
def test_texts_that_groups_keep(warehouse: tw.Warehouse, monkeypatch: pytest.MonkeyPatch, threads: int, by: str) -> None:
    """In blocks of rows at rest and in memory, of which some are asked for; each text at most a few times."""
    monkeypatch.setattr(gathering, "cores", lambda: threads)
    monkeypatch.setattr(gathering, "SHARED_ROWS", 50)
    rng = random.Random(threads)
    rows = table_of(warehouse, **_some_texts(rng, 9_000))
    warehouse.table("t").flush()
    more = rows.slice(0, 500)
    warehouse.table("t").insert(more.set_column(1, "ts", pa.compute.add(more["ts"], dt.timedelta(days=1))))
    rows = warehouse.table("t").query().to_arrow()
    for where in ("", " WHERE o > 4000"):
        for column in ("s", "b", rng.choice(["whole", "never"])):
            items = [one.format(column) for one in rng.sample(KEPT, 3)]
            items += [f"count(DISTINCT {column})", "max(s)", f"count({column})"]
            said = f"SELECT {by and by + ', '}{', '.join(items)} FROM t{where}{by and ' GROUP BY ' + by}"
            result = warehouse.sql(said)
            ours, theirs = result.to_arrow(), asked(rows, said)
            assert result.scans[0].how["grouped"] == "by us"  # type: ignore[attr-defined]
            assert ours.schema.equals(theirs.schema), said
            assert sorted(map(str, ours.to_pylist())) == sorted(map(str, theirs.to_pylist())), said


def test_only_texts_that_are_kept_take_memory(warehouse: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    n, found, plain = 20_000, list[int](), groups_found.Groups.found
    table_of(warehouse, s=pa.array([f"text of row {i}" for i in range(n)]), g=pa.array([i // 1000 for i in range(n)], pa.int32()))

    def texts(groups: groups_found.Groups, *given: Any) -> Any:
        found.append(int(groups.state[layout.TEXTS]))
        return plain(groups, *given)

    monkeypatch.setattr(groups_found.Groups, "found", texts)
    last = warehouse.sql("SELECT g, last(s ORDER BY ts) AS s FROM t GROUP BY g ORDER BY g").to_pylist()
    assert last == [{"g": g, "s": f"text of row {g * 1000 + 999}"} for g in range(20)]
    assert 20 <= found[0] <= 20 + n // layout.BLOCK + 1


def test_counted_values_of_any_type(warehouse: tw.Warehouse, spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    rng = random.Random(4)

    def some(values: list[Any], type_: pa.DataType) -> pa.Array:
        return pa.array([None if rng.random() < 0.3 else value for value in values], type_)

    n = 600
    columns = {
        "d": some([Decimal(i) / 4 for i in range(n)], pa.decimal128(12, 2)),
        "wide": some([Decimal(i) for i in range(n)], pa.decimal128(38, 0)),
        "t": some([dt.time(i % 24) for i in range(n)], pa.time64("us")), "t4": some([dt.time(i % 24) for i in range(n)], pa.time32("s")),
        "l": some([str(i) for i in range(n)], pa.large_string()), "lb": some([b"a"] * n, pa.large_binary()),
        "z": some([DAY] * n, pa.timestamp("us", "Europe/Berlin")), "none": pa.array([None] * n, pa.decimal128(5, 1)),
    }  # fmt: skip
    rows = table_of(warehouse, **columns)
    items = ", ".join(f"count({name}) AS {name}" for name in columns)
    for partitions in (False, True):
        monkeypatch.setattr(planning, "LEAST_ROWS", 1 if partitions else 1 << 20)
        for by in ("k % 7", "k // 2"):
            said = f"SELECT {by} AS g, {items}, sum(k) AS k FROM t GROUP BY g ORDER BY g"
            result = warehouse.sql(said)
            ours = result.to_arrow()
            assert result.scans[0].how["grouped"] == "by us"  # type: ignore[attr-defined]
            assert ours.equals(asked(rows, said)), said
    assert spy.answered
