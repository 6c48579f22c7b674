"""Spark sessions: one of ours (`session`), or anybody's that learns our format (`register`)."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidewheel.env.memory import machine_memory
from tidewheel.errors import SettingsError, SparkError
from tidewheel.spark.conf import PUSHDOWN, cores, defaults, given, patient
from tidewheel.spark.interpreter import agree
from tidewheel.spark.jvm import expect_replacement, has_context, java_of
from tidewheel.spark.launch import launch, launched, log_file, reason, submitted, use_this_python

__all__ = ["SparkSession", "log_file", "register", "session"]

_LEAST = (4, 3)
_lock = threading.Lock()

_last: tuple[str | None, dict[str, str], bool] = None, {}, True
"""Master, settings and priority of the last session that was started here."""


def session(master: str | None = None, **conf: object) -> SparkSession:
    """A quiet Spark session, set for real-time streams, with `format("tidewheel")`.

    `master` is Spark's; the default is `local[*]`, or what spark-submit was told. `conf` are settings of Spark, as in
    `session("local[4]", **{"spark.driver.memory": "8g"})`. A session that is running in this process already is returned if it has the same
    master; settings that it can still take are changed, and the others, if they differ, are an error. Nothing of Spark reaches the
    terminal: `log_file()` says where its log is. Call it from any thread; end it with `spark.stop()`.
    """
    return _running_or_new(master, given(conf))


def background_session(master: str | None = None) -> SparkSession:
    """As `session`, for work that nobody waits for: a Java process that is started for it has a low priority."""
    return _running_or_new(master, {}, background=True)


def running_session() -> SparkSession | None:
    """The session of this process, whoever started it, if its Java process is alive."""
    return SparkSession.builder.getOrCreate() if launched() and has_context() else None


def session_anew() -> SparkSession:
    """In the place of one whose Java process ended: the one that runs by now, or one like the last that was started here."""
    return running_session() or _running_or_new(*_last)


def _running_or_new(master: str | None, wanted: dict[str, str], background: bool = False) -> SparkSession:
    global _last
    with _lock:
        if (running := running_session()) is not None:
            return register(_changed(running, master, wanted))
        made = register(start(master, wanted, background=background))
        _last = master, wanted, background
        return made


def register(spark: SparkSession) -> SparkSession:
    """Teach a session that you have `format("tidewheel")`, and return it.

    Filters of queries reach the table from now on (`spark.sql.python.filterPushdown.enabled`), unless you switched that off. On this
    machine its workers run this Python, unless PYSPARK_PYTHON names another; that one must have Tidewheel, or this is an error. No other
    setting is touched: our source and sinks are right in any time zone.
    """
    from tidewheel.spark.source import install

    _check_version()
    agree(spark)
    if java_of(spark) is not None:
        with suppress(Py4JError):
            expect_replacement(spark)
    install(spark)
    if PUSHDOWN not in spark.conf.getAll:
        spark.conf.set(PUSHDOWN, "true")
    return spark


def start(master: str | None, wanted: dict[str, str], options: list[str] | None = None, background: bool = False) -> SparkSession:
    """A new one, in the Java process that is there or a new one. `options` and `background` are for the latter."""
    _check_version()
    told = SparkConf().get("spark.master", "") if submitted() else ""
    master = patient(master or wanted.get("spark.master") or told or "local[*]")
    if master.startswith("sc://"):
        raise SettingsError("for Spark Connect, make the session with SparkSession.builder.remote(…) and give it to register(…)")
    settings = defaults(master, os.cpu_count() or 1, machine_memory()) | wanted | {"spark.master": master}
    local = cores(master, 1) is not None
    if not (launched() or submitted()):
        gateway = launch(settings, local, options, background)
    else:
        gateway = None
        use_this_python(local)
    context_conf = SparkConf()
    for name, value in settings.items():
        context_conf.set(name, value)
    try:
        SparkContext(conf=context_conf, gateway=gateway)
    except Exception as e:
        raise SparkError(f"Spark did not start: {reason(e)}" + (f". Its log is {log_file()}" if log_file() else "")) from e
    return SparkSession.builder.getOrCreate()


def _changed(spark: SparkSession, master: str | None, wanted: dict[str, str]) -> SparkSession:
    """The running one, if it is what was asked for."""
    has = str(spark.sparkContext.master)
    asked = master or wanted.get("spark.master") or has
    if asked != has and patient(asked) != has:
        raise SettingsError(
            f"a Spark session on {has} is running in this process, and there can be only one: spark.stop() it before asking for {asked}"
        )
    differ = {name: value for name, value in wanted.items() if name != "spark.master" and spark.conf.get(name, None) != value}
    fixed = sorted(name for name in differ if not spark.conf.isModifiable(name))
    if fixed:
        raise SettingsError(f"{', '.join(fixed)} cannot be changed in a running session: spark.stop() it first")
    for name, value in differ.items():
        spark.conf.set(name, value)
    return spark


def _check_version() -> None:
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _LEAST:
        raise SparkError(f"Tidewheel needs PySpark 4.3, and {pyspark.__version__} is installed: pip install -U 'tidewheel[spark]'")
