"""What a session of ours is set to, decided from the master and the machine. Pure: nothing here touches Spark.

What the caller gives wins over all of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tidewheel.errors import SettingsError

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Without it our source never hears of a filter, and reads all rows."""

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*\])?")
_LOCAL_AND_RETRIES = re.compile(r"local\[\s*(\d+|\*)\s*,\s*\d+\s*\]")
_RETRIES = 4
_GIGABYTE = 1 << 30


def patient(master: str) -> str:
    """A local master that tries a failed task again, as every cluster does: `local[N]` would end the job at the first failure."""
    found = _LOCAL.fullmatch(master.strip())
    return f"local[{found[1] or 1},{_RETRIES}]" if found else master.strip()


def cores(master: str, machine_cores: int) -> int | None:
    """How many tasks a local master runs at once; None if it is no local one."""
    found = _LOCAL.fullmatch(master.strip()) or _LOCAL_AND_RETRIES.fullmatch(master.strip())
    if found is None:
        return None
    return machine_cores if found[1] == "*" else int(found[1] or 1)


def defaults(master: str, machine_cores: int, machine_memory: int) -> dict[str, str]:
    """The settings for a master, which is `patient` already."""
    chosen = {
        "spark.master": master,
        "spark.app.name": "tidewheel",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        PUSHDOWN: "true",
        # Spark adds up the bytes of a batch anew for every row, unless there is no limit: half of all it does for a Python sink. Batches
        # are limited by their rows instead: few enough for rows of some kilobytes, many enough for small ones.
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    here = cores(master, machine_cores)
    if here is not None:
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # All work is done in the driver; Spark's 1 GB is for one that only coordinates.
            "spark.driver.memory": f"{max(1, min(4, machine_memory // 4 // _GIGABYTE))}g",
            # A task costs milliseconds: as many as there are cores, not Spark's 200.
            "spark.sql.shuffle.partitions": str(max(2, here)),
            # Saves 50 ms a batch on a local disk. On object stores Spark's own choice is the right one.
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
        }
    return chosen


def given(conf: Mapping[str, object]) -> dict[str, str]:
    """The caller's settings as Spark wants them."""
    for name, value in conf.items():
        if not name.startswith("spark."):
            raise SettingsError(
                f'{name!r} is no setting of Spark: their names begin with spark, as in session(**{{"spark.driver.memory": "4g"}})'
            )
        if not isinstance(value, (str, int, float)):
            raise SettingsError(f"{name} must be text, a number or a bool, not {value!r}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in conf.items()}


def java_options(log4j: Path, start: list[str]) -> str:
    """What Spark's Java process is started with, in the form of `spark.driver.defaultJavaOptions`."""
    options = [f"-Dlog4j2.configurationFile={log4j.resolve().as_uri()}", *start]
    return " ".join(f'"{option}"' if " " in option else option for option in options)
