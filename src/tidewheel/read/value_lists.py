"""Long lists of values in an expression: `k IN (1, 2, …)`, and `k = 1 OR k = 2 OR …`.

They are taken out of its text and looked up in a set by Arrow, because DuckDB would parse them anew for every batch. Only what is certain
to mean the same is taken: whole numbers for a column of whole numbers, texts for one of text. All else stays where it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import pyarrow as pa

from tidewheel.model.loading import pc

_LONG = 100
"""Values of a list that is taken."""
_NUMBERS = rf"\s*-?\d++\s*+(?:,\s*+-?\d++\s*+){{{_LONG - 1},}}+"
_TEXTS = rf"\s*'(?:[^']|'')*+'\s*+(?:,\s*+'(?:[^']|'')*+'\s*+){{{_LONG - 1},}}+"
_LIST = re.compile(rf"(?i)([A-Za-z_]\w*|\"[^\"]+\")(\s+NOT)?\s+IN\s*\((?:({_NUMBERS})|({_TEXTS}))\)")
_VALUE = r"(?:-?\d++|'(?:[^']|'')*+')"
_CHAIN = re.compile(rf"(?i)([A-Za-z_]\w*|\"[^\"]+\")\s*=\s*{_VALUE}(?:\s+OR\s+\1\s*=\s*{_VALUE}){{{_LONG - 1},}}")
_CHAINED = re.compile(rf"\s*=\s*({_VALUE})")
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_ODD = re.compile(r"--|/\*|[\\$'\"]|(?i:\bBETWEEN\b)")
"""Signs that make it hard to tell where something begins, outside of quotes."""
_BEFORE = re.compile(r"(?i)(?:\A|\(|,|\b(?:AND|OR|NOT|WHEN|THEN|ELSE))\s*\Z")
_AFTER = re.compile(r"(?i)\s*(?:\Z|\)|,|(?:AND|OR|WHEN|THEN|ELSE|END)\b)")
_BEFORE_OR = re.compile(r"(?i)(?:\A|\(|,|\b(?:OR|WHEN|THEN|ELSE))\s*\Z")
_AFTER_OR = re.compile(r"(?i)\s*(?:\Z|\)|,|(?:OR|WHEN|THEN|ELSE|END)\b)")
_TEXT = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class ValueList:
    """A column of yes and no, that stands for a list: `name` in the expression."""

    name: str
    column: str
    values: pa.Array

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.ChunkedArray | pa.Array:
        """Null where the column is, as in SQL."""
        column = rows.column(self.column)
        return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=self.values), None)


def without_lists(expression: str, schema: pa.Schema) -> tuple[str, tuple[ValueList, ...]]:
    """The expression with a name for each long list, and the lists."""
    if len(expression) < 2 * _LONG:  # the shortest one
        return expression, ()
    if _CHAIN.search(expression) and not _ODD.search(_QUOTED.sub("x", expression)):
        expression = _CHAIN.sub(partial(_as_list, schema=schema), expression)
    found = list(_LIST.finditer(expression))
    rest = _QUOTED.sub("x", _LIST.sub("x", expression))
    if not found or _ODD.search(rest):
        return expression, ()
    lists: list[ValueList] = []
    text, end = "", 0
    for match in found:
        one = _list_of(match, schema, len(lists))
        before = text + expression[end : match.start()]
        if one is None or _is_quoted(expression, match.start()) or not _BEFORE.search(before) or not _AFTER.match(expression, match.end()):
            text, end = text + expression[end : match.end()], match.end()
            continue
        lists.append(one)
        text, end = f'{before}({"NOT " if match[2] else ""}"{one.name}")', match.end()
    return text + expression[end:], tuple(lists)


def _is_quoted(text: str, at: int) -> bool:
    """Whether a place lies inside of a text, or of a name in quotes."""
    return any(one.start() < at < one.end() for one in takewhile(lambda one: one.start() < at, _QUOTED.finditer(text)))


def _as_list(chain: re.Match[str], schema: pa.Schema) -> str:
    """`k IN (1, 2)` for `k = 1 OR k = 2`, where it becomes a list of ours and nothing beside it binds tighter than its ORs."""
    text, start, end = chain.string, chain.start(), chain.end()
    if _is_quoted(text, start) or not _BEFORE_OR.search(text, max(0, start - 20), start) or not _AFTER_OR.match(text, end):
        return chain[0]
    listed = f"{chain[1]} IN ({', '.join(_CHAINED.findall(chain[0][len(chain[1]) :]))})"
    found = _LIST.fullmatch(listed)
    return chain[0] if found is None or _list_of(found, schema, 0) is None else listed


def _list_of(match: re.Match[str], schema: pa.Schema, number: int) -> ValueList | None:
    written = match[1].strip('"').lower()
    named = [name for name in schema.names if name.lower() == written]
    if len(named) != 1:
        return None
    type_ = schema.field(named[0]).type
    try:
        if match[3] is not None and pa.types.is_integer(type_):
            values = pc.cast(pc.ascii_trim_whitespace(pa.array(match[3].split(","))), pa.int64())
            values = _that_fit(values, type_)
        elif match[4] is not None and (pa.types.is_string(type_) or pa.types.is_large_string(type_)):
            values = pa.array([text.replace("''", "'") for text in _TEXT.findall(match[4])], type_)
        else:
            return None
    except pa.ArrowInvalid:  # larger than any of ours
        return None
    return ValueList(f"·in{number}", named[0], values)


def _that_fit(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """A value that the column cannot have is one that no row has."""
    bits, signed = type_.bit_width, pa.types.is_signed_integer(type_)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, min((1 << bits) - 1, (1 << 63) - 1))
    return values.filter(pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))).cast(type_)
