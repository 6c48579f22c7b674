"""The catalog by the driver alone reads what SQLAlchemy reads, takes the lease as it does, and loads it when it is needed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.interrupt import Interrupt
from tests.unit.test_catalog import chunk, spec
from tidewheel.catalog import whole_reads
from tidewheel.catalog.light import LightCatalog, open_light
from tidewheel.catalog.migrations import MIGRATIONS
from tidewheel.catalog.sql import open_sqlite
from tidewheel.errors import ClosedError, CorruptionError, FencedError, FormatError, StorageError
from tidewheel.model.derived import Label
from tidewheel.model.records import Commit, MaskRecord, ServerRecord, TableContents

FRAMES = {"a": 0, "b": (1 << 64) - 1, "c": 1 << 63}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Tables with what a catalog holds of them. (Derived ones are opened again and again in tests/property/test_derived.py.)"""
    path = tmp_path / "catalog.db"
    with closing(open_sqlite(path)) as catalog:
        catalog.acquire(1, "here", 0.0)
        one, two = catalog.create_table(spec("one"), 1), catalog.create_table(spec("two", partition="1 day"), 1)
        catalog.create_table(spec("three"), 1)
        many = tuple(chunk(one, name, generation_hi=at, frame=frame) for at, (name, frame) in enumerate(FRAMES.items(), 1))
        catalog.commit(Commit(one.id, 1, 4, add=many, servers=(ServerRecord(0, -5, b"p\0"), ServerRecord(1, 9, b""))))
        catalog.commit(Commit(two.id, 1, 3, add=(chunk(two, "d", late=True, partitions=()),), horizon=2, labels=(Label(0, 1, 0),)))
        catalog.commit(Commit(one.id, 1, 5, remove=(many[0].id,), masks=(MaskRecord(-1, 1, 5, "r"), MaskRecord(0, 9, 4, "s"))))
        catalog.release(1)
    return path


@pytest.fixture
def catalog(path: Path) -> Iterator[LightCatalog]:
    found = open_light(path)
    yield found
    found.close()


def oracle(path: Path) -> list[TableContents]:
    """The same by SQLAlchemy's statements, table by table."""
    with closing(open_sqlite(path)) as catalog:
        return [
            TableContents(
                one, tuple(catalog.chunks(one.id)), tuple(catalog.coverage(one.id)), tuple(catalog.masks(one.id)),
                tuple(catalog.servers(one.id)), None,
            )
            for one in catalog.tables()
        ]  # fmt: skip


def test_it_is_for_the_newest_version() -> None:
    assert len(MIGRATIONS) == whole_reads.VERSION


def test_contents_are_those_of_the_other(catalog: LightCatalog, path: Path) -> None:
    found = catalog.contents()
    assert found == oracle(path) and [len(one.chunks) for one in found] == [2, 1, 0]
    with closing(open_sqlite(path)) as other:
        assert other.contents() == found


def test_the_lease(catalog: LightCatalog, path: Path) -> None:
    with closing(open_sqlite(path)) as other:
        assert catalog.lease() is None
        assert catalog.acquire(7, "there", 5.5).epoch == 2
        assert catalog.lease() == other.lease() and other.lease() is not None
        assert other.acquire(8, "elsewhere", 6.5).epoch == 3
        catalog.release(2)  # of another holder by now: no effect
        assert catalog.lease() == other.lease() and other.lease() is not None
        with pytest.raises(FencedError):
            catalog.create_table(spec("new"), 2)
        catalog.create_table(spec("new"), 3)
        catalog.release(3)
        assert catalog.lease() is None is other.lease()
    assert [one.record.spec.name for one in catalog.contents()] == ["one", "two", "three", "new"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunks SET rows = 'many'",
        "UPDATE chunks SET frame = 1.5",
        "UPDATE tables SET layout = ''",
        "UPDATE leases SET epoch = -1",
        "UPDATE masks SET time_lo = 'x'",
        "UPDATE servers SET key_lo = 'x'",
        "DELETE FROM leases",
        "DROP TABLE masks",
    ],
)
def test_damage_is_told_in_the_same_words(path: Path, change: str) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute(change)
        conn.commit()
    said = []
    for open_ in (open_light, open_sqlite):
        with closing(open_(path)) as catalog, pytest.raises((CorruptionError, StorageError)) as raised:
            catalog.contents()
            catalog.lease()
        said.append(str(raised.value))
        with closing(open_(path)) as catalog, pytest.raises((CorruptionError, StorageError)):
            catalog.contents()
            catalog.acquire(1, "here", 0.0)
    assert said[0] == said[1]


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to have a header of one hundred bytes" * 9)
    with pytest.raises(FormatError, match="text is not a Tidewheel catalog"):
        open_light(tmp_path / "text")
    with pytest.raises(StorageError, match=r"none/catalog\.db.*check that the folder exists"):
        open_light(tmp_path / "none" / "catalog.db")
    with closing(sqlite3.connect(tmp_path / "other.db")) as conn:
        conn.execute("CREATE TABLE schema_version (version)")
        conn.execute("INSERT INTO schema_version VALUES (999)")
        conn.commit()
    with pytest.raises((FormatError, StorageError)):
        open_light(tmp_path / "other.db")


def test_closed_is_closed(path: Path) -> None:
    for used in (False, True):
        catalog = open_light(path)
        if used:
            catalog.tables()
        catalog.close()
        catalog.close()
        for call in (catalog.lease, catalog.contents, catalog.tables, lambda c=catalog: c.acquire(1, "here", 0.0)):
            with pytest.raises(ClosedError):
                call()
    assert sorted(one.name for one in path.parent.iterdir()) == ["catalog.db"]


def test_an_interrupt_leaves_no_lock_and_no_transaction(catalog: LightCatalog) -> None:
    """Wherever it comes."""
    taken = catalog.acquire(1, "here", 0.0).epoch
    at = 0
    while True:
        at += 1
        interrupt = Interrupt(at, LightCatalog._do.__code__)
        with suppress(KeyboardInterrupt):
            interrupt.run(lambda: catalog.acquire(1, "here", 0.0))
        assert not catalog._own.in_transaction
        held = catalog.lease()
        assert held is not None and held.epoch in (taken, taken + 1)
        taken = held.epoch
        if interrupt.seen < at:  # it was not interrupted any more
            break
    assert at > 5


def test_it_loads_sqlalchemy_when_it_is_needed(path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from tidewheel.catalog.light import open_light
catalog = open_light(Path({str(path)!r}))
taken = catalog.acquire(1, "here", 0.0)
assert len(catalog.contents()) == 3 and catalog.lease() == taken
catalog.release(taken.epoch)
assert "sqlalchemy" not in sys.modules
assert len(catalog.tables()) == 3 and "sqlalchemy" in sys.modules
catalog.close()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
