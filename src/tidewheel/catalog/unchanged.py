"""The catalog of a warehouse that is only looked at: nothing in it changes, also not its version."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tidewheel.catalog import migrations
from tidewheel.catalog.sql import SqlCatalog, open_sqlite
from tidewheel.catalog.sqlite_file import SqliteFile


@contextmanager
def unchanged(path: Path) -> Iterator[SqlCatalog]:
    """The catalog in a file. One of an older version is upgraded in a copy: the Tidewheel that made it may open the warehouse again.

    Hold `lease.lock` meanwhile.
    """
    if not _is_older(path):
        with closing(open_sqlite(path)) as catalog:
            yield catalog
        return
    with tempfile.TemporaryDirectory(prefix="tidewheel-") as folder:
        copy = Path(folder) / path.name
        file = SqliteFile(path)
        with closing(file.connect()) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        with closing(open_sqlite(copy)) as catalog:
            catalog.where, catalog.identity = str(path), file.identity
            yield catalog


def _is_older(path: Path) -> bool:
    """Whether to open it would upgrade it. What is no catalog is not: that is said where it is opened."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    except sqlite3.Error:
        return False
    return type(version) is int and 0 < version < len(migrations.MIGRATIONS)
