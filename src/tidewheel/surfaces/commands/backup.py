"""`tidewheel backup`: what can be said on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidewheel.surfaces.arguments import Commands, examples


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "backup",
        parents=parents,
        help="back a warehouse up into a folder",
        description="Back a warehouse up into a folder that is empty, or that has an earlier backup of it: then only what is new is added.",
        epilog=examples(["tidewheel backup backups/wh -w data/wh"]),
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the backup")
    parser.add_argument("--verify", choices=("all", "new"), default="all", help="which files of the backup to read (default: all)")


def run(options: argparse.Namespace) -> int:
    from tidewheel.surfaces import maintenance_output

    return maintenance_output.backup(options.warehouse, options.folder, options.verify)
