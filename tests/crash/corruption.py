"""A campaign of damage: runs in a process of its own, because a wrong reader might crash rather than raise.

    python -m tests.crash.corruption small|large|logs FOLDER SEED

prints one JSON line: how often the answer was right, which errors were raised, and what went wrong. The position at
work is kept in FOLDER/position, so that a crash can be told where it happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidewheel as tw
from tests.conftest import SOAK
from tidewheel.chunk.cache import LeafCache
from tidewheel.chunk.reader import Chunk, beyond_of
from tidewheel.chunk.remote_chunk import RemoteChunk
from tidewheel.errors import CorruptionError, TidewheelError
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.query import Query
from tidewheel.read.local_result import LocalResult
from tidewheel.testing.probe import Probe

STEP = 1 if SOAK else 6
"""Of how many bytes one is damaged, where it is said to be every byte."""

SMALL = pa.schema(
    [
        ("plate", pa.string()),
        ("ts", pa.timestamp("ms")),
        ("speed", pa.float64()),
        ("busy", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)
LARGE = pa.schema(
    [
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("ts", pa.timestamp("us")),
        ("n", pa.int32()),
        ("speed", pa.float32()),
        ("busy", pa.bool_()),
        ("plate", pa.string()),
        ("note", pa.large_string()),
        ("raw", pa.binary()),
        ("hash", pa.binary(5)),
        ("fare", pa.decimal128(12, 2)),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("tags", pa.list_(pa.string())),
        ("stops", pa.list_(pa.struct([("at", pa.int64()), ("name", pa.string())]))),
        ("attributes", pa.map_(pa.string(), pa.int64())),
        ("view", pa.string_view()),
    ]
)


def small_rows() -> pa.Table:
    n = np.arange(40)
    return pa.table(
        [
            [f"taxi-{i % 7}" for i in n],
            pa.array(n * 1000, pa.timestamp("ms")),
            pa.array(n / 3, mask=n % 5 == 0),
            pa.array([None if i % 6 == 0 else bool(i % 2) for i in n]),
            pa.array([None if i % 5 == 0 else ["ab"] * (i % 3) for i in n], pa.list_(pa.string())),
            pa.array([f"kind {i % 3}" for i in n]).dictionary_encode(),
        ],
        schema=SMALL,
    )


def large_rows() -> pa.Table:
    n = np.arange(17_000)
    words = [f"word {i % 211}" * (i % 3) for i in n]
    return pa.table(
        [
            115 + (n * 7919 % 2000) / 1000,
            39 + (n * 104729 % 1500) / 1000,
            pa.array(n * 1_000_000, pa.timestamp("us")),
            pa.array(n, pa.int32()),
            pa.array((n % 90).astype(np.float32), mask=n % 13 == 0),
            pa.array(n % 3 == 0, mask=n % 17 == 0),
            pa.array(words, mask=n % 19 == 0),
            pa.array(words, pa.large_string()),
            pa.array([w.encode()[::-1] for w in words], pa.binary()),
            pa.array([f"{i:05d}".encode() for i in n], pa.binary(5)),
            pa.array([None if i % 7 == 0 else Decimal(int(i)) / 4 for i in n], pa.decimal128(12, 2)),
            pa.array([f"kind {i % 23}" for i in n]).dictionary_encode(),
            pa.array([None if i % 5 == 0 else [words[i]] * (i % 3) for i in n], pa.list_(pa.string())),
            pa.array([[{"at": int(i), "name": words[i]}] * (i % 2) for i in n], LARGE.field("stops").type),
            pa.array([[("k", int(i))] if i % 4 else None for i in n], pa.map_(pa.string(), pa.int64())),
            pa.array(words, pa.string_view()),
        ],
        schema=LARGE,
    )


class MemoryFile:
    """A chunk's file in memory, to be damaged byte by byte: what both readers need of files."""

    root = "memory"

    def __init__(self, content: bytes) -> None:
        self._whole = pa.allocate_buffer(len(content))
        self.bytes = np.frombuffer(self._whole, np.uint8)
        self.bytes[:] = np.frombuffer(content, np.uint8)

    def map(self, name: str, size: int) -> pa.Buffer:
        assert size == len(self.bytes)
        return self._whole

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return [memoryview(self.bytes[at : at + size].tobytes()) for at, size in ranges]

    def remove(self, name: str) -> None: ...

    @contextlib.contextmanager
    def damaged(self, at: int, content: np.ndarray) -> Iterator[None]:
        before = self.bytes[at : at + len(content)].copy()
        self.bytes[at : at + len(content)] = content
        try:
            yield
        finally:
            self.bytes[at : at + len(content)] = before


class Campaign:
    """Asks the same questions again and again while something is damaged."""

    def __init__(self, folder: Path) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._position = os.open(folder / "position", os.O_CREAT | os.O_WRONLY)

    def attempt(self, what: str, read: Callable[[], Any], check: Callable[[Any], bool]) -> bool:
        """True if the answer was right, False if an error of ours was raised; anything else is noted as wrong."""
        os.pwrite(self._position, f"{what:<200}".encode(), 0)
        try:
            right = check(read())
        except TidewheelError as e:
            self.outcomes[type(e).__name__] += 1
            return False
        except BaseException as e:
            self.wrong.append(f"{what}: {e!r}")
            return False
        self.outcomes["right"] += right
        if not right:
            self.wrong.append(f"{what}: a wrong answer")
        return right

    def report(self, **more: Any) -> None:
        print(json.dumps({"outcomes": self.outcomes, "wrong": self.wrong[:100], "failures": len(self.wrong), **more}))


class Target:
    """One chunk of a table, read by a mapping and by ranges, each time as if it were opened for the first time."""

    def __init__(self, folder: Path, schema: pa.Schema, rows: pa.Table, **create: Any) -> None:
        self.root = folder / "wh"
        with tw.open(self.root, settings=tw.Settings(leaf_rows=64)) as wh:
            table = wh.create_table("t", schema, **create)
            table.insert(rows)
            table.flush()
            self._local = Probe(table).local
            (chunk,) = Probe(table).chunks
        self.record = chunk.record
        self.path = self.root / chunk.record.file
        self.file = MemoryFile(self.path.read_bytes())

    def read(self, mapped: bool, query: Query) -> pa.Table:
        publisher = self._local.publisher
        coder = publisher.coders.of(self.record.prefix)
        make: Any = Chunk if mapped else RemoteChunk
        more = (beyond_of(tw.Settings()),) if mapped else (LeafCache(1 << 22),)
        chunk = make(self.record, self._local.spec, publisher.shape, coder, self.file, *more)
        version = Version(1, ChunkSet(publisher.shape.width, [chunk]), (), (), (), publisher.coders.first)
        return LocalResult(self._local.planner, version, query).to_arrow()


def ways(at: int) -> list[tuple[int, bool]]:
    """What a byte is changed by, and whether it is the first: one thing, which takes turns; all of them in a soak."""
    changes = [0xFF, 0x01, 0x80]
    turned = changes[at % 3 :] + changes[: at % 3]
    return [(by, by == turned[0]) for by in (turned if SOAK else turned[:1])]


def opened_frames() -> list[int]:
    """Counts how often Arrow is asked to parse a file."""
    calls = [0]
    real = pa.ipc.open_file

    def open_file(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        return real(*args, **more)

    pa.ipc.open_file = open_file
    return calls


def small(folder: Path, seed: int) -> None:
    """Every byte of a small chunk; every sixth, beginning where the seed says, if this is no soak."""
    campaign = Campaign(folder)
    target = Target(folder, SMALL, small_rows(), time="ts", key="plate")
    queries = [Query(), Query(key=("taxi-2", "taxi-4"), time=(3000, 33_000), columns=["speed", "tags"])]
    wants = {(m, q): target.read(m, query) for q, query in enumerate(queries) for m in (True, False)}
    assert wants[True, 0].sort_by("ts").to_pylist() == small_rows().to_pylist()
    assert wants[True, 1].num_rows == wants[False, 1].num_rows > 5
    parsed = opened_frames()
    bytes_ = target.file.bytes
    body = range(target.record.body_lo, target.record.body_hi)
    for at in range(seed % STEP, len(bytes_), STEP):
        for by, first in ways(at):
            with target.file.damaged(at, bytes_[at : at + 1] ^ by):
                for mapped in (True, False) if first else (True,):
                    for q, query in enumerate(queries if at in body and first else queries[:1]):
                        before, want = parsed[0], wants[mapped, q]
                        what = f"byte {at} of {len(bytes_)} ^ {by:#x}, {'mapped' if mapped else 'by range'}, query {q}"
                        right = campaign.attempt(what, lambda m=mapped, q=query: target.read(m, q), want.equals)
                        if at not in body and (right or parsed[0] != before):
                            campaign.wrong.append(f"{what}: the frame was parsed though it is damaged")
    campaign.report(bytes=len(bytes_), frame=len(bytes_) - len(body))


def large(folder: Path, seed: int, positions: int = 2000 if SOAK else 400) -> None:
    """Samples of a large chunk: single bytes, stretches of zeros and noise, truncations; some in a real warehouse."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    campaign = Campaign(folder)
    target = Target(folder, LARGE, large_rows(), time="ts", key=tw.zorder("lon", "lat", bounds=(115.0, 39.0, 117.0, 40.5)))
    box = Query(box=(115.2, 39.2, 116.4, 40.1), time=(10**9, 15 * 10**9))
    some = Query(box=(115.2, 39.2, 116.4, 40.1), columns=["n", "tags", "view"], where=lambda b: np.asarray(b["n"]) % 2 == 0)
    queries = [Query(), box, some]
    wants = {(m, q): target.read(m, query) for q, query in enumerate(queries) for m in (True, False)}
    assert sorted(wants[True, 0].to_pylist(), key=lambda row: row["n"]) == large_rows().to_pylist()
    size = len(target.file.bytes)
    edges = sorted({at for name in LARGE.names for at in _edges(target, name)})
    for number in range(positions):
        at = rng.choice(edges) if number % 4 == 0 else rng.randrange(size)
        kind = rng.choice(["flip", "flip", "zeros", "noise"])
        length = 1 if kind == "flip" else min(rng.choice([4, 64, 512, 4096]), size - at)
        before = target.file.bytes[at : at + length]
        content = before ^ rng.choice([1, 0x10, 0x80, 0xFF]) if kind == "flip" else noise.integers(0, 256, length, np.uint8)
        content = np.zeros(length, np.uint8) if kind == "zeros" else content.astype(np.uint8)
        q, mapped = number % 3, rng.random() < 0.6
        what = f"{kind} of {length} bytes at {at} of {size}, {'mapped' if mapped else 'by range'}, query {q}"
        with target.file.damaged(at, content):
            campaign.attempt(what, lambda m=mapped, q=q: target.read(m, queries[q]), wants[mapped, q].equals)
    _in_a_warehouse(campaign, target, rng, wants[True, 0])
    campaign.report(bytes=size)


def _edges(target: Target, column: str) -> list[int]:
    """The first and last bytes of a column's buffers: offsets there are what readers follow first."""
    whole = target.file.map("", len(target.file.bytes))
    buffers = pa.ipc.open_file(whole).get_batch(0).column(column).buffers()
    spans = [(b.address - whole.address, b.size) for b in buffers if b is not None and b.size]
    return [p for at, size in spans for p in (*range(at, at + min(8, size)), *range(at + max(0, size - 8), at + size))]


def _in_a_warehouse(campaign: Campaign, target: Target, rng: random.Random, want: pa.Table) -> None:
    """Through the front door: a real file, damaged or cut off, in a warehouse that is opened for it."""
    content = target.path.read_bytes()
    for number in range(60):
        at = rng.randrange(len(content))
        cut = number % 3 == 0
        bad = content[:at] if cut else content[:at] + bytes([content[at] ^ rng.randrange(1, 256)]) + content[at + 1 :]
        target.path.write_bytes(bad)
        with tw.open(target.root, settings=tw.Settings(map_chunks=number % 2 == 0)) as wh:
            what = f"{'cut off' if cut else 'changed'} at {at} of {len(content)}, opened"
            right = campaign.attempt(what, lambda: wh.table("t").query().to_arrow(), want.equals)
            if cut and right:
                campaign.wrong.append(f"{what}: a file that was cut off gave an answer")
            try:
                wh.table("t").query().to_arrow()
            except CorruptionError as e:
                if target.path.name not in str(e):
                    campaign.wrong.append(f"{what}: the error does not name the file: {e}")
    target.path.write_bytes(content)


if __name__ == "__main__":
    {"small": small, "large": large}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
