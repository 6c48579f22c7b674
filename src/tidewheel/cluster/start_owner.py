"""`summon`: attach to the owner of a warehouse, and start one if there is none.

For processes that use a warehouse and must not own it, such as the workers of Spark: they come and go. The owner that is started is a
process of its own, in a session of its own; it leaves when nobody has used the warehouse for a while (surfaces/owner_process.py).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

from tidewheel.cluster import address
from tidewheel.cluster.attached import AttachedEngine
from tidewheel.cluster.client import attach
from tidewheel.cluster.root_folder import check_place
from tidewheel.env.workers import environment
from tidewheel.errors import OwnedError, OwnerLostError, StorageError

IDLE = 60.0
"""Seconds that an owner stays when nobody uses it."""

LIMIT = 600.0
"""Seconds that an owner may take to open the warehouse: after a crash it has a log to replay."""

_WAIT = 5.0
_LOG_BYTES = 1 << 20
_SHOWN = 2000


def summon(root: str | os.PathLike[str], idle: float = IDLE, limit: float = LIMIT) -> AttachedEngine:
    """The engine of a warehouse that another process owns, or is made to own. Any number of processes may call this at once."""
    root = Path(root).expanduser().resolve()
    give_up = time.monotonic() + limit
    while True:
        try:
            return attach(root, wait=min(limit, _WAIT))
        except OwnerLostError:  # nobody owns it
            if time.monotonic() > give_up:
                raise
            _start(root, idle, give_up)
        except OwnedError as e:  # somebody does, but does not listen yet: it may have to recover
            if not e.retryable or time.monotonic() > give_up:
                raise


def _start(root: Path, idle: float, give_up: float) -> None:
    """Start an owner and wait until it listens, or has ended: because another was faster, or because it cannot own the warehouse."""
    check_place(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise StorageError(f"cannot open a warehouse in {root}: {e.strerror or e}") from e
    log = address.make_folder(root) / address.LOG
    alive, ready = os.pipe()  # its writing end is closed when the owner listens, and when it ends
    command = [sys.executable, "-m", "tidewheel.surfaces.owner_process", str(root), "--idle", str(idle), "--detach", "--ready", str(ready)]
    try:
        with open(log, "ab", opener=_private) as out:
            if out.tell() > _LOG_BYTES:
                out.truncate(0)
            before = out.tell()
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", env=environment(), pass_fds=(ready,),
                start_new_session=True, check=True,
            )  # fmt: skip
        os.close(ready)
        ready = -1
        end = select.poll()
        end.register(alive)
        while time.monotonic() < give_up and not end.poll(1000):
            pass
    except (OSError, subprocess.SubprocessError) as e:
        raise StorageError(f"could not start an owner for the warehouse {root}: {e}. {_said(log, 0)}") from e
    finally:
        os.close(alive)
        if ready >= 0:
            os.close(ready)
    if not address.is_owned(root) and (said := _said(log, before)):
        raise StorageError(f"the owner that was started for the warehouse {root} has ended, and says in {log}: {said}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _said(log: Path, start: int) -> str:
    """What owners have said since, the end of it."""
    try:
        return log.read_bytes()[start:].decode(errors="replace").strip()[-_SHOWN:]
    except OSError:
        return ""
