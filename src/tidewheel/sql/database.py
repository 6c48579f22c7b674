"""The databases of statements, and their sessions.

There is one database per limit of memory, for the whole process. A statement has a session of it to itself, in which the tables that it
names are known; sessions are kept for the next one.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.duck import ip_functions, statement_time
from tidewheel.duck.connect import connect_for_statements, working_memory
from tidewheel.duck.failures import DuckError, bound
from tidewheel.duck.internals import register_source
from tidewheel.duck.lifetime import Kept
from tidewheel.duck.nodes import quoted
from tidewheel.engine.protocol import PinnedTable
from tidewheel.errors import ClosedError, QueryError
from tidewheel.model.schema import TableSpec
from tidewheel.sql.frames import MARK
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.streamed import Streamed
from tidewheel.sql.table_source import Open, TableSource

if TYPE_CHECKING:
    from tidewheel.duck.connect import Connection

_IDLE = 4
"""Sessions that are kept for each warehouse."""

_MOST_DATABASES = 4


class Session:
    """A connection that one statement has at a time."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self.database = database
        self.connection = connection
        self._sources: dict[str, TableSource] = {}
        self._others: list[str] = []
        self._frames: list[str] = []
        self._stopped = False
        self._has_addresses = False

    def begin(
        self,
        tables: Mapping[str, PinnedTable],
        others: Mapping[str, pa.Table | Streamed],
        frames: Mapping[str, pa.Table | Streamed],
        opens: Open,
        at: dt.datetime | None = None,
    ) -> None:
        """Make tables known by their names, and other rows by theirs. `opens` begins each scan of a table; `at` is what time it is.

        `frames`: rows whose columns have marked names (`sql.frames`).
        """
        if at is not None:
            self._stopped = True
            statement_time.stop(self.connection, at)
        for name, table in tables.items():
            source = self._sources.get(name.lower())
            if source is None or source.spec != table.spec:
                source = self._register(name, table.spec)
            source.opens = opens
            source.about = table.about
            source.offered = None
        for name, rows in others.items():
            self.connection.register(name, rows)
            self._others.append(name)
        for name, rows in frames.items():
            self._frame(name, rows)

    def _frame(self, name: str, rows: pa.Table | Streamed) -> None:
        hidden = f"{name}·frame"
        columns = ", ".join(f"{quoted(one)} AS {quoted(one.removesuffix(MARK))}" for one in rows.schema.names)
        try:
            self.connection.register(hidden, rows)
            self._others.append(hidden)
            self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT {columns} FROM {quoted(hidden)}")
        except DuckError as e:  # a type that it does not know, or a column without a name
            said = str(e).split("\n")[0].split("Error: ", 1)[-1]
            raise QueryError(f"tables=: {name!r} has a column that SQL cannot have ({said}); cast it, rename it or leave it out") from None
        self._sources.pop(name.lower(), None)  # a table that had this name was dropped
        self._frames.append(name)

    def _register(self, name: str, spec: TableSpec) -> TableSource:
        source = TableSource(spec)
        hidden = f"{name}·rows"
        register_source(self.connection, hidden, source)
        columns = ", ".join(map(quoted, source.columns))
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT {columns} FROM {quoted(hidden)}")
        self._sources[name.lower()] = source  # SQL does not tell upper from lower case
        return source

    def bind(self, text: str, parameters: Parameters) -> Any:
        """A relation that runs a statement when it is read. Raises what is wrong with its names and types."""
        self.prepare(text)
        return bound(self.connection, text, parameters)

    def prepare(self, text: str) -> None:
        """Before a statement is bound: make the functions that it needs and that not every session has."""
        if not self._has_addresses and ip_functions.are_needed(text):
            ip_functions.install(self.connection, temporary=True)
            self._has_addresses = True

    def remember(self, tables: Iterable[str]) -> None:
        """From now on, keep the filters that these tables are offered."""
        for name in tables:
            self.source(name).offered = {}

    def source(self, name: str) -> TableSource:
        return self._sources[name.lower()]

    def end(self) -> None:
        """The statement is over; nothing of it stays."""
        for source in self._sources.values():
            source.opens = None
            source.offered = None
        for name in self._frames:
            self.connection.execute(f"DROP VIEW IF EXISTS {quoted(name)}")
        self._frames.clear()
        for name in self._others:
            self.connection.unregister(name)
        self._others.clear()
        if self._stopped:
            statement_time.go_on(self.connection)
            self._stopped = False

    def close(self) -> None:
        self._sources.clear()
        self.connection.close()


class Database:
    """Every method may be called from any thread."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._root: Connection | None = connect_for_statements(memory)
        self._idle: dict[Path, list[Session]] = {}
        self._lock = threading.Lock()

    def take(self, warehouse: Path) -> Session:
        """A session that knows tables of this warehouse, and of no other."""
        with self._lock:
            idle = self._idle.get(warehouse)
            if idle:
                return idle.pop()
            if self._root is None:
                raise ClosedError("the process is ending; no statement is begun any more")
            return Session(self, self._root.cursor())

    def close(self) -> None:
        """Let go of all that is not in use; what is, is let go of when it is given back."""
        with self._lock:
            root, self._root = self._root, None
            idle = [session for sessions in self._idle.values() for session in sessions]
            self._idle.clear()
        for session in idle:
            session.close()
        if root is not None:
            root.close()

    def give_back(self, session: Session, warehouse: Path, sound: bool) -> None:
        """If it is not `sound`, it is not used again."""
        try:
            session.end()
        except DuckError:
            sound = False
        with self._lock:
            idle = self._idle.setdefault(warehouse, [])
            if sound and len(idle) < _IDLE and self._root is not None:
                idle.append(session)
                return
        session.close()


_databases: Kept[Database] = Kept()
"""The one that was asked for last is the last."""


def database(memory: float) -> Database:
    """The database for statements that may hold so many bytes together."""
    size = working_memory(memory)
    with _databases.lock:
        kept = _databases.items
        found = next((one for one in kept if one.memory == size), None)
        if found is None:
            found = Database(size)
        else:
            kept.remove(found)
        kept.append(found)
        del kept[:-_MOST_DATABASES]  # what still runs in it goes on
        return found


def forget(broken: Database) -> None:
    """An error inside of DuckDB can leave a database unusable: the next statement gets a new one."""
    with _databases.lock:
        _databases.items[:] = [one for one in _databases.items if one is not broken]
