"""SELECT keys and aggregates FROM one table WHERE … GROUP BY keys ORDER BY … LIMIT n, and SELECT DISTINCT columns: as one query of it.

What the keys and aggregates mean is for `read/groups` to say; names and types of the answer are those that DuckDB gives to the statement
over a table without rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidewheel.duck.evaluator import ROWS, evaluator
from tidewheel.duck.failures import DuckError
from tidewheel.duck.nodes import Node, quoted
from tidewheel.duck.parser import text_of
from tidewheel.errors import QueryError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.plain_values import no_rows
from tidewheel.model.schema import TableSpec
from tidewheel.read.groups.aggregates import NAMES, Aggregate
from tidewheel.read.groups.group_nodes import aggregate_of, key_of, type_of, written
from tidewheel.read.groups.keys import Key
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.grouped_by import bare_columns, check_names
from tidewheel.sql.having import HavingReader
from tidewheel.sql.order_limit import Tail, all_terms, ordinal, plain_name
from tidewheel.sql.prepared import Form

MARK = "·"
"""Begins the names that expressions have in the query: no column has such a name."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """A statement of this kind, as its tree shows it."""

    items: tuple[Any, ...]
    groups: tuple[Any, ...]
    all_keys: bool
    """GROUP BY ALL, or DISTINCT: each item that is no aggregate is a key."""
    node: Any
    having: Any = None
    schema: pa.Schema | None = None
    """Names and types of the answer, if they are known."""


@dataclass(frozen=True, slots=True)
class GroupsAsked:
    """What is asked of a table then."""

    aggregate: Mapping[str, str]
    group_by: tuple[str, ...]
    picked: tuple[int, ...]
    """Columns of the query, by their numbers: those of the answer, in its order."""
    order_by: tuple[str, ...]
    schema: pa.Schema
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Having:
    """Which groups are of the answer."""

    form: Form
    used: frozenset[str]
    """Parameters, by name or number."""


def grouped_of(node: Node, tail: Tail) -> Grouped | None:
    """Whether a SELECT over one table is of this kind, seen by its tree alone; None if it has neither groups nor DISTINCT."""
    groups, sets = node.get("group_expressions") or [], node.get("group_sets") or []
    force = node.get("aggregate_handling") == "FORCE_AGGREGATES"
    if (groups or sets) and (len(sets) != 1 or sorted(sets[0]) != list(range(len(groups))) or not groups):
        raise NotDirectError("it has several sets of groups")
    having = node.get("having")
    if tail.distinct and (groups or force or having):
        raise NotDirectError("it has both DISTINCT and groups")
    items = node.get("select_list") or []
    if not groups and not force and not tail.distinct and not any(_is_call(item) for item in items):
        if having:
            raise NotDirectError("it has HAVING, and no groups")
        return None
    return Grouped(tuple(items), tuple(groups), force or tail.distinct, node, having)


def _is_call(item: Node) -> bool:
    """Whether it is a call of an aggregate, or a cast of one."""
    call = item.get("child") or {} if item.get("class") == "CAST" else item
    return call.get("class") == "FUNCTION" and call["function_name"].lower() in (*NAMES, "count_star")


def grouping_of(grouped: Grouped, tail: Tail, alias: str, spec: TableSpec, places: Mapping[str, int]) -> tuple[GroupsAsked, Having | None]:
    """The query of such a statement. Raises NotDirectError if something in it is not known, or not certain to mean the same."""
    return _Maker(grouped, alias, spec).made(tail, places)


class _Maker:
    def __init__(self, grouped: Grouped, alias: str, spec: TableSpec) -> None:
        self._grouped = grouped
        self._alias = alias
        self._spec = spec
        self._aliases = {item["alias"].lower(): item for item in grouped.items if item.get("alias")}
        self._keys: dict[Key, str] = {}
        """Each with its name in the query."""
        self._aggregates: dict[Aggregate, str] = {}

    def made(self, tail: Tail, places: Mapping[str, int]) -> tuple[GroupsAsked, Having | None]:
        grouped, spec = self._grouped, self._spec
        check_names(list(bare_columns(grouped.node.get("having"))), list(grouped.items), spec)
        for node in grouped.groups:
            self._add_key(self._group(node))
        values = [self._item(item) for item in grouped.items]
        if tail.distinct and self._aggregates:
            raise NotDirectError("it has both DISTINCT and aggregates")
        order_by = tuple(
            term.by(self._name(values[term.node] if isinstance(term.node, int) else self._ordered(term.node, values, tail.distinct)))
            for term in all_terms(tail.orders, len(values))
        )
        having = None if grouped.having is None else self._having(grouped.having, places)
        names = [*self._keys.values(), *self._aggregates.values()]
        picked = tuple(names.index(self._name(value)) for value in values)
        reads = dict.fromkeys([key.column for key in self._keys])
        for one in self._aggregates:
            reads.update(dict.fromkeys([*([one.of.column] if one.of is not None else []), *([one.by] if one.by else [])]))
        asked = GroupsAsked(
            {name: written(one) for one, name in self._aggregates.items()},
            tuple(_text(key, name) for key, name in self._keys.items()),
            picked,
            order_by,
            grouped.schema if grouped.schema is not None else bound(grouped.node, self._alias, spec),
            tuple(reads) or (spec.time.column,),
        )
        return asked, having

    def _having(self, node: Node, places: Mapping[str, int]) -> Having:
        reader = HavingReader(self._named, self._spec, places)
        form = reader.condition(node, 0)
        return Having(form, frozenset(reader.used))

    def _named(self, node: Node) -> tuple[str, pa.DataType]:
        """The column of the groups that HAVING names."""
        name = plain_name(node)
        if name is not None and name in self._aliases:
            meant = self._aliases[name]
            if any(name == one.lower() for one in self._spec.schema.names) and plain_name(meant) != name:
                raise NotDirectError("a name is both that of a column and of the answer")
            node = meant
        value: Key | Aggregate | None = key_of(node, self._spec, self._alias)
        if value is None:
            value = self._aggregate(node)
        elif value not in self._keys:
            raise NotDirectError("its HAVING names a column that is neither grouped by nor aggregated")
        type_ = type_of(value, self._spec.schema)
        assert type_ is not None
        return self._name(value), type_

    def _group(self, node: Node) -> Key:
        if (at := ordinal(node)) is not None:
            if not 0 < at <= len(self._grouped.items):
                raise NotDirectError("it groups by a column that there is not")
            node = self._grouped.items[at - 1]
        elif (name := plain_name(node)) in self._aliases and not any(name == one.lower() for one in self._spec.schema.names):
            node = self._aliases[name or ""]
        key = key_of(node, self._spec, self._alias)
        if key is None:
            raise NotDirectError("what it groups by is not known here")
        return key

    def _add_key(self, key: Key) -> None:
        if key not in self._keys:
            self._keys[key] = key.column if not key.steps else f"{MARK}k{len(self._keys)}"

    def _item(self, item: Node) -> Key | Aggregate:
        if item.get("class") == "STAR":
            raise NotDirectError("* stands beside groups")
        key = key_of(item, self._spec, self._alias)
        if key is not None:
            if self._grouped.all_keys:
                self._add_key(key)
            if key not in self._keys:
                raise NotDirectError("a column is neither grouped by nor aggregated")
            return key
        return self._aggregate(item)

    def _aggregate(self, node: Node) -> Aggregate:
        found = aggregate_of(node, self._spec, self._alias)
        if found is None:
            raise NotDirectError("it has an expression of aggregates, or an unknown one")
        self._aggregates.setdefault(found, f"{MARK}a{len(self._aggregates)}")
        return found

    def _ordered(self, node: Node, values: list[Key | Aggregate], distinct: bool) -> Key | Aggregate:
        """What ORDER BY names: an alias first, then a key or an aggregate."""
        if (name := plain_name(node)) in self._aliases:
            return values[self._grouped.items.index(self._aliases[name or ""])]
        check_names(node, list(self._grouped.items), self._spec)
        key = key_of(node, self._spec, self._alias)
        if key in self._keys:
            return key
        if distinct or key is not None:
            raise NotDirectError("it orders by something that is not in its answer")
        return self._aggregate(node)

    def _name(self, value: Key | Aggregate) -> str:
        return self._keys[value] if isinstance(value, Key) else self._aggregates[value]


def _text(key: Key, name: str) -> str:
    return name if not key.steps else f"{written(key)} AS {quoted(name)}"


def bound(node: Node, alias: str, spec: TableSpec) -> pa.Schema:
    """Names and types of the statement's answer: it is bound over a table without rows."""
    source = {**node["from_table"], "table_name": ROWS, "alias": alias, "qualified_name": {"path": [ROWS]}}
    text = text_of({**node, "from_table": source, "where_clause": None, "having": None, "modifiers": []})
    empty = no_rows(spec.schema)
    try:
        with evaluator() as cursor:
            cursor.register(ROWS, empty)
            return cursor.sql(text).to_arrow_reader().schema
    except (DuckError, QueryError) as e:
        raise NotDirectError(f"DuckDB is to say what is wrong: {e}") from None
