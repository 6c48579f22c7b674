"""`tidewheel sql` in a real terminal, attached to an owner; and from the command line, files and pipes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

import tidewheel as tw
from tests.integration.owners import OwnerProcess
from tidewheel.surfaces import cli

# Python says of every fork of a process with threads that it may go wrong; this one becomes another program at once.
pytestmark = pytest.mark.filterwarnings("ignore:This process .*:DeprecationWarning")

SCHEMA = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us")), ("speed", pa.float64()), ("note", pa.string())])
COMMAND = [sys.executable, "-m", "tidewheel.surfaces.cli", "sql"]
ROWS = 1000
ENDLESS = "SELECT count(*) FROM taxi a, taxi b, taxi c, taxi d WHERE a.speed + b.speed + c.speed + d.speed < 0"

PROMPT_BEGINS = "\x1b\\[\\?2004h"
"""What a terminal is told once for each prompt: that pasted text is welcome."""


def rows(n: int, start: int = 0) -> pa.Table:
    i = range(start, start + n)
    times = pa.array([k * 1_000_000 for k in i], pa.timestamp("us"))
    return pa.table([[k % 7 for k in i], times, [k / 2 for k in i], [None if k % 2 else f"n{k}" for k in i]], schema=SCHEMA)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A warehouse that another process owns, as while a stream writes to it."""
    root = (tmp_path_factory.mktemp("shell") / "wh").resolve()
    with OwnerProcess() as owner:
        owner.open(root)
        with tw.open(root) as wh:
            wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(rows(ROWS))
            wh.create_table("live", SCHEMA, time="ts", key="plate").insert(rows(3))
        yield root
        owner.close(root)


class Terminal:
    """A shell in a terminal of 30 lines of 100 characters. Every wait is bounded."""

    def __init__(self, root: Path, state: Path, **env: str) -> None:
        environment = {**os.environ, "XDG_STATE_HOME": str(state), "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **env}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            environment.pop(name, None)
        self._child = pexpect.spawn(
            COMMAND[0], [*COMMAND[1:], "-w", str(root)], env=environment, dimensions=(30, 100), encoding="utf-8", timeout=15
        )  # fmt: skip
        self._child.delaybeforesend = None
        self.prompted()

    def prompted(self) -> str:
        """Wait for the next prompt, and return what was shown before it."""
        self._child.expect(PROMPT_BEGINS)
        return plain(self._child.before or "")

    def keys(self, text: str) -> None:
        self._child.send(text)

    def run(self, text: str) -> str:
        """Type a line; what is shown until the next prompt."""
        self.keys(text + "\r")
        return self.prompted()

    def shows(self, pattern: str) -> None:
        self._child.expect(pattern)

    def interrupt(self) -> None:
        self._child.sendintr()

    def leave(self, keys: str) -> int:
        self.keys(keys)
        self._child.expect(pexpect.EOF)
        self._child.close()
        assert self._child.exitstatus is not None
        return int(self._child.exitstatus)

    def close(self) -> None:
        self._child.close(force=True)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def shared(root: Path, state: Path) -> Iterator[Terminal]:
    terminal = Terminal(root, state, PAGER="cat")
    yield terminal
    terminal.close()


@pytest.fixture
def terminal(shared: Terminal) -> Iterator[Terminal]:
    """One shell for many tests, each of which begins with an empty line."""
    shared.interrupt()
    shared.prompted()
    yield shared


# ---- in a terminal ------------------------------------------------------------------------------------------


def test_a_statement_of_several_lines(terminal: Terminal) -> None:
    terminal.keys("SELECT count(*) AS n,\r")
    terminal.shows(r"\.\.\.> ")
    terminal.keys("  max(speed) AS v\r")
    shown = terminal.run("FROM taxi;")
    assert re.search(r"│ +1000 │ +499.5 │", shown)
    assert re.search(r"1 row · [\d.]+ m?s · \d of \d region", shown), "what it cost"


def test_editing_and_colours(terminal: Terminal) -> None:
    terminal.keys("SELECT 41 AS answe;")
    terminal.shows("\x1b\\[0;34;1mSELECT")  # keywords are blue
    terminal.keys("\x1b[D" + "r" + "\x01" + "\x1b[C" * 9 + "\x7f" + "2")  # left, r; to the beginning, nine to the right: 41 becomes 42
    shown = terminal.run("")
    assert "answer" in shown and "│     42 │" in shown
    terminal.keys("\x1b[A")  # up: the statement before, from the history
    assert "│     42 │" in terminal.run("")


def test_completion(terminal: Terminal) -> None:
    terminal.keys("SELECT * FROM ta\t")
    terminal.shows("xi")
    terminal.keys(" WHERE pl\t")
    terminal.shows("ate")
    terminal.keys(" = 3 AND sp\t")
    terminal.shows("split_part")  # there are several: a menu
    terminal.keys("\t")
    terminal.shows("eed")
    terminal.keys("\r")  # takes it, and runs nothing
    assert "143 rows" in terminal.run(" >= 0;")
    terminal.keys("\\tim\t")
    terminal.shows("ing")
    assert "timing is on" in terminal.run(" on")


def test_describe(terminal: Terminal) -> None:
    shown = terminal.run("\\d")
    assert "taxi" in shown and "live" in shown and "│  1000 │" in shown
    shown = terminal.run("\\d TAXI")
    assert re.search(r"plate +│ int64 +│ key ", shown) and re.search(r"ts +│ timestamp\[us\] +│ time", shown)
    assert "key plate · time ts · 1,000 rows" in shown
    assert "table_name" in terminal.run("\\d system.chunks") and "system.queries" in terminal.run("\\d system")
    assert "Did you mean 'taxi'" in terminal.run("\\d taxo")


def test_errors_point_and_do_not_end_the_shell(terminal: Terminal) -> None:
    shown = terminal.run("SELECT *\rFROM taxis;")
    assert "LINE 2: FROM taxis" in shown and "^^^^^" in shown and "Traceback" not in shown
    assert "there is no command \\dance" in terminal.run("\\dance")
    assert "DELETE is not run here" in terminal.run("DELETE FROM taxi;")
    assert "Could not convert string 'a\\x1b]0;b'" in terminal.run("SELECT CAST('a' || chr(27) || ']0;b' AS INTEGER);"), "nothing to obey"
    assert re.search(r"│ +1 │", terminal.run("SELECT 1 AS a;"))


def test_timing_explain_format_and_help(terminal: Terminal) -> None:
    assert "timing is off" in terminal.run("\\timing off")
    shown = terminal.run("SELECT avg(speed) FROM taxi WHERE plate = 3;")
    assert "1 row\n" in shown and "region" not in shown
    assert "timing is on" in terminal.run("\\timing")
    shown = terminal.run("\\explain")
    assert "table taxi, generation" in shown and "avg(speed): by us" in shown and "│ explain_value" not in shown
    assert "returned" in terminal.run("\\explain analyze SELECT sum(speed) FROM taxi")
    assert "format is json" in terminal.run("\\format json")
    assert '{"a": 1}' in terminal.run("SELECT 1 AS a;")
    assert "format is table" in terminal.run("\\format table")
    assert "\\watch" in terminal.run("\\?") and "leave" in terminal.run("help")


@pytest.mark.parametrize("before", ["", "EXPLAIN ANALYZE ", "INSERT INTO live (plate) "])
def test_ctrl_c_cancels_the_statement_that_runs(terminal: Terminal, before: str) -> None:
    terminal.keys(before + ENDLESS + ";\r")
    terminal.shows("\x1b\\[\\?2004l")  # it was taken
    time.sleep(0.7)
    began = time.monotonic()
    terminal.interrupt()
    assert "cancelled" in terminal.prompted()
    assert time.monotonic() - began < 10
    assert re.search(r"│ +1000 │", terminal.run("SELECT count(*) AS n FROM taxi;"))


def test_ctrl_c_clears_the_line(terminal: Terminal) -> None:
    terminal.keys("SELECT nonsense")
    terminal.interrupt()
    assert "cancelled" not in terminal.prompted()
    assert "1 row" in terminal.run("SELECT 1;")


def test_watch_shows_rows_as_they_come(terminal: Terminal, root: Path) -> None:
    terminal.run("SELECT 'so many: ' || count(*) AS n FROM live;")
    terminal.keys("\\watch 0.2\r")
    terminal.shows("every 0.2 s")
    terminal.shows("so many: 3")
    with tw.open(root) as wh:
        wh.table("live").insert(rows(4, start=100))
    terminal.shows("so many: 7")
    terminal.interrupt()
    terminal.prompted()
    assert re.search(r"│ +7 │", terminal.run("SELECT count(*) AS n FROM live;"))
    assert "\\watch takes seconds" in terminal.run("\\watch soon")


def test_wide_answers_are_fitted_and_paged(terminal: Terminal) -> None:
    shown = terminal.run("SELECT 1 AS id, repeat('x', 500) AS long, repeat('y', 20) AS short;")
    lines = [line for line in shown.splitlines() if line.startswith("│") and "xxx" in line]
    assert len(lines) == 1 and len(lines[0]) == 100 and "…" in lines[0] and "y" * 20 in lines[0]
    wide = "SELECT " + ", ".join(f"{i} AS a_long_name_{i}" for i in range(30)) + ";"
    assert "a_long_name_15" in terminal.run(wide).rpartition("└")[0].rpartition("┌")[2], "the pager has all columns"
    terminal.run("\\pager off")
    shown = terminal.run(wide).rpartition("┌")[2]
    assert "a_long_name_15" not in shown and re.search(r"\d+ of 30 columns shown", shown)
    terminal.run("\\pager on")


def test_the_next_answer_into_a_file(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    terminal.run(f"\\o {path}")
    assert "143 rows" in terminal.run("SELECT * FROM taxi WHERE plate = 3;")
    assert pq.read_table(path).num_rows == 143
    assert "ending" in terminal.run("\\o rows.xlsx")


def test_history_ctrl_d_and_less(terminal: Terminal, root: Path, state: Path) -> None:
    """A second shell, which knows what was typed in the first."""
    terminal.run("SELECT 'remember ' || 'me';")
    assert (state / "tidewheel" / "sql_history").stat().st_mode & 0o077 == 0
    other = Terminal(root, state, PAGER="less")
    try:
        other.keys("\x12remember")  # Ctrl-R
        other.shows("'me'")
        other.keys("\r")
        assert "│ remember me" in other.run("")
        other.keys("SELECT * FROM taxi ORDER BY ts;\r")
        other.shows("\n:")  # less waits for a key
        other.interrupt()  # which less takes, and the shell does not
        other.shows("\x07")
        other.keys("r")  # if the Ctrl-C came just before less began to wait, less drops one key before its next prompt
        other.shows(":")
        other.keys("q")
        assert "1,000 rows" in other.prompted()
        assert other.leave("\x04") == 0
    finally:
        other.close()


def test_leaving(shared: Terminal) -> None:
    """The last one of the shell that all have used."""
    assert shared.leave("\\q\r") == 0


# ---- while the warehouse is opened --------------------------------------------------------------------------


def test_the_first_statement_waits_for_the_warehouse(tmp_path: Path, state: Path) -> None:
    """Typed as soon as there is a prompt, after a Ctrl-C, in a warehouse that nobody owns; it is let go of at the end."""
    root = tmp_path / "wh"
    with tw.open(root) as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(rows(5))
    terminal = Terminal(root, state)
    terminal.interrupt()
    terminal.prompted()
    assert re.search(r"│ +5 │", terminal.run("SELECT count(*) FROM taxi;"))
    assert terminal.leave("\x04") == 0
    assert Terminal(root, state).leave("\x04") == 0  # at once
    with tw.open(root) as wh:
        assert "closed properly" in str(wh.recovery)


def test_a_warehouse_that_cannot_be_opened_ends_the_shell(tmp_path: Path, state: Path) -> None:
    """Also if nothing is typed."""
    (tmp_path / "catalog.sqlite").write_text("this is no catalog")
    terminal = Terminal(tmp_path, state)
    terminal.shows("is not a Tidewheel catalog")
    assert terminal.leave("") == 1


# ---- from the command line ----------------------------------------------------------------------------------


def sql(root: Path, *arguments: str) -> int:
    return cli.main(["sql", "-w", str(root), *arguments])


def test_help_names_every_option_and_has_examples(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sql", "--help"]) == 0
    out = capfd.readouterr().out
    for option in ("-w", "-c", "-f", "--format", "--output", "--timeout", "--timing", "--debug", "examples:"):
        assert option in out


def test_formats(root: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    statement = "SELECT plate, ts, speed, note FROM taxi WHERE plate = 3 ORDER BY ts LIMIT 2"

    def out(format_: str) -> bytes:
        assert sql(root, "-c", statement, "--format", format_) == 0
        captured = capfdbinary.readouterr()
        assert captured.err == b""
        return captured.out

    assert json.loads(out("json"))[1] == {"plate": 3, "ts": "1970-01-01T00:00:10.000000", "speed": 5.0, "note": "n10"}
    assert out("csv") == b"plate,ts,speed,note\n3,1970-01-01 00:00:03.000000,1.5,\n3,1970-01-01 00:00:10.000000,5.0,n10\n"
    assert out("markdown").splitlines()[3] == b"| 3 | 1970-01-01 00:00:10.000000 | 5.0 | n10 |"
    assert pa.ipc.open_stream(out("arrow")).read_all().column("speed").to_pylist() == [1.5, 5.0]
    shown = out("table").decode()
    assert "│     3 │ 1970-01-01 00:00:10 │    5.0 │ n10    │" in shown and shown.endswith("2 rows\n")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.json", "rows.jsonl", "rows.arrow", "rows.md"])
def test_output_files(root: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    assert sql(root, "-c", "SELECT * FROM taxi ORDER BY ts", "--output", str(path)) == 0
    assert capfd.readouterr() == ("", "")
    match path.suffix:
        case ".parquet":
            assert pq.read_table(path).sort_by("ts").equals(rows(ROWS))
        case ".arrow":
            assert pa.ipc.open_file(path).read_all().equals(rows(ROWS))
        case ".csv":
            assert pcsv.read_csv(path).num_rows == ROWS
        case ".json":
            assert len(json.loads(path.read_text())) == ROWS
        case _:
            assert len(path.read_text().splitlines()) == (ROWS if name.endswith("jsonl") else ROWS + 2)


def test_several_statements_end_at_the_first_error(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert sql(root, "-c", "SELECT 11 AS a; SELECT 22 AS b", "-c", "SELECT 33 AS c", "--format", "csv") == 0
    assert capfd.readouterr().out == "a\n11\nb\n22\nc\n33\n"
    file = tmp_path / "report.sql"
    file.write_text("-- a report\nSELECT 11 AS a;\n\nSELECT *\nFROM taxis;\nSELECT 22 AS b;\n")
    assert sql(root, "-f", str(file), "--format", "csv") == 1
    captured = capfd.readouterr()
    assert captured.out == "a\n11\n" and "report.sql, line 4: there is no table 'taxis'" in captured.err
    assert "LINE 2: FROM taxis\n" in captured.err and "Traceback" not in captured.err


def test_statements_that_change_something(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "make.sql"
    file.write_text(
        "/* makes /* and fills */ a table; */\n"
        "CREATE TABLE made (id INT, ts TIMESTAMP, note VARCHAR) WITH (time = 'ts', key = 'id');\n"
        "INSERT INTO made VALUES (1, '2026-01-01', 'a;b'), (2, '2026-01-01', NULL);\n"
        "INSERT INTO made SELECT plate + 10, ts, note FROM taxi WHERE plate < 2;\n"
        "SELECT count(*) AS n, count(note) AS notes FROM made;\nDROP TABLE made;\n"
    )
    assert sql(root, "-f", str(file), "--format", "csv") == 0
    assert capfd.readouterr().out == "created\nmade\nrows\n2\nrows\n286\nn,notes\n288,144\ndropped\nmade\n"
    assert sql(root, "-c", "INSERT INTO live (plate) VALUES (1)") == 1
    assert "no value in the time column" in capfd.readouterr().err


def test_standard_input(root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["-f", "-"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS a;\n\\timing on\nSELECT 2\nAS b;\\q\nSELECT 3 AS c;"))
        assert sql(root, *arguments, "--format", "csv") == 0
        captured = capfd.readouterr()
        assert captured.out == "a\n1\ntiming is on\nb\n2\n" and captured.err.startswith("1 row · ")


def test_watch_from_the_command_line(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert sql(root, "-c", "SELECT count(*) AS n FROM taxi", "-c", "\\watch 0.01 2", "--format", "csv") == 0
    assert capfd.readouterr().out == "n\n1000\n" * 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-c", "SELEC 1"], 1, "syntax error"),
        (["-c", "DROP TABLE taxis"], 1, "Did you mean 'taxi'?"),
        (["-c", "SELECT 1; SELECT 2", "--output", "{tmp}/a.csv"], 1, "one statement"),
        (["-c", "SELECT 1", "--output", "{tmp}/a.xlsx"], 1, "the ending of the name"),
        (["-c", "SELECT 1", "--output", "{tmp}/no/a.csv"], 1, "cannot write"),
        (["-f", "{tmp}/missing.sql"], 1, "No such file"),
        (["-c", ENDLESS, "--timeout", "0.3"], 1, "timeout of 0.3 s"),
        (["-c", "SELECT 1", "-f", "x"], 2, "not allowed with"),
        (["-c", "SELECT 1", "--format", "xml"], 2, "invalid choice"),
        (["-c", "SELECT 1", "--timeout", "-1"], 2, "above 0"),
        (["-c", "\\watch"], 1, "there was none yet"),
    ],
)
def test_errors_and_exit_codes(
    root: Path, tmp_path: Path, arguments: list[str], code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sql(root, *(one.replace("{tmp}", str(tmp_path)) for one in arguments)) == code
    err = capfd.readouterr().err
    assert said in err and "Traceback" not in err


def test_a_warehouse_that_is_not_there_is_not_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert sql(tmp_path / "typo", "-c", "SELECT 1") == 1
    assert "there is no warehouse in" in capfd.readouterr().err and not (tmp_path / "typo").exists()


def test_ctrl_c_ends_a_statement_of_the_command_line(root: Path, interruptible: None) -> None:
    process = subprocess.Popen(
        [*COMMAND, "-w", str(root), "-c", "SELECT 1 AS a", "-c", ENDLESS, "--format", "csv"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    with process:
        assert [process.stdout.readline(), process.stdout.readline()] == ["a\n", "1\n"]
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 1 and process.stderr.read() == "tidewheel: interrupted\n"


def test_debug_shows_the_traceback(root: Path) -> None:
    with pytest.raises(tw.TidewheelError):
        sql(root, "--debug", "-c", "SELECT * FROM taxis")


def test_without_an_owner_and_with_a_reader_that_has_enough(tmp_path: Path) -> None:
    """A process of its own: it becomes the owner, reads statements from a pipe as they come, and is not hurt by `head`."""
    root = tmp_path / "wh"
    with tw.open(root) as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(rows(ROWS))
    process = subprocess.Popen(
        [*COMMAND, "-w", str(root), "--format", "csv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with process:
        process.stdin.write("SELECT count(*) AS n FROM taxi;\n")
        process.stdin.flush()
        assert [process.stdout.readline(), process.stdout.readline()] == ["n\n", "1000\n"]
        process.stdout.close()
        process.stdin.write("SELECT * FROM taxi a, taxi b;\n")
        process.stdin.close()
        assert process.stderr.read() == "" and process.wait(30) == 0
