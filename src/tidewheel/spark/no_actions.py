"""A definition says what is to be computed, and does not compute: what asks for rows inside one is an error.

Over the empty tables of an analysis, `taxi.select("plate").collect()` is an empty list, and would be one for ever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tidewheel.errors import SchemaError
from tidewheel.spark.jvm import frame_classes, wrap_method, wrap_property

_METHODS = (
    "collect", "count", "toPandas", "toArrow", "first", "head", "take", "tail", "show", "foreach", "foreachPartition", "toLocalIterator",
    "isEmpty", "cache", "persist", "checkpoint", "localCheckpoint", "writeTo", "mergeInto", "createTempView", "createOrReplaceTempView",
    "createGlobalTempView", "createOrReplaceGlobalTempView", "registerTempTable", "approxQuantile", "corr", "cov", "crosstab", "freqItems",
    "describe", "summary", "transpose", "randomSplit", "inputFiles",
)  # fmt: skip
_PROPERTIES = ("write", "writeStream", "rdd")

_defining: ContextVar[str | None] = ContextVar("tidewheel_defining", default=None)
"""The definition that is being called in this thread."""


@contextmanager
def no_actions(name: str) -> Iterator[None]:
    """While it lasts, what would run Spark, write, or make views is a SchemaError in this thread; other threads notice nothing."""
    _guard()
    token = _defining.set(name)
    try:
        yield
    finally:
        _defining.reset(token)


def _guard() -> None:
    """Once for a process: outside of definitions, the methods do what they did."""
    frames, grouped = frame_classes()
    for name in _METHODS:
        if hasattr(frames, name):
            wrap_method(frames, name, functools.partial(_guarded, name=name))
    for name in _PROPERTIES:
        wrap_property(frames, name, functools.partial(_guarded, name=name))
    wrap_method(grouped, "pivot", _guarded_pivot)


def _guarded(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        _refuse(name)
        return method(*args, **kwargs)

    return guarded


def _guarded_pivot(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def pivot(self: Any, pivot_col: Any, values: Any = None) -> Any:
        if values is None:
            _refuse("pivot", "; give pivot() the values, or it asks for them")
        return method(self, pivot_col, values)

    return pivot


def _refuse(name: str, hint: str = "") -> None:
    definition = _defining.get()
    if definition is not None:
        raise SchemaError(
            f"{definition} calls {name}, which asks Spark for rows or changes something: a definition only says what is to be computed, "
            f"and is called before any row is there{hint}. Do it with DataFrames (a join in place of collect), or before the definition"
        )
