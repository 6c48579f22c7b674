"""Text keys have an index, whatever they look like and in whatever order they come: a query for one key reads its leaf, and no others."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.index.regions import WORTH
from tidewheel.index.table_coders import Coders
from tidewheel.index.version import ChunkSet
from tidewheel.model.pieces import INDEX
from tidewheel.model.text.division import LONGEST_PREFIX
from tidewheel.model.text_codes import BytesCoder
from tidewheel.testing.abandon import abandon
from tidewheel.testing.probe import Probe
from tidewheel.write import templates

KEYS, ROWS, BATCH, LEAF = 240, 12_000, 1_000, 32
SETTINGS = tw.Settings(chunk_bytes=150_000, leaf_rows=LEAF)
SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
HOSTS = ("https://www.example.org", "https://shop.example.org", "http://a.org", "https://cdn.shop.example.org")

NAMES: dict[str, Callable[[int], str]] = {
    "devices": lambda i: f"dev-{'ABCDEFGH'[i % 8]}-{i:06d}",
    "1 KB prefix": lambda i: "/a/very/long/path" * 60 + f"{i:05d}",
    "mixed lengths": lambda i: f"dev-{'ABC'[i % 3]}" + "x" * (i % 40) + str(i),
    "UUIDs": lambda i: str(uuid.UUID(int=random.Random(i).getrandbits(128))),
    "URLs": lambda i: f"{HOSTS[i % 4]}/catalog/{('books', 'garden', 'music')[i % 3]}/items/{i:06d}/reviews?page=1",
    "non-ASCII": lambda i: f"станция-{'ЖЯ日'[i % 3]}-{i:04d}",
    "zeros and beginnings": lambda i: "ab"[i % 2] * (i % 9) + "\0" * (i % 4) + str(i),
}


def stream(kind: str) -> list[str]:
    """The keys of all rows, in order of arrival."""
    if kind in ("sorted", "device by device"):
        names = [NAMES["devices"](i) for i in range(KEYS)]
        return [name for name in (sorted(names) if kind == "sorted" else names) for _ in range(ROWS // KEYS)]
    if kind == "one hot key":
        rng = random.Random(kind)
        return [NAMES["URLs"](7 if rng.random() < 0.5 else rng.randrange(KEYS)) for _ in range(ROWS)]
    keys = [NAMES["devices" if kind == "shuffled" else kind](i % KEYS) for i in range(ROWS)]
    random.Random(kind).shuffle(keys)
    return keys


KINDS = ["sorted", "device by device", "shuffled", "one hot key", *(kind for kind in NAMES if kind != "devices")]


def rows(keys: list[str], first: int = 0) -> pa.Table:
    numbers = np.arange(first, first + len(keys))
    return pa.table({"key": keys, "ts": pa.array(numbers * 1000, pa.timestamp("us")), "n": numbers}, SCHEMA)


def chunk_keys(table: tw.Table) -> list[list[list[str]]]:
    """The keys in each leaf of each chunk."""
    found = []
    for chunk in Probe(table).chunks:
        chunk.open()
        keys, starts = chunk.batch.column("key").to_pylist(), chunk.leaves.starts.tolist()
        found.append([keys[a:b] for a, b in pairwise(starts)])
    return found


def check(table: tw.Table, keys: list[str], asked: list[str], flushed: bool) -> None:
    leaves = chunk_keys(table) if flushed else []
    for key in asked:
        result = table.query(key=key)
        got = result.to_arrow()
        assert sorted(got["n"].to_pylist()) == [n for n, k in enumerate(keys) if k == key]
        stats = result.stats
        assert stats.leaves_read <= 2 * stats.regions_read + sum(set(leaf) == {key} for chunk in leaves for leaf in chunk)
        if flushed and got.num_rows:
            holds = sum(min(map(min, chunk)) <= key <= max(map(max, chunk)) for chunk in leaves)
            assert stats.regions_read <= holds + 1, "chunks were read that cannot have the key"
            assert stats.rows_scanned <= got.num_rows + 2 * 2 * LEAF * stats.regions_read


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_for_one_key_reads_its_leaf(tmp_path: Path, kind: str) -> None:
    keys = stream(kind)
    rng = random.Random(kind)
    asked = [*rng.sample(sorted(set(keys)), 25), min(keys), max(keys), keys[0], min(keys) + "\0", "", max(keys) + "z"]
    with tw.open(tmp_path / "wh", settings=SETTINGS) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="key")
        for first in range(0, ROWS, BATCH):
            table.insert(rows(keys[first : first + BATCH], first))
        check(table, keys, asked, flushed=False)
        table.flush()
        check(table, keys, asked, flushed=True)
        for lo, hi in [sorted(rng.sample(asked, 2)) for _ in range(10)]:
            low, high = lo.encode(), hi.encode()
            got = table.query(key=(lo, hi)).to_arrow()["n"].to_pylist()
            assert sorted(got) == [n for n, key in enumerate(keys) if low <= key.encode() <= high]
        assert not wh.check().problems
    with tw.open(tmp_path / "wh", settings=SETTINGS) as wh:
        check(wh.table("t"), keys, asked, flushed=True)


@pytest.mark.parametrize("kind", ["device by device", "one hot key", "URLs"])
def test_coders_are_learned_from_samples(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where chance is against a sample, all keys of a chunk are looked at."""
    monkeypatch.setattr(templates, "SMALL_SAMPLE", 256)
    monkeypatch.setattr(templates, "LEAST_SAMPLE", 64)
    monkeypatch.setattr(templates, "SAMPLE_BYTES", 64)
    keys = stream(kind)
    with tw.open(tmp_path / "wh", settings=SETTINGS) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="key")
        for first in range(0, ROWS, BATCH):
            table.insert(rows(keys[first : first + BATCH], first))
        check(table, keys, sorted(set(keys))[::12], flushed=False)
        table.flush()
        check(table, keys, sorted(set(keys))[::12], flushed=True)


def test_keys_that_begin_otherwise_are_told_apart_in_memory(tmp_path: Path) -> None:
    """The first rows do not decide for ever what all keys begin with."""
    keys = [f"dev-A-{i:04d}" for i in range(10)] + [f"dev-B-{i % 200:04d}" for i in range(4000)]
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=16, chunk_bytes=300_000)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="key")
        table.insert(rows(keys[:10]))
        table.insert(rows(keys[10:], 10))
        for key in ("dev-A-0003", "dev-B-0003", "dev-B-0199"):
            result = table.query(key=key)
            assert len(result.to_arrow()) == keys.count(key)
            assert result.stats.rows_scanned <= 200
        coders = Probe(table).publisher.coders
        table.insert(rows([f"{'x' * i}-{j}" for i in range(40) for j in range(3)], len(keys)))
        assert len(coders) <= 6


@pytest.mark.parametrize("servers", [1, 3])
def test_rows_of_the_log_and_several_servers(tmp_path: Path, servers: int) -> None:
    keys = stream("URLs")
    settings = replace(SETTINGS, indexing_servers=servers, chunk_bytes=400_000)
    wh = tw.open(tmp_path / "wh", settings=settings)
    table = wh.create_table("t", SCHEMA, time="ts", key="key")
    for first in range(0, ROWS, BATCH):
        table.insert(rows(keys[first : first + BATCH], first))
    asked = [*random.Random(1).sample(sorted(set(keys)), 10), "", "z"]
    check(table, keys, asked, flushed=False)
    abandon(wh)
    with tw.open(tmp_path / "wh", settings=settings) as wh:
        table = wh.table("t")
        assert wh.recovery is not None and table.rows == ROWS
        check(table, keys, asked, flushed=False)
        table.flush()
        for key in asked:
            result = table.query(key=key)
            assert sorted(result.to_arrow()["n"].to_pylist()) == [n for n, k in enumerate(keys) if k == key]
        assert not wh.check().problems


def test_chunks_say_how_they_divide_keys_only_where_a_prefix_does_not(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh", settings=SETTINGS) as wh:
        for name, kind in (("plain", "shuffled"), ("divided", "URLs"), ("long", "1 KB prefix")):
            table = wh.create_table(name, SCHEMA, time="ts", key="key")
            table.insert(rows(stream(kind)[:3000]))
            table.flush()
            (record, *_) = [chunk.record for chunk in Probe(table).chunks]
            assert (record.format, len(record.prefix) > LONGEST_PREFIX) == ((2, False) if name == "plain" else (3, True))


def test_regions_of_many_coders(tmp_path: Path) -> None:
    """Chunks that each divide keys in their own way are found by key, without a look at all of them."""
    rng = random.Random(5)
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="key")
        table.insert(rows(["a", "b"]))
        table.flush()
        publisher = Probe(table).publisher
        (real,) = publisher.version.chunks
        coders, first = Coders(publisher.coders.first), publisher.coders.first
        assert isinstance(first, BytesCoder)
        chunks, spans = [], []
        for i in range(WORTH + 90):
            names = [
                f"{NAMES['URLs'](rng.randrange(999))[: rng.randrange(60)]}{rng.randrange(10**6)}" for _ in range(rng.choice([1, 2, 40]))
            ]
            coder = coders.of(first.learned([pa.array(names)], 1) if i % 9 else b"https://")
            codes = coder.encode(pa.record_batch([pa.array(names)], ["key"]))
            record = replace(real.record, key_lo=int(codes.min()), key_hi=int(codes.max()), time_lo=i, time_hi=i + 20, prefix=coder.prefix)
            chunks.append(type(real)(record, Probe(table).spec, publisher.shape, coder, None, None))
            spans.append((names, i, i + 20))
        some = ChunkSet(publisher.shape.width, chunks[:700:2])
        for known, mine, theirs in ((some, chunks[:700:2], spans[:700:2]), (ChunkSet(publisher.shape.width, chunks), chunks, spans)):
            assert len(known.coders) > 100
            _look_for(known, theirs, rng)
            more = known.plus(chunks[:1])  # a tail behind what is known
            _look_for(more, [*theirs, spans[0]], rng)
            assert len(mine) == known.count


def _look_for(known: ChunkSet, spans: list[tuple[list[str], int, int]], rng: random.Random) -> None:
    read = 0
    for _ in range(40):
        names, t0, t1 = rng.choice(spans)
        key = rng.choice(names)
        found = set(known.with_texts(key.encode(), key.encode(), t0, t1)[:, INDEX].tolist())
        must = {i for i, (others, a, b) in enumerate(spans) if key in others and a <= t1 and b >= t0}
        assert must <= found
        read += len(found)
        lo, hi = sorted([key.encode(), rng.choice(rng.choice(spans)[0]).encode()])
        found = set(known.with_texts(lo, hi, 0, 10**9)[:, INDEX].tolist())
        assert {i for i, (others, _, _) in enumerate(spans) if any(lo <= name.encode() <= hi for name in others)} <= found
    assert read < 40 * 60, "most of them were left out"
