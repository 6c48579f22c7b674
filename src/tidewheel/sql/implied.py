"""What a condition implies about the key and the time of a row, said in comparisons that DuckDB hands to a scan.

`WHERE ts > now() - INTERVAL '5 minutes'` says where in time its rows lie, and DuckDB does not see it: it casts a column that has no zone.
The same holds of `k LIKE 'abc%'` and of many other conditions. Here they become comparisons of the column with constants. Some say
the same as the condition and take its place. The others are added to it, and DuckDB still decides: they may let more rows in, never fewer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable

import pyarrow as pa

from tidewheel.duck import nodes
from tidewheel.duck.nodes import Node, arguments, walk
from tidewheel.model import conditions as where
from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import pc
from tidewheel.read.boxes import MOST_BOXES
from tidewheel.sql import prefixes, spans
from tidewheel.sql.folding import ConstantFolder
from tidewheel.sql.scopes import Column, Scope

_NAMES = {op: name for name, op in nodes.COMPARISONS.items()}
_EPOCH = dt.datetime(1970, 1, 1)
_DEEPEST = 100
_WIDE = 16
"""Of many values, gaps that are wider than this part of all are left out."""

Values = Callable[[Node, Column], pa.Array | None]
"""The values of a query, which a column is compared with, if they are few and to be had now."""
Others = Callable[[Node, Node], pa.Array | None]
"""The values that an expression over another table can have, for a row of a column's table: again if they are few."""

Exists = Callable[[Node, Scope], Iterable[tuple[Node, pa.Array]]]
"""Columns of a scope that a query's rows are compared with, and the values they can have if there is a row."""


@dataclass(frozen=True, slots=True)
class Implied:
    """What is true of every row for which a condition is."""

    node: Node
    same: bool
    """And the other way round: it is true, false or null where the condition is."""
    new: bool
    """It says something that DuckDB does not see by itself."""


class ImpliedFinder:
    """Looks through the conditions of one SELECT."""

    def __init__(self, scope: Scope, folder: ConstantFolder, values: Values, others: Others, exists: Exists) -> None:
        self._scope = scope
        self._folder = folder
        self._values = values
        self._others = others
        self._exists = exists

    # ---- the whole condition ----------------------------------------------------------------------------

    def sharpened(self, condition: Node) -> Node:
        """A condition that is true for the same rows, and shows where they are. The same object if there is nothing to add."""
        replaced = self._replaced(condition, 0)
        found = self._found(replaced, False, 0)
        # first, because DuckDB hands nothing to a scan that stands behind a function that may fail
        return nodes.both(found.node, replaced) if found is not None and found.new else replaced

    def implied(self, condition: Node) -> Node | None:
        """What a condition implies that DuckDB does not see."""
        found = self._found(condition, False, 0)
        return found.node if found is not None and found.new else None

    def _replaced(self, node: Node, depth: int) -> Node:
        """With comparisons that say the same in place of some."""
        if depth > _DEEPEST:
            return node
        match node:
            case {"type": "CONJUNCTION_AND" | "CONJUNCTION_OR" | "OPERATOR_NOT", "children": children}:
                made = [self._replaced(child, depth + 1) for child in children]
                return node if all(a is b for a, b in zip(made, children, strict=True)) else node | {"children": made}
        found = self._leaf(node)
        return found.node if found is not None and found.same and found.new and not _has_parameters(node) else node

    def _found(self, node: Node, negated: bool, depth: int) -> Implied | None:
        if depth > _DEEPEST:
            return None
        match node:
            case {"type": "OPERATOR_NOT", "children": [child]}:
                return self._found(child, not negated, depth + 1)
            case {"type": "CONJUNCTION_AND" | "CONJUNCTION_OR" as kind, "children": children}:
                found = [self._found(child, negated, depth + 1) for child in children]
                known = [one for one in found if one is not None]
                new = any(one.new for one in known)
                if (kind == "CONJUNCTION_AND") != negated:
                    known = [one for one in known if one.new] if new and depth == 0 else known
                    return Implied(nodes.both(*(one.node for one in known)), False, new) if known else None
                if len(known) < len(found):
                    return None
                return Implied(nodes.either(*(one.node for one in known)), False, new)
        return self._leaf(node, negated)

    # ---- one comparison ---------------------------------------------------------------------------------

    def _leaf(self, node: Node, negated: bool = False) -> Implied | None:
        match node:
            case {"type": "COMPARE_BETWEEN", "input": subject, "lower": lower, "upper": upper} if not negated:
                ends = self._compared(subject, where.AT_LEAST, lower), self._compared(subject, where.AT_MOST, upper)
                known = [one for one in ends if one is not None]
                if not known:
                    return None
                same = len(known) == 2 and all(one.same for one in known) and self._alike(lower, upper)
                return Implied(nodes.both(*(one.node for one in known)), same, any(one.new for one in known))
            case {"class": "COMPARISON", "type": kind, "left": left, "right": right} if kind in nodes.COMPARISONS:
                op = where.INVERSE[nodes.COMPARISONS[kind]] if negated else nodes.COMPARISONS[kind]
                return self._compared(left, op, right) or self._compared(right, where.MIRRORED[op], left)
            case {"class": "FUNCTION", "function_name": name} if not negated and len(arguments(node)) in (2, 3):
                return self._begins(name.lower(), *arguments(node))
            case {"class": "SUBQUERY", "subquery_type": "ANY", "comparison_type": "COMPARE_EQUAL", "child": child} if not negated:
                column = self._scope.column(child)
                return (
                    None if column is None or not column.indexed else self._is_one_of(child, self._values(node["subquery"]["node"], column))
                )
            case {"class": "SUBQUERY", "subquery_type": "EXISTS", "subquery": {"node": query}} if not negated:
                known = [
                    one for subject, values in self._exists(query, self._scope) if (one := self._is_one_of(subject, values)) is not None
                ]
                return Implied(nodes.both(*(one.node for one in known)), False, True) if known else None
            case {"class": "OPERATOR", "type": "COMPARE_IN", "children": [child, *values]} if not negated:
                column = self._scope.column(child)
                if column is not None and column.indexed and all(value.get("class") == "CONSTANT" for value in values):
                    return Implied(node, True, False)
        return None

    def _is_one_of(self, subject: Node, values: pa.Array | None) -> Implied | None:
        column = self._scope.column(subject)
        return None if values is None or column is None else _within(subject, column, values)

    def _compared(self, subject: Node, op: str, constant: Node) -> Implied | None:
        column = self._scope.column(subject)
        if op == where.UNEQUAL or column is not None and not column.indexed or subject.get("class") in ("CONSTANT", "PARAMETER"):
            return None
        if column is None and subject.get("class") not in ("FUNCTION", "CAST") or not self._is_about(subject):
            return None
        value = self._folder.value(constant)
        if value is None:
            if column is None or (others := self._others(subject, constant)) is None:
                return None
            return _within(subject, column, others) if op == where.EQUAL else _beyond(subject, column, op, others)
        if pa.types.is_string(value.type):
            return self._text(subject, column, op, constant, value.as_py())
        found = spans.compared(subject, op, value, self._folder.value)
        if found is None:
            known = column is not None and constant.get("class") == "CONSTANT"
            return Implied(nodes.comparison(_NAMES[op], subject, constant), True, False) if known else None
        bare, span = found
        of = self._scope.column(bare)
        if of is None or not of.indexed or (node := bounded(bare, of, span)) is None:
            return None
        if bare is not subject and pa.types.is_date(of.type):  # DuckDB has answers of its own to date_trunc('hour', day) > …
            return None
        same = bare is subject and pa.types.is_timestamp(of.type) and of.type.unit == "us"
        return Implied(node, same, not _is_plain(constant, value) or bare is not subject)

    def _alike(self, lower: Node, upper: Node) -> bool:
        """Whether two constants have one type: of some that differ, DuckDB makes no BETWEEN, and is to say so."""
        first, last = self._folder.value(lower), self._folder.value(upper)
        return first is not None and last is not None and bool(first.type == last.type)

    def _is_about(self, subject: Node) -> bool:
        """Whether it reads an indexed column, and no query: of all else, nothing can be told, and constants need not be looked at."""
        about = False
        for node in walk(subject):
            if node.get("class") == "SUBQUERY":
                return False
            column = self._scope.column(node) if node.get("class") == "COLUMN_REF" else None
            about = about or column is not None and column.indexed
        return about

    def _text(self, subject: Node, column: Column | None, op: str, constant: Node, value: str) -> Implied | None:
        if column is not None:  # a literal, or what is one
            if not _is_text(column) or "\0" in value:
                return (
                    Implied(nodes.comparison(_NAMES[op], subject, constant), True, False) if constant.get("class") == "CONSTANT" else None
                )
            new = constant.get("class") not in ("CONSTANT", "PARAMETER")
            return Implied(nodes.comparison(_NAMES[op], subject, nodes.constant(value, "STRING")), True, new)
        given = arguments(subject) if subject.get("class") == "FUNCTION" else []
        name = subject.get("function_name", "").lower()
        if op != where.EQUAL or not (name == "left" and len(given) == 2 or name in ("substr", "substring") and len(given) == 3):
            return None
        of = self._scope.column(given[0])
        numbers = [self._folder.value(one) for one in given[1:]]
        if of is None or any(one is None or not pa.types.is_integer(one.type) for one in numbers):
            return None
        said = [one.as_py() for one in numbers if one is not None]
        return _prefixed(given[0], of, value, False) if said[-1] >= len(value) and said[:-1] in ([], [1]) else None

    def _begins(self, name: str, subject: Node, pattern: Node, escape: Node | None = None) -> Implied | None:
        """Functions that tell what a text begins with."""
        column = self._scope.column(subject)
        if name not in _BEGINS or (name == "like_escape") != (escape is not None) or column is None or not column.indexed:
            return None
        value = self._folder.value(pattern)
        if value is None or not pa.types.is_string(value.type):
            return None
        text = value.as_py()
        if name in ("starts_with", "prefix", "^@"):
            return _prefixed(subject, column, text, True)
        if name == "~~~":
            return _prefixed(subject, column, prefixes.of_glob(text)[0], False)
        sign = self._folder.value(escape) if escape is not None else None
        if escape is not None and (sign is None or not pa.types.is_string(sign.type)):
            return None
        begin, rest = prefixes.of_like(text, "" if sign is None else sign.as_py())
        if not rest and _is_text(column) and "\0" not in begin and sign is None:
            return Implied(nodes.comparison("COMPARE_EQUAL", subject, nodes.constant(begin, "STRING")), True, True)
        return _prefixed(subject, column, begin, rest == "%" and sign is None)


_BEGINS = frozenset({"~~", "~~~", "^@", "starts_with", "prefix", "like_escape"})


def _has_parameters(node: Node) -> bool:
    """Then it has to stay where it is: DuckDB wants to see each of its parameters."""
    return any(one.get("class") == "PARAMETER" for one in walk(node))


def _is_plain(constant: Node, value: pa.Scalar) -> bool:
    """Whether DuckDB hands a comparison of a time with it to a scan by itself."""
    if constant.get("class") == "CAST":
        constant = constant["child"]
    return constant.get("class") in ("CONSTANT", "PARAMETER") and not (pa.types.is_timestamp(value.type) and value.type.tz)


def _is_text(column: Column) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _prefixed(subject: Node, column: Column, begin: str, same: bool) -> Implied | None:
    if not begin or not _is_text(column) or "\0" in begin:
        return None
    ends = [nodes.comparison("COMPARE_GREATERTHANOREQUALTO", subject, nodes.constant(begin, "STRING"))]
    if (after := where.after(begin)) is not None:
        ends.append(nodes.comparison("COMPARE_LESSTHAN", subject, nodes.constant(after, "STRING")))
    return Implied(nodes.both(*ends), same, True)


def bounded(subject: Node, column: Column, span: spans.Span) -> Node | None:
    """That a column lies in an interval of time."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":  # it has moments between two microseconds
        span = None if span[0] is None else span[0] - 1, None if span[1] is None else span[1] + 1
    ends = [
        nodes.comparison(_NAMES[op], subject, made)
        for op, at in zip((where.AT_LEAST, where.AT_MOST), span, strict=True)
        if at is not None and (made := _moment(at, column.type, op == where.AT_LEAST)) is not None
    ]
    if span[0] is not None and span[0] == span[1] and len(ends) == 2 and not pa.types.is_date(column.type):
        return nodes.comparison("COMPARE_EQUAL", subject, ends[0]["right"])
    return nodes.both(*ends) if ends else None


_LAST_OF_NANOS = (1 << 63) // 1000
_UNITS = {"s": ("TIMESTAMP_S", 1_000_000), "ms": ("TIMESTAMP_MS", 1000)}


def _moment(at: int, type_: pa.DataType, first: bool) -> Node | None:
    """A constant for a moment in a column of times: the first value that is not before it, or the last that is not after it."""
    if pa.types.is_date32(type_):
        name, unit = "DATE", spans.DAY
    elif pa.types.is_timestamp(type_):
        name, unit = _UNITS.get(type_.unit, ("TIMESTAMP", 1)) if type_.tz is None else ("TIMESTAMP", 1)
    else:
        return None
    at = -(-at // unit) * unit if first else at // unit * unit
    if pa.types.is_timestamp(type_) and type_.unit == "ns" and abs(at) >= _LAST_OF_NANOS:  # DuckDB casts the constant, and fails
        return None
    try:
        moment = _EPOCH + dt.timedelta(microseconds=at)
    except OverflowError:
        return None
    return nodes.cast(nodes.constant(moment.date().isoformat() if name == "DATE" else str(moment), "STRING"), name)


# ---- values of other tables -----------------------------------------------------------------------------------


def _constant(value: pa.Scalar, column: Column, first: bool = True) -> Node | None:
    """For a value of another column, if both compare alike."""
    t = pa.types
    if t.is_integer(value.type) and t.is_integer(column.type):
        return nodes.constant(str(value.as_py()), "INTEGER")
    if (t.is_string(value.type) or t.is_large_string(value.type)) and _is_text(column):
        return None if "\0" in value.as_py() else nodes.constant(value.as_py(), "STRING")
    at = spans.micros(value)
    return None if at is None else _moment(at, column.type, first)


def _within(subject: Node, column: Column, values: pa.Array) -> Implied | None:
    """That a column has one of these values, or lies between some of them."""
    values = pc.unique(values.drop_null())
    if not len(values):
        return Implied(nodes.truth(False), False, True)
    try:
        values = values.take(pc.sort_indices(values))
    except pa.ArrowException:
        return None
    if len(values) <= MOST_BOXES:
        made = [_constant(value, column) for value in values]
        if None in made:
            return None
        return Implied(nodes.one_of(subject, [one for one in made if one is not None]), False, True)
    cuts = _gaps(values)
    groups = []
    for lo, hi in zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(values) - 1], strict=True):
        first, last = _constant(values[lo], column), _constant(values[hi], column, False)
        if first is None or last is None:
            return None
        ends = (
            nodes.comparison("COMPARE_GREATERTHANOREQUALTO", subject, first),
            nodes.comparison("COMPARE_LESSTHANOREQUALTO", subject, last),
        )
        groups.append(nodes.both(*ends))
    return Implied(nodes.either(*groups), False, True)


def _gaps(values: pa.Array) -> list[int]:
    """The positions in sorted values after which there is a wide gap. To leave out narrow ones would take longer than to read them."""
    if not pa.types.is_integer(values.type) and not pa.types.is_timestamp(values.type):
        return []
    numbers = values.cast(pa.int64(), safe=False).to_numpy().astype(float)
    wide = (numbers[-1] - numbers[0]) / _WIDE
    return [int(at) for at in (numbers[1:] - numbers[:-1] > wide).nonzero()[0]]


def _beyond(subject: Node, column: Column, op: str, values: pa.Array) -> Implied | None:
    """That a column is more or less than some of these values."""
    values = values.drop_null()
    if not len(values):
        return Implied(nodes.truth(False), False, True)
    try:
        ends = pc.min_max(values)
    except pa.ArrowException:
        return None
    rising = op in (where.MORE, where.AT_LEAST)
    made = _constant(ends["min" if rising else "max"], column, rising)
    return (
        None if made is None else Implied(nodes.comparison(_NAMES[where.AT_LEAST if rising else where.AT_MOST], subject, made), False, True)
    )
