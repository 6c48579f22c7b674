"""Rows on their way to the owner: whatever a caller hands to `insert`, as Arrow; or as it is, if that would change what the owner says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel.cluster.requests import Values
from tidewheel.model.schema import TableSpec
from tidewheel.write.accept import Acceptor
from tidewheel.write.arrow_input import InputColumns, Parts, by_name, to_batches


@dataclass(frozen=True, slots=True)
class Outgoing:
    schema: pa.Schema
    batches: list[pa.RecordBatch]
    values: Values | None = None


def outgoing(data: Any, spec: TableSpec, acceptor: Acceptor) -> Outgoing:
    """Arrow goes as it is, and the owner casts and checks it. Python values are typed here if they all fit; if one does not, they go as
    they are, so that the owner finds and words the same mistakes as if they had been inserted there."""
    parts = to_batches(data, spec)
    if not isinstance(parts, list):
        parts = _read(parts, spec, acceptor)
    if not parts:
        return Outgoing(pa.schema([]), [])
    batches = [one for one in map(_arrow, parts) if one is not None]
    if len(batches) == len(parts):
        return Outgoing(batches[0].schema, batches)
    (part,) = parts
    assert isinstance(part, InputColumns)
    typed = acceptor.typed(part)
    if typed is not None:
        return Outgoing(typed.schema, [typed])
    lists = {name: column for name, column in part.columns.items() if isinstance(column, list)}
    rest = _arrow(InputColumns(part.rows, {name: column for name, column in part.columns.items() if name not in lists}))
    assert rest is not None
    return Outgoing(rest.schema, [rest] if rest.num_columns else [], Values(part.rows, tuple(part.columns), lists))


def _read(steps: Parts, spec: TableSpec, acceptor: Acceptor) -> list[pa.RecordBatch | InputColumns]:
    """What an iterator brings, to its end: batches of one schema, or one part. They are of the table's schema where they have to be
    typed; if one of them does not fit, all of them go as Python values."""
    found: list[pa.RecordBatch | InputColumns] = []
    size = 0
    for part in steps:
        if isinstance(part, InputColumns):
            part = acceptor.typed(part) or part
        if isinstance(part, pa.RecordBatch):
            size = acceptor.grown(size, part)
        found.append(part)
    first = found[0].schema if found and isinstance(found[0], pa.RecordBatch) else None
    if first is not None and all(isinstance(part, pa.RecordBatch) and part.schema.equals(first, True) for part in found):
        return found
    columns = [by_name(part, spec) if isinstance(part, pa.RecordBatch) else part for part in found]
    typed = [acceptor.typed(part) for part in columns]
    return [one for one in typed if one is not None] if all(one is not None for one in typed) else [_as_values(columns)]


def _as_values(parts: list[InputColumns]) -> InputColumns:
    """All of them as one, as Python has the values."""
    out: dict[str, list[Any]] = {name: [] for part in parts for name in part.columns}
    for part in parts:
        for name, values in out.items():
            given = part.columns.get(name)
            values += [None] * part.rows if given is None else given if isinstance(given, list) else given.to_pylist()
    return InputColumns(sum(part.rows for part in parts), out)


def _arrow(part: pa.RecordBatch | InputColumns) -> pa.RecordBatch | None:
    """Rows as Arrow has them; None if some of them are Python values."""
    if isinstance(part, pa.RecordBatch):
        return part
    if any(isinstance(column, list) for column in part.columns.values()):
        return None
    return pa.RecordBatch.from_arrays(list(part.columns.values()), list(part.columns))
