"""What crosses the wire between an attached process and the owner, besides rows: envelopes for operations, sessions, handles of results.

What can be asked of a warehouse is not listed here: `engine/operations.py` has it, and any of it travels in `OnWarehouse`, `OnTable`,
`AskTable` and `GiveTable`. `cluster/wire.py` writes all of them as JSON. A change to any class is a change of the protocol: count
`PROTOCOL` up.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tidewheel.engine.protocol import TableDelivery, TableOperation, TableQuestion, WarehouseOperation
from tidewheel.model.dataclass import dataclass
from tidewheel.model.query import Query, Stats
from tidewheel.model.recovery import Recovery
from tidewheel.model.schema import TableSpec
from tidewheel.settings import Settings

PROTOCOL = 9
"""Counted up when anything that crosses the wire changes: these classes, or those of the model that they hold (see test_wire)."""

PROGRESS = "progress"
"""The type of an action whose caller wants to hear how far it is."""


@dataclass(frozen=True, slots=True)
class Attach:
    """The first request."""

    protocol: int
    version: str


@dataclass(frozen=True, slots=True)
class Welcome:
    epoch: int
    settings: Settings
    recovery: Recovery


@dataclass(frozen=True, slots=True)
class Stay:
    """The second. Its answer is a stream that lasts as long as the session: either side sees at once when the other is gone.

    A word comes every second, so that an owner that hangs is noticed too.
    """

    session: str


# ---- the warehouse ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenTable:
    name: Any


@dataclass(frozen=True, slots=True)
class CreateTable:
    spec: TableSpec
    if_exists: Any

    if_lost: ClassVar[str] = "the table may be there or not"


@dataclass(frozen=True, slots=True)
class Opened:
    """A table, and the number that later requests call it by."""

    table: int
    spec: TableSpec


@dataclass(frozen=True, slots=True)
class PinTables:
    """Hold these tables, all as they are at one moment: `PinnedTables`. `release`: versions that were held before, and need not be."""

    names: tuple[str, ...]
    release: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PinnedAs:
    """A table, the generation that it is held at, and about how many rows it has."""

    spec: TableSpec
    generation: int
    rows: int


@dataclass(frozen=True, slots=True)
class PinnedTables:
    """The owner holds them under `result`, as it holds results: until `Release`."""

    result: int
    tables: tuple[PinnedAs, ...]


@dataclass(frozen=True, slots=True)
class OnWarehouse:
    """Carry an operation out: its own answer."""

    operation: WarehouseOperation[Any]


@dataclass(frozen=True, slots=True)
class Progressed:
    """On the way to the answer: so many bytes of so many."""

    done: int
    total: int


# ---- a table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableRequest:
    table: int


@dataclass(frozen=True, slots=True)
class OnTable(TableRequest):
    """Carry an operation out: its own answer."""

    operation: TableOperation[Any]


@dataclass(frozen=True, slots=True)
class AskTable(TableRequest):
    """Rows are asked for: an `Answer`."""

    question: TableQuestion


@dataclass(frozen=True, slots=True)
class GiveTable(TableRequest):
    """With rows: as Arrow, or (`values`) as Python values that do not fit, so that the owner says why."""

    delivery: TableDelivery[Any]
    values: Values | None = None
    timeout: float | None = None
    """Seconds that the owner may wait: for room, for others, for the disk."""


@dataclass(frozen=True, slots=True)
class Values:
    """Columns of one length. Those that are not named in `lists` come as Arrow, in this order."""

    rows: int
    names: tuple[str, ...]
    lists: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class PinTable(TableRequest):
    """Hold it as it is now: `PinnedTables`."""

    release: tuple[int, ...]


# ---- a result -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """A result. A small one comes with its rows, and the owner keeps nothing of it; any other is held by the owner under `result`."""

    result: int
    generation: int
    stats: Stats
    """Before it was read."""
    warning: str = ""
    rows: int | None = None
    """How many it has, if that is known."""
    cheap: bool = True
    """Counting it is no more work than a look at its plan."""
    bare: bool = False
    """Its rows come as one batch with the table's own schema, which is then not sent."""
    plan: Any = None
    """If its rows are here: a Plan or a PackedPlan, encoded. Few ask for it, so it is decoded then."""
    read: tuple[int, int, float] | None = None
    """If its rows are here: how many they are, their bytes, and the milliseconds it took in all."""


@dataclass(frozen=True, slots=True)
class ResultRequest:
    result: int


@dataclass(frozen=True, slots=True)
class AskPinned(ResultRequest):
    """A query of one of the tables that are held together: an `Answer`."""

    place: int
    query: Query


@dataclass(frozen=True, slots=True)
class Read(ResultRequest):
    """The next rows of one reading of a result, about `window` bytes of them (0: all); then `More` or `NoMoreRows`."""

    reading: int
    begin: bool
    whole: bool
    window: int


@dataclass(frozen=True, slots=True)
class More:
    """The window is full: ask again."""


@dataclass(frozen=True, slots=True)
class NoMoreRows:
    """There are no more rows."""

    stats: Stats


@dataclass(frozen=True, slots=True)
class Complete:
    """Behind the rows of a request: these were all. (A sender that dies looks like one that has finished.)"""

    rows: int


@dataclass(frozen=True, slots=True)
class First(ResultRequest):
    """The first so many rows."""

    rows: int


@dataclass(frozen=True, slots=True)
class Count(ResultRequest):
    """How many rows there are: `Counted`."""


@dataclass(frozen=True, slots=True)
class Counted:
    rows: int


@dataclass(frozen=True, slots=True)
class GetPlan(ResultRequest):
    pass


@dataclass(frozen=True, slots=True)
class Cancel(ResultRequest):
    pass


@dataclass(frozen=True, slots=True)
class Release:
    """Nobody holds these results any more; of these readings (result, reading), nobody wants the rest."""

    results: tuple[int, ...]
    readings: tuple[tuple[int, int], ...] = ()
