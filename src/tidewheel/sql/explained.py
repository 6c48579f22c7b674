"""How DuckDB would run a statement, or ran it, and which scans of tables its plan has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tidewheel.duck.internals import ARROW_SCAN
from tidewheel.engine.protocol import PinnedTable
from tidewheel.model.conditions import Condition, all_of
from tidewheel.model.dataclass import dataclass
from tidewheel.sql.database import Session
from tidewheel.sql.parameters import Parameters

PlannedScan = tuple[str, list[str], Condition | None]
"""A table, its columns and the condition on its rows."""


@dataclass(frozen=True, slots=True)
class Explained:
    said: str
    """DuckDB's plan."""
    scans: tuple[PlannedScan, ...]
    """Those that it would make, if it was not run."""


def explained(session: Session, tables: Mapping[str, PinnedTable], text: str, parameters: Parameters, analyze: bool) -> Explained:
    """Ask for the plan; with `analyze`, the statement is run."""
    if analyze:
        return Explained(_ask(session, "EXPLAIN ANALYZE", text, parameters), ())
    said = _ask(session, "EXPLAIN", text, parameters)
    session.remember(tables)
    tree = _ask(session, "EXPLAIN (FORMAT json)", text, parameters)
    return Explained(said, tuple(_scans(json.loads(tree), session, tables)))


def _ask(session: Session, how: str, text: str, parameters: Parameters) -> str:
    row = session.connection.execute(f"{how} {text}", parameters).fetchone()
    assert row is not None
    return str(row[1])


def _scans(tree: Any, session: Session, tables: Mapping[str, PinnedTable]) -> Iterator[PlannedScan]:
    """The scans of a plan of DuckDB's. It does not name their tables: the filters and columns tell."""
    for node in _nodes(tree):
        said = node.get("extra_info", {})
        filters, columns = _list(said.get("Filters")), _list(said.get("Projections"))
        for name, table in tables.items():
            offered: Mapping[str, Condition] = session.source(name).offered or {}
            own = [column for column in columns if column.strip("·")]
            if all(one in offered for one in filters) and set(own) <= set(table.spec.schema.names):
                yield name, own, all_of([offered[one] for one in filters])
                break


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    for node in tree if isinstance(tree, list) else [tree]:
        if node.get("name") == ARROW_SCAN:
            yield node
        yield from _nodes(node.get("children", []))


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())
