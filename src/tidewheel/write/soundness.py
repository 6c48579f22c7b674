"""Whether Arrow data from outside may be trusted: everything after this reads its buffers by address.

An IPC stream, a Flight message, another library or a program with a mistake can hand over arrays whose offsets run past their data or
decrease, whose dictionary indices point nowhere, whose buffers are too short, or whose text is not UTF-8. Arrow itself notices none of it
until it reads wild memory.

Contract: nothing here raises anything but `BadRowsError`, and nothing reads memory that is not the data's own. Text that is not UTF-8 is a
fault of its rows, because everything around it can still be read; anything else is a fault of the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import BadRowsError
from tidewheel.model.arrays import has_dictionary, take, with_bytes
from tidewheel.model.pieces import address_of

Mask = npt.NDArray[np.bool_]


def is_sound(data: pa.RecordBatch | pa.Table) -> bool:
    """Whether all of it can be read, text included."""
    try:
        data.validate(full=True)
    except pa.ArrowException:
        return False
    return all(map(_starts_inside, data.columns))


class Look:
    """`is_sound` for batches of one schema, in as little time as can be: numbers cost nothing, and ASCII text is looked at by a kernel."""

    def __init__(self, schema: pa.Schema) -> None:
        forms = [_form(type_) for type_ in schema.types]
        self._known = np.array([i for i, form in enumerate(forms) if form >= 0], np.int64)
        self._forms = np.array([form for form in forms if form >= 0], np.int64)
        self._others = [i for i, form in enumerate(forms) if form < 0]
        self._has_text = bool(self._forms.any())
        self._dictionaries = [i for i, type_ in enumerate(schema.types) if has_dictionary(type_)]

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
        return not any(_hides_indices(batch.column(i)) for i in self._dictionaries)

    def _to_look_at(self, batch: pa.RecordBatch) -> int:
        from tidewheel.write.kernels import to_look_at

        capsule = batch.__arrow_c_array__()[1]
        return int(to_look_at(address_of(capsule, b"arrow_array"), self._known, self._forms))


def _form(type_: pa.DataType) -> int:
    """As `kernels.to_look_at` has it; -1 for types of which there is more to be known."""
    t = pa.types
    plain = t.is_integer(type_) or t.is_floating(type_) or t.is_boolean(type_) or t.is_timestamp(type_) or t.is_duration(type_)
    if plain or t.is_date32(type_) or t.is_fixed_size_binary(type_):
        return 0
    texts = (t.is_string, t.is_binary, t.is_large_string, t.is_large_binary)
    return next((form for form, matches in enumerate(texts, 1) if matches(type_)), -1)


def unreadable_text(data: pa.RecordBatch | pa.Table, table: str) -> frozenset[str]:
    """The columns with text that is not UTF-8, nearly always none. BadRowsError: something worse, and where."""
    try:
        names = data.schema.names
        for type_ in data.schema.types:
            _read_names(type_)
    except UnicodeDecodeError:
        raise BadRowsError(f"table {table!r}: the input has a column whose name is not UTF-8 text", table=table) from None
    if is_sound(data):
        return frozenset()
    found = set()
    for name, column in zip(names, data.columns, strict=True):
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


def _read_names(type_: pa.DataType) -> None:
    """Raises UnicodeDecodeError if a name inside of a type is no text."""
    for i in range(type_.num_fields):
        assert type_.field(i).name is not None
        _read_names(type_.field(i).type)


def settled(array: pa.Array) -> pa.Array:
    """The array, which is sound, with no index of a dictionary out of range under a null.

    Arrow calls such indices valid, pandas makes them (-1), and Arrow reads wild memory when it joins dictionaries of several such arrays.
    """
    return take(array, np.arange(len(array))) if has_dictionary(array.type) and _hides_indices(array) else array


def settled_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same for all columns."""
    columns = [settled(column) for column in batch.columns]
    same = all(new is old for new, old in zip(columns, batch.columns, strict=True))
    return batch if same else pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _hides_indices(array: pa.Array) -> bool:
    if isinstance(array, pa.ExtensionArray):
        return _hides_indices(array.storage)
    if isinstance(array, pa.StructArray):
        return any(_hides_indices(array.field(i)) for i in range(array.type.num_fields))
    if isinstance(array, pa.RunEndEncodedArray):
        return _hides_indices(array.values)
    if isinstance(array, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray, pa.ListViewArray, pa.LargeListViewArray)):
        return _hides_indices(array.values)
    if isinstance(array, pa.UnionArray):
        return any(_hides_indices(array.field(i)) for i in range(array.type.num_fields))
    if not isinstance(array, pa.DictionaryArray):
        return False
    indices = array.indices
    if not indices.null_count:
        return False
    raw = np.frombuffer(indices.buffers()[1], indices.type.to_pandas_dtype())[indices.offset : indices.offset + len(indices)]
    return int(raw.min()) < 0 or int(raw.max()) >= max(len(array.dictionary), 1)


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
    """What is wrong with an array, its text aside."""
    if not _starts_inside(array):
        return "it starts before its buffers"
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
    return "one of its arrays starts before its buffers"


def _starts_inside(array: pa.Array | pa.ChunkedArray) -> bool:
    """Whether no offset of it is negative. Arrow's own validation does not look."""
    if isinstance(array, pa.ChunkedArray):
        return all(map(_starts_inside, array.chunks))
    if array.offset < 0:
        return False
    if isinstance(array, pa.ExtensionArray):
        return _starts_inside(array.storage)
    if isinstance(array, pa.StructArray):
        return all(_starts_inside(array.field(i)) for i in range(array.type.num_fields))
    if isinstance(array, pa.DictionaryArray):
        return _starts_inside(array.indices) and _starts_inside(array.dictionary)
    if isinstance(array, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray, pa.ListViewArray, pa.LargeListViewArray)):
        return _starts_inside(array.values)
    return True
