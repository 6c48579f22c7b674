"""`tidewheel refresh [TABLE …]`: what can be said on the command line."""

from __future__ import annotations

import argparse

from tidewheel.surfaces.arguments import Commands, examples


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "refresh",
        parents=parents,
        help="bring derived tables up to date, once or again and again",
        description="Bring derived tables up to date, each after those that it is made of: all, or the named ones and what they need.\n"
        "Only what is stale is computed, by Spark. Definitions that are Python functions are imported, also from the current folder.\n"
        "Exit code 0: all are up to date; 1: one is not, and why.",
        epilog=examples(
            ["tidewheel refresh -w data/wh", "tidewheel refresh hourly -w data/wh --full", "tidewheel refresh -w data/wh --watch"]
        ),
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="derived tables (default: all)")
    parser.add_argument("--watch", action="store_true", help="go on until Ctrl-C; a line of output for each pass that did something")
    parser.add_argument("--every", default="1 second", metavar="TIME", help="with --watch: the time between two passes (default: 1 second)")
    parser.add_argument("--full", action="store_true", help="compute all partitions of the named tables anew, stale or not")
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: local[*])")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print the report (default: table)")


def run(options: argparse.Namespace) -> int:
    from tidewheel.surfaces import refresh_output

    if options.full and (options.watch or not options.tables):
        from tidewheel.errors import InputError

        raise InputError("--full computes named tables anew, once: tidewheel refresh TABLE --full")
    return refresh_output.refresh(
        options.warehouse, options.tables, options.full, options.watch, options.every, options.master, options.format
    )
