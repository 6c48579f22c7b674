"""The values that are given with a statement: for `?` in a list, for `$name` in a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tidewheel.errors import QueryError

Parameters = list[Any] | dict[str, Any] | None


def parameters_of(given: Any) -> Parameters:
    """What was given with a statement, as DuckDB takes it."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        if not all(isinstance(name, str) for name in given):
            raise QueryError(f"parameters by name have texts as names, not {list(given)!r}")
        return {name.removeprefix("$"): _value(value) for name, value in given.items()}
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise QueryError(f"parameters are a list for ? or a mapping for $name, not {given!r}")
    return [_value(value) for value in given]


def _value(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        return value.as_py()
    item = getattr(value, "item", None)  # a scalar of NumPy
    return item() if type(value).__module__ == "numpy" and callable(item) and getattr(value, "dtype", None) != "M8[ns]" else value


def value_of(name: str, given: Parameters) -> Any:
    """The value for a parameter, which the tree of a statement calls by its name or its number. Raises LookupError if there is none."""
    if isinstance(given, dict):
        return given[name]
    if given is not None and name.isdecimal() and 0 < int(name) <= len(given):
        return given[int(name) - 1]
    raise LookupError(name)
