"""What people who know Spark type first works, in a session of ours, and in a plain one where no virtual environment was activated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tidewheel as tw
from tests.conftest import SOAK
from tests.integration import spark_trial, trial_files
from tests.integration.spark_session import python_without_tidewheel


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with rides: of real taxis if there are any, else like theirs."""
    pq.write_table(trial_files.rides(), tmp_path / "rides.parquet")
    yield tmp_path
    spark_trial.end_elsewhere()


def test_it_is_long_enough() -> None:
    assert len(spark_trial.FIRST) >= 60 and len(spark_trial.MISTAKES) >= 40


def test_in_a_session_of_ours(spark: SparkSession, here: Path) -> None:
    with tw.open(here / "wh"):
        assert not (wrong := spark_trial.typed(spark, str(here))), "\n".join(wrong)
    assert not (here / "absent").exists(), "a mistake made a warehouse"


@pytest.mark.skipif(not SOAK, reason="in the soak: two minutes of waiting, and a Java")
def test_in_a_plain_session(here: Path) -> None:
    """Nobody owns the warehouse but the process that Spark's workers start, which leaves while nobody reads."""
    assert run_plainly(here, 125)["counts"] == [20_010, 20_010, 20_011, 20_011, 20_011, 20_011]


def run_plainly(here: Path, seconds: float) -> dict[str, list[object]]:
    """The trial in a process of its own. Its first `python3` is one that has PySpark, and no Tidewheel."""
    path = f"{python_without_tidewheel(here).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[2]), "SPARK_LOCAL_DIRS": str(here)}
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "tests.integration.spark_trial", str(here), str(seconds)]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, list[object]] = json.loads(done.stdout.splitlines()[-1])
    assert said["before"] == ["DATA_SOURCE_NOT_FOUND"]
    assert not said["wrong"], "\n".join(map(str, said["wrong"]))
    return said
