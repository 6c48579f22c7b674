"""Statements over one table whose groups are ours, and DuckDB makes the rest: HAVING, expressions of aggregates, windows over groups.

Aggregates and keys become columns of a table of groups, which a query of the table makes; what is left of the statement is over that.
Only if nothing else of the table is named in it, and the names and types of its answer stay the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidewheel.duck import statement_time
from tidewheel.duck.evaluator import evaluator
from tidewheel.duck.failures import DuckError
from tidewheel.duck.nodes import Node, cast, walk
from tidewheel.duck.parser import text_of
from tidewheel.errors import QueryError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.plain_values import no_rows
from tidewheel.model.schema import TableSpec
from tidewheel.read.groups.aggregates import NAMES, Aggregate
from tidewheel.read.groups.group_nodes import aggregate_of, key_of, type_of
from tidewheel.read.groups.keys import Key
from tidewheel.read.totals.parse import SUM
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.direct import Direct, direct_of, prepared_of
from tidewheel.sql.folding import SAFE, is_special
from tidewheel.sql.grouped import MARK, bound
from tidewheel.sql.grouped_by import bare_columns, check_aliases, check_all_keys, check_names, divided, is_aggregate
from tidewheel.sql.order_limit import ordinal, plain_name
from tidewheel.sql.prepared import said
from tidewheel.sql.small import conjuncts

NAME = "·groups"
"""What the table of groups is called in the rest of a statement. No table can be called so."""

_PLACES = frozenset({"query_location", "query_location_length"})
"""Where in its text a node stands: two statements that differ in nothing else are the same."""

_KEPT = frozenset({"CONSTANT", "CAST", "TYPE", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "CASE", "WINDOW", "FUNCTION"})
"""Kinds of nodes that mean the same over groups."""

_FUNCTIONS = """
^ ** & | << >> ~ ! add subtract multiply divide mod pow power xor acos acosh asin asinh atan atan2 atanh cbrt cos cosh cot degrees even exp
fdiv fmod gcd greatest_common_divisor isfinite isinf isnan lcm least_common_multiple ln log log10 log2 pi radians round_even sign signbit
sin sinh sqrt tan tanh nullif if ascii bit_length char_length character_length concat_ws contains ends_with instr lcase len length ltrim
position prefix reverse right rtrim starts_with ^@ strlen strpos suffix ucase split_part ~~ !~~ ~~* !~~* century date_diff date_sub datediff
datesub dayname dayofmonth dayofweek dayofyear decade isodow isoyear julian make_time microsecond millennium millisecond monthname quarter
second strftime week weekday weekofyear yearweek
"""
OVER_GROUPS = SAFE | frozenset(_FUNCTIONS.split())
"""Functions of single values that are the same whenever they are asked: the rest of a statement may call them with keys and aggregates."""


@dataclass(frozen=True, slots=True)
class Rest:
    """A statement, taken apart."""

    groups: Direct
    """What is asked of the table."""
    text: str
    """The rest, over the columns of that."""


_REMEMBERED = 256
"""Statements, without their conditions: to take one apart takes as long as to answer a small one."""

_known: dict[str, tuple[TableSpec, Rest | str]] = {}


def is_grouped(node: Node) -> bool:
    """Whether a SELECT has groups, or an aggregate that is known here."""
    if (
        node.get("group_expressions")
        or node.get("group_sets")
        or node.get("having")
        or node.get("aggregate_handling") == "FORCE_AGGREGATES"
    ):
        return True
    calls = (one["function_name"].lower() for one in walk(node.get("select_list")) if one.get("class") == "FUNCTION")
    return any(name in NAMES or name == "count_star" for name in calls)


def rest_of(node: Node, spec: TableSpec, having: bool = True) -> Rest:
    """Take a SELECT apart. `having`: which groups there are is asked of these before DuckDB sees them, and is no part of the rest.

    Raises NotDirectError if its groups cannot be ours, or something else of its rows is needed.
    """
    check_names(list(bare_columns(node.get("having"))), node.get("select_list") or [], spec)
    node = divided(node, {name.lower() for name in spec.schema.names})
    check_aliases(node)
    check_all_keys(node)
    where, condition = node.get("where_clause"), node.get("having") if having else None
    source = (node.get("from_table") or {}) | {"table_name": spec.name}
    node = node | {"where_clause": None, "from_table": node.get("from_table")} | ({"having": None} if having else {})
    node, ends = _without_ends(node)
    key = repr(_placeless(node | {"from_table": source}))
    found = _known.get(key)
    if found is None or found[0] is not spec and found[0] != spec:
        try:
            found = spec, _taken_apart(node, spec)
        except NotDirectError as e:
            found = spec, str(e)
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[key] = found
    if isinstance(found[1], str):
        raise NotDirectError(found[1])
    groups, text = found[1].groups, found[1].text
    for stand_in, written in ends:
        text = text.replace(stand_in, written)
    if condition is not None:
        if groups.grouped is None:
            raise NotDirectError("it has HAVING, and no groups")
        groups = replace(groups, grouped=replace(groups.grouped, having=_without_aliases(condition, node, spec)))
    return Rest(replace(groups, where=where), text)


def _placeless(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_placeless(one) for one in tree]
    if isinstance(tree, dict):
        return {name: _placeless(value) for name, value in tree.items() if name not in _PLACES}
    return tree


_STAND_INS = ("700000000000000001", "700000000000000002")


def _without_ends(node: Node) -> tuple[Node, list[tuple[str, str]]]:
    """A SELECT with stand-ins for the numbers of its LIMIT and OFFSET, and what these stand for: it is the same statement with others."""
    ends: list[tuple[str, str]] = []
    modifiers = []
    for one in node.get("modifiers") or []:
        if one.get("type") == "LIMIT_MODIFIER":
            one = dict(one)
            for stand_in, part in zip(_STAND_INS, ("limit", "offset"), strict=True):
                literal = (one.get(part) or {}).get("literal") or {}
                if literal.get("kind") == "INTEGER" and literal["text"].isdecimal() and len(literal["text"]) < len(stand_in):
                    ends.append((stand_in, literal["text"]))
                    one[part] = one[part] | {"literal": literal | {"text": stand_in}}
        modifiers.append(one)
    if not ends or any(stand_in in repr(node) for stand_in in _STAND_INS):
        return node, []
    return node | {"modifiers": modifiers}, ends


def _without_aliases(condition: Node, node: Node, spec: TableSpec) -> Node:
    """HAVING with what is selected in place of its names. In an aggregate, no alias can stand."""
    items = [item for item in node.get("select_list") or [] if item.get("alias")]
    columns = {name.lower() for name in spec.schema.names}
    aliases = {item["alias"].lower(): item for item in items if item["alias"].lower() not in columns}

    def made(one: Any) -> Any:
        if isinstance(one, list):
            return [made(part) for part in one]
        if not isinstance(one, dict) or is_aggregate(one):
            return one
        if (name := plain_name(one)) in aliases:
            return aliases[name or ""]
        return {part: made(value) for part, value in one.items()}

    return made(condition)  # type: ignore[no-any-return]


def _taken_apart(node: Node, spec: TableSpec) -> Rest:
    source = node.get("from_table") or {}
    if node.get("type") != "SELECT_NODE" or source.get("type") != "BASE_TABLE" or source.get("schema_name"):
        raise NotDirectError("it reads something else than one table")
    if (node.get("cte_map") or {}).get("map") or node.get("sample"):
        raise NotDirectError("it has common table expressions, or a sample")
    sets, groups = node.get("group_sets") or [], node.get("group_expressions") or []
    if (sets or groups) and (len(sets) != 1 or sorted(sets[0]) != list(range(len(groups))) or not groups):
        raise NotDirectError("it has several sets of groups")
    outside = [node.get(part) for part in ("select_list", "having", "qualify", "modifiers")]
    if any(one.get("class") in ("PARAMETER", "SUBQUERY", "LAMBDA") for one in walk(outside)):
        raise NotDirectError("it has a parameter or a query beside its WHERE")
    parts = _Parts(node, spec, (source.get("alias") or source["table_name"]).lower())
    return parts.taken_apart()


class _Parts:
    def __init__(self, node: Node, spec: TableSpec, alias: str) -> None:
        self._node = node
        self._spec = spec
        self._alias = alias
        self._items = node.get("select_list") or []
        self._aliases = {item["alias"].lower(): item for item in self._items if item.get("alias")}
        self._found: dict[Key | Aggregate, tuple[str, Node]] = {}
        """Keys and aggregates, each with its name among the groups, and as it is written."""

    def taken_apart(self) -> Rest:
        node = self._node
        keys = [self._group(one) for one in node.get("group_expressions") or []]
        if node.get("aggregate_handling") == "FORCE_AGGREGATES":
            keys = [item for item in self._items if not any(aggregate_of(one, self._spec, self._alias) for one in walk(item))]
        for one in keys:
            key = key_of(one, self._spec, self._alias)
            if key is None:
                raise NotDirectError("what it groups by is not known here")
            self._add(key, one, "k")
        keyed = len(self._found)
        names = bound(node, self._alias, self._spec)
        items = [self._over(item) | {"alias": name} for item, name in zip(self._items, names.names, strict=True)]
        having, qualify = node.get("having"), node.get("qualify")
        condition = None if having is None else self._over(having)
        for one in conjuncts(None if having is None else _without_aliases(having, node, self._spec)):
            if not any(aggregate_of(part, self._spec, self._alias) for part in walk(one)):
                raise NotDirectError("a part of its HAVING names keys alone, and so bounds what DuckDB reads")
        check_names([node.get("modifiers"), qualify], self._items, self._spec)
        modifiers = [self._ordered(one) for one in node.get("modifiers") or []]
        rest: Node = node | {
            "select_list": items, "where_clause": condition, "having": None,
            "qualify": None if qualify is None else self._over(qualify), "modifiers": modifiers, "group_expressions": [], "group_sets": [],
            "aggregate_handling": "STANDARD_HANDLING", "from_table": self._source(NAME),
        }  # fmt: skip
        if not self._found or len(self._found) == keyed and not keys:
            raise NotDirectError("it has no groups")
        written = [one | {"alias": name} for name, one in self._found.values()]
        plain = [one for _, one in list(self._found.values())[:keyed]]
        grouped = direct_of(
            {
                "node": node | {
                    "select_list": written, "group_expressions": plain, "group_sets": [list(range(len(plain)))] if plain else [],
                    "having": None, "qualify": None, "modifiers": [], "aggregate_handling": "STANDARD_HANDLING",
                }
            }
        )  # fmt: skip
        text = text_of(rest)
        schema = made_of(grouped, self._spec)
        self._check(text, schema, names)
        if grouped.grouped is not None:
            grouped = replace(grouped, grouped=replace(grouped.grouped, schema=schema))
        return Rest(grouped, text)

    def _group(self, node: Node) -> Node:
        if (at := ordinal(node)) is not None:
            if not 0 < at <= len(self._items):
                raise NotDirectError("it groups by a column that there is not")
            return dict(self._items[at - 1])
        name = plain_name(node)
        if name in self._aliases and not any(name == one.lower() for one in self._spec.schema.names):
            return dict(self._aliases[name])
        return node

    def _add(self, value: Key | Aggregate, node: Node, letter: str) -> str:
        if value not in self._found:
            self._found[value] = f"{MARK}{letter}{len(self._found)}", node
        return self._found[value][0]

    def _over(self, node: Any) -> Any:
        """An expression over the groups."""
        if isinstance(node, list):
            return [self._over(one) for one in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("class")
        if kind is None:
            return {name: self._over(value) for name, value in node.items()}
        key = key_of(node, self._spec, self._alias)
        if key in self._found:
            return self._column(self._found[key][0], node)
        made = aggregate_of(node, self._spec, self._alias)
        if made is not None:
            column = self._column(self._add(made, node, "a"), node)
            return cast(column, "HUGEINT") | {"alias": node.get("alias", "")} if self._is_huge(made) else column
        if kind == "COLUMN_REF":
            name = plain_name(node)
            is_column = any(name == one.lower() for one in self._spec.schema.names)
            if name in self._aliases:
                if is_column:
                    raise NotDirectError("a name is both that of a column and of the answer")
                return node
            if name not in statement_time.WORDS or is_column:
                raise NotDirectError("a column is neither grouped by nor aggregated")
            return node
        if kind not in _KEPT:
            raise NotDirectError(f"it has {said(node)} beside its groups, which is not made here")
        if kind == "FUNCTION" and (node["function_name"].lower() not in OVER_GROUPS or is_special(node)):
            raise NotDirectError(f"it has {said(node)} beside its groups, which is not made here")
        return {name: self._over(value) for name, value in node.items()}

    def _is_huge(self, made: Aggregate) -> bool:
        """Sums of whole numbers are numbers of 128 bits, which Arrow has no other type for than decimals."""
        type_ = None if made.of is None or made.what != SUM or made.cast else type_of(made.of, self._spec.schema)
        return type_ is not None and bool(pa.types.is_integer(type_))

    def _ordered(self, modifier: Node) -> Node:
        if modifier["type"] != "ORDER_MODIFIER":
            return {name: self._over(value) if name == "distinct_on_targets" else value for name, value in modifier.items()}
        terms = [one["expression"] for one in modifier["orders"]]
        if self._node.get("aggregate_handling") == "FORCE_AGGREGATES" and any(
            one.get("class") not in ("STAR", "COLUMN_REF") and any(True for _ in bare_columns(one)) for one in terms
        ):
            raise NotDirectError("it has GROUP BY ALL, and orders by expressions of columns, which DuckDB refuses unless it selects them")
        orders = [
            one if one["expression"].get("class") in ("STAR", "CONSTANT") else one | {"expression": self._over(one["expression"])}
            for one in modifier["orders"]
        ]
        return {**modifier, "orders": orders}

    def _column(self, name: str, node: Node) -> Node:
        place = {"query_location": (1 << 64) - 1, "query_location_length": 0}
        return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": node.get("alias", ""), **place, "column_names": [name]}

    def _source(self, name: str) -> Node:
        return {**self._node["from_table"], "table_name": name, "alias": "", "qualified_name": {"path": [name]}}

    def _check(self, text: str, made: pa.Schema, expected: pa.Schema) -> None:
        """That the rest, over no groups, has the names and types of the statement."""
        empty = no_rows(made)
        try:
            with evaluator() as cursor:
                cursor.register(NAME, empty)
                found = cursor.sql(text).to_arrow_reader().schema
        except (DuckError, QueryError) as e:
            raise NotDirectError(f"it means something else over groups: {e}") from None
        if found != expected:
            raise NotDirectError("its answer would have other types")


def made_of(grouped: Direct, spec: TableSpec) -> pa.Schema:
    """The columns of the groups."""
    return prepared_of(replace(grouped, where=None), spec).schema
