"""How a chunk is called: the one name that a catalog row or a manifest may give it; and what tells of a folder
that it is a warehouse, and of a warehouse that it must be recovered. `chunk.names` has all other paths. No I/O."""

from __future__ import annotations

import re

CATALOG = "catalog.sqlite"
LOGS = "logs"
TABLES = "tables"
ARROW = "arrow"

CHUNK_ID = re.compile(r"[0-9a-f]{23}", re.ASCII)

_FILE = re.compile(rf"{TABLES}/([1-9][0-9]{{0,18}})/({CHUNK_ID.pattern})\.{ARROW}", re.ASCII)


def table_folder(table_id: int) -> str:
    return f"{TABLES}/{table_id}"


def chunk_file(table_id: int, chunk_id: str) -> str:
    """Relative to the root."""
    return f"{table_folder(table_id)}/{chunk_id}.{ARROW}"


def chunk_of(file: str) -> tuple[int, str] | None:
    """(table id, chunk id) of a finished chunk of ours, or None if the file is none."""
    found = _FILE.fullmatch(file)
    return (int(found[1]), found[2]) if found else None
