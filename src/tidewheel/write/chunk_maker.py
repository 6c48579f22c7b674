"""Chunks made by a task of a bulk load: rows in, files in the load's folder out, far from the table's owner.

What a flush does with a tree, done with rows that never were in one: they are collected until they are a chunk's worth, routed by the
load's template (or by one made for them, where that divides them better), arranged, written, and synced while the next ones are made. The
files keep their temporary names; the owner's `write.bulk_loads` gives them their place and commits them, or removes them with the folder.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from tidewheel.chunk import names
from tidewheel.env.local_files import LocalFiles
from tidewheel.index.layout import Template, received
from tidewheel.index.run import EVERY_ROW, Batch, Run
from tidewheel.index.table_coders import Coders
from tidewheel.index.tree import Tree
from tidewheel.model.coders import key_coder
from tidewheel.model.delivery import Load, Written
from tidewheel.model.pieces import Shape
from tidewheel.model.records import ChunkRecord, TableRecord
from tidewheel.model.schema import TableSpec
from tidewheel.write.accept import Acceptor, Rejected
from tidewheel.write.arrange import Arranger
from tidewheel.write.making import make_chunk
from tidewheel.write.templates import better_template, first_template, leaves_of, redivided


class ChunkMaker:
    """One task's part of a load, in a `with`. Used by one thread."""

    def __init__(self, root: str | os.PathLike[str], spec: TableSpec, load: Load) -> None:
        self._table = TableRecord(0, spec)  # which number the table has, only its owner need know
        self._load = load
        self._shape = Shape(spec)
        self._coders = Coders(key_coder(spec))
        self._acceptor = Acceptor(spec, self._coders.first.refuse)
        self._files = _Folder(LocalFiles(Path(root)), load.folder)
        self._arranger = Arranger(load.leaf_rows)
        self._template: Template | None = None
        self._sources: list[Batch] = []
        self._bytes = 0
        self._seen = 0
        self._rows = 0
        self._chunks: list[ChunkRecord] = []
        self._syncing: list[Future[None]] = []
        self._syncer = ThreadPoolExecutor(1, "tidewheel-sync")
        if load.bounds:
            self._template = received(load.bounds, self._coders.of(load.prefix))

    def add(self, batch: pa.RecordBatch, on_bad: str) -> list[Rejected]:
        """Take rows in. Returns those that do not fit, by their place among all that this task was given, or raises BadRowsError."""
        accepted = self._acceptor.accept(batch, on_bad)
        for rows in accepted.batches:
            self.collect(rows)
        start, self._seen = self._seen, self._seen + batch.num_rows
        return [replace(one, position=start + one.position) for one in accepted.rejected]

    def __enter__(self) -> ChunkMaker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Write what is left, unless something went wrong."""
        try:
            if self._sources and error is None:
                self._write()
        finally:
            self._syncer.shutdown()
        if error is None:
            for synced in self._syncing:
                synced.result()  # an error of the disk is told once: whoever syncs later would not hear of it

    @property
    def written(self) -> Written:
        """All of it, at the end."""
        return Written(self._load.job, tuple(self._chunks), self._rows)

    def collect(self, rows: pa.RecordBatch) -> None:
        """Take rows in that an `Acceptor` of the table has accepted."""
        template = self._template
        if template is None:
            sample = Batch(rows, self._coders.first, self._shape)
            leaves = leaves_of(sample, self._load.chunk_bytes, self._load.leaf_rows)
            self._template = template = first_template(sample, self._coders, leaves, self._shape)
        source = Batch(rows, template.coder, self._shape)
        self._sources.append(source)
        self._bytes += source.bytes
        self._rows += rows.num_rows
        if self._bytes >= self._load.chunk_bytes:
            self._write()

    def _write(self) -> None:
        template = self._template
        assert template is not None
        learns = template.coder.learns
        if not learns:  # files are often in the order of their keys: then the template of the chunk before is of no use
            template = redivided(self._sources, template)
        view = Tree.of(0, True, template, self._shape, [Run(one, EVERY_ROW, template, whole=True) for one in self._sources]).view()
        self._sources, self._bytes = [], 0
        if learns:
            template = better_template(view, template, self._coders, self._load.leaf_rows) or template
        made = make_chunk(self._files, self._table, self._arranger, view, template, self._coders, self._shape)
        record, self._template = made
        self._chunks.append(replace(record, file=self._files.name(record.file)))
        self._syncing.append(self._syncer.submit(self._files.sync, record.file))


class _Folder:
    """Files under the names that chunks have, in the folder of a load."""

    def __init__(self, files: LocalFiles, folder: str) -> None:
        self._files = files
        self._folder = folder

    def name(self, file: str) -> str:
        return names.staged_file(self._folder, file.rpartition("/")[2].removesuffix(f".{names.ARROW}"))

    def write(self, name: str, write: Any) -> int:
        return self._files.write(self.name(name), write)

    def sync(self, name: str) -> None:
        self._files.sync(self.name(name))

    def map(self, name: str, size: int, temporary: bool = False) -> pa.Buffer:
        return self._files.map(self.name(name), size, temporary)
