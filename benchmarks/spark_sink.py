"""How fast a stream of Spark's goes into a table, beside a Python sink that only counts rows and Spark's own Parquet sink."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.peers import same
from benchmarks.reader import read
from benchmarks.report import Bar, Options, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS, FILES, FILES_A_BATCH = 8_000_000, 16, 4
LEAST = 0.9

Start = Callable[["DataFrame", Path], "StreamingQuery"]


def run(options: Options, report: Report) -> None:
    report.title("spark_sink")
    from benchmarks import sparks

    repetitions = options.repetitions or (2 if options.quick else 5)
    rows = data.load(options.data, ROWS // (8 if options.quick else 1))
    batch = rows.batch()
    wanted = read(pa.Table.from_batches([batch]))
    systems = {"tidewheel": _tidewheel, "counting": _counting, "parquet": _parquet}
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-spark-sink-", ignore_cleanup_errors=True) as folder:
        source = Path(folder) / "source"
        source.mkdir()
        for n, part in enumerate(data.batches(batch, len(rows) // FILES)):
            pq.write_table(pa.Table.from_batches([part]), source / f"{n:02}.parquet")
        with sparks.session() as spark:
            report.note(
                f"{rows.origin}; {FILES} Parquet files as a stream, {FILES_A_BATCH} a batch, availableNow, {sparks.MASTER}, Java "
                f"{sparks.java_version(spark)}. From start() to the end of the query: then all rows are visible and handed to the system "
                '(durability="process"), the owner being this process. New folder and checkpoint each run, one uncounted run of each, then '
                f"{repetitions} interleaved, medians; rows and sums of all columns are checked after each run (of the counting sink, rows)."
            )
            figures: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in systems}
            for repetition in range(-1, repetitions):
                names = list(systems)
                for name in names[repetition % 3 :] + names[: repetition % 3]:
                    with tempfile.TemporaryDirectory(dir=folder) as place:
                        found = systems[name](spark, source, Path(place), wanted)
                    if repetition >= 0:
                        for what, value in found.items():
                            figures[name][what].append(value)
    _show(report, figures, len(rows), {"data": rows.origin, "rows": len(rows), "repetitions": repetitions})


def _stream(spark: SparkSession, source: Path) -> DataFrame:
    schema = spark.read.parquet(str(source)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_A_BATCH).parquet(str(source))


def _timed(writer: Any, place: Path, path: str | None) -> dict[str, float]:
    """Seconds of the whole query, of its batches alone, and of processors."""
    from benchmarks import sparks

    writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
    before = sparks.processor_seconds()
    start = time.perf_counter()
    query = writer.start(path) if path else writer.start()
    query.awaitTermination()
    seconds = time.perf_counter() - start
    after = sparks.processor_seconds()
    progress = query.recentProgress
    batches = sum(one["durationMs"]["triggerExecution"] for one in progress if one["numInputRows"]) / 1000
    return {"seconds": seconds, "batches": batches} | {who: after[who] - before[who] for who in after}


def _tidewheel(spark: SparkSession, source: Path, place: Path, wanted: tuple[float, ...]) -> dict[str, float]:
    import tidewheel as tw

    with tw.open(place / "wh") as warehouse:
        table = warehouse.create_table("taxi", data.SCHEMA, time="ts", key="z")
        found = _timed(_stream(spark, source).writeStream.format("tidewheel"), place, str(place / "wh" / "taxi"))
        start = time.perf_counter()
        table.flush()
        found["flush"] = time.perf_counter() - start
        _check("tidewheel", read(table.query().to_arrow()), wanted)
    return found


def _counting(spark: SparkSession, source: Path, place: Path, wanted: tuple[float, ...]) -> dict[str, float]:
    from benchmarks import sparks

    noted = place / "notes"
    found = _timed(_stream(spark, source).writeStream.format("counting").option("notes", str(noted)), place, None)
    rows = sum(line["rows"] for line in sparks.notes(noted))
    if rows != wanted[0]:
        raise AssertionError(f"the counting sink saw {rows:,} rows of {wanted[0]:,}")
    return found


def _parquet(spark: SparkSession, source: Path, place: Path, wanted: tuple[float, ...]) -> dict[str, float]:
    out = place / "out"
    found = _timed(_stream(spark, source).writeStream.format("parquet"), place, str(out))
    _check("Spark's Parquet sink", read(pq.read_table(out, schema=data.SCHEMA)), wanted)
    return found


def _check(name: str, got: tuple[float, ...], wanted: tuple[float, ...]) -> None:
    if not same(got, wanted):
        raise AssertionError(f"{name} holds {got} after a stream of {wanted}")


def _show(report: Report, figures: dict[str, dict[str, list[float]]], rows: int, facts: dict[str, object]) -> None:
    medians = {name: {what: statistics.median(values) for what, values in found.items() if values} for name, found in figures.items()}
    lines = []
    for name, found in figures.items():
        rates = [rows / seconds / 1e6 for seconds in found["seconds"]]
        flush = f"{medians[name]['flush']:.2f} s" if found["flush"] else ""
        batches = rows / medians[name]["batches"] / 1e6
        lines.append([name, *(f"{rate:.2f}" for rate in (statistics.median(rates), min(rates), max(rates), batches)), flush])
    report.table("million rows a second", ["sink", "median", "min", "max", "batches alone", "final flush, not counted"], lines)
    who = ("java", "python workers", "this process")
    lines = [[name, *(f"{found[one]:.2f}" for one in who), f"{sum(found[one] for one in who):.2f}"] for name, found in medians.items()]
    report.table("processor seconds, median", ["sink", *who, "all"], lines)
    ours = medians["tidewheel"]["seconds"]
    bars = [
        Bar("sink ÷ a sink that only counts", medians["counting"]["seconds"] / ours, LEAST, ">=", "×"),
        Bar("sink ÷ Spark's Parquet sink", medians["parquet"]["seconds"] / ours, LEAST, ">=", "×"),
    ]
    report.finish("spark_sink", {**facts, "seconds": figures}, bars)
