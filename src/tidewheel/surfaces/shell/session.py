"""A session runs statements and commands, one after the other, and keeps the state between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidewheel.surfaces.shell import commands
from tidewheel.surfaces.shell.screen import Screen
from tidewheel.surfaces.shell.statements import Piece
from tidewheel.warehouse import Warehouse


class ShellSession:
    """Used by the main thread, which Ctrl-C reaches."""

    def __init__(self, warehouse: Callable[[], Warehouse], screen: Screen, timeout: float | None = None) -> None:
        """`warehouse` may have to wait until it is open."""
        self._warehouse = warehouse
        self.screen = screen
        self.timeout = timeout
        self.last = ""
        """The last statement: what \\watch and \\explain are about."""
        self.output: Path | None = None
        """Where the next answer goes."""
        self.over = False
        """\\q was said."""

    @property
    def warehouse(self) -> Warehouse:
        return self._warehouse()

    def run(self, piece: Piece) -> None:
        """Run a statement or a command. Raises TidewheelError, and KeyboardInterrupt if it was cancelled."""
        if piece.is_command:
            commands.run(self, piece.text)
        else:
            self.last = piece.text
            self.ask(piece.text)

    def ask(self, statement: str) -> None:
        """Show the answer to a statement, or write it into the file that was named."""
        path, self.output = self.output, None
        self.screen.answer(lambda: self.warehouse.sql(statement, timeout=self.timeout), path)
