"""The packages of one table: named deliveries of rows, each loaded at most once under its name, whether by an insert or by a stream.

A package is known from the moment its rows are visible: its name is in the same log record, and in the same catalog transaction as their
chunks. One that brought no rows has a transaction of its own. Packages are loaded one after the other, by whoever has the `turn`: who is
told that one is there can rely on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tidewheel.catalog.access import CatalogReader
from tidewheel.env.deadline import holding
from tidewheel.model.delivery import Ack
from tidewheel.model.records import PackageRecord
from tidewheel.write.commit import Committer
from tidewheel.write.publish import Publisher


class Packages:
    """The names of all packages that were loaded. Every method may be called from any thread, `load` only by whoever has the turn."""

    def __init__(self, publisher: Publisher, catalog: CatalogReader, commits: Committer) -> None:
        self.lock = threading.Lock()
        """Held by whoever has the turn."""
        self._publisher = publisher
        self._catalog = catalog
        self._commits = commits
        self._names: set[str] = set()
        self._unsynced: set[str] = set()
        """Visible, but they may not survive a power failure yet."""

    def add(self, names: Iterable[str]) -> None:
        """Packages that recovery found in the log."""
        self._names.update(names)

    @contextmanager
    def turn(self, names: Iterable[str]) -> Iterator[frozenset[str]]:
        """Wait for the packages that others load; then those of these names that were not loaded before."""
        busy = f"other packages of table {self._publisher.spec.name!r} are being loaded; nothing was inserted"
        with holding(self.lock, busy):
            yield frozenset(name for name in names if not self._is_known(name))

    def load(self, packages: Sequence[PackageRecord], rows: int, publish: Callable[[], Ack]) -> Ack:
        """Publish the rows of new packages, so many in all, and remember the packages with them: both, or neither.

        `publish` hands their records to the publisher together with the rows. If it fails, the packages can be loaded again, unless their
        rows are visible all the same: the log could not be synced then, or the wait for it was interrupted.
        """
        names = [package.name for package in packages]
        try:
            ack = publish()
            if rows:
                self._names.update(names)
                return ack
        except BaseException:  # also an interrupt behind the last step of it
            held = [name for name in names if self._publisher.holds(name)]
            self._names.update(held)
            self._unsynced.update(held)
            raise
        for package in packages:
            self._commits.commit_package(self._publisher, replace(package, generation=self._publisher.next_generation()))
            self._names.add(package.name)
        return replace(ack, generation=self._publisher.version.generation)

    def _is_known(self, name: str) -> bool:
        if name in self._unsynced:
            self._publisher.wait_flushed(self._publisher.seal())  # whoever is told that it is there must be able to rely on it
            self._unsynced.discard(name)
        return name in self._names or self._catalog.package(self._publisher.table.id, name) is not None
