"""Hypothesis strategies: tables of random schemas, streams of batches into them, and queries about them.

Hypothesis draws what should shrink (types, sizes, forms) and a seed; the values themselves come from `values`.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tidewheel.model.schema import Epoch, Ip, KeyRule, ZOrder, epoch, ip, zorder
from tidewheel.testing.oracle import Where, value_type
from tidewheel.testing.values import ADDRESSES, build, column, limits, next_to, one

SERIAL, TIME, KEY, SIGN = "n", "ts", "k", "sign"
"""Columns of every table: a serial number, the time, the key (z-orders have others), and a nullable small number."""

KEY_TYPES: tuple[pa.DataType, ...] = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(),
    pa.float64(), pa.bool_(), pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"),
    pa.timestamp("ns"), pa.timestamp("ns", "Europe/Vienna"), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.duration("s"), pa.duration("ns"), pa.decimal32(7, 2), pa.decimal64(18, 0), pa.decimal128(5, 2), pa.decimal128(38, 10),
    pa.decimal128(38, 0), pa.decimal256(76, 20), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.binary_view(), pa.binary(3), pa.binary(20), pa.dictionary(pa.int32(), pa.int64()), pa.dictionary(pa.int16(), pa.string()),
    pa.dictionary(pa.int32(), pa.float64()), pa.dictionary(pa.uint32(), pa.binary()), pa.dictionary(pa.int32(), pa.timestamp("ms")),
)  # fmt: skip

COORDINATES: tuple[pa.DataType, ...] = (
    pa.float64(), pa.float32(), pa.float16(), pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64(),
)  # fmt: skip

TIMES: tuple[tuple[pa.DataType, str], ...] = (
    *((pa.timestamp(u), "") for u in ("s", "ms", "us", "ns")), (pa.timestamp("us", "UTC"), ""), (pa.timestamp("ns", "America/Lima"), ""),
    (pa.date32(), ""), (pa.date64(), ""), (pa.int32(), "s"), (pa.int64(), "ms"), (pa.int64(), "ns"), (pa.uint32(), "s"),
)  # fmt: skip

VIEWS: tuple[pa.DataType, ...] = (pa.string_view(), pa.binary_view(), pa.struct([("v", pa.string_view())]))

PAYLOADS: tuple[pa.DataType, ...] = (
    pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(),
    pa.large_binary(), pa.binary(5), pa.date32(), pa.timestamp("ns", "UTC"), pa.time64("us"), pa.duration("ms"), pa.decimal64(12, 3),
    pa.decimal128(20, 4), pa.decimal256(60, 1), pa.null(), pa.month_day_nano_interval(), pa.dictionary(pa.int16(), pa.string()),
    pa.dictionary(pa.int32(), pa.int64()), pa.list_(pa.int32()), pa.large_list(pa.string()), pa.list_(pa.float32(), 3),
    pa.struct([("a", pa.int16()), ("b", pa.string())]), pa.map_(pa.string(), pa.int64()),
    pa.list_(pa.struct([("x", pa.list_(pa.bool_())), ("y", pa.dictionary(pa.int32(), pa.string()))])),
    pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.binary()))), ("t", pa.timestamp("ns"))]), pa.uuid(), pa.json_(), pa.bool8(),
    *VIEWS,
)  # fmt: skip


@dataclass(frozen=True)
class TableCase:
    """A table's definition, as `create_table` takes it."""

    schema: pa.Schema
    time: str | Epoch
    key: str | KeyRule
    partition: str

    @property
    def time_type(self) -> pa.DataType:
        return self.schema.field(TIME).type

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name} {f.type}" for f in self.schema)
        return f"TableCase(key={self.key!r}, time={self.time!r}: {fields})"


@st.composite
def table_cases(draw: st.DrawFn, keys: Sequence[pa.DataType] = KEY_TYPES, payloads: Sequence[pa.DataType] = PAYLOADS) -> TableCase:
    fields = [pa.field(SERIAL, pa.int64()), pa.field(SIGN, pa.int8())]
    time_type, unit = draw(st.sampled_from(TIMES))
    fields.append(pa.field(TIME, time_type, nullable=draw(st.booleans())))
    key: str | KeyRule = KEY
    match draw(st.sampled_from(["column"] * 6 + ["zorder"] * 2 + ["ip"])):
        case "zorder":
            types = draw(st.lists(st.sampled_from(COORDINATES), min_size=2, max_size=3))
            bounds = draw(
                st.sampled_from([(-10.0, 10.0), (0.0, 1.0), (-90.5, 90.25), (-1e300, 1e300), (0.0, 1e-300), (-(2.0**63), 2.0**63)])
            )
            names = [f"c{i}" for i in range(len(types))]
            fields += [pa.field(n, t) for n, t in zip(names, types, strict=True)]
            key = zorder(*names, bounds=tuple([bounds[0]] * len(names) + [bounds[1]] * len(names)))
        case "ip":
            text = draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]))
            fields.append(pa.field(KEY, text))
            key = ip(KEY)
        case _:
            fields.append(pa.field(KEY, draw(st.sampled_from(list(keys)))))
    for i, type_ in enumerate(draw(st.lists(st.sampled_from(list(payloads)), max_size=3))):
        fields.append(pa.field(f"p{i}", type_))
    fields = draw(st.permutations(fields))
    metadata = draw(st.sampled_from([None, {"who": "us"}]))
    partition = "1 day" if time_type == pa.date32() else draw(st.sampled_from(["1 hour", "1 day", "10 min"]))
    return TableCase(pa.schema(fields, metadata), epoch(TIME, unit) if unit else TIME, key, partition)


@dataclass
class BatchStream:
    """Batches for one table, in rising time unless asked for otherwise. Remembers keys, so that some come again."""

    case: TableCase
    rng: random.Random
    serial: int = 0
    known: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        type_, self.least, self.most = self.case.time_type, *limits(self.case.time_type)
        day = pa.types.is_date(type_)
        self.step = 86_400_000 if type_ == pa.date64() else 1
        second = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[
            self.case.time.unit if isinstance(self.case.time, Epoch) else getattr(type_, "unit", "s")
        ]
        self.second = self.step if day else second
        self.now = min(20_000 * self.step if day else 1_770_000_000 * second, (self.least + self.most) // 2 + self.most // 4)

    def batch(self, rows: int, *, late: bool = False, extreme: bool = False, hot: float = 0.0, spare: int = 0) -> pa.RecordBatch:
        """So many rows; with `spare` they are a slice out of more, so that buffers start at odd offsets."""
        n = rows + 2 * spare
        numbers = range(self.serial, self.serial + n)
        self.serial += n
        arrays = {SERIAL: pa.array(numbers, pa.int64()), SIGN: column(pa.int8(), self.rng, n), TIME: self._times(n, late, extreme)}
        arrays |= self._keys(n, hot)
        batch = pa.RecordBatch.from_arrays(
            [arrays[f.name] if f.name in arrays else column(f.type, self.rng, n) for f in self.case.schema], schema=self.case.schema
        )
        return batch.slice(spare, rows)

    def _times(self, n: int, late: bool, extreme: bool) -> pa.Array:
        out = []
        for _ in range(n):
            self.now += (
                self.rng.choice([0, 0, 1, self.second // 3]) * (1 if self.rng.random() < 0.5 else self.step) // self.step * self.step
            )
            value = self.now - self.rng.choice([0, 0, 0, 2 * self.second, 10 * self.second])
            if late:
                value -= self.rng.choice([100, 4000, 100_000]) * self.second
            if extreme and self.rng.random() < 0.1:
                value = self.rng.choice([self.least, self.least + self.step, 0, self.most - self.step, self.most])
            out.append(min(max(value // self.step * self.step, self.least), self.most))
        return build(out, self.case.time_type)

    def _keys(self, n: int, hot: float) -> dict[str, pa.Array]:
        key = self.case.key
        if isinstance(key, ZOrder):
            return {c: build([self._coordinate(c) for _ in range(n)], self.case.schema.field(c).type) for c in key.columns}
        type_ = self.case.schema.field(KEY).type
        fresh = (lambda: self._address()) if isinstance(key, Ip) else (lambda: one(value_type(type_), self.rng))
        own = [fresh() for _ in range(1 + n // 2)]
        self.known = (self.known + own)[-64:]
        star = self.rng.choice(self.known)
        return {
            KEY: build(
                [star if self.rng.random() < hot else self.rng.choice(own if self.rng.random() < 0.7 else self.known) for _ in range(n)],
                type_,
            )
        }

    def _coordinate(self, name: str) -> Any:
        type_ = self.case.schema.field(name).type
        if not pa.types.is_floating(type_):
            return one(type_, self.rng)
        return self.rng.choice([one(type_, self.rng), build([self.rng.uniform(-1, 1)], type_)[0].as_py()])

    def _address(self) -> str:
        return self.rng.choice(
            [
                self.rng.choice(ADDRESSES),
                f"10.0.{self.rng.randint(0, 3)}.{self.rng.randint(0, 255)}",
                f"2001:db8::{self.rng.randint(0, 99):x}:{self.rng.randint(0, 3)}",
            ]
        )

    # ---- bounds -----------------------------------------------------------------------------------------

    def key_bounds(self) -> dict[str, Any]:
        """`key=` or `box=` of a query: open, exact, empty, inverted, beyond the type's limits."""
        key = self.case.key
        if isinstance(key, ZOrder):
            dims = len(key.columns)
            ends = [self._corner(c) for c in key.columns for _ in range(2)]
            pairs = [_rising(ends[2 * d : 2 * d + 2], self.rng) for d in range(dims)]
            return {"box": tuple(p[0] for p in pairs) + tuple(p[1] for p in pairs)}
        if isinstance(key, Ip):
            return {"key": tuple(self.rng.choice([None, self._address(), self._address()]) for _ in range(2))}
        if self.rng.random() < 0.2 and self.known:
            value = self.rng.choice(self.known)
            return {"key": value if self.rng.random() < 0.5 else (value, value)}
        return {"key": tuple(_rising([self._bound(), self._bound()], self.rng))}

    def _corner(self, name: str) -> Any:
        type_ = self.case.schema.field(name).type
        value = self._coordinate(name)
        beside = next_to(float(value)) if pa.types.is_floating(type_) and self.rng.random() < 0.3 else (value, value)
        return self.rng.choice(
            [None, value, value, beside[0], beside[1], self.rng.uniform(-10, 10), float("inf"), float("-inf"), 2**64, -(2**70)]
        )

    def _bound(self) -> Any:
        type_ = value_type(self.case.schema.field(KEY).type)
        value = self.rng.choice(self.known) if self.known and self.rng.random() < 0.6 else one(type_, self.rng)
        if self.rng.random() < 0.2:
            return None
        t = pa.types
        if t.is_integer(type_) and self.rng.random() < 0.3:
            return self.rng.choice(
                [
                    2**70,
                    -(2**70),
                    value + 0.5 if abs(value) < 2**50 else value,
                    Decimal(value) + Decimal("0.5"),
                    float("inf"),
                    float("-inf"),
                ]
            )
        if t.is_floating(type_) and self.rng.random() < 0.3:
            return self.rng.choice([*next_to(value), 2**70, Decimal("0.1"), 1])
        if t.is_decimal(type_) and self.rng.random() < 0.3:
            return self.rng.choice([value + Decimal("1e-30"), Decimal("1e80"), Decimal("-1e80"), int(value)])
        if (t.is_timestamp(type_) or t.is_date(type_)) and self.rng.random() < 0.4:
            return self.rng.choice(
                [dt.datetime(1970, 1, 1, 0, 0, 5, 7), dt.datetime(9999, 12, 31), dt.date(1969, 12, 20), "1970-01-05 01:02:03", 2**65]
            )
        return value

    def time_bounds(self) -> tuple[Any, Any]:
        day = dt.datetime(1970, 1, 1) + dt.timedelta(days=self.rng.randint(-3, 25_000))
        near = [self.now - self.rng.randint(0, 40) * self.second for _ in range(4)]
        choices = [
            None,
            *near,
            self.least,
            self.most,
            self.most + 1,
            self.least - 1,
            2**70,
            -(2**70),
            day,
            day.date(),
            day.isoformat(),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        ]
        lo, hi = _rising([self.rng.choice(choices) for _ in range(2)], self.rng)
        return lo, hi


def _rising(ends: list[Any], rng: random.Random) -> list[Any]:
    """Mostly in order; sometimes inverted, to ask for nothing."""
    try:
        return sorted(ends) if rng.random() < 0.9 else ends
    except TypeError:
        return ends


def wheres() -> list[tuple[Any, Where]]:
    """The same condition for the engine (function of a batch, or SQL) and for the oracle (function of a row)."""
    return [
        (lambda b: pc.equal(pc.bit_wise_and(b[SERIAL], 1), 0), lambda r: r[SERIAL] & 1 == 0),
        (lambda b: pc.greater(b[SIGN], 0), lambda r: r[SIGN] is not None and r[SIGN] > 0),
        (lambda b: b[SERIAL].to_numpy() % 3 == 1, lambda r: r[SERIAL] % 3 == 1),
        (f"{SERIAL} % 5 = 0 and {SIGN} is not null", lambda r: r[SERIAL] % 5 == 0 and r[SIGN] is not None),
        (f"{SIGN} < -3", lambda r: r[SIGN] is not None and r[SIGN] < -3),
        ("false", lambda r: False),
    ]
