"""How a scan is divided over tasks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidewheel.model.delivery import Pin
from tidewheel.model.records import ChunkRecord
from tidewheel.model.schema import make_spec

pytest.importorskip("pyspark")

from tidewheel.spark.filters import Ask
from tidewheel.spark.splits import LEAST, SLOTS, divide

SPEC = make_spec("t", pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64())]), time="ts", key="k")


def chunk(number: int, size: int, time: tuple[int, int] = (0, 999), key: tuple[int, int] = (0, 999)) -> ChunkRecord:
    return ChunkRecord(
        id=f"{number:04}", table_id=1, server=0, file=f"tables/1/{number}.arrow", container="arrow", format=2, rows=1000, bytes=size,
        key_lo=key[0], key_hi=key[1], time_lo=time[0], time_hi=time[1], late=False, generation_lo=1, generation_hi=1, covers=1,
        prefix=b"", body_lo=0, body_hi=0, frame=0, partitions=((0, 1000),),
    )  # fmt: skip


def pin(*chunks: ChunkRecord, fresh: int = 0) -> Pin:
    return Pin("p", 7, chunks, (), fresh, fresh * 16)


@pytest.fixture(autouse=True)
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLOTS, "2")


def test_nothing_to_read() -> None:
    assert divide(pin(), Ask(), SPEC) == []


def test_every_chunk_once_and_loads_alike() -> None:
    chunks = [chunk(n, LEAST * (1 + n % 3)) for n in range(40)]
    portions = divide(pin(*chunks, *chunks[:3]), Ask(), SPEC)  # masks may name a chunk more than once
    assert len(portions) == 4
    assert sorted(c.id for p in portions for c in p.chunks) == [c.id for c in chunks]
    sizes = [sum(c.bytes for c in p.chunks) for p in portions]
    assert max(sizes) - min(sizes) <= 3 * LEAST
    assert not any(c.partitions for p in portions for c in p.chunks)


def test_few_bytes_are_one_task() -> None:
    chunks = [chunk(n, LEAST // 100) for n in range(50)]
    (one,) = divide(pin(*chunks, fresh=10), Ask(), SPEC)
    assert len(one.chunks) == 50
    assert one.fresh


def test_a_question_makes_chunks_smaller() -> None:
    chunks = [chunk(n, 8 * LEAST) for n in range(10)]
    assert len(divide(pin(*chunks), Ask(), SPEC)) == 4
    assert len(divide(pin(*chunks), Ask(time=(0, 9)), SPEC)) == 1
    assert len(divide(pin(*chunks), Ask(key=(0, 9)), SPEC)) == 1
    assert len(divide(pin(*chunks), Ask(key=(5, 6), keys=((5, 5), (6, 6))), SPEC)) == 4  # such small chunks are read nearly whole


def test_fresh_rows_alone_or_with_the_least() -> None:
    (alone,) = divide(pin(fresh=5), Ask(), SPEC)
    assert alone.fresh and not alone.chunks
    large, small = chunk(1, 8 * LEAST), chunk(2, 2 * LEAST)
    portions = divide(pin(large, small, fresh=5), Ask(), SPEC)
    assert [(len(p.chunks), p.fresh) for p in portions] == [(1, False), (1, True)]
    assert portions[1].chunks[0].id == small.id
    portions = divide(pin(small, fresh=LEAST), Ask(), SPEC)
    assert [(len(p.chunks), p.fresh) for p in portions] == [(0, True), (1, False)]


def test_as_many_as_asked_for() -> None:
    chunks = [chunk(n, LEAST) for n in range(20)]
    assert len(divide(pin(*chunks), Ask(), SPEC, 7)) == 7
    assert len(divide(pin(*chunks, fresh=LEAST), Ask(), SPEC, 1)) == 1
