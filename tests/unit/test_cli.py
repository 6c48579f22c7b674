"""The command line: what it prints, its exit codes, and that it starts light."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tidewheel as tw
from tidewheel.errors import StorageError
from tidewheel.programs.demo.numbers import DemoRequest
from tidewheel.programs.torture.drive import TortureRequest
from tidewheel.surfaces import cli
from tidewheel.surfaces.arguments import ELSEWHERE, commands_of
from tidewheel.surfaces.commands import demo

HEAVY = ("numba", "duckdb", "sqlalchemy", "pandas", "pyarrow", "numpy", "rich")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    listed = out.partition("commands:")[2].partition("example")[0]
    assert [line.split()[0] for line in listed.splitlines() if line.startswith("    ") and line[4] != " "] == list(cli._COMMANDS)
    assert "--version" in out


@pytest.mark.parametrize("command", sorted(commands_of(cli.make_parser())))
def test_every_command_has_help_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    out = capsys.readouterr().out
    body, _, shown = out.partition("example")
    assert "--debug" in body and f"tidewheel {command}" in shown
    parser = commands_of(cli.make_parser())[command]
    assert all(action.help for action in parser._actions), "every flag says what it is for"
    hidden = {flag for action in parser._actions if action.help == argparse.SUPPRESS for flag in action.option_strings}
    assert hidden <= {"--png"}  # which is refused, with what to say instead


def examples() -> list[str]:
    """Every example of every help that is one command without a pipe; what a script is written into is left out."""
    helps = [parser.epilog or "" for parser in (cli.make_parser(), *commands_of(cli.make_parser()).values())]
    lines = [line.strip() for text in helps for line in text.splitlines() if line.strip().startswith("tidewheel ")]
    return sorted({line.partition(" > ")[0] if " completion " in line else line for line in lines})


@pytest.mark.parametrize("example", examples())
def test_examples_can_be_said(example: str) -> None:
    options = cli.make_parser().parse_args(shlex.split(example)[1:])
    assert options.command == example.split()[1]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["statis"], "there is no command 'statis'. Did you mean 'status'?"),
        (["ingset", "t"], "Did you mean 'ingest'?"),
        (["status", "--wach"], "there is no '--wach' here. Did you mean '--watch'?"),
        (["status", "--formt=json"], "Did you mean '--format'?"),
        (["status", "--format", "jsn"], "argument --format: invalid choice: 'jsn'. Did you mean 'json'? Choose from table, json"),
        (["--vrsion"], "Did you mean '--version'?"),
        (["sql", "--form", "csv"], "Did you mean '--format'?"),
        (["drop", "taxi"], "there is no command 'drop'. A table is dropped by: tidewheel sql -c 'DROP TABLE name'"),
        (["tables"], "tidewheel status, and tidewheel sql -c 'SHOW TABLES'"),
        (["sql", "SELECT 1"], "there is no 'SELECT 1' here. A statement comes behind -c"),
        (["sql", "."], "there is no '.' here. The warehouse comes behind -w"),
    ],
)
def test_what_is_mistyped_is_told_with_the_nearest_name(
    argv: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEWHEEL_WAREHOUSE", "somewhere")
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert said in err and len(err.splitlines()) == 2 and "--help" in err


@pytest.mark.parametrize("command", sorted(ELSEWHERE))
def test_what_is_done_by_another_command_is_no_command(command: str) -> None:
    assert command not in commands_of(cli.make_parser())
    advised = re.findall(r"tidewheel (\w+)", ELSEWHERE[command])
    assert advised and all(name in commands_of(cli.make_parser()) for name in advised)


def test_help_and_version_without_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help"]) == 0
    assert "A real-time stream warehouse" in capsys.readouterr().out
    assert cli.main(["help", "load"]) == 0
    assert "usage: tidewheel load" in capsys.readouterr().out
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("tidewheel ")


def test_a_load_without_a_warehouse_says_how_one_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("plate,ts\n1,2026-01-01\n")
    assert cli.main(["load", "taxi", str(tmp_path / "a.csv"), "-w", str(tmp_path / "wh")]) == 1
    assert "give --time COLUMN and --key COLUMN, and it is made, with table taxi" in capsys.readouterr().err
    assert not (tmp_path / "wh").exists()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tidewheel ")


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "usage: tidewheel" in captured.err


@pytest.mark.parametrize(
    "argv",
    [
        ["dance"],
        ["demo", "--seconds", "0"],
        ["demo", "--seconds", "-1"],
        ["demo", "--seconds", "nan"],
        ["demo", "--seconds", "soon"],
        ["demo", "--rows-per-second", "0"],
        ["demo", "--rows-per-second", "1.5"],
        ["demo", "--rows-per-second", "inf"],
        ["demo", "--seed", "-1"],
        ["demo", "--keep"],
        ["demo", "--unknown"],
        ["demo", "extra"],
        ["torture", "--seconds", "0"],
        ["torture", "--kills", "0"],
        ["torture", "--durability", "prayer"],
        ["torture", "--streams", "65"],
        ["torture", "--servers", "1.5"],
        ["ingest", "taxi", "-w", "wh", "--from", "in", "--option", "a=@nowhere"],
        ["ingest", "taxi", "-w", "wh", "--from", "in", "--option", f"a=@{sys.executable}"],
    ],
)
def test_wrong_command_lines_exit_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert "error:" in err and "Traceback" not in err


def test_options_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("tidewheel.programs.demo.director.run", lambda request: seen.append(request) or 0)
    assert cli.main(["demo"]) == 0
    assert cli.main(["demo", "--seconds", "1.5", "--rows-per-second", "1_000", "--keep", "here", "--seed", "9", "--without-spark"]) == 0
    assert seen == [DemoRequest(), DemoRequest(1.5, 1000, Path("here"), 9, spark=False)]


def test_torture_options_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("tidewheel.programs.torture.live_view.run", lambda request: seen.append(request) or 0)
    argv = "torture --seconds 5 --kills 3 --seed 9 --durability fsync --streams 2 --servers 4 --keep here"
    assert cli.main(argv.split()) == 0 and cli.main(["torture"]) == 0
    assert seen == [TortureRequest(5.0, 3, 9, "fsync", 2, 4, Path("here")), TortureRequest()]


@pytest.mark.parametrize("error", [StorageError("the disk\nis full"), OSError("the disk is full")])
def test_errors_are_one_line_without_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(options: object) -> int:
        raise error

    monkeypatch.setitem(cli._COMMANDS, "demo", (demo.add, fail))
    assert cli.main(["demo"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "tidewheel: the disk is full\n" and captured.out == ""


@pytest.mark.parametrize("argv", [["--debug", "demo"], ["demo", "--debug"]])
def test_debug_shows_the_traceback(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: object) -> int:
        raise StorageError("the disk is full")

    monkeypatch.setitem(cli._COMMANDS, "demo", (demo.add, fail))
    with pytest.raises(StorageError):
        cli.main(argv)


def test_ctrl_c_is_not_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli._COMMANDS, "demo", (demo.add, interrupt))
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "tidewheel: interrupted\n"


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    code = f"import sys, tidewheel.surfaces.cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_reader_that_has_enough_is_no_error() -> None:
    """As `tidewheel … | head -1`: the pipe is closed before anything is printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidewheel.surfaces.cli", "completion", "zsh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    with process:
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait(30) == 0


def run_in_shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    line = line.replace("tidewheel", f"{shlex.quote(sys.executable)} -m tidewheel.surfaces.cli")
    return subprocess.run(["sh", "-c", line], capture_output=True, env={**os.environ, **environment}, timeout=60)


def test_a_terminal_that_is_not_utf8() -> None:
    done = run_in_shell("tidewheel create --help", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stderr == b"" and rb"A,B,\u2026" in done.stdout


def test_words_that_are_not_utf8(tmp_path: Path) -> None:
    """They are an error, unless they are the name of a file."""
    done = run_in_shell("tidewheel create t -w wh --column \"$(printf '\\377'):int64\" --column ts:timestamp --key a")
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"not UTF-8" in done.stderr
    done = run_in_shell(f"cd {tmp_path}; tidewheel create t -w \"$(printf '\\377')\" --column a:int64 --column ts:timestamp --key a")
    assert done.returncode == 0 and rb"created in \udcff" in done.stdout


@pytest.mark.parametrize(("closed", "said"), [("<&-", b"n\n1\n"), ("<&- >&- 2>&-", b"")])
def test_streams_that_are_closed(closed: str, said: bytes, tmp_path: Path) -> None:
    tw.open(tmp_path / "wh").close()
    done = run_in_shell(f"tidewheel sql -w {tmp_path / 'wh'} -c 'SELECT 1 AS n' --format csv {closed}")
    assert done.returncode == 0 and done.stderr == b"" and done.stdout == said


def test_a_full_disk_is_told_without_its_number() -> None:
    done = run_in_shell("tidewheel completion zsh > /dev/full")
    assert done.returncode == 1 and done.stderr.startswith(b"tidewheel: No space left on device\n")


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "tidewheel.surfaces.cli", "demo", "--seconds", "x"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "must be a number" in done.stderr
