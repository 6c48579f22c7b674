"""`tidewheel completion SHELL`: a script that lets a shell complete commands, flags, choices and files."""

from __future__ import annotations

import argparse

from tidewheel.surfaces.arguments import Commands, examples


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "completion",
        parents=parents,
        help="a script for bash, zsh or fish that completes commands, flags and files",
        description="Print a script that lets a shell complete commands, flags, choices and files.",
        epilog=examples(
            [
                """echo 'eval "$(tidewheel completion bash)"' >> ~/.bashrc""",
                '''tidewheel completion zsh > "${fpath[1]}/_tidewheel"''',
                "tidewheel completion fish > ~/.config/fish/completions/tidewheel.fish",
            ]
        ),
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    from tidewheel.surfaces.shell_scripts import SCRIPTS, tree_of

    print(SCRIPTS[options.shell]("tidewheel", tree_of(options.parser)), end="")
    return 0
