"""Files into a table: every format, whole or not at all, once; what is read is what was written, and the rest is in the rejects."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.conftest import examples
from tidewheel.engine import file_loader, load
from tidewheel.engine.file_loader import FileLoader
from tidewheel.ingest import csv_blocks, file_rows
from tidewheel.ingest.found_files import found_files
from tidewheel.model.schema import make_spec

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("plate", pa.int64()), ("ts", UTC), ("speed", pa.float64()), ("note", pa.string())])
SPEC = make_spec("taxi", SCHEMA, time="ts", key="plate")
START = 1_767_225_600_000_000
ROWS = pa.table(
    [
        pa.array(np.arange(1000) % 50), pa.array(START + np.arange(1000) * 1_000_000, pa.int64()).cast(UTC),
        pa.array(np.where(np.arange(1000) % 7 == 0, None, np.arange(1000) / 2), pa.float64()),
        pa.array([None if i % 5 == 0 else f"n, {i}" for i in range(1000)]),
    ],
    schema=SCHEMA,
)  # fmt: skip


def csv_bytes(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pcsv.write_csv(table, out)
    return out.getvalue().to_pybytes()


def json_bytes(table: pa.Table) -> bytes:
    return b"\n".join(json.dumps(row, default=lambda t: t.isoformat()).encode() for row in table.to_pylist())


def arrow_bytes(table: pa.Table, make: Callable[..., Any]) -> bytes:
    out = pa.BufferOutputStream()
    with make(out, table.schema) as writer:
        writer.write_table(table, 100)
    return out.getvalue().to_pybytes()


def parquet_bytes(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, row_group_size=300)
    return out.getvalue().to_pybytes()


def avro_bytes(table: pa.Table) -> bytes:
    import io

    out = io.BytesIO()
    fields = [
        {"name": "plate", "type": ["null", "long"]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "speed", "type": ["null", "double"]},
        {"name": "note", "type": ["null", "string"]},
    ]
    fastavro.writer(out, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), table.to_pylist())
    return out.getvalue()


FORMATS: dict[str, Callable[[pa.Table], bytes]] = {
    "csv": csv_bytes,
    "jsonl": json_bytes,
    "parquet": parquet_bytes,
    "arrow": lambda table: arrow_bytes(table, pa.ipc.new_file),
    "arrows": lambda table: arrow_bytes(table, pa.ipc.new_stream),
    "avro": avro_bytes,
}
CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.Codec("zstd").compress(data).to_pybytes(),
}


@pytest.fixture
def wh(tmp_path: Path) -> Any:
    with tw.open(tmp_path / "wh") as wh:
        yield wh


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def content(table: tw.Table) -> list[dict[str, Any]]:
    return sorted(table.query().to_arrow().to_pylist(), key=repr)


def same(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


# ---- formats -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
def test_every_format_and_compression(wh: tw.Warehouse, files: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each brings the same rows, whether they go through the trees or are written as chunks."""
    if large:
        monkeypatch.setattr(file_loader, "LARGE", 0)
    for kind, make in FORMATS.items():
        for codec in ("", *CODECS):
            name = f"a.{kind}.{codec}" if codec else f"a.{kind}"
            data = make(ROWS)
            (files / name).write_bytes(CODECS[codec](data) if codec else data)
            table = f"{kind}_{codec}"
            report = wh.load(table, files / name, time="ts", key="plate", threads=2)
            assert (report.rows, report.rejected, report.created, len(report)) == (1000, 0, True, 1), name
            assert content(wh.table(table)) == same(ROWS), name
            assert (wh.table(table).state().fresh_rows == 0) == large, name
            again = wh.load(table, files / name)
            assert (again.rows, again.duplicates) == (0, 1) and again.files[0].duplicate, name


def test_large_files_within_a_compression_are_refused(wh: tw.Warehouse, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_rows, "MOST_UNPACKED", 1000)
    wh.create_table("taxi", SCHEMA, time="ts", key="plate")
    for kind in ("parquet", "arrow"):
        (files / f"a.{kind}.gz").write_bytes(gzip.compress(FORMATS[kind](ROWS)))
        with pytest.raises(tw.InputError, match="such files are read as a whole: unpack it first"):
            wh.load("taxi", files / f"a.{kind}.gz")
    assert wh.table("taxi").rows == 0


def test_no_more_of_a_file_is_held_than_makes_it_large(wh: tw.Warehouse, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row group that unpacks to much more than its bytes: what comes after the first batches goes straight into chunks, in order."""
    monkeypatch.setattr(file_loader, "LARGE", 20_000)
    monkeypatch.setattr(file_rows, "MANY_ROWS", 100)
    pq.write_table(ROWS.replace_schema_metadata(None), files / "a.parquet", compression="zstd")
    held: list[int] = []
    written = FileLoader._write

    def watched(self: FileLoader, *given: Any) -> Any:
        held.append(sum(batch.num_rows for batch in given[-1]))
        return written(self, *given)

    monkeypatch.setattr(FileLoader, "_write", watched)
    assert wh.load("taxi", files / "a.parquet", time="ts", key="plate").rows == 1000
    assert 0 < held[0] < 1000 and held[0] % 100 == 0
    assert content(wh.table("taxi")) == same(ROWS)


def test_patterns_folders_and_lists(wh: tw.Warehouse, files: Path) -> None:
    (files / "deep" / "er").mkdir(parents=True)
    (files / ".hidden.csv").write_text("nonsense")
    (files / "readme.md").write_text("no rows")
    for n, name in enumerate(["b.csv", "a.parquet", "deep/c.jsonl", "deep/er/d.csv.gz"]):
        part = ROWS.slice(250 * n, 250)
        data = FORMATS[name.removesuffix(".gz").rpartition(".")[2]](part)
        (files / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    report = wh.load("taxi", str(files / "*.csv"), time="ts", key="plate")
    assert [Path(file.file).name for file in report] == ["b.csv"]
    report = wh.load("taxi", [files / "a.parquet", str(files / "**" / "*.jsonl"), files])
    assert [(Path(f.file).name, f.duplicate) for f in report] == [
        ("a.parquet", False), ("c.jsonl", False), ("b.csv", True), ("d.csv.gz", False)
    ]  # fmt: skip
    assert content(wh.table("taxi")) == same(ROWS)
    with pytest.raises(tw.NotFoundError, match="no file is like"):
        wh.load("taxi", str(files / "*.tsv"))
    with pytest.raises(tw.NotFoundError, match="there is no file"):
        wh.load("taxi", files / "x.csv")
    with pytest.raises(tw.InputError, match="this machine"):
        wh.load("taxi", "s3://bucket/x.csv")


def test_names_that_say_nothing_need_a_payload(wh: tw.Warehouse, files: Path) -> None:
    (files / "log").write_text("7;31/12/2025 23:59;-\n8;01/01/2026 00:00;x;y\n")
    with pytest.raises(tw.InputError, match="its name says no format"):
        wh.load("trips", files / "log", time="ts", key="plate")
    how: dict[str, Any] = dict(payload="csv", columns=["plate", "ts", "note"], delimiter=";", nulls=["-"], time_format="%d/%m/%Y %H:%M")
    report = wh.load("trips", files / "log", time="ts", key="plate", **how)
    assert (report.rows, report.rejected) == (1, 1)
    row = wh.table("trips").query().to_arrow().to_pylist()[0]
    assert (row["plate"], row["ts"].isoformat(), row["note"]) == (7, "2025-12-31T23:59:00+00:00", None)


def test_numbers_that_are_times(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.csv").write_text("id,at\n1,1767225600\n2,1767225601\n")
    (files / "b.csv").write_text("id,at\n3,1767225602\n")
    report = wh.load("seen", files / "a.csv", time="at", key="id")
    assert report.rows == 2 and "epoch-s" in report.notes[0]
    assert wh.load("seen", files).rows == 1, "as the table has them"
    assert wh.table("seen").schema.field("at").type == pa.timestamp("s", "UTC")
    assert wh.table("seen").query(time=("2026-01-01T00:00:02Z", None)).to_arrow()["id"].to_pylist() == [3]


@pytest.mark.parametrize(
    ("common", "rare", "type_"), [("0", "0.5", pa.float64()), ("2026-01-01", "2026-01-01 10:30:00", UTC), ("-3", "x", pa.int64())]
)
def test_values_that_are_rare_are_no_rejects_where_a_type_has_room(
    wh: tw.Warehouse, files: Path, common: str, rare: str, type_: pa.DataType
) -> None:
    lines = [f"{i},2026-01-01T00:00:{i % 60:02},{rare if i % 20 == 7 else common}" for i in range(1000)]
    (files / "a.csv").write_text("\n".join(["k,ts,v", *lines]))
    report = wh.load("t", files / "a.csv", time="ts", key="k")
    assert wh.table("t").schema.field("v").type == type_
    assert report.rejected == (50 if rare == "x" else 0)


EPOCH_CSV = "ts,k,day,seen\n1767225600,a,2026-01-01,2026-01-02T03:04:05Z\n"


@pytest.mark.parametrize(
    ("name", "text", "time_format"),
    [
        ("a.csv", f"{EPOCH_CSV}1767225601,b,1767225600,1767323045\n1767225602,c,noon,1767323045\n", ""),
        ("a.csv", f"{EPOCH_CSV.replace('1767225600', '01/01/2026')}01/01/2026,b,01/01/2026,2026-01-02 03:04:05\n01/01/2026,c,noon,\n",
         "%d/%m/%Y"),
        ("a.jsonl", '{"ts": 1767225600, "k": "a", "day": "2026-01-01", "seen": "2026-01-02 03:04:05"}\n'
         '{"ts": 1767225601, "k": "b", "day": 1767225600, "seen": 1767323045}\n{"ts": 1767225602, "k": "c", "day": "noon"}\n', "epoch-s"),
    ],
)  # fmt: skip
def test_times_beside_the_time_column_may_be_iso(wh: tw.Warehouse, files: Path, name: str, text: str, time_format: str) -> None:
    """A time format, said or found, does not spoil columns whose times need none."""
    (files / name).write_text(text)
    schema = pa.schema([("ts", pa.timestamp("s", "UTC")), ("k", pa.string()), ("day", pa.date32()), ("seen", UTC)])
    table = wh.create_table("t", schema, time="ts", key="k")
    report = wh.load("t", files / name, time_format=time_format)
    assert (report.rows, report.rejected) == (2, 1)
    rows = table.query(columns=["day", "seen"]).to_arrow().to_pylist()
    assert [(str(row["day"]), str(row["seen"])) for row in rows] == [("2026-01-01", "2026-01-02 03:04:05+00:00")] * 2
    assert table.rejects().to_arrow()["column"].to_pylist() == ["day"]


def test_a_format_that_was_found_in_one_file_spoils_no_other(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.csv").write_text("ts,k\n1767225600,a\n")
    (files / "b.csv").write_text("ts,k\n2026-01-01T00:00:00Z,b\n2026-01-01,c\nnoon,d\n")
    (files / "c.jsonl").write_text('{"ts": "2026-01-01 00:00:00", "k": "e"}\n')
    report = wh.load("new", files, time="ts", key="k")
    assert [(file.rows, file.rejected) for file in report] == [(1, 0), (2, 1), (1, 0)]
    wh.create_table("old", wh.table("new").schema, time="ts", key="k")
    assert [(file.rows, file.rejected) for file in wh.load("old", files)] == [(1, 0), (2, 1), (1, 0)]
    for table in ("new", "old"):
        assert set(map(str, wh.table(table).query(columns=["ts"]).to_arrow()["ts"].to_pylist())) == {"2026-01-01 00:00:00+00:00"}
    (files / "d.csv").write_text("ts,k\n2026-01-01,a\n")
    assert wh.load("old", files / "d.csv", time_format="epoch-s").rejected == 1, "what was said holds"


def test_a_table_made_of_epoch_times_has_its_dates(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.csv").write_text(EPOCH_CSV)
    assert wh.load("t", files / "a.csv", time="ts", key="k").rows == 1
    assert wh.table("t").query(columns=["day"]).to_arrow()["day"].to_pylist() == [dt.date(2026, 1, 1)]


# ---- once ----------------------------------------------------------------------------------------------------


def test_a_file_that_changed_is_refused_or_loaded_beside(wh: tw.Warehouse, files: Path) -> None:
    path = files / "daily.csv"
    path.write_bytes(csv_bytes(ROWS.slice(0, 10)))
    assert wh.load("taxi", path, time="ts", key="plate").rows == 10
    path.write_bytes(csv_bytes(ROWS.slice(10, 20)))
    with pytest.raises(tw.InputError, match="was loaded into table 'taxi' before, and has changed since .*changed='load'"):
        wh.load("taxi", path)
    assert wh.table("taxi").rows == 10
    assert wh.load("taxi", path, changed="load").rows == 20
    assert wh.load("taxi", path, changed="load").duplicates == 1
    assert wh.load("taxi", path).duplicates == 1
    assert content(wh.table("taxi")) == same(ROWS.slice(0, 30))


def test_a_link_is_the_file_it_leads_to(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.csv").write_bytes(csv_bytes(ROWS))
    (files / "latest.csv").symlink_to(files / "a.csv")
    assert wh.load("taxi", files / "latest.csv", time="ts", key="plate").rows == 1000
    assert wh.load("taxi", files / "a.csv").duplicates == 1


def test_what_was_loaded_is_known_after_reopening(tmp_path: Path, files: Path) -> None:
    (files / "empty.csv").write_text("plate,ts,speed,note\n")
    (files / "few.csv").write_bytes(csv_bytes(ROWS.slice(0, 3)) + b"x,2026-01-01,1,\n")
    for n in range(3):
        with tw.open(tmp_path / "wh") as wh:
            wh.create_table("taxi", SCHEMA, time="ts", key="plate", if_exists="open")
            report = wh.load("taxi", [files / "few.csv", files / "empty.csv"])
            assert (report.rows, report.rejected, report.duplicates) == ((3, 1, 0) if n == 0 else (0, 0, 2))
            assert (wh.table("taxi").rows, len(wh.table("taxi").rejects())) == (3, 1)


# ---- bad ones ------------------------------------------------------------------------------------------------


def test_bad_rows_are_rejected_with_their_place(wh: tw.Warehouse, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["plate,ts,speed,note", "1,2026-01-01,1,a", "", "x,2026-01-01,1,b", "2,2026-01-01,1", ",2026-01-01,1,c", "3,2026-01-01,1e999,d"]
    wh.create_table("taxi", SCHEMA, time="ts", key="plate")
    for large in (False, True):
        monkeypatch.setattr(file_loader, "LARGE", 0 if large else 1 << 20)
        path = files / f"{large}.csv"
        path.write_text("\n".join(lines))
        report = wh.load("taxi", path)
        assert (report.rows, report.rejected) == (1, 4)
    found = wh.table("taxi").rejects().to_arrow().to_pylist()
    for name in ("False", "True"):
        mine = [one for one in found if one["package"] == f"file:{files / name}.csv"]
        assert sorted((one["origin"].rpartition(":")[2], one["column"]) for one in mine) == [
            ("4", "plate"), ("5", ""), ("6", "plate"), ("7", "speed")
        ]  # fmt: skip
        assert "x,2026-01-01,1,b" in [one["row"] for one in mine]


def test_bad_rows_as_errors(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.csv").write_text("plate,ts\n1,2026-01-01\nx,2026-01-01\n")
    (files / "b.csv").write_text("plate,ts\n2,2026-01-01\n")
    wh.create_table("taxi", SCHEMA, time="ts", key="plate")
    with pytest.raises(tw.InputError, match=r"a\.csv:3: plate 'x' doesn't fit.*The other one is in the table"):
        wh.load("taxi", files, on_bad="error")
    assert content(wh.table("taxi"))[0]["plate"] == 2 and not len(wh.table("taxi").rejects())
    (files / "a.csv").write_text("plate,ts\n1,2026-01-01\n")
    assert wh.load("taxi", files, on_bad="error").rows == 1


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_cannot_be_read_leaves_nothing(wh: tw.Warehouse, files: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(file_loader, "LARGE", 0)
    good = parquet_bytes(ROWS)
    (files / "a.parquet").write_bytes(good)
    (files / "no.parquet").write_bytes(b"not a parquet file at all")
    (files / "none.parquet").write_bytes(b"")
    (files / "half.csv.gz").write_bytes(gzip.compress(csv_bytes(ROWS))[:-200])
    with pytest.raises(tw.InputError) as raised:
        wh.load("taxi", files, time="ts", key="plate", threads=2)
    assert "half.csv.gz was not loaded" in str(raised.value) and "2 more" in str(raised.value) and "other one" in str(raised.value)
    assert content(wh.table("taxi")) == same(ROWS)
    assert not any((wh._engine.root / "staging").iterdir()) if large else True
    (files / "half.csv.gz").write_bytes(gzip.compress(csv_bytes(ROWS)))
    assert wh.load("taxi", files / "half.csv.gz").rows == 1000, "once it is mended"


def test_a_file_that_ends_in_another_way_is_one_of_the_report(
    wh: tw.Warehouse, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wild length, a file that goes while others are loaded, one that is nobody's to read, a name that is no text."""
    wh.create_table("taxi", SCHEMA, time="ts", key="plate")

    def wild(*_: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 18014398509482112 failed")

    monkeypatch.setattr(file_rows, "arrow_batches", wild)
    (files / "a.arrow").write_bytes(arrow_bytes(ROWS, pa.ipc.new_file))
    odd = os.fsencode(files) + b"/b\xff.csv"
    with open(odd, "wb") as file:
        file.write(csv_bytes(ROWS))
    (files / "c.csv").write_bytes(csv_bytes(ROWS))
    (files / "d.avro").write_bytes(avro_bytes(ROWS))
    monkeypatch.setitem(sys.modules, "fastavro", None)
    (files / "z.csv").write_bytes(csv_bytes(ROWS))
    found = load.found_files

    def gone(*given: Any) -> list[str]:
        names = found(*given)
        (files / "c.csv").unlink()
        return names

    monkeypatch.setattr(load, "found_files", gone)
    report = load.load(wh._engine, load.LoadRequest("taxi", files))
    assert [Path(name).name for name in report.errors] == ["a.arrow", "b\\xff.csv", "c.csv", "d.avro"] and report.rows == 1000
    said = list(report.errors.values())
    assert "malloc" in said[0] and "rename it" in said[1] and "No such file" in said[2] and "needs fastavro" in said[3]
    print(report)
    assert "b\\xff.csv" in capsys.readouterr().out


def test_without_a_good_file_there_is_no_table(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(tw.InputError, match="no table can be made from it"):
        wh.load("taxi", files, time="ts", key="plate")
    (files / "a.parquet").unlink()
    (files / "b.csv").write_text("plate,ts\n1,2026-01-01\n,2026-01-01\n")
    with pytest.raises(tw.InputError, match="has no value in the key column"):
        wh.load("taxi", files, time="ts", key="plate", on_bad="error")
    assert wh.tables() == []
    with pytest.raises(tw.InputError, match="to create it, say its time and key"):
        wh.load("taxi", files)


def test_other_columns(wh: tw.Warehouse, files: Path) -> None:
    (files / "1.parquet").write_bytes(parquet_bytes(ROWS.slice(0, 10)))
    assert wh.load("taxi", files, time="ts", key="plate").rows == 10
    (files / "2.parquet").write_bytes(parquet_bytes(ROWS.slice(10, 10).drop_columns("note")))
    (files / "3.csv").write_bytes(csv_bytes(ROWS.slice(20, 10).select(["ts", "plate"])))
    assert wh.load("taxi", files).rows == 20, "what a file does not have is null"
    assert wh.table("taxi").query(where="note IS NULL").to_arrow().num_rows == 2 + 20
    (files / "4.parquet").write_bytes(parquet_bytes(ROWS.slice(30, 10).append_column("colour", pa.array(["red"] * 10))))
    with pytest.raises(tw.InputError, match="has fields that the table has no column for: colour"):
        wh.load("taxi", files)
    assert wh.load("taxi", files, extra="ignore").rows == 10
    (files / "5.csv").write_text("plates,ts\n1,2026-01-01\n")
    with pytest.raises(tw.InputError, match="it has no column 'plate'. Did you mean 'plates'"):
        wh.load("taxi", files)


def test_a_table_that_is_there_keeps_its_time_key_and_partition(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.csv").write_bytes(csv_bytes(ROWS))
    wh.load("taxi", files, time="ts", key="plate", partition="1 day")
    (files / "b.csv").write_bytes(csv_bytes(ROWS))
    for how, said in (
        ({"time": "seen"}, "has time ts, not seen"), ({"time": tw.epoch("ts", "ms")}, "has times in us, not in ms"),
        ({"key": "speed"}, "has key plate, not speed"), ({"key": tw.ip("plate")}, r"has key plate, not ip\(plate\)"),
        ({"partition": "1 hour"}, "has partitions of 1 day, not of 1 hour"), ({"partition": "often"}, "partition of table 'taxi'"),
    ):  # fmt: skip
        with pytest.raises(tw.InputError, match=said):
            wh.load("taxi", files, **how)  # type: ignore[arg-type]
    assert wh.load("taxi", files, time="ts", key="plate", partition="24 hours").rows == 1000


def test_the_same_key_may_be_said_again(tmp_path: Path, files: Path) -> None:
    (files / "a.csv").write_text("x,y,seen\n1.5,2.5,1767225600000\n")
    (files / "b.csv").write_text("x,y,seen\n1.5,3.5,1767225600000\n")
    how: dict[str, Any] = {"time": tw.epoch("seen", "ms"), "key": tw.zorder("x", "y", bounds=(0, 0, 10, 10)), "partition": "1 month"}
    for name in ("a.csv", "b.csv"):
        with tw.open(tmp_path / "wh") as wh:
            assert wh.load("t", files / name, **how).rows == 1


def test_a_file_of_no_bytes_is_loaded_when_it_has_some(wh: tw.Warehouse, files: Path) -> None:
    for name in ("a.csv", "b.jsonl"):
        (files / name).touch()
    (files / "c.csv").write_bytes(csv_bytes(ROWS))
    report = wh.load("taxi", files, time="ts", key="plate")
    assert report.ok and [file.rows for file in report] == [0, 0, 1000]
    (files / "a.csv").write_bytes(csv_bytes(ROWS))
    (files / "b.jsonl").write_bytes(json_bytes(ROWS))
    assert wh.load("taxi", files).rows == 2000


def test_links_to_folders_lead_into_each_once(wh: tw.Warehouse, files: Path) -> None:
    (files / "a" / "b").mkdir(parents=True)
    (files / "a" / "b" / "up").symlink_to(files)
    (files / "a" / "b" / "c.csv").write_bytes(csv_bytes(ROWS))
    (files / "too").symlink_to(files / "a")
    assert found_files(files, False) == [str(files / "a" / "b" / "c.csv")]


def test_wrong_words(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.csv").write_bytes(csv_bytes(ROWS))
    for how, said in (
        ({"on_bad": "skip"}, "on_bad is one of"), ({"changed": "x"}, "changed is one of"), ({"threads": 0}, "threads is a whole number"),
        ({"payload": "xml"}, "payload is one of"), ({"delimiter": "ab"}, "a delimiter is one character"),
    ):  # fmt: skip
        with pytest.raises(tw.InputError, match=said):
            wh.load("taxi", files, time="ts", key="plate", **how)  # type: ignore[arg-type]
    with pytest.raises(tw.InputError, match="files are given by a path"):
        wh.load("taxi", 5, time="ts", key="plate")
    with pytest.raises(tw.InputError, match="no files were given"):
        wh.load("taxi", [], time="ts", key="plate")


def test_the_report(wh: tw.Warehouse, files: Path) -> None:
    (files / "a.csv").write_text("plate,ts\n1,2026-01-01\nx,2026-01-01\n")
    told: list[tuple[int, int]] = []
    wh.create_table("taxi", SCHEMA, time="ts", key="plate")
    report = wh.load("taxi", files, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == ((files / "a.csv").stat().st_size,) * 2
    assert "1 row of 1 file loaded into taxi" in str(report) and "1 rejected" in str(report) and report.ok and report.files[0].seconds > 0
    assert json.loads(json.dumps(report.as_json()))["files"][0]["rows"] == 1
    assert "1 file loaded before" in repr(wh.load("taxi", files))


# ---- many at random -------------------------------------------------------------------------------------------


@settings(max_examples=examples(8), deadline=None)
@given(st.data())
def test_random_files_are_in_the_table_or_in_the_rejects(data: st.DataObject) -> None:
    """Some files, some bad rows among them, loaded in any order, some of them twice: each record once, by its place."""
    import tempfile

    rng = random.Random(data.draw(st.integers(0, 2**32)))
    good: list[int] = []
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_loader, "LARGE", rng.choice([0, 2000, 1 << 24]))
        patch.setattr(csv_blocks.csv_blocks, "__defaults__", (rng.choice([100, 1000]),))
        folder = Path(place).resolve() / "files"
        folder.mkdir()
        number = 0
        for n in range(rng.randint(1, 5)):
            path = folder / f"{n}.{rng.choice(['csv', 'jsonl', 'csv.gz'])}"
            lines = ["id,ts,x"] if "csv" in path.name else []
            for _ in range(rng.choice([0, 3, 200])):
                number += 1
                spoiled = rng.random() < 0.1
                moment = "soon" if spoiled else f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z"
                lines.append(f"{number},{moment},1" if "csv" in path.name else json.dumps({"id": number, "ts": moment, "x": 1}))
                if spoiled:
                    bad.append(f"{path}:{len(lines)}")
                else:
                    good.append(number)
            text = "\n".join(lines).encode()
            path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        with tw.open(Path(place) / "wh") as wh:
            schema = pa.schema([("id", pa.int64()), ("ts", UTC), ("x", pa.int64())])
            wh.create_table("t", schema, time="ts", key="id")
            names = sorted(os.listdir(folder))
            for _ in range(2):
                some = rng.sample(names, rng.randint(1, len(names)))
                wh.load("t", [folder / name for name in some], threads=rng.randint(1, 3))
            report = wh.load("t", folder)
            assert report.ok
            table = wh.table("t")
            assert sorted(table.query(columns=["id"]).to_arrow()["id"].to_pylist()) == good
            assert sorted(table.rejects().to_arrow()["origin"].to_pylist()) == sorted(bad)
            assert wh.check().ok
