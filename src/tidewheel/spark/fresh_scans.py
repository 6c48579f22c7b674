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
from pyspark.sql.readwriter import DataFrameReader

from tidewheel.spark import jvm

_log = logging.getLogger("tidewheel.spark")

_ATTRIBUTE = "_tidewheel_fresh_scans"


def install(spark: SparkSession, format_: str) -> bool:
    """Do it for a session; False if it cannot be done."""
    if not jvm.is_classic(spark):
        return False
    try:
        source = resources.files(__package__).joinpath("FreshScans.java").read_text()
        setattr(spark.sparkContext, _ATTRIBUTE, jvm.compiled(spark, source, "FreshScans", format_))
    except Exception as e:  # whatever a strange Spark makes of it: reading works without
        _log.warning("filters do not reach tables of format %s in this Spark, so reading is slower: %s", format_, e)
        return False
    for owner, name in ((DataFrameReader, "load"), (DataFrameReader, "table"), (SparkSession, "table"), (SparkSession, "sql")):
        jvm.wrap_method(owner, name, _fresh)
    return True


def _fresh(method: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """The method, whose DataFrames read our tables through tables of their own."""

    @functools.wraps(method)
    def fresh(self: Any, *args: Any, **kwargs: Any) -> DataFrame:
        found = method(self, *args, **kwargs)
        spark = found.sparkSession
        scans = getattr(spark.sparkContext, _ATTRIBUTE, None) if jvm.is_classic(spark) else None
        if scans is None or (analyzed := jvm.analyzed(found)) is None:
            return found
        plan = scans.replaced(analyzed)
        return found if plan is None else jvm.frame_of(spark, plan)

    return fresh
