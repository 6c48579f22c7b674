"""The waist: how a warehouse and its tables are asked, wherever the owner is.

`engine/operations.py` has what can be asked, one class each. An engine only carries operations: the owner's own carries them out, an
attached one sends them to the owner and brings the answer back. So every process has the same operations, and one suite of tests runs
over all engines.

Every method may be called from any thread. All errors are `TidewheelError`s, the same ones on both sides of a wire. A method whose owner
died raises `OwnerLostError`; the engine is then `lost`, and its holder opens the warehouse again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tidewheel.model.query import Query
from tidewheel.model.recovery import Recovery
from tidewheel.model.report import Progress
from tidewheel.model.schema import TableSpec
from tidewheel.read.result import Result
from tidewheel.settings import Settings

T = TypeVar("T")

# ---- operations: frozen dataclasses of plain values, which is why all of them can cross a wire ----------------

ASK_AGAIN = "ask again"
"""What to do after a call that changes nothing, or nothing that matters, if its owner was lost before it answered."""


class Operation:
    """The base of all operations, whatever goes along with them."""

    __slots__ = ()

    if_lost: ClassVar[str] = ASK_AGAIN
    """What a caller should know who got no answer, because the owner was lost or took too long: whether it may have been done."""


class TableOperation(Operation, ABC, Generic[T]):
    """Asked of a table; answered by a value."""

    __slots__ = ()

    @abstractmethod
    def on(self, table: Any) -> T:
        """Carry it out, on the owner's `LocalTable`."""


class TableQuestion(Operation, ABC):
    """Asked of a table; answered by rows, which are read when the caller wants them."""

    __slots__ = ()

    @abstractmethod
    def on(self, table: Any) -> Result:
        """Plan the answer, on the owner's `LocalTable`."""

    def about(self, spec: TableSpec) -> TableSpec:
        """The table whose rows the answer has, when a table of this definition is asked."""
        return spec

    @property
    def timeout(self) -> float | None:
        """Seconds for a reading of the answer, if the question says so."""
        return None


class TableDelivery(Operation, ABC, Generic[T]):
    """Brings rows to a table; answered by a value."""

    __slots__ = ()

    streamed: ClassVar[bool] = False
    """Rows come as a `RowStream` and are taken as they come; else as whatever `Table.insert` takes."""

    @abstractmethod
    def on(self, table: Any, rows: Any) -> T:
        """Take the rows in, on the owner's `LocalTable`."""


class WarehouseOperation(Operation, ABC, Generic[T]):
    """Asked of a warehouse; answered by a value."""

    __slots__ = ()

    @abstractmethod
    def on(self, engine: Any, progress: Progress | None) -> T:
        """Carry it out, on the owner's `LocalEngine`. `progress` hears how far long work is."""


# ---- engines: what carries them ------------------------------------------------------------------------------


class PinnedTable(Protocol):
    """A table at one version: however often it is asked, and whatever is inserted meanwhile, it has the same rows."""

    @property
    def spec(self) -> TableSpec: ...
    @property
    def generation(self) -> int: ...
    @property
    def about(self) -> int:
        """About how many rows it has."""
        ...

    @property
    def times(self) -> tuple[int, int] | None:
        """Codes between which all its times are; None if they are not known here."""
        ...

    def query(self, query: Query) -> Result: ...


class TableEngine(Protocol):
    """One table."""

    @property
    def spec(self) -> TableSpec: ...
    @property
    def lost(self) -> bool:
        """Its owner is gone: get the table anew."""
        ...

    def do(self, operation: TableOperation[T]) -> T: ...
    def ask(self, question: TableQuestion) -> Result: ...
    def give(self, delivery: TableDelivery[T], rows: Any) -> T: ...
    def pinned(self) -> PinnedTable:
        """The table as it is now."""
        ...


class Engine(Protocol):
    """A warehouse."""

    @property
    def root(self) -> Path: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def recovery(self) -> Recovery: ...
    @property
    def lost(self) -> bool: ...
    @property
    def owns(self) -> bool:
        """Whether this process owns the warehouse."""
        ...

    @property
    def fenced(self) -> bool:
        """Whether it did, and does not any more: everything but `close` raises FencedError, for good."""
        ...

    def do(self, operation: WarehouseOperation[T], progress: Progress | None = None) -> T: ...
    def table(self, name: str) -> TableEngine: ...
    def create(self, spec: TableSpec, if_exists: str) -> TableEngine: ...
    def versions(self, names: Sequence[str]) -> Sequence[PinnedTable]:
        """These tables, all as they were at one moment: a writer that fills one and then another is never seen the other way round."""
        ...

    def close(self) -> None: ...
    def forsake(self) -> None:
        """In a forked child: the engine is the parent's, and nothing of it is used, or closed, here."""
        ...
