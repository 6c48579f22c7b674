"""Rows and files for Spark that are not what a table wants, and what a table should have of them.

Spark has fewer types than Arrow, and hands over whatever bytes a text has. Each row has a number `n` of its own that no fault changes, by
which it is found again.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

import tidewheel as tw
from tests.poison import ipc, is_good, mutate
from tidewheel.model.coders import key_coder
from tidewheel.model.schema import TableSpec
from tidewheel.write.accept import accept

UTC_US = pa.timestamp("us", "UTC")
FAR = 2**62
"""Microseconds: Spark has such times, a column of nanoseconds has not."""

NESTED = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))

TABLES: dict[str, tuple[pa.Schema, str]] = {
    "plain": (pa.schema([("n", pa.int64()), ("k", pa.int64()), ("ts", UTC_US), ("s", pa.string()), ("c", pa.float64())]), "k"),
    "named": (pa.schema([("n", pa.int64()), ("k", pa.int64()), ("ts", UTC_US), ("s", pa.string()), ("c", pa.binary())]), "s"),
    "floats": (pa.schema([("n", pa.int64()), ("k", pa.float64()), ("ts", UTC_US), ("s", pa.string()), ("c", pa.bool_())]), "k"),
    "narrow": (
        pa.schema(
            [("n", pa.int64()), ("k", pa.int16()), ("ts", pa.timestamp("ns", "UTC")), ("s", pa.string()), ("c", pa.decimal128(7, 2))]
        ),
        "k",
    ),
    "nested": (pa.schema([("n", pa.int64()), ("k", pa.int64()), ("ts", UTC_US), ("s", pa.string()), ("c", NESTED)]), "k"),
}
"""Their columns and their key; the time is `ts`."""


@dataclass
class Frame:
    """Columns for Spark. `raw`: texts that are handed to it as bytes, so that they need not be text."""

    rows: pa.Table
    raw: list[str] = field(default_factory=list)

    def expected(self, spec: TableSpec, on_bad: str) -> pa.Table | tw.InputError:
        """What the table should have of them, or why they must be refused."""
        seen = self.rows
        for name in self.raw:
            at = seen.schema.get_field_index(name)
            seen = seen.set_column(at, name, seen.column(name).combine_chunks().view(pa.string()))
        try:
            found = accept(seen, spec, key_coder(spec).refuse, on_bad)
        except tw.InputError as e:
            return e
        return pa.Table.from_batches(found.batches, spec.schema)


def good(name: str, rng: random.Random, first: int, rows: int) -> pa.Table:
    """Rows that the table takes, as Spark has them."""
    numbers = list(range(first, first + rows))
    schema = TABLES[name][0]
    key: list[Any] = [rng.randrange(-30_000, 30_000) for _ in numbers]
    times = pa.array([rng.randrange(-(10**15), 10**15) for _ in numbers], pa.int64())
    texts = [rng.choice(["", "a", "é", "a\0b", "x" * 40]) + str(rng.randrange(9)) for _ in numbers]
    other: dict[str, Callable[[], Any]] = {
        "plain": lambda: rng.choice([0.5, float("nan"), float("-inf"), None]),
        "named": lambda: rng.choice([b"", b"\xff\0", None]),
        "floats": lambda: rng.choice([True, False, None]),
        "narrow": lambda: None,
        "nested": lambda: rng.choice([None, [], [{"a": 1, "b": "x"}, None], [{"a": None, "b": None}]]),
    }
    columns = [
        pa.array(numbers, pa.int64()), pa.array(key, schema.field("k").type), times.cast(UTC_US),
        pa.array(texts, pa.string()), pa.array([other[name]() for _ in numbers], schema.field("c").type),
    ]  # fmt: skip
    return pa.table(columns, names=schema.names)


def _changed(column: pa.ChunkedArray, rng: random.Random, value: Any, type_: pa.DataType | None = None) -> pa.Array:
    """With another value in some rows."""
    values = column.to_pylist() if not pa.types.is_timestamp(column.type) else column.cast(pa.int64()).to_pylist()
    for at in rng.sample(range(len(values)), rng.randint(1, len(values))):
        values[at] = value
    made = pa.array(values, type_ or (column.type if not pa.types.is_timestamp(column.type) else pa.int64()))
    return made.cast(column.type) if type_ is None else made


def _value(frame: Frame, rng: random.Random) -> None:
    """Something wrong with some values."""
    rows = frame.rows
    name = rng.choice(["k", "ts", "s", "c"])
    column, value = rows.column(name), None
    match name:
        case "ts":
            value = rng.choice([None, FAR, -FAR, 2**63 - 1, -(2**63)])
        case "k" if pa.types.is_floating(column.type):
            value = rng.choice([None, float("nan"), float("inf"), -0.0, 1e308])
        case "k":
            value = rng.choice([None, 32767, -32768])
        case "s":
            as_bytes = pa.array([text.encode() if isinstance(text, str) else text for text in column.to_pylist()], pa.binary())
            wrong = rng.choice([None, b"\xff", b"a\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "é".encode()[:1]])
            frame.rows = rows.set_column(rows.schema.get_field_index("s"), "s", _changed(pa.chunked_array([as_bytes]), rng, wrong))
            frame.raw = ["s"]
            return
    frame.rows = rows.set_column(rows.schema.get_field_index(name), name, _changed(column, rng, value))


def _shape(frame: Frame, rng: random.Random) -> None:
    """Something wrong with the columns."""
    rows = frame.rows
    name = rng.choice(["k", "ts", "s", "c"])
    at, numbers = rows.schema.get_field_index(name), rows.column("n")
    match rng.choice(["absent", "more", "type", "order", "empty", "case"]):
        case "absent":
            frame.rows = rows.drop_columns([name])
            frame.raw = [one for one in frame.raw if one != name]
        case "more":
            frame.rows = rows.append_column("more", pa.nulls(len(rows), pa.int32()))
        case "type":
            other = rng.choice([
                numbers.cast(pa.string()), pa.array(["never"] * len(rows)), numbers.cast(pa.float64()), numbers,
                pa.array([[1]] * len(rows), pa.list_(pa.int32())), pa.array([{"x": 1}] * len(rows)), pa.array([b"\xff"] * len(rows)),
                pa.array([True] * len(rows)), pa.array([70_000] * len(rows), pa.int32()), pa.array([0] * len(rows), pa.date32()),
            ])  # fmt: skip
            frame.rows = rows.set_column(at, name, other)
            frame.raw = [one for one in frame.raw if one != name]
        case "order":
            frame.rows = rows.select(rng.sample(rows.column_names, rows.num_columns))
        case "empty":
            frame.rows = rows.slice(0, 0)
        case "case":
            frame.rows = rows.rename_columns([one.upper() if one == name and name not in frame.raw else one for one in rows.column_names])


def frame(name: str, rng: random.Random, first: int, shapes: bool = True) -> Frame:
    """Rows with some faults, or none."""
    made = Frame(good(name, rng, first, rng.choice([1, 3, 20])))
    for _ in range(rng.choice([0, 1, 1, 2])):
        _value(made, rng)
    if shapes and rng.random() < 0.4:
        _shape(made, rng)
    return made


# ---- files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A file for the table "plain": the numbers of the rows that must come of it, and whether something of it must be in the rejects."""

    name: str
    data: bytes
    rows: list[int]
    rejects: bool


def file(rng: random.Random, number: int) -> File:
    """A file of some kind, mostly with damage."""
    first, count = number * 1000, rng.choice([1, 5, 50])
    numbers = list(range(first, first + count))
    kind = rng.choice(["csv", "jsonl", "parquet", "arrow", "avro", "csv.gz"])
    name = f"{number}.{kind}"
    if kind in ("csv", "jsonl", "csv.gz"):
        lines, left = _lines(kind, numbers, rng)
        data = b"\n".join(lines) + b"\n"
        if kind != "csv.gz":
            return File(name, data, left, left != numbers)
        packed = gzip.compress(data)
        return File(name, packed[: len(packed) // 2], [], True) if rng.random() < 0.5 else File(name, packed, left, left != numbers)
    rows = pa.table([numbers, numbers, pa.array(numbers, pa.int64()).cast(UTC_US), ["x"] * count, [0.5] * count],
                    names=["n", "k", "ts", "s", "c"])  # fmt: skip
    if kind == "arrow":
        data, left = _arrow(rows, rng)
        return File(name, data, left, left != numbers)
    whole = _parquet(rows) if kind == "parquet" else _avro(numbers)
    match rng.choice(["good", "cut", "noise", "other"]):
        case "good":
            return File(name, whole, numbers, False)
        case "cut":
            return File(name, whole[: -rng.randint(5, len(whole) // 2)], [], True)
        case "noise":
            return File(name, rng.randbytes(200), [], True)
    return File(name, b"n,k,ts,s,c\n1,2,3,4,5\n", [], True)


def _lines(kind: str, numbers: list[int], rng: random.Random) -> tuple[list[bytes], list[int]]:
    """Lines, and the numbers of those that are rows."""
    lines: list[bytes] = [] if kind == "jsonl" else [b"n,k,ts,s,c"]
    left = []
    for n in numbers:
        when = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=n)).isoformat()
        fault = rng.choice(["none"] * 6 + ["key", "time", "bytes", "cut", "more"])
        key, time = ("" if fault == "key" else str(n)), ("never" if fault == "time" else when)
        if kind == "jsonl":
            line = json.dumps({"n": n, "k": int(key) if key else None, "ts": time, "s": "x", "c": 0.5}).encode()
            line = line[:-5] if fault in ("cut", "more") else line
        else:
            line = f"{n},{key},{time},x,0.5".encode() + (b",1,2" if fault in ("cut", "more") else b"")
        lines.append(line.replace(b"x", b"\xff\xfe") if fault == "bytes" else line)
        if fault == "none":
            left.append(n)
    return lines, left


def _arrow(rows: pa.Table, rng: random.Random) -> tuple[bytes, list[int]]:
    """An IPC stream with changed bytes, and the rows that Arrow itself finds in it, if it finds them good and as they were."""
    (batch,) = rows.combine_chunks().to_batches()
    while True:
        data = ipc(batch)
        if rng.random() < 0.2:
            return bytes(data), rows.column("n").to_pylist()
        mutate(data, rng)
        try:
            found = list(pa.ipc.open_stream(pa.py_buffer(bytes(data))))
        except (pa.ArrowException, OSError, ValueError, MemoryError):
            return bytes(data), []
        if found and all(map(is_good, found)) and pa.Table.from_batches(found).equals(rows):
            return bytes(data), rows.column("n").to_pylist()
        if not all(map(is_good, found)):
            return bytes(data), []


def _parquet(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(rows, out)
    return bytes(out.getvalue().to_pybytes())


def _avro(numbers: list[int]) -> bytes:
    fields = [{"name": name, "type": type_} for name, type_ in (("n", "long"), ("k", "long"), ("ts", "string"), ("s", "string"))]
    out = io.BytesIO()
    rows = [{"n": n, "k": n, "ts": "2026-01-01T00:00:00Z", "s": "x"} for n in numbers]
    fastavro.writer(out, {"type": "record", "name": "R", "fields": fields}, rows)
    return out.getvalue()
