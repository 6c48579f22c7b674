"""Statements that are answered without DuckDB mean what DuckDB reads in them, word by word; all others go the long way."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tidewheel as tw
from tidewheel.errors import QueryError
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.short_way import short_of
from tidewheel.sql.statement import Statement, parse

OTHERS = (
    "rowid",
    "columns",
    "system",
    "main",
    "user",
    "session_user",
    "count",
    "struct",
    "map",
    "list",
    "unnest",
    "range",
    "t",
    "sum",
    "now",
)
WORDS = sorted({*OTHERS, *(word for (word,) in duckdb.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall())})
PLACES = ("SELECT {} FROM t", "SELECT a, {} FROM t LIMIT 3", "SELECT count(*) FROM {}", "SELECT * FROM {}", "SELECT a FROM {} LIMIT 3;")


def check(text: str) -> bool:
    """Whether it is short; if so, DuckDB reads the same in it."""
    short = short_of(text)
    if short is None:
        return False
    table, direct = short
    read = parse(text)
    assert isinstance(read, Statement)
    assert read.direct == direct and [one.name for one in read.tables] == [table]
    assert not (read.system or read.explain or read.shows_tables or read.summary or read.hints or read.tells_time) and read.bounded
    return True


def test_every_word_of_sql() -> None:
    taken = [word for word in WORDS if all([check(place.format(word)) for place in PLACES])]
    assert {"name", "value", "year", "t", "rowid", "system"} <= set(taken), "these are names like others"
    assert not {"select", "from", "limit", "all", "distinct", "case", "null", "true", "current_date"} & set(taken)


blanks = st.text(" \t\r\n", min_size=1, max_size=3)
signs = st.sampled_from(
    ["SELECT", "select", "count(*)", "count ( * )", "COUNT(*)", "*", "FROM", "from", "LIMIT", "limit", "10", "0", "007", "a", "b", "_x1",
     "T", "t", ",", ";", "(", ")", "'a'", '"a"', "--", "/*", "1.5", "-1", "é", "a.b", "AS", "WHERE", "1_0", "\x00", "\x0b", "\xa0"]
)  # fmt: skip


@given(st.lists(st.tuples(signs, blanks), max_size=9))
@example([("SELECT", " "), ("a", " "), (",", " "), ("A", " "), ("FROM", " "), ("t", "")])
def test_any_signs(pieces: list[tuple[str, str]]) -> None:
    check("".join(sign + blank for sign, blank in pieces))


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@given(st.lists(names, min_size=1, max_size=4), names, st.none() | st.integers(0, 10**9 - 1), blanks, st.booleans())
def test_any_names(columns: list[str], table: str, limit: int | None, blank: str, ends: bool) -> None:
    text = f"SELECT {blank}{f'{blank},'.join(columns)}{blank}FROM{blank}{table}"
    text += f"{blank}LIMIT {limit}" if limit is not None else ""
    check(text + (";" if ends else blank))


def test_answers(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64())])
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", schema, time="ts", key="id")
        assert wh.sql("SELECT count(*) FROM t").to_pylist() == [{"count_star()": 0}]
        rows = pa.table([range(100), pa.array(range(100), pa.timestamp("us")), [0.5] * 100], schema=schema)
        table.insert(rows)
        assert wh.sql("SELECT count(*) FROM t").to_pylist() == [{"count_star()": 100}]
        table.flush()
        table.insert(rows.slice(0, 7))
        counted = wh.sql("select count(*) from t")
        assert isinstance(counted, DirectResult) and counted.to_pylist() == [{"count_star()": 107}]
        assert counted.explain() == "no row of a table is read"
        table.replace(rows.slice(0, 3), time=(0, 49))  # from here on some are hidden
        assert (
            wh.sql("SELECT count(*) FROM t").to_pylist()
            == wh.sql("SELECT count(*) FROM t WHERE true").to_pylist()
            == [{"count_star()": 53}]
        )
        assert wh.sql("SELECT ID, x FROM t LIMIT 2").to_arrow().schema.names == ["id", "x"]
        assert len(wh.sql("SELECT * FROM t")) == 53 and len(wh.sql("SELECT * FROM t LIMIT 0")) == 0
        assert wh.sql("SELECT count(*) FROM T").to_pylist() == [{"count_star()": 53}]  # the long way: names have no case
        for wrong in ("SELECT nothing FROM t", "SELECT * FROM nothing", "SELECT count(*) FROM t LIMIT", ""):
            with pytest.raises(QueryError):
                wh.sql(wrong)
        with pytest.raises(QueryError):
            wh.sql("SELECT count(*) FROM t", [1])
