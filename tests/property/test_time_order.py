"""The first rows in the order of time, which are read from that end of the index: as many as a sort of all rows gives, and the same."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK, check_nothing_left

SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.int64()), ("v", pa.float64())])
START = 1_200_000_000_000_000
SECOND = 1_000_000
TRIES = 400 if SOAK else 60


def rows(rng: np.random.Generator, count: int, first: int, number: int) -> pa.Table:
    """Many with the same time as another; some late."""
    seconds = np.sort(rng.integers(0, 3_000, count)) + first - np.where(rng.random(count) < 0.01, rng.integers(0, 20_000, count), 0)
    values = pa.array(rng.normal(size=count), mask=rng.random(count) < 0.1)
    times = pa.array(START + seconds * SECOND, SCHEMA.field("ts").type)
    return pa.table([rng.integers(0, 50, count), times, np.arange(number, number + count), values], schema=SCHEMA)


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, pa.Table]]:
    """In chunks, in memory, late and replaced: the table, and what is in it."""
    print(f"TIDEWHEEL_SEED={SEED}")
    rng = np.random.default_rng(SEED)
    with tw.open(tmp_path_factory.mktemp("order") / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        for i in range(10):
            table.insert(rows(rng, 2_000, 3_000 * i, 2_000 * i))
            if i < 8:
                table.flush()
        ends = tuple(dt.datetime.fromtimestamp(START / SECOND + s, dt.UTC).replace(tzinfo=None) for s in (28_900, 29_500))
        table.replace([], time=ends)
        yield wh, table.query().to_arrow()


def wanted(held: pa.Table, order: str, condition: str, limit: int, offset: int) -> list[dict[str, Any]]:
    with duckdb.connect() as duck:
        duck.register("t", held)
        text = f"SELECT * FROM t WHERE {condition} ORDER BY {order} LIMIT {limit} OFFSET {offset}"
        return duck.sql(text).to_arrow_table().to_pylist()  # type: ignore[no-any-return]


CONDITIONS = ("true", "id = 7", "v > 1", "v > 1 AND id BETWEEN 10 AND 20", "n % 97 = 3", "v IS NULL", "v > 50", "id IN (3, 4) AND n < 9000")


def test_the_first_rows_are_those_of_a_sort(filled: tuple[tw.Warehouse, pa.Table]) -> None:
    wh, held = filled
    rng = random.Random(SEED)
    for _ in range(TRIES):
        direction, more = rng.choice(["DESC", "ASC"]), rng.choice([", n", ", v DESC, n", ""])
        order, condition = f"ts {direction}{more}", rng.choice(CONDITIONS)
        limit, offset = rng.choice([1, 2, 10, 100, 3_000, 12_000]), rng.choice([0, 0, 5, 700])
        time: tuple[Any, Any] = (None, None)
        if rng.random() < 0.3:
            since = dt.datetime.fromtimestamp(START / SECOND + rng.randrange(30_000), dt.UTC).replace(tzinfo=None)
            time = rng.choice([(since, None), (None, since)])
            condition += f" AND ts {'>=' if time[0] else '<='} TIMESTAMP '{since}'"
        expected = wanted(held, order, condition, limit, offset)
        said = f"SELECT * FROM t WHERE {condition} ORDER BY {order} LIMIT {limit} OFFSET {offset}"
        asked = wh.table("t").query(where=condition, order_by=order, limit=limit, offset=offset, time=time)
        for answer in (asked.to_pylist(), wh.sql(said).to_pylist()):
            if more:
                assert answer == expected, (said, SEED)
            else:  # rows of one time come in any order, and some of the last time are left out
                assert [row["ts"] for row in answer] == [row["ts"] for row in expected], (said, SEED)
                assert len({row["n"] for row in answer}) == len(answer)


def test_only_an_end_is_read(filled: tuple[tw.Warehouse, pa.Table]) -> None:
    """The last rows; of the first ones a few came very late, and lie far apart."""
    wh, held = filled
    for result, part in (
        (wh.table("t").query(order_by="ts desc", limit=10), 1 / 8),
        (wh.table("t").query(order_by="ts desc", limit=10, where="id = 7"), 1 / 4),  # so few that they are all read
        (wh.table("t").query(order_by="ts desc", limit=10, time=(None, "2008-01-11 00:00")), 1 / 8),
        (wh.sql("SELECT id, v * 2 AS twice FROM t ORDER BY ts DESC LIMIT 10"), 1 / 4),  # counted, and read
        (wh.table("t").query(order_by="ts desc", limit=10_001), None),
    ):
        assert len(result.fetchall()) == min(10_001 if part is None else 10, len(held))
        assert result.stats.rows_scanned >= len(held) if part is None else result.stats.rows_scanned < len(held) * part, result.stats


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, row_number() OVER (ORDER BY ts, n DESC) AS r FROM t ORDER BY ts DESC, n LIMIT 3",
        "SELECT max(ts) AS m FROM t ORDER BY m DESC LIMIT 3",
        "SELECT id, max(ts) AS m FROM t GROUP BY id ORDER BY m DESC, id LIMIT 3",
        "SELECT -n AS ts FROM t ORDER BY ts DESC LIMIT 3",
        "SELECT DISTINCT id FROM t ORDER BY id LIMIT 3",
        "SELECT DISTINCT ts FROM t ORDER BY ts DESC LIMIT 30",
        "SELECT a.n FROM t a JOIN t b ON a.n = b.n + 1 ORDER BY a.ts DESC, a.n LIMIT 3",
        "SELECT n FROM t ORDER BY ts + INTERVAL '1 day' * n DESC LIMIT 3",
        "SELECT n FROM t WHERE n IN (SELECT max(n) FROM t GROUP BY id) ORDER BY ts DESC, n LIMIT 3",
        "SELECT n FROM t ORDER BY ts DESC, n LIMIT 0",
        "SELECT n FROM t WHERE ts < '1999-01-01' ORDER BY ts DESC LIMIT 3",
        "SELECT x.n FROM (SELECT * FROM t ORDER BY ts DESC, n LIMIT 5) x ORDER BY x.n",
    ],
)
def test_what_is_more_than_the_first_rows(filled: tuple[tw.Warehouse, pa.Table], text: str) -> None:
    wh, held = filled
    with duckdb.connect() as duck:
        duck.register("t", held)
        assert wh.sql(text).to_pylist() == duck.sql(text).to_arrow_table().to_pylist()
