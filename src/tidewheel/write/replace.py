"""Replace: the rows of a time interval are exchanged for others at once, by a mask and a chunk in one transaction and one swap."""

from __future__ import annotations

import threading
from typing import Any

from tidewheel.env.deadline import holding
from tidewheel.errors import BadRowsError, InputError
from tidewheel.index.tree import Tree
from tidewheel.model.codes import integer_codes
from tidewheel.model.delivery import Ack
from tidewheel.model.query import pair
from tidewheel.model.records import MaskRecord
from tidewheel.write.accept import Accepted, Acceptor
from tidewheel.write.flush import Flusher
from tidewheel.write.publish import Publisher


class Replacements:
    """The replacements of one table. May be called from any thread. `turn` is held by one of them, or by a bulk load, at a time."""

    def __init__(self, publisher: Publisher, acceptor: Acceptor, flusher: Flusher, turn: threading.Lock) -> None:
        self._publisher = publisher
        self._acceptor = acceptor
        self._flusher = flusher
        self._turn = turn

    def replace(self, data: Any, time: Any) -> Ack:
        """Readers see the old rows of the closed interval or the new ones, never both or neither."""
        publisher = self._publisher
        first, last = self._interval(time)
        accepted = self._acceptor.accept(data, "error")
        self._check_inside(accepted, first, last)
        placed = [p for batch in accepted.batches for p in publisher.place(batch)]
        # 1. all rows of before are sealed, so each piece is wholly before or wholly after this generation
        busy = f"another replace or load of table {publisher.spec.name!r} is being done; nothing was changed"
        with holding(self._turn, busy), publisher.reserve() as reserved:
            generation = reserved.generation
            # 2. the new rows, as a tree that nobody sees yet
            view = None
            if placed:
                server = placed[0][0]
                assert server.template is not None
                for _, _, run in placed:
                    run.publish(generation)
                view = Tree.of(server.number, True, server.template, publisher.shape, [run for _, _, run in placed]).view()
            # 3. one transaction, one swap
            mask = MaskRecord(first, last, generation - 1, "replace")
            self._flusher.replace(publisher, view, mask, reserved)
        return Ack(sum(run.rows for _, _, run in placed), 0, generation)

    def _interval(self, time: Any) -> tuple[int, int]:
        if time is None:
            raise InputError("replace needs the interval time=(first, last) whose rows are exchanged; (None, None) is all of them")
        spec = self._publisher.spec
        lo, hi = pair(time, "time")
        first, last = spec.time.interval(lo, hi)
        if first > last:
            raise InputError(f"replace: the interval {lo!r} .. {hi!r} of table {spec.name!r} is empty")
        return first, last

    def _check_inside(self, accepted: Accepted, first: int, last: int) -> None:
        at = 0
        spec = self._publisher.spec
        axis = spec.time
        for batch in accepted.batches:
            times = integer_codes(batch.column(axis.column))
            outside = (times < first) | (times > last)
            if outside.any():
                row = int(outside.argmax())
                raise BadRowsError(
                    f"replace: row {at + row} of table {spec.name!r} has {axis.column} = {axis.show(int(times[row]))}, "
                    f"outside the interval {axis.show(first)} .. {axis.show(last)}; nothing was changed",
                    table=spec.name, column=axis.column, rows=(at + row,),
                )  # fmt: skip
            at += batch.num_rows
