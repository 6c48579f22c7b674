"""The sockets below Flight, for the two things that it cannot do itself: to let go of a client that does not read, and to survive a fork.

*Severing.* A server shuts down when all its calls have ended, and a call that writes to a client which does not read never ends. `sever`
shuts down the sockets of such connections; their calls then fail.

*Forks.* gRPC does not work in a forked child: calls would hang, and so would the end of the child, when what it inherited is cleaned up.
So a child closes its copies of the sockets (else a dead parent would look alive to the other side), lets go of nothing that gRPC would
clean up, and is told `forked`: it neither listens nor attaches, and so has nothing of Flight to shut down. Children that are started by
exec (subprocess, multiprocessing's "spawn" and "forkserver") know nothing of all this.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from tidewheel.env.memory import keep_for_good

_live: weakref.WeakSet[Any] = weakref.WeakSet()
"""Flight servers and clients of this process, and whatever is about to make one."""
_streams: weakref.WeakSet[Any] = weakref.WeakSet()
"""Their open streams."""
_names: set[str | int] = set()
"""Paths and ports that they are at."""
_forked = False
_process = 0
"""That of the processes with this memory which uses Flight; a fork that Python was not told of is known by it."""

FORKED = (
    "this process was forked from one with an open warehouse, and gRPC does not survive a fork. Start processes with multiprocessing's "
    "'spawn' or 'forkserver' (or subprocess), or open warehouses only after forking"
)


def forked() -> bool:
    """Whether this process was forked from one that was using Flight: then it cannot."""
    return _forked or (bool(_live) and os.getpid() != _process)


def expect(user: Any) -> None:
    """This object is about to use Flight, perhaps in another thread: to load it takes a while, and a fork may come meanwhile."""
    global _process
    _process = os.getpid()
    _live.add(user)


def track(flight: Any, name: str | int) -> None:
    """Remember a Flight server or client at a path or port."""
    expect(flight)
    _names.add(name)


def keep_in_child(stream: Any) -> None:
    """An open stream: to destroy it would be to wait for its other end."""
    _streams.add(stream)


def forget(flight: Any) -> None:
    """It was shut down."""
    _live.discard(flight)


def sever(name: str | int) -> None:
    """End all connections that were made to a server of this process, at this path or port."""
    for fd in _sockets(lambda at: at.getsockname(), {name}):
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def cut(name: str | int) -> None:
    """End all connections of this process to a server at this path or port, and with them every call under way."""
    for fd in _sockets(lambda at: at.getpeername(), {name}):
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def _sockets(end: Callable[[socket.socket], Any], names: set[str | int]) -> Iterator[int]:
    """Descriptors of the sockets that have one of these names at one end."""
    for entry in os.listdir("/dev/fd"):
        fd = int(entry)
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as one:
                name = end(one)
            if (name[1] if isinstance(name, tuple) else os.fsdecode(name)) in names:
                yield fd


def _in_child() -> None:
    global _forked
    if not _live:
        return
    _forked = True
    for end in (lambda at: at.getsockname(), lambda at: at.getpeername()):
        for fd in list(_sockets(end, _names)):
            with suppress(OSError):
                os.close(fd)
    for flight in list(_live):
        for finalizer in gc.get_referents(flight):
            if isinstance(finalizer, weakref.finalize):
                finalizer.detach()
    for kept in (*_live, *_streams):
        keep_for_good(kept)
    _live.clear()
    _streams.clear()


os.register_at_fork(after_in_child=_in_child)
