"""How groups are given up here, to be made by DuckDB from the beginning."""

from __future__ import annotations

from tidewheel.errors import LimitError
from tidewheel.read.limits import Watch


class LeftToDuckError(Exception):
    """These groups are for DuckDB: they are too many, or a value has something about it that is not certain."""


def take(watch: Watch, size: int) -> None:
    """Before memory for groups is allocated: DuckDB can put on a disk what is more than the query may hold."""
    try:
        watch.take(size)
    except LimitError:
        raise LeftToDuckError from None
