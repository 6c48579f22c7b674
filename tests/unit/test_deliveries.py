"""What a tree's rows came as is found by name, in the order it came, and once."""

from __future__ import annotations

from tidewheel.index.deliveries import Deliveries
from tidewheel.model.records import PackageRecord, StreamBatchRecord


def test_packages_and_batches_are_found_by_name() -> None:
    given = [PackageRecord("p", 1, 3), StreamBatchRecord("s", 7, 2, 3), StreamBatchRecord("s", 5, 3, 3), PackageRecord("q", 3, 3)]
    held = Deliveries()
    held.add(given[:2])
    held.add(given)  # begun again
    assert list(held) == given
    assert held.holds("p") and held.holds("q") and not held.holds("s")
    assert held.last_batch("s") == 7 and held.last_batch("p") is None
