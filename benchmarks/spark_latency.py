"""From a Kafka record to a row that a query sees, and what our own code adds to a micro-batch.

A producer sends a numbered record every 20 ms; this process, which owns the warehouse, asks the table for new numbers every 3 ms. A sink
that only counts rows takes turns with ours, on topics of its own: its commit is the floor for any sink in Python.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.report import Bar, Options, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS, WARM_SECONDS, SECONDS, BATCHES = 5, 8.0, 20.0, 20
"""A turn counts for so many seconds, after so many of warming up and as many batches."""
EVERY, POLL = 0.02, 0.003
"""Seconds between two records, and between two looks at the table."""
VISIBLE_MS, OVERHEAD_MS = 300.0, 25.0
SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False), pa.field("ts", pa.timestamp("us", "UTC"), nullable=False)])
STEPS = ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "commitBatch")


@dataclass
class Turn:
    """One query, from its start to its end: when each record was sent and seen, and how long each batch took."""

    sent: dict[int, float] = field(default_factory=dict)
    seen: dict[int, float] = field(default_factory=dict)
    batches: list[dict[str, float]] = field(default_factory=list)
    """Once warm."""
    warm: int | None = None
    """The first record that counts."""
    warm_batch: int = 0
    """The last batch that does not."""

    def waits(self) -> list[float]:
        """Milliseconds from sent to seen, once warm."""
        return [(self.seen[n] - at) * 1000 for n, at in self.sent.items() if self.warm is not None and n >= self.warm]


def run(options: Options, report: Report) -> None:
    report.title("spark_latency")
    from benchmarks import sparks

    rounds = options.repetitions or (1 if options.quick else ROUNDS)
    warm, seconds = (4.0, 6.0) if options.quick else (WARM_SECONDS, SECONDS)
    turns: dict[str, list[Turn]] = {"tidewheel": [], "counting": []}
    with (
        tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-spark-latency-", ignore_cleanup_errors=True) as folder,
        sparks.session() as spark,
        _broker(spark, Path(folder) / "kafka") as broker,
    ):
        report.note(
            f"Kafka broker of one node, topics of 2 partitions, a record every {EVERY * 1000:.0f} ms, {sparks.MASTER}, trigger 0, Java "
            f"{sparks.java_version(spark)}. One turn each uncounted, {rounds} interleaved; of each, the first {warm:.0f} s and {BATCHES} "
            f'batches are not counted, the next {seconds:.0f} s are. durability="process"; every number is checked to arrive exactly once.'
        )
        for n in range(-1, rounds):
            for name in ("tidewheel", "counting") if n % 2 == 0 else ("counting", "tidewheel"):
                place = Path(folder) / f"{name}-{n}"
                place.mkdir()
                turn = _turn(spark, broker, name, f"{name}-{n}", place, warm, seconds)
                if n >= 0:
                    turns[name].append(turn)
    _show(report, turns)


def _broker(spark: SparkSession, folder: Path) -> Any:
    """A real one, and the connector for it."""
    import pyspark

    import tidewheel.spark as tws
    from tests.servers.kafka import JARS, Broker
    from tidewheel.spark import java
    from tidewheel.spark.jars import resolve

    tws.connector(spark, "kafka")
    scala = sorted((Path(pyspark.__file__).parent / "jars").glob("scala-*.jar"))
    return Broker([*resolve(spark, JARS), *scala], folder, str(java.find().home / "bin" / "java"))


def _turn(spark: SparkSession, broker: Any, name: str, topic: str, place: Path, warm: float, seconds: float) -> Turn:
    import tidewheel as tw

    broker.create(topic)
    stream = (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
        .option("startingOffsets", "earliest").load()
        .selectExpr("cast(cast(value as string) as bigint) as number", "timestamp as ts")
    )  # fmt: skip
    writer = stream.writeStream.option("checkpointLocation", str(place / "checkpoint"))
    turn = Turn()
    if name == "counting":
        query = writer.format("counting").options(notes=str(place / "notes"), column="number").start()
        _produce(broker.address, topic, query, warm, seconds, turn)
        _wait(query, turn, lambda: _noted(place / "notes", turn))
        _end(query, turn)
        return turn
    with tw.open(place / "wh") as warehouse:
        table = warehouse.create_table("records", SCHEMA, time="ts", key="number")
        query = writer.format("tidewheel").start(str(place / "wh" / "records"))
        over = threading.Event()
        observer = threading.Thread(target=_observe, args=(table, turn, over))
        observer.start()
        try:
            _produce(broker.address, topic, query, warm, seconds, turn)
            _wait(query, turn)
        finally:
            over.set()
            observer.join()
        _end(query, turn)
        if table.rows != len(turn.sent) or turn.seen.keys() != turn.sent.keys():
            raise AssertionError(f"{table.rows} rows in the table, {len(turn.seen)} numbers seen, {len(turn.sent)} sent")
    return turn


def _produce(address: str, topic: str, query: Any, warm: float, seconds: float, turn: Turn) -> None:
    """Send a number every 20 ms, each at its time, whatever the last one took, until the query is warm and `seconds` more."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "broker.address.family": "v4", "log_level": 0})
    start = time.time()
    number, end = 0, start + warm + 120
    while time.time() < end:
        time.sleep(max(0.0, start + number * EVERY - time.time()))
        if turn.warm is None and number % 50 == 0 and time.time() >= start + warm:
            batch = (query.lastProgress or {}).get("batchId", 0)
            if batch >= BATCHES:
                turn.warm, turn.warm_batch, end = number, batch, time.time() + seconds
        turn.sent[number] = time.time()
        producer.produce(topic, str(number).encode(), partition=number % 2)
        producer.poll(0)
        number += 1
    if producer.flush(30) or turn.warm is None:
        raise AssertionError(f"the broker did not take all records, or the query is slow: {query.lastProgress}")


def _observe(table: Any, turn: Turn, over: threading.Event) -> None:
    """Note when each number is first seen. The topic's partitions may be apart, so all from the first that is missing are asked for."""
    missing = 0
    while not over.wait(POLL):
        found = table.query(key=(missing, None), columns=["number"]).to_arrow()
        now = time.time()
        for number in found["number"].to_pylist():
            turn.seen.setdefault(number, now)
        while missing in turn.seen:
            missing += 1


def _noted(file: Path, turn: Turn) -> None:
    """What the counting sink committed, and when."""
    from benchmarks import sparks

    for line in sparks.notes(file):
        for number in line["numbers"]:
            turn.seen.setdefault(number, line["at"])


def _wait(query: Any, turn: Turn, look: Callable[[], object] = lambda: None, patience: float = 120.0) -> None:
    """Until every number was seen."""
    end = time.monotonic() + patience
    while len(turn.seen) < len(turn.sent):
        if query.exception() is not None:
            raise query.exception()
        if time.monotonic() > end:
            raise AssertionError(f"{len(turn.seen)} of {len(turn.sent)} records arrived within {patience:.0f} s: {query.lastProgress}")
        time.sleep(0.05)
        look()


def _end(query: Any, turn: Turn) -> None:
    progress = query.recentProgress
    query.stop()
    counted = [one for one in progress if one["batchId"] > turn.warm_batch and one["numInputRows"]]
    turn.batches = [one["durationMs"] | {"rows": one["numInputRows"]} for one in counted]


def _show(report: Report, turns: dict[str, list[Turn]]) -> None:
    waits = {name: [wait for turn in found for wait in turn.waits()] for name, found in turns.items()}
    batches = {name: [turn.batches for turn in found] for name, found in turns.items()}
    lines = []
    for name, what in (("tidewheel", "sent → seen by a query"), ("counting", "sent → its commit")):
        values = np.percentile(waits[name], (50, 90, 99, 100))
        lines.append([name, what, *(f"{value:.0f}" for value in values)])
    report.table("milliseconds", ["sink", "", "p50", "p90", "p99", "max"], lines, left=2)
    medians = {name: {step: _median(step, *found) for step in (*STEPS, "rows")} for name, found in batches.items()}
    lines = [[name, *(f"{medians[name][step]:.0f}" for step in (*STEPS, "rows"))] for name in turns]
    report.table("a micro-batch, median milliseconds (Spark's durationMs) and rows", ["sink", *STEPS, "rows"], lines)
    each = [
        _median("triggerExecution", ours) - _median("triggerExecution", theirs)
        for ours, theirs in zip(batches["tidewheel"], batches["counting"], strict=True)
    ]
    report.note(f"Overhead, turn by turn: {', '.join(f'{value:+.0f}' for value in each)} ms")
    p50 = float(np.percentile(waits["tidewheel"], 50))
    overhead = medians["tidewheel"]["triggerExecution"] - medians["counting"]["triggerExecution"]
    bars = [
        Bar("row → visible, p50", p50, VISIBLE_MS, "<=", " ms"),
        Bar("micro-batch, ours − counting", overhead, OVERHEAD_MS, "<=", " ms"),
    ]
    percentiles = {name: [float(v) for v in np.percentile(values, (50, 90, 99, 100))] for name, values in waits.items()}
    counts = {name: sum(len(part) for part in found) for name, found in batches.items()}
    figures = {
        "rounds": len(each),
        "percentiles_50_90_99_100": percentiles,
        "batch_ms": medians,
        "batches": counts,
        "overhead_by_turn": each,
    }
    report.finish("spark_latency", figures, bars)


def _median(step: str, *parts: list[dict[str, float]]) -> float:
    return statistics.median(batch.get(step, 0) for part in parts for batch in part)
