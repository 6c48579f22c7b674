"""Arrow's types and Spark's, both ways.

Spark has fewer types. Values are delivered as the nearest type that holds all of them (unsigned numbers in the next wider one, text and
dictionaries as text, every time in UTC), and a column that none can hold is refused by name, never changed silently. Spark's times end
at microseconds: a finer value is an error, unless `nanoseconds` says to cut it off, or to deliver the column as plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from tidewheel.errors import QueryError, SchemaError
from tidewheel.model.arrays import named_as
from tidewheel.model.dead_letters import HIDDEN
from tidewheel.model.schema import TableSpec, nearest
from tidewheel.write.casts import UNFIT, NeverFits, convert

ERROR, TRUNCATE, LONG = NANOSECONDS = ("error", "truncate", "long")

_PLAIN: dict[pa.DataType, st.DataType] = {
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.uint8(): st.ShortType(),
    pa.uint16(): st.IntegerType(),
    pa.uint32(): st.LongType(),
    pa.uint64(): st.DecimalType(20, 0),
    pa.float16(): st.FloatType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.date32(): st.DateType(),
    pa.date64(): st.DateType(),
}


class _Refused(Exception):
    """Spark has nothing for this type."""


# ---- from a table to Spark --------------------------------------------------------------------------------


def read_schema(spec: TableSpec, columns: Sequence[str] | None = None, nanoseconds: str = ERROR) -> st.StructType:
    """The table, or some columns of it, as a Spark schema."""
    known = spec.schema.names
    fields, refused = [], []
    for name in known if columns is None else columns:
        if name not in known:
            raise QueryError(f"columns: table {spec.name!r} has no column {name!r}.{nearest(name, known)} Columns: {', '.join(known)}")
        field = spec.schema.field(name)
        try:
            fields.append(st.StructField(name, to_spark(field.type, nanoseconds), field.nullable))
        except _Refused:
            refused.append(field)
    if refused:
        said = ", ".join(f"{f.name} ({f.type})" for f in refused)
        rest = ",".join(n for n in known if n not in {f.name for f in refused})
        raise SchemaError(f"Spark has no type for {said} of table {spec.name!r}; read the other columns, with option columns={rest}")
    return st.StructType(fields)


def known_schema(schema: pa.Schema, nanoseconds: str = ERROR) -> st.StructType:
    """The columns of a schema that Spark has a type for."""
    fields = []
    for field in schema:
        try:
            fields.append(st.StructField(field.name, to_spark(field.type, nanoseconds), field.nullable))
        except _Refused:
            continue
    return st.StructType(fields)


def to_spark(type_: pa.DataType, nanoseconds: str = ERROR) -> st.DataType:
    """The Spark type that holds every value of an Arrow type."""
    t = pa.types
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if isinstance(type_, pa.BaseExtensionType):
        return to_spark(type_.storage_type, nanoseconds)
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return to_spark(type_.value_type, nanoseconds)
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return st.StringType()
    if t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_) or t.is_fixed_size_binary(type_):
        return st.BinaryType()
    if getattr(type_, "unit", "") == "ns" and nanoseconds == LONG:
        return st.LongType()
    if t.is_timestamp(type_):
        return st.TimestampNTZType() if type_.tz is None else st.TimestampType()
    if t.is_time(type_):
        return st.TimeType(6)
    if t.is_duration(type_):
        return st.DayTimeIntervalType()
    if t.is_decimal(type_):
        whole, scale = type_.precision - type_.scale, max(type_.scale, 0)
        if whole + scale > 38 or whole < 0:
            raise _Refused
        return st.DecimalType(whole + scale, scale)
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_) or t.is_list_view(type_) or t.is_large_list_view(type_):
        return st.ArrayType(to_spark(type_.value_type, nanoseconds), type_.value_field.nullable)
    if t.is_struct(type_):
        return st.StructType([st.StructField(f.name, to_spark(f.type, nanoseconds), f.nullable) for f in type_])
    if t.is_map(type_):
        return st.MapType(to_spark(type_.key_type, nanoseconds), to_spark(type_.item_type, nanoseconds), type_.item_field.nullable)
    raise _Refused


Deliver = Callable[[pa.RecordBatch], pa.RecordBatch]


def delivery(spec: TableSpec, wanted: st.StructType, nanoseconds: str = ERROR) -> Deliver:
    """How batches of the table's columns become what Spark expects. Columns of one type in both are handed on as they are."""
    target = to_arrow_schema(wanted, timezone="UTC")
    changes: list[tuple[int, pa.Field, pa.DataType]] = []
    for i, field in enumerate(target):
        there = spec.schema.field(field.name)
        if there.type != field.type or (there.nullable and not field.nullable):
            changes.append((i, field, there.type))

    def deliver(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = list(batch.columns)
        for i, field, _ in changes:
            columns[i] = _delivered(columns[i], field, spec.name, nanoseconds)
        return pa.RecordBatch.from_arrays(columns, schema=target)

    return deliver


def _delivered(array: pa.Array, field: pa.Field, table: str, nanoseconds: str) -> pa.Array:
    if not field.nullable and array.null_count:
        raise QueryError(f"column {field.name!r} of table {table!r} has no value in some rows, but the schema it is read with says it has")
    fine = getattr(array.type, "unit", "") == "ns"
    try:
        if fine and nanoseconds == LONG and pa.types.is_int64(field.type):
            return array.view(pa.int64())
        if fine and nanoseconds == TRUNCATE and array.type != field.type:
            array = _truncated(array)
        return convert(array, field.type)
    except UNFIT as e:
        if fine:
            raise QueryError(
                f"column {field.name!r} of table {table!r} has times finer than a microsecond, which Spark cannot hold; read it with "
                "option nanoseconds=truncate to cut them off, or nanoseconds=long to get plain numbers"
            ) from e
        raise QueryError(f"column {field.name!r} of table {table!r} ({array.type}) cannot become {field.type} for Spark: {e}") from e


def _truncated(array: pa.Array) -> pa.Array:
    """Nanoseconds cut off to microseconds, downwards."""
    counts = np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8) // 1000
    unit = {pa.types.is_timestamp: pa.timestamp("us"), pa.types.is_time: pa.time64("us"), pa.types.is_duration: pa.duration("us")}
    type_ = next(us for matches, us in unit.items() if matches(array.type))
    return pa.array(counts, mask=np.asarray(pc.is_null(array)) if array.null_count else None).view(type_)


def check_wanted(spec: TableSpec, wanted: st.StructType, nanoseconds: str = ERROR) -> None:
    """A schema that the user gave for reading: its columns must be the table's, or wider."""
    have = {f.name: f.dataType for f in read_schema(spec, [n for n in wanted.names if n in spec.schema.names], nanoseconds)}
    wrong = [f for f in wanted if f.name not in have or not _holds(f.dataType, have[f.name])]
    if wrong:
        raise SchemaError(
            f"table {spec.name!r} cannot be read with this schema (one that Spark's catalog has of it: DROP TABLE there, and CREATE it "
            "anew):\n" + _side_by_side("the table", _lines(spec), "asked for", _spark_lines(wanted), {f.name for f in wrong})
        )


_WIDTH: dict[type[st.DataType], int] = {st.ByteType: 1, st.ShortType: 2, st.IntegerType: 4, st.LongType: 8}


def _holds(wide: st.DataType, narrow: st.DataType) -> bool:
    """Whether one type has every value of another."""
    match wide, narrow:
        case st.DoubleType(), st.FloatType():
            return True
        case st.DecimalType(), st.DecimalType():
            return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
        case st.ArrayType(), st.ArrayType():
            return _holds(wide.elementType, narrow.elementType)
        case st.MapType(), st.MapType():
            return _holds(wide.keyType, narrow.keyType) and _holds(wide.valueType, narrow.valueType)
        case st.StructType(), st.StructType():
            return wide.names == narrow.names and all(_holds(a.dataType, b.dataType) for a, b in zip(wide, narrow, strict=True))
        case st.TimeType(), st.TimeType():
            return True
    return wide == narrow or _WIDTH.get(type(wide), -1) >= _WIDTH.get(type(narrow), 9)


# ---- from Spark to a table --------------------------------------------------------------------------------


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """The schema of a table that is made for a DataFrame: Spark's types in Arrow, every column nullable but for what the table requires."""
    fields = []
    for field in schema:
        if isinstance(field.dataType, st.NullType):
            raise SchemaError(f"column {field.name!r} is void: it has no type yet; cast it, or leave it out")
        try:
            (one,) = to_arrow_schema(st.StructType([st.StructField(field.name, _nullable(field.dataType))]), timezone="UTC")
        except Exception as e:
            raise SchemaError(f"column {field.name!r} is {field.dataType.simpleString()}, which a table cannot have; cast it") from e
        fields.append(one)
    return pa.schema(fields)


def _nullable(type_: st.DataType) -> st.DataType:
    match type_:
        case st.ArrayType():
            return st.ArrayType(_nullable(type_.elementType), True)
        case st.MapType():
            return st.MapType(_nullable(type_.keyType), _nullable(type_.valueType), True)
        case st.StructType():
            return st.StructType([st.StructField(f.name, _nullable(f.dataType), True) for f in type_])
        case st.VariantType() | st.UserDefinedType():
            raise TypeError(type_)
    return type_


def check_written(spec: TableSpec, schema: st.StructType, hidden: bool = False) -> None:
    """A DataFrame's schema against its table's, before the first row: no other columns, and types whose values can be kept. Columns that
    it does not have are null, if they may be.

    `hidden`: it may have the columns that carry dead letters.
    """
    given = st.StructType([f for f in schema if not hidden or f.name not in HIDDEN])
    required = {spec.time.column, *spec.key.columns, *(f.name for f in spec.schema if not f.nullable)}
    new = [f"{f.name} ({f.dataType.simpleString()})" for f in given if f.name not in spec.schema.names]
    missing = [name for name in spec.schema.names if name in required and name not in given.names]
    others = [f.name for f in given if f.name in spec.schema.names and not _fits(f, spec)]
    twice = sorted({name for name in given.names if given.names.count(name) > 1})
    said = [
        f"the table has no column {', '.join(new)}, and cannot get it yet" if new else "",
        f"{', '.join(missing)} must not be missing" if missing else "",
        f"{', '.join(others)} must be cast" if others else "",
        f"{', '.join(twice)} must be there once" if twice else "",
    ]
    if any(said):
        wrong = {*(set(given.names) - set(spec.schema.names)), *missing, *others}
        raise SchemaError(
            f"this DataFrame does not fit table {spec.name!r}: {'; '.join(filter(None, said))} (≠ marks what differs; columns go by name, "
            "their order does not matter):\n" + _side_by_side("the table", _lines(spec), "the DataFrame", _spark_lines(given), wrong)
        )


def conform(spec: TableSpec, given: pa.Schema) -> Deliver:
    """How Spark's batches become the table's, where that needs no cast: then its owner has nothing to do but to look for nulls."""
    schema = spec.schema
    if given.equals(schema, check_metadata=True) or len(given) != len(schema):
        return lambda batch: batch
    places = [given.get_field_index(name) for name in schema.names]
    if any(i < 0 or given.field(i).type != f.type for i, f in zip(places, schema, strict=True)):
        return lambda batch: batch
    wanted = list(zip(places, schema.types, strict=True))
    return lambda batch: pa.RecordBatch.from_arrays([named_as(batch.column(i), type_) for i, type_ in wanted], schema=schema)


_WIDENS = {("int", "float"), ("int", "decimal"), ("decimal", "int"), ("decimal", "float"), ("date", "timestamp")}


def _fits(field: st.StructField, spec: TableSpec) -> bool:
    to = spec.schema.field(field.name).type
    unit = spec.time.unit if field.name == spec.time.column and pa.types.is_integer(to) else ""
    try:
        (given,) = arrow_schema(st.StructType([field])).types
        convert(pa.array([], given), to, unit)
    except (SchemaError, NeverFits, *UNFIT):
        return isinstance(field.dataType, st.NullType)
    return _alike(given, to, unit)


def _alike(given: pa.DataType, to: pa.DataType, unit: str) -> bool:
    """Text is not taken for numbers, nor numbers for times: in a DataFrame that is a forgotten cast."""
    here, there = _kind(given), _kind(to)
    if here == there == "struct":
        to = to.storage_type if isinstance(to, pa.BaseExtensionType) else to
        return all(_alike(f.type, to.field(f.name).type, "") for f in given)
    if here == there == "list":
        return _alike(given.value_type, to.value_type, "")
    return here == there or (here, there) in _WIDENS or (here == "timestamp" and bool(unit))


def _kind(type_: pa.DataType) -> str:
    t = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return _kind(type_.storage_type)
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return _kind(type_.value_type)
    tests: list[tuple[str, Sequence[Callable[[Any], bool]]]] = [
        ("text", (t.is_string, t.is_large_string, t.is_string_view)),
        ("bytes", (t.is_binary, t.is_large_binary, t.is_binary_view, t.is_fixed_size_binary)),
        ("int", (t.is_integer,)),
        ("float", (t.is_floating,)),
        ("decimal", (t.is_decimal,)),
        ("timestamp", (t.is_timestamp,)),
        ("date", (t.is_date,)),
        ("time", (t.is_time,)),
        ("list", (t.is_list, t.is_large_list, t.is_fixed_size_list, t.is_list_view, t.is_large_list_view)),
        ("struct", (t.is_struct,)),
    ]
    return next((name for name, matches in tests if any(match(type_) for match in matches)), str(type_.id))


# ---- shown to people --------------------------------------------------------------------------------------


def _lines(spec: TableSpec) -> dict[str, str]:
    """A table's columns as Spark would say them; where it cannot, as Arrow does."""
    out = {}
    for field in spec.schema:
        try:
            out[field.name] = to_spark(field.type).simpleString()
        except _Refused:
            out[field.name] = str(field.type)
    return out


def _spark_lines(schema: st.StructType) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in schema}


def _side_by_side(left: str, mine: dict[str, str], right: str, theirs: dict[str, str], wrong: Iterable[str]) -> str:
    names = [*mine, *(name for name in theirs if name not in mine)]
    rows = [(left, right, " ")]
    for name in names:
        missing = "(missing)" if name in wrong else ""
        here, there = (f"{name}: {side[name]}" if name in side else missing for side in (mine, theirs))
        rows.append((here, there, "≠" if name in wrong else " "))
    width = max(len(here) for here, _, _ in rows)
    return "\n".join(f"  {mark} {here:{width}}   {there}".rstrip() for here, there, mark in rows)
