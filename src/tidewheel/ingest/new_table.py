"""The definition of a new table: columns from a sample, from flags or from a record descriptor; time and key as chosen, or as is plain.

Pure: nothing is made here. `define` serves streams, whose records may carry columns of their source; the others serve `tidewheel create`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidewheel.errors import SchemaError
from tidewheel.ingest.descriptor import Descriptor
from tidewheel.ingest.infer import epoch_unit
from tidewheel.ingest.sample import Sample
from tidewheel.ingest.time_column import numbers_of, time_type
from tidewheel.model.definition import key_of, key_text, table_of, time_name, time_of
from tidewheel.model.schema import Epoch, KeyRule, TableSpec, make_spec, nearest, zorder


@dataclass(frozen=True, slots=True)
class NewTable:
    """A definition, and what was concluded on the way."""

    spec: TableSpec
    time_format: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wishes:
    """The words about a table beside its columns."""

    name: str
    time: str | None = None
    key: str | None = None
    partition: str | None = None
    time_format: str = ""


def define(
    name: str,
    sample: Sample,
    meta: Mapping[str, pa.DataType],
    *,
    time: str | Epoch | None,
    key: str | KeyRule | None,
    partition: str | None,
    time_format: str,
) -> NewTable:
    """A table for records like these. SchemaError says what is missing."""
    columns = {**{f.name: f for f in sample.schema}, **{column: pa.field(column, type_) for column, type_ in meta.items()}}
    seen = f"Columns of the first {sample.records:,} records of {sample.source}: {', '.join(columns)}"
    if time is None or key is None:
        missing = " and ".join(what for what, given in (("time", time), ("key", key)) if given is None)
        ways = 'time="ts", key="plate"; on the command line --time ts --key plate'
        raise SchemaError(f"there is no table {name!r} yet; to create it, say its {missing} ({ways}). {seen}")
    column = time_name(time)
    if column not in columns:
        raise SchemaError(f"there is no time column {column!r}.{nearest(column, list(columns))} {seen}")
    notes: list[str] = []
    if not isinstance(time, Epoch) and column not in meta:
        type_, time_format = time_type(column, columns[column].type, sample.values.get(column, []), time_format, notes)
        columns[column] = pa.field(column, type_)
    return NewTable(make_spec(name, pa.schema(list(columns.values())), time=time, key=key, partition=partition), time_format, tuple(notes))


def from_sample(wishes: Wishes, sample: Sample, types: Mapping[str, pa.DataType]) -> NewTable:
    """A table for records like these; `types` are those of some columns, where another one is wanted than was found."""
    for column in types:
        if column not in sample.schema.names:
            raise SchemaError(_missing(column, sample.schema.names, sample.source))
    schema = pa.schema([f.with_type(types.get(f.name, f.type)) for f in sample.schema])
    wishes, notes = _chosen(wishes, schema, sample.values, sample.source)
    assert wishes.time is not None and wishes.key is not None
    time = time_of(wishes.time)
    if time_name(time) not in schema.names:
        raise SchemaError(_missing(time_name(time), schema.names, sample.source))
    new = define(
        wishes.name, replace(sample, schema=schema), {}, time=time, key=key_of(wishes.key),
        partition=wishes.partition, time_format=wishes.time_format,
    )  # fmt: skip
    return replace(new, notes=(*notes, *new.notes))


def from_columns(wishes: Wishes, columns: Sequence[tuple[str, pa.DataType]]) -> NewTable:
    """A table of these columns."""
    schema = pa.schema(columns)
    wishes, notes = _chosen(wishes, schema, {}, "")
    return NewTable(_spec(wishes, schema), "", notes)


def from_descriptor(wishes: Wishes, descriptor: Descriptor, types: Mapping[str, pa.DataType], file: str) -> NewTable:
    """A table as a descriptor describes it: the time is the one dimension that is a time, the key is made of the others.

    Where two or more of the others have bounds, the key is the z-order of these; else it is the first. What the command line says wins.
    """
    schema = pa.schema([(name, types.get(name, type_)) for name, type_ in descriptor.fields])
    for column in types:
        if column not in schema.names:
            raise SchemaError(_missing(column, schema.names, file))
    notes: list[str] = []
    moments = [one.name for one in descriptor.dimensions if one.name in descriptor.moments] or list(descriptor.moments)
    if wishes.time is None and len(moments) == 1:
        wishes = replace(wishes, time=moments[0])
    time = time_name(time_of(wishes.time)) if wishes.time is not None else ""
    others = [one for one in descriptor.dimensions if one.name != time]
    if wishes.key is None and others and wishes.time is not None:
        bounded = [one for one in others if one.lo is not None]
        if len(bounded) > 1:
            ends = [one.lo for one in bounded] + [one.hi for one in bounded]
            key = key_text(zorder(*(one.name for one in bounded), bounds=tuple(end for end in ends if end is not None)))
            left = [one.name for one in others if one.lo is None]
        else:
            key, left = others[0].name, [one.name for one in others[1:]]
        wishes = replace(wishes, key=key)
        if left:
            notes.append(f"filtered, not indexed: {', '.join(left)}. With bounds they would share the key: --key 'zorder(…)'")
    wishes, more = _chosen(wishes, schema, {}, file)
    return NewTable(_spec(wishes, schema), "", (*notes, *more))


def _spec(wishes: Wishes, schema: pa.Schema) -> TableSpec:
    assert wishes.time is not None and wishes.key is not None
    time = time_of(wishes.time)
    if isinstance(time, str) and time in schema.names and pa.types.is_integer(schema.field(time).type):
        raise SchemaError(f"time column {time!r} of table {wishes.name!r} has whole numbers: say their unit too, as in --time '{time} ms'")
    return table_of(wishes.name, schema, time=wishes.time, key=wishes.key, partition=wishes.partition)


def _chosen(wishes: Wishes, schema: pa.Schema, values: Mapping[str, Sequence[Any]], source: str) -> tuple[Wishes, tuple[str, ...]]:
    """The wishes with a time and a key. SchemaError says what could be, where it is not plain."""
    notes: list[str] = []
    time = wishes.time
    problems = []
    moments = [f.name for f in schema if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type)]
    if time is None and len(moments) == 1:
        time = moments[0]
        notes.append(f"{time} is the time: no other column has times")
    if time is None:
        could = moments or [f.name for f in schema if epoch_unit(numbers_of(f.type, values.get(f.name, ())))]
        if could:
            problems.append(f"which column is the time? It could be {_either(could)}: say --time {could[0]}")
        else:
            problems.append("which column is the time? None has times; for whole numbers say the unit too: --time 'seen ms'")
    if wishes.key is None:
        could = [name for name in schema.names if name != time]
        problems.append(f"which column is the key, by which rows are looked up? Say --key {could[0] if could else 'plate'}")
    if problems:
        of = f" of {source}" if source else ""
        raise SchemaError(f"table {wishes.name!r}: {'; '.join(problems)}. Columns{of}: {', '.join(schema.names)}")
    return replace(wishes, time=time), tuple(notes)


def _either(names: Sequence[str]) -> str:
    return " or ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} or {names[-1]}"


def _missing(column: str, names: Sequence[str], source: str) -> str:
    return f"{source} has no column {column!r}.{nearest(column, list(names), 0.5)} Its columns: {', '.join(names)}"
