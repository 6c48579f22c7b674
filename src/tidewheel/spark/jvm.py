"""Every private name of PySpark, Py4J and Spark's Java classes that the driver uses, in one place: an upgrade of Spark begins here.

Each function says why it is needed, and what to check on an upgrade (pyproject.toml allows one minor version at a time). Four more
things hang on Spark's insides and are not here: `TidewheelProvider.java` and `AverageStates.java`, which are compiled against Spark's
classes, and `stream_sink.py` and `splits.py`, which read local properties of a task. tests/integration/test_spark_session.py,
test_spark_reader.py and test_spark_averages.py fail if any of it has changed.

A session of Spark Connect has no Java process here: `is_classic` tells it, and all other functions are for classic sessions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext, accumulators
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

_WRAPPED = "_tidewheel_wrapped"
"""An attribute of methods that were wrapped."""


def is_classic(spark: SparkSession) -> bool:
    """Whether Spark runs in a Java process of this machine's. There is no public question for it; Connect's session lacks the attribute."""
    return hasattr(spark, "_jsparkSession")


def java_of(spark: SparkSession) -> Any:
    """Py4J's view of the Java process: `java_of(spark).java.io.File(…)`. None for Spark Connect.

    Public PySpark can neither load a jar into a running session, nor resolve one, nor set the level of one logger.
    """
    return getattr(spark, "_jvm", None)


def scala_object(package: Any, name: str) -> Any:
    """A Scala object, as Java sees it. Check: Scala's compiler still calls it `name$` with a field `MODULE$`."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


# ---- the Java process ---------------------------------------------------------------------------------------


def spark_home() -> str:
    """Where Spark lies: SPARK_HOME, or PySpark's own folder. PySpark's scripts use it, and it has no public name."""
    return _find_spark_home()


def start_java(conf: SparkConf, out: IO[bytes]) -> Any:
    """Start the Java process, all of whose output goes to `out`; returns its gateway for `SparkContext(gateway=…)`.

    A context that starts it itself lets it write to the terminal. Check: the second argument is still handed on to `Popen`.
    """
    return launch_gateway(conf, {"stdout": out, "stderr": out})  # type: ignore[no-untyped-call]


def gateway() -> Any:
    """The line to the Java process, which outlives its sessions; None: there is no process. Its `proc` is the process, if we started it."""
    return SparkContext._gateway


def has_context() -> bool:
    """Whether a context is running. `SparkContext.getOrCreate` would make one."""
    return SparkContext._active_spark_context is not None


def is_over(spark: SparkSession) -> bool:
    """Whether a session was stopped, or its Java process was forgotten: its context is not the one that runs."""
    return is_classic(spark) and SparkContext._active_spark_context is not spark.sparkContext


def forget_java() -> None:
    """After the Java process died: PySpark would talk to it for ever. Check: `SparkContext._ensure_initialized` and `SparkSession.Builder`
    look at no other attribute of a class to see what there is."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


# ---- silence ------------------------------------------------------------------------------------------------


def query_loggers() -> list[Any]:
    """PySpark's loggers that print every failed query, which is raised in addition. Check: `pyspark.errors.exceptions` has no others."""
    return [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]


def handle_accumulator_errors(noted: Callable[[object, object, object], None]) -> None:
    """Java may let go of the line to a stopped session before Python stops to listen on it, which Python's own servers print."""
    for kind in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        setattr(kind, "handle_error", noted)  # noqa: B010  # mypy has no other way to take it


def expect_replacement(spark: SparkSession) -> None:
    """Spark found `pyspark_tidewheel` by itself, and would warn that a source of its name is registered again. Check: which class warns."""
    logs = java_of(spark).org.apache.logging.log4j
    logs.core.config.Configurator.setLevel("org.apache.spark.sql.execution.datasources.DataSourceManager", logs.Level.ERROR)


# ---- classes ------------------------------------------------------------------------------------------------


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the driver knows a class."""
    jvm = java_of(spark)
    try:
        jvm.java.lang.Class.forName(name, False, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError:
        return False
    return True


def add_jar(spark: SparkSession, file: Path) -> None:
    """Driver and executors learn the classes of a jar; `SparkContext.addJar` is Java's alone, and reaches executors only. Raises Py4JError
    where the driver's class loader takes no more."""
    know_jar(spark, file)
    context: Any = spark.sparkContext._jsc
    context.addJar(str(file))


def know_jar(spark: SparkSession, file: Path) -> None:
    """The driver learns the classes of a jar. Check: its class loader is still a `MutableURLClassLoader`."""
    jvm = java_of(spark)
    jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(jvm.java.io.File(str(file)).toURI().toURL())


def compiled(spark: SparkSession, source: str) -> dict[str, bytes]:
    """The classes of a Java source, by their names, made by Janino, which Spark has for its own generated code."""
    return {str(name): bytes(code) for name, code in _cooked(spark, source).getBytecodes().items()}


def java_object(spark: SparkSession, source: str, name: str, argument: object) -> Any:
    """An instance of a Java class that is made of its source, for the driver alone.

    One for each Java process, which may outlive the session: Py4J takes two classes of one name for the same.
    """
    line = gateway()
    kept = f"_tidewheel_{name}"
    if kept not in vars(line):  # its other attributes are Java's
        (make,) = _cooked(spark, source).getClassLoader().loadClass(name).getConstructors()
        arguments = line.new_array(java_of(spark).java.lang.Object, 1)
        arguments[0] = argument
        vars(line)[kept] = make.newInstance(arguments)
    return vars(line)[kept]


def _cooked(spark: SparkSession, source: str) -> Any:
    jvm = java_of(spark)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler


# ---- sessions -----------------------------------------------------------------------------------------------


def active_session() -> SparkSession | None:
    """The session that `SparkSession.active()` returns, if there is one: that never makes one."""
    return SparkSession._activeSession


def set_active_session(spark: SparkSession | None) -> None:
    """Whatever is done with a second session makes it the active one of the whole process; this sets it back, in Python and in Java."""
    SparkSession._activeSession = spark
    line: Any = gateway()
    if "_tidewheel_sessions" not in vars(line):  # each part of the name is a question to Java
        vars(line)["_tidewheel_sessions"] = line.jvm.org.apache.spark.sql.classic.SparkSession
    sessions = vars(line)["_tidewheel_sessions"]
    if spark is None:
        sessions.clearActiveSession()
    else:
        sessions.setActiveSession(spark._jsparkSession)


# ---- DataFrames ---------------------------------------------------------------------------------------------


def analyzed(frame: DataFrame) -> Any:
    """The plan of a DataFrame, before it is optimised; None if it is not a classic one."""
    return frame._jdf.queryExecution().analyzed() if isinstance(frame, ClassicDataFrame) else None


def plan_json(frame: DataFrame) -> str:
    """The analysed plan of a classic DataFrame as JSON, with every expression and its type. Public PySpark only prints plans, cut short.
    The frame's session is the active one.

    The JSON does not tell try_sum from sum, so that is added to it: if there is one try_sum, of every sum. Check: the recorded plans of
    tests/unit/plans, which tests/integration/test_spark_analysed.py compares with this Spark's."""
    found = str(analyzed(frame).toJSON())
    if _ANY_SUM not in found or "try_sum(" not in _plan_text(frame):
        return found
    marked, sums = _SUM.subn(r'\1"TRY"', found)
    if not sums:
        raise AssertionError("this Spark writes the plan of a sum in another way: try_sum would be taken for sum")
    return marked


_ANY_SUM = '"class":"org.apache.spark.sql.catalyst.expressions.aggregate.Sum"'
_SUM = re.compile(r'("class":"org\.apache\.spark\.sql\.catalyst\.expressions\.aggregate\.Sum",[^{}]*"evalContext":)null')


def _plan_text(frame: DataFrame) -> str:
    """The plan as people read it, and all columns of it."""
    confs, name = frame.sparkSession.conf, "spark.sql.debug.maxToStringFields"
    before = confs.get(name)
    confs.set(name, str(2**31 - 1))
    try:
        return str(analyzed(frame).toString())
    finally:
        confs.set(name, str(before))


def is_deterministic(frame: DataFrame) -> bool:
    """What Spark thinks of it. It calls now(), first() and every plain Python function deterministic, too."""
    return bool(analyzed(frame).deterministic())


def parsed_json(spark: SparkSession, sql: str) -> str:
    """The plan of a statement before any name in it is looked up, as JSON. Raises what `spark.sql` raises for bad syntax."""
    return str(_parsed(spark, sql).toJSON())


def is_command(spark: SparkSession, sql: str) -> bool:
    """Whether a statement does something when it is given to `spark.sql`, and not only when its rows are asked for."""
    command = java_of(spark).java.lang.Class.forName("org.apache.spark.sql.catalyst.plans.logical.Command")
    return bool(command.isInstance(_parsed(spark, sql)))


def _parsed(spark: SparkSession, sql: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame of a plan. Check: `Dataset.ofRows(session, plan)`."""
    return ClassicDataFrame(java_of(spark).org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def written_as(writer: Any) -> tuple[str, str]:
    """The format and the save mode of a `DataFrameWriter`, which can be set and not asked for; nothing for Spark Connect."""
    java = getattr(writer, "_jwrite", None)
    return (str(java.source()).lower(), str(java.curmode().name())) if java is not None else ("", "")


def option_of(writer: Any, name: str) -> str | None:
    """An option of a `DataFrameWriter`, which can be set and not asked for; None for Spark Connect."""
    java = getattr(writer, "_jwrite", None)
    found = java.extraOptions().get(name) if java is not None else None
    return str(found.get()) if found is not None and found.isDefined() else None


def wrap_property(owner: type, name: str, wrap: Callable[[Any], Any]) -> None:
    """The same for a property: `wrap` gets, and returns, the method that reads it."""
    found = getattr(owner, name)
    if isinstance(found, property) and not hasattr(found.fget, _WRAPPED):
        ours = wrap(found.fget)
        setattr(ours, _WRAPPED, True)
        setattr(owner, name, property(ours, doc=found.__doc__))


def frame_classes() -> tuple[type, type]:
    """The classes of classic DataFrames and of what their groupBy returns; the public ones are only their base."""
    return ClassicDataFrame, GroupedData


def wrap_method(owner: type, name: str, wrap: Callable[[Any], Any], mark: str = "") -> None:
    """Put a method of ours around one of PySpark's, once for each `mark`. Check: PySpark's own code calls none of those that are wrapped
    with arguments that ours does not take."""
    method = getattr(owner, name)
    if not hasattr(method, _WRAPPED + mark):
        ours = wrap(method)
        setattr(ours, _WRAPPED + mark, True)
        setattr(owner, name, ours)
