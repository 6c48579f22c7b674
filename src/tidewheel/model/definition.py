"""A table's definition from words: time and key as they are written in one line, wherever a definition is text.

    time   ts · seen ms · epoch(seen, ms)
    key    plate · ip(source) · zorder(lon, lat, 115.4, 39.4, 117.6, 41.1), the bounds also apart from the columns

`CREATE TABLE … WITH (…)`, options of Spark, flags of the command line and record descriptors share this grammar.
"""

from __future__ import annotations

import re

import pyarrow as pa

from tidewheel.errors import SchemaError
from tidewheel.model.schema import Epoch, Ip, KeyRule, TableSpec, ZOrder, epoch, ip, make_spec, zorder

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*")
_EPOCH = re.compile(r"(?i)\s*epoch\s*\(\s*(.+?)\s*,\s*'?(\w+)'?\s*\)\s*")


def table_of(name: str, schema: pa.Schema, *, time: str, key: str, partition: str | None = None) -> TableSpec:
    """The table of these columns. SchemaError says what is wrong with the words, or with the table."""
    return make_spec(name, schema, time=time_of(time), key=key_of(key), partition=partition)


def time_of(text: str) -> str | Epoch:
    """A column, or a column of whole numbers with its unit."""
    if call := _EPOCH.fullmatch(text):
        return epoch(call[1], call[2].lower())
    column, _, unit = text.strip().rpartition(" ")
    return epoch(column.strip(), unit) if column and unit in ("s", "ms", "us", "ns") else text.strip()


def time_name(rule: str | Epoch) -> str:
    return rule.column if isinstance(rule, Epoch) else rule


def key_of(text: str, bounds: str = "") -> str | KeyRule:
    """A column, or a rule over columns. `bounds`: of a z-order that names only its columns."""
    call = _CALL.fullmatch(text)
    if call is None and not bounds:
        return text.strip()
    words = [word.strip() for part in (call[2] if call else "", bounds.strip().strip("()[]")) if part for word in part.split(",")]
    match call[1].lower() if call else "":
        case "ip" if len(words) == 1:
            return ip(words[0])
        case "zorder":
            split = len(words) // 3  # as many lower ends and as many upper ends as columns
            try:
                return zorder(*words[:split], bounds=tuple(float(word) for word in words[split:]))
            except ValueError:
                pass
    raise SchemaError(
        f"a key is a column, ip(column), or zorder(columns, lower ends, upper ends) as in zorder(lon, lat, 115, 39, 118, 41), not {text!r}"
    )


def key_text(rule: KeyRule) -> str:
    """The inverse of `key_of`."""
    match rule:
        case ZOrder(columns, bounds):
            return f"zorder({', '.join([*columns, *(f'{bound:.17g}' for bound in bounds)])})"
        case Ip(column):
            return f"ip({column})"
        case _:
            return rule.column
