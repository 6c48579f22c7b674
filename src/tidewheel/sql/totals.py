"""Which totals a statement asks for, seen by its tree: SELECT count(*), sum(a), max(b) AS last … with the names that DuckDB gives them."""

from __future__ import annotations

from typing import Any

from tidewheel.read.totals.parse import AVG, CASTS, COUNT, MAX, MIN, ROWS, SUM, Total


def totals_of(items: list[Any], alias: str) -> tuple[tuple[Total, str], ...]:
    """Each total and its name; none if one of the items is something else, or has a name that another one has."""
    found = [_total(item, alias) for item in items]
    totals = tuple(one for one in found if one is not None)
    names = {name.lower() for _, name in totals}
    return totals if len(names) == len(found) else ()


def column_of(node: Any, alias: str) -> str | None:
    """The name of a column of the table with this alias, as it is written."""
    if node.get("class") != "COLUMN_REF":
        return None
    *before, name = node["column_names"]
    return None if before and [part.lower() for part in before] != [alias] else str(name)


def _total(item: Any, alias: str) -> tuple[Total, str] | None:
    cast, function = "", item
    if item.get("class") == "CAST" and not item.get("try_cast"):
        type_ = item["type_expr"]
        cast, function = str(type_.get("type_name", "")).upper(), item["child"]
        if cast not in CASTS or any(type_.get(part) for part in ("schema", "catalog", "children")):
            return None
    if function.get("class") != "FUNCTION" or (function.get("order_bys") or {}).get("orders"):
        return None
    if any(function.get(part) for part in ("schema", "catalog", "filter", "distinct", "is_operator", "export_state")):
        return None
    what = function["function_name"].lower()
    match function.get("arguments"):
        case [] if what == "count_star":
            total, said = Total(ROWS, cast=cast), "count_star()"
        case [{"name": "", "expression": node}] if what in (COUNT, SUM, MIN, MAX, AVG):
            if (column := column_of(node, alias)) is None:
                return None
            total, said = Total(what, column, cast), f"{what}({'.'.join(node['column_names'])})"
            from tidewheel.duck.tokens import is_plain  # here: DuckDB, whose tree this is, is loaded

            if not item.get("alias") and not all(is_plain(part) for part in node["column_names"]):
                return None
        case _:
            return None
    return total, item.get("alias") or (f"CAST({said} AS {cast})" if cast else said)
