"""Files, each loaded whole or not at all, at most once: the owner's side of `wh.load`.

A file is two packages, which come with its rows in one commit: its path, and what was in it. So a file that comes again is known, and one
that has changed under the same path is told from it. Rows of a small file come as they are, and go through the log into the trees; those
of a large one were written as chunks by whoever loads it. Records that are no rows are kept first, once for each content: if what follows
fails, the file comes again, and the rejects know that they have been there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidewheel.errors import InputError
from tidewheel.model.delivery import Ack, SourceFile, Written
from tidewheel.model.records import PackageRecord
from tidewheel.write.bulk_loads import Loads
from tidewheel.write.packages import Packages
from tidewheel.write.publish import Publisher
from tidewheel.write.rejects import rejects_batch
from tidewheel.write.streams import HeldRows, KeepRejects, Streams


class FileLoads:
    """The files of one table. Every method may be called from any thread."""

    def __init__(self, publisher: Publisher, packages: Packages, streams: Streams, loads: Loads, rejects: KeepRejects) -> None:
        self._publisher = publisher
        self._packages = packages
        self._streams = streams
        self._loads = loads
        self._rejects = rejects

    def is_loaded(self, file: SourceFile) -> bool:
        """Whether a file is in the table already. InputError: it was, and has changed since."""
        with self._packages.turn((file.package, file.content)) as new:
            return self._is_loaded(file, new)

    def load(self, file: SourceFile, written: Sequence[Written], batches: Iterable[pa.RecordBatch]) -> Ack:
        """Make a file part of the table: chunks that are written, and rows and dead letters that are not."""
        held = self._streams.take(batches, self._check_room)
        with self._packages.turn((file.package, file.content)) as new:
            if self._is_loaded(file, new):
                self._end(written)
                return Ack(0, 0, self._publisher.version.generation, duplicate=True)
            for one in written:
                self._loads.check(one.job)
            self._keep_rejects(file, held)
            rows = held.rows + sum(one.rows for one in written)
            records = [PackageRecord(name, 0, rows, len(held.rejected)) for name in sorted(new)]
            ack = self._packages.load(records, rows, lambda: self._publish(written, held, records, rows))
        self._end(written)
        return ack

    def _is_loaded(self, file: SourceFile, new: frozenset[str]) -> bool:
        if file.content not in new:
            return True
        if file.package in new or file.again:
            return False
        raise InputError(
            f"{file.path} was loaded into table {self._publisher.spec.name!r} before, and has changed since or came by a stream; "
            "nothing of it was loaded. To load what it has now beside what it brought then, say changed='load' (--changed load)"
        )

    def _publish(self, written: Sequence[Written], held: HeldRows, records: Sequence[PackageRecord], rows: int) -> Ack:
        rejected = len(held.rejected)
        if any(one.chunks for one in written):
            return Ack(rows, rejected, self._loads.deliver(written, held.placed, records, rows))
        if held.placed:
            return Ack(rows, rejected, self._publisher.insert_placed(held.placed, tuple(records)))
        return Ack(0, rejected, self._publisher.version.generation)

    def _keep_rejects(self, file: SourceFile, held: HeldRows) -> None:
        if held.rejected:
            publisher, streams = self._rejects()
            bad = rejects_batch(held.rejected, publisher.clock.now(), publisher.spec.schema, file.package)
            streams.insert_once(file.content, 0, bad)
            self._publisher.metrics.rejected += len(held.rejected)

    def _check_room(self, held: HeldRows) -> None:
        """What is no chunk yet is in memory as a whole."""
        most = self._publisher.settings.max_batch_bytes
        if held.bytes > most:
            raise InputError(f"table {self._publisher.spec.name!r}: this part of a file has more than {most:,} bytes; nothing was loaded")

    def _end(self, written: Sequence[Written]) -> None:
        for one in written:
            self._loads.abort(one.job)
