"""Names and places in a plan: sources, columns, fields of structs, window functions."""

from __future__ import annotations

from tidewheel.derive.plan_tree import PlanError, PlanTree

_WRAPPERS = ("Alias", "KnownNullable", "KnownNotNull")
_TIMED = ("timestamp", "timestamp_ntz", "date", "long", "integer")


def view_name(tree: PlanTree) -> str:
    """Of the view that stands for a source."""
    desc = tree.field("desc")
    identifier = desc.get("identifier") if isinstance(desc, dict) else None
    if not isinstance(identifier, dict) or not isinstance(identifier.get("table"), str):
        raise PlanError("a view without a name")
    return str(identifier["table"])


def view_columns(view: PlanTree) -> list[PlanTree]:
    """The columns of a source: those of the relation that its view is."""
    tree = view
    while tree.children:
        tree = tree.children[0]
        if tree.kind == "Project":
            return tree.trees("projectList")
        if tree.field("output"):
            return tree.trees("output")
    raise PlanError("a source without columns")


def unwrapped(tree: PlanTree) -> PlanTree:
    """Without names and what else changes no value."""
    while tree.kind in _WRAPPERS:
        tree = tree.children[0]
    return tree


def timed_fields(tree: PlanTree) -> tuple[str, ...] | None:
    """Where times can be in a column: None, if it may be one itself; else the fields of a struct, all or none."""
    tree = unwrapped(tree)
    if tree.kind == "CreateNamedStruct":
        return tuple(str(key.field("value")) for key in tree.children[::2])
    if tree.kind != "AttributeReference" or isinstance(tree.type, str) and tree.type in _TIMED:
        return None
    fields = tree.type.get("fields") if isinstance(tree.type, dict) else None
    return tuple(str(one.get("name")) for one in fields or ())


def window_function(made: PlanTree) -> str:
    """The function of a window expression, as people write it."""
    found = next((one for one in made.walk() if one.kind == "WindowExpression"), None)
    return f"{function_name(found.children[0] if found is not None else made)}() OVER (…)"


def function_name(tree: PlanTree) -> str:
    """Of an expression: its class, as SQL would say it."""
    if tree.kind == "AggregateExpression":
        tree = tree.children[0]
    return _SQL.get(tree.kind) or "".join(f"_{c.lower()}" if c.isupper() else c for c in tree.kind).strip("_")


_SQL = {
    "Average": "avg", "Now": "now", "MonotonicallyIncreasingID": "monotonically_increasing_id", "SparkPartitionID": "spark_partition_id",
    "ApproximatePercentile": "approx_percentile", "HyperLogLogPlusPlus": "approx_count_distinct", "CurrentTimeZone": "current_timezone",
    "Randn": "randn", "ListAgg": "listagg", "StddevSamp": "stddev", "VarianceSamp": "variance", "LocalTimestamp": "localtimestamp",
    "CurrentTimestampLike": "current_timestamp",
}  # fmt: skip
