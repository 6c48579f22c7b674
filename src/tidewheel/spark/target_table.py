"""The table a DataFrame is written to: opened, or made when the options say how."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from tidewheel.errors import NotFoundError
from tidewheel.model.dead_letters import HIDDEN
from tidewheel.model.definition import table_of
from tidewheel.model.schema import TableSpec
from tidewheel.spark import connections
from tidewheel.spark.options import TablePath
from tidewheel.spark.types import arrow_schema, check_written


def target(place: TablePath, schema: StructType, options: Mapping[str, str], hidden: bool = False) -> tuple[TableSpec, bool]:
    """The table that rows of this schema go to, and whether it was made just now. `hidden`: they may carry dead letters."""
    connections.forget(place)
    made = False
    try:
        spec = connections.spec(place)
    except NotFoundError as e:
        if "time" not in options or "key" not in options:
            raise NotFoundError(
                f"{str(e).rstrip('.')}. To have it made for this DataFrame, say which columns are its time and its key: "
                '.option("time", "ts").option("key", "plate")'
            ) from None
        columns = arrow_schema(StructType([f for f in schema if not hidden or f.name not in HIDDEN]))
        wanted = table_of(place.table, columns, time=options["time"], key=options["key"], partition=options.get("partition"))
        spec = connections.create(place, wanted)
        made = True
    check_written(spec, schema, hidden)
    return spec, made
