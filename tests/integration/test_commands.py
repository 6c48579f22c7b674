"""Every command in a real terminal, as people type it: what it shows, its exit code, Ctrl-C, and how soon it answers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tests.integration.owners import OwnerProcess
from tidewheel.model.delivery import SliceId
from tidewheel.surfaces import cli
from tidewheel.surfaces.arguments import commands_of
from tidewheel.surfaces.commands import status
from tidewheel.testing.probe import Probe

# Python says of every fork of a process with threads that it may go wrong; this one becomes another program at once.
pytestmark = pytest.mark.filterwarnings("ignore:This process .*:DeprecationWarning")

COMMAND = [sys.executable, "-m", "tidewheel.surfaces.cli"]
COMMANDS = sorted(commands_of(cli.make_parser()))
SCHEMA = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us")), ("speed", pa.float64())])


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = {**os.environ, "PATH": path, "TERM": "xterm-256color", **more}
    return {name: value for name, value in found.items() if name not in ("NO_COLOR", "COLUMNS", "LINES", "TIDEWHEEL_WAREHOUSE")}


class Terminal:
    """A program in a terminal of 40 lines of 120 characters. Every wait is bounded."""

    def __init__(self, folder: Path, *arguments: str, command: list[str] = COMMAND, **more: str) -> None:
        self._child = pexpect.spawn(
            command[0], [*command[1:], *arguments], cwd=str(folder), env=environment(**more), dimensions=(40, 120), encoding="utf-8",
            timeout=60,
        )  # fmt: skip
        self._child.delaybeforesend = None

    def shows(self, pattern: str) -> str:
        self._child.expect(pattern)
        return plain((self._child.before or "") + (self._child.after or ""))

    def keys(self, text: str) -> None:
        self._child.send(text)

    def interrupt(self) -> None:
        self._child.sendintr()

    def end(self) -> tuple[int, str]:
        """Wait for it: its exit code, and what it showed."""
        self._child.expect(pexpect.EOF)
        shown = plain(self._child.before or "")
        self._child.close()
        assert self._child.exitstatus is not None, f"ended by signal {self._child.signalstatus}: {shown}"
        return int(self._child.exitstatus), shown


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def typed(folder: Path, *arguments: str) -> tuple[int, str]:
    return Terminal(folder, *arguments).end()


def rows(n: int, start: int = 0) -> pa.Table:
    i = range(start, start + n)
    return pa.table([[k % 70 for k in i], pa.array([k * 1_000_000 for k in i], pa.timestamp("us")), [k / 2 for k in i]], schema=SCHEMA)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a warehouse `wh` that another process owns, as while a stream writes to it."""
    folder = tmp_path_factory.mktemp("commands").resolve()
    with OwnerProcess() as owner:
        owner.open(folder / "wh")
        with tw.open(folder / "wh") as wh:
            taxi = wh.create_table("taxi", SCHEMA, time="ts", key="plate")
            for n in range(3):
                taxi.insert(rows(1000, 1000 * n))
                taxi.flush()
            taxi.insert(rows(400, 3000))
            part = SliceId("from-kafka", "run", 7, 0, 0)  # as a stream of Spark brings it
            Probe(taxi).stage(part, rows(100, 3400).to_batches(), SCHEMA)
            Probe(taxi).commit_batch("from-kafka", "run", 7, [part])
        (folder / "owner").write_text(str(owner.pid))
        yield folder
        owner.close(folder / "wh")


# ---- all of them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_takes_what_it_does_not_know(command: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted(place.rglob("*"))
    assert cli.main([command, "--nonsense", "x"]) == 2
    said = capfd.readouterr()
    assert said.err.startswith(f"tidewheel {command}: error: ") and said.err.endswith(f"See tidewheel {command} --help\n") and not said.out
    assert sorted(place.rglob("*")) == before


def test_help_in_a_terminal(tmp_path: Path) -> None:
    code, shown = typed(tmp_path, "explain", "--help")
    assert code == 0 and "usage: tidewheel explain" in shown and "example" in shown
    assert max(len(line) for line in shown.splitlines()) <= 140


HELP = """
import contextlib, io, json, sys
from tidewheel.surfaces import cli
said = {}
for command in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main([command, "--help"]) == 0
    said[command] = out.getvalue()
print(json.dumps([said, sorted({name.partition(".")[0] for name in sys.modules})]))
"""
HEAVY = {"numpy", "pyarrow", "numba", "duckdb", "sqlalchemy", "pyspark", "pandas", "polars", "prompt_toolkit"}


def test_help_of_every_command_loads_nothing_heavy() -> None:
    """So it answers at once. Asked in one process, in which each command would leave what it loads."""
    done = subprocess.run(
        [sys.executable, "-c", HELP, *COMMANDS], env=environment(COLUMNS="120"), check=True, capture_output=True, text=True
    )
    said, modules = json.loads(done.stdout)
    assert not HEAVY & set(modules)
    for command, shown in said.items():
        assert f"usage: tidewheel {command}" in shown and "example" in shown
        assert max(len(line) for line in shown.splitlines()) <= 140


@pytest.mark.parametrize(
    ("line", "code", "said"), [("statsu -w wh", 2, "Did you mean 'status'?"), ("status -w nowhere", 1, "no warehouse in")]
)
def test_errors_in_a_terminal(place: Path, line: str, code: int, said: str) -> None:
    found, shown = typed(place, *line.split())
    assert (found, "Traceback" in shown) == (code, False) and said in " ".join(shown.split())


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("status -w wh --wach", 2, "Did you mean '--watch'?"),
        ("explain -w nowhere taxi", 1, "there is no warehouse in"),
        ("explain taxo -w wh", 1, "Did you mean 'taxi'?"),
        ("explain taxi -w wh --key a b", 1, "'a' is no int64"),
        ("explain taxi -w wh --box 1 2 3 4", 1, "has no z-order key"),
        ("explain taxi -w wh --key 1", 2, "expected 2 arguments"),
        ("explain taxi -w wh --time noon -", 1, "'noon' is not a time"),
        ("explain taxi -w wh --where nonsense", 1, "nonsense"),
        ("explain taxi -w wh --svg nowhere/plan.svg", 1, "No such file or directory"),
        ("explain taxi -w wh --png plan.png", 2, "pictures are SVG now: --svg plan.svg"),
        ("create t -w wh --column a:strng --key a", 1, "Did you mean 'string'?"),
        ("ingest t -w wh --from kafka://broker", 1, "kafka://host:port/topic"),
        ("restore nowhere again", 1, "nowhere"),
        ("completion tcsh", 2, "Choose from bash, zsh, fish"),
        ("demo --keep wh", 1, "is there already"),
        ("check", 2, "which warehouse?"),
    ],
)
def test_errors_are_sentences_with_an_exit_code(
    place: Path, line: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("TIDEWHEEL_WAREHOUSE", raising=False)
    assert cli.main(line.split()) == code
    err = capfd.readouterr().err
    assert said in err and "Traceback" not in err and len(err.splitlines()) == code and not (place / "nowhere").exists()


def test_debug_shows_the_traceback(place: Path) -> None:
    code, shown = typed(place, "status", "-w", "nowhere", "--debug")
    assert code == 1 and "Traceback" in shown and "NotFoundError" in shown


# ---- one by one ---------------------------------------------------------------------------------------------


def test_create_then_sql(place: Path) -> None:
    (place / "rides.csv").write_text("car,at,km\n1,2026-01-01T08:00:00,1.5\n2,2026-01-01T08:00:01,2\n")
    code, shown = typed(place, "create", "rides", "-w", "wh", "--from", "rides.csv", "--key", "car")
    assert code == 0 and "Table rides created in wh:" in shown and "at   timestamp[us, tz=UTC]  time" in shown
    assert shown.endswith("Next: tidewheel load rides rides.csv -w wh\n")
    code, shown = typed(place, "sql", "-w", "wh", "-c", "SELECT count(*) AS n FROM rides")
    assert code == 0 and re.search(r"│ +0 │", shown)


def test_status(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, shown = typed(place, "status", "-w", "wh")
    assert code == 0 and f"owned by process {(place / 'owner').read_text()}" in shown
    line = next(line for line in shown.splitlines() if line.startswith("taxi"))
    assert line.split()[1:6] == ["3,500", "0", "500", "3,000", "3"]
    assert next(line for line in shown.splitlines() if line.startswith("from-kafka")).split() == ["from-kafka", "taxi", "7", "100", "fresh"]
    assert cli.main(["status", "-w", str(place / "wh"), "--format", "json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["total"]["rows"] == 3500 and {t["name"] for t in said["tables"]} >= {"taxi"}


def test_status_follows_a_warehouse_until_ctrl_c(place: Path) -> None:
    with tw.open(place / "wh") as wh:
        live = wh.create_table("live", SCHEMA, time="ts", key="plate", if_exists="open")
        terminal = Terminal(place, "status", "-w", "wh", "--watch", "0.2")
        terminal.shows("every 0.2 s; Ctrl-C ends it")
        terminal.shows("live +0 +0 ")
        live.insert(rows(1234))
        terminal.shows("live +1,234 +[1-9]")  # a rate above 0
        terminal.shows("live +1,234 +0 ")
        terminal.interrupt()
        assert terminal.end()[0] == 0
        wh.drop_table("live")


def test_status_goes_on_when_the_owner_dies(tmp_path: Path) -> None:
    with OwnerProcess() as owner:
        owner.open(tmp_path / "wh")
        with tw.open(tmp_path / "wh") as wh:
            wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(rows(777))
        terminal = Terminal(tmp_path, "status", "-w", "wh", "--watch", "0.1")
        terminal.shows(f"owned by process {owner.pid}")
        owner.kill()
        terminal.shows("opened by this command")
        terminal.shows("taxi +777 ")
        terminal.interrupt()
        assert terminal.end()[0] == 0


def test_status_as_lines_of_json(place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: Ctrl-C comes when there are some."""
    printed, shown = status._print, []

    def counted(*found: Any) -> None:
        printed(*found)
        shown.append(found)
        if len(shown) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(status, "_print", counted)
    assert cli.main(["status", "-w", str(place / "wh"), "--watch", "0.05", "--format", "json"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len(lines) >= 5 and all(line["tables"][0]["rows_per_second"] is not None and line["total"]["rows"] >= 3500 for line in lines)
    assert [line["at"] for line in lines] == sorted({line["at"] for line in lines})


def test_explain(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    argv = ["explain", "taxi", "-w", str(place / "wh"), "--key", "10", "19", "--time", "1970-01-01 00:20", "1970-01-01 00:30"]
    code, shown = typed(place, *argv, "--svg", "plan.svg")
    assert code == 0 and "regions    1 read of 5" in shown and "█" in shown and "░" in shown
    assert "69 │" in shown and " 0 │" in shown and "1970-01-01 00:58:19" in shown
    picture = (place / "plan.svg").read_text()
    assert picture.startswith("<svg") and "taxi: 1 of 5 regions read" in picture
    assert cli.main([*argv, "--format", "json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert [region["read"] for region in said["regions"]].count(True) == said["stats"]["regions_read"] == 1
    assert said["query"] == {"key_intervals": [[10, 19]], "time": [1200_000_000, 1800_000_000]}


def test_check_backup_and_restore(place: Path) -> None:
    code, shown = typed(place, "check", "-w", "wh")
    assert code == 0 and "all is well" in shown
    code, shown = typed(place, "backup", "backups", "-w", "wh")
    assert code == 0 and re.search(r"/backups: \d tables?, 3,500 rows, \d+ files of .* backed up in ", " ".join(shown.split()))
    code, shown = typed(place, "restore", "backups", "again")
    assert code == 0 and re.search(r"/again: \d tables?, 3,500 rows, \d+ files of .* restored in ", " ".join(shown.split()))
    with tw.open(place / "again") as wh:
        assert wh.table("taxi").query(order_by="ts").to_arrow().equals(rows(3500))


@pytest.mark.skipif(not SOAK, reason="in the soak: test_kill runs the command")
def test_torture(tmp_path: Path) -> None:
    code, shown = typed(tmp_path, "torture", "--seconds", "20", "--kills", "1", "--streams", "1")
    assert code == 0 and "Traceback" not in shown and "0 holes, 0 duplicates" in shown, shown


def test_doctor(place: Path) -> None:
    code, shown = typed(place, "doctor", "-w", "wh")
    assert code == 0 and "Tidewheel can run here" in shown and "in use now" in shown


# ---- completion ---------------------------------------------------------------------------------------------


def test_completion_in_bash(place: Path) -> None:
    """Tab in a real bash, with the script that the command prints."""
    (place / "bin").mkdir(exist_ok=True)
    program = place / "bin" / "tidewheel"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidewheel.surfaces.cli "$@"\n')
    program.chmod(0o755)
    (place / "unusual name.csv").write_text("")
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    shell = Terminal(place, "--norc", "--noprofile", "-i", command=["bash"], PATH=path, PS1="ready> ", INPUTRC="/dev/null")
    shell.shows("ready> ")
    shell.keys('eval "$(tidewheel completion bash)"; echo do""ne\r')
    shell.shows("\rdone\r\n")
    for keys, expected in (
        ("tidewheel stat\t", "tidewheel status "),
        ("tidewheel sql -w wh --form\t", "--format "),
        ("tidewheel sql --format ma\t", "markdown "),
        ("tidewheel sql --format=ma\t", "--format=markdown "),
        ("tidewheel create t --from unus\t", r"unusual\\ name.csv "),
    ):
        shell.keys("\x15" + keys)  # Ctrl-U: an empty line
        shell.shows(expected)
    shell.keys("\x15exit\r")
    assert shell.end()[0] == 0
