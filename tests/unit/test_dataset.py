"""table.dataset(): scanned by Arrow, DuckDB and Polars; filters are exact, whatever they are made of."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left
from tests.sql_tables import DAY, Twin, make, told
from tidewheel.model.conditions import Both, Comparison, Either, IsNull, Negation, OneOf, Unknown
from tidewheel.sql.arrow_filters import condition_of

F = pc.field


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    twin = make(tmp_path_factory.mktemp("dataset") / "wh", seed=3, n=1200)
    yield twin
    twin.wh.close()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


def same(ours: pa.Table, theirs: pa.Table) -> bool:
    return told(ours) == told(theirs)


# ---- scans --------------------------------------------------------------------------------------------------


def test_it_is_a_dataset_of_arrow(twin: Twin) -> None:
    given, dataset = twin.rows["trips"], twin.wh.table("trips").dataset()
    assert isinstance(dataset, pds.Dataset) and dataset.schema == given.schema and repr(dataset) == "<TableDataset trips>"
    assert same(dataset.to_table(), given)
    assert dataset.to_table(columns=["note", "id"]).schema.names == ["note", "id"]
    assert dataset.count_rows() == len(given) and dataset.count_rows(filter=F("id") < 5) == given.filter(F("id") < 5).num_rows
    assert dataset.head(7).num_rows == 7 and dataset.head(3, columns=["id"], filter=F("id") == 3).column("id").to_pylist() == [3] * 3
    assert dataset.take([0, 1]).num_rows == 2
    assert max(batch.num_rows for batch in dataset.to_batches(batch_size=10)) <= 10
    scanner = dataset.scanner(columns=["id"], filter=F("id") == 3)
    assert isinstance(scanner, pds.Scanner) and scanner.to_table().num_rows == given.filter(F("id") == 3).num_rows
    made = dataset.scanner(columns={"twice": F("tiny").cast(pa.int64()) * 2}, filter=F("id") == 3).to_table()
    assert made.schema.names == ["twice"] and made.num_rows == given.filter(F("id") == 3).num_rows
    assert sum(batch.num_rows for batch in dataset.scanner().to_batches()) == len(given)


def test_every_scan_shows_the_newest_rows(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="id")
        dataset = table.dataset()
        assert dataset.count_rows() == 0
        table.insert([{"id": 1, "ts": DAY}])
        assert dataset.count_rows() == 1
        begun = dataset.to_batches()
        first = next(begun)
        table.insert([{"id": 2, "ts": DAY}])
        assert first.num_rows + sum(batch.num_rows for batch in begun) == 1 and dataset.count_rows() == 2


FILTERS = [
    F("id") == 7, F("id") != 7, F("id") > 57, F("id") >= 57.5, F("id") < 2.0, pc.scalar(7) == F("id"), F("id") > 10**17,
    F("id").isin([3, 4, 50]),
    F("id").isin([]), F("id").isin([None, 3]), ~F("id").isin([3, 4]), F("id").is_null(), F("id").is_valid(), ~(F("id") > 3),
    (F("id") < 3) | (F("id") > 57), (F("id") == 3) & (F("id") == 4), (F("id") > 3) & (F("note") == "ab"),
    (F("id") == 3) | (F("note") == "ab"),
    F("ts") < DAY + dt.timedelta(hours=3), F("ts") >= pa.scalar(DAY + dt.timedelta(hours=100), pa.timestamp("ns")),
    (F("ts") > DAY) & (F("ts") < DAY + dt.timedelta(hours=1)) | (F("ts") > DAY + dt.timedelta(hours=220)), F("ts") == DAY,
    (F("id") == 3) & (F("ts") < DAY + dt.timedelta(hours=40)) | (F("id") == 9) & (F("ts") > DAY + dt.timedelta(hours=200)),
    F("speed") > 3.0, F("speed") != 0.0, F("speed").is_nan(), F("speed").is_null(nan_is_null=True),
    ~(F("speed") < 1.5), F("speed").isin([0.0, 1.5]),
    F("note").is_null(), F("note") >= "b", pc.starts_with(F("note"), "a"), pc.utf8_length(F("note")) > 2, F("kind") == "bus",
    F("fare") > Decimal("10.00"), F("day") == dt.date(2026, 1, 2), F("ok"), ~F("ok"), F("ok") == True, F("blob") == b"ab",  # noqa: E712
    F("tiny").cast(pa.int64()) + F("id") > 40, F("big") > pa.scalar(5, pa.uint64()),
    F("seen") < dt.datetime(2026, 1, 3, tzinfo=dt.UTC), F("ms") < DAY,
    pc.if_else(F("ok"), F("id") == 3, F("id") == 4), F("id").cast(pa.float64()) > 3.5, F("id").cast(pa.string()) == "12", pc.scalar(True),
    pc.scalar(False), (F("id") == 3) & pc.scalar(True), (F("tiny") > F("id")) & (F("id") < 5),
]  # fmt: skip


@pytest.mark.parametrize("asked", FILTERS, ids=str)
def test_filters_are_exact(twin: Twin, asked: pc.Expression) -> None:
    given = twin.rows["trips"]
    expected = pds.dataset(given).to_table(filter=asked, columns=["id", "ts", "note"])
    dataset = twin.wh.table("trips").dataset()
    assert same(dataset.to_table(filter=asked, columns=["id", "ts", "note"]), expected)
    assert dataset.count_rows(filter=asked) == expected.num_rows


@pytest.mark.parametrize("name", ["trips", "spots", "words", "flows"])
def test_filters_at_random_are_exact(twin: Twin, name: str) -> None:
    rng = random.Random(name)
    given, dataset = twin.rows[name], twin.wh.table(name).dataset()
    plain = pds.dataset(given)

    values = {column: given.column(column).drop_null().to_pylist() for column in given.schema.names}

    def literal(column: str) -> Any:
        return rng.choice(values[column])

    def condition(depth: int) -> pc.Expression:
        if depth and rng.random() < 0.6:
            a, b = condition(depth - 1), condition(depth - 1)
            return rng.choice([a & b, a | b, ~a])
        column = rng.choice([c for c in given.schema.names if c not in ("ok", "kind", "blob")])
        field = F(column)
        value = pa.scalar(literal(column), given.schema.field(column).type)
        return rng.choice([
            field == value, field < value, field <= value, field > value, field >= value, field != value, field.is_null(),
            field.isin(pa.array([literal(column) for _ in range(3)], given.schema.field(column).type)),
        ])  # fmt: skip

    for _ in range(150):
        asked = condition(3)
        assert same(dataset.to_table(filter=asked), plain.to_table(filter=asked)), str(asked)


# ---- others that scan it ------------------------------------------------------------------------------------


def test_duckdb_reads_it(twin: Twin) -> None:
    statements = [
        "SELECT count(*) FROM trips", "SELECT * FROM trips WHERE id IN (3, 9) AND ts > '2026-01-02'",
        "SELECT max(speed) FROM trips WHERE note LIKE 'a%'",
        "SELECT kind, count(*) FROM trips WHERE fare > 3 OR id < 3 GROUP BY kind",
        "SELECT a.id FROM trips a JOIN trips b ON a.ts = b.ts WHERE a.id < 3",
    ]  # fmt: skip
    with duckdb.connect() as own:
        own.execute("SET TimeZone = 'UTC'")
        own.register("trips", twin.wh.table("trips").dataset())
        for statement in statements:
            assert same(own.sql(statement).to_arrow_table(), twin.duck.sql(statement).to_arrow_table()), statement
    trips = twin.wh.table("trips").dataset()  # also as a variable of Python's
    assert duckdb.sql("SELECT count(*) FROM trips").fetchall() == [(trips.count_rows(),)]


def test_polars_reads_it(twin: Twin) -> None:
    lazy = pl.scan_pyarrow_dataset(twin.wh.table("spots").dataset())
    frame = pl.from_arrow(twin.rows["spots"])
    assert isinstance(frame, pl.DataFrame)
    for asked in (
        pl.col("lon") > 50, (pl.col("lon") < 10) & (pl.col("lat") < 50), pl.col("n").is_in([3, 4]), pl.col("name").is_null(),
        pl.col("stamp") < DAY + dt.timedelta(hours=50), (pl.col("n") == 3) | (pl.col("lat") > 90),
    ):  # fmt: skip
        columns = ["lon", "stamp", "n"]
        assert lazy.filter(asked).select(columns).sort(columns).collect().equals(frame.filter(asked).select(columns).sort(columns)), str(
            asked
        )
    assert lazy.select(pl.len()).collect().item() == len(frame)
    assert lazy.head(3).collect().shape[0] == 3


# ---- what it refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["filter", "replace_schema", "get_fragments", "sort_by", "join", "join_asof"])
def test_what_a_table_is_not(twin: Twin, name: str) -> None:
    dataset = twin.wh.table("trips").dataset()
    arguments = [] if name == "get_fragments" else [F("id") == 3]
    with pytest.raises(tw.QueryError, match=f"the dataset of table 'trips' has no {name}"):
        getattr(dataset, name)(*arguments)


def test_mistakes(twin: Twin) -> None:
    dataset = twin.wh.table("trips").dataset()
    with pytest.raises(tw.QueryError, match=r"has no column 'idd'. Did you mean 'id'\?"):
        dataset.to_table(columns=["idd"])
    with pytest.raises(tw.QueryError, match="has no column 'idd'"):
        dataset.to_table(filter=F("idd") == 3)
    with pytest.raises(tw.QueryError, match="is an expression of pyarrow"):
        dataset.to_table(filter="id = 3")
    with pytest.raises(tw.QueryError, match="list of column names"):
        dataset.to_table(columns="id")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(dataset)


# ---- how filters are read -----------------------------------------------------------------------------------


def test_expressions_are_understood() -> None:
    three = pa.scalar(3)
    assert condition_of(F("a") == 3) == Comparison("a", "=", three)
    assert condition_of(pc.scalar(3) < F("a")) == Comparison("a", ">", three)
    assert condition_of((F("a") > 3) & ~F("b").is_null()) == Both(Comparison("a", ">", three), Negation(IsNull("b")))
    assert condition_of(F("a").isin([3]) | F("b").is_valid()) == Either(OneOf("a", pa.array([3])), Negation(IsNull("b")))
    assert condition_of(F("a", "b") == 3) == Unknown(("a",))
    assert condition_of(F("a") + F("b") > 3) == Unknown(("a", "b"))
    assert condition_of(F(0) == 3) == Unknown(None)
    assert isinstance(condition_of(F("a") == pa.scalar(None, pa.int64())), Unknown)
