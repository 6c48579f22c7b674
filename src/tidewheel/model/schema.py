"""A table's definition: an Arrow schema, its time column and the rule that makes its keys."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidewheel.errors import SchemaError
from tidewheel.model.arrays import digits, misplaced_decimal, with_wide_dictionaries
from tidewheel.model.dataclass import dataclass
from tidewheel.model.partitions import Partitions, Widths, partitions_of
from tidewheel.model.times import DATE_UNITS, TimeAxis

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

HIDDEN = "$tidewheel."
"""How the names of hidden columns begin; no other column's does."""


@dataclass(frozen=True, slots=True)
class ColumnKey:
    """The key is one column, in the column's own order."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


@dataclass(frozen=True, slots=True)
class ZOrder:
    """The key interleaves the bits of two or more coordinates, so that near points have near keys."""

    columns: tuple[str, ...]
    bounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ip:
    """The key is a text address (v4 or v6) in its numeric order, all v4 before all v6."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


KeyRule = ColumnKey | ZOrder | Ip


@dataclass(frozen=True, slots=True)
class Epoch:
    """A time column of plain integers that counts `unit` since 1970-01-01 UTC."""

    column: str
    unit: str


def zorder(*columns: str, bounds: tuple[float, ...]) -> ZOrder:
    """Key by the z-order of `columns`; `bounds` are all lower ends, then all upper ends, in column order.

    Points outside the bounds are kept and found; they only share the outermost leaves.
    """
    try:
        limits = tuple(float(b) for b in bounds)
    except (TypeError, ValueError):
        raise SchemaError(f"bounds of a z-order are numbers: all lower ends, then all upper ends; not {bounds!r}") from None
    n = len(columns)
    if not 2 <= n <= 8 or len(set(columns)) != n:
        raise SchemaError(f"a z-order takes two to eight different columns, not {columns!r}")
    if len(limits) != 2 * n:
        raise SchemaError(f"a z-order of {n} columns takes {2 * n} bounds (lower ends, then upper ends), not {len(limits)}")
    for c, lo, hi in zip(columns, limits[:n], limits[n:], strict=True):
        if not (hi > lo and abs(lo) < float("inf") and abs(hi) < float("inf")):
            raise SchemaError(f"the bounds of {c!r} must be finite and rising, not {lo} .. {hi}")
    return ZOrder(tuple(columns), limits)


def ip(column: str) -> Ip:
    """Key by the numeric order of a text column of IPv4 and IPv6 addresses."""
    return Ip(column)


def epoch(column: str, unit: str) -> Epoch:
    """An integer time column that counts `unit` (s, ms, us, ns) since 1970-01-01 UTC."""
    if unit not in ("s", "ms", "us", "ns"):
        raise SchemaError(f"the unit of an epoch column is one of s, ms, us, ns, not {unit!r}")
    return Epoch(column, unit)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A checked table definition. Field ids are given once and never reused."""

    name: str
    schema: pa.Schema
    time: TimeAxis
    key: KeyRule
    partition: str
    field_ids: tuple[int, ...]
    hidden: tuple[pa.Field, ...] = ()
    """Columns that are stored behind those of `schema`, and that nobody sees but the refreshes that wrote them."""

    @property
    def stored(self) -> pa.Schema:
        """All columns as rows have them at rest. Whoever shows rows to somebody asks `schema`."""
        return pa.schema([*self.schema, *self.hidden], self.schema.metadata) if self.hidden else self.schema

    @property
    def partitions(self) -> Partitions:
        """How `partition` divides the table's time."""
        return partitions_of(self.partition, self.time)

    @property
    def direct_key(self) -> int:
        """The number of the column whose own bytes are the key's codes, or -1."""
        if isinstance(self.key, ColumnKey) and is_int64(self.schema.field(self.key.column).type):
            return int(self.schema.get_field_index(self.key.column))
        return -1

    @property
    def direct_time(self) -> int:
        """The number of the time column if its own bytes are its codes, or -1."""
        return int(self.schema.get_field_index(self.time.column)) if is_int64(self.schema.field(self.time.column).type) else -1

    def layout_json(self) -> str:
        """Key rule and time rule as text, for the catalog and for chunk headers."""
        key: dict[str, Any]
        match self.key:
            case ColumnKey(column):
                key = {"rule": "column", "column": column}
            case ZOrder(columns, bounds):
                key = {"rule": "zorder", "columns": list(columns), "bounds": list(bounds)}
            case Ip(column):
                key = {"rule": "ip", "column": column}
        return json.dumps({"key": key, "time": {"column": self.time.column, "unit": self.time.unit}}, sort_keys=True)


def spec_from_layout(name: str, schema: pa.Schema, layout: str, partition: str, field_ids: tuple[int, ...]) -> TableSpec:
    """The inverse of `TableSpec.layout_json`. `schema` has all stored columns; hidden ones are told by their names."""
    data = json.loads(layout)
    key = data["key"]
    rule: KeyRule
    match key["rule"]:
        case "column":
            rule = ColumnKey(key["column"])
        case "zorder":
            rule = ZOrder(tuple(key["columns"]), tuple(key["bounds"]))
        case "ip":
            rule = Ip(key["column"])
        case other:
            raise SchemaError(f"table {name!r} has a key rule {other!r} that this version does not know; upgrade Tidewheel")
    axis = TimeAxis(data["time"]["column"], data["time"]["unit"])
    hidden = tuple(f for f in schema if f.name.startswith(HIDDEN))
    if hidden:
        schema = pa.schema([f for f in schema if not f.name.startswith(HIDDEN)], schema.metadata)
    return TableSpec(name, schema, axis, rule, partition, field_ids, hidden)


def with_hidden(spec: TableSpec, hidden: Iterable[pa.Field]) -> TableSpec:
    """The same table with hidden columns, whose names begin with `HIDDEN`."""
    more = tuple(hidden)
    return replace(spec, hidden=more, field_ids=tuple(range(1, len(spec.schema) + len(more) + 1)))


def make_spec(name: str, schema: Any, *, time: str | Epoch, key: str | KeyRule, partition: str | None = None) -> TableSpec:
    """Check a table definition, or say what is wrong with it and what to do.

    Partitions are of an hour, unless it says otherwise; of a day, where times are days.
    """
    check_name(name)
    schema = as_schema(schema)
    _check_fields(name, schema)
    if reserved := next((one for one in schema.names if one.startswith(HIDDEN)), None):
        raise SchemaError(f"column {reserved!r} of table {name!r}: names that begin with {HIDDEN} are Tidewheel's own; choose another")
    schema = pa.schema([f.with_type(with_wide_dictionaries(f.type)) for f in schema], schema.metadata)
    axis = _time_axis(name, schema, time)
    rule = ColumnKey(key) if isinstance(key, str) else key
    if not isinstance(rule, (ColumnKey, ZOrder, Ip)):
        raise SchemaError(f"key of table {name!r} is a column name, tw.zorder(...) or tw.ip(...), not {key!r}")
    for column in rule.columns:
        _check_key_column(name, schema, column, rule)
    if partition is None:
        partition = "1 day" if pa.types.is_date(schema.field(axis.column).type) else "1 hour"
    try:
        partitions_of(partition, axis)
    except ValueError as e:
        raise SchemaError(f"partition of table {name!r}: {e}") from None
    return TableSpec(name, schema, axis, rule, partition, tuple(range(1, len(schema) + 1)))


def check_name(name: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise SchemaError(f"a table's name is made of letters, digits and _, and starts with a letter, not {name!r}")


def check_spec(spec: TableSpec) -> None:
    """Raises SchemaError if a definition that was read could not have been made by `make_spec`: then it is damaged."""
    name, schema = spec.name, spec.schema
    _check_fields(name, spec.stored)
    type_ = _field(name, schema, spec.time.column, "time").type
    units = DATE_UNITS.get(type_, type_.unit if pa.types.is_timestamp(type_) else None)
    if units is None and not (pa.types.is_integer(type_) and not pa.types.is_uint64(type_)):
        raise SchemaError(f"time column {spec.time.column!r} of table {name!r} is {type_}, which has no time")
    if spec.time.unit not in ((units,) if units else ("s", "ms", "us", "ns")):
        raise SchemaError(f"the unit of time column {spec.time.column!r} of table {name!r} cannot be {spec.time.unit!r}")
    for column in spec.key.columns:
        _check_key_column(name, schema, column, spec.key)
    if isinstance(spec.key, ZOrder):
        zorder(*spec.key.columns, bounds=spec.key.bounds)
    try:
        divided = spec.partitions
    except (ValueError, TypeError) as e:
        raise SchemaError(f"partition of table {name!r}: {e}") from None
    if isinstance(divided, Widths) and divided.width >= 1 << 63:
        raise SchemaError(f"partition of table {name!r} cannot be {spec.partition!r}")
    if len(spec.field_ids) != len(spec.stored):
        raise SchemaError(f"table {name!r} has {len(spec.stored)} columns, but {len(spec.field_ids)} field ids")


def is_int64(type_: pa.DataType) -> bool:
    """Whether a column of this type is stored as int64 that are their own codes."""
    t = pa.types
    return bool(t.is_int64(type_) or t.is_timestamp(type_) or t.is_date64(type_) or t.is_time64(type_) or t.is_duration(type_))


def is_exact_in_spark(type_: pa.DataType) -> bool:
    """Whether keys of this type are as many in Spark. It takes 0.0 and -0.0 for one, and cuts nanoseconds off."""
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    return not pa.types.is_floating(type_) and getattr(type_, "unit", "") != "ns"


def as_schema(schema: Any) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if hasattr(schema, "__arrow_c_schema__"):
        return pa.schema(schema)
    raise SchemaError(
        f"a schema is a pyarrow.Schema, or anything with __arrow_c_schema__, or rows; not {type(schema).__name__}; "
        + (
            "files become a table with wh.load(table, files, time=…, key=…)"
            if isinstance(schema, (str, os.PathLike))
            else "write pyarrow.schema([(name, type), …])"
        )
    )


def nearest(name: str, known: list[str], alike_from: float = 0.6) -> str:
    """' Did you mean …?' when something near is known, else the empty string: also for what is known itself, which is not what is wrong."""
    if name in known:
        return ""
    alike = [one for one in known if one.lower() == name.lower()]
    if len(alike) == 1:
        return f" Did you mean {alike[0]!r}? Upper and lower case count."
    near = difflib.get_close_matches(name, known, n=1, cutoff=alike_from)
    return f" Did you mean {near[0]!r}?" if near else ""


def _check_fields(name: str, schema: pa.Schema) -> None:
    seen: set[str] = set()
    for f in schema:
        if not f.name:
            raise SchemaError(f"table {name!r} has a column without a name")
        if f.name in seen:
            raise SchemaError(f"table {name!r} has two columns named {f.name!r}")
        seen.add(f.name)
        if pa.types.is_dictionary(f.type) and pa.types.is_nested(f.type.value_type):
            raise SchemaError(f"column {f.name!r} of table {name!r} is {f.type}: a dictionary of nested values; use {f.type.value_type}")
        if (odd := misplaced_decimal(f.type)) is not None:
            raise SchemaError(f"column {f.name!r} of table {name!r} is {f.type}: the scale of {odd} is beyond its {digits(odd)} digits")
    if not seen:
        raise SchemaError(f"table {name!r} has no columns")


def _field(name: str, schema: pa.Schema, column: str, role: str) -> pa.Field:
    if not isinstance(column, str):
        raise SchemaError(f"the {role} column of table {name!r} is named by a text, not {column!r}")
    i = schema.get_field_index(column)
    if i < 0:
        hint = nearest(column, schema.names)
        raise SchemaError(f"{role} column {column!r} is not in the schema of table {name!r}.{hint} Columns: {', '.join(schema.names)}")
    return schema.field(i)


def _time_axis(name: str, schema: pa.Schema, time: str | Epoch) -> TimeAxis:
    column = time.column if isinstance(time, Epoch) else time
    if not isinstance(column, str):
        raise SchemaError(f"time of table {name!r} is a column name or tw.epoch(column, unit), not {time!r}")
    type_ = _field(name, schema, column, "time").type
    if isinstance(time, Epoch):
        if not pa.types.is_integer(type_) or pa.types.is_uint64(type_):
            raise SchemaError(f"tw.epoch({column!r}, …) needs an integer column that fits int64, but {column!r} is {type_}")
        return TimeAxis(column, time.unit)
    if pa.types.is_timestamp(type_):
        return TimeAxis(column, type_.unit)
    if type_ in DATE_UNITS:
        return TimeAxis(column, DATE_UNITS[type_])
    if pa.types.is_integer(type_):
        raise SchemaError(f"time column {column!r} of table {name!r} is {type_}: say its unit with time=tw.epoch({column!r}, 'ms')")
    raise SchemaError(f"time column {column!r} of table {name!r} is {type_}; it must be a timestamp, a date or an integer with tw.epoch")


def _check_key_column(name: str, schema: pa.Schema, column: str, rule: KeyRule) -> None:
    type_ = _field(name, schema, column, "key").type
    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    t = pa.types
    number = t.is_integer(value) or t.is_floating(value)
    text = t.is_string(value) or t.is_large_string(value) or t.is_string_view(value)
    match rule:
        case ZOrder():
            if not number or type_ is not value and t.is_dictionary(type_):
                raise SchemaError(f"z-order column {column!r} of table {name!r} must be an integer or a float, not {type_}")
        case Ip():
            if not text:
                raise SchemaError(f"tw.ip({column!r}) of table {name!r} needs a text column, not {type_}")
        case ColumnKey():
            binary = t.is_binary(value) or t.is_large_binary(value) or t.is_binary_view(value) or t.is_fixed_size_binary(value)
            ordered = number or text or binary or t.is_boolean(value) or t.is_temporal(value) or t.is_decimal(value)
            if not ordered or t.is_interval(value):
                raise SchemaError(f"key column {column!r} of table {name!r} is {type_}, which has no order to index; choose another column")
