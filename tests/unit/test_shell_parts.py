"""The parts of the shell that need no terminal: where statements end, what is offered, how rows are drawn and written."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from rich.cells import cell_len

from tidewheel.errors import InputError, StorageError
from tidewheel.model.figures import duration
from tidewheel.model.visible_text import visible
from tidewheel.surfaces.shell import answer_file, grid
from tidewheel.surfaces.shell.cells import json_texts, texts
from tidewheel.surfaces.shell.formats import write
from tidewheel.surfaces.shell.statements import is_complete, pieces_of, split, typed
from tidewheel.surfaces.shell.suggestions import candidates

TABLES = {
    "taxi": ["plate", "ts", "speed", "two words"],
    "sensors": ["sensor_id", "ts", "place"],
    "Order": ["id"],
    "system.chunks": ["table_name", "rows"],
}


@pytest.mark.parametrize(
    ("text", "pieces", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT ';'; x", ["SELECT ';'"], " x"),
        ("SELECT 'it''s;';", ["SELECT 'it''s;'"], ""),
        (r"SELECT E'it\';s';", [r"SELECT E'it\';s'"], ""),
        ("SELECT ';", [], "SELECT ';"),
        ('SELECT "a;b";', ['SELECT "a;b"'], ""),
        ("SELECT 1 -- no; end\n;", ["SELECT 1 -- no; end"], ""),
        ("SELECT /* ; */ 1;", ["SELECT /* ; */ 1"], ""),
        ("SELECT /* ;", [], "SELECT /* ;"),
        ("SELECT /* /* ; */ ; */ 1;", ["SELECT /* /* ; */ ; */ 1"], ""),
        ("SELECT /* /* ; */ 1;", [], "SELECT /* /* ; */ 1;"),
        ("/* /* a; */ */ ; SELECT 1;", ["SELECT 1"], ""),
        ("SELECT $$;$$;", ["SELECT $$;$$"], ""),
        ("SELECT $a$ ; $$ $a$;", ["SELECT $a$ ; $$ $a$"], ""),
        ("SELECT $a$ ;", [], "SELECT $a$ ;"),
        ("SELECT $name;", ["SELECT $name"], ""),
        ("; ;; -- nothing\n;", [], ""),
        ("\\d taxi", ["\\d taxi"], ""),
        ("\\d taxi;", ["\\d taxi"], ""),
        ("\\d it's\nSELECT 1;", ["\\d it's", "SELECT 1"], ""),
        ("SELECT 1 \\watch 1", ["SELECT 1", "\\watch 1"], ""),
        (r"SELECT '\d';", [r"SELECT '\d'"], ""),
    ],
)
def test_statements_end_at_semicolons_outside_of_quotes(text: str, pieces: list[str], rest: str) -> None:
    found, left = split(text)
    assert [piece.text for piece in found] == pieces and left == rest
    assert is_complete(text) == (not rest.strip())


def test_pieces_know_their_lines_and_come_as_soon_as_they_end() -> None:
    lines = iter(["-- first\n", "SELECT\n", " 1;\n", "\n", "\\d\n", "SELECT 2; SELECT\n", "3\n"])
    pieces = pieces_of(lines)
    first = next(pieces)
    assert (first.text, first.line) == ("-- first\nSELECT\n 1", 1)
    assert next(lines) == "\n", "no line more was read than it needed"
    rest = [(piece.text, piece.line, piece.is_command) for piece in pieces]
    assert [(text, command) for text, _, command in rest] == [("\\d", True), ("SELECT 2", False), ("SELECT\n3", False)]


def test_lines_are_counted() -> None:
    assert [piece.line for piece in pieces_of(["SELECT 1;\n", "\n", "\n", "SELECT\n", "2;\n", "  SELECT 3"])] == [1, 4, 6]


def test_words_of_other_shells() -> None:
    assert [piece.text for piece in typed("exit")] == ["\\q"]
    assert [piece.text for piece in typed("quit;")] == ["\\q"]
    assert [piece.text for piece in typed("SELECT 1")] == ["SELECT 1"]
    assert is_complete("help") and is_complete("  ") and is_complete("SELECT 1; -- done /* /* x */ */") and not is_complete("SELECT")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("SELECT * FROM ", ["taxi", '"Order"', "sensors"]),
        ("SELECT * FROM ta", ["taxi"]),
        ("SELECT * FROM taxi, sen", ["sensors"]),
        ("SELECT * FROM taxi AS t JOIN sen", ["sensors"]),
        ("SELECT * FROM taxi WHERE pl", ["plate"]),
        ("SELECT * FROM taxi WHERE two", ['"two words"']),
        ("SELECT t. FROM taxi t"[:9], []),
        ("SELECT taxi.sp", ["speed"]),
        ("SELECT * FROM taxi t WHERE t.sp", ["speed"]),
        ("SELECT * FROM system.ch", ["chunks"]),
        ("sel", ["select"]),
        ("SEL", ["SELECT"]),
        ("SELECT 1; SELECT sens", ["sensor_id", "sensors"]),
        ("SELECT 'ta", []),
        ("DESCRIBE sen", ["sensors"]),
        ("INSERT INTO sen", ["sensors"]),
        ("DROP TABLE ta", ["taxi"]),
        ("\\", ["\\d", "\\watch"]),
        ("\\wa", ["\\watch"]),
        ("\\d sen", ["sensors"]),
        ("\\timing o", ["on", "off"]),
        ("\\explain SELECT * FROM ta", ["taxi"]),
    ],
)
def test_what_is_offered(before: str, expected: list[str]) -> None:
    _, found = candidates(before, "", TABLES)
    offered = [one.text for one in found]
    assert [one for one in expected if one not in offered] == []
    if expected == []:
        assert offered == []


def test_columns_come_before_all_else() -> None:
    _, found = candidates("SELECT * FROM taxi WHERE ", "", TABLES)
    assert [one.text for one in found] == ["plate", "ts", "speed", '"two words"']
    _, found = candidates("SELECT * FROM taxi WHERE s", "", TABLES)
    assert found[0].text == "speed" and "sum" in [one.text for one in found]


def test_columns_of_tables_that_come_after_the_cursor() -> None:
    _, found = candidates("SELECT pla", " FROM sensors", TABLES)
    assert [one.text for one in found if one.what.startswith("column")] == ["place"]


def test_values_as_text() -> None:
    assert texts(pa.array([1.0, 0.1, None, 1e300])) == ["1.0", "0.1", None, "1e+300"]
    assert texts(pa.array([0.1, 3.0], pa.float32())) == ["0.1", "3.0"]
    assert texts(pa.array([b"\x00\xff", None])) == ["\\x00ff", None]
    assert texts(pa.array(["a", None]).dictionary_encode()) == ["a", None]
    assert texts(pa.array([[1, None], None])) == ["[1, null]", None]
    assert texts(pa.array([{"a": dt.date(2026, 1, 1), "b": Decimal("1.50")}])) == ['{"a": "2026-01-01", "b": "1.50"}']
    assert texts(pa.array([2**62], pa.timestamp("us"))) != [""], "a time that Python has no date for"
    assert texts(pa.array([(1, 2, 3 * 10**9)], pa.month_day_nano_interval())) == ["1 month 2 days 3 seconds"]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()])
def test_times_without_end(kind: pa.DataType) -> None:
    """What DuckDB calls infinity has its name in every format, also within lists, where it is no valid JSON otherwise."""
    most = (1 << kind.bit_width - 1) - 1
    column = pa.array([most, -most, 0, None], pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)
    first = texts(column)[2]
    assert first is not None and first.startswith("1970-01-01") and first.endswith("Z") == (kind == pa.timestamp("us", "UTC"))
    assert texts(column) == ["infinity", "-infinity", first, None]
    lists = pa.ListArray.from_arrays([0, 2, 4], column)
    found = [json.loads(text) for text in json_texts(lists)]
    assert found[0] == ["infinity", "-infinity"] and found[1][1] is None
    maps = pa.MapArray.from_arrays([0, 1], column[:1], pa.StructArray.from_arrays([column[:1], pa.array([1.5])], ["a", "b"]))
    assert [json.loads(text) for text in json_texts(maps)] == [{"infinity": {"a": "infinity", "b": 1.5}}]
    far = pa.array([1 << 62], pa.timestamp("us"))
    assert json_texts(far) == [json.dumps(texts(far)[0])]
    assert visible("a\x1b[31m\nb\u202ec") == "a\\x1b[31m\\nb\\u202ec" and visible("日本 ä") == "日本 ä"


ROWS = pa.record_batch(
    {
        "n": pa.array([1, None, -3]),
        "text": pa.array(["a,b", '"q"\n|', None]),
        "empty": pa.array(["", " x", "日本"]),
        "at": pa.array([0, 1_500_000, None], pa.timestamp("us")),
        "f": pa.array([float("nan"), 1.0, None]),
        "list": pa.array([[1], [], None], pa.list_(pa.int64())),
    }
)


def _written(format_: str) -> str:
    sink = io.BytesIO()
    assert write(format_, ROWS.schema, [ROWS, ROWS.slice(0, 0)], sink) == 3
    return sink.getvalue().decode()


def test_json() -> None:
    rows = json.loads(_written("json"))
    assert rows[0] == {"n": 1, "text": "a,b", "empty": "", "at": "1970-01-01T00:00:00.000000", "f": None, "list": [1]}
    assert rows == [json.loads(line) for line in _written("jsonl").splitlines()]
    sink = io.BytesIO()
    assert write("json", ROWS.schema, [], sink) == 0 and json.loads(sink.getvalue()) == []


def test_csv() -> None:
    rows = list(csv.reader(io.StringIO(_written("csv"), newline="")))
    assert rows[0] == ROWS.schema.names and rows[1][:3] == ["1", "a,b", ""] and rows[2][1:3] == ['"q"\n|', " x"]
    assert _written("csv").splitlines()[1].startswith('1,"a,b","",'), "an empty text is not null"


def test_markdown() -> None:
    lines = _written("markdown").splitlines()
    assert len(lines) == 5 and lines[1].startswith("| ---: | --- |")
    assert '"q"<br>\\|' in lines[3]


def test_columns_give_way_where_the_terminal_is_narrow() -> None:
    batch = pa.record_batch({f"c{i}": pa.array([i, 10**i]) for i in range(12)} | {"long": pa.array(["日本" * 40, "x" * 200])})
    columns = grid.columns_of(batch.schema, [batch])
    for width in (12, 20, 40, 80, 200, 400):
        layout = grid.fit(columns, width)
        lines = list(grid.draw(columns, layout))
        assert {cell_len(line) for line in lines} == {cell_len(lines[0])}, "every line is as long as the others"
        assert cell_len(lines[0]) <= max(width, 12)
        assert layout.left_out + sum(one is not None for one in layout.shown) == len(columns)
    assert grid.fit(columns, 400).is_whole and not grid.fit(columns, 40).is_whole
    assert grid.fit(columns, None).shown[-1] == (12, 200)


def test_times_lose_zeros_only_together() -> None:
    plain = pa.record_batch({"at": pa.array([0, 10**6, None], pa.timestamp("us", tz="UTC"))})
    assert grid.columns_of(plain.schema, [plain])[0].cells == ["1970-01-01 00:00:00Z", "1970-01-01 00:00:01Z", None]
    assert grid.columns_of(ROWS.schema, [ROWS])[3].cells[1] == "1970-01-01 00:00:01.500000"


def test_a_grid_of_no_rows_and_of_no_columns() -> None:
    batch = pa.record_batch({"a": pa.array([], pa.int64())})
    columns = grid.columns_of(batch.schema, [])
    assert len(list(grid.draw(columns, grid.fit(columns, 80)))) == 5
    assert grid.fit([], 80).shown == ()


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("before")

    def broken() -> object:
        yield ROWS
        raise StorageError("the disk is gone")

    with pytest.raises(StorageError):
        answer_file.save(path, ROWS.schema, broken())  # type: ignore[arg-type]
    assert path.read_text() == "before" and [one.name for one in tmp_path.iterdir()] == ["rows.csv"]
    with pytest.raises(InputError, match="cannot hold"):
        interval = pa.record_batch({"i": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
        answer_file.save(tmp_path / "rows.parquet", interval.schema, [interval])
    with pytest.raises(InputError, match="ending"):
        answer_file.format_of(tmp_path / "rows.xlsx")
    with pytest.raises(StorageError, match="cannot write"):
        answer_file.save(tmp_path / "missing" / "rows.csv", ROWS.schema, [])
    assert [one.name for one in tmp_path.iterdir()] == ["rows.csv"]


def test_durations() -> None:
    assert [duration(s) for s in (-2, 0, 0.0012345, 0.25, 1.5, 75)] == ["0 ms", "0 ms", "1.23 ms", "250 ms", "1.50 s", "1 min 15 s"]
