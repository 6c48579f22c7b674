"""`python -m tidewheel.surfaces.owner_process ROOT`: a process that does nothing but own a warehouse while others use it.

Started by `cluster.start_owner` where nobody owns the warehouse and nobody who uses it should. It leaves when nobody has used it for a
while. Exits 0 then, 0 if another process owns the warehouse already, and 1 with one line on stderr if it cannot be opened.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

IDLE = 60.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tidewheel.surfaces.owner_process", description="Own a warehouse while others use it.")
    parser.add_argument("root", type=Path, help="the folder of the warehouse")
    parser.add_argument("--idle", type=float, default=IDLE, metavar="SECONDS", help="leave when nobody used it for so long")
    parser.add_argument("--detach", action="store_true", help="go on in a process of its own")
    parser.add_argument("--ready", type=int, metavar="FD", help="close this descriptor when the warehouse can be used")
    options = parser.parse_args(arguments)
    if options.detach and os.fork():  # before there is any thread: whoever started it need not wait for its end
        os._exit(0)
    return _own(options.root, options.idle, options.ready)


def _own(root: Path, idle: float, ready: int | None) -> int:
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    from tidewheel.cluster.owner import OwnedEngine
    from tidewheel.errors import OwnedError, TidewheelError
    from tidewheel.settings import Settings
    from tidewheel.surfaces.configuration import settings_of

    try:
        root = root.expanduser().resolve()
        engine = OwnedEngine(root, settings_of(root) or Settings())
    except OwnedError:
        return 0
    except TidewheelError as e:
        print(e, file=sys.stderr)
        return 1
    try:
        listener = engine.listener
        assert listener is not None
        while not listener.wait(1.0) and not over.is_set():
            pass
        if listener.failure is not None:
            print(f"{root}: cannot listen: {listener.failure}", file=sys.stderr)
            return 1
        if ready is not None:
            with suppress(OSError):
                os.close(ready)
        while not over.wait(min(1.0, max(0.05, idle / 4))) and listener.idle_seconds() < idle:
            pass
    finally:
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
