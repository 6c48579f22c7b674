"""`attach`: find the owner of a warehouse and shake hands with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidewheel.cluster import address, sockets
from tidewheel.cluster.address import Door
from tidewheel.env import deadline
from tidewheel.errors import OwnedError, OwnerLostError
from tidewheel.release import __version__

if TYPE_CHECKING:
    from tidewheel.cluster.attached import AttachedEngine

WAIT = 10.0
"""Seconds that an owner may take until it answers: it has to load Flight, and perhaps to recover first."""

_HANDSHAKE = 5.0
"""Seconds that the first answer may take."""

_LEAST = 0.25
"""Seconds that it may take in any case."""


def attach(root: Path, wait: float = WAIT) -> AttachedEngine:
    """The engine of a warehouse that another process owns.

    Raises OwnerLostError if nobody owns it, and OwnedError if somebody does but does not answer within `wait` seconds.
    """
    if sockets.forked():
        raise OwnedError(f"a forked process cannot attach to a warehouse: {sockets.FORKED}", retryable=False)
    give_up = time.monotonic() + min(wait, deadline.left())
    pause = 0.005
    trouble = "it does not listen yet"
    while True:
        door = address.read(root)
        owned = address.is_owned(root)
        if door is not None and door.location:
            try:
                return connect(root, door, timeout=min(_HANDSHAKE, max(_LEAST, give_up - time.monotonic())))
            except OwnerLostError as e:
                trouble = str(e)
        elif door is not None and owned:
            trouble = f"it cannot listen ({door.failure})"
        if owned:
            address.knock(root)
        if not owned and not address.is_owned(root):
            raise OwnerLostError(f"nobody owns the warehouse {root}", untouched=True)
        if time.monotonic() > give_up:
            raise OwnedError(f"{_somebody(door)} owns the warehouse {root}, but {trouble}. Try again later, or close it there")
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def connect(root: Path, door: Door, root_certificates: bytes | None = None, timeout: float = _HANDSHAKE) -> AttachedEngine:
    """The engine behind an address that is known."""
    from tidewheel.cluster.attached import AttachedEngine
    from tidewheel.cluster.connection import Connection

    connection = Connection(root, door, __version__, timeout, root_certificates)
    if door.epoch and connection.welcome.epoch != door.epoch:
        connection.close()
        raise OwnerLostError("another owner answers at this address", untouched=True)
    return AttachedEngine(root, connection)


def _somebody(door: Door | None) -> str:
    return f"process {door.pid}" if door is not None else "another process"
