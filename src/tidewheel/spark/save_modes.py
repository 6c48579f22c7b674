"""All save modes for our format.

Spark hands only `append` and `overwrite` to Python sources; the other two, one of which is what `df.write.save(path)` means, it
refuses before we are asked. They are an append under a condition: the option `ifExists` says it, and a registered session sets it.
"""

from __future__ import annotations

import functools
from typing import Any

from pyspark.sql.readwriter import DataFrameWriter

_CONDITIONS = {"ErrorIfExists": "error", "Ignore": "ignore"}
_ATTRIBUTE = "_tidewheel_modes"


def install(format_: str) -> None:
    """For all DataFrames of this process that are written in this format, and for no others."""
    if not hasattr(DataFrameWriter.save, _ATTRIBUTE):
        setattr(DataFrameWriter, "save", _all_modes(DataFrameWriter.save, format_))  # noqa: B010 (mypy forbids to assign a method)


def _all_modes(save: Any, format_: str) -> Any:
    @functools.wraps(save)
    def saved(
        self: Any, path: str | None = None, format: str | None = None, mode: str | None = None, partitionBy: Any = None, **options: Any
    ) -> None:
        if format is not None:
            self.format(format)
        if mode is not None:
            self.mode(mode)
        writer = getattr(self, "_jwrite", None)  # Spark Connect has none
        if writer is not None and str(writer.source()).lower() == format_:
            condition = _CONDITIONS.get(str(writer.curmode().name()))
            if condition is not None:
                self.mode("append").option("ifExists", condition)
        save(self, path, None, None, partitionBy, **options)

    setattr(saved, _ATTRIBUTE, True)
    return saved
