"""The engine that this process uses for a warehouse now: its own, if it is the owner, or one that is attached to the owner.

There is one `CurrentEngine` per process and root, shared by all that open it. The first process to open a root owns it; others attach. If
the owner dies, the call that noticed raises `OwnerLostError`; the next one finds the engine `lost` and takes a new one: attached to
whoever owns the warehouse by then, or owning it, recovery included. A thread takes it, so that a call with a deadline need not wait to
the end.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tidewheel.cluster import address
from tidewheel.cluster.root_folder import check_place
from tidewheel.engine.protocol import Engine, TableEngine
from tidewheel.env import deadline
from tidewheel.env.workers import workers
from tidewheel.errors import ClosedError, OwnedError, SettingsError, TidewheelError
from tidewheel.model.report import Progress
from tidewheel.settings import Settings

_LOOK = 0.01
"""Seconds between two looks at whether a new engine is there."""

_LEAVE = 1.0
"""Seconds that the last user, on leaving, waits for an engine that is being taken."""

PATIENCE = 10.0
"""Seconds that a change of owners may take before it is an error: one is gone, and the next does not answer yet."""


class CurrentEngine:
    """Every method may be called from any thread."""

    def __init__(self, root: Path, settings: Settings | None, progress: Progress | None = None) -> None:
        self.root = root
        self.users = 1
        self._wanted = settings
        self._lock = threading.Lock()
        self._closed = False
        self._taking: _Taking | None = None
        self._engine = _take(root, settings, progress=progress)

    def engine(self) -> Engine:
        """The engine to use now."""
        engine = self._engine
        return self._anew() if engine.lost else engine

    def _anew(self) -> Engine:
        with self._lock:
            if self._closed:
                raise ClosedError(f"the warehouse {self.root} was closed; open it again")
            if not self._engine.lost:
                return self._engine
            if self._taking is None:
                self._taking = _Taking(self)
            taking = self._taking
        while not taking.over:
            if deadline.left() > 0:
                time.sleep(_LOOK)
                continue
            raise deadline.late(
                f"the owner of the warehouse {self.root} was lost, and the next is not there yet; nothing was done", retryable=True
            )
        return taking.outcome()

    def _take_anew(self) -> Engine:
        """In a thread of its own, one at a time. If the last user left meanwhile, what was taken is closed."""
        self._engine.close()
        engine = _take(self.root, self._wanted, anew=True)
        with self._lock:
            if not self._closed:
                self._engine = engine
                return engine
        engine.close()
        raise ClosedError(f"the warehouse {self.root} was closed; open it again")

    @property
    def fenced(self) -> bool:
        """Whether it is over with: an `open` of the warehouse makes a new one."""
        return self._engine.fenced

    def table(self, name: str) -> TableEngine:
        """A table of the engine in use now."""
        return self.engine().table(name)

    def check_settings(self, settings: Settings | None) -> None:
        """An attached process has the owner's settings, whatever it asks for: only the owner can be asked for others."""
        if settings is not None and self._engine.owns and settings != self._engine.settings:
            raise SettingsError(f"{self.root} is open in this process with other settings; close it first")

    def leave(self) -> None:
        """One user less; the last one closes the engine."""
        with _engines_lock:
            self.users -= 1
            if self.users > 0:
                return
            if _engines.get(self.root) is self:
                del _engines[self.root]
            if not _engines:
                workers.end_idle()
        with self._lock:
            if self._closed:  # in a forked child: the parent goes on with it
                return
            self._closed = True
            taking = self._taking
        if taking is not None:
            taking.wait(_LEAVE)  # if it takes longer, the thread closes what it took by itself
        self._engine.close()


class _Taking:
    """A new engine being taken, and the threads that wait for it. Made with the lock of its `CurrentEngine` held."""

    def __init__(self, current: CurrentEngine) -> None:
        self.over = False
        """Looked at from time to time: an interrupt of whoever waits must not be in the way of the others."""
        self._current = current
        self._engine: Engine | None = None
        self._error: TidewheelError | None = None
        threading.Thread(target=self._run, name="tidewheel-take", daemon=True).start()

    def _run(self) -> None:
        try:
            self._engine = self._current._take_anew()
        except TidewheelError as e:
            self._error = e
        except BaseException as e:
            self._error = TidewheelError(f"the warehouse {self._current.root} could not be opened: {e!r}")
            raise
        finally:
            with self._current._lock:
                self._current._taking = None
            self.over = True

    def wait(self, seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while not self.over and time.monotonic() < give_up:
            time.sleep(_LOOK)

    def outcome(self) -> Engine:
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._engine is not None
        return self._engine


def _take(root: Path, settings: Settings | None, anew: bool = False, progress: Progress | None = None) -> Engine:
    """Own the warehouse if nobody does, else attach to its owner. `anew`: it was there before, so none is made."""
    give_up = time.monotonic() + PATIENCE
    while True:
        if not address.is_owned(root):
            with suppress(OwnedError):  # somebody was faster
                return _own(root, settings, anew, progress)
        from tidewheel.cluster.client import attach

        try:
            return attach(root, wait=PATIENCE)
        except OwnedError as e:  # it does not answer: just starting, or just gone; or it never will
            if not e.retryable or time.monotonic() > give_up:
                try:
                    return _own(root, settings, anew, progress)
                except OwnedError as owned:  # which says who it is
                    raise OwnedError(f"{owned}. This process could not attach to it: {e}", e.retryable) from e
            time.sleep(0.05)


def _own(root: Path, settings: Settings | None, anew: bool, progress: Progress | None) -> Engine:
    from tidewheel.cluster.owner import OwnedEngine  # here: who attaches needs none of its kernels, which take long to load

    return OwnedEngine(root, settings or Settings(), anew=anew, progress=progress)


_engines: dict[Path, CurrentEngine] = {}
_engines_lock = threading.RLock()


def open_engine(
    path: str | os.PathLike[str], settings: Settings | None, progress: Progress | None = None, create: bool = True
) -> CurrentEngine:
    """The engine of a root: taken by the first call in this process, shared by later ones. `progress`: of a recovery, if there is one.

    `create`: make the warehouse if it is not there; else NotFoundError.
    """
    try:
        root = Path(path).expanduser().resolve()
    except (ValueError, RuntimeError, OSError) as e:
        raise SettingsError(f"{path!r} cannot be the folder of a warehouse: {e}") from None
    with _engines_lock:
        there = _engines.get(root)
        if there is not None and not there.fenced:
            there.check_settings(settings)
            there.users += 1
            return there
        check_place(root, create)
        current = _engines[root] = CurrentEngine(root, settings, progress)
        return current


def engine_in_use(root: Path) -> CurrentEngine | None:
    """The engine that this process has for a root, if it has one. Whoever asks is no user of it."""
    with _engines_lock:
        there = _engines.get(root)
        return there if there is not None and not there.fenced else None


@atexit.register
def _leave_all() -> None:
    """A process that ends without closing its warehouses still flushes them, each for itself."""
    for current in list(_engines.values()):
        current.users = 1
        try:
            current.leave()
        except TidewheelError as e:
            print(f"tidewheel: {current.root} could not be flushed at exit: {e}", file=sys.stderr)


def _forget_in_child() -> None:
    """A forked child has neither the threads nor the lease nor the connections of its parent."""
    global _engines_lock
    _engines_lock = threading.RLock()
    for current in _engines.values():
        current._lock = threading.Lock()  # a thread that did not come along may hold the other
        current._closed = True
        current._taking = None
        current._engine.forsake()
    _engines.clear()


os.register_at_fork(after_in_child=_forget_in_child)
