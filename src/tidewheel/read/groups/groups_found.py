"""The groups of the rows that were added so far, in this process: memory of the kernels, which grows as they ask for it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import LimitError
from tidewheel.model.loading import later
from tidewheel.read.filters.program import Program
from tidewheel.read.foremost import OrderTerm
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.group_columns import answer
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.left_to_duck import NOT_SURE, LeftToDuckError, take
from tidewheel.read.groups.lowering import TEXT, Numbers
from tidewheel.read.groups.text_marks import TextMarks
from tidewheel.read.groups.texts_found import Texts
from tidewheel.read.groups.working_room import WorkingRoom
from tidewheel.read.limits import Watch

k = later("tidewheel.read.groups.kernels")
slots = later("tidewheel.read.groups.slots.kernels")
joining = later("tidewheel.read.groups.joining.kernels")
marking = later("tidewheel.read.groups.marks.kernels")

MOST = 1 << 24
"""Groups; more are made by DuckDB, which can put them on a disk."""

_NOTHING = np.zeros(0, np.int64)


class Slots:
    """Rows of numbers that are found by their numbers, and rows of words beside them: groups by the numbers of their keys, pairs by a group
    and a value."""

    def __init__(self, keys: int, empty: Numbers, rows: int, watch: Watch) -> None:
        self.keys = keys
        self._watch = watch
        self._each = keys + 1, len(empty)
        self.state: Numbers = np.zeros(layout.STATE, np.int64)
        self.state[layout.SEED] = secrets.randbits(62)
        self.known, self.words = self._room(min(rows, MOST))
        self.table: Numbers = np.zeros((0, 2), np.int64)

    @property
    def count(self) -> int:
        return int(self.state[layout.COUNT])

    def _room(self, rows: int) -> tuple[Numbers, Numbers]:
        take(self._watch, rows * sum(self._each) * 8)
        known, words = (np.empty((rows, each), np.int64) for each in self._each)
        return known, words

    def grow(self) -> None:
        rows, count = len(self.known), self.count
        if rows >= MOST:
            raise LeftToDuckError(f"they are more than {MOST:,}")
        known, words = self._room(2 * rows)
        known[:count], words[:count] = self.known[:count], self.words[:count]
        self.known, self.words = known, words
        self._watch.take(-rows * sum(self._each) * 8)

    def hash(self, size: int = 0) -> None:
        """Put all into a new table of a size, with a new seed."""
        size = max(size, 4 * layout.ROOM)
        while size < 2 * (self.count + layout.ROOM):
            size *= 2
        take(self._watch, 16 * (size - len(self.table)))
        while True:
            self.table = np.zeros((size, 2), np.int64)
            self.state[layout.SEED] = secrets.randbits(62)
            if not slots.fill_table(self.known, self.keys, self.state, self.table):
                return

    def put(self, more: Numbers) -> None:
        """Add rows that are not there."""
        if not len(more):
            return
        while self.count + len(more) + layout.ROOM > len(self.known):
            self.grow()
        self.known[self.count : self.count + len(more)] = more
        self.state[layout.COUNT] += len(more)
        self.hash()

    def drop_table(self) -> None:
        """No more come."""
        self._watch.take(-16 * len(self.table))
        self.table = np.zeros((0, 2), np.int64)


class Groups:
    """What rows come to, of each group. For one thread at a time."""

    def __init__(self, of: Grouping, watch: Watch, program: Program, rows: int, room: WorkingRoom) -> None:
        """`rows`: about as many will be added, as far as is known."""
        self._room = room
        self.of = of
        self._widest = max(layout.WINDOW_BITS, min(layout.WIDEST_BITS, rows.bit_length() + layout.ROWS_BITS))
        self._watch = watch
        self._program = program
        self._slots = Slots(len(of.keys), of.empty, 2 * layout.ROOM, watch)
        self._window: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.state = self._slots.state
        self.state[layout.ONLY_MARKED] = program.marked
        self._spans: Numbers = np.zeros((max(len(of.keys), 1), layout.SPAN), np.int64)
        self._spans[:, layout.GREATEST_NUMBER] = -1
        self._pairs = Slots(2, _NOTHING, 2 * layout.ROOM if of.paired else 1, watch)
        self._marks = TextMarks(len(of.fold_rows) if of.paired and of.texted_folds else 0, watch)
        self.texts = Texts(self.state, watch)
        if not of.keys:
            self._slots.known[0] = 0
            self._slots.words[0] = of.empty
            self.state[layout.COUNT] = 1

    def add(self, pieces: Numbers, segments: Numbers) -> None:
        """Add rows where they lie: at most 2^20 of them."""
        of, state, groups, pairs, texts = self.of, self.state, self._slots, self._pairs, self.texts
        state[layout.SEGMENT] = state[layout.OFFSET] = 0
        while True:
            why = k.group(
                pieces, segments, self._program.steps, of.value_rows, len(of.keys), of.steps, of.fold_rows, of.texted, state, self._window,
                self._spans, groups.table, groups.known, groups.words, of.empty, pairs.state, pairs.table, pairs.known, texts.arena,
                texts.known, texts.table, self._marks.bits, self._room.wide, self._room.narrow, self._room.small,
            )  # fmt: skip
            self._watch.check()
            if why == layout.DONE:
                return
            self._clear(why)

    def _clear(self, why: int) -> None:
        """Remove what stopped a kernel."""
        groups, pairs, texts = self._slots, self._pairs, self.texts
        match why:
            case layout.UNSURE:
                raise LeftToDuckError(NOT_SURE)
            case layout.FULL:
                groups.grow()
            case layout.ASTRAY:
                self._move_window()
            case layout.CROWDED:
                groups.hash(4 * len(groups.table))
            case layout.UNLUCKY:
                groups.hash(len(groups.table))
            case layout.PAIRS_FULL if self._marks.used and not self._marks.has_room(groups.count, int(self.state[layout.TEXTS])):
                if not self._marks.make_room(groups.count, int(self.state[layout.TEXTS])):
                    pairs.put(self._marks.pairs(self._watch))
                    self._marks.give_up()
            case layout.PAIRS_FULL:
                if pairs.count + layout.ROOM > len(pairs.known):
                    pairs.grow()
                pairs.hash(2 * len(pairs.known))
            case layout.PAIRS_UNLUCKY:
                pairs.hash(len(pairs.table))
            case layout.TEXTS_FULL:
                texts.grow(self.of.texted * layout.ROOM)
            case _:
                texts.hash()

    def join(self, other: Groups) -> None:
        """Add the groups of another part of the rows, which are of no use any more then."""
        of, state, groups, pairs = self.of, self.state, self._slots, self._pairs
        others = other._slots
        known, words = others.known[: others.count], others.words[: others.count]
        numbers = self.texts.numbers_of(other.texts)
        for n, form in enumerate(of.key_forms):
            if form.kind == TEXT:
                valid = (known[:, len(of.keys)] >> n) & 1 == 0
                known[valid, n] = numbers[known[valid, n]]
        for at in of.texts_at:
            some = words[:, at] >= 0
            words[some, at] = numbers[words[some, at]]
        found = np.zeros(len(known), np.int32)
        state[layout.OFFSET] = 0
        while True:
            why = joining.join(
                known, words, len(of.keys), of.joined, state, self._window, self._spans, groups.table, groups.known, groups.words, of.empty,
                self.texts.arena, self.texts.known, found,
            )  # fmt: skip
            self._watch.check()
            if why == layout.DONE:
                break
            self._clear(why)
        if not of.paired:
            return
        marks, theirs = self._marks, other._marks
        if marks.used and theirs.used and marks.make_room(groups.count, int(state[layout.TEXTS])):
            marking.join_marks(theirs.bits, found, numbers, of.counted_at, marks.bits, groups.words)
        elif marks.used or theirs.used:
            pairs.put(marks.pairs(self._watch))
            marks.give_up()
            self._join_pairs(theirs.pairs(self._watch), found, numbers)
        self._join_pairs(other._pairs.known[: other._pairs.count], found, numbers)

    def _join_pairs(self, others: Numbers, found: npt.NDArray[np.int32], numbers: Numbers) -> None:
        of, pairs, at = self.of, self._pairs, np.zeros(1, np.int64)
        while True:
            why = joining.join_pairs(
                others, found, numbers, of.counted_at, of.texted_folds, at, pairs.state, pairs.table, pairs.known, self._slots.words
            )
            self._watch.check()
            if why == layout.DONE:
                return
            self._clear(why)

    def _move_window(self) -> None:
        """Numbers were found that have no place in the window: it is made anew so that it has all of them, if it can, or else given up."""
        groups, keys = self._slots, len(self.of.keys)
        known = groups.known[: groups.count]
        ends = []
        for k in range(keys):
            numbers = known[(known[:, keys] >> k) & 1 == 0, k]
            least, greatest = self._spans[k, layout.SEEN_LEAST :].tolist()
            if len(numbers):
                least, greatest = min(least, int(numbers.min())), max(greatest, int(numbers.max()))
            ends.append((least, greatest))
        few, many = layout.WINDOW_BITS, self._widest
        for room, most in ((16, few), (4, few), (2, few), (1, few), (2, many), (1, many)):  # times as many numbers: more will come
            bits = [int((greatest - least + 1) * room + 1).bit_length() for least, greatest in ends]
            if sum(bits) <= most and self._has_window(sum(bits)):
                break
        else:
            self.state[layout.HASHED] = 1
            self._has_window(None)
            groups.hash()
            return
        shift = 0
        for k, ((least, greatest), width) in enumerate(zip(ends, bits, strict=True)):
            more = (1 << width) - 2 - (greatest - least)
            before = 0 if self.of.key_forms[k].kind == TEXT else more // 2
            first = max(least - before, -(1 << 63))
            last = min(first + (1 << width) - 2, (1 << 63) - 1)
            self._spans[k, : layout.SEEN_LEAST] = first, last, shift
            shift += width
        slots.fill_window(groups.known, keys, self._spans, self.state, self._window)

    def _has_window(self, bits: int | None) -> bool:
        """Whether there is memory for an empty window for numbers of so many bits, which is then there. None: there is to be none."""
        size = 0 if bits is None else 1 << bits
        more = 4 * (size - len(self._window))
        try:
            self._watch.take(more)
        except LimitError:
            self._watch.take(-more)
            return False
        self._window = np.zeros(size, np.int32)
        return True

    def found(self, order: Sequence[OrderTerm], limit: int | None) -> pa.RecordBatch:
        """The groups, once no more rows come; those at least that are among the first `limit`."""
        self._has_window(None)
        groups = self._slots
        groups.drop_table()
        return answer(self.of, groups.known[: groups.count], groups.words[: groups.count], self.texts, order, limit, self._watch)
