"""A DataFrame is run again after its warehouse got another owner: it is planned anew.

Spark plans a DataFrame object once. How many tasks read a table is part of the plan, and the tasks of an execution must agree on a
version, which an owner that came meanwhile cannot tell them (`splits.portion_of`). So they refuse, and whoever asked for all rows at once
asks again, with a new plan of the same question. Everything else that can be done with a DataFrame plans it anew anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException

from tidewheel.spark import jvm
from tidewheel.spark.splits import PLANNED_BEFORE

_METHODS = ("collect", "toPandas", "toArrow")


def install() -> None:
    """For all classic DataFrames of this process; nothing changes for those that succeed, or fail for another reason."""
    frames, _ = jvm.frame_classes()
    for name in _METHODS:
        jvm.wrap_method(frames, name, _again, mark="again")


def _again(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def again(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except PySparkException as e:
            if PLANNED_BEFORE not in str(e):
                raise
        return method(jvm.frame_of(self.sparkSession, jvm.analyzed(self)), *args, **kwargs)

    return again
