"""The door to SQLite, and the words for what can go wrong behind it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError, StatementError

from tidewheel.catalog.pool import Connections
from tidewheel.errors import FormatError, StorageError

WRITES = "tidewheel_writes"
"""The execution option of connections that will write."""

_BUSY_SECONDS = 10

# What SQLite says, and what a person can do about it.
_ADVICE = (
    ("locked", "another process is writing to it: try again, or close that process"),
    ("is full", "free some space on its disk and try again"),
    ("readonly", "give this user the right to write the file and its folder"),
    ("unable to open", "check that the folder exists and that this user may write in it"),
    ("disk i/o", "check its disk, then try again"),
    ("malformed", "restore it from a backup; sqlite3 with 'PRAGMA integrity_check' shows the damage"),
)


def sqlite_engine(path: Path) -> Engine:
    """An engine over one SQLite file, for any number of threads: each call borrows a connection of its own."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=Connections,
        max_overflow=-1,  # a thread never waits for a connection
        connect_args={"check_same_thread": False, "timeout": _BUSY_SECONDS},
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _: Any) -> None:
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
