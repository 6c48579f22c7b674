"""`\\watch`: a statement is asked again and again, and its answer stays at its place on the screen."""

from __future__ import annotations

import sys
import time
from time import perf_counter
from typing import TYPE_CHECKING

from tidewheel.errors import InputError, TidewheelError
from tidewheel.surfaces.shell.answers import Stopwatch, cost, take
from tidewheel.surfaces.shell.running import cancellable

if TYPE_CHECKING:
    from tidewheel.surfaces.shell.session import ShellSession

_CLEAR, _HOME, _TO_END_OF_LINE, _TO_END = "\x1b[2J\x1b[H", "\x1b[H", "\x1b[K", "\x1b[J"


def watch(session: ShellSession, seconds: float, times: int | None = None) -> None:
    """Ask the last statement every so many seconds, until Ctrl-C or so many times. Errors that may pass do not end it."""
    if not session.last:
        raise InputError("\\watch asks the last statement again, and there was none yet")
    in_place = session.screen.interactive and session.screen.look.format == "table"
    done = 0
    try:
        while times is None or done < times:
            next_at = perf_counter() + seconds
            if in_place:
                _redraw(session, seconds, first=done == 0)
            else:
                session.ask(session.last)
            done += 1
            if done != times:
                time.sleep(max(0.0, next_at - perf_counter()))
    except KeyboardInterrupt:
        if not in_place and not session.screen.interactive:
            raise
        session.screen.print("")


def _redraw(session: ShellSession, seconds: float, first: bool) -> None:
    screen = session.screen
    clock = Stopwatch()
    try:
        result, answer = cancellable(lambda: session.warehouse.sql(session.last, timeout=session.timeout), take)
        told = cost(result.stats, clock.seconds) if screen.look.timing else ""
        rows = max(1, screen.height - 9)
        lines = [*answer.lines(screen.width, screen.colour, rows)][: max(1, screen.height - 4)]
        parts = [answer.said(screen.width, rows), told]
        lines.append(" · ".join(part for part in parts if part))
    except TidewheelError as e:
        if not e.retryable:
            raise
        lines = str(e).splitlines()
    head = f"every {seconds:g} s, {time.strftime('%H:%M:%S', time.gmtime())} UTC; Ctrl-C ends it"
    text = "\n".join(line + _TO_END_OF_LINE for line in [head, "", *lines])
    sys.stdout.write((_CLEAR if first else _HOME) + text + "\n" + _TO_END)
    sys.stdout.flush()
