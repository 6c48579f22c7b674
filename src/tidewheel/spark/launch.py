"""Starts the Java process that Spark runs in: on the right Java, with the right Python, and never writing to the user's terminal.

One such process serves one Python process until its end; sessions come and go in it. Everything it prints, and Spark's log, goes to one
file, which `log_file` names and which is kept for two weeks.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf
from pyspark.errors import PySparkException

from tidewheel.env.background import started_in_background
from tidewheel.errors import SparkError
from tidewheel.spark import class_archive, java, jvm
from tidewheel.spark.conf import java_options
from tidewheel.spark.interpreter import for_workers
from tidewheel.spark.user_folders import log_folder

_LOG4J = Path(__file__).with_name("log4j2.properties")
_OPTIONS = "spark.driver.defaultJavaOptions"
_KEEP_SECONDS = 14 * 24 * 3600
_KEEP_FILES = 50
_SECRET = re.compile(r"(?i)secret|password|token|credential|access\.?key")

_log: Path | None = None


def log_file() -> Path | None:
    """Where Spark's log of this process is. None: no session of ours was started, so it is where its starter wanted it."""
    return _log


def submitted() -> bool:
    """This process was started by spark-submit or the pyspark shell, which has a Java process for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def launched() -> bool:
    """There is a Java process. One that died, killed for want of memory perhaps, is forgotten with all that ran in it."""
    gateway = jvm.gateway()
    process = getattr(gateway, "proc", None)
    if process is not None and process.poll() is not None:
        jvm.forget_java()
        return False
    return gateway is not None


def died(patience: float) -> bool:
    """Whether the Java process that we have a line to is dead. It is given so many seconds to end, and then forgotten."""
    process = getattr(jvm.gateway(), "proc", None)
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    return not launched()


def launch(settings: Mapping[str, str], local: bool, options: list[str] | None = None, background: bool = False) -> Any:
    """Start it, and return its gateway for `SparkContext(gateway=…)`. `options` replace those that make it start fast.

    `background`: with a low priority, which its Python workers inherit.
    """
    global _log
    use_this_python(local)
    chosen = java.find()
    log = _new_log()
    _keep_python_quiet(log)
    conf = SparkConf(loadDefaults=False)
    conf.set(_OPTIONS, java_options(_LOG4J, class_archive.options(chosen) if options is None else options))
    for name, value in settings.items():
        if not _SECRET.search(name):  # they would be on a command line that everybody can read; the context gets them
            conf.set(name, value)
    environment = {"JAVA_HOME": str(chosen.home), "SPARK_HOME": jvm.spark_home()} | ({"SPARK_LOCAL_IP": "127.0.0.1"} if local else {})
    with log.open("ab") as out, _environment(environment):
        try:
            start = partial(jvm.start_java, conf, out)
            gateway = started_in_background(start) if background else start()
        except (PySparkException, OSError) as e:
            raise SparkError(
                f"Spark did not start: {_last_words(log) or e}. What it said is in {log}; `tidewheel doctor` may know more"
            ) from e
    _log = log
    return gateway


def end() -> None:
    """End the Java process, which a stopped session leaves for the next one, and wait until it has."""
    gateway = jvm.gateway()
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        gateway.shutdown()
        process.stdin.close()
        process.wait()


def reason(error: BaseException) -> str:
    """One line that says what an error of Spark is about: Py4J puts its own before it."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")] or [type(error).__name__]
    return lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]


def use_this_python(local: bool) -> None:
    """Workers run the Python that runs us; on a cluster, unless PYSPARK_PYTHON says what is there."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if local or not os.environ.get(name):
            os.environ[name] = for_workers() if local else sys.executable


def _keep_python_quiet(log: Path) -> None:
    """What PySpark logs on the Python side goes to the file as well."""
    # Without a handler of its own, what Py4J says when Java goes away lands on the terminal.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    for logger in jvm.query_loggers():
        logger.propagate = False
        logger.handlers = [logging.FileHandler(log, delay=True)]

    def noted(server: object, request: object, client: object) -> None:
        with log.open("a") as out:
            traceback.print_exc(file=out)

    jvm.handle_accumulator_errors(noted)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _new_log() -> Path:
    """A file for this process; files of processes that ended long ago go."""
    folder = log_folder()
    old = sorted(folder.glob("*-*.log"), reverse=True)
    for n, file in enumerate(old):
        with suppress(OSError, ValueError):
            if (n >= _KEEP_FILES or time.time() - file.stat().st_mtime > _KEEP_SECONDS) and not _alive(int(file.stem.rpartition("-")[2])):
                file.unlink()
    return folder / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.log"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _last_words(log: Path) -> str:
    """The lines that most likely say what went wrong."""
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()[-200:] if line.strip()]
        telling = [line for line in lines if re.search(r"(?i)\b(error|exception|unrecognized|invalid|could not|cannot)\b", line)]
        return "; ".join(telling[:2] or lines[-1:])[:300].rstrip(".")
    return ""
