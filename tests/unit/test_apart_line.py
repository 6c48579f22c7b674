"""The line to a process apart: a message that was left off in the middle is not taken for others; a process that is not needed ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from tidewheel.env.workers import _HEAD, READY, EndedError, Line, Worker
from tidewheel.read import apart
from tidewheel.sql import apart_process


class Enough(Exception):
    """Whoever waits has waited long enough."""


def enough() -> None:
    raise Enough


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("came", [1, _HEAD.size, _HEAD.size + 5])
def test_a_message_that_is_left_off(ends: tuple[socket.socket, socket.socket], came: int) -> None:
    ours, theirs = ends
    line = Line(ours)
    with pytest.raises(Enough):
        line.receive(bytearray, enough)
    assert line.whole  # nothing of it had come
    message = _HEAD.pack(apart.ROWS, 7, 10) + b"0123456789"
    theirs.send(message[:came])
    with pytest.raises(Enough):
        line.receive(bytearray, enough)
    assert not line.whole
    theirs.setblocking(False)
    assert not apart._stopped(cast(Worker, SimpleNamespace(line=line)))
    with pytest.raises(BlockingIOError):  # and it is not spoken to any more
        theirs.recv(1)


def test_a_message_that_does_not_fit(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    line = Line(ours)
    with pytest.raises(Enough):
        line.send(apart.BATCH, data=bytes(16 << 20), check=enough)
    assert not line.whole


def test_memory_that_is_not_there(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    line = Line(ours)
    theirs.send(_HEAD.pack(apart.ROWS, 7, 10))

    def none(size: int) -> bytearray:
        raise MemoryError

    with pytest.raises(MemoryError):
        line.receive(none)
    assert not line.whole


def test_a_line_in_step_is_used_again(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = Line(ends[0]), Line(ends[1])
    theirs.send(apart.NEXT, 3)
    theirs.send(apart.DONE)
    assert apart._stopped(cast(Worker, SimpleNamespace(line=ours)))
    assert [theirs.receive(bytearray)[:2] for _ in range(2)] == [(apart.STOP, 0), (apart.FAIL, 3)]


def test_a_process_without_work_ends(ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose work ends while it listens: nobody tells the thread that does."""
    monkeypatch.setattr(apart_process, "IDLE", 0.01)
    ours = Line(ends[0])
    process = apart_process._Process(Line(ends[1]))
    looks = iter([True])
    process.busy = cast(threading.Event, SimpleNamespace(is_set=lambda: next(looks, False)))
    listening = threading.Thread(target=_listen, args=(process,), daemon=True)
    listening.start()
    assert ours.receive(bytearray)[0] == READY
    listening.join(10)
    ended = not listening.is_alive()
    ends[0].close()
    listening.join(10)
    assert ended


def _listen(process: apart_process._Process) -> None:
    with suppress(EndedError):
        process.listen()
