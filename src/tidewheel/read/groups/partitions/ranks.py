"""The first term of an order of groups, as a number that a kernel can compare."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidewheel.model.dataclass import dataclass
from tidewheel.model.times import INT64_MAX
from tidewheel.read.foremost import OrderTerm
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.aggregates import Aggregate
from tidewheel.read.groups.grouping import Grouping, fold_of
from tidewheel.read.groups.lowering import Numbers
from tidewheel.read.groups.partitions import partition_layout as parts
from tidewheel.read.totals.parse import ROWS

_PLAIN = (layout.SUM_NARROW, layout.LEAST, layout.GREATEST)


@dataclass(frozen=True, slots=True)
class Rank:
    """What groups are ordered by first: their word `at`, or if that is -1 - k, the number of key k. What `falls` is told by its
    complement."""

    at: int
    falls: bool

    def bound(self, known: Numbers, words: Numbers, limit: int) -> int:
        """The last rank of groups that are enough: others beyond it are not wanted. Null keys have none."""
        key = -1 - self.at
        ranks = words[:, self.at] if self.at >= 0 else known[(known[:, -1] >> key) & 1 == 0, key]
        if not 0 < limit <= len(ranks):
            return INT64_MAX
        return int(np.partition(~ranks if self.falls else ranks, limit - 1)[limit - 1])


ANY = Rank(layout.ROWS_AT, False)
"""Where none is beyond the bound."""


def rank_of(of: Grouping, order: Sequence[OrderTerm], stored: Numbers) -> Rank | None:
    """None if the first term is none that a kernel can compare, or a group may have none."""
    if not order:
        return None
    number, falls = of.schema.get_field_index(order[0].column), order[0].descending
    if number < len(of.keys):
        return Rank(-1 - number, falls)
    at = _word(of, of.aggregates[number - len(of.keys)], stored)
    return None if at is None else Rank(at, falls)


def _word(of: Grouping, aggregate: Aggregate, stored: Numbers) -> int | None:
    """The word of a group that is what an aggregate comes to, in its order."""
    if aggregate.what == ROWS:
        return layout.ROWS_AT
    assert aggregate.of is not None
    value = of.values[aggregate.of]
    fold = fold_of(aggregate, value)
    maybe_null = stored[len(of.keys) + list(of.values).index(aggregate.of), parts.NULL_BIT] >= 0
    if fold is None or fold.what not in _PLAIN or value.form.real or maybe_null or aggregate.what == "avg":
        return None
    return value.folds[fold]
