"""All save modes for our format.

Spark hands only `append` and `overwrite` to Python sources; the other two, one of which is what `df.write.save(path)` means, it
refuses before we are asked. They are an append under a condition: the option `ifExists` says it, and a registered session sets it.

`saveAsTable` knows all modes, but only looks into Spark's catalog for the table. Where that has none, Spark makes one and adds the rows to
it, which `java_provider` refuses for a table of ours that is there; here it learns that somebody wants that.
"""

from __future__ import annotations

import functools
from typing import Any

from pyspark.sql.readwriter import DataFrameWriter

from tidewheel.spark import jvm

_CONDITIONS = {"ErrorIfExists": "error", "Ignore": "ignore"}
_WISHES = {"Append": "append", "Ignore": "ignore"}


def install(format_: str) -> None:
    """For all DataFrames of this process that are written in this format, and for no others."""
    jvm.wrap_method(DataFrameWriter, "save", lambda save: _all_modes(save, format_))
    jvm.wrap_method(DataFrameWriter, "saveAsTable", lambda save: _said_modes(save, format_))


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


def _said_modes(save_as_table: Any, format_: str) -> Any:
    @functools.wraps(save_as_table)
    def saved(self: Any, name: str, format: str | None = None, mode: str | None = None, partitionBy: Any = None, **options: Any) -> None:
        if format is not None:
            self.format(format)
        if mode is not None:
            self.mode(mode)
        written, mode_ = jvm.written_as(self)
        if written == format_:
            if mode_ in _WISHES:
                self.option("ifExists", _WISHES[mode_])
            warehouse, table = (options.get(name) or jvm.option_of(self, name) for name in ("warehouse", "table"))
            if warehouse and table:  # of all options, the catalog only keeps the path
                self.option("path", f"{warehouse.rstrip('/')}/{table}")
        save_as_table(self, name, None, None, partitionBy, **options)

    return saved
