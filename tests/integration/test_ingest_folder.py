"""From a folder into a table: each file once and whole, broken ones in the rejects; and the sources for trials."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tidewheel as tw
import tidewheel.spark as tws
from tidewheel.errors import InputError, NotFoundError
from tidewheel.spark.sources.stream_watch import StreamWatch


def until(done: Callable[[], bool], query: Any, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < end, (query.status, query.lastProgress)
        time.sleep(0.05)


def csv(first: int, count: int, bad: bool = False) -> bytes:
    lines = [f"{i},2026-01-01T00:00:{i % 60:02d},{i / 2}" for i in range(first, first + count)]
    if bad:
        lines[count // 2] = f"{first + count // 2},never,1"
        lines.append("one,field,too,many")
    return "\n".join(["plate,ts,speed", *lines, ""]).encode()


def put(folder: Path, name: str, data: bytes) -> None:
    """A file appears whole: it is written under another name, as whoever fills such a folder should."""
    folder.mkdir(exist_ok=True)
    draft = folder / f".{name}"
    draft.write_bytes(data)
    draft.rename(folder / name)


def keys(table: tw.Table) -> list[int]:
    return sorted(table.query(columns=["plate"]).to_arrow()["plate"].to_pylist())


def test_files_as_they_come(spark: SparkSession, tmp_path: Path) -> None:
    folder, root = tmp_path / "in", tmp_path / "wh"
    put(folder, "a.csv", csv(0, 1000))
    with tw.open(root) as wh:  # so that no owner outlives the test
        query = tws.ingest(spark, str(folder), root / "taxi", time="ts", key="plate", trigger="100ms")
        taxi = wh.table("taxi")
        assert taxi.schema == pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("speed", pa.float64())])
        watch = StreamWatch(query, taxi.metrics)
        until(lambda: taxi.rows == 1000, query)
        put(folder, "b.csv.gz", gzip.compress(csv(1000, 1000)))
        put(folder, "broken.csv.gz", gzip.compress(csv(5000, 1000))[:-100])
        put(folder, "c.csv", csv(2000, 1000, bad=True))
        (folder / "deeper").mkdir()
        lines = [json.dumps({"plate": i, "ts": "2026-01-01T00:00:00", "speed": i}) for i in range(3000, 4000)]
        put(folder / "deeper", "d.jsonl", "\n".join([*lines[:500], "{", *lines[500:]]).encode())
        pq.write_table(pa.table({"speed": [0.5] * 1000, "ts": ["2026-01-01"] * 1000, "plate": range(4000, 5000)}), folder / "_e.parquet")
        (folder / "_e.parquet").rename(folder / "e.parquet")
        put(folder, "notes.txt", b"nothing to read")
        rejected = 4  # a time, a line with a field too many, a line of JSON, a file
        until(lambda: taxi.rows + len(taxi.rejects()) == 4999 + rejected, query)
        seen = watch.look()
        assert seen.rows == 4999 - 1000 * (seen.rows < 4999) and seen.rejected == rejected and seen.batches >= 1
        until(lambda: watch.look().oldest is not None, query)
        assert 0 <= (watch.look().oldest or 0) < 300
        query.stop()
        assert keys(taxi) == [i for i in range(5000) if i != 2500]
        rejects = {r["origin"].rpartition("/in/")[2]: r for r in taxi.rejects().to_arrow().to_pylist()}
        assert sorted(rejects) == ["broken.csv.gz", "c.csv:1002", "c.csv:502", "deeper/d.jsonl:501"]
        assert "Truncated compressed stream" in rejects["broken.csv.gz"]["reason"]
        assert rejects["c.csv:502"]["row"] == "2500,never,1" and rejects["c.csv:502"]["package"].endswith("/in/c.csv")
        assert rejects["c.csv:1002"]["reason"] == "has 4 fields, not 3"

        # the checkpoint is lost, and the folder is read again: no file twice, but the mended one
        shutil.rmtree(root / "streams")
        put(folder, "broken.csv.gz", gzip.compress(csv(5000, 1000)))
        put(folder, "f.csv", csv(6000, 10))
        tws.ingest(spark, str(folder), root / "taxi", trigger="once").awaitTermination()
        assert keys(taxi) == [i for i in range(6010) if i != 2500] and len(taxi.rejects()) == rejected

        # as packages they are known to everybody
        [stream] = os.listdir(root / "streams")
        assert taxi.insert([], package=f"file:{folder}/a.csv").duplicate and stream.startswith("taxi-")


def test_one_file(spark: SparkSession, tmp_path: Path) -> None:
    """As `tidewheel create --from FILE` advises."""
    put(tmp_path, "a.csv", csv(0, 100))
    put(tmp_path, "b.csv", csv(100, 100))
    with tw.open(tmp_path / "wh") as wh:
        tws.ingest(spark, str(tmp_path / "a.csv"), tmp_path / "wh" / "taxi", time="ts", key="plate", trigger="once").awaitTermination()
        assert keys(wh.table("taxi")) == list(range(100))


def test_what_cannot_work_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    folder, path = tmp_path / "in", tmp_path / "wh" / "t"
    make = {"time": "ts", "key": "plate"}
    with tw.open(tmp_path / "wh") as wh:
        with pytest.raises(NotFoundError, match="there is no folder"):
            tws.ingest(spark, str(folder), path, **make)
        put(folder, "a.csv.gz", b"nonsense")
        with pytest.raises(InputError, match=r"none of the first files .*a\.csv\.gz: zlib"):
            tws.ingest(spark, str(folder), path, **make)
        put(folder, "b.csv", csv(0, 10))
        with pytest.raises(InputError, match="has no offset to fill a column with"):
            tws.ingest(spark, str(folder), path, **make, meta=["offset"])
        with pytest.raises(InputError, match=r"unknown option 'timeformat'.*Did you mean 'time_format'"):
            tws.ingest(spark, str(folder), path, **make, timeformat="epoch-s")
        assert wh.tables() == []
        tws.ingest(spark, str(folder), path, **make, trigger="once").awaitTermination()
        assert wh.table("t").rows == 10
        wh.drop_table("t")
        with pytest.raises(InputError, match=r"has been read before\. To read it again from the start, remove"):
            tws.ingest(spark, str(folder), path, **make)


def test_rate_and_socket(spark: SparkSession, tmp_path: Path) -> None:
    with tw.open(tmp_path) as wh, socket.create_server(("127.0.0.1", 0)) as server:
        ticks = tws.ingest(spark, "rate://500", tmp_path / "ticks", time="timestamp", key="value")
        ready = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                ready.wait(60)
                connection.sendall(b'{"plate": 1, "ts": "2026-01-01"}\nnonsense\n{"plate": 2, "ts": "2026-01-01"}\n')
                ready.clear()
                ready.wait(60)

        talking = threading.Thread(target=serve, daemon=True)
        talking.start()
        source = f"socket://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(NotFoundError, match="Create it first"):
            tws.ingest(spark, source, tmp_path / "lines", time="ts", key="plate")
        lines = wh.create_table("lines", pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="plate")
        query = tws.ingest(spark, source, tmp_path / "lines")
        ready.set()
        until(lambda: lines.rows == 2 and len(lines.rejects()) == 1, query)
        assert lines.rejects().to_arrow().to_pylist()[0]["origin"] == source
        query.stop()
        ready.set()
        talking.join(10)
        table = wh.table("ticks")
        until(lambda: table.rows >= 500, ticks)
        ticks.stop()
        found = sorted(table.query(columns=["value"]).to_arrow()["value"].to_pylist())
        assert found == list(range(len(found)))
