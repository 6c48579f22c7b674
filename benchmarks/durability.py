"""What durability costs: the same inserts without a log, handed to the system, and synced; DuckDB and chDB with the same promise."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks import data
from benchmarks.insert import once
from benchmarks.peers import Ask, ChDB, DuckDB, System, Tidewheel, same
from benchmarks.reader import read
from benchmarks.report import Bar, Options, Report

SIZES = {1_000: 2_000_000, 10_000: 4_000_000, 100_000: 4_000_000}
SYNCED = {1_000: 300_000, 10_000: 2_000_000}
"""Rows per batch, and rows in all, where every batch waits for the disk."""
PROCESS_OF_MEMORY, SYNCED_OF_DUCKDB = 0.75, 1.5

Makers = dict[str, Callable[[], System]]


def run(options: Options, report: Report) -> None:
    report.title("durability")
    repetitions = options.repetitions or (3 if options.quick else 5)
    smaller = 8 if options.quick else 1
    rows = data.load(options.data, max(SIZES.values()) // smaller)
    report.note(
        f"{rows.origin}. Every batch can be queried, and has its durability, when its insert returns. Fresh folder each run, {repetitions} "
        "runs interleaved, medians; count and sums of all columns are checked after each run."
    )
    batch = rows.batch()
    bars: list[Bar] = []
    figures: dict[str, object] = {"data": rows.origin, "repetitions": repetitions}

    report.note("Handed to the system, one thread; the time includes the final flush or checkpoint.")
    for size, total in SIZES.items():
        makers = _wanted(options, _handed(size))
        rates = _rates(makers, repetitions, lambda s, n=size, t=total // smaller: _alone(s, batch.slice(0, t), n, options))
        figures[f"handed_{size}"] = rates
        medians = _show(report, f"batches of {size:,}: million rows a second", rates, makers)
        if size == 10_000 and "tidewheel" in medians:
            share = medians["tidewheel"] / medians["tidewheel, no log"]
            bars.append(Bar("durability process ÷ memory, 10,000 a batch", share, PROCESS_OF_MEMORY, ">=", "×"))

    report.note("Synced. Inserts only: what is flushed or checkpointed at the end is not in the time.")
    for size, total in SYNCED.items():
        for writers in (1, 4):
            makers = _wanted(options, _SYNCING)
            part = batch.slice(0, total // smaller)
            rates = _rates(makers, repetitions, lambda s, n=size, p=part, w=writers: _together(s, p, n, w, options))
            figures[f"synced_{size}_{writers}"] = rates
            title = f"synced, batches of {size:,}, {writers} writer{'s' if writers > 1 else ''}: million rows a second"
            medians = _show(report, title, rates, makers)
            ratio = medians["tidewheel"] / medians["duckdb synced"] if len(medians) == 2 else None
            bars.append(Bar(f"fsync ÷ DuckDB, {size:,} a batch, {writers} writers", ratio, SYNCED_OF_DUCKDB, ">=", "×"))
    report.finish("durability", figures, bars)


_SYNCING: Makers = {"tidewheel": lambda: Tidewheel({"durability": "fsync"}), "duckdb synced": lambda: DuckDB(synced=True)}


def _handed(size: int) -> Makers:
    threads = 1 if size <= 1_000 else None
    return {
        "tidewheel, no log": lambda: Tidewheel(),
        "tidewheel": lambda: Tidewheel({"durability": "process"}),
        "duckdb": lambda: DuckDB(threads),
        "chdb": lambda: ChDB(),
    }


def _wanted(options: Options, makers: Makers) -> Makers:
    return {name: make for name, make in makers.items() if options.wants(name.split()[0].strip(","))}


def _rates(makers: Makers, repetitions: int, rate: Callable[[System], float]) -> dict[str, list[float]]:
    """Rows a second of each system: one uncounted run, then `repetitions`, systems interleaved."""
    rates: dict[str, list[float]] = {name: [] for name in makers}
    for repetition in range(repetitions + 1):
        names = list(makers)
        for name in names[repetition % len(names) :] + names[: repetition % len(names)]:
            found = rate(makers[name]())
            if repetition:
                rates[name].append(found)
    return rates


def _alone(system: System, batch: pa.RecordBatch, size: int, options: Options) -> float:
    return batch.num_rows / once(system, batch, size, read(pa.Table.from_batches([batch])), options)


def _together(system: System, batch: pa.RecordBatch, size: int, writers: int, options: Options) -> float:
    """Rows a second of several threads that share the batches."""
    parts = list(data.batches(batch, size))
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-durability-", ignore_cleanup_errors=True) as folder:
        try:
            system.open(Path(folder))
            inserts = [system.another_writer() for _ in range(writers)]  # type: ignore[attr-defined]
            threads = [threading.Thread(target=_write, args=(insert, parts[i::writers])) for i, insert in enumerate(inserts)]
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.perf_counter() - start
            got = read(system.query(Ask()))
        finally:
            system.close()
    if not same(got, read(pa.Table.from_batches([batch]))):
        raise AssertionError(f"{system.name} holds {got} after {writers} writers")
    return batch.num_rows / seconds


def _write(insert: Callable[[pa.RecordBatch], object], parts: list[pa.RecordBatch]) -> None:
    for part in parts:
        insert(part)


def _show(report: Report, title: str, rates: dict[str, list[float]], makers: Makers) -> dict[str, float]:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ours = medians.get("tidewheel")
    rows = []
    for name, values in rates.items():
        ratio = "" if ours is None or name == "tidewheel" else f"{ours / medians[name]:.2f}×"
        million = [f"{value / 1e6:.2f}" for value in (medians[name], min(values), max(values))]
        rows.append([name, makers[name]().promise, *million, ratio])
    report.table(title, ["system", "durability", "median", "min", "max", "tidewheel is"], rows, left=2)
    return medians
