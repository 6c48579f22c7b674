"""Files that a newcomer brings: some thousand rows of public data sets where these are at hand, else generated ones of the same columns.

Taxis (T-Drive), bicycle trips (Citi Bike), events of a web page (nested JSON), attempts to log in (a honeypot) and weather (GHCN-Daily).
"""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

DATA = Path(os.environ.get("TRIAL_DATA", Path(__file__).parents[3] / "shared" / "data"))


def write_all(folder: Path) -> None:
    """rides.parquet, bikes.csv, stations.csv, events.jsonl.gz, logins.parquet, weather.parquet."""
    pq.write_table(rides(), folder / "rides.parquet")
    pcsv.write_csv(bikes(), folder / "bikes.csv")
    _stations(folder / "stations.csv")
    with gzip.open(folder / "events.jsonl.gz", "wt") as out:
        out.writelines(json.dumps(event) + "\n" for event in events())
    pq.write_table(logins(), folder / "logins.parquet")
    pq.write_table(weather(), folder / "weather.parquet")


def rides() -> pa.Table:
    """plate, ts, lon, lat"""
    if (found := _first("tdrive/tdrive_e5.parquet", 20_000)) is not None:
        plates, seconds = found["taxi_id"].cast(pa.int64()), found["ts"]
        lon, lat = (pc.divide(found[f"{name}_e5"].cast(pa.float64()), 1e5) for name in ("lon", "lat"))
    else:
        rng = np.random.default_rng(14)
        plates, seconds = pa.array(np.sort(rng.integers(1, 30, 20_000))), pa.array(rng.integers(1_201_966_568, 1_202_400_000, 20_000))
        lon, lat = pa.array(rng.normal(116.4, 0.1, 20_000)), pa.array(rng.normal(39.9, 0.1, 20_000))
    ts = pc.multiply(seconds, 1_000_000).cast(pa.timestamp("us", "UTC"))
    return pa.table({"plate": plates, "ts": ts, "lon": lon, "lat": lat})


def bikes() -> pa.Table:
    """start_ts, duration, start_station, end_station, subscriber, birth_year, and where it began and ended"""
    if (found := _first("nyc_citibike/citibike_nyc_2017_11days.parquet", 10_000)) is not None:
        return found
    rng, n = np.random.default_rng(15), 10_000
    columns: dict[str, Any] = {
        "start_ts": pa.array(np.sort(rng.integers(0, 86_400, n)) * 1_000_000 + 1_491_004_800_000_000, pa.timestamp("us"))
    }
    columns |= {"duration": rng.integers(60, 5_000, n), "start_station": rng.choice([72, 79], n), "end_station": rng.choice([72, 79], n)}
    columns |= {"subscriber": rng.integers(0, 2, n), "birth_year": rng.integers(1940, 2001, n)}
    for name, around in (("start_lat", 40.7), ("start_lon", -73.9), ("end_lat", 40.7), ("end_lon", -73.9)):
        columns[name] = pa.array(rng.normal(around, 0.02, n), mask=rng.random(n) < 0.01)
    return pa.table(columns)


def _stations(path: Path) -> None:
    """station_id, latitude, longitude, name"""
    if (real := DATA / "nyc_citibike" / "stations.csv").exists():
        shutil.copy(real, path)
    else:
        path.write_text('station_id,latitude,longitude,name\n72,40.767,-73.993,"W 52 St & 11 Ave"\n79,40.719,-74.006,Franklin St\n')


def events() -> list[dict[str, Any]]:
    """What visitors of a page did: timestamp, session, event {type, …}, agent {browser, …}, client_ip, geo_ip {country, …}, language […]"""
    keep = ("timestamp", "session", "event", "agent", "client_ip", "geo_ip", "language", "session_length")
    if (real := DATA / "kttm" / "kttm-2019-08-25-sample.json.gz").exists():
        with gzip.open(real, "rt") as lines:
            found = [json.loads(line) for line in itertools.islice(lines, 2_000)]
        return [{name: event[name] for name in keep} for event in found]
    start = dt.datetime(2019, 8, 25)
    return [
        {
            "timestamp": (start + dt.timedelta(seconds=n)).isoformat(timespec="milliseconds") + "Z", "session": f"S{n % 200}",
            "event": {"type": "PercentClear", "percentage": n % 100}, "agent": {"browser": ("Chrome", "Firefox")[n % 2], "os": "Linux"},
            "client_ip": f"181.13.{n % 50}.{n % 200}", "geo_ip": {"country": ("Argentina", "Peru")[n % 2], "city": None},
            "language": ["es", "en"], "session_length": n * 10,
        }
        for n in range(2_000)
    ]  # fmt: skip


def logins() -> pa.Table:
    """ts, src_ip, message"""
    if (found := _first("cowrie_ssh/cowrie_log.parquet", 20_000)) is not None:
        return found.select(["ts", "src_ip", "message"]).filter(pc.is_valid(found["src_ip"]))
    rng, n = np.random.default_rng(16), 10_000
    ts = pa.array(np.sort(rng.integers(0, 86_400_000, n)) + 1_497_571_200_000, pa.timestamp("ms"))
    addresses = [
        f"{a}.{b}.0.{c}" for a, b, c in zip(rng.choice([5, 59, 218], n), rng.integers(0, 9, n), rng.integers(0, 99, n), strict=True)
    ]
    return pa.table({"ts": ts, "src_ip": addresses, "message": rng.choice(["login attempt", "Connection lost", "Remote SSH version"], n)})


def weather() -> pa.Table:
    """station, date, element, value"""
    if (found := _first("ghcnd_hcn/ghcnd_hcn.parquet", 20_000)) is not None:
        return found.select(["station", "date", "element", "value"])
    rng, n = np.random.default_rng(17), 20_000
    stations = pa.array(np.sort(rng.choice(["USC00011084", "USC00012813"], n))).dictionary_encode()
    elements = pa.array(rng.choice(["PRCP", "TMAX", "TMIN"], n)).dictionary_encode()
    dates = pa.array(rng.integers(14_610, 17_800, n).astype(np.int32), pa.date32())
    return pa.table({"station": stations, "date": dates, "element": elements, "value": rng.integers(-200, 400, n).astype(np.int32)})


def _first(name: str, n: int) -> pa.Table | None:
    return pq.ParquetFile(DATA / name).read_row_group(0).slice(0, n) if (DATA / name).exists() else None
