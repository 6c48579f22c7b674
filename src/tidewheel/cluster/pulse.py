"""The pulse of a connection: the owner says every second that it lives, and a thread here looks whether it does.

*Beats.* A process that hangs keeps its sockets: nothing breaks, and nothing ever comes. So the owner sends a beat each second, on the
stream that a session consists of. When there was none for `SILENT` seconds, the owner counts as lost: every call under way ends.

*Deadlines.* A question over an open line has no deadline of Flight's, which are for whole calls; and Flight's own does not end a call that
waits for room to send its rows. The thread ends the wait of those whose time is up: it cancels the line. If that does not end the
call, or there is nothing to cancel, the connection is cut; the next call makes a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from tidewheel.env.interrupts import Flag

SILENT = 15.0
"""Seconds without a beat after which an owner counts as lost. It may be busy, or have no processor, for long."""

TICK = 0.1
"""Seconds between two looks."""

_CUT = 0.2
"""Seconds that a call has to end after it was cancelled, before the connection is cut."""


class Wait:
    """One call that must end by a moment. `cancel` is set as soon as there is something to cancel."""

    __slots__ = ("at", "cancel", "late")

    def __init__(self, at: float) -> None:
        self.at = at
        self.cancel: Callable[[], None] | None = None
        self.late = False
        """Its time was up before it ended."""


class Pulse:
    """Made and ended with its connection. `lost` is called when there was no beat for too long; `cut` ends every call."""

    def __init__(self, lost: Callable[[str], None], cut: Callable[[], None]) -> None:
        self._lost = lost
        self._cut = cut
        self._beat = True
        self._waits: dict[int, Wait] = {}
        self._over = Flag()
        self._thread = threading.Thread(target=self._run, name="tidewheel-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def beat(self) -> None:
        """The owner was heard."""
        self._beat = True

    def begin(self, wait: Wait) -> None:
        self._waits[id(wait)] = wait

    def end(self, wait: Wait) -> None:
        self._waits.pop(id(wait), None)

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        silent, before = 0.0, monotonic()
        while not self._over.wait(TICK):
            now = monotonic()
            # as this process sees it: one that was stopped itself has heard nothing either
            silent = 0.0 if self._beat else silent + min(now - before, 2 * TICK)
            self._beat, before = False, now
            for wait in list(self._waits.values()):
                if now > wait.at:
                    self._end(wait, now)
            if silent > SILENT:
                self._lost(f"it has not been heard of for {SILENT:g} s")  # which is so for good; `stop` follows
                self._cut()

    def _end(self, wait: Wait, now: float) -> None:
        first, wait.late = not wait.late, True
        if first and wait.cancel is not None:
            with suppress(Exception):
                wait.cancel()
        elif now > wait.at + (TICK if wait.cancel is None else _CUT):
            self._cut()  # again and again, until the call has ended: a call that has only begun may go on to the next connection
