"""From a real Kafka broker into a table: every message is a row or a reject, once, whatever it holds and however often the stream stops."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

import tidewheel as tw
import tidewheel.spark as tws
from tests.conftest import SOAK
from tests.integration.test_docs import read
from tests.integration.test_examples import run_here
from tests.servers.kafka import JARS, Broker
from tidewheel.errors import InputError, NotFoundError, SchemaError, SparkError
from tidewheel.spark import java
from tidewheel.spark.jars import resolve

MESSAGES = 1_000_000 if SOAK else 12_000


@pytest.fixture(scope="module")
def broker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    scala = Path(pyspark.__file__).parent.glob("jars/scala-library-*.jar")
    try:
        jars = [*resolve(spark, JARS), *scala]
    except SparkError as e:
        pytest.skip(f"a broker's jars cannot be had here: {e}")
    with Broker(jars, tmp_path_factory.mktemp("kafka"), f"{java.find().home}/bin/java") as broker:
        yield broker


def wait_for(table: tw.Table, count: int, query: Any, seconds: float = 240.0) -> None:
    """Until so many records are rows or rejects."""
    until = time.monotonic() + seconds * (10 if SOAK else 1)
    while (found := table.rows + len(table.rejects())) < count:
        assert query.exception() is None, query.exception()
        assert query.isActive or "availableNow" in str(query), "the stream has ended"
        assert time.monotonic() < until, f"{found} of {count}: {query.status}, {query.lastProgress}"
        time.sleep(0.1)
    assert found == count


def ride(i: int) -> bytes:
    """Every 997th cannot be read, every 1009th has no plate, every 1013th a bad time."""
    if i % 997 == 0:
        return b'{"plate": %d, "ts": ' % i
    plate = None if i % 1009 == 0 else i
    ts = "soon" if i % 1013 == 0 else f"2026-01-01T{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}.{i % 1000:03d}Z"
    return json.dumps({"plate": plate, "ts": ts, "speed": i % 90 + 0.5, "note": "é" * (i % 3), "unknown": [i]}).encode()


def is_bad(i: int) -> bool:
    return i % 997 == 0 or i % 1009 == 0 or i % 1013 == 0


def test_every_message_once_over_restarts(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Two topics, broken messages, and a stream that is stopped in the middle of its batches."""
    for topic in ("rides", "more"):
        broker.create(topic, 2)
    half = MESSAGES // 2
    broker.send("rides", [ride(i) for i in range(half)])
    source = f"kafka://{broker.address}/rides,more"

    def start(**options: Any) -> Any:
        found = {"maxOffsetsPerTrigger": str(MESSAGES // 12)}
        return tws.ingest(spark, source, tmp_path / "taxi", trigger="0", options=found, **options)

    with tw.open(tmp_path) as wh:
        query = start(time="ts", key="plate", meta=["topic", "partition", "offset"])
        taxi = wh.table("taxi")
        assert [f.name for f in taxi.schema] == ["plate", "ts", "speed", "note", "unknown", "_topic", "_partition", "_offset"]
        assert taxi.schema.field("ts").type == pa.timestamp("us", "UTC") and taxi.schema.field("speed").type == pa.float64()
        sent = half
        for stop in range(3):
            while taxi.rows < (stop + 1) * MESSAGES // 10 and query.isActive:
                time.sleep(0.02)
            query.stop()  # wherever it is
            assert query.exception() is None
            some = min(MESSAGES - sent, MESSAGES // 6 + 1)
            broker.send("more", [ride(i) for i in range(sent, sent + some)])
            sent += some
            query = start()
        assert sent == MESSAGES
        wait_for(taxi, MESSAGES, query)
        query.stop()
        rows = taxi.query().to_arrow()
        rejects = taxi.rejects().to_arrow().to_pylist()
    # every row is its message, and every message that can be one is a row, once
    good = [i for i in range(MESSAGES) if not is_bad(i)]
    assert sorted(rows["plate"].to_pylist()) == good
    for row in rows.slice(0, 5000).to_pylist():
        sent_row = json.loads(ride(row["plate"]))
        assert (row["speed"], row["note"], row["unknown"]) == (sent_row["speed"], sent_row["note"], sent_row["unknown"])
        assert row["ts"].isoformat(timespec="milliseconds").replace("+00:00", "Z") == sent_row["ts"]
    # every other one is a reject, once, with its text and its reason; and each offset of the topics is one of both
    assert sorted(r["row"] for r in rejects) == sorted(ride(i).decode() for i in range(MESSAGES) if is_bad(i))
    assert {r["reason"].partition(":")[0] for r in rejects} >= {"is not JSON", "None has no value in the key column"}
    assert all(r["stream"] == str(query.id) and r["batch"] is not None for r in rejects)
    places = [f"{t}/{p}@{o}" for t, p, o in zip(*(rows[c].to_pylist() for c in ("_topic", "_partition", "_offset")), strict=True)]
    places += [r["origin"] for r in rejects]
    assert len(set(places)) == len(places) == MESSAGES
    ends: dict[str, int] = {}
    for place in places:
        partition, _, offset = place.partition("@")
        ends[partition] = max(ends.get(partition, 0), int(offset) + 1)
    assert sum(ends.values()) == MESSAGES


SCHEMA = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("ms", "UTC")), ("speed", pa.float32())])


def arrow(plates: list[int]) -> bytes:
    out = pa.BufferOutputStream()
    batch = pa.record_batch([plates, [1767225600000] * len(plates), [1.5] * len(plates)], names=["plate", "ts", "speed"])
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue().to_pybytes()


AVRO = {"type": "record", "name": "R", "fields": [{"name": "plate", "type": "long"}, {"name": "ts", "type": "long"}]}


def avro(plate: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, {"plate": plate, "ts": 1767225600000})
    return out.getvalue()


def test_payloads_keys_and_headers(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """One stream per format into one table, each with what is around its messages."""
    fields = [*SCHEMA, pa.field("driver", pa.string()), pa.field("_headers", pa.map_(pa.string(), pa.string()))]
    fields += [pa.field("_timestamp", pa.timestamp("us", "UTC"))]
    sent: dict[str, tuple[list[bytes | None], dict[str, Any]]] = {
        "csv": ([b"1,1767225600,2.5", b"x,1767225600,", b"2,1767225600,"], {"columns": ["plate", "ts", "speed"], "time_format": "epoch-s"}),
        "avro": ([avro(3), b"\x01", None, avro(4)], {"avro_schema": json.dumps(AVRO)}),
        "arrow": ([arrow([5, 6, 7]), b"?", arrow([8])], {}),
    }
    with tw.open(tmp_path) as wh:
        table = wh.create_table("taxi", pa.schema(fields), time="ts", key="plate")
        queries = []
        for payload, (messages, rules) in sent.items():
            broker.create(payload, 1)
            broker.send(payload, messages, key=b"k-" + payload.encode(), headers=[("h", b"1"), ("h", b"2")])
            source = f"kafka://{broker.address}/{payload}"
            queries.append(tws.ingest(spark, source, tmp_path / "taxi", payload=payload, meta=["key=driver"], trigger="once", **rules))
        for query in queries:
            query.awaitTermination()
        rows = sorted(table.query().to_arrow().to_pylist(), key=lambda r: r["plate"])
        rejects = {r["origin"]: r for r in table.rejects().to_arrow().to_pylist()}
    assert [r["plate"] for r in rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [r["driver"] for r in rows] == ["k-csv"] * 2 + ["k-avro"] * 2 + ["k-arrow"] * 4
    assert all(r["_headers"] == [("h", "1"), ("h", "2")] and r["_timestamp"].year > 2025 for r in rows)
    assert {r["ts"].timestamp() for r in rows} == {1767225600.0}
    assert sorted(rejects) == ["arrow/0@1", "avro/0@1", "avro/0@2", "csv/0@1"]
    assert rejects["csv/0@1"]["column"] == "plate" and rejects["csv/0@1"]["row"] == "x,1767225600,"
    assert rejects["avro/0@2"]["reason"] == "is empty" and rejects["arrow/0@1"]["row"] == "?"


def test_a_table_is_made_from_the_first_messages_or_it_is_said_why_not(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create("odd", 1)
    source = f"kafka://{broker.address}/odd"
    with tw.open(tmp_path) as wh:
        with pytest.raises(NotFoundError, match="has no record yet"):
            tws.ingest(spark, source, tmp_path / "odd", time="ts", key="id")
        broker.send("odd", [b'{"id": 1, "ts": 1767225600.5, "day": "monday"}', b"{", b'{"id": 2, "ts": 1767225601, "day": null}'])
        with pytest.raises(SchemaError, match=r"say its key .*Columns of the first 2 records of kafka://.*: id, ts, day"):
            tws.ingest(spark, source, tmp_path / "odd", time="ts")
        with pytest.raises(SchemaError, match=r"no time column 'tss'\. Did you mean 'ts'"):
            tws.ingest(spark, source, tmp_path / "odd", time="tss", key="id")
        with pytest.raises(SchemaError, match="'monday' is not an ISO time; say how it is written"):
            tws.ingest(spark, source, tmp_path / "odd", time="day", key="id")
        with pytest.raises(InputError, match="a message has key"):
            tws.ingest(spark, source, tmp_path / "odd", time="ts", key="id", meta=["keys"])
        with pytest.raises(InputError, match="none of the first 3 records"):
            tws.ingest(spark, source, tmp_path / "odd", time="ts", key="id", payload="arrow")
        for _ in range(2):  # the second time it knows by itself that times are numbers
            tws.ingest(spark, source, tmp_path / "odd", time="ts", key="id", trigger="once").awaitTermination()
            broker.send("odd", [b'{"id": 3, "ts": 1767225602.25}'])
        odd = wh.table("odd")
        assert odd.schema == pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("day", pa.string())])
        found = sorted((r["id"], r["ts"].timestamp(), r["day"]) for r in odd.query().to_arrow().to_pylist())
        assert found == [(1, 1767225600.5, "monday"), (2, 1767225601.0, None), (3, 1767225602.25, None)]
        assert [r["origin"] for r in odd.rejects().to_arrow().to_pylist()] == ["odd/0@1"]
        assert os.listdir(tmp_path / "streams")[0].startswith("odd-kafka-")
        with pytest.raises(InputError, match="is that of a stream from kafka"):
            name = os.listdir(tmp_path / "streams")[0]
            tws.ingest(spark, f"kafka://{broker.address}/rides", tmp_path / "odd", name=name)


def test_the_example(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create("example", 1)
    broker.send("example", [b'{"plate": %d, "ts": "2026-01-05T08:00:0%dZ", "speed": 50}' % (i, i) for i in range(5)] + [b"{"])
    example = Path(__file__).parents[2] / "examples" / "kafka_stream.py"
    out = run_here(example, tmp_path, lambda: spark, broker.address, "example", "5")
    assert out.splitlines()[-1].startswith("5 rows, 1 rejected, newest: [{'plate': 4, 'speed': 50")


def test_the_page(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """docs/kafka.md, with a broker that is there."""
    broker.create("page", 2)
    broker.send("page", [ride(i) for i in range(1, 2000)])
    out = read("kafka", tmp_path, lambda: spark, {"broker:9092": broker.address, "/rides": "/page"})
    assert "page/" in out and "Done: 1,995 rows in 1 batch, 4 records rejected." in out, out
