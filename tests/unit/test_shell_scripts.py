"""Completion scripts: they know the whole parser, and bash, zsh and fish take them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tidewheel.surfaces import cli
from tidewheel.surfaces.arguments import commands_of, flags_of
from tidewheel.surfaces.shell_scripts import FILES, NOTHING, OTHER, SCRIPTS, WORDS, tree_of

TREE = tree_of(cli.make_parser())


def test_the_tree_is_the_parser() -> None:
    parsers = commands_of(cli.make_parser())
    assert [one.name for one in TREE] == ["", *parsers]
    for command in TREE[1:]:
        assert [name for flag in command.flags for name in flag.names] == flags_of(parsers[command.name]) and command.help
    create = {name: flag for flag in TREE[1].flags for name in flag.names}
    assert [create[name].takes for name in ("--help", "--if-exists", "--from", "-w", "--key")] == [NOTHING, WORDS, FILES, FILES, OTHER]
    assert create["--column"].repeats and not create["--key"].repeats


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_has_every_command_flag_and_choice(shell: str) -> None:
    script = SCRIPTS[shell]("tidewheel", TREE)
    for command in TREE:
        assert command.name in script
        for flag in command.flags:
            for name in flag.names:
                assert (name if shell != "fish" else f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}") in script
            assert " ".join(flag.words) in script


def completed(words: list[str]) -> list[str]:
    """What bash offers for the last of these words."""
    script = SCRIPTS["bash"]("tidewheel", TREE)
    line = " ".join(f"'{word}'" for word in words)
    code = f'{script}\nCOMP_WORDS=({line})\nCOMP_CWORD={len(words) - 1}\n_tidewheel\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tidewheel st", ["status"]),
        ("tidewheel ", [one.name for one in TREE if one.name]),
        ("tidewheel --v", ["--version"]),
        ("tidewheel --debug cre", ["create"]),
        ("tidewheel status --w", ["--warehouse", "--watch"]),
        ("tidewheel sql -w data/wh --format ", ["table", "json", "csv", "arrow", "markdown"]),
        ("tidewheel sql --format = j", ["json"]),
        ("tidewheel sql --format =", ["table", "json", "csv", "arrow", "markdown"]),
        ("tidewheel completion ", ["bash", "zsh", "fish"]),
        ("tidewheel completion z", ["zsh"]),
        ("tidewheel torture --durability f", ["fsync"]),
        ("tidewheel create taxi --from ", []),
        ("tidewheel create taxi --from x --i", ["--if-exists"]),
        ("tidewheel status --watch --f", ["--format"]),
        ("tidewheel dance --", ["--help", "--debug", "--version"]),
    ],
)
def test_what_bash_completes(line: str, expected: list[str]) -> None:
    assert completed(line.split(" ")) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_takes_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(SCRIPTS[shell]("tidewheel", TREE))
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if shell == "fish":
        offered = subprocess.run(
            ["fish", "--no-config", "-c", f"source {tmp_path}/script; complete -C 'tidewheel sql --format '"],
            capture_output=True,
            text=True,
        )
        assert offered.stdout.split() == ["arrow", "csv", "json", "markdown", "table"]
