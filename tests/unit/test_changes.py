"""Rows know the generation they came with: in trees, in chunks, after merges, flushes and crashes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.chunks import BLOCK_ROWS, ChunkFile
from tidewheel.chunk import writer
from tidewheel.index.hidden import Hidden
from tidewheel.index.run import EVERY_ROW, Batch, Run, coalesce
from tidewheel.index.tree import Tree
from tidewheel.model.pieces import GENERATION_WIDTH, Shape
from tidewheel.model.query import Query
from tidewheel.read.generation_counts import rows_by_generation
from tidewheel.testing.abandon import abandon
from tidewheel.testing.probe import Probe
from tidewheel.write import arrange

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
SMALL = tw.Settings(leaf_rows=16, late_after=0.0)


def rows(numbers: Sequence[int], second: int = 0) -> pa.Table:
    n = np.asarray(numbers, np.int64)
    return pa.table([n * 7919 % 1000, pa.array((second + n) * 1_000_000, pa.timestamp("us")), n], schema=SCHEMA)


@dataclass
class Book:
    """A table, and what is known of it from outside: the generation each row came with."""

    root: Path
    settings: tw.Settings = SMALL
    wh: tw.Warehouse = field(init=False)
    born: dict[int, int] = field(default_factory=dict)
    died: dict[int, int] = field(default_factory=dict)
    next: int = 0

    def __post_init__(self) -> None:
        self.wh = tw.open(self.root, settings=self.settings)
        self.wh.create_table("t", SCHEMA, time="ts", key="k")

    @property
    def table(self) -> tw.Table:
        return self.wh.table("t")

    @property
    def engine(self) -> Probe:
        return Probe(self.table)

    @property
    def generation(self) -> int:
        return self.engine.publisher.version.generation

    def insert(self, count: int, second: int = 0) -> int:
        numbers = range(self.next, self.next + count)
        self.next += count
        generation = self.table.insert(rows(numbers, second)).generation
        self.born |= dict.fromkeys(numbers, generation)
        return generation

    def some(self) -> None:
        """Small and large batches, late ones among them, in trees and chunks."""
        for size in (300, 1, 1, *[2] * 40, 50, *[1] * 20):
            self.insert(size)
        self.table.flush()
        for size in (1, 400, *[1] * 35):
            self.insert(size, second=self.next)
        self.insert(30, second=-self.next)  # late
        self.table.flush()
        for size in (5, 200, *[1] * 17):
            self.insert(size, second=-self.next if size == 5 else self.next)

    def again(self, crash: bool = False) -> None:
        if crash:
            abandon(self.wh)
        else:
            self.wh.close()
        self.wh = tw.open(self.root, settings=self.settings)

    def changes(self, after: int | None, upto: int | None, **more: Any) -> list[int]:
        result = self.engine.query(Query(columns=["n"], after=after, upto=upto, **more))
        found = sorted(result.to_arrow()["n"].to_pylist())
        assert len(result) == len(found)
        return found

    def expected(self, after: int, upto: int) -> list[int]:
        return sorted(n for n, g in self.born.items() if after < g <= upto < self.died.get(n, 1 << 62))

    def check(self, *intervals: tuple[int, int]) -> None:
        for after, upto in intervals:
            assert self.changes(after, upto) == self.expected(after, upto), (after, upto)

    def intervals(self) -> list[tuple[int, int]]:
        rng = random.Random(1)
        top = self.generation
        some = [tuple(sorted(rng.choices(range(top + 1), k=2))) for _ in range(30)]
        return [(0, top), (0, 0), (top, top), (top - 1, top), (0, 1), *((a, b) for a, b in some)]


@pytest.fixture(params=[1, 2])
def book(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Book]:
    made = Book(tmp_path / "wh", replace(SMALL, indexing_servers=request.param))
    yield made
    made.wh.close()


# ---- every row, wherever it is ------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
def test_in_trees_and_chunks(tmp_path: Path, mapped: bool) -> None:
    book = Book(tmp_path / "wh", replace(SMALL, indexing_servers=2, map_chunks=mapped, chunk_bytes=16 << 10))
    with book.wh:
        book.some()
        book.check(*book.intervals())
        book.table.flush()
        book.check(*book.intervals())
        assert book.wh.check().ok


def test_after_reopen_and_crash(book: Book) -> None:
    book.some()
    before = book.generation
    book.again(crash=True)
    assert book.wh.recovery.rows > 0 and book.generation == before
    book.check(*book.intervals())
    assert book.insert(3) == before + 1
    book.again(crash=True)
    book.again()
    book.check(*book.intervals())
    assert book.wh.check().ok


def test_intervals_that_follow_each_other_are_the_table(book: Book) -> None:
    book.some()
    found: list[int] = []
    for after in range(0, book.generation, 7):
        found += book.changes(after, min(after + 7, book.generation))
    assert sorted(found) == list(book.born) == sorted(book.table.query().to_arrow()["n"].to_pylist())


def test_together_with_all_else_that_can_be_asked(book: Book) -> None:
    book.some()
    all_rows = {row["n"]: row for row in book.table.query().to_arrow().to_pylist()}
    for after, upto in [(30, 90), (0, 45), (44, 99)]:
        new = [all_rows[n] for n in book.expected(after, upto)]
        assert book.changes(after, upto, key=(100, 500)) == [r["n"] for r in new if 100 <= r["k"] <= 500]
        some = [r["n"] for r in new if 100 <= r["k"] <= 500 and r["n"] % 3 == 0]
        assert book.changes(after, upto, key=(100, 500), where="n % 3 = 0") == some
        late = [r["n"] for r in new if r["ts"].timestamp() < 500]
        assert book.changes(after, upto, time=(None, 500_000_000 - 1)) == late
        last = book.engine.query(Query(columns=["n"], after=after, upto=upto, order_by="n desc", limit=3)).to_arrow()["n"].to_pylist()
        assert last == [r["n"] for r in reversed(new[-3:])]
        counted = book.engine.query(Query(aggregate={"c": "count(*)", "s": "sum(n)"}, after=after, upto=upto)).to_pylist()
        assert counted == [{"c": len(new), "s": sum(r["n"] for r in new)}]
        assert len(book.changes(after, upto, limit=5)) == min(5, len(new))


def test_a_result_stays_what_it_was(book: Book) -> None:
    book.some()
    after, upto = 40, book.generation
    result = book.engine.query(Query(columns=["n"], after=after, upto=upto))
    want = book.expected(after, upto)
    book.insert(100)
    book.table.flush()
    book.table.replace(rows([]), time=(None, None))
    assert sorted(result.to_arrow()["n"].to_pylist()) == want
    assert result.generation == upto and f"generation {upto}" in result.explain()


def test_a_reader_that_polls_gets_every_row_once(tmp_path: Path) -> None:
    book = Book(tmp_path / "wh", replace(SMALL, indexing_servers=2, chunk_bytes=16 << 10, sealed_trees=1))
    numbers = iter(range(1 << 40))

    def write(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(150):
            mine = [next(numbers) for _ in range(rng.choice([1, 1, 3, 80]))]
            book.table.insert(rows(mine, rng.choice([0, 0, -5000])))

    with book.wh:
        writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
        for thread in writers:
            thread.start()
        seen: Counter[int] = Counter()
        at, going = 0, True
        while going:
            going = any(thread.is_alive() for thread in writers)  # before the last look
            result = book.engine.query(Query(columns=["n"], after=at))
            seen.update(result.to_arrow()["n"].to_pylist())
            at = result.generation
        assert set(seen.values()) == {1} and len(seen) == next(numbers)


# ---- rows that were replaced ----------------------------------------------------------------------------------


def test_the_table_as_it_was(book: Book) -> None:
    book.some()
    before = book.generation
    ack = book.table.replace(rows(range(10_000, 10_050), -9_850), time=(100_000_000, 299_999_999))
    hidden = set(book.born) - set(book.table.query().to_arrow()["n"].to_pylist())
    assert len(hidden) > 100
    book.died |= dict.fromkeys(hidden, ack.generation)
    book.born |= dict.fromkeys(range(10_000, 10_050), ack.generation)
    book.insert(20)
    for _ in range(2):
        book.check((0, before), (0, before + 1), (before, before + 1), (0, book.generation), (before + 1, book.generation), (50, before))
        assert book.changes(None, before) == book.expected(0, before)
        assert book.changes(None, None) == book.expected(0, book.generation) == sorted(book.table.query().to_arrow()["n"].to_pylist())
        book.again(crash=True)
        book.table.flush()


def test_what_was_erased_never_comes_back(tmp_path: Path) -> None:
    book = Book(tmp_path / "wh")
    with book.wh:
        book.insert(10)
        book.table.replace(rows([]), time=(None, 8_999_999))
        assert len(book.changes(None, 1)) == 10
        publisher = book.engine.publisher
        publisher.version.hidden = Hidden(replace(mask, reason="erasure") for mask in publisher.version.masks)
        assert book.changes(None, 1) == [9] == book.changes(0, 1)


# ---- what is stored -------------------------------------------------------------------------------------------


def chunk_files(root: Path) -> list[ChunkFile]:
    return [ChunkFile(path) for path in sorted(root.glob("tables/1/*.arrow"))]


def test_one_generation_stores_nothing(tmp_path: Path) -> None:
    with Book(tmp_path / "wh").wh as wh:
        wh.table("t").insert(rows(range(500)))
        wh.table("t").flush()
        wh.table("t").insert(pa.concat_tables([rows(range(3)), rows(range(3, 9))]))  # several batches, one generation
        wh.table("t").flush()
    assert [chunk.batch.schema.names for chunk in chunk_files(tmp_path / "wh")] == [["k", "ts", "n"]] * 2


@pytest.mark.parametrize("batches, type_", [(2, pa.uint8()), (256, pa.uint8()), (257, pa.uint16())])
def test_the_narrowest_type_that_will_do(tmp_path: Path, batches: int, type_: pa.DataType) -> None:
    book = Book(tmp_path / "wh")
    with book.wh as wh:
        for _ in range(batches):
            book.insert(1)
        wh.table("t").flush()
        book.check((0, batches), (0, batches - 1), (batches - 1, batches), (batches // 2, batches))
    (chunk,) = chunk_files(tmp_path / "wh")
    assert chunk.batch.schema.field("tidewheel.generation") == pa.field("tidewheel.generation", type_, nullable=False)
    found = zip(chunk.batch["n"].to_pylist(), chunk.batch["tidewheel.generation"].to_pylist(), strict=True)
    assert dict(found) == {n: g - 1 for n, g in book.born.items()}


@pytest.mark.parametrize("gap, width", [(1, 1), (255, 1), (256, 2), (1 << 16, 4), (1 << 32, 8)])
def test_generations_far_apart(tmp_path: Path, gap: int, width: int) -> None:
    """Merged runs, and trees of merged and other runs, keep them whatever they are."""
    with Book(tmp_path / "wh").wh as wh:
        wh.table("t").insert(rows(range(1000)))
        engine = Probe(wh.table("t"))
        template = engine.publisher.version.live[0].tree.template
        shape = Shape(engine.spec)
        first, second, third, large = (Batch(rows(r).to_batches()[0], template.coder, shape) for r in ([1], [2, 3], [4], range(5, 700)))
        runs = [Run(batch, EVERY_ROW, template) for batch in (first, second, third, large)]
        for run, generation in zip(runs, (7, 7 + gap, 7, 7 + gap), strict=True):
            run.publish(generation)
        merged = coalesce([coalesce(runs[:2], template, shape), runs[2]], template, shape)
        assert merged.generations is not None and merged.generations.tolist() == [0, gap, gap, 0]
        assert merged.row[GENERATION_WIDTH] == merged.generations.itemsize == width
        assert coalesce([runs[0], runs[2]], template, shape).generations is None
        tree = Tree(0, False, template, shape, 0.0)
        for run in (merged, runs[3]):
            tree.append(run)
        with arrange.Arranger(16).arrange(tree.view(), template, shape, ()) as arranged:
            assert arranged.generations == (7, 7 + gap) and arranged.row_generations is not None
            assert arranged.row_generations.itemsize == width
            found = dict(zip(arranged.batch["n"].to_pylist(), arranged.row_generations.tolist(), strict=True))
        assert found == {n: 0 if n in (1, 4) else gap for n in range(1, 700)}


def test_who_does_not_ask_reads_no_generations(tmp_path: Path) -> None:
    book = Book(tmp_path / "wh", SMALL)
    with book.wh:
        for _ in range(4):
            book.insert(BLOCK_ROWS)
        book.table.flush()
        (chunk,) = book.engine.chunks
        assert len(book.table.query().to_arrow()) == 4 * BLOCK_ROWS and book.table.schema == SCHEMA
        book.check((0, 4))
        assert chunk._verified.shape == (4, 4) and not chunk._verified[3].any()
        book.check((1, 3))
        assert chunk._verified[3].all()


def test_chunks_of_format_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not know which row came with which of their generations: all count as the last."""
    book = Book(tmp_path / "wh")
    with book.wh:
        monkeypatch.setattr(arrange, "_row_generations", lambda *_: None)
        monkeypatch.setattr(writer, "format_of", lambda prefix: 1)
        for _ in range(3):
            book.insert(10)
        book.table.flush()
        monkeypatch.undo()
        book.insert(10)
        book.insert(10)
        book.table.flush()
        assert [c.record.format for c in book.engine.chunks] == [1, 2]
        assert book.changes(0, 1) == book.changes(0, 2) == book.changes(3, 3) == []
        assert book.changes(2, 3) == book.changes(0, 3) == book.changes(None, 3) == list(range(30))
        assert book.changes(2, 4) == list(range(40)) and book.changes(3, 5) == list(range(30, 50))
        with pytest.raises(tw.QueryError, match=r"generation 2 is not known.*format 1; ask for generation 3 or a later one"):
            book.changes(None, 2)
        assert rows_by_generation(book.engine.publisher.version, 0) == [(3, 30), (4, 40), (5, 50)]
        assert book.wh.check().ok


# ---- damage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
def test_a_damaged_block_of_generations(tmp_path: Path, mapped: bool) -> None:
    book = Book(tmp_path / "wh", replace(SMALL, map_chunks=mapped))
    with book.wh:
        for _ in range(3):
            book.insert(BLOCK_ROWS)
        book.table.flush()
    (chunk,) = chunk_files(tmp_path / "wh")
    chunk.flip(chunk.place("tidewheel.generation", 1, BLOCK_ROWS + 5))
    lost = set(chunk.batch["n"].to_numpy()[chunk.lost(1)].tolist())
    with tw.open(tmp_path / "wh", settings=book.settings) as book.wh:
        assert len(book.table.query().to_arrow()) == 3 * BLOCK_ROWS == len(book.changes(0, 3))
        with pytest.raises(tw.CorruptionError, match=r"block 1 of column 'tidewheel\.generation' is damaged"):
            book.changes(1, 2)
        with pytest.raises(tw.CorruptionError, match=r"tidewheel\.generation"):
            rows_by_generation(book.engine.publisher.version, 0)
        result = book.engine.query(Query(columns=["n"], after=1, upto=2, on_corrupt="skip"))
        assert sorted(result.to_arrow()["n"].to_pylist()) == [n for n in book.expected(1, 2) if n not in lost]
        assert result.stats.rows_left_out == len(lost) and result.stats.corrupt_blocks == 1
        (problem,) = book.wh.check().problems
        assert "block 1 of column 'tidewheel.generation' is damaged" in problem.what


# ---- how many ---------------------------------------------------------------------------------------------------


def test_rows_by_generation(book: Book) -> None:
    book.some()
    for _ in range(2):
        version = book.engine.publisher.version
        for after, upto in [(0, None), (17, None), (40, 90), (0, 1), (book.generation, None), (3, 3)]:
            last = book.generation if upto is None else upto
            counts = Counter(g for g in book.born.values() if after < g <= last)
            want, total = [], 0
            for generation in sorted(counts):
                total += counts[generation]
                want.append((generation, total))
            assert rows_by_generation(version, after, upto) == want
            for most in (0, 1, 5, 300, 301, 900, 10_000):
                fit = [pair for pair in want if pair[1] <= most] or want[:1]
                assert rows_by_generation(version, after, upto, most) == fit, most
        book.table.flush()


def test_only_what_is_needed_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book(tmp_path / "wh")
    with book.wh:
        for _ in range(6):
            for _ in range(4):
                book.insert(50)
            book.table.flush()
        looked: list[int] = []
        for chunk in book.engine.chunks:
            kind, whole = type(chunk), type(chunk).row_generations
        monkeypatch.setattr(kind, "row_generations", lambda self: looked.append(self.record.generation_lo) or whole(self))
        assert rows_by_generation(book.engine.publisher.version, 5, None, 240) == [(6, 50), (7, 100), (8, 150), (9, 200)]
        assert looked == [5, 9, 13]  # of what came after 16, there is nothing to know


# ---- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [True, -1, 1.5, "1", np.float64(1)])
def test_what_is_no_generation(book: Book, bad: Any) -> None:
    with pytest.raises(tw.QueryError, match="after is a generation, a whole number"):
        book.changes(bad, None)
    with pytest.raises(tw.QueryError, match="upto is a generation"):
        book.changes(None, bad)


def test_generations_that_are_not_there_yet(book: Book) -> None:
    book.insert(3)
    assert book.changes(np.int64(1), None) == [] and book.changes(1, 0) == []
    with pytest.raises(tw.QueryError, match="upto: table 't' has only reached generation 1, not 2"):
        book.changes(0, 2)
    with pytest.raises(tw.QueryError, match="after: table 't' has only reached generation 1, not 2: it is not the table that was read"):
        book.changes(2, None)


def test_an_empty_table(book: Book) -> None:
    assert book.changes(0, 0) == book.changes(None, None) == []
    assert rows_by_generation(book.engine.publisher.version, 0) == [] == rows_by_generation(book.engine.publisher.version, 0, 9, 9)
