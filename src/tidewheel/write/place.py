"""Place: which indexing server, and which leaf, each row of a batch goes to. Everything about it that needs no lock, and when it is begun.

Keys are divided over the servers by the first batch, and anew when the servers' shares have drifted apart; each server divides its own over
the leaves of its template. What is placed under an older division stays right: a run knows its template, and a tree its rows' region.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from tidewheel.errors import TidewheelError
from tidewheel.index.layout import Template
from tidewheel.index.run import Batch, Run
from tidewheel.index.table_coders import Coders
from tidewheel.index.tree import TreeView
from tidewheel.index.version import ChunkLike, Version
from tidewheel.model.coders import key_coder
from tidewheel.model.codes import KeyCoder
from tidewheel.model.pieces import Shape
from tidewheel.model.records import ServerRecord
from tidewheel.model.schema import TableSpec
from tidewheel.settings import Settings
from tidewheel.write.dispatch import Dispatch, even_dispatch
from tidewheel.write.indexing_server import IndexingServer
from tidewheel.write.templates import SAMPLE, first_template, is_outside, sampled, wider_template

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
            coder = self.coders.of(servers[0].prefix)
            self.dispatch = Dispatch(np.array([s.key_lo for s in servers], np.int64), coder)

    def place(self, data: pa.RecordBatch, version: Version) -> list[Placed]:
        """Encode a batch and make its runs. The first batch looks at the chunks of the version."""
        if self.dispatch is None or not self._begun:
            self._begin(Batch(data, self.coders.first, self._shape), version)
        if any(server.outgrows(data.num_rows) for server in self.servers):
            self._begin_again(Batch(data, self.coders.first, self._shape))
        dispatch = self.dispatch
        assert dispatch is not None
        batch = Batch(data, self._coder(dispatch), self._shape)
        placed = []
        for s, rows in dispatch.split(batch):
            server = self.servers[s]
            runs = server.runs(batch, rows)
            if any(is_outside(run) for _, run in runs):
                self._widen(server, runs)
                runs = server.runs(batch, rows)
            placed += [(server, late, run) for late, run in runs]
        return placed

    def _coder(self, dispatch: Dispatch) -> KeyCoder:
        """The coder that a batch is encoded by first: that of the division, or of the one server that gets all rows."""
        template = self.servers[0].template
        return template.coder if len(self.servers) == 1 and template is not None else dispatch.coder

    def _widen(self, server: IndexingServer, runs: list[tuple[bool, Run]]) -> None:
        """Keys came that begin otherwise than all before: a new template for them and for those that are still to come."""
        with self._lock:
            if server.template is runs[0][1].template:
                view = server.live.view() if server.live is not None else None
                server.use(wider_template(view, [run.keys for _, run in runs], server.template, self.coders))

    def template_of(self, server: int, data: pa.RecordBatch, version: Version) -> Template:
        """The template for rows that a server had before a crash; the first to ask is the sample it is made from."""
        if not self._begun:
            self._begin(Batch(data, self.coders.first, self._shape), version)
        template = self.servers[server if server < len(self.servers) else 0].template
        assert template is not None
        return template

    def for_others(self) -> tuple[bytes, tuple[int, ...]]:
        """(prefix, leaf bounds) for chunks that others make; no bounds if there is no one template for all keys."""
        with self._lock:
            template = self.servers[0].template
            if len(self.servers) > 1 or template is None:
                return b"", ()
            return template.coder.prefix, template.shipped()

    def _begin(self, batch: Batch, version: Version) -> None:
        """The first batch: divide the keys over the servers, and each server's over its leaves."""
        with self._lock:
            if self.dispatch is None:
                first = first_template(batch, self.coders, 1024, self._shape)
                self._divide(even_dispatch(batch.coded_by(first.coder, self._shape).codes, len(self.servers), first.coder))
            for server in self.servers:
                if server.template is None:
                    server.begin(batch, _last_chunk(version, server.number))
            self._begun = True

    def _begin_again(self, batch: Batch) -> None:
        """The first rows were few; the next ones are many."""
        with self._lock:
            for server in self.servers:
                if server.outgrows(batch.data.num_rows):
                    server.begin(batch, None)

    def rebalance(self, views: list[TreeView]) -> None:
        """Divide the keys anew over the servers, from a sample of all that is in their trees. Called with the lock held."""
        assert self.dispatch is not None
        coder = self.dispatch.coder
        runs = [run for view in views for run in view.holders[: view.count]]
        if coder.learns:
            coder = self.coders.of(coder.learned(sampled(runs, SAMPLE), SAMPLE // 1024))
        step = max(1, sum(run.rows for run in runs) // SAMPLE)
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
