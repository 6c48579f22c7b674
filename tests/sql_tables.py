"""Tables for the tests of SQL: of several keys and many types, with nulls and ties, half in chunks and half in memory, some rows late."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import tidewheel as tw
from tidewheel.sql.constants import NotDirectError

DAY = dt.datetime(2026, 1, 1)

TRIPS = pa.schema(
    [
        ("id", pa.int64()), ("ts", pa.timestamp("us")), ("speed", pa.float64()), ("load", pa.float32()), ("note", pa.string()),
        ("kind", pa.dictionary(pa.int32(), pa.string())), ("ok", pa.bool_()), ("fare", pa.decimal128(10, 2)), ("day", pa.date32()),
        ("tiny", pa.int8()), ("big", pa.uint64()), ("seen", pa.timestamp("us", tz="UTC")), ("blob", pa.binary()),
        ("ms", pa.timestamp("ms")),
    ]
)  # fmt: skip
TAXI = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64()), ("s", pa.string())])
SPOTS = pa.schema([("lon", pa.float64()), ("lat", pa.float64()), ("stamp", pa.timestamp("ms")), ("n", pa.int32()), ("name", pa.string())])
WORDS = pa.schema([("word", pa.string()), ("seen", pa.date32()), ("n", pa.int64()), ("x", pa.float64())])
FLOWS = pa.schema([("src", pa.string()), ("ms", pa.int64()), ("bytes", pa.int64())])

NOTES = ["", "a", "ab", "abc", "b", "Zoo", "zoo", "ä", "日本", "o'clock", 'say "hi"', "100%", "under_score"]


@dataclass
class Twin:
    """A warehouse, and DuckDB with the same rows in tables of its own."""

    wh: tw.Warehouse
    rows: dict[str, pa.Table] = field(default_factory=dict)
    duck: Any = None

    def insert(self, name: str, rows: pa.Table) -> None:
        self.wh.table(name).insert(rows)
        self.rows[name] = pa.concat_tables([self.rows[name], rows]) if name in self.rows else rows

    def fill_duckdb(self) -> None:
        self.duck = duckdb.connect()
        self.duck.execute("SET TimeZone = 'UTC'")
        self.duck.execute("SET threads = 1")  # so few rows are read faster by one
        for name, rows in self.rows.items():
            self.duck.register("given", rows)
            self.duck.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            self.duck.unregister("given")


def create(wh: tw.Warehouse, more: Sequence[pa.Field] = ()) -> None:
    """`more`: columns that all of them have at the end."""

    def schema(own: pa.Schema) -> pa.Schema:
        return pa.schema([*own, *more])

    wh.create_table("trips", schema(TRIPS), time="ts", key="id")
    wh.create_table("spots", schema(SPOTS), time="stamp", key=tw.zorder("lon", "lat", bounds=(0, 0, 100, 100)))
    wh.create_table("words", schema(WORDS), time="seen", key="word", partition="1 day")
    wh.create_table("flows", schema(FLOWS), time=tw.epoch("ms", "ms"), key=tw.ip("src"))
    wh.create_table("nothing", schema(TRIPS), time="ts", key="id")


def fill(twin: Twin, seed: int, n: int = 1500) -> None:
    """Four inserts: the first two are flushed, the third is late, the last stays in memory."""
    rng = random.Random(seed)
    for part in range(4):
        hour = (0, 100, 20, 200)[part]
        twin.insert("trips", trips(rng, n // 4, hour))
        twin.insert("spots", spots(rng, n // 4, hour))
        twin.insert("words", words(rng, n // 8, hour))
        twin.insert("flows", flows(rng, n // 8, hour))
        if part < 2:
            for name in twin.wh.tables():
                twin.wh.table(name).flush()
    twin.rows["nothing"] = TRIPS.empty_table()


def _maybe(rng: random.Random, value: Any, nulls: float = 0.2) -> Any:
    return None if rng.random() < nulls else value


def _float(rng: random.Random) -> float:
    return rng.choice([0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), rng.uniform(-50, 50), float(rng.randrange(-5, 5))])


def trips(rng: random.Random, n: int, hour: int) -> pa.Table:
    rows = []
    for _ in range(n):
        at = DAY + dt.timedelta(hours=hour + rng.randrange(40), seconds=rng.choice([0, 0, 1, rng.randrange(3600)]))
        rows.append(
            {
                "id": rng.randrange(60), "ts": at, "speed": _maybe(rng, _float(rng)),
                "load": _maybe(rng, rng.choice([0.5, 1.25, -3.0, 7.5])),
                "note": _maybe(rng, rng.choice(NOTES)), "kind": _maybe(rng, rng.choice(["bus", "car", "taxi"])),
                "ok": _maybe(rng, rng.random() < 0.5), "fare": _maybe(rng, Decimal(rng.randrange(-500, 5000)).scaleb(-2)),
                "day": _maybe(rng, (at + dt.timedelta(days=rng.randrange(3))).date()), "tiny": _maybe(rng, rng.randrange(-128, 128)),
                "big": _maybe(rng, rng.choice([0, 1, 2**63, 2**64 - 1, rng.randrange(100)])),
                "seen": _maybe(rng, at.replace(tzinfo=dt.UTC)),
                "blob": _maybe(rng, rng.choice([b"", b"\x00", b"ab", b"\xff\xfe"])), "ms": _maybe(rng, at),
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, TRIPS)


def spots(rng: random.Random, n: int, hour: int) -> pa.Table:
    rows = [
        {
            "lon": rng.choice([rng.uniform(0, 100), float(rng.randrange(100)), rng.uniform(-50, 150)]), "lat": rng.uniform(0, 100),
            "stamp": DAY + dt.timedelta(hours=hour, milliseconds=rng.randrange(10**8)), "n": _maybe(rng, rng.randrange(60)),
            "name": _maybe(rng, rng.choice(NOTES)),
        }
        for _ in range(n)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, SPOTS)


def words(rng: random.Random, n: int, hour: int) -> pa.Table:
    stems = [word for word in NOTES if word] + ["commonprefix/a", "commonprefix/b", "commonprefix/longer"]
    rows = [
        {
            "word": rng.choice(stems), "seen": (DAY + dt.timedelta(hours=hour, days=rng.randrange(4))).date(),
            "n": _maybe(rng, rng.randrange(60)), "x": _maybe(rng, _float(rng)),
        }
        for _ in range(n)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, WORDS)


def flows(rng: random.Random, n: int, hour: int) -> pa.Table:
    start = int((DAY + dt.timedelta(hours=hour)).replace(tzinfo=dt.UTC).timestamp() * 1000)
    addresses = [f"10.0.{i}.{i * 7 % 256}" for i in range(30)] + ["::1", "fe80::1", "2001:db8::ff"]
    rows = [
        {"src": rng.choice(addresses), "ms": start + rng.randrange(10**8), "bytes": _maybe(rng, rng.randrange(10**6))} for _ in range(n)
    ]
    return pa.Table.from_pylist(rows, FLOWS)


def make(root: Path, seed: int, n: int = 1500, **settings: Any) -> Twin:
    """Open a warehouse and fill it. Whoever calls closes it."""
    wh = tw.open(root, settings=tw.Settings(leaf_rows=32, batch_rows=200, zero_copy_rows=64, **settings))
    create(wh)
    twin = Twin(wh)
    fill(twin, seed, n)
    twin.fill_duckdb()
    return twin


# ---- a small one --------------------------------------------------------------------------------------------


def taxi_rows(first: int, n: int) -> pa.Table:
    """A row a second, ten keys in turn."""
    i = np.arange(first, first + n)
    times = np.datetime64(DAY).astype("datetime64[us]").astype(np.int64) + i * 10**6
    return pa.table([i % 10, pa.array(times, pa.timestamp("us")), i / 2, [None if k % 3 == 0 else f"s{k % 4}" for k in i]], schema=TAXI)


def with_taxi(root: Path) -> tw.Warehouse:
    """A warehouse with 2,000 rows in the table taxi, half of them in a chunk. Whoever calls closes it."""
    wh = tw.open(root)
    taxi = wh.create_table("taxi", TAXI, time="ts", key="id")
    taxi.insert(taxi_rows(0, 1000))
    taxi.flush()
    taxi.insert(taxi_rows(1000, 1000))
    return wh


# ---- answers ------------------------------------------------------------------------------------------------


def told(table: pa.Table) -> list[str]:
    """Names and types first, then the rows in an order of their own: the same for answers that differ only in the order of rows."""
    kinds = [f"{field.name} {field.type}" for field in table.schema]
    return kinds + sorted(map(repr, zip(*map(_values, table.columns), strict=True)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """As Python has them, or what is quicker to write and as different. NaN equals itself, and -0.0 is 0.0."""
    kind = column.type
    if pa.types.is_floating(kind):
        return ["nan" if value != value else None if value is None else value + 0.0 for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    return column.to_pylist()


def refused(*_: object) -> None:
    """In the place of what answers statements without DuckDB."""
    raise NotDirectError("it is not wanted here")
