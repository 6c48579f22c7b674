"""Every path of a warehouse is composed here.

root/
  catalog.sqlite            what is known
  owner.lock                held by the owner
  tables/<table id>/        chunks of one table: <chunk id>.arrow
                            <chunk id>.arrow.tmp while it is written
"""

from __future__ import annotations

import re
import secrets
import time

CATALOG = "catalog.sqlite"
TABLES = "tables"
ARROW = "arrow"
TEMPORARY = ".tmp"

_CHUNK = re.compile(rf"{TABLES}/\d+/[0-9a-f]{{23}}\.{ARROW}(\.tmp)?")


def table_folder(table_id: int) -> str:
    return f"{TABLES}/{table_id}"


def new_chunk_id() -> str:
    """Unique for ever, and sorted by the time of making."""
    return f"{time.time_ns() // 1000:015x}{secrets.token_hex(4)}"


def is_chunk(file: str) -> bool:
    """Whether a file below the root is a chunk of ours, finished or not."""
    return _CHUNK.fullmatch(file) is not None


def chunk_file(table_id: int, chunk_id: str) -> str:
    """Relative to the root."""
    return f"{table_folder(table_id)}/{chunk_id}.{ARROW}"
