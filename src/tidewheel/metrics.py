"""What the engine counts about itself. Plain numbers, written by one thread at a time, read by anyone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TableMetrics:
    batches: int = 0
    rows: int = 0
    rejected: int = 0
    flushes: int = 0
    flush_seconds: float = 0.0
    flush_failures: int = 0
    template_updates: int = 0
    template_seconds: float = 0.0
    waits: int = 0
    """Inserts that had to wait for a flush (back-pressure)."""
    wait_seconds: float = 0.0
    late_rows: int = 0
