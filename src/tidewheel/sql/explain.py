"""EXPLAIN: how a statement would be answered, or was: our plan of every scan, beside DuckDB's of all the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidewheel.model.query import Stats
from tidewheel.read.explain import plan_text
from tidewheel.read.limits import Limits
from tidewheel.sql.database import Database, Session
from tidewheel.sql.predicates import Condition, all_of
from tidewheel.sql.reading import Inputs, Reading
from tidewheel.sql.result import Parameters
from tidewheel.sql.scan import Scan

_SCAN = "PYTHON_ARROW_SCAN"


class _Asked:
    """Nobody can cancel what is not handed out yet."""

    cancelled = False


def explained(database: Database, inputs: Inputs, limits: Limits, text: str, parameters: Parameters, analyze: bool) -> pa.Table:
    """A row for each plan: whose it is, and its text. With `analyze` the statement is run, and the plans say what it cost."""
    reading = Reading(database, inputs, limits, _Asked())
    try:
        reading.does(lambda session: session.bind(text, parameters))
        if analyze:
            said = reading.does(lambda session: _ask(session, "EXPLAIN ANALYZE", text, parameters))
            scans = reading.scans
        else:
            said = reading.does(lambda session: _ask(session, "EXPLAIN", text, parameters))
            reading.does(lambda session: session.remember(inputs.tables))
            tree = reading.does(lambda session: _ask(session, "EXPLAIN (FORMAT json)", text, parameters))
            scans = reading.does(lambda session: list(_scans(json.loads(tree), session, inputs)))
        ours = [(f"tidewheel: {scan.spec.name}", _text(scan, analyze)) for scan in scans]
        rows = [*ours, ("duckdb", said)]
        return pa.table({"explain_key": [key for key, _ in rows], "explain_value": [value for _, value in rows]})
    finally:
        reading.close()


def _ask(session: Session, how: str, text: str, parameters: Parameters) -> str:
    row = session.connection.execute(f"{how} {text}", parameters).fetchone()
    assert row is not None
    return str(row[1])


def _text(scan: Scan, read: bool) -> str:
    parts = [plan_text(plan, scan.spec) for plan in scan.plans] or [f"table {scan.spec.name}: no row can match, nothing is read"]
    columns = ", ".join(scan.columns) or "none: the index knows how many rows there are"
    stats: Stats = scan.stats
    cost = [f"  returned   {stats.rows_returned} rows, {stats.bytes} bytes in {stats.milliseconds:.3g} ms"] if read else []
    return "\n".join([*parts, f"  columns    {columns}", *cost])


def _scans(tree: Any, session: Session, inputs: Inputs) -> Iterator[Scan]:
    """The scans of a plan of DuckDB's, planned as they would be. It does not name their tables: the filters and columns tell."""
    for node in _nodes(tree):
        said = node.get("extra_info", {})
        filters, columns = _list(said.get("Filters")), _list(said.get("Projections"))
        for name, table in inputs.tables.items():
            offered: Mapping[str, Condition] = session.source(name).offered or {}
            own = [column for column in columns if column.strip("·")]
            if all(one in offered for one in filters) and set(own) <= set(table.spec.schema.names):
                yield Scan(table, own, all_of([offered[one] for one in filters]), narrow=inputs.narrow.get(name))
                break


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    for node in tree if isinstance(tree, list) else [tree]:
        if node.get("name") == _SCAN:
            yield node
        yield from _nodes(node.get("children", []))


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())
