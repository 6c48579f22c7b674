"""A warehouse, as users hold it: opened by its path, closed when done. Thin: everything is done by the engine behind it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

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
