"""Keys and times of every type: closed intervals, before and after a flush, and after the warehouse was opened again."""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw

UTC = dt.UTC
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "float32": (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf]),
    "float64": (pa.float64(), [-math.inf, -1e308, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf]),
    "bool": (pa.bool_(), [False, True]),
    "date32": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("ns"), [dt.datetime(1969, 1, 1), dt.datetime(2026, 1, 1)]),
    "timestamp, zone": (pa.timestamp("us", "Asia/Shanghai"), [dt.datetime(1969, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1, tzinfo=UTC)]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(12, 0, 0, 1), dt.time(23, 59, 59)]),
    "decimal": (pa.decimal128(38, 2), [Decimal("-1e30"), Decimal("-1.25"), Decimal(0), Decimal("1.25"), Decimal("1e30"), Decimal("2e30")]),
    "string": (pa.string(), ["", "a", "ab", "abcdefgh", "abcdefghi", "abcdefghj", "b", "é", "\U0001f600"]),
    "string, common prefix": (pa.large_string(), [f"https://example.org/items/{i:04d}" for i in range(8)]),
    "string view": (pa.string_view(), ["", "a", "a text of more than twelve bytes", "b"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x00\x00", b"a", b"\xff" * 9, b"\xff" * 10]),
    "fixed binary": (pa.binary(3), [b"aaa", b"aab", b"zzz"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "c"]),
    "dictionary of ints": (pa.dictionary(pa.int32(), pa.int64()), [-5, 0, 7]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_every_interval_of_every_key_type(tmp_path: Path, kind: str) -> None:
    type_, values = KEYS[kind]
    schema = pa.schema([("k", type_), ("ts", pa.timestamp("us")), ("n", pa.int64())])
    keys = [values[i % len(values)] for i in range(20 * len(values))]
    plain = pa.array(keys, type_.value_type if pa.types.is_dictionary(type_) else type_)
    column = plain.dictionary_encode().cast(type_) if pa.types.is_dictionary(type_) else plain
    numbers = pa.array(range(len(keys)), pa.int64())
    root = tmp_path / "wh"

    def check(table: tw.Table) -> None:
        for lo in (None, *values):
            for hi in (None, *values):
                want = [i for i, k in enumerate(keys) if (lo is None or k >= lo) and (hi is None or k <= hi)]
                result = table.query(key=(lo, hi), columns=["n"])
                assert len(result) == len(want), (lo, hi)
                assert sorted(result.to_arrow()["n"].to_pylist()) == want, (lo, hi)

    with tw.open(root, settings=tw.Settings(leaf_rows=2, indexing_servers=2)) as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        batch = pa.RecordBatch.from_arrays([column, numbers.cast(pa.timestamp("us")), numbers], schema=schema)
        table.insert(batch.slice(0, 10))
        table.insert(batch.slice(10))
        check(table)
        table.flush()
        check(table)
    with tw.open(root) as wh:
        check(wh.table("t"))


class TestZOrder:
    BOUNDS = (0.0, 0.0, 10.0, 10.0)
    SCHEMA = pa.schema([("x", pa.float64()), ("y", pa.float64()), ("ts", pa.timestamp("s")), ("n", pa.int64())])

    @pytest.fixture
    def points(self, tmp_path: Path) -> Iterator[tuple[tw.Table, np.ndarray[Any, Any]]]:
        """20,000 points, a tenth of them outside the declared bounds."""
        rng = np.random.default_rng(1)
        xy = rng.uniform(0, 10, (20_000, 2))
        xy[::10] = rng.uniform(-20, 30, (2_000, 2))
        xy[7], xy[8], xy[9] = (-0.0, 10.0), (math.inf, -math.inf), (1e300, 5.0)
        n = np.arange(len(xy))
        data = pa.table([xy[:, 0], xy[:, 1], pa.array(n, pa.timestamp("s")), n], schema=self.SCHEMA)
        with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=32)) as wh:
            table = wh.create_table("points", self.SCHEMA, time="ts", key=tw.zorder("x", "y", bounds=self.BOUNDS))
            table.insert(data.slice(0, 12_000))
            table.flush()
            table.insert(data.slice(12_000))
            yield table, xy

    def test_boxes_are_exact(self, points: tuple[tw.Table, np.ndarray[Any, Any]]) -> None:
        table, xy = points
        rng = np.random.default_rng(2)
        boxes = [np.sort(rng.uniform(-25, 35, (2, 2)), axis=0) for _ in range(30)]
        boxes += [np.sort(rng.uniform(0, 10, (2, 2)), axis=0) for _ in range(30)]
        boxes += [np.array([p, p]) for p in xy[:20]]
        for lo, hi in boxes:
            want = np.flatnonzero(((xy >= lo) & (xy <= hi)).all(axis=1))
            got = table.query(box=(*lo, *hi), columns=["n"]).to_arrow()["n"].to_numpy()
            assert (np.sort(got) == want).all()
        assert len(table.query(box=(None, None, 5, None))) == (xy[:, 0] <= 5).sum()

    def test_points_outside_the_bounds_are_kept_and_found(self, points: tuple[tw.Table, np.ndarray[Any, Any]]) -> None:
        table, xy = points
        assert table.rows == len(xy)
        assert len(table.query(box=(1e299, 0, 1e301, 10))) == 1
        assert len(table.query(box=(-math.inf, -math.inf, math.inf, math.inf))) == len(xy)
        assert len(table.query(box=(11, 11, 12, 12))) == ((xy >= 11) & (xy <= 12)).all(axis=1).sum()

    def test_a_small_box_skips_most_leaves(self, points: tuple[tw.Table, np.ndarray[Any, Any]]) -> None:
        table, _ = points
        stats = table.query(box=(4, 4, 5, 5)).stats
        assert stats.leaves_read < 0.2 * (stats.leaves_read + stats.leaves_skipped)
        assert len(table.query(box=(4, 4, 5, 5)).plan.key_intervals) <= 64

    @pytest.mark.parametrize(
        "wrong, said",
        [
            ({"box": (1, 2, 3)}, "4 numbers"),
            ({"box": 5}, "4 numbers"),
            ({"box": ("a", 0, 1, 1)}, "box|coordinate|number"),
            ({"box": (0, 0, 1, 1), "key": 5}, "either key= or box="),
            ({"key": (1, 2)}, "box="),
        ],
    )
    def test_wrong_boxes_are_explained(self, points: tuple[tw.Table, np.ndarray[Any, Any]], wrong: dict[str, Any], said: str) -> None:
        with pytest.raises(tw.QueryError, match=said):
            points[0].query(**wrong).to_arrow()

    def test_three_dimensions_and_integers(self, tmp_path: Path) -> None:
        schema = pa.schema([("a", pa.int32()), ("b", pa.uint8()), ("c", pa.float32()), ("ts", pa.timestamp("s"))])
        rng = np.random.default_rng(3)
        a, b, c = rng.integers(-100, 100, 5000), rng.integers(0, 256, 5000), rng.normal(0, 1, 5000).astype(np.float32)
        with tw.open(tmp_path / "wh") as wh:
            table = wh.create_table("t", schema, time="ts", key=tw.zorder("a", "b", "c", bounds=(-100, 0, -3, 100, 255, 3)))
            table.insert(
                pa.table([pa.array(a, pa.int32()), pa.array(b, pa.uint8()), c, pa.array(np.arange(5000), pa.timestamp("s"))], schema=schema)
            )
            table.flush()
            want = ((a >= -5) & (a <= 50) & (b >= 10) & (b <= 99) & (c >= 0) & (c <= 1)).sum()
            assert len(table.query(box=(-5, 10, 0.0, 50, 99, 1.0))) == want

    @pytest.mark.parametrize(
        "columns, bounds",
        [(("x",), (0, 1)), (("x", "y"), (0, 0, 1)), (("x", "y"), (0, 0, 0, 1)), (("x", "x"), (0, 0, 1, 1)), (("x", "y"), None)],
    )
    def test_impossible_z_orders_are_refused(self, columns: tuple[str, ...], bounds: Any) -> None:
        with pytest.raises(tw.InputError):
            tw.zorder(*columns, bounds=bounds)

    def test_a_box_needs_a_z_order(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            table = wh.create_table("plain", self.SCHEMA, time="ts", key="x")
            with pytest.raises(tw.QueryError, match="has no z-order key"):
                table.query(box=(0, 0, 1, 1))


def test_ip_addresses_in_numeric_order(tmp_path: Path) -> None:
    schema = pa.schema([("src", pa.string()), ("ts", pa.timestamp("s"))])
    addresses = ["9.0.0.1", "10.0.0.1", "10.0.0.200", "10.0.1.0", "192.168.0.1", "0.0.0.0", "255.255.255.255", "::", "::1"]
    addresses += ["2001:db8::1", "2001:db8::ffff", "2001:DB8:0::2", "fe80::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]

    def order(text: str) -> tuple[int, int]:
        address = ipaddress.ip_address(text)
        return address.version, int(address)

    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=2)) as wh:
        table = wh.create_table("flows", schema, time="ts", key=tw.ip("src"))
        table.insert([{"src": a, "ts": i} for i, a in enumerate(addresses)])
        for _ in range(2):
            for lo in addresses:
                for hi in addresses:
                    want = sorted(a for a in addresses if order(lo) <= order(a) <= order(hi))
                    assert sorted(table.query(key=(lo, hi)).to_arrow()["src"].to_pylist()) == want, (lo, hi)
            table.flush()
        assert len(table.query(key=("10.0.0.0", "10.0.255.255"))) == 3
        with pytest.raises(tw.BadRowsError, match=r"'flows', column 'src'.*row 1: '10\.0\.0\.256'"):
            table.insert([{"src": "10.0.0.1", "ts": 0}, {"src": "10.0.0.256", "ts": 0}])
        with pytest.raises(tw.QueryError, match="nowhere"):
            table.query(key=("nowhere", None)).to_arrow()


class TestTime:
    MOMENT = dt.datetime(2026, 1, 1, 12, 0, 0)

    @pytest.mark.parametrize("unit, per_second", [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
    def test_units_and_what_people_write(self, tmp_path: Path, unit: str, per_second: int) -> None:
        start = int(self.MOMENT.replace(tzinfo=UTC).timestamp()) * per_second
        schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp(unit)), ("ms_seen", pa.int64())])
        with tw.open(tmp_path / "wh") as wh:
            stamped = wh.create_table("stamped", schema, time="ts", key="id")
            epoch = wh.create_table("epoch", schema, time=tw.epoch("ms_seen", unit), key="id")
            times = [start + i * per_second for i in range(60)]
            data = pa.table([pa.array(range(60)), pa.array(times, pa.timestamp(unit)), pa.array(times)], schema=schema)
            for table in (stamped, epoch):
                table.insert(data)
                for _ in range(2):
                    a, b = self.MOMENT + dt.timedelta(seconds=5), self.MOMENT + dt.timedelta(seconds=9)
                    east = dt.timezone(dt.timedelta(hours=8))
                    same = [
                        (a, b), (a.isoformat(), b.isoformat(sep=" ")), (a.isoformat() + "Z", b.isoformat() + "+00:00"),
                        (a.replace(tzinfo=UTC).astimezone(east), b), (start + 5 * per_second, start + 9 * per_second),
                        (np.datetime64(a), np.datetime64(b)), (a - dt.timedelta(microseconds=1), b + dt.timedelta(microseconds=999)),
                        (pa.scalar(a, pa.timestamp("us")), pa.scalar(b, pa.timestamp("ns"))),
                    ]  # fmt: skip
                    for time in same:
                        assert sorted(table.query(time=time).to_arrow()["id"].to_pylist()) == [5, 6, 7, 8, 9], time
                    assert table.query(time=a).to_arrow()["id"].to_pylist() == [5]
                    assert len(table.query(time=(None, a))) == 6 and len(table.query(time=(b, None))) == 51
                    assert len(table.query(time=(dt.date(2026, 1, 1), dt.date(2026, 1, 2)))) == 60
                    table.flush()

    def test_integer_times_take_times_too(self, tmp_path: Path) -> None:
        schema = pa.schema([("id", pa.int64()), ("ms_seen", pa.int64())])
        with tw.open(tmp_path / "wh") as wh:
            seen = wh.create_table("seen", schema, time=tw.epoch("ms_seen", "ms"), key="id")
            seen.insert([{"id": 1, "ms_seen": self.MOMENT}, {"id": 2, "ms_seen": "2026-01-01T12:00:01.5"}, {"id": 3, "ms_seen": 1}])
            start = int(self.MOMENT.replace(tzinfo=UTC).timestamp()) * 1000
            assert seen.query(order_by="id").to_arrow()["ms_seen"].to_pylist() == [start, start + 1500, 1]

    @pytest.mark.parametrize("type_", [pa.date32(), pa.date64()])
    def test_dates(self, tmp_path: Path, type_: pa.DataType) -> None:
        schema = pa.schema([("id", pa.int64()), ("day", type_)])
        days = [dt.date(2026, 1, 1) + dt.timedelta(days=i) for i in range(31)]
        with tw.open(tmp_path / "wh") as wh:
            table = wh.create_table("days", schema, time="day", key="id", partition="7 days")
            table.insert([{"id": i, "day": day} for i, day in enumerate(days)])
            for _ in range(2):
                assert sorted(table.query(time=(days[3], days[5])).to_arrow()["day"].to_pylist()) == days[3:6]
                assert len(table.query(time=("2026-01-10", None))) == 22
                assert len(table.query(time=dt.datetime(2026, 1, 4, 12))) == 0
                assert len(table.query(time=(dt.datetime(2026, 1, 4, 12), dt.datetime(2026, 1, 5, 12)))) == 1
                table.flush()

    @pytest.mark.parametrize("wrong", ["yesterday", 1.5, True, [1, 2, 3], object(), ("2026-13-01", None)])
    def test_what_is_no_time_is_refused(self, tmp_path: Path, wrong: Any) -> None:
        with tw.open(tmp_path / "wh") as wh:
            table = wh.create_table("t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="id")
            with pytest.raises(tw.QueryError, match="time"):
                table.query(time=wrong).to_arrow()


class TestDefinitions:
    SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("tags", pa.list_(pa.string()))])

    @pytest.mark.parametrize(
        "wrong, said",
        [
            ({"name": "two words"}, "letters, digits and _"),
            ({"schema": {"id": int}}, "pyarrow.Schema"),
            ({"time": "tss"}, "'tss' is not in the schema of table 't'. Did you mean 'ts'?"),
            ({"time": "id"}, r"tw\.epoch\('id'"),
            ({"time": "tags"}, "must be a timestamp"),
            ({"time": tw.epoch("ts", "ms")}, "integer column"),
            ({"key": "Id"}, "'Id' is not in the schema"),
            ({"key": "tags"}, "no order to index"),
            ({"key": tw.ip("id")}, "text column"),
            ({"key": tw.zorder("id", "ts", bounds=(0, 0, 1, 1))}, "integer or a float"),
            ({"key": 5}, "column name"),
            ({"partition": "fortnight"}, "1 hour"),
            ({"partition": "1 ns"}, "shorter than one unit"),
            ({"if_exists": "replace"}, "'error' or 'open'"),
            ({"schema": pa.schema([("id", pa.int64()), ("id", pa.int64()), ("ts", pa.timestamp("s"))])}, "two columns named 'id'"),
            ({"schema": pa.schema([])}, "no columns"),
        ],
    )
    def test_impossible_tables_are_refused(self, tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
        arguments = {"name": "t", "schema": self.SCHEMA, "time": "ts", "key": "id"} | wrong
        with tw.open(tmp_path / "wh") as wh:
            with pytest.raises(tw.InputError, match=said):
                wh.create_table(**arguments)
            assert wh.tables() == []

    def test_a_table_is_created_once(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            wh.create_table("t", self.SCHEMA, time="ts", key="id")
            with pytest.raises(tw.TidewheelError, match="is there already"):
                wh.create_table("t", self.SCHEMA, time="ts", key="id")
            wh.create_table("t", self.SCHEMA, time="ts", key="id", if_exists="open")
            with pytest.raises(tw.TidewheelError, match="another definition"):
                wh.create_table("t", self.SCHEMA.remove(2), time="ts", key="id", if_exists="open")
            assert wh.tables() == ["t"]
            with pytest.raises(tw.NotFoundError, match=r"no table 'tt'\. Did you mean 't'"):
                wh.table("tt")

    def test_what_a_table_tells(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            t = wh.create_table("t", self.SCHEMA, time="ts", key="id")
            assert (t.name, t.time, t.key.columns, t.rows) == ("t", "ts", ("id",), 0)
            assert t.schema.equals(self.SCHEMA)
            assert repr(t) == "<Table t: 0 rows; key id; time ts; id int64, ts timestamp[us], tags list<item: string>>"
            assert repr(wh).startswith("<Warehouse") and "1 table" in repr(wh)

    def test_schema_metadata_stays(self, tmp_path: Path) -> None:
        schema = pa.schema(
            [pa.field("id", pa.int64(), metadata={"unit": "m"}), pa.field("ts", pa.timestamp("us"))], metadata={"owner": "me"}
        )
        with tw.open(tmp_path / "wh") as wh:
            wh.create_table("t", schema, time="ts", key="id").insert([{"id": 1, "ts": 1}])
        with tw.open(tmp_path / "wh") as wh:
            t = wh.table("t")
            assert t.schema.equals(schema, check_metadata=True)
            assert t.query().to_arrow().schema.equals(schema, check_metadata=True)
