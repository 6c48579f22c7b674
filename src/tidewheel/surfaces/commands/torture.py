"""`tidewheel torture`: the crash test that users run on their own machine; what can be said on the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tidewheel.surfaces.arguments import Commands, count, examples, few, seconds, seed


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "torture",
        parents=parents,
        help="kill an ingest again and again, and prove that nothing it acknowledged is lost",
        description="Kill an ingest with SIGKILL again and again, at random moments. After every restart all rows are read and\n"
        "compared with what was acknowledged. Ctrl-C ends it early, with the proof. Exit code 0: nothing is wrong; 1: something is.",
        epilog=examples(["tidewheel torture --seconds 60 --durability fsync --servers 2 --seed 7"]),
    )
    parser.add_argument("--seconds", type=seconds, default=60.0, metavar="N", help="how long to go on (default: 60)")
    parser.add_argument("--kills", type=count, default=sys.maxsize, metavar="N", help="end after so many kills")
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help="another number, other rows and kills (default: 1)")
    parser.add_argument(
        "--durability", choices=("process", "fsync", "memory"), default="process",
        help="what to prove (default: process); memory promises nothing, and shows that loss is found",
    )  # fmt: skip
    parser.add_argument("--streams", type=few, default=3, metavar="N", help="threads that insert (default: 3)")
    parser.add_argument("--servers", type=few, default=1, metavar="N", help="indexing servers (default: 1)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in DIR, and keep the last warehouse and its journal there")


def run(options: argparse.Namespace) -> int:
    from tidewheel.programs.torture import drive, live_view

    return live_view.run(
        drive.TortureRequest(
            options.seconds, options.kills, options.seed, options.durability, options.streams, options.servers, options.keep
        )
    )
