"""The door to SQLite, and the words for what can go wrong behind it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError, StatementError

from tidewheel.catalog.pool import Connections
from tidewheel.env.memory import keep_for_good
from tidewheel.errors import FormatError, StorageError

WRITES = "tidewheel_writes"
"""The execution option of connections that will write."""

_BUSY_SECONDS = 10

_COMPILED: dict[Any, Any] = {}
"""Statements of all catalogs of this process, which are few: values are no part of them. To compile them for each catalog took a quarter
of the time of a short-lived warehouse."""

_ANOTHER = "another file has its name by now"

# What SQLite says, and what a person can do about it.
_ADVICE = (
    ("locked", "another process is writing to it: try again, or close that process"),
    ("is full", "free some space on its disk and try again"),
    ("readonly", "give this user the right to write the file and its folder"),
    ("unable to open", "check that the folder exists and that this user may write in it"),
    ("disk i/o", "check its disk, then try again"),
    ("malformed", "restore it from a backup; sqlite3 with 'PRAGMA integrity_check' shows the damage"),
)


class SqliteFile:
    """Makes connections to one SQLite file: the one that had its name when the first was made, and no other that has it later."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.identity: tuple[int, int] | None = None
        """Of the file, whatever its name; None before the first connection."""

    def connect(self) -> sqlite3.Connection:
        before = self._found()
        if self.identity not in (None, before):
            raise sqlite3.OperationalError(_ANOTHER)
        connection = sqlite3.connect(self.path, check_same_thread=False, timeout=_BUSY_SECONDS)
        try:
            _prepare(connection)  # which opens all files that it will use
            after = self._found()
            if before not in (None, after):
                raise sqlite3.OperationalError(_ANOTHER)
        except BaseException:
            if before in (None, self._found()):
                connection.close()
            else:
                keep_for_good(connection)  # its files may be of two folders: to close it could write to either
            raise
        self.identity = after
        return connection

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino


@cache
def _shared() -> Engine:
    """An engine over nothing, whose dialect all others use: compiled statements are a dialect's."""
    engine = create_engine("sqlite://")
    engine.connect().close()  # by which the dialect learns about the driver
    return engine


def sqlite_engine(file: SqliteFile) -> Engine:
    """An engine over one SQLite file, for any number of threads: each call borrows a connection of its own."""
    shared = _shared()
    # -1: a thread never waits for a connection
    pool = Connections(file.connect, max_overflow=-1, dialect=shared.dialect)  # type: ignore[arg-type]  # made for any driver
    engine = Engine(pool, shared.dialect, URL.create("sqlite", database=file.path), execution_options={"compiled_cache": _COMPILED})
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: sqlite3.Connection) -> None:
    connection.isolation_level = None  # the driver would begin transactions by its own rules, and not before DDL
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise sqlite3.OperationalError("this file system cannot hold a write-ahead log; put the warehouse on a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(conn: Connection) -> None:
    # A transaction that reads first and writes later fails at once if another wrote in between, whatever the timeout:
    # writers therefore ask for the write lock when they begin.
    conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get(WRITES) else "BEGIN")


@contextmanager
def storage_errors(where: str, doing: str) -> Iterator[None]:
    """Turn what SQLAlchemy and the driver raise into a StorageError that says where and what to do next."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OverflowError, UnicodeError) as e:
        cause = str(e.orig) if isinstance(e, StatementError) else str(e)
        if "not a database" in cause:
            raise FormatError(f"{where} is not a Tidewheel catalog ({cause}); choose another folder, or restore it from a backup") from e
        advice = next((a for sign, a in _ADVICE if sign in cause.lower()), "nothing was changed; check the cause, then try again")
        raise StorageError(f"could not {doing} the catalog {where}: {cause}. What to do: {advice}") from e
