"""New chunks are verified by the thread that commits: queries find nothing to verify, and damage is told to the query that meets it."""

from __future__ import annotations

import gc
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.chunk.reader import Chunk
from tidewheel.testing.probe import Probe, owner_of
from tidewheel.write import ahead
from tidewheel.write.ahead import Ahead

ROWS = ahead.LEAST_ROWS
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64()), ("t", pa.string()), ("l", pa.list_(pa.int32()))])


def rows(count: int) -> pa.Table:
    at = np.arange(count)
    texts = pa.array([f"text {i % 7}" for i in range(count)])
    return pa.table([at % 100, at.astype("M8[us]"), at * 0.5, texts, pa.array([[1], [2, 3]] * (count // 2))], schema=SCHEMA)


def chunks(table: tw.Table) -> list[Chunk]:
    held = list(Probe(table).version.chunks)
    assert held and all(isinstance(chunk, Chunk) for chunk in held)
    return [chunk for chunk in held if isinstance(chunk, Chunk)]


def verified(chunk: Chunk) -> Any:
    assert chunk._verified is not None
    return chunk._verified


def test_queries_find_new_chunks_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows(ROWS))
        table.flush()
        (chunk,) = chunks(table)
        names = chunk.enter().stored.schema.names  # type: ignore[union-attr]
        give_up = time.monotonic() + 60
        while not np.delete(verified(chunk), names.index("l"), axis=0).all():
            assert time.monotonic() < give_up
            time.sleep(0.01)
        assert not verified(chunk)[names.index("l")].any()  # its checksum takes a copy: left to the first query that reads it

        def never(self: Chunk, column: int, block: int) -> None:
            raise AssertionError("nothing is left to verify")

        monkeypatch.setattr(Chunk, "verify", never)
        answer = table.query(columns=["k", "ts", "x", "t"]).to_arrow()
        assert answer.num_rows == ROWS and sum(answer["x"].to_pylist()) == 0.25 * ROWS * (ROWS - 1)


def test_a_damaged_block_is_told_to_the_query_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        monkeypatch.setattr(ahead, "LEAST_ROWS", 2 * ROWS)  # the thread leaves it to this test
        table.insert(rows(ROWS))
        table.flush()
        (chunk,) = chunks(table)
        mapped = chunk.enter()
        assert mapped is not None
        column = mapped.stored.schema.names.index("x")
        mapped.checksums.flags.writeable = True
        mapped.checksums[column, 1] ^= 1
        with owner_of(wh).still():  # until then that thread may still come to the chunk
            monkeypatch.setattr(ahead, "LEAST_ROWS", ROWS)
        done(chunk)
        assert verified(chunk)[column].tolist()[:2] == [1, 0]
        with pytest.raises(tw.CorruptionError, match="'x'"):
            table.query(columns=["x"]).to_arrow()
        assert len(table.query(columns=["k"]).to_arrow()) == ROWS


@dataclass
class Stub:
    """A chunk that is mapped, so far as this is concerned."""

    columns: int
    failing: Exception | None = None
    mapped: object = True
    rows: int = ROWS
    bytes: int = 1 << 20
    asked: list[int] = field(default_factory=list)

    @property
    def record(self) -> Stub:
        return self

    def verify_column(self, column: int) -> bool:
        self.asked.append(column)
        if self.failing is not None:
            raise self.failing
        return column + 1 < self.columns


def done(*chunks: Any) -> None:
    waiting = Ahead()
    waiting.add(chunks)
    while waiting:
        waiting.step()


def test_columns_come_one_by_one_and_a_failure_ends_its_chunk_alone() -> None:
    good, bad, small, far = Stub(3), Stub(3, MemoryError()), Stub(3, rows=ROWS - 1), Stub(3, mapped=None)
    done(bad, small, far, good)
    assert [stub.asked for stub in (bad, small, far, good)] == [[0], [], [], [0, 1, 2]]


def test_chunks_that_leave_are_not_held() -> None:
    chunk, waiting = Stub(3), Ahead()
    waiting.add([chunk])  # type: ignore[list-item]
    waiting.step()
    gone = weakref.ref(chunk)
    del chunk
    gc.collect()
    assert gone() is None and waiting
    waiting.step()
    assert not waiting


def test_of_too_many_the_oldest_are_left_out() -> None:
    stubs, waiting = [Stub(1, bytes=1 << 28) for _ in range(9)], Ahead()
    waiting.add(stubs)  # type: ignore[arg-type]
    while waiting:
        waiting.step()
    assert [n for n, stub in enumerate(stubs) if not stub.asked] == [0, 1, 2, 3, 4]
