"""`tidewheel demo`: what can be said on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidewheel.surfaces.arguments import Commands, count, examples, seconds, seed


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo",
        parents=parents,
        help="stream a simulated taxi fleet through Spark and query it at the same time",
        description="Stream a simulated taxi fleet through Spark into a warehouse, while another process queries it.\n"
        "Ctrl-C ends it early, with the summary.",
        epilog=examples(
            ["tidewheel demo", "tidewheel demo --seconds 20 --without-spark", "tidewheel demo --keep data/demo --rows-per-second 50_000"]
        ),
    )
    parser.add_argument("--seconds", type=seconds, default=45.0, metavar="N", help="how long the fleet drives (default: 45)")
    parser.add_argument("--rows-per-second", type=count, default=20_000, metavar="N", help="how much it sends (default: 20000)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the warehouse in DIR and keep it (default: a temporary folder)")
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help="another number, another fleet (default: 1)")
    parser.add_argument("--without-spark", action="store_true", help="insert the rows without Spark")


def run(options: argparse.Namespace) -> int:
    from tidewheel.programs.demo import director, numbers

    return director.run(
        numbers.DemoRequest(options.seconds, options.rows_per_second, options.keep, options.seed, not options.without_spark)
    )  # fmt: skip
