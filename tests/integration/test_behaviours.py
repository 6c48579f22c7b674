"""One suite over every engine: whoever uses a warehouse cannot tell whether this process owns it or another one does.

The attached one belongs to a real second process. What a test says of `table` holds for both; `twins` are one of each with the same
rows, and every answer and every error of one must be the other's.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

import tidewheel as tw
from tests.integration.owners import OwnerProcess
from tidewheel.engine.local_table import LocalTable
from tidewheel.errors import ExistsError
from tidewheel.testing.probe import Probe, engine_of, root_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32()),
        pa.field("ts", pa.timestamp("us")),
        pa.field("speed", pa.float32()),
        pa.field("note", pa.dictionary(pa.int32(), pa.string())),
    ]
)
DAY = dt.datetime(2026, 1, 1)
ROWS = [{"id": i, "ts": DAY + dt.timedelta(seconds=i), "speed": i / 2, "note": None if i % 3 else f"n{i}"} for i in range(10)]
ARROW = pa.Table.from_pylist(ROWS, SCHEMA)
_out = pa.BufferOutputStream()
pq.write_table(ARROW, _out, row_group_size=4)
PARQUET = _out.getvalue()
MANY = 50_000
"""Rows of the twins: more than come with an answer."""


def many(n: int = MANY) -> pa.Table:
    i = np.arange(n)
    notes = pa.DictionaryArray.from_arrays(pa.array(i % 7, pa.int32()), [f"note {k}" for k in range(7)])
    return pa.table([pa.array(i * 7919 % 1000, pa.int32()), pa.array(i * 1000 + 10**15, pa.timestamp("us")),
                     pa.array((i % 70) / 2, pa.float32()), notes], schema=SCHEMA)  # fmt: skip


@pytest.fixture(scope="module")
def owner() -> Iterator[OwnerProcess]:
    with OwnerProcess() as owner:
        yield owner


@pytest.fixture(params=["local", "attached"])
def wh(request: pytest.FixtureRequest, tmp_path: Path, owner: OwnerProcess) -> Iterator[tw.Warehouse]:
    root = (tmp_path / "wh").resolve()
    if request.param == "attached":
        owner.open(root)
    with tw.open(root) as wh:
        assert engine_of(wh).owns == (request.param == "local")
        yield wh
    if request.param == "attached":
        owner.close(root)


@pytest.fixture
def table(wh: tw.Warehouse) -> tw.Table:
    return wh.create_table("taxi", SCHEMA, time="ts", key="id")


def everything(table: tw.Table) -> list[dict[str, Any]]:
    return table.query(order_by="ts").to_arrow().to_pylist()


# ---- what goes in -------------------------------------------------------------------------------------------


class Stream:
    """Any library's rows: all it has is the Arrow stream protocol."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return ARROW.__arrow_c_stream__(requested_schema)


KINDS: dict[str, Callable[[], Any]] = {
    "table": lambda: ARROW,
    "table in pieces": lambda: pa.concat_tables([ARROW.slice(i, 1) for i in range(10)]),
    "other dictionaries": lambda: pa.concat_tables([pa.Table.from_pylist(ROWS[:4], SCHEMA), pa.Table.from_pylist(ROWS[4:], SCHEMA)]),
    "columns in another order": lambda: ARROW.select(["note", "ts", "id", "speed"]),
    "record batch": lambda: ARROW.to_batches()[0],
    "reader": lambda: ARROW.to_reader(max_chunksize=3),
    "list of dicts": lambda: ROWS,
    "tuple of dicts": lambda: tuple(ROWS),
    "dicts without their nulls": lambda: [{k: v for k, v in row.items() if v is not None} for row in ROWS],
    "ISO text": lambda: [row | {"ts": row["ts"].isoformat()} for row in ROWS],  # type: ignore[attr-defined]
    "values of many types": lambda: [row | {"ts": pd.Timestamp(row["ts"]), "speed": Decimal(str(row["speed"]))} for row in ROWS],  # type: ignore[arg-type]
    "wider types": lambda: ARROW.cast(
        pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ns")), ("speed", pa.float64()), ("note", pa.large_string())])
    ),
    "with a zone": lambda: ARROW.set_column(1, "ts", ARROW["ts"].cast(pa.timestamp("us", "UTC"))),
    "structured array": lambda: np.array(
        [(row["id"], row["ts"], row["speed"], row["note"]) for row in ROWS],
        dtype=[("id", "i4"), ("ts", "M8[us]"), ("speed", "f4"), ("note", "O")],
    ),
    "Arrow stream protocol": Stream,
    "pandas": lambda: ARROW.to_pandas(),
    "pandas, mixed": lambda: pd.DataFrame({"id": [str(r["id"]) if r["id"] == 3 else r["id"] for r in ROWS], "ts": [r["ts"] for r in ROWS],
                                           "speed": [r["speed"] for r in ROWS], "note": [r["note"] for r in ROWS]}),
    "polars": lambda: pl.from_arrow(ARROW),
    "polars, lazy": lambda: pl.from_arrow(ARROW).lazy(),  # type: ignore[union-attr]
    "pandas, times as index": lambda: ARROW.to_pandas().set_index("ts"),
    "dataset": lambda: pds.dataset(ARROW),
    "scan of a dataset": lambda: pds.dataset(ARROW).scanner(),
    "parquet file": lambda: pq.ParquetFile(pa.BufferReader(PARQUET)),
    "list of batches": lambda: ARROW.to_batches(max_chunksize=4),
    "generator of batches": lambda: (batch for batch in ARROW.to_batches(max_chunksize=3)),
    "generator of dicts": lambda: (row for row in ROWS),
    "generator of frames": lambda: (ARROW.slice(at, 5).to_pandas() for at in (0, 5)),
    "generator of all kinds": lambda: iter([ARROW.slice(0, 3), *ROWS[3:5], ARROW.slice(5, 2).to_pandas(), pl.from_arrow(ARROW.slice(7))]),
    "batches that lack columns": lambda: iter([ARROW.slice(i, 1).drop_columns([] if i % 3 == 0 else ["note"]) for i in range(10)]),
}  # fmt: skip


@pytest.mark.parametrize("way", ["at once", "as a stream"])
def test_every_kind_of_input(table: tw.Table, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "as a stream":
        monkeypatch.setattr("tidewheel.cluster.attached.AT_ONCE", -1)
    for n, (kind, data) in enumerate(KINDS.items()):
        ack = table.insert(data(), package=kind)
        assert (ack.rows, ack.rejected, ack.generation, ack.duplicate) == (10, 0, n + 1, False), kind
        assert table.insert(data(), package=kind).duplicate
    rows = everything(table)
    assert rows == [row for row in ROWS for _ in KINDS]
    table.flush()
    assert everything(table) == rows
    for nothing in ([], ARROW.slice(0, 0), ARROW.slice(0, 0).to_batches(), ()):
        assert table.insert(nothing).rows == 0


def test_iterators_that_fail_or_are_huge(table: tw.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is inserted, and what the iterator raised is what the caller gets."""

    def half() -> Iterator[Any]:
        yield ARROW
        raise OSError("the sensor is gone")

    with pytest.raises(OSError, match="the sensor is gone") as raised:
        table.insert(half(), package="half")
    assert type(raised.value) is OSError and table.rows == 0
    assert table.insert(ARROW, package="half").rows == 10, "it was not loaded"
    with pytest.raises(tw.BadRowsError, match=r"column 'speed': 1 row .*row 12: 'fast'"):
        table.insert(iter([ARROW, *ROWS[:2], {**ROWS[2], "speed": "fast"}]))
    assert table.rows == 10
    ack = table.insert(iter([ARROW, {**ROWS[2], "speed": "fast"}, ROWS[3]]), on_bad="reject")
    assert (ack.rows, ack.rejected, table.rows) == (11, 1, 21) and "'fast'" in table.rejects().to_arrow()["reason"][0].as_py()
    taken = 0

    def endless() -> Iterator[Any]:
        nonlocal taken
        while True:
            taken += 1
            yield many(100_000)

    engine = table._engine
    acceptor = engine.acceptor if isinstance(engine, LocalTable) else engine._acceptor  # type: ignore[attr-defined]
    monkeypatch.setattr(acceptor, "_most_bytes", 10_000_000)
    with pytest.raises(tw.InputError, match="more than 10,000,000 bytes of rows.*Nothing was inserted"):
        table.insert(endless())
    assert taken < 20 and table.rows == 21


def test_a_table_of_rows(wh: tw.Warehouse) -> None:
    for n, (kind, data) in enumerate(KINDS.items()):
        if kind in ("structured array", "ISO text", "values of many types", "pandas, mixed", "batches that lack columns"):
            continue  # their types are not those of the others
        made = wh.create_table(f"t{n}", data(), time="ts", key="id")
        assert [{**row, "ts": row["ts"].replace(tzinfo=None)} for row in everything(made)] == ROWS, kind
    before = wh.tables()
    with pytest.raises(tw.BadRowsError, match="no value in the key column"):
        wh.create_table("bad", [*ROWS, {**ROWS[0], "id": None}], time="ts", key="id")
    assert wh.tables() == before
    with pytest.raises(ExistsError):
        wh.create_table("t0", ARROW, time="ts", key="id")
    assert wh.create_table("t0", ARROW, time="ts", key="id", if_exists="open").rows == 10, "opened, and nothing inserted"


def test_files(wh: tw.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(PARQUET)
    (folder / "b.csv").write_text("id,ts,speed,note\n77,2026-02-01,1.5,x\nx,2026-02-01,1.5,x\n")
    wh.create_table("taxi", SCHEMA, time="ts", key="id")
    monkeypatch.setattr("tidewheel.engine.file_loader.LARGE", 0)
    pq.write_table(many(), folder / "c.parquet", row_group_size=10_000)
    report = wh.load("taxi", folder, threads=2)
    assert [(file.rows, file.rejected, file.duplicate) for file in report] == [(10, 0, False), (1, 1, False), (MANY, 0, False)]
    table = wh.table("taxi")
    assert table.rows == MANY + 11 and table.state().fresh_rows == 0
    assert plain(table.query(time=(of(0), of(MANY)), order_by="ts").to_arrow()).equals(plain(many()))
    assert [one["origin"] for one in table.rejects().to_arrow().to_pylist()] == [f"{folder.resolve()}/b.csv:3"]
    assert wh.load("taxi", folder).duplicates == 3
    (folder / "d.csv").write_text("id,ts,colour\n1,2026-02-01,red\n")
    with pytest.raises(tw.InputError, match="d.csv was not loaded: it has fields that the table has no column for: colour"):
        wh.load("taxi", folder)
    monkeypatch.undo()
    (folder / "e.csv").write_text("id,ts\n5,2026-02-02\n")
    assert wh.load("taxi", folder / "e.csv").rows == 1 and table.state().fresh_rows == 1


def test_a_large_batch(table: tw.Table) -> None:
    assert table.insert(many(1_500_000)).rows == 1_500_000
    assert len(table.query()) == table.rows == 1_500_000
    assert table.query(time=(10**15, 10**15 + 4000)).to_arrow().num_rows == 5


# ---- twins --------------------------------------------------------------------------------------------------


class Twins:
    """A table of this process and one of another."""

    def __init__(self, local: tw.Table, attached: tw.Table) -> None:
        self.local, self.attached = local, attached

    def same(self, name: str, do: Callable[[tw.Table], Any]) -> Any:
        """What comes of it, in both."""
        here, there = (self._outcome(do, table) for table in (self.local, self.attached))
        assert there == here, name
        return here

    @staticmethod
    def _outcome(do: Callable[[tw.Table], Any], table: tw.Table) -> Any:
        try:
            found = do(table)
            if not isinstance(found, tw.Result):
                return found
            rows, stats = found.to_arrow(), found.stats
            cost = stats.regions_considered, stats.leaves_read, stats.rows_scanned, stats.rows_returned, stats.bytes
            return plain(rows), len(found), repr(found), *cost
        except tw.TidewheelError as e:
            return type(e), str(e), {k: v for k, v in vars(e).items() if k != "__notes__"}


def plain(rows: pa.Table) -> pa.Table:
    """Without dictionaries, which may differ where their values do not."""
    return rows.cast(pa.schema([f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in rows.schema]))


@pytest.fixture
def twins(tmp_path: Path, owner: OwnerProcess) -> Iterator[Twins]:
    folder = tmp_path.resolve()
    owner.open(folder / "attached")
    with tw.open(folder / "local") as one, tw.open(folder / "attached") as two:
        pair = []
        for wh in (one, two):
            table = wh.create_table("taxi", SCHEMA, time="ts", key="id")
            table.insert(many().slice(0, MANY // 2))
            table.flush()
            table.insert(many().slice(MANY // 2))
            pair.append(table)
        yield Twins(*pair)
    owner.close(folder / "attached")


def of(n: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=10**15 + 1000 * n)


QUERIES: dict[str, dict[str, Any]] = {
    "everything": {},
    "a key": {"key": 5},
    "keys": {"key": (5, 7)},
    "half open": {"key": (995, None), "time": (None, of(30_000))},
    "empty": {"key": (7, 5)},
    "NumPy bounds": {"key": (np.int64(5), np.float64(7.5)), "time": (np.datetime64(of(0)), np.datetime64(of(9999)))},
    "Arrow bounds": {"key": pa.scalar(5), "time": (pa.scalar(of(0)), None)},
    "pandas bounds": {"key": 5, "time": (pd.Timestamp(of(0)), pd.Timestamp(of(40_000)) + pd.Timedelta("1 ns"))},
    "decimal, date and text": {"key": (Decimal("4.5"), 6), "time": (dt.date(2001, 9, 9), of(20_000).isoformat())},
    "aware": {"key": 5, "time": (of(0).replace(tzinfo=dt.timezone(dt.timedelta(hours=1))), None)},
    "whole numbers": {"key": 5, "time": (10**15, 10**15 + 10**7)},
    "columns": {"key": 5, "columns": ["speed", "id"]},
    "columns, any iterable": {"key": 5, "columns": dict.fromkeys(["note"])},
    "where": {"where": "speed > 34 and note like '%3'"},
    "where, few": {"key": 5, "where": "speed > 30", "columns": ["id"]},
    "ranges": {"ranges": {"speed": (30, None), "note": ("note 3", "note 5")}},
    "ranges of key and time": {"ranges": {"id": (5, 7), "ts": (of(100), None), "speed": (None, 12.25)}, "columns": ["id", "ts"]},
    "ranges beside all": {"key": (3, 9), "time": (None, of(30_000)), "where": "speed > 1", "ranges": {"id": (5, 99), "ts": of(9005)}},
    "ranges and groups": {"ranges": {"speed": (30, 31)}, "group_by": ["note"], "aggregate": {"n": "count(*)"}, "order_by": "note"},
    "ranges and totals": {"ranges": {"speed": (30, 31)}, "aggregate": {"n": "count(*)", "v": "sum(speed)"}},
    "ranges and limit": {"ranges": {"speed": (30, 31)}, "limit": 5},
    "an empty range": {"ranges": {"speed": (31, 30)}},
    "order": {"key": (5, 8), "order_by": "speed desc, ts", "limit": 7},
    "limit": {"limit": 20_000},
    "small limit": {"limit": 3},
    "no rows": {"limit": 0},
    "aggregate": {"aggregate": {"n": "count(*)", "v": "avg(speed)"}},
    "groups": {"group_by": ["note"], "aggregate": {"n": "count(*)"}, "order_by": "note"},
    "groups of few": {"key": 5, "group_by": "note", "order_by": "note"},
    "with limits": {"key": 5, "timeout": 60.0, "max_rows": 1000, "max_bytes": 10**9},
    "unlimited": {"key": 5, "max_rows": math.inf},
    "skip what is damaged": {"key": 5, "on_corrupt": "skip"},
    "a list of keys": {"key": [5, 7, 7, 5000], "order_by": "ts"},
    "a set of keys": {"key": {5, 7}, "where": "speed > ?", "params": [30], "order_by": "ts"},
    "many keys": {"key": range(0, 1000, 3), "limit": 9, "order_by": "ts"},
    "no keys": {"key": []},
    "lists of values": {"ranges": {"note": ["note 3", "x"], "speed": [30, 30.5]}, "order_by": "ts"},
    "parameters": {"where": "id > $lo AND note = $note AND ts >= $at", "params": {"lo": 990, "note": "note 3", "at": of(9)}},
    "offset": {"key": 5, "order_by": "ts", "limit": 3, "offset": 2},
    "offset alone": {"offset": MANY - 2, "order_by": "ts"},
    "expressions": {"key": 5, "columns": ["id", "speed * 2 AS twice", "date_trunc('hour', ts)", "note"], "order_by": "twice, ts"},
    "groups of expressions": {"group_by": ["id % 3 AS rest"], "aggregate": {"n": "count(*)"}, "order_by": "rest"},
    # a function
    "function, expressions": {
        "where": lambda b: pc.greater(b["speed"], 34), "columns": ["upper(note) AS loud", "ts"], "order_by": "ts", "offset": 1,
    },
    "function, keys": {"where": lambda b: pc.greater(b["speed"], 30), "key": [5, 6], "order_by": "ts"},
    "function": {"where": lambda b: pc.greater(b["speed"], 34), "order_by": "ts"},
    "function, all of it": {
        "key": (3, 500), "time": (of(100), of(40_000)), "where": lambda b: b["speed"].to_numpy() > 30, "columns": ["ts", "note"],
        "order_by": ["id", "ts desc"], "limit": 100,
    },
    "function and groups": {"where": lambda b: pc.less(b["id"], 10), "group_by": ["id"], "aggregate": {"n": "count(*)"}, "order_by": "id"},
    "function and limit": {"key": 5, "where": lambda b: pc.less(b["speed"], 10), "limit": 2},
    "function and ranges": {"where": lambda b: pc.less(b["speed"], 10), "ranges": {"id": 5, "note": ("note 3", None)}, "order_by": "ts"},
    # what cannot be asked
    "no such column": {"columns": ["id", "spede"]},
    "columns are no text": {"columns": "id"},
    "twice": {"columns": ["id", "id"]},
    "no range": {"ranges": {"speed": (1, 2, 3)}},
    "no list": {"key": [5, None]},
    "no list of times": {"time": [of(0), of(9)]},
    "too few parameters": {"where": "id = ? AND speed > ?", "params": [5]},
    "no parameter": {"where": "id = ?", "params": [object]},
    "no offset": {"offset": -1},
    "no expression": {"columns": ["speed +"]},
    "an aggregate as column": {"columns": ["sum(speed)"]},
    "no group": {"group_by": ["spede + 1"]},
    "no ranges": {"ranges": ["speed", (1, 2)]},
    "a range of no column": {"ranges": {"spede": (1, 2)}},
    "a range of no number": {"ranges": {"speed": ("fast", None)}},
    "a range of no time": {"ranges": {"ts": (None, "tomorrow")}},
    "no key": {"key": "five"},
    "no time": {"time": ("yesterday", None)},
    "no bound": {"key": (1, {2, 3})},
    "no number": {"time": (1.5, None)},
    "three": {"key": (1, 2, 3)},
    "NaN": {"key": math.nan},
    "box": {"box": (1, 2, 3, 4)},
    "broken where": {"where": "speed >"},
    "wrong where": {"where": "spede > 3"},
    "where is no text": {"where": 5},
    "where fails": {"key": 5, "where": "cast(note as integer) > 3"},
    "wrong order": {"order_by": "spede"},
    "wrong limit": {"limit": -1},
    "wrong aggregate": {"aggregate": {"n": "speed"}},
    "aggregate of columns": {"aggregate": {"n": "count(*)"}, "columns": ["id"]},
    "wrong timeout": {"timeout": "soon"},
    "wrong on_corrupt": {"on_corrupt": "maybe"},
    "too many rows": {"max_rows": 10},
    "too many of few": {"key": 5, "max_rows": 10},
    "too many of a function": {"where": lambda b: pc.is_valid(b["id"]), "max_rows": 10},
    "too large": {"max_bytes": 10_000, "order_by": "speed"},
    "function, wrong order": {"where": lambda b: pc.is_valid(b["id"]), "order_by": "spede"},
    "function, wrong key": {"where": lambda b: pc.is_valid(b["id"]), "key": "five"},
    "function, wrong mask": {"where": lambda b: [1, 2]},
}  # fmt: skip


def test_every_kind_of_query(twins: Twins) -> None:
    for name, query in QUERIES.items():
        outcome = twins.same(name, lambda t, query=query: t.query(**query))  # type: ignore[misc]
        assert len(outcome) in (3, 8), name
        if len(outcome) == 8:
            twins.same(name, lambda t, query=query: t.query(**query).generation)  # type: ignore[misc]
            twins.same(name, lambda t, query=query: t.explain(**query).partition("\n  chunk ")[0])  # type: ignore[misc]
            twins.same(name, lambda t, query=query: plain(t.query(**query).reader().read_all()))  # type: ignore[misc]


BAD: dict[str, Any] = {
    "not rows": 5,
    "a dict": {"id": 1},
    "no dict": [{"id": 1, "ts": DAY, "speed": 1.0, "note": "x"}, 7],
    "missing column": [{"id": 1, "speed": 1.0}],
    "unknown column": ARROW.append_column("spede", [[1] * 10]),
    "twice": pa.Table.from_arrays([*ARROW.columns, ARROW["id"]], [*SCHEMA.names, "id"]),
    "too large": [*ROWS, {"id": 2**40, "ts": DAY, "speed": 1.0, "note": "x"}],
    "too large, Arrow": ARROW.set_column(0, "id", pa.array([2**40] * 10)),
    "mixed": [
        {"id": "7", "ts": DAY, "speed": 1, "note": b"x"},
        {"id": [1], "ts": dt.date(2026, 1, 1), "speed": Decimal("0.1"), "note": None},
    ],
    "many": [{"id": f"x{i}", "ts": DAY, "speed": 1.0, "note": "x"} for i in range(2000)],
    "a stranger": [{"id": object, "ts": DAY, "speed": 1.0, "note": "x"}],
    "no key": [{"id": None, "ts": DAY, "speed": 1.0, "note": "x"}],
    "no time": ARROW.set_column(1, "ts", pa.nulls(10, pa.timestamp("us"))),
    "wrong type": ARROW.set_column(1, "ts", pa.array([[1]] * 10)),
    "pandas, mixed": pd.DataFrame({"id": [1, "x"], "ts": [DAY, DAY], "speed": [1.5, 2.5], "note": ["a", None]}),
}  # fmt: skip


def test_bad_rows(twins: Twins) -> None:
    for name, data in BAD.items():
        error = twins.same(name, lambda t, data=data: t.insert(data))  # type: ignore[misc]
        assert issubclass(error[0], tw.InputError), error
    assert twins.same("on_bad", lambda t: t.insert(ARROW, on_bad="ignore"))[0] is tw.InputError
    assert twins.same("rows", lambda t: t.rows) == MANY


def test_rejects(wh: tw.Warehouse, table: tw.Table) -> None:
    assert len(table.rejects()) == 0
    for name, data in BAD.items():
        if name in ("too large", "too large, Arrow", "mixed", "no key", "no time", "a stranger", "pandas, mixed"):
            table.insert(data, on_bad="reject", package=name)
    kept = table.rejects().to_arrow().select(["position", "column", "reason", "row", "package"]).to_pylist()
    assert len(kept) == 1 + 10 + 1 + 1 + 10 + 1 + 1
    assert table.rows == 10 + 1 + 1
    by_package = {row["package"]: row for row in kept}
    assert by_package["too large"]["position"] == 10
    assert by_package["mixed"]["row"] == '{"id": [1], "ts": "2026-01-01", "speed": "0.1", "note": null}'
    assert by_package["a stranger"]["reason"].startswith("<class 'object'> doesn't fit int32")
    assert by_package["pandas, mixed"]["reason"] == "'x' doesn't fit int32"
    assert table.metrics().rejected == len(kept)
    table.flush()
    assert table.rejects().to_arrow().num_rows == len(kept)


# ---- what users do ------------------------------------------------------------------------------------------


def test_tables_come_and_go(wh: tw.Warehouse) -> None:
    assert wh.tables() == []
    place = wh.create_table(
        "place", pa.schema([("lon", pa.float64()), ("lat", pa.float64()), ("ms", pa.int64())], {"who": "us"}),
        time=tw.epoch("ms", "ms"), key=tw.zorder("lon", "lat", bounds=(0, 0, 1, 1)), partition="1 day",
    )  # fmt: skip
    wh.create_table("addresses", pa.schema([("a", pa.string()), ("day", pa.date32())]), time="day", key=tw.ip("a"), partition="1 day")
    assert wh.tables() == ["addresses", "place"]
    assert wh.table("place").schema.equals(place.schema, check_metadata=True)
    assert (place.key, place.time) == (tw.zorder("lon", "lat", bounds=(0, 0, 1, 1)), "ms")
    place.insert([{"lon": 0.5, "lat": 0.5, "ms": 7}, {"lon": 0.9, "lat": 0.1, "ms": 8}])
    assert place.query(box=(0.4, 0.4, 0.6, 0.6)).to_pylist() == [{"lon": 0.5, "lat": 0.5, "ms": 7}]
    with pytest.raises(ExistsError, match="is there already"):
        wh.create_table("place", place.schema, time=tw.epoch("ms", "ms"), key="lon")
    with pytest.raises(ExistsError, match="another definition"):
        wh.create_table("place", place.schema, time=tw.epoch("ms", "ms"), key="lon", if_exists="open")
    assert wh.create_table("place", place.schema, time=tw.epoch("ms", "ms"), key=place.key, partition="1 day", if_exists="open").rows == 2
    with pytest.raises(tw.InputError, match="if_exists"):
        wh.create_table("other", place.schema, time=tw.epoch("ms", "ms"), key="lon", if_exists="what")
    with pytest.raises(tw.NotFoundError, match="Did you mean 'place'"):
        wh.table("plase")
    result = place.query()
    wh.drop_table("place")
    assert wh.tables() == ["addresses"]
    assert result.to_arrow().num_rows == 2
    with pytest.raises(tw.TidewheelError, match="'place' was dropped"):
        place.insert([{"lon": 0.5, "lat": 0.5, "ms": 7}])
    with pytest.raises(tw.NotFoundError):
        wh.drop_table("place")
    again = wh.create_table("place", SCHEMA, time="ts", key="id")
    assert again.rows == 0
    assert again.schema == SCHEMA


def test_a_result_is_lazy_and_keeps_its_version(table: tw.Table) -> None:
    table.insert(many())
    large, small = table.query(), table.query(key=5)
    counted = len(table.query(key=5))
    halves = iter(large)
    first = next(halves)
    table.insert(many())
    table.flush()
    table.replace([], time=(None, None))
    assert table.rows == 0
    assert len(large) == large.to_arrow().num_rows == MANY
    assert len(small) == small.to_arrow().num_rows == counted
    assert first.num_rows + sum(batch.num_rows for batch in halves) == MANY
    assert large.to_arrow().equals(large.to_arrow())
    assert small.to_pylist() == small.to_pylist()
    assert (large.stats.rows_returned, small.stats.rows_returned) == (MANY, counted)
    assert large.plan.generation == large.generation == small.generation == 1
    assert table.query().generation > 1


def test_ways_to_take_a_result(table: tw.Table) -> None:
    table.insert(many())
    for query in ({}, {"key": 5}):
        result = table.query(order_by="ts", **query)  # type: ignore[arg-type]
        rows = result.to_arrow()
        assert result.to_pandas().equals(rows.to_pandas())
        assert result.to_polars().equals(pl.from_arrow(rows))  # type: ignore[arg-type]
        assert plain(pa.Table.from_batches(result.to_batches())) == plain(rows)
        assert plain(result.reader().read_all()) == plain(rows)
        assert plain(pa.table(result)) == plain(rows)
        assert result.schema == rows.schema
        assert pl.DataFrame(result).height == len(rows)


def test_packages_and_replace(table: tw.Table) -> None:
    assert table.insert(ARROW, package="one") == tw.Ack(10, 0, 1)
    assert table.insert(ARROW, package="one") == tw.Ack(0, 0, 1, True)
    with pytest.raises(tw.InputError, match="a package is named by a text"):
        table.insert(ARROW, package=5)  # type: ignore[arg-type]
    ack = table.replace([ROWS[2]], time=(DAY, DAY + dt.timedelta(seconds=4)))
    assert (ack.rows, table.rows) == (1, 6)
    assert everything(table) == [ROWS[2], *ROWS[5:]]
    with pytest.raises(tw.BadRowsError, match="outside the interval") as error:
        table.replace(ARROW, time=(DAY, DAY))
    assert error.value.rows == (1,)
    for interval in (None, (5, 4), ("x", None)):
        with pytest.raises(tw.InputError):
            table.replace(ARROW, time=interval)
    assert table.rows == 6
    state = table.state()
    assert (state.rows, state.generation, state.fresh_rows + state.historical_rows) == (6, ack.generation, 11)
    table.flush()
    assert table.state().fresh_rows == 0
    assert table.metrics().rows == 10


def test_a_timeout(table: tw.Table) -> None:
    table.insert(many())
    slow = "md5(" * 60 + "note || ts" + ")" * 60 + " <> ''"
    with pytest.raises(tw.LimitError, match=r"longer than its timeout of 0\.05 s"):
        table.query(where=slow, timeout=0.05).to_arrow()
    result = table.query(where=lambda b: time.sleep(0.1) or pc.is_valid(b["id"]), timeout=0.05)
    with pytest.raises(tw.LimitError, match="timeout"):
        list(result)
    assert table.query(key=5, timeout=60).to_arrow().num_rows == 50


def test_cancel(table: tw.Table) -> None:
    table.insert(many())
    for query in ({}, {"key": 5}, {"where": lambda b: pc.is_valid(b["id"])}):
        result = table.query(**query)  # type: ignore[arg-type]
        batches = iter(result)
        result.cancel()
        result.cancel()
        for read in (len, list, lambda r: r.to_arrow(), lambda r: r.plan, lambda r: r.explain(), lambda r: r.generation):
            with pytest.raises(tw.CancelledError):
                read(result)
        with pytest.raises(tw.CancelledError):
            next(batches)
        assert "cancelled" in repr(result)


def test_cancel_while_it_is_read(table: tw.Table) -> None:
    table.insert(many())
    result = table.query(where="md5(" * 200 + "note || ts" + ")" * 200 + " <> ''")
    threading.Timer(0.2, result.cancel).start()
    began = time.monotonic()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    assert time.monotonic() - began < 20


def test_many_threads(table: tw.Table) -> None:
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(10):
                table.insert([{"id": n, "ts": DAY + dt.timedelta(seconds=i), "speed": 1.0, "note": "x"}])
                assert table.query(key=n).to_arrow().num_rows == i + 1
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert table.rows == 60


def test_check_and_backup(wh: tw.Warehouse, table: tw.Table, tmp_path: Path) -> None:
    table.insert(many())
    told: list[tuple[int, int]] = []
    made = wh.backup(tmp_path / "backup", progress=lambda *at: told.append(at))
    assert (made.rows, made.folder) == (MANY, str((tmp_path / "backup").resolve()))
    assert told[-1][0] == told[-1][1] > 0
    told.clear()
    report = wh.check(progress=lambda *at: told.append(at))
    assert report.ok
    assert report.rows == MANY
    assert told
    assert wh.check().ok
    assert str(wh.recovery) == "closed properly, nothing to recover"
    for wrong in ({"verify": "x"}, {}):
        with pytest.raises(tw.InputError):
            wh.backup(root_of(wh) / "inside", **wrong)
    tw.restore(tmp_path / "backup", tmp_path / "again")
    with tw.open(tmp_path / "again") as again:
        assert again.table("taxi").rows == MANY


def test_after_close(wh: tw.Warehouse, table: tw.Table) -> None:
    table.insert(many())
    large, small = table.query(), table.query(key=5)
    wh.close()
    wh.close()
    assert (len(large.to_arrow()), len(small.to_arrow())) == (MANY, 50)
    del large
    for call in (wh.tables, lambda: wh.table("taxi"), lambda: wh.check()):
        with pytest.raises(tw.TidewheelError, match="was closed; open it again"):
            call()
    for use in (lambda: table.insert(ARROW), lambda: table.query(), table.flush):
        with pytest.raises(tw.TidewheelError, match="was closed"):
            use()


def test_engines_of_other_processes_are_attached(wh: tw.Warehouse, table: tw.Table) -> None:
    assert isinstance(Probe(table).engine, LocalTable) == engine_of(wh).owns
    assert not engine_of(wh).lost
    assert engine_of(wh).settings == tw.Settings()


# ---- questions ----------------------------------------------------------------------------------------------


def test_the_last_rows_are_the_same(twins: Twins) -> None:
    for name, asked in {
        "all": {"order_by": "id"},
        "of some keys": {"key": [3, 4, 5000], "order_by": "id"},
        "where": {"where": "speed < ?", "params": [3.0], "columns": ["id", "ts", "speed * 2 AS twice"], "order_by": "id"},
        "function": {"where": lambda batch: pc.less(batch["speed"], 3.0), "key": (3, 90), "order_by": "id desc", "limit": 9},
        "wrong": {"where": "spede < 3"},
    }.items():
        outcome = twins.same(name, lambda t, asked=asked: t.latest(**asked))  # type: ignore[misc]
        assert name == "wrong" or outcome[0].num_rows


def test_networks_are_keys(wh: tw.Warehouse) -> None:
    schema = pa.schema([("src", pa.string()), ("ts", pa.timestamp("us"))])
    flows = wh.create_table("flows", schema, time="ts", key=tw.ip("src"))
    flows.insert([{"src": text, "ts": DAY} for text in ("9.0.0.1", "10.0.0.1", "10.9.9.9", "99.1.1.1", "2001:db8::1", "2001:db9::1")])
    for key in ("10.0.0.0/8", ipaddress.ip_network("10.0.0.0/8"), ["10.0.0.0/9", ipaddress.ip_address("10.9.9.9")]):
        assert sorted(flows.query(key=key).to_arrow()["src"].to_pylist()) == ["10.0.0.1", "10.9.9.9"]
    assert flows.query(key=["2001:db8::/32"]).to_arrow()["src"].to_pylist() == ["2001:db8::1"]
    assert len(flows.query(where="ip_in(src, ?)", params=["10.0.0.0/8"])) == 2
    assert len(wh.sql("SELECT src FROM flows WHERE ip_between(src, '10.0.0.0', '99.255.255.255')")) == 3
    with pytest.raises(tw.QueryError, match="ip_between"):
        wh.sql("SELECT src FROM flows WHERE src BETWEEN '10.0.0.0' AND '99.255.255.255'")
