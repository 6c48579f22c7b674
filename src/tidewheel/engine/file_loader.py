"""Files into a table, without Spark: read, parsed and made chunks of in the process that loads them, committed by the owner.

Contract: each file is loaded whole or not at all, and at most once (`write/file_loads.py`); a file that cannot be read does not stop the
others. Small files are read side by side and handed over as rows. A large one is divided among the threads: each takes the next piece,
parses it, and writes chunks of its own, so that no more than some pieces and a chunk for each thread are in memory.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from tidewheel.engine.operations import AbortLoad, BeginLoad, IsLoaded, LoadFile
from tidewheel.engine.protocol import TableEngine
from tidewheel.errors import InputError, TidewheelError
from tidewheel.ingest.file_rows import Broken, FilePiece, FileRows, why
from tidewheel.ingest.found_files import shown, size_of
from tidewheel.ingest.row_maker import RowMaker
from tidewheel.ingest.rules import Rules
from tidewheel.model.dead_letters import DeadLetter, letters_batch, rows_batch, with_hidden
from tidewheel.model.delivery import Ack, Load, RowStream, SourceFile, Written
from tidewheel.model.load_report import LoadedFile
from tidewheel.model.report import Progress
from tidewheel.write.chunk_maker import ChunkMaker

LARGE = 16 << 20
"""Bytes of a file, or of the rows of a compressed one, from which on it is written as chunks: a commit of its own then costs little."""

MOST_BAD = 128 << 20
"""Bytes of dead letters of one file, which are in memory until it is committed. With more, something about the file as a whole is wrong."""


class FileLoader:
    """Loads files into one table by one set of rules. Used by one thread; it starts others."""

    def __init__(
        self, table: TableEngine, root: Path, rules: Rules, on_bad: str, again: bool, threads: int, progress: Progress | None
    ) -> None:
        self._table = table
        self._root = root
        self._maker = RowMaker(table.spec, rules)
        self._rows = FileRows(self._maker, rules)
        self._on_bad = on_bad
        self._again = again
        self._threads = threads
        self._progress = progress
        self._turn = threading.Lock()
        self._done = self._total = 0

    def load(self, files: Sequence[str]) -> Iterator[LoadedFile]:
        """What became of each file, in their order."""
        sizes = {file: size_of(file) for file in files}
        self._total = sum(sizes.values())
        waiting: deque[Future[LoadedFile]] = deque()
        with ThreadPoolExecutor(self._threads, "tidewheel-load") as pool:
            try:
                for file in files:
                    if sizes[file] < LARGE:
                        waiting.append(pool.submit(self._one, file, sizes[file]))
                    while waiting and (sizes[file] >= LARGE or len(waiting) > 2 * self._threads):
                        yield waiting.popleft().result()
                    if sizes[file] >= LARGE:
                        yield self._one(file, sizes[file])
                while waiting:
                    yield waiting.popleft().result()
            except BaseException:
                for one in waiting:
                    one.cancel()
                raise

    def _one(self, file: str, size: int) -> LoadedFile:
        began = time.perf_counter()
        name = shown(file)
        try:
            source = self._source(file)
            if not size and self._rows.may_be_empty(file):  # nor is it remembered: what is written to it later is loaded
                return LoadedFile(name, seconds=time.perf_counter() - began)
            if self._table.do(IsLoaded(source)):
                return LoadedFile(name, duplicate=True, seconds=time.perf_counter() - began)
            ack = self._load(source, size)
        except (Broken, InputError) as e:
            return LoadedFile(name, seconds=time.perf_counter() - began, error=str(e))
        finally:
            self._told(size)
            with self._turn:
                self._done += size
        return LoadedFile(name, ack.rows, ack.rejected, ack.duplicate, time.perf_counter() - began)

    def _source(self, file: str) -> SourceFile:
        path = os.path.realpath(file)
        if shown(path) != path:
            raise Broken("its path is not UTF-8 text, and so cannot be remembered: rename it")
        try:
            found = os.stat(path)
        except OSError as e:
            raise Broken(why(e)) from e
        return SourceFile(path, f"{found.st_size} bytes, {found.st_mtime_ns}", self._again)

    def _load(self, source: SourceFile, size: int) -> Ack:
        """A file whose rows turn out to be many after all is continued as a large one."""
        pieces = _Pieces(self._rows, source.path)
        letters = _Letters(self._table.spec.schema, self._on_bad)
        held: list[pa.RecordBatch] = []
        try:
            if size < LARGE:
                held = self._held(pieces, letters)
            if pieces.over:
                return self._give(source, (), [*map(rows_batch, held), *letters.batches])
            return self._write(source, pieces, letters, held)
        except (Broken, TidewheelError):
            raise
        except Exception as e:  # whatever damaged bytes make of a parser: where they say how long something is, it is out of memory
            raise Broken(why(e)) from e

    def _held(self, pieces: _Pieces, letters: _Letters) -> list[pa.RecordBatch]:
        """Rows until there are no more, or many."""
        held: list[pa.RecordBatch] = []
        size = 0
        while (piece := pieces.next()) is not None:
            parts = piece.parse()
            for parsed, records in parts:
                rows, bad = self._maker.make(parsed, records)
                held += rows
                letters.add(bad)
                size += sum(batch.nbytes for batch in rows)
                if size >= LARGE:
                    pieces.put_back(FilePiece(piece.end, lambda rest=parts: rest))  # type: ignore[misc]
                    return held
        return held

    def _give(self, source: SourceFile, written: tuple[Written, ...], batches: list[pa.RecordBatch]) -> Ack:
        return self._table.give(LoadFile(source, written), RowStream(with_hidden(self._table.spec.schema), batches))

    # ---- large ones -------------------------------------------------------------------------------------

    def _write(self, source: SourceFile, pieces: _Pieces, letters: _Letters, held: list[pa.RecordBatch]) -> Ack:
        load = self._table.do(BeginLoad())
        try:
            written = self._written(load, pieces, letters, held)
            return self._give(source, written, letters.batches)
        except BaseException:
            with suppress(TidewheelError):  # what is left of it goes some hours later
                self._table.do(AbortLoad(load.job))
            raise

    def _written(self, load: Load, pieces: _Pieces, letters: _Letters, held: list[pa.RecordBatch]) -> tuple[Written, ...]:
        """All pieces that are left, as chunks; `held` are rows of those before."""
        out = []
        with ThreadPoolExecutor(self._threads, "tidewheel-chunks") as pool:
            work = [pool.submit(self._worked, load, pieces, letters, held if not n else []) for n in range(self._threads)]
            try:
                wait(work)
            finally:
                pieces.stop()
        for one in sorted(work, key=lambda one: isinstance(one.exception(), _Stopped)):  # what stopped the others comes first
            out.append(one.result())
        chunks = tuple(chunk for one in out for chunk in one.chunks)
        return (Written(load.job, chunks, sum(one.rows for one in out)),)

    def _worked(self, load: Load, pieces: _Pieces, letters: _Letters, held: list[pa.RecordBatch]) -> Written:
        """One thread's part."""
        try:
            with ChunkMaker(self._root, self._table.spec, load) as maker:
                held.reverse()
                while held:  # each is let go as soon as it is written
                    maker.collect(held.pop())
                while (piece := pieces.next()) is not None:
                    for parsed, records in piece.parse():
                        rows, bad = self._maker.make(parsed, records)
                        letters.add(bad)
                        for batch in rows:
                            maker.collect(batch)
                    self._told(piece.end)
                if pieces.stopped:
                    raise _Stopped
            return maker.written
        except BaseException:
            pieces.stop()
            raise

    def _told(self, read: int) -> None:
        if self._progress is not None:
            with self._turn:
                self._progress(min(self._done + read, self._total), self._total)


class _Stopped(Exception):
    """Another thread failed, and this one's work is for nothing."""


class _Pieces:
    """The pieces of a file, for several threads."""

    def __init__(self, rows: FileRows, path: str) -> None:
        self._pieces = rows.pieces(path)
        self._begun: FilePiece | None = None
        self._lock = threading.Lock()
        self.over = False
        self.stopped = False

    def next(self) -> FilePiece | None:
        with self._lock:
            if self.over or self.stopped:
                return None
            piece, self._begun = self._begun or next(self._pieces, None), None
            self.over = piece is None
            return piece

    def put_back(self, piece: FilePiece) -> None:
        """The rest of a piece, for whoever comes next."""
        self._begun = piece

    def stop(self) -> None:
        """Nobody gets another one, if there are any left."""
        self.stopped = not self.over
        with self._lock:
            self._pieces.close()


class _Letters:
    """The dead letters of a file, in order of arrival. Every method may be called from any thread."""

    def __init__(self, schema: pa.Schema, on_bad: str) -> None:
        self.batches: list[pa.RecordBatch] = []
        self._schema = schema
        self._on_bad = on_bad
        self._count = self._size = 0
        self._lock = threading.Lock()

    def add(self, letters: list[DeadLetter]) -> None:
        if not letters:
            return
        first = letters[0]
        if self._on_bad == "error":
            raise Broken(f"{first.origin}: {first.column and first.column + ' '}{first.reason}")
        batch = letters_batch(self._schema, letters)
        with self._lock:
            self._count += len(letters)
            self._size += batch.nbytes
            self.batches.append(batch)
            if self._size > MOST_BAD:
                raise Broken(f"{self._count:,} of its records, or more, are no rows: {first.origin}: {first.column} {first.reason}")
