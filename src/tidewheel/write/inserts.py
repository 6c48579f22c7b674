"""Inserts: rows of one call become one batch of a table, at most once if they are a package; bad rows become rejects."""

from __future__ import annotations

from typing import Any

from tidewheel.errors import InputError
from tidewheel.model.delivery import Ack
from tidewheel.model.records import PackageRecord
from tidewheel.write.accept import Accepted, Acceptor
from tidewheel.write.packages import Packages
from tidewheel.write.publish import Publisher
from tidewheel.write.rejects import rejects_batch
from tidewheel.write.streams import KeepRejects


class Inserts:
    """The inserts of one table. May be called from any thread."""

    def __init__(self, publisher: Publisher, acceptor: Acceptor, packages: Packages, rejects: KeepRejects) -> None:
        self._publisher = publisher
        self._acceptor = acceptor
        self._packages = packages
        self._rejects = rejects

    def insert(self, data: Any, package: str | None, on_bad: str) -> Ack:
        """All rows at once, or, with a `package` that was loaded before, none."""
        if package is None:
            return self._publish(self._accept(data, on_bad, None), None)
        if not isinstance(package, str) or not package:
            raise InputError(f"a package is named by a text, such as its file name, not {package!r}")
        with self._packages.turn([package]) as new:
            if not new:
                return Ack(0, 0, self._publisher.version.generation, duplicate=True)
            accepted = self._accept(data, on_bad, package)
            rows = sum(batch.num_rows for batch in accepted.batches)
            record = PackageRecord(package, 0, rows, len(accepted.rejected))
            return self._packages.load([record], rows, lambda: self._publish(accepted, record))

    def _accept(self, data: Any, on_bad: str, package: str | None) -> Accepted:
        """Bad rows are kept first: if what follows fails, the caller inserts again, and a reject twice is better than one lost."""
        accepted = self._acceptor.accept(data, on_bad)
        if accepted.rejected:
            rejects, _ = self._rejects()
            rejects.insert([rejects_batch(accepted.rejected, rejects.clock.now(), rejects.spec.schema, package)])
            self._publisher.metrics.rejected += len(accepted.rejected)
        return accepted

    def _publish(self, accepted: Accepted, package: PackageRecord | None) -> Ack:
        if not accepted.batches:
            return Ack(0, len(accepted.rejected), self._publisher.version.generation)
        rows = sum(b.num_rows for b in accepted.batches)
        return Ack(rows, len(accepted.rejected), self._publisher.insert(accepted.batches, (package,) if package else ()))
