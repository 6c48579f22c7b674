"""Queries whose answer lies at an end of the index: they become queries of less time, or of fewer keys."""

from __future__ import annotations

from tidewheel.index.version import Version
from tidewheel.model.query import Query
from tidewheel.read.planner import Planner


def shortened(planner: Planner, version: Version, query: Query) -> Query:
    """A query with the same answer, of no more than has to be read."""
    if query.latest and query.key is not None:
        from tidewheel.read.from_the_end import from_the_end

        return from_the_end(planner, version, query)
    if query.limit is not None and query.order_by is not None:
        from tidewheel.read.time_order import from_an_end

        return from_an_end(planner, version, query)
    return query
