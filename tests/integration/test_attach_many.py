"""What many processes do together, through an attached engine: the same as through the owner's own. And owners that are summoned."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.attaching import SCHEMA, SPEC, eventually, rows
from tidewheel.cluster import address
from tidewheel.cluster.attached import AttachedEngine
from tidewheel.cluster.client import attach
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.cluster.start_owner import summon
from tidewheel.engine.protocol import Engine
from tidewheel.errors import InputError, NotFoundError, OwnerLostError, StorageError
from tidewheel.model.delivery import SliceId
from tidewheel.model.query import Query
from tidewheel.testing.probe import Probe, listener_of, tables_of

# ---- streams, pins, loads and changes -----------------------------------------------------------------------


@pytest.fixture(params=["local", "attached"])
def engine(request: pytest.FixtureRequest, owned: OwnedEngine) -> Iterator[Engine]:
    if request.param == "local":
        yield owned
        return
    client = attach(owned.root)
    yield client
    client.close()


@pytest.fixture
def table(engine: Engine) -> Probe:
    return Probe(engine.create(SPEC, "error"))


def test_a_stream(table: Probe) -> None:
    assert table.last_batch("s") is None
    for batch in range(3):
        slices = [SliceId("s", "r", batch, part, attempt) for part in range(2) for attempt in range(2)]
        for one in slices:
            staged = table.stage(one, iter([rows(100, 1000 * batch), rows(1000, 5000)]), SCHEMA)
            assert (staged.rows, staged.rejected) == (1100, 0)
        ack = table.commit_batch("s", "r", batch, slices[::2])
        assert (ack.rows, ack.rejected, ack.duplicate) == (2200, 0, False)
        assert table.commit_batch("s", "r", batch, slices[::2]).duplicate
        assert table.last_batch("s") == batch
    table.stage(SliceId("s", "r", 3, 0, 0), [rows(1)], SCHEMA)
    table.abort_batch("s", "r", 3)
    assert table.state().rows == 6600
    assert table.generation() == table.state().generation


def test_a_stream_with_bad_rows(table: Probe) -> None:
    wrong = pa.record_batch([["1", "x"], [5, 6], [0.5, 1.5]], names=SCHEMA.names)
    staged = table.stage(SliceId("s", "r", 0, 0, 0), [wrong], wrong.schema)
    assert (staged.rows, staged.rejected) == (1, 1)
    table.commit_batch("s", "r", 0, [SliceId("s", "r", 0, 0, 0)])
    (reject,) = table.rejects().to_pylist()
    assert (reject["stream"], reject["batch"], reject["position"], reject["column"]) == ("s", 0, 1, "id")


def test_a_pin(table: Probe) -> None:
    table.insert(rows(1000))
    table.flush()
    table.insert(rows(500, 1000))
    pin = table.pin(Query(key=(5, 10)))
    table.insert(rows(500, 2000))
    table.flush()
    assert [chunk.rows for chunk in pin.chunks] == [1000]
    assert (pin.fresh_rows, pin.masks, pin.generation) == (500, (), 2)
    assert pin.fresh_bytes >= 500 * 24
    assert table.fresh(pin.id, Query(key=(5, 10))).to_arrow().num_rows == 30
    assert len(table.fresh(pin.id)) == 500
    table.unpin(pin.id)
    table.unpin(pin.id)
    with pytest.raises(NotFoundError, match="not held any more"):
        table.fresh(pin.id)


def test_changes(table: Probe) -> None:
    for batch in range(4):
        table.insert(rows(10, 10 * batch))
        if batch == 1:
            table.flush()
    assert table.generation() == 4
    assert table.changes(1, 3, ["ts"]).to_arrow()["ts"].cast(pa.int64()).to_pylist() == list(range(10, 30))
    assert table.changes(0, 4).to_arrow().num_rows == 40
    assert table.rows_by_generation(0) == [(1, 10), (2, 20), (3, 30), (4, 40)]
    assert table.rows_by_generation(1, 3, 15) == [(2, 10)]


def test_a_load_that_comes_to_nothing(table: Probe, owned: OwnedEngine) -> None:
    load = table.begin_load()
    assert load.chunk_bytes == owned.settings.chunk_bytes
    (owned.root / load.folder).mkdir(parents=True, exist_ok=True)
    table.abort_load(load.job)
    table.abort_load(load.job)
    assert not (owned.root / load.folder).exists()


def test_staged_rows_keep_an_owner(owned: OwnedEngine) -> None:
    client = attach(owned.root)
    table = Probe(client.create(SPEC, "error"))
    table.stage(SliceId("s", "r", 0, 0, 0), [rows(1)], SCHEMA)
    time.sleep(0.2)
    assert listener_of(owned).idle_seconds() < 0.1
    table.abort_batch("s", "r", 0)
    assert eventually(lambda: listener_of(owned).idle_seconds() > 0.1)
    client.close()


# ---- summoned owners ----------------------------------------------------------------------------------------


def owner_of(root: Path) -> int:
    door = address.read(root)
    assert door is not None
    return door.pid


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def readable(process: subprocess.Popen[str]) -> bool:
    return bool(select.select([process.stdout], [], [], 0.1)[0])


def test_an_owner_is_started_once_and_leaves_when_nobody_needs_it(root: Path) -> None:
    code = f"""
from tidewheel.cluster.start_owner import summon
engine = summon({str(root)!r}, idle=2.0)
print(engine.epoch, flush=True)
input()
engine.close()
"""
    command = [sys.executable, "-c", code]
    crowd = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    give_up = time.monotonic() + 120
    engine = summon(root, idle=2.0)
    Probe(engine.create(SPEC, "open")).insert(rows(1000), "one")
    pid = owner_of(root)
    while any(process.poll() is None for process in crowd) and time.monotonic() < give_up:
        tables_of(engine)  # the owner is in use until the last of them has come
        for process in crowd:
            if process.poll() is None and readable(process):
                assert process.communicate("\n", timeout=60)[0].split() == [str(engine.epoch)]
    assert eventually(lambda: not alive(pid), 60)
    assert engine.lost
    engine.close()
    assert (root / "owner/owner.log").read_text() == ""
    assert not (root / "owner/address.json").exists()
    again = summon(root, idle=60.0)
    assert again.recovery.clean
    assert again.epoch == engine.epoch + 1
    assert Probe(again.table("t")).insert(rows(1000), "one").duplicate
    pid = owner_of(root)
    os.kill(pid, signal.SIGTERM)
    assert eventually(lambda: not alive(pid), 60)
    again.close()
    with pytest.raises(OwnerLostError):
        attach(root)


def test_an_owner_that_cannot_be(root: Path) -> None:
    root.mkdir()
    (root / "catalog.sqlite").write_text("nothing of the kind" * 1000)
    with pytest.raises(StorageError, match=r"says in .*owner\.log: .*is not a Tidewheel catalog"):
        summon(root)
    (root.parent / "file").write_text("")
    with pytest.raises(InputError, match="is a file, and a warehouse is a folder"):
        summon(root.parent / "file")


def test_an_owner_that_is_there_is_used(owned: OwnedEngine) -> None:
    engine = summon(str(owned.root))
    assert isinstance(engine, AttachedEngine)
    assert owner_of(owned.root) == os.getpid()
    engine.close()
    command = [sys.executable, "-m", "tidewheel.surfaces.owner_process", str(owned.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_everybody_is_told_the_same(owned: OwnedEngine) -> None:
    """Several processes insert and ask at once."""
    owned.create(SPEC, "error")
    code = f"""
import sys
from pathlib import Path
import pyarrow as pa
from tidewheel.cluster.client import attach
from tidewheel.model.query import Query
from tidewheel.testing.probe import Probe
first = 100000 * int(sys.argv[1])
engine = attach(Path({str(owned.root)!r}))
table = Probe(engine.table("t"))
for i in range(20):
    ids = pa.array(range(first + 50 * i, first + 50 * i + 50))
    table.insert(pa.record_batch([ids, ids.cast(pa.timestamp("us")), ids.cast(pa.float64())], schema=table.spec.schema))
    assert len(table.query(Query(time=(first, first + 99999)))) == 50 * (i + 1)
engine.close()
"""
    crowd = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in range(4)]
    assert [process.wait(120) for process in crowd] == [0] * 4
    assert Probe(owned.table("t")).state().rows == 4 * 20 * 50
