"""New databases of DuckDB: they hold no data, reach no file and no network, and cannot be talked out of that."""

from __future__ import annotations

import itertools
import os
import tempfile
from typing import TYPE_CHECKING

import duckdb

from tidewheel.duck import statement_time
from tidewheel.duck.function_limits import guard
from tidewheel.env.memory import machine_memory

if TYPE_CHECKING:
    # Never as a value: a reader that is left when Python ends keeps the names of modules alive, and DuckDB complains about classes of its.
    Connection = duckdb.DuckDBPyConnection

LEAST = 64 << 20
"""Bytes that DuckDB needs to work at all."""

_SPILL = 8
"""Times its memory, that a database for statements may write to its temporary folder."""

_numbers = itertools.count()


def connect(memory: int, threads: int | None = None, spill: int | None = None) -> Connection:
    """A new database. `threads`: as many as the machine has cores, if none is given. `spill`: bytes of its temporary folder, for which
    DuckDB has a limit of its own.
    """
    connection = duckdb.connect(":memory:")
    folder = os.path.join(tempfile.gettempdir(), f"tidewheel-sql-{os.getpid()}-{next(_numbers)}")
    settings = [
        "GLOBAL TimeZone = 'UTC'",  # or only this connection has it, and its cursors the machine's
        "GLOBAL Calendar = 'gregorian'",
        f"memory_limit = '{memory // 1024}KiB'",
        f"temp_directory = '{folder}'",
        "python_enable_replacements = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "enable_external_access = false",
    ]
    if threads is not None:
        settings.append(f"threads = {threads}")
    if spill is not None:
        settings.append(f"max_temp_directory_size = '{spill // 1024}KiB'")
    for setting in (*settings, "lock_configuration = true"):  # last: nothing is set after it
        connection.execute(f"SET {setting}")
    return connection


def connect_for_statements(memory: int, threads: int | None = None) -> Connection:
    """A new database for whatever somebody writes: its functions have limits, and its time can be stopped."""
    connection = connect(memory, threads, _SPILL * memory)
    guard(connection)
    statement_time.install(connection)
    return connection


def working_memory(most: float) -> int:
    """Bytes that DuckDB is given for a statement that may take so many."""
    return max(LEAST, int(min(most, machine_memory())))
