"""All save modes for our format.

Spark hands only `append` and `overwrite` to Python sources; the other two, one of which is what `df.write.save(path)` means, it
refuses before we are asked. They are an append under a condition: the option `ifExists` says it, and a registered session sets it.
"""

from __future__ import annotations

import functools
from typing import Any

from pyspark.sql.readwriter import DataFrameWriter

from tidewheel.spark import jvm

_CONDITIONS = {"ErrorIfExists": "error", "Ignore": "ignore"}


def install(format_: str) -> None:
    """For all DataFrames of this process that are written in this format, and for no others."""
    jvm.wrap_method(DataFrameWriter, "save", lambda save: _all_modes(save, format_))


def _all_modes(save: Any, format_: str) -> Any:
    @functools.wraps(save)
    def saved(
        self: Any, path: str | None = None, format: str | None = None, mode: str | None = None, partitionBy: Any = None, **options: Any
    ) -> None:
        if format is not None:
            self.format(format)
        if mode is not None:
            self.mode(mode)
        written, mode_ = jvm.written_as(self)
        if written == format_ and mode_ in _CONDITIONS:
            self.mode("append").option("ifExists", _CONDITIONS[mode_])
        save(self, path, None, None, partitionBy, **options)

    return saved
