"""The line that is typed: many lines, colours, completion, and a history that outlives the shell."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import completion_is_selected, has_focus
from prompt_toolkit.formatted_text import FormattedText, StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style
from pygments.lexers.sql import PostgresLexer

from tidewheel.surfaces.shell.statements import is_complete
from tidewheel.surfaces.shell.suggestions import Names, SqlCompleter

PROMPT = "tidewheel> "

_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "continuation": "ansibrightblack",
        "pygments.keyword": "bold ansiblue",
        "pygments.name.builtin": "ansicyan",
        "pygments.literal.string": "ansigreen",
        "pygments.literal.number": "ansimagenta",
        "pygments.comment": "italic ansibrightblack",
    }
)


class NotOpenError(Exception):
    """There is nothing to type for: the warehouse cannot be opened."""


class Editor:
    """Asks for the next statement or command. Used by one thread."""

    def __init__(self, names: Names) -> None:
        self._session: PromptSession[str] = PromptSession(
            FormattedText([("class:prompt", PROMPT)]),
            multiline=True,
            prompt_continuation=_continuation,
            lexer=PygmentsLexer(PostgresLexer),
            style=_STYLE,
            include_default_pygments_style=False,
            completer=SqlCompleter(names),
            complete_while_typing=False,
            complete_in_thread=True,
            complete_style=CompleteStyle.MULTI_COLUMN,
            auto_suggest=AutoSuggestFromHistory(),
            history=history(),
            key_bindings=_keys(),
            enable_open_in_editor=True,
            tempfile_suffix=".sql",
        )

        self._left = False

    def ask(self) -> str:
        """The next typed line. Raises KeyboardInterrupt for Ctrl-C, EOFError for Ctrl-D on an empty line, NotOpenError after `leave`."""
        return self._session.prompt(pre_run=self._look)

    def leave(self) -> None:
        """Nothing more is to be typed. May be called by any thread, also before it asks."""
        self._left = True
        loop = self._session.app.loop  # none: it does not ask, and looks before it does
        if loop is not None:
            with suppress(RuntimeError):  # it was just over
                loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        app = self._session.app
        if self._left and app.is_running and not app.is_done:
            app.exit(exception=NotOpenError())


def history() -> History:
    """In a file that only the user may read; in memory, where there can be none."""
    try:
        path = history_file()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def history_file() -> Path:
    """In the user's state folder: `$XDG_STATE_HOME`, else `~/.local/state`."""
    named = os.environ.get("XDG_STATE_HOME", "")
    base = Path(named) if named.startswith("/") else Path.home() / ".local" / "state"
    return base / "tidewheel" / "sql_history"


def _continuation(width: int, line_number: int, is_soft_wrap: int) -> StyleAndTextTuples:
    return [("class:continuation", " " * width if is_soft_wrap else "...> ".rjust(width))]


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER) & ~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        """Run what is whole; else begin another line."""
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=True)

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER) & completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        """Take the completion."""
        event.current_buffer.complete_state = None

    @keys.add("escape", "enter", filter=has_focus(DEFAULT_BUFFER))
    def _(event: KeyPressEvent) -> None:
        """Run it as it is."""
        event.current_buffer.validate_and_handle()

    return keys
