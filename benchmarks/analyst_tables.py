"""The tables that an analyst asks: taxi positions by taxi and by place, daily weather, a log of texts, and groups of every number.

Real rows from the data folder when they are there, otherwise generated ones of the same shape.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.report import Options
from benchmarks.side_by_side import Given

WEATHER_ROWS, LOG_ROWS, MANY_ROWS = 16_841_620, 2_337_728, 16_000_000
QUICK = 1_000_000
FAMILIAR = 10_000
"""Different values of a table's key where nothing else is said."""


def wanted(options: Options, full: int) -> int:
    most = options.rows or (QUICK if options.quick else full)
    return min(most, full)


def taxis(options: Options) -> tuple[pa.Table, np.ndarray, str]:
    """Positions in time order. Real ones have several rows of a taxi in one second: within it, each gets a microsecond of its own."""
    rows = data.load(options.data, wanted(options, data.TDRIVE_ROWS))
    ts = rows.ts // 1_000_000 * 1_000_000 + np.arange(len(rows)) % 1_000_000
    columns = {"taxi": rows.taxi, "ts": pa.array(ts, pa.timestamp("us")), "lon": rows.lon, "lat": rows.lat}
    return pa.table(columns), rows.z, rows.origin


def by_taxi(options: Options) -> Given:
    rows, _, origin = taxis(options)
    return Given("taxi", rows, origin, "ts", "taxi", ("taxi, ts",), "(taxi, ts)")


def by_place(options: Options) -> Given:
    import tidewheel as tw

    rows, z, origin = taxis(options)
    key = tw.zorder("lon", "lat", bounds=data.BOUNDS)
    return Given(
        "spots", rows, origin, "ts", key, ("sorting >> 50, ts",), "(toInt32(floor(lon * 50)), toInt32(floor(lat * 50)), ts)", pa.array(z)
    )


# ---- weather ------------------------------------------------------------------------------------------------

ELEMENTS = ("PRCP", "TMAX", "TMIN", "TOBS", "SNOW", "SNWD", "DAPR", "MDPR", "WESD", "AWND", "WT01", "WT03")


def weather(options: Options) -> Given:
    """Daily observations in the order of their dates."""
    count = wanted(options, WEATHER_ROWS)
    path = None if options.data is None else Path(options.data) / "ghcnd_hcn" / "ghcnd_hcn.parquet"
    if path is not None and path.exists():
        rows, origin = _ghcn(path, count), f"GHCN-Daily, {count:,} of its rows (all, or those of some stations), by date"
    else:
        rows, origin = _made_weather(count), f"generated rows of GHCN's shape, {count:,} rows"
    few = frozenset({"station", "element", "qflag"})
    return Given(
        "weather", rows, origin, "date", "station", ("station, date", "element, date, station"), "(station, date, element)", few=few
    )


def _ghcn(path: Path, count: int) -> pa.Table:
    rows = pq.read_table(path, columns=["station", "date", "element", "value", "qflag"])
    rows = rows.slice(0, count)  # as stations lie one after the other
    rows = rows.take(pc.sort_indices(rows["date"].cast(pa.int32())))
    texts = {name: pc.fill_null(rows[name].cast(pa.string()), "") for name in ("station", "element", "qflag")}
    columns = {name: texts.get(name, rows[name]) for name in rows.schema.names}
    return pa.table(columns).combine_chunks()


def _made_weather(count: int, seed: int = 15) -> pa.Table:
    random = np.random.default_rng(seed)
    days = 3_192
    stations = max(1, min(1_096, count // 1000))
    share = np.array([18, 17, 17, 15, 12, 11, 3, 2, 2, 1, 1, 1], float)
    element = random.choice(len(ELEMENTS), count, p=share / share.sum())
    date = np.sort(random.integers(0, days, count)).astype(np.int32) + 14_610
    names = pa.array([f"USC{i * 7919 % 1_000_000:08d}" for i in range(stations)])
    flags = pa.array(["", "", "", "", "", "", "I", "D"]).take(pa.array(random.integers(0, 8, count)))
    value = (100 * np.sin((date % 365) / 58.1) + random.normal(100, 60, count)).astype(np.int32)
    return pa.table(
        {
            "station": names.take(pa.array(random.integers(0, stations, count))), "date": pa.array(date, pa.date32()),
            "element": pa.array(ELEMENTS).take(pa.array(element)), "value": value, "qflag": flags,
        }
    )  # fmt: skip


# ---- a log --------------------------------------------------------------------------------------------------


def log(options: Options) -> Given:
    """Messages of a server, by the address that they are about."""
    count = wanted(options, LOG_ROWS)
    path = None if options.data is None else Path(options.data) / "cowrie_ssh" / "cowrie_log.parquet"
    if path is not None and path.exists():
        rows, origin = _cowrie(path, count), f"Cowrie's log, first {count:,} rows"
    else:
        rows, origin = _made_log(count), f"generated rows of a log's shape, {count:,} rows"
    return Given("log", rows, origin, "ts", "src", ("src, ts", "message, ts"), "(src, ts)", few=frozenset({"src"}))


def _cowrie(path: Path, count: int) -> pa.Table:
    rows = pq.read_table(path, columns=["src_ip", "ts", "message"]).slice(0, count)
    message = pc.utf8_slice_codeunits(rows["message"], 0, 120)
    ts = rows["ts"].cast(pa.timestamp("us"))
    return pa.table({"src": pc.fill_null(rows["src_ip"].cast(pa.string()), "-"), "ts": ts, "message": message}).combine_chunks()


def _made_log(count: int, seed: int = 16) -> pa.Table:
    random = np.random.default_rng(seed)
    addresses = pa.array([f"{i % 223 + 1}.{i * 31 % 256}.{i * 7 % 256}.{i % 251}" for i in range(6_000)])
    starts = (
        "CMD: ",
        "Command found: ",
        "login attempt ",
        "connection lost ",
        "NEW KEYS ",
        "starting service ",
        "Received ",
        "got channel ",
    )
    messages = pa.array([f"{starts[i % 8]}{'x' * (i % 40)}{i}" for i in range(40_000)])
    ts = np.sort(random.integers(0, 20 * 86_400, count)) * 1_000_000 + 1_507_000_000_000_000
    return pa.table(
        {
            "src": addresses.take(pa.array(np.minimum(random.zipf(1.3, count), 6_000) - 1)), "ts": pa.array(ts, pa.timestamp("us")),
            "message": messages.take(pa.array(np.minimum(random.zipf(1.2, count), 40_000) - 1)),
        }
    )  # fmt: skip


# ---- groups of every number ---------------------------------------------------------------------------------

CARDINALITIES = {"c10": 10, "c1k": 1_000, "c100k": 100_000, "c1m": 1_000_000, "c10m": 10_000_000}


def many(options: Options) -> Given:
    count, random = wanted(options, MANY_ROWS), np.random.default_rng(17)
    columns = {
        "k": random.integers(0, FAMILIAR, count).astype(np.int32),
        "ts": pa.array(np.sort(random.integers(0, 86_400_000_000, count)) + 1_767_225_600_000_000, pa.timestamp("us")),
        **{name: random.integers(0, different, count).astype(np.int32) for name, different in CARDINALITIES.items()},
        "v": random.integers(0, 1_000, count).astype(np.int32),
    }
    return Given("many", pa.table(columns), f"generated rows, {count:,} rows", "ts", "k", ("k, ts",), "(k, ts)")
