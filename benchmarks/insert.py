"""How fast one thread inserts, batch by batch, until everything is on disk."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks import data
from benchmarks.peers import Ask, ChDB, DuckDB, System, Tidewheel, same
from benchmarks.reader import read
from benchmarks.report import Bar, Options, Report

SIZES = {1_000: 2_000_000, 10_000: 4_000_000, 100_000: 4_000_000}
"""Rows per batch, and rows in all."""
AGAINST_DUCKDB = {1_000: 10.0, 10_000: 4.0, 100_000: 2.0}
AGAINST_CHDB = 8.0


def run(options: Options, report: Report) -> None:
    report.title("insert")
    repetitions = options.repetitions or (3 if options.quick else 5)
    sizes = {size: rows // (8 if options.quick else 1) for size, rows in SIZES.items()}
    rows = data.load(options.data, max(sizes.values()))
    report.note(
        f"{rows.origin}. One thread; every batch can be queried when its insert returns, in all systems; the time includes the final "
        f"flush or checkpoint. Fresh folder each run, 1 uncounted warm-up of 20 batches, {repetitions} runs interleaved, medians. Count "
        "and sums of all columns are checked after each run. Tidewheel without a log; `durability` has the rows that survive a crash."
    )
    batch = rows.batch()
    bars: list[Bar] = []
    figures: dict[str, object] = {"data": rows.origin, "repetitions": repetitions}
    for size, total in sizes.items():
        part = batch.slice(0, total)
        wanted = read(pa.Table.from_batches([part]))
        makers = _makers(options, size)
        for make in makers.values():
            once(make(), part.slice(0, min(20 * size, total)), size, None, options)
        rates: dict[str, list[float]] = {name: [] for name in makers}
        for repetition in range(repetitions):
            names = list(makers)
            for name in names[repetition % len(names) :] + names[: repetition % len(names)]:
                rates[name].append(total / once(makers[name](), part, size, wanted, options))
        bars += _show(report, size, total, rates, {name: make() for name, make in makers.items()})
        figures[f"batch_{size}"] = {"rows": total, "rows_per_second": rates}
    report.finish("insert", figures, bars)


def _makers(options: Options, size: int) -> dict[str, Callable[[], System]]:
    threads = 1 if size <= 1_000 else None
    makers: dict[str, Callable[[], System]] = {
        "tidewheel": lambda: Tidewheel(),
        "duckdb": lambda: DuckDB(threads),
        "duckdb mem": lambda: DuckDB(threads, in_memory=True),
        "chdb": lambda: ChDB(),
    }
    return {name: make for name, make in makers.items() if options.wants(name.split()[0])}


def once(system: System, batch: pa.RecordBatch, size: int, wanted: tuple[float, ...] | None, options: Options) -> float:
    """Seconds to insert and flush in a new folder; the answer is checked afterwards."""
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-insert-", ignore_cleanup_errors=True) as folder:
        parts = list(data.batches(batch, size))
        try:
            system.open(Path(folder))
            start = time.perf_counter()
            for part in parts:
                system.insert(part)
            system.flush()
            seconds = time.perf_counter() - start
            got = read(system.query(Ask()))
        finally:
            system.close()
    if wanted is not None and not same(got, wanted):
        raise AssertionError(f"{system.name} holds {got} after inserting {wanted}")
    return seconds


def _show(report: Report, size: int, total: int, rates: dict[str, list[float]], systems: dict[str, System]) -> list[Bar]:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ours = medians.get("tidewheel")
    rows = []
    for name, values in rates.items():
        ratio = "" if ours is None or name == "tidewheel" else f"{ours / medians[name]:.1f}×"
        million = [f"{value / 1e6:.2f}" for value in (medians[name], min(values), max(values))]
        rows.append([name, systems[name].promise, *million, ratio])
    title = f"batches of {size:,}, {total:,} rows: million rows a second"
    report.table(title, ["system", "durability", "median", "min", "max", "tidewheel is"], rows, left=2)
    duck = max((rate for name, rate in medians.items() if name.startswith("duckdb")), default=None)
    chdb = medians.get("chdb")
    return [
        Bar(f"insert {size:,} ÷ faster DuckDB", ours / duck if ours and duck else None, AGAINST_DUCKDB[size], ">=", "×"),
        Bar(f"insert {size:,} ÷ chDB", ours / chdb if ours and chdb else None, AGAINST_CHDB, ">=", "×"),
    ]
