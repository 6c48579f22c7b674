"""Databases of DuckDB for statements: they hold no data, reach no file and no network, and cannot be talked out of that.

There is one per limit of memory, for the whole process. A statement has a session of it to itself, in which the tables that it names are
known; sessions are kept for the next one.
"""

from __future__ import annotations

import atexit
import datetime as dt
import itertools
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tidewheel.engine.protocol import PinnedTable
from tidewheel.env.memory import machine_memory
from tidewheel.errors import ClosedError
from tidewheel.model.schema import TableSpec
from tidewheel.read.expressions import quoted
from tidewheel.sql import statement_time
from tidewheel.sql.error_text import AGAIN, of_the_line_before
from tidewheel.sql.function_limits import guard
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.streamed import Streamed
from tidewheel.sql.table_source import Open, TableSource

LEAST = 64 << 20
"""Bytes that DuckDB needs to work at all."""

_IDLE = 4
"""Sessions that are kept for each warehouse."""

_MOST_DATABASES = 4

_SPILL = 8
"""Times its memory, that a database may write to its temporary folder."""

_numbers = itertools.count()
_lock = threading.Lock()
_databases: dict[int, Database] = {}
_of_the_parent: list[Database] = []
"""In a forked child: kept, so that they are not closed."""


def connect(memory: int, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A new database with nothing in it. `threads`: as many as the machine has cores, if none is given."""
    connection = duckdb.connect(":memory:")
    guard(connection)
    statement_time.install(connection)
    folder = os.path.join(tempfile.gettempdir(), f"tidewheel-sql-{os.getpid()}-{next(_numbers)}")
    if threads is not None:
        connection.execute(f"SET threads = {threads}")
    for setting in (
        "GLOBAL TimeZone = 'UTC'",  # or only this connection has it, and its cursors the machine's
        "GLOBAL Calendar = 'gregorian'",
        f"memory_limit = '{memory // 1024}KiB'",
        f"temp_directory = '{folder}'",
        f"max_temp_directory_size = '{_SPILL * memory // 1024}KiB'",
        "python_enable_replacements = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")
    return connection


class Session:
    """A connection that one statement has at a time."""

    def __init__(self, database: Database, connection: duckdb.DuckDBPyConnection) -> None:
        self.database = database
        self.connection = connection
        self._sources: dict[str, TableSource] = {}
        self._others: list[str] = []
        self._stopped = False

    def begin(
        self, tables: Mapping[str, PinnedTable], others: Mapping[str, pa.Table | Streamed], opens: Open, at: dt.datetime | None = None
    ) -> None:
        """Make tables known by their names, and other rows by theirs. `opens` begins each scan of a table; `at` is what time it is."""
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

    def _register(self, name: str, spec: TableSpec) -> TableSource:
        source = TableSource(spec)
        hidden = f"{name}·rows"
        self.connection._register_arrow_source(hidden, source)
        columns = ", ".join(map(quoted, source.columns))
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT {columns} FROM {quoted(hidden)}")
        self._sources[name.lower()] = source  # SQL does not tell upper from lower case
        return source

    def bind(self, text: str, parameters: Parameters) -> Any:
        """A relation that runs a statement when it is read. Raises what is wrong with its names and types."""
        try:
            return self.connection.sql(text, params=parameters)
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException) as e:
            try:
                self.connection.execute(f"{AGAIN}{text}", parameters)  # which says the same, and where
            except duckdb.Error as again:
                raise type(e)(of_the_line_before(str(again))) from None
            raise

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
        self._root: duckdb.DuckDBPyConnection | None = connect(memory)
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
        except duckdb.Error:
            sound = False
        with self._lock:
            idle = self._idle.setdefault(warehouse, [])
            if sound and len(idle) < _IDLE and self._root is not None:
                idle.append(session)
                return
        session.close()


def database(memory: float) -> Database:
    """The database for statements that may hold so many bytes together."""
    size = working_memory(memory)
    with _lock:
        found = _databases.pop(size, None) or Database(size)
        _databases[size] = found
        while len(_databases) > _MOST_DATABASES:  # what still runs in it goes on
            del _databases[next(iter(_databases))]
        return found


def working_memory(most: float) -> int:
    """What DuckDB is given for a statement that may take so many bytes."""
    return max(LEAST, int(min(most, machine_memory())))


def forget(broken: Database) -> None:
    """An error inside of DuckDB can leave a database unusable: the next statement gets a new one."""
    with _lock:
        for size, one in list(_databases.items()):
            if one is broken:
                del _databases[size]


@atexit.register
def _close_all() -> None:
    """DuckDB complains at the end of the process about connections that are still there."""
    with _lock:
        databases = list(_databases.values())
        _databases.clear()
    for one in databases:
        one.close()


def _forget_in_child() -> None:
    """A forked child has none of the threads that DuckDB works with: to close what was the parent's would end it."""
    global _lock
    _lock = threading.Lock()
    _of_the_parent.extend(_databases.values())
    _databases.clear()


os.register_at_fork(after_in_child=_forget_in_child)
