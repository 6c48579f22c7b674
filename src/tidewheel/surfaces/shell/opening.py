"""The warehouse of a shell, opened by a thread while the first statement is typed: the prompt does not wait for it.

Nothing heavy is imported here: what the warehouse needs is loaded by that thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewheel.warehouse import Warehouse

_LOOK = 0.01
"""Seconds between two looks at whether it is open. Looked at, because Ctrl-C must end the wait of one and not disturb that of others."""

_NEXT = ("tidewheel.surfaces.shell.session", "tidewheel.sql.run_statement")
"""What the first statement needs."""


class AwaitedWarehouse:
    """Begins at once. Every method may be called from any thread; whoever made it closes it.

    If an owner left a log that must be replayed, which may take long and shows a bar, it is open when this is made.
    """

    def __init__(self, root: Path, failed: Callable[[], None] = lambda: None) -> None:
        """`failed` is called, by that thread, if it cannot be opened; whoever asks for the warehouse is told why."""
        self._root = root
        self._failed = failed
        self._found: Warehouse | None = None
        self.error: BaseException | None = None
        """Why it could not be opened."""
        self._leaving = False
        if not _is_quick(root):
            self._open()
        self._thread = threading.Thread(target=self._go_on, name="tidewheel-open", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        from tidewheel.surfaces.progress_bar import open_warehouse

        self._found = open_warehouse(self._root)

    def _go_on(self) -> None:
        try:
            if self._found is None:
                self._open()
        except BaseException as e:
            self.error = e
            self._failed()
            return
        for module in _NEXT:
            if not self._leaving:
                import_module(module)

    def warehouse(self) -> Warehouse:
        """As soon as it is open. Raises what opening it raised."""
        while self._found is None:
            if self.error is not None:
                raise self.error
            time.sleep(_LOOK)
        return self._found

    def close(self) -> None:
        """Of a warehouse that is still being opened, when it is open. Its thread has ended then: a process that ends while another thread
        loads something may crash."""
        self._leaving = True
        self._thread.join()
        if self._found is not None:
            self._found.close()


def _is_quick(root: Path) -> bool:
    """Whether to open it takes no longer than to type a statement."""
    from tidewheel.cluster.address import is_owned
    from tidewheel.model.chunk_names import LOGS

    return is_owned(root) or not any(one.stat().st_size for one in (root / LOGS).glob("*/*.log"))
