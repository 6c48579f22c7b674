"""A simulated taxi fleet: the stream of the demo. Seeded, so the same fleet drives the same way every time.

It is like T-Drive, the recorded taxis of Beijing: they crowd the centre, many are parked and repeat one place exactly, and what they
send is as it comes. A few deliver positions that they stored while they were out of reach; now and then a message is broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Column: TypeAlias = np.ndarray[Any, Any]

BEIJING = (115.4, 39.4, 117.6, 41.1)
"""West, south, east, north, in degrees: where the fleet drives."""

CENTRE = (116.40, 39.91)

SCHEMA = pa.schema(
    [
        pa.field("taxi", pa.int32(), nullable=False),
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("lon", pa.float64(), nullable=False),
        pa.field("lat", pa.float64(), nullable=False),
        pa.field("speed", pa.float32(), nullable=False),
        pa.field("report", pa.int64(), nullable=False),
    ]
)
"""`report` numbers all reports of the fleet, so a row that is lost or there twice would be noticed."""

START = 1_201_910_400_000_000  # 2008-02-02 00:00 UTC, in microseconds
LATE = (120_000_000, 3_600_000_000)
"""The age of late reports at the start of the stream, in microseconds: at least, at most."""

_STANDS = 12  # taxi ranks; a parked taxi repeats one place exactly, which makes its key hot
_TO_PARK, _TO_LEAVE = 0.01, 0.03  # per report: about a quarter of the fleet is parked
_KMH_TO_LAT = 1 / 3.6 / 111_320  # degrees per second at 1 km/h
_KMH_TO_LON = 1 / 3.6 / 85_300  # the same along the 40th parallel


@dataclass(frozen=True, slots=True)
class FleetMessages:
    """Messages that arrive together: each should be one report, as a JSON object."""

    lines: list[str]
    late: int
    """Reports among them that are minutes old."""
    broken: int
    """Messages that cannot be a row."""

    def text(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()


class Fleet:
    """Taxis that report in turns, each about once in `period` seconds of the stream's time.

    Not thread-safe: one thread drives a fleet. Every batch has memory of its own, so batches may be kept and never change.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        taxis: int = 10_000,
        period: float = 5.0,
        start: int = START,
        late_share: float = 0.0,
        broken_share: float = 0.0,
    ) -> None:
        if taxis < 1 or period <= 0 or not 0 <= late_share < 0.5 or not 0 <= broken_share < 0.5:
            raise ValueError("a fleet needs at least one taxi, a period above 0, and shares of late and broken reports from 0 to below 0.5")
        self._rng = rng = np.random.default_rng(seed)
        self._taxis = taxis
        self._period = period
        self._late_share = late_share
        self._broken_share = broken_share
        self._reports = 0
        self.start = self.now = start  # the stream's time, in microseconds since 1970
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

    def batch(self, rows: int, until: int | None = None) -> pa.RecordBatch:
        """The next `rows` reports in the order of arrival: spread over the time since the last batch, but for the late ones.

        They end at `until`, by default so much later that every taxi reports once in a period.
        """
        columns = self._next(rows, until)
        columns["ts"] = columns["ts"].view("datetime64[us]")
        return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)

    def delivery(self, rows: int, until: int | None = None) -> FleetMessages:
        """The same as messages, some of them broken."""
        columns = self._next(rows, until)
        lines = _json(columns)
        broken = np.flatnonzero(self._rng.random(rows) < self._broken_share)
        for i, harm in zip(broken.tolist(), self._rng.integers(0, len(_HARMS), broken.size).tolist(), strict=True):
            lines[i] = _HARMS[harm](lines[i])
        sound = np.ones(rows, bool)
        sound[broken] = False
        return FleetMessages(lines, int((columns["ts"][sound] < self.start).sum()), broken.size)

    def pause(self, until: int) -> None:
        """Nobody reports until then."""
        self.now = max(self.now, until)

    def _next(self, rows: int, until: int | None) -> dict[str, Column]:
        if rows < 1:
            raise ValueError("a batch has at least one row")
        until = self.now + round(rows * self._period * 1e6 / self._taxis) if until is None else until
        if until < self.now:
            raise ValueError("a fleet never drives back in time")
        columns = self._drive(self._turns(rows))
        columns["ts"] = self.now + ((until - self.now) * np.arange(1, rows + 1) / rows).astype(np.int64)
        late = np.flatnonzero(self._rng.random(rows) < self._late_share)
        columns["ts"][late] = self.start - self._rng.integers(*LATE, late.size, endpoint=True)
        columns["report"] = np.arange(self._reports, self._reports + rows)
        self._reports += rows
        self.now = until
        return columns

    def _turns(self, rows: int) -> Column:
        """The taxis in the order of their reports. Within a round every taxi reports once, in a new order."""
        parts = []
        while rows > 0:
            if not self._order.size:
                self._order = self._rng.permutation(self._taxis)
            parts.append(self._order[:rows])
            self._order = self._order[rows:]
            rows -= parts[-1].size
        return np.concatenate(parts)

    def _drive(self, who: Column) -> dict[str, Column]:
        """Let these taxis drive on for a period and report. One that is named twice reports the same place twice."""
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
        return {
            "taxi": who.astype(np.int32),
            "lon": lon.round(5),  # a metre, which is what their receivers know
            "lat": lat.round(5),
            "speed": speed.round(1).astype(np.float32),
        }


def _json(columns: dict[str, Column]) -> list[str]:
    times = np.datetime_as_string(columns["ts"].view("datetime64[us]")).tolist()
    places = zip(columns["lon"].tolist(), columns["lat"].tolist(), columns["speed"].astype(np.float64).round(1).tolist(), strict=True)
    return [
        f'{{"taxi":{taxi},"ts":"{ts}Z","lon":{lon},"lat":{lat},"speed":{speed},"report":{report}}}'
        for taxi, ts, (lon, lat, speed), report in zip(columns["taxi"].tolist(), times, places, columns["report"].tolist(), strict=True)
    ]


def _cut(line: str) -> str:
    return line[: len(line) * 2 // 3]


def _word(line: str) -> str:
    return _put(line, "speed", '"fast"')


def _nowhere(line: str) -> str:
    return _put(line, "lon", "null")


def _never(line: str) -> str:
    return _put(line, "ts", '"25:61 o\'clock"')


def _put(line: str, name: str, value: str) -> str:
    before, mark, rest = line.partition(f'"{name}":')
    return f"{before}{mark}{value},{rest.partition(',')[2]}"


_HARMS = (_cut, _word, _nowhere, _never)
"""Faults on the air and in meters: a message ends early, a number is a word, there is no position, the clock is off."""
