"""Statements over any table, asked of several systems in turn: how they are loaded, asked, compared and shown.

Each kind of statement is asked several times, with new constants each time and the same ones for all systems, one system after the other in
an order that rotates. Every answer is compared with the others' before a figure counts. All systems may use two threads.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.report import Bar, Options, Report

THREADS = 2
BATCH = 100_000
"""Rows of one insert."""
Constants = np.random.Generator


@dataclass(frozen=True)
class Given:
    """A table's rows in the order in which they came, and how each system keeps them best."""

    name: str
    rows: pa.Table
    origin: str
    time: str
    key: Any
    """Of create_table."""
    sortings: tuple[str, ...]
    """What DuckDB's sorted copies are ordered by; one copy each."""
    merge_tree: str
    """What chDB's table is ordered by."""
    extra: pa.Array | None = None
    """A column `sorting` that only the sortings of DuckDB may use."""
    few: frozenset[str] = frozenset()
    """Columns of few texts: LowCardinality in chDB."""


@dataclass(frozen=True)
class Asked:
    text: str
    chdb: str | None = None
    """In ClickHouse's words, where `translated` does not find them."""


@dataclass(frozen=True)
class Kind:
    name: str
    bar: float | None
    make: Callable[[Constants], Asked]
    ordered: bool = False
    """Its answer has an order without ties."""


class Keeper(Protocol):
    """A system with one table."""

    name: str
    layout: str

    def load(self, given: Given, folder: Path) -> None: ...
    def ask(self, asked: Asked) -> pa.Table: ...
    def close(self) -> None: ...


# ---- systems ------------------------------------------------------------------------------------------------


@dataclass
class OurTable:
    name: str = "tidewheel"
    layout: str = "default settings"
    warehouse: Any = None
    ways: Counter[str] = field(default_factory=Counter)
    """How many statements were answered by each kind of result since the last look."""

    def load(self, given: Given, folder: Path) -> None:
        import tidewheel as tw

        self.warehouse = tw.open(folder / "wh", settings=tw.Settings(durability="memory"))
        table = self.warehouse.create_table(given.name, given.rows.schema, time=given.time, key=given.key)
        self.layout = (
            f"create_table(time={given.time!r}, key={given.key if isinstance(given.key, str) else 'zorder(lon, lat)'!r}), default settings"
        )
        for batch in given.rows.to_batches(BATCH):
            table.insert(batch)

    def ask(self, asked: Asked) -> pa.Table:
        result = self.warehouse.sql(asked.text)
        self.ways[type(result).__name__] += 1
        answer: pa.Table = result.to_arrow()
        return answer

    def explained(self, asked: Asked) -> str:
        rows = self.warehouse.sql(f"EXPLAIN {asked.text}").to_pylist()
        return "\n".join(str(value) for row in rows for value in row.values())

    def close(self) -> None:
        if self.warehouse is not None:
            self.warehouse.close()


@dataclass
class DuckTable:
    sorting: int | None = None
    """Which of the table's sortings; none: rows lie as they came."""
    name: str = "duckdb"
    layout: str = "rows as they came (zone maps on the time)"
    connection: Any = None

    def __post_init__(self) -> None:
        if self.sorting is not None:
            self.name = "duckdb sorted" if not self.sorting else f"duckdb sorted {self.sorting + 1}"

    def load(self, given: Given, folder: Path) -> None:
        import duckdb

        self.connection = duckdb.connect(str(folder / "rows.duckdb"), config={"threads": THREADS, "fsync_mode": "NONE"})
        self.connection.execute("SET TimeZone = 'UTC'")
        rows = given.rows if given.extra is None or self.sorting is None else given.rows.append_column("sorting", given.extra)
        self.connection.register("given", rows)
        columns = ", ".join(f'"{name}"' for name in given.rows.schema.names)
        by = ""
        if self.sorting is not None:
            by = f" ORDER BY {given.sortings[self.sorting]}"
            self.layout = f"rewritten offline,{by}"
        self.connection.execute(f"CREATE TABLE {given.name} AS SELECT {columns} FROM given{by}")
        self.connection.unregister("given")
        self.connection.execute("CHECKPOINT")

    def ask(self, asked: Asked) -> pa.Table:
        answer: pa.Table = self.connection.sql(asked.text).to_arrow_table()
        return answer

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


_TYPES = {
    pa.int8(): "Int8", pa.int32(): "Int32", pa.int64(): "Int64", pa.float64(): "Float64", pa.float32(): "Float32", pa.string(): "String",
    pa.date32(): "Date32", pa.timestamp("us"): "DateTime64(6, 'UTC')",
}  # fmt: skip


_SETTINGS = f"max_threads = {THREADS}, session_timezone = 'UTC', aggregate_functions_null_for_empty = 1"
"""The last one: totals of no rows are null, as they are elsewhere."""


@dataclass
class ChTable:
    """chDB allows one data folder per process at a time: close one before opening the next."""

    name: str = "chdb"
    layout: str = ""
    session: Any = None

    def load(self, given: Given, folder: Path) -> None:
        from chdb.session import Session

        self.session = Session(str(folder / "chdb"))
        self.session.query("CREATE DATABASE bench ENGINE = Atomic")
        columns = []
        for one in given.rows.schema:
            kind = _TYPES[one.type]
            columns.append(f"{one.name} {f'LowCardinality({kind})' if one.name in given.few else kind}")
        self.layout = f"MergeTree ORDER BY {given.merge_tree}, optimised"
        self.session.query(f"CREATE TABLE bench.{given.name} ({', '.join(columns)}) ENGINE = MergeTree ORDER BY {given.merge_tree}")
        for at in range(0, given.rows.num_rows, 1 << 22):
            path = folder / "part.parquet"
            pq.write_table(given.rows.slice(at, 1 << 22), path, compression="none")
            self.session.query(f"INSERT INTO bench.{given.name} SELECT * FROM file('{path}', Parquet) SETTINGS session_timezone = 'UTC'")
            path.unlink()
        self.session.query(f"OPTIMIZE TABLE bench.{given.name} FINAL")
        self.session.query("USE bench")

    def ask(self, asked: Asked) -> pa.Table:
        text = translated(asked.chdb or asked.text)
        answer: pa.Table = self.session.query(f"{text} SETTINGS {_SETTINGS}", "ArrowTable")
        return answer

    def close(self) -> None:
        if self.session is not None:
            self.session.close()


_WORDS = (
    (re.compile(r"TIMESTAMP '([^']*)'"), r"toDateTime64('\1', 6, 'UTC')"),
    (re.compile(r"DATE '([^']*)'"), r"toDate32('\1')"),
    (re.compile(r"\barg_max\("), "argMax("),
    (re.compile(r"\barg_min\("), "argMin("),
    (re.compile(r"\bstddev\("), "stddevSamp("),
    (re.compile(r"\bcount\(DISTINCT "), "uniqExact("),
    (re.compile(r"time_bucket\(INTERVAL '(\d+) (\w+?)s?', (\w+)\)"), r"toStartOfInterval(\3, INTERVAL \1 \2)"),
    (re.compile(r"\bstarts_with\("), "startsWith("),
    (re.compile(r"SELECT DISTINCT ON \((\w+)\) (.*)$", re.DOTALL), r"SELECT \2 LIMIT 1 BY \1"),
)


def translated(text: str) -> str:
    """A statement in ClickHouse's words."""
    for known, other in _WORDS:
        text = known.sub(other, text)
    return text


# ---- answers ------------------------------------------------------------------------------------------------


def plain(answer: pa.Table, types: Sequence[pa.DataType]) -> list[Any]:
    """Columns of whole numbers, floats and texts, whatever a system makes of them; `types` are those of our answer."""
    return [_plain(column, ours) for column, ours in zip(answer.columns, types, strict=True)]


def _plain(column: pa.ChunkedArray, ours: pa.DataType) -> Any:
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(pa.chunked_array([column.cast(kind.value_type)]), ours)
    if pa.types.is_temporal(kind):
        return column.cast(pa.timestamp("us", getattr(kind, "tz", None))).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if pa.types.is_temporal(ours):  # ClickHouse writes dates as days, and times without a fraction as seconds
        per = 86_400_000_000 if kind == pa.uint16() or pa.types.is_date(ours) else 1_000_000
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False) * per
    if pa.types.is_floating(ours) or pa.types.is_floating(kind):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return pc.cast(column, pa.string()).to_numpy(zero_copy_only=False)


def same(one: pa.Table, other: pa.Table, ours: pa.Table, ordered: bool) -> bool:
    """Whether two answers agree: all exactly, but floats in all but the last digits."""
    if one.num_rows != other.num_rows or one.num_columns != other.num_columns:
        return False
    left, right = (plain(answer, ours.schema.types) for answer in (one, other))
    if not ordered and one.num_rows > 1:
        left, right = _in_order(left), _in_order(right)
    return all(
        np.allclose(a.astype(float), b.astype(float), rtol=1e-9, atol=1e-9, equal_nan=True) if a.dtype.kind == "f" or b.dtype.kind == "f"
        else np.array_equal(a, b)
        for a, b in zip(left, right, strict=True)
    )  # fmt: skip


def _in_order(columns: list[Any]) -> list[Any]:
    """Rows in an order of their own: exact values first, so that the last digits of the others do not matter."""
    exact = [
        np.unique(column, return_inverse=True)[1] if column.dtype.kind == "O" else column for column in columns if column.dtype.kind != "f"
    ]
    floats = [np.round(column, 6) for column in columns if column.dtype.kind == "f"]
    order = np.lexsort((exact + floats)[::-1])
    return [column[order] for column in columns]


# ---- a run --------------------------------------------------------------------------------------------------


@dataclass
class Cell:
    """What was measured of one kind of statement."""

    kind: Kind
    table: str
    seconds: dict[str, list[float]]
    way: str = ""
    """The kinds of results that we gave."""
    rows: int = 0
    example: str = ""
    explained: str = ""
    """Of those in which another system is faster: the plan, and where the time goes."""

    def median(self, system: str) -> float:
        return float(np.median(self.seconds[system]))

    @property
    def ratio(self) -> float | None:
        peers = [name for name in self.seconds if name != "tidewheel"]
        if not peers or "tidewheel" not in self.seconds:
            return None
        return min(self.median(name) for name in peers) / self.median("tidewheel")


def keepers(options: Options, given: Given) -> list[Keeper]:
    made: list[Keeper] = [OurTable(), DuckTable(), *(DuckTable(sorting) for sorting in range(len(given.sortings))), ChTable()]
    return [one for one in made if options.wants(one.name.split()[0])]


@contextmanager
def loaded(given: Given, options: Options, report: Report) -> Iterator[list[Keeper]]:
    """The systems with the rows in them, until they are left."""
    report.note(f"{given.name}: {given.origin}, {given.rows.num_rows:,} rows")
    with ExitStack() as stack:
        systems = keepers(options, given)
        for one in systems:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-side-", ignore_cleanup_errors=True))
            stack.callback(one.close)
            start = time.perf_counter()
            one.load(given, Path(folder))
            report.note(f"  {one.name}: {one.layout}; loaded in {time.perf_counter() - start:.1f} s")
        yield systems


def measure(systems: list[Keeper], kinds: Iterable[Kind], table: str, rounds: int, report: Report) -> list[Cell]:
    """Answers are compared in every turn; the first one only warms up and is not timed."""
    cells = []
    for number, kind in enumerate(kinds):
        rng = np.random.default_rng([number, 15])
        cell = Cell(kind, table, {one.name: [] for one in systems})
        for turn in range(rounds + 1):
            asked = kind.make(rng)
            answers: dict[str, pa.Table] = {}
            for one in systems[turn % len(systems) :] + systems[: turn % len(systems)]:
                start = time.perf_counter()
                answers[one.name] = one.ask(asked)
                if turn:
                    cell.seconds[one.name].append(time.perf_counter() - start)
            _compare(kind, asked, answers)
            cell.rows = max(cell.rows, *(answer.num_rows for answer in answers.values()))
        cell.example = asked.text
        for one in systems:
            if isinstance(one, OurTable):
                cell.way = ", ".join(one.ways)
                one.ways.clear()
                cell.explained = profile(one, asked) if cell.ratio is not None and cell.ratio < 1 else ""
                one.ways.clear()
        cells.append(cell)
        told = "" if cell.ratio is None else f"{cell.ratio:.2f}×"
        report.note(f"  {kind.name}: " + ", ".join(f"{name} {cell.median(name) * 1e3:.2f}" for name in cell.seconds) + f" ms  {told}")
    return cells


def _compare(kind: Kind, asked: Asked, answers: dict[str, pa.Table]) -> None:
    (first, ours), *others = answers.items()
    ours = answers.get("tidewheel", ours)
    for name, answer in others:
        if not same(answers[first], answer, ours, kind.ordered):
            raise AssertionError(f"{first} and {name} differ: {asked.text}\n{answers[first].slice(0, 5)}\n{answer.slice(0, 5)}")


def profile(ours: OurTable, asked: Asked) -> str:
    """Where the time of a statement goes, for those in which another system is faster: the plan and the calls that take longest."""
    import cProfile
    import io
    import pstats

    profiled = cProfile.Profile()
    profiled.runcall(ours.ask, asked)
    out = io.StringIO()
    pstats.Stats(profiled, stream=out).sort_stats("tottime").print_stats(6)
    calls = [
        re.sub(r"\S*/(?=\w+\.py)", "", line.strip()) for line in out.getvalue().splitlines() if re.match(r"\s+\d+(/\d+)?\s+\d+\.\d+", line)
    ]
    return "\n".join([asked.text, *ours.explained(asked).splitlines()[:24], *calls])


def show(report: Report, title: str, cells: Sequence[Cell]) -> dict[str, object]:
    """Prints every cell, and those that are lost with their profiles; what is kept of them."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.seconds))
    rows = []
    for cell in cells:
        figures = [f"{cell.median(name) * 1e3:.2f}" if name in cell.seconds else "–" for name in names]
        ratio, bar = cell.ratio, cell.kind.bar
        kept = "" if ratio is None or bar is None else "" if ratio >= bar else " !"
        rows.append(
            [
                cell.table,
                cell.kind.name,
                *figures,
                "" if ratio is None else f"{ratio:.2f}×{kept}",
                "" if bar is None else f"{bar:g}×",
                cell.way,
            ]
        )
    mean = geometric(cells)
    rows.append(["", "geometric mean", *[""] * len(names), "" if mean is None else f"{mean:.2f}×", "", ""])
    report.table(f"{title}; milliseconds, medians", ["table", "statement", *names, "best ÷ ours", "bar", "answered by"], rows, left=2)
    for cell in cells:
        if cell.explained:
            report.note(f"below 1: {cell.table}, {cell.kind.name}\n{cell.explained}\n")
    return {
        "cells": [
            {
                "table": cell.table, "statement": cell.kind.name, "example": cell.example, "rows": cell.rows, "way": cell.way,
                "median_ms": {name: cell.median(name) * 1e3 for name in cell.seconds}, "ratio": cell.ratio, "bar": cell.kind.bar,
                "profile": cell.explained,
            }
            for cell in cells
        ],
        "geometric_mean": mean,
    }  # fmt: skip


def geometric(cells: Sequence[Cell]) -> float | None:
    ratios = [cell.ratio for cell in cells if cell.ratio is not None]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def bars(cells: Sequence[Cell], what: str, mean: float | None = None) -> list[Bar]:
    """One for each cell that has one, and that of the geometric mean."""
    made = [Bar(f"{cell.table}, {cell.kind.name}", cell.ratio, cell.kind.bar, ">=", "×") for cell in cells if cell.kind.bar is not None]
    return made if mean is None else [*made, Bar(f"{what}, geometric mean of best ÷ ours", geometric(cells), mean, ">=", "×")]
