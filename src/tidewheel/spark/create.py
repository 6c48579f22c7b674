"""The table a DataFrame is written to: opened, or made when the options say how."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import StructType

from tidewheel.errors import NotFoundError, SchemaError
from tidewheel.model.dead_letters import HIDDEN
from tidewheel.model.schema import Epoch, KeyRule, TableSpec, epoch, ip, make_spec, zorder
from tidewheel.spark import connections
from tidewheel.spark.options import Place
from tidewheel.spark.types import arrow_schema, check_written

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*")


def target(place: Place, schema: StructType, options: Mapping[str, str], hidden: bool = False) -> tuple[TableSpec, bool]:
    """The table that rows of this schema go to, and whether it was made just now. `hidden`: they may carry dead letters."""
    connections.forget(place)
    made = False
    try:
        spec = connections.call(place, lambda table: table.spec)
    except NotFoundError as e:
        if "time" not in options or "key" not in options:
            raise NotFoundError(
                f"{str(e).rstrip('.')}. To have it made for this DataFrame, say which columns are its time and its key: "
                '.option("time", "ts").option("key", "plate")'
            ) from None
        columns = arrow_schema(StructType([f for f in schema if not hidden or f.name not in HIDDEN]))
        time, key = time_of(options["time"]), key_of(options["key"])
        days = isinstance(time, str) and time in columns.names and pa.types.is_date(columns.field(time).type)
        wanted = make_spec(place.table, columns, time=time, key=key, partition=options.get("partition", "1 day" if days else "1 hour"))
        spec = connections.engine(place.root).create(wanted, "open").spec
        made = True
    check_written(spec, schema, hidden)
    return spec, made


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
        "option key is a column, ip(column), or zorder(columns, lower ends, upper ends) as in zorder(lon, lat, 115, 39, 118, 41), "
        f"not {text!r}"
    )
