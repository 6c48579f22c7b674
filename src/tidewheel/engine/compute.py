"""The computer of derived tables, as a protocol: Spark is the one that users have, tests have another that needs no Java.

The owner of a warehouse never computes a definition: a process with a computer asks for a plan, computes, and hands the rows back
(`engine/refresher.py`). So the owner needs no Spark and runs no code of users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from tidewheel.model.derived import Definition, SourceRead
from tidewheel.model.schema import TableSpec


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of one source that a refresh reads, not read yet. A computer takes them by `arrow`, or reads `read` by itself."""

    read: SourceRead
    spec: TableSpec
    arrow: Callable[[], pa.Table]
    """Reads the rows through the engine, all at once: for what fits into memory."""
    keys: tuple[Any, ...] | None = None
    """Only rows with these values of the column `key`; None: all."""
    key: str = ""
    columns: tuple[str, ...] | None = None
    """The columns that the definition is to see, in this order; None: all. `arrow` gives just these."""


@dataclass(frozen=True, slots=True)
class Defined:
    """A query as a computer understands it, before a table is made of it."""

    definition: Definition
    schema: pa.Schema
    bounds: tuple[tuple[str, str], ...]
    """(source, JSON of `derive.bounds.Bounds`), in the order of the sources."""
    warnings: tuple[str, ...] = ()
    hidden: tuple[pa.Field, ...] = ()
    """The columns of `definition.hidden`."""


class Compute(Protocol):
    """Every method may be called from any thread, one call at a time."""

    def run(self, definition: Definition, sources: Mapping[str, SourceRows]) -> pa.Table:
        """All rows that the definition makes of these, with its hidden columns; the caller clips them to the partitions that it wants."""
        ...
