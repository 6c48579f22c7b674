"""The log: what it keeps, how it is read back, and what happens when the disk does not do as it is told."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.env.appender import Appender
from tidewheel.env.disk import Disk
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import ClosedError, FencedError
from tidewheel.testing.abandon import abandon
from tidewheel.testing.fixed_engine import held
from tidewheel.testing.probe import Probe, owner_of
from tidewheel.warehouse import Warehouse
from tidewheel.write import log as logs
from tidewheel.write.log_format import COLUMNS, STREAM, Head, batch_of, entry, read_segment

FIXED = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int32())])
MIXED = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.list_(pa.int32())), ("d", pa.dictionary(pa.int32(), pa.string()))]
)


def fixed(first: int, last: int, second: int = 0) -> pa.RecordBatch:
    numbers = list(range(first, last))
    times = pa.array([n + second * 1_000_000 for n in numbers], pa.int64()).cast(pa.timestamp("us"))
    return pa.record_batch([pa.array(numbers), times, pa.array(numbers, pa.int32())], schema=FIXED)


def mixed(first: int, last: int) -> pa.RecordBatch:
    numbers = range(first, last)
    return pa.record_batch(
        [
            pa.array([f"key {n}" for n in numbers]),
            pa.array(numbers, pa.timestamp("us")),
            pa.array([None if n % 3 == 0 else [n] for n in numbers], pa.list_(pa.int32())),
            pa.array([f"d{n % 5}" for n in numbers]).dictionary_encode(),
        ],
        schema=MIXED,
    )


def texts(first: int, last: int) -> pa.RecordBatch:
    return mixed(first, last).select(["k", "ts", "v"])


def opened(root: Path, disk: Disk | None = None, **options: Any) -> Warehouse:
    return held(OwnedEngine(root, tw.Settings(**options), disk, listen=False))


def crash(wh: Warehouse) -> None:
    abandon(wh)


def numbers(table: tw.Table) -> list[int]:
    return sorted(table.query(columns=["v"]).to_arrow()["v"].to_pylist())


def segments(root: Path) -> list[Path]:
    return sorted((root / "logs").rglob("*.log"))


class TestFormat:
    @pytest.mark.parametrize("lanes", [None, np.array([0, 1, 2, 1, 0], np.uint16)])
    @pytest.mark.parametrize("package", [b"", b'{"name": "a"}'])
    def test_a_record_is_read_as_it_was_written(self, lanes: Any, package: bytes) -> None:
        head = Head(7, 3, 2, 10, "boot", (1, 2, 3), 4)
        batch = fixed(0, 5)
        body = [column.buffers()[1].slice(0, 5 * width) for column, width in zip(batch.columns, (8, 8, 4), strict=True)]
        one = entry(COLUMNS, 5, 1, lanes, package, body, [40, 40, 20])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, MIXED) as out:
            out.write_batch(mixed(0, 5))
        stream = sink.getvalue()
        other = entry(STREAM, 5, 0, None, b"", [stream], [stream.size])
        data = head.pack() + one.pack(3, 10, 99, 8, True) + b"".join(bytes(memoryview(p).cast("B")) for p in one.parts)
        assert (len(data) - len(head.pack())) == one.size
        data += other.pack(3, 11, 99, 8, False) + bytes(stream)
        segment = read_segment(pa.py_buffer(data), (8, 8, 4))
        assert segment.head == head and segment.damage is None
        first, second = segment.records
        assert (first.sequence, first.generation, first.synced, first.more, first.package) == (10, 99, 8, True, package)
        assert first.lane_numbers() == ([1] if lanes is None else [0, 1, 2])
        assert batch_of(first, FIXED, (8, 8, 4)).equals(batch)
        assert not second.more and batch_of(second, MIXED, ()).equals(mixed(0, 5))

    def test_every_cut_of_a_segment_is_a_prefix(self) -> None:
        """A file that ends anywhere shows the records that are whole, and says that it ends."""
        batch = fixed(0, 5)
        body = [column.buffers()[1].slice(0, 5 * width) for column, width in zip(batch.columns, (8, 8, 4), strict=True)]
        one = entry(COLUMNS, 5, 1, None, b"", body, [40, 40, 20])
        data = Head(7, 3, 2, 0, "boot", (1, 2, 3)).pack()
        ends = [len(data)]
        for n in range(3):
            data += one.pack(3, n, n, 0, False) + b"".join(bytes(memoryview(p).cast("B")) for p in one.parts)
            ends.append(len(data))
        for size in range(len(data)):
            segment = read_segment(pa.py_buffer(data[:size]), (8, 8, 4))
            assert len(segment.records) == sum(end <= size for end in ends[1:])
            if size not in ends:
                assert segment.damage is not None and segment.damage.ends


class TestKeeping:
    @pytest.mark.parametrize("durability", ["process", "fsync"])
    @pytest.mark.parametrize("servers", [1, 3])
    @pytest.mark.parametrize("make", [fixed, mixed, texts])
    def test_what_was_acknowledged_survives(self, tmp_path: Path, durability: str, servers: int, make: Any) -> None:
        wh = opened(tmp_path, durability=durability, indexing_servers=servers)
        table = wh.create_table("t", make(0, 0).schema, time="ts", key="k")
        for n in range(0, 300, 30):
            table.insert(make(n, n + 30))
            if n == 120:
                table.flush()
        table.insert(pa.Table.from_batches([make(300, 310), make(310, 330)]))
        table.insert(make(330, 340), package="p")
        before = table.query().to_arrow().sort_by("ts")
        crash(wh)
        with tw.open(tmp_path) as wh:
            table = wh.table("t")
            assert wh.recovery.rows == 190 and wh.recovery.tables[0].batches == 7 and not wh.recovery.clean
            assert "did not close" in str(wh.recovery) and "190 rows" in str(wh.recovery)
            assert table.query().to_arrow().sort_by("ts").to_pylist() == before.to_pylist()
            assert table.insert(make(0, 1), package="p").duplicate
        assert not segments(tmp_path)
        with tw.open(tmp_path) as wh:
            assert wh.recovery.clean and str(wh.recovery) == "closed properly, nothing to recover"
            assert wh.table("t").query().to_arrow().sort_by("ts").to_pylist() == before.to_pylist()

    def test_memory_keeps_nothing(self, tmp_path: Path) -> None:
        wh = opened(tmp_path, durability="memory")
        wh.create_table("t", FIXED, time="ts", key="k").insert(fixed(0, 10))
        crash(wh)
        with tw.open(tmp_path) as wh:
            assert wh.table("t").rows == 0

    def test_recovery_can_be_killed_and_starts_again(self, tmp_path: Path) -> None:
        wh = opened(tmp_path)
        wh.create_table("t", FIXED, time="ts", key="k").insert(fixed(0, 10))
        for _ in range(4):
            crash(wh)
            wh = opened(tmp_path)
            wh.table("t").insert(fixed(100, 101))
        assert numbers(wh.table("t")) == [*range(10), 100, 100, 100, 100]
        crash(wh)
        with tw.open(tmp_path, settings=tw.Settings(indexing_servers=2)) as wh:
            assert numbers(wh.table("t")) == [*range(10), 100, 100, 100, 100]

    def test_recovery_tells_how_far_it_is(self, tmp_path: Path) -> None:
        wh = opened(tmp_path)
        wh.create_table("t", FIXED, time="ts", key="k").insert(fixed(0, 10))
        wh.table("t").insert(fixed(10, 20))
        crash(wh)
        total = sum(segment.stat().st_size for segment in segments(tmp_path))
        told: list[tuple[int, int]] = []
        OwnedEngine(tmp_path.resolve(), tw.Settings(), listen=False, progress=lambda done, of: told.append((done, of))).close()
        (first, last), of = zip(*told, strict=True)  # a step for each record
        assert 0 < first < last <= total and of == (total, total)

    def test_rejects_are_as_durable_as_rows(self, tmp_path: Path) -> None:
        wh = opened(tmp_path)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        table.insert([{"k": 1, "ts": 0, "v": 1}, {"k": None, "ts": 0, "v": 2}], on_bad="reject")
        crash(wh)
        with tw.open(tmp_path) as wh:
            assert numbers(wh.table("t")) == [1]
            assert len(wh.table("t").rejects()) == 1

    def test_a_replace_hides_what_is_replayed_from_before_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        wh = opened(tmp_path)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        table.insert(fixed(0, 100))
        publisher = Probe(table).publisher
        monkeypatch.setattr(publisher, "next_job", lambda: None)  # nothing but the replace is flushed
        table.replace(fixed(20, 30), time=(0, 49))
        table.insert(fixed(10, 15))
        want = sorted([*range(20, 30), *range(50, 100), *range(10, 15)])
        assert numbers(table) == want
        crash(wh)
        with tw.open(tmp_path) as wh:
            assert wh.recovery.rows == 105
            assert numbers(wh.table("t")) == want
            wh.table("t").flush()
            assert numbers(wh.table("t")) == want

    def test_a_dropped_table_takes_its_log_along(self, tmp_path: Path) -> None:
        with tw.open(tmp_path) as wh:
            wh.create_table("t", FIXED, time="ts", key="k").insert(fixed(0, 10))
            assert segments(tmp_path)
            wh.drop_table("t")
            assert not segments(tmp_path)

    def test_a_log_without_its_catalog_is_not_touched(self, tmp_path: Path) -> None:
        wh = opened(tmp_path)
        wh.create_table("t", FIXED, time="ts", key="k").insert(fixed(0, 10))
        crash(wh)
        for file in tmp_path.glob("catalog*"):
            file.unlink()
        with pytest.raises(tw.TidewheelError, match="put the catalog back"):
            tw.open(tmp_path)
        assert segments(tmp_path)


class TestSegments:
    def test_they_go_when_their_rows_are_in_chunks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logs, "SEGMENT_BYTES", 4096)
        with tw.open(tmp_path) as wh:
            table = wh.create_table("t", FIXED, time="ts", key="k")
            for n in range(0, 2000, 100):
                table.insert(fixed(n, n + 100))
            assert len(segments(tmp_path)) == 10
            table.flush()
            give_up = time.monotonic() + 10
            while segments(tmp_path) and time.monotonic() < give_up:  # after the commit, by the thread that made it
                time.sleep(0.01)
            assert not segments(tmp_path)
            table.insert(fixed(0, 100))
            assert len(segments(tmp_path)) == 1

    def test_they_stay_for_a_late_tree_that_is_not_flushed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logs, "SEGMENT_BYTES", 4096)
        wh = opened(tmp_path, late_after=0.0, chunk_bytes=20_000)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        table.insert(fixed(0, 1100, second=1000))
        while table.state().chunks == 0:
            time.sleep(0.01)
        table.insert(fixed(5000, 5010))  # late
        for n in range(6000, 8000, 500):
            table.insert(fixed(n, n + 500, second=1000))
        while table.state().sealed:
            time.sleep(0.01)
        assert len(segments(tmp_path)) > 1
        want = numbers(table)
        crash(wh)
        with tw.open(tmp_path) as wh:
            assert numbers(wh.table("t")) == want

    def test_one_that_is_missing_is_noticed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logs, "SEGMENT_BYTES", 4096)
        wh = opened(tmp_path)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        for n in range(0, 1000, 100):
            table.insert(fixed(n, n + 100))
        crash(wh)
        middle = segments(tmp_path)[2]
        middle.unlink()
        with pytest.raises(tw.CorruptionError, match="records 4 to 5 before it are missing"):
            tw.open(tmp_path)
        with tw.open(tmp_path, settings=tw.Settings(damaged_log="skip")) as wh:
            assert numbers(wh.table("t")) == [*range(400), *range(600, 1000)]
            assert "missing" in wh.recovery.tables[0].damage[0]

    def test_one_that_could_not_be_removed_explains_a_gap(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logs, "SEGMENT_BYTES", 4096)
        wh = opened(tmp_path)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        for n in range(0, 600, 100):
            table.insert(fixed(n, n + 100))
        first = segments(tmp_path)[0]
        kept = first.read_bytes()
        table.flush()
        while segments(tmp_path):
            time.sleep(0.01)
        table.insert(fixed(600, 700))
        crash(wh)
        first.write_bytes(kept)
        with tw.open(tmp_path) as wh:
            assert numbers(wh.table("t")) == list(range(700))
            assert wh.recovery.rows == 100

    @pytest.mark.parametrize("boot", ["same", "another"])
    def test_damage_in_the_middle(self, tmp_path: Path, boot: str) -> None:
        class Restarted(Disk):
            def boot(self) -> str:
                return "another" if boot == "another" else super().boot()

        wh = opened(tmp_path)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        for n in range(0, 500, 100):
            table.insert(fixed(n, n + 100))
        crash(wh)
        (file,) = segments(tmp_path)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        if boot == "same":  # no crash of a process does that
            with pytest.raises(tw.CorruptionError, match=r"damaged at byte \d+.*damaged_log"):
                opened(tmp_path, Restarted())
            wh = opened(tmp_path, Restarted(), damaged_log="skip")
            (kept,) = (tmp_path / "quarantine").rglob("*.log")
            assert kept.read_bytes() == bytes(data)
            assert numbers(wh.table("t")) == [*range(200), *range(300, 500)]
        else:  # a machine that stops may do that to what was not synced
            wh = opened(tmp_path, Restarted())
            assert numbers(wh.table("t")) == [*range(200)]
            assert wh.recovery.tables[0].dropped == 2 and wh.recovery.tables[0].cut_bytes
        wh.close()

    def test_synced_records_are_not_lost_by_a_crash(self, tmp_path: Path) -> None:
        class Restarted(Disk):
            def boot(self) -> str:
                return "another"

        wh = opened(tmp_path, durability="fsync")
        table = wh.create_table("t", FIXED, time="ts", key="k")
        for n in range(0, 500, 100):
            table.insert(fixed(n, n + 100))
        crash(wh)
        (file,) = segments(tmp_path)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        with pytest.raises(tw.CorruptionError):
            opened(tmp_path, Restarted())


class Unreliable(Disk):
    """Fails when told to."""

    def __init__(self) -> None:
        self.sync_fails = self.append_fails = self.truncate_fails = False
        self.short = 0
        self.sync_seconds = 0.0

    def sync(self, descriptor: int) -> None:
        time.sleep(self.sync_seconds)
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)

    def append(self, descriptor: int, parts: Any) -> int:
        if self.append_fails:
            super().append(descriptor, [bytes(parts[0])[:7]])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.short:
            whole = b"".join(bytes(memoryview(p).cast("B")) for p in parts)
            return super().append(descriptor, [whole[: self.short]])
        return super().append(descriptor, parts)

    def truncate(self, descriptor: int, size: int) -> None:
        if self.truncate_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(descriptor, size)


class TestDisks:
    @pytest.mark.parametrize("taken_back", [True, False])
    def test_a_full_disk_refuses_the_batch_and_takes_the_next(self, tmp_path: Path, taken_back: bool) -> None:
        disk = Unreliable()
        wh = opened(tmp_path, disk)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        table.insert(fixed(0, 10))
        disk.append_fails, disk.truncate_fails = True, not taken_back
        for _ in range(3):
            with pytest.raises(tw.StorageError, match="free some space"):
                table.insert(fixed(10, 20))
        assert numbers(table) == list(range(10))
        disk.append_fails = disk.truncate_fails = False
        table.insert(fixed(20, 30))
        assert numbers(table) == [*range(10), *range(20, 30)]
        assert len(segments(tmp_path)) == (1 if taken_back else 2)
        crash(wh)
        with tw.open(tmp_path) as wh:
            assert numbers(wh.table("t")) == [*range(10), *range(20, 30)]

    def test_short_writes_are_completed(self, tmp_path: Path) -> None:
        disk = Unreliable()
        wh = opened(tmp_path, disk)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        disk.short = 13
        table.insert(fixed(0, 10))
        crash(wh)
        with tw.open(tmp_path) as wh:
            assert numbers(wh.table("t")) == list(range(10))

    def test_a_failed_sync_is_told_and_never_tried_again(self, tmp_path: Path) -> None:
        disk = Unreliable()
        wh = opened(tmp_path, disk, durability="fsync")
        table = wh.create_table("t", FIXED, time="ts", key="k")
        table.insert(fixed(0, 10))
        disk.sync_fails = True
        with pytest.raises(tw.StorageError, match="could not be synced"):
            table.insert(fixed(10, 20))
        disk.sync_fails = False
        table.insert(fixed(20, 30))
        assert len(segments(tmp_path)) == 2
        first = segments(tmp_path)[0]
        crash(wh)
        first.write_bytes(first.read_bytes()[:-60])  # what the failed sync left
        with tw.open(tmp_path) as wh:
            assert numbers(wh.table("t")) == [*range(10), *range(20, 30)]

    def test_a_package_that_was_not_synced_is_not_loaded_twice(self, tmp_path: Path) -> None:
        disk = Unreliable()
        with opened(tmp_path, disk, durability="fsync") as wh:
            table = wh.create_table("t", FIXED, time="ts", key="k")
            table.insert(fixed(0, 10))
            disk.sync_fails = True
            with pytest.raises(tw.StorageError, match="could not be synced"):
                table.insert(fixed(10, 20), package="p")
            disk.sync_fails = False
            assert table.insert(fixed(10, 20), package="p").duplicate
            assert table.state().fresh_rows == 0  # it was flushed, so that one can rely on it
            assert numbers(table) == list(range(20))

    def test_nor_is_one_whose_wait_was_interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with opened(tmp_path, durability="fsync") as wh:
            table = wh.create_table("t", FIXED, time="ts", key="k")

            def interrupted(*_: Any) -> None:
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(Probe(table).log, "wait", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    table.insert(fixed(0, 10), package="p")
            assert table.insert(fixed(0, 10), package="p").duplicate
            assert numbers(table) == list(range(10))

    def test_writers_share_a_sync(self, tmp_path: Path) -> None:
        disk = Unreliable()
        disk.sync_seconds = 0.02
        with opened(tmp_path, disk, durability="fsync") as wh:
            table = wh.create_table("t", FIXED, time="ts", key="k")

            def write(first: int) -> None:
                for n in range(10):
                    table.insert(fixed(first + n, first + n + 1))

            threads = [threading.Thread(target=write, args=(100 * i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert table.rows == 80
            assert Probe(table).log.syncs < 40

    def test_an_interrupt_in_a_write_waits_for_its_end(self, tmp_path: Path) -> None:
        class Interrupted(Disk):
            now = False

            def append(self, descriptor: int, parts: Any) -> int:
                if self.now:
                    self.now = False
                    super().append(descriptor, [bytes(parts[0])])
                    raise KeyboardInterrupt
                return super().append(descriptor, parts)

        disk = Interrupted()
        wh = opened(tmp_path, disk)
        table = wh.create_table("t", FIXED, time="ts", key="k")
        table.insert(fixed(0, 10))
        disk.now = True
        with pytest.raises(KeyboardInterrupt):
            table.insert(fixed(10, 20))
        table.insert(fixed(20, 30))
        crash(wh)
        with tw.open(tmp_path) as wh:
            assert numbers(wh.table("t")) == [*range(30)]


def test_a_sync_during_a_write_leaves_it_to_be_synced(tmp_path: Path) -> None:
    """Or its descriptor, which alone hears of an error of the disk, might be closed before the next sync."""

    class Synced(Disk):
        def append(self, descriptor: int, parts: Any) -> int:
            if writing:
                writing[0].sync()  # by another thread, say, just before the bytes are handed over
            return super().append(descriptor, parts)

    writing: list[Appender] = []
    appender = LocalFiles(tmp_path, Synced()).append("log", b"head", durable=True)
    writing.append(appender)
    appender.write([b"record"], 6, 4)
    assert appender._handle.dirty
    appender.sync()
    assert not appender._handle.dirty
    appender.close()


def test_what_a_stale_owner_wrote_does_not_come_back_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that it was refused, and that its successor loaded instead, is there once."""
    monkeypatch.setattr("tidewheel.engine.local_engine.may_live", lambda before: before is not None)
    stale = opened(tmp_path)
    table = stale.create_table("t", FIXED, time="ts", key="k")
    table.insert(fixed(0, 10))
    owner_of(stale).tenure.stop()  # it is to notice when it writes, not before
    (tmp_path / "owner.lock").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("tidewheel.write.flush.Flusher.start", lambda *_: None)  # it is killed before it flushes
        successor = opened(tmp_path)
        with pytest.raises(FencedError):
            table.insert(fixed(10, 20), package="p")
        successor.table("t").insert(fixed(10, 20), package="p")
        crash(successor)
    with pytest.raises(FencedError):
        stale.close()
    with opened(tmp_path) as last:
        found = last.table("t")
        found.flush()
        assert sorted(found.query().to_arrow()["k"].to_pylist()) == list(range(20))


def test_bad_rows_of_a_dropped_table_make_no_rejects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as wh:
        table = wh.create_table("t", FIXED, time="ts", key="k")
        inserts = Probe(table).local.inserts
        keep = inserts._rejects

        def too_late() -> Any:
            wh.drop_table("t")  # by another thread, say
            return keep()

        monkeypatch.setattr(inserts, "_rejects", too_late)
        with pytest.raises(ClosedError, match="dropped"):
            table.insert([{"k": None, "ts": 1, "v": 1}], on_bad="reject")
        assert not owner_of(wh)._tables


def test_a_timeout_of_any_length(tmp_path: Path) -> None:
    with opened(tmp_path, durability="fsync") as wh:
        table = wh.create_table("t", FIXED, time="ts", key="k")
        assert table.insert(fixed(0, 3), package="p", timeout=1e15).rows == 3
        assert table.replace(fixed(0, 2), time=(None, None), timeout=1e300).rows == 2
