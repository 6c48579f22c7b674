"""A computer of derived tables that needs no Java: DuckDB, for definitions in the SQL that it has in common with Spark.

It is for tests of everything around the computer. Types of its answers are DuckDB's (a sum of integers is a hugeint), so they are brought
to those of the table that they are for, if one is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from tidewheel.duck.connect import LEAST, connect
from tidewheel.engine.compute import SourceRows
from tidewheel.model.derived import Definition


class DuckCompute:
    """One database, a new view of each source for each run. `before` is called before each run: to fail, or to do something meanwhile."""

    def __init__(self, before: Callable[[Definition, Mapping[str, SourceRows]], None] | None = None) -> None:
        self._connection = connect(4 * LEAST, threads=1)
        self._before = before
        self.runs: list[tuple[str, dict[str, int]]] = []
        """Of each run the definition's text, and how many rows of each source it had."""

    def run(self, definition: Definition, sources: Mapping[str, SourceRows]) -> pa.Table:
        if self._before is not None:
            self._before(definition, sources)
        tables = {name: one.arrow() for name, one in sources.items()}
        self.runs.append((definition.text, {name: table.num_rows for name, table in tables.items()}))
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            return _narrow(self._connection.sql(definition.text).to_arrow_table())
        finally:
            for name in tables:
                self._connection.unregister(name)

    def schema(self, text: str, sources: Mapping[str, pa.Schema]) -> pa.Schema:
        """The columns that a definition gives."""
        for name, schema in sources.items():
            self._connection.register(name, schema.empty_table())
        try:
            return _narrow(self._connection.sql(text).to_arrow_table()).schema
        finally:
            for name in sources:
                self._connection.unregister(name)

    def close(self) -> None:
        self._connection.close()


def _narrow(table: pa.Table) -> pa.Table:
    """Sums of whole numbers as int64, as Spark has them; one that does not fit is an error."""
    fields = [
        field.with_type(pa.int64()) if pa.types.is_decimal(field.type) and (field.type.precision, field.type.scale) == (38, 0) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
