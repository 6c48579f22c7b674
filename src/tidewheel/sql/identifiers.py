"""Which table a statement means: SQL does not tell upper from lower case."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidewheel.duck.error_text import pointed
from tidewheel.errors import QueryError
from tidewheel.model.schema import nearest

_YOUR_ROWS = "DataFrames and other rows of yours get their names with wh.sql(..., tables={'name': rows})"
A_FILE = "A file becomes a table with wh.load(table, file, time=..., key=...)"
_FILE = re.compile(r"[/\\*]|\.(parquet|csv|tsv|json|jsonl|ndjson|arrow|avro)\b", re.IGNORECASE)


def meant(name: str, known: Sequence[str], text: str, place: tuple[int, int]) -> str | None:
    """The one of the `known` tables that has this name, as it is written or else in another case; None if there is none."""
    alike = [name] if name in known else [one for one in known if one.lower() == name.lower()]
    if len(alike) > 1:
        said = f"tables {' and '.join(alike)} differ only in case, which SQL ignores; use them with wh.table(...)"
        raise QueryError(pointed(said, text, place))
    return alike[0] if alike else None


def unknown(name: str, known: Sequence[str], text: str, place: tuple[int, int], *, read: bool = False) -> QueryError:
    """The error for a name that no table has; if the statement reads it, with what may have been meant instead of a table."""
    near = nearest(name, list(known))
    said = f"there is no table {name!r}.{near} Tables: {', '.join(known) or 'none yet'}"
    if read and not near:
        said += f". {A_FILE if _FILE.search(name) else _YOUR_ROWS}"
    return QueryError(pointed(said, text, place))
