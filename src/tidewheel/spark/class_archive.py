"""An archive of the classes Spark loads, from which its Java process starts with half the work.

Java makes it from a trial run (`make`), which takes a quarter of a minute and 200 MB; `python -m tidewheel.surfaces.warm` does that, and
so does `make setup`. It is only good for exactly these jars and this Java: with others Java itself does without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import pyspark

from tidewheel.errors import SparkError
from tidewheel.spark.java import Java, find
from tidewheel.spark.jvm import spark_home
from tidewheel.spark.user_folders import cache_folder

_UNUSED_SECONDS = 90 * 24 * 3600
_ABANDONED_SECONDS = 3600
_AOT = 25
"""From this Java on, one file takes the place of the archive on top of Java's own."""


def possible(java: Java) -> bool:
    return java.major >= _AOT or java.archive


def recording(java: Java, file: Path) -> list[str]:
    """The options with which Java writes the archive when it ends."""
    return [f"-XX:AOTCacheOutput={file}"] if java.major >= _AOT else [f"-XX:ArchiveClassesAtExit={file}"]


def replaying(java: Java, file: Path) -> list[str]:
    """The options with which Java starts from it."""
    return [f"-XX:AOTCache={file}"] if java.major >= _AOT else [f"-XX:SharedArchiveFile={file}"]


def file_for(java: Java) -> Path:
    """One for each Spark and each Java."""
    what = "\n".join((spark_home(), str(java.home), java.version))
    return cache_folder() / f"spark-{pyspark.__version__}-{blake2b(what.encode(), digest_size=8).hexdigest()}.classes"


def options(java: Java) -> list[str]:
    """For a start from the archive; none if there is no archive."""
    file = file_for(java)
    if not possible(java) or not file.is_file():
        return []
    with suppress(OSError):
        os.utime(file)  # those that nobody uses any more are deleted
    return replaying(java, file)


def make() -> Path | None:
    """Make the archive for the Java that Spark runs on here; None if that Java cannot have one. Does nothing if it is there."""
    java = find()
    file = file_for(java)
    if file.is_file() or not possible(java):
        return file if file.is_file() else None
    for old in file.parent.glob("spark-*.classes*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > (_UNUSED_SECONDS if old.suffix == ".classes" else _ABANDONED_SECONDS):
                old.unlink()
    made = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        done = subprocess.run([sys.executable, "-m", "tidewheel.spark.smoke_test", "--record", str(made)], capture_output=True, text=True)
        if done.returncode or not made.is_file():
            raise SparkError(f"no archive of Spark's classes could be made: {(done.stderr or done.stdout).strip()[-500:]}")
        made.rename(file)
    finally:
        for left in file.parent.glob(f"{made.name}*"):
            left.unlink(missing_ok=True)
    return file
