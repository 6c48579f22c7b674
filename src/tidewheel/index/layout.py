"""The layout of a table: which rows share a leaf. All that the write path asks of it is asked of a `Template`.

There is one layout: leaves are intervals of one ordered key (`index.template.KeyTemplate`). A second one, such as a kd-tree over several
dimensions, is a second class with these methods, chosen in `first_division` and `received`. The places below know nothing but numbers:

  runs      a run has the permutation and the leaf starts that `route` fills in, whatever put its rows in that order
  scan      `read.kernels.scan` searches the leaf bounds of a piece. Where all of them are the least int64, it looks at every leaf's zone
            maps instead: so a layout without an order of keys needs no scan of its own. `chunk.frame.cut` makes the same choice for chunks
            that are read by range.
  regions   `index.regions` has boxes of any number of dimensions. Those of chunks are key × time; the catalog has no others yet.
  chunks    `write.arrange` cuts leaves that came out too large, by key where keys differ, else by time
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidewheel.index.template import KeyTemplate
from tidewheel.model.codes import Codes, KeyCoder
from tidewheel.model.pieces import Row


class Template(Protocol):
    """One division of rows into leaves. Immutable, and shared freely; a new division is a new template."""

    @property
    def coder(self) -> KeyCoder:
        """What made the codes that rows are routed by."""
        ...

    @property
    def leaves(self) -> int:
        """How many; a power of two."""
        ...

    @property
    def bounds(self) -> Codes:
        """The least key code of each leaf, for the scan; the first is the least int64."""
        ...

    @property
    def address(self) -> int:
        """Of the bounds: in the descriptors of runs, it names the template that they were routed by."""
        ...

    def route(self, batch_rows: int, rows: npt.NDArray[np.uint32], arrays: npt.NDArray[np.uint32], row: Row) -> None:
        """Put the `rows` of a batch (none: all) in leaf order, and survey their region. `row` comes with the addresses of their codes and
        goes as the descriptor of a run; `arrays` is filled with the permutation and the leaf starts (`index.kernels.build_run`)."""
        ...

    def divided(self, codes: Codes, coder: KeyCoder) -> Template:
        """As many leaves, over which rows with these codes are divided evenly."""
        ...

    def coarser(self, leaves: int) -> Template:
        """Only so many leaves: neighbours are joined. For a tree that is flushed long before it is full."""
        ...

    def skew(self, counts: npt.NDArray[np.int64]) -> float:
        """How much larger than an even leaf the leaf of an average row is, if leaves have so many rows; 0 is perfectly even."""
        ...

    def shipped(self) -> tuple[int, ...]:
        """The numbers that `received` makes the same template of, in another process."""
        ...


def first_division(codes: Codes, leaves: int, coder: KeyCoder) -> Template:
    """The first template of a tree, from the codes of some rows."""
    return KeyTemplate.of(codes, leaves, coder)


def received(numbers: Sequence[int], coder: KeyCoder) -> Template:
    """A template of another process, which routes as it does there."""
    return KeyTemplate(np.array(numbers, np.int64), coder)
