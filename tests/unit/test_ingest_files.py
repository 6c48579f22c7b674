"""Files become rows or dead letters, each file whole or not at all. No Spark in here."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import tracemalloc
from pathlib import Path
from types import GeneratorType
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidewheel.ingest import csv_blocks, file_rows, json_lists
from tidewheel.ingest import text_lines as text_lines_module
from tidewheel.ingest.decode import decoder
from tidewheel.ingest.row_maker import RowMaker, payload_text
from tidewheel.ingest.rules import FILES, Rules
from tidewheel.ingest.sample import Sample
from tidewheel.ingest.text_lines import closed_quotes, text_lines
from tidewheel.model.dead_letters import MOST_RAW, DeadLetter, split
from tidewheel.model.schema import make_spec

SCHEMA = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("speed", pa.float64()), ("note", pa.string())])
SPEC = make_spec("taxi", SCHEMA, time="ts", key="plate")
CSV = b"plate,ts,speed,note\n1,2026-01-01T08:00:00,1.5,a\n2,2026-01-01T08:00:01,,\n"


def read(folder: Path, **rules: Any) -> tuple[dict[str, list[Any]], list[DeadLetter]]:
    """The plates by package, and all dead letters."""
    paths = sorted(p for p in folder.iterdir() if p.is_file())
    listed = pa.record_batch(
        {"path": [f"file:{p}" for p in paths], "length": [p.stat().st_size for p in paths], "modificationTime": [1] * len(paths)}
    )
    rows: dict[str, list[Any]] = {}
    letters: list[DeadLetter] = []
    for delivery in decoder(Rules(FILES, **rules).to_json(), SPEC)(iter([listed])):
        assert delivery.package is not None
        found = rows.setdefault(delivery.package.removeprefix(f"file:{folder}/"), [])
        for batch in delivery.batches:
            good, bad = split(batch)
            found += good.column("plate").to_pylist()
            letters += bad
    return rows, [DeadLetter(x.position, x.reason, x.column, x.raw, x.origin.removeprefix(f"file:{folder}/")) for x in letters]


@pytest.mark.parametrize("block", [7, 1 << 22])
def test_lines(block: int) -> None:
    found = [
        (n, t)
        for numbers, lines in text_lines(pa.BufferReader(b"\xef\xbb\xbfa\n\nlonger than a block\r\nend"), block)
        for n, t in zip(numbers, lines.to_pylist(), strict=True)
    ]
    assert found == [(1, b"a"), (2, b""), (3, b"longer than a block\r"), (4, b"end")]


@pytest.mark.parametrize("block", [7, 1 << 22])
def test_quotes_keep_lines_together(block: int) -> None:
    data = b'1,"a\nb",2\n3,"stray,4\n5,6,7\n8,9,"x\n\ny""",\n10'
    found = [
        (n, t)
        for numbers, lines in closed_quotes(text_lines(pa.BufferReader(data), block), 4)
        for n, t in zip(numbers, lines.to_pylist(), strict=True)
    ]
    assert found == [(1, b'1,"a\nb",2'), (3, b'3,"stray,4\n5,6,7\n8,9,"x'), (6, b""), (7, b'y""",\n10')] or found[0] == (1, b'1,"a\nb",2')
    assert b"\n".join(t for _, t in found) == data and [n for n, _ in found] == sorted(n for n, _ in found)


def test_a_stray_quote_spoils_one_line_only() -> None:
    lines = [b"1,2"] * 10 + [b'3,"4'] + [b"5,6"] * 500
    data = b"\n".join(lines)
    found = [t for _, some in closed_quotes(text_lines(pa.BufferReader(data), 100)) for t in some.to_pylist()]
    assert found == lines


def test_formats_and_compressions(tmp_path: Path) -> None:
    rows = [{"plate": 1, "ts": "2026-01-01T08:00:00", "speed": 1.5, "note": "a"}, {"plate": 2, "ts": "2026-01-01T08:00:01"}]
    lines = b"\n".join(json.dumps(r).encode() for r in rows)
    table = pa.Table.from_pylist(rows)
    (tmp_path / "a.csv").write_bytes(CSV)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(CSV))
    (tmp_path / "c.tsv.bz2").write_bytes(bz2.compress(CSV.replace(b",", b"\t")))
    (tmp_path / "d.jsonl").write_bytes(lines)
    with pa.CompressedOutputStream(str(tmp_path / "e.ndjson.zst"), "zstd") as out:
        out.write(lines)
    (tmp_path / "f.json").write_text(json.dumps(rows, indent=2))
    pq.write_table(table, tmp_path / "g.parquet")
    with pa.OSFile(str(tmp_path / "h.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pa.CompressedOutputStream(str(tmp_path / "i.arrows.lz4"), "lz4") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    fields = [{"name": "plate", "type": "long"}, {"name": "ts", "type": "string"}]
    with (tmp_path / "j.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "R", "fields": fields}, [{"plate": r["plate"], "ts": r["ts"]} for r in rows])
    found, letters = read(tmp_path)
    assert letters == []
    assert len(found) == 10 and all(plates == [1, 2] for plates in found.values()), found


def test_bad_lines_are_letters_with_their_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(CSV + b'\nx,2026-01-01,,\n3,2026-01-01\n4,2026-01-01,,"two\nlines"\n5,\xff,,\n6,2026-01-01,,\n')
    (tmp_path / "b.jsonl").write_bytes(b'{"plate":7,"ts":"2026-01-01"}\n\n{"plate":8\n{"plate":9,"ts":"2026-01-01"}')
    found, letters = read(tmp_path)
    assert found == {"a.csv": [1, 2, 4, 6], "b.jsonl": [7, 9]}
    assert sorted((x.origin, x.column, x.reason.partition(":")[0]) for x in letters) == [
        ("a.csv:5", "plate", "'x' doesn't fit int64 (string → int64)"),
        ("a.csv:6", "", "has 2 fields, not 4"),
        ("a.csv:9", "", "is not UTF-8 text"),
        ("b.jsonl:3", "", "is not JSON"),
    ]
    assert {x.raw for x in letters} == {"x,2026-01-01,,", "3,2026-01-01", b"5,\xff,,".hex(), '{"plate":8'}


def test_bad_rows_of_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"plate": [1, None, 3], "ts": ["2026-01-01", "2026-01-01", "noon"]}), tmp_path / "a.parquet")
    found, letters = read(tmp_path)
    assert found == {"a.parquet": [1]}
    assert [(x.origin, x.column) for x in letters] == [("a.parquet: row 2", "plate"), ("a.parquet: row 3", "ts")]
    assert json.loads(letters[1].raw)["ts"] == "noon"


ITEMS = [{"plate": n, "ts": "2026-01-01", "note": ']},{["ü\n' * (n % 3)} for n in range(100)]
LISTS = {
    "one line": json.dumps(ITEMS),
    "a line each": json.dumps(ITEMS, indent=0),
    "a blank line first": "\n \r\n" + json.dumps(ITEMS, indent=2) + "\n\n",
    "a mark first": "\ufeff" + json.dumps(ITEMS, ensure_ascii=False),
    "two lists": f"{json.dumps(ITEMS[:40], indent=1)}\n{json.dumps(ITEMS[40:], indent=1)}",
    "a list on each line": f"{json.dumps(ITEMS[:40])}\n\n{json.dumps(ITEMS[40:])}\n",
    "lists of lists": json.dumps([ITEMS[:1], ITEMS[1:]]),
}


@pytest.mark.parametrize("way", LISTS)
@pytest.mark.parametrize("block", [7, 1 << 22])
def test_a_json_list_is_read_item_by_item(tmp_path: Path, way: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lists, "SOME_BYTES", block)
    (tmp_path / "a.json").write_text(LISTS[way])
    assert read(tmp_path) == ({"a.json": list(range(100))}, [])
    (tmp_path / "a.json").write_bytes(gzip.compress(LISTS[way].encode()))
    (tmp_path / "a.json").rename(tmp_path / "a.json.gz")
    assert read(tmp_path) == ({"a.json.gz": list(range(100))}, [])
    sample = Sample.of_file(str(tmp_path / "a.json.gz"), None, Rules(FILES))
    assert sample.values["plate"][0] == 0 and sample.schema.names == ["plate", "ts", "note"]


def test_items_that_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"plate": 1, "ts": "2026-01-01"}, 5,\n {"plate": "x", "ts":\n"2026-01-01"}, [], {}]')
    (tmp_path / "b.json").write_text(" [ ] ")
    found, letters = read(tmp_path)
    assert found == {"a.json": [1], "b.json": []}
    assert sorted((x.origin, x.column, x.raw) for x in letters) == [
        ("a.json: item 2", "", "5"), ("a.json: item 3", "plate", '{"plate": "x", "ts": "2026-01-01"}'), ("a.json: item 4", "", "[]"),
        ("a.json: item 5", "plate", "{}"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_bad_items_of_a_long_line_do_not_multiply_it(tmp_path: Path, name: str) -> None:
    """Of a record that is many rows, a bad row is kept, not all of the record beside each."""
    rows = [{"plate": None if n % 10 == 0 else n, "ts": "2026-01-01", "note": "x" * 500} for n in range(2000)]
    line = json.dumps(rows)
    (tmp_path / name).write_text(line if name == "a.json" else f"{json.dumps(rows[:1])}\n{line}")
    tracemalloc.start()
    try:
        found, letters = read(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found[name]) == 1800 and len(letters) >= 200 and all(len(x.raw) < 1000 for x in letters)
    assert peak < 20 * len(line)


def test_a_small_file_of_many_rows_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_bytes(CSV)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(CSV + b"3,2026-01-01,,\n" * 10_000))
    monkeypatch.setattr(file_rows, "MOST_HELD", 10_000)
    rules = Rules(FILES)
    rows = file_rows.FileRows(RowMaker(SPEC, rules), rules)
    held = [not isinstance(rows.read(str(path), path.stat().st_size), GeneratorType) for path in sorted(tmp_path.iterdir())]
    assert held == [True, False]
    assert [len(plates) for plates in read(tmp_path)[0].values()] == [2, 10_002]


def test_a_line_without_end_is_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines_module, "MOST_LINE", 10_000)
    monkeypatch.setattr(json_lists, "MOST_ITEM", 10_000)
    monkeypatch.setattr(json_lists, "SOME_BYTES", 1000)
    monkeypatch.setattr(text_lines_module.text_lines, "__defaults__", (1000,))
    monkeypatch.setattr(csv_blocks.csv_blocks, "__defaults__", (1000,))
    (tmp_path / "a.csv").write_bytes(CSV + b"1" * 20_000)
    (tmp_path / "b.jsonl").write_text('{"plate": 1,\n{"note": "' + "x" * 20_000)
    (tmp_path / "c.json").write_text('[{"plate": 1, "ts": "2026-01-01"}, {"note": "' + "x" * 20_000)
    found, letters = read(tmp_path)
    assert not any(found.values())
    assert {x.origin: x.reason.removeprefix("the file cannot be read: ") for x in letters} == {
        "a.csv": "line 4 has more than 0 MB",
        "b.jsonl": "line 2 has more than 0 MB",
        "c.json": "item 2 of its list is longer than 0 MB or is not JSON: Unterminated string starting at",
    }


def test_the_text_of_a_record_is_cut_between_characters() -> None:
    assert payload_text(b"a" + "ü".encode() * 200_000) == "a" + "ü" * (MOST_RAW - 1)
    assert payload_text("€".encode() * 100_000) == "€" * MOST_RAW and payload_text("€".encode()[:2]) == "e282"
    assert payload_text(pa.py_buffer(b"\xff" * 100_000)) == "ff" * (MOST_RAW // 2) and payload_text(b"") == ""


BROKEN = {
    "cut.csv.gz": gzip.compress(CSV * 5000)[:-500],
    "not.csv.gz": b"plain text",
    "zero.parquet": b"",
    "cut.parquet": b"PAR1" + b"\0" * 100,
    "noise.arrow": b"ARROW1" + b"\xff" * 100,
    "noise.avro": b"Obj\x01" + b"\xff" * 100,
    "other.csv": b"a,b\n1,2\n",
    "twice.csv": b"plate,ts,ts\n1,2,3\n",
    "cut.json": b'[\n{"plate": 1,\n',
    "after.json": b'[{"plate": 1, "ts": "2026-01-01"}] and so on',
    "open.json": b'[{"plate": 1, "ts": "2026-01-01"},\n',
    "comma.json": b'[{"plate": 1, "ts": "2026-01-01"} {"plate": 2}]',
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("big", [False, True])
def test_a_broken_file_is_one_letter_and_no_row(tmp_path: Path, name: str, big: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_rows, "BIG", 0 if big else 1 << 30)
    (tmp_path / "a.csv").write_bytes(CSV)
    (tmp_path / name).write_bytes(BROKEN[name])
    (tmp_path / "z.csv").write_bytes(CSV)
    found, letters = read(tmp_path)
    broken = f"{name} (broken, {len(BROKEN[name])} bytes, 1)"
    assert found == {"a.csv": [1, 2], broken: [], "z.csv": [1, 2]}
    assert [x.origin for x in letters] == [name] and letters[0].reason.startswith("the file cannot be read: ")


def test_a_missing_file_is_broken(tmp_path: Path) -> None:
    listed = pa.record_batch({"path": [f"file:{tmp_path}/gone.csv"], "length": [10], "modificationTime": [1]})
    [delivery] = decoder(Rules(FILES).to_json(), SPEC)(iter([listed]))
    assert "gone.csv" in split(next(delivery.batches))[1][0].origin


def test_a_file_whose_bytes_come_with_it() -> None:
    listed = pa.record_batch({"path": ["s3a://bucket/a.csv.gz"], "length": [10], "modificationTime": [1], "content": [gzip.compress(CSV)]})
    [delivery] = decoder(Rules(FILES).to_json(), SPEC)(iter([listed]))
    assert delivery.package == "s3a://bucket/a.csv.gz" and next(delivery.batches).num_rows == 2


def test_a_header_with_quotes_spaces_and_other_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf"ts", plate ,"a, b"\r\n2026-01-01,5,x\r\n')
    assert read(tmp_path) == ({"a.csv": [5]}, [])


def test_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"5;2026-01-01\n6;2026-01-02\n")
    assert read(tmp_path, columns=("plate", "ts"), delimiter=";") == ({"a.csv": [5, 6]}, [])


def test_extra_columns_can_be_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"plate,ts,colour\n1,2026-01-01,red\n")
    pq.write_table(pa.table({"plate": [1], "ts": ["2026-01-01"], "colour": ["red"]}), tmp_path / "b.parquet")
    found, letters = read(tmp_path, extra="reject")
    assert all("colour" in x.reason for x in letters) and len(letters) == 2 and not any(found.values())


def test_names_say_format_and_compression() -> None:
    assert file_rows.named("file:/a/b.CSV.GZ") == ("csv", "gzip") and file_rows.named("/x.y/part-0001", "json") == ("json", "")
    with pytest.raises(file_rows.Broken, match="no format"):
        file_rows.named("/a/b.txt")
    assert "*.{csv," in file_rows.GLOB


def test_avro_with_a_broken_block(tmp_path: Path) -> None:
    out = io.BytesIO()
    schema = {"type": "record", "name": "R", "fields": [{"name": "plate", "type": "long"}, {"name": "ts", "type": "string"}]}
    fastavro.writer(out, schema, [{"plate": n, "ts": "2026-01-01"} for n in range(50_000)])
    (tmp_path / "a.avro").write_bytes(out.getvalue()[:-5])
    found, letters = read(tmp_path)
    assert not any(found.values()) and len(letters) == 1
