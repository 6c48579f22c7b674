"""What another process does with a table or a warehouse that it was handed. Imports little, so that the process starts soon."""

from __future__ import annotations

import datetime as dt

import tidewheel as tw

DAY = dt.datetime(2026, 1, 1)


def name_and_rows(given: tw.Table | tw.Warehouse) -> tuple[str, int]:
    """After one row more."""
    table = given["taxi"] if isinstance(given, tw.Warehouse) else given
    table.insert([{"id": 1, "ts": DAY, "speed": 1.0, "note": "from there"}])
    return table.name, len(table)
