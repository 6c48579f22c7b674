"""A thread that does the calls of the main thread, and what nobody waits for.

A call of Flight cannot be interrupted; waiting for a thread can. So Ctrl-C ends the wait, and the call is left to end by itself.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_numbers = itertools.count(1)


class _Job:
    """Something to do, and what came of it, once."""

    __slots__ = ("_abandoned", "_done", "_error", "_results", "_work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work: Callable[[], Any] | None = work
        self._abandoned = False
        self._results: list[Any] = []
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def do(self) -> None:
        work, self._work = self._work, None
        try:
            assert work is not None
            self._results.append(work())
        except BaseException as e:
            self._error = e
        del work
        self._done.release()
        if self._abandoned:
            self._throw_away()

    def wait(self) -> Any:
        self._done.acquire()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._results.pop()
        finally:
            del error  # an error that can be reached from its own traceback would stay, and all its frames with it

    def abandon(self) -> None:
        """Nobody waits any more. What comes of it is thrown away, wherever that is noticed first."""
        self._abandoned = True
        if self._done.acquire(blocking=False):
            self._throw_away()

    def _throw_away(self) -> None:
        self._error = None
        self._results.clear()


class Aside:
    """Every method may be called from any thread, `later` even from a finalizer."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.ended = True
        """After `close`: whether it left nothing under way."""
        self._lock = threading.Lock()

    def run(self, work: Callable[[], T]) -> T:
        """Do it now. An interrupt ends the wait; what comes of it then is thrown away, and another thread does what is next."""
        if threading.current_thread() is not threading.main_thread():
            return work()
        job = _Job(work)
        self.start()
        self._jobs.put(job)
        if self._closed:  # meanwhile, or before: its thread may have ended without a look at this
            _thread(self._jobs).start()
            self._jobs.put(None)
        try:
            return job.wait()  # type: ignore[no-any-return]
        except BaseException as e:
            if not isinstance(e, Exception):
                self._leave_behind()
                job.abandon()
            raise

    def later(self, work: Callable[[], Any]) -> None:
        """Do it some time; nobody wants to know how it went. The thread is started by `start`, not in here."""
        self._jobs.put(_Job(work))

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
        """Do what is left, and end the thread. What comes after that is still done, by a thread of its own."""
        with self._lock:
            self._closed = True  # first: whoever puts a job behind the end sees it
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
            self.ended = not thread.is_alive()


def _thread(jobs: SimpleQueue[_Job | None]) -> threading.Thread:
    return threading.Thread(target=_work, args=(jobs,), name=f"tidewheel-aside-{next(_numbers)}", daemon=True)


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.do()
        del job
