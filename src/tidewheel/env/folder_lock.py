"""Hold a folder that is no warehouse, such as that of a backup, so that two processes do not work in it against each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidewheel.errors import StorageError


@contextmanager
def hold(folder: str, *, shared: bool) -> Iterator[None]:
    """Held alone, or `shared` with others who only read. Raises StorageError at once if somebody holds it otherwise.

    The lock is on the folder itself and dies with the process, so it leaves nothing behind. Where a file system has no locks,
    none is taken.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as e:
        raise StorageError(f"cannot open folder {folder}: {e.strerror}") from e
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"a backup or restore is at work in {folder}: wait until it is done, then try again") from None
        except OSError:
            pass
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone would not do if a forked child has the folder open
        os.close(descriptor)
