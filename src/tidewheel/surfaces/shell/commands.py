"""The commands that begin with a backslash. Whoever knows psql knows most of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidewheel.errors import InputError
from tidewheel.model.figures import counted
from tidewheel.model.schema import nearest
from tidewheel.read.limits import shown
from tidewheel.surfaces.shell import answer_file, watch
from tidewheel.surfaces.shell.screen import FORMATS

if TYPE_CHECKING:
    from tidewheel.surfaces.shell.session import ShellSession

HELP = {
    "\\d": "the tables; \\d NAME: the columns of one; \\d system: the tables about the warehouse",
    "\\watch": "[SECONDS [TIMES]]  ask the last statement again and again, until Ctrl-C (default: every 2 seconds)",
    "\\explain": "[STATEMENT]  how it, or the last one, is answered; \\explain analyze STATEMENT also runs it",
    "\\timing": "[on|off]  under each answer: how long it took, what was read",
    "\\format": f"[{'|'.join(FORMATS)}]  how answers look",
    "\\o": f"FILE  write the next answer into a file: {' '.join(answer_file.FORMATS)}",
    "\\pager": "[on|off]  show long and wide answers in $PAGER (default: less)",
    "\\?": "this list",
    "\\q": "leave; Ctrl-D too",
}

_HINTS = """\
A statement ends with a semicolon and may have many lines; Enter runs it when it is whole, Alt-Enter in any case.
Tab completes; Ctrl-C cancels the statement that runs, or clears the line; Ctrl-R searches what was typed before."""

_TABLES = """\
SELECT name, "key", time, partition, rows, fresh_rows, chunks, memory_bytes, disk_bytes FROM system.tables ORDER BY name"""

_COLUMNS = """\
SELECT column_name AS column, type, CASE WHEN is_key AND is_time THEN 'key, time' WHEN is_key THEN 'key' WHEN is_time THEN 'time'
WHEN NOT nullable THEN 'not null' ELSE '' END AS notes FROM system.columns WHERE table_name = $name ORDER BY position"""


def run(session: ShellSession, text: str) -> None:
    """Run a command, with its arguments."""
    name, _, said = text.partition(" ")
    said = said.strip()
    match name:
        case "\\d":
            _describe(session, said.strip('"'))
        case "\\watch":
            watch.watch(session, *_pace(said))
        case "\\explain":
            session.ask(f"EXPLAIN {_statement(session, said)}")
        case "\\timing":
            look = session.screen.look
            look.timing = _switched(name, said, look.timing)
            session.screen.print(f"timing is {'on' if look.timing else 'off'}")
        case "\\pager":
            look = session.screen.look
            look.pager = _switched(name, said, look.pager)
            session.screen.print(f"pager is {'on' if look.pager else 'off'}")
        case "\\format":
            if said and said not in FORMATS:
                raise InputError(f"\\format takes {', '.join(FORMATS)}, not {said!r}")
            session.screen.look.format = said or session.screen.look.format
            session.screen.print(f"format is {session.screen.look.format}")
        case "\\o":
            if not said:
                raise InputError("\\o takes the name of a file: \\o answer.parquet")
            path = Path(said.strip("'\""))
            answer_file.format_of(path)  # it is better to hear of it now
            session.output = path
        case "\\?" | "\\h" | "\\help":
            wide = max(map(len, HELP)) + 2
            session.screen.print("\n".join([*(f"{one.ljust(wide)}{what}" for one, what in HELP.items()), "", _HINTS]))
        case "\\q" | "\\quit":
            session.over = True
        case _:
            raise InputError(f"there is no command {name}.{nearest(name, list(HELP))} \\? lists them")


def _statement(session: ShellSession, said: str) -> str:
    """The statement that is meant: the one that was said, or the last one."""
    word = said.lower()
    if word in ("", "analyze"):
        if not session.last:
            raise InputError("\\explain explains the last statement, and there was none yet; or give one: \\explain SELECT …")
        return f"{said} {session.last}"
    return said


def _pace(said: str) -> tuple[float, int | None]:
    words = said.split()
    try:
        seconds = float(words[0]) if words else 2.0
        times = int(words[1]) if len(words) > 1 else None
    except ValueError:
        seconds, times = -1.0, None
    if len(words) > 2 or not 0.01 <= seconds <= 86400 or times is not None and times < 1:
        raise InputError(f"\\watch takes seconds between two answers, and how many answers: \\watch 1, \\watch 0.5 10; not {said!r}")
    return seconds, times


def _switched(name: str, said: str, now: bool) -> bool:
    if said not in ("", "on", "off"):
        raise InputError(f"{name} takes on or off, not {said!r}")
    return not now if not said else said == "on"


def _describe(session: ShellSession, name: str) -> None:
    warehouse, screen = session.warehouse, session.screen
    if not name:
        if warehouse.tables():
            screen.answer(lambda: warehouse.sql(_TABLES))
        else:
            screen.print("there are no tables yet: wh.create_table(...) makes one, or `tidewheel ingest`")
    elif name.lower() == "system":
        from tidewheel.sql.system import TABLES

        screen.print("\n".join(f"system.{one}  {', '.join(columns)}" for one, (columns, _) in TABLES.items()))
    elif name.lower().startswith("system."):
        screen.answer(lambda: warehouse.sql(f"DESCRIBE {name}"))
    else:
        known = warehouse.tables()
        found = name if name in known else next((one for one in known if one.lower() == name.lower()), name)
        table = warehouse.table(found)  # which says what to do if there is none
        screen.answer(lambda: warehouse.sql(_COLUMNS, {"name": found}))
        state = table.state()
        screen.note(
            f"key {', '.join(table.key.columns)} · time {table.time} · {counted(state.rows, 'row')}, {state.fresh_rows:,} in memory · "
            f"{counted(state.chunks, 'chunk')}, {shown(state.disk_bytes)}"
        )
