"""Types of columns as SQL writes them, by DuckDB's names, and as Arrow keeps them."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from tidewheel.duck.error_text import said_by_duckdb
from tidewheel.duck.parser import parser
from tidewheel.errors import QueryError
from tidewheel.model.type_names import SQL

_INSTEAD = {
    "hugeint": "DECIMAL(38, 0)", "uhugeint": "DECIMAL(38, 0)", "bignum": "DECIMAL(38, 0)", "uuid": "VARCHAR", "enum": "VARCHAR",
    "bit": "BLOB", "time with time zone": "TIME", "geometry": "BLOB", "variant": "VARCHAR",
}  # fmt: skip
"""Types that Arrow does not keep as what they are."""


def arrow_type(written: str) -> pa.DataType:
    """The type that a column of this type has in a table. Raises QueryError if there is none; `written` stood in a statement that DuckDB
    has parsed."""
    try:
        with parser() as cursor:
            found = cursor.sql(f"SELECT CAST(NULL AS {written}) AS x").types[0]
    except duckdb.Error as e:
        first, _, rest = said_by_duckdb(str(e)).partition("\n")
        raise QueryError(f"{first} {rest.partition(chr(10))[0]}".strip() if rest.startswith("Did you mean") else first) from None
    return _arrow(found)


def _arrow(type_: Any) -> pa.DataType:
    kind = type_.id
    if kind in SQL:
        return SQL[kind]
    match kind, dict(type_.children) if kind in ("decimal", "list", "array", "struct", "map") else {}:
        case "decimal", parts:
            return pa.decimal128(parts["precision"], parts["scale"])
        case "list", {"child": child}:
            return pa.list_(_arrow(child))
        case "array", {"child": child, "size": size}:
            return pa.list_(_arrow(child), size)
        case "struct", parts:
            return pa.struct([(name, _arrow(part)) for name, part in parts.items()])
        case "map", {"key": key, "value": value}:
            return pa.map_(_arrow(key), _arrow(value))
    instead = f"; use {_INSTEAD[kind]}" if kind in _INSTEAD else ""
    raise QueryError(f"a table has no columns of type {type_}{instead}")
