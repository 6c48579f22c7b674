"""Versions made of chunk files alone: for a process that reads some chunks of a table without being its owner."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from tidewheel.chunk.format import code_columns
from tidewheel.chunk.reader import Chunk, beyond_of
from tidewheel.env.local_files import LocalFiles
from tidewheel.index.table_coders import Coders
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.coders import key_coder
from tidewheel.model.pieces import Shape
from tidewheel.model.query import Query
from tidewheel.model.records import ChunkRecord, MaskRecord
from tidewheel.model.schema import TableSpec
from tidewheel.read.local_result import LocalResult
from tidewheel.read.planner import Planner
from tidewheel.read.scan import StoredColumns
from tidewheel.settings import Settings

KEPT = 1024
"""Chunks that stay open from one query to the next: opening one costs two milliseconds, and what is in it never changes."""


class ChunkFiles:
    """The chunks of one table, as far as they were asked for. Whoever asks sees to it that the files stay. Used by one thread at a time."""

    def __init__(self, root: str | os.PathLike[str], spec: TableSpec, settings: Settings) -> None:
        self.spec = spec
        self._files = LocalFiles(Path(root))
        self._beyond = beyond_of(settings)
        self._shape = Shape(spec)
        self._coders = Coders(key_coder(spec))
        self._chunks: OrderedDict[ChunkRecord, Chunk] = OrderedDict()
        self._planner = Planner(spec, self._shape, settings, StoredColumns(*code_columns(spec)))

    def query(self, query: Query, generation: int, records: Sequence[ChunkRecord], masks: Sequence[MaskRecord]) -> LocalResult:
        """The rows of these chunks that match, with the masks of the version that they belong to."""
        chunks = [self._chunk(record) for record in records]
        while len(self._chunks) > KEPT:
            self._chunks.popitem(last=False)
        version = Version(generation, ChunkSet(self._shape.width, chunks), (), (), tuple(masks), self._coders.first)
        return LocalResult(self._planner, version, query)

    def _chunk(self, record: ChunkRecord) -> Chunk:
        found = self._chunks.get(record)
        if found is None:
            coder = self._coders.of(record.prefix)
            self._chunks[record] = found = Chunk(record, self.spec, self._shape, coder, self._files, self._beyond)
        self._chunks.move_to_end(record)
        return found
