"""Owner and attach: who finds whom, what is seen when one of them goes, and that nothing is left behind."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.integration.attaching import MANY, SCHEMA, SPEC, eventually, rows
from tests.integration.owners import OwnerProcess
from tidewheel.cluster import address, listener, requests
from tidewheel.cluster.address import Address, Door
from tidewheel.cluster.attached import AttachedEngine
from tidewheel.cluster.client import attach, connect
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.engine.local_engine import LocalEngine
from tidewheel.errors import ClosedError, FencedError, InputError, NotFoundError, OwnedError, OwnerLostError, StagingLostError
from tidewheel.model.delivery import SliceId
from tidewheel.model.query import Query
from tidewheel.settings import Settings
from tidewheel.testing.probe import Probe, connection_of, engine_of, listener_of, sessions_of, tables_of


def results(engine: OwnedEngine) -> int:
    return sessions_of(engine).results


# ---- finding each other -------------------------------------------------------------------------------------


def test_nobody_is_there(root: Path) -> None:
    with pytest.raises(OwnerLostError, match="nobody owns the warehouse") as error:
        attach(root)
    assert error.value.untouched
    assert not root.exists()
    OwnedEngine(root, Settings()).close()
    with pytest.raises(OwnerLostError, match="nobody owns"):
        attach(root)


def test_an_owner_that_does_not_listen(root: Path) -> None:
    engine = OwnedEngine(root, Settings(), listen=False)
    with pytest.raises(OwnedError, match=r"but it does not listen yet\. Try again later, or close it there"):
        attach(root, wait=0.1)
    engine.close()


def test_an_owner_that_cannot_listen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "unix_location", lambda path: "nonsense")
    engine = OwnedEngine(root, Settings())
    assert listener_of(engine).wait(60)
    assert listener_of(engine).failure is not None
    with pytest.raises(OwnedError, match="it cannot listen"):
        attach(root, wait=0.1)
    Probe(engine.create(SPEC, "error")).insert(rows(10))  # but the warehouse works
    engine.close()


def test_the_address_of_a_dead_owner(root: Path, owned: OwnedEngine) -> None:
    owned.tenure.stop()  # which would put its address back
    door = address.read(root)
    assert door is not None
    address.publish(root, Door(door.location.replace("1.sock", "0.sock"), "x" * 32, 1, 0, requests.PROTOCOL))
    with pytest.raises(OwnedError, match="does not answer"):
        attach(root, wait=0.2)
    address.publish(root, door)
    attach(root).close()


@pytest.mark.parametrize("taken", ["address.json", "1.sock", ""])
def test_an_address_that_somebody_takes_away(root: Path, owned: OwnedEngine, taken: str) -> None:
    """It comes back: without it nobody could attach for as long as the owner lives."""
    before = attach(root)
    path = root / "owner" / taken
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    owned._watched()  # as twice a second
    attach(root, wait=30).close()
    assert tables_of(before) == tables_of(owned)
    before.close()


def test_the_address_of_another_owner_in_the_place_of_ours(root: Path) -> None:
    """An owner that is late to listen, and whose folder was moved away meanwhile, leaves the address of the next one alone."""
    late = OwnedEngine(root, Settings(), listen=False)
    door = listener.Listener(late, root, late.epoch, place=Path(late.files.path("")))
    root.rename(root.with_name("moved"))
    owner = OwnedEngine(root, Settings())
    assert listener_of(owner).wait(60)
    door.start(0)
    assert door.wait(60)
    attach(root).close()
    door.close()
    attach(root).close()
    assert address.read(root.with_name("moved")) is None
    with pytest.raises(FencedError):
        late.close()
    owner.close()


def test_only_its_user_may_look(root: Path, owned: OwnedEngine) -> None:
    assert stat.S_IMODE((root / "owner").stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "owner/address.json").stat().st_mode) == 0o600
    said = json.loads((root / "owner/address.json").read_text())
    assert (said["pid"], said["epoch"], said["protocol"]) == (os.getpid(), owned.epoch, requests.PROTOCOL)
    assert len(said["token"]) == 32


def test_nothing_stays_of_a_listener(root: Path) -> None:
    for _ in range(2):
        engine = OwnedEngine(root, Settings())
        assert listener_of(engine).wait(60)
        assert sorted(path.name for path in (root / "owner").iterdir()) == [f"{engine.epoch}.sock", "address.json"]
        engine.close()
        assert list((root / "owner").iterdir()) == []


@pytest.mark.parametrize("name", ["l" * 120, "a b", "50%", "ü", "a#b"])
def test_any_path(tmp_path: Path, name: str) -> None:
    engine = OwnedEngine(tmp_path.resolve() / name, Settings())
    assert listener_of(engine).wait(60)
    assert listener_of(engine).location.startswith("grpc://127.0.0.1:" if name in ("l" * 120, "50%", "a#b") else "grpc+unix://")
    client = attach(engine.root)
    assert Probe(client.create(SPEC, "error")).insert(rows(10)).rows == 10
    client.close()
    engine.close()


def test_the_token_is_asked_for(owned: OwnedEngine) -> None:
    door = address.read(owned.root)
    assert door is not None
    with pytest.raises(OwnerLostError, match="another token") as error:
        connect(owned.root, Door(door.location, "0" * 32, door.pid, door.epoch, door.protocol))
    assert error.value.untouched


def test_another_protocol(owned: OwnedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.cluster.connection.PROTOCOL", 99)
    with pytest.raises(OwnedError, match=r"speaks version \d+ of the protocol, and this process .* version 99"):
        attach(owned.root, wait=1)


def test_a_port_for_others(root: Path, tmp_path: Path) -> None:
    engine = OwnedEngine(root, Settings(), listen=False)
    door = listener.Listener(engine, root, engine.epoch, tcp=Address("127.0.0.1"))
    door.start()
    assert door.wait(60)
    assert door.failure is None
    client = connect(root, Door(door.tcp_location, door.token, 0, engine.epoch, requests.PROTOCOL))
    assert tables_of(client) == []
    client.close()
    attach(root).close()
    door.close()
    engine.close()


def test_tls(root: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no openssl to make a certificate with")
    engine = OwnedEngine(root, Settings(), listen=False)
    door = listener.Listener(engine, root, engine.epoch, tcp=Address("localhost", 0, certificate, key))
    door.start()
    assert door.wait(60)
    assert door.failure is None
    assert door.tcp_location.startswith("grpc+tls://localhost:")
    at = Door(door.tcp_location, door.token, 0, engine.epoch, requests.PROTOCOL)
    client = connect(root, at, certificate.read_bytes())
    assert tables_of(client) == []
    client.close()
    with pytest.raises(OwnerLostError):
        connect(root, at)
    door.close()
    engine.close()


def test_an_owner_listens_when_somebody_knocks(root: Path) -> None:
    engine = OwnedEngine(root, Settings(), listen=False)
    door = listener.Listener(engine, root, engine.epoch)
    door.start(delay=600)
    client = attach(root, wait=60)
    assert tables_of(client) == [] and door.location
    client.close()
    door.close()
    address.knock(root)  # by one who came too late
    again = listener.Listener(engine, root, engine.epoch)
    again.start(delay=600)
    assert eventually(lambda: not address.knocked(root))
    again.close()
    assert not again.location  # the old knock was for another
    engine.close()


def test_an_owner_that_is_closed_soon_loads_nothing(root: Path) -> None:
    """Before `DELAY`, which is as long here as the machine may be busy: `start` has it as a default."""
    code = f"""
import sys, tidewheel as tw
from tidewheel.cluster.listener import DELAY, Listener
assert Listener.start.__defaults__ == (DELAY,)
Listener.start.__defaults__ = (600.0,)
with tw.open({str(root)!r}) as wh:
    wh.tables()
assert "pyarrow.flight" not in sys.modules and "pyarrow._flight" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


# ---- the end of the owner -----------------------------------------------------------------------------------


def test_an_owner_that_closes(owned: OwnedEngine, attached: AttachedEngine) -> None:
    table = Probe(attached.create(SPEC, "error"))
    table.insert(rows(MANY))
    large, small = table.query(), table.query(Query(key=5, limit=7))
    assert not attached.lost
    owned.close()
    assert eventually(lambda: attached.lost)
    for call in (lambda: tables_of(attached), lambda: table.insert(rows(10)), large.to_arrow, table.state):
        with pytest.raises(OwnerLostError, match=r"it closed the warehouse.*nothing was done") as error:
            call()
        assert error.value.retryable
        assert error.value.untouched
    assert len(small.to_arrow()) == 7
    assert "is gone" in repr(large)


def test_an_owner_that_closes_in_the_middle_of_a_call(
    owned: OwnedEngine, attached: AttachedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not without a second Ctrl-C, which ends its patience. Who is attached has closed nothing, and may ask the next owner."""
    table, there = Probe(attached.create(SPEC, "error")), Probe(owned.table("t")).local
    traffic, flush = listener_of(owned)._traffic, there.flush
    assert traffic is not None

    def late() -> None:
        traffic.closing.set()
        LocalEngine.close(owned)
        flush()

    monkeypatch.setattr(there, "flush", late)
    with pytest.raises(OwnerLostError, match=r"the owner closed the warehouse during this call.*may be done or not") as error:
        table.flush()
    assert error.value.retryable and not error.value.untouched and attached.lost


def test_an_owner_that_is_interrupted_while_it_closes(
    owned: OwnedEngine, attached: AttachedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, patience: float) -> None:
        self.closing.set()
        raise KeyboardInterrupt

    monkeypatch.setattr("tidewheel.cluster.service.Traffic.close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        owned.close()
    assert not list((owned.root / "owner").iterdir()) and listener_of(owned) not in listener._listening
    assert eventually(lambda: attached.lost)
    OwnedEngine(owned.root, Settings()).close()


def test_an_owner_that_is_killed(root: Path) -> None:
    with OwnerProcess() as owner:
        owner.open(root)
        engine = attach(root)
        table = Probe(engine.create(SPEC, "error"))
        assert table.insert(rows(MANY)).rows == MANY
        result = table.query()
        batches = iter(result)
        next(batches)
        owner.kill()
    with pytest.raises(OwnerLostError):
        list(batches)
    assert eventually(lambda: engine.lost)
    with pytest.raises(OwnerLostError):
        table.insert(rows(10))
    engine.close()
    with pytest.raises(OwnerLostError, match="nobody owns"):
        attach(root)
    with tw.open(root) as wh:
        assert wh.table("t").rows == MANY


def test_the_next_call_takes_the_place_of_a_dead_owner(root: Path) -> None:
    with OwnerProcess() as owner:
        owner.open(root)
        with tw.open(root) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            table.insert(rows(1000))
            assert not engine_of(wh).owns
            owner.kill()
            eventually(lambda: Probe(table).last_engine.lost)
            assert table.insert(rows(10)).rows == 10  # it was known before the call that the owner is gone
            assert engine_of(wh).owns
            assert table.rows == 1010


def test_threads_whose_owner_another_thread_has_replaced(root: Path) -> None:
    """The first to notice attaches anew, and closes what is lost. The others have closed nothing: they hear that the owner is gone."""
    with OwnerProcess() as owner:
        owner.open(root)
        with tw.open(root) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            table.insert(rows(MANY))
            engine, old, result = engine_of(wh), Probe(Probe(table).engine), table.query()
            assert isinstance(engine, AttachedEngine)
            connection = connection_of(engine)
            lines = connection._lines.ask
            errors: list[BaseException] = []

            def late(message: bytes, wait: Any = None) -> Any:
                """An answer, or what broke it, that comes when the connection was closed."""
                try:
                    return lines(message, wait)
                finally:
                    eventually(lambda: connection._closed)

            def insert() -> None:
                try:
                    old.insert(rows(10))
                except BaseException as e:
                    errors.append(e)

            connection._lines.ask = late  # type: ignore[method-assign]
            owner.stop()
            under_way = threading.Thread(target=insert)
            under_way.start()
            assert eventually(lambda: connection._lines._busy)
            owner.kill()
            assert eventually(lambda: engine.lost)
            assert table.rows >= MANY
            assert engine_of(wh) is not engine and connection._closed
            under_way.join()
            for use in (old.state, lambda: tables_of(engine), lambda: engine.table("t"), result.to_arrow):
                with pytest.raises(OwnerLostError, match="is gone"):
                    use()
            (error,) = errors
            assert isinstance(error, OwnerLostError) and "may be there or not" in str(error)
        for use in (wh.tables, table.flush):
            with pytest.raises(ClosedError, match="was closed; open it again"):
                use()


class DiesOfIt:
    """The writing end of a line. The owner is killed as soon as a message was sent."""

    def __init__(self, writer: Any, owner: OwnerProcess) -> None:
        self.writer, self.owner = writer, owner

    def write_metadata(self, message: bytes) -> None:
        self.writer.write_metadata(message)
        self.owner.kill()

    def close(self) -> None:
        self.writer.close()


def test_what_is_known_when_the_owner_dies_in_the_middle(root: Path) -> None:
    with OwnerProcess() as owner:
        owner.open(root)
        engine = attach(root)
        table = Probe(engine.create(SPEC, "error"))
        (line,) = connection_of(engine)._lines._idle
        line._writer = DiesOfIt(line._writer, owner)
        owner.stop()
        with pytest.raises(OwnerLostError, match="may be there or not") as error:
            table.insert(rows(10))
        assert not error.value.untouched
        engine.close()


# ---- the end of those who attach ----------------------------------------------------------------------------


def test_a_result_is_held_as_long_as_somebody_has_it(owned: OwnedEngine, attached: AttachedEngine) -> None:
    table = Probe(attached.create(SPEC, "error"))
    table.insert(rows(MANY))
    small = table.query(Query(key=5, limit=10))
    assert results(owned) == 0  # its rows are here
    large = table.query()
    copy = large
    assert results(owned) == 1
    assert listener_of(owned).idle_seconds() == pytest.approx(0, abs=0.5)
    del large
    assert copy.to_arrow().num_rows == MANY
    del copy
    assert eventually(lambda: results(owned) == 0)
    cancelled = table.query()
    cancelled.cancel()
    assert eventually(lambda: results(owned) == 0)
    assert len(small.to_arrow()) == 10
    assert eventually(lambda: listener_of(owned).idle_seconds() > 0.1)


def test_who_vanishes_leaves_nothing(root: Path, owned: OwnedEngine) -> None:
    Probe(owned.create(SPEC, "error")).insert(rows(MANY))
    code = f"""
import os, time
from pathlib import Path
from tidewheel.cluster.client import attach
from tidewheel.testing.probe import Probe
table = Probe(attach(Path({str(root)!r})).table("t"))
results = [table.query() for _ in range(3)]
batches = iter(results[0])
next(batches)
print("now", flush=True)
time.sleep(100)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "now\n"
    assert results(owned) == 3
    process.kill()
    process.wait()
    assert eventually(lambda: results(owned) == 0)


def test_a_result_that_nobody_touches(owned: OwnedEngine, attached: AttachedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    (held,) = sessions_of(owned)._sessions.values()
    monkeypatch.setattr(held, "seconds", 0.0)
    table = Probe(attached.create(SPEC, "error"))
    table.insert(rows(MANY))
    result = table.query()
    assert eventually(lambda: results(owned) == 0)
    with pytest.raises(NotFoundError, match=r"not held any more.*Ask the query again"):
        result.to_arrow()
    monkeypatch.setattr(held, "seconds", 900.0)
    assert table.query(Query(key=5)).to_arrow().num_rows == MANY // 100


def test_a_session_that_ended_before_its_result_was_read(owned: OwnedEngine, attached: AttachedEngine) -> None:
    """An owner that closes ends its sessions before its last calls: whoever comes then may ask the next owner."""
    table = Probe(attached.create(SPEC, "error"))
    table.insert(rows(MANY))
    result = table.query()
    sessions = sessions_of(owned)
    for session in list(sessions._sessions):
        sessions.end(session)
    with pytest.raises(OwnerLostError, match="not attached to the owner any more; ask the query again") as error:
        result.to_arrow()
    assert error.value.retryable


def test_an_owner_does_not_wait_for_who_does_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped while it takes rows."""
    monkeypatch.setattr(listener, "PATIENCE", 1.0)
    owned = OwnedEngine(root, Settings())
    assert listener_of(owned).wait(60)
    Probe(owned.create(SPEC, "error")).insert(rows(3_000_000))
    code = f"""
from pathlib import Path
from tidewheel.cluster.client import attach
from tidewheel.testing.probe import Probe
table = Probe(attach(Path({str(root)!r})).table("t"))
result = table.query()
print("now", flush=True)
while True:
    result.to_arrow()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "now\n"
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGSTOP)
    began = time.monotonic()
    owned.close()
    assert time.monotonic() - began < listener.PATIENCE + 15
    process.kill()
    process.wait()


def test_a_sender_that_breaks_off(owned: OwnedEngine, attached: AttachedEngine) -> None:
    table = Probe(attached.create(SPEC, "error"))
    slice_id = SliceId("s", "r", 0, 0, 0)

    def fails() -> Iterator[pa.RecordBatch]:
        yield rows(10)
        raise ZeroDivisionError("upstream")

    with pytest.raises(ZeroDivisionError, match="upstream"):
        table.stage(slice_id, fails(), SCHEMA)
    with pytest.raises(StagingLostError):
        table.commit_batch("s", "r", 0, [slice_id])
    assert table.stage(slice_id, [rows(10), rows(5)], SCHEMA).rows == 15
    assert table.commit_batch("s", "r", 0, [slice_id]).rows == 15
    assert not attached.lost


def test_a_sender_is_told_why_its_rows_are_refused_however_slowly_they_come(
    owned: OwnedEngine, attached: AttachedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To hear an answer in the middle of its sending would be to lose it: Flight drops what was said when it finds that nobody listens."""
    table = Probe(attached.create(SPEC, "error"))

    def slowly() -> Iterator[pa.RecordBatch]:
        for n in range(4):
            yield rows(10_000, n)
            time.sleep(0.1)

    publisher = Probe(owned.table("t")).publisher
    monkeypatch.setattr(publisher, "settings", replace(publisher.settings, max_batch_bytes=5000))
    with pytest.raises(InputError, match="batch 0 of stream s has more than 5,000 bytes"):
        table.stage(SliceId("s", "r", 0, 0, 0), slowly(), SCHEMA)
    del publisher
    owned.drop("t")
    with pytest.raises(ClosedError, match="'t' was dropped"):
        table.stage(SliceId("s", "r", 0, 0, 0), slowly(), SCHEMA)
    assert not attached.lost and tables_of(attached) == []


# ---- forks --------------------------------------------------------------------------------------------------

FORK = """
import os, sys, time
from pathlib import Path
import pyarrow as pa
import tidewheel as tw
from tests.chunks import chunks_left
from tidewheel.cluster.client import attach
from tidewheel.errors import ClosedError, OwnedError
from tidewheel.testing.probe import Probe, listener_of, owner_of, tables_of

root = Path(sys.argv[1])
def wait(pid):
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.01)
    os.kill(pid, 9)
    return "it hangs"
"""


def fork_test(root: Path, code: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORK + code, str(root)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_a_fork_of_an_attached_process(root: Path, owned: OwnedEngine) -> None:
    Probe(owned.create(SPEC, "error")).insert(rows(MANY))
    fork_test(root, """
engine = attach(root)
table = Probe(engine.table("t"))
result = table.query()
pid = os.fork()
if pid == 0:
    for use in (lambda: tables_of(engine), table.flush, result.to_arrow):
        try:
            use()
            os._exit(3)
        except ClosedError as e:
            assert "was forked" in str(e), e
    try:
        attach(root)
        os._exit(4)
    except OwnedError as e:
        assert "does not survive a fork" in str(e), e
    sys.exit(0)  # the normal way, with everything that is done then
assert wait(pid) == 0
assert result.to_arrow().num_rows == 300000
engine.close()
""")  # fmt: skip
    assert eventually(lambda: results(owned) == 0)


def test_a_fork_of_an_owner(root: Path) -> None:
    fork_test(root, """
wh = tw.open(root)
wh.create_table("t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="id").insert([{"id": 1, "ts": 1}])
listener_of(owner_of(wh)).wait(30)
pid = os.fork()
if pid == 0:
    try:
        wh.tables()
        os._exit(3)
    except ClosedError as e:
        assert f"belongs to process {os.getppid()}, from which this one was forked" in str(e), e
    wh.close()  # which is the parent's: it goes on, with all that it has not flushed
    sys.exit(0)
assert wait(pid) == 0
assert wh.table("t").rows == 1
idle = os.fork()  # one that stays: it must not keep the door open
if idle == 0:
    time.sleep(100)
engine = attach(root)
assert tables_of(engine) == ["t"]
engine.close()
wh.table("t").flush()
wh.close()
try:
    attach(root)
    sys.exit(5)
except OwnedError as e:
    assert "nobody owns" in str(e), e
os.kill(idle, 9)
os.waitpid(idle, 0)
""")  # fmt: skip


def test_a_fork_of_an_owner_has_a_warehouse_of_its_own(root: Path) -> None:
    """It owns it as any other process would, but for letting others in: that is Flight's, which does not survive a fork."""
    fork_test(root, """
wh = tw.open(root)
listener_of(owner_of(wh)).wait(30)
for closes in (True, False):
    pid = os.fork()
    if pid == 0:
        own = tw.open(root.parent / f"own-{closes}")
        assert listener_of(owner_of(own)).wait(30) and "does not survive a fork" in str(listener_of(owner_of(own)).failure)
        table = own.create_table("t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="id")
        table.insert([{"id": 1, "ts": 1}])
        if closes:
            own.close()
        sys.exit(0)
    assert wait(pid) == 0, closes
    with tw.open(root.parent / f"own-{closes}") as own:
        assert own.table("t").rows == 1
wh.close()
""")  # fmt: skip


def test_a_fork_of_an_owner_is_told_at_once(root: Path) -> None:
    """Also while the owner is only about to listen. The refused child ends as it wants to."""
    fork_test(root, """
for listens in (False, True):
    wh = tw.open(root)
    if listens:
        listener_of(owner_of(wh)).wait(30)
    pid = os.fork()
    if pid == 0:
        began = time.monotonic()
        for use in (wh.tables, lambda: wh.sql("SHOW TABLES").to_arrow(), lambda: wh.drop_table("t")):
            try:
                use()
                sys.exit(2)
            except ClosedError as e:
                assert "belongs to process" in str(e), e
        try:
            tw.open(root)
            sys.exit(3)
        except OwnedError as e:
            assert not e.retryable and f"process {os.getppid()}" in str(e) and "does not survive a fork" in str(e), e
        assert time.monotonic() - began < 5, "it waited"
        sys.exit(0)
    assert wait(pid) == 0, listens
    wh.close()
""")  # fmt: skip


def test_a_fork_removes_no_file_that_its_parent_reads(root: Path) -> None:
    fork_test(root, """
wh = tw.open(root, settings=tw.Settings(map_chunks=False))
table = wh.create_table("t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="id")
table.insert([{"id": 1, "ts": 1}])
table.flush()
result = table.query()
wh.drop_table("t")
pid = os.fork()
if pid == 0:
    del table, result
    sys.exit(0)
assert wait(pid) == 0
assert result.to_arrow().num_rows == 1
del table, result
assert not chunks_left(root / "tables")
wh.close()
""")  # fmt: skip


# ---- interrupts ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("what", ["to_arrow", "count", "query", "iterated"])
def test_ctrl_c(owned: OwnedEngine, attached: AttachedEngine, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Probe(attached.create(SPEC, "error"))
    table.insert(rows(MANY))
    slow = Query(where="md5(" * 300 + "x::varchar" + ")" * 300 + " <> ''")
    if what == "query":
        there = Probe(owned.table("t")).local
        plain = there.query
        monkeypatch.setattr(there, "query", lambda query: (time.sleep(1.0), plain(query))[1])
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        result = table.query(Query() if what == "query" else slow)
        _ = result.to_arrow() if what == "to_arrow" else len(result) if what == "count" else list(result)
    assert time.monotonic() - began < 15
    result = None
    gc.collect()
    assert table.query(Query(key=5)).to_arrow().num_rows == MANY // 100
    assert eventually(lambda: results(owned) == 0)


def test_ctrl_c_at_any_moment_leaves_nothing_held(owned: OwnedEngine, attached: AttachedEngine, interruptible: None) -> None:
    """Also between the owner's answer and the result that is made of it."""
    table = Probe(attached.create(SPEC, "error"))
    table.insert(rows(MANY))
    began = time.perf_counter()
    table.query()
    takes = time.perf_counter() - began
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupts, kept = 0, list[object]()
    for number in range(150):
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-4, takes * 1.5 * number / 150))
            kept.append(table.query())
            time.sleep(2 * takes + 0.2)  # it always comes in here
        except KeyboardInterrupt:
            interrupts += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        kept.clear()  # now: an interrupt in the middle of letting go would be lost
    signal.signal(signal.SIGALRM, before)
    assert interrupts == 150
    gc.collect()
    assert eventually(lambda: results(owned) == 0), results(owned)


def test_closed(attached: AttachedEngine) -> None:
    table = Probe(attached.create(SPEC, "error"))
    attached.close()
    attached.close()
    for use in (lambda: tables_of(attached), lambda: table.insert(rows(1)), lambda: table.query()):
        with pytest.raises(ClosedError, match="was closed; open it again"):
            use()


def test_a_stranger_at_the_door(owned: OwnedEngine) -> None:
    """Whoever talks nonsense gets no answer, and harms nobody."""
    location = listener_of(owned).location.removeprefix("grpc+unix://")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(location)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.settimeout(5)
        stranger.recv(100)
    client = attach(owned.root)
    assert tables_of(client) == []
    client.close()
