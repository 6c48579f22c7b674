"""How groups are given up here, to be made by DuckDB from the beginning."""

from __future__ import annotations

from tidewheel.errors import LimitError
from tidewheel.read.limits import Watch

NOT_SURE = "a value may be too large, or lie beyond the calendar"
"""Of a step that a kernel is not sure of."""


class LeftToDuckError(Exception):
    """These groups are for DuckDB: they are too many, or a value has something about it that is not certain. Its text says which."""


def take(watch: Watch, size: int) -> None:
    """Before memory for groups is allocated: DuckDB can put on a disk what is more than the query may hold."""
    try:
        watch.take(size)
    except LimitError:
        raise LeftToDuckError("they need more memory than max_bytes allows") from None
