"""Plans as text: what makes two plans the same, and which tables a statement names before any of them is there."""

from __future__ import annotations

import json
from typing import Any

from tidewheel.derive.plan_tree import PlanError, PlanTree, parse

_EXPR_ID = "org.apache.spark.sql.catalyst.expressions.ExprId"
_NOISE = frozenset({"qualifier", "nonInheritableMetadataKeys", "explicitMetadata", "metadata", "origin"})
"""Fields that say how something was written, or by which object."""


def normalised(plan_json: str) -> str:
    """The same plan, with the numbers of its attributes counted anew from 0: plans of one definition are then the same text."""
    numbers: dict[tuple[str, Any], int] = {}
    return json.dumps(_renumbered(json.loads(plan_json), numbers), separators=(",", ":"))


def _renumbered(value: Any, numbers: dict[tuple[str, Any], int]) -> Any:
    if isinstance(value, list):
        return [_renumbered(one, numbers) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("product-class") == _EXPR_ID:
        return {"product-class": _EXPR_ID, "id": numbers.setdefault(("attribute", value.get("id")), len(numbers))}
    kept = {name: one for name, one in value.items() if name not in _NOISE}
    kind = str(value.get("class", "")).rsplit(".", 1)[-1]
    if kind in ("CTERelationDef", "CTERelationRef"):
        name = "id" if kind == "CTERelationDef" else "cteId"
        kept[name] = numbers.setdefault(("common table", value.get(name)), len(numbers))
    if kind == "View":
        kept["desc"] = {"identifier": (value.get("desc") or {}).get("identifier")}
    return {name: _renumbered(one, numbers) for name, one in kept.items()}


def relations(parsed_json: str) -> list[tuple[str, ...]]:
    """The tables that a parsed statement reads, each once, in order, as (name,) or (schema, name); not what WITH names.

    Within WITH taxi AS (SELECT … FROM taxi), the inner one is the table.
    """
    found: dict[tuple[str, ...], None] = {}
    _relations(parse(parsed_json), frozenset(), found)
    return list(found)


def writes(parsed_json: str) -> str | None:
    """The kind of a statement in it that is more than a query; None, if there is none."""
    return next((tree.kind for tree in parse(parsed_json).walk() if tree.kind.endswith("Statement")), None)


def _relations(tree: PlanTree, hidden: frozenset[str], found: dict[tuple[str, ...], None]) -> None:
    if tree.kind == "UnresolvedRelation":
        text = str(tree.field("multipartIdentifier"))
        if not (text.startswith("[") and text.endswith("]")):
            raise PlanError(f"a table is called {text}")
        name = tuple(text[1:-1].split(", "))
        if len(name) > 1 or name[0].lower() not in hidden:
            found[name] = None
        return
    if tree.kind == "UnresolvedWith":
        for named in tree.field("cteRelations") or ():
            common, body = str(named["_1"]).lower(), PlanTree(iter(named["_2"]))
            _relations(body, hidden | {common} if tree.field("allowRecursion") else hidden, found)
            hidden |= {common}
    inside = () if tree.kind == "UnresolvedWith" else tree.fields()
    for one in (*tree.children, *inside):
        _relations(one, hidden, found)
