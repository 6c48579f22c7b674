"""Results of parsing records: rows whose types are still those of the source, and records that are no rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = Any
"""A RecordBatch where the source has columns, a list of dicts where it has values. Either has the wanted columns, and no others."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows, and for each the number of the record it is of."""

    rows: Rows
    records: Numbers


@dataclass(slots=True)
class Parsed:
    """The fate of some records: rows and failures together are all of them."""

    parts: list[Part] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    """(number of the record, why it is no row)."""


class Payload(Protocol):
    """Parses the records of one format. It never fails: what it cannot read is a failure of that record."""

    def parse(self, values: pa.Array) -> Parsed:
        """`values` are bytes, none of them null."""
        ...


def texts(values: pa.Array) -> tuple[pa.Array, Numbers, list[tuple[int, str]]]:
    """The values that are text, their positions, and the failures: neither JSON nor CSV may be anything but UTF-8."""
    try:
        text = values.cast(pa.large_string())
        return text, np.arange(len(values)), []
    except pa.ArrowInvalid:
        good: list[str] = []
        where: list[int] = []
        failures: list[tuple[int, str]] = []
        for i, data in enumerate(values.to_pylist()):
            try:
                good.append(data.decode())
                where.append(i)
            except UnicodeDecodeError as e:
                failures.append((i, f"is not UTF-8 text: byte 0x{data[e.start]:02x} at {e.start}"))
        return pa.array(good, pa.large_string()), np.array(where, dtype=np.int64), failures


def halving(rows: int, few: int, fast: Callable[[int, int], bool], slow: Callable[[int, int], None]) -> None:
    """Do all rows [lo, lo + n) the fast way; where that fails, its halves; where few are left, those the slow way. In order."""
    todo = [(0, rows)] if rows else []
    while todo:
        lo, n = todo.pop()
        if fast(lo, n):
            continue
        if n <= few:
            slow(lo, n)
        else:
            todo += [(lo + n // 2, n - n // 2), (lo, n // 2)]


def joined(text: pa.Array) -> pa.Buffer:
    """The texts as lines of one buffer."""
    offsets = pa.array([0, len(text)], pa.int64())
    lines = pc.binary_join(pa.LargeListArray.from_arrays(offsets, text), pa.scalar("\n", text.type))
    return lines[0].as_buffer()


def only_wanted(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The batch with the wanted columns, null where it has none, and no others."""
    names = batch.schema.names
    columns = [batch.column(names.index(f.name)) if f.name in names else pa.nulls(batch.num_rows, f.type) for f in wanted]
    return pa.RecordBatch.from_arrays(columns, names=wanted.names)


def extra_fields(names: Any, wanted: pa.Schema) -> str:
    """Why a record with these fields is refused, or the empty string."""
    known = set(wanted.names)
    extra = [str(n) for n in names if n not in known]
    return f"has fields that the table has no column for: {', '.join(extra[:5])}" if extra else ""
