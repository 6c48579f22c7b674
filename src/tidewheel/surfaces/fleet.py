"""A simulated taxi fleet: the stream that the demo inserts. Seeded, so the same fleet drives the same way every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

BEIJING = (115.4, 39.4, 117.6, 41.1)
"""West, south, east, north, in degrees: where the fleet drives."""

CENTRE = (116.40, 39.91)

SCHEMA = pa.schema(
    [
        pa.field("taxi", pa.int32(), nullable=False),
        pa.field("ts", pa.timestamp("us"), nullable=False),
        pa.field("lon", pa.float64(), nullable=False),
        pa.field("lat", pa.float64(), nullable=False),
        pa.field("speed", pa.float32(), nullable=False),
    ]
)

START = 1_201_910_400_000_000  # 2008-02-02 00:00 UTC, in microseconds
_STANDS = 12  # taxi ranks; a parked taxi repeats one place exactly, which makes its key hot
_TO_PARK, _TO_LEAVE = 0.01, 0.03  # per report: about a quarter of the fleet is parked
_KMH_TO_LAT = 1 / 3.6 / 111_320  # degrees per second at 1 km/h
_KMH_TO_LON = 1 / 3.6 / 85_300  # the same along the 40th parallel


class Fleet:
    """Taxis that report in turns, each about once in `period` seconds of the stream's own time.

    Not thread-safe: one thread drives a fleet. Every batch has memory of its own, so batches may be kept and never change.
    """

    def __init__(self, seed: int = 1, *, taxis: int = 10_000, period: float = 5.0, late_share: float = 0.005) -> None:
        if taxis < 1 or period <= 0 or not 0 <= late_share < 0.5:
            raise ValueError("a fleet needs at least one taxi, a period above 0 and a late share from 0 to below 0.5")
        self._rng = rng = np.random.default_rng(seed)
        self._taxis = taxis
        self._period = period
        self._late_share = late_share
        self._reports = 0  # made so far, delivered or held back
        self._order = np.empty(0, np.int64)  # who has still to report in this round
        west, south, east, north = BEIJING
        stands = rng.normal(CENTRE, (0.10, 0.08), (_STANDS, 2))
        self._lon = np.clip(rng.normal(CENTRE[0], 0.15, taxis), west, east)
        self._lat = np.clip(rng.normal(CENTRE[1], 0.12, taxis), south, north)
        self._heading = rng.uniform(0, 2 * np.pi, taxis)
        self._cruise = rng.uniform(15, 70, taxis)  # km/h
        self._parked = rng.random(taxis) < _TO_PARK / (_TO_PARK + _TO_LEAVE)
        at_stand = np.flatnonzero(self._parked)
        which = rng.integers(0, _STANDS, at_stand.size)
        self._lon[at_stand] = stands[which, 0]
        self._lat[at_stand] = stands[which, 1]
        self._held = _nothing()  # reports that a dead spot keeps back, with the time at which they get through

    @property
    def now(self) -> int:
        """The stream's own time: microseconds since 1970 of the newest report made."""
        return START + int(self._reports * self._period * 1e6 / self._taxis)

    def batch(self, rows: int) -> pa.RecordBatch:
        """The next `rows` reports in the order of arrival: by time, but for the late ones, which are minutes older."""
        if rows < 1:
            raise ValueError("a batch has at least one row")
        due = np.flatnonzero(self._held["release"] <= self.now)[:rows]
        late = {name: column[due] for name, column in self._held.items()}
        hold = int(self._rng.binomial(rows, self._late_share))
        made = self._report(rows - due.size + hold)
        keep = np.ones(made["taxi"].size, bool)
        if hold:
            keep[self._rng.choice(keep.size, hold, replace=False)] = False
        held = {name: column[~keep] for name, column in made.items()}
        held["release"] = held["ts"] + self._rng.uniform(30e6, 600e6, hold).astype(np.int64)
        self._held = {name: np.concatenate([np.delete(column, due), held[name]]) for name, column in self._held.items()}
        columns = {name: np.concatenate([late[name], column[keep]]) for name, column in made.items()}
        columns["ts"] = columns["ts"].view("datetime64[us]")
        return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)

    def _report(self, rows: int) -> dict[str, np.ndarray[Any, Any]]:
        """Let the next `rows` taxis drive on and report. Within a round every taxi reports once, in a new order."""
        parts = []
        while rows > 0:
            if not self._order.size:
                self._order = self._rng.permutation(self._taxis)
            who, self._order = self._order[:rows], self._order[rows:]
            rows -= who.size
            parts.append(self._drive(who))
        if not parts:
            return {name: column for name, column in _nothing().items() if name != "release"}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _drive(self, who: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        rng, n = self._rng, who.size
        chance = rng.random(n, np.float32)
        parked = self._parked[who]
        parked = np.where(parked, chance >= _TO_LEAVE, chance < _TO_PARK)
        heading = self._heading[who] + rng.standard_normal(n, np.float32) * 0.35
        speed = np.where(parked, 0.0, self._cruise[who] * (0.5 + rng.random(n, np.float32)))
        west, south, east, north = BEIJING
        to_lon = self._lon[who] + np.cos(heading) * speed * (_KMH_TO_LON * self._period)
        to_lat = self._lat[who] + np.sin(heading) * speed * (_KMH_TO_LAT * self._period)
        lon, lat = np.clip(to_lon, west, east), np.clip(to_lat, south, north)
        heading += np.pi * ((lon != to_lon) | (lat != to_lat))  # turn round at the border
        self._parked[who], self._heading[who], self._lon[who], self._lat[who] = parked, heading, lon, lat
        step = self._period * 1e6 / self._taxis
        ts = START + (np.arange(self._reports + 1, self._reports + n + 1) * step).astype(np.int64)
        self._reports += n
        return {"taxi": who.astype(np.int32), "ts": ts, "lon": lon, "lat": lat, "speed": speed.astype(np.float32)}


def _nothing() -> dict[str, np.ndarray[Any, Any]]:
    types = {"taxi": np.int32, "ts": np.int64, "lon": np.float64, "lat": np.float64, "speed": np.float32, "release": np.int64}
    return {name: np.empty(0, type_) for name, type_ in types.items()}
