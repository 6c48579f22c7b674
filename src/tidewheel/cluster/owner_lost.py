"""What it means for a call that the connection to the owner broke, and how that is noticed when there is no call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow import flight

from tidewheel.errors import LimitError, OwnerLostError

BROKEN = (flight.FlightError, OSError)
"""What Flight raises when the connection is broken. What the owner refuses comes as an answer."""

_NEVER_SENT = ("failed to connect", "Connection refused")

_UNKNOWN = {
    "Insert": "the rows may be there or not: look, or insert under a package name, which can simply be repeated",
    "Replace": "the rows may have been exchanged or not: replacing them again is safe",
    "CommitBatch": "the batch may be there or not: committing it again is safe",
    "CommitLoad": "the rows may be there or not",
    "CreateTable": "the table may be there or not",
    "DropTable": "the table may be there or not",
}


def lost_during(request: Any, root: Path, why: str) -> OwnerLostError:
    """What to tell whoever waits for the answer to a request."""
    untouched = any(text in why for text in _NEVER_SENT)
    what = _asked(request)
    known = "nothing was done" if untouched else _UNKNOWN.get(what, "ask again")
    return OwnerLostError(f"the owner of the warehouse {root} was lost during {what} ({why}); {known}", untouched=untouched)


def late_during(request: Any, root: Path, seconds: float) -> LimitError:
    """The same if the owner did not answer in time. It may still do what it was asked to, when it goes on."""
    what = _asked(request)
    return LimitError(
        f"{what} took longer than its timeout of {seconds:g} s: the owner of the warehouse {root} did not answer; "
        f"{_UNKNOWN.get(what, 'ask again')}",
        retryable=True,
    )


def _asked(request: Any) -> str:
    """The name of what was asked for: an operation goes by its own name, not by that of the request that carries it."""
    carried = (getattr(request, part, None) for part in ("operation", "question", "delivery"))
    return type(next((one for one in carried if one is not None), request)).__name__


def reason(error: BaseException) -> str:
    """What Flight says, without its technical tail."""
    text = str(error).partition(". gRPC client debug context")[0].partition(". Client context")[0]
    return text.rpartition("with message: ")[2] or type(error).__name__


def wait_for_the_end(presence: Any, heard: Callable[[], None], tell: Callable[[str], None]) -> None:
    """Wait for the end of the owner, by a stream on which nothing comes but beats; say why."""
    why = "it closed the warehouse"
    try:
        while True:
            presence.read_chunk()
            heard()
    except StopIteration:
        pass
    except Exception as e:
        why = reason(e)
    tell(why)
