"""`tidewheel demo` as people run it: a process of its own, and what it says compared with what it leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import tidewheel as tw
from tests.integration.typed import shell
from tidewheel.errors import TidewheelError
from tidewheel.programs.demo.children import Child

DEMO = [sys.executable, "-m", "tidewheel.surfaces.cli", "demo"]


@pytest.fixture
def place(tmp_path: Path) -> dict[str, object]:
    """Where and how to run it, with a folder for temporary files that is its own."""
    (tmp_path / "temporary").mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"cwd": tmp_path, "env": {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PATH": path}, "text": True}


def test_through_spark(place: dict[str, object], tmp_path: Path) -> None:
    done = run([*DEMO, "--seconds", "6", "--rows-per-second", "5000", "--seed", "3", "--keep", "kept"], place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.index("starting Spark…") < done.stdout.index("the first rows are on their way…") < done.stdout.index("seconds 0/6")
    sent, found, rejected = proof(done.stdout)
    assert 0.5 * 30_000 < sent < 1.1 * 30_000 + 200
    assert f"10,000 simulated taxis sent {sent:,} reports" in done.stdout and "Spark read them" in done.stdout
    check_kept(tmp_path / "kept", found, rejected)
    # how long rows took, and that questions were answered meanwhile
    lag, lag99 = re.findall(r"could query it: ([\d.]+) s for half of the rows, ([\d.]+) s for 99", done.stdout)[0]
    assert 0 < float(lag) <= float(lag99) < 30
    assert int(re.findall(r"meanwhile asked ([\d,]+) time", done.stdout)[0].replace(",", "")) > 5
    nothing_left(tmp_path)


def test_without_spark_and_what_to_try_next(place: dict[str, object], tmp_path: Path) -> None:
    done = run([*DEMO, "--seconds", "2", "--without-spark", "--keep", "demo-data"], place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "" and "Spark" not in done.stdout
    _, found, rejected = proof(done.stdout)
    check_kept(tmp_path / "demo-data", found, rejected)
    nothing_left(tmp_path)
    steps = done.stdout.partition("Try next:\n")[2]
    with (tmp_path / "said").open("w+") as out:
        shell(steps, tmp_path, out)
        out.seek(0)
        said = out.read()
    assert len(steps.splitlines()) == 3
    assert said.index("speed") < said.index("all is well") < said.index("reason"), said


def test_ctrl_c_ends_it_early_with_the_summary(place: dict[str, object], tmp_path: Path) -> None:
    demo = subprocess.Popen([*DEMO, "--seconds", "600", "--without-spark"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **place)  # type: ignore[call-overload]
    assert demo.stdout is not None
    for line in demo.stdout:
        if re.search(r"historical rows|fresh rows [1-9]", line) and "seconds 0/" not in line:
            break
    demo.send_signal(signal.SIGINT)
    try:
        out, err = demo.communicate(timeout=60)
    finally:
        demo.kill()
    assert (demo.returncode, err) == (0, ""), out + err
    proof(out)
    assert "Try next:" in out
    nothing_left(tmp_path)


def test_without_pyspark_it_says_what_to_do(place: dict[str, object], tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from tidewheel.surfaces import cli; sys.exit(cli.main(['demo', '--seconds', '1']))"
    done = run([sys.executable, "-c", code], place)
    assert done.returncode == 1
    assert done.stderr == (
        "tidewheel: PySpark is not installed: pip install 'tidewheel[spark]'. Without Spark: tidewheel demo --without-spark\n"
    )
    nothing_left(tmp_path)


def test_a_folder_that_is_not_empty_is_left_alone(place: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "letter.txt").write_text("dear …")
    done = run([*DEMO, "--keep", "kept"], place)
    assert done.returncode == 1 and "give --keep a new folder" in done.stderr
    assert [f.name for f in (tmp_path / "kept").iterdir()] == ["letter.txt"]


def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    orders = {"folder": str(tmp_path / "missing"), "seed": 1, "rate": 100}
    give_up = time.monotonic() + 60
    why = pytest.raises(TidewheelError, match="the demo's sender failed: FileNotFoundError")
    with Child("tidewheel.programs.demo.sender", orders, lambda said: None) as sender, why:
        while time.monotonic() < give_up:
            sender.check()
            time.sleep(0.05)


def run(arguments: list[str], place: dict[str, object]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, timeout=240, **place)  # type: ignore[call-overload, no-any-return]


def proof(out: str) -> tuple[int, int, int]:
    """(sent, found, rejected), as the last line of the summary says it."""
    told = re.findall(r"^Every report is there once: ([\d,]+) sent = ([\d,]+) found \+ ([\d,]+) rejected\.$", out, re.MULTILINE)
    assert len(told) == 1, out
    sent, found, rejected = (int(number.replace(",", "")) for number in told[0])
    assert sent == found + rejected > 0
    return sent, found, rejected


def check_kept(root: Path, found: int, rejected: int) -> None:
    """The warehouse has what the summary says, row by row."""
    with tw.open(root) as warehouse:
        taxi = warehouse.table("taxi")
        reports = set(taxi.query(columns=["report"]).to_arrow()["report"].to_pylist())
        rejects = taxi.rejects().to_arrow()
        assert taxi.rows == len(reports) == found
        assert rejects.num_rows == rejected
        assert reports <= set(range(found + rejected))
        assert all(rejects["reason"].to_pylist())


def nothing_left(folder: Path) -> None:
    """Neither files nor processes: those that were told of this folder have ended, or are about to."""
    assert list((folder / "temporary").glob("tidewheel-*")) == []
    give_up = time.monotonic() + 60
    while left := [p for p in psutil.process_iter(["cmdline"]) if any(str(folder) in word for word in p.info["cmdline"] or ())]:
        assert time.monotonic() < give_up, left
        time.sleep(0.1)
