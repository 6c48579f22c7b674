"""Statements that are known by their shape mean what they mean when they are parsed."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidewheel as tw
from tidewheel.model.schema import make_spec
from tidewheel.sql import statement_cache
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.direct import Asked, asked_of, prepared_of
from tidewheel.sql.prepared import Given
from tidewheel.sql.statement import Statement, parse

SPEC = make_spec(
    "t",
    pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("s", pa.string()), ("d", pa.float64()), ("day", pa.date32())]),
    time="ts",
    key="k",
)


def meant(text: str) -> str | None:
    """What is read if the statement is parsed."""
    statement = parse(text)
    assert isinstance(statement, Statement)
    try:
        return None if statement.direct is None else told(asked_of(statement.direct, SPEC, []))
    except NotDirectError:
        return None


def by_shape(text: str) -> str | None:
    found = statement_cache.known(text)
    try:
        return None if found is None else told(found[0].asked(SPEC, found[1], []))
    except NotDirectError:
        return None


def told(asked: Asked) -> str:
    """All that such a statement asks for, without the addresses of objects."""
    return re.sub(r" object at 0x[0-9a-f]+", "", repr(asked))


NUMBERS = st.one_of(st.integers(-(2**64), 2**64), st.integers(69_999_990, 70_000_010), st.integers(-3, 3)).map(str)
DECIMALS = st.tuples(NUMBERS, st.integers(0, 99)).map(lambda p: f"{p[0]}.{p[1]}")
TEXTS = st.text("ab' ·-7\\", max_size=6).map(lambda text: "'" + text.replace("'", "''") + "'")
TIMES = st.datetimes(max_value=dt.datetime(2100, 1, 1)).map(lambda t: f"'{t}'")
DATES = st.dates().map(lambda d: f"'{d}'")
ODD = st.sampled_from(
    ["1e3", "0x1F", "7_0000000", "E'a'", "'a' 'b'", "$$5$$", ".5", "5.", "1::BIGINT", "(5)", "- 5", "-(-5)", "NULL", "true"]
)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    column, values = draw(
        st.sampled_from([("k", NUMBERS), ("d", DECIMALS), ("s", TEXTS), ("ts", TIMES), ("day", DATES), ("k", ODD), ("s", ODD), ("d", ODD)])
    )
    one, two = draw(values), draw(values)
    spaced = draw(st.sampled_from([" ", "", "/* 5 */", "\n-- 6\n"]))
    return draw(
        st.sampled_from(
            [
                f"{column}{spaced}={spaced}{one}", f"{one}<{column}", f"{column} BETWEEN {one} AND {two}", f"NOT {column} >= {one}",
                f"{column} IN ({one},{two})", f"ts >= TIMESTAMP {one}" if column == "ts" else f"{column} <> {one}",
                f"day = DATE {one}" if column == "day" else f'"{column}" > {one}',
            ]
        )
    )  # fmt: skip


@given(
    st.lists(conditions(), min_size=1, max_size=3),
    st.sampled_from(["*", "k, s", "count(*)", 'd AS "x 5"', "5", "k AS a5", "max(d), min(s) AS m"]),
)
def test_a_shape_means_what_its_statement_means(found: list[str], columns: str) -> None:
    text = f"SELECT {columns} FROM t WHERE {' AND '.join(found)}"
    try:
        expected = meant(text)
    except tw.QueryError:
        return  # it is parsed in the end, and says so
    known = by_shape(text)
    assert known is None or known == expected, text


ENDS = st.one_of(
    st.tuples(st.just("k"), st.sampled_from(["=", "<", "<=", ">", ">="]), st.integers(-3, 3).map(str)),
    st.tuples(st.just("ts"), st.sampled_from(["=", "<", "<=", ">", ">="]), st.integers(1, 5).map("'2026-01-0{}'".format)),
)


@given(st.lists(ENDS, min_size=1, max_size=5), st.booleans())
def test_the_short_way_to_a_box_is_the_long_way(ends: list[tuple[str, str, str]], mirrored: bool) -> None:
    terms = [f"{value} {op} {column}" if mirrored else f"{column} {op} {value}" for column, op, value in ends]
    statement = parse(f"SELECT * FROM t WHERE {' AND '.join(terms)}")
    assert isinstance(statement, Statement) and statement.direct is not None
    prepared = prepared_of(statement.direct, SPEC)
    assert prepared.box is not None and prepared.form is not None
    nothing = Given((), None)
    assert prepared.box(nothing) == prepared.finder.bounds_of(prepared.form(nothing))


@pytest.mark.parametrize(
    "where", ["k = 1 OR k = 3", "NOT k = 1", "k <> 1", "k IN (1, 2)", "k = 1 AND d > 0.5", "s = 'a'", "day = DATE '2026-01-01'"]
)
def test_other_conditions_are_more_than_a_box_of_whole_numbers(where: str) -> None:
    statement = parse(f"SELECT * FROM t WHERE {where}")
    assert isinstance(statement, Statement) and statement.direct is not None
    assert prepared_of(statement.direct, SPEC).box is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE k = 5", "SELECT count(*) FROM t WHERE k BETWEEN -5 AND 9223372036854775807",
        "SELECT k FROM t WHERE ts >= '2026-01-01 08:00' AND s IN ('a', 'b') AND d < 1.5",
        "SELECT k FROM t WHERE ts < TIMESTAMP '2026-01-01'", "SELECT count(*) AS n, sum(k)::BIGINT AS k, max(ts) FROM t WHERE k > 5",
        "SELECT avg(d) FROM t WHERE s = 'a' OR k IN (1, 2)", "SELECT k FROM t", "SELECT * FROM t WHERE k = 5 LIMIT 3",
        "SELECT k FROM t WHERE d > 0.5 ORDER BY d DESC NULLS FIRST, 1 LIMIT 10 OFFSET 5", "SELECT DISTINCT s, k FROM t ORDER BY 2 LIMIT 7",
        "SELECT date_trunc('minute', ts) AS m, k % 5, avg(d) FROM t WHERE s = 'minute' GROUP BY m, 2 ORDER BY 3 DESC LIMIT 5",
        "SELECT time_bucket(INTERVAL '5 minutes', ts), count(*) FROM t WHERE k > 5 GROUP BY 1",
        "SELECT s, count(*) AS n FROM t WHERE k > 5 GROUP BY s HAVING count(*) > 5 AND NOT max(d) < 2.5 AND n IN (5, 6) LIMIT 5",
        "SELECT k % 5 AS m, sum(k * 5) FROM t GROUP BY m HAVING sum(k * 5) BETWEEN 5 AND 7 OR min(ts) > '2026-01-01' OR m = 5",
        "SELECT * FROM t WHERE s LIKE 'dev-%' AND s NOT LIKE '%-7'", "SELECT count(*) FROM t WHERE starts_with(s, 'a') OR contains(s, 'b')",
    ],
)  # fmt: skip
def test_plain_statements_have_a_shape(text: str) -> None:
    assert by_shape(text) == meant(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 5 FROM t",
        "SELECT * FROM t WHERE k = 5 LIMIT 3.5",
        "SELECT * FROM t WHERE k + 1 = 5 ORDER BY 1",
        "SELECT * FROM t WHERE s LIKE 'a_c'",
        "SELECT * FROM t WHERE contains('a', s)",
        "5",
        "é 5",
    ],
)
def test_others_are_parsed(text: str) -> None:
    assert by_shape(text) in (None, "None")


def test_new_constants_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (f"SELECT k FROM t WHERE k = {n} AND s = '{text}'" for n, text in ((1, "a"), (2, "b")))
    known, expected = by_shape(one), meant(two)
    monkeypatch.setattr(statement_cache, "parse", lambda text: pytest.fail("it was parsed"))
    assert by_shape(two) == expected != known


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("SELECT k FROM t WHERE k = 1 ORDER BY d LIMIT 3", "SELECT k FROM t WHERE k = 7 ORDER BY d LIMIT 50"),
        ("SELECT k FROM t LIMIT 3 OFFSET 5", "SELECT k FROM t LIMIT 5 OFFSET 3"),
        (
            "SELECT date_trunc('hour', ts) AS h, count(*) FROM t WHERE s = 'hour' GROUP BY h ORDER BY 1 LIMIT 1",
            "SELECT date_trunc('hour', ts) AS h, count(*) FROM t WHERE s = 'x' GROUP BY h ORDER BY 1 LIMIT 2",
        ),
        (
            "SELECT k % 5 AS m, count(*) FROM t GROUP BY m HAVING count(*) > 5 AND max(ts) = '2026-01-01' OR sum(d) < 5.5",
            "SELECT k % 5 AS m, count(*) FROM t GROUP BY m HAVING count(*) > 9 AND max(ts) = '2026-01-01' OR sum(d) < 0.25",
        ),
    ],
)
def test_a_shape_is_parsed_once(one: str, two: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known, expected = by_shape(one), meant(two)
    for name in ("parse", "tree_of"):
        monkeypatch.setattr(statement_cache, name, lambda text: pytest.fail("it was parsed"))
    assert by_shape(two) == expected != known


def test_other_arguments_are_another_shape() -> None:
    text = "SELECT date_trunc('{}', ts) AS h, count(*) FROM t GROUP BY h LIMIT 3"
    hours, days = by_shape(text.format("hour")), by_shape(text.format("day"))
    assert hours is not None and days is not None and hours != days
    assert by_shape(text.format("nothing")) is None


def test_a_forked_child_leaves_the_parser_of_its_parent_alone() -> None:
    code = """
import os
from tidewheel.duck.parser import tree_of
tree_of("SELECT 1")
child = os.fork()
if not child:
    os._exit(7 if isinstance(tree_of("SELECT 2"), dict) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
tree_of("SELECT 3")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
