"""All tables of a warehouse flushed at once, by one commit or two."""

from __future__ import annotations

import time
from typing import Any

from tidewheel.engine.local_engine import LocalEngine
from tidewheel.write.publish import FlushJob, Publisher

PATIENCE = 30.0


def seal_together(engine: LocalEngine) -> list[tuple[Publisher, list[FlushJob]]]:
    """Seal all tables; no commit begins before the last chunk is written. The commit thread may have taken some of them by then."""
    written: list[object] = []
    hand_over = engine.commits.flush

    def counted(*given: Any) -> None:
        hand_over(*given)
        written.append(given)

    engine.commits.flush = counted  # type: ignore[method-assign]
    with engine.commits.still():
        sealed = [(table.publisher, table.publisher.seal()) for table in engine._tables.values()]
        give_up = time.monotonic() + PATIENCE
        while len(written) < sum(len(jobs) for _, jobs in sealed):
            assert time.monotonic() < give_up, "it is never written"
            time.sleep(0.001)
    engine.commits.flush = hand_over  # type: ignore[method-assign]
    return sealed
