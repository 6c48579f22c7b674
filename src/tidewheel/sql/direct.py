"""Statements that need nothing of DuckDB but its parser: SELECT columns (or totals, or groups) FROM one table WHERE plain comparisons
ORDER BY columns LIMIT n OFFSET m.

Most selective statements are of this kind, and planning them in DuckDB takes longer than reading their rows. Only what is certain to mean
the same is taken: comparisons of a column with a constant of its own kind, of types that DuckDB hands out as they are. All else, and all
that is wrong, goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.model.conditions import Condition
from tidewheel.model.dataclass import dataclass
from tidewheel.model.schema import Ip, TableSpec
from tidewheel.read.boxes import Boxes
from tidewheel.read.condition_bounds import Finder
from tidewheel.read.totals.parse import Total, type_of
from tidewheel.read.totals.sums import Totals
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.grouped_by import check_aliases, check_all_keys, divided
from tidewheel.sql.last_rows import LastRows, check_last_rows, last_rows_of, unnested
from tidewheel.sql.order_limit import Tail, all_terms, plain_name, rows_in, tail_of
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.prepared import Form, Given, Reader, name_of, type_of_column
from tidewheel.sql.totals import totals_of

if TYPE_CHECKING:
    from tidewheel.sql.grouped import Grouped, GroupsAsked, Having

NO_PLACES: Mapping[str, int] = MappingProxyType({})
_OF_A_SOURCE = ("catalog_name", "sample", "column_name_alias", "at_clause")


@dataclass(frozen=True, slots=True)
class Direct:
    """A statement of this kind, as its tree shows it."""

    alias: str
    columns: tuple[tuple[str, str], ...]
    """Column and name; none: all columns."""
    totals: tuple[tuple[Total, str], ...]
    """Total and name, if these are what is asked for."""
    tail: Tail
    where: Any
    grouped: Grouped | None = None
    """What it groups by, if it does."""
    last: LastRows | None = None
    """Of which rows only the last are asked for."""


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
    offset: int = 0
    order_by: tuple[str, ...] = ()
    grouping: GroupsAsked | None = None
    latest: bool = False
    """Of each key, only the last row."""
    having: Condition | None = None
    """Which groups are wanted, by the columns of the query. Then these are put in order, and limited, once they are known."""

    @property
    def at_once(self) -> bool:
        """It has to be one query of the table, whose rows are all of the answer."""
        return bool(self.order_by or self.offset or self.latest or self.grouping is not None)


def direct_of(tree: Any) -> Direct:
    """What a statement of this kind asks, seen by its tree alone. Raises NotDirectError if it is of another kind."""
    node = divided(unnested(tree.get("node", {})))
    source = node.get("from_table") or {}
    if node.get("type") != "SELECT_NODE":
        raise NotDirectError("it is more than one SELECT")
    if (node.get("cte_map") or {}).get("map"):
        raise NotDirectError("it has common table expressions")
    if source.get("type") != "BASE_TABLE" or source.get("schema_name") or any(source.get(part) for part in _OF_A_SOURCE):
        raise NotDirectError("it reads something else than one table")
    tail, where = tail_of(node.get("modifiers") or []), node.get("where_clause")
    last = last_rows_of(node, tail)
    if node.get("sample"):
        raise NotDirectError("it has a SAMPLE")
    check_aliases(node)
    check_all_keys(node)
    alias = (source.get("alias") or source["table_name"]).lower()
    items = node.get("select_list") or []
    plain = node.get("aggregate_handling") == "STANDARD_HANDLING" and not node.get("group_expressions")
    plain = plain and not node.get("group_sets") and not tail.orders and not node.get("having")
    totals = totals_of(items, alias) if plain and not tail.distinct and last is None and tail.offset is None else ()
    if totals:
        return Direct(alias, (), totals, tail, where)
    from tidewheel.sql.grouped import grouped_of  # here: DuckDB, whose tree this is, is loaded

    grouped = grouped_of(node, tail)
    if last is not None and grouped is not None:
        raise NotDirectError("it groups the last rows")
    return Direct(alias, () if grouped is not None else _selected(items, alias), (), tail, where, grouped, last)


def _selected(items: list[Any], alias: str) -> tuple[tuple[str, str], ...]:
    match items:
        case [{"class": "STAR", "relation_name": "", "columns": False, "expr": None} as star]:
            if any(star.get(part) for part in ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "alias")):
                raise NotDirectError("* stands with changes")
            return ()
    columns = tuple(
        (name_of(item, alias), item["alias"] or item["column_names"][-1]) for item in items if item.get("class") == "COLUMN_REF"
    )
    names = [name.lower() for _, name in columns]
    if len(columns) != len(items) or not columns:
        raise NotDirectError("it selects expressions")
    if len(set(names)) < len(names) or len({column.lower() for column, _ in columns}) < len(columns):
        raise NotDirectError("it selects a column or a name twice")
    return columns


# ---- with the table -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement of this kind over its table, looked at once and asked often."""

    columns: tuple[str, ...]
    schema: pa.Schema
    totals: Totals | None
    tail: Tail
    order_by: tuple[str, ...]
    grouping: GroupsAsked | None
    form: Form | None
    """The prepared condition."""
    box: Callable[[Given], Boxes | None] | None
    """The bounds of the condition, where the condition is nothing but a box, or a few."""
    finder: Finder
    parameters: int
    """The number of parameters that the statement takes."""
    width: float
    places: Mapping[str, int]
    latest: bool
    having: Having | None

    def asked(self, given: Given) -> Asked:
        """What is read then. Raises NotDirectError if it goes the long way."""
        if self.parameters != len(given.parameters or ()):  # one too many or too few is for DuckDB to say
            raise NotDirectError("it has other parameters than it takes")
        condition: Condition | None = None
        bounds = None if self.box is None else self.box(given)
        if bounds is None:
            bounds, condition = self.finder.divided(None if self.form is None else self.form(given))
        limit = rows_in(self.tail.limit, self.places, given.constants)
        offset = rows_in(self.tail.offset, self.places, given.constants) or 0
        having = None if self.having is None else self.having.form(given)
        asked = Asked(
            self.columns, self.schema, condition, bounds, self.totals, limit, self.width, offset, self.order_by, self.grouping, self.latest,
            having,
        )  # fmt: skip
        if asked.at_once and len(bounds.boxes) != 1 and not (condition is None and self.finder.is_key_list(bounds)):
            asked = replace(asked, condition=None if self.form is None else self.form(given))  # the one query asks all of it of every row
        return asked


def asked_of(direct: Direct, spec: TableSpec, parameters: Parameters) -> Asked:
    """What such a statement reads of its table. Raises NotDirectError if it goes the long way."""
    return prepared_of(direct, spec).asked(Given((), parameters))


def prepared_of(direct: Direct, spec: TableSpec, places: Mapping[str, int] = NO_PLACES) -> Prepared:
    """Such a statement over its table. `places`: literals that are stand-ins for constants of a number.

    Raises NotDirectError if it goes the long way.
    """
    reader = Reader(direct.alias, spec, places)
    form = None if direct.where is None else reader.condition(direct.where, 0)
    box = None if direct.where is None else reader.box
    totals = _totals(direct, spec) if direct.totals else None
    grouping, having, order_by = None, None, tuple[str, ...]()
    if totals is not None:
        columns, schema = tuple(totals.reads), totals.schema
    elif direct.grouped is not None:
        from tidewheel.sql.grouped import grouping_of

        grouping, having = grouping_of(direct.grouped, direct.tail, direct.alias, spec, places)
        columns, schema, order_by = grouping.reads, grouping.schema, grouping.order_by
    else:
        pairs = direct.columns or tuple((name, name) for name in spec.schema.names)
        columns = tuple(column for column, _ in pairs)
        schema = pa.schema([pa.field(name, _handed_out(type_of_column(column, spec))) for column, name in pairs])
        order_by = _ordered(direct, pairs, spec)
        if direct.last is not None:
            check_last_rows(direct.last, direct.alias, spec)
    widths = [_width(type_) for type_ in schema.types]
    width = sum(widths) if all(widths) else 0.0
    return Prepared(
        columns,
        schema,
        totals,
        direct.tail,
        order_by,
        grouping,
        form,
        box,
        Finder(spec),
        len(reader.used | having.used) if having is not None else len(reader.used),
        width,
        places,
        direct.last is not None,
        having,
    )


def _ordered(direct: Direct, pairs: Sequence[tuple[str, str]], spec: TableSpec) -> tuple[str, ...]:
    """What rows are ordered by: a name of the answer first, then a column of the table."""
    named = {name.lower(): column for column, name in pairs}
    found = []
    for term in all_terms(direct.tail.orders, len(pairs)):
        if isinstance(term.node, int):
            column = pairs[term.node][0]
        else:
            column = named.get(plain_name(term.node) or "") or name_of(term.node, direct.alias)
        _handed_out(type_of_column(column, spec))
        if isinstance(spec.key, Ip) and column == spec.key.column:
            raise NotDirectError("it orders by an address, whose order is not that of texts")
        found.append(term.by(column))
    return tuple(found)


def _totals(direct: Direct, spec: TableSpec) -> Totals:
    for total, _ in direct.totals:
        if total.column:
            type_of_column(total.column, spec)
        if type_of(total, spec.schema) is None:
            raise NotDirectError(f"{total.what} of such a column is not made here")
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
        raise NotDirectError(f"DuckDB makes another type of {type_}")
    return type_
