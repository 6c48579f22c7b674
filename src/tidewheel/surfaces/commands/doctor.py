"""`tidewheel doctor`: what can be said on the command line."""

from __future__ import annotations

import argparse

from tidewheel.surfaces.arguments import Commands, examples


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        parents=parents,
        help="look at this machine and say what to do so that everything works",
        description="Look at Python, packages, Java, memory, disk and, with -w, the folder of a warehouse, and say what to do. Nothing is\n"
        "changed. Exit code 0: all is well, or nearly; 1: something will not work.",
        epilog=examples(["tidewheel doctor", "tidewheel doctor -w data/wh --spark"]),
    )
    parser.add_argument("--spark", action="store_true", help="also start Spark and run a small job (takes some seconds)")
    parser.set_defaults(no_warehouse=True)


def run(options: argparse.Namespace) -> int:
    from tidewheel.surfaces.checkup import doctor

    return doctor(str(options.warehouse) if options.warehouse else None, options.spark)
