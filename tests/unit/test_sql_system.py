"""system.*: what a warehouse tells about itself. Names and columns are a promise, so they are a tested list."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.model.delivery import SliceId
from tidewheel.sql import system
from tidewheel.sql.system import TABLES
from tidewheel.testing.abandon import abandon
from tidewheel.testing.probe import Probe, owner_of

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])
DAY = dt.datetime(2026, 1, 1)

PROMISED = {
    "tables": "name, key, key_rule, time, time_unit, partition, columns, rows, fresh_rows, historical_rows, chunks, trees, sealed_trees, "
    "memory_bytes, disk_bytes, generation",
    "columns": "table_name, column_name, position, type, nullable, is_key, is_time, field_id",
    "statistics": "table_name, column_name, type, rows, nulls, least, greatest, distinct_estimate",
    "chunks": "table_name, id, file, container, format, server, late, rows, bytes, key_lo, key_hi, time_lo, time_hi, first_time, "
    "last_time, generation_lo, generation_hi",
    "partitions": "table_name, partition_start, partition_end, historical_rows, chunks",
    "servers": "table_name, server, key_lo, key_prefix, fresh_rows, late_rows, memory_bytes",
    "streams": "table_name, stream, last_batch, rows, flushed",
    "derived": "table_name, sources, mode, incremental, partitions, stale, stale_since, stale_seconds, refreshed_at, begin_at, language, "
    "definition, made_with",
    "refreshes": "table_name, refresh, mode, began, milliseconds, partitions, changed, rows_read, rows_written, vector",
    "metrics": "table_name, name, value",
    "queries": "id, statement, state, started, milliseconds, rows, bytes, regions_considered, regions_read, leaves_read, leaves_skipped, "
    "rows_scanned, error",
    "rejects": "table_name, rejected_at, position, column_name, reason, row, package, stream, batch, origin",
    "settings": "name, value, default_value, changed",
    "recovery": "table_name, seconds, owner_pid, segments, log_bytes, batches, rows, cut_bytes, dropped, damage",
}


def rows(first: int, n: int) -> list[dict[str, object]]:
    return [{"id": i, "ts": DAY + dt.timedelta(minutes=i), "v": i / 2} for i in range(first, first + n)]


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=64)) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        taxi.insert(rows(0, 100))
        taxi.flush()
        taxi.insert(rows(100, 20))
        wh.create_table("spots", SCHEMA, time="ts", key=tw.zorder("id", "v", bounds=(0, 0, 10, 10)), partition="1 day")
        yield wh


def test_names_and_columns_are_a_promise(wh: tw.Warehouse) -> None:
    assert list(TABLES) == list(PROMISED)
    for name, columns in PROMISED.items():
        assert ", ".join(wh.sql(f"SELECT * FROM system.{name}").schema.names) == columns, name


def test_tables_and_columns(wh: tw.Warehouse) -> None:
    spots, taxi = wh.sql("SELECT * FROM system.tables ORDER BY name").to_pylist()
    assert (taxi["key"], taxi["key_rule"], taxi["rows"], taxi["fresh_rows"], taxi["historical_rows"]) == ("id", "column", 120, 20, 100)
    assert (spots["key"], spots["key_rule"], spots["partition"], spots["rows"]) == ("id, v", "zorder", "1 day", 0)
    found = wh.sql("SELECT column_name, type, is_key, is_time FROM system.columns WHERE table_name = 'taxi' ORDER BY position").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("id", "int64", True, False),
        ("ts", "timestamp[us]", False, True),
        ("v", "double", False, False),
    ]


def test_chunks_partitions_and_servers(wh: tw.Warehouse) -> None:
    (chunk,) = wh.sql("SELECT * FROM system.chunks").to_pylist()
    assert (chunk["table_name"], chunk["rows"], chunk["key_lo"], chunk["key_hi"], chunk["first_time"]) == ("taxi", 100, 0, 99, DAY)
    assert [row["historical_rows"] for row in wh.sql("SELECT * FROM system.partitions ORDER BY partition_start").to_pylist()] == [60, 40]
    (server,) = wh.sql("SELECT * FROM system.servers").to_pylist()
    assert (server["table_name"], server["fresh_rows"], server["late_rows"]) == ("taxi", 20, 0)


def test_servers_before_the_first_flush(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(indexing_servers=2)) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        assert len(wh.sql("SELECT * FROM system.servers")) == 0
        taxi.insert(rows(0, 100))
        found = wh.sql("SELECT server, fresh_rows FROM system.servers ORDER BY server").to_pylist()
        assert [row["server"] for row in found] == [0, 1] and sum(row["fresh_rows"] for row in found) == 100


def test_they_can_be_joined_and_filtered(wh: tw.Warehouse) -> None:
    statement = (
        "SELECT t.name, sum(c.rows) AS n FROM system.tables t LEFT JOIN system.chunks c ON c.table_name = t.name GROUP BY 1 ORDER BY 1"
    )
    assert wh.sql(statement).to_pylist() == [{"name": "spots", "n": None}, {"name": "taxi", "n": 100}]
    assert wh.sql("SELECT chunks.rows AS n FROM system.chunks, taxi WHERE taxi.id = 3").to_pylist() == [{"n": 100}]
    assert len(wh.sql("DESCRIBE system.tables")) == 16
    assert wh.sql("SELECT count(*) AS n FROM System.Tables AS x WHERE x.rows > 0").to_pylist() == [{"n": 1}]


def test_streams(wh: tw.Warehouse) -> None:
    table = Probe(wh.table("taxi"))
    for batch in range(3):
        slice_id = SliceId("s", "run", batch, 0, 0)
        table.stage(slice_id, [pa.RecordBatch.from_pylist(rows(1000 + batch, 5), SCHEMA)], SCHEMA)
        table.commit_batch("s", "run", batch, [slice_id])
        found = wh.sql("SELECT stream, last_batch, rows, flushed FROM system.streams").to_pylist()
        assert found == [{"stream": "s", "last_batch": batch, "rows": 5, "flushed": False}]
        if batch == 1:
            table.flush()
    table.flush()
    assert wh.sql("SELECT last_batch, flushed FROM system.streams").to_pylist() == [{"last_batch": 2, "flushed": True}]


def test_rejects_are_read_as_far_as_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.open(tmp_path / "many", settings=tw.Settings(batch_rows=500)) as wh:
        check_rejects(wh, monkeypatch)


def check_rejects(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = wh.create_table("many", pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="k")
    for _ in range(4):
        table.insert([{"k": None, "ts": 1}] * 2500, on_bad="reject")
        table.flush()
    read: list[int] = []
    batches = system._rejected

    def counted(*given: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(*given):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(system, "_rejected", counted)
    twice = "SELECT count(*) AS n FROM system.rejects a JOIN system.rejects b USING (rejected_at, position)"
    assert wh.sql(twice).to_pylist()[0]["n"] >= 10_000
    assert sum(read) >= 20_000
    read.clear()
    assert len(wh.sql("SELECT * FROM system.rejects LIMIT 1").to_pylist()) == 1
    assert sum(read) < 10_000
    assert len(pickle.loads(pickle.dumps(system.system_table(owner_of(wh), "rejects")))) == 10_000  # as for a statement that runs apart
    ordered = table.rejects().to_arrow()["rejected_at"].to_pylist()
    assert len(ordered) == 10_000 and ordered == sorted(ordered)


def test_rejects_settings_and_queries(wh: tw.Warehouse) -> None:
    wh.table("taxi").insert([{"id": None, "ts": DAY, "v": 1.0}], on_bad="reject", package="p")
    (reject,) = wh.sql("SELECT * FROM system.rejects").to_pylist()
    assert (reject["table_name"], reject["column_name"], reject["package"]) == ("taxi", "id", "p")
    assert wh.sql("SELECT name, value FROM system.settings WHERE changed").to_pylist() == [{"name": "leaf_rows", "value": "64"}]
    wh.sql("SELECT v FROM taxi WHERE id = 3").to_arrow()
    with pytest.raises(tw.QueryError):
        wh.sql("SELECT error('on purpose')").to_arrow()
    done, failed = wh.sql("SELECT * FROM system.queries ORDER BY id").to_pylist()[-2:]
    assert (done["statement"], done["state"], done["rows"], done["leaves_read"]) == ("SELECT v FROM taxi WHERE id = 3", "done", 1, 1)
    assert failed["state"] == "failed" and "on purpose" in failed["error"] and done["milliseconds"] > 0


def test_recovery(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    assert wh.sql("SELECT * FROM system.recovery").to_pylist() == []
    wh.create_table("taxi", SCHEMA, time="ts", key="id").insert(rows(0, 7))
    abandon(wh)
    with tw.open(tmp_path / "wh") as wh:
        (found,) = wh.sql("SELECT table_name, rows, batches FROM system.recovery").to_pylist()
        assert found == {"table_name": "taxi", "rows": 7, "batches": 1}
