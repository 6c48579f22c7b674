"""Batches of streams: staged in slices, published once, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.errors import StagingLostError
from tidewheel.model.dead_letters import DeadLetter, letters_batch, rows_batch
from tidewheel.model.delivery import SliceId, Staged, Written
from tidewheel.testing.abandon import abandon
from tidewheel.testing.probe import Probe, root_of
from tidewheel.write import streams
from tidewheel.write.chunk_maker import ChunkMaker

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.string())])


def rows(*keys: int, second: int = 0) -> pa.RecordBatch:
    times = pa.array([second * 1_000_000 + k for k in keys], pa.timestamp("us", "UTC"))
    return pa.record_batch([pa.array(keys, pa.int64()), times, pa.array([str(k) for k in keys])], schema=SCHEMA)


def piece(batch: int, partition: int = 0, attempt: int = 0, run: str = "run", stream: str = "s") -> SliceId:
    return SliceId(stream, run, batch, partition, attempt)


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh", settings=tw.Settings(chunk_bytes=4096, leaf_rows=8)) as wh:
        wh.create_table("t", SCHEMA, time="ts", key="k")
        yield wh


def engine(wh: tw.Warehouse) -> Probe:
    return Probe(wh.table("t"))


def keys(wh: tw.Warehouse) -> list[int]:
    return sorted(wh.table("t").query(columns=["k"]).to_arrow()["k"].to_pylist())


def stage(table: Probe, slice_id: SliceId, *batches: pa.RecordBatch) -> Staged:
    return table.stage(slice_id, iter(batches), SCHEMA)


def test_nothing_is_seen_before_the_commit_and_all_of_it_after(wh: tw.Warehouse) -> None:
    t = engine(wh)
    assert stage(t, piece(0, 0), rows(1, 2), rows(3)).rows == 3
    assert stage(t, piece(0, 1), rows(4)).rows == 1
    assert keys(wh) == [] and t.last_batch("s") is None
    ack = t.commit_batch("s", "run", 0, [piece(0, 0), piece(0, 1)])
    assert (ack.rows, ack.rejected, ack.duplicate) == (4, 0, False)
    assert keys(wh) == [1, 2, 3, 4] and t.last_batch("s") == 0
    assert not t.streams.awaited


def test_only_the_attempts_that_are_named_count(wh: tw.Warehouse) -> None:
    t = engine(wh)
    stage(t, piece(0, 0, attempt=7), rows(1))
    stage(t, piece(0, 0, attempt=8), rows(1))
    t.commit_batch("s", "run", 0, [piece(0, 0, attempt=8)])
    assert keys(wh) == [1] and not t.streams.awaited


def test_a_slice_staged_again_takes_the_place_of_the_first(wh: tw.Warehouse) -> None:
    t = engine(wh)
    stage(t, piece(0), rows(1, 2))
    stage(t, piece(0), rows(3))
    t.commit_batch("s", "run", 0, [piece(0)])
    assert keys(wh) == [3]


def test_a_batch_comes_once_however_it_is_cut(wh: tw.Warehouse) -> None:
    t = engine(wh)
    for batch in (0, 1):
        stage(t, piece(batch), rows(10 * batch, 10 * batch + 1))
        t.commit_batch("s", "run", batch, [piece(batch)])
    for batch in (1, 0):
        stage(t, piece(batch, 0, run="later"), rows(10 * batch))
        stage(t, piece(batch, 1, run="later"), rows(10 * batch + 1))
        assert t.commit_batch("s", "later", batch, [piece(batch, 0, run="later"), piece(batch, 1, run="later")]).duplicate
    assert keys(wh) == [0, 1, 10, 11]
    stage(t, piece(0, stream="other"), rows(99))
    assert not t.commit_batch("other", "run", 0, [piece(0, stream="other")]).duplicate


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_a_batch_is_remembered_by_the_next_owner(tmp_path: Path, flushed: bool, closed: bool) -> None:
    wh = tw.open(tmp_path)
    wh.create_table("t", SCHEMA, time="ts", key="k")
    t = engine(wh)
    for batch in range(3):
        stage(t, piece(batch), rows(batch))
        t.commit_batch("s", "run", batch, [piece(batch)])
        if flushed:
            t.flush()
    stage(t, piece(3), rows(3))  # never committed: it dies with the owner
    wh.close() if closed else abandon(wh)
    with tw.open(tmp_path) as wh:
        t = engine(wh)
        assert keys(wh) == [0, 1, 2] and t.last_batch("s") == 2
        with pytest.raises(StagingLostError, match="send the batch again") as e:
            t.commit_batch("s", "run", 3, [piece(3)])
        assert e.value.retryable
        assert t.commit_batch("s", "run", 2, [piece(2)]).duplicate
        stage(t, piece(3, run="new"), rows(3))
        assert t.commit_batch("s", "new", 3, [piece(3, run="new")]).rows == 1
        assert keys(wh) == [0, 1, 2, 3]
        assert wh.check().ok


def test_bad_rows_become_rejects_with_the_commit_and_once(wh: tw.Warehouse) -> None:
    t = engine(wh)
    text = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.string())])
    bad = pa.record_batch(
        [pa.array(["1", "x", "3"]), pa.array([1, 2, 3], pa.timestamp("us", "UTC")), pa.array(["a", "b", "c"])], schema=text
    )
    for run in ("first", "second"):
        staged = t.stage(piece(5, run=run), iter([bad]), text)
        assert (staged.rows, staged.rejected) == (2, 1)
        assert len(wh.table("t").rejects()) == (0 if run == "first" else 1)
        t.commit_batch("s", run, 5, [piece(5, run=run)])
    (reject,) = wh.table("t").rejects().to_pylist()
    assert (reject["position"], reject["column"], reject["stream"], reject["batch"]) == (1, "k", "s", 5)
    assert keys(wh) == [1, 3]


def test_dead_letters_become_rejects_with_their_origin(wh: tw.Warehouse) -> None:
    t = engine(wh)
    letter = DeadLetter(0, "no JSON", "", "{broken", "topic/3@17")
    batches = [rows_batch(rows(1, 2)), letters_batch(SCHEMA, [letter])]
    staged = t.stage(piece(0), iter(batches), batches[0].schema)
    assert (staged.rows, staged.rejected) == (2, 1)
    t.commit_batch("s", "run", 0, [piece(0)])
    (reject,) = wh.table("t").rejects().to_pylist()
    assert (reject["position"], reject["reason"], reject["row"], reject["origin"]) == (2, "no JSON", "{broken", "topic/3@17")
    assert keys(wh) == [1, 2]


def test_a_batch_of_bad_rows_only_is_remembered_by_the_rejects(wh: tw.Warehouse) -> None:
    t = engine(wh)
    for _ in range(2):
        batches = [letters_batch(SCHEMA, [DeadLetter(0, "bad", "", "raw", "")])]
        t.stage(piece(0), iter(batches), batches[0].schema)
        assert t.commit_batch("s", "run", 0, [piece(0)]).rejected == 1
    assert len(wh.table("t").rejects()) == 1


def test_aborted_and_dead_runs_leave_nothing(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    t = engine(wh)
    stage(t, piece(0), rows(1))
    t.abort_batch("s", "run", 0)
    t.abort_batch("s", "run", 0)
    assert not t.streams.awaited
    stage(t, piece(0, run="dead"), rows(1))
    stage(t, piece(0, run="alive"), rows(2))
    assert t.streams.awaited
    monkeypatch.setattr(t.streams._staged, "seconds", -1.0)
    stage(t, piece(0, stream="other"), rows(3))
    assert len(t.streams._staged) == 1 and t.streams.awaited
    monkeypatch.setattr(streams, "AWAITED", -1.0)
    assert not t.streams.awaited


def test_a_batch_that_is_too_large_is_refused_with_advice(tmp_path: Path) -> None:
    with tw.open(tmp_path, settings=tw.Settings(max_batch_bytes=4096)) as wh:
        wh.create_table("t", SCHEMA, time="ts", key="k")
        t = engine(wh)
        with pytest.raises(tw.InputError, match="maxOffsetsPerTrigger"):
            stage(t, piece(0), *(rows(*range(i, i + 50)) for i in range(0, 1000, 50)))
        assert not t.streams.awaited and keys(wh) == []


def test_wrong_columns_are_an_error_not_rejects(wh: tw.Warehouse) -> None:
    wrong = pa.record_batch([pa.array([1])], names=["x"])
    with pytest.raises(tw.BadRowsError, match="lacks columns"):
        engine(wh).stage(piece(0), iter([wrong]), wrong.schema)


# ---- large slices, which tasks write as chunks ------------------------------------------------------------


def write(wh: tw.Warehouse, *batches: pa.RecordBatch) -> Written:
    """What a task does."""
    t = engine(wh)
    with ChunkMaker(root_of(wh), t.spec, t.begin_load()) as maker:
        for batch in batches:
            assert maker.add(batch, "reject") == []
    return maker.written


def test_written_and_staged_slices_are_one_batch(wh: tw.Warehouse) -> None:
    t = engine(wh)
    wh.table("t").insert(rows(100))
    large = write(wh, rows(*range(40)), rows(*range(40, 60)))
    stage(t, piece(0, 1), rows(60, 61))
    assert keys(wh) == [100]
    ack = t.commit_batch("s", "run", 0, [piece(0, 1)], [large])
    assert (ack.rows, ack.duplicate) == (62, False) and keys(wh) == [*range(62), 100] and t.last_batch("s") == 0
    wh.table("t").insert(rows(101))
    assert t.changes(ack.generation - 1, ack.generation, None).to_arrow().num_rows == 62
    again = write(wh, rows(*range(62)))
    assert t.commit_batch("s", "run", 0, [], [again]).duplicate
    assert keys(wh) == [*range(62), 100, 101] and not t.loads.under_way
    assert [name for _, _, names in os.walk(root_of(wh) / "staging") for name in names] == []


def test_a_written_batch_survives_a_kill(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    wh.create_table("t", SCHEMA, time="ts", key="k")
    wh.table("t").insert(rows(100))
    engine(wh).commit_batch("s", "run", 0, [], [write(wh, rows(1, 2))])
    waiting = write(wh, rows(3))
    abandon(wh)
    with tw.open(tmp_path / "wh") as wh:
        t = engine(wh)
        assert keys(wh) == [1, 2, 100] and t.last_batch("s") == 0
        assert t.commit_batch("s", "run", 0, [], [write(wh, rows(1, 2))]).duplicate
        t.commit_batch("s", "run", 1, [], [waiting])  # a load does not need the owner it began with
        assert keys(wh) == [1, 2, 3, 100]
        with pytest.raises(StagingLostError):
            t.commit_batch("s", "run", 2, [], [waiting])


def test_a_commit_that_fails_leaves_nothing_and_can_be_repeated(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    t = engine(wh)
    large = write(wh, rows(*range(40)))
    stage(t, piece(0, 1), rows(50))
    with monkeypatch.context() as patch:
        patch.setattr(t.loads._flusher, "write", lambda *_: (_ for _ in ()).throw(tw.StorageError("full")))
        with pytest.raises(tw.StorageError, match="full"):
            t.commit_batch("s", "run", 0, [piece(0, 1)], [large])
    assert keys(wh) == [] and t.last_batch("s") is None
    stage(t, piece(0, 1), rows(50))
    t.commit_batch("s", "run", 0, [piece(0, 1)], [write(wh, rows(*range(40)))])
    assert keys(wh) == [*range(40), 50]


def test_an_old_run_is_over_once_a_new_one_has_begun(wh: tw.Warehouse) -> None:
    t = engine(wh)
    stage(t, piece(0, run="old"), rows(1))
    stage(t, piece(0, run="new"), rows(1))
    for stale in (lambda: stage(t, piece(0, run="old"), rows(1)), lambda: t.commit_batch("s", "old", 0, [piece(0, run="old")])):
        with pytest.raises(StagingLostError, match="started again"):
            stale()
    assert t.commit_batch("s", "new", 0, [piece(0, run="new")]).rows == 1


def test_tasks_that_still_write_leave_nothing_of_a_failed_load(wh: tw.Warehouse) -> None:
    """Spark aborts a job while the tasks beside the one that failed still run."""
    t = engine(wh)
    load = t.begin_load()
    begun, ended = threading.Event(), threading.Event()

    def go_on() -> None:
        with contextlib.suppress(tw.TidewheelError), ChunkMaker(root_of(wh), t.spec, replace(load, chunk_bytes=1)) as maker:
            while True:  # each batch is a chunk
                maker.add(rows(*range(10)), "error")
                begun.set()
        ended.set()

    task = threading.Thread(target=go_on)
    task.start()
    assert begun.wait(30)
    t.abort_load(load.job)
    assert ended.wait(30), "a folder that is gone stops the task"
    task.join()
    assert list((root_of(wh) / "staging").iterdir()) == []


def test_a_load_of_many_chunks_syncs_each_folder_a_few_times(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    t = engine(wh)
    load = t.begin_load()
    with ChunkMaker(root_of(wh), t.spec, replace(load, chunk_bytes=1)) as maker:
        for n in range(30):
            maker.add(rows(n), "error")
    disk = t.owner.files.disk
    sync, synced = disk.sync_folder, []
    monkeypatch.setattr(disk, "sync_folder", lambda path: (synced.append(path), sync(path)))
    assert t.commit_load(load.job, [maker.written], False).rows == 30
    assert t.state().chunks == 30 and keys(wh) == list(range(30))
    assert 2 <= len(synced) <= 4, synced
