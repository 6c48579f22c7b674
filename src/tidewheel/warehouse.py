"""A warehouse, as users hold it: opened by its path, closed when done. Thin: everything is done by the engine behind it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyarrow import Schema

from tidewheel.cluster.current_engine import CurrentEngine, open_engine
from tidewheel.cluster.handed_engine import HandedEngine
from tidewheel.engine.operations import DropTable, GetDefinition, ListTables
from tidewheel.engine.protocol import Engine
from tidewheel.env.deadline import Within
from tidewheel.errors import ClosedError, NotFoundError, SettingsError
from tidewheel.maintenance.warehouse_care import CheckWarehouse, backup_in
from tidewheel.model.html_grid import html_grid
from tidewheel.model.other_names import OF_WAREHOUSES, unknown_name
from tidewheel.model.recovery import Recovery
from tidewheel.model.report import BackupReport, CheckReport, Progress
from tidewheel.model.schema import Epoch, KeyRule, make_spec
from tidewheel.read.result import Result
from tidewheel.settings import Settings
from tidewheel.table import Table

if TYPE_CHECKING:
    from tidewheel.derive.explanation import Explanation
    from tidewheel.derived_table import Derived
    from tidewheel.engine.refresh_loop import RefreshLoop
    from tidewheel.engine.refresher import RefreshProgress
    from tidewheel.model.load_report import LoadReport
    from tidewheel.model.refresh_report import RefreshReport
    from tidewheel.spark.spark_sessions import SparkSession

_SHOWN = 50
"""Tables that a notebook shows of a warehouse."""


def open(path: str | os.PathLike[str], *, create: bool = True, settings: Settings | None = None) -> Warehouse:
    """Open the warehouse in a folder; it is created if missing, unless `create` is False. A context manager; `close` flushes.

    A folder with other things in it is refused.

    The same folder may be opened any number of times: the first process owns the warehouse, every other attaches to it and has the same
    tables with the same fresh rows, under the owner's settings. If the owner dies, the next call of another process takes its place.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise SettingsError(f"a warehouse is opened by the path of its folder, not {path!r}")
    if str(path) == ":memory:":
        raise SettingsError(
            "a warehouse is a folder; there is none in memory. For one that need not last, open a folder of tempfile.mkdtemp(), with "
            'tw.Settings(durability="memory")'
        )
    if "://" in str(path):
        raise SettingsError(f"{path}: this version keeps a warehouse in a local folder; give a path")
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError(f"settings is a tw.Settings, not {settings!r}")
    return Warehouse(open_engine(path, settings, create=create))


class Warehouse:
    """Tables in a folder. Every call may be made from any thread."""

    def __init__(self, current: CurrentEngine) -> None:
        self._current = current
        self._open = True

    @property
    def _engine(self) -> Engine:
        return self._current.engine()

    def create_table(
        self, name: str, schema: Any, *, time: str | Epoch, key: str | KeyRule, partition: str | None = None, if_exists: str = "error"
    ) -> Table:
        """Create a table: an Arrow schema, a time column and a key. With `if_exists="open"`, open it if it is there and the same.

        `schema` may also be a DataFrame (pandas, polars), an Arrow table or anything else that `Table.insert` takes: then the table has its
        columns, and its rows. If a row does not fit, there is no table. One that is there already is opened without them.

        `partition`: "15 minutes", "1 hour" (the default; a day where times are days), "7 days", "1 month", "1 year".
        """
        if isinstance(schema, Schema):
            return Table(self._current, self._live().create(make_spec(name, schema, time=time, key=key, partition=partition), if_exists))
        from tidewheel.engine.given_rows import create_with, schema_and_rows

        engine = self._live()
        schema, rows = schema_and_rows(schema, time, key)
        spec = make_spec(name, schema, time=time, key=key, partition=partition)
        return Table(self._current, engine.create(spec, if_exists) if rows is None else create_with(engine, spec, rows, if_exists))

    def load(
        self,
        table: str,
        files: Any,
        *,
        time: str | Epoch | None = None,
        key: str | KeyRule | None = None,
        partition: str | None = None,
        on_bad: str = "reject",
        changed: str = "refuse",
        extra: str = "reject",
        payload: str = "",
        time_format: str = "",
        columns: Sequence[str] = (),
        delimiter: str = ",",
        nulls: Sequence[str] = ("",),
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> LoadReport:
        """Load files: a path, a pattern ("rides/*.parquet"), a folder, or a list. Parquet, CSV, JSON lines, Arrow, Avro; also .gz, .zst …

        Each file is loaded whole or not at all, and once: a second call loads what is new. One that has changed since is refused, or
        with `changed="load"` loaded beside what it brought then. Bad rows are kept in `rejects()` with their reason and place; with
        `on_bad="error"` their file is not loaded. Columns that the table does not have are refused, with `extra="ignore"` left out. A
        table that is not there is made from the first file, if `time` and `key` are given.

        `payload` ("csv", "json", "parquet", "avro", "arrow") says what files are whose names do not. Of CSV: `columns`, if there is no
        header, `delimiter`, and `nulls`, the texts that mean no value. `time_format`: "epoch-s" … "epoch-ns", or "%d/%m/%Y %H:%M". The
        report says for each file rows, rejected, duplicate, seconds. If files could not be loaded, the others are, and then InputError
        says which. `progress` is told how many bytes are done, and of how many.
        """
        from tidewheel.engine.load import LoadRequest, check, load
        from tidewheel.ingest.rules import FILES, Rules

        rules = Rules(FILES, payload, {}, time_format, extra, tuple(columns), delimiter, tuple(nulls))
        return check(load(self._live(), LoadRequest(table, files, time, key, partition, rules, on_bad, changed, threads), progress))

    def table(self, name: str) -> Table:
        """A table that is there; a `Derived`, if it is derived from others."""
        table = self._live().table(name)
        if table.do(GetDefinition()) is None:
            return Table(self._current, table)
        from tidewheel.derived_table import Derived

        return Derived(self._current, table)

    def tables(self) -> list[str]:
        """The names of all tables."""
        return self._live().do(ListTables())

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __iter__(self) -> Iterator[str]:
        """The names of all tables."""
        return iter(self.tables())

    def __len__(self) -> int:
        return len(self.tables())

    def __bool__(self) -> bool:
        """A warehouse is there, also without tables."""
        return True

    def drop_table(self, name: str, *, cascade: bool = False) -> None:
        """Drop a table and its rejects. Results that are still being read go on; their files are deleted after.

        Refused while other tables are derived from it; with `cascade`, these are dropped first.
        """
        self._live().do(DropTable(name, cascade))

    # ---- derived tables ---------------------------------------------------------------------------------

    def create_derived(
        self,
        name: str,
        sql: str | Callable[..., Any],
        *,
        time: str | Epoch,
        key: str | KeyRule,
        partition: str | None = None,
        bounds: Mapping[str, Any] | None = None,
        incremental: str = "auto",
        begin: Any = None,
        if_exists: str = "error",
        deterministic: Sequence[str] = (),
        spark: SparkSession | None = None,
    ) -> Derived:
        """Create a table that is derived from others by a query in Spark SQL, or by a function of DataFrames named like its sources.

        It has no rows until it is refreshed. `bounds`, by source: of which source rows a row is made, `tw.bounds(…)` or "all"; where
        they are not given, they are inferred. `incremental`: "auto", "never" (always whole partitions), or "strict" (an error, if only
        whole partitions are possible). `begin`: partitions before this time are never computed. `deterministic`: the names of
        Python functions in it that give the same for the same arguments, each time. `spark`: the session to analyse it in, else the
        one that runs, or one that is started with a low priority. With `if_exists="open"`, open it if it is there and the same.
        """
        from tidewheel.derived_table import create

        return create(
            self._current, self._live(), name, sql, time, key, partition, bounds, incremental, begin, if_exists, deterministic, spark
        )

    def derived(self, *, name: str | None = None, if_exists: str = "open", **how: Any) -> Callable[[Callable[..., Any]], Derived]:
        """A decorator: the function, whose parameters are named like its sources, defines a derived table of its name.

        Takes what `create_derived` takes. The name is then the table; a module that is imported again opens it.
        """

        def decorate(function: Callable[..., Any]) -> Derived:
            named = name or str(getattr(function, "__name__", ""))
            return self.create_derived(named, function, if_exists=if_exists, **how)

        return decorate

    def explain_derived(
        self,
        sql: str | Callable[..., Any],
        *,
        time: str | Epoch,
        key: str | KeyRule | None = None,
        partition: str | None = None,
        bounds: Mapping[str, Any] | None = None,
        incremental: str = "auto",
        begin: Any = None,
        deterministic: Sequence[str] = (),
        spark: SparkSession | None = None,
    ) -> Explanation:
        """What `create_derived` would make: sources, bounds, modes with their reasons, columns. Nothing is made; `print` it."""
        from tidewheel.derived_table import planned

        return planned(self._live(), "", sql, time, key, partition, bounds, incremental, begin, deterministic, spark).explanation

    def refresh(
        self, names: str | Sequence[str] | None = None, *, spark: SparkSession | None = None, progress: RefreshProgress | None = None
    ) -> RefreshReport:
        """Bring all derived tables up to date, each after those that it is made of; or these, and what they are made of.

        Only what is stale is computed, in `spark`, else in the session that runs, or one that is started with a low priority; none is if
        there is nothing to do. A table that fails does not stop those that do not need it: ask `ok` and `errors` of the report. If tables
        were named, what fails is raised.
        `progress` is told of a table how many partitions are done, and of how many.
        """
        from tidewheel.derived_table import refreshed

        self._live()
        return refreshed(self._current, [names] if isinstance(names, str) else names, spark, progress=progress)

    def refresher(
        self, every: str = "1 second", *, names: str | Sequence[str] | None = None, spark: SparkSession | None = None
    ) -> RefreshLoop:
        """A context manager that keeps derived tables up to date, in a thread: a pass `every` so often, at most.

        Tables that fail are tried again after a second, two, four, up to ten minutes; what still fails at the end is raised there.
        """
        from tidewheel.derived_table import loop

        self._live()
        return loop(self._current, every, [names] if isinstance(names, str) else names, spark)

    def sql(
        self,
        statement: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        tables: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_rows: float | None = None,
        max_bytes: float | None = None,
    ) -> Result:
        """The answer to an SQL statement: SELECT of anything DuckDB can do, over any number of tables, and EXPLAIN of it.

        CREATE TABLE … WITH (time = …, key = …), DROP TABLE and INSERT are done when this returns; the result says what was done.

        `tables`: names of rows that you have, for this statement: pandas and polars DataFrames, Arrow tables, lists of dicts, anything with
        `__arrow_c_stream__`. They are read as they are now; nothing else of Python can be reached.

        Values for `?` come as a list, for `$name` as a mapping. All tables are shown as they were at one moment. The result is lazy;
        what is wrong with the statement is said here, with the place. Limits are those of `Table.query`.
        """
        began = perf_counter()
        with Within(timeout):  # first: what is loaded here takes its time, too
            from tidewheel.sql.short_way import shortly

            engine = self._live()
            if params is None and tables is None and (short := shortly(engine, statement, began, timeout, max_rows, max_bytes)) is not None:
                return short
            from tidewheel.sql.run_statement import ask

            return ask(engine, statement, params, began, timeout, max_rows, max_bytes, tables)

    def cancel(self, query: int) -> bool:
        """End a statement of this process by its `id` in system.queries. False if it had ended already."""
        from tidewheel.sql.queries import queries

        return queries.cancel(self._live().root, query)

    @property
    def recovery(self) -> Recovery:
        """What opening the warehouse had to mend after an owner that did not close it; `str` says it in words."""
        return self._live().recovery

    def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
        """Read everything and compare it: checksums, index, catalog, files, logs. Inserts and queries go on meanwhile.

        `print` what it returns, or ask its `ok` and `problems`. With `repair`, files that no table knows are moved into
        `quarantine/`; nothing is deleted. `progress` is told how many bytes are done, and of how many.
        """
        return self._live().do(CheckWarehouse(repair), progress)

    def backup(self, folder: str | os.PathLike[str], *, verify: str = "all", progress: Progress | None = None) -> BackupReport:
        """Make a backup in a folder, or renew the one that is there. Inserts and queries go on meanwhile.

        Every row inserted before this call is in it. Chunks are hard links where the system can make them, else copies; only new ones
        are made. `verify="new"` does not read those again that an earlier backup made. `tw.restore` makes a warehouse of it.
        """
        return self._live().do(backup_in(folder, verify), progress)

    def _live(self) -> Engine:
        if not self._open:
            raise ClosedError(f"the warehouse {self._current.root} was closed; open it again")
        return self._current.engine()

    def close(self) -> None:
        """Flush all tables and let go of the warehouse. May be called twice."""
        if self._open:
            self._open = False
            self._current.leave()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[str], Warehouse], tuple[str]]:
        """A warehouse crosses to another process as its path; there, it is opened again."""
        self._live()
        return handed_warehouse, (str(self._current.root),)

    if not TYPE_CHECKING:  # which would take every name for one that there is

        def __getattr__(self, name: str) -> Any:
            is_table = not name.startswith("_") and name not in OF_WAREHOUSES and self._open and name in self.tables()
            raise unknown_name("Warehouse", name, OF_WAREHOUSES, f"; write wh[{name!r}]" if is_table else "")

    def _repr_html_(self) -> str:
        names = self.tables() if self._open else []
        rows = []
        for name in names[:_SHOWN]:
            with suppress(NotFoundError):  # dropped just now
                table = self.table(name)
                rows.append((name, f"{table.rows:,}", ", ".join(table.key.columns), table.time, str(len(table.schema))))
        said = repr(self).strip("<>") + (f", the first {_SHOWN} shown" if len(names) > _SHOWN else "")
        return html_grid(("table", "rows", "key", "time", "columns"), (), rows, said, (False, True, False, False, True))

    def __repr__(self) -> str:
        names = self.tables() if self._open else []
        return (
            f"<Warehouse {self._current.root}: {len(names)} table{'' if len(names) == 1 else 's'}>"
            if self._open
            else f"<Warehouse {self._current.root}, closed>"
        )


def handed_warehouse(root: str) -> Warehouse:
    """A warehouse that was handed to this process, which is opened when it is first used."""
    return Warehouse(HandedEngine(Path(root), leaves=True))
