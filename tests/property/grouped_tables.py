"""Tables with a column of every type, for statements that filter and group: keys and times of many types, values that are easily got wrong.

Each table is filled as streams fill one: rows in chunks of two flushes, rows that come late, two intervals that are replaced (so that rows
of chunks and of memory are masked), and rows that stay in memory, in long runs and short ones. DuckDB has the same rows in its own tables.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidewheel as tw

START = dt.datetime(2026, 1, 1)
SPAN = 12 * 86_400
"""Seconds that the rows of a table are spread over."""
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SETTINGS: dict[str, Any] = {"leaf_rows": 32, "batch_rows": 200, "zero_copy_rows": 64}


@dataclass(frozen=True)
class Column:
    """`values`: those that its rows have, as Python has them; moments are integers in the column's unit. `kind` says what can be asked."""

    name: str
    type: pa.DataType
    kind: str
    values: Sequence[Any]
    nulls: float = 0.2
    small: bool = False
    """Arithmetic on it overflows nothing."""
    exact: bool = True
    """Its sums do not depend on the order of rows."""

    @property
    def greatest(self) -> float:
        """How large its numbers get, of those that are finite."""
        return max(abs(float(value)) for value in self.values if math.isfinite(value))

    def array(self, rng: np.random.Generator, n: int) -> pa.Array:
        at = rng.integers(0, len(self.values), n)
        return pa.array([None if absent else self.values[i] for i, absent in zip(at, rng.random(n) < self.nulls, strict=True)], self.type)

    def literal(self, rng: random.Random) -> str:
        """A constant that it may well be compared with: one of its values or one beside them."""
        return self.beside(rng.choice(self.values), rng)

    def pair(self, rng: random.Random) -> tuple[str, str]:
        """The ends of an interval, mostly the lower one first."""
        ends = [rng.choice(self.values) for _ in range(2)]
        if rng.random() < 0.9:
            ends.sort()
        return self.beside(ends[0], rng), self.beside(ends[1], rng)

    def beside(self, value: Any, rng: random.Random) -> str:
        if isinstance(value, int) and self.kind in ("whole", "date", "moment", "zoned") and rng.random() < 0.3:
            value += rng.choice([-1, 1, 7])
        return said(value, self, rng)


def said(value: Any, column: Column, rng: random.Random) -> str:
    match column.kind:
        case "float" if not math.isfinite(value):
            return f"'{value}'::DOUBLE"
        case "float":
            return rng.choice([repr(value), f"{value:.2f}"]) if abs(value) < 1e9 else repr(value)
        case "date":
            day = dt.date(1970, 1, 1) + dt.timedelta(days=value) if abs(value) < 500_000 else dt.date(2026, 1, 5)
            return rng.choice([f"DATE '{day}'", f"'{day}'", f"TIMESTAMP '{day} 12:00:00'"])
        case "moment" | "zoned":
            assert isinstance(column.type, pa.TimestampType)
            return moment(value, column.type.unit, rng, column.kind == "zoned")
        case "time":
            return f"TIME '{value}'"
        case "text":
            return quoted(value)
        case "binary":
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case "bool":
            return str(value).lower()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def moment(value: int, unit: str, rng: random.Random, zoned: bool = False) -> str:
    seconds, rest = divmod(value, PER_SECOND[unit])
    if not -62_000_000_000 < seconds < 250_000_000_000:
        return "'infinity'::TIMESTAMP" if value > 0 else "'-infinity'::TIMESTAMP"
    text = str(np.datetime64(seconds, "s")).replace("T", " ")
    if rest and rng.random() < 0.8:
        text += f".{rest * 10**9 // PER_SECOND[unit]:09d}".rstrip("0") if unit == "ns" else f".{rest * 10**6 // PER_SECOND[unit]:06d}"
    if zoned:
        return f"TIMESTAMPTZ '{text}+00'"
    if unit == "ns":
        return f"'{text}'::TIMESTAMP_NS"
    return rng.choice([f"TIMESTAMP '{text}'", f"'{text}'"])


def quoted(text: str) -> str:
    """A statement cannot have a character of code 0 in it."""
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


# ---- columns ------------------------------------------------------------------------------------------------


def _whole(bits: int, signed: bool, more: Sequence[int] = ()) -> list[int]:
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return [least, greatest, least + 1, greatest - 1, 0, 1, 2, 7, 100, *(-v for v in (1, 2, 50) if signed), *more]


def _moments(unit: str, random_ones: int, rng: random.Random) -> list[int]:
    """Within the tables' days, around their borders and around 1970."""
    per = PER_SECOND[unit]
    first = int(START.replace(tzinfo=dt.UTC).timestamp())
    near = [(first + rng.choice([0, 3600, 86_400, 31 * 86_400]) * rng.randrange(12)) * per + rng.choice([-1, 0, 0, 1]) for _ in range(12)]
    return near + [-per * 86_400 - 1, -1, 0, 1] + [(first + rng.randrange(SPAN)) * per + rng.randrange(per) for _ in range(random_ones)]


def payload(seed: int = 3) -> list[Column]:
    """The columns that every table has besides its key and its time."""
    rng = random.Random(seed)
    quarters = [rng.randrange(-4000, 4000) / 4 for _ in range(40)]
    texts = [
        "",
        "a",
        "a\0",
        "ab",
        "abc",
        "b",
        "B",
        "Zoo",
        "ä",
        "日本",
        "o'clock",
        "100%",
        "under_score",
        "commonprefix",
        "commonprefix/a",
        "commonprefix/b",
    ]
    nan, other_nan = math.nan, float(np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0])
    decimals = [Decimal(rng.randrange(-9999, 9999)) for _ in range(20)]
    return [
        Column("n", pa.int32(), "whole", list(range(-12, 30)), small=True),
        Column("sure", pa.int32(), "whole", list(range(40)), nulls=0.0, small=True),
        Column("i1", pa.int8(), "whole", _whole(8, True)),
        Column("i2", pa.int16(), "whole", _whole(16, True)),
        Column("i4", pa.int32(), "whole", _whole(32, True)),
        Column("i8", pa.int64(), "whole", _whole(64, True, [2**53, 2**53 + 1, -(2**53) - 1])),
        Column("u1", pa.uint8(), "whole", _whole(8, False)),
        Column("u2", pa.uint16(), "whole", _whole(16, False)),
        Column("u4", pa.uint32(), "whole", _whole(32, False)),
        Column("u8", pa.uint64(), "whole", _whole(64, False, [2**63, 2**63 - 1, 2**53 + 1])),
        Column("f4", pa.float32(), "float", [0.0, -0.0, 0.5, -1.25, nan, math.inf, 16777216.0, *quarters[:10]]),
        Column("f8", pa.float64(), "float", [0.0, -0.0, nan, other_nan, math.inf, -math.inf, *quarters]),
        Column("q", pa.float64(), "float", [0.0, -0.0, *quarters], nulls=0.1, small=True),
        Column("x", pa.float64(), "float", [rng.uniform(-1, 1000) for _ in range(300)], exact=False, small=True),
        Column(
            "fx", pa.float64(), "float", [0.1, 5e-324, -5e-324, 1.7e308, -1.7e308, 2.0**53, nan, -0.0, math.inf, -math.inf], exact=False
        ),
        Column("d4", pa.decimal128(4, 1), "decimal", [one.scaleb(-1) for one in decimals]),
        Column(
            "d9", pa.decimal128(9, 2), "decimal", [Decimal("9999999.99"), Decimal("-9999999.99"), *(one.scaleb(-2) for one in decimals)]
        ),
        Column(
            "d18", pa.decimal128(18, 4), "decimal", [Decimal(10**18 - 1).scaleb(-4), Decimal(1 - 10**18).scaleb(-4), Decimal(0), *decimals]
        ),
        Column(
            "d38",
            pa.decimal128(38, 6),
            "decimal",
            [Decimal(10) ** 28, -(Decimal(10) ** 28), Decimal(2**64), Decimal("0.000001"), *decimals[:5]],
        ),
        Column("ok", pa.bool_(), "bool", [False, True]),
        Column("day", pa.date32(), "date", [20_454 + d for d in range(14)] + [-1, 0, -719_162, 2_932_896]),
        Column("sec", pa.timestamp("s"), "moment", _moments("s", 20, rng)),
        Column("ms", pa.timestamp("ms"), "moment", _moments("ms", 20, rng)),
        Column("us", pa.timestamp("us"), "moment", _moments("us", 20, rng)),
        Column("ns", pa.timestamp("ns"), "moment", _moments("ns", 20, rng)),
        Column(
            "far",
            pa.timestamp("us"),
            "moment",
            [-62_135_596_800_000_000, 253_402_300_799_999_999, 2**63 - 1, 1 - 2**63, 0, -1, -12_219_292_800_000_000],
        ),
        Column("utc", pa.timestamp("us", "UTC"), "zoned", _moments("us", 20, rng)),
        Column("vie", pa.timestamp("ms", "Europe/Vienna"), "zoned", _moments("ms", 20, rng)),
        Column("tod", pa.time64("us"), "time", [dt.time(0), dt.time(1, 2, 3), dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999_999)]),
        Column("t", pa.string(), "text", texts),
        Column("w", pa.string(), "text", [f"{rng.choice(texts)}{rng.randrange(10**12):x}" for _ in range(250)], nulls=0.05),
        Column("lt", pa.large_string(), "text", texts[:9]),
        Column("g", pa.dictionary(pa.int32(), pa.string()), "text", ["bus", "car", "taxi", "", "tram"]),
        Column("b", pa.binary(), "binary", [b"", b"\0", b"a", b"ab", b"\xff", b"\xff\xfe"]),
        Column("l", pa.list_(pa.int32()), "nested", [[], [1], [1, None], [1, 2, 3]]),
        Column(
            "p",
            pa.struct([("x", pa.float64()), ("n", pa.int32())]),
            "nested",
            [{"x": 0.5, "n": 1}, {"x": None, "n": 1}, {"x": 0.25, "n": None}],
        ),
        Column("void", pa.int32(), "whole", [1, 2], nulls=1.0, small=True),
        Column("Odd name", pa.int32(), "whole", [1, 2, 3], small=True),
    ]


PAYLOAD = payload()


# ---- tables -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A table: its columns, and how its key and its time can be asked for."""

    name: str
    keys: tuple[Column, ...]
    time: Column
    rows: int
    unique: bool = False
    """No two rows have one time."""
    how: Any = None
    """`key=`, if it is not the column's name."""
    epoch: str | None = None
    ordered: bool = True
    """Keys lie in the order that DuckDB has for them."""

    @property
    def columns(self) -> list[Column]:
        return [*self.keys, self.time, *PAYLOAD]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("serial", pa.int64()), *((one.name, one.type) for one in self.columns)])

    def of(self, *kinds: str) -> list[Column]:
        return [one for one in self.columns if one.kind in kinds]


def _time(type_: pa.DataType, kind: str = "moment") -> Column:
    """Its values are made with the rows; those here are for constants."""
    first, rng = int(START.replace(tzinfo=dt.UTC).timestamp()), random.Random(5)
    if kind == "date":
        return Column("ts", type_, kind, [first // 86_400 + d for d in range(12)], nulls=0.0)
    per = 1000 if kind == "whole" else PER_SECOND[type_.unit]
    return Column(
        "ts", type_, kind, [(first + rng.choice([0, 1800]) + 3600 * rng.randrange(SPAN // 3600)) * per for _ in range(60)], nulls=0.0
    )


def _key(type_: pa.DataType, kind: str, values: Sequence[Any], name: str = "k", **more: Any) -> Column:
    return Column(name, type_, kind, values, nulls=0.0, **more)


_ADDRESSES = [f"10.0.{i}.{i * 7 % 256}" for i in range(30)] + ["::1", "fe80::1", "2001:db8::ff"]
_random = random.Random(9)
_POINTS = [_random.uniform(0, 100) for _ in range(100)] + [-3.5, 140.25, 0.0]
TABLES = (
    Kept("events", (_key(pa.int64(), "whole", range(60), small=True),), _time(pa.timestamp("us")), 2400, unique=True),
    Kept(
        "days",
        (_key(pa.string(), "text", [c.values[i] for c in PAYLOAD if c.name == "t" for i in range(1, 16)]),),
        _time(pa.date32(), "date"),
        600,
    ),
    Kept(
        "spots",
        (_key(pa.float64(), "float", _POINTS, "lon", exact=False), _key(pa.float64(), "float", _POINTS, "lat", exact=False)),
        _time(pa.timestamp("ms")),
        600,
        how=tw.zorder("lon", "lat", bounds=(0, 0, 100, 100)),
    ),
    Kept(
        "ticks",
        (_key(pa.int32(), "whole", [-(2**31), 2**31 - 1, -5, -1, 0, *range(100, 120)]),),
        _time(pa.timestamp("ns")),
        600,
        unique=True,
    ),
    Kept(
        "zoned",
        (_key(pa.uint64(), "whole", [0, 1, 2**63, 2**63 - 1, 2**64 - 1, *range(10, 30)]),),
        _time(pa.timestamp("us", "UTC"), "zoned"),
        600,
    ),
    Kept("flows", (_key(pa.string(), "text", _ADDRESSES),), _time(pa.int64(), "whole"), 600, how=tw.ip("k"), epoch="ms", ordered=False),
    Kept(
        "reals",
        (_key(pa.float64(), "float", [0.0, -0.0, 0.5, -2.25, math.inf, -math.inf, *(i / 4 for i in range(30))]),),
        _time(pa.timestamp("s")),
        600,
    ),
    Kept(
        "kinds",
        (_key(pa.dictionary(pa.int32(), pa.string()), "text", ["bus", "car", "taxi", "", "tram"]),),
        _time(pa.timestamp("us")),
        600,
        unique=True,
    ),
    Kept(
        "exact",
        (_key(pa.decimal128(9, 2), "decimal", [Decimal(i).scaleb(-2) for i in range(-20, 200, 7)]),),
        _time(pa.timestamp("ms")),
        600,
    ),
    Kept("nothing", (_key(pa.int64(), "whole", range(60), small=True),), _time(pa.timestamp("us")), 0, unique=True),
)


def rows_of(kept: Kept, rng: np.random.Generator, n: int, first: int, since: float, until: float) -> pa.Table:
    """`n` rows of a part of the tables' time; `first` is the number of the first one."""
    columns = [
        pa.array(np.arange(first, first + n)),
        *(key.array(rng, n) for key in kept.keys),
        pa.array(_times(kept, rng, n, first, since, until)),
    ]
    columns += [column.array(rng, n) for column in PAYLOAD]
    schema = kept.schema
    return pa.table([array.cast(field.type) for array, field in zip(columns, schema, strict=True)], schema=schema)


def _times(kept: Kept, rng: np.random.Generator, n: int, first: int, since: float, until: float) -> Any:
    start = int(START.replace(tzinfo=dt.UTC).timestamp())
    seconds = start + rng.integers(int(since * SPAN), max(int(until * SPAN), int(since * SPAN) + 1), n)
    if kept.time.kind == "date":
        return (seconds // 86_400).astype(np.int32)
    per = 1000 if kept.epoch else PER_SECOND[kept.time.type.unit]
    if kept.unique:  # below a second each row has its own number
        return seconds * per + (np.arange(first, first + n) * 37 + 11) % per
    return (seconds // 600 * 600) * per + rng.choice([0, 0, 1], n) * (per > 1)


def create(wh: tw.Warehouse, kept: Kept) -> tw.Table:
    time = tw.epoch("ts", kept.epoch) if kept.epoch else "ts"
    return wh.create_table(kept.name, kept.schema, time=time, key=kept.how or "k")


def fill(warehouses: Sequence[tw.Warehouse], kept: Kept, seed: int) -> pa.Table:
    """The same steps in all of them. What is left in the end, in the order of insertion."""
    rng = np.random.default_rng(seed)
    tables = [create(wh, kept) for wh in warehouses]
    left: list[pa.Table] = []
    count = 0

    def insert(share: float, since: float, until: float, pieces: int = 1) -> None:
        nonlocal count
        n = int(kept.rows * share)
        rows = rows_of(kept, rng, n, count, since, until)
        count += n
        left.append(rows)
        step = max(1, -(-n // pieces))
        for at in range(0, n, step):
            for table in tables:
                table.insert(rows.slice(at, step))

    def replace(share: float, since: float, until: float) -> None:
        nonlocal count
        n = int(kept.rows * share)
        rows = rows_of(kept, rng, n, count, since, until)
        count += n
        times = pc.cast(rows["ts"], rows["ts"].type).cast(pa.int32() if kept.time.kind == "date" else pa.int64())
        lo, hi = pc.min(times).as_py(), pc.max(times).as_py()
        for table in tables:
            table.replace(rows, time=(_time_of(kept, lo), _time_of(kept, hi)))
        for i, before in enumerate(left):
            old = before["ts"].cast(times.type)
            left[i] = before.filter(pc.or_(pc.less(old, lo), pc.greater(old, hi)))
        left.append(rows)

    if kept.rows:
        insert(0.25, 0.0, 0.45)
        _flush(tables)
        insert(0.2, 0.3, 0.7)
        _flush(tables)
        insert(0.05, 0.0, 0.6, pieces=3)  # late
        replace(0.05, 0.1, 0.14)
        insert(0.3, 0.6, 1.0, pieces=2)
        replace(0.03, 0.65, 0.72)  # what lies in memory, too
        insert(0.08, 0.2, 1.0, pieces=12)
    return pa.concat_tables(left).combine_chunks() if left else kept.schema.empty_table()


def _flush(tables: Sequence[tw.Table]) -> None:
    for table in tables:
        table.flush()


def _time_of(kept: Kept, value: int) -> Any:
    if kept.time.kind == "date":
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    return value


def oracle(tables: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    """DuckDB with the same rows."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute("SET threads = 1")  # so few rows are read faster by one
    for name, rows in tables.items():
        duck.register("given", rows)
        duck.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        duck.unregister("given")
    return duck
