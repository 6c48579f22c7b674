"""`tidewheel restore`: what can be said on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidewheel.surfaces.arguments import Commands, examples


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "restore",
        parents=parents,
        help="make a warehouse of a backup",
        description="Make a warehouse of a backup; every byte is compared with what was backed up.",
        epilog=examples(["tidewheel restore backups/wh data/again"]),
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the backup")
    parser.add_argument("root", type=Path, metavar="ROOT", help="the folder of the new warehouse: missing or empty")


def run(options: argparse.Namespace) -> int:
    from tidewheel.surfaces import maintenance_output

    return maintenance_output.restore(options.folder, options.root)
