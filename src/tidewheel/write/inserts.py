"""Inserts: rows of one call become one batch of a table, at most once if they are a package; bad rows become rejects."""

from __future__ import annotations

from typing import Any

from tidewheel.env.deadline import holding
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
        busy = f"other packages of table {self._publisher.spec.name!r} are being loaded; nothing was inserted"
        with holding(self._packages.lock, busy):
            if self._packages.known(package):
                return Ack(0, 0, self._publisher.version.generation, duplicate=True)
            ack = self._load(data, package, on_bad)
            self._packages.add([package])
            return ack

    def _load(self, data: Any, name: str, on_bad: str) -> Ack:
        accepted = self._accept(data, on_bad, name)
        rows = sum(b.num_rows for b in accepted.batches)
        package = PackageRecord(name, self._publisher.version.generation + 1, rows, len(accepted.rejected))
        if rows:
            try:
                return self._publish(accepted, package)
            except BaseException:  # the log could not be synced, or the wait for it was interrupted
                self._packages.interrupted([name])
                raise
        self._packages.add_without_rows(package)
        return Ack(0, len(accepted.rejected), self._publisher.version.generation)

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
