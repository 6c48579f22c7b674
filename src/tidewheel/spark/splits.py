"""How a scan is divided over Spark's tasks, and what a task does with its portion.

Each task costs Spark some 50 ms, so there are one or two per core, of like size. Chunks are read by the tasks from their files; rows that
are in no chunk yet come from the owner. All of them belong to one version, whatever is inserted, flushed or replaced meanwhile.

Which version: Spark plans a DataFrame once and runs it as often as it likes, today and in an hour. So a plan of a table only says how many
tasks there are (`ScanPart`); the first task of an execution has the owner hold the version of that moment, under the name of the execution,
and the others are given the same one (`portion_of`). So are all scans of the table in that execution.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from tidewheel.engine.operations import ReadFresh, TakePin, TouchPin
from tidewheel.errors import NotFoundError, SchemaError, TidewheelError
from tidewheel.model.delivery import Pin
from tidewheel.model.query import Query
from tidewheel.model.records import ChunkRecord, MaskRecord
from tidewheel.model.schema import TableSpec
from tidewheel.settings import Settings
from tidewheel.spark import connections
from tidewheel.spark.filters import Ask
from tidewheel.spark.options import TablePath

if TYPE_CHECKING:
    from tidewheel.read.chunk_files import ChunkFiles

SLOTS = "TIDEWHEEL_SLOTS"
"""Environment variable: how many tasks the session runs at once. `register` sets it for Spark's Python processes."""

LEAST = 16 << 20
"""Bytes that are worth a task of their own."""

TOUCH = 60.0
"""Seconds between two signs of life of a task."""

MOST_TABLES = 8
"""Tables whose chunks a worker keeps open."""

PLANNED_BEFORE = "changed after this DataFrame had been planned"
"""Of an owner: what a task says that cannot know which version the others read."""

_SETTINGS = Settings(query_seconds=None, query_rows=None, query_bytes=None, zero_copy_rows=16384)
"""Scans of Spark's are not limited like queries; rows are copied on their way to it anyway, and many small batches cost more than that."""


class ScanPart(InputPartition):
    """What a plan says of one task. Plain values: Spark sends it to the task, whenever the plan is run."""

    def __init__(self, scan: str, era: str, number: int, count: int) -> None:
        super().__init__((scan, number))
        self.scan = scan
        """A name of the plan's own."""
        self.era = era
        """`Pin.era` when it was planned."""
        self.number = number
        self.count = count


class Portion(InputPartition):
    """What one task reads. Plain values: Spark sends it to the task."""

    def __init__(self, pin: str, generation: int, chunks: Sequence[ChunkRecord], masks: Sequence[MaskRecord], fresh: bool) -> None:
        super().__init__((pin, generation))
        self.number = 0
        self.count = 1
        """Of all portions of the scan."""
        self.scan = ""
        self.pin = pin
        self.generation = generation
        self.chunks = tuple(chunks)
        self.masks = tuple(masks)
        self.fresh = fresh


def slots() -> int:
    """How many tasks run at once, as far as is known here."""
    return int(os.environ.get(SLOTS) or os.cpu_count() or 1)


def divide(pin: Pin, ask: Ask, spec: TableSpec, most: int | None = None) -> list[Portion]:
    """The portions of a scan. None at all if there is nothing to read."""
    chunks = {chunk.id: chunk for chunk in pin.chunks if _touches(chunk, ask)}
    fresh_rows = pin.fresh_rows if ask.part is None else 0
    sizes = {id_: max(1, round(chunk.bytes * _share(chunk, ask, spec))) for id_, chunk in chunks.items()}
    total = sum(sizes.values())
    cores = slots()
    most = most or (2 * cores if total > 8 * cores * LEAST else cores)
    count = max(1, min(most, len(chunks), total // LEAST))
    loads: list[tuple[int, list[ChunkRecord]]] = [(0, []) for _ in range(count)]
    for id_ in sorted(sizes, key=lambda i: (-sizes[i], i)):  # the largest first, each to whom has least
        least = min(range(count), key=lambda n: loads[n][0])
        loads[least] = (loads[least][0] + sizes[id_], [*loads[least][1], replace(chunks[id_], partitions=())])
    loads = [load for load in loads if load[1]]
    alone = fresh_rows and (not loads or (pin.fresh_bytes > LEAST and len(loads) < most))
    portions = [Portion(pin.id, pin.generation, part, pin.masks, False) for _, part in loads]
    if alone:  # first: what the owner holds for us in memory is let go soon
        portions.insert(0, Portion(pin.id, pin.generation, (), pin.masks, True))
    elif fresh_rows:
        portions[min(range(len(loads)), key=lambda n: loads[n][0])].fresh = True
    for number, portion in enumerate(portions):
        portion.number, portion.count = number, len(portions)
    return portions


def _touches(chunk: ChunkRecord, ask: Ask) -> bool:
    return ask.part is None or any(_overlap(times, (chunk.time_lo, chunk.time_hi)) for times in ask.times())


def _share(chunk: ChunkRecord, ask: Ask, spec: TableSpec) -> float:
    """About how much of a chunk the question touches, taking its rows to be spread evenly."""
    share = sum(_overlap(times, (chunk.time_lo, chunk.time_hi)) for times in ask.times())
    if ask.keys is not None and all(lo == hi for lo, hi in ask.keys):
        return share * min(1.0, len(ask.keys) * 1024 / max(1, chunk.rows))
    if ask.key is not None and spec.direct_key >= 0 and all(bound is None or isinstance(bound, int) for bound in ask.key):
        share *= _overlap(ask.key, (chunk.key_lo, chunk.key_hi))
    return share


def _overlap(wanted: tuple[int | None, int | None], there: tuple[int, int]) -> float:
    lo = there[0] if wanted[0] is None else max(wanted[0], there[0])
    hi = there[1] if wanted[1] is None else min(wanted[1], there[1])
    return max(0, hi - lo + 1) / (there[1] - there[0] + 1)


def portion_of(place: TablePath, spec: TableSpec, part: ScanPart, ask: Ask, query: Query) -> Portion:
    """In a task: what it reads of the version that its execution reads."""
    pin = connections.do(place, TakePin(query, _execution(part.scan), part.scan))
    if pin.era != part.era:
        if part.count > 1:  # others of this execution may have read another version, of an owner that remembers nothing any more
            raise NotFoundError(
                f"the version that this read began with is not held any more: the owner of {place.root} {PLANNED_BEFORE}. Make the "
                "DataFrame anew, with spark.read or spark.table"
            )
        if connections.spec(place) != spec:
            raise SchemaError(f"table {place.table!r} was made anew after this DataFrame had been planned: make the DataFrame anew, too")
    portions = divide(pin, ask, spec, part.count)
    nothing = Portion(pin.id, pin.generation, (), (), False)
    portion = portions[part.number] if part.number < len(portions) else nothing
    portion.number, portion.count, portion.scan = part.number, part.count, part.scan
    return portion


def _execution(scan: str) -> str:
    """What Spark runs when it runs this task: one action on a DataFrame, one SQL statement, one batch of a stream."""
    context = TaskContext.get()
    if context is None:  # no task: a test of ours
        return scan
    execution, application = (context.getLocalProperty(name) for name in ("spark.sql.execution.id", "spark.app.id"))
    if execution is None:  # a job on `df.rdd`
        return f"{scan} stage {context.stageId()}"
    return f"{application or scan} {execution}"


def rows(place: TablePath, spec: TableSpec, portion: Portion, ask: Ask, query: Query) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of a portion, in batches of bounded size. The owner hears now and then that its version is still read.

    A task that stops early, as for LIMIT, needs no more of it either.
    """
    touched = time.monotonic()
    try:
        for batch in _rows(place, spec, portion, ask, query):
            yield batch
            if time.monotonic() - touched > TOUCH:
                touched = time.monotonic()
                _touch(place, portion, 0)
    finally:
        _touch(place, portion, portion.count)


def _touch(place: TablePath, portion: Portion, parts: int) -> None:
    with suppress(TidewheelError):  # an owner that is gone holds nothing
        connections.table(place).do(TouchPin(portion.pin, portion.number, parts, portion.scan))


def _rows(place: TablePath, spec: TableSpec, portion: Portion, ask: Ask, query: Query) -> Iterator[pa.RecordBatch]:
    if portion.fresh:
        yield from connections.table(place).ask(ReadFresh(portion.pin, query))
    if portion.chunks:
        files = _chunk_files(place, spec)
        for times in ask.times():
            chunks = portion.chunks if ask.part is None else [c for c in portion.chunks if _overlap(times, (c.time_lo, c.time_hi))]
            for keys in ask.keys or (query.key,):
                yield from files.query(replace(query, time=times, key=keys), portion.generation, chunks, portion.masks)


_files: dict[TablePath, ChunkFiles] = {}
"""What earlier tasks of this worker have open."""


def _chunk_files(place: TablePath, spec: TableSpec) -> ChunkFiles:
    from tidewheel.read.chunk_files import ChunkFiles  # here: its kernels take long to load, and only tasks use them

    found = _files.get(place)
    if found is None or found.spec != spec:
        while len(_files) >= MOST_TABLES:
            del _files[next(iter(_files))]
        _files[place] = found = ChunkFiles(place.root, spec, _SETTINGS)
    return found
