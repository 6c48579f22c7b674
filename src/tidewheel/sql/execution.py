"""One run of a statement in DuckDB: from a session that is taken to the last batch, with its limits all the while.

A statement runs in the thread that reads it (or one beside it, where Ctrl-C has to get through), and in DuckDB's. It is ended by an
interrupt of its connection: when its time is up, or when it is cancelled. What goes wrong in a scan of ours is raised as what it was, not
as what DuckDB makes of it.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import pyarrow as pa

from tidewheel.duck.error_text import said_by_duckdb
from tidewheel.duck.failures import BROKEN, DuckError, is_interrupt, is_out_of_memory
from tidewheel.engine.protocol import PinnedTable
from tidewheel.errors import CancelledError, LimitError, QueryError, TidewheelError
from tidewheel.model.conditions import Condition
from tidewheel.model.schema import TableSpec
from tidewheel.read.apart import too_large
from tidewheel.read.limits import NEVER, Cancellable, Limits, Watch, shown
from tidewheel.sql import monitor
from tidewheel.sql.asking import Used
from tidewheel.sql.database import Database, Session, forget
from tidewheel.sql.explained import Explained, explained
from tidewheel.sql.frames import Frames, columns_of_frame
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.streamed import Streamed
from tidewheel.sql.table_scan import TableScan

T = TypeVar("T")

_UNLIMITED = Limits(NEVER, NEVER, NEVER)

BATCH_ROWS = 1 << 16


class Inputs:
    """What a statement reads: tables at pinned versions, and rows that are there already."""

    def __init__(
        self,
        root: Path,
        tables: Mapping[str, PinnedTable],
        others: Mapping[str, pa.Table | Streamed],
        generations: dict[str, int] | None = None,
        frames: Frames | None = None,
    ) -> None:
        """`generations`: of the tables that the other rows were taken from. `frames`: rows that came with the statement."""
        self.root = root
        self.tables = tables
        self.others = others
        self.frames: Frames = frames or {}
        self.narrow: dict[str, Condition] = {}
        """What is known of all rows that are needed of a table, besides the filters of its scans."""
        self.at: dt.datetime | None = None
        """What time it is for the statement, if it asks."""
        self.generations = {name: table.generation for name, table in tables.items()} if generations is None else generations

    def scan(self, name: str, columns: list[str], condition: Condition | None, limits: Limits, left: float) -> TableScan:
        """A scan of a table within the limits of its statement, of whose time so many seconds are left."""
        given: dict[str, Any] = {"max_rows": NEVER}
        if limits.seconds != NEVER:
            given["timeout"] = max(0.0, left)
        if limits.bytes != NEVER:
            given["max_bytes"] = limits.bytes
        return TableScan(self.tables[name], columns, condition, narrow=self.narrow.get(name), **given)

    def columns(self) -> list[str]:
        """All names that a column could have been meant by."""
        names = [name for table in self.tables.values() for name in table.spec.schema.names]
        names += [name for frame in self.frames.values() for name in columns_of_frame(frame)]
        return [*names, *(name for rows in self.others.values() for name in rows.schema.names)]


class StatementReading:
    """Used by one thread, `interrupt` by any. `close` it in any case."""

    def __init__(self, database: Database, inputs: Inputs, limits: Limits, of: Cancellable, used: Used) -> None:
        self._database = database
        self._inputs = inputs
        self._limits = limits
        self._of = of
        self._left = limits.seconds - used.seconds
        self._began = perf_counter()
        self.started = used.started
        self._failures: list[BaseException] = []
        self._sound = True
        self._late = self._large = False
        self._closing = threading.Lock()
        self._session: Session | None = database.take(inputs.root)
        self._relation: Any = None
        self._reader: Any = None
        self.scans: list[TableScan] = []
        try:
            self.does(lambda session: session.begin(inputs.tables, inputs.others, inputs.frames, self._open, inputs.at))
        except BaseException:
            self._sound = False
            self.close()
            raise

    # ---- the statement ----------------------------------------------------------------------------------

    def bind(self, text: str, parameters: Parameters) -> None:
        """Names and types are known to be right then."""
        self._relation = self.does(lambda session: session.bind(text, parameters))

    def begin(self) -> pa.Schema:
        """Let the first rows come."""
        self._reader = self.does(lambda session: self._relation.to_arrow_reader(BATCH_ROWS))
        return self._reader.schema

    def next(self) -> pa.RecordBatch | None:
        """The next rows; None: there are no more."""
        return self.does(lambda session: next(self._reader, None))

    def explain(self, text: str, parameters: Parameters, analyze: bool) -> Explained:
        """How it would be run, or, with `analyze`, was."""
        return self.does(lambda session: explained(session, self._inputs.tables, text, parameters, analyze))

    # ---- scans of ours ----------------------------------------------------------------------------------

    def _open(self, spec: TableSpec, columns: list[str], condition: Condition | None) -> Iterable[pa.RecordBatch]:
        try:
            scan = self._inputs.scan(spec.name, columns, condition, self._limits, self._left - (perf_counter() - self._began))
        except BaseException as e:
            self._failures.append(e)
            raise
        self.scans.append(scan)
        return self._batches(scan)

    def _batches(self, scan: TableScan) -> Iterator[pa.RecordBatch]:
        try:
            for batch in scan:
                if self._of.cancelled or self._late or self._large:
                    raise CancelledError("the statement was cancelled; ask it again")
                yield batch
        except GeneratorExit:  # nobody wants more
            raise
        except BaseException as e:
            self._failures.append(e)
            raise

    # ---- steps ------------------------------------------------------------------------------------------

    def does(self, step: Callable[[Session], T]) -> T:
        """Do a step of the statement. Raises what went wrong as an error of ours."""
        session = self._session
        assert session is not None
        if self._of.cancelled:
            raise CancelledError("the statement was cancelled; ask it again")
        if self._left <= 0:
            raise too_late(self._limits.seconds)
        self._began = perf_counter()
        try:
            with monitor.monitor.watching(self._left, self._limits.bytes, self._time_is_up, self._takes_too_much):
                if threading.current_thread() is not threading.main_thread():
                    return step(session)
                # a Ctrl-C comes to the main thread alone, and DuckDB would not let it through
                return Watch(_UNLIMITED, self._of).apart(lambda: step(session), session.connection.interrupt)
        except (DuckError, pa.ArrowException, OSError) as e:
            raise self._error(e) from None
        finally:
            self._left -= perf_counter() - self._began

    def _time_is_up(self) -> None:
        self._late = True
        self.interrupt()

    def _takes_too_much(self) -> None:
        self._large = True
        self.interrupt()

    def interrupt(self) -> None:
        with self._closing:
            if self._session is not None:
                self._session.connection.interrupt()

    def _error(self, error: Exception) -> BaseException:
        if isinstance(error, BROKEN):
            self._sound = False
            forget(self._database)
        message = str(error)
        own = next((one for one in self._failures if isinstance(one, TidewheelError) or not isinstance(one, Exception)), None)
        if self._late or isinstance(own, LimitError) and not isinstance(own, CancelledError) and perf_counter() - self._began > self._left:
            return too_late(self._limits.seconds)
        if self._large:
            return too_large(self._limits.bytes)
        if self._of.cancelled:
            return CancelledError("the statement was cancelled; ask it again")
        if own is not None:
            return own
        if is_out_of_memory(error):
            first = message.split("\n")[0].split("Error: ", 1)[-1]
            return out_of_memory(self._database.memory, first)
        if is_interrupt(error):
            return CancelledError("the statement was interrupted; ask it again")
        return QueryError(said_by_duckdb(message, self._inputs.columns()))

    def close(self) -> None:
        """Give the session back. May be called twice."""
        with self._closing:
            session, self._session = self._session, None
            self._relation = self._reader = None
        if session is not None:
            self._database.give_back(session, self._inputs.root, self._sound)
        self._failures.clear()  # an error that is reached from its own traceback would stay, and all its frames with it


def too_late(seconds: float) -> LimitError:
    return LimitError(
        f"the statement took longer than its timeout of {seconds:g} s; narrow it, or give it more time with timeout= "
        "(for all: Settings.query_seconds)"
    )


def out_of_memory(memory: float, said: str) -> LimitError:
    return LimitError(
        f"the statement needs more than {shown(memory)} of memory ({said}); narrow it, or raise max_bytes= (for all: Settings.query_bytes)"
    )
