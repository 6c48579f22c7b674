"""Rows on their way to the owner: whatever a caller hands to `insert`, as Arrow; or as it is, if that would change what the owner says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel.cluster.requests import Values
from tidewheel.model.schema import TableSpec
from tidewheel.write.accept import Acceptor
from tidewheel.write.arrow_input import InputColumns, to_batches


@dataclass(frozen=True, slots=True)
class Outgoing:
    schema: pa.Schema
    batches: list[pa.RecordBatch]
    values: Values | None = None


def outgoing(data: Any, spec: TableSpec, acceptor: Acceptor) -> Outgoing:
    """Arrow goes as it is, and the owner casts and checks it. Python values are typed here if they all fit; if one does not, they go as
    they are, so that the owner finds and words the same mistakes as if they had been inserted there."""
    parts = to_batches(data, spec)
    if not parts:
        return Outgoing(pa.schema([]), [])
    batches = [one for one in map(_arrow, parts) if one is not None]
    if len(batches) == len(parts):
        return Outgoing(batches[0].schema, batches)
    (part,) = parts
    assert isinstance(part, InputColumns)
    typed = acceptor.typed(part)
    if typed is not None:
        return Outgoing(spec.schema, [typed])
    lists = {name: column for name, column in part.columns.items() if isinstance(column, list)}
    rest = _arrow(InputColumns(part.rows, {name: column for name, column in part.columns.items() if name not in lists}))
    assert rest is not None
    return Outgoing(rest.schema, [rest] if rest.num_columns else [], Values(part.rows, tuple(part.columns), lists))


def _arrow(part: pa.RecordBatch | InputColumns) -> pa.RecordBatch | None:
    """Rows as Arrow has them; None if some of them are Python values."""
    if isinstance(part, pa.RecordBatch):
        return part
    if any(isinstance(column, list) for column in part.columns.values()):
        return None
    return pa.RecordBatch.from_arrays(list(part.columns.values()), list(part.columns))
