"""SQLAlchemy over one SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError, StatementError

from tidewheel.catalog.pool import Connections
from tidewheel.catalog.sqlite_file import SqliteFile, storage_error, storage_errors

WRITES = "tidewheel_writes"
"""The execution option of connections that will write."""

_COMPILED: dict[Any, Any] = {}
"""Statements of all catalogs of this process, which are few: values are no part of them. To compile them for each catalog took a quarter
of the time of a short-lived warehouse."""


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


def _begin(conn: Connection) -> None:
    # A transaction that reads first and writes later fails at once if another wrote in between, whatever the timeout:
    # writers therefore ask for the write lock when they begin.
    conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get(WRITES) else "BEGIN")


@contextmanager
def database_errors(where: str, doing: str) -> Iterator[None]:
    """Turn what SQLAlchemy and the driver raise into a StorageError that says where and what to do next."""
    try:
        with storage_errors(where, doing):
            yield
    except SQLAlchemyError as e:
        raise storage_error(where, doing, str(e.orig) if isinstance(e, StatementError) else str(e)) from e
