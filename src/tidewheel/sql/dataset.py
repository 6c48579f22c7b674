"""A table as a dataset of Arrow's: what DuckDB, Polars and others scan with the columns and the filter that they need.

Every scan shows the table as it is when the scan begins. The filter prunes regions and leaves as far as it is about the key and the time,
and is applied exactly by Arrow. Nothing of Arrow's own dataset stands behind this class, so what cannot be asked of a table is refused
here, by name: Arrow would end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds

from tidewheel.engine.protocol import PinnedTable
from tidewheel.errors import QueryError
from tidewheel.model.conditions import columns_of
from tidewheel.model.schema import TableSpec, nearest
from tidewheel.sql.arrow_filters import condition_of
from tidewheel.sql.table_scan import TableScan

_BATCH_ROWS = 131_072

Projection = Sequence[str] | Mapping[str, pc.Expression] | None


class TableDataset(pds.Dataset):  # type: ignore[misc]
    """Made by `Table.dataset`. May be scanned from any thread, any number of times."""

    def __init__(self, spec: TableSpec, pin: Callable[[], PinnedTable]) -> None:
        # Arrow's own __init__ refuses to be called; what it would set up is not used
        self._spec = spec
        self._pin = pin

    @property
    def schema(self) -> pa.Schema:
        return self._spec.schema

    # ---- scans ------------------------------------------------------------------------------------------

    def scanner(
        self, columns: Projection = None, filter: pc.Expression | None = None, batch_size: int = _BATCH_ROWS, **ignored: Any
    ) -> pds.Scanner:
        """A scan that begins now. It is read once, as whatever the scanner is asked for."""
        names, whole = self._names(columns)
        scan = self._scan(whole, filter)
        reader = pa.RecordBatchReader.from_batches(scan.schema, iter(scan))
        return pds.Scanner.from_batches(reader, columns=names, batch_size=batch_size, use_threads=False)

    def to_reader(self, columns: Projection = None, filter: pc.Expression | None = None, **ignored: Any) -> pa.RecordBatchReader:
        """The rows of a scan that begins now, as a stream."""
        names, whole = self._names(columns)
        if isinstance(names, Mapping):
            return self.scanner(columns, filter).to_reader()
        scan = self._scan(whole, filter)
        return pa.RecordBatchReader.from_batches(scan.schema, iter(scan))

    def to_batches(
        self, columns: Projection = None, filter: pc.Expression | None = None, batch_size: int = _BATCH_ROWS, **ignored: Any
    ) -> Iterator[pa.RecordBatch]:
        for batch in self.to_reader(columns, filter):
            for first in range(0, batch.num_rows, batch_size):
                yield batch.slice(first, batch_size)

    def to_table(self, columns: Projection = None, filter: pc.Expression | None = None, **ignored: Any) -> pa.Table:
        return self.to_reader(columns, filter).read_all()

    def head(self, num_rows: int, columns: Projection = None, filter: pc.Expression | None = None, **ignored: Any) -> pa.Table:
        reader = self.to_reader(columns, filter)
        found: list[pa.RecordBatch] = []
        rows = 0
        for batch in reader:
            found.append(batch.slice(0, num_rows - rows))
            rows += found[-1].num_rows
            if rows >= num_rows:
                break
        return pa.Table.from_batches(found, reader.schema)

    def count_rows(self, filter: pc.Expression | None = None, **ignored: Any) -> int:
        return sum(batch.num_rows for batch in self._scan([], filter))

    def take(self, indices: Any, columns: Projection = None, filter: pc.Expression | None = None, **ignored: Any) -> pa.Table:
        return self.to_table(columns, filter).take(indices)

    def _scan(self, columns: Sequence[str], filter: pc.Expression | None) -> TableScan:
        if filter is None:
            return TableScan(self._pin(), columns, None, max_rows=float("inf"))
        if not isinstance(filter, pc.Expression):
            raise QueryError(f"the filter of a dataset is an expression of pyarrow, such as pc.field('speed') > 30, not {filter!r}")
        condition = condition_of(filter)
        for name in columns_of(condition) or ():
            self._check(name)
        return TableScan(self._pin(), columns, condition, lambda batch: _mask(batch, filter), max_rows=float("inf"))

    def _names(self, columns: Projection) -> tuple[list[str] | Mapping[str, pc.Expression], list[str]]:
        """What the scanner is to make, and the columns that it reads for that."""
        if columns is None:
            return self.schema.names, self.schema.names
        if isinstance(columns, Mapping):
            reads: dict[str, None] = {}
            for expression in columns.values():
                named = columns_of(condition_of(expression))
                reads.update(dict.fromkeys(self.schema.names if named is None else named))
            names = [self._check(name) for name in reads]
            return columns, names or self.schema.names[:1]
        if isinstance(columns, str):
            raise QueryError(f"columns is a list of column names, not {columns!r}")
        names = [self._check(name) for name in columns]
        return names, names

    def _check(self, name: str) -> str:
        if name not in self.schema.names:
            known = self.schema.names
            raise QueryError(f"table {self._spec.name!r} has no column {name!r}.{nearest(name, known)} Columns: {', '.join(known)}")
        return name

    # ---- what a table is not ----------------------------------------------------------------------------

    def filter(self, expression: pc.Expression) -> Any:
        raise self._refused("filter", "give the filter to the scan: dataset.to_table(filter=...)")

    def replace_schema(self, schema: pa.Schema) -> Any:
        raise self._refused("replace_schema", "a table has one schema")

    def get_fragments(self, filter: pc.Expression | None = None) -> Any:
        raise self._refused("get_fragments", "a table is not made of files alone; scan it whole")

    def sort_by(self, sorting: Any, **ignored: Any) -> Any:
        raise self._refused("sort_by", "use table.query(order_by=...)")

    def join(self, *arguments: Any, **named: Any) -> Any:
        raise self._refused("join", "use wh.sql, or to_table().join(...)")

    def join_asof(self, *arguments: Any, **named: Any) -> Any:
        raise self._refused("join_asof", "use wh.sql, or to_table().join_asof(...)")

    @property
    def partition_expression(self) -> pc.Expression:
        return pc.scalar(True)

    def _refused(self, name: str, instead: str) -> QueryError:
        return QueryError(f"the dataset of table {self._spec.name!r} has no {name}: {instead}")

    def __reduce__(self) -> Any:
        raise TypeError(f"the dataset of table {self._spec.name!r} reads rows of a running warehouse and cannot be pickled")

    def __repr__(self) -> str:
        return f"<TableDataset {self._spec.name}>"


def _mask(batch: pa.RecordBatch, expression: pc.Expression) -> pa.BooleanArray:
    """What Arrow makes of an expression for every row."""
    done = pds.Scanner.from_batches([batch], schema=batch.schema, columns={"keep": expression}, use_threads=False).to_table()
    keep = done.column(0).combine_chunks() if done.num_rows else pa.array([], pa.bool_())
    return keep.chunk(0) if isinstance(keep, pa.ChunkedArray) else keep
