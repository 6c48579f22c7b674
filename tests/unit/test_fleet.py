"""The simulated fleet: same seed, same stream; inside the city; some taxis parked, some reports late."""

from __future__ import annotations

import numpy as np
import pytest

from tidewheel.surfaces.fleet import BEIJING, SCHEMA, START, Fleet


def test_same_seed_same_stream() -> None:
    one, two, other = Fleet(7, taxis=300), Fleet(7, taxis=300), Fleet(8, taxis=300)
    for rows in (1, 299, 1000):
        batch = one.batch(rows)
        assert batch.equals(two.batch(rows))
        assert not batch.equals(other.batch(rows))


@pytest.mark.parametrize("rows", [1, 7, 100, 2500])
def test_batches_have_the_asked_size_and_the_schema(rows: int) -> None:
    fleet = Fleet(1, taxis=100, late_share=0.2)
    for _ in range(20):
        batch = fleet.batch(rows)
        assert batch.num_rows == rows
        assert batch.schema == SCHEMA
        batch.validate(full=True)
        assert all(column.null_count == 0 for column in batch.columns)


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


def test_some_taxis_are_parked_and_repeat_their_place() -> None:
    fleet = Fleet(1, taxis=1000)
    batch = fleet.batch(1000)
    parked = batch["speed"].to_numpy() == 0
    assert 0.1 < parked.mean() < 0.5
    places = np.stack([batch["lon"].to_numpy()[parked], batch["lat"].to_numpy()[parked]])
    _, times = np.unique(places, axis=1, return_counts=True)
    assert times.max() > 5


def test_without_late_rows_time_never_goes_back() -> None:
    fleet = Fleet(1, taxis=100, late_share=0)
    ts = np.concatenate([fleet.batch(rows)["ts"].cast("int64").to_numpy() for rows in (1, 10, 1000, 33)])
    assert ts[0] > START
    assert (np.diff(ts) >= 0).all()
    assert ts[-1] == fleet.now


def test_late_rows_come_minutes_later_and_only_once() -> None:
    fleet = Fleet(1, taxis=1000, late_share=0.05)
    seen, late = [], 0
    newest = START
    for _ in range(300):
        batch = fleet.batch(1000)
        ts = batch["ts"].cast("int64").to_numpy()
        late += int((ts < newest - 30_000_000).sum())
        newest = fleet.now
        assert ts.max() <= newest
        seen.append(ts)
    every = np.concatenate(seen)
    assert late > 0.02 * every.size
    assert np.unique(every).size == every.size  # with these numbers no two reports share a microsecond


def test_batches_do_not_share_memory() -> None:
    fleet = Fleet(1, taxis=50)
    first = fleet.batch(50)
    copy = first.to_pydict()
    for _ in range(5):
        fleet.batch(50)
    assert first.to_pydict() == copy


@pytest.mark.parametrize("wrong", [{"taxis": 0}, {"period": 0}, {"late_share": 0.5}, {"late_share": -0.1}])
def test_impossible_fleets_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Fleet(1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Fleet(1).batch(0)
