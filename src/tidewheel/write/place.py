"""Place: which indexing server, and which leaf, each row of a batch goes to. Everything about it that needs no lock, and when it is begun.

Keys are divided over the servers by the first batch, and anew when the servers' shares have drifted apart; each server divides its own over
the leaves of its template. What is placed under an older division stays right: a run knows its template, and a tree its rows' region.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from tidewheel.errors import TidewheelError
from tidewheel.index.run import Batch, Run
from tidewheel.index.template import Template
from tidewheel.index.tree import TreeView
from tidewheel.index.version import ChunkLike, Version
from tidewheel.model.coders import key_coder
from tidewheel.model.pieces import Shape
from tidewheel.model.records import ServerRecord
from tidewheel.model.schema import TableSpec
from tidewheel.settings import Settings
from tidewheel.write.dispatch import Dispatch, even_dispatch
from tidewheel.write.server import Coders, IndexingServer

Placed = tuple[IndexingServer, bool, Run]
"""(server, late, run): where rows of a batch go."""


class Placing:
    """The indexing servers of one table and the division of keys among them. `lock` is the table's."""

    def __init__(self, spec: TableSpec, settings: Settings, shape: Shape, lock: threading.Lock) -> None:
        self.coders = Coders(key_coder(spec))
        late_after = spec.time.seconds(settings.late_after)
        self.servers = [IndexingServer(s, self.coders, shape, settings, late_after) for s in range(settings.indexing_servers)]
        self.dispatch: Dispatch | None = None
        self.new_servers: tuple[ServerRecord, ...] = ()
        """Key intervals that the next commit must record."""
        self._begun = False
        """Every server has its template."""
        self._shape = shape
        self._lock = lock

    def resume(self, servers: list[ServerRecord]) -> None:
        """Take up the division that the catalog knows."""
        if len(servers) == len(self.servers):
            coder = self.coders.all[self.coders.number(servers[0].prefix)]
            self.dispatch = Dispatch(np.array([s.key_lo for s in servers], np.int64), coder)

    def place(self, data: pa.RecordBatch, version: Version) -> list[Placed]:
        """Encode a batch and make its runs. The first batch looks at the chunks of the version."""
        dispatch = self.dispatch
        coder = dispatch.coder if dispatch is not None else self.coders.all[0]
        batch = Batch(data, coder, self._shape)
        if dispatch is None or not self._begun:
            dispatch = self._begin(batch, version)
            batch = batch.coded_by(dispatch.coder, self._shape)
        placed = []
        for s, rows in dispatch.split(batch):
            server = self.servers[s]
            for late, run in server.runs(batch, rows):
                placed.append((server, late, run))
        return placed

    def template_of(self, server: int, data: pa.RecordBatch, version: Version) -> Template:
        """The template for rows that a server had before a crash; the first to ask is the sample it is made from."""
        if not self._begun:
            self._begin(Batch(data, self.dispatch.coder if self.dispatch else self.coders.all[0], self._shape), version)
        template = self.servers[server if server < len(self.servers) else 0].template
        assert template is not None
        return template

    def for_others(self) -> tuple[bytes, tuple[int, ...]]:
        """(prefix, leaf bounds) for chunks that others make; no bounds if there is no one template for all keys."""
        with self._lock:
            prefix = self.dispatch.coder.prefix if self.dispatch is not None else b""
            template = self.servers[0].template
            if len(self.servers) > 1 or template is None or template.coder.prefix != prefix:
                return prefix, ()
            return prefix, tuple(template.bounds.tolist())

    def _begin(self, batch: Batch, version: Version) -> Dispatch:
        """The first batch: divide the keys over the servers, and each server's over its leaves."""
        with self._lock:
            if self.dispatch is None:
                first = self.coders.all[0]
                coder = self.coders.all[self.coders.number(first.common_prefix(batch.data))]
                self._divide(even_dispatch(batch.coded_by(coder, self._shape).codes, len(self.servers), coder))
            dispatch = self.dispatch
            assert dispatch is not None
            batch = batch.coded_by(dispatch.coder, self._shape)
            for server in self.servers:
                if server.template is None:
                    server.begin(batch, _last_chunk(version, server.number))
            self._begun = True
            return dispatch

    def rebalance(self, views: list[TreeView]) -> None:
        """Divide the keys anew over the servers, from a sample of all that is in their trees. Called with the lock held."""
        assert self.dispatch is not None
        coder = self.dispatch.coder
        runs = [run for view in views for run in view.holders[: view.count]]
        step = max(1, sum(run.rows for run in runs) // 65536)
        sample = [run.codes_by(coder)[::step] for run in runs]
        self._divide(even_dispatch(np.concatenate(sample), len(self.servers), coder))

    @property
    def division(self) -> tuple[ServerRecord, ...]:
        """The key intervals of the servers; none before the first row."""
        dispatch = self.dispatch
        if dispatch is None:
            return ()
        return tuple(ServerRecord(s, int(b), dispatch.coder.prefix) for s, b in enumerate(dispatch.bounds))

    def _divide(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch
        self.new_servers = self.division


def _last_chunk(version: Version, server: int) -> ChunkLike | None:
    """The server's newest ordinary chunk. One that cannot be read is no reason to refuse rows."""
    for chunk in reversed(list(version.chunks)):
        if chunk.record.server == server and not chunk.record.late:
            try:
                chunk.open()
            except TidewheelError:
                return None
            return chunk
    return None
