"""How columns are fitted into the width of a terminal: the widest give way first, then columns in the middle are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 8
"""Characters that a column keeps, if its values have so many."""


@dataclass(frozen=True)
class Fit:
    """Which columns are shown, and how wide. None stands for those that are left out."""

    shown: tuple[tuple[int, int] | None, ...]
    left_out: int

    @property
    def is_whole(self) -> bool:
        return not self.left_out


def fit(wanted: Sequence[int], width: int | None, *, edge: int, each: int) -> Fit:
    """The fit of columns that want to be so wide; with None, each is. `edge`, `each`: characters besides, of all and of each column."""
    if width is None:
        return Fit(tuple(enumerate(wanted)), 0)
    for left_out in range(len(wanted)):
        kept = _kept(len(wanted), left_out)
        room = width - edge - each * len(kept) - (each + 1 if left_out else 0)
        asked = [wanted[i] for i in kept]
        if left_out == len(wanted) - 1 or sum(min(LEAST, one) for one in asked) <= room:
            widths = _shared(asked, max(room, 1))
            shown: list[tuple[int, int] | None] = list(zip(kept, widths, strict=True))
            if left_out:
                shown.insert((len(kept) + 1) // 2, None)
            return Fit(tuple(shown), left_out)
    return Fit((), 0)


def _kept(count: int, left_out: int) -> list[int]:
    """The positions at both ends, without those left out in the middle."""
    head = (count - left_out + 1) // 2
    return [*range(head), *range(head + left_out, count)]


def _shared(wanted: list[int], room: int) -> list[int]:
    """As wide as they want, if there is room; else the widest are cut to one width, which is as large as can be."""
    if sum(wanted) <= room:
        return wanted
    left, cap = room, 0
    for i, one in enumerate(sorted(wanted)):
        cap = left // (len(wanted) - i)
        if one > cap:
            break
        left -= one
    spare = room - sum(min(one, cap) for one in wanted)
    widths = []
    for one in wanted:
        more = 1 if one > cap and spare > 0 else 0
        spare -= more
        widths.append(max(1, min(one, cap + more)))
    return widths
