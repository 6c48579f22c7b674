"""A plan as the scan left it: numbers in arrays. Every answer to another process brings one, and few ask for the plan it stands for."""

from __future__ import annotations

import numpy as np

from tidewheel.model.dataclass import dataclass
from tidewheel.model.pieces import KMAX, KMIN, SOURCE, T0, T1, TMAX, TMIN
from tidewheel.model.query import Plan, Stats, Subquery

COLUMNS = (SOURCE, KMIN, KMAX, TMIN, TMAX, T0, T1)


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """Plain values only: it can go over a wire."""

    table: str
    generation: int
    intervals: tuple[tuple[int, int], ...]
    time: tuple[int, int]
    sealed: int
    """How many sources are sealed trees: source 0 is the chunks, then come these, then the live trees."""
    names: str
    """Of the pieces that are read, a line each."""
    pieces: bytes
    """Their `COLUMNS`, as int64."""
    segments: bytes
    """Piece and rows of every segment, as int64."""

    def plan(self, stats: Stats) -> Plan:
        """The plan that was packed, with statistics of the caller's."""
        names = self.names.splitlines()
        count = len(names)
        found = np.frombuffer(self.segments, np.int64).reshape(-1, 2)
        rows = np.bincount(found[:, 0], found[:, 1], count).astype(np.int64).tolist()
        segments = np.bincount(found[:, 0], minlength=count).tolist()
        pieces = np.frombuffer(self.pieces, np.int64).reshape(count, len(COLUMNS)).tolist()
        subqueries = []
        for piece, (source, kmin, kmax, tmin, tmax, t0, t1) in enumerate(pieces):
            place = "chunk" if source == 0 else "sealed tree" if source <= self.sealed else "live tree"
            time = (max(tmin, t0), min(tmax, t1))
            subqueries.append(Subquery(place, names[piece], (kmin, kmax), time, rows[piece], segments[piece]))
        return Plan(self.table, self.generation, self.intervals, self.time, tuple(subqueries), stats)
