"""Ctrl-C at any point of a query: no lock stays held, nothing stays pinned, and the next query is right.

Python raises KeyboardInterrupt where it looks for signals: when a function begins, behind a call, and at the end of each
turn of a loop. A trace function does the same here, at points of our code that are drawn from all those that a query
passes; the seed is printed.
"""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pytest

import tidewheel as tw
from tests.conftest import examples
from tests.interrupt import Interrupt
from tidewheel.chunk.cache import LeafCache
from tidewheel.chunk.reader import Chunk, beyond_of
from tidewheel.chunk.remote_chunk import RemoteChunk
from tidewheel.env.range_files import RangeFiles
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.query import Query
from tidewheel.read.local_result import LocalResult
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.timestamp("us")), ("x", pa.float64()), ("tags", pa.list_(pa.string()))])
N = 2000


def rows() -> pa.Table:
    n = np.arange(N)
    tags = pa.array([["a"] * (i % 3) for i in n], pa.list_(pa.string()))
    return pa.table([[f"plate {i % 97:03d}" for i in n], pa.array(n, pa.timestamp("us")), n / 7, tags], schema=SCHEMA)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Probe]:
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=32, zero_copy_rows=40, batch_rows=500)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(rows().slice(0, N // 2))
        table.flush()
        table.insert(rows().slice(N // 2, N))
        yield Probe(table)


def mapped(local: Probe) -> Callable[[], Version]:
    """Makes versions whose chunks nobody has opened yet."""
    publisher = local.publisher

    def make() -> Version:
        old = publisher.version
        chunks = [Chunk(c.record, local.spec, publisher.shape, c.coder, local.owner.files, beyond_of(tw.Settings())) for c in old.chunks]
        return WeakVersion(old.generation, ChunkSet(publisher.shape.width, chunks), old.sealed, old.live, old.masks, old.coder)

    return make


def by_range(local: Probe) -> Callable[[], Version]:
    publisher = local.publisher
    files = RangeFiles(pyarrow.fs.LocalFileSystem(), str(local.owner.files.root), threads=1)

    def make() -> Version:
        old, cache = publisher.version, LeafCache(1 << 20)
        chunks = [RemoteChunk(c.record, local.spec, publisher.shape, c.coder, files, cache) for c in old.chunks]
        return WeakVersion(old.generation, ChunkSet(publisher.shape.width, chunks), old.sealed, old.live, old.masks, old.coder)

    return make


class WeakVersion(Version):
    """A version that can be watched."""

    __slots__ = ("__weakref__",)


QUERIES = {
    "range": Query(key=("plate 010", "plate 020"), time=(100, 1900)),
    "whole": Query(),
    "ordered": Query(order_by="x desc", limit=7, columns=["id"]),
    "function": Query(where=lambda b: np.asarray(b["x"]) > 3),
    "skip": Query(key=("plate 010", "plate 020"), on_corrupt="skip"),
    "where": Query(where="x > 100"),
    "groups": Query(group_by=["id"], aggregate={"n": "count(*)"}, order_by="id"),
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("stored", [mapped, by_range])
def test_at_any_point(local: Probe, stored: Callable[[Probe], Callable[[], Version]], query: str) -> None:
    make = stored(local)

    def read(version: Version) -> pa.Table:
        return LocalResult(local.planner, version, QUERIES[query]).to_arrow()

    want = read(make())
    whole = Interrupt(0)
    whole.run(lambda: read(make()))
    seed = random.randrange(2**32)
    print(f"seed {seed}, {whole.seen} points")
    rng = random.Random(seed)
    gc.collect()
    gc.disable()  # what a query lets go of must go at once
    try:
        for at in rng.sample(range(1, whole.seen + 1), min(whole.seen, examples(25 if query in ("where", "groups") else 60))):
            version = make()
            watched = weakref.ref(version)
            interrupt = Interrupt(at)
            with contextlib.suppress(KeyboardInterrupt):
                interrupt.run(lambda version=version: read(version))
            assert read(version).equals(want), interrupt.where
            del version
            assert watched() is None, f"still pinned after an interrupt at {interrupt.where}"
    finally:
        gc.enable()
