"""`tidewheel status`: what two looks say together, and what is shown of it."""

from __future__ import annotations

import datetime as dt
import io
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import tidewheel as tw
from tidewheel.model.figures import age, amount, rate, size
from tidewheel.surfaces.status.observation import StreamLook, TableLook, WarehouseLook, look, picture
from tidewheel.surfaces.status.picture import drawn

TAXI = TableLook("taxi", 1000, 400, 600, 3, 1, 5000, 70_000, 9, 2, newest=990.0, metrics={"rows": 1000.0, "rejected": 2.0, "waits": 0.0})
BEFORE = WarehouseLook(Path("wh"), 50.0, 998.0, 4711, (TAXI,), ())


def later(seconds: float = 2.0, **metrics: float) -> WarehouseLook:
    return replace(BEFORE, clock=50.0 + seconds, at=998.0 + seconds, tables=(replace(TAXI, metrics={**TAXI.metrics, **metrics}),))


def test_rates_are_of_two_looks() -> None:
    said = picture(later(rows=1500.0, rejected=3.0), BEFORE)
    assert said["tables"][0]["rows_per_second"] == said["total"]["rows_per_second"] == 250.0
    assert said["tables"][0]["rejected_per_second"] == 0.5 and said["seconds"] == 2.0 and said["tables"][0]["lag_seconds"] == 10.0
    assert picture(BEFORE, None)["tables"][0]["rows_per_second"] is None
    assert picture(later(rows=300.0), BEFORE)["tables"][0]["rows_per_second"] == 150.0, "another owner counts from 0"
    new = replace(BEFORE, clock=51.0, tables=(TAXI, replace(TAXI, name="new")))
    assert [t["rows_per_second"] for t in picture(new, BEFORE)["tables"]] == [0.0, None]
    assert picture(new, BEFORE)["total"]["rows_per_second"] is None


def test_totals() -> None:
    total = picture(replace(BEFORE, tables=(TAXI, replace(TAXI, name="b", rows=1, chunks=4))), None)["total"]
    assert (total["rows"], total["chunks"], total["disk_bytes"]) == (1001, 7, 140_000)


def shown(said: dict[str, Any], height: int | None = None, width: int = 120) -> str:
    console = Console(file=(out := io.StringIO()), width=width)
    console.print(drawn(said, width, height))
    return out.getvalue()


def test_what_is_shown() -> None:
    streams = (StreamLook("taxi", "[red]\x1bkafka", 7, 500, False),)
    text = shown(picture(replace(later(rows=1500.0, waits=3.0), streams=streams), BEFORE))
    lines = text.splitlines()
    assert "owned by process 4711" in lines[0] and "00:16:40 UTC" in lines[0]
    assert lines[2].split() == ["table", "rows", "rows/s", "fresh", "historical", "chunks", "memory", "disk", "late", "rejected", "lag"]
    assert lines[3].split() == ["taxi", "1,000", "250", "400", "600", "3", "5", "kB", "70", "kB", "0", "2", "10.0", "s"]
    assert "taxi: 3 inserts had to wait for the disk" in text and lines[-1].split() == ["[red]\\x1bkafka", "taxi", "7", "500", "fresh"]
    assert "tidewheel create" in shown(picture(replace(BEFORE, tables=()), None))


@pytest.mark.parametrize("width", range(20, 121, 4))
def test_a_narrow_terminal_has_fewer_columns_but_no_half_ones(width: int) -> None:
    said = picture(replace(later(rows=1500.0), tables=(TAXI, replace(TAXI, name="b", rows=123_456, disk_bytes=10**12))), BEFORE)
    whole, text = shown(said, width=150).splitlines(), shown(said, width=width)
    lines = text[text.index("table") :].splitlines()
    assert "…" not in text and max(map(len, lines)) <= width
    for line, all_of_it in zip(lines, whole[2:], strict=True):
        assert set(line.split()) <= set(all_of_it.split())
    assert lines[0].split() == whole[2].split() if width > 90 else "rows" in lines[0]


def test_it_fits_the_screen() -> None:
    tables = tuple(replace(TAXI, name=f"t{n}", rows=n, metrics={}) for n in range(50))
    streams = tuple(StreamLook("t", f"s{n}", n, n, True) for n in range(20))
    said = picture(replace(BEFORE, tables=tables, streams=streams), BEFORE)
    text = shown(said, height=24, width=80)
    assert len(text.splitlines()) <= 24 and "t49 " in text and "more tables" in text and "more streams" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert len(shown(said).splitlines()) > 70, "all of it where there is no screen"


def test_figures() -> None:
    assert [amount(n) for n in (0, 999_999, 1_234_567, 999_600_000, 5e9, 5e12)] == ["0", "999,999", "1.23 M", "1,000 M", "5 G", "5,000 G"]
    assert [rate(n) for n in (None, 0.0, 0.5, 12.3, 2e6)] == ["–", "0", "0.5", "12", "2 M"]
    assert [size(n) for n in (0, 999, 1500, 2e6, 3.456e9, 2e12)] == ["0 B", "999 B", "1.5 kB", "2 MB", "3.46 GB", "2.0 TB"]
    assert [age(n) for n in (None, 0.04, 90, 600, 86_400 * 3, -30, -86_400 * 800)] == [
        "–",
        "0.0 s",
        "90.0 s",
        "10 min",
        "3 d",
        "+30.0 s",
        "+2 y",
    ]


@pytest.mark.parametrize(
    ("type_", "rule", "unit"),
    [
        (pa.timestamp("ns"), "ts", 10**9),
        (pa.timestamp("s", "UTC"), "ts", 1),
        (pa.int64(), tw.epoch("ts", "ms"), 1000),
        (pa.date32(), "ts", None),
    ],
)
def test_the_newest_row_of_a_table(tmp_path: Path, type_: pa.DataType, rule: Any, unit: int | None) -> None:
    now = int(time.time())
    value = dt.datetime.fromtimestamp(now, dt.UTC).date() if unit is None else now * unit
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", pa.schema([("k", pa.int64()), ("ts", type_)]), time=rule, key="k", partition="1 day")
        before = look(wh, tmp_path / "wh")
        table.insert(pa.table({"k": pa.array([1]), "ts": pa.array([value]).cast(type_)}))
        said = picture(look(wh, tmp_path / "wh"), before)
    found = said["tables"][0]
    assert found["rows"] == found["fresh_rows"] == 1 and found["rows_per_second"] > 0 and said["owner"] is None and said["streams"] == []
    assert 0 <= found["lag_seconds"] < (86_400 + 60 if unit is None else 60)


def test_rejects_are_not_forgotten(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
    with tw.open(tmp_path / "wh") as wh:
        bad = [{"k": 1, "ts": 1}, {"k": None, "ts": 1}, {"k": 2, "ts": None}]
        wh.create_table("t", schema, time="ts", key="k").insert(bad, on_bad="reject")
        assert look(wh, tmp_path / "wh").tables[0].rejected == 2
    with tw.open(tmp_path / "wh") as wh:
        assert picture(look(wh, tmp_path / "wh"), None)["tables"][0]["rejected"] == 2
