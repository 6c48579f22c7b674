"""Passes of refreshes, one after the other, in a thread of their own, until it is told to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType

from tidewheel.errors import ClosedError, FencedError
from tidewheel.model.refresh_report import RefreshReport

SLOWEST = 600.0
"""Seconds after which a table that keeps failing is tried again, at the latest."""

_FIRST = 1.0
"""Seconds after the first failure; each further one doubles them."""


@dataclass(slots=True)
class _Trouble:
    error: Exception
    times: int
    again: float
    """When to try again, by the clock that only goes forward."""


class RefreshLoop:
    """A context manager. Derived tables are kept up to date while it is entered; leaving waits for the pass that runs.

    A table that fails is left alone for a while, twice as long each time, and so is what is made of it; the others go on. What still fails
    at the end is raised there, unless the body raised something itself.
    """

    def __init__(
        self, one_pass: Callable[[Collection[str]], RefreshReport], every: float, seen: Callable[[RefreshReport], None] | None = None
    ) -> None:
        """`one_pass` refreshes all but these tables. `seen` is called, in the thread, after each pass that did something."""
        self._pass = one_pass
        self._every = every
        self._seen = seen
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._troubles: dict[str, _Trouble] = {}
        """By the table; "" is the warehouse."""
        self.report: RefreshReport | None = None
        """Of the last pass that did something."""

    @property
    def errors(self) -> dict[str, str]:
        """Why tables are not up to date now, by their names."""
        return {name: str(trouble.error) for name, trouble in sorted(self._troubles.items())}

    def __enter__(self) -> RefreshLoop:
        self._thread = threading.Thread(target=self._run, name="tidewheel-refresh", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if kind is None and self._troubles:
            raise next(iter(self._troubles.values())).error

    def wait(self) -> None:
        """Until it ended by itself, because the warehouse was closed or lost for good. Ctrl-C ends the waiting."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.2)

    def stop(self) -> None:
        """End it after the pass that runs. May be called twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._one(began)
            except (ClosedError, FencedError) as e:  # it will not get better
                self._troubles[""] = _Trouble(e, 1, 0.0)
                return
            self._stop.wait(max(0.0, self._every - (time.monotonic() - began)))

    def _one(self, now: float) -> None:
        if "" in self._troubles and self._troubles[""].again > now:
            return
        waiting = {name for name, trouble in self._troubles.items() if trouble.again > now}
        try:
            report = self._pass(waiting)
        except (ClosedError, FencedError):
            raise
        except Exception as e:  # an owner that was lost, a catalog that does not answer: the thread goes on, whatever it is
            self._failed("", e)
            return
        self._troubles.pop("", None)
        for table in report:
            if table.cause is not None:
                self._failed(table.name, table.cause)
            elif not table.error:
                self._troubles.pop(table.name, None)
        for name in [name for name in self._troubles if name and name not in waiting and name not in {t.name for t in report}]:
            del self._troubles[name]  # it was dropped
        if any(table.partitions or table.error for table in report):
            self.report = report
            if self._seen is not None:
                self._seen(report)

    def _failed(self, name: str, error: Exception) -> None:
        times = self._troubles[name].times + 1 if name in self._troubles else 1
        self._troubles[name] = _Trouble(error, times, time.monotonic() + min(SLOWEST, _FIRST * 2 ** min(times - 1, 20)))
