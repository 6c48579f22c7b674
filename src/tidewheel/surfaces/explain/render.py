"""A plan in words, as plain values, as a drawing on a terminal, and as a picture; and the ends of intervals that were typed."""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from tidewheel.errors import QueryError
from tidewheel.model.figures import counted
from tidewheel.model.schema import ColumnKey, TableSpec
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.model.visible_text import visible
from tidewheel.read.result import Result
from tidewheel.surfaces.explain.drawing import draw
from tidewheel.surfaces.explain.labels import is_relative, key_label, key_name
from tidewheel.surfaces.explain.plane import Interval, Region, plane
from tidewheel.surfaces.explain.svg import svg

_WIDEST, _HEIGHT = 100, 16
"""The size of the drawing, in characters."""
_DECIMAL = [digit * 10**power for power in range(19) for digit in (1, 2, 5)]
_DAY = 86_400
_SECONDS = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
    *(_DAY * days for days in (1, 2, 7, 14, 30, 90, 365, 730, 1825, 3650, 36_500, 365_000)),
]  # fmt: skip


def key_value(spec: TableSpec, text: str) -> Any:
    """An end of a key interval, as the key's type has it; None for an open one."""
    if text == "-":
        return None
    if not isinstance(spec.key, ColumnKey):
        return text
    type_ = spec.schema.field(spec.key.column).type
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return time_value(text)
    try:
        return pa.scalar(text).cast(type_).as_py()
    except (pa.ArrowException, ValueError):
        raise QueryError(f"--key: {text!r} is no {type_}, the type of key column {spec.key.column!r}; a minus leaves an end open") from None


def time_value(text: str) -> Any:
    """ISO text, or a whole number in the column's unit; None for an open end."""
    return None if text == "-" else int(text) if re.fullmatch(r"[+-]?\d+", text) else text


def values(result: Result, regions: list[Region]) -> dict[str, Any]:
    """For JSON; keys are codes, times are in the column's unit."""
    plan = result.plan
    query = {"key_intervals": [list(one) for one in plan.key_intervals], "time": list(plan.time)}
    stats = {name: value for name, value in asdict(plan.stats).items() if name.startswith(("regions", "leaves", "rows_scanned"))}
    return {
        "table": plan.table, "generation": plan.generation, "query": query, "stats": stats, "regions": [asdict(one) for one in regions],
    }  # fmt: skip


def show(spec: TableSpec, result: Result, regions: list[Region]) -> None:
    """Print the drawing, fitted to the terminal."""
    if not regions:
        print("  the table has no rows yet")
        return
    console = Console(highlight=False)
    plan, asked = result.plan, _asked(spec, result)
    size = min(console.width, _WIDEST) if console.is_terminal else _WIDEST
    axis = plane(regions, asked, plan.time, 1, _HEIGHT).key  # its ends say how much room the labels need
    keys = key_label(spec, axis.lo), key_label(spec, axis.hi)
    room = size - max(map(len, (*keys, key_name(spec)))) - 3
    made = plane(regions, asked, plan.time, max(room, 20), _HEIGHT)
    times = spec.time.show(made.time.lo), spec.time.show(made.time.hi)
    text = draw(made, keys, times, (key_name(spec), spec.time.column), console.options.ascii_only)
    console.print(text, soft_wrap=True)
    if is_relative(spec) and plan.key_intervals != asked:
        console.print(
            "  codes of text leave out a prefix in which regions may differ: the query is drawn with its times only", soft_wrap=True
        )


def save(path: Path, spec: TableSpec, result: Result, regions: list[Region]) -> None:
    """Write the picture."""
    plan, asked = result.plan, _asked(spec, result)
    read = sum(region.read for region in regions)
    title = f"{plan.table}: {read:,} of {counted(len(regions), 'region')} read"
    keys = visible(key_name(spec)), partial(key_label, spec), _DECIMAL
    times = f"{visible(spec.time.column)} (UTC)", spec.time.show, time_steps(spec.time.nanos)
    path.write_text(svg(regions, asked, plan.time, title, keys, times), encoding="utf-8")


def time_steps(nanos: int) -> list[int]:
    """Steps between times that people call round, in a unit of so many nanoseconds."""
    parts = [step for step in _DECIMAL if step * nanos < 10**9]
    return parts + [seconds * 10**9 // nanos for seconds in _SECONDS if seconds * 10**9 % nanos == 0]


def _asked(spec: TableSpec, result: Result) -> tuple[Interval, ...]:
    """The query's key intervals, as far as they can be drawn."""
    return ((INT64_MIN, INT64_MAX),) if is_relative(spec) else result.plan.key_intervals
