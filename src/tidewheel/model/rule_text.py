"""Time and key rules as they are written in one line: in options of Spark, on the command line, in descriptors."""

from __future__ import annotations

import re

from tidewheel.errors import SchemaError
from tidewheel.model.schema import Epoch, Ip, KeyRule, ZOrder, epoch, ip, zorder

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*")


def time_of(text: str) -> str | Epoch:
    """`ts`, or for whole numbers `seen ms`."""
    column, _, unit = text.strip().rpartition(" ")
    return epoch(column.strip(), unit) if column and unit in ("s", "ms", "us", "ns") else text.strip()


def key_of(text: str) -> str | KeyRule:
    """`plate`, `ip(source)` or `zorder(lon, lat, 115.4, 39.4, 117.6, 41.1)`."""
    call = _CALL.fullmatch(text)
    if call is None:
        return text.strip()
    words = [word.strip() for word in call[2].split(",")]
    match call[1].lower():
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
