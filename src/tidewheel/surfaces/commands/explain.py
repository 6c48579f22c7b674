"""`tidewheel explain TABLE`: how a query would be answered, as text and as a drawing of the key × time plane."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NoReturn

from tidewheel.surfaces.arguments import Commands, examples, number, there


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
                "tidewheel explain taxi -w data/wh --key - 99 --where 'speed > 60' --svg plan.svg",
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
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also make a picture of the plane, for a browser")
    parser.add_argument("--png", type=_no_png, help=argparse.SUPPRESS)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print it (default: table)")


def run(options: argparse.Namespace) -> int:
    root = there(options.warehouse)

    from tidewheel.surfaces.explain import render
    from tidewheel.surfaces.explain.plane import regions_of
    from tidewheel.surfaces.progress_bar import open_warehouse

    with open_warehouse(root) as warehouse:
        table = warehouse.table(options.table)
        spec = table._engine.spec
        key = tuple(render.key_value(spec, end) for end in options.key) if options.key is not None else None
        time = tuple(render.time_value(end) for end in options.time) if options.time is not None else None
        box = tuple(options.box) if options.box is not None else None
        result = table.query(key=key, box=box, time=time, where=options.where)
        regions = regions_of(table.query().plan, result.plan)
        if options.svg is not None:
            render.save(options.svg, spec, result, regions)
        if options.format == "json":
            print(json.dumps(render.values(result, regions), indent=2))
        else:
            print(result.explain())
            render.show(spec, result, regions)
    return 0


def _no_png(text: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"pictures are SVG now: --svg {Path(text).with_suffix('.svg')}")
