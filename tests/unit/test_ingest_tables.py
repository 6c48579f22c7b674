"""What a source is called, what its first records say about a table, and what is shown of a stream. No Spark in here."""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import io
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tidewheel.errors import InputError, SchemaError
from tidewheel.ingest.infer import epoch_unit, type_of, type_of_texts
from tidewheel.ingest.new_table import NewTable, define
from tidewheel.ingest.rules import FILES, MESSAGES, Rules
from tidewheel.ingest.sample import Sample
from tidewheel.metrics import TableMetrics
from tidewheel.model.schema import epoch, zorder
from tidewheel.spark.ingestion import IngestRequest, check, trigger
from tidewheel.spark.sources.folder import FolderSource
from tidewheel.spark.sources.kafka import KafkaSource
from tidewheel.spark.sources.rate import RateSource
from tidewheel.spark.sources.socket import SocketSource
from tidewheel.spark.sources.source_address import parse_source
from tidewheel.spark.sources.stream_source import stream_name
from tidewheel.spark.sources.stream_watch import Seen, StreamWatch
from tidewheel.surfaces import cli, ingest_command
from tidewheel.surfaces.progress_view import View, facts

US = pa.timestamp("us", "UTC")


def test_addresses() -> None:
    assert parse_source("kafka://a,b:9093/x,y?security.protocol=SSL") == KafkaSource(
        "a:9092,b:9093", ("x", "y"), {"security.protocol": "SSL"}
    )
    assert parse_source("kafka://a,b:9093/x,y?sasl.password=hush").address == "kafka://a:9092,b:9093/x,y"
    assert parse_source("rate://1_000") == RateSource(1000) and parse_source("socket://a:99") == SocketSource("a", 99)
    assert parse_source("data/in") == FolderSource("data/in") and parse_source("s3a://bucket/in") == FolderSource("s3a://bucket/in")
    assert parse_source("data/in").address == os.path.abspath("data/in") and not FolderSource("s3a://bucket/in").local
    for wrong in ("", "kafka://a", "kafka://a/", "rate://", "rate://0", "rate://x", "socket://a", "https://a/b", "postgresql://a/b"):
        with pytest.raises(InputError):
            parse_source(wrong)


def test_a_stream_has_the_same_name_at_every_start_and_no_other_s() -> None:
    names = [stream_name("taxi", parse_source(s)) for s in ("kafka://a/x", "kafka://a:9092/x", "kafka://a/y", "a/b", "a-b")]
    assert names[0] == names[1] and len(set(names)) == 4 and all(n.startswith("taxi-") and "/" not in n for n in names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "2500 milliseconds"),
        ("0", "0 milliseconds"),
        ("1s", "1000 milliseconds"),
        ("500 ms", "500 milliseconds"),
        ("0.5", "500 milliseconds"),
    ],
)
def test_triggers(text: str | None, expected: str) -> None:
    assert trigger(text, 2.5) == {"processingTime": expected}
    assert trigger("once", 0) == {"availableNow": True}
    with pytest.raises(InputError, match="a trigger is"):
        trigger("often", 0)


def test_what_cannot_work_is_found_without_spark(tmp_path: Path) -> None:
    path = str(tmp_path / "taxi")
    plan = check(IngestRequest("kafka://a/x", path))
    assert plan.rules.payload == "json" and plan.checkpoint == str(tmp_path / "streams" / plan.name)
    assert check(IngestRequest("in", path)).rules == Rules(FILES)
    for wrong in ({"payload": "xml"}, {"delimiter": ",,"}, {"extra": "drop"}, {"time_format": "seconds"}, {"kind": "x"}, {"meta": {}}):
        with pytest.raises(InputError):
            check(IngestRequest("kafka://a/x", path, rules=wrong))
    with pytest.raises(InputError, match="is a word"):
        check(IngestRequest("kafka://a/x", path, name="a/b"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None, 2], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([1 << 70], pa.string()),
        ([True, None], pa.bool_()),
        ([True, 1], pa.string()),
        (["a", "b"], pa.string()),
        (["2026-01-01T00:00:00Z", "2026-01-01 00:00:00.123+02:00"], US),
        (["2026-01-01T00:00:00.123456789"], pa.timestamp("ns", "UTC")),
        ([None], pa.string()),
        ([[1], [2.5, None]], pa.list_(pa.float64())),
        ([{"a": 1}, {"b": ["x"]}], pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        ([{}], pa.string()),
        ([1] * 99 + ["?"], pa.int64()),
        ([1] * 5 + ["?"] * 5, pa.string()),
        ([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], US),
        ([dt.date(2026, 1, 1)], pa.date32()),
        ([Decimal("1.25")], pa.decimal128(3, 2)),
        ([b"x"], pa.binary()),
    ],
)
def test_types_of_values(values: list[Any], expected: pa.DataType) -> None:
    assert type_of(values) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "-2", None], pa.int64()),
        (["1", "2.5", "1e3", "nan"], pa.float64()),
        (["007", "12"], pa.string()),
        (["1"] * 50 + ["x"], pa.int64()),
        (["0"] * 950 + ["0.5"] * 50, pa.float64()),
        (["0"] * 950 + ["9" * 20], pa.int64()),
        (["0"] * 950 + ["007"] * 50, pa.int64()),
        (["true", "False"], pa.bool_()),
        (["2026-01-01"], pa.date32()),
        (["2026-01-01 10:00"], US),
        (["2026-01-01"] * 99 + ["2026-01-01 10:00"], US),
        (["2026-01-01"] * 99 + ["unknown"], pa.date32()),
        (["2026-01-01", "2026-01-01 10:00"], US),
        (["a"], pa.string()),
        ([None], pa.string()),
    ],
)
def test_types_of_texts(texts: list[str | None], expected: pa.DataType) -> None:
    assert type_of_texts(texts) == expected


def test_the_unit_of_numbers_is_told_by_their_size() -> None:
    now = 1_767_225_600
    assert [epoch_unit([now * k]) for k in (1, 1000, 10**6, 10**9)] == ["s", "ms", "us", "ns"]
    assert epoch_unit([12]) == "" and epoch_unit([]) == "" and epoch_unit([0, now, now]) == "s"


def sample(rows: list[dict[str, Any]]) -> Sample:
    return Sample.of_messages([json.dumps(r).encode() for r in rows], Rules(MESSAGES, "json"), "kafka://a/x")


def table(rows: list[dict[str, Any]], time: Any = "ts", key: Any = "k", time_format: str = "", **meta: pa.DataType) -> NewTable:
    return define("t", sample(rows), meta, time=time, key=key, partition="1 hour", time_format=time_format)


@pytest.mark.parametrize(
    ("ts", "format_", "expected", "then"),
    [
        ("2026-01-01T00:00:00Z", "", US, ""),
        ("2026-01-01", "", US, ""),
        (1767225600, "", pa.timestamp("s", "UTC"), ""),
        (1767225600000, "", pa.timestamp("ms", "UTC"), ""),
        (1767225600.5, "", US, "epoch-s"),
        (1767225600, "epoch-s", pa.timestamp("s", "UTC"), "epoch-s"),
        ("01/02/2026", "%d/%m/%Y", US, "%d/%m/%Y"),
    ],
)
def test_the_time_of_a_new_table(ts: Any, format_: str, expected: pa.DataType, then: str) -> None:
    new = table([{"k": 1, "ts": ts}] * 3, time_format=format_)
    assert new.spec.schema.field("ts").type == expected and new.time_format == then and new.spec.schema.names == ["k", "ts"]
    assert bool(new.notes) == (isinstance(ts, (int, float)) and not format_)


def test_a_new_table_says_what_it_lacks() -> None:
    rows = [{"k": 1, "ts": "noon", "n": 5}]
    for wrong, said in (
        ({"time": None, "key": None}, "--time ts --key plate). Columns of the first 1 records of kafka://a/x: k, ts, n"),
        ({"key": "kk"}, "key column 'kk' is not in the schema of table 't'. Did you mean 'k'?"),
        ({}, "'noon' is not an ISO time; say how it is written"),
        ({"time": "n"}, "holds numbers such as 5, whose unit cannot be told"),
        ({"time_format": "epoch-s"}, "'noon' does not have the time format epoch-s"),
    ):
        with pytest.raises(SchemaError) as error:
            table(rows if said.startswith(("'", "holds", "--time")) else [{"k": 1, "ts": "2026-01-01"}], **wrong)
        assert said in str(error.value)


def test_columns_from_around_the_message_can_be_time_and_key() -> None:
    new = table([{"v": 1}], time="_timestamp", key="_key", _timestamp=US, _key=pa.string())
    assert new.spec.schema.names == ["v", "_timestamp", "_key"]
    new = table([{"x": 1, "y": 2, "ms": 1767225600000}], time=epoch("ms", "ms"), key=zorder("x", "y", bounds=(0, 0, 1, 1)))
    assert new.spec.schema.field("ms").type == pa.int64()


def test_samples_of_messages() -> None:
    rules = Rules(MESSAGES, "csv", columns=("k", "ts"))
    assert Sample.of_messages([b"1,2026-01-01T00:00:00", b"broken", b"2,2026-01-01T00:00:01"], rules, "x").schema == pa.schema(
        [("k", pa.int64()), ("ts", US)]
    )
    with pytest.raises(InputError, match="have no header"):
        Sample.of_messages([b"1,2"], Rules(MESSAGES, "csv"), "x")
    with pytest.raises(InputError, match="fields separated by"):
        Sample.of_messages([b"1"], rules, "x")
    with pytest.raises(InputError, match="is a JSON object"):
        Sample.of_messages([b"<xml/>"], Rules(MESSAGES, "json"), "x")
    schema = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "long"}, {"name": "s", "type": ["null", "string"]}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"k": 1, "s": "a"})
    found = Sample.of_messages([out.getvalue(), b""], Rules(MESSAGES, "avro", avro_schema=json.dumps(schema)), "x")
    assert found.schema == pa.schema([("k", pa.int64()), ("s", pa.string())])


def test_samples_of_files(tmp_path: Path) -> None:
    wanted = pa.schema([("k", pa.int64()), ("ts", US)])
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"k,ts\n1,2026-01-01T00:00:00\n"))
    (tmp_path / "b.json").write_text(json.dumps([{"k": 1, "ts": "2026-01-01T00:00:00"}], indent=1))
    pq.write_table(pa.table({"k": [1], "ts": pa.array([0], US)}), tmp_path / "c.parquet")
    with pa.OSFile(str(tmp_path / "d.arrow"), "wb") as sink, pa.ipc.new_file(sink, wanted) as writer:
        writer.write_table(wanted.empty_table())
    for path in tmp_path.iterdir():
        assert Sample.of_file(f"file:{path}", None, Rules(FILES)).schema == wanted, path


class FakeQuery:
    lastProgress: Any = None


def test_a_stream_in_numbers() -> None:
    query, now = FakeQuery(), [100.0]
    metrics = TableMetrics(rows=50, rejected=1)
    watch = StreamWatch(query, lambda: metrics, lambda: now[0])
    assert watch.look() == Seen()
    metrics.rows, metrics.rejected, now[0] = 250, 4, 102.0
    query.lastProgress = {
        "batchId": 7, "numInputRows": 203, "timestamp": "2026-01-01T00:00:00.000Z", "durationMs": {"triggerExecution": 500},
        "sources": [{"latestOffset": '{"x": {"0": 100, "1": 50}}', "endOffset": {"x": {"0": 90, "1": 50}}}],
        "observedMetrics": {"tidewheel": {"oldest": 1767225598_000_000, "newest": 1767225599_900_000}},
    }  # fmt: skip
    seen = watch.look()
    assert (seen.batches, seen.rows, seen.rejected, seen.rows_per_second, seen.behind) == (1, 200, 3, 100.0, 10)
    assert seen.newest == pytest.approx(0.6) and seen.oldest == pytest.approx(2.5) and seen.batch_seconds == 0.5
    metrics.rows, metrics.rejected = 20, 0  # another owner counts from 0
    assert (watch.look().rows, watch.look().rejected) == (220, 3)
    query.lastProgress = {
        **query.lastProgress,
        "numInputRows": 0,
        "batchId": 8,
        "sources": [{"latestOffset": None, "endOffset": {"logOffset": 3}}],
    }
    seen = watch.look()
    assert (seen.batches, seen.behind, seen.newest) == (1, None, None)
    assert ("visible after", "600 ms .. 2.50 s") in facts(Seen(newest=0.6, oldest=2.5)) and dict(facts(Seen(behind=1000)))[
        "behind"
    ] == "1,000"


def test_plain_lines_only_when_something_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    view = View(Console(file=out, width=200))
    metrics = TableMetrics()
    monkeypatch.setattr("tidewheel.surfaces.progress_view.LINE_EVERY", 0.0)
    with view.live(StreamWatch(FakeQuery(), lambda: metrics)):
        view.show()
        metrics.rows = 1234
        view.show()
        view.show()
    assert out.getvalue().count("\n") == 1 and "rows 1,234  rejected 0" in out.getvalue()
    view.summary(argparse.Namespace(place=argparse.Namespace(root="wh", table="t")), Seen(2, 1, 3), stopped=True)  # type: ignore[arg-type]
    assert "Stopped: 1 row in 2 batches, 3 records rejected.\nWhy: tw.open('wh').table('t').rejects()" in out.getvalue()


def test_what_went_wrong_is_told_in_our_words() -> None:
    text = "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n  File x\n"
    assert ingest_command.why(text + "tidewheel.errors.BadRowsError: table 't': no\n\tat y") == "table 't': no"
    assert ingest_command.why("[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n at x") == "Job aborted"


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEWHEEL_WAREHOUSE", raising=False)
    assert cli.main(["ingest", "t", "--from", "rate://1"]) == 2
    assert cli.main(["ingest", "t", "-w", str(tmp_path)]) == 2
    assert cli.main(["ingest", "t", "-w", str(tmp_path), "--from", "rate://1", "--option", "x"]) == 2
    assert cli.main(["ingest", "t", "-w", str(tmp_path), "--from", "kafka://a"]) == 1
    assert cli.main(["ingest", "t", "-w", str(tmp_path), "--from", "rate://1", "--once", "--trigger", "1s"]) == 1
    said = capsys.readouterr().err
    assert (
        "which warehouse?" in said
        and "--from" in said
        and "NAME=VALUE" in said
        and "kafka://host:port/topic" in said
        and "leave out --trigger" in said
    )
