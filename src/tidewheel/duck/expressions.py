"""SQL expressions over rows: scalar expressions and aggregates only, without a sub-query, a file or another table.

An expression is looked at before it is evaluated: which columns it reads, whether it is a function of rows alone, and whether it keeps to
its limits by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tidewheel.duck.bounded import is_bounded
from tidewheel.duck.error_text import of_another_dialect
from tidewheel.duck.evaluator import ROWS, asked, evaluator
from tidewheel.duck.failures import DuckError
from tidewheel.duck.internals import tree_of_text
from tidewheel.duck.nodes import arguments, walk
from tidewheel.duck.row_functions import MOMENTS, OTHER_WORDS, RowFunctions
from tidewheel.errors import QueryError

LONGEST = 1 << 20
"""Characters of an expression."""

_BEFORE = "SELECT ("
"""What stands before an expression where it is parsed."""

_functions = RowFunctions()


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was looked at."""

    text: str
    columns: tuple[str, ...]
    """Those that it reads, in the order of the table's."""
    bounded: bool
    """Whether it may be evaluated in this process (`duck/bounded.py`)."""
    moments: tuple[tuple[int, int], ...]
    """Where it asks for the time: first byte and the one behind."""

    def calls(self) -> list[str]:
        """What asks for the time."""
        data = self.text.encode()
        return [data[start:end].decode() for start, end in self.moments]


def at_one_moment(expressions: Sequence[Expression]) -> list[str]:
    """Their texts, with the time as it is now wherever they ask for it."""
    calls = list(dict.fromkeys(call for one in expressions for call in one.calls()))
    if not calls:
        return [one.text for one in expressions]
    told = asked("SELECT " + ", ".join(f"CAST({call} AS VARCHAR), typeof({call})" for call in calls))[0]
    values = {call: f"CAST('{told[2 * n]}' AS {told[2 * n + 1]})".encode() for n, call in enumerate(calls)}
    texts = []
    for one in expressions:
        data = one.text.encode()
        for (start, end), call in reversed(list(zip(one.moments, one.calls(), strict=True))):
            data = data[:start] + values[call] + data[end:]
        texts.append(data.decode())
    return texts


def referenced(expression: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that an aggregate reads, in the order of `names`. Raises QueryError if it is not one expression over a table's rows."""
    return looked_at(expression, names, True).columns


@lru_cache(maxsize=512)
def looked_at(expression: str, names: tuple[str, ...], aggregates: bool) -> Expression:
    """Raises QueryError if it is not one expression over the rows of a table, or is no function of them. With `aggregates`, it may
    be about all of them together."""
    if not isinstance(expression, str) or not expression.strip():
        raise QueryError(f'an expression is SQL text like "speed > 30", not {expression!r}')
    if len(expression) > LONGEST:
        raise QueryError(f"the expression has {len(expression):,} characters; at most {LONGEST:,} are taken")
    node = tree_of_expression(expression)
    nodes = list(walk(node))
    used: set[str] = set()
    moments: list[tuple[int, int]] = []
    for one in nodes:
        kind = one.get("class")
        if kind == "SUBQUERY":
            raise _refused(expression, "holds a sub-query", aggregates)
        if kind == "WINDOW":
            raise _refused(expression, f"has a window, {one['function_name']}(…) OVER, which is about other rows too", aggregates)
        if kind == "FUNCTION" and _is_moment(one, expression, aggregates):
            moments.append(_span(one))
        if kind == "STAR":
            used.update(names)
        if kind == "COLUMN_REF":
            found = _columns(one["column_names"], names)
            used.update(found)
            word = one["column_names"][0].lower()
            if not found and len(one["column_names"]) == 1 and word in MOMENTS:
                moments.append(_span(one))
            if not found and len(one["column_names"]) == 1 and word in OTHER_WORDS:
                raise QueryError(f"{word} is not allowed here: it is about the process, not about rows")
    return Expression(expression, tuple(n for n in names if n in used), is_bounded(nodes, expression), tuple(sorted(moments)))


def tree_of_expression(expression: str) -> dict[str, Any]:
    """The node of one expression over the rows of a table. Raises QueryError if it is none, or more than one."""
    try:
        with evaluator() as cursor:
            tree = tree_of_text(cursor, f'{_BEFORE}{expression}\n) FROM "{ROWS}"')
    except DuckError as e:
        raise QueryError(f"cannot read the expression {_short(expression)}: {of_another_dialect(str(e), expression)}") from None
    except RecursionError:
        raise QueryError("the expression has too many levels of brackets or operators within each other") from None
    if tree.get("error"):
        said = of_another_dialect(str(tree.get("error_message")), expression)
        raise QueryError(f"cannot read the expression {_short(expression)}: {said}")
    nodes = [s["node"] for s in tree["statements"]]
    if len(nodes) != 1 or nodes[0].get("type") != "SELECT_NODE" or len(nodes[0]["select_list"]) != 1:
        raise QueryError(f"{_short(expression)} is more than one expression")
    if any(nodes[0].get(part) for part in ("where_clause", "having", "group_expressions", "modifiers", "sample", "qualify")):
        raise QueryError(f"{_short(expression)} is more than one expression")
    return nodes[0]["select_list"][0]  # type: ignore[no-any-return]


def _is_moment(node: dict[str, Any], expression: str, aggregates: bool) -> bool:
    """Whether a call asks for the time. Raises QueryError if it must not be made."""
    name = node["function_name"].lower()
    if (node.get("schema") or node.get("catalog")) and not node.get("is_operator"):
        raise QueryError(f"write {name}(…) without a schema before it")
    kind = _functions.kind(name)
    if kind == "process":
        raise QueryError(f"{name}(…) is not allowed here: it is about the process, not about rows")
    if kind == "changing":
        raise _refused(expression, f"calls {name}(…), which gives something else at every reading", aggregates)
    if kind == "window":
        raise _refused(expression, f"calls {name}(…), which is about other rows too", aggregates)
    if kind == "aggregate" and not aggregates:
        raise _refused(expression, f"aggregates with {name}(…); it must say of every row by itself whether to keep it", aggregates)
    if name == "age" and len(arguments(node)) == 1:
        raise QueryError("age(…) of one time counts from today: write age(current_date, …)")
    return kind == "moment"


def _refused(expression: str, why: str, aggregates: bool) -> QueryError:
    role = "aggregate" if aggregates else "where"
    return QueryError(f'{role}: {_short(expression)} {why}. Ask it with wh.sql("SELECT … FROM …")')


def _short(expression: str) -> str:
    return repr(expression if len(expression) <= 200 else expression[:200] + "…")


def _span(node: dict[str, Any]) -> tuple[int, int]:
    start = node["query_location"] - len(_BEFORE)
    return start, start + node["query_location_length"]


def _columns(parts: list[str], names: tuple[str, ...]) -> list[str]:
    used = []
    for part in parts[:2]:
        alike = [n for n in names if n.lower() == part.lower()]
        if len(alike) > 1:
            raise QueryError(f"columns {' and '.join(alike)} differ only in case, which SQL ignores; use a Python function for where")
        used += alike
    return used
