"""Who was in this part of the city, and when? A table keyed by the z-order of two coordinates answers boxes."""

import tempfile

import numpy as np
import pyarrow as pa

import tidewheel as tw

CITY = (115.4, 39.4, 117.6, 41.1)  # west, south, east, north: near points get near keys within these bounds
schema = pa.schema([("taxi", pa.int32()), ("ts", pa.timestamp("ms")), ("lon", pa.float64()), ("lat", pa.float64())])

rng = np.random.default_rng(1)
n = 200_000
lon, lat = rng.normal(116.4, 0.2, n), rng.normal(39.9, 0.15, n)
lon[:3], lat[:3] = (10.0, 120.0, 116.4), (50.0, 39.9, -5.0)  # three points far outside the bounds: kept and found like all others
ts = np.datetime64("2026-01-01T08:00:00", "ms") + np.arange(n) * 10
rows = pa.table([rng.integers(0, 1000, n).astype(np.int32), ts, lon, lat], schema=schema)

with tempfile.TemporaryDirectory() as folder, tw.open(folder) as wh:
    taxi = wh.create_table("taxi", schema, time="ts", key=tw.zorder("lon", "lat", bounds=CITY))
    taxi.insert(rows)
    taxi.flush()

    station = (116.42, 39.90, 116.43, 39.91)  # all lower ends, then all upper ends
    seen = taxi.query(box=station, time=("2026-01-01 08:10", "2026-01-01 08:20"))
    print(f"{len(seen)} reports near the station in ten minutes, from {len(set(seen.to_arrow()['taxi'].to_pylist()))} taxis")

    stats = seen.stats
    share = stats.leaves_read / (stats.leaves_read + stats.leaves_skipped)
    print(f"{stats.leaves_read} leaves were read, {stats.leaves_skipped} skipped: {share:.1%} of the table")

    everywhere = taxi.query(box=(-180, -90, 180, 90))
    west_of_the_bounds = taxi.query(box=(-180, -90, 115, 90))
    print(f"{len(everywhere)} reports anywhere on earth, {len(west_of_the_bounds)} of them west of the declared bounds:")
    print(west_of_the_bounds)
