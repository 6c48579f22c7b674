"""Spark's analysed plan as a tree, from the JSON that Spark writes of it.

The JSON of a tree is a list of its nodes in preorder, each with the number of its children. Fields of a node that are trees, too, but no
children (the list of a projection, the plan of a subquery), hold such lists in turn. Fields that are children hold a child's index, and
two equal children have one index: go by the place of children, not by these fields. Trees in fields of an *expression* that stands for
another (BETWEEN, try_…: it has a field `replacement`) may be out of date: only its child is what Spark computes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MOST = 32 << 20
"""Characters of JSON beyond which a plan is not looked at: sliding windows of very many steps."""

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."


class PlanError(ValueError):
    """This is no plan that Spark wrote, or one that is too large."""


UNREADABLE = (PlanError, LookupError, TypeError, AttributeError, ValueError, RecursionError)
"""What comes of a plan that has another form than those known: Spark decides on forms, and a newer one may have others."""


class Tree:
    """A node with its children: of a plan, or of an expression. Never changed."""

    __slots__ = ("_fields", "children", "full_name", "kind")

    def __init__(self, nodes: Iterator[Any]) -> None:
        try:
            node = next(nodes)
            self.full_name = str(node["class"])
            self.kind = self.full_name.rsplit(".", 1)[-1]
            self._fields: dict[str, Any] = node
            self.children: tuple[Tree, ...] = tuple(Tree(nodes) for _ in range(node["num-children"]))
        except (StopIteration, KeyError, TypeError) as e:
            raise PlanError(f"a node of the plan cannot be read: {e!r}") from None

    def field(self, name: str) -> Any:
        """A field as it stands in the JSON."""
        return self._fields.get(name)

    def tree(self, name: str) -> Tree | None:
        """A field that is a tree."""
        return _as_tree(self._fields.get(name))

    def trees(self, name: str) -> list[Tree]:
        """A field that is a list of trees; children among them by their index."""
        found = []
        for value in self._fields.get(name) or ():
            if type(value) is int:
                found.append(self.children[value])
            elif (tree := _as_tree(value)) is not None:
                found.append(tree)
            else:
                raise PlanError(f"{name} of {self.kind} is no list of trees")
        return found

    def rows(self, name: str) -> list[list[Tree]]:
        """A field that is a list of lists of trees."""
        return [[tree for value in row if (tree := _as_tree(value)) is not None] for row in self._fields.get(name) or ()]

    @property
    def is_expression(self) -> bool:
        return self.full_name.startswith(_EXPRESSIONS)

    @property
    def id(self) -> int | None:
        """The number of the attribute that this is, or makes."""
        made = self._fields.get("exprId")
        return made["id"] if isinstance(made, dict) and type(made.get("id")) is int else None

    @property
    def name(self) -> str:
        return str(self._fields.get("name", ""))

    @property
    def type(self) -> Any:
        """Its data type: a text, or a dict for structs, arrays and maps."""
        return self._fields.get("dataType")

    def object_name(self, name: str) -> str:
        """A field that is a Scala object: 'LeftOuter' of a join's type."""
        value = self._fields.get(name)
        text = value.get("object") or value.get("product-class") if isinstance(value, dict) else value
        return str(text or "").rsplit(".", 1)[-1].removesuffix("$")

    def fields(self) -> Iterator[Tree]:
        """The trees in its fields, that are no children, in order."""
        for value in self._fields.values():
            yield from _inside(value)

    def walk(self) -> Iterator[Tree]:
        """Itself and all trees in it, fields first: each before what it holds."""
        todo = [self]
        while todo:
            tree = todo.pop()
            yield tree
            todo.extend(reversed([*tree.fields(), *tree.children]))

    def below(self) -> Iterator[Tree]:
        """Itself and its children, and theirs: only what Spark computes."""
        todo = [self]
        while todo:
            tree = todo.pop()
            yield tree
            todo.extend(reversed(tree.children))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self._fields == other._fields and self.children == other.children

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.children))})"


def parse(plan_json: str) -> Tree:
    """The tree of a plan. PlanError, if it is none."""
    if len(plan_json) > MOST:
        raise PlanError(
            f"the plan of this definition has {len(plan_json) >> 20} MB, as sliding windows of very many steps make it: lengthen the slide"
        )
    try:
        value = json.loads(plan_json)
        tree = _as_tree(value)
    except RecursionError:
        raise PlanError("this definition is nested too deeply: make a derived table of a part of it") from None
    except ValueError as e:
        raise PlanError(f"the plan is no JSON: {e}") from None
    if tree is None:
        raise PlanError("the plan has no nodes")
    return tree


def subqueries(expression: Tree) -> Iterator[Tree]:
    """The subqueries in an expression, but not those inside them: nodes with a field `plan`. PlanError for a plan anywhere else."""
    todo = [expression]
    while todo:
        tree = todo.pop()
        if tree.tree("plan") is not None:
            yield tree
            todo.extend(reversed(tree.children))
        elif not tree.is_expression:
            raise PlanError(f"{tree.kind} stands inside an expression")
        else:
            todo.extend(reversed([*tree.fields(), *tree.children]))


def integer(tree: Tree) -> int | None:
    """A whole number that is written down: 5, -5, CAST(5 AS BIGINT)."""
    value = _literal(tree, ("long", "integer", "short", "byte"))
    return value if isinstance(value, int) else None


def interval(tree: Tree) -> int | None:
    """A day-time interval that is written down, in microseconds. None for months, which have no length, and for anything else."""
    return _literal(tree, ("interval second", "interval minute", "interval hour", "interval day"))


def text(tree: Tree) -> str | None:
    value = tree.field("value")
    return str(value) if tree.kind == "Literal" and value is not None and tree.type == "string" else None


def is_null(tree: Tree) -> bool:
    while tree.kind in ("Cast", "Alias"):
        tree = tree.children[0]
    return tree.kind == "Literal" and tree.field("value") is None


def _literal(tree: Tree, types: tuple[str, ...]) -> int | None:
    if tree.kind == "UnaryMinus":
        value = _literal(tree.children[0], types)
        return None if value is None else -value
    if tree.kind == "Cast":
        to, inner = tree.type, tree.children[0]
        whole = types[0] == "long" and (to in types or to == "double")
        fine = types[0] != "long" and _is_day_time(str(to)) and str(to).endswith("second")  # to days alone, it would be cut off
        return _literal(inner, types) if whole or fine else None
    value = tree.field("value")
    known = isinstance(tree.type, str) and (tree.type in types or types[0].startswith("interval") and _is_day_time(tree.type))
    if tree.kind != "Literal" or value is None or not known:
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _is_day_time(type_: str) -> bool:
    return type_.startswith("interval ") and "month" not in type_ and "year" not in type_


def _is_tree(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "num-children" in value[0]


def _as_tree(value: Any) -> Tree | None:
    if not _is_tree(value):
        return None
    nodes = iter(value)
    tree = Tree(nodes)
    if next(nodes, None) is not None:
        raise PlanError(f"nodes are left over after {tree.kind}")
    return tree


def _inside(value: Any) -> Iterator[Tree]:
    if (tree := _as_tree(value)) is not None:
        yield tree
    elif isinstance(value, list):
        for one in value:
            yield from _inside(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _inside(one)
