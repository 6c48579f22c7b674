"""The door to SQLite, and the words for what can go wrong behind it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidewheel.env.memory import keep_for_good
from tidewheel.errors import FormatError, StorageError

_BUSY_SECONDS = 10

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


def _prepare(connection: sqlite3.Connection) -> None:
    connection.isolation_level = None  # the driver would begin transactions by its own rules, and not before DDL
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise sqlite3.OperationalError("this file system cannot hold a write-ahead log; put the warehouse on a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


@contextmanager
def storage_errors(where: str, doing: str) -> Iterator[None]:
    """Turn what the driver raises into a StorageError that says where and what to do next."""
    try:
        yield
    except (sqlite3.Error, OverflowError, UnicodeError) as e:
        raise storage_error(where, doing, str(e)) from e


def storage_error(where: str, doing: str, cause: str) -> StorageError | FormatError:
    if "not a database" in cause:
        return FormatError(f"{where} is not a Tidewheel catalog ({cause}); choose another folder, or restore it from a backup")
    advice = next((a for sign, a in _ADVICE if sign in cause.lower()), "nothing was changed; check the cause, then try again")
    return StorageError(f"could not {doing} the catalog {where}: {cause}. What to do: {advice}")
