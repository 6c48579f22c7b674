"""The cases of this folder, in the sqllogictest format: wh.sql has the answers that DuckDB has over tables of its own.

The list of cases is fixed in `contents.txt`, what is expected in the files themselves; `make.py` writes both.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tidewheel as tw
from tests.conformance.make import CONTENTS, cases, contents, filled
from tests.conformance.records import Malformed, Query, Record, Statement, answered, meant_for, parse, render, shown, threshold_of
from tests.conformance.tables import in_duckdb, in_warehouse, rows_of, types_of
from tests.conftest import check_nothing_left

US = "tidewheel"


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Warehouse]:
    with in_warehouse(tmp_path_factory.mktemp("conformance") / "wh") as wh:
        yield wh


def wrong(wh: tw.Warehouse, record: Record, threshold: int) -> str | None:
    """What is wrong with the answer to a record, if anything is."""
    match record:
        case Query():
            try:
                answer = wh.sql(record.sql).to_arrow()
            except tw.TidewheelError as e:
                return f"failed: {e}"
            if types_of(answer.schema) != record.types:
                return f"types {types_of(answer.schema)}, expected {record.types}"
            found = answered(record, rows_of(answer), threshold).expected
            return None if found == record.expected else f"answer {found}, expected {record.expected}"
        case Statement(ok=ok):
            try:
                wh.sql(record.sql).to_arrow()
            except tw.QueryError as e:
                return f"failed: {e}" if ok else None
            return None if ok else "no error"
    return None


def run(wh: tw.Warehouse, path: Path) -> list[str]:
    records = parse(path.read_text())
    threshold = threshold_of(records)
    return [f"{path.name}:{record.line}: {said}" for record in meant_for(US, records) if (said := wrong(wh, record, threshold))]


@pytest.mark.parametrize("path", cases(), ids=lambda path: path.stem)
def test_a_file_has_the_answers_of_duckdb(wh: tw.Warehouse, path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:  # statements are quicker outside of the main thread, where Ctrl-C has to get through
        assert pool.submit(run, wh, path).result() == []


@pytest.mark.parametrize(
    "text, said",
    [
        ("query I rowsort\nSELECT count(*) FROM t1\n----\n131", "answer ('130',), expected ('131',)"),
        ("query I nosort\nSELECT a1 FROM j1 WHERE a1 > 7 ORDER BY a1\n----\n9\n8", "answer ('8', '9')"),
        ("query T rowsort\nSELECT count(*) FROM t1\n----\n130", "types I, expected T"),
        ("query I rowsort\nSELECT nosuch FROM t1\n----", "failed: "),
        ("statement error\nSELECT a FROM t1", "no error"),
        ("statement ok\nSELECT nosuch FROM t1", "failed: "),
    ],
)
def test_a_wrong_answer_is_found(wh: tw.Warehouse, text: str, said: str) -> None:
    (record,) = parse(text)
    assert (wrong(wh, record, 0) or "").startswith(said)


def test_the_list_is_fixed() -> None:
    assert contents() == CONTENTS.read_text(), "run python -m tests.conformance.make"
    queries, statements = map(int, contents().split()[-2:])
    assert queries + statements >= 600


def test_what_is_expected_is_what_duckdb_says() -> None:
    with in_duckdb() as duck:
        for path in cases():
            text = path.read_text()
            assert render(filled(parse(text), duck)) == text, f"{path.name}: run python -m tests.conformance.make"


def test_the_tables_lie_in_both_places(wh: tw.Warehouse) -> None:
    for name in wh.tables():
        state = wh.table(name).state()
        assert wh.table(name).rows == 0 or (state.fresh_rows > 0 and state.chunks > 0), name
    assert wh.sql("SELECT count(*) AS n FROM system.servers WHERE late_rows > 0").to_pylist()[0]["n"] > 0


FILE = """# what it is about

hash-threshold 4

# a comment
skipif other
statement ok
CREATE TABLE t(a INT)

onlyif other
statement error
SELECT

query ITR rowsort label
SELECT a,
b, c
----
1
(empty)
-0.500

query I nosort
SELECT 1 WHERE false
----

halt
"""


def test_the_format_is_read_and_written() -> None:
    records = parse(FILE)
    assert render(records) == FILE and threshold_of(records) == 4
    about, _, create, error, query, nothing, halt = records
    assert list(meant_for(US, [create, error, halt, query])) == [create]
    assert isinstance(create, Statement) and create.is_for(US) and not create.is_for("other") and create.comments == ["a comment"]
    assert isinstance(error, Statement) and not error.ok and not error.is_for(US) and error.is_for("other")
    assert isinstance(query, Query) and (query.types, query.sort, query.label, query.line) == ("ITR", "rowsort", "label", 14)
    assert isinstance(nothing, Query) and nothing.expected == () and about.comments == ["what it is about"]
    assert answered(query, [(2, "x", 1.0)], 4).expected == ("2", "x", "1.000")
    assert answered(query, [(2, "x", 1.0), (10, "x", 1.0)], 9).expected == ("10", "x", "1.000", "2", "x", "1.000")
    assert answered(query, [(1, None, 2.5), (2, "", None)], 4).expected == ("6 values hashing to 3c4beff44cd7a45ee5b20092ccdb8bf4",)
    assert [shown(*pair) for pair in ((True, "I"), (-0.0001, "R"), (b"\xff", "T"), ("a\nb", "T"), ([1, None], "T"))] == [
        "1", "0.000", "\\xff", "a@b", "[1, NULL]",
    ]  # fmt: skip
    for text, said in (("query I sorted\nSELECT 1", "the order is one of"), ("select 1", "a record begins with")):
        with pytest.raises(Malformed, match=f"line 1: {said}"):
            parse(text)
