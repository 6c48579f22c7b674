"""The catalog over real SQLite files: what goes in comes out, a commit is whole or nothing, stale owners are refused."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidewheel.catalog import sqlite_file
from tidewheel.catalog.access import CatalogReader, CatalogWriter
from tidewheel.catalog.light import LightCatalog, open_light
from tidewheel.catalog.sql import open_sqlite
from tidewheel.catalog.tables import metadata
from tidewheel.errors import ClosedError, ExistsError, FencedError, FormatError, NotFoundError, StorageError
from tidewheel.model.records import ChunkRecord, Commit, Lease, MaskRecord, PackageRecord, ServerRecord, StreamBatchRecord, TableRecord
from tidewheel.model.schema import TableSpec, epoch, ip, make_spec, zorder

LO, HI = -(1 << 63), (1 << 63) - 1
LAST = 1 << 62  # the greatest generation


@pytest.fixture(params=[open_sqlite, open_light])
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CatalogWriter]:
    found: CatalogWriter = request.param(tmp_path / "catalog.db")
    found.acquire(1, "here", 0.0)  # epoch 1
    yield found
    found.close()


def spec(name: str = "t", **changes: Any) -> TableSpec:
    schema = pa.schema([("taxi", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("lon", pa.float64())])
    return make_spec(name, schema, **{"time": "at", "key": "taxi", **changes})


def cid(name: str) -> str:
    """An id as chunks have them, in the order of the names."""
    return name.encode().hex().ljust(23, "0")


def chunk(table: TableRecord, name: str = "c1", **changes: Any) -> ChunkRecord:
    id_ = cid(name)
    plain = ChunkRecord(
        id=id_, table_id=table.id, server=0, file=f"tables/{table.id}/{id_}.arrow", container="arrow", format=1, rows=10, bytes=100,
        key_lo=0, key_hi=9, time_lo=0, time_hi=9, late=False, generation_lo=1, generation_hi=1, covers=0, prefix=b"", body_lo=0, body_hi=0,
        frame=0, partitions=((0, 10),),
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as conn:
        lines = list(conn.iterdump())
    conn.close()
    return lines


def test_is_a_reader_and_a_writer(catalog: CatalogWriter) -> None:
    writer: CatalogWriter = catalog
    reader: CatalogReader = writer
    assert reader.tables() == []
    writes = {"create_table", "drop_table", "commit", "acquire", "release", "close"}
    assert not writes & set(dir(CatalogReader))
    assert writes <= set(dir(CatalogWriter))


# Round trips


@pytest.mark.parametrize(
    "given",
    [
        spec(),
        spec(partition="1 day"),
        make_spec("z", pa.schema([("x", pa.float32()), ("y", pa.float64()), ("d", pa.date32())]), time="d",
                  key=zorder("x", "y", bounds=(-180.0, -90.5, 180.0, 90.25)), partition="7 days"),
        make_spec("i", pa.schema([("from", pa.large_string()), ("ms", pa.int64())]), time=epoch("ms", "ms"), key=ip("from")),
        make_spec("u", pa.schema([pa.field("ключ–鍵", pa.dictionary(pa.int32(), pa.string()), nullable=False, metadata={"a": "é"}),
                                  ("t", pa.timestamp("ns")), ("list", pa.list_(pa.struct([("a", pa.decimal128(38, 9))])))],
                                 metadata={"owner": "Ł"}), time="t", key="ключ–鍵"),
    ],
    ids=lambda s: s.name + "-" + s.partition,
)  # fmt: skip
def test_tables_round_trip(catalog: CatalogWriter, given: TableSpec) -> None:
    made = catalog.create_table(given, 1)
    found = catalog.table(given.name)
    assert found == made == TableRecord(made.id, given, "base", 0)
    assert found is not None
    assert found.spec.schema.equals(given.schema, check_metadata=True)
    assert catalog.tables() == [made]


def test_field_ids_need_not_be_positions(catalog: CatalogWriter) -> None:
    given = dataclasses.replace(spec(), field_ids=(7, 3, 5))
    catalog.create_table(spec("other"), 1)
    catalog.create_table(given, 1)
    assert [t.spec.field_ids for t in catalog.tables()] == [(1, 2, 3), (7, 3, 5)]


def test_every_member_of_a_record_has_a_column() -> None:
    stored = {ChunkRecord: "chunks", MaskRecord: "masks", PackageRecord: "packages", StreamBatchRecord: "stream_batches"}
    for record, table in {**stored, ServerRecord: "servers", Lease: "leases"}.items():
        assert {f.name for f in dataclasses.fields(record)} - {"partitions", "latest"} <= set(metadata.tables[table].columns.keys()), table


def test_chunks_round_trip_at_the_limits(catalog: CatalogWriter) -> None:
    table = catalog.create_table(spec(), 1)
    widest = chunk(
        table, "widest", rows=HI, bytes=HI, key_lo=LO, key_hi=HI, time_lo=LO, time_hi=HI,
        late=True, generation_lo=0, generation_hi=LAST, covers=LAST, prefix=bytes(range(256)), body_lo=0, body_hi=HI, frame=(1 << 64) - 1,
        partitions=((LO, 1), (-1, 2), (0, 3), (HI, HI)),
    )  # fmt: skip
    given = [
        chunk(table, "b", frame=1 << 63),
        chunk(table, "a", generation_hi=2, partitions=()),
        chunk(table, "c", generation_hi=2),
        widest,
    ]
    catalog.commit(Commit(table.id, 1, 2, add=tuple(reversed(given))))
    assert catalog.chunks(table.id) == given


def test_numpy_integers_are_taken_and_floats_are_not(catalog: CatalogWriter) -> None:
    table = catalog.create_table(spec(), 1)
    n = np.int64(7)
    given = chunk(table, rows=n, key_lo=np.int64(LO), frame=np.uint64((1 << 64) - 1), late=np.bool_(True), partitions=((n, n),))
    catalog.commit(Commit(table.id, 1, 1, add=(given,)))
    [found] = catalog.chunks(table.id)
    assert found == given
    assert {type(found.rows), type(found.key_lo), type(found.frame), type(found.partitions[0][0])} == {int}
    for wrong in (1.5, 1 << 63):
        with pytest.raises(StorageError, match=r"catalog\.db"):
            catalog.commit(Commit(table.id, 1, 1, add=(chunk(table, "c2", key_lo=wrong),)))


def test_small_records_round_trip(catalog: CatalogWriter) -> None:
    table, other = catalog.create_table(spec(), 1), catalog.create_table(spec("other"), 1)
    masks = (MaskRecord(LO, HI, LAST, "erasure – ß"), MaskRecord(3, 4, 1, "reload"), MaskRecord(3, 4, 1, "reload"))
    packages = (PackageRecord("péage 鍵.csv", 1, HI, 3), PackageRecord("", 1, 0))
    batches = (StreamBatchRecord("s–ü", HI, 1, HI), StreamBatchRecord("s–ü", 0, 1, 0), StreamBatchRecord("r", 0, 1, 5))
    servers = (ServerRecord(0, LO, b""), ServerRecord(1, HI, b"\x00\xff"))
    catalog.commit(Commit(table.id, 1, 1, masks=masks, packages=packages, batches=batches, servers=servers))
    assert catalog.masks(table.id) == list(masks)
    assert [catalog.package(table.id, p.name) for p in packages] == list(packages)
    assert [catalog.last_batch(table.id, b.stream) for b in batches] == [batches[0], batches[0], batches[2]]
    assert catalog.servers(table.id) == list(servers)
    assert catalog.package(table.id, "none") is None
    assert catalog.last_batch(table.id, "none") is None and catalog.last_batch(other.id, "r") is None
    assert not (catalog.masks(other.id) or catalog.servers(other.id) or catalog.chunks(other.id) or catalog.partitions(other.id))
    assert catalog.package(other.id, "") is None
    catalog.commit(Commit(table.id, 1, 2))
    assert catalog.servers(table.id) == list(servers)
    catalog.commit(Commit(table.id, 1, 3, servers=(ServerRecord(2, 0, b"x"),)))
    assert catalog.servers(table.id) == [ServerRecord(2, 0, b"x")]


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    first = open_sqlite(str(tmp_path / "catalog.db"))
    first.acquire(1, "here", 1.25)
    table = first.create_table(spec(), 1)
    first.commit(Commit(table.id, 1, 5, add=(chunk(table),)))
    first.close()
    second = open_sqlite(tmp_path / "catalog.db")
    assert second.table("t") == dataclasses.replace(table, generation=5)
    assert second.chunks(table.id) == [chunk(table)]
    assert second.lease() == Lease(1, 1, "here", 1.25)
    second.close()


# Tables


def test_names_are_unique_and_ids_are_not_reused(catalog: CatalogWriter) -> None:
    first = catalog.create_table(spec(), 1)
    with pytest.raises(ExistsError, match="'t'"):
        catalog.create_table(spec(partition="1 day"), 1)
    assert catalog.drop_table("t", 1) == []
    assert catalog.create_table(spec(), 1).id > first.id
    with pytest.raises(NotFoundError, match="'none'"):
        catalog.drop_table("none", 1)


def test_drop_removes_every_row_and_names_every_file(catalog: CatalogWriter, tmp_path: Path) -> None:
    keep = catalog.create_table(spec("keep"), 1)
    catalog.commit(Commit(keep.id, 1, 1, add=(chunk(keep),), masks=(MaskRecord(0, 1, 1, "r"),)))
    before = [line for line in dump(tmp_path / "catalog.db") if "sqlite_sequence" not in line]
    table = catalog.create_table(spec(), 1)
    full = Commit(
        table.id, 1, 1, add=(chunk(table, "a"), chunk(table, "b")), masks=(MaskRecord(0, 1, 1, "r"),), packages=(PackageRecord("p", 1, 1),),
        batches=(StreamBatchRecord("s", 1, 1, 1),), servers=(ServerRecord(0, 0, b""),),
    )  # fmt: skip
    catalog.commit(full)
    catalog.commit(Commit(table.id, 1, 2, remove=(cid("a"),)))
    assert [c.id for c in catalog.drop_table("t", 1)] == [cid("a"), cid("b")]
    assert [line for line in dump(tmp_path / "catalog.db") if "sqlite_sequence" not in line] == before
    assert catalog.tables() == [dataclasses.replace(keep, generation=1)]
    with pytest.raises(NotFoundError):
        catalog.commit(Commit(table.id, 1, 3))


# Commits


def test_partitions_and_removal(catalog: CatalogWriter, tmp_path: Path) -> None:
    table = catalog.create_table(spec(), 1)
    a, b = chunk(table, "a", partitions=((0, 4), (10, 6))), chunk(table, "b", partitions=((-10, 1), (10, 9)))
    catalog.commit(Commit(table.id, 1, 1, add=(a, b)))
    assert catalog.partitions(table.id) == [(-10, 1, 1), (0, 4, 1), (10, 15, 2)]
    merged = chunk(table, "m", generation_hi=2, partitions=((10, 15),))
    catalog.commit(Commit(table.id, 1, 2, add=(merged,), remove=(cid("a"),)))
    assert catalog.chunks(table.id) == [b, merged]
    assert catalog.partitions(table.id) == [(-10, 1, 1), (10, 24, 2)]
    conn = sqlite3.connect(tmp_path / "catalog.db")
    assert conn.execute("SELECT id, generation_removed FROM chunks ORDER BY id").fetchall() == [
        (cid("a"), 2),
        (cid("b"), None),
        (cid("m"), None),
    ]
    conn.close()


def _failures(table: TableRecord) -> dict[str, tuple[type[Exception], dict[str, Any]]]:
    return {
        "package": (ExistsError, {"packages": (PackageRecord("new", 3, 1), PackageRecord("old", 3, 1))}),
        "package twice": (ExistsError, {"packages": (PackageRecord("new", 3, 1), PackageRecord("new", 3, 1))}),
        "batch": (ExistsError, {"batches": (StreamBatchRecord("s", 8, 3, 1), StreamBatchRecord("s", 7, 3, 1))}),
        "chunk": (StorageError, {"add": (chunk(table, "new"), chunk(table, "old"))}),
        "foreign chunk": (StorageError, {"add": (chunk(dataclasses.replace(table, id=99), "new"),)}),
        "unknown removal": (StorageError, {"remove": (cid("old"), cid("none"))}),
        "second removal": (StorageError, {"remove": (cid("gone"),)}),
        "server": (StorageError, {"servers": (ServerRecord(0, 0, b""), ServerRecord(0, 1, b""))}),
        "generation": (StorageError, {"generation": 1}),
        "epoch": (FencedError, {"epoch": 0}),
        "table": (NotFoundError, {"table_id": 99}),
        "surrogate": (StorageError, {"masks": (MaskRecord(0, 1, 1, "\ud800"),)}),
    }


@pytest.mark.parametrize("name", list(_failures(TableRecord(0, spec()))))
def test_a_commit_that_fails_changes_nothing(catalog: CatalogWriter, tmp_path: Path, name: str) -> None:
    table = catalog.create_table(spec(), 1)
    old = Commit(
        table.id, 1, 1, add=(chunk(table, "old"), chunk(table, "gone")), packages=(PackageRecord("old", 1, 1),),
        batches=(StreamBatchRecord("s", 7, 1, 1),), servers=(ServerRecord(0, 0, b""),),
    )  # fmt: skip
    catalog.commit(old)
    catalog.commit(Commit(table.id, 1, 2, remove=(cid("gone"),)))
    before = dump(tmp_path / "catalog.db")
    error, change = _failures(table)[name]
    good = Commit(
        table.id, 1, 3, add=(chunk(table, "also"),), remove=(cid("old"),), masks=(MaskRecord(0, 1, 3, "r"),),
        packages=(PackageRecord("x", 3, 1),), batches=(StreamBatchRecord("x", 1, 3, 1),), servers=(ServerRecord(5, 0, b""),),
    )  # fmt: skip
    with pytest.raises(error) as raised:
        catalog.commit(dataclasses.replace(good, **change))
    assert raised.type is error
    assert dump(tmp_path / "catalog.db") == before
    catalog.commit(good)


def test_the_generation_may_stay_and_may_jump(catalog: CatalogWriter) -> None:
    table = catalog.create_table(spec(), 1)
    for generation in (0, 3, 3, LAST):
        catalog.commit(Commit(table.id, 1, generation))
        found = catalog.table("t")
        assert found is not None
        assert found.generation == generation


# The lease's row


def test_epochs_grow_and_fence(catalog: CatalogWriter) -> None:
    table = catalog.create_table(spec(), 1)
    assert catalog.lease() == Lease(1, 1, "here", 0.0)
    assert catalog.acquire(HI, "höst", 2.5) == catalog.lease() == Lease(2, HI, "höst", 2.5)
    stale: list[Callable[[], object]] = [
        lambda: catalog.commit(Commit(table.id, 1, 1)),
        lambda: catalog.create_table(spec("u"), 1),
        lambda: catalog.drop_table("t", 1),
    ]
    for write in stale:
        with pytest.raises(FencedError, match=f"{HI} on höst"):
            write()
    catalog.release(1)
    assert catalog.lease() is not None
    catalog.release(2)
    assert catalog.lease() is None
    with pytest.raises(FencedError, match="released"):
        catalog.commit(Commit(table.id, 2, 1))
    assert catalog.acquire(1, "here", 3.0).epoch == 3
    assert catalog.tables() == [table]


# Threads and trouble


def test_readers_see_whole_commits_while_a_writer_writes(catalog: CatalogWriter, tmp_path: Path) -> None:
    table = catalog.create_table(spec(), 1)
    catalog.commit(Commit(table.id, 1, 1, add=(chunk(table, "c1"),)))
    other = open_sqlite(tmp_path / "catalog.db")
    stop, problems, seen = threading.Event(), [], set()

    def read(reader: CatalogReader) -> None:
        try:
            while not stop.is_set():
                [only] = reader.chunks(table.id)
                assert only.partitions == ((0, 10),)
                assert reader.partitions(table.id) == [(0, 10, 1)]
                seen.add(only.id)
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=read, args=(r,)) for r in (catalog, catalog, catalog, other, other)]
    for t in threads:
        t.start()
    for g in range(2, 152):  # each replaces the one chunk there is
        catalog.commit(Commit(table.id, 1, g, add=(chunk(table, f"c{g}", generation_hi=g),), remove=(cid(f"c{g - 1}"),)))
    stop.set()
    for t in threads:
        t.join()
    other.close()
    assert problems == []
    assert len(seen) > 1


def test_writers_of_many_threads_and_connections_take_turns(catalog: CatalogWriter, tmp_path: Path) -> None:
    table = catalog.create_table(spec(), 1)
    other = open_sqlite(tmp_path / "catalog.db")
    problems: list[BaseException] = []

    def write(writer: CatalogWriter, name: int) -> None:
        try:
            for i in range(20):
                writer.commit(Commit(table.id, 1, 1, packages=(PackageRecord(f"{name}-{i}", 1, 1),)))
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=write, args=(w, n)) for n, w in enumerate((catalog, catalog, other, other))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    other.close()
    assert problems == []
    assert all(catalog.package(table.id, f"{n}-{i}") for n in range(4) for i in range(20))


def test_the_file_is_durable_by_settings(catalog: CatalogWriter) -> None:
    asked = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    whole: Any = catalog._rest() if isinstance(catalog, LightCatalog) else catalog
    with whole._reading() as conn:
        pragmas = [{p: conn.exec_driver_sql(f"PRAGMA {p}").scalar() for p in asked}]
    if isinstance(catalog, LightCatalog):
        pragmas.append({p: catalog._own.execute(f"PRAGMA {p}").fetchone()[0] for p in asked})
    for pragma in pragmas:
        assert pragma == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}


def test_errors_name_the_file_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none/catalog\.db.*check that the folder exists") as raised:
        open_sqlite(tmp_path / "none" / "catalog.db")
    assert raised.value.__cause__ is not None
    (tmp_path / "text").write_text("not a database, but long enough to have a header of one hundred bytes" * 9)
    with pytest.raises(FormatError, match="text is not a Tidewheel catalog"):
        open_sqlite(tmp_path / "text")


def test_a_damaged_catalog_is_a_storage_error(tmp_path: Path) -> None:
    catalog = open_sqlite(tmp_path / "catalog.db")
    conn = sqlite3.connect(tmp_path / "catalog.db")
    conn.execute("DROP TABLE servers")
    conn.close()
    with pytest.raises(StorageError, match=r"could not read the catalog .*catalog\.db: no such table: servers\. What to do"):
        catalog.servers(1)
    catalog.close()


def test_connections_are_to_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that find no connection make one, by the name of the file, which may be another's by then, or become so meanwhile."""
    ours, away = tmp_path / "ours", tmp_path / "away"
    for name in ("ours", "theirs", "others"):
        (tmp_path / name).mkdir()
        open_sqlite(tmp_path / name / "catalog.db").close()
    catalog = open_sqlite(ours / "catalog.db")
    catalog.acquire(1, "here", 0.0)

    ours.rename(away)
    with catalog._engine.connect():  # the one that was kept is in use
        with pytest.raises(StorageError, match="another file has its name by now"):
            catalog.tables()
        (tmp_path / "theirs").rename(ours)
        with pytest.raises(StorageError, match="another file has its name by now"):
            catalog.acquire(2, "here", 0.0)
    catalog.abandon()
    with closing(sqlite3.connect(ours / "catalog.db")) as theirs:
        assert theirs.execute("SELECT epoch FROM leases").fetchone() == (0,)

    def swapped(connection: sqlite3.Connection, prepare: Callable[..., None] = sqlite_file._prepare) -> None:
        prepare(connection)
        ours.rename(tmp_path / "moved")
        (tmp_path / "others").rename(ours)

    monkeypatch.setattr(sqlite_file, "_prepare", swapped)
    with pytest.raises(StorageError, match="another file has its name by now"):
        open_sqlite(ours / "catalog.db")


def test_closed_is_closed(tmp_path: Path) -> None:
    catalog = open_sqlite(tmp_path / "a ?&#ü.db")
    catalog.close()
    catalog.close()
    with pytest.raises(ClosedError):
        catalog.tables()
    with pytest.raises(ClosedError):
        catalog.acquire(1, "here", 0.0)
    assert [p.name for p in tmp_path.iterdir()] == ["a ?&#ü.db"]


def test_commits_of_several_tables_are_one(catalog: CatalogWriter, tmp_path: Path) -> None:
    one, two, three = (catalog.create_table(spec(name), 1) for name in ("one", "two", "three"))
    servers = (ServerRecord(0, 5, b"p"), ServerRecord(1, 9, b""))
    catalog.commit(
        Commit(one.id, 1, 3, add=(chunk(one, "a"), chunk(one, "b")), horizon=2),
        Commit(two.id, 1, 4, add=(chunk(two, "a"),), packages=(PackageRecord("p", 4, 1),), servers=servers),
        Commit(three.id, 1, 1, masks=(MaskRecord(0, 1, 1, "r"),)),
    )
    assert [(t.generation, t.horizon) for t in catalog.tables()] == [(3, 2), (4, 0), (1, 0)]
    assert [len(catalog.chunks(t.id)) for t in (one, two, three)] == [2, 1, 0]
    assert catalog.servers(two.id) == list(servers) and catalog.package(two.id, "p") and len(catalog.masks(three.id)) == 1
    before = dump(tmp_path / "catalog.db")
    for wrong in (
        Commit(three.id, 2, 2),
        Commit(three.id, 1, 0),
        Commit(99, 1, 2),
        Commit(three.id, 1, 2, remove=(cid("a"),)),
        Commit(three.id, 1, 2, add=(chunk(one, "c"),)),
    ):
        with pytest.raises((FencedError, StorageError, NotFoundError)):
            catalog.commit(Commit(one.id, 1, 5, add=(chunk(one, "d"),)), wrong, Commit(two.id, 1, 5))
        assert dump(tmp_path / "catalog.db") == before
