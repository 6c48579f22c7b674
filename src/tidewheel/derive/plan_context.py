"""The attributes of a plan during a walk through it: where they are met, what numbers in them count, what is known of expressions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from tidewheel.derive.plan_names import timed_fields
from tidewheel.derive.plan_tree import PlanError, PlanTree
from tidewheel.derive.row_sets import Out, Rows
from tidewheel.derive.time_conditions import Narrow, narrowing, parts
from tidewheel.derive.time_expressions import Evaluator, Resolve
from tidewheel.derive.time_values import Attr, Value


@dataclass(frozen=True, slots=True)
class PlanScope:
    """One walk through a part of a plan; a part that is walked twice has two."""

    number: int
    outer: PlanScope | None = None


class PlanContext:
    """For one plan. `zone` is the time zone of the session in which it is computed."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self.notes: list[str] = []
        self.scales: dict[Attr, int] = {}
        self._evaluator = Evaluator(self.notes)
        self._numbers = count()

    def scope(self, outer: PlanScope | None = None) -> PlanScope:
        """Of another walk, through a subquery of an outer one if that is given."""
        return PlanScope(next(self._numbers), outer)

    def resolve(self, scope: PlanScope) -> Resolve:
        def resolve(tree: PlanTree) -> tuple[Attr, int | None] | None:
            where: PlanScope | None = scope
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

    def parts(self, tree: PlanTree, scope: PlanScope) -> dict[tuple[str, ...], Value]:
        """What is known of an expression, by fields if it is a struct."""
        return parts(self._evaluator, tree, self.resolve(scope))

    def narrow(self, conditions: list[PlanTree | None], scope: PlanScope) -> Narrow:
        return narrowing(self._evaluator, [one for one in conditions if one is not None], self.resolve(scope))

    def out(self, tree: PlanTree, scope: PlanScope) -> Out:
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

    def moved(self, rows: Rows, scope: PlanScope) -> Rows:
        """Rows of another scope, whose columns come out in this one."""
        return self.known_as(rows, [Out(out.name, (scope.number, out.attr[1]), out.fields) for out in rows.outs])
