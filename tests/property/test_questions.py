"""Lists of keys and the last rows of keys, of every type of key: those of the oracle, wherever the rows are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.conftest import check_nothing_left, examples
from tidewheel.model.schema import Ip, ZOrder
from tidewheel.testing.oracle import OracleRow, OracleTable, same_rows
from tidewheel.testing.strategies import KEY, SERIAL, SIGN, BatchStream, TableCase, table_cases

_numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path_factory.mktemp("wh"), settings=tw.Settings(leaf_rows=4, batch_rows=64, zero_copy_rows=8)) as wh:
        yield wh


def filled(wh: tw.Warehouse, case: TableCase, rng: random.Random) -> tuple[tw.Table, OracleTable, BatchStream]:
    """A table with some rows in chunks, some in memory; and the same in the oracle."""
    table = wh.create_table(f"t{next(_numbers)}", case.schema, time=case.time, key=case.key, partition=case.partition)
    oracle, stream = OracleTable(case.schema, case.time, case.key), BatchStream(case, rng)
    for _ in range(rng.randint(1, 6)):
        batch = stream.batch(rng.choice([1, 3, 40]), late=rng.random() < 0.2, extreme=rng.random() < 0.2, hot=rng.choice([0.0, 0.5]))
        table.insert(batch)
        oracle.insert(batch)
        if rng.random() < 0.4:
            table.flush()
    return table, oracle, stream


def some_keys(stream: BatchStream, rng: random.Random) -> list[Any]:
    if isinstance(stream.case.key, Ip):
        fresh = [rng.choice([*stream.known, "203.0.113.9", "2001:db8::7"]) for _ in range(rng.choice([0, 1, 2, 5]))]
        return fresh
    wanted = [rng.choice(stream.known) if rng.random() < 0.8 else stream._bound() for _ in range(rng.choice([0, 1, 2, 5, 20, 300]))]
    return [key for key in wanted if key is not None]


@settings(max_examples=examples(30))
@given(case=table_cases(payloads=[pa.string()]), seed=st.integers(0, 2**32))
def test_a_list_of_keys_is_their_rows(wh: tw.Warehouse, case: TableCase, seed: int) -> None:
    rng = random.Random(seed)
    table, oracle, stream = filled(wh, case, rng)
    try:
        if isinstance(case.key, ZOrder):
            with pytest.raises(tw.QueryError, match="ask with box="):
                table.query(key=[1, 2])
            return
        keys, time = some_keys(stream, rng), stream.time_bounds() if rng.random() < 0.3 else None
        found: dict[int, Any] = {}
        for key in keys:
            found |= {row[SERIAL]: row for row in oracle.query(key=(key, key), time=time)}
        asked = table.query(key=keys, time=time)
        same_rows(asked.to_arrow(), list(found.values()))
        assert len(asked) == len(found) and asked.stats.leaves_skipped >= 0
        same_rows(table.query(ranges={KEY: keys}, time=time).to_arrow(), list(found.values()))
        odd = [row for row in found.values() if row[SERIAL] % 2]
        same_rows(table.query(key=keys, time=time, where=f"{SERIAL} % 2 = ?", params=[1]).to_arrow(), odd)
        assert table.query(key=keys, time=time, aggregate={"n": "count(*)"}).to_pylist() == [{"n": len(found)}]
    finally:
        wh.drop_table(table.name)


def last(rows: list[OracleRow]) -> list[dict[str, Any]]:
    """Of each key the row with the greatest time, and of several the one that came last."""
    found: dict[Any, OracleRow] = {}
    for row in rows:
        if row.key not in found or row.time >= found[row.key].time:
            found[row.key] = row
    return [row.values for row in found.values()]


@settings(max_examples=examples(30))
@given(case=table_cases(payloads=[pa.string()]), seed=st.integers(0, 2**32))
def test_the_last_row_of_each_key(wh: tw.Warehouse, case: TableCase, seed: int) -> None:
    rng = random.Random(seed)
    table, oracle, stream = filled(wh, case, rng)
    try:
        same_rows(table.latest().to_arrow(), last(oracle.rows))
        signed = [row for row in oracle.rows if row.values[SIGN] is not None and row.values[SIGN] > 0]
        same_rows(table.latest(where=f"{SIGN} > ?", params=[0]).to_arrow(), last(signed))
        same_rows(table.latest(where=lambda batch: pc.greater(batch[SIGN], 0)).to_arrow(), last(signed))
        numbers = sorted(row[SERIAL] for row in last(oracle.rows))
        some = table.latest(columns=[f"{SERIAL} * 2 AS twice"], order_by="twice desc", limit=3, offset=1).to_pylist()
        assert [row["twice"] for row in some] == [2 * n for n in numbers[::-1][1:4]]
        if isinstance(case.key, ZOrder):
            return
        bounds, time = stream.key_bounds()["key"], stream.time_bounds()
        lo, hi = bounds if isinstance(bounds, tuple) else (bounds, bounds)
        inside = {row[SERIAL] for row in oracle.query(key=(lo, hi), time=time)}
        within = [row for row in oracle.rows if row.values[SERIAL] in inside]
        same_rows(table.latest(key=bounds, time=time).to_arrow(), last(within))
    finally:
        wh.drop_table(table.name)
