"""Chunks behind a door that reads only ranges answer like mapped ones, fetch little, and notice every damaged byte."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

import tidewheel as tw
from tidewheel.chunk.cache import LeafCache
from tidewheel.chunk.remote_chunk import RemoteChunk
from tidewheel.env.range_files import RangeFiles, coalesce
from tidewheel.errors import CorruptionError, StorageError
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.pieces import BLOCK_ROWS, CODER
from tidewheel.model.query import Query
from tidewheel.testing.probe import Probe

ROWS = 20_000  # per chunk: two blocks
CHUNKS = 3

SCHEMA = pa.schema(
    [
        pa.field("plate", pa.int64()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.int32())),
        pa.field("city", pa.dictionary(pa.int32(), pa.string())),
        pa.field("small", pa.int16()),
        pa.field("free", pa.bool_()),
        pa.field("raw", pa.large_binary()),
        pa.field("mark", pa.binary(3)),
        pa.field("fare", pa.decimal128(20, 2)),
        pa.field("half", pa.float16()),
        pa.field("empty", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])),
        pa.field("attributes", pa.map_(pa.string(), pa.int8())),
    ]
)


def rows(chunk: int, rng: np.random.Generator) -> pa.Table:
    n = ROWS
    none = rng.random(n) < 0.1

    def sometimes(values: list[Any]) -> list[Any]:
        return [None if x else v for x, v in zip(none.tolist(), values, strict=True)]

    ids = range(chunk * n, chunk * n + n)
    columns = {
        "plate": rng.integers(-500, 500, n),
        "ts": pa.array(rng.integers(0, 10**9, n) + chunk * 5 * 10**8),
        "name": sometimes([f"näme-{i % 977}" * (i % 3) for i in ids]),
        "tags": sometimes([list(range(i % 4)) for i in ids]),
        "city": pa.array(sometimes([f"city {i % 7 + chunk}" for i in ids])).dictionary_encode(),
        "small": sometimes((np.arange(n) % 3000).tolist()),
        "free": sometimes([i % 3 == 0 for i in ids]),
        "raw": [bytes([i % 256]) * (i % 5) for i in ids],
        "mark": sometimes([i.to_bytes(3, "big") for i in ids]),
        "fare": [Decimal(i) / 100 for i in ids],
        "half": pa.array(np.arange(n, dtype=np.float16)),
        "empty": [""] * n,
        "day": [dt.date(2026, 1, 1) + dt.timedelta(i % 300) for i in ids],
        "id": ids,
        "place": sometimes([{"x": i / 7, "names": ["a" * (i % 3)]} for i in ids]),
        "attributes": [[("k", i % 100)] if i % 2 else [] for i in ids],
    }
    arrays = [columns[f.name] if isinstance(columns[f.name], pa.Array) else pa.array(columns[f.name], f.type) for f in SCHEMA]
    return pa.table([a.cast(f.type) for a, f in zip(arrays, SCHEMA, strict=True)], schema=SCHEMA)


class Setup:
    """A table with its mapped chunks, and the same version with remote ones."""

    def __init__(self, root: Path, table: Probe, cache_bytes: int = 64 << 20) -> None:
        self.root = root
        self.table = table
        self.near = table.publisher.version
        self.use(cache_bytes)

    def use(self, cache_bytes: int) -> None:
        """Start with an empty cache of this size."""
        self.files = RangeFiles(fs.LocalFileSystem(), str(self.root), threads=1)
        self.cache = LeafCache(cache_bytes)
        shape = self.table.publisher.shape
        self.chunks = [RemoteChunk(c.record, self.table.spec, shape, c.coder, self.files, self.cache) for c in self.near.chunks]
        self.far = Version(self.near.generation, ChunkSet(shape.width, self.chunks), (), (), self.near.masks, self.near.coder)

    def answers(self, query: Query) -> tuple[pa.Table, pa.Table]:
        """(mapped, remote)"""
        from tidewheel.read.local_result import LocalResult

        near, far = LocalResult(self.table.planner, self.near, query), LocalResult(self.table.planner, self.far, query)
        answers = near.to_arrow(), far.to_arrow()
        assert near.stats.leaves_read == far.stats.leaves_read
        assert near.stats.leaves_skipped == far.stats.leaves_skipped
        assert "chunk" in far.explain() or not far.stats.regions_read
        return answers

    def same(self, query: Query) -> int:
        near, far = self.answers(query)
        assert far.schema.equals(near.schema, check_metadata=True)
        far.validate(full=True)
        assert sorted(far.to_pylist(), key=repr) == sorted(near.to_pylist(), key=repr)
        return int(near.num_rows)

    @property
    def bytes(self) -> int:
        return sum(c.record.bytes for c in self.chunks)


def build(root: Path, schema: pa.Schema, batches: list[pa.Table], leaf_rows: int = 128, **table: Any) -> tuple[tw.Warehouse, Setup]:
    wh = tw.open(root, settings=tw.Settings(leaf_rows=leaf_rows))
    t = wh.create_table("t", schema, **{"time": "ts", **table})
    for batch in batches:
        t.insert(batch)
        t.flush()
    return wh, Setup(root, Probe(wh.table("t")))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with every kind of column, made once; tests open it or a copy."""
    root = tmp_path_factory.mktemp("remote")
    rng = np.random.default_rng(5)
    wh, _ = build(root, SCHEMA, [rows(c, rng) for c in range(CHUNKS)], key="plate")
    wh.close()
    return root


@pytest.fixture
def setup(shared: Path) -> Iterator[Setup]:
    wh = tw.open(shared)
    yield Setup(shared, Probe(wh.table("t")))
    wh.close()


# ---- the door ---------------------------------------------------------------------------------------------


def test_ranges_that_lie_close_together_are_one_request() -> None:
    assert coalesce([(100, 10), (0, 10), (15, 5), (0, 0), (12, 2)], gap=5) == [(0, 20, [1, 4, 2]), (100, 10, [0])]
    assert coalesce([(0, 100), (10, 5), (100, 1)], gap=0) == [(0, 101, [0, 1, 2])]
    assert coalesce([], 10) == []


@pytest.mark.parametrize("threads", [1, 4])
def test_range_files_read_count_and_complain(tmp_path: Path, threads: int) -> None:
    data = bytes(range(256)) * 4
    (tmp_path / "a").write_bytes(data)
    files = RangeFiles(fs.LocalFileSystem(), str(tmp_path), gap=16, threads=threads)
    try:
        assert files.size("a") == 1024
        assert files.read_ranges("a", [(10, 20)]) == [data[10:30]]
        assert (files.requests, files.bytes) == (1, 20)
        ranges = [(500, 8), (0, 4), (8, 4), (900, 0), (1000, 24)]
        assert [bytes(p) for p in files.read_ranges("a", ranges)] == [data[o : o + n] for o, n in ranges]
        assert (files.requests, files.bytes) == (4, 20 + 8 + 12 + 24)
        with pytest.raises(CorruptionError, match="ends at byte 1024"):
            files.read_ranges("a", [(1000, 25)])
        for act in (lambda: files.size("b"), lambda: files.read_ranges("b", [(0, 1)])):
            with pytest.raises(CorruptionError, match="missing"):
                act()
        (tmp_path / "folder").mkdir()
        with pytest.raises(StorageError):
            files.read_ranges("folder", [(0, 1)])
        files.remove("a")
        files.remove("a")
    finally:
        files.close()


# ---- one chunk --------------------------------------------------------------------------------------------


def test_it_has_the_face_of_a_mapped_chunk(setup: Setup) -> None:
    for mapped, remote in zip(setup.near.chunks, setup.chunks, strict=True):
        assert (remote.open()[: CODER + 1] == mapped.row[: CODER + 1]).all()
        assert (remote.codes() == mapped.codes()).all()
        assert (remote.times() == mapped.times()).all()
        assert remote.batch.equals(mapped.batch)
        for column in range(len(SCHEMA)):
            for block in range(-(-mapped.record.rows // BLOCK_ROWS)):
                remote.verify(column, block)


def test_opening_reads_the_frame_and_nothing_else(setup: Setup) -> None:
    chunk = setup.chunks[0]
    chunk.open()
    chunk.open()
    record = chunk.record
    assert setup.files.requests == 2
    assert setup.files.bytes == record.bytes - (record.body_hi - record.body_lo)


def test_loading_fetches_the_asked_columns_of_the_asked_leaves(setup: Setup) -> None:
    chunk, mapped = setup.chunks[0], next(iter(setup.near.chunks))
    chunk.open()
    before = setup.files.bytes
    columns = [0, 2, 6, 7]
    positions, lengths = np.array([700, 16_380, 5, 300]), np.array([10, 8, 1, 200])  # in any order, one over a block's end
    loaded = chunk.load(chunk.row, positions, lengths, columns)
    assert loaded.batch.num_rows < 1500
    for at, first, n in zip(loaded.positions.tolist(), positions.tolist(), lengths.tolist(), strict=True):
        assert loaded.batch.slice(at, n).select(columns).equals(mapped.batch.slice(first, n).select(columns))
    assert 0 < setup.files.bytes - before < chunk.record.bytes / 2
    before = setup.files.bytes
    chunk.load(chunk.row, positions, lengths, columns)
    assert setup.files.bytes == before


def test_a_condemned_chunk_is_deleted_when_nobody_holds_it(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"rows")
    files = RangeFiles(fs.LocalFileSystem(), str(tmp_path))
    schema = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us"))])
    wh, setup = build(tmp_path / "wh", schema, [pa.table({"plate": [1], "ts": [0]}).cast(schema)], key="plate")
    path = Path(setup.files.path(setup.chunks[0].record.file))
    setup.chunks[0].condemn()
    assert path.exists()
    setup.chunks.clear()
    setup.far = setup.near
    assert not path.exists()
    files.close()
    wh.close()


# ---- whole queries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache_bytes", [64 << 20, 1 << 20, 0])
def test_random_queries_answer_like_the_mapped_chunks(setup: Setup, cache_bytes: int) -> None:
    setup.use(cache_bytes)
    rng = np.random.default_rng(cache_bytes % 97)
    seen = 0
    for _ in range(12 if cache_bytes else 4):
        k0, t0 = int(rng.integers(-600, 500)), int(rng.integers(-(10**8), 2 * 10**9))
        key = (k0, k0 + int(rng.integers(0, 40)))
        time = (t0, t0 + int(rng.integers(0, 2 * 10**9)))
        columns = [c for c in SCHEMA.names if rng.random() < 0.5] or None
        which = int(rng.integers(0, 4))
        seen += setup.same(Query(key=key if which else None, time=time if which != 1 else None, columns=columns))
        assert setup.cache.stats.bytes <= cache_bytes
    assert seen > 1000


def test_filters_orders_limits_and_aggregates(setup: Setup) -> None:
    setup.same(Query(key=(0, 30), where="free and small > 1000", columns=["id", "city"]))
    setup.same(Query(key=(0, 300), order_by="id", limit=50))
    setup.same(Query(time=(0, 10**8), group_by="city", aggregate={"n": "count(*)", "most": "max(small)"}))
    near, far = setup.answers(Query(key=(0, 300), limit=17))
    assert near.num_rows == far.num_rows == 17
    near, far = setup.answers(Query(columns=["plate", "ts", "name"]))
    assert far.num_rows == ROWS * CHUNKS
    far.validate(full=True)


def test_windows_keep_what_is_loaded_at_a_time_small(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.read.remote_scan.WINDOW_BYTES", 64 << 10)
    assert setup.same(Query(key=(-100, 100), time=(10**8, 3 * 10**8), columns=["id", "name", "tags", "plate"])) > 500


def test_threads_share_a_small_cache(setup: Setup) -> None:
    setup.use(512 << 10)
    setup.files._threads = 4
    wrong: list[Query] = []

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(8):
            k, t = int(rng.integers(-500, 500)), int(rng.integers(0, 10**9))
            query = Query(key=(k, k + 10), time=(t, t + 10**9), columns=["id", "name", "city"])
            near, far = setup.answers(query)
            if sorted(near.to_pylist(), key=repr) != sorted(far.to_pylist(), key=repr):
                wrong.append(query)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        setup.files.close()
    assert not wrong
    assert setup.cache.stats.bytes <= setup.cache.capacity


@pytest.mark.parametrize("kind", ["text", "zorder", "int32"])
def test_other_keys(tmp_path: Path, kind: str) -> None:
    """Text keys tie in their codes, z-orders are several intervals, narrow integers have codes in a column of their own."""
    rng = np.random.default_rng(11)
    n = 18_000
    types = {"text": pa.string(), "zorder": pa.float64(), "int32": pa.int32()}
    time = pa.date32() if kind == "int32" else pa.int64()
    schema = pa.schema([("k", types[kind]), ("y", pa.float64()), ("ts", time), ("id", pa.int64())])
    values: dict[str, Any] = {
        "text": [f"taxi-number-{i:04d}-{'x' * (i % 3)}" for i in rng.integers(0, 2000, n)],
        "zorder": rng.random(n) * 100,
        "int32": pa.array(rng.integers(-1000, 1000, n).astype(np.int32)),
    }
    times = pa.array(rng.integers(0, 1000, n).astype(np.int32)).cast(time)
    batch = pa.table({"k": pa.array(values[kind]), "y": rng.random(n) * 100, "ts": times, "id": np.arange(n)}, schema)
    key = tw.zorder("k", "y", bounds=(0, 0, 100, 100)) if kind == "zorder" else "k"
    wh, setup = build(tmp_path, schema, [batch], key=key, time="ts" if kind == "int32" else tw.epoch("ts", "s"), partition="1 day")
    try:
        queries = {
            "text": [
                Query(key=("taxi-number-0100", "taxi-number-0100-x")),
                Query(key="taxi-number-0777-"),
                Query(key=("taxi-number-19", None)),
            ],
            "zorder": [Query(box=(10, 10, 20, 25)), Query(box=(0, 0, 5, 100))],
            "int32": [Query(key=(-5, 5)), Query(key=(990, None), time=(dt.date(1970, 2, 1), dt.date(1970, 3, 1)))],
        }
        for query in queries[kind]:
            assert setup.same(query) > 0
    finally:
        wh.close()


def test_hidden_rows_stay_hidden(tmp_path: Path) -> None:
    schema = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
    n = 5000
    batch = pa.table({"plate": np.arange(n) % 100, "ts": pa.array(np.arange(n)).cast(pa.timestamp("us")), "v": np.arange(n)}, schema)
    wh, _ = build(tmp_path, schema, [batch], key="plate")
    try:
        wh.table("t").replace(batch.slice(1000, 10), time=(1000, 1999))
        setup = Setup(tmp_path, Probe(wh.table("t")))
        assert setup.same(Query()) == n - 990
        assert setup.same(Query(key=(3, 5), time=(500, 2500))) == 33
    finally:
        wh.close()


# ---- what it costs ----------------------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[Setup]:
    """One chunk of plain rows, as large as they usually are."""
    n = 200_000
    rng = np.random.default_rng(2)
    schema = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64()), ("y", pa.float64()), ("note", pa.string())])
    note = pa.array([f"note {i % 1000}" for i in range(n)])
    times = pa.array(np.sort(rng.integers(0, 10**9, n))).cast(pa.timestamp("us"))
    batch = pa.table({"plate": rng.integers(0, 10_000, n), "ts": times, "x": rng.random(n), "y": rng.random(n), "note": note}, schema)
    wh, setup = build(tmp_path, schema, [batch], leaf_rows=512, key="plate")
    yield setup
    wh.close()


def test_a_narrow_query_reads_a_small_part_once(wide: Setup) -> None:
    query = Query(key=4321, columns=["plate", "ts", "x"])
    assert wide.same(query) > 5
    assert wide.files.bytes < 0.1 * wide.bytes
    assert wide.files.requests <= 6  # head, tail, keys, and three columns, of which the keys are in the cache by then
    cold = (wide.files.requests, wide.files.bytes)
    wide.same(query)
    assert (wide.files.requests, wide.files.bytes) == cold
    wide.same(Query(key=4321))
    assert wide.files.bytes < 0.15 * wide.bytes


def test_leaves_wholly_inside_cost_neither_keys_nor_times(wide: Setup) -> None:
    wide.answers(Query(columns=["x"]))
    assert wide.files.bytes < 0.35 * wide.bytes


def test_a_full_cache_keeps_the_hot_leaves(wide: Setup) -> None:
    """Leaf by leaf: a hot leaf stays although cold blocks many times the size of the cache pass by."""
    wide.use(400 << 10)
    hot = Query(key=77, columns=["x"])
    wide.same(hot)
    for k in range(1000, 10_000, 500):
        wide.same(Query(key=k, columns=["x"]))
        before = wide.files.requests
        wide.same(hot)
        assert wide.files.requests == before
    assert wide.cache.stats.bytes <= wide.cache.capacity
    assert wide.cache.stats.evictions > 0


# ---- damage -----------------------------------------------------------------------------------------------


def test_every_damaged_byte_is_noticed_before_it_is_believed(shared: Path, tmp_path: Path) -> None:
    """Flip single bytes all over a file: the answer is right, because the byte means nothing (padding), or there is an error."""
    wh = tw.open(shared)
    try:
        setup = Setup(shared, Probe(wh.table("t")))
        record = setup.chunks[0].record
        good = (shared / record.file).read_bytes()
        truth = next(iter(setup.near.chunks)).batch
        setup.root = tmp_path
        target = tmp_path / record.file
        target.parent.mkdir(parents=True)
        rng = np.random.default_rng(23)
        noticed = 0
        for at in [0, len(good) - 1, *rng.integers(0, len(good), 150).tolist()]:
            bad = bytearray(good)
            bad[at] ^= 1 << int(rng.integers(0, 8))
            target.unlink(missing_ok=True)
            target.write_bytes(bad)
            setup.use(1 << 20)
            try:
                assert setup.chunks[0].batch.equals(truth)
                setup.chunks[0].codes()
            except CorruptionError as e:
                assert str(record.file) in str(e)
                noticed += 1
        assert noticed > 130
        target.write_bytes(good[:-100])
        setup.use(1 << 20)
        with pytest.raises(CorruptionError, match="ends at byte"):
            setup.chunks[0].open()
    finally:
        wh.close()


def test_a_damaged_list_column_is_an_error_not_a_crash(setup: Setup, tmp_path: Path) -> None:
    chunk = setup.chunks[0]
    tags = SCHEMA.get_field_index("tags")
    good = bytearray((setup.root / chunk.record.file).read_bytes())
    target = tmp_path / chunk.record.file
    target.parent.mkdir(parents=True)
    for offset, size in chunk.frame().places[tags].all:
        for at in (offset, offset + 3, offset + size // 2, offset + size - 1):
            bad = good.copy()
            bad[at] ^= 0x7F
            target.unlink(missing_ok=True)
            target.write_bytes(bad)
            setup.root = tmp_path
            setup.use(1 << 20)
            with pytest.raises(CorruptionError, match="tags"):
                setup.chunks[0].load(chunk.row, np.array([0]), np.array([1]), [tags])


def test_a_damaged_block_spoils_only_queries_that_touch_it(wide: Setup, tmp_path: Path) -> None:
    chunk = wide.chunks[0]
    x = chunk.frame().places[2]
    path = Path(wide.files.path(chunk.record.file))
    data = bytearray(path.read_bytes())
    data[x.values[0] + x.values[1] - 4] ^= 1  # the last block of x
    path.unlink()
    path.write_bytes(data)
    wide.use(1 << 20)
    wide.answers(Query(key=10))
    wide.answers(Query(key=9990, columns=["plate", "y"]))
    with pytest.raises(CorruptionError, match="block 12 of column 'x' is damaged"):
        wide.chunks[0].load(chunk.row, np.array([199_000]), np.array([1]), [2])


def test_a_table_whose_chunks_are_not_mapped(tmp_path: Path) -> None:
    """The same answers through the public surface, with a cache far smaller than the data."""
    schema = pa.schema([("k", pa.int32()), ("ts", pa.timestamp("s")), ("name", pa.string()), ("tags", pa.list_(pa.int8()))])
    settings = tw.Settings(map_chunks=False, cache_bytes=64 << 10, chunk_bytes=64 << 10, leaf_rows=64)
    random = np.random.default_rng(11)
    k, t = random.integers(0, 500, 20_000), np.sort(random.integers(0, 5000, 20_000))
    names, tags = [f"n{i % 97}" for i in range(20_000)], [[i % 5] * (i % 3) for i in range(20_000)]
    rows = pa.table(
        [pa.array(k, pa.int32()), pa.array(t).cast(pa.timestamp("s")), names, pa.array(tags, pa.list_(pa.int8()))], schema=schema
    )
    with tw.open(tmp_path / "wh", settings=settings) as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        for at in range(0, 20_000, 2000):
            table.insert(rows.slice(at, 2000))
        table.flush()
        assert table.state().chunks > 3 and table.state().fresh_rows == 0
    with tw.open(tmp_path / "wh", settings=settings) as wh:
        table = wh.table("t")
        for k0, t0 in random.integers(0, (500, 5000), (20, 2)):
            mask = (k >= k0) & (k <= k0 + 50) & (t >= t0) & (t <= t0 + 900)
            found = table.query(key=(int(k0), int(k0) + 50), time=(int(t0), int(t0) + 900)).to_arrow()
            wanted = rows.filter(pa.array(mask))
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
        assert table.query(aggregate={"n": "count(*)"}).to_pylist() == [{"n": 20_000}]
