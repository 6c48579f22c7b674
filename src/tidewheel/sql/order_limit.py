"""ORDER BY, LIMIT, OFFSET and DISTINCT of a statement, seen by its tree: as far as they are plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidewheel.duck.nodes import Node, quoted
from tidewheel.model.dataclass import dataclass
from tidewheel.sql.constants import WHOLE, NotDirectError

_DIRECTIONS = {"ORDER_DEFAULT": False, "ASCENDING": False, "DESCENDING": True}
_NULLS = {"ORDER_DEFAULT": False, "NULLS LAST": False, "NULLS FIRST": True}


@dataclass(frozen=True, slots=True)
class Term:
    """One of the things that rows are ordered by."""

    node: Any
    descending: bool
    nulls_first: bool

    def by(self, column: str) -> str:
        """As a query has it, of a column of its own."""
        return quoted(column) + (" desc" if self.descending else "") + (" nulls first" if self.nulls_first else "")


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands behind the rows of a statement."""

    orders: tuple[Term, ...] = ()
    limit: str | None = None
    """As it is written: where statements are known by their shape, it is a stand-in."""
    offset: str | None = None
    distinct: bool = False
    distinct_on: tuple[Any, ...] = ()


def tail_of(modifiers: Sequence[Any]) -> Tail:
    """Raises NotDirectError if there is anything else."""
    orders: tuple[Term, ...] = ()
    limit = offset = None
    distinct, distinct_on = False, ()
    for one in modifiers:
        match one:
            case {"type": "ORDER_MODIFIER", "orders": terms}:
                orders = tuple(_term(term) for term in terms)
            case {"type": "LIMIT_MODIFIER", "limit_type": "ROW_COUNT", "limit": most, "offset": first}:
                limit, offset = _written(most), _written(first)
            case {"type": "DISTINCT_MODIFIER", "distinct_on_targets": targets}:
                distinct, distinct_on = not targets, tuple(targets or ())
            case _:
                raise NotDirectError("its LIMIT is no number of rows")
    return Tail(orders, limit, offset, distinct, distinct_on)


def _term(term: Any) -> Term:
    if term["type"] not in _DIRECTIONS or term["null_order"] not in _NULLS:
        raise NotDirectError("its ORDER BY is not plain")
    return Term(term["expression"], _DIRECTIONS[term["type"]], _NULLS[term["null_order"]])


def _written(node: Node | None) -> str | None:
    if node is None:
        return None
    literal = node.get("literal") if node.get("class") == "CONSTANT" else None
    if not isinstance(literal, dict) or literal.get("kind") != "INTEGER" or not WHOLE.fullmatch(literal["text"]):
        raise NotDirectError("its LIMIT or OFFSET is no number")
    return str(literal["text"])


def rows_in(written: str | None, places: Mapping[str, int], constants: Sequence[str]) -> int | None:
    """The number of rows that LIMIT or OFFSET says. `places`: numbers of the constants that stand-ins are for."""
    if written is None:
        return None
    text = constants[places[written]] if written in places else written
    if not WHOLE.fullmatch(text) or not 0 <= (number := int(text)) < 1 << 62:
        raise NotDirectError("its LIMIT or OFFSET is no number")
    return number


def all_terms(orders: Sequence[Term], columns: int) -> tuple[Term, ...]:
    """With ORDER BY ALL as that many numbers of columns."""
    found: list[Term] = []
    for term in orders:
        if term.node.get("class") == "STAR":
            if len(orders) > 1 or not term.node.get("columns") or term.node.get("expr"):
                raise NotDirectError("its ORDER BY is not plain")
            found += [Term(number, term.descending, term.nulls_first) for number in range(columns)]
        elif (at := ordinal(term.node)) is not None:
            if not 0 < at <= columns:
                raise NotDirectError("its ORDER BY names no column")
            found.append(Term(at - 1, term.descending, term.nulls_first))
        else:
            found.append(term)
    return tuple(found)


def ordinal(node: Node) -> int | None:
    """The number that a column of the answer is named by; None of all else. Any other constant orders nothing, or is wrong."""
    if node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal")
    if not isinstance(literal, dict) or literal.get("kind") != "INTEGER" or not WHOLE.fullmatch(literal["text"]):
        raise NotDirectError("a constant is what it orders or groups by")
    return int(literal["text"])


def plain_name(node: Node) -> str | None:
    """The name of a column that stands alone, in small letters: an alias is what it means first."""
    names = node.get("column_names") if node.get("class") == "COLUMN_REF" else None
    return names[0].lower() if names and len(names) == 1 else None
