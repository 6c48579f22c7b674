"""What people do with answers and tables first: names they know, notebooks, files, frames, other processes. Owned and attached."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidewheel as tw
from tests.integration.handed import DAY, name_and_rows
from tests.integration.owners import OwnerProcess
from tidewheel.cluster import current_engine
from tidewheel.read import parquet_answer
from tidewheel.testing.probe import engine_of

NASTY = "<script>alert('&')</script>\n\x1b[31m"
SCHEMA = pa.schema([("id", pa.int32()), ("ts", pa.timestamp("us")), ("speed", pa.float64()), ("note", pa.string())])
N = 6_000
ROWS = pa.table(
    [
        pa.array([i % 100 for i in range(N)], pa.int32()),
        pa.array([DAY + dt.timedelta(seconds=i) for i in range(N)], pa.timestamp("us")),
        pa.array([None if i % 7 == 0 else i / 4 for i in range(N)]),
        pa.array([NASTY if i == 3 else f"n{i % 5}" for i in range(N)]),
    ],
    schema=SCHEMA,
)


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
        wh.create_table("taxi", SCHEMA, time="ts", key="id").insert(ROWS)
        yield wh
    if request.param == "attached":
        owner.close(root)


def kinds(wh: tw.Warehouse) -> dict[str, Callable[[], tw.Result]]:
    """Each kind of result that there is, with rows in the order of `ts`."""
    taxi = wh["taxi"]
    return {
        "query": lambda: taxi.query(order_by="ts"),
        "function": lambda: taxi.query(where=lambda batch: pa.array([True] * batch.num_rows), order_by="ts"),
        "direct": lambda: wh.sql("SELECT id, ts, speed, note FROM taxi WHERE id = 7"),
        "statement": lambda: wh.sql("SELECT * FROM taxi ORDER BY ts"),
        "apart": lambda: wh.sql("SELECT id, ts, speed, note FROM taxi WHERE levenshtein(note, 'n1') >= 0 ORDER BY ts"),
        "explained": lambda: wh.sql("EXPLAIN SELECT * FROM taxi"),
        "told": lambda: wh.sql("INSERT INTO taxi SELECT * FROM taxi WHERE false"),
        "rejects": taxi.rejects,
    }


def test_every_kind_of_result_has_the_names_people_know(wh: tw.Warehouse, tmp_path: Path) -> None:
    for kind, ask in kinds(wh).items():
        result = ask()
        rows = result.to_arrow()
        tuples = [tuple(row.values()) for row in rows.to_pylist()]
        assert result.columns == rows.schema.names, kind
        assert result.arrow().equals(rows) and len(result.df()) == len(result.pl()) == len(rows), kind
        assert result.fetchall() == tuples == result.fetchall(), kind
        assert result.to_parquet(tmp_path / "answer.parquet") == len(rows), kind
        assert pq.read_table(tmp_path / "answer.parquet").equals(rows.replace_schema_metadata(None)), kind
        assert (result.fetchone(), result.fetchmany(2)) == (tuples[0] if tuples else None, tuples[1:3]), kind
        assert (result.fetchall(), result.fetchone(), result.fetchmany()) == (tuples[3:], None, []), kind
        assert f"{len(rows):,} row" in result._repr_html_() and f"{len(rows):,} row" in repr(result), kind
    with pytest.raises(tw.InputError, match="a number of rows"):
        wh["taxi"].query().fetchmany(-1)


class Read(HTMLParser):
    """What a browser would show, and the marks that it would obey."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


MARKS = {"div", "table", "thead", "tbody", "tr", "th", "td", "small", "i"}


def test_intervals_are_timedeltas_where_that_is_the_same(wh: tw.Warehouse) -> None:
    asked = wh.sql(
        "SELECT INTERVAL '2 days 3 seconds', INTERVAL '1 month', NULL::INTERVAL, TIMESTAMP '2026-01-02' - TIMESTAMP '2026-01-01'"
    )
    assert asked.fetchall() == [(dt.timedelta(days=2, seconds=3), pa.MonthDayNano([1, 0, 0]), None, dt.timedelta(days=1))]


def test_notebooks_show_rows_types_and_counts_and_obey_nothing(wh: tw.Warehouse) -> None:
    taxi = wh["taxi"]
    shown = Read(taxi.query(order_by="ts")._repr_html_())
    assert shown.tags == MARKS
    assert shown.cells[:8] == ["id", "ts", "speed", "note", "int32", "timestamp[us]", "double", "string"]
    assert shown.cells[8:11] == ["0", "2026-01-01 00:00:00", "NULL"]
    assert "<script>alert('&')</script>\\n\\x1b[31m" in shown.cells
    assert shown.cells[-1] == "6,000 rows, the first 10 shown"
    wide = wh.sql("SELECT " + ", ".join(f"{i} AS c{i}" for i in range(100)))._repr_html_()
    assert Read(wide).cells[-1] == "1 row; 60 of 100 columns left out" and "c19" in wide and ">c20<" not in wide and "c99" in wide

    assert Read(taxi._repr_html_()).cells[2:] == [
        "id", "int32", "key", "ts", "timestamp[us]", "time", "speed", "double", "note", "string", "table taxi: 6,000 rows",
    ]  # fmt: skip
    assert {"speed", "858", "taxi: 6,000 rows"} <= set(Read(taxi.describe()._repr_html_()).cells)
    assert {"taxi", "6,000", "4"} <= set(Read(wh._repr_html_()).cells)
    over = taxi.query()
    over.cancel()
    assert over._repr_html_() == "<pre>Result of &#x27;taxi&#x27;: the query was cancelled; ask it again</pre>"


def test_wide_results_fit_the_terminal(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    many = wh.sql("SELECT " + ", ".join(f"'{'x' * i}' AS column_{i}" for i in range(1, 20)))
    head, row, said = repr(many).split("\n")
    assert len(head) <= 60 and len(row) <= 60 and "…" in head.split("  ")
    assert said.startswith("1 row; ") and said.endswith("of 19 columns left out")
    left_out = int(re.findall(r"; (\d+) of", said)[0])
    assert len([one for one in head.split() if one != "…"]) == 19 - left_out > 2
    long = repr(wh.sql(f"SELECT 1 AS a, '{'日' * 100}' AS b"))
    assert long == "a  b\n1  " + "日" * 28 + "…\n1 row"
    monkeypatch.setenv("COLUMNS", "200")
    assert "left out" not in repr(many)


def test_parquet_is_written_in_groups_and_whole_or_not_at_all(wh: tw.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_answer, "_GROUP_ROWS", 2_000)
    (folder := tmp_path / "out").mkdir()
    there = folder / "x.parquet"
    result = wh["taxi"].query(order_by="ts")
    assert result.to_parquet(str(there), compression="snappy") == N
    about = pq.read_metadata(there)
    assert about.num_rows == N and about.num_row_groups > 2 and about.row_group(0).column(0).compression == "SNAPPY"
    before = there.read_bytes()
    for bad, said in (
        (lambda: wh["taxi"].query(max_rows=4_000).to_parquet(there), "max_rows"),
        (lambda: wh.sql("SELECT id, id FROM taxi").to_parquet(there), "two columns 'id'"),
        (lambda: wh.sql("SELECT INTERVAL 1 MONTH AS m").to_parquet(there), "Parquet cannot hold"),
        (lambda: result.to_parquet(there, compression="none at all"), "Parquet cannot hold"),
        (lambda: result.to_parquet(folder / "no" / "x.parquet"), "No such file"),
        (lambda: result.to_parquet(folder), "it is a folder"),
        (lambda: result.to_parquet(7), "has a path"),  # type: ignore[arg-type]
    ):
        with pytest.raises(tw.TidewheelError, match=said):
            bad()
    assert there.read_bytes() == before and [one.name for one in folder.iterdir()] == ["x.parquet"]


def test_a_table_is_found_by_its_name_and_counts_its_rows(wh: tw.Warehouse) -> None:
    empty = wh.create_table("empty", SCHEMA, time="ts", key="id")
    assert (len(empty), bool(empty), len(empty.head()), empty.query().fetchone()) == (0, True, 0, None)
    assert len(wh["taxi"]) == N and wh["taxi"].head(3).arrow().num_rows == 3 and len(wh["taxi"].head()) == 10
    assert "taxi" in wh and "taxis" not in wh and 7 not in wh and list(wh) == wh.tables() == ["empty", "taxi"] and len(wh) == 2
    with pytest.raises(tw.NotFoundError, match=r"there is no table 'taxis'. Did you mean 'taxi'\?") as e:
        wh["taxis"]
    assert isinstance(e.value, KeyError) and isinstance(e.value, tw.TidewheelError)
    for name in ("empty", "taxi"):
        wh.drop_table(name)
    assert bool(wh) and len(wh) == 0


# ---- frames beside tables -----------------------------------------------------------------------------------

NAMES = pa.table({"id": pa.array([3, 5, None, 1_000], pa.int64()), "name": ["three", "five", "none", None]})
JOIN = "SELECT name, count(*) AS n, max(ts) AS last FROM taxi JOIN st USING (id) GROUP BY name ORDER BY name"
JOINED = [("five", N // 100, DAY + dt.timedelta(seconds=N - 95)), ("three", N // 100, DAY + dt.timedelta(seconds=N - 97))]


class Stream:
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return NAMES.__arrow_c_stream__(requested_schema)


FRAMES: dict[str, Callable[[], Any]] = {
    "table": lambda: NAMES,
    "batch": lambda: NAMES.to_batches()[0],
    "reader": lambda: NAMES.to_reader(),
    "stream": Stream,
    "pandas": lambda: NAMES.to_pandas(),
    "pandas, indexed": lambda: NAMES.to_pandas().set_index("id"),
    "pandas, filtered": lambda: pd.concat([NAMES.to_pandas()] * 2).iloc[4:],
    "polars": lambda: pl.from_arrow(NAMES),
    "polars, lazy": lambda: pl.from_arrow(NAMES).lazy(),  # type: ignore[union-attr]
    "dicts": lambda: NAMES.to_pylist(),
    "dictionary": lambda: NAMES.set_column(1, "name", NAMES["name"].dictionary_encode()),
    "views": lambda: NAMES.set_column(1, "name", NAMES["name"].cast(pa.string_view())),
    "in pieces": lambda: pa.concat_tables([NAMES.slice(i, 1) for i in range(4)]),
}


def test_frames_of_every_kind_stand_beside_tables(wh: tw.Warehouse) -> None:
    for kind, frame in FRAMES.items():
        result = wh.sql(JOIN, tables={"st": frame()})
        assert result.fetchall() == JOINED == result.fetchall(), kind
        if "pandas" not in kind:  # which has no whole numbers beside nulls
            assert result.stats.rows_scanned <= 4 * N // 100, f"{kind}: the join tells which keys are read"
        assert wh.sql("SELECT * FROM st", tables={"ST": frame()}).to_arrow().num_rows == 4, kind
    with pytest.raises(tw.QueryError, match="there is no table 'st'"):
        wh.sql(JOIN)


def test_frames_in_every_kind_of_statement(wh: tw.Warehouse) -> None:
    def ask(statement: str, values: Any = None, **limits: Any) -> Any:
        return wh.sql(statement, values, tables={"st": NAMES, "unused": [{"x": 1}]}, **limits).fetchall()

    assert ask("SELECT id FROM st WHERE id > ? ORDER BY id", [3]) == [(5,), (1_000,)]
    assert ask("SELECT name FROM st WHERE id = $id", {"id": 3}) == [("three",)]
    assert ask("SELECT count(*), min(id), max(id) FROM st") == [(4, 3, 1_000)]
    assert ask("SELECT count(*) FROM taxi WHERE id IN (SELECT id FROM st)") == [(N // 50,)]
    assert ask("SELECT count(*) FROM taxi WHERE EXISTS (SELECT 1 FROM main.st WHERE st.id = taxi.id)") == [(N // 50,)]
    assert ask("SELECT count(*) FROM st AS a, st AS b") == [(16,)]
    assert ask("WITH st AS (SELECT 7 AS x) SELECT * FROM st") == [(7,)]
    assert ask("SELECT t.rows, st.name FROM system.tables t, st WHERE st.id = 5") == [(N, "five")]
    assert ask("DESCRIBE st")[0][:3] == ("id", "BIGINT", "YES")
    assert ask("SELECT max(levenshtein(name, 'threw')) FROM st") == [(4,)], "apart"
    assert ask("SELECT name, count(*) FROM taxi JOIN st USING (id) WHERE levenshtein(note, 'n') < 99 GROUP BY 1 ORDER BY 1") == [
        ("five", N // 100), ("three", N // 100),
    ], "apart"  # fmt: skip
    plan = dict(ask(f"EXPLAIN {JOIN}"))
    assert set(plan) == {"tidewheel: taxi", "duckdb"} and "key codes  3 .. 3" in plan["tidewheel: taxi"]
    assert ask("INSERT INTO taxi SELECT id, TIMESTAMP '2026-02-01' AS ts, 1 AS speed, name AS note FROM st WHERE id < 9") == [(2,)]
    assert wh["taxi"].query(time=("2026-02-01", None), order_by="id").to_arrow()["note"].to_pylist() == ["three", "five"]
    with pytest.raises(tw.LimitError, match="max_rows"):
        ask("SELECT a.id FROM st a, st b", max_rows=10)
    with pytest.raises(tw.LimitError, match="timeout of 0.3 s"):
        ask("SELECT count(*) FROM range(1000000000) a, st b WHERE a.range % 7 = b.id", timeout=0.3)
    with pytest.raises(tw.LimitError, match="timeout of 0.3 s"):
        ask("SELECT sum(levenshtein(repeat(name, 20000), repeat('x', 20000))) FROM st", timeout=0.3)


def test_a_large_frame_in_a_process_apart_takes_no_memory_of_the_statement(tmp_path: Path) -> None:
    rows = 700_000
    wide = pa.table({"x": np.arange(rows), **{f"y{i}": pa.nulls(rows, pa.int64()) for i in range(24)}})
    assert wide.nbytes > 2 * 64e6
    statement = "SELECT count(*), sum(x), max(length(repeat('a', (x % 3)::INT))) FROM wide"
    with tw.open(tmp_path / "wh") as wh:
        assert wh.sql(statement, tables={"wide": wide}, max_bytes=64e6).fetchall() == [(rows, rows * (rows - 1) // 2, 2)]


def test_the_same_words_over_other_frames_and_tables(wh: tw.Warehouse) -> None:
    """Whatever is remembered of a statement is not remembered of a frame."""
    star, some = "SELECT * FROM st WHERE k >= 2", "SELECT v FROM st WHERE k = 2"
    for _ in range(3):
        for key, value in ((2, "a"), (2.5, dt.date(2026, 1, 1)), ("2", [1, 2])):
            frame = pa.table({"k": [key], "v": [value]})
            if isinstance(key, str):
                assert wh.sql("SELECT v FROM st WHERE k = '2'", tables={"st": frame}).fetchall() == [(value,)]
                continue
            assert wh.sql(star, tables={"st": frame}).to_arrow() == frame
            assert wh.sql(some, tables={"st": frame}).fetchall() == ([(value,)] if key == 2 else [])
        own = wh.create_table("st", pa.schema([("k", pa.int64()), ("v", pa.timestamp("us"))]), time="v", key="k")
        own.insert([{"k": 2, "v": DAY}, {"k": 3, "v": DAY}])
        assert wh.sql(some).fetchall() == [(DAY,)] and len(wh.sql(star)) == 2
        with pytest.raises(tw.QueryError, match="the warehouse has a table 'st' itself; give the rows another name"):
            wh.sql(some, tables={"St": NAMES})
        wh.drop_table("st")
        with pytest.raises(tw.QueryError, match="there is no table 'st'"):
            wh.sql(some)


def test_threads_and_open_results_have_frames_of_their_own(wh: tw.Warehouse) -> None:
    """All of them under one name."""
    kept = [wh.sql("SELECT id, who FROM st, (SELECT count(*) FROM taxi)", tables={"st": [{"id": i, "who": f"r{i}"}]}) for i in range(6)]

    def ask(number: int) -> list[Any]:
        frame = pa.table({"id": [number], f"x{number}": [number / 2]})
        return [
            wh.sql(f"SELECT x{number}, count(*) FROM taxi JOIN st USING (id) GROUP BY 1", tables={"st": frame}).fetchall() for _ in range(5)
        ]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(8))) == [[[(i / 2, N // 100)]] * 5 for i in range(8)]
    assert [one.fetchall() for one in kept] == [[(i, f"r{i}")] for i in range(6)]


def test_a_frame_is_read_as_it_was_when_the_statement_was_asked(wh: tw.Warehouse) -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [0.5, 1.5, 2.5]})
    result = wh.sql("SELECT * FROM f ORDER BY x", tables={"f": frame})
    frame.loc[:, "x"] = 0
    frame.loc[:, "y"] = 0.0
    assert result.fetchall() == [(1, 0.5), (2, 1.5), (3, 2.5)] == result.fetchall()


def test_nothing_else_of_python_can_be_reached(wh: tw.Warehouse) -> None:
    secret = pd.DataFrame({"x": [1]})
    for statement in ("SELECT * FROM secret", "SELECT * FROM NAMES", "SELECT * FROM st, secret", 'SELECT * FROM "st·frame"'):
        with pytest.raises(tw.QueryError, match="there is no table|is no name of a table"):
            wh.sql(statement, tables={"st": NAMES})
    assert len(secret) == 1
    with pytest.raises(tw.QueryError, match=r"there is no table 'station'. Did you mean 'stations'\? Tables: taxi, stations"):
        wh.sql("SELECT * FROM station", tables={"stations": NAMES})


def test_bad_frames_are_named(wh: tw.Warehouse) -> None:
    offsets = np.array([0, 1, 2], np.int32)
    torn = pa.table({"x": pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"ab")])})
    offsets[2] = 99
    wild = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int32()), ["a"], safe=False)
    latin = pa.array([b"\xff\xfe"]).view(pa.string())
    for tables, said in (
        ([NAMES], "takes names with their rows"),
        ({7: NAMES}, "7 is no name for rows"),
        ({"a b": NAMES}, "'a b' is no name for rows"),
        ({"a": NAMES, "A": NAMES}, "does not tell upper from lower case"),
        ({"a": {"x": [1]}}, r"'a' is a pandas .* not dict. For a dict of columns use pyarrow.table"),
        ({"a": wh["taxi"]}, r"not Table. For a table of another warehouse give table.query\(\)"),
        ({"a": [1]}, "row 0 of 'a' is int"),
        ({"a": []}, "has no columns"),
        ({"a": [{"x": 1}, {"x": "b"}]}, "column 'x' of 'a' has values of several kinds"),
        ({"a": pa.table([[1], [2]], names=["x", "X"])}, "two columns, 'x' and 'X'"),
        ({"a": pd.DataFrame({"x": [1, "b"]})}, "'a', a DataFrame, cannot be read as rows"),
        ({"a": torn}, "column 'x': this is not valid Arrow data"),
        ({"a": pa.table({"x": wild})}, "column 'x': this is not valid Arrow data"),
        ({"a": pa.table({"x": latin})}, "not UTF-8 in column 'x'"),
    ):
        with pytest.raises(tw.InputError, match=said):
            wh.sql("SELECT count(*) FROM a", tables=tables)  # type: ignore[arg-type]
    for strange in (pa.table({"x": pa.array([1], pa.decimal256(60))}), pa.table([[1]], names=[""])):
        for statement in ("SELECT * FROM a", "SELECT repeat('x', 9), * FROM a"):
            with pytest.raises(tw.QueryError, match="'a' has a column that SQL cannot have"):
                wh.sql(statement, tables={"a": strange})
    assert wh.sql("SELECT TIMESTAMP 'infinity' AS t, 1 AS x").fetchall() == [((1 << 63) - 1, 1)]
    with pytest.raises(tw.QueryError, match="reads no rows"):
        wh.sql("DROP TABLE taxi", tables={"a": NAMES})
    assert wh.sql("SELECT count(*) FROM a", tables={"a": NAMES.slice(0, 0)}).fetchall() == [(0,)]
    assert wh.sql("SELECT * FROM a", tables={"a": NAMES.to_pandas().iloc[:0]}).columns == ["id", "name"]


# ---- in other processes -------------------------------------------------------------------------------------


def test_a_table_crosses_to_another_process_as_path_and_name(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(name_and_rows, (taxi,)) == ("taxi", 1)
            assert pool.apply(name_and_rows, (wh,)) == ("taxi", 2)
            pool.close()
            pool.join()
        assert taxi.rows == 2, "inserted there, seen here"


def test_a_forked_process_is_told_why_it_cannot_have_a_table(tmp_path: Path) -> None:
    """By the call that it makes: a pool whose processes die of what they are handed waits for ever."""
    with tw.open(tmp_path / "wh") as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        with multiprocessing.get_context("fork").Pool(1) as pool:
            for given in (taxi, wh):
                with pytest.raises(tw.OwnedError, match="'spawn' or 'forkserver'"):
                    pool.apply_async(name_and_rows, (given,)).get(60)
            pool.close()
            pool.join()


def test_a_table_that_comes_back_is_of_the_warehouse_that_is_open_here(wh: tw.Warehouse) -> None:
    taxi = wh["taxi"]
    data = pickle.dumps(taxi)
    assert len(data) < 300
    again = pickle.loads(data)
    assert type(again) is tw.Table and again.rows == N and pickle.loads(pickle.dumps(again)).name == "taxi"
    users = current_engine._engines[taxi._current.root].users
    assert users == 1, "whoever closes the warehouse closes it for both"
    with pickle.loads(pickle.dumps(wh)) as other:
        assert other.tables() == ["taxi"]
    assert wh.tables() == ["taxi"], "the other one was closed, and not this one"


def test_what_is_not_there_any_more_is_not_made(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        taxi, warehouse = pickle.dumps(wh.create_table("taxi", SCHEMA, time="ts", key="id")), pickle.dumps(wh)
        wh.drop_table("taxi")
        with pytest.raises(tw.NotFoundError, match="there is no table 'taxi'"):
            pickle.loads(taxi).rows  # noqa: B018
    with pytest.raises(tw.TidewheelError, match="was closed"):
        pickle.dumps(wh)
    shutil.rmtree(tmp_path / "wh")
    for given in (pickle.loads(taxi), pickle.loads(warehouse)):
        with pytest.raises(tw.NotFoundError, match="there is no warehouse in"):
            len(given)
    assert list(tmp_path.iterdir()) == []
