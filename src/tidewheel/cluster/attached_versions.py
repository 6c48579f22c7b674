"""Tables of the owner, pinned at versions that it holds for this process."""

from __future__ import annotations

from tidewheel.cluster import requests as ask
from tidewheel.cluster.attached_result import AttachedResult
from tidewheel.cluster.client_handles import Hold
from tidewheel.cluster.connection import Connection
from tidewheel.env.deadline import Within
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec


class AttachedVersion:
    """A table at one version. Those that were pinned together share a hold. Holds `engine.protocol.PinnedTable`."""

    def __init__(self, connection: Connection, hold: Hold, place: int, pinned: ask.PinnedAs) -> None:
        self.spec: TableSpec = pinned.spec
        self.generation = pinned.generation
        self.about = pinned.rows
        self.times: tuple[int, int] | None = None
        self._connection = connection
        self._hold = hold
        self._place = place

    def query(self, query: Query) -> AttachedResult:
        seconds = self._connection.seconds(query.timeout)
        with Within(seconds):
            answer = self._connection.call(ask.AskPinned(self._hold.number, self._place, query))
        return AttachedResult(self._connection, self.spec, seconds, *answer)


def attached_versions(connection: Connection, request: ask.PinTable | ask.PinTables) -> list[AttachedVersion]:
    """Ask the owner to hold some versions."""
    pinned, _, hold = connection.call(request)
    assert hold is not None
    return [AttachedVersion(connection, hold, place, one) for place, one in enumerate(pinned.tables)]
