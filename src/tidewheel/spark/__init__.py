"""The pipeline on Spark: `import tidewheel.spark as tws`.

The names load when first used, so this can be imported where PySpark is not installed; using one then says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewheel.spark.ingestion import ingest
    from tidewheel.spark.jars import connector
    from tidewheel.spark.spark_sessions import log_file, register, session

_HOMES = {
    "session": "tidewheel.spark.spark_sessions",
    "register": "tidewheel.spark.spark_sessions",
    "log_file": "tidewheel.spark.spark_sessions",
    "connector": "tidewheel.spark.jars",
    "ingest": "tidewheel.spark.ingestion",
    # for the warehouse, not for users
    "background_session": "tidewheel.spark.spark_sessions",
    "SparkCompute": "tidewheel.spark.derived_compute",
    "define": "tidewheel.spark.definitions",
}

__all__ = ["connector", "ingest", "log_file", "register", "session"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tidewheel.spark' has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] not in ("pyspark", "py4j"):
            raise
        from tidewheel.errors import SparkError

        raise SparkError("PySpark is not installed: pip install 'tidewheel[spark]'") from e
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
