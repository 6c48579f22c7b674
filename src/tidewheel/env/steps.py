"""Work that another thread does, so that whoever waits for it can be interrupted, or mind the clock.

A call of Flight or of DuckDB cannot be interrupted; waiting for a thread can. So Ctrl-C, a timeout or `cancel` ends the wait, and the work
is asked to end, or left to itself. `Step` is one piece of such work: long steps of a query have a thread each (`read.limits`), and so
has a statement of the shell (`surfaces.shell.running`). `Aside` is a thread that does many: the calls of a process that is attached.

Two others have threads of their own and are no steps: work that tells how far it is (`cluster.handlers`) has a word for its listener again
and again, and no key can interrupt that one; a new engine (`cluster.current_engine`) is awaited by many threads at once.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from tidewheel.env.interrupts import Flag

T = TypeVar("T")

_numbers = itertools.count(1)


class Step(Generic[T]):
    """Something to do once, and what came of it, kept for one who waits. One thread does it, and another waits for it."""

    __slots__ = ("_error", "_over", "_result", "_work", "thread", "unwanted")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._over = Flag()
        self.thread: int | None = None
        """The thread that does it, once it has begun."""
        self.unwanted = False
        """Whoever wanted it was interrupted, perhaps before it had begun. Then it need not begin."""

    def start(self, name: str) -> None:
        """Do it in a thread of its own."""
        threading.Thread(target=self.do, name=name, daemon=True).start()

    def do(self) -> None:
        """Do it in this thread."""
        work, self._work = self._work, None
        self.thread = threading.get_ident()
        try:
            if work is not None and not self.unwanted:
                self._result.append(work())
        except BaseException as e:  # it belongs to whoever waits
            self._error = e
        finally:
            del work
            if self.unwanted:
                self._forget()
            self._over.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has ended, after so long at most."""
        return self._over.wait(seconds)

    def outcome(self) -> T:
        """What came of it, when it has ended. Once."""
        error = self._error
        if error is None:
            return self._result.pop()
        try:
            raise error
        finally:
            self._forget()
            del error

    def give_up(self) -> None:
        """Nobody waits any more. What comes of it is dropped, here or by its own thread, wherever that is noticed first."""
        self.unwanted = True
        self._forget()

    def _forget(self) -> None:
        """An error that can be reached from its own traceback would stay for long, and all its frames with it."""
        self._error = None
        self._result.clear()


class Aside:
    """A thread that does the calls of the main thread, and work that nobody waits for.

    Every method may be called from any thread, `later` even from a finalizer.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Step[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.ended = True
        """After `close`: whether it left nothing under way."""
        self._lock = threading.Lock()

    def run(self, work: Callable[[], T]) -> T:
        """Do it now. An interrupt ends the wait: the outcome is dropped, and another thread does the work that comes next."""
        if threading.current_thread() is not threading.main_thread():
            return work()
        job = Step(work)
        self.start()
        self._jobs.put(job)
        if self._closed:  # meanwhile, or before: its thread may have ended without a look at this
            _thread(self._jobs).start()
            self._jobs.put(None)
        try:
            job.wait()
            return job.outcome()
        except BaseException as e:
            if not isinstance(e, Exception):
                self._leave_behind()
                job.give_up()
            raise

    def later(self, work: Callable[[], Any]) -> None:
        """Do it some time; nobody wants to know how it went. The thread is started by `start`, not in here."""
        self._jobs.put(Step(work))

    def start(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed:
                    thread = _thread(self._jobs)
                    thread.start()
                    self._thread = thread

    def _leave_behind(self) -> None:
        with self._lock:
            self._jobs.put(None)
            self._jobs, self._thread = SimpleQueue(), None
        self.start()

    def close(self) -> None:
        """Do what is left, and end the thread. Work that comes after that is still done, by a thread of its own."""
        with self._lock:
            self._closed = True  # first: whoever puts a job behind the end sees it
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
            self.ended = not thread.is_alive()


def _thread(jobs: SimpleQueue[Step[Any] | None]) -> threading.Thread:
    return threading.Thread(target=_work, args=(jobs,), name=f"tidewheel-aside-{next(_numbers)}", daemon=True)


def _work(jobs: SimpleQueue[Step[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.do()
        del job
