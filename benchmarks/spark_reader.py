"""How fast Spark reads a table: beside a Python source that only hands out prepared batches, and beside Spark's own Parquet reader."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.report import Bar, Options, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 32_000_000
PREPARED_ROWS = 65_536
"""Of the batch that the prepared source hands out; the faster of 16,384 and 65,536."""
WARM_UP, WARM_UP_SHORT = 2, 20
"""Uncounted runs; of a filtered scan more, because Java has to meet the code that plans it that often before it compiles it."""
SHARE = 0.001
OF_PREPARED, FILTER_FASTER = 0.8, 20.0
ALL = tuple(data.SCHEMA.names)
SOME = ("taxi", "lon")
TOTALS = {"z": "bit_xor(z)", "ts": "max(ts)", "taxi": "sum(taxi)", "lon": "sum(lon)", "lat": "sum(lat)"}

Scan = Callable[[], "DataFrame"]


def run(options: Options, report: Report) -> None:
    report.title("spark_reader")
    from benchmarks import sparks

    repetitions = options.repetitions or (2 if options.quick else 5)
    rows = _rows(options, ROWS // (8 if options.quick else 1))
    low, high = _range(rows.z)
    figures: dict[str, object] = {"data": rows.origin, "rows": len(rows), "repetitions": repetitions}
    with (
        tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-spark-reader-", ignore_cleanup_errors=True) as folder,
        sparks.session() as spark,
    ):
        import tidewheel as tw

        place = Path(folder)
        with tw.open(place / "wh") as warehouse:
            table = warehouse.create_table("taxi", data.SCHEMA, time="ts", key="z")
            for part in data.batches(rows.batch(), 100_000):
                table.insert(part)
            state = table.state()
            prepared = _write_files(rows, place)
            partitions = _ours(spark, place).rdd.getNumPartitions()
            report.note(
                f"{rows.origin}, {len(rows):,} rows: {state.chunks} chunks, {state.fresh_rows:,} fresh rows; owner: this process; "
                f"{sparks.MASTER}, Java {sparks.java_version(spark)}, {partitions} partitions, as the prepared source has. Each scan is a "
                f"fresh load() and one aggregate of every column it reads. {WARM_UP} uncounted runs each ({WARM_UP_SHORT} of those with a "
                f"filter), then {repetitions} interleaved, medians; answers are compared with NumPy's."
            )
            cases: dict[str, tuple[Scan, Sequence[str], str | None]] = {
                "tidewheel, all columns": (lambda: _ours(spark, place), ALL, None),
                "prepared, all columns": (lambda: _prepared(spark, prepared, ALL, len(rows), partitions), ALL, None),
                "parquet, all columns": (lambda: spark.read.parquet(str(place / "parquet")), ALL, None),
                "tidewheel, 2 columns": (lambda: _ours(spark, place), SOME, None),
                "prepared, 2 columns": (lambda: _prepared(spark, prepared, SOME, len(rows), partitions), SOME, None),
                "parquet, 2 columns": (lambda: spark.read.parquet(str(place / "parquet")), SOME, None),
                "tidewheel, 0.1 % of the keys": (lambda: _ours(spark, place), ALL, f"z between {low} and {high}"),
                "parquet, 0.1 % of the keys": (lambda: spark.read.parquet(str(place / "parquet")), ALL, f"z between {low} and {high}"),
            }
            seconds = _measure(cases, rows, (low, high), repetitions)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    lines = []
    for name, values in seconds.items():
        rate = "" if "%" in name else f"{len(rows) / medians[name] / 1e6:.2f}"
        lines.append([name, *(f"{value * 1000:,.0f}" for value in (medians[name], min(values), max(values))), rate])
    report.table("scans", ["", "median ms", "min", "max", "M rows/s"], lines)
    bars = [
        Bar(f"reader ÷ prepared, {what}", medians[f"prepared, {what}"] / medians[f"tidewheel, {what}"], OF_PREPARED, ">=", "×")
        for what in ("all columns", "2 columns")
    ]
    faster = medians["tidewheel, all columns"] / medians["tidewheel, 0.1 % of the keys"]
    bars.append(Bar(f"0.1 % of the keys, times faster than the full scan of {len(rows):,} rows", faster, FILTER_FASTER, ">=", "×"))
    report.finish("spark_reader", figures | {"partitions": partitions, "seconds": seconds}, bars)


def _rows(options: Options, count: int) -> data.Rows:
    """T-Drive, again and again if it is too short, as a stream at an even rate."""
    known = data.load(options.data, min(count, data.TDRIVE_ROWS))
    times = math.ceil(count / len(known))
    columns = (np.tile(column, times)[:count] for column in (known.z, known.ts, known.taxi, known.lon, known.lat))
    return data.Rows(*columns, known.origin if times == 1 else f"{known.origin}, {times} times").restamped()


def _range(z: np.ndarray) -> tuple[int, int]:
    """A range of keys with about 0.1 % of the rows, in the middle."""
    low, high = np.quantile(z, (0.5, 0.5 + SHARE), method="nearest")
    return int(low), int(high)


def _write_files(rows: data.Rows, place: Path) -> Path:
    """The same rows for Spark's Parquet reader, as a stream would leave them, and one batch for the prepared source."""
    (place / "parquet").mkdir()
    for n, part in enumerate(data.batches(rows.batch(), 1_000_000)):
        pq.write_table(pa.Table.from_batches([part]), place / "parquet" / f"{n:03}.parquet")
    file = place / "prepared.arrow"
    with pa.ipc.new_file(str(file), data.SCHEMA) as writer:
        writer.write_batch(rows.head(PREPARED_ROWS).batch())
    return file


def _ours(spark: SparkSession, place: Path) -> DataFrame:
    return spark.read.format("tidewheel").load(str(place / "wh" / "taxi"))


def _prepared(spark: SparkSession, file: Path, columns: Sequence[str], rows: int, partitions: int) -> DataFrame:
    types = {"z": "bigint", "ts": "timestamp_ntz", "taxi": "int", "lon": "double", "lat": "double"}
    schema = ", ".join(f"{name} {types[name]} not null" for name in columns)
    return spark.read.format("prepared").schema(schema).options(file=str(file), rows=rows, partitions=partitions).load()


def _measure(
    cases: dict[str, tuple[Scan, Sequence[str], str | None]], rows: data.Rows, bounds: tuple[int, int], repetitions: int
) -> dict[str, list[float]]:
    """Seconds of each run of each case; wrong answers are errors."""
    inside = (rows.z >= bounds[0]) & (rows.z <= bounds[1])
    wanted = {None: len(rows), "": int(inside.sum())}
    sums = {None: float(rows.lon.sum()), "": float(rows.lon[inside].sum())}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    filtered = [name for name, (_, _, where) in cases.items() if where is not None]
    for repetition in range(-WARM_UP_SHORT, repetitions):
        names = list(cases) if repetition >= -WARM_UP else filtered
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            scan, columns, where = cases[name]
            start = time.perf_counter()
            frame = scan()
            if where is not None:
                frame = frame.where(where)
            (answer,) = frame.selectExpr("count(*) as n", *(f"{TOTALS[column]} as {column}" for column in columns)).collect()
            took = time.perf_counter() - start
            which = None if where is None else ""
            right = answer["n"] == wanted[which] and (name.startswith("prepared") or math.isclose(answer["lon"], sums[which], rel_tol=1e-9))
            if not right:
                raise AssertionError(f"{name}: {answer}, right are {wanted[which]} rows and {sums[which]} as the sum of lon")
            if repetition >= 0:
                seconds[name].append(took)
    return seconds
