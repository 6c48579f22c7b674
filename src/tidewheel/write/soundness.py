"""Arrow data from outside, checked before it is trusted: everything after this reads its buffers by address.

An IPC stream, a Flight message, another library or a program with a mistake can hand over arrays whose offsets run past their data or
decrease, whose dictionary indices point nowhere, whose buffers are too short, or whose text is not UTF-8. Arrow itself notices none of it
until it reads wild memory.

Contract: nothing here raises anything but `BadRowsError`, and nothing reads memory that is not the data's own. Text that is not UTF-8 is a
fault of its rows, because everything around it can still be read; anything else is a fault of the whole batch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import BadRowsError
from tidewheel.model.arrays import with_bytes
from tidewheel.model.loading import later
from tidewheel.model.pieces import address_of

kernels = later("tidewheel.write.sound.kernels")

Mask = npt.NDArray[np.bool_]


def is_sound(data: pa.RecordBatch | pa.Table) -> bool:
    """Whether all of it can be read, text included."""
    try:
        data.validate(full=True)
    except pa.ArrowException:
        return False
    return all(map(_starts_inside, data.columns))


class SoundnessCheck:
    """`is_sound` for batches of one schema, in as little time as can be: numbers cost nothing, and text is looked at by a kernel."""

    def __init__(self, schema: pa.Schema) -> None:
        forms = [_form(type_) for type_ in schema.types]
        self._known = np.array([i for i, form in enumerate(forms) if form >= 0], np.int64)
        self._forms = np.array([form for form in forms if form >= 0], np.int64)
        self._others = [i for i, form in enumerate(forms) if form < 0]
        self._has_text = bool(self._forms.any())
        self._hiding = [i for i, type_ in enumerate(schema.types) if _may_hide(type_)]

    def is_sound(self, batch: pa.RecordBatch) -> bool:
        """For a batch of this schema. What starts before its buffers may pass where there is no text: `Shape.describe` looks again."""
        try:
            if self._has_text:
                batch.validate()
                at = self._to_look_at(batch)
                closer = [*self._others, *(self._known[at:].tolist() if at >= 0 else ())]
                return all(_is_valid(batch.column(i)) and _starts_inside(batch.column(i)) for i in closer)
            batch.validate(full=True)
        except pa.ArrowException:
            return False
        return all(_starts_inside(batch.column(i)) for i in self._others)

    def is_settled(self, batch: pa.RecordBatch) -> bool:
        """Whether `settled_rows` has nothing to do for a sound batch of this schema."""
        columns = [batch.column(i) for i in self._hiding]
        return all(_settled(column) is column for column in columns)

    def _to_look_at(self, batch: pa.RecordBatch) -> int:
        capsule = batch.__arrow_c_array__()[1]
        return int(kernels.to_look_at(address_of(capsule, b"arrow_array"), self._known, self._forms))


def _form(type_: pa.DataType) -> int:
    """The number that `sound.kernels.to_look_at` has for a type; -1 for types of which there is more to be known."""
    t = pa.types
    plain = t.is_integer(type_) or t.is_floating(type_) or t.is_boolean(type_) or t.is_timestamp(type_) or t.is_duration(type_)
    if plain or t.is_date32(type_) or t.is_fixed_size_binary(type_):
        return 0
    texts = (t.is_string, t.is_binary, t.is_large_string, t.is_large_binary)
    return next((form for form, matches in enumerate(texts, 1) if matches(type_)), -1)


def unreadable_text(data: pa.RecordBatch | pa.Table, table: str) -> frozenset[str]:
    """The columns with text that is not UTF-8, nearly always none. BadRowsError: something worse, and where."""
    check_schema(data.schema, table)
    if is_sound(data):
        return frozenset()
    found = set()
    for name, column in zip(data.schema.names, data.columns, strict=True):
        for array in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
            if (why := _fault(array)) is not None:
                raise BadRowsError(
                    f"table {table!r}, column {name!r}: this is not valid Arrow data, and nothing of it was taken: {why}. "
                    "Whoever made it wrote past its buffers, or its bytes were changed on their way",
                    table=table, column=name,
                )  # fmt: skip
            if not _is_valid(array):
                found.add(name)
    if not found:  # each column is fine by itself
        raise BadRowsError(f"table {table!r}: this is not valid Arrow data, and nothing of it was taken: {_said(data)}", table=table)
    return frozenset(found)


def check_schema(schema: pa.Schema, table: str) -> None:
    """Before anything else is asked of rows: whoever takes a column in the hand reads its name, and needs a class for it."""
    if why := unspeakable(schema):
        raise BadRowsError(f"table {table!r}: the input {why}", table=table)


def unspeakable(schema: pa.Schema) -> str:
    """Why columns of it, or what is inside of them, cannot even be named in Python; empty if they can."""
    try:
        for field in schema:
            assert field.name is not None
            _look_inside(field.type)
    except UnicodeDecodeError:
        return "has a column whose name is not UTF-8 text"
    except KeyError:
        return "has a column of a type that only other languages have"
    return ""


def _look_inside(type_: pa.DataType) -> None:
    """Raises UnicodeDecodeError if a name inside of a type is no text, KeyError if Arrow's Python has no such type (months, say)."""
    for i in range(type_.num_fields):
        assert type_.field(i).name is not None
        _look_inside(type_.field(i).type)
    if pa.types.is_dictionary(type_):
        _look_inside(type_.value_type)
    elif not type_.num_fields:
        pa.nulls(0, type_)


def settled_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, which is sound, with nothing wild under its nulls.

    Arrow does not look there: it calls an array valid whose null rows have indices of no value (pandas makes -1) or views of no buffer, and
    reads wild memory when it joins dictionaries or casts views of such arrays.
    """
    columns = [_settled(column) for column in batch.columns]
    same = all(new is old for new, old in zip(columns, batch.columns, strict=True))
    return batch if same else pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def may_hide(schema: pa.Schema) -> bool:
    """Whether `settled_rows` may have something to do."""
    return any(map(_may_hide, schema.types))


def _may_hide(type_: pa.DataType) -> bool:
    """Whether something wild can be under the nulls of such arrays: only indices and views point somewhere by themselves."""
    if isinstance(type_, pa.BaseExtensionType):
        return _may_hide(type_.storage_type)
    points = pa.types.is_dictionary(type_) or pa.types.is_string_view(type_) or pa.types.is_binary_view(type_)
    return points or any(_may_hide(type_.field(i).type) for i in range(type_.num_fields))


def _settled(array: pa.Array) -> pa.Array:
    type_ = array.type
    if not _may_hide(type_):
        return array
    match array:
        case pa.ExtensionArray():
            inner = _settled(array.storage)
            return array if inner is array.storage else pa.ExtensionArray.from_storage(type_, inner)
        case pa.DictionaryArray():
            return _settled_indices(array)
        case pa.StringViewArray() | pa.BinaryViewArray():
            return _settled_views(array)
        case pa.StructArray():
            given = [array.field(i) for i in range(type_.num_fields)]
            fields = [_settled(one) for one in given]
            if all(new is old for new, old in zip(fields, given, strict=True)):
                return array
            return pa.StructArray.from_arrays(fields, fields=list(type_), mask=array.is_null())
        case pa.ListArray() | pa.LargeListArray():
            return _with_values(array, 2)
        case pa.FixedSizeListArray():
            return _with_values(array, 1)
        case pa.ListViewArray() | pa.LargeListViewArray():
            return _with_values(array, 3)
    return array


def _with_values(array: pa.Array, buffers: int) -> pa.Array:
    """A list over settled values; so many buffers are its own."""
    given = array.values
    values = _settled(given)
    if values is given:
        return array
    return pa.Array.from_buffers(array.type, len(array), array.buffers()[:buffers], array.null_count, array.offset, [values])


def _settled_indices(array: pa.DictionaryArray) -> pa.Array:
    values, indices = _settled(array.dictionary), array.indices
    if indices.null_count:
        raw = np.frombuffer(indices.buffers()[1], indices.type.to_pandas_dtype())[indices.offset : indices.offset + len(indices)]
        if int(raw.min()) < 0 or int(raw.max()) >= max(len(values), 1):
            nulls = indices.is_null().to_numpy(zero_copy_only=False)
            indices = pa.array(np.where(nulls, 0, raw).astype(raw.dtype), mask=nulls)
    if indices is array.indices and values is array.dictionary:
        return array
    return pa.DictionaryArray.from_arrays(indices, values, ordered=array.type.ordered)


def _settled_views(array: pa.Array) -> pa.Array:
    if not array.null_count:
        return array
    _, views, *data = array.buffers()
    raw = np.frombuffer(views, np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    if not raw[nulls].any():
        return array
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(np.where(nulls[:, None], 0, raw)), *data])


def check_lengths(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """The batch, if it has all that it claims to have, so that it can be sent; whoever receives it looks closer. Costs next to nothing."""
    try:
        batch.validate()
    except pa.ArrowException:
        unreadable_text(batch, table)
    return batch


def readable(array: pa.Array) -> tuple[pa.Array, Mask]:
    """The array with null in place of text that is not UTF-8, and where that is. All else about it is sound."""
    if pa.types.is_dictionary(array.type):
        values, bad = readable(array.dictionary)
        wrong = np.append(bad, False)  # the last one for nulls
        indices = array.indices.fill_null(len(bad)).to_numpy(zero_copy_only=False)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=array.type.ordered), wrong[indices]
    bad = np.zeros(len(array), bool)
    todo = [(0, len(array))]
    while todo:
        lo, n = todo.pop()
        # a copy: the children of a nested slice are those of the whole array
        if n == 0 or _is_valid(pa.concat_arrays([array.slice(lo, n)])):
            continue
        if n == 1:
            bad[lo] = True
        else:
            todo += [(lo + n // 2, n - n // 2), (lo, n // 2)]
    return pa.concat_arrays(list(_with_nulls(array, bad))), bad


def as_bytes(array: pa.Array) -> pa.Array:
    """The array with its text as bytes, uncopied; not in dictionaries that lie inside of something else."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, as_bytes(array.dictionary), safe=False)
    return array.view(with_bytes(array.type))


def _with_nulls(array: pa.Array, bad: Mask) -> Iterator[pa.Array]:
    at = 0
    for row in np.flatnonzero(bad).tolist():
        yield array.slice(at, row - at)
        yield pa.nulls(1, array.type)
        at = row + 1
    yield array.slice(at)


def _fault(array: pa.Array) -> str | None:
    """The fault of an array, its text aside; None if there is none."""
    if not _starts_inside(array):
        return "it starts before its buffers, or something in it has a negative length"
    try:
        array.validate()
        if _is_valid(array):
            return None
        as_bytes(array).validate(full=True)
    except (pa.ArrowException, NotImplementedError) as e:
        return " ".join(str(e).split())
    return None


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def _said(data: Any) -> str:
    try:
        data.validate(full=True)
    except pa.ArrowException as e:
        return " ".join(str(e).split())
    return "one of its arrays starts before its buffers, or has a negative length"


class _Exported(ctypes.Structure):
    """The head of an array as Arrow hands it to other languages. To look at it reads nothing of the array itself."""


_Exported._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64), ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("buffers", ctypes.c_void_p), ("children", ctypes.POINTER(ctypes.POINTER(_Exported))),
    ("dictionary", ctypes.POINTER(_Exported)),
]  # fmt: skip


def _starts_inside(array: pa.Array | pa.ChunkedArray) -> bool:
    """Whether no offset and no length in it is negative, however deep. Arrow's own validation does not look at offsets, and ends the
    process when a child of negative length is taken in the hand; so none is."""
    if isinstance(array, pa.ChunkedArray):
        return all(map(_starts_inside, array.chunks))
    capsule = array.__arrow_c_array__()[1]
    return _is_positive(_Exported.from_address(address_of(capsule, b"arrow_array")))


def _is_positive(array: Any) -> bool:
    if array.offset < 0 or array.length < 0 or (array.dictionary and not _is_positive(array.dictionary.contents)):
        return False
    return all(_is_positive(array.children[i].contents) for i in range(array.n_children))
