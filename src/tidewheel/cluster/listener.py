"""The owner's door: `Listener` lets other processes in from the moment it has started until it is closed."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.cluster import address, sockets
from tidewheel.cluster.address import Address, Door
from tidewheel.engine.protocol import Engine
from tidewheel.errors import OwnedError

if TYPE_CHECKING:
    from tidewheel.cluster.handlers import Handlers
    from tidewheel.cluster.service import Service, Traffic

DELAY = 1.0
"""Seconds before an owner begins to listen, unless somebody knocks: one that is closed again before that never has to load Flight."""

_LOOK = 0.02
"""Seconds between two looks at whether somebody did."""

PATIENCE = 5.0
"""Seconds that calls under way have to end when the owner closes; whoever does not read its rows must not hold it up."""

HANG_UP = 1.0
"""Seconds after that for the last answers to arrive, and for those who were attached to hang up. They mostly take a hundredth."""

_numbers = itertools.count(1)

_listening: set[Listener] = set()


class Listener:
    """Lets other processes use an engine. `start` returns at once; `close` may be called at any time, and returns soon.

    `busy` says whether the engine holds something that nobody here knows of, such as staged rows or pinned versions. `place` is a path to
    the folder that is owned, whatever has the root's name later (`LocalFiles.hold`): no other owner's address is touched.
    """

    def __init__(
        self,
        engine: Engine,
        root: Path,
        epoch: int,
        *,
        tcp: Address | None = None,
        busy: Callable[[], bool] | None = None,
        place: Path | None = None,
    ) -> None:
        self.root = root
        self._place = place or root
        self.token = address.new_token()
        self.location = ""
        """Where it listens, as Arrow Flight writes it; empty until it does."""
        self.tcp_location = ""
        """The same for `tcp`."""
        self.failure: Exception | None = None
        """Why it cannot listen."""
        self._engine = engine
        self._epoch = epoch
        self._tcp = tcp
        self._busy = busy or (lambda: False)
        self._closing = threading.Event()
        self._go = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._turn = threading.Lock()
        """Held while the address is made or removed."""
        self._door: Door | None = None
        """The address, once it was told."""
        self._socket: tuple[Path, os.stat_result | None] | None = None
        """Where the socket lies, if there is one, and what it was when it was made."""
        self._again = 0
        self._services: list[tuple[Service, str | int]] = []
        self._traffic: Traffic | None = None
        self._handlers: Handlers | None = None

    def start(self, delay: float = DELAY) -> None:
        """Begin to listen, soon and in a thread of its own."""
        name = f"tidewheel-listen-{next(_numbers)}"
        if not sockets.forked():
            sockets.expect(self)
        with suppress(Exception):  # what is wrong with it is told when it is needed; till then others may knock there
            address.make_folder(self._place)
            address.sweep(self._place)
        self._thread = threading.Thread(target=self._listen, args=(delay,), name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Until it listens, or has found that it cannot. It does not delay it any more."""
        self._go.set()
        return self._ready.wait(seconds)

    def idle_seconds(self) -> float:
        """For how long nobody has asked for anything, and nothing is held for anybody."""
        traffic, handlers = self._traffic, self._handlers
        if traffic is None or handlers is None:
            return 0.0
        if handlers.sessions.results or self._busy():
            traffic.touch()
        return traffic.idle_seconds()

    def close(self) -> None:
        """Let nobody in any more, and let those who are in finish, for a few seconds. May be called twice."""
        self._closing.set()
        self._go.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join()
        try:
            with self._turn:
                address.withdraw(self._place, self.token)
                address.answer_knock(self._place)
            if self._traffic is not None:
                self._traffic.close(PATIENCE)
        finally:  # also if somebody has no patience at all
            _listening.discard(self)
            services, self._services = self._services, []
            for service, name in services:
                _shut_down(service, name)
            sockets.forget(self)

    def mend(self) -> None:
        """Make the address and the socket again if somebody took them away: a person who tidied up, or an owner before this one that was
        late to notice that it is none. Without them nobody could attach until this owner closes. To be called from time to time."""
        with self._turn:
            if self._door is None or self._closing.is_set():
                return
            if self._socket is not None and not _is_there(*self._socket):
                self._again += 1
                address.make_folder(self._place)
                self.location = self._serve_here()
                self._door = replace(self._door, location=self.location)
            if address.read(self._place) != self._door:
                address.make_folder(self._place)
                address.publish(self._place, self._door)

    # ---- in its thread ----------------------------------------------------------------------------------

    def _listen(self, delay: float) -> None:
        try:
            give_up = time.monotonic() + delay
            while not self._go.wait(min(_LOOK, max(0.0, give_up - time.monotonic()))):
                if address.knocked(self._place) or time.monotonic() >= give_up:
                    break
            if not self._closing.is_set():
                address.make_folder(self._place)
                if sockets.forked():
                    raise OwnedError(sockets.FORKED)
                self._open()
        except Exception as e:  # the warehouse works all the same; others are told why they cannot use it
            self.failure = e
            with suppress(Exception):
                from tidewheel.cluster.requests import PROTOCOL

                why = str(e) if isinstance(e, OwnedError) else f"{type(e).__name__}: {e}"
                address.publish(self._place, Door("", self.token, os.getpid(), self._epoch, PROTOCOL, why))
        finally:
            self._ready.set()

    def _open(self) -> None:
        from tidewheel.cluster.handlers import Handlers
        from tidewheel.cluster.requests import PROTOCOL
        from tidewheel.cluster.service import Traffic

        self._handlers, self._traffic = Handlers(self._engine, self._epoch), Traffic()
        self.location = self._serve_here()
        if self._tcp is not None:
            self.tcp_location = self._serve(self._tcp)
        self._door = Door(self.location, self.token, os.getpid(), self._epoch, PROTOCOL)
        address.publish(self._place, self._door)
        address.answer_knock(self._place)

    def _serve_here(self) -> str:
        """For this machine alone: a socket, or a port of the loopback where there can be no socket."""
        path = address.socket_path(self.root, self._epoch, self._again)
        if path is None:
            self._socket = None
            return self._serve(Address())
        location = address.unix_location(path)
        self._add(location, None, str(path))
        ours = address.folder(self._place) / path.name  # if it is not there, it was made in another folder, that has the name now
        self._socket = ours, _look_at(ours)
        return location

    def _serve(self, at: Address) -> str:
        tls = None
        if at.certificate is not None and at.key is not None:
            tls = [(at.certificate.read_bytes(), at.key.read_bytes())]
        scheme = "grpc+tls" if tls else "grpc"
        service = self._add(f"{scheme}://{at.host}:{at.port}", tls, None)
        return f"{scheme}://{at.host}:{service.port}"

    def _add(self, location: str, tls: list[tuple[bytes, bytes]] | None, name: str | None) -> Any:
        from tidewheel.cluster.service import Service

        assert self._handlers is not None and self._traffic is not None
        service = Service(location, tls, self._handlers, self.token, self._traffic)
        at: str | int = name if name is not None else service.port
        if not _listening:
            atexit.unregister(_close_all)
            atexit.register(_close_all)  # now: what Flight has registered for the end waits for every call, so this must come before
        _listening.add(self)
        sockets.track(service, at)
        self._services.append((service, at))
        return service


def _look_at(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat()
    return None


def _is_there(path: Path, made: os.stat_result | None) -> bool:
    found = _look_at(path)
    return found is not None and made is not None and os.path.samestat(found, made)


def _close_all() -> None:
    """At the end of the process: nobody can be served by what is left of it."""
    for listener in list(_listening):
        listener.close()


os.register_at_fork(after_in_child=_listening.clear)  # a forked child has nothing to close: its parent goes on listening


def _shut_down(service: Any, name: str | int) -> None:
    """Flight waits for every call to end; a connection whose call does not is cut."""
    done = threading.Thread(target=service.shutdown, name="tidewheel-listen-close", daemon=True)
    done.start()
    done.join(HANG_UP)
    if done.is_alive():
        sockets.sever(name)
        done.join(PATIENCE)
    sockets.forget(service)
