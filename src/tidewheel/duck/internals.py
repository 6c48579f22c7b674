"""Every private or undocumented name of DuckDB that is used, in one place: an upgrade of DuckDB begins here.

To check on an upgrade (pyproject.toml allows one minor version at a time):

- *Sources.* `duckdb._sources` is how DuckDB's Python package scans Arrow data: `sql/table_source.py` is such a source, because only a
  source is offered every filter of a scan, and exactly. Its nodes are read by `sql/duck_filters.py`: a new kind of node is one that stays
  with DuckDB, a node that means something else gives wrong answers (tests/unit/test_sql_pushdown.py, tests/property/test_sql_*.py).
- *Trees.* The JSON of `json_serialize_sql` is not documented. `duck/nodes.py` makes its nodes; they are read by their `class`, `type` and
  children in `duck/bounded.py`, `duck/expressions.py`, `duck/row_functions.py`, `duck/statement_time.py`, and in `sql/` wherever a `Node`
  is matched. A new class of node is unknown to `bounded`, and so runs in a process apart.
- *Plans.* The JSON of `EXPLAIN (FORMAT json)` is read by `sql/explained.py`.
- *Functions.* tests/unit/test_row_functions.py names every function that is new.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from duckdb._sources.arrow import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Postfix, Unary, exact_value
from duckdb._sources.nodes import Node as FilterNode

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

__all__ = [
    "ARROW_SCAN", "ArrowScanSource", "Binary", "Col", "FilterNode", "In", "Lit", "Postfix", "Unary", "exact_value",
    "register_source", "text_of_tree", "tree_of_text",
]  # fmt: skip

ARROW_SCAN = "PYTHON_ARROW_SCAN"
"""A scan of a source, as plans call it."""


def register_source(connection: Connection, name: str, source: ArrowScanSource) -> None:
    """Make a source known by a name. What can be registered publicly is wrapped in a source of DuckDB's, which takes fewer filters."""
    connection._register_arrow_source(name, source)


def tree_of_text(connection: Connection, text: str) -> dict[str, Any]:
    """`{"error": false, "statements": [{"node": …}, …]}`, or `{"error": true, "error_message": …}` of what is no SELECT."""
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
    assert row is not None
    return json.loads(row[0])  # type: ignore[no-any-return]


def text_of_tree(connection: Connection, tree: dict[str, Any]) -> str:
    """The inverse."""
    row = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchone()
    assert row is not None
    return str(row[0])
