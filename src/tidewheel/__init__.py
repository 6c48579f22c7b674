"""Tidewheel: a real-time stream warehouse. Rows can be queried the moment they arrive, by key × time.

The public names, loaded when first used: `import tidewheel` alone costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewheel.release import __version__ as __version__

if TYPE_CHECKING:
    from tidewheel.derived_table import Derived, bounds
    from tidewheel.errors import (
        BadRowsError,
        CorruptionError,
        InputError,
        LimitError,
        NotFoundError,
        OwnedError,
        QueryError,
        StorageError,
        TidewheelError,
    )
    from tidewheel.errors import CancelledError as CancelledError
    from tidewheel.errors import CorruptionWarning as CorruptionWarning
    from tidewheel.maintenance.restore import restore
    from tidewheel.model.delivery import Ack
    from tidewheel.model.schema import epoch, ip, zorder
    from tidewheel.read.result import Result
    from tidewheel.settings import Settings
    from tidewheel.table import Table
    from tidewheel.warehouse import Warehouse, open

_HOMES = {
    "open": "tidewheel.warehouse",
    "Warehouse": "tidewheel.warehouse",
    "Table": "tidewheel.table",
    "Derived": "tidewheel.derived_table",
    "bounds": "tidewheel.derived_table",
    "Result": "tidewheel.read.result",
    "Ack": "tidewheel.model.delivery",
    "Settings": "tidewheel.settings",
    "restore": "tidewheel.maintenance.restore",
    "zorder": "tidewheel.model.schema",
    "ip": "tidewheel.model.schema",
    "epoch": "tidewheel.model.schema",
    "TidewheelError": "tidewheel.errors",
    "InputError": "tidewheel.errors",
    "BadRowsError": "tidewheel.errors",
    "QueryError": "tidewheel.errors",
    "NotFoundError": "tidewheel.errors",
    "OwnedError": "tidewheel.errors",
    "StorageError": "tidewheel.errors",
    "CorruptionError": "tidewheel.errors",
    "LimitError": "tidewheel.errors",
    # these two can be named too, but few need them: the first is a LimitError
    "CancelledError": "tidewheel.errors",
    "CorruptionWarning": "tidewheel.errors",
}

__all__ = [
    "Ack",
    "BadRowsError",
    "CorruptionError",
    "Derived",
    "InputError",
    "LimitError",
    "NotFoundError",
    "OwnedError",
    "QueryError",
    "Result",
    "Settings",
    "StorageError",
    "Table",
    "TidewheelError",
    "Warehouse",
    "bounds",
    "epoch",
    "ip",
    "open",
    "restore",
    "zorder",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tidewheel' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
