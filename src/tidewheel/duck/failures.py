"""Errors of DuckDB: of which kind they are, and where in a statement they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from tidewheel.duck.error_text import of_the_line_before

if TYPE_CHECKING:
    from tidewheel.duck.connect import Connection

DuckError = duckdb.Error

BROKEN = (duckdb.InternalException, duckdb.FatalException)
"""After which a database may be of no use any more."""

_NO_MEMORY = ("Out of Memory", "Memory allocation failure")
"""As DuckDB says it, by the place where it was."""

_AGAIN = "EXPLAIN\n"
"""What is put before a statement to hear where it is wrong. It is a line of its own, so that only the numbers of lines are not its own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Also where Arrow or Python have told us, in DuckDB's words."""
    return isinstance(error, duckdb.OutOfMemoryException) or any(one in str(error) for one in _NO_MEMORY)


def is_interrupt(error: BaseException) -> bool:
    """Whether the connection was interrupted."""
    return isinstance(error, duckdb.InterruptException) or "INTERRUPT" in str(error)


def is_ctrl_c(error: RuntimeError) -> bool:
    """Whether DuckDB has noticed a Ctrl-C itself."""
    return str(error) == "Query interrupted"


def bound(connection: Connection, text: str, parameters: list[Any] | dict[str, Any] | None) -> Any:
    """A relation that runs a statement when it is read. Raises what is wrong with its names and types, and where."""
    try:
        return connection.sql(text, params=parameters)
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException) as e:
        try:
            connection.execute(f"{_AGAIN}{text}", parameters)  # which says the same, and where
        except duckdb.Error as again:
            raise type(e)(of_the_line_before(str(again))) from None
        raise
