"""`tidewheel explain TABLE`: how a query would be answered, as text and as a drawing of the key × time plane."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.surfaces.arguments import Commands, examples, number, there

if TYPE_CHECKING:
    from tidewheel.model.schema import TableSpec
    from tidewheel.read.result import Result
    from tidewheel.surfaces.explain.plane import Interval, Region

_WIDEST, _HEIGHT = 100, 16
"""Of the drawing, in characters."""


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "explain",
        parents=parents,
        help="what a query reads and what it leaves out, as text and as a drawing",
        description="Say how a query would be answered, and draw the key × time plane: the regions that it reads, those that are pruned,\n"
        "and where the query is. Intervals are closed; a minus leaves an end open. Nothing is read but the index.",
        epilog=examples(
            [
                "tidewheel explain taxi -w data/wh --key 10 12 --time '2026-01-01 08:00' '2026-01-01 08:05'",
                "tidewheel explain taxi -w data/wh --key - 99 --where 'speed > 60' --png plan.png",
                "tidewheel explain cabs -w data/wh --box 116.3 39.8 116.5 40.0 --format json",
            ]
        ),
    )
    parser.add_argument("table", metavar="TABLE", help="the table")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", nargs=2, metavar=("LO", "HI"), help="the key interval")
    keys.add_argument("--box", nargs="+", type=number, metavar="N", help="of a z-order table: all lower ends, then all upper ends")
    parser.add_argument(
        "--time", nargs=2, metavar=("FROM", "TO"), help="the time interval: ISO text, or whole numbers in the column's unit"
    )
    parser.add_argument("--where", metavar="CONDITION", help="a further condition, in SQL: it prunes nothing")
    parser.add_argument("--png", type=Path, metavar="FILE", help="also make a picture of the plane")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print it (default: table)")


def run(options: argparse.Namespace) -> int:
    root = there(options.warehouse)

    import tidewheel as tw
    from tidewheel.surfaces.configuration import settings_of
    from tidewheel.surfaces.explain.plane import regions_of

    with tw.open(root, settings=settings_of(root)) as warehouse:
        table = warehouse.table(options.table)
        spec = table._engine.spec
        box = tuple(options.box) if options.box is not None else None
        key = tuple(key_value(spec, end) for end in options.key) if options.key is not None else None
        time = tuple(time_value(end) for end in options.time) if options.time is not None else None
        result = table.query(key=key, box=box, time=time, where=options.where)
        regions = regions_of(table.query().plan, result.plan)
        if options.png is not None:
            _picture(options.png, spec, result, regions)
        if options.format == "json":
            print(json.dumps(_values(result, regions), indent=2))
        else:
            print(result.explain())
            _draw(spec, result, regions)
    return 0


def key_value(spec: TableSpec, text: str) -> Any:
    """An end of a key interval, as the key's type has it; None for an open one."""
    import pyarrow as pa

    from tidewheel.errors import QueryError
    from tidewheel.model.schema import ColumnKey

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


def _values(result: Result, regions: list[Region]) -> dict[str, Any]:
    from dataclasses import asdict

    plan = result.plan
    query = {"key_intervals": [list(one) for one in plan.key_intervals], "time": list(plan.time)}
    stats = {name: value for name, value in asdict(plan.stats).items() if name.startswith(("regions", "leaves", "rows_scanned"))}
    return {
        "table": plan.table, "generation": plan.generation, "query": query, "stats": stats, "regions": [asdict(one) for one in regions],
    }  # fmt: skip


def _draw(spec: TableSpec, result: Result, regions: list[Region]) -> None:
    from rich.console import Console

    from tidewheel.surfaces.explain.drawing import draw
    from tidewheel.surfaces.explain.labels import is_relative, key_label, key_name
    from tidewheel.surfaces.explain.plane import plane

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


def _asked(spec: TableSpec, result: Result) -> tuple[Interval, ...]:
    """The query's key intervals, as far as they can be drawn."""
    from tidewheel.model.times import INT64_MAX, INT64_MIN
    from tidewheel.surfaces.explain.labels import is_relative

    return ((INT64_MIN, INT64_MAX),) if is_relative(spec) else result.plan.key_intervals


def _picture(path: Path, spec: TableSpec, result: Result, regions: list[Region]) -> None:
    from tidewheel.surfaces.explain.labels import key_label, key_name
    from tidewheel.surfaces.explain.plane import plane
    from tidewheel.surfaces.explain.png import inner_size, paint

    plan, asked = result.plan, _asked(spec, result)
    made = plane(regions, asked, plan.time, *inner_size())
    read = sum(region.read for region in regions)
    title = f"{plan.table}: {key_name(spec)} by {spec.time.column}, {read} of {len(regions)} regions read"
    ends = [key_label(spec, made.key.lo), key_label(spec, made.key.hi), spec.time.show(made.time.lo), spec.time.show(made.time.hi)]
    path.write_bytes(paint(made, regions, asked, plan.time, [title, *ends]))
