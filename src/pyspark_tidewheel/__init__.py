"""Spark looks for modules of this kind of name: `format("tidewheel")` in every session, spark-submit and the pyspark shell included."""

from tidewheel.spark.source import TidewheelSource as DefaultSource

__all__ = ["DefaultSource"]
