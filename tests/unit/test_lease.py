"""Who owns a warehouse: real processes, real locks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewheel.catalog import lease
from tidewheel.catalog.sql import SqlCatalog, open_sqlite
from tidewheel.errors import ClosedError, OwnedError, StorageError
from tidewheel.model.records import Lease

OWNER = """
import sys
from pathlib import Path
from tidewheel.catalog import lease
from tidewheel.catalog.sql import open_sqlite
root = Path(sys.argv[1])
held = lease.take(root, open_sqlite(root / "catalog.db"))
print(held.epoch, flush=True)
sys.stdin.read()
"""

FORKING = """
import os, sys, time
from pathlib import Path
from tidewheel.catalog import lease
lock = lease.lock(Path(sys.argv[1]))
if os.fork() == 0:
    lock.release()
    print("released in the child", flush=True)
    sys.stdin.read()
    print("child ends", flush=True)
    os._exit(0)
time.sleep(60)
"""

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    found = open_sqlite(tmp_path / "catalog.db")
    yield found
    found.close()


@pytest.fixture
def owner(tmp_path: Path, catalog: SqlCatalog) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the warehouse with epoch 1."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENV
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process
        process.kill()


def test_take_and_release(tmp_path: Path, catalog: SqlCatalog) -> None:
    for epoch in (1, 2, 3):
        held = lease.take(tmp_path, catalog)
        assert held.epoch == epoch
        assert (known := catalog.lease()) is not None
        assert known == Lease(epoch, os.getpid(), socket.gethostname(), known.since)
        assert abs(known.since - time.time()) < 60
        assert json.loads((tmp_path / lease.FILE).read_text())["pid"] == os.getpid()
        held.release()
        held.release()
        assert catalog.lease() is None
        assert (tmp_path / lease.FILE).read_text() == ""


def test_another_process_is_named(tmp_path: Path, catalog: SqlCatalog, owner: subprocess.Popen[str]) -> None:
    host = socket.gethostname()
    with pytest.raises(OwnedError, match=f"close it there, or stop process {owner.pid} on {host}") as raised:
        lease.take(tmp_path, catalog)
    assert str(tmp_path) in str(raised.value)
    assert raised.value.retryable
    assert (known := catalog.lease()) is not None
    assert (known.epoch, known.pid) == (1, owner.pid)


def test_a_killed_owner_is_replaced_silently(tmp_path: Path, catalog: SqlCatalog, owner: subprocess.Popen[str]) -> None:
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert str(owner.pid) in (tmp_path / lease.FILE).read_text()
    held = lease.take(tmp_path, catalog)
    assert held.epoch == 2
    held.release()


def test_the_same_process_is_told_so(tmp_path: Path, catalog: SqlCatalog) -> None:
    held = lease.take(tmp_path, catalog)
    again = open_sqlite(tmp_path / "catalog.db")
    with pytest.raises(OwnedError, match=f"this very process \\(pid {os.getpid()} "):
        lease.take(tmp_path, again)
    again.close()
    assert (known := catalog.lease()) is not None
    assert known.epoch == held.epoch
    held.release()


def test_only_one_of_many_threads_gets_it(tmp_path: Path, catalog: SqlCatalog) -> None:
    held: list[lease.HeldLease] = []
    refused: list[OwnedError] = []

    def run() -> None:
        try:
            held.append(lease.take(tmp_path, catalog))
        except OwnedError as e:
            refused.append(e)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert (len(held), len(refused)) == (1, 7)
    held[0].release()


def test_a_forked_child_neither_frees_nor_keeps_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENV
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        assert parent.stdout.readline() == "released in the child\n"
        with pytest.raises(OwnedError, match=f"process {parent.pid} on"):
            lease.lock(tmp_path)
        parent.kill()
        parent.wait()
        lease.lock(tmp_path).release()  # though the child lives
        parent.stdin.close()
        assert parent.stdout.read() == "child ends\n"


def test_a_deleted_lock_file_lets_another_in_but_the_epoch_fences(tmp_path: Path, catalog: SqlCatalog) -> None:
    first = lease.take(tmp_path, catalog)
    (tmp_path / lease.FILE).unlink()
    second = lease.take(tmp_path, catalog)
    assert (first.epoch, second.epoch) == (1, 2)
    first.release()
    assert (known := catalog.lease()) is not None
    assert known.epoch == 2
    second.release()


def test_an_unreadable_holder_is_still_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_NAMING_SECONDS", 0.05)
    held = lease.lock(tmp_path)
    for content in ("", "{", '{"pid": "x"}', "[]"):
        (tmp_path / lease.FILE).write_text(content)
        with pytest.raises(OwnedError, match="does not say which"):
            lease.lock(tmp_path)
    held.release()


def test_the_lock_is_free_when_the_catalog_fails(tmp_path: Path, catalog: SqlCatalog) -> None:
    closed = open_sqlite(tmp_path / "catalog.db")
    held = lease.take(tmp_path, closed)
    closed.close()
    with pytest.raises(ClosedError):
        held.release()
    with pytest.raises(ClosedError):
        lease.take(tmp_path, closed)
    lease.take(tmp_path, catalog).release()


def test_a_missing_root_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none/owner\.lock.*check that the folder is there"):
        lease.lock(tmp_path / "none")


def test_who_may_live_on_without_knowing() -> None:
    here = socket.gethostname()
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    assert not lease.may_live(None)
    assert not lease.may_live(Lease(3, os.getpid(), here, 0.0))  # this process would know
    assert not lease.may_live(Lease(3, dead.pid, here, 0.0))
    assert lease.may_live(Lease(3, os.getppid(), here, 0.0))
    assert lease.may_live(Lease(3, dead.pid, f"not-{here}", 0.0))
