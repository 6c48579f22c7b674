"""Rows that are copied by two threads are those that one copies, in the same order; what does not fit in halves is copied as a whole."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.errors import LimitError
from tidewheel.read import rows as reading
from tidewheel.read.materialise import TooLongError

SCHEMA = pa.schema(
    [
        pa.field("k", pa.string(), nullable=False), pa.field("ts", pa.timestamp("us"), nullable=False), ("n", pa.int64()),
        ("ok", pa.bool_()), ("small", pa.int16()), ("text", pa.large_string()), ("list", pa.list_(pa.int32())),
    ]
)  # fmt: skip


def _filled(wh: tw.Warehouse) -> Any:
    table = wh.create_table("t", SCHEMA, time="ts", key="k")
    rows = [
        {
            "k": f"k{n % 7}", "ts": dt.datetime(2026, 1, 1) + dt.timedelta(seconds=n), "n": None if n % 5 == 0 else n, "ok": n % 3 == 0,
            "small": n % 100, "text": None if n % 11 == 0 else "x" * (n % 13), "list": [n, n + 1],
        }
        for n in range(900)
    ]  # fmt: skip
    table.insert(pa.Table.from_pylist(rows[:600], SCHEMA))
    table.flush()
    table.insert(pa.Table.from_pylist(rows[600:], SCHEMA))
    return table


@pytest.mark.parametrize("error", [None, TooLongError(), LimitError("half of it")])
def test_two_threads_copy_what_one_copies(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    shared = []

    def halves(*args: Any) -> Any:
        shared.append(args)
        if error is not None:
            raise error
        return both(*args)

    both = reading.halves
    monkeypatch.setattr(reading, "halves", halves)
    monkeypatch.setattr(reading, "cores", lambda: 2)
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=64, zero_copy_rows=1 << 30)) as wh:
        table = _filled(wh)
        for where in (None, "n % 2 = 1", "n > 100 AND small < 70", "n = 7"):
            expected = table.query(where=where, order_by="ts").to_arrow()
            plain = table.query(where=where).to_arrow()
            monkeypatch.setattr(reading, "_SHARED", 2)
            found = table.query(where=where).to_arrow()
            assert found.equals(plain), where
            assert table.query(where=where, order_by="ts").to_arrow().equals(expected)
            with pytest.raises(LimitError, match="max_bytes"):
                table.query(max_bytes=1000).to_arrow()
            monkeypatch.setattr(reading, "_SHARED", 1 << 15)
    assert shared
