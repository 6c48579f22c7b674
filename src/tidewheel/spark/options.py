"""Where a Spark user says the table is, and how it is to be read or written.

`load("data/wh/taxi")`: the last part of the path is the table, the rest the warehouse. Options are camelCase, Spark ignores their case,
and one that is not known is an error: a misspelt option that does nothing is worse than none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tidewheel.errors import InputError
from tidewheel.model.schema import NAME, nearest

LOCATION = {
    "path": "the folder of the warehouse, then the table's name",
    "warehouse": "the folder of the warehouse, together with `table`",
    "table": "the table's name, together with `warehouse`",
}

READ = {
    "columns": "the columns to read, separated by commas",
    "nanoseconds": "what to do with times finer than Spark's microseconds: error, truncate or long",
    "partitions": "the most tasks to read with",
}

CHANGES = {
    "columns": READ["columns"],
    "nanoseconds": READ["nanoseconds"],
    "partitions": READ["partitions"],
    "startingGeneration": "where a new stream begins: a generation, or latest",
    "maxRowsPerTrigger": "about how many rows one batch has at most",
}

CREATE = {
    "time": "the time column of a table that is to be created; for whole numbers with their unit, as in `seen ms`",
    "key": "its key: a column, zorder(lon, lat, lower ends, upper ends) or ip(column)",
    "partition": "the width of its partitions, as in `1 hour`",
}

WRITE = CREATE | {
    "onBad": "what to do with rows that do not fit the table: error or reject",
    "ifExists": "what to do if the table is there: append, error or ignore",
}

STREAM = CREATE | {"streamName": "the name under which batches are counted, if it is not to be the query's id"}

_SPARKS_OWN = ("paths", "checkpointLocation", "queryName", "owner", "location", "provider", "comment", "external", "is_managed_location")
"""What Spark itself adds to the options of a load, a stream or a CREATE TABLE."""

STEP, ASK, SCHEMA, CATALOG = _OF_JAVA = ("tidewheelScan", "tidewheelAsk", "tidewheelSchema", "tidewheelCatalog")
"""Added by `java_provider`, to scans; the last one to what is done with a table of Spark's catalog."""

DECODE, PART = _OF_PYTHON = ("tidewheelDecode", "tidewheelPart")
"""Added by `ingest`, and by refreshes, which read a `TablePart` of a table."""

_PROVIDER, _OPTION = "provider", "option."
"""CREATE TABLE: a property of the table that is made, and the beginning of those that are its OPTIONS."""


@dataclass(frozen=True, slots=True)
class TablePath:
    """A table of a warehouse. The root is absolute: tasks run in folders of their own."""

    root: str
    table: str

    def __str__(self) -> str:
        return f"{self.root}/{self.table}"


@dataclass(frozen=True, slots=True)
class TablePart:
    """The rows that a refresh reads of a table, all of which are in chunks."""

    upto: int
    """The table as it was at this generation."""
    after: int | None
    """Only rows that came with a later one."""
    times: tuple[tuple[int, int], ...]
    """Only rows of these times: closed intervals in units of the time column, in rising order, apart from each other."""

    def to_option(self) -> str:
        return json.dumps([self.upto, self.after, self.times])

    @staticmethod
    def from_option(text: str) -> TablePart:
        upto, after, times = json.loads(text)
        return TablePart(upto, after, tuple((lo, hi) for lo, hi in times))


def is_created(options: Mapping[str, str]) -> bool:
    """Whether they come from CREATE TABLE, with all properties of the table that is made."""
    return _PROVIDER in options


def check(options: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raise if an option is not known, with those that are. A table of Spark's catalog has its options for all that is done with it."""
    if is_created(options) or CATALOG in options:
        known = {**known, **READ, **WRITE}
    mine = [*LOCATION, *known]
    folded = {name.lower() for name in (*mine, *_SPARKS_OWN, *_OF_JAVA, *_OF_PYTHON)}
    given = [name.removeprefix(_OPTION) for name in options if name.startswith(_OPTION)] if is_created(options) else options
    unknown = sorted(name for name in given if name.lower() not in folded and not name.lower().startswith("spark."))
    if "mergeschema" in unknown:
        raise InputError(
            "mergeSchema: a table cannot get new columns yet. Write the columns that it has, or write to a new table that has them all"
        )
    if unknown:
        hint = nearest(unknown[0], [name.lower() for name in mine])
        said = "\n".join(f"  {name:19} {what}" for name, what in {**LOCATION, **known}.items())
        raise InputError(f"unknown option {unknown[0]!r} of format tidewheel.{hint} Known are:\n{said}")


def place_of(options: Mapping[str, str]) -> TablePath:
    """The table that the options name. Relative paths are relative to the folder Spark was started in."""
    warehouse, table, path = (options.get(name) for name in ("warehouse", "table", "path"))
    if options.get("paths"):
        paths = json.loads(options["paths"])
        if len(paths) != 1:
            raise InputError(f"one table is read at a time, not {len(paths)}; unite them with df.union")
        path = paths[0]
    if (warehouse is None) != (table is None):
        raise InputError("say both, warehouse and table; or one path: load('folder/of/the/warehouse/table')")
    if warehouse is not None and table is not None:
        if path is not None and _folder(path) != os.path.join(_folder(warehouse), table):
            raise InputError("say either a path or warehouse and table, not both")
        return _checked(_folder(warehouse), table, warehouse)
    if not path and CATALOG in options:
        raise InputError(
            "this table of Spark's catalog does not say where its rows are: say it with .option('path', 'folder/of/the/warehouse/table'), "
            "in SQL with OPTIONS (path '…'); one that CREATE TABLE made without has to be dropped first"
        )
    if not path:
        raise InputError(
            "say which table: load('folder/of/the/warehouse/table') or save('…'), in SQL OPTIONS (path '…'), or the options warehouse and "
            "table. For an INSERT INTO a table that CREATE TABLE … USING tidewheel made, the session must have been given to "
            "tws.register(spark)"
        )
    root, name = os.path.split(_folder(path))
    return _checked(root, name, path)


def _checked(root: str, table: str, given: str) -> TablePath:
    if not NAME.fullmatch(table):
        raise InputError(f"{given!r} does not end in the name of a table: {table!r} has other characters than letters, digits and _")
    return TablePath(root, table)


def _folder(path: str) -> str:
    """An absolute path without a scheme."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        path = unquote(parts.path)
    elif "://" in path:
        raise InputError(f"{path!r}: a warehouse is a folder that all workers see; {parts.scheme} is not supported")
    return os.path.abspath(os.path.expanduser(path))


def names_a_place(options: Mapping[str, str]) -> bool:
    return any(options.get(name) for name in (*LOCATION, "paths"))


def choice(options: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """The value of an option that has only a few; the first is what it is if it is not given."""
    value = options.get(name, known[0]).lower()
    if value not in known:
        raise InputError(f"option {name} is one of {', '.join(known)}, not {value!r}")
    return value


def count(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    """The value of an option that is a number."""
    value = options.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise InputError(f"option {name} is a whole number of at least {least}, not {value!r}")
    return number


def names(options: Mapping[str, str], name: str) -> list[str] | None:
    """The value of an option that is a list of names; a name in double quotes may hold a comma."""
    value = options.get(name)
    if value is None:
        return None
    found, inside, word = [], False, ""
    for letter in value:
        if letter == '"':
            inside = not inside
        elif letter == "," and not inside:
            found.append(word.strip())
            word = ""
        else:
            word += letter
    found.append(word.strip())
    if not all(found):
        raise InputError(f"option {name} is a list of columns separated by commas, not {value!r}")
    return found
