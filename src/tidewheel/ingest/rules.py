"""Rules by which the records of a source become rows of a table: plain values that travel to the tasks as JSON text."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import asdict, dataclass, field

from tidewheel.errors import InputError
from tidewheel.model.schema import nearest

MESSAGES, FILES = "messages", "files"
PAYLOADS = ("json", "csv", "avro", "confluent-avro", "arrow")
EPOCHS = {"epoch-s": "s", "epoch-ms": "ms", "epoch-us": "us", "epoch-ns": "ns"}
EXTRAS = ("ignore", "reject")


@dataclass(frozen=True, slots=True)
class Rules:
    """One source's rules. All of them have a default; a payload that is empty means that each file's name says it."""

    kind: str
    payload: str = ""
    meta: dict[str, str] = field(default_factory=dict)
    """Columns of the table that are filled from the message around the payload: column → key, headers, offset …"""
    time_format: str = ""
    """epoch-s, epoch-ms, epoch-us, epoch-ns, or a pattern such as %d/%m/%Y %H:%M:%S. Empty: ISO text, or numbers in the column's unit."""
    extra: str = "ignore"
    """The treatment of a record that has fields without a column in the table."""
    columns: tuple[str, ...] = ()
    """The names of the fields of CSV records. Empty: a file's first line, or for messages the table's columns in their order."""
    delimiter: str = ","
    nulls: tuple[str, ...] = ("",)
    """CSV fields that mean: no value."""
    avro_schema: str = ""
    """The schema of Avro messages that do not bring their own."""
    time_format_found: bool = False
    """Nobody said the format, it was concluded from some records: others may have ISO times."""

    def __post_init__(self) -> None:
        choice("payload", self.payload, ("", *PAYLOADS, "parquet"))
        choice("extra", self.extra, EXTRAS)
        if self.time_format and self.time_format not in EPOCHS and not re.search("%[a-zA-Z]", self.time_format):
            raise InputError(
                f"a time format is one of {', '.join(EPOCHS)}, or a pattern such as '%d/%m/%Y %H:%M:%S', not {self.time_format!r}"
            )
        if self.time_format not in EPOCHS and (odd := _unknown_code(self.time_format)):
            raise InputError(f"the time format {self.time_format!r} has a code that Python's strptime does not know: {odd}")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise InputError(f"a delimiter is one character, not {self.delimiter!r}")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def _unknown_code(pattern: str) -> str:
    """What is wrong with the codes of a pattern, if anything is."""
    try:
        dt.datetime.strptime("", pattern)
    except ValueError as e:
        return "" if "does not match format" in str(e) else str(e)
    return ""


def rules_from_json(text: str) -> Rules:
    """The inverse of `Rules.to_json`."""
    values = json.loads(text)
    return Rules(**{**values, "columns": tuple(values["columns"]), "nulls": tuple(values["nulls"])})


def choice(what: str, value: str, known: tuple[str, ...]) -> str:
    """`value`, if it is one of these."""
    if value not in known:
        named = [k for k in known if k]
        raise InputError(f"{what} is one of {', '.join(named)}, not {value!r}.{nearest(value, named)}")
    return value
