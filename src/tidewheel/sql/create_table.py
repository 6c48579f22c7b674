"""CREATE TABLE … WITH (…): from what a statement says of a table to its definition."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pyarrow as pa

from tidewheel.duck.error_text import pointed
from tidewheel.errors import QueryError, SchemaError
from tidewheel.model.definition import key_of, time_of
from tidewheel.model.schema import ColumnKey, Epoch, KeyRule, TableSpec, ZOrder, make_spec, nearest
from tidewheel.sql.ddl import CreateStatement, Named

OPTIONS = ("time", "key", "bounds", "partition")

_KEYS = (
    "key is a column, 'ip(column)', or 'zorder(lon, lat)' with bounds = '115.4, 39.4, 117.6, 41.1' (all lower ends, then all upper "
    "ends, each above the lower one)"
)


def spec_of(create: CreateStatement) -> TableSpec:
    """The table that a statement defines. Raises QueryError or SchemaError, and says what is wrong with it."""
    return _Layout(create).spec()


class _Layout:
    def __init__(self, create: CreateStatement) -> None:
        self._create = create
        self._names = [column.name for column in create.columns]
        self._options: dict[str, Named] = {}
        for option in create.options:
            if option.name.name not in OPTIONS:
                hint = nearest(option.name.name, list(OPTIONS))
                self._wrong(option.name, f"there is no option {option.name.name!r}.{hint} Options: {', '.join(OPTIONS)}")
            self._options[option.name.name] = option.value

    def spec(self) -> TableSpec:
        for name in ("time", "key"):
            if name not in self._options:
                self._wrong(
                    self._create.table, f"a table needs a time column and a key, and {name} is missing: WITH ({name} = 'column', …)"
                )
        schema = pa.schema([pa.field(column.name, column.type, column.nullable) for column in self._create.columns])
        partition = self._options.get("partition")
        time, key = self._time(schema), self._key()
        try:
            return make_spec(self._create.table.name, schema, time=time, key=key, partition=partition.name if partition else None)
        except SchemaError as e:
            raise SchemaError(pointed(str(e), self._create.text, self._create.table.place)) from None

    def _time(self, schema: pa.Schema) -> str | Epoch:
        said = self._options["time"]
        try:
            rule = said.name if said.name in self._names else time_of(said.name)
        except SchemaError as e:
            self._wrong(said, str(e))
        if isinstance(rule, Epoch):
            return replace(rule, column=self._column(rule.column, said))
        column = self._column(said.name, said)
        if pa.types.is_integer(schema.field(column).type):
            self._wrong(said, f"column {column!r} has whole numbers: say what they count, as in time = 'epoch({column}, ms)'")
        return column

    def _key(self) -> KeyRule:
        said, bounds = self._options["key"], self._options.get("bounds")
        if bounds is None and said.name in self._names:
            return ColumnKey(said.name)
        if bounds is not None and not said.name.lstrip().lower().startswith("zorder"):
            self._wrong(bounds, "bounds are those of a z-order: key = 'zorder(lon, lat)'")
        try:
            rule = key_of(said.name, bounds.name if bounds is not None else "")
        except SchemaError:
            self._wrong(said, _KEYS)
        if isinstance(rule, str):
            return ColumnKey(self._column(rule, said))
        columns = tuple(self._column(column, said) for column in rule.columns)
        return replace(rule, columns=columns) if isinstance(rule, ZOrder) else replace(rule, column=columns[0])

    def _column(self, written: str, said: Named) -> str:
        """The column of that name, in whatever case, in quotes or without."""
        name = written[1:-1].replace('""', '"') if written.startswith('"') and written.endswith('"') else written
        for known in self._names:
            if known.lower() == name.lower():
                return known
        self._wrong(said, f"there is no column {name!r}.{nearest(name, self._names)} Columns: {', '.join(self._names)}")

    def _wrong(self, at: Named, message: str) -> NoReturn:
        raise QueryError(pointed(message, self._create.text, at.place))
