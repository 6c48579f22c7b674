"""The attributes of a plan during a walk through it: where they are met, what numbers in them count, what is known of expressions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from tidewheel.derive.conditions import Narrow, narrowing, parts
from tidewheel.derive.plan_names import timed_fields
from tidewheel.derive.plan_tree import PlanError, Tree
from tidewheel.derive.row_sets import Out, Rows
from tidewheel.derive.time_expressions import Evaluator, Resolve
from tidewheel.derive.time_values import Attr, Value


@dataclass(frozen=True, slots=True)
class Scope:
    """One walk through a part of a plan; a part that is walked twice has two."""

    number: int
    outer: Scope | None = None


class PlanContext:
    """For one plan. `zone` is the time zone of the session in which it is computed."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self.notes: list[str] = []
        self.scales: dict[Attr, int] = {}
        self._evaluator = Evaluator(self.notes)
        self._numbers = count()

    def scope(self, outer: Scope | None = None) -> Scope:
        """Of another walk, through a subquery of an outer one if that is given."""
        return Scope(next(self._numbers), outer)

    def resolve(self, scope: Scope) -> Resolve:
        def resolve(tree: Tree) -> tuple[Attr, int | None] | None:
            where: Scope | None = scope
            if tree.kind == "OuterReference":
                inner = tree.tree("e")
                if inner is None:
                    return None
                tree, where = inner, scope.outer
            if where is None or tree.id is None:
                return None
            attr: Attr = (where.number, tree.id)
            return attr, self.scales.get(attr)

        return resolve

    def parts(self, tree: Tree, scope: Scope) -> dict[tuple[str, ...], Value]:
        """What is known of an expression, by fields if it is a struct."""
        return parts(self._evaluator, tree, self.resolve(scope))

    def narrow(self, conditions: list[Tree | None], scope: Scope) -> Narrow:
        return narrowing(self._evaluator, [one for one in conditions if one is not None], self.resolve(scope))

    def out(self, tree: Tree, scope: Scope) -> Out:
        """The column that a named expression makes."""
        if tree.id is None:
            raise PlanError(f"{tree.kind} makes no column")
        return Out(tree.name, (scope.number, tree.id), timed_fields(tree))

    def counts(self, out: Out, known: dict[tuple[str, ...], Value]) -> None:
        """A column of numbers counts what the value in it does."""
        value = known.get(())
        if value is not None and value.type == "number" and value.scale is not None:
            self.scales[out.attr] = value.scale

    def known_as(self, rows: Rows, outs: list[Out]) -> Rows:
        """The same rows, whose columns have other attributes, by place."""
        self.scales.update((new.attr, self.scales[old.attr]) for new, old in zip(outs, rows.outs, strict=True) if old.attr in self.scales)
        return rows.known_as(outs, self.scales)

    def moved(self, rows: Rows, scope: Scope) -> Rows:
        """Rows of another scope, whose columns come out in this one."""
        return self.known_as(rows, [Out(out.name, (scope.number, out.attr[1]), out.fields) for out in rows.outs])
