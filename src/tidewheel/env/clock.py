"""The clock, as something that can be handed in."""

from __future__ import annotations

import time


class Clock:
    """Real time. `now` is wall time in seconds since 1970, `monotonic` never goes back."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self, moment: float) -> float:
        """The wall time of a moment that `monotonic` gave."""
        return self.now() - (self.monotonic() - moment)
