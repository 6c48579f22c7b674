"""`tidewheel describe TABLE`: the columns of a table, with what their values are like."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from tidewheel.surfaces.arguments import Commands, examples, there


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "describe",
        parents=parents,
        help="the columns of a table: types, nulls, least and greatest values, how many are different",
        description="Describe the columns of a table: type, nulls, least and greatest value, about how many different values. All rows\n"
        "are read once. In SQL: SELECT * FROM system.statistics.",
        epilog=examples(["tidewheel describe taxi -w data/wh", "tidewheel describe taxi -w data/wh --format json"]),
    )
    parser.add_argument("table", metavar="TABLE", help="the table")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print it (default: table)")


def run(options: argparse.Namespace) -> int:
    root = there(options.warehouse)

    import tidewheel as tw
    from tidewheel.surfaces.configuration import settings_of

    with tw.open(root, settings=settings_of(root)) as warehouse:
        described = warehouse.table(options.table).describe()
    print(json.dumps(asdict(described), indent=2, default=str) if options.format == "json" else described)
    return 0
