"""Advice of errors, reworded for people who type SQL: the messages of the warehouse name calls of Python, of which a shell has none."""

from __future__ import annotations

import re

_REPLACE = "those of an interval can be exchanged (in Python: table.replace(rows, time=(first, last)))"
_TIME = "give it more time with --timeout N, or TIDEWHEEL_QUERY_SECONDS=N"
_FILES = "bring files in with tidewheel load TABLE FILE"

_INSTEAD = {
    "give it more time with timeout= (for all: Settings.query_seconds)": _TIME,
    "give it more time with timeout= (for all queries: Settings.query_seconds)": _TIME,
    "raise max_bytes= (for all: Settings.query_bytes)": "raise TIDEWHEEL_QUERY_BYTES",
    "raise max_bytes= (for all queries: Settings.query_bytes)": "raise TIDEWHEEL_QUERY_BYTES",
    "raise max_rows= (for all queries: Settings.query_rows)": "raise TIDEWHEEL_QUERY_ROWS",
    "its max_bytes; narrow": "its limit; narrow",
    "exchange those of an interval of time with table.replace(rows, time=(first, last))": _REPLACE,
    "exchange the rows of an interval of time with table.replace(rows, time=(first, last))": _REPLACE,
    "those of an interval of time leave with table.replace([], time=(first, last)), all with time=(None, None)": (
        "those of an interval of time can leave (in Python: table.replace([], time=(first, last))), and DROP TABLE takes all"
    ),
    "write what wh.sql(...) returns with to_parquet(...), and bring files in with wh.load(...)": (
        f"write an answer with \\o FILE or --output FILE; {_FILES}"
    ),
    "make a backup with wh.backup(...)": "make a backup with tidewheel backup FOLDER",
    "open the other with tw.open(...)": "ask the other with tidewheel sql -w PATH",
    "limits are given with timeout=, max_rows= and max_bytes=, settings with tw.open(..., settings=...)": (
        "limits are --timeout N and the settings of tidewheel.toml, which system.settings tells"
    ),
    "Give many rows to table.insert(...)": f"To insert many rows, {_FILES}",
    "give values as parameters; statements": "statements",
    "give values as parameters": "write values into the statement",
    "; use them with wh.table(...)": ": a statement cannot name them",
    ". DataFrames and other rows of yours get their names with wh.sql(..., tables={'name': rows})": "",
    "derived tables: wh.create_derived(name, sql, time=…, key=…), refreshed by wh.refresh() or `tidewheel refresh`": (
        "derived tables, which tidewheel refresh brings up to date (in Python: wh.create_derived(name, sql, time=…, key=…))"
    ),
    "wh.load(table, file, time=..., key=...)": "tidewheel load TABLE FILE --time COLUMN --key COLUMN",
}
"""Phrases of the warehouse's messages, and the shell's words for them."""

_CALLS = re.compile(r"\b(?:wh|tw|table)\.\w+\(|\b(?:timeout|max_rows|max_bytes)=|\bSettings\.")
"""Python."""


def advised(message: str) -> str:
    """A message as a shell says it."""
    for said, instead in _INSTEAD.items():
        message = message.replace(said, instead)
    return message


def names_python(message: str) -> bool:
    """Whether it still advises a call of Python, without saying that it is one."""
    return _CALLS.search(re.sub(r"\(in Python: [^;]*", "", message)) is not None
