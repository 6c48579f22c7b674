"""A warehouse, as users hold it: opened by its path, closed when done. Thin: everything is done by the engine behind it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from tidewheel.care.backup import backup
from tidewheel.care.check import check
from tidewheel.care.report import BackupReport, CheckReport, Progress
from tidewheel.engine import LocalEngine, open_engine
from tidewheel.errors import ClosedError, SettingsError
from tidewheel.model.schema import Epoch, KeyRule, make_spec
from tidewheel.settings import Settings
from tidewheel.table import Table
from tidewheel.write.recover import Recovery


def open(path: str | os.PathLike[str], *, settings: Settings | None = None) -> Warehouse:
    """Open the warehouse in a folder; it is created if missing. A context manager; `close` flushes.

    The same folder may be opened several times in one process: all share one engine. A second process is refused.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise SettingsError(f"a warehouse is opened by the path of its folder, not {path!r}")
    if "://" in str(path):
        raise SettingsError(f"{path}: this version keeps a warehouse in a local folder; give a path")
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError(f"settings is a tw.Settings, not {settings!r}")
    return Warehouse(open_engine(path, settings))


class Warehouse:
    """Tables in a folder. Every call may be made from any thread."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._open = True

    def create_table(
        self, name: str, schema: Any, *, time: str | Epoch, key: str | KeyRule, partition: str = "1 hour", if_exists: str = "error"
    ) -> Table:
        """Create a table: an Arrow schema, a time column and a key. With `if_exists="open"`, open it if it is there and the same."""
        return Table(self._live().create(make_spec(name, schema, time=time, key=key, partition=partition), if_exists))

    def table(self, name: str) -> Table:
        return Table(self._live().table(name))

    def tables(self) -> list[str]:
        """The names of all tables."""
        return self._live().tables()

    def drop_table(self, name: str) -> None:
        """Drop a table and its rejects. Results that are still being read go on; their files are deleted after."""
        self._live().drop(name)

    @property
    def recovery(self) -> Recovery:
        """What opening the warehouse had to mend after an owner that did not close it; `str` says it in words."""
        return self._live().recovery

    def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
        """Read everything and compare it: checksums, index, catalog, files, logs. Inserts and queries go on meanwhile.

        `print` what it returns, or ask its `ok` and `problems`. With `repair`, files that no table knows are moved into
        `quarantine/`; nothing is deleted. `progress` is told how many bytes are done, and of how many.
        """
        return check(self._live(), repair, progress)

    def backup(self, folder: str | os.PathLike[str], *, verify: str = "all", progress: Progress | None = None) -> BackupReport:
        """Make a backup in a folder, or renew the one that is there. Inserts and queries go on meanwhile.

        Every row inserted before this call is in it. Chunks are hard links where the system can make them, else copies; only new ones
        are made. `verify="new"` does not read those again that an earlier backup made. `tw.restore` makes a warehouse of it.
        """
        return backup(self._live(), folder, verify, progress)

    def _live(self) -> LocalEngine:
        if not self._open:
            raise ClosedError(f"the warehouse {self._engine.root} was closed; open it again")
        return self._engine

    def close(self) -> None:
        """Flush all tables and let go of the warehouse. May be called twice."""
        if self._open:
            self._open = False
            self._engine.close()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        names = self.tables() if self._open else []
        return (
            f"<Warehouse {self._engine.root}: {len(names)} table{'' if len(names) == 1 else 's'}>"
            if self._open
            else f"<Warehouse {self._engine.root}, closed>"
        )
