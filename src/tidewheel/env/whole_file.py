"""A file for somebody outside of the warehouse that appears when it is whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tidewheel.errors import StorageError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to. It takes its name, also from one that is there, when the block ends; if that raises, nothing is left of it."""
    path = path.expanduser()
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a folder; give the name of a file in it")
    try:
        number, made = tempfile.mkstemp(prefix=f".{path.name[:200]}.", dir=path.parent)
    except (OSError, ValueError) as e:
        raise StorageError(f"cannot write {path}: {getattr(e, 'strerror', None) or e}") from e
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(number)
        os.chmod(made, 0o666 & ~_umask())
        os.replace(made, path)
    except OSError as e:
        _remove(made)
        raise StorageError(f"cannot write {path}: {e.strerror or e}") from e
    except BaseException:
        _remove(made)
        raise


def _remove(made: str) -> None:
    with suppress(OSError):
        os.unlink(made)


def _umask() -> int:
    """The user's umask: rights that new files do not get. The system has no other way to ask for it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
