"""`tidewheel ingest` as people run it: it makes the table, says what it does, ends politely, and goes on where it was."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidewheel as tw
from tests.integration.spark_session import lent
from tidewheel.surfaces import cli

PATIENCE = 120.0


class Command:
    """A command that runs, and all that it printed."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidewheel.surfaces.cli", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(self._process.stdout)

    @property
    def said(self) -> str:
        return "".join(self.lines)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        try:
            return self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._reading.join()
            assert self._process.stdout is not None
            self._process.stdout.close()


def ride(plate: int, speed: str = "1.5") -> str:
    return f'{{"plate": {plate}, "ts": 1767225600{plate:03d}, "speed": {speed}}}\n'


def rows_in(root: Path) -> int:
    with tw.open(root) as wh:
        return wh.table("taxi").rows if "taxi" in wh.tables() else 0


def here(session: SparkSession, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """A command that ends by itself, in this process and with its Spark: the exit code, and what was printed."""
    with lent(session):
        code = cli.main(arguments)
    told = capsys.readouterr()
    return code, told.out + told.err


def test_it_runs_until_ctrl_c_and_goes_on(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, incoming = tmp_path / "wh", tmp_path / "in"
    incoming.mkdir()
    with tw.open(root):  # so that no owner outlives the test
        first = Command(["ingest", "taxi", "-w", "wh", "--from", "in", "--time", "ts", "--key", "plate", "--trigger", "200ms"], tmp_path)
        try:
            end = time.monotonic() + PATIENCE
            while "waiting for the first records of in to make it from" not in first.said:
                assert first.running and time.monotonic() < end, first.said
                time.sleep(0.1)
            (incoming / ".a.jsonl").write_text("".join(ride(i) for i in range(10)) + "{broken\n")
            (incoming / ".a.jsonl").rename(incoming / "a.jsonl")
            while rows_in(root) < 10:
                assert first.running and time.monotonic() < end, first.said
                time.sleep(0.1)
            first.interrupt()
        finally:
            code = first.wait()
        assert code == 0, first.said
        assert "Created table 'taxi' (time ts, key plate, partitions of 1 hour):" in first.said
        assert "ts                       timestamp[ms, tz=UTC]\n" in first.said and "read as epoch-ms" in first.said
        assert "Stopped: 10 rows in 1 batch, 1 record rejected." in first.said and "The same command goes on from here." in first.said
        assert "WARN" not in first.said and "Traceback" not in first.said

        (incoming / "b.jsonl").write_text("".join(ride(i) for i in range(10, 15)))
        code, said = here(spark, ["ingest", "taxi", "-w", str(root), "--from", str(incoming), "--once"], capsys)
        assert code == 0 and said.splitlines()[-1] == "Done: 5 rows in 1 batch.", said
        assert rows_in(root) == 15


def test_an_error_names_the_log(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    with tw.open(tmp_path / "wh"):
        options = ["--option", "maxFilesPerTrigger=no", "--once"]
        (tmp_path / "in" / "a.jsonl").write_text(ride(1))
        places = ["-w", str(tmp_path / "wh"), "--from", str(tmp_path / "in")]
        code, said = here(spark, ["ingest", "taxi", *places, "--time", "ts", "--key", "plate", *options], capsys)
        assert code == 1, said
        last = said.splitlines()[-1]
        assert (
            last.startswith("tidewheel: the stream ended: Invalid value 'no' for option 'maxFilesPerTrigger'") and "Spark's log: " in last
        )
        log = Path(last.partition("Spark's log: ")[2].partition(". The same")[0])
        assert "maxFilesPerTrigger" in log.read_text()
