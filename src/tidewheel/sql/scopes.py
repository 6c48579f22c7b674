"""What a column of a statement is: of which type, of which table, and whether that table is indexed by it. Seen by the tree alone.

What is not plain to see is not known, and then nothing is made of it. Names are found as DuckDB finds them: common table expressions
before tables, and of any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

import pyarrow as pa

from tidewheel.duck.nodes import Node
from tidewheel.model.dataclass import dataclass
from tidewheel.model.schema import TableSpec

_DEEPEST = 20


class TableFacts(Protocol):
    """What has to be known of a table."""

    @property
    def spec(self) -> TableSpec: ...
    @property
    def about(self) -> int:
        """About how many rows it has."""
        ...

    @property
    def times(self) -> tuple[int, int] | None:
        """Codes between which all its times are; None if they are not known here."""
        ...


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table, by whatever name a statement has for it."""

    type: pa.DataType
    table: TableFacts
    indexed: bool
    """It is the table's time, or (a part of) its key."""
    name: str = ""
    """In its table."""


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Something that stands in a FROM."""

    alias: str
    node: Node
    columns: Mapping[str, Column | None] | None
    """By their names in lower case; None in place of what is computed. None: it is not known what there is."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What names of tables mean at a place in a statement."""

    pinned: Mapping[str, TableFacts]
    """By their names in lower case."""
    common: tuple[Node, ...] = ()
    """The common table expressions that are known there, as the tree has them; of one name, the last one counts."""
    frames: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The columns of rows that came with the statement, by their names in lower case."""

    def within(self, node: Node) -> Tables:
        """Inside of a node that may have common table expressions of its own."""
        own = (node.get("cte_map") or {}).get("map") or ()
        return replace(self, common=(*self.common, *own)) if own else self

    def needed(self, node: Node) -> list[Node]:
        """The common table expressions that a node needs to stand alone, in their order."""
        wanted: set[int] = set()
        left = [node]
        while left:
            one = left.pop()
            if one.get("type") == "BASE_TABLE" and not one.get("schema_name"):
                found = self._common(one["table_name"])
                if found is not None and found not in wanted:
                    wanted.add(found)
                    left.append(self.common[found])
            left.extend(
                child for value in one.values() for child in (value if isinstance(value, list) else [value]) if isinstance(child, dict)
            )
        return [self.common[i] for i in sorted(wanted)]

    def _common(self, name: str) -> int | None:
        return next((i for i in range(len(self.common) - 1, -1, -1) if self.common[i]["key"].lower() == name.lower()), None)

    def output(self, node: Node, depth: int = 0) -> dict[str, Column | None] | None:
        """The columns of a query."""
        if node.get("type") != "SELECT_NODE" or depth > _DEEPEST:
            return None
        inside = self.within(node)
        scope = Scope(list(inside.relations(node.get("from_table") or {}, depth + 1)))
        found: dict[str, Column | None] = {}
        for i, item in enumerate(node["select_list"]):
            if item.get("class") == "STAR":
                if any(
                    item.get(part) for part in ("relation_name", "exclude_list", "replace_list", "qualified_exclude_list", "rename_list")
                ):
                    return None
                if item.get("columns") or item.get("expr") or len(scope.relations) != 1 or scope.relations[0].columns is None:
                    return None
                found |= scope.relations[0].columns
            elif item.get("class") == "COLUMN_REF":
                name = (item["alias"] or item["column_names"][-1]).lower()
                found[name] = None if name in found else scope.column(item)
            else:
                found[(item.get("alias") or f"·{i}").lower()] = None
        return found

    def relations(self, source: Node, depth: int = 0) -> Iterator[Relation]:
        """All that stands in a FROM, joined in whatever way."""
        alias = (source.get("alias") or source.get("table_name") or "").lower()
        match source:
            case {"type": "JOIN", "left": left, "right": right}:
                yield from self.relations(left, depth)
                yield from self.relations(right, depth)
            case {"type": "BASE_TABLE", "table_name": name} if not any(source.get(part) for part in _ODD):
                yield Relation(alias, source, self._columns(name, depth))
            case {"type": "SUBQUERY", "subquery": {"node": node}} if not source.get("sample"):
                yield Relation(alias, source, _renamed(self.output(node, depth + 1), source.get("column_name_alias")))
            case {"type": "EXPRESSION_LIST", "values": [first, *_]}:
                yield Relation(alias, source, {f"col{i}": None for i in range(len(first))})
            case {"type": "EMPTY"}:
                pass
            case _:
                yield Relation(alias, source, None)

    def _columns(self, name: str, depth: int) -> Mapping[str, Column | None] | None:
        at = self._common(name)
        if at is not None:
            body = self.common[at]["value"]
            before = replace(self, common=self.common[:at])
            return _renamed(before.output(body["query_node"], depth + 1), body.get("aliases"))
        if (frame := self.frames.get(name.lower())) is not None:
            return {one.lower(): None for one in frame}
        table = self.pinned.get(name.lower())
        if table is None:
            return None
        spec = table.spec
        names = [one.lower() for one in spec.schema.names]
        indexed = {*spec.key.columns, spec.time.column}
        once = [one for one in spec.schema if names.count(one.name.lower()) == 1]
        return {one.name.lower(): Column(one.type, table, one.name in indexed, one.name) for one in once}


def _renamed(columns: Mapping[str, Column | None] | None, names: list[str] | None) -> Mapping[str, Column | None] | None:
    """Columns with other names for the first of them."""
    if columns is None or not names:
        return columns
    new = [*(name.lower() for name in names), *list(columns)[len(names) :]]
    return None if len(new) != len(columns) or len(set(new)) < len(new) else dict(zip(new, columns.values(), strict=True))


_ODD = ("schema_name", "catalog_name", "sample", "column_name_alias", "at_clause")


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that a condition can name."""

    relations: list[Relation] = field(default_factory=list)
    merged: frozenset[str] = frozenset()
    """Columns of USING in inner joins: what has such a name is the same in all tables."""

    def where(self, node: Node) -> Relation | None:
        """What a column is of."""
        names = [name.lower() for name in node["column_names"]]
        if len(names) == 2:
            named = [one for one in self.relations if one.alias == names[0]]
            return named[0] if len(named) == 1 else None
        if len(names) != 1 or any(one.columns is None for one in self.relations):
            return None
        having = [one for one in self.relations if one.columns and names[0] in one.columns]
        return having[0] if len(having) == 1 or having and names[0] in self.merged else None

    def column(self, node: Node) -> Column | None:
        found = self.where(node) if node.get("class") == "COLUMN_REF" else None
        return found.columns.get(node["column_names"][-1].lower()) if found is not None and found.columns else None

    def knows(self, name: str) -> bool:
        """Whether a column may have this name."""
        return any(one.columns is None or name.lower() in one.columns for one in self.relations)
