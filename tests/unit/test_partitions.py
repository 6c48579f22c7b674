"""Partitions of hours, days, months and years: where they begin, how rows are counted in them, and that all parts of the house agree."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.errors import SchemaError
from tidewheel.model.partitions import Months, Widths, interval, partitions_of, rows_by_start
from tidewheel.model.times import INT64_MAX, INT64_MIN, TimeAxis

EPOCH = dt.date(1970, 1, 1)


def month(day: dt.date, months: int) -> dt.date:
    """The first day of the partition that a day lies in, the slow way."""
    number = ((day.year - 1970) * 12 + day.month - 1) // months * months
    return dt.date(1970 + number // 12, number % 12 + 1, 1)


@pytest.mark.parametrize(("text", "months"), [("1 month", 1), ("3 months", 3), ("1 quarter", 3), ("1 year", 12), ("10 years", 120)])
def test_months_are_those_of_the_calendar(text: str, months: int) -> None:
    rng = random.Random(7)
    days = [dt.date.fromordinal(rng.randint(1, dt.date(9999, 12, 31).toordinal())) for _ in range(3000)]
    days += [dt.date(y, m, d) for y in (1, 1600, 1900, 1969, 1970, 2000, 2024, 9999) for m, d in ((1, 1), (2, 28), (3, 1), (12, 31))]
    days = [day for day in days if day.year > 20]
    divided = partitions_of(text, TimeAxis("ts", "day"))
    assert divided == Months(months, 86_400 * 10**9)
    codes = np.array([(day - EPOCH).days for day in days])
    numbers = divided.numbers(codes)
    for day, code, number in zip(days, codes.tolist(), numbers.tolist(), strict=True):
        assert divided.number(code) == number
        assert divided.start(number) == (month(day, months) - EPOCH).days
    for unit, second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        fine = partitions_of(text, TimeAxis("ts", unit))
        some = [day for day in days if 1700 < day.year < 2250][:50]
        for day in some:
            last = (day - EPOCH).days * 86_400 * second + 86_400 * second - 1
            assert fine.start(fine.number(last)) == (month(day, months) - EPOCH).days * 86_400 * second


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "day"])
def test_the_ends_of_all_time(unit: str) -> None:
    times = np.array([INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX])
    for text in ("1 month", "1 year", "7 days"):
        divided = partitions_of(text, TimeAxis("ts", unit))
        if unit == "day" and isinstance(divided, Months):
            times = np.array([-(2**31), -1, 0, 1, 2**31 - 1])  # a date32 has no others
        for time, number in zip(times.tolist(), divided.numbers(times).tolist(), strict=True):
            assert divided.number(time) == number
            assert divided.start(number) <= time < divided.start(number + 1)
        assert sum(rows_by_start(divided, times).values()) == len(times)


def test_what_a_partition_may_be() -> None:
    axis = TimeAxis("ts", "day")
    assert partitions_of("2 weeks", axis) == Widths(14) and interval(Widths(14), 28) == (28, 42)
    with pytest.raises(ValueError, match="shorter than one unit of 'ts', which counts days"):
        partitions_of("1 hour", axis)
    for wrong in ("a month", "0 months", "month", "", 5):
        with pytest.raises(ValueError, match="'1 month' or '1 year'"):
            partitions_of(wrong, axis)  # type: ignore[arg-type]


@pytest.mark.parametrize("type_", [pa.date32(), pa.date64(), pa.timestamp("ns", "UTC")], ids=str)
@pytest.mark.parametrize("partition", [None, "1 month", "1 year"])
def test_a_table_of_such_partitions(tmp_path: Path, type_: pa.DataType, partition: str | None) -> None:
    root = tmp_path / "wh"
    days = [dt.date(2023, 12, 30) + dt.timedelta(days=i) for i in range(800)]
    rows = pa.table({"k": pa.array(range(800)), "day": pa.array(days).cast(type_)})
    hours = partition is None and not pa.types.is_date(type_)
    with tw.open(root) as wh:
        table = wh.create_table("t", rows.schema, time="day", key="k", partition=partition)
        table.insert(rows)
        table.flush()
        found = wh.sql("SELECT * FROM system.partitions ORDER BY 2").to_arrow().to_pylist()
        _, lo, hi, rows_in, _ = found[0]
        spans = [(row[lo].date(), row[hi].date(), row[rows_in]) for row in found]
        if partition is None:
            assert [(start, n) for start, _, n in spans] == [(day, 1) for day in days]
            assert [end for _, end, _ in spans] == [day if hours else day + dt.timedelta(days=1) for day in days]
        else:
            starts = [month(day, 12 if "year" in partition else 1) for day in days]
            assert [(start, n) for start, _, n in spans] == sorted((s, starts.count(s)) for s in set(starts))
            assert [end for _, end, _ in spans[:-1]] == [start for start, _, _ in spans[1:]]
        assert wh.check().ok
        wh.backup(tmp_path / "backup")
    tw.restore(tmp_path / "backup", tmp_path / "again")
    with tw.open(tmp_path / "again") as wh:
        assert wh.table("t").rows == 800 and wh.check().ok
        assert len(wh.table("t").query(time=(dt.date(2024, 2, 1), dt.date(2024, 2, 29)))) == 29
        with pytest.raises(SchemaError, match="partition of table 'u'"):
            wh.create_table("u", rows.schema, time="day", key="k", partition="1 fortnight")


def test_in_sql(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        wh.sql("CREATE TABLE a (k INT, day DATE) WITH (time = 'day', key = 'k')")
        wh.sql("CREATE TABLE b (k INT, day DATE) WITH (time = 'day', key = 'k', partition = '1 month')")
        said = wh.sql("SELECT name, partition FROM system.tables ORDER BY 1").to_arrow()
        assert said.to_pylist() == [{"name": "a", "partition": "1 day"}, {"name": "b", "partition": "1 month"}]
