"""Labels of partitions: what a commit changes, in memory and in the catalog, and that chunks say it exactly."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidewheel as tw
from tidewheel.index.hidden import Hidden
from tidewheel.model.derived import Label
from tidewheel.model.partition_labels import Labels
from tidewheel.model.partitions import Widths
from tidewheel.model.records import MaskRecord
from tidewheel.testing.probe import Probe, owner_of
from tidewheel.write.touched import labels_of, undone_by

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64())])
HOUR = 3600_000_000


def chunk(lo: int, hi: int, partitions: dict[int, int], latest: tuple[int, ...] = ()) -> Any:
    return SimpleNamespace(generation_lo=lo, generation_hi=hi, partitions=tuple(partitions.items()), latest=latest)


def test_a_partition_has_the_last_generation_of_its_own_rows() -> None:
    records = [chunk(3, 7, {0: 5, 10: 5}, (4, 7)), chunk(5, 5, {10: 1, 20: 1})]
    assert labels_of(records, Hidden(), Widths(10)) == (Label(0, 4), Label(10, 7), Label(20, 5))


def test_rows_that_were_replaced_before_they_were_flushed_were_taken_by_that() -> None:
    """Whoever read them in between, at generation 4 say, has to hear of it: the label is that of the replacement, 9."""
    hidden = Hidden([MaskRecord(12, 14, 8, "replace")])
    assert labels_of([chunk(3, 4, {0: 5, 10: 5})], hidden, Widths(10)) == (Label(0, 4), Label(10, 9, 9))
    assert labels_of([chunk(9, 9, {0: 5, 10: 5})], hidden, Widths(10)) == (Label(0, 9), Label(10, 9))  # came after it


def test_masks_undo_the_partitions_that_they_touch() -> None:
    assert undone_by([MaskRecord(12, 25, 8, "replace")], Widths(10)) == ((10, 25),)


labels = st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 20)), max_size=6)
undone = st.lists(st.tuples(st.integers(-6, 6), st.integers(0, 4)), max_size=2)


@given(st.lists(st.tuples(labels, undone), max_size=6))
def test_labels_only_rise(commits: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]) -> None:
    known, expected = Labels.of([]), {}
    for generation, (new, taken) in enumerate(commits, 30):
        before = set(expected)
        given = {start: Label(start, changed) for start, changed in new}
        spans = [(lo, lo + wide) for lo, wide in taken]
        known = known.raised(list(given.values()), spans, generation, float(generation))
        for start, one in given.items():
            old = expected.get(start, (0, 0))
            expected[start] = max(old[0], one.changed), old[1]
        for lo, hi in spans:
            expected |= {start: (generation, generation) for start in before if lo <= start <= hi}
    found = zip(known.starts.tolist(), known.changed.tolist(), known.undone.tolist(), strict=True)
    assert {start: (changed, gone) for start, changed, gone in found} == expected
    assert (np.diff(known.starts) > 0).all()


@pytest.mark.parametrize("partition", ["1 hour", "1 month"])
def test_the_catalog_and_memory_say_the_same(tmp_path: Path, partition: str) -> None:
    """Against the rows themselves: the greatest generation of each partition."""
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k", partition=partition)
        probe = Probe(table)
        assert len(probe.local.labels()) == 0
        expected: dict[dt.datetime, int] = {}
        for n in range(1, 9):
            times = [dt.datetime(2026, 1 + n * m % 3, 1 + m, m % 24) for m in range(0, 20, n)]
            ack = table.insert(pa.table([times, range(len(times))], schema=SCHEMA))
            for at in times:
                start = at.replace(minute=0) if partition == "1 hour" else at.replace(day=1, hour=0)
                expected[start] = max(expected.get(start, 0), ack.generation)
            if n % 3 == 0:
                table.flush()
        table.flush()
        in_memory = probe.local.labels()
        stored = owner_of(wh).catalog.labels(probe.record.id)
        epoch = dt.datetime(1970, 1, 1)
        assert {epoch + dt.timedelta(microseconds=one.partition): one.changed for one, _ in stored} == expected
        assert [(one.partition, one.changed) for one, _ in stored] == list(
            zip(in_memory.starts.tolist(), in_memory.changed.tolist(), strict=True)
        )
        ack = table.replace(SCHEMA.empty_table(), time=(dt.datetime(2026, 1, 2), dt.datetime(2026, 1, 20)))
        taken = [one for one, _ in owner_of(wh).catalog.labels(probe.record.id) if one.undone]
        assert taken and all(one.changed == one.undone == ack.generation for one in taken)
        assert [one.partition for one in taken] == probe.local.labels().starts[probe.local.labels().undone > 0].tolist()


def test_when_the_first_change_after_a_generation_came() -> None:
    """Of those that were read nothing is known, of the last ones all, and of older ones never that they came later than they did."""
    known = Labels.of([(Label(0, 7), 1.0)])
    assert known.last == 7 and known.first_after(3) is None and known.first_after(7) is None
    for generation in range(8, 3000):
        known = known.raised([Label(0, generation)], (), generation, 10.0 * generation, 10.0 * generation - 1)
    assert known.last == 2999 and known.first_after(2999) is None and known.first_after(6) is None
    found = [known.first_after(generation) for generation in range(7, 2999)]
    assert all(at is not None and at < 10 * generation for generation, at in enumerate(found, 8))
    assert found[-100:] == [10.0 * generation - 1 for generation in range(2900, 3000)]
    assert found[0] == 79.0 and found == sorted(found, key=lambda at: at or 0)
    late = known.raised([Label(1, 500)], (), 3001, 1.0)  # committed after later ones
    assert late.last == 2999 and late.first_after(2999) is None


def test_changes_that_are_committed_after_later_ones_are_as_old_as_they_are() -> None:
    """Trees of several servers, or one that was in memory while a load was committed."""
    known = Labels.of([(Label(0, 7), 1.0)])
    for last, came in [(10, 15.0), (20, 30.0), (30, 40.0), (9, 5.0)]:
        known = known.raised([Label(0, last)], (), 31, 50.0, came)
    assert [known.first_after(n) for n in (6, 7, 8, 10, 20, 30)] == [None, 5.0, 5.0, 30.0, 40.0, None]
    known = known.raised([Label(1, 31)], (), 32, 60.0, 35.0)
    assert [known.first_after(n) for n in (8, 10, 20, 30)] == [5.0, 30.0, 35.0, 35.0]
    known = known.raised([], [(0, 0)], 33, 20.0)  # as a clock that was set back says
    assert [known.first_after(n) for n in (8, 10, 20, 30, 31, 32)] == [5.0, 20.0, 20.0, 20.0, 20.0, 20.0] and known.last == 33
