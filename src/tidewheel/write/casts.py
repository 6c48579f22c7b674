"""Columns to the types of a table: `fit` keeps values, or names the rows it cannot keep.

Arrow's own casts are not enough for that, because some lose silently (1.5 as an int in a Python list, the time of day of a
timestamp as a date, 1e300 as a float32, nanoseconds of a pandas Timestamp). The one loss that is allowed is the rounding
of a float or a text to the nearest float of the column, because that is what storing a float means; a decimal may become a
float that leads back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.model.arrays import digits, misplaced_decimal
from tidewheel.model.loading import pc

# What pyarrow raises for values it cannot convert. ArrowNotImplementedError is among them: the types can never be cast.
UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)


class NeverFits(Exception):
    """No row of such a column can ever fit: its type is wrong, not its values."""


def fit(column: Any, to: pa.DataType, unit: str = "", limit: int = 0) -> tuple[pa.Array, np.ndarray[Any, Any] | None]:
    """The column as `to`, with null where a value does not fit, and the mask of those rows (None when all fit).

    `unit` is given for a time column of plain integers: times become counts of it. After `limit` bad rows (0: never) the
    search ends and the rest counts as bad: the caller then only wants to know that there are many.
    """
    inner = _inner(to)
    if isinstance(column, list):
        out, bad = _fit_values(column, inner, unit, limit)
    elif (odd := misplaced_decimal(column.type)) is not None:
        raise NeverFits(f"the scale of {odd} is beyond its {digits(odd)} digits")
    else:
        out, bad = _rescue(lambda lo, n: convert(column.slice(lo, n), inner, unit), len(column), inner, limit)
    return _outer(out, to), bad if bad.any() else None


def convert(array: pa.Array, to: pa.DataType, unit: str = "") -> pa.Array:
    """Every value of `array` as `to`, unchanged in meaning. ArrowInvalid: some value does not fit; NeverFits: the type does not."""
    given = array.type
    if given == to:
        return array
    if pa.types.is_null(given):
        return pa.nulls(len(array), to)
    if isinstance(given, pa.BaseExtensionType):
        return convert(array.storage, to, unit)
    if pa.types.is_dictionary(given):
        return convert(_take(array.dictionary, array.indices), to, unit)
    if pa.types.is_run_end_encoded(given):
        return convert(pc.run_end_decode(array), to, unit)
    if _inner(to) is not to:
        return _outer(convert(array, _inner(to), unit), to)
    match _kind(given), _kind(to):
        case ("text" | "bytes", "text" | "bytes") | ("int" | "float" | "decimal" | "bool", "int"):
            return array.cast(to)
        case "decimal", "decimal" if abs(given.scale - to.scale) <= max(digits(given), digits(to)):  # beyond, Arrow reads wild memory
            return array.cast(to)
        case ("date", "date") | ("time", "time") | ("duration", "duration") | ("bool", "float"):
            return array.cast(to)
        case ("float", "decimal") if given.bit_width == 16:  # between half floats and decimals Arrow knows no way
            return convert(array.cast(pa.float32()), to)
        case ("decimal", "float") if to.bit_width == 16:
            return convert(convert(array, pa.float64()), to)
        case "decimal", "float":  # as text, because Arrow's own way is often off by the last bit
            return _exact(array, array.cast(pa.large_string()).cast(to))
        case ("int", "float" | "bool") | ("float", "decimal"):
            return _exact(array, array.cast(to, safe=False) if _kind(given) == "int" else array.cast(to))
        case "int", "decimal":
            return array.cast(pa.decimal256(min(76, 20 + max(to.scale, 0)), max(to.scale, 0))).cast(to)  # Arrow wants room for any int64
        case "float", "float":
            return _no_new_infinity(array.cast(to), pc.is_inf(array if given.bit_width > 16 else array.cast(pa.float32())))
        case "text", _:
            return _from_text(array.cast(pa.large_string()), to, unit)
        case "timestamp", "timestamp":  # by number, because all time is UTC: zones are only names
            return array.view(pa.timestamp(given.unit)).cast(pa.timestamp(to.unit)).view(to)
        case "date", "timestamp":
            return array.cast(pa.timestamp(to.unit)).view(to)
        case "timestamp", "date":
            moment = array.view(pa.timestamp(given.unit))
            return _exact(moment, moment.cast(pa.date32())).cast(to)
        case "timestamp" | "date", "int" if unit:
            return convert(array, pa.timestamp(unit)).view(pa.int64()).cast(to)
        case "int", "timestamp":
            return array.cast(pa.int64()).view(to)
        case "int", "date":
            if to.bit_width == 32:
                return array.cast(pa.int32()).view(to)
            return array.cast(pa.int64()).view(to).cast(pa.date32()).cast(to)  # a date64 off midnight is no date
        case ("list", "list") | ("struct", "struct"):
            return _nested(array, to)
        case "map", "map":
            return _exact(array, array.cast(to))
    raise NeverFits(f"{given} can't become {to}")


def _exact(array: pa.Array, out: pa.Array) -> pa.Array:
    """`out`, if it leads back to the same values."""
    if not out.cast(array.type).equals(array):
        raise pa.ArrowInvalid("values would change")
    return out


def _no_new_infinity(out: pa.Array, infinite: pa.Array) -> pa.Array:
    wide = out if out.type.bit_width > 16 else out.cast(pa.float32())  # is_inf knows no half floats
    if pc.any(pc.and_not(pc.is_inf(wide), infinite)).as_py():
        raise pa.ArrowInvalid("values are out of range")
    return out


def _from_text(text: pa.Array, to: pa.DataType, unit: str) -> pa.Array:
    match _kind(to):
        case "int" if unit:  # digits count units, the rest is ISO text
            digits = pc.match_substring_regex(text, r"^[+-]?\d+$")
            times = _moments(pc.if_else(digits, None, text), unit).view(pa.int64())
            return pc.coalesce(pc.if_else(digits, text, None).cast(pa.int64()), times).cast(to)
        case "int" | "decimal" | "bool":
            return text.cast(to)
        case "float":
            return _no_new_infinity(text.cast(to), pc.match_substring_regex(text, "(?i)^[+-]?inf"))
        case "timestamp":
            return _moments(text, to.unit).view(to)
        case "date":
            return convert(_moments(text, "s"), to)
        case "time":
            day, mark = (pa.scalar(t, pa.large_string()) for t in ("1970-01-01", "T"))
            return pc.binary_join_element_wise(day, text, mark).cast(pa.timestamp(to.unit)).cast(to)
    raise NeverFits(f"text can't become {to}")


def _moments(text: pa.Array, unit: str) -> pa.Array:
    """ISO text as UTC, with or without a zone: Arrow parses either, but never both in one column, and refuses needless zeros."""
    if pc.any(pc.match_substring_regex(text, r"\.\d*0([Zz+-]|$)")).as_py():
        text = pc.replace_substring_regex(text, r"\.0+([Zz+-]|$)", r"\1")
        text = pc.replace_substring_regex(text, r"(\.\d*[1-9])0+([Zz+-]|$)", r"\1\2")
    zoned = pc.match_substring_regex(text, r"\d[T ].*([Zz]|[+-]\d\d(:?\d\d)?)$")
    plain = pc.if_else(zoned, None, text).cast(pa.timestamp(unit))
    return pc.coalesce(plain, pc.if_else(zoned, text, None).cast(pa.timestamp(unit, "UTC")).view(pa.timestamp(unit)))


def _nested(array: pa.Array, to: pa.DataType) -> pa.Array:
    nulls = pc.is_null(array)
    if pa.types.is_struct(to):
        given = {array.type.field(i).name: column for i, column in enumerate(array.flatten())}
        extra = [name for name in given if to.get_field_index(name) < 0]
        missing = [f.name for f in to if f.name not in given and not f.nullable]
        if extra or missing:
            raise NeverFits(f"{array.type} can't become {to}: its fields differ ({', '.join(extra + missing)})")
        parts = [convert(given[f.name], f.type) if f.name in given else pa.nulls(len(array), f.type) for f in to]
        return pa.StructArray.from_arrays(parts, fields=list(to), mask=nulls)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return _lists(lengths, nulls.to_numpy(zero_copy_only=False), convert(array.flatten(), to.value_type), to)


def _lists(lengths: Any, nulls: Any, values: pa.Array, to: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_list(to):
        if (lengths[~nulls] != to.list_size).any():
            raise pa.ArrowInvalid("lists have another length")
        places = np.repeat(np.where(nulls, -1, np.cumsum(np.where(nulls, 0, to.list_size)) - to.list_size), to.list_size)
        places = np.where(places < 0, -1, places + np.tile(np.arange(to.list_size), len(nulls)))
        return pa.FixedSizeListArray.from_arrays(_take(values, pa.array(places, mask=places < 0)), type=to, mask=pa.array(nulls))
    large = pa.types.is_large_list(to) or pa.types.is_large_list_view(to)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int64()).cast(pa.int64() if large else pa.int32())
    mask = pa.array(nulls)
    if pa.types.is_list_view(to) or pa.types.is_large_list_view(to):
        view = pa.LargeListViewArray if large else pa.ListViewArray
        return view.from_arrays(offsets[:-1], pa.array(lengths, offsets.type), values, type=to, mask=mask)
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, values, type=to, mask=mask)


def _take(array: pa.Array, rows: pa.Array) -> pa.Array:
    """`array.take(rows)`, also for views, which Arrow cannot take from."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return array.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary()).take(rows).cast(array.type)
    return array.take(rows)


# ------------------------------------------------------------------------------------------------------------ Python values


def _fit_values(values: list[Any], to: pa.DataType, unit: str, limit: int) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Python values by their exact type: what pyarrow infers from one type is right, from a mixture it is a guess or an error."""
    types = set(map(type, values)) - {type(None)}
    if any(t is np.datetime64 or t.__module__.startswith("pandas") for t in types):
        values = [_known(v) for v in values]
        types = set(map(type, values)) - {type(None)}
    if (kind := _kind(to)) in ("list", "struct", "map"):
        return _fit_nested(values, to, kind)
    if len(types) < 2:
        return _rescue(lambda lo, n: _values(values[lo : lo + n], to, unit), len(values), to, limit)
    groups = [np.array([i for i, v in enumerate(values) if type(v) is t], dtype=np.int64) for t in (*types, type(None))]
    fitted = [_fit_values([values[i] for i in rows], to, unit, limit) for rows in groups]
    back = np.argsort(np.concatenate(groups))
    return _take(pa.concat_arrays([f[0] for f in fitted]), pa.array(back)), np.concatenate([f[1] for f in fitted])[back]


def _values(values: list[Any], to: pa.DataType, unit: str) -> pa.Array:
    try:
        array = pa.array(values)
        return convert(array if isinstance(array, pa.Array) else array.combine_chunks(), to, unit)
    except OverflowError:  # integers beyond int64; pyarrow's typed conversion checks their range
        if _kind(to) not in ("int", "decimal"):
            raise
        return pa.array(values, to)
    except (NeverFits, pa.ArrowNotImplementedError) as e:  # one value of a wrong type is a bad row here, not a wrong column
        raise pa.ArrowInvalid(str(e)) from None


def _known(value: Any) -> Any:
    """A value in a form that pyarrow reads rightly: it cuts pandas' Timestamps to microseconds, misreads its nulls and NumPy's hours."""
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    value = value.to_datetime64() if hasattr(value, "to_datetime64") else value
    if type(value) is np.datetime64 and np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D", "h", "m"):
        seconds = value.astype("M8[s]")
        return seconds if seconds.astype(value.dtype) == value or np.isnat(value) else value
    return value


def _fit_nested(values: list[Any], to: pa.DataType, kind: str) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Lists, structs and maps by their parts; a row is bad when one of its parts is."""
    shape: Any = {"list": (list, tuple, np.ndarray), "struct": Mapping, "map": (Mapping, list, tuple)}[kind]
    bad = np.array([v is not None and not isinstance(v, shape) for v in values], dtype=bool)
    if kind == "struct":
        names = {f.name for f in to}
        bad |= np.array([isinstance(v, Mapping) and not names.issuperset(v) for v in values], dtype=bool)
        parts = [fit([v.get(f.name) if isinstance(v, Mapping) else None for v in values], f.type) for f in to]
        for _, part_bad in parts:
            bad |= False if part_bad is None else part_bad
        nulls = bad | np.array([v is None for v in values], dtype=bool)
        return pa.StructArray.from_arrays([p[0] for p in parts], fields=list(to), mask=pa.array(nulls)), bad
    if kind == "map":
        values = [list(v.items()) if isinstance(v, Mapping) else v for v in values]
        bad |= np.array([isinstance(v, (list, tuple)) and not all(map(_is_entry, v)) for v in values], dtype=bool)
    elif pa.types.is_fixed_size_list(to):
        bad |= np.array([v is not None and isinstance(v, shape) and len(v) != to.list_size for v in values], dtype=bool)

    def flat(keep: Any) -> tuple[Any, list[Any]]:
        kept = [v if k else () for v, k in zip(values, keep, strict=True)]
        return np.array([len(v) for v in kept], dtype=np.int64), list(chain.from_iterable(kept))

    nulls = bad | np.array([v is None for v in values], dtype=bool)
    lengths, items = flat(~nulls)
    columns = [([p[0] for p in items], to.key_type), ([p[1] for p in items], to.item_type)] if kind == "map" else [(items, to.value_type)]
    for column, type_ in columns:
        _, part_bad = fit(column, type_)
        if part_bad is not None:
            bad[np.repeat(np.arange(len(values)), lengths)[part_bad]] = True
    nulls |= bad
    lengths, items = flat(~nulls)
    if kind == "list":
        return _lists(lengths, nulls, fit(items, to.value_type)[0], to), bad
    keys, entries = (fit([p[side] for p in items], type_)[0] for side, type_ in enumerate((to.key_type, to.item_type)))
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32(), mask=np.append(nulls, False))
    return pa.MapArray.from_arrays(offsets, keys, entries, to), bad


def _is_entry(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and value[0] is not None


# ------------------------------------------------------------------------------------------------------------------- parts


def _rescue(make: Callable[[int, int], pa.Array], rows: int, to: pa.DataType, limit: int) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """`make(0, rows)`, or, when that fails, everything of it that does not: bad rows are found by halving."""
    bad = np.zeros(rows, dtype=bool)
    parts: list[pa.Array] = []
    todo = [(0, rows)]
    found = 0
    while todo:
        lo, n = todo.pop()
        try:
            if limit and found >= limit:
                raise pa.ArrowInvalid("enough")
            parts.append(make(lo, n))
        except pa.ArrowNotImplementedError as e:
            raise NeverFits(str(e)) from None
        except UNFIT:
            if n == 1 or limit and found >= limit:
                bad[lo : lo + n] = True
                found += n
                parts.append(pa.nulls(n, to))
            else:
                todo += [(lo + n // 2, n - n // 2), (lo, n // 2)]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts), bad


def _inner(to: pa.DataType) -> pa.DataType:
    """The type whose values decide: what an extension stores, what a dictionary or a run-end encoding lists."""
    if isinstance(to, pa.BaseExtensionType):
        return _inner(to.storage_type)
    return _inner(to.value_type) if pa.types.is_dictionary(to) or pa.types.is_run_end_encoded(to) else to


def _outer(array: pa.Array, to: pa.DataType) -> pa.Array:
    if array.type == to:
        return array
    if isinstance(to, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(to, _outer(array, to.storage_type))
    if pa.types.is_run_end_encoded(to):
        return pc.run_end_encode(_outer(array, to.value_type), run_end_type=to.run_end_type)
    coded = _outer(array, to.value_type).dictionary_encode()
    try:
        return pa.DictionaryArray.from_arrays(coded.indices.cast(to.index_type), coded.dictionary, ordered=to.ordered)
    except pa.ArrowInvalid:
        raise NeverFits(f"{len(coded.dictionary)} different values in one batch are too many for {to}; insert smaller batches") from None


_ANY = pa.int8()
_KINDS: dict[int, str] = {
    type_.id: kind
    for kind, types in {
        "int": (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        "float": (pa.float16(), pa.float32(), pa.float64()),
        "decimal": (pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
        "bool": (pa.bool_(),),
        "text": (pa.string(), pa.large_string(), pa.string_view()),
        "bytes": (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)),
        "timestamp": (pa.timestamp("s"),),
        "date": (pa.date32(), pa.date64()),
        "time": (pa.time32("s"), pa.time64("us")),
        "duration": (pa.duration("s"),),
        "list": (pa.list_(_ANY), pa.large_list(_ANY), pa.list_(_ANY, 1), pa.list_view(_ANY), pa.large_list_view(_ANY)),
        "struct": (pa.struct([]),),
        "map": (pa.map_(_ANY, _ANY),),
    }.items()
    for type_ in types
}


def _kind(type_: pa.DataType) -> str:
    return _KINDS.get(type_.id, "other")
