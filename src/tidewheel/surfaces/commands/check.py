"""`tidewheel check`: what can be said on the command line."""

from __future__ import annotations

import argparse

from tidewheel.surfaces.arguments import Commands, examples


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        parents=parents,
        help="read all of a warehouse and say what is damaged",
        description="Read all of a warehouse, and say what is damaged and what to do. Nothing is changed.\n"
        "Exit code 0: all is well; 1: there are problems.",
        epilog=examples(["tidewheel check -w data/wh", "tidewheel check -w data/wh --format json"]),
    )
    parser.add_argument("--repair", action="store_true", help="move files that no table knows into quarantine/; nothing is deleted")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print the report (default: table)")


def run(options: argparse.Namespace) -> int:
    from tidewheel.surfaces import maintenance_output

    return maintenance_output.check(options.warehouse, options.repair, options.format)
