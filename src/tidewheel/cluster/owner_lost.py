"""What it means for a call that the connection to the owner broke, and how that is noticed when there is no call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow import flight

from tidewheel.cluster.requests import AskTable, GiveTable, OnTable, OnWarehouse
from tidewheel.engine.protocol import ASK_AGAIN
from tidewheel.errors import LimitError, OwnerLostError

BROKEN = (flight.FlightError, OSError)
"""What Flight raises when the connection is broken. What the owner refuses comes as an answer."""

_NEVER_SENT = ("failed to connect", "Connection refused")


def lost_during(request: Any, root: Path, why: str) -> OwnerLostError:
    """What to tell whoever waits for the answer to a request."""
    untouched = any(text in why for text in _NEVER_SENT)
    what, if_lost = _asked(request)
    known = "nothing was done" if untouched else if_lost
    return OwnerLostError(f"the owner of the warehouse {root} was lost during {what} ({why}); {known}", untouched=untouched)


def late_during(request: Any, root: Path, seconds: float) -> LimitError:
    """The same if the owner did not answer in time. It may still do what it was asked to, when it goes on."""
    what, if_lost = _asked(request)
    return LimitError(
        f"{what} took longer than its timeout of {seconds:g} s: the owner of the warehouse {root} did not answer; {if_lost}",
        retryable=True,
    )


def _asked(request: Any) -> tuple[str, str]:
    """The name of a request and what its loss means: those of the operation it carries, if it carries one."""
    match request:
        case OnWarehouse(operation) | OnTable(_, operation) | AskTable(_, operation) | GiveTable(_, operation):
            return type(operation).__name__, operation.if_lost
    return type(request).__name__, getattr(request, "if_lost", ASK_AGAIN)


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
