"""Boxes of z-order keys: the rows of a plain comparison, whatever the zone maps of the coordinates leave out."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tidewheel.chunk.mappings import MAPPINGS
from tidewheel.errors import CorruptionError, CorruptionWarning
from tidewheel.model.query import Query
from tidewheel.read import boxes_decided, scan
from tidewheel.read.local_result import LocalResult
from tidewheel.testing.probe import Probe

COORDINATES = [pa.float64(), pa.float32(), pa.int64(), pa.uint64(), pa.int16(), pa.float16()]
ROWS = 24_000
ASKED = 25


def column(rng: np.random.Generator, type_: pa.DataType, rows: int) -> pa.Array:
    """Places around a few towns, some beyond the bounds of the key, some at the ends of what the type can say."""
    towns = rng.uniform(-900, 900, 4)
    values = rng.choice(towns, rows) + rng.normal(0, 60, rows)
    if type_ == pa.float16():
        return pa.array(np.round(values).astype(np.float16))
    if pa.types.is_floating(type_):
        some = rng.choice([0.0, -0.0, math.inf, -math.inf, 0.1, 1e30], rows)
        return pa.array(np.where(rng.random(rows) < 0.02, some, values)).cast(type_, safe=False)
    info = np.iinfo(type_.to_pandas_dtype())
    whole = np.abs(values).astype(info.dtype) if info.min == 0 else values.astype(info.dtype)
    ends = np.array([info.min, info.max, info.max - 1], info.dtype)[rng.integers(0, 3, rows)]
    return pa.array(np.where(rng.random(rows) < 0.02, ends, whole), type_)


def bound(rng: random.Random, values: list[Any]) -> Any:
    """A value that is there, or one beside it, as any kind of number."""
    value = rng.choice(values)
    if rng.random() < 0.1:
        return None
    if not math.isfinite(value):
        return value
    return rng.choice([
        value, float(value), Fraction(value) + Fraction(1, 3), Decimal(value) - Decimal("0.25"), math.floor(value), rng.uniform(-900, 900),
    ])  # fmt: skip


def box_of(rng: random.Random, x: list[Any], y: list[Any]) -> tuple[Any, ...]:
    ends = [sorted((bound(rng, some), bound(rng, some)), key=lambda v: -math.inf if v is None else v) for some in (x, y)]
    box = ends[0][0], ends[1][0], ends[0][1], ends[1][1]
    return tuple(None if end is None else float(end) for end in box) if rng.random() < 0.6 else box


def inside(box: tuple[Any, ...], x: Any, y: Any) -> bool:
    """Python compares whole numbers, floats, fractions and decimals exactly."""
    checks = zip((x, y), box[:2], box[2:], strict=True)
    return all((lo is None or value >= lo) and (hi is None or value <= hi) for value, lo, hi in checks)


@pytest.mark.parametrize("seed", range(examples(6)))
def test_random_boxes(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory and in chunks, mapped and read by range, whole and with rows that were replaced; totals and groups of them, too."""
    monkeypatch.setattr(boxes_decided, "_MANY", 500)
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    types = [COORDINATES[seed % len(COORDINATES)], rng.choice(COORDINATES)] if seed else [pa.float64(), pa.float64()]
    schema = pa.schema([("ts", pa.timestamp("us")), ("n", pa.int64()), ("x", types[0]), ("y", types[1])])
    moments = pa.array(numbers.permutation(ROWS), pa.int64()).view(pa.timestamp("us"))
    rows = pa.record_batch([moments, pa.array(np.arange(ROWS)), *(column(numbers, t, ROWS) for t in types)], schema=schema)
    most = MAPPINGS.count + 1 if seed % 2 else None  # all chunks but one are then read by range
    settings = tw.Settings(leaf_rows=64, chunk_bytes=200_000, mapped_chunks=most, indexing_servers=1 + seed % 2)
    with tw.open(tmp_path, settings=settings) as wh:
        table = wh.create_table("t", schema, time="ts", key=tw.zorder("x", "y", bounds=(-1000.0, -1000.0, 1000.0, 1000.0)))
        for at in range(0, ROWS, 4000):
            table.insert(rows.slice(at, 4000))
            if at < 12_000:
                table.flush()
        shown = rows.to_pydict()
        have = list(zip(shown["n"], shown["x"], shown["y"], strict=True))
        if seed % 3 == 0:  # rows of a part of the time go, where they lie among others
            table.replace(rows.slice(0, 0), time=(5_000, 5_700))
            have = [row for row, t in zip(have, moments.cast(pa.int64()).to_pylist(), strict=True) if not 5_000 <= t <= 5_700]
        for number in range(ASKED):
            box = box_of(rng, shown["x"], shown["y"])
            want = sorted(n for n, x, y in have if inside(box, x, y))
            said = f"seed {seed}, box {number}: {box}"
            assert sorted(table.query(box=box, columns=["n"]).to_arrow()["n"].to_pylist()) == want, said
            assert len(table.query(box=box)) == len(want), said
            (total,) = table.query(box=box, aggregate={"s": "sum(n)"}).to_arrow().to_pylist()
            assert total["s"] == (sum(want) if want else None), said
            odd = [n for n in want if n % 2]
            (total,) = table.query(box=box, where="n % 2 = 1", aggregate={"s": "sum(n)"}).to_arrow().to_pylist()
            assert total["s"] == (sum(odd) if odd else None), said
            grouped = table.query(box=box, aggregate={"s": "sum(n)"}, group_by=["n % 7 AS g"], order_by="g").to_arrow().to_pylist()
            assert {row["g"]: row["s"] for row in grouped} == {g: sum(n for n in want if n % 7 == g) for g in {n % 7 for n in want}}, said
            late = [n for n in want if n >= 9_000]
            (total,) = table.query(box=box, where="n >= 9000", aggregate={"s": "sum(n)"}).to_arrow().to_pylist()
            assert total["s"] == (sum(late) if late else None), said


@pytest.fixture
def points(tmp_path: Path) -> Path:
    schema = pa.schema([("ts", pa.timestamp("us")), ("n", pa.int64()), ("x", pa.float64()), ("y", pa.float64())])
    numbers = np.random.default_rng(1)
    with tw.open(tmp_path, settings=tw.Settings(leaf_rows=64)) as wh:
        table = wh.create_table("t", schema, time="ts", key=tw.zorder("x", "y", bounds=(0.0, 0.0, 1.0, 1.0)))
        moments = pa.array(np.arange(200_000)).view(pa.timestamp("us"))
        places = [pa.array(np.round(numbers.random(200_000), 4)) for _ in "xy"]
        table.insert(pa.record_batch([moments, pa.array(np.arange(200_000)), *places], schema=schema))
        table.flush()
    return tmp_path


BOX = (0.3011, 0.3011, 0.4021, 0.7013)


def test_leaves_outside_of_a_box_are_not_read(points: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.open(points) as wh:
        table = wh.table("t")
        with monkeypatch.context() as blind:
            blind.setattr(scan, "_LARGE_BOX", 1 << 62)
            before = table.query(box=BOX)
            rows = before.to_arrow().sort_by("n")
        after = table.query(box=BOX)
        assert after.to_arrow().sort_by("n").equals(rows) and rows.num_rows > 5_000
        read, skipped = (getattr(after.stats, name) - getattr(before.stats, name) for name in ("leaves_read", "leaves_skipped"))
        assert read < 0 and skipped == -read, "the zone maps of the coordinates left nothing out"


def test_rows_of_leaves_inside_are_not_asked(points: Path) -> None:
    with tw.open(points) as wh:
        result = Probe(wh.table("t")).query(Query(box=BOX))
        assert isinstance(result, LocalResult)
        found = result.found
        assert 0 < found.doubtful < len(found.segments)
        sure = found.segments[found.segments[:, 3] == 0]
        assert int(sure[:, 2].sum()) > found.rows // 3


def test_a_damaged_coordinate_is_told(points: Path) -> None:
    """Also where the zone maps say enough of a leaf that nobody compares its rows."""
    with tw.open(points) as wh:
        want = wh.table("t").query(box=BOX, columns=["x"]).to_arrow()
        (chunk,) = Probe(wh.table("t")).chunks
        x, y = (chunk.batch[name].to_numpy() for name in "xy")
        row = int(np.flatnonzero((x > 0.35) & (x < 0.4) & (y > 0.35) & (y < 0.65))[0])
        column = x.tobytes()
    (file,) = points.rglob("*.arrow")
    content = bytearray(file.read_bytes())
    content[content.find(column) + 8 * row] ^= 1
    file.write_bytes(content)
    with tw.open(points) as wh:
        table = wh.table("t")
        with pytest.raises(CorruptionError):
            table.query(box=(0.0, 0.0, 1.0, 1.0), columns=["x"]).to_arrow()
        with pytest.warns(CorruptionWarning):
            left = table.query(box=BOX, columns=["x"], on_corrupt="skip").to_arrow()
        assert 0 < left.num_rows < want.num_rows
