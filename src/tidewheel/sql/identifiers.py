"""Which table a statement means: SQL does not tell upper from lower case."""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.duck.error_text import pointed
from tidewheel.errors import QueryError
from tidewheel.model.schema import nearest


def meant(name: str, known: Sequence[str], text: str, place: tuple[int, int]) -> str | None:
    """The one of the `known` tables that has this name, as it is written or else in another case; None if there is none."""
    alike = [name] if name in known else [one for one in known if one.lower() == name.lower()]
    if len(alike) > 1:
        said = f"tables {' and '.join(alike)} differ only in case, which SQL ignores; use them with wh.table(...)"
        raise QueryError(pointed(said, text, place))
    return alike[0] if alike else None


def unknown(name: str, known: Sequence[str], text: str, place: tuple[int, int]) -> QueryError:
    said = f"there is no table {name!r}.{nearest(name, list(known))} Tables: {', '.join(known) or 'none yet'}"
    return QueryError(pointed(said, text, place))
