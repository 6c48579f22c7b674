"""What errors advise: names that are meant, quotes, orders by any name, and in the shell no calls of Python."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.model.schema import nearest
from tidewheel.read.ordering import SortKey, parse_order
from tidewheel.sql.refusals import _INSTEAD
from tidewheel.surfaces.shell.advice import advised, names_python

SCHEMA = pa.schema([("a b", pa.int64()), ("ts", pa.timestamp("us")), ("Channel", pa.string()), pa.field("n", pa.int64(), nullable=False)])


@pytest.fixture
def wh(tmp_path: Path) -> tw.Warehouse:
    wh = tw.open(tmp_path / "wh")
    rows = [{"a b": n, "ts": n, "Channel": f"c{n}", "n": -n} for n in range(3)]
    wh.create_table("t", SCHEMA, time="ts", key="a b").insert(rows)
    return wh


def test_a_name_is_not_its_own_correction(wh: tw.Warehouse) -> None:
    with wh:
        with pytest.raises(tw.QueryError, match="must appear in the GROUP BY") as raised:
            wh.sql("SELECT Channel, count(*) FROM t")
        assert "Did you mean" not in str(raised.value)
        with pytest.raises(tw.QueryError, match=r"Did you mean 'Channel'\? Upper and lower case count"):
            wh.table("t").query(columns=["channel"])
        assert nearest("channel", ["channel", "chanel"]) == "" and nearest("chanel", ["channel"]) == " Did you mean 'channel'?"


def test_a_text_in_double_quotes(wh: tw.Warehouse) -> None:
    with wh:
        with pytest.raises(tw.QueryError, match="A text is written in single quotes: 'x y z'"):
            wh.sql('SELECT n FROM t WHERE Channel = "x y z"')
        with pytest.raises(tw.QueryError, match="A text is written in single quotes: 'x y z'"):
            wh.table("t").query(where='Channel = "x y z"')


@pytest.mark.parametrize(
    "order_by", ['"a b" desc', ["a b desc"], ['"a b" DESC'], '"a b" desc, ts', "a b desc", 'ts desc, "a b"', "n"], ids=str
)
def test_an_order_by_any_name(wh: tw.Warehouse, order_by: str | list[str]) -> None:
    with wh:
        assert [row["a b"] for row in wh.table("t").query(order_by=order_by).to_pylist()] == [2, 1, 0]
        assert [row["a b"] for row in wh.sql('SELECT "a b" FROM t ORDER BY "a b" DESC').to_pylist()] == [2, 1, 0]


def test_orders() -> None:
    names = ["a", "a b", "x,y", 'say "hi"', "desc"]
    assert parse_order(["a b", "x,y", "a DESC", "desc"], names) == [
        SortKey("a b", False),
        SortKey("x,y", False),
        SortKey("a", True),
        SortKey("desc", False),
    ]
    assert parse_order('"x,y" desc, a, "say ""hi"""', names) == [SortKey("x,y", True), SortKey("a", False), SortKey('say "hi"', False)]
    for wrong in ("", "a,", ",a", "a b c", '"a', "a desc desc", 3, [3], ['"']):
        with pytest.raises(tw.QueryError, match="order_by is like 'ts desc, plate'"):
            parse_order(wrong, names)


def test_describe_says_what_is_never_null(wh: tw.Warehouse) -> None:
    with wh:
        told = {row["column_name"]: row["null"] for row in wh.sql("DESCRIBE t").to_pylist()}
        assert told == {"a b": "NO", "ts": "NO", "Channel": "YES", "n": "NO"}
        assert {row["column_name"]: row["nullable"] for row in wh.sql("SELECT * FROM system.columns").to_pylist()} == {
            name: null == "YES" for name, null in told.items()
        }
        assert len(wh.sql('DESCRIBE SELECT "a b" + 1 FROM t').to_pylist()) == 1


@pytest.mark.parametrize("kind", _INSTEAD)
def test_the_shell_advises_no_python(kind: str) -> None:
    assert not names_python(advised(_INSTEAD[kind])), advised(_INSTEAD[kind])


@pytest.mark.parametrize("statement", ["SELECT count(*) FROM range(30000000) a, range(3000000) b", "SELECT " + "1" * (1 << 20)])
def test_nor_for_limits(wh: tw.Warehouse, statement: str) -> None:
    with wh, pytest.raises(tw.TidewheelError) as raised:
        wh.sql(statement, timeout=0.2).to_arrow()
    assert names_python(str(raised.value)) and not names_python(advised(str(raised.value)))


def test_nor_for_materialized_views(wh: tw.Warehouse) -> None:
    with wh, pytest.raises(tw.QueryError, match="wh.create_derived") as raised:
        wh.sql("CREATE MATERIALIZED VIEW v AS SELECT n FROM t")
    assert not names_python(advised(str(raised.value)))


def test_rows_that_are_looked_at(wh: tw.Warehouse) -> None:
    with wh:
        for statement, rows in (
            ("SELECT n FROM t", 3),
            ("SELECT n FROM t WHERE ts >= '1970-01-01' ORDER BY n", 3),
            ("SELECT sum(n) FROM t", 3),
        ):
            result = wh.sql(statement)
            result.to_arrow()
            assert result.stats.rows_scanned == rows, statement
        result = wh.table("t").query(where="n = 0")
        assert len(result.to_arrow()) == 1 and result.stats.rows_scanned == 3
        counted = wh.sql("SELECT count(*) FROM t WHERE ts >= '1970-01-01'")
        assert len(counted.to_arrow()) == 1 and counted.stats.rows_scanned == 0  # the index knows
