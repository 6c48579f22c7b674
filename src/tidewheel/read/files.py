"""A version made of chunk files alone: for a process that reads some chunks of a table without being its owner."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tidewheel.chunk.format import code_columns
from tidewheel.chunk.reader import Chunk
from tidewheel.env.files import LocalFiles
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.coders import key_coder
from tidewheel.model.pieces import Shape
from tidewheel.model.query import Query
from tidewheel.model.records import ChunkRecord, MaskRecord
from tidewheel.model.schema import TableSpec
from tidewheel.read.coordinator import Coordinator
from tidewheel.read.local_result import LocalResult
from tidewheel.read.scan import StoredColumns
from tidewheel.settings import Settings


class ChunkFiles:
    """Some chunks of a table, with the masks that hold for them. Whoever made it sees to it that the files stay."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        spec: TableSpec,
        generation: int,
        records: Sequence[ChunkRecord],
        masks: Sequence[MaskRecord],
        settings: Settings,
    ) -> None:
        files, shape, first = LocalFiles(Path(root)), Shape(spec), key_coder(spec)
        coders = [first]
        numbers = {first.prefix: 0}
        chunks = []
        for record in records:
            if record.prefix not in numbers:
                numbers[record.prefix] = len(coders)
                coders.append(first.with_prefix(record.prefix))
            chunks.append(Chunk(record, spec, shape, numbers[record.prefix], files))
        self._version = Version(generation, ChunkSet(shape.width, chunks), (), (), tuple(masks), coders)
        self._coordinator = Coordinator(spec, shape, settings, StoredColumns(*code_columns(spec)))

    def query(self, query: Query) -> LocalResult:
        """The rows of these chunks that match."""
        return LocalResult(self._coordinator, self._version, query)
