"""Old catalogs are upgraded whole or not at all, newer ones are refused, and `tables.py` is what the migrations make."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from tidewheel.catalog import migrations
from tidewheel.catalog.migrations import MIGRATIONS, made_by
from tidewheel.catalog.sql import open_sqlite
from tidewheel.catalog.tables import metadata
from tidewheel.chunk import names
from tidewheel.errors import FormatError, StorageError
from tidewheel.maintenance.check import check, closed


def add_note(conn: Connection) -> None:
    conn.exec_driver_sql("ALTER TABLE warehouse ADD COLUMN note TEXT NOT NULL DEFAULT 'upgraded'")


def break_down(conn: Connection) -> None:
    conn.exec_driver_sql("CREATE TABLE half (id INTEGER)")
    conn.exec_driver_sql("INSERT INTO nowhere VALUES (1)")


def rows(path: Path, sql: str) -> list[Any]:
    conn = sqlite3.connect(path)
    found = conn.execute(sql).fetchall()
    conn.close()
    return found


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog that only the first migration made."""
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS[:1])
    catalog = open_sqlite(tmp_path / "catalog.db")
    catalog.acquire(1, "here", 0.0)
    catalog.close()
    return tmp_path / "catalog.db"


def test_a_new_catalog_has_the_newest_version_and_a_name(tmp_path: Path) -> None:
    open_sqlite(tmp_path / "catalog.db").close()
    assert rows(tmp_path / "catalog.db", "SELECT version, made_by FROM schema_version")[-1] == (len(MIGRATIONS), made_by())
    before = rows(tmp_path / "catalog.db", "SELECT * FROM warehouse")
    open_sqlite(tmp_path / "catalog.db").close()
    assert rows(tmp_path / "catalog.db", "SELECT * FROM warehouse") == before
    assert [len(uuid) for uuid, _, _ in before] == [36]


def test_every_old_version_opens(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS)
    catalog = open_sqlite(old)
    assert catalog.acquire(1, "here", 0.0).epoch == 2
    catalog.close()


def test_an_older_catalog_is_upgraded_and_keeps_its_rows(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", (MIGRATIONS[0], add_note, lambda conn: None))
    open_sqlite(old).close()
    open_sqlite(old).close()
    assert [v for (v,) in rows(old, "SELECT version FROM schema_version ORDER BY version")] == [1, 2, 3]
    assert rows(old, "SELECT note FROM warehouse") == [("upgraded",)]
    assert rows(old, "SELECT epoch FROM leases") == [(1,)]


def test_who_only_looks_upgrades_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS)
    old = old.rename(old.parent / names.CATALOG)
    before = rows(old, "SELECT * FROM sqlite_master")
    with closed(old.parent) as house:
        assert check(house).ok
    assert rows(old, "SELECT * FROM sqlite_master") == before
    assert rows(old, "SELECT version FROM schema_version") == [(1,)]


def test_an_upgrade_that_fails_leaves_the_old_version(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", (MIGRATIONS[0], add_note, break_down))
    before = rows(old, "SELECT * FROM sqlite_master")
    with pytest.raises(StorageError, match=r"could not open the catalog .*catalog\.db.*nowhere"):
        open_sqlite(old)
    assert rows(old, "SELECT * FROM sqlite_master") == before
    assert rows(old, "SELECT version FROM schema_version") == [(1,)]


@pytest.mark.parametrize("step", range(2, len(MIGRATIONS) + 1))
def test_a_process_that_is_killed_during_an_upgrade_leaves_the_old_version(old: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dies = f"""
import os, signal
from pathlib import Path
from tidewheel.maintenance.check import check, closed
from tidewheel.catalog import migrations
from tidewheel.catalog.sql import open_sqlite

def step(conn, real=migrations.MIGRATIONS[{step - 1}]):
    real(conn)
    os.kill(os.getpid(), signal.SIGKILL)

migrations.MIGRATIONS = (*migrations.MIGRATIONS[:{step - 1}], step, *migrations.MIGRATIONS[{step}:])
open_sqlite(Path({str(old)!r}))
"""
    before = rows(old, "SELECT sql FROM sqlite_master")
    assert subprocess.run([sys.executable, "-c", dies], check=False).returncode == -signal.SIGKILL
    assert rows(old, "SELECT sql FROM sqlite_master") == before
    assert rows(old, "SELECT version FROM schema_version") == [(1,)]
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS)
    open_sqlite(old).close()
    assert rows(old, "SELECT max(version) FROM schema_version") == [(len(MIGRATIONS),)]
    assert rows(old, "SELECT epoch FROM leases") == [(1,)]


def test_a_newer_catalog_is_refused_untouched(old: Path) -> None:
    conn = sqlite3.connect(old)
    conn.execute("INSERT INTO schema_version VALUES (42, '7.1.0', 0)")
    conn.commit()
    conn.close()
    before = rows(old, "SELECT * FROM sqlite_master")
    with pytest.raises(FormatError, match=r"version 42, made by Tidewheel 7\.1\.0.*up to 1.*Install Tidewheel 7\.1\.0 or newer"):
        open_sqlite(old)
    assert rows(old, "SELECT * FROM sqlite_master") == before


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    conn = sqlite3.connect(tmp_path / "catalog.db")
    conn.execute("CREATE TABLE birds (name TEXT)")
    conn.close()
    with pytest.raises(FormatError, match="not a Tidewheel catalog"):
        open_sqlite(tmp_path / "catalog.db")
    assert rows(tmp_path / "catalog.db", "SELECT name FROM sqlite_master") == [("birds",)]


def _shape(path: Path) -> dict[str, Any]:
    """Columns (name, type, not null, place in the key), foreign keys and indexes of every table, as SQLite sees them."""
    names = [name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    keys = 'SELECT "from", "table", "to", on_delete FROM pragma_foreign_key_list(\'{}\') ORDER BY 1'
    return {
        name: (
            [(c, t.replace("DOUBLE PRECISION", "DOUBLE"), n or k, k) for _, c, t, n, _, k in rows(path, f"PRAGMA table_info({name})")],
            rows(path, keys.format(name)),
            sorted((i, unique, partial) for _, i, unique, _, partial in rows(path, f"PRAGMA index_list({name})")),
        )
        for name in names
    }


def test_the_migrations_make_what_tables_py_says(tmp_path: Path) -> None:
    open_sqlite(tmp_path / "made.db").close()
    engine = create_engine(f"sqlite:///{tmp_path / 'said.db'}")
    metadata.create_all(engine)
    engine.dispose()
    assert _shape(tmp_path / "made.db") == _shape(tmp_path / "said.db")


def test_postgresql_has_words_for_every_table() -> None:
    for table in metadata.sorted_tables:
        dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
    assert set(migrations._TYPES) == {"sqlite", "postgresql"}
