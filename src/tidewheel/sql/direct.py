"""Statements that need nothing of DuckDB but its parser: SELECT columns (or totals) FROM one table WHERE plain comparisons LIMIT n.

Most selective statements are of this kind, and planning them in DuckDB takes longer than reading their rows. Only what is certain to mean
the same is taken: comparisons of a column with a constant of its own kind, of types that DuckDB hands out as they are. All else, and all
that is wrong, goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from tidewheel.model.conditions import Condition
from tidewheel.model.schema import TableSpec
from tidewheel.read.boxes import Boxes
from tidewheel.read.condition_bounds import Finder
from tidewheel.read.totals.parse import Total, type_of
from tidewheel.read.totals.sums import Totals
from tidewheel.sql.constants import WHOLE, NotDirectError
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.prepared import Form, Given, Reader, name_of, type_of_column
from tidewheel.sql.totals import totals_of

NO_PLACES: Mapping[str, int] = MappingProxyType({})
_OTHER_PARTS = ("group_expressions", "group_sets", "having", "sample", "qualify")


@dataclass(frozen=True, slots=True)
class Direct:
    """A statement of this kind, as its tree shows it."""

    alias: str
    columns: tuple[tuple[str, str], ...]
    """Column and name; none: all columns."""
    totals: tuple[tuple[Total, str], ...]
    """Total and name, if these are what is asked for."""
    limit: int | None
    where: Any


@dataclass(frozen=True, slots=True)
class Asked:
    """What to read of a table."""

    columns: tuple[str, ...]
    schema: pa.Schema
    condition: Condition | None
    """None: the bounds say it all."""
    bounds: Boxes
    totals: Totals | None
    """What the rows are to come to, if it is not the rows themselves that are asked for. Then `columns` are those that it takes."""
    limit: int | None
    width: float
    """Bytes of a row; 0 if they are not all of one width."""


def direct_of(tree: Any) -> Direct | None:
    """Whether a statement is of this kind, seen by its tree alone."""
    node = tree.get("node", {})
    source = node.get("from_table") or {}
    if node.get("type") != "SELECT_NODE" or any(node.get(part) for part in _OTHER_PARTS) or (node.get("cte_map") or {}).get("map"):
        return None
    if node.get("aggregate_handling") != "STANDARD_HANDLING" or source.get("type") != "BASE_TABLE" or source.get("schema_name"):
        return None
    if any(source.get(part) for part in ("catalog_name", "sample", "column_name_alias", "at_clause")):
        return None
    try:
        limit = _limit(node.get("modifiers") or [])
        alias = (source.get("alias") or source["table_name"]).lower()
        items = node.get("select_list") or []
        totals = totals_of(items, alias)
        columns = () if totals else _selected(items, alias)
    except NotDirectError:
        return None
    return Direct(alias, columns, totals, limit, node.get("where_clause"))


def _limit(modifiers: list[Any]) -> int | None:
    match modifiers:
        case []:
            return None
        case [{"type": "LIMIT_MODIFIER", "limit_type": "ROW_COUNT", "offset": None, "limit": {"class": "CONSTANT", "literal": literal}}]:
            if literal.get("kind") == "INTEGER" and WHOLE.fullmatch(literal["text"]) and int(literal["text"]) >= 0:
                return int(literal["text"])
    raise NotDirectError


def _selected(items: list[Any], alias: str) -> tuple[tuple[str, str], ...]:
    match items:
        case [{"class": "STAR", "relation_name": "", "columns": False, "expr": None} as star]:
            if any(star.get(part) for part in ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "alias")):
                raise NotDirectError
            return ()
    columns = tuple(
        (name_of(item, alias), item["alias"] or item["column_names"][-1]) for item in items if item.get("class") == "COLUMN_REF"
    )
    names = [name.lower() for _, name in columns]
    if len(columns) != len(items) or not columns or len(set(names)) < len(names):
        raise NotDirectError
    if len({column.lower() for column, _ in columns}) < len(columns):  # one column under two names
        raise NotDirectError
    return columns


# ---- with the table -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement of this kind over its table, looked at once and asked often."""

    columns: tuple[str, ...]
    schema: pa.Schema
    totals: Totals | None
    limit: int | None
    form: Form | None
    """The prepared condition."""
    box: Callable[[Given], Boxes] | None
    """The bounds of the condition, where the condition is nothing but a box."""
    finder: Finder
    parameters: int
    """The number of parameters that the statement takes."""
    width: float

    def asked(self, given: Given) -> Asked | None:
        """What is read then; None if it goes the long way."""
        if self.parameters != len(given.parameters or ()):  # one too many or too few is for DuckDB to say
            return None
        condition: Condition | None = None
        try:
            if self.box is not None:
                bounds = self.box(given)
            else:
                condition = None if self.form is None else self.form(given)
                bounds, condition = self.finder.divided(condition)
        except NotDirectError:
            return None
        return Asked(self.columns, self.schema, condition, bounds, self.totals, self.limit, self.width)


def asked_of(direct: Direct, spec: TableSpec, parameters: Parameters) -> Asked | None:
    """What such a statement reads of its table; None if it goes the long way."""
    prepared = prepared_of(direct, spec)
    return None if prepared is None else prepared.asked(Given((), parameters))


def prepared_of(direct: Direct, spec: TableSpec, places: Mapping[str, int] = NO_PLACES) -> Prepared | None:
    """Such a statement over its table; None if it goes the long way. `places`: literals that are stand-ins for constants of a number."""
    try:
        reader = Reader(direct.alias, spec, places)
        form = None if direct.where is None else reader.condition(direct.where, 0)
        box = None if direct.where is None else reader.box
        totals = _totals(direct, spec) if direct.totals else None
        if totals is not None:
            columns, schema = tuple(totals.reads), totals.schema
        else:
            pairs = direct.columns or tuple((name, name) for name in spec.schema.names)
            columns = tuple(column for column, _ in pairs)
            schema = pa.schema([pa.field(name, _handed_out(type_of_column(column, spec))) for column, name in pairs])
    except NotDirectError:
        return None
    widths = [_width(type_) for type_ in schema.types]
    width = sum(widths) if all(widths) else 0.0
    return Prepared(columns, schema, totals, direct.limit, form, box, Finder(spec), len(reader.used), width)


def _totals(direct: Direct, spec: TableSpec) -> Totals:
    for total, _ in direct.totals:
        if total.column:
            type_of_column(total.column, spec)
        if type_of(total, spec.schema) is None:
            raise NotDirectError
    return Totals({name: total for total, name in direct.totals}, spec.schema)


def _width(type_: pa.DataType) -> float:
    """Bytes of a value; 0 if they are not all of one width."""
    try:
        return float(type_.bit_width / 8)
    except ValueError:
        return 0.0


def _handed_out(type_: pa.DataType) -> pa.DataType:
    t = pa.types
    same = t.is_integer(type_) or t.is_float32(type_) or t.is_float64(type_) or t.is_boolean(type_) or t.is_date32(type_)
    same = same or t.is_string(type_) or t.is_binary(type_) or t.is_decimal128(type_)
    if not same and not (t.is_timestamp(type_) and (type_.tz is None or type_.tz == "UTC" and type_.unit == "us")):
        raise NotDirectError
    return type_
