"""Every scan of our tables is planned for itself.

Spark 4.3 keeps what a Python source planned for one scan with the DataFrame that `load` returned, and uses it for every other scan of
that DataFrame: after `df.where("plate < 9").count()`, `df.count()` counts the plates below 9, and in a union of two filtered halves both
halves get the filters of the second. A source that uses the filters it is given then gives wrong answers, and there is no switch for it.

So a registered session gets a table of its own for our format: some Java (`FreshScans.java`), compiled by the compiler that Spark has with
it anyway, that plans each scan anew, and for the columns that it needs. It is put in place of Spark's table in the DataFrames that
`load`, `table` and `sql` return. Without it (in a session that was not registered, or in a Spark for which it does not compile) no filter
is used while reading: the answers are right, and take longer.

A scan is planned in two steps. The *probe*, with all columns, tells Spark which filters we take; what it made of them comes back as its
only partition. The *scan* gets that with the columns that are needed, and pins a version. Both travel as options.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from importlib import resources
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.readwriter import DataFrameReader

_log = logging.getLogger("tidewheel.spark")

_ATTRIBUTE = "_tidewheel_fresh_scans"


def install(spark: SparkSession, format_: str) -> bool:
    """Do it for a session; False if it cannot be done."""
    if not hasattr(spark, "_jsparkSession"):  # Spark Connect: the JVM is elsewhere
        return False
    try:
        setattr(spark.sparkContext, _ATTRIBUTE, _compiled(spark, format_))
    except Exception as e:  # whatever a strange Spark makes of it: reading works without
        _log.warning("filters do not reach tables of format %s in this Spark, so reading is slower: %s", format_, e)
        return False
    for owner, name in ((DataFrameReader, "load"), (DataFrameReader, "table"), (SparkSession, "table"), (SparkSession, "sql")):
        method = getattr(owner, name)
        if not hasattr(method, _ATTRIBUTE):
            setattr(owner, name, _fresh(method))
    return True


def _compiled(spark: SparkSession, format_: str) -> Any:
    """Once for a Java process, which may outlive the session: Py4J takes two classes of one name for the same."""
    context = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    assert jvm is not None and gateway is not None
    there = vars(gateway).get(_ATTRIBUTE)  # its other attributes are Java's
    if there is not None:
        return there
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(resources.files(__package__).joinpath("FreshScans.java").read_text())
    (make,) = compiler.getClassLoader().loadClass("FreshScans").getConstructors()
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = format_
    made = make.newInstance(arguments)
    vars(gateway)[_ATTRIBUTE] = made
    return made


def _fresh(method: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """The method, whose DataFrames read our tables through tables of their own."""

    @functools.wraps(method)
    def fresh(self: Any, *args: Any, **kwargs: Any) -> DataFrame:
        found = method(self, *args, **kwargs)
        spark = found.sparkSession
        scans = getattr(spark.sparkContext, _ATTRIBUTE, None) if hasattr(spark, "_jsparkSession") else None
        if scans is None or not isinstance(found, ClassicDataFrame):
            return found
        plan = scans.replaced(found._jdf.queryExecution().analyzed())
        if plan is None:
            return found
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        return ClassicDataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)

    setattr(fresh, _ATTRIBUTE, True)
    return fresh
