"""A table as DuckDB scans it in a statement.

DuckDB offers each filter of a scan, and those that are taken reach the scan exactly: also lower ends of floats, which are not offered to
datasets of Arrow's because of NaN. A column without values comes before the table's own: a scan that needs none of these, as count(*)
does, reads that one, and then no row has to be looked at. A view leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidewheel.duck.internals import ArrowScanSource, FilterNode
from tidewheel.model.conditions import Condition, all_of
from tidewheel.model.schema import TableSpec
from tidewheel.sql.duck_filters import condition_of

Open = Callable[[TableSpec, list[str], Condition | None], Iterable[pa.RecordBatch]]
"""Begins a scan of a table: with these columns, of the rows that satisfy a condition."""

_NOTHING = pa.Array.from_buffers(pa.bool_(), 1 << 20, [None, pa.py_buffer(b"\xff" * (1 << 17))])
"""(Not `pa.array([True])`: with the first array that Arrow makes of Python's values it loads pandas.)"""


class TableSource(ArrowScanSource):
    """Stays registered from one statement to the next; `opens` is that of the statement that runs, and None between two."""

    schema_is_stable = True

    def __init__(self, spec: TableSpec) -> None:
        super().__init__(None)
        self.spec = spec
        self.opens: Open | None = None
        self.about: int | None = None
        """About how many rows there are."""
        self.offered: dict[str, Condition] | None = None
        """The filters that were taken while a statement was planned, by the text that DuckDB's plan has for them, if that is wanted."""
        self.columns = _told_apart(spec.schema.names)
        """The table's columns, as statements name them."""
        nothing = "·"
        while nothing in self.columns:
            nothing += "·"
        shown = [pa.field(name, _shown(field.type), field.nullable) for name, field in zip(self.columns, spec.schema, strict=True)]
        self._declared = pa.schema([pa.field(nothing, pa.bool_()), *shown])
        self._changed = self._declared.types[1:] != spec.schema.types or self.columns != spec.schema.names

    def rows(self) -> int | None:
        return self.about

    def __arrow_c_schema__(self) -> object:
        return self._declared.__arrow_c_schema__()

    def accepts(self, predicate: FilterNode) -> bool:
        condition = condition_of(predicate, self.spec.schema)
        if condition is None:
            return False
        if self.offered is not None:
            self.offered[predicate.fragment()] = condition
        return True

    def stream(self, columns: Sequence[int] | None, filters: Sequence[FilterNode]) -> tuple[object, bool]:
        assert self.opens is not None
        numbers = range(len(self._declared)) if columns is None else columns
        conditions = [found for one in filters if (found := condition_of(one, self.spec.schema)) is not None]
        assert len(conditions) == len(filters)
        scan = self.opens(self.spec, [self.spec.schema.names[n - 1] for n in numbers if n], all_of(conditions))
        schema = pa.schema([self._declared.field(n) for n in numbers])
        if self._changed:
            scan = _cast(scan, pa.schema([field for field in schema if field.name != self._declared.names[0]]))
        batches: Iterator[pa.RecordBatch] = iter(scan) if 0 not in numbers else _with_nothing(scan, list(numbers), schema)
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__(), columns is not None


def _told_apart(names: list[str]) -> list[str]:
    """Names that differ in more than case, which SQL ignores: of id and ID it would read one twice. They become id_1 and ID_2, and neither
    is called id, so nobody reads the other one by mistake."""
    lower = [name.lower() for name in names]
    taken = set(lower)
    told: list[str] = []
    for i, name in enumerate(names):
        new, number = name, lower[: i + 1].count(lower[i])
        while lower.count(lower[i]) > 1 and new.lower() in taken:
            new, number = f"{name}_{number}", number + len(names)
        taken.add(new.lower())
        told.append(new)
    return told


def _shown(type_: pa.DataType) -> pa.DataType:
    """The type that DuckDB is given: two it does not have. Wide decimals become text, which is exact."""
    if pa.types.is_float16(type_):
        return pa.float32()
    return pa.string() if pa.types.is_decimal256(type_) else type_


def _cast(scan: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in scan:
        yield batch.rename_columns(schema.names).cast(schema) if len(schema) else batch


def _with_nothing(scan: Iterable[pa.RecordBatch], numbers: list[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a scan with the column without values among the others."""
    for batch in scan:
        for first in range(0, batch.num_rows, len(_NOTHING)):
            part = batch.slice(first, len(_NOTHING))
            nothing: Any = _NOTHING.slice(0, part.num_rows)
            own = iter(part.columns)
            yield pa.RecordBatch.from_arrays([nothing if n == 0 else next(own) for n in numbers], schema=schema)
