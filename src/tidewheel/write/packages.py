"""The packages of one table: named deliveries of rows, each loaded at most once under its name.

A package is known from the moment its rows are visible: its name is in the same log record, and in the same catalog transaction as their
chunks. Packages are loaded one after the other, by whoever holds `lock`: who is told that one is there can rely on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from tidewheel.catalog.access import CatalogReader
from tidewheel.model.records import PackageRecord
from tidewheel.write.commit import Committer
from tidewheel.write.publish import Publisher


class Packages:
    """What was loaded. All but `add` are called with `lock` held."""

    def __init__(self, publisher: Publisher, catalog: CatalogReader, commits: Committer) -> None:
        self.lock = threading.Lock()
        self._publisher = publisher
        self._catalog = catalog
        self._commits = commits
        self._names: set[str] = set()
        self._unsynced: set[str] = set()
        """Visible, but they may not survive a power failure yet."""

    def known(self, name: str) -> bool:
        """Whether it was loaded before."""
        if name in self._unsynced:
            self._publisher.wait_flushed(self._publisher.seal())  # whoever is told that it is there must be able to rely on it
            self._unsynced.discard(name)
        return name in self._names or self._catalog.package(self._publisher.table.id, name) is not None

    def add(self, names: Iterable[str]) -> None:
        """They are there from now on."""
        self._names.update(names)

    def interrupted(self, names: Iterable[str]) -> None:
        """Loading them failed. If their rows are visible all the same, they are there, and must not be loaded again."""
        held = [name for name in names if self._publisher.holds(name)]
        self._names.update(held)
        self._unsynced.update(held)

    def add_without_rows(self, package: PackageRecord) -> None:
        """Record one that brought no rows, only rejects or nothing at all."""
        self._commits.commit_package(self._publisher, replace(package, generation=self._publisher.next_generation()))
        self._names.add(package.name)
