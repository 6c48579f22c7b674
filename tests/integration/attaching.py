"""A table of three columns and its rows, for the tests of processes that attach to an owner; their fixtures are in conftest.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.model.schema import make_spec

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64())])
SPEC = make_spec("t", SCHEMA, time="ts", key="id")
MANY = 300_000


def rows(n: int, start: int = 0) -> pa.RecordBatch:
    i = np.arange(start, start + n)
    return pa.record_batch([i % 100, pa.array(i, pa.timestamp("us")), i / 2], schema=SCHEMA)


def eventually(what: Callable[[], Any], seconds: float = 20.0) -> bool:
    give_up = time.monotonic() + seconds
    while not what() and time.monotonic() < give_up:
        time.sleep(0.01)
    return bool(what())
