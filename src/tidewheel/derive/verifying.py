"""Rows that a derived table has, compared with the same rows computed anew. Pure.

Integers, texts, times and decimals must be equal; floats may differ by a billionth, because sums of them depend on the order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.model.figures import counted

TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """A partition whose rows are not what the definition makes of its sources."""

    partition: str
    """Its first time."""
    stored_rows: int
    computed_rows: int
    stored: dict[str, Any] | None
    """The first row that differs, as it is; None: there is none."""
    computed: dict[str, Any] | None
    """The first row that differs, as it should be; None: there is none."""

    def __str__(self) -> str:
        rows = f"{counted(self.stored_rows, 'row')} stored, {self.computed_rows:,} computed"
        return f"{self.partition}: {rows}; first {self.stored or 'no row'}, which should be {self.computed or 'none'}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` compared. `print` it; `ok` says whether all that was compared is right."""

    table: str
    partitions: int
    """That were compared."""
    left_out: int
    """That cannot be: a source has changed so that it cannot be read any more as it was then."""
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        said = f"{self.table}: {counted(self.partitions, 'partition')} computed anew"
        if self.left_out:
            said += f", {self.left_out:,} left out because their sources are not what they were"
        found = f"{counted(len(self.differences), 'difference')}" if self.differences else "no difference"
        hint = ["  Are the bounds right? See `definition`. refresh(full=True) computes all anew."] if self.differences else []
        return "\n".join([f"{said}: {found}", *(f"  {one}" for one in self.differences), *hint])


def difference(partition: str, stored: pa.Table, computed: pa.Table) -> Difference | None:
    """None, if both have the same rows, in whatever order. Both have one schema."""
    old, new = _ordered(stored), _ordered(computed)
    rows = min(old.num_rows, new.num_rows)
    same = np.ones(rows, np.bool_)
    for name in old.column_names:
        same &= _alike(old.column(name).slice(0, rows), new.column(name).slice(0, rows))
    if old.num_rows == new.num_rows and same.all():
        return None
    at = int((~same).argmax()) if not same.all() else rows
    return Difference(partition, old.num_rows, new.num_rows, _row(old, at), _row(new, at))


def _row(table: pa.Table, at: int) -> dict[str, Any] | None:
    found = table.slice(at, 1).to_pylist()
    return found[0] if found else None


def _ordered(table: pa.Table) -> pa.Table:
    """By all columns that have an order, floats last: they may differ a little."""
    plain = [one.name for one in table.schema if not pa.types.is_nested(one.type) and not pa.types.is_floating(one.type)]
    floats = [one.name for one in table.schema if pa.types.is_floating(one.type)]
    table = pa.table([_text(table.column(one.name)) for one in table.schema], names=table.schema.names)
    return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in (*plain, *floats)]))


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _alike(old: pa.ChunkedArray, new: pa.ChunkedArray) -> Any:
    if pa.types.is_nested(old.type):
        return np.array([a == b for a, b in zip(old.to_pylist(), new.to_pylist(), strict=True)], np.bool_)
    nulls = pc.and_(pc.is_null(old), pc.is_null(new))
    equal = pc.fill_null(pc.equal(old, new), False)
    if pa.types.is_floating(old.type):
        a, b = (side.cast(pa.float64()).to_numpy(zero_copy_only=False) for side in (old, new))
        near = np.isclose(a, b, rtol=TOLERANCE, atol=0.0, equal_nan=True) & ~np.asarray(pc.xor(pc.is_null(old), pc.is_null(new)))
        return near | np.asarray(nulls)
    return np.asarray(pc.or_(nulls, equal))
