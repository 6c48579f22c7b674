"""Groups that are made by partitions are DuckDB's, whatever the sizes of windows, chunks, portions and parts of an answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tests.integration.owners import OwnerProcess
from tests.property.test_groups import COLUMNS, CONDITIONS, NUMBERS, _assert_same, _duck_says, _plain, filled, nothing_left_behind  # noqa: F401
from tidewheel.model.query import Query
from tidewheel.read import two_threads
from tidewheel.read.groups import gathering, group_columns
from tidewheel.read.groups.partitions import dividing, near_groups, planning, rows_divided
from tidewheel.testing.probe import Probe

KEYS = (
    "k", "small", "i1", "u1", "i2", "u2", "d", "ok", "k // 3", "small % 7", "small * 3", "small - 5", "hour(t)", "year(ss)", "floor(small)",
    "date_trunc('day', ts)", "date_trunc('month', d)",
)  # fmt: skip
FAR_KEYS = ("i4", "i8", "u8", "t", "s", "f4", "f8", "f8 * 2", "i8 // 7", "utc")
MANY = pa.schema([("k", pa.int32()), ("ts", pa.timestamp("us")), ("id", pa.int32()), ("v", pa.int32()), ("q", pa.float64())])


def aggregate(rng: random.Random) -> str:
    column, number = rng.choice(["k", "ts", *COLUMNS]), rng.choice(NUMBERS)
    whats = ["count(*)", f"count({column})", f"sum({number})", f"avg({number})", f"min({column})", f"max({column})", "bool_or(ok)"]
    return rng.choice([*whats, "sum(small)::BIGINT", "sum(small * 3)", "max(hour(t))", "min(f8 / 4)"])


class Spy:
    """Counts the questions that are answered by partitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answered = self.asked = self.portions = self.batches = 0
        made, added = gathering.divided, dividing.DividedGroups.add

        def divided(*given: Any) -> Any:
            self.asked += 1
            batches = made(*given)
            self.answered += batches is not None
            self.batches = max(self.batches, len(batches or ()))
            return batches

        def add(one: Any, scan: Any, anew: bool, watch: Any) -> None:
            self.portions += not anew
            added(one, scan, anew, watch)

        monkeypatch.setattr(gathering, "divided", divided)
        monkeypatch.setattr(dividing.DividedGroups, "add", add)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spy]:
    """Few rows and few groups are enough, and numbers may be far apart."""
    monkeypatch.setattr(planning, "LEAST_ROWS", 1)
    monkeypatch.setattr(planning, "RUN", 1 << 20)
    monkeypatch.setattr(planning, "MANY", 0)
    monkeypatch.setattr(planning, "MANY_IN_WINDOW", 0)
    monkeypatch.setattr(planning, "APART", 1 << 62)
    yield Spy(monkeypatch)


def sized(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_threads, "cores", partial(rng.choice, [1, 2]))
    monkeypatch.setattr(planning, "WINDOW_BYTES", rng.choice([64, 1000, 1 << 20]))
    monkeypatch.setattr(planning, "MOST_ROWS", rng.choice([100, 1 << 20]))
    monkeypatch.setattr(dividing, "HELD_BYTES", rng.choice([0, 1 << 28]))
    monkeypatch.setattr(dividing, "TAKEN", rng.choice([1, 100, 1 << 17]))
    monkeypatch.setattr(group_columns, "_TOLD_APART", rng.choice([0, 1 << 13]))


@pytest.mark.parametrize("seed", range(4))
def test_groups_by_partitions_are_duckdbs(filled: tuple[tw.Warehouse, Any], seed: int, monkeypatch: pytest.MonkeyPatch, spy: Spy) -> None:  # noqa: F811
    wh, duck = filled
    rng = random.Random(300 + seed)
    for _ in range(examples(40)):
        sized(rng, monkeypatch)
        keys = [f"{rng.choice(rng.choice([KEYS, KEYS, FAR_KEYS]))} AS g{n}" for n in range(rng.choice([1, 1, 1, 2, 3]))]
        texts = [aggregate(rng) for _ in range(rng.choice([0, 1, 1, 2, 4]))]
        aggregates = {f"a{n}": text for n, text in enumerate(texts)}
        name = rng.choice(["whole", "whole", "holes", "holes", "nulls", "empty"])
        condition, where = rng.choice([(None, ""), (None, ""), *((one, f" WHERE {text}") for one, text in CONDITIONS)])
        theirs = _duck_says(duck, name, keys, aggregates, where)
        if theirs is None:
            continue
        query = Query(aggregate=aggregates or None, group_by=keys, condition=condition)
        result = Probe(wh.table(name)).query(query)
        said = f"seed {seed}: {name} {keys} {aggregates} {where}"
        _assert_same(result.to_arrow(), theirs, said)
    assert spy.answered > spy.asked // 4 and spy.portions and spy.batches > 1


@pytest.mark.parametrize("seed", range(3))
def test_the_first_groups_are_duckdbs(filled: tuple[tw.Warehouse, Any], seed: int, monkeypatch: pytest.MonkeyPatch, spy: Spy) -> None:  # noqa: F811
    wh, duck = filled
    rng = random.Random(400 + seed)
    for _ in range(examples(30)):
        sized(rng, monkeypatch)
        name, limit = rng.choice(["whole", "holes"]), rng.randrange(1, 30)
        keys = [f"{rng.choice(rng.choice([KEYS, KEYS, FAR_KEYS]))} AS g", *rng.choice([[], [], ["k AS o"], ["small AS o"]])]
        names = ["g", "o"][: len(keys)]
        a, b = aggregate(rng), aggregate(rng)
        terms = [*names, "n", *(name for name, text in (("a", a), ("b", b)) if "::" not in text and "(s)" not in text)]
        order = [f"{term} {rng.choice(['', 'desc'])} {rng.choice(['nulls first', 'nulls last'])}" for term in rng.sample(terms, 2)]
        said = f"SELECT {', '.join(keys)}, count(*) AS n, {a} AS a, {b} AS b FROM {name} GROUP BY {', '.join(['1', '2'][: len(keys)])}"
        said += f" ORDER BY {', '.join([*order, *names])} LIMIT {limit}"
        theirs = duck.sql(said).to_arrow_table()
        ours = wh.sql(said).to_arrow()
        _assert_same(ours, theirs, said)
        one, other = ([_plain(value, False) for value in answer.column("g").to_pylist()] for answer in (ours, theirs))
        assert one == other, said
    assert spy.answered > spy.asked // 2


def test_memory_that_is_not_there_is_not_taken(filled: tuple[tw.Warehouse, Any], spy: Spy) -> None:  # noqa: F811
    wh, duck = filled
    asked: dict[str, Any] = {"aggregate": {"n": "count(*)", "s": "sum(i8)"}, "group_by": ["i2 AS g"]}
    theirs = _duck_says(duck, "whole", ["i2 AS g"], asked["aggregate"], "")
    assert theirs is not None
    _assert_same(wh.table("whole").query(**asked, max_bytes=64 << 20).to_arrow(), theirs, "enough")
    assert spy.answered == 1
    for size in (200_000, 400_000, 1_000_000, 2_000_000, 4_000_000):
        _assert_same(wh.table("whole").query(**asked, max_bytes=size).to_arrow(), theirs, f"{size} bytes")
    assert spy.answered < spy.asked


def test_groups_by_partitions_end_when_they_are_cancelled(
    filled: tuple[tw.Warehouse, Any],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    spy: Spy,
) -> None:
    wh, _ = filled
    monkeypatch.setattr(planning, "WINDOW_BYTES", 1000)
    asked: dict[str, Any] = {"aggregate": {"n": "count(*)"}, "group_by": ["i2"]}
    with pytest.raises(tw.LimitError, match="timeout"):
        wh.table("whole").query(**asked, timeout=0).to_arrow()
    for of, where in ((rows_divided.DividedRows, "_divide"), (near_groups.NearWindows, "_add")):
        result = wh.table("whole").query(**asked)
        plain, times = getattr(of, where), 0

        def some(*given: Any, plain: Any = plain, result: Any = result) -> Any:
            nonlocal times
            times += 1
            result.cancel()
            return plain(*given)

        with monkeypatch.context() as patched:
            patched.setattr(of, where, some)
            with pytest.raises(tw.CancelledError):
                result.to_arrow()
        assert 1 <= times <= 2


def test_many_groups_of_rows_at_rest_and_in_memory(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, with nothing made smaller but the rows that are enough; in an attached process's batches it would be the same."""
    monkeypatch.setattr(planning, "LEAST_ROWS", 1 << 18)
    spy = Spy(monkeypatch)
    n, rng = 300_000, np.random.default_rng(7)
    columns = [
        rng.integers(0, 1000, n),
        np.arange(n) + 10**15,
        rng.integers(-(10**6), 10**6, n),
        rng.integers(-9, 9, n),
        rng.integers(0, 99, n) / 4,
    ]
    rows = pa.table([pa.array(one).cast(field.type) for one, field in zip(columns, MANY, strict=True)], schema=MANY)
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", MANY, time="ts", key="k")
        table.insert(rows.slice(0, n // 2))
        table.flush()
        table.insert(rows.slice(n // 2))
        said = "SELECT id, count(*) AS n, sum(v) AS v, max(q) AS q, avg(q) AS a FROM {} GROUP BY id"
        expected = duck_asked(rows, said.format("given"))
        for more in ("", " HAVING count(*) > 1"):
            ours = wh.sql(said.format("t") + more).to_arrow()
            theirs = expected if not more else duck_asked(rows, said.format("given") + more)
            _assert_same(ours, theirs, more)
        order = " ORDER BY n DESC, id LIMIT 50"
        assert wh.sql(said.format("t") + order).to_arrow().to_pylist() == duck_asked(rows, said.format("given") + order).to_pylist()
        assert spy.answered == 3
        assert wh.sql("SELECT k, count(*) AS n FROM t GROUP BY k").to_arrow().num_rows == 1000
        assert spy.answered == 3 and spy.asked == 4  # groups are few
        monkeypatch.setattr(planning, "RUN", 0)
        assert wh.sql(said.format("t")).to_arrow().num_rows == expected.num_rows
        assert spy.answered == 3 and spy.asked == 5  # their rows stand together, as it were


def test_an_attached_process_gets_all_parts_of_an_answer(tmp_path: Any) -> None:
    n = planning.LEAST_ROWS + 1000
    numbers = np.random.default_rng(8).permutation(n).astype(np.int32) // 2
    schema = pa.schema([("k", pa.int32()), ("ts", pa.timestamp("us")), ("id", pa.int32())])
    columns = [np.arange(n) % 100, np.arange(n) + 10**15, numbers]
    rows = pa.table([pa.array(one).cast(field.type) for one, field in zip(columns, schema, strict=True)], schema=schema)
    with OwnerProcess() as owner:
        owner.open(tmp_path / "wh")
        with tw.open(tmp_path / "wh") as attached:
            attached.create_table("t", schema, time="ts", key="k").insert(rows)
            result = attached.table("t").query(aggregate={"n": "count(*)", "s": "min(k)"}, group_by=["id"])
            batches = list(result)
            found = pa.Table.from_batches(batches)
            assert len(batches) > 1 and found.num_rows == -(-n // 2)
            assert found["n"].value_counts().to_pylist()[0] == {"values": 2, "counts": n // 2}
            order = "ORDER BY n, id DESC LIMIT 3"
            ours = attached.sql(f"SELECT id, count(*) AS n, sum(k) AS s FROM t GROUP BY id {order}").to_arrow()
            assert ours.equals(duck_asked(rows, f"SELECT id, count(*) AS n, sum(k) AS s FROM given GROUP BY id {order}").cast(ours.schema))


def duck_asked(given: pa.Table, said: str) -> pa.Table:
    import duckdb

    with duckdb.connect() as duck:
        duck.register("given", given)
        found: pa.Table = duck.sql(said).to_arrow_table()
        return found
