"""The definition of a table that is made for a stream: its columns from a sample, its time and key from the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel.errors import SchemaError
from tidewheel.ingest.infer import DAY, MOMENT, epoch_unit, moment_type
from tidewheel.ingest.rules import EPOCHS
from tidewheel.ingest.sample import Sample
from tidewheel.ingest.time_format import TimeFormat
from tidewheel.model.schema import Epoch, KeyRule, TableSpec, make_spec, nearest

_SAY_FORMAT = "say how it is written with a time format: epoch-s, epoch-ms, epoch-us, epoch-ns, or a pattern such as '%d/%m/%Y %H:%M:%S'"


@dataclass(frozen=True, slots=True)
class NewTable:
    """A definition, and what was concluded on the way."""

    spec: TableSpec
    time_format: str
    notes: tuple[str, ...]


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
        raise SchemaError(f"there is no table {name!r} yet; to create it, say its {missing} (--time ts --key plate). {seen}")
    column = time.column if isinstance(time, Epoch) else time
    if column not in columns:
        raise SchemaError(f"there is no time column {column!r}.{nearest(column, list(columns))} {seen}")
    notes: list[str] = []
    if not isinstance(time, Epoch) and column not in meta:
        type_, time_format = _time_type(column, columns[column].type, sample.values.get(column, []), time_format, notes)
        columns[column] = pa.field(column, type_)
    return NewTable(make_spec(name, pa.schema(list(columns.values())), time=time, key=key, partition=partition), time_format, tuple(notes))


def _time_type(column: str, type_: pa.DataType, values: Sequence[Any], format_: str, notes: list[str]) -> tuple[pa.DataType, str]:
    """(the column's type, the format its values have)."""
    t = pa.types
    if t.is_timestamp(type_) or t.is_date(type_):
        return type_, format_
    given = [v for v in values if v is not None]
    numbers = numbers_of(type_, given)
    if format_:
        if 2 * sum(_has(format_, v) for v in given) < len(given) or not given:
            bad = next((v for v in given if not _has(format_, v)), None)
            raise SchemaError(f"time column {column!r}: {bad!r} does not have the time format {format_}; {_SAY_FORMAT}")
        return pa.timestamp(EPOCHS.get(format_, "us") if not any(isinstance(v, float) for v in given) else "us", "UTC"), format_
    if numbers and len(numbers) == len(given):
        unit = epoch_unit(numbers)
        if not unit:
            raise SchemaError(f"time column {column!r} holds numbers such as {numbers[0]!r}, whose unit cannot be told; {_SAY_FORMAT}")
        notes.append(f"{column} holds numbers such as {numbers[0]!r}: read as epoch-{unit}")
        fractions = any(isinstance(v, float) for v in numbers)
        said = fractions or any(
            isinstance(v, str) for v in given
        )  # whole numbers of the column's unit are times as they are, texts are not
        return pa.timestamp("us" if fractions else unit, "UTC"), f"epoch-{unit}" if said else ""
    texts = [v for v in given if isinstance(v, str)]
    good = [v for v in texts if MOMENT.fullmatch(v.strip()) or DAY.fullmatch(v.strip())]
    if 2 * len(good) >= len(given) and good:
        return moment_type(good), ""
    bad = next((v for v in given if v not in good), None)
    raise SchemaError(f"time column {column!r}: {bad!r} is not an ISO time; {_SAY_FORMAT}")


def numbers_of(type_: pa.DataType, values: Sequence[Any]) -> list[int | float]:
    """Those of a column's values that are numbers; in CSV numbers are texts."""
    whole, number = pa.types.is_integer(type_), pa.types.is_floating(type_)
    found: list[int | float] = []
    for value in values:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append(value)
        elif isinstance(value, str) and (whole or number):
            with suppress(ValueError):
                found.append(int(value) if whole else float(value))
    return found


def _has(format_: str, value: Any) -> bool:
    try:
        TimeFormat(format_, "us").value(value)
    except (ValueError, ArithmeticError):
        return False
    return True
