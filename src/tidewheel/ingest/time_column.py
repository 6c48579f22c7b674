"""The type of a table's time column, and the format its values have, from a sample of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tidewheel.errors import SchemaError
from tidewheel.ingest.infer import DAY, MOMENT, epoch_unit, moment_type
from tidewheel.ingest.rules import EPOCHS
from tidewheel.ingest.time_format import TimeFormat

_SAY_FORMAT = "say how it is written with a time format: epoch-s, epoch-ms, epoch-us, epoch-ns, or a pattern such as '%d/%m/%Y %H:%M:%S'"


def time_type(column: str, type_: pa.DataType, values: Sequence[Any], format_: str, notes: list[str]) -> tuple[pa.DataType, str]:
    """The column's type, and the format its values have; `notes` gets what was concluded. SchemaError says what to say."""
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
        # Whole numbers of the column's unit are times as they are, texts are not.
        said = fractions or any(isinstance(v, str) for v in given)
        return pa.timestamp("us" if fractions else unit, "UTC"), f"epoch-{unit}" if said else ""
    texts = [v for v in given if isinstance(v, str)]
    good = [v for v in texts if MOMENT.fullmatch(v.strip()) or DAY.fullmatch(v.strip())]
    if 2 * len(good) >= len(given) and good:
        return moment_type(good), ""
    bad = next((v for v in given if v not in good), None)
    raise SchemaError(f"time column {column!r}: {bad!r} is not an ISO time; {_SAY_FORMAT}")


def numbers_of(type_: pa.DataType, values: Sequence[Any]) -> list[int | float]:
    """The values of a column that are numbers; in CSV numbers are texts."""
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
