"""What `insert` takes, end to end: every kind of input gives the same rows, and bad input changes nothing."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import tidewheel as tw

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32()),
        pa.field("ts", pa.timestamp("us")),
        pa.field("speed", pa.float32()),
        pa.field("note", pa.string()),
    ]
)
DAY = dt.datetime(2026, 1, 1)
ROWS = [{"id": i, "ts": DAY + dt.timedelta(seconds=i), "speed": i / 2, "note": None if i % 3 else f"n{i}"} for i in range(10)]
ARROW = pa.Table.from_pylist(ROWS, SCHEMA)


@pytest.fixture
def taxi(tmp_path: Path) -> Iterator[tw.Table]:
    with tw.open(tmp_path / "wh") as wh:
        yield wh.create_table("taxi", SCHEMA, time="ts", key="id")


def everything(table: tw.Table) -> list[dict[str, Any]]:
    return table.query(order_by="id").to_arrow().to_pylist()


class Stream:
    """Any library's rows: all it has is the Arrow stream protocol."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return ARROW.__arrow_c_stream__(requested_schema)


def as_pandas() -> Any:
    return pd.DataFrame(ARROW.to_pandas())


def as_polars() -> Any:
    return pl.from_arrow(ARROW)


KINDS = {
    "table": lambda: ARROW,
    "table in pieces": lambda: pa.concat_tables([ARROW.slice(i, 1) for i in range(10)]),
    "columns in another order": lambda: ARROW.select(["note", "ts", "id", "speed"]),
    "record batch": lambda: ARROW.to_batches()[0],
    "reader": lambda: ARROW.to_reader(max_chunksize=3),
    "list of dicts": lambda: ROWS,
    "tuple of dicts": lambda: tuple(ROWS),
    "dicts without their nulls": lambda: [{k: v for k, v in row.items() if v is not None} for row in ROWS],
    "ISO text": lambda: [row | {"ts": row["ts"].isoformat()} for row in ROWS],
    "wider types": lambda: ARROW.cast(
        pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ns")), ("speed", pa.float64()), ("note", pa.large_string())])
    ),
    "with a zone": lambda: ARROW.set_column(1, "ts", ARROW["ts"].cast(pa.timestamp("us", "UTC"))),
    "dictionary": lambda: ARROW.set_column(3, "note", ARROW["note"].dictionary_encode()),
    "Arrow stream protocol": Stream,
    "pandas": as_pandas,
    "polars": as_polars,
    "polars, lazy": lambda: as_polars().lazy(),
}


INDEXED: dict[str, Any] = {
    "of times, named": lambda frame: frame.set_index("ts"),
    "of times, without a name": lambda frame: frame.set_index("ts").rename_axis(None),
    "of keys": lambda frame: frame.set_index("id"),
    "of keys and times": lambda frame: frame.set_index(["id", "ts"]),
    "of numbers, without a name": lambda frame: frame.set_index(frame["id"].to_numpy()),
}


@pytest.mark.parametrize("kind", INDEXED)
def test_an_index_of_pandas_is_columns_where_they_lack(taxi: tw.Table, tmp_path: Path, kind: str) -> None:
    frame = INDEXED[kind](as_pandas())
    assert taxi.insert(frame).rows == 10 and everything(taxi) == ROWS
    with tw.open(tmp_path / "other") as wh:
        made = wh.create_table("taxi", frame, time="ts", key="id")
        assert set(made.schema.names) == set(SCHEMA.names) and len(everything(made)) == 10


def test_an_index_that_may_be_what_lacks_is_named(taxi: tw.Table) -> None:
    for names in ([None, None], ["plate", "ts"]):
        with pytest.raises(tw.InputError, match="has no column '(ts|id)'. Is it in the index"):
            taxi.insert(as_pandas().set_index(["id", "ts"]).rename_axis(names))
    with pytest.raises(tw.InputError, match="lacks column 'id'"):
        taxi.insert(as_pandas().drop(columns="id"))


MANY = {
    "table": lambda many: many, "pandas": lambda many: pd.DataFrame(many.to_pandas()), "polars": pl.from_arrow,
    "reader": lambda many: many.to_reader(), "dataset": pads.dataset, "dicts": lambda many: many.to_pylist(),
    "iterator of dicts": lambda many: iter(many.to_pylist()), "stream": lambda many: iter(many.to_batches(max_chunksize=700)),
    "frames": lambda many: [pd.DataFrame(many.slice(lo, 1500).to_pandas()) for lo in range(0, 6000, 1500)],
}  # fmt: skip


@pytest.mark.parametrize("kind", [*MANY, "ParquetFile"])
def test_a_table_is_made_of_more_rows_than_one_insert_takes(tmp_path: Path, kind: str) -> None:
    many = pa.Table.from_pylist([ROWS[i % 10] | {"id": i, "note": "n" * (i % 50)} for i in range(6000)], SCHEMA)
    if kind == "ParquetFile":
        pq.write_table(many, tmp_path / "a.parquet", row_group_size=1000)
    with tw.open(tmp_path / "wh", settings=tw.Settings(max_batch_bytes=40_000)) as wh:
        if kind == "ParquetFile":
            with pq.ParquetFile(tmp_path / "a.parquet") as file:
                made = wh.create_table("many", file, time="ts", key="id")
        else:
            made = wh.create_table("many", MANY[kind](many), time="ts", key="id")
        assert made.query(order_by="id").to_arrow().select(SCHEMA.names).to_pylist() == many.to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_same_rows(taxi: tw.Table, kind: str) -> None:
    ack = taxi.insert(KINDS[kind]())
    assert (ack.rows, ack.rejected, ack.duplicate) == (10, 0, False)
    assert everything(taxi) == ROWS
    taxi.flush()
    assert everything(taxi) == ROWS


@pytest.mark.parametrize("nothing", [[], ARROW.slice(0, 0), ARROW.slice(0, 0).to_batches(), ()])
def test_nothing_is_fine(taxi: tw.Table, nothing: Any) -> None:
    assert taxi.insert(nothing).rows == 0
    assert taxi.rows == 0


def test_a_huge_batch_is_fine(taxi: tw.Table) -> None:
    n = 2_500_000
    data = pa.table(
        [
            pa.array(np.arange(n, dtype=np.int32)),
            pa.array(np.arange(n), pa.timestamp("us")),
            pa.array(np.zeros(n, np.float32)),
            pa.nulls(n, pa.string()),
        ],
        schema=SCHEMA,
    )
    assert taxi.insert(data).rows == n
    assert len(taxi.query(key=(n - 5, None))) == 5
    taxi.flush()
    assert len(taxi.query(key=(n - 5, None))) == 5
    assert taxi.rows == n


def test_memory_that_may_change_is_copied(taxi: tw.Table) -> None:
    frame = as_pandas()
    taxi.insert(frame)
    frame["id"] += 100
    frame.loc[:, "speed"] = -1.0
    assert everything(taxi) == ROWS


BAD = {
    "missing column": (ARROW.drop_columns(["ts"]), "ts", "lacks column 'ts'"),
    "unknown column": (ARROW.append_column("sped", ARROW["speed"]), "sped", "no column 'sped'. Did you mean 'speed'?"),
    "null key": ([ROWS[0], ROWS[1] | {"id": None}], "id", "row 1: None"),
    "no time": ([ROWS[0], {"id": 3, "speed": 1.0}], "ts", "row 1: None"),
    "too large": ([ROWS[0], ROWS[1] | {"id": 2**40}], "id", f"row 1: {2**40}"),
    "not whole": ([ROWS[0] | {"id": 1.5}], "id", "row 0: 1.5"),
    "not a time": ([ROWS[0], ROWS[1], ROWS[2] | {"ts": "noon"}], "ts", "row 2: 'noon'"),
    "wrong type": (ARROW.set_column(2, "speed", pa.array([[1.0]] * 10)), "speed", "list<item: double> → float"),
    "duplicate column": (pa.Table.from_arrays([*ARROW.columns, ARROW["id"]], names=[*ARROW.column_names, "id"]), "id", "twice"),
    "finer than the column": (
        ARROW.set_column(1, "ts", pa.array([1] * 10, pa.timestamp("ns"))),
        "ts",
        "10 rows don't fit timestamp[us]",
    ),
    "not a dict": ([ROWS[0], 7], "", "row 1 is a int"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_names_table_column_and_rows_and_changes_nothing(taxi: tw.Table, kind: str) -> None:
    taxi.insert(ROWS[:3])
    before = taxi.state()
    data, column, said = BAD[kind]
    with pytest.raises(tw.BadRowsError) as error:
        taxi.insert(data)
    assert "'taxi'" in str(error.value) and said in str(error.value)
    assert error.value.table == "taxi" and error.value.column == column
    if "row " in said:
        assert error.value.rows == (int(said.split("row ")[1].split(":")[0].split(" ")[0]),)
    assert taxi.state() == before
    assert everything(taxi) == ROWS[:3]


@pytest.mark.parametrize("thing", [None, 5, "rows.csv", {"id": [1]}, object(), np.zeros(3), iter([1, 2])])
def test_what_is_no_rows_at_all_is_refused(taxi: tw.Table, thing: Any) -> None:
    with pytest.raises(tw.InputError, match=r"'taxi' takes|structured"):
        taxi.insert(thing)


def test_nan_keys_are_refused_and_nan_values_kept(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.float64()), ("ts", pa.timestamp("s")), ("v", pa.float64())])
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        with pytest.raises(tw.BadRowsError, match=r"column 'k'.*NaN.*row 1"):
            table.insert([{"k": 1.0, "ts": 0, "v": 0.0}, {"k": float("nan"), "ts": 0, "v": 0.0}])
        assert table.rows == 0
        table.insert([{"k": 1.0, "ts": 0, "v": float("nan")}])
        assert np.isnan(table.query().to_arrow()["v"][0].as_py())


def test_many_bad_rows_are_counted_and_the_first_shown(taxi: tw.Table) -> None:
    rows = [row | {"id": None} if i in (2, 4, 5, 6, 7, 8, 9) else row for i, row in enumerate(ROWS)]
    with pytest.raises(tw.BadRowsError, match=r"7 rows have no value in the key column.*row 2.*row 4.*row 5.*row 6.*row 7.*…") as error:
        taxi.insert(rows)
    assert error.value.rows == (2, 4, 5, 6, 7, 8, 9)


class TestRejects:
    MIXED = (ROWS[0], ROWS[1] | {"id": None}, ROWS[2], ROWS[3] | {"ts": "noon"}, ROWS[4] | {"speed": "fast"})

    def test_good_rows_go_in_and_bad_ones_are_kept_with_their_reason(self, taxi: tw.Table) -> None:
        ack = taxi.insert(self.MIXED, on_bad="reject", package="file-1")
        assert (ack.rows, ack.rejected) == (2, 3)
        assert everything(taxi) == [ROWS[0], ROWS[2]]
        rejects = taxi.rejects().to_arrow().to_pylist()
        assert [(r["position"], r["column"], r["package"]) for r in rejects] == [
            (1, "id", "file-1"), (3, "ts", "file-1"), (4, "speed", "file-1"),
        ]  # fmt: skip
        assert "noon" in rejects[1]["reason"] and "doesn't fit timestamp[us]" in rejects[1]["reason"]
        assert json.loads(rejects[2]["row"])["speed"] == "fast"
        assert all(abs((dt.datetime.now(dt.UTC) - r["rejected_at"]).total_seconds()) < 60 for r in rejects)

    def test_rejects_of_a_table_without_any(self, taxi: tw.Table) -> None:
        assert len(taxi.rejects()) == 0
        assert taxi.rejects().schema.names == ["rejected_at", "position", "column", "reason", "row", "package", "stream", "batch", "origin"]

    def test_they_survive_close_and_are_no_table_of_their_own(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            wh.create_table("taxi", SCHEMA, time="ts", key="id").insert(self.MIXED, on_bad="reject")
            assert wh.tables() == ["taxi"]
        with tw.open(tmp_path / "wh") as wh:
            taxi = wh.table("taxi")
            assert [r["position"] for r in taxi.rejects().to_arrow().to_pylist()] == [1, 3, 4]
            taxi.insert([ROWS[5] | {"id": None}], on_bad="reject")
            assert len(taxi.rejects()) == 4
            assert wh.tables() == ["taxi"]

    def test_all_rows_bad(self, taxi: tw.Table) -> None:
        ack = taxi.insert([ROWS[1] | {"id": None}], on_bad="reject")
        assert (ack.rows, ack.rejected) == (0, 1)
        assert taxi.rows == 0 and len(taxi.rejects()) == 1

    def test_a_whole_batch_of_the_wrong_shape_is_still_an_error(self, taxi: tw.Table) -> None:
        with pytest.raises(tw.BadRowsError, match="lacks column"):
            taxi.insert(ARROW.drop_columns(["id"]), on_bad="reject")
        assert taxi.rows == 0 and len(taxi.rejects()) == 0

    def test_on_bad_is_checked(self, taxi: tw.Table) -> None:
        with pytest.raises(tw.InputError, match='"error" or "reject"'):
            taxi.insert(ROWS, on_bad="ignore")
