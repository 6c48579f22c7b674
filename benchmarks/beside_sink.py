"""Spark's stream into a table for `benchmarks/beside.py`: processor time of Java, of Spark's Python processes and of the owner."""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import tidewheel as tw
from benchmarks import data, sparks
from benchmarks.reader import read
from benchmarks.spark_sink import FILES, _tidewheel

SIZES = {"slices written as chunks": 8_000_000, "slices sent to the owner": 1_000_000}
"""Rows of a stream of 16 files: a slice of a chunk's size or more is written by its task, a smaller one is sent."""
RUNS = 2
"""Counted runs of each size; one more that does not count."""


def measured(folder: str | None) -> dict[str, float]:
    """Microseconds of a whole stream, the median of its runs; rows and sums of all columns are checked after each."""
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="beside-sink-", ignore_cleanup_errors=True) as place, sparks.session() as spark:
        loaded = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("tidewheel").__file__).collect()
        if loaded != [tw.__file__]:
            raise AssertionError(f"Spark's Python processes load {loaded[0]} instead of {tw.__file__}")
        for name, rows in SIZES.items():
            source = Path(place) / f"source-{rows}"
            source.mkdir()
            batch = data.load(folder, rows).batch()
            for n, part in enumerate(data.batches(batch, rows // FILES)):
                pq.write_table(pa.Table.from_batches([part]), source / f"{n:02}.parquet")
            wanted = read(pa.Table.from_batches([batch]))
            for run in range(RUNS + 1):
                with tempfile.TemporaryDirectory(dir=place) as one:
                    spent = _tidewheel(spark, source, Path(one), wanted)
                if run:
                    parts = {who: spent[who] for who in ("java", "python workers", "this process")}
                    for who, seconds in {**parts, "all": sum(parts.values())}.items():
                        found[f"{name}: {who}"].append(1e6 * seconds)
    return {name: statistics.median(values) for name, values in found.items()}
