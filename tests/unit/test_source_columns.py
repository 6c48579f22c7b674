"""A definition sees the columns of its sources that it was made with, and the engine is asked for no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.unit.test_refresher import ADDED, ANEW, BY_KEYS, HOUR, rows
from tidewheel.engine.operations import CreateDerived, RunQuery
from tidewheel.engine.refresher import refresh
from tidewheel.engine.verifier import verify
from tidewheel.model.derived import SPARK_SQL, Definition, Mode
from tidewheel.model.schema import make_spec
from tidewheel.testing.duck_compute import DuckCompute

WIDE = pa.schema([("note", pa.string()), ("ts", pa.timestamp("us")), ("plate", pa.int64()), ("more", pa.int64()), ("speed", pa.int64())])
STARS = "SELECT * FROM taxi"


@pytest.fixture
def duck() -> Iterator[DuckCompute]:
    duck = DuckCompute()
    yield duck
    duck.close()


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("taxi", WIDE, time="ts", key="plate")
        yield wh


def wide(*three: tuple[float, int, int]) -> pa.Table:
    found = rows(*three)
    more = {"note": pa.array(["?"] * len(found)), "more": pa.array([7] * len(found), pa.int64())}
    return pa.table([more[name] if name in more else found.column(name) for name in WIDE.names], schema=WIDE)


class Asked:
    """An engine that remembers which columns it was asked for."""

    def __init__(self, engine: Any, found: list[tuple[str, list[str] | None]]) -> None:
        self._engine, self.found = engine, found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def table(self, name: str) -> Any:
        return Asked(self._engine.table(name), self.found)

    def ask(self, asked: Any) -> Any:
        if isinstance(asked, RunQuery) and self._engine.spec.name == "taxi":
            self.found.append((self._engine.spec.name, None if asked.query.columns is None else list(asked.query.columns)))
        return self._engine.ask(asked)


def derive(wh: tw.Warehouse, name: str, sql: str, schema: pa.Schema, columns: tuple[str, ...], *modes: Mode) -> Definition:
    definition = Definition(SPARK_SQL, sql, "", (*modes, ANEW), columns=(("taxi", columns),))
    spec = make_spec(name, schema, time=schema.names[0], key="plate", partition="1 hour")
    wh._engine.do(CreateDerived(spec, definition, (("taxi", HOUR.to_json()),), "error"))
    return definition


def test_a_star_stands_for_what_it_stood_for(wh: tw.Warehouse, duck: DuckCompute) -> None:
    """The table was made when taxi had three columns."""
    made = derive(wh, "stars", STARS, rows().schema, ("ts", "plate", "speed"), ADDED)
    assert Definition.from_json(made.to_json()) == made and made.columns_of("taxi") == ("ts", "plate", "speed")
    for _ in range(2):
        wh.table("taxi").insert(wide((0, 1, 10), (1, 2, 30), (7, 2, 1)))
        report = refresh(wh._engine, duck)
        assert report.ok and report["stars"].rows_written == 3, report
    assert wh.table("stars").schema.names == ["ts", "plate", "speed"] and len(wh.table("stars").query()) == 6
    assert verify(wh._engine, duck, "stars").ok


def test_an_old_definition_has_all_columns() -> None:
    old = Definition(SPARK_SQL, STARS, "", (ANEW,))
    text = old.to_json().replace('"columns": [], ', "")
    assert "columns" not in text and Definition.from_json(text) == old and old.columns_of("taxi") is None


def test_the_engine_is_asked_for_no_more(wh: tw.Warehouse, duck: DuckCompute) -> None:
    counts = "SELECT date_trunc('hour', ts) AS hour, plate, count(*) AS n FROM taxi GROUP BY 1, 2"
    schema = pa.schema([("hour", pa.timestamp("us")), ("plate", pa.int64()), ("n", pa.int64())])
    derive(wh, "counts", counts, schema, ("ts", "plate"), BY_KEYS)
    asked = Asked(wh._engine, [])
    taxi = wh.table("taxi")
    taxi.insert(wide((0, 1, 10), (0.5, 2, 30), (7, 1, 1)))
    assert refresh(asked, duck).ok and asked.found == [("taxi", ["ts", "plate"])] * 2
    asked.found.clear()
    taxi.insert(wide((7.2, 1, 5)))
    report = refresh(asked, duck)
    assert report["counts"].mode == "keys" and asked.found == [("taxi", ["plate"]), ("taxi", ["ts", "plate"])]
    assert sorted(row["n"] for row in wh.table("counts").query().to_pylist()) == [1, 1, 2]
