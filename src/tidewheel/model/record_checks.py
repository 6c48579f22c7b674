"""Whether values that were read from outside (a catalog, a message of a task) can be what they claim to be. No I/O.

Everything that later becomes an address, a length, a path or a number in a kernel is looked at here, once, where it comes in: types as
they are, not as they could be converted; ranges; one value against another. A wrong value raises `WrongValueError`, which says which one;
whoever reads knows where it came from, and says that too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidewheel.model.chunk_names import ARROW, CHUNK_ID, chunk_file
from tidewheel.model.records import ChunkRecord
from tidewheel.model.times import INT64_MAX, INT64_MIN

LAST_GENERATION = 1 << 62
"""No table comes that far; beyond it, the next generations would not fit 64 bits."""

MOST_SERVERS = 1 << 15
"""A log numbers two lanes per server with 16 bits."""


class WrongValueError(Exception):
    """A value that cannot be. `column` is the one it stands in."""

    def __init__(self, column: str, value: object, wanted: str) -> None:
        shown = repr(value)
        super().__init__(f"{column} is {shown if len(shown) <= 80 else shown[:77] + '...'}, not {wanted}")
        self.column = column
        self.table_id: int | None = None
        """Of the row it stands in, where many tables are read at once."""


def whole(column: str, value: Any, least: int = INT64_MIN, most: int = INT64_MAX) -> int:
    if type(value) is not int or not least <= value <= most:
        raise WrongValueError(column, value, _range(least, most))
    return value


def generation(column: str, value: Any) -> int:
    return whole(column, value, 0, LAST_GENERATION)


def text(column: str, value: Any) -> str:
    if type(value) is not str or "\0" in value:
        raise WrongValueError(column, value, "a text")
    return value


def raw(column: str, value: Any) -> bytes:
    if type(value) is not bytes:
        raise WrongValueError(column, value, "bytes")
    return value


def flag(column: str, value: Any) -> bool:
    if type(value) not in (int, bool) or value not in (0, 1):
        raise WrongValueError(column, value, "0 or 1")
    return bool(value)


def rising(low: str, high: str, lo: int, hi: int) -> None:
    if lo > hi:
        raise WrongValueError(low, lo, f"at most {high} = {hi}")


def check_chunk(record: ChunkRecord) -> None:
    """A chunk of a table, as the catalog may have it: its file is the one place that its table and id give it."""
    whole("table_id", record.table_id, 1)
    check_content(record)
    if text("file", record.file) != chunk_file(record.table_id, record.id):
        raise WrongValueError("file", record.file, chunk_file(record.table_id, record.id))


def check_content(record: ChunkRecord) -> None:
    """What is said of a chunk, wherever its file lies."""
    if CHUNK_ID.fullmatch(text("id", record.id)) is None:
        raise WrongValueError("id", record.id, "the id of a chunk")
    if text("container", record.container) != ARROW:
        raise WrongValueError("container", record.container, f"{ARROW!r}, the only one that this Tidewheel knows")
    whole("server", record.server, 0, MOST_SERVERS - 1)
    whole("format", record.format, 1)
    whole("rows", record.rows, 1)
    whole("bytes", record.bytes, 1)
    for lo, hi in (("key_lo", "key_hi"), ("time_lo", "time_hi")):
        rising(lo, hi, whole(lo, getattr(record, lo)), whole(hi, getattr(record, hi)))
    flag("late", record.late)
    for column in ("generation_lo", "generation_hi", "covers"):
        generation(column, getattr(record, column))
    rising("generation_lo", "generation_hi", record.generation_lo, record.generation_hi)
    raw("prefix", record.prefix)
    whole("body_lo", record.body_lo, 0, record.bytes)
    whole("body_hi", record.body_hi, record.body_lo, record.bytes)
    whole("frame", record.frame, 0, (1 << 64) - 1)
    check_partitions(record.partitions)


def check_partitions(partitions: Sequence[tuple[int, int]]) -> None:
    if type(partitions) is not tuple:
        raise WrongValueError("partitions", partitions, "pairs of numbers")
    for pair in partitions:
        if type(pair) is not tuple or len(pair) != 2:
            raise WrongValueError("partitions", pair, "a pair of numbers")
        whole("partition", pair[0])
        whole("rows", pair[1], 0)


def _range(least: int, most: int) -> str:
    if (least, most) == (INT64_MIN, INT64_MAX):
        return "a whole number"
    return f"a whole number of at least {least}" if most in (INT64_MAX, (1 << 64) - 1) else f"a whole number from {least} to {most}"
