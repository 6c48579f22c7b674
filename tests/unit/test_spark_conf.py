"""What our Spark sessions are set to, and what is kept where. Nothing here starts Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tidewheel.spark as tws
from tidewheel.errors import InputError, SparkError
from tidewheel.spark import launch, user_folders
from tidewheel.spark.conf import cores, defaults, given, java_options, patient

GB = 1 << 30


@pytest.mark.parametrize(
    "asked, got",
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[ 3 ]", "local[3,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
    ],
)
def test_a_local_master_tries_failed_tasks_again(asked: str, got: str) -> None:
    assert patient(asked) == got
    assert patient(got) == got


def test_cores_of_a_master() -> None:
    assert [cores(m, 8) for m in ("local", "local[2]", "local[*]", "local[*,4]", "yarn", "local-cluster[2,1,1]")] == [
        1,
        2,
        8,
        8,
        None,
        None,
    ]


class TestDefaults:
    def test_for_this_machine(self) -> None:
        chosen = defaults("local[*,4]", 8, 32 * GB)
        assert chosen["spark.sql.shuffle.partitions"] == "8"
        assert chosen["spark.driver.memory"] == "4g"
        assert chosen["spark.sql.session.timeZone"] == "UTC"
        assert chosen["spark.driver.host"] == "127.0.0.1"
        assert "FileSystemBased" in chosen["spark.sql.streaming.checkpointFileManagerClass"]

    def test_small_machines_get_little_memory_and_two_partitions(self) -> None:
        chosen = defaults("local[1,4]", 1, GB)
        assert (chosen["spark.driver.memory"], chosen["spark.sql.shuffle.partitions"]) == ("1g", "2")

    def test_a_cluster_keeps_its_own(self) -> None:
        chosen = defaults("spark://host:7077", 8, 32 * GB)
        assert not {"spark.driver.host", "spark.driver.memory", "spark.sql.shuffle.partitions"} & set(chosen)
        assert "spark.sql.streaming.checkpointFileManagerClass" not in chosen
        assert chosen["spark.sql.python.filterPushdown.enabled"] == "true"


class TestGiven:
    def test_values_become_text(self) -> None:
        assert given({"spark.a": True, "spark.b": 5, "spark.c": "x"}) == {"spark.a": "true", "spark.b": "5", "spark.c": "x"}

    def test_other_names_and_values_are_refused(self) -> None:
        with pytest.raises(InputError, match=r'their names begin with spark, as in session\(\*\*{"spark.driver.memory": "4g"}\)'):
            given({"memory": "4g"})
        with pytest.raises(InputError, match=r"spark\.jars must be text, a number or a bool"):
            given({"spark.jars": ["a.jar"]})


def test_java_options_survive_spaces() -> None:
    said = java_options(Path("/a b/log4j2.properties"), ["-XX:SharedArchiveFile=/c d/e"])
    assert said == '-Dlog4j2.configurationFile=file:///a%20b/log4j2.properties "-XX:SharedArchiveFile=/c d/e"'


class TestFolders:
    def test_they_are_the_user_s(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
        assert user_folders.log_folder() == tmp_path / "s" / "tidewheel" / "spark"
        assert user_folders.cache_folder() == tmp_path / "c" / "tidewheel"
        assert user_folders.cache_folder().stat().st_mode & 0o777 == 0o700

    def test_a_home_that_cannot_be_written_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert user_folders.cache_folder() == tmp_path / f"tidewheel-{os.getuid()}" / "cache"
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
        with pytest.raises(SparkError, match="set XDG_STATE_HOME and XDG_CACHE_HOME"):
            user_folders.cache_folder()

    def test_old_logs_go_but_not_those_of_living_processes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        folder = user_folders.log_folder()
        dead = subprocess.Popen(["true"])
        dead.wait()
        ago = time.time() - 30 * 24 * 3600
        for name, when in (
            (f"20200101-000000-{dead.pid}", ago),
            (f"20200101-000000-{os.getpid()}", ago),
            (f"20300101-000000-{dead.pid}", None),
        ):
            (folder / f"{name}.log").touch()
            os.utime(folder / f"{name}.log", (when, when) if when else None)
        new = launch._new_log()
        assert new.parent == folder and new.stem.endswith(f"-{os.getpid()}")
        assert sorted(p.stem for p in folder.iterdir()) == [f"20200101-000000-{os.getpid()}", f"20300101-000000-{dead.pid}"]


def test_reasons_are_one_line() -> None:
    assert launch.reason(ValueError("An error occurred while calling o1.x.\n: java.lang.Boom: no\n\tat a.b")) == "java.lang.Boom: no"
    assert launch.reason(ValueError("[WRONG] so\nmore")) == "[WRONG] so"
    assert launch.reason(KeyError()) == "KeyError"


class TestWithoutPySpark:
    def test_one_sentence_says_what_to_install(self) -> None:
        code = """
import sys
sys.modules["pyspark"] = None
import tidewheel.spark as tws
from tidewheel import TidewheelError
for use in (lambda: tws.session, lambda: tws.connector):
    try:
        use()
    except TidewheelError as e:
        print(e)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.splitlines() == ["PySpark is not installed: pip install 'tidewheel[spark]'"] * 2, done.stderr

    def test_importing_loads_nothing(self) -> None:
        code = "import sys, tidewheel.spark; print([m for m in ('pyspark', 'py4j', 'pyarrow', 'numpy') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.strip() == "[]", done.stderr

    def test_the_names(self) -> None:
        assert set(tws.__all__) >= {"connector", "log_file", "register", "session"}
        assert all(getattr(tws, name).__doc__ for name in tws.__all__)
        with pytest.raises(AttributeError, match="no attribute 'sesion'"):
            tws.sesion  # noqa: B018
