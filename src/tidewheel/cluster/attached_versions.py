"""Tables of the owner, pinned at versions that it holds for this process."""

from __future__ import annotations

from tidewheel.cluster import requests as ask
from tidewheel.cluster.attached_result import AttachedResult
from tidewheel.cluster.connection import Connection
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec


class _Hold:
    """Versions that were pinned together: the owner holds them as long as one of their tables is held here."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        connection.holdings.add_versions(self, number)


class AttachedVersion:
    """A table at one version. Holds `cluster.protocol.PinnedTable`."""

    def __init__(self, connection: Connection, hold: _Hold, place: int, pinned: ask.PinnedAs) -> None:
        self.spec: TableSpec = pinned.spec
        self.generation = pinned.generation
        self.about = pinned.rows
        self._connection = connection
        self._hold = hold
        self._place = place

    def query(self, query: Query) -> AttachedResult:
        answer, rows = self._connection.call(ask.AskPinned(self._hold.number, self._place, query))
        return AttachedResult(self._connection, self.spec, answer, rows)


def attached_versions(connection: Connection, pinned: ask.PinnedTables) -> list[AttachedVersion]:
    """What the owner says it holds."""
    hold = _Hold(connection, pinned.result)
    return [AttachedVersion(connection, hold, place, one) for place, one in enumerate(pinned.tables)]
