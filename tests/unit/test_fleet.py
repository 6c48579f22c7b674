"""The simulated fleet: same seed, same stream; inside the city; some taxis parked, some reports late, some messages broken."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tidewheel.programs.fleet import BEIJING, LATE, SCHEMA, START, Fleet


def test_same_seed_same_stream() -> None:
    one, two, other = Fleet(7, taxis=300), Fleet(7, taxis=300), Fleet(8, taxis=300)
    for rows in (1, 299, 1000):
        batch = one.batch(rows)
        assert batch.equals(two.batch(rows))
        assert not batch.equals(other.batch(rows))


@pytest.mark.parametrize("rows", [1, 7, 100, 2500])
def test_batches_have_the_asked_size_and_the_schema(rows: int) -> None:
    fleet = Fleet(1, taxis=100, late_share=0.2)
    reports = []
    for _ in range(20):
        batch = fleet.batch(rows)
        assert batch.num_rows == rows
        assert batch.schema == SCHEMA
        batch.validate(full=True)
        assert all(column.null_count == 0 for column in batch.columns)
        reports += batch["report"].to_pylist()
    assert reports == list(range(20 * rows))


def test_taxis_stay_in_bounds() -> None:
    fleet = Fleet(1, taxis=200, period=600.0)
    west, south, east, north = BEIJING
    for _ in range(20):
        batch = fleet.batch(1000)
        lon, lat = batch["lon"].to_numpy(), batch["lat"].to_numpy()
        assert west <= lon.min() and lon.max() <= east
        assert south <= lat.min() and lat.max() <= north
        taxi = batch["taxi"].to_numpy()
        assert taxi.min() >= 0 and taxi.max() < 200


def test_every_taxi_reports_once_in_a_period() -> None:
    fleet = Fleet(1, taxis=500, period=2.0)
    for n in range(1, 4):
        assert sorted(fleet.batch(500)["taxi"].to_pylist()) == list(range(500))
        assert fleet.now == START + n * 2_000_000


def test_some_taxis_are_parked_and_repeat_their_place() -> None:
    fleet = Fleet(1, taxis=1000)
    batch = fleet.batch(1000)
    parked = batch["speed"].to_numpy() == 0
    assert 0.1 < parked.mean() < 0.5
    places = np.stack([batch["lon"].to_numpy()[parked], batch["lat"].to_numpy()[parked]])
    _, times = np.unique(places, axis=1, return_counts=True)
    assert times.max() > 5


def test_without_late_rows_time_never_goes_back() -> None:
    fleet = Fleet(1, taxis=100, start=5_000_000)
    ts = np.concatenate([fleet.batch(rows)["ts"].cast("int64").to_numpy() for rows in (1, 10, 1000, 33)])
    assert ts[0] > 5_000_000
    assert (np.diff(ts) >= 0).all()
    assert ts[-1] == fleet.now


def test_a_batch_ends_when_it_is_told_to() -> None:
    fleet = Fleet(1, start=0)
    assert fleet.batch(4, until=1000)["ts"].cast("int64").to_pylist() == [250, 500, 750, 1000]
    assert fleet.batch(2, until=1000)["ts"].cast("int64").to_pylist() == [1000, 1000]
    assert fleet.now == 1000
    with pytest.raises(ValueError, match="back in time"):
        fleet.batch(1, until=999)


def test_late_reports_are_older_than_the_stream() -> None:
    fleet = Fleet(1, taxis=1000, late_share=0.05)
    ts = np.concatenate([fleet.batch(1000)["ts"].cast("int64").to_numpy() for _ in range(100)])
    late = ts < START
    assert 0.04 < late.mean() < 0.06
    assert START - LATE[1] <= ts.min() and ts[late].max() <= START - LATE[0]
    assert (np.diff(ts[~late]) >= 0).all()


def test_messages_are_the_same_reports() -> None:
    messages, rows = Fleet(3, taxis=50), Fleet(3, taxis=50)
    expected = rows.batch(200).to_pylist()
    found = [json.loads(line) for line in messages.delivery(200).lines]
    for one, other in zip(found, expected, strict=True):
        other["ts"] = other["ts"].isoformat(timespec="microseconds").replace("+00:00", "Z")
        other["speed"] = round(other["speed"], 1)
        assert one == other


def test_some_messages_are_broken_in_different_ways_and_counted() -> None:
    fleet = Fleet(1, taxis=1000, late_share=0.02, broken_share=0.02)
    ways, broken, late = set(), 0, 0
    told_broken = told_late = 0
    for _ in range(20):
        delivery = fleet.delivery(1000)
        assert delivery.text().count(b"\n") == len(delivery.lines) == 1000
        told_broken += delivery.broken
        told_late += delivery.late
        for line in delivery.lines:
            way = _broken(line)
            broken += bool(way)
            ways.add(way)
            late += not way and json.loads(line)["ts"] < "2008-02-02"
    assert ways == {"", "cut", "speed", "lon", "ts"}
    assert (told_broken, told_late) == (broken, late)
    assert 0.01 < broken / 20_000 < 0.03


def _broken(line: str) -> str:
    try:
        row = json.loads(line)
    except ValueError:
        return "cut"
    assert list(row) == SCHEMA.names
    if not isinstance(row["speed"], float):
        return "speed"
    if row["lon"] is None:
        return "lon"
    return "" if row["ts"].endswith("Z") else "ts"


def test_batches_do_not_share_memory() -> None:
    fleet = Fleet(1, taxis=50)
    first = fleet.batch(50)
    copy = first.to_pydict()
    for _ in range(5):
        fleet.batch(50)
    assert first.to_pydict() == copy


@pytest.mark.parametrize("wrong", [{"taxis": 0}, {"period": 0}, {"late_share": 0.5}, {"late_share": -0.1}, {"broken_share": 1}])
def test_impossible_fleets_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Fleet(1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Fleet(1).batch(0)
