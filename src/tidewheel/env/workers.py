"""Processes apart: each does one piece of work at a time for this one, and can be ended at any moment without harm to anybody.

A worker is started from scratch (never forked), talks to this process alone, over a pair of sockets, and waits for the next piece of work
when one is done. It ends when it has had none for a while, when the last warehouse of this process is closed, and when this process ends
in whatever way. A thread for each waits for its end, so that none stays in the system's list of processes.
"""

from __future__ import annotations

import glob
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from tidewheel.errors import StorageError

IDLE = 60.0
"""Seconds that a worker waits for more work before it ends by itself."""

TICK = 0.01
"""Seconds between two looks at the clock and at a worker's memory."""

_MOST_IDLE = 2
_START = 60.0
"""Seconds that a worker may take to start."""

_HEAD = struct.Struct("<BQQ")
"""Of a message: what it is, a number, and how many bytes follow."""

READY = 0

_PAGE = os.sysconf("SC_PAGE_SIZE")


class EndedError(Exception):
    """The other end is gone."""


class Line:
    """One end of the talk between two processes: whole messages, each a kind, a number and bytes. Sending and receiving are apart: one
    thread each."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._sent = self._received = True
        """The last message that was begun came to its end."""

    @property
    def whole(self) -> bool:
        """No message was left off in the middle: what comes next begins one."""
        return self._sent and self._received

    def send(self, kind: int, number: int = 0, data: Any = b"", check: Callable[[], None] | None = None) -> None:
        """`check` is called while it waits, and may raise."""
        body = memoryview(data).cast("B")
        self._sent = False
        self._send(memoryview(_HEAD.pack(kind, number, len(body))), check)
        self._send(body, check)
        self._sent = True

    def _send(self, left: memoryview, check: Callable[[], None] | None) -> None:
        while left:
            try:
                left = left[self._end.send(left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, check)
            except OSError:
                raise EndedError from None

    def receive(self, make: Callable[[int], Any], check: Callable[[], None] | None = None) -> tuple[int, int, Any]:
        """The next message. `make` gives the memory for its bytes."""
        head = bytearray(_HEAD.size)
        self._receive(memoryview(head), check)
        kind, number, size = _HEAD.unpack(head)
        data = make(size)
        self._receive(memoryview(data).cast("B"), check)
        self._received = True
        return kind, number, data

    def _receive(self, into: memoryview, check: Callable[[], None] | None) -> None:
        while into:
            try:
                took = self._end.recv_into(into)
                self._received = False
            except BlockingIOError:
                self._wait(select.POLLIN, check)
                continue
            except OSError:
                took = 0
            if not took:
                raise EndedError
            into = into[took:]

    def _wait(self, event: int, check: Callable[[], None] | None) -> None:
        poll = select.poll()
        poll.register(self._end, event)
        while not poll.poll(TICK * 1000 if check is not None else None):
            assert check is not None
            check()
        if check is not None:
            check()

    def silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return not poll.poll(seconds * 1000)

    def close(self) -> None:
        self._end.close()


class Worker:
    """Used by one thread at a time; `kill` by any."""

    def __init__(self, module: str, check: Callable[[], None]) -> None:
        """Start one, and wait until it is ready. `check` is called meanwhile, and may raise."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, size, 1 << 20)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", env=environment(),
                    pass_fds=(theirs.fileno(),), start_new_session=True,
                )  # fmt: skip
        except OSError as e:
            ours.close()
            raise StorageError(f"could not start a process for the statement: {e}") from None
        self.pid = self._process.pid
        self.line = Line(ours)
        self._statm, self._stat = (self._facts(name) for name in ("statm", "stat"))
        threading.Thread(target=self._reap, name=f"tidewheel-worker-{self.pid}", daemon=True).start()
        try:
            give_up = monotonic() + _START

            def patient() -> None:
                check()
                if monotonic() > give_up:
                    raise EndedError

            self.line.receive(bytearray, patient)
            self.base = self.memory()
            """What it has without any work."""
        except EndedError:
            self.kill()
            raise StorageError(
                f"the process for the statement could not start: {sys.executable} -m {module} ended, or did not answer in {_START:g} s"
            ) from None
        except BaseException:
            self.kill()
            raise

    def _reap(self) -> None:
        self._process.wait()
        for folder in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"tidewheel-sql-{self.pid}-*")):
            shutil.rmtree(folder, ignore_errors=True)  # what it had written aside, if it was killed

    def is_alive(self) -> bool:
        return self._process.returncode is None and self.line.silent(0)

    def _facts(self, name: str) -> int:
        """A descriptor of what the system says of the process; -1 where it says nothing. Opened once and read again and again: a Ctrl-C
        while a file is opened anew leaves it open. Closed with this object, when no thread can be reading it."""
        try:
            found = os.open(f"/proc/{self.pid}/{name}", os.O_RDONLY)
        except OSError:
            return -1
        weakref.finalize(self, os.close, found).atexit = False
        return found

    def memory(self) -> int:
        """Bytes that it has for itself. 0 where the system does not tell."""
        with suppress(OSError, ValueError, IndexError):
            words = os.pread(self._statm, 1024, 0).split()
            return (int(words[1]) - int(words[2])) * _PAGE
        return 0

    def work(self) -> str:
        """How much it has worked so far, of the processor's time: any word, and another one when it is more."""
        with suppress(OSError):
            return b" ".join(os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()[11:13]).decode()
        return str(monotonic())

    def kill(self) -> None:
        """End it now, whatever it does. May be called twice."""
        with suppress(OSError):
            self._process.kill()
        self.line.close()


class Workers:
    """Those of this process. Every method may be called from any thread."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()

    def take(self, check: Callable[[], None]) -> Worker:
        """One that has nothing to do, perhaps a new one."""
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None:
                made = Worker(self._module, check)
                self._all.add(made)
                return made
            if found.is_alive():
                return found
            self.end(found)

    def give_back(self, worker: Worker) -> None:
        """It is done, and ready for more."""
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(worker)
                return
        self.end(worker)

    def end(self, worker: Worker) -> None:
        self._all.discard(worker)
        worker.kill()

    def end_idle(self) -> None:
        """Nobody will want them soon."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            self.end(worker)

    def forget(self) -> None:
        """In a forked child: they are the parent's. They are kept, so that nothing of theirs is closed."""
        _of_the_parent.append((self._idle, self._all))
        self._lock, self._idle, self._all = threading.Lock(), [], set()


_of_the_parent: list[Any] = []

workers = Workers("tidewheel.sql.apart_start")
os.register_at_fork(after_in_child=workers.forget)


def environment() -> dict[str, str]:
    """For a process that is started here: the same Tidewheel, also if this one found it next to its folder."""
    places = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    ours = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*places, *([] if ours in places else [ours])])}
