"""What Arrow cannot do with every type, done for every type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.plain_values import numbers_of


def take(array: pa.Array, rows: npt.NDArray[np.integer]) -> pa.Array:
    """The rows of these numbers. Arrow has no `take` for views and run-end encoded arrays."""
    try:
        return array.take(numbers_of(rows))
    except pa.ArrowNotImplementedError:
        pass
    plain = without_views(array.type)
    if plain != array.type:
        return take(array.cast(plain), rows).cast(array.type)
    return pa.concat_arrays([array.slice(i, 1) for i in rows.tolist()])


def take_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.integer]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([take(column, rows) for column in batch.columns], schema=batch.schema)


def named_as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array as of a type that is equal but for names: Arrow takes list<item: …> for list<element: …>, and what is written has them."""
    if array.type.equals(type_, check_metadata=True):
        return array
    return pa.Array._import_from_c_capsule(type_.__arrow_c_schema__(), array.__arrow_c_array__()[1])


def digits(type_: pa.DataType) -> int:
    """Decimal digits that the numbers of a decimal type have room for."""
    return {32: 9, 64: 18, 128: 38, 256: 76}[type_.bit_width]


def misplaced_decimal(type_: pa.DataType) -> pa.DataType | None:
    """A decimal type, this one or one inside of it, whose point lies further away than its digits reach; None if there is none.

    Arrow takes any scale for valid, and looks powers of ten up by it in a table that ends there: what lies behind is wild memory.
    """
    if pa.types.is_decimal(type_):
        return type_ if abs(type_.scale) > digits(type_) else None
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return misplaced_decimal(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return misplaced_decimal(type_.storage_type)
    return next((found for i in range(type_.num_fields) if (found := misplaced_decimal(type_.field(i).type)) is not None), None)


def unified(parts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values with one dictionary for all chunks, however deep it lies, so that they can be joined.

    Arrow changes its input when the dictionary is two levels deep or more: it replaces a child of the child that all slices share. That
    input is our callers', and other threads read it. So we give it a skeleton of its own, over the same buffers.
    """
    if _is_deep(parts.type):
        chunks = [pa.Array._import_from_c_capsule(*chunk.__arrow_c_array__()) for chunk in parts.chunks]
        parts = pa.chunked_array(chunks, parts.type)
    return parts.unify_dictionaries()


def _is_deep(type_: pa.DataType) -> bool:
    """Whether a dictionary lies inside of something inside of this type."""
    return any(has_dictionary(inner.field(j).type) for inner in _inner(type_) for j in range(inner.num_fields))


def has_dictionary(type_: pa.DataType) -> bool:
    """Whether values of this type need more than their own batch to be read."""
    if isinstance(type_, pa.BaseExtensionType):
        return has_dictionary(type_.storage_type)
    return pa.types.is_dictionary(type_) or any(has_dictionary(inner) for inner in _inner(type_))


def _inner(type_: pa.DataType) -> list[pa.DataType]:
    if isinstance(type_, pa.BaseExtensionType):
        return _inner(type_.storage_type)
    return [type_.field(i).type for i in range(type_.num_fields)]


def without_views(type_: pa.DataType) -> pa.DataType:
    """The type with views made into plain text and binary."""

    def plain(t: pa.DataType) -> pa.DataType:
        return pa.large_string() if pa.types.is_string_view(t) else pa.large_binary() if pa.types.is_binary_view(t) else t

    return _replaced(type_, plain)


def with_wide_dictionaries(type_: pa.DataType) -> pa.DataType:
    """The type with 32-bit dictionary indices: a table holds more different values than a batch that fits eight bits."""

    def wide(t: pa.DataType) -> pa.DataType:
        narrow = pa.types.is_dictionary(t) and t.index_type.bit_width < 32
        return pa.dictionary(pa.int32(), t.value_type, t.ordered) if narrow else t

    return _replaced(type_, wide)


def with_bytes(type_: pa.DataType) -> pa.DataType:
    """The type with text made into binary: an array can be looked at as one without a copy."""
    t = pa.types

    def plain(t_: pa.DataType) -> pa.DataType:
        if t.is_string(t_):
            return pa.binary()
        return pa.large_binary() if t.is_large_string(t_) else pa.binary_view() if t.is_string_view(t_) else t_

    return _replaced(type_, plain)


def _replaced(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with every type in it changed, inside structs, lists and maps too."""
    t = pa.types

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_replaced(field.type, change))

    if t.is_struct(type_):
        return pa.struct([inner(f) for f in type_.fields])
    if t.is_list(type_):
        return pa.list_(inner(type_.value_field))
    if t.is_large_list(type_):
        return pa.large_list(inner(type_.value_field))
    if t.is_fixed_size_list(type_):
        return pa.list_(inner(type_.value_field), type_.list_size)
    if t.is_map(type_):
        return pa.map_(inner(type_.key_field), inner(type_.item_field), type_.keys_sorted)
    return change(type_)
