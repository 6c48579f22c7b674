"""Makes the changes that statements ask for. They are made when this returns; what is returned only tells of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from tidewheel.duck.error_text import as_written, pointed
from tidewheel.engine.operations import DropTable, Insert, ListTables
from tidewheel.engine.protocol import Engine, TableEngine
from tidewheel.errors import ExistsError, NotFoundError, QueryError
from tidewheel.model.loading import pc
from tidewheel.model.query import Stats
from tidewheel.model.schema import TableSpec, nearest
from tidewheel.sql.create_table import spec_of
from tidewheel.sql.ddl import Change, CreateStatement, DropStatement, InsertStatement, Named
from tidewheel.sql.ddl_result import ToldResult
from tidewheel.sql.identifiers import meant, unknown
from tidewheel.sql.queries import queries
from tidewheel.sql.statement_result import StatementResult

_LARGE = {pa.float32(): float(1 << 24), pa.float64(): float(1 << 53)}
"""From here on a float does not stand for one whole number alone."""

Ask = Callable[[InsertStatement], StatementResult]
"""The rows that an INSERT is to insert, not read yet."""


def changed(engine: Engine, change: Change, ask: Ask) -> ToldResult:
    """Make a change: all of it or, if this raises, nothing."""
    match change:
        case CreateStatement():
            with queries.running(engine.root, change.text, _nothing, Stats()):
                return _told(engine, change, "created", _create(engine, change))
        case DropStatement():
            with queries.running(engine.root, change.text, _nothing, Stats()):
                return _told(engine, change, "dropped", _drop(engine, change))
        case InsertStatement():
            return _insert(engine, change, ask)


def _nothing() -> None:
    """There is nothing to cancel."""


def _told(engine: Engine, change: Change, what: str, name: str | None) -> ToldResult:
    """The name of the table, or no row if it was left as it was."""
    told = pa.record_batch([pa.array([] if name is None else [name], pa.string())], [what])
    return ToldResult(engine.root, change.text, told, {}, None)


def _create(engine: Engine, create: CreateStatement) -> str | None:
    spec = spec_of(create)
    known = engine.do(ListTables())
    there = next((one for one in known if one.lower() == spec.name.lower()), None)
    if there is None:
        try:
            engine.create(spec, "error")
            return spec.name
        except ExistsError:  # somebody made it just now
            there = spec.name
    if create.or_leave:
        return None
    raise ExistsError(pointed(f"table {there!r} is there already; say IF NOT EXISTS, or drop it first", create.text, create.table.place))


def _drop(engine: Engine, drop: DropStatement) -> str | None:
    known = engine.do(ListTables())
    name = meant(drop.table.name, known, drop.text, drop.table.place)
    if name is not None:
        try:
            engine.do(DropTable(name))
            return name
        except NotFoundError:  # somebody dropped it just now
            pass
    if drop.or_leave:
        return None
    raise unknown(drop.table.name, known, drop.text, drop.table.place)


# ---- INSERT ---------------------------------------------------------------------------------------------------


def _insert(engine: Engine, insert: InsertStatement, ask: Ask) -> ToldResult:
    table = _table(engine, insert)
    try:
        rows = ask(insert)
    except QueryError as e:
        raise QueryError(as_written(str(e), insert.rows, insert.text)) from None
    rows.is_listed = False
    with queries.running(engine.root, insert.text, rows.cancel, rows.stats):
        columns = _columns(insert, table.spec, rows.schema.names)
        batches = rows.to_batches()
        given = pa.Table.from_batches(batches, rows.schema)
        _check_rounding(insert, given, columns, table.spec)
        ack = table.give(Insert(None, "error"), _placed(given, columns, table.spec))
    told = pa.record_batch([pa.array([ack.rows], pa.int64())], ["rows"])
    return ToldResult(engine.root, insert.text, told, {table.spec.name: ack.generation}, rows)


def _table(engine: Engine, insert: InsertStatement) -> TableEngine:
    known = engine.do(ListTables())
    name = meant(insert.table.name, known, insert.text, insert.table.place)
    if name is None:
        raise unknown(insert.table.name, known, insert.text, insert.table.place)
    return engine.table(name)


def _columns(insert: InsertStatement, spec: TableSpec, given: Sequence[str]) -> list[str]:
    """The columns of the table that the columns of the rows go to, in their order."""
    wanted = [replace(insert.table, name=name) for name in given] if insert.by_name else insert.columns
    named = [_column(one.name, spec, insert, one) for one in wanted]
    for i, name in enumerate(named):
        if name in named[:i]:
            raise _wrong(f"column {name!r} is named twice", insert, wanted[i])
    named = named or list(spec.schema.names)
    if len(named) != len(given):
        said = f"the rows have {_so_many(len(given))}, and {_so_many(len(named))} are to be filled: {', '.join(named)}"
        raise _wrong(said, insert, insert.columns[0] if insert.columns else insert.table)
    return named


def _check_rounding(insert: InsertStatement, given: pa.Table, columns: list[str], spec: TableSpec) -> None:
    """The values of a list have one type: beside 1e0, DuckDB makes a DOUBLE of 9007199254740993 too, and behind 1.5 a 1.6 of '1.55'."""
    for i, (name, values) in enumerate(zip(columns, given.columns, strict=True)) if insert.is_list else ():
        to = spec.schema.field(name).type
        if i in insert.texts and not _keeps_texts(values.type, to):
            raise QueryError(f"column {name!r}: the list mixes texts with other values, and would round them; write all of them in one way")
        if values.type not in _LARGE or pa.types.is_floating(to):
            continue
        if pc.any(pc.and_(pc.greater_equal(pc.abs(values), _LARGE[values.type]), pc.is_finite(values))).as_py():
            raise QueryError(
                f"column {name!r}: the list mixes large numbers with ones like 1e0, and would round them; write all as whole numbers"
            )


def _keeps_texts(type_: pa.DataType, to: pa.DataType) -> bool:
    """Whether a text, which DuckDB reads as a value of the list's type, is still what it says when it comes into the column."""
    t = pa.types
    if t.is_timestamp(type_):
        return type_.unit == "ns" or (type_.unit == "us" and not (t.is_timestamp(to) and to.unit == "ns"))
    if t.is_float64(type_):
        return bool(t.is_floating(to))
    return bool(t.is_null(type_) or t.is_string(type_) or (t.is_temporal(type_) and type_ == to))


def _column(name: str, spec: TableSpec, insert: InsertStatement, at: Named) -> str:
    names = spec.schema.names
    alike = [name] if name in names else [one for one in names if one.lower() == name.lower()]
    if len(alike) == 1:
        return str(alike[0])
    if alike:
        raise _wrong(f"columns {' and '.join(alike)} of table {spec.name!r} differ only in case; write the one that is meant", insert, at)
    raise _wrong(f"table {spec.name!r} has no column {name!r}.{nearest(name, names)} Columns: {', '.join(names)}", insert, at)


def _placed(rows: pa.Table, columns: list[str], spec: TableSpec) -> pa.Table:
    """The rows with the names of the table's columns. What is left out is null."""
    given = zip(columns, rows.columns, strict=True)
    placed = {name: _as_floats(values) if pa.types.is_floating(spec.schema.field(name).type) else values for name, values in given}
    left_out = pa.chunked_array([pa.nulls(rows.num_rows)])
    return pa.table([placed.get(name, left_out) for name in spec.schema.names], names=spec.schema.names)


def _as_floats(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """SQL takes 116.397128 for a decimal; where floats are wanted it is the float that is written so, as it is in Python."""
    if not pa.types.is_decimal(values.type) or values.type.scale <= 0:
        return values
    return values.cast(pa.string()).cast(pa.float64())  # Arrow's own way is often off by the last bit


def _so_many(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"


def _wrong(message: str, insert: InsertStatement, at: Named) -> QueryError:
    return QueryError(pointed(message, insert.text, at.place))
