"""Refreshes on Spark beside the same query from scratch: by Spark from Parquet sorted by time, and through our own source.

The session is warm, answers are compared before anything is timed, and the time of a refresh is that of the whole call: rows are brought
to rest, planned, read, computed, committed. Late rows are new ones in every run.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidewheel as tw
from benchmarks.report import Bar, Options, Report
from benchmarks.sparks import missing, session

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("plate", pa.int64()), ("speed", pa.int64()), ("lon", pa.float64())])
HOUR = 3600 * 1_000_000
HOURS = 720
COUNTS = "SELECT date_trunc('hour', ts) AS hour, plate, count(*) AS n, sum(speed) AS total, max(speed) AS top FROM {} GROUP BY 1, 2"
MEANS = "SELECT date_trunc('hour', ts) AS hour, plate, count(*) AS n, avg(lon) AS middle FROM {} GROUP BY 1, 2"
SPREADS = "SELECT date_trunc('hour', ts) AS hour, plate, count(*) AS n, stddev_pop(lon) AS spread FROM {} GROUP BY 1, 2"
"""Is not merged: the keys that late rows have are computed again."""
DEFINITIONS = {"counts": COUNTS, "means": MEANS, "spreads": SPREADS}


def run(options: Options, report: Report) -> None:
    if not options.wants("tidewheel"):
        return
    if why := missing():
        report.note(f"derived: {why}, left out")
        return
    runs = options.repetitions or 5
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    with session(background=True) as spark:  # as `wh.refresh()` starts it
        for part in (small_refreshes, history, beside_others, late_rows):
            with tempfile.TemporaryDirectory(prefix="bench-derived-", dir=options.scratch) as folder:
                found, more = part(Path(folder), spark, options.quick, runs, report)
            figures[part.__name__] = found
            bars += more
    report.finish("derived", figures, bars)


def rows(count: int, first: float, hours: float, plates: int, seed: int, plate: int | None = None) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(int(first * HOUR), int((first + hours) * HOUR), count))
    keys = rng.integers(0, plates, count) if plate is None else np.full(count, plate)
    columns = [pa.array(times, pa.timestamp("us", "UTC")), keys, rng.integers(0, 120, count), rng.random(count)]
    return pa.table(columns, schema=SCHEMA)


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def fill(wh: tw.Warehouse, hours: int, per_hour: int, plates: int, parquet: Path | None = None) -> tw.Table:
    """A table of so many hours, in the order of time, and perhaps the same rows as Parquet."""
    taxi = wh.create_table("taxi", SCHEMA, time="ts", key="plate")
    writer = pq.ParquetWriter(parquet, SCHEMA, compression="snappy") if parquet is not None else None
    at_once = max(1, 1_000_000 // per_hour)
    for first in range(0, hours, at_once):
        some = rows(per_hour * min(at_once, hours - first), first, min(at_once, hours - first), plates, first)
        taxi.insert(some)
        if writer is not None:
            writer.write_table(some)
    if writer is not None:
        writer.close()
    taxi.flush()
    return taxi


# ---- one partition, sixteen ---------------------------------------------------------------------------------


def small_refreshes(folder: Path, spark: Any, quick: bool, runs: int, report: Report) -> tuple[dict[str, float], list[Bar]]:
    """From a few new rows of an hour, or of sixteen, to the commit."""
    from tidewheel.spark.derived_compute import SparkCompute

    inside: list[float] = []
    compute = SparkCompute.run

    def counted(self: SparkCompute, *given: Any) -> pa.Table:
        began = time.perf_counter()
        try:
            return compute(self, *given)
        finally:
            inside.append(time.perf_counter() - began)

    found = {}
    with tw.open(folder / "wh") as wh:
        taxi = fill(wh, 48, 10_000, 500)
        wh.create_derived("hourly", MEANS.format("taxi"), time="hour", key="plate", partition="1 hour", spark=spark)
        wh.refresh(spark=spark)
        SparkCompute.run = counted  # type: ignore[method-assign]
        try:
            for name, hours, many in (("one partition", 1, 40), ("sixteen partitions", 16, 10)):
                whole, ours = [], []
                for n in range((many if not quick else 5) + 20):
                    for hour in range(hours):
                        taxi.insert(rows(1001, (n * 5 + hour) % 48, 1, 500, 1000 * n + hour))  # more keys than are computed one by one
                    inside.clear()
                    took = timed(lambda: wh.refresh(spark=spark))
                    if n >= 20:  # the Java process goes on compiling for a while
                        whole.append(took)
                        ours.append(took - sum(inside))
                found[f"{name}, ms"] = 1000 * statistics.median(whole)
                found[f"{name}, ours, ms"] = 1000 * statistics.median(ours)
        finally:
            SparkCompute.run = compute  # type: ignore[method-assign]
    report.table("from new rows to the commit, medians", ["", "ms"], [[name, f"{ms:.0f}"] for name, ms in found.items()])
    return found, [
        Bar("one small stale partition, p50", found["one partition, ms"], 300, "<=", " ms"),
        Bar("of that ours", found["one partition, ours, ms"], 40, "<=", " ms"),
        Bar("sixteen partitions in one job, each", found["sixteen partitions, ms"] / 16, 30, "<=", " ms"),
    ]


def history(folder: Path, spark: Any, quick: bool, runs: int, report: Report) -> tuple[dict[str, float], list[Bar]]:
    """The same refresh of a table with ten times the history."""
    took = {}
    for hours in (72, 720):
        with tw.open(folder / str(hours)) as wh:
            taxi = fill(wh, hours, 2_000 if quick else 20_000, 500)
            wh.create_derived("hourly", COUNTS.format("taxi"), time="hour", key="plate", partition="1 hour", spark=spark)
            wh.refresh(spark=spark)
            each = []
            for n in range(15):
                taxi.insert(rows(100, 30 + n % 3, 1, 500, n))
                each.append(timed(lambda wh=wh: wh.refresh(spark=spark)))
            took[f"{hours} hours, ms"] = 1000 * statistics.median(each[5:])
    report.table("one hour refreshed", ["", "ms"], [[name, f"{ms:.0f}"] for name, ms in took.items()])
    short, long = took.values()
    return took, [Bar("the same refresh at ten times the history", long / short, 1.3, "<=", "×")]


# ---- late rows beside a full recompute ----------------------------------------------------------------------


def late_rows(folder: Path, spark: Any, quick: bool, runs: int, report: Report) -> tuple[dict[str, Any], list[Bar]]:
    """0.1 % late rows, in few partitions, in all of them, and of one device; beside the query from scratch."""
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    for millions, plates, share in ((64, 5300, "6 %"), (64, 890, "1 %"), (32, 2650, "6 %")):
        count = millions * (20_000 if quick else 1_000_000)
        title = f"{millions} M rows, derived {share}"
        place = folder / f"{millions}-{plates}"
        place.mkdir()
        with tw.open(place / "wh") as wh:
            taxi = fill(wh, HOURS, count // HOURS, plates, place / "taxi.parquet")
            for name, query in DEFINITIONS.items():
                wh.create_derived(name, query.format("taxi"), time="hour", key="plate", partition="1 hour", spark=spark)
            wh.refresh(spark=spark)
            full = {name: recomputed(spark, query, place, runs) for name, query in DEFINITIONS.items()}
            late = count // 1000
            cases = [
                ("2 % of the partitions", "counts", partial(_near, taxi, late, plates)),
                ("all partitions", "counts", partial(_everywhere, taxi, late, plates)),
                ("one device", "means", partial(_of_one, taxi, plates)),
                ("one device, by keys", "spreads", partial(_of_one, taxi, plates)),
            ]
            lines: list[list[str]] = []
            for (where, name, insert), target in zip(cases, TARGETS[millions, share], strict=True):
                seconds, read, mode = _late(wh, spark, name, insert, runs)
                ratio = min(full[name].values()) / seconds
                lines.append([title, where, name, mode, f"{read:,}", f"{seconds:.2f}", f"{ratio:.1f}"])
                figures[f"{title}: {where}"] = {"seconds": seconds, "rows read": read, "mode": mode, "times faster": ratio}
                if target is not None:
                    bars.append(Bar(f"{title}, late rows in {where}", ratio, target, ">=", "×"))
                if name != "counts":
                    bars.append(Bar(f"{title}, {where}: rows read, of that device's", read / (count // plates), 3, "<=", "×"))
            wh.refresh(spark=spark)
            check(spark, wh, place)
        figures[f"{title}: from scratch"] = full
        for name, each in full.items():
            lines += [[title, f"from scratch, {source}", name, "", f"{count:,}", f"{took:.2f}", ""] for source, took in each.items()]
        report.table("0.1 % late rows", ["", "where", "table", "mode", "rows read", "s", "×"], lines)
    return figures, bars


TARGETS: dict[tuple[int, str], tuple[float | None, ...]] = {
    (64, "6 %"): (20, 2, 20, 20),
    (64, "1 %"): (20, 6, 20, 20),
    (32, "6 %"): (12, 2, None, None),
}
"""Bars of the four cases, by millions of rows and the share of derived ones."""


def _near(taxi: tw.Table, late: int, plates: int, n: int) -> None:
    taxi.insert(rows(late, 40 * n + 7, 14, plates, n))


def _everywhere(taxi: tw.Table, late: int, plates: int, n: int) -> None:
    taxi.insert(rows(late, 0, HOURS, plates, 100 + n))


def _of_one(taxi: tw.Table, plates: int, n: int) -> None:
    taxi.insert(rows(HOURS, 0, HOURS, plates, 200 + n, plate=17 + n))


def _late(wh: tw.Warehouse, spark: Any, name: str, insert: Callable[[int], object], runs: int) -> tuple[float, int, str]:
    """(median seconds, rows read, mode) of refreshes after late rows came."""
    taken, read, mode = [], 0, ""
    for n in range(runs + 1):
        insert(n)
        wh.refresh([other for other in DEFINITIONS if other != name], spark=spark)
        began = time.perf_counter()
        (done,) = wh.refresh([name], spark=spark).tables
        taken.append(time.perf_counter() - began)
        read, mode = done.rows_read, done.mode
    return statistics.median(taken[1:]), read, mode


def recomputed(spark: Any, query: str, place: Path, runs: int) -> dict[str, float]:
    """The query from scratch, without its rows being kept anywhere."""
    spark.read.parquet(str(place / "taxi.parquet")).createOrReplaceTempView("parquet")
    spark.read.format("tidewheel").load(str(place / "wh" / "taxi")).createOrReplaceTempView("source")
    out = {}
    for name, view in (("Parquet", "parquet"), ("our source", "source")):
        taken = [timed(lambda view=view: spark.sql(query.format(view)).write.format("noop").mode("overwrite").save()) for _ in range(runs)]
        out[name] = statistics.median(taken)
    return out


def check(spark: Any, wh: tw.Warehouse, place: Path) -> None:
    """Each derived table is what its query gives; sums of floats are, but for the order in which they were added."""
    spark.read.format("tidewheel").load(str(place / "wh" / "taxi")).createOrReplaceTempView("now")
    summed = {"counts": "sum(total), sum(top)", "means": "sum(n * middle), max(middle)", "spreads": "sum(n * spread), max(spread)"}
    for name, query in DEFINITIONS.items():
        sums = f"SELECT count(*), sum(n), {summed[name]} FROM {{}}"
        want = [float(value) for value in spark.sql(sums.format(f"({query.format('now')})")).collect()[0]]
        have = [float(value) for value in wh.sql(sums.format(name)).to_arrow().to_pylist()[0].values()]
        assert np.allclose(have, want, rtol=1e-9, atol=0), (name, have, want)


# ---- beside others ------------------------------------------------------------------------------------------


def beside_others(folder: Path, spark: Any, quick: bool, runs: int, report: Report) -> tuple[dict[str, float], list[Bar]]:
    """Inserts and small queries: alone, while refreshes run in the same process, and while `tidewheel refresh --watch` does."""
    found: dict[str, float] = {}
    with tw.open(folder / "wh") as wh:
        taxi = fill(wh, 96, 20_000, 500)
        wh.create_derived("hourly", COUNTS.format("taxi"), time="hour", key="plate", partition="1 hour", spark=spark)
        wh.refresh(spark=spark)
        for name, others in (
            ("alone", nullcontext()),
            ("in one process", _refreshing(wh, spark)),
            ("--watch", _watching(folder / "wh", taxi)),
        ):
            with others:
                found[f"insert, {name}, rows/s"], found[f"query, {name}, p99 ms"] = _busy(taxi, 4 if quick else 15)
    report.table("inserts and small queries while refreshes run", ["", ""], [[name, f"{value:,.2f}"] for name, value in found.items()])
    bars = []
    for name in ("in one process", "--watch"):
        kept = found[f"insert, {name}, rows/s"] / found["insert, alone, rows/s"]
        slower = found[f"query, {name}, p99 ms"] / found["query, alone, p99 ms"]
        bars.append(Bar(f"insert while refreshes run, {name}", kept, 0.9, ">=", "×"))
        bars.append(Bar(f"p99 of small queries while refreshes run, {name}", slower, 2, "<=", "×"))
    return found, bars


def _busy(taxi: tw.Table, seconds: float) -> tuple[float, float]:
    """(rows inserted per second of inserting, p99 of small queries in ms)."""
    inserted, asked, n = 0.0, [], 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        n += 1
        batch = rows(10_000, n % 96, 1, 500, n)
        inserted += timed(lambda batch=batch: taxi.insert(batch))
        asked.append(timed(lambda n=n: taxi.query(key=n % 500, limit=10).to_arrow()))
    return 10_000 * n / inserted, 1000 * float(np.quantile(asked, 0.99))


@contextmanager
def _refreshing(wh: tw.Warehouse, spark: Any) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            wh.refresh(spark=spark)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _watching(root: Path, taxi: tw.Table) -> Iterator[None]:
    """`tidewheel refresh --watch`, without a pause, from its tenth pass on: the Java process goes on compiling for a while."""
    command = [sys.executable, "-m", "tidewheel.surfaces.cli", "refresh", "-w", str(root), "--watch", "--every", "1 ms", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for n in range(10):
                taxi.insert(rows(1000, n, 1, 500, n))
                process.stdout.readline()
            reader = threading.Thread(target=process.stdout.read)  # a full pipe would hold it up
            reader.start()
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        reader.join()
