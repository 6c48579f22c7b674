"""Labels: which partitions a commit changes, by the generations of its rows. Pure.

Derived tables are stale by these numbers alone, so they must be exact on one side: a partition whose rows are not what they were has a
greater label. That is why a flush looks at masks: rows that were replaced before they came to a chunk were taken by that replacement, and
whoever read them in between must hear of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.index.hidden import Hidden
from tidewheel.model.derived import Label
from tidewheel.model.partitions import Partitions, interval
from tidewheel.model.records import ChunkRecord, MaskRecord
from tidewheel.model.times import INT64_MAX, INT64_MIN


def labels_of(records: Sequence[ChunkRecord], hidden: Hidden, divided: Partitions) -> tuple[Label, ...]:
    """The labels that these chunks bring to a table with these masks, one for each partition."""
    changed: dict[int, int] = {}
    undone: dict[int, int] = {}
    for record in records:
        masked = bool(hidden) and record.generation_lo <= hidden.top
        for i, (start, _) in enumerate(record.partitions):
            generation = record.latest[i] if record.latest else record.generation_hi
            if masked:
                _, end = interval(divided, start)
                taken = hidden.most(max(start, INT64_MIN), min(end - 1, INT64_MAX)) + 1  # a mask hides what came before its commit
                if taken > record.generation_lo:
                    undone[start] = max(undone.get(start, 0), taken)
                    generation = max(generation, taken)
            changed[start] = max(changed.get(start, 0), generation)
    return tuple(Label(start, changed[start], undone.get(start, 0)) for start in sorted(changed))


def undone_by(masks: Sequence[MaskRecord], divided: Partitions) -> tuple[tuple[int, int], ...]:
    """(first, last): the starts of partitions that masks touch lie in these intervals."""
    return tuple((max(divided.start(divided.number(mask.time_lo)), INT64_MIN), mask.time_hi) for mask in masks)
