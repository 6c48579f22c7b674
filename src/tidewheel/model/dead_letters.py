"""Dead letters: records that could not be made rows, travelling with the rows they arrived with.

A batch on its way to `TableEngine.stage` may have hidden columns beside the table's own. A record that could not be parsed is a row whose
`_tw_bad` holds the reason; all its other columns may be null, because it never becomes a row: the owner turns it into a reject of the
table, in the same commit as the rows around it. So a dead letter is kept exactly once, like a row.

Contract: a schema that has any hidden column has `_tw_bad`; the others may be left out. The table's own columns may all be nullable in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import pc

BAD = "_tw_bad"
"""Why it cannot be a row; null for rows."""
COLUMN = "_tw_column"
"""The column whose value is the reason; null when it is the record as a whole."""
RAW = "_tw_raw"
"""The record as it came, as text."""
ORIGIN = "_tw_origin"
"""Where it came from: `topic/partition@offset`, or `file:line`."""

HIDDEN = (BAD, COLUMN, RAW, ORIGIN)
FIELDS = tuple(pa.field(name, pa.string()) for name in HIDDEN)

MOST_RAW = 65_536
"""Characters of a record that are kept."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that is no row. `position` is its place among what it came with."""

    position: int
    reason: str
    column: str
    raw: str
    origin: str


def with_hidden(schema: pa.Schema) -> pa.Schema:
    """The schema of a table's batches that may hold dead letters."""
    return pa.schema([*(f.with_nullable(True) for f in schema), *FIELDS], schema.metadata)


def split(batch: pa.RecordBatch, start: int = 0) -> tuple[pa.RecordBatch, list[DeadLetter]]:
    """The rows of a batch without the hidden columns, uncopied where there is no dead letter; and its dead letters.

    `start` is the position of the batch's first row.
    """
    names = batch.schema.names
    if BAD not in names:
        return batch, []
    bad = batch.column(BAD)
    rows = batch.select([n for n in names if n not in HIDDEN])
    if bad.null_count == len(bad):
        return rows, []
    where = pc.indices_nonzero(pc.is_valid(bad))
    positions = (start + i for i in where.to_pylist())
    texts = (_texts(batch, name, where) for name in HIDDEN)
    letters = [DeadLetter(*parts) for parts in zip(positions, *texts, strict=True)]
    if len(letters) == len(bad):  # apart, because Arrow filters no views
        return rows.slice(0, 0), letters
    return rows.filter(pc.is_null(bad)), letters


def letters_batch(schema: pa.Schema, letters: Sequence[DeadLetter]) -> pa.RecordBatch:
    """Dead letters as a batch of `with_hidden(schema)`."""
    hidden: tuple[list[str | None], ...] = (
        [x.reason or "unknown" for x in letters],
        [x.column or None for x in letters],
        [x.raw[:MOST_RAW] for x in letters],
        [x.origin or None for x in letters],
    )
    columns = [pa.nulls(len(letters), f.type) for f in schema] + [pa.array(h, pa.string()) for h in hidden]
    return pa.RecordBatch.from_arrays(columns, schema=with_hidden(schema))


def rows_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A table's batch as one that may hold dead letters, and holds none; nothing is copied."""
    nulls = pa.nulls(batch.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([*batch.columns, *(nulls for _ in HIDDEN)], schema=with_hidden(batch.schema))


def _texts(batch: pa.RecordBatch, name: str, where: pa.Array) -> Iterable[str]:
    if name not in batch.schema.names:
        return [""] * len(where)
    return (value or "" for value in batch.column(name).take(where).to_pylist())
