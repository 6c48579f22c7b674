"""The last rows of keys that are no small whole numbers: pieces without one are left out, and the answer stays the same."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.read.last import needed_pieces

START = dt.datetime(2026, 1, 1)
KEYS: dict[str, tuple[pa.DataType, list[Any], Any]] = {
    "text": (pa.string(), ["", "a", "a\0", "ab", *(f"host_{n}" for n in range(20)), "host_123456789012", "host_123456789013"], "k"),
    "binary": (pa.binary(), [b"", b"a", b"a\0", *(b"host_123456789%d" % n for n in range(20))], "k"),
    "float": (pa.float64(), [-1.5, -0.0, 0.0, 2.25, float("inf")], "k"),
    "wide": (pa.int64(), [-(1 << 62), -1, 0, 1, 1 << 62], "k"),
    "address": (pa.string(), ["10.0.0.1", "10.0.0.2", "::1", "0:0::1", "::ffff:10.0.0.1"], tw.ip("k")),
}  # fmt: skip


@pytest.mark.parametrize("narrow", [False, True], ids=["few columns", "many columns"])
@pytest.mark.parametrize("kind", list(KEYS))
def test_last_rows_are_those_of_all_pieces(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, kind: str, narrow: bool) -> None:
    type_, values, key = KEYS[kind]
    rng = random.Random(f"{kind} {narrow}")
    more = [f"m{n}" for n in range(9)]
    fields = [pa.field("k", type_, nullable=False), pa.field("ts", pa.timestamp("us"), nullable=False), ("n", pa.int64())]
    schema = pa.schema([*fields, *((name, pa.int32()) for name in more)])
    kept: list[tuple[int, int]] = []
    whole = needed_pieces.with_last_rows

    def with_last_rows(scan: Any, *args: Any) -> Any:
        part = whole(scan, *args)
        kept.append((scan.found.rows, part.found.rows))
        return part

    monkeypatch.setattr("tidewheel.read.aged.with_last_rows", with_last_rows)
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=16)) as wh:
        table = wh.create_table("t", schema, time="ts", key=key)
        for part in range(12):
            known = values[: len(values) - part % 2]
            rows = [_row(rng.choice(known), 60 * part + rng.randrange(80), 100 * part + n, more) for n in range(100)]
            table.insert(pa.Table.from_pylist(rows, schema))
            if part < 10:
                table.flush()
        table.replace([], time=(START + dt.timedelta(seconds=650), START + dt.timedelta(seconds=680)))
        for where in ("", "n < 900", "n >= 300", "ts < TIMESTAMP '2026-01-01 00:05:00'"):
            asked: dict[str, Any] = {"columns": ["k", "ts", "n"] if narrow else None, "where": where or None, "order_by": "n"}
            monkeypatch.setattr(needed_pieces, "_MANY", 1 << 60)
            expected = table.latest(**asked).to_pylist()
            monkeypatch.setattr(needed_pieces, "_MANY", 1)
            found = table.latest(**asked).to_pylist()
            assert found == expected, where
            if kind in ("text", "binary", "wide"):
                best: dict[Any, tuple[Any, int]] = {}
                for row in table.query(**asked).to_pylist():
                    best[row["k"]] = max(best.get(row["k"], (START, -1)), (row["ts"], row["n"]))
                assert {row["k"]: (row["ts"], row["n"]) for row in found} == best
    assert any(0 < left < rows for rows, left in kept)


def _row(key: Any, seconds: int, number: int, more: list[str]) -> dict[str, Any]:
    return {"k": key, "ts": START + dt.timedelta(seconds=seconds), "n": number} | dict.fromkeys(more, number)
