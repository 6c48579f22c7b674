"""Functions that make much out of little: DuckDB does not count what they make, so one word could take all memory of the process.

Macros of the same names stand before them in every database, and refuse what is too long. They stay what they were otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection


LONGEST = 100_000
"""Characters of a text, or elements of a list, that one call may make."""

_WHOLE = "TRY_CAST(TRY_CAST({} AS VARCHAR) AS HUGEINT)"
_SECONDS = "epoch(TRY_CAST(TRY_CAST({} AS VARCHAR) AS TIMESTAMP))"
_STEP = "nullif(epoch(TRY_CAST(TRY_CAST({} AS VARCHAR) AS INTERVAL)), 0)"


def _checked(length: str, argument: str, name: str) -> str:
    """An argument that is an error if what it asks for is too long. It is the argument that fails, or the call would be made first."""
    return f"CASE WHEN {length} > {LONGEST} THEN error('{name}(…) makes at most {LONGEST} characters or elements') ELSE {argument} END"


def _guards() -> list[str]:
    made = []
    for name in ("lpad", "rpad"):
        made.append(f"{name}(s, n, p) AS system.main.{name}(s, {_checked('n', 'n', name)}, p)")
    made.append(f"repeat(s, n) AS system.main.repeat(s, {_checked('n * greatest(length(s), 1)', 'n', 'repeat')})")
    for name in ("list_resize", "array_resize"):
        n = _checked("n", "n", name)
        made.append(f"{name}(l, n) AS system.main.{name}(l, {n}), (l, n, v) AS system.main.{name}(l, {n}, v)")
    for name in ("range", "generate_series"):
        a, b, c = (_WHOLE.format(x) for x in "abc")
        s, t, step = _SECONDS.format("a"), _SECONDS.format("b"), _STEP.format("c")
        three = f"coalesce(({b} - {a}) // nullif({c}, 0), ({t} - {s}) / {step})"
        made.append(
            f"{name}(a) AS system.main.{name}({_checked(a, 'a', name)}), "
            f"(a, b) AS system.main.{name}(a, {_checked(f'{b} - {a}', 'b', name)}), "
            f"(a, b, c) AS system.main.{name}(a, {_checked(three, 'b', name)}, c)"
        )
    return made


def guard(connection: Connection) -> None:
    """Put the macros into a new database."""
    for macro in _guards():
        connection.execute(f"CREATE MACRO {macro}")
