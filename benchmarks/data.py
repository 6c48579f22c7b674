"""The rows every benchmark uses: taxi positions of Beijing, 36 bytes each as in the Waterwheel paper.

Real T-Drive rows when the data folder has them, otherwise generated ones of the same shape: ten thousand taxis that report at
different rates, most of them in a few busy places, a third of them parked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BOUNDS = (115.4, 39.4, 117.6, 41.1)
"""Longitude and latitude that the z-order covers; points outside are clamped, as real T-Drive has about 140 K of them."""
BITS = 31
ROW_BYTES = 36
RATE = 50_000
"""Rows a second of the re-stamped stream."""
BASE = 1_201_958_000_000_000
"""Microseconds since 1970 of the first row of a re-stamped stream: 2 February 2008."""
TDRIVE_ROWS = 16_232_239
SCHEMA = pa.schema(
    [
        pa.field("z", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us"), nullable=False),
        pa.field("taxi", pa.int32(), nullable=False),
        pa.field("lon", pa.float64(), nullable=False),
        pa.field("lat", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Rows:
    """Columns in time order, with the words that say where they come from."""

    z: np.ndarray
    ts: np.ndarray
    taxi: np.ndarray
    lon: np.ndarray
    lat: np.ndarray
    origin: str

    def __len__(self) -> int:
        return len(self.z)

    def head(self, rows: int) -> Rows:
        return Rows(self.z[:rows], self.ts[:rows], self.taxi[:rows], self.lon[:rows], self.lat[:rows], self.origin)

    def restamped(self, first: int = 0) -> Rows:
        """The same rows as a stream of exactly RATE rows a second; `first` is the number of rows that came before."""
        return Rows(self.z, stamps(first, len(self)), self.taxi, self.lon, self.lat, self.origin)

    def batch(self) -> pa.RecordBatch:
        """All rows as one Arrow batch that shares this memory."""
        ts = pa.Array.from_buffers(pa.timestamp("us"), len(self), [None, pa.py_buffer(self.ts)])
        return pa.RecordBatch.from_arrays(
            [pa.array(self.z), ts, pa.array(self.taxi), pa.array(self.lon), pa.array(self.lat)], schema=SCHEMA
        )


def stamps(first: int, rows: int) -> np.ndarray:
    """The times of rows `first` … `first + rows` of a stream at RATE rows a second, in microseconds."""
    return BASE + np.arange(first, first + rows, dtype=np.int64) * (1_000_000 // RATE)


def batches(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Slices of `rows` rows, without copying."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def load(folder: str | Path | None, rows: int = TDRIVE_ROWS) -> Rows:
    """The first `rows` rows in time order: T-Drive from FOLDER/tdrive when it is there and holds enough, else generated."""
    path = None if folder is None else Path(folder) / "tdrive" / "tdrive_e5.parquet"
    if path is not None and path.exists() and rows <= pq.read_metadata(path).num_rows:
        return _tdrive(path, rows)
    return generate(rows)


def _tdrive(path: Path, rows: int) -> Rows:
    table = pq.read_table(path)
    seconds = table["ts"].to_numpy()
    order = np.argsort((seconds - seconds.min()).astype(np.int32), kind="stable")[:rows]
    lon = table["lon_e5"].to_numpy()[order] / 1e5
    lat = table["lat_e5"].to_numpy()[order] / 1e5
    taxi = np.ascontiguousarray(table["taxi_id"].to_numpy()[order], dtype=np.int32)
    return Rows(zorder(lon, lat), seconds[order] * 1_000_000, taxi, lon, lat, f"T-Drive, first {rows:,} rows in time order")


def generate(rows: int, taxis: int = 10_000, seed: int = 2008) -> Rows:
    """Made-up rows of T-Drive's shape: uneven reporting rates, busy places, parked taxis, a little dirt; six days of time."""
    random = np.random.default_rng(seed)
    pace = random.lognormal(0.0, 0.8, taxis)
    taxi = random.choice(taxis, rows, p=pace / pace.sum()).astype(np.int32)
    centres = random.normal((116.40, 39.92), (0.08, 0.05), (12, 2))
    home = centres[random.integers(0, len(centres), taxis)] + random.normal(0.0, 0.02, (taxis, 2))
    roam = np.where(random.random(taxis) < 0.33, 0.0, random.lognormal(-3.5, 0.7, taxis))
    turns = random.uniform(2.0, 40.0, (taxis, 2))
    ts = np.sort(random.integers(0, 6 * 86_400, rows)) * 1_000_000 + BASE
    day = (ts - BASE) / 86_400e6
    lon = np.round(home[taxi, 0] + roam[taxi] * np.sin(day * turns[taxi, 0] + taxi), 5)
    lat = np.round(home[taxi, 1] + roam[taxi] * np.cos(day * turns[taxi, 1] + taxi), 5)
    dirt = random.random(rows) < 0.002
    lon[dirt] = 0.0
    return Rows(zorder(lon, lat), ts, taxi, lon, lat, f"generated rows of T-Drive's shape, {rows:,} rows, seed {seed}")


def zorder(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """The z-order of points within BOUNDS, 31 bits a dimension, longitude in the even bits; outside points count as on the border."""
    x = _spread(_cell(lon, BOUNDS[0], BOUNDS[2]))
    y = _spread(_cell(lat, BOUNDS[1], BOUNDS[3]))
    return (x | (y << np.uint64(1))).astype(np.int64)


def _cell(values: np.ndarray, low: float, high: float) -> np.ndarray:
    scaled = np.floor((values - low) * ((1 << BITS) / (high - low)))
    return np.clip(scaled, 0, (1 << BITS) - 1).astype(np.uint64)


def _spread(x: np.ndarray) -> np.ndarray:
    """Puts a zero bit between any two bits of 31-bit numbers."""
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        x = (x | (x << np.uint64(shift))) & np.uint64(mask)
    return x
