"""What people type into `query` and `latest` first: parameters, expressions, networks; and the sentence for each mistake."""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.conftest import check_nothing_left, examples
from tidewheel.sql.where_parameters import filled, literal

T0 = dt.datetime(2026, 1, 1, 8)
TAXI = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us")),
        ("speed", pa.float64()),
        ("zone", pa.string()),
        ("pos", pa.struct([("lon", pa.float64()), ("lat", pa.float64())])),
        ("trip distance", pa.int32()),
        ("pos.lon", pa.int8()),
        ("note", pa.dictionary(pa.int32(), pa.string())),
    ]
)
FLOWS = pa.schema([("src", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
ROWS = [
    {
        "id": i % 17, "ts": T0 + dt.timedelta(seconds=i), "speed": i / 4, "zone": "ns"[i % 2], "pos": {"lon": i / 8, "lat": -i / 8},
        "trip distance": i, "pos.lon": i % 100, "note": f"n{i % 3}",
    }
    for i in range(400)
]  # fmt: skip


def addresses(n: int, seed: int = 3) -> list[str]:
    rng = random.Random(seed)
    v6 = [str(ipaddress.IPv6Address((0x20010DB8 << 96) + rng.getrandbits(68))) for _ in range(n // 3)]
    return [*v6, *(str(ipaddress.IPv4Address(rng.getrandbits(32))) for _ in range(n - n // 3 - 3)), "9.0.0.1", "10.0.0.1", "99.0.0.1"]


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    check_nothing_left()


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path_factory.mktemp("wh"), settings=tw.Settings(leaf_rows=16)) as wh:
        taxi = wh.create_table("taxi", TAXI, time="ts", key="id")
        flows = wh.create_table("flows", FLOWS, time="ts", key=tw.ip("src"))
        texts = addresses(600)
        for first in (0, 1):
            taxi.insert(ROWS[first::2])
            flows.insert([{"src": text, "ts": T0, "n": n} for n, text in list(enumerate(texts))[first::2]])
            if not first:
                taxi.flush()
                flows.flush()
        yield wh


@pytest.fixture
def taxi(wh: tw.Warehouse) -> tw.Table:
    return wh.table("taxi")


def numbers(result: tw.Result, column: str = "trip distance") -> list[int]:
    return sorted(result.to_arrow()[column].to_pylist())


# ---- parameters -------------------------------------------------------------------------------------------------


VALUES: list[Any] = [
    None, True, False, 0, -7, 2**62, -(2**63), 2**90, 0.1, -1.5, 1e300, 5e-324, math.inf, -math.inf, math.nan, "", "it's", "é'\n--",
    "a\0b", "$x ?", Decimal("12.50"), Decimal("-0.001"), Decimal(10**20), b"", b"\x00'\xff", dt.date(2026, 1, 2), dt.time(1, 2, 3, 4),
    dt.datetime(2026, 1, 1, 2, 3, 4, 567), dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    dt.timedelta(days=-1, seconds=5),
    UUID(int=7), [1, 2], ["a'b"], np.int32(7), np.float64(0.5), pa.scalar(3), pd.Timestamp("2026-01-01 00:00:00.000001"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_parameter_is_what_duckdb_makes_of_it(value: Any) -> None:
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        plain = value.item() if isinstance(value, np.generic) else value.as_py() if isinstance(value, pa.Scalar) else value
        said = filled("x = ?", [value]).removeprefix("x = ")
        assert said == literal(plain)
        if isinstance(value, list):
            one = duck.execute(f"SELECT {said}").fetchone()
            assert one is not None and list(one[0]) == value
            return
        one = duck.execute(f"SELECT {said} IS NOT DISTINCT FROM ?, typeof({said}), typeof(?)", [plain, plain]).fetchone()
        assert one is not None and one[0], (said, one)
        if isinstance(value, (float, str, dt.date, dt.time, bytes, UUID)):
            assert one[1] == one[2]


@settings(max_examples=examples(25))
@given(
    least=st.integers(-1, 18) | st.floats(-1, 18) | st.decimals(-1, 18, places=2),
    zone=st.sampled_from(["n", "s", "x'"]),
    at=st.integers(-5, 405),
    named=st.booleans(),
)
def test_parameters_filter_and_prune_as_literals_do(wh: tw.Warehouse, least: Any, zone: str, at: int, named: bool) -> None:
    taxi, since = wh.table("taxi"), T0 + dt.timedelta(seconds=at)
    if named:
        asked = taxi.query(where="id >= $least AND zone = $zone AND ts > $since", params={"least": least, "zone": zone, "$since": since})
    else:
        asked = taxi.query(where="id >= ? AND zone = ? AND ts > ?", params=(least, zone, since))
    assert numbers(asked) == [i for i, r in enumerate(ROWS) if r["id"] >= least and r["zone"] == zone and r["ts"] > since]
    assert asked.plan.time[0] > int((since - dt.datetime(1970, 1, 1)).total_seconds() * 1e6)
    if isinstance(least, int):
        assert asked.plan.key_intervals in (((least, 2**63 - 1),), ())


def test_parameters_of_lists_and_patterns(taxi: tw.Table) -> None:
    assert len(taxi.query(where="id IN (?, ?)", params=[3, 5])) == len(taxi.query(key=[3, 5]))
    assert len(taxi.query(where="id IN ?", params=[[3, 5]])) == len(taxi.query(key=[3, 5]))
    assert len(taxi.query(where="note LIKE ? AND $2 = 1", params=["n1%", 1])) == len(taxi.query(where="note = 'n1'"))
    assert "key codes  3 .. 4" in taxi.explain(where="id BETWEEN ? AND ?", params=[3, 4])
    assert "key codes  3 .. 3, 9 .. 9" in taxi.explain(where="id IN (?, ?) AND speed > 1", params=[9, 3])
    assert numbers(taxi.query(where="id IN (9, 3) OR id = 5")) == sorted(i for i in range(400) if i % 17 in (3, 5, 9))
    assert numbers(taxi.query(where="id IN (9, 3)", key=(4, 9))) == list(range(9, 400, 17))


# ---- columns, groups, order -----------------------------------------------------------------------------------


def test_columns_are_names_fields_and_expressions(taxi: tw.Table) -> None:
    names = ["id", "pos.lat", "speed * 3.6 AS kmh", "date_trunc('hour', ts)", "pos.lon", "trip distance", "zone AS z", 'note AS "a b"']
    asked = taxi.query(columns=names, order_by="kmh desc, ts", limit=5, offset=2)
    table = asked.to_arrow()
    assert table.schema.names == ["id", "lat", "kmh", "date_trunc('hour', ts)", "pos.lon", "trip distance", "z", "a b"]
    assert table.schema.field("a b").type == TAXI.field("note").type and table.schema == asked.schema
    expected = [
        {
            "id": r["id"], "lat": r["pos"]["lat"], "kmh": r["speed"] * 3.6, "date_trunc('hour', ts)": T0, "pos.lon": r["pos.lon"],
            "trip distance": r["trip distance"], "z": r["zone"], "a b": r["note"],
        }
        for r in ROWS[::-1][2:7]
    ]  # fmt: skip
    assert table.to_pylist() == expected
    assert taxi.query(columns=["*", "1 AS one"]).schema.names == [*TAXI.names, "one"]
    assert numbers(taxi.query(columns=["trip distance", "speed > 50"], where="id = 3")) == list(range(3, 400, 17))
    assert taxi.query(columns=["upper(zone) AS zone"], order_by="zone desc, id", limit=1).to_pylist() == [{"zone": "S"}]
    assert sum(batch.num_rows for batch in taxi.query(columns=["speed + 1"])) == 400
    assert len(taxi.query(columns=["speed + 1"], limit=7, offset=396)) == 4


def test_groups_are_names_fields_and_expressions(taxi: tw.Table) -> None:
    groups = ["date_trunc('minute', ts) AS minute", "zone", "pos.lat < -10"]
    found = taxi.query(aggregate={"n": "count(*)", "top": "max(speed * 2)"}, group_by=groups, order_by="minute, zone, n").to_pylist()
    expected: dict[tuple[Any, ...], list[float]] = {}
    for row in ROWS:
        expected.setdefault((row["ts"].replace(second=0), row["zone"], row["pos"]["lat"] < -10), []).append(row["speed"])
    assert {tuple(list(row.values())[:3]): (row["n"], row["top"]) for row in found} == {
        key: (len(speeds), 2 * max(speeds)) for key, speeds in expected.items()
    }
    assert list(found[0]) == ["minute", "zone", "(pos.lat < -10)", "n", "top"]
    assert len(taxi.query(group_by="pos.lon")) == 100  # the column of that name, not the field


@settings(max_examples=examples(15))
@given(limit=st.none() | st.integers(0, 450), offset=st.integers(0, 450), how=st.integers(0, 3))
def test_offset_leaves_rows_out(wh: tw.Warehouse, limit: int | None, offset: int, how: int) -> None:
    taxi = wh.table("taxi")
    more: dict[str, Any] = [{}, {"where": "id < 9"}, {"order_by": "ts desc"}, {"where": "id < 9", "order_by": "ts"}][how]
    every = taxi.query(**more).to_arrow().to_pylist()
    asked = taxi.query(limit=limit, offset=offset, **more)
    expected = every[offset:] if limit is None else every[offset : offset + limit]
    assert len(asked) == len(expected) and asked.to_arrow().to_pylist() == expected
    assert [row for batch in asked for row in batch.to_pylist()] == expected


# ---- lists ------------------------------------------------------------------------------------------------------


def test_a_list_reads_the_leaves_of_its_keys(wh: tw.Warehouse, taxi: tw.Table) -> None:
    everything, some = taxi.query(), taxi.query(key=[3, 9])
    assert numbers(some) == sorted([*range(3, 400, 17), *range(9, 400, 17)])
    assert some.stats.leaves_read < everything.stats.leaves_read / 2 and some.known_rows() == len(some)
    for other in ({3, 9}, (3, 3, 9)[:2] and [3, 9, 3], np.array([3, 9]), pa.array([9, 3]), pd.Series([3, 9]), range(3, 10, 6)):
        assert len(taxi.query(key=other)) == len(some)
    assert len(taxi.query(key=[])) == 0 == len(taxi.query(key=[2.5])) and len(taxi.query(key=[3.0, True])) == 48
    assert numbers(taxi.query(ranges={"zone": ["n", "q"], "trip distance": [4, 5, 6]})) == [4, 6]
    assert numbers(taxi.query(ranges={"ts": ["2026-01-01 08:00:05", T0], "id": [5, 0]})) == [0, 5]
    assert numbers(taxi.query(key=(3, 5), ranges={"id": [5, 9]})) == list(range(5, 400, 17))
    assert numbers(taxi.query(ranges={"zone": []})) == []


# ---- addresses --------------------------------------------------------------------------------------------------


NETWORKS = ["10.0.0.0/8", "128.0.0.0/1", "0.0.0.0/0", "::/0", "2001:db8::/64", "2001:db8:0:0:8000::/65", "9.0.0.1", "2001:db8::/128"]


def within(text: str, network: str) -> bool:
    address, net = ipaddress.ip_address(text), ipaddress.ip_network(network)
    return address.version == net.version and address in net


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_is_its_addresses_everywhere(wh: tw.Warehouse, network: str) -> None:
    flows, texts = wh.table("flows"), addresses(600)
    expected = [n for n, text in enumerate(texts) if within(text, network)]
    assert numbers(flows.query(key=network), "n") == expected
    assert numbers(flows.query(key=[network, network, "203.0.113.1"]), "n") == expected
    assert numbers(flows.query(key=ipaddress.ip_network(network)), "n") == expected
    assert numbers(flows.query(ranges={"src": network}), "n") == expected
    assert numbers(flows.query(key=(None, None), ranges={"src": [network]}), "n") == expected
    asked = flows.query(where="ip_in(src, ?)", params=[network])
    assert numbers(asked, "n") == expected and asked.plan.key_intervals == flows.query(key=network).plan.key_intervals
    assert numbers(wh.sql(f"SELECT n FROM flows WHERE ip_in(src, '{network}')"), "n") == expected
    long = wh.sql("SELECT n FROM flows WHERE ip_in(src, $net) AND abs(n) >= 0", {"net": network})
    assert numbers(long, "n") == expected
    assert long.stats.rows_scanned <= flows.query(key=network).stats.rows_scanned + len(expected) + 64
    assert numbers(wh.sql("SELECT n FROM flows WHERE NOT ip_in(src, ?)", [network]), "n") == sorted({*range(600)} - {*expected})


def test_ranges_of_addresses_mean_one_thing(wh: tw.Warehouse) -> None:
    flows, texts = wh.table("flows"), addresses(600)
    lo, hi = "10.0.0.0", "99.255.255.255"
    expected = [n for n, text in enumerate(texts) if ":" not in text and 10 <= int(text.split(".")[0]) <= 99]
    assert numbers(flows.query(key=(lo, hi)), "n") == expected
    assert numbers(flows.query(where="ip_between(src, ?, ?)", params=[lo, hi]), "n") == expected
    assert numbers(wh.sql("SELECT n FROM flows WHERE ip_between(src, ?, ?)", [lo, hi]), "n") == expected
    assert numbers(wh.sql(f"SELECT n FROM flows WHERE ip_between(src, '{lo}', '{hi}') OR abs(n) < 0"), "n") == expected
    order = wh.sql("SELECT src FROM flows ORDER BY ip_order(src)").to_arrow()["src"].to_pylist()
    assert order == sorted(texts, key=lambda text: (ipaddress.ip_address(text).version, int(ipaddress.ip_address(text))))
    for text in ("src BETWEEN '1' AND '2'", "src < '3'", "'3' >= src", "f.src > '1'", "n = 1 AND (src > '1' OR n = 2)"):
        with pytest.raises(tw.QueryError, match="texts are not in the order of addresses: write ip_between"):
            wh.sql(f"SELECT n FROM flows f WHERE {text}")
    for statement in ("SELECT s FROM (SELECT src AS s FROM flows) WHERE s < '3'", "SELECT src < '3' FROM flows"):
        with pytest.raises(tw.QueryError, match="ip_in"):
            wh.sql(statement)
    with pytest.raises(tw.QueryError, match="ip_in"):
        flows.query(where="src > '10.0.0.0'")
    assert len(wh.sql("SELECT n FROM flows WHERE src IN ('9.0.0.1', '10.0.0.1') OR src = '99.0.0.1'")) == 3
    assert wh.sql("SELECT count(*) AS n FROM flows WHERE src || '' < '3'").to_pylist()[0]["n"] == sum(text < "3" for text in texts)
    assert len(wh.sql("SELECT n FROM flows WHERE src LIKE '9.0.%'")) == sum(text.startswith("9.0.") for text in texts)


TEXTS = ["", "x", "1.2.3", "1.2.3.256", "1.2.3.4.5", "1:2", "g::1", ":::", "::1.2.3", "12345::", "1:2:3:4:5:6:7:8:9", "1::2::3"]
GOOD = ["1.2.3.4", "::", "::1", "1::", "2001:DB8::1", "::ffff:1.2.3.4", "fe80::1%eth0", "1:2:3:4:5:6:7::", "255.255.255.255"]


def test_ip_order_sorts_as_addresses_do(wh: tw.Warehouse) -> None:
    asked = ", ".join(f"ip_order('{text}')" for text in (*TEXTS, *GOOD))
    (found,) = wh.sql(f"SELECT [{asked}] AS found").to_pylist()
    bits = [f"{a.version}{int(a):0{a.max_prefixlen}b}" for a in map(ipaddress.ip_address, GOOD)]
    assert found["found"] == [None] * len(TEXTS) + bits


# ---- mistakes ---------------------------------------------------------------------------------------------------


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"where": "speed > ?"}, r"params= none of their values: give params=\[…\]"),
    ({"where": "speed > $x"}, r"give params=\{'x': …\}"),
    ({"where": "speed > ?", "params": [1, 2]}, "where has 1 parameter, and params gives 2 values"),
    ({"where": "speed > ? AND id = ?", "params": [1]}, "where has 2 parameters, and params gives 1 value"),
    ({"where": "speed > 1", "params": [1]}, "where has no parameter: write \\?"),
    ({"where": "speed > $x", "params": [1]}, "where names \\$x, so params is a mapping"),
    ({"where": "speed > ?", "params": {"x": 1}}, "where has \\?, so params is a list"),
    ({"where": "speed > $lo", "params": {"low": 1}}, "no value for \\$lo, which where names. Did you mean 'low'"),
    ({"where": "speed > $lo", "params": {"lo": 1, "hi": 2}}, "a value for 'hi', but where does not name \\$hi"),
    ({"where": "speed > ?", "params": 5}, "parameters are a list for \\? or a mapping for \\$name, not 5"),
    ({"where": "speed > ?", "params": "5"}, "parameters are a list"),
    ({"where": "speed > ?", "params": [object()]}, "parameter 1 of where is a object, which is no value of SQL"),
    ({"where": "speed > ?", "params": [{1}]}, "one value for each \\?"),
    ({"params": [1]}, "params are the values for"),
    ({"where": lambda batch: batch["id"], "params": [1]}, "where is no text"),
    ({"key": [None]}, "never null; leave None out"),
    ({"key": [(1, 2)]}, "an interval stands alone, as key=\\(lo, hi\\)"),
    ({"key": ["a"]}, "'a' is no int64"),
    ({"key": [3], "box": (1, 2, 3, 4)}, "no z-order key"),
    ({"time": [T0, T0]}, "time is an interval, and that is a tuple: write"),
    ({"ranges": {"zone": ["n", None]}}, "holds single values, not None"),
    ({"ranges": {"speed": ["n"]}}, "'n' is no number"),
    ({"columns": ["speeed"]}, "no column 'speeed'. Did you mean 'speed'"),
    ({"columns": ["trip distanc"]}, "no column 'trip distanc'. Did you mean 'trip distance'"),
    ({"columns": ["speed +"]}, "no column 'speed \\+', and it is no expression"),
    ({"columns": ["speed, id"]}, "it is more than one"),
    ({"columns": ["speed * 2", "speed*2"]}, "two columns are named '\\(speed \\* 2\\)'; give one another name"),
    ({"columns": ["id", "speed AS id"]}, "two columns are named 'id'"),
    ({"columns": ["nope * 2"]}, 'columns: Referenced column "nope" not found'),
    ({"columns": ["sum(speed)"]}, "Give it a name in aggregate="),
    ({"columns": ["(SELECT 1)"]}, 'columns: .* sub-query. Ask it with wh.sql'),
    ({"columns": ["row_number() OVER ()"]}, "columns: .* has a window"),
    ({"columns": ["random()"]}, "gives something else at every reading"),
    ({"columns": ["speed > ?"]}, "params are for where alone"),
    ({"columns": ["v: speed"]}, "write '… AS v'"),
    ({"columns": ["COLUMNS(*)"]}, "an expression is one column"),
    ({"columns": ["getenv('HOME')"]}, "about the process"),
    ({"columns": ["speed * 2", 5]}, "has no column 5"),
    ({"columns": ["speed * 2", {}]}, "has no column {}"),
    ({"group_by": ["speed * 2", None]}, "group_by: table 'taxi' has no column None"),
    ({"group_by": ["nope"]}, "group_by: table 'taxi' has no column 'nope'"),
    ({"group_by": ["count(*)"]}, "group_by: .* aggregates with"),
    ({"group_by": ["speed +"]}, "group_by: .* no expression"),
    ({"offset": -1}, "offset is a whole number of rows to leave out, not -1"),
    ({"offset": "2"}, "offset is a whole number"),
    ({"offset": True}, "offset is a whole number"),
    ({"order_by": "kmh", "columns": ["speed AS v"]}, "no column 'kmh'"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "sentence"), MISTAKES, ids=[sentence[:60] for _, sentence in MISTAKES])
def test_a_mistake_gets_its_sentence(taxi: tw.Table, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(tw.QueryError, match=sentence):
        taxi.query(**asked)
    assert len(taxi.query(limit=1)) == 1


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("10.1.0.0/8", "not its first; the network is '10.0.0.0/8'"),
        ("10.0.0.0/40", "is no network: write the first address"),
        ("10.0.0.0/x", "is no network"),
        (("10.0.0.0/8", "11.0.0.0"), "a network stands alone, or in a list"),
        (["10.0.0.0/8", "home"], "'home' is no IPv4 or IPv6 address"),
    ],
)
def test_a_wrong_network_gets_its_sentence(wh: tw.Warehouse, key: Any, sentence: str) -> None:
    with pytest.raises(tw.QueryError, match=sentence):
        wh.table("flows").query(key=key)
    for text in ("10.1.0.0/8", "x/8", "10.0.0.0/33"):
        with pytest.raises(tw.QueryError, match="network"):
            wh.sql("SELECT n FROM flows WHERE ip_in(src, ?)", [text]).to_arrow()


# ---- the last row of each key -----------------------------------------------------------------------------------


def test_the_last_rows_of_few_keys_are_read_from_the_end(tmp_path: Any) -> None:
    names = ["id", "ts", "n", *(f"c{i}" for i in range(6))]
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), *((name, pa.int64()) for name in names[2:])])
    rows = []
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", schema, time="ts", key="id")
        for day in range(40):
            keys = [0, 1, 2, 3, 3] + ([77] if day == 0 else [88] if day == 20 else [])
            batch = [
                {name: len(rows) + i for name in names} | {"id": key, "ts": T0 + dt.timedelta(days=day, seconds=min(i, 3))}
                for i, key in enumerate(keys)
            ]
            rows += batch
            table.insert(batch)
            if day < 39:
                table.flush()
        last: dict[int, dict[str, Any]] = {}
        for row in rows:  # of two rows of one time, the later one counts
            last[row["id"]] = row
        few = table.latest(key=[3, 1])
        assert sorted(few.to_pylist(), key=lambda row: row["id"]) == [last[1], last[3]]
        assert few.stats.regions_read <= 17 and few.plan.time[0] > 0
        assert table.latest(key=[1, 88]).stats.regions_read <= 40
        for keys in ([77], [88, 0], [5], [77, 88, 3, 5], 88, (3, 3), (0, 3), None):
            wanted = [row for key, row in last.items() if keys is None or key in (range(4) if keys == (0, 3) else np.atleast_1d(keys))]
            assert sorted(table.latest(key=keys).to_pylist(), key=lambda row: row["id"]) == sorted(wanted, key=lambda row: row["id"])
        until = T0 + dt.timedelta(days=19, seconds=9)
        assert table.latest(key=[1], time=(None, until), columns=["ts"]).to_pylist() == [{"ts": T0 + dt.timedelta(days=19, seconds=1)}]
        assert table.latest(key=[1], time=(T0, T0), columns=["ts"]).to_pylist() == []
        odd = max(row["n"] for row in rows if row["id"] == 3 and row["n"] % 7 == 1)
        assert table.latest(key=3, where="n % 7 = ?", params=[1], columns=["n"]).to_pylist() == [{"n": odd}]
        statement = "SELECT id, arg_max(n, ts) AS n FROM t WHERE id < 3 GROUP BY id ORDER BY id"
        assert wh.sql(statement).to_pylist() == table.latest(key=(0, 2), columns=["id", "n"], order_by="id").to_pylist()
        statement = "SELECT DISTINCT ON (id) id, n FROM t WHERE id < 3 ORDER BY id, ts DESC"
        assert wh.sql(statement).to_pylist() == table.latest(key=(0, 2), columns=["id", "n"], order_by="id").to_pylist()


def test_of_rows_of_one_time_the_last_insert_counts(tmp_path: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", schema, time="ts", key="id")
        for n in range(60):
            table.insert([{"id": key, "ts": T0, "n": n} for key in (1, 2)])
            assert {row["n"] for row in table.latest().to_pylist()} == {n}
            if n % 17 == 9:
                table.flush()
                assert {row["n"] for row in table.latest(where="n >= 0").to_pylist()} == {n}
