"""Arrow's filter expressions as conditions.

An expression of pyarrow says nothing about itself in Python, but it can be pickled: what is pickled is a file of Arrow's with one row of
literals, whose schema's metadata spells the tree in order. Read this way, literals keep their types and nothing is parsed from text.
What is not understood becomes `Unknown`, which prunes nothing; the expression itself decides about rows in any case.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidewheel.model import conditions as where
from tidewheel.model.loading import pc

_COMPARISONS = {
    "equal": where.EQUAL, "not_equal": where.UNEQUAL, "less": where.LESS, "less_equal": where.AT_MOST, "greater": where.MORE,
    "greater_equal": where.AT_LEAST,
}  # fmt: skip

Words = deque[tuple[str, str]]


def condition_of(expression: pc.Expression) -> where.Condition:
    """What a filter says about rows, as far as it is understood."""
    try:
        buffer = expression.__reduce__()[1][0]
        with pa.ipc.open_file(pa.py_buffer(buffer)) as file:
            row = file.get_batch(0)
        words = _words(row.schema)
        tree = _read(words, row)
        return _condition(tree)
    except (pa.ArrowException, LookupError, ValueError, TypeError, AttributeError, RecursionError):
        return where.Unknown(None)  # a pyarrow that pickles differently: correct all the same, only slower


# ---- the pickled form -----------------------------------------------------------------------------------------


class _Schema(ctypes.Structure):
    """The C struct that Arrow exports a schema into."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def _words(schema: pa.Schema) -> Words:
    """The metadata of a schema in order, repetitions included; `schema.metadata` is a dict and has lost both."""
    exported = _Schema()
    schema._export_to_c(ctypes.addressof(exported))
    try:
        return deque(_pairs(exported.metadata))
    finally:
        pa.Schema._import_from_c(ctypes.addressof(exported))  # which releases it


def _pairs(address: int | None) -> Iterator[tuple[str, str]]:
    if not address:
        return

    def number(at: int) -> int:
        return int(struct.unpack("=i", ctypes.string_at(at, 4))[0])

    count, at = number(address), address + 4
    for _ in range(count):
        pair = []
        for _ in range(2):
            size = number(at)
            pair.append(ctypes.string_at(at + 4, size).decode())
            at += 4 + size
        yield pair[0], pair[1]


class _Call:
    """A function of an expression, its arguments and its options."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments: list[Any] = []
        self.options: pa.Scalar | None = None


class _Field(tuple[str, ...]):
    """The path of a field: more than one name leads into a struct."""


def _read(words: Words, row: pa.RecordBatch) -> Any:
    """The next node: a `_Call`, a `_Field` or a scalar."""
    word, value = words.popleft()
    match word:
        case "literal":
            return row.column(int(value))[0]
        case "field_ref":
            return _Field((value,))
        case "nested_field_ref":
            return _Field(name for part in range(int(value)) for name in _read(words, row))
        case "call":
            call = _Call(value)
            while words[0][0] != "end":
                if words[0][0] == "options":
                    call.options = row.column(int(words.popleft()[1]))[0]
                else:
                    call.arguments.append(_read(words, row))
            words.popleft()
            return call
    raise ValueError(f"an expression with {word!r}")


# ---- what it means --------------------------------------------------------------------------------------------


def _condition(node: Any) -> where.Condition:
    match node:
        case _Call(name="and_kleene" | "and", arguments=[left, right]):
            return where.Both(_condition(left), _condition(right))
        case _Call(name="or_kleene" | "or", arguments=[left, right]):
            return where.Either(_condition(left), _condition(right))
        case _Call(name="invert", arguments=[of]):
            return where.Negation(_condition(of))
        case _Call(name="is_null", arguments=[_Field() as field]) if len(field) == 1 and not _nan_counts(node.options):
            return where.IsNull(field[0])
        case _Call(name="is_valid", arguments=[_Field() as field]) if len(field) == 1:
            return where.Negation(where.IsNull(field[0]))
        case _Call(name="is_in", arguments=[_Field() as field]) if len(field) == 1:
            return _one_of(field[0], node)
        case _Call(name="if_else", arguments=[_Call(name="is_valid", arguments=[_Field() as field]), member, pa.Scalar() as other]):
            # how DuckDB says IN: null where the column is
            if not other.is_valid and where.columns_of(said := _condition(member)) == field:
                return said
        case _Call(name=name, arguments=[left, right]) if name in _COMPARISONS:
            return _comparison(_COMPARISONS[name], left, right, node)
        case pa.BooleanScalar():
            return where.Unknown(())
    return where.Unknown(_fields(node))


def _comparison(op: str, left: Any, right: Any, node: Any) -> where.Condition:
    left, right = _bare(left), _bare(right)
    if isinstance(left, pa.Scalar):
        left, right, op = right, left, where.MIRRORED[op]
    if isinstance(left, _Field) and len(left) == 1 and isinstance(right, pa.Scalar) and right.is_valid:
        return where.Comparison(left[0], op, right)
    return where.Unknown(_fields(node))


def _bare(node: Any) -> Any:
    """A literal without the casts around it. A cast of a column may lose or fail, so it is left."""
    if isinstance(node, _Call) and node.name == "cast" and len(node.arguments) == 1:
        inner = _bare(node.arguments[0])
        if isinstance(inner, pa.Scalar) and node.options is not None:
            return inner.cast(node.options["to_type"].type)
    return node


def _one_of(column: str, node: _Call) -> where.Condition:
    """Where null is one of the values it is more than `OneOf` says: then nothing is known."""
    values = node.options["value_set"] if node.options is not None else None
    if not isinstance(values, pa.ListScalar | pa.LargeListScalar) or values.values is None:
        return where.Unknown((column,))
    if values.values.null_count:
        return where.Unknown((column,))
    return where.OneOf(column, values.values)


def _nan_counts(options: pa.Scalar | None) -> bool:
    return options is not None and bool(options["nan_is_null"].as_py())


def _fields(node: Any) -> tuple[str, ...]:
    """The columns that are read anywhere below a node."""
    match node:
        case _Field():
            return node[:1]
        case _Call():
            return tuple(dict.fromkeys(name for argument in node.arguments for name in _fields(argument)))
    return ()
