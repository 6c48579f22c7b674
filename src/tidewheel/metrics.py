"""What the engine counts about itself. Plain numbers, written by one thread at a time, read by anyone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TableMetrics:
    """What a table did since its warehouse was opened; seconds are of wall-clock time."""

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    flushes: int = 0
    """Chunks written and committed."""
    flush_seconds: float = 0.0
    """Spent in syncing and committing them."""
    flush_failures: int = 0
    """Tries that failed; each was repeated, and no row is lost."""
    template_updates: int = 0
    template_seconds: float = 0.0
    waits: int = 0
    """Inserts that had to wait for a flush (back-pressure). If this grows, rows come faster than the disk takes them."""
    wait_seconds: float = 0.0
    """How long they waited in all."""
    late_rows: int = 0
    """Rows that went to a late tree."""
