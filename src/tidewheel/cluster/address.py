"""Where the owner of a warehouse listens, and the token that lets a process in.

root/owner/               only the owner's user may look into it
  address.json            written when the owner listens, removed when it closes; of a dead owner it may stay
  knock                   made by whoever finds no address: the owner need not listen before somebody comes
  <epoch>.sock            the socket, unless its path would be too long: then the owner listens on a loopback port. Had it to be made
                          again, because somebody removed it, it is <epoch>-1.sock, and so on
  owner.log               what a detached owner had to say (cluster/start_owner.py)

The address says nothing about whether the owner lives. The lock does (catalog/lease.py); `is_owned` looks at it without taking it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from tidewheel.catalog.lease import FILE as LOCK
from tidewheel.errors import OwnedError, StorageError
from tidewheel.model.dataclass import dataclass

FOLDER = "owner"
FILE = "address.json"
KNOCK = "knock"
LOG = "owner.log"

_LONGEST = 100
"""Bytes in the path of a socket: systems have room for 104 to 108."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port to listen on when asked to, with TLS if there are a certificate and a key (files in PEM format)."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any that is free."""
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Door:
    """What address.json says."""

    location: str
    """As Arrow Flight writes it; empty if the owner could not listen."""
    token: str
    pid: int
    epoch: int
    protocol: int
    failure: str = ""
    """Why it could not listen."""


def new_token() -> str:
    return secrets.token_hex(16)


def folder(root: Path) -> Path:
    return root / FOLDER


def make_folder(root: Path) -> Path:
    """The private folder of the owner; nobody but its user may look into it."""
    path = folder(root)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        if path.stat().st_mode & 0o077:
            path.chmod(0o700)
    except OSError as e:
        raise StorageError(f"could not make the folder {path}, where the owner of a warehouse listens: {e.strerror or e}") from e
    return path


def socket_path(root: Path, epoch: int, again: int = 0) -> Path | None:
    """Where the owner's socket belongs; None if there cannot be one: the path is too long, or Flight would read it wrongly.

    `again`: how often it had to be made again.
    """
    path = folder(root) / (f"{epoch}-{again}.sock" if again else f"{epoch}.sock")
    if len(os.fsencode(path)) > _LONGEST or any(c in "%#?" for c in str(path)):
        return None
    try:
        with socket.socket(socket.AF_UNIX) as trial:  # some file systems have no sockets, and Flight would complain on the terminal
            trial.bind(str(path))
        path.unlink()
    except (OSError, AttributeError):
        return None
    return path


def unix_location(path: Path) -> str:
    """As Flight writes it."""
    return f"grpc+unix://{quote(str(path))}"


def sweep(root: Path) -> None:
    """Remove what owners before left behind. Only the owner may call this."""
    for path in folder(root).glob("*"):
        if path.name in (FILE, KNOCK) or path.suffix in (".sock", ".tmp"):
            with suppress(OSError):
                path.unlink()


def publish(root: Path, door: Door) -> None:
    """Tell where the owner listens, whole or not at all, to its own user only."""
    path = folder(root) / FILE
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(asdict(door), file)
    temporary.replace(path)


def knock(root: Path) -> None:
    """Ask an owner that does not listen yet to begin."""
    with suppress(OSError):  # it has not made the folder yet, or is another user's: then it will be a little later
        os.close(os.open(folder(root) / KNOCK, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def knocked(root: Path) -> bool:
    """Whether somebody did, since `sweep`."""
    return (folder(root) / KNOCK).exists()


def answer_knock(root: Path) -> None:
    """The owner listens, or never will."""
    with suppress(OSError):
        (folder(root) / KNOCK).unlink(missing_ok=True)


def withdraw(root: Path, token: str) -> None:
    """Remove the address, if it is still this owner's."""
    door = read(root)
    if door is not None and door.token == token:
        with suppress(OSError):
            (folder(root) / FILE).unlink()


def read(root: Path) -> Door | None:
    """Where the owner listens, or listened last; None if nobody says so."""
    path = folder(root) / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        door = Door(**{name: found[name] for name in Door.__dataclass_fields__})
        right = all(
            type(getattr(door, name)) is (int if name in ("pid", "epoch", "protocol") else str) for name in Door.__dataclass_fields__
        )
        return door if right else None  # nobody of ours wrote that
    except PermissionError as e:
        raise OwnedError(
            f"{path} may not be read: the warehouse was opened by another user. Open it as that user, or let that process close it",
            retryable=False,
        ) from e
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_owned(root: Path) -> bool:
    """Whether a living process owns the warehouse. What it says may be over a moment later."""
    try:
        fd = os.open(root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as e:
        raise StorageError(f"could not look at {root / LOCK}: {e.strerror or e}") from e
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look are not in each other's way
    except BlockingIOError:
        return True
    except OSError as e:
        raise StorageError(f"could not look at {root / LOCK}: {e.strerror or e}") from e
    finally:
        os.close(fd)
    return False
