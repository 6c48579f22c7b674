"""What a table's past costs: rows that were replaced, packages that were loaded, rows that were rejected. From few to many of each."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidewheel as tw
from benchmarks.report import Bar, Options, Report

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])
SECOND = 1_000_000
HOURS, PER_HOUR = 100, 2_000
RUNS = 9

Figures = dict[str, float]


def run(options: Options, report: Report) -> None:
    if not options.wants("tidewheel"):
        return
    many = 1_000 if options.quick else 10_000
    counts = [1, many // 100, many // 10, many]
    parts: tuple[tuple[str, Callable[[Path, int], Figures], list[int]], ...] = (
        ("replacements of one hour after the other", hours_replaced, counts),
        ("replacements of a second each, apart from each other", seconds_replaced, counts),
        ("packages of one row", packages, [n * 10 for n in counts]),
        ("rejected rows", rejected, [n * 100 for n in counts]),
    )
    figures: dict[str, object] = {}
    bars = []
    for title, measure, sizes in parts:
        found = []
        for count in sizes:
            with tempfile.TemporaryDirectory(prefix="bench-growth-", dir=options.scratch) as folder:
                found.append(measure(Path(folder) / "wh", count))
        rows = [[name, *(f"{one[name]:,.3g}" for one in found)] for name in found[0]]
        report.table(title, ["", *(f"{count:,}" for count in sizes)], rows)
        figures[title] = dict(zip(map(str, sizes), found, strict=True))
        first, last = found[1], found[-1]  # the first of all also warms up
        for name in ("insert, ms", "point query, ms", "first reject, ms"):
            if name in last:
                grows = f"{name[:-4]} after {sizes[-1]:,} instead of {sizes[1]:,} {title}"
                bars.append(Bar(grows, last[name] / first[name], 2.0, "<=", "×"))
    again = figures["replacements of one hour after the other"]
    assert isinstance(again, dict)
    disk = [one["disk, MB"] for one in again.values()]
    bars.append(Bar("disk after all hours were replaced many times", disk[-1] / disk[0], 1.5, "<=", "×"))
    report.finish("growth_history", figures, bars)


def second(first: int, count: int) -> pa.Table:
    """A row for each of so many seconds."""
    at = np.arange(first, first + count, dtype=np.int64)
    return pa.table([at * 7919 % 10_000, pa.array(at * SECOND, pa.timestamp("us")), at / 7], schema=SCHEMA)


def hours_replaced(root: Path, count: int) -> Figures:
    """Each replacement has all rows of its hour anew, so the table stays as large as it was."""
    with tw.open(root) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k", partition="1 hour")
        table.insert(second(0, HOURS * PER_HOUR))
        table.flush()
        for n in range(count):
            first = n % HOURS * PER_HOUR
            table.replace(second(first, PER_HOUR), time=(first * SECOND, (first + PER_HOUR) * SECOND - 1))
    return measured(root, HOURS * PER_HOUR)


def seconds_replaced(root: Path, count: int) -> Figures:
    """Holes in one chunk, which is never wholly hidden."""
    with tw.open(root) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k", partition="1 hour")
        table.insert(second(0, HOURS * PER_HOUR))
        table.flush()
        for n in range(count):
            table.replace(SCHEMA.empty_table(), time=(n * 15 * SECOND, n * 15 * SECOND))
    return measured(root, HOURS * PER_HOUR - count)


def packages(root: Path, count: int) -> Figures:
    row = second(0, 1)
    with tw.open(root) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k", partition="1 hour")
        began = time.perf_counter()
        for n in range(count):
            table.insert(row, package=f"package {n}")
        each = (time.perf_counter() - began) / count
        last = _median(lambda n: table.insert(row, package=f"package {count + n}"))
        again = _median(lambda n: table.insert(row, package=f"package {n}"))
    return {"all, ms each": each * 1e3, "insert, ms": last, "again, ms": again, **_opened(root)}


def rejected(root: Path, count: int) -> Figures:
    bad = [{"k": None, "ts": 1, "v": 0.0}]
    with tw.open(root) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k", partition="1 hour")
        left = count
        while left > 0:
            table.insert(bad * min(left, 50_000), on_bad="reject")
            left -= 50_000
        table.flush()
        assert len(table.rejects()) == count
        wh.sql("SELECT * FROM system.rejects LIMIT 1").to_arrow()
        one = _median(lambda n: wh.sql("SELECT * FROM system.rejects LIMIT 1").to_arrow())
        some = _median(lambda n: table.rejects())
        last = _median(lambda n: table.insert(bad, on_bad="reject"))
    return {"first reject, ms": one, "rejects(), ms": some, "insert, ms": last, **_opened(root)}


def measured(root: Path, rows: int) -> Figures:
    """What is asked of a table of so many rows after it was opened anew."""
    figures = _opened(root)
    with tw.open(root) as wh:
        table = wh.table("t")
        found = table.query().to_arrow()
        if found.num_rows != rows or table.rows != rows:
            raise AssertionError(f"{found.num_rows} rows, right is {rows}")
        state = table.state()
        asked = np.random.default_rng(1).integers(0, 10_000, RUNS).tolist()
        return figures | {
            "point query, ms": _median(lambda n: table.query(key=asked[n]).to_arrow()),
            "full scan, ms": _median(lambda n: table.query().to_arrow()),
            "table.rows, ms": _median(lambda n: table.rows),
            "insert, ms": _median(lambda n: table.insert(second(HOURS * PER_HOUR, 10))),
            "replace, ms": _median(lambda n: table.replace(second(HOURS * PER_HOUR, 10), time=(HOURS * PER_HOUR * SECOND, None))),
            "chunks": state.chunks,
        }


def _opened(root: Path) -> Figures:
    def open_(n: int) -> None:
        tw.open(root).close()

    opened = _median(open_, 3)
    size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    return {"open and close, ms": opened, "disk, MB": size / 1e6}


def _median(act: Callable[[int], object], runs: int = RUNS) -> float:
    """Milliseconds."""
    taken = []
    for n in range(runs):
        began = time.perf_counter()
        act(n)
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)
