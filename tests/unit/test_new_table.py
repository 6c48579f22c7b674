"""`tidewheel create`: names of types, record descriptors, samples, and what is chosen or asked for."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidewheel as tw
from tidewheel.errors import SchemaError
from tidewheel.ingest.descriptor import Dimension, read_descriptor
from tidewheel.ingest.new_table import Wishes, from_columns, from_descriptor
from tidewheel.model.definition import key_of, key_text, time_of
from tidewheel.model.schema import ColumnKey, Ip, ZOrder, ip, zorder
from tidewheel.model.type_names import NAMES, type_named
from tidewheel.surfaces import cli

LISTING = """<?xml version="1.0"?>
<description typeid="..."> <!-- UUID -->
<!-- The record format -->
<struct>
  <field name="medallion" type="char" array_len=33/>
  <field name="license" type="char" array_len=33/>
  <field name="vendor_id" type="char" array_len=4/>
  <field name="rate_code" type="int64_t"/>
  <field name="strfwd_flag" type="char" array_len=2/>
  <field name="pickup_datetime" type="epoch_t"/>
  <field name="dropoff_datetime" type="epoch_t"/>
  <field name="passenger_count" type="int64_t"/>
  <field name="trip_time_in_secs" type="int64_t"/>
  <field name="trip_distance" type="float"/>
  <field name="pickup_longitude" type="float"/>
  <field name="pickup_latitude" type="float"/>
  <field name="dropoff_longitude" type="float"/>
  <field name="dropoff_latitude" type="float"/>
</struct>
<!-- Fields for indexing -->
<indexing-dimensions>
  <field name="pickup_latitude"/>
  <field name="pickup_longitude"/>
  <field name="pickup_datetime"/>
  <field name="passenger_count"/>
  <field name="trip_time_in_secs"/>
</indexing-dimensions>
</description>
"""
"""Listing 1 of the MDDS paper, as it is printed: without quotes around the lengths."""

US = pa.timestamp("us", "UTC")


# ---- types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int64", pa.int64()),
        ("BIGINT", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("timestamp", pa.timestamp("us")),
        ("timestamp[ms, UTC]", pa.timestamp("ms", "UTC")),
        ("timestamp[ns, tz=Europe/Berlin]", pa.timestamp("ns", "Europe/Berlin")),
        ("decimal(18, 2)", pa.decimal128(18, 2)),
        ("list<int32>", pa.list_(pa.int32())),
        ("varchar[]", pa.list_(pa.string())),
        ("uint32_t", pa.uint32()),
        (" Date ", pa.date32()),
    ],
)
def test_names_of_types(text: str, expected: pa.DataType) -> None:
    assert type_named(text) == expected


def test_a_type_is_understood_as_it_is_printed() -> None:
    types = [*NAMES.values(), US, pa.timestamp("s"), pa.decimal128(9, 3), pa.list_(pa.float32()), pa.list_(pa.list_(US))]
    assert [type_named(str(type_)) for type_ in types] == types


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int63", "'int64'"), ("timestmp", "'timestamp'"), ("xyz", "Types: int8"), ("decimal(99)", "not a type"),
        ("timestamp[us, Nowhere/Land]", "no time zone"), ("list<" * 2000 + "int64" + ">" * 2000, "at most"),
    ],
)  # fmt: skip
def test_unknown_types(text: str, said: str) -> None:
    with pytest.raises(SchemaError) as error:
        type_named(text)
    assert said in str(error.value)


@pytest.mark.parametrize("rule", [ColumnKey("plate"), Ip("src"), zorder("lon", "lat", bounds=(115.4, 39.4, 117.6, 41.1))])
def test_keys_as_text(rule: ColumnKey | Ip | ZOrder) -> None:
    found = key_of(key_text(rule))
    assert (ColumnKey(found) if isinstance(found, str) else found) == rule


def test_one_grammar_of_time_and_key() -> None:
    """What SQL writes is understood on the command line and by Spark, and the other way round."""
    assert time_of("epoch(seen, ms)") == time_of("EPOCH( seen , 'MS' )") == time_of(" seen ms") == tw.epoch("seen", "ms")
    assert time_of("seen at") == "seen at"
    assert key_of("zorder(lon, lat)", "[0, 1, 2, 3]") == key_of("ZORDER(lon, lat, 0, 1, 2, 3)") == zorder("lon", "lat", bounds=(0, 1, 2, 3))
    for text, bounds in (("plate", "0, 1"), ("ip(a)", "0, 1"), ("zorder(lon, lat)", ""), ("zorder(lon, lat)", "0, x, 2, 3")):
        with pytest.raises(SchemaError, match="a key is a column"):
            key_of(text, bounds)


# ---- descriptors --------------------------------------------------------------------------------------------


def test_listing_1_of_the_paper() -> None:
    found = read_descriptor(LISTING, "trips.xml")
    text, whole, moment, number = pa.string(), pa.int64(), pa.timestamp("s", "UTC"), pa.float32()
    assert [type_ for _, type_ in found.fields] == [text, text, text, whole, text, moment, moment, whole, whole, *[number] * 5]
    assert [one.name for one in found.dimensions] == [
        "pickup_latitude", "pickup_longitude", "pickup_datetime", "passenger_count", "trip_time_in_secs",
    ]  # fmt: skip
    new = from_descriptor(Wishes("trips"), found, {}, "trips.xml")
    assert new.spec.time.column == "pickup_datetime" and new.spec.key == ColumnKey("pickup_latitude")
    assert new.notes[0].startswith("filtered, not indexed: pickup_longitude, passenger_count, trip_time_in_secs")
    other = from_descriptor(Wishes("trips", key="medallion", time="dropoff_datetime"), found, {"trip_distance": pa.float64()}, "trips.xml")
    assert other.spec.key == ColumnKey("medallion") and other.spec.time.column == "dropoff_datetime"
    assert other.spec.schema.field("trip_distance").type == pa.float64() and not other.notes


def test_toml_says_the_same() -> None:
    xml = read_descriptor(LISTING, "trips.xml")
    c = {pa.string(): "char", pa.int64(): "int64_t", pa.timestamp("s", "UTC"): "epoch_t", pa.float32(): "float"}
    lines = ['typeid = "..."', "indexing-dimensions = " + json.dumps([one.name for one in xml.dimensions])]
    for name, type_ in xml.fields:
        lines += ["[[struct]]", f'name = "{name}"', f'type = "{c[type_]}"', *(["array_len = 33"] if c[type_] == "char" else [])]
    assert read_descriptor("\n".join(lines), "trips.toml") == xml


def test_dimensions_with_bounds_are_a_z_order() -> None:
    text = """
        indexing-dimensions = [{ name = "lat", min = 40, max = 41 }, "at", { name = "lon", min = -75, max = -73 }, "n"]
        struct = [{ name = "lat", type = "float" }, { name = "lon", type = "float" }, { name = "at", type = "epoch_t" },
                  { name = "n", type = "int64_t" }, { name = "v", type = "double", array_len = 3 }]
    """
    found = read_descriptor(text, "d.toml")
    assert found.dimensions[2] == Dimension("lon", -75, -73) and found.fields[4] == ("v", pa.list_(pa.float64(), 3))
    new = from_descriptor(Wishes("t"), found, {}, "d.toml")
    assert new.spec.key == zorder("lat", "lon", bounds=(40, -75, 41, -73)) and "not indexed: n." in new.notes[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('type="float"', 'type="flaot"'), "field 'trip_distance': there is no type 'flaot'. Did you mean 'float'?"),
        (('<field name="passenger_count"/>', '<field name="passengers"/>'), "'passengers' is no field. Did you mean 'passenger_count'?"),
        (("array_len=4", "arraylen=4"), "a field has no 'arraylen'. Did you mean 'array_len'?"),
        (("array_len=4", "array_len=0"), "array_len is a whole number of at least 1, not '0'"),
        (("<description", "<beschreibung"), "not XML: mismatched tag"),
        (("struct>", "structs>"), "a <description> has no <structs>. Did you mean 'struct'?"),
        (('<?xml version="1.0"?>', '<!DOCTYPE x [<!ENTITY y "z">]>'), "has a DOCTYPE"),
        (('name="license"', 'name="medallion"'), "two fields named 'medallion'"),
        (('<field name="pickup_longitude"/>', '<field name="pickup_latitude"/>'), "dimension 'pickup_latitude' twice"),
        (('<field name="pickup_longitude"/>', '<field name="pickup_longitude" min="1"/>'), "has both or none"),
    ],
)
def test_what_is_wrong_with_a_descriptor(change: tuple[str, str], said: str) -> None:
    assert change[0] in LISTING
    with pytest.raises(SchemaError) as error:
        read_descriptor(LISTING.replace(*change), "trips.xml")
    assert said in str(error.value) and "trips.xml" in str(error.value)


def test_two_times_among_the_dimensions_have_to_be_chosen_from() -> None:
    text = LISTING.replace('<field name="passenger_count"/>\n  <field name="trip', '<field name="dropoff_datetime"/>\n  <field name="trip')
    with pytest.raises(SchemaError, match="could be pickup_datetime or dropoff_datetime: say --time pickup_datetime"):
        from_descriptor(Wishes("t"), read_descriptor(text, "x"), {}, "x")


# ---- what is chosen -----------------------------------------------------------------------------------------


def test_the_only_column_of_times_is_the_time() -> None:
    new = from_columns(Wishes("t", key="ip(a)"), [("a", pa.string()), ("at", pa.date32())])
    assert new.spec.time.column == "at" and new.spec.key == ip("a") and new.spec.partition == "1 day" and "at is the time" in new.notes[0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"a": pa.int64(), "b": US, "c": US, "d": US}, "It could be b, c or d: say --time b; which column is the key"),
        ({"a": pa.int64()}, "None has times; for whole numbers say the unit too"),
        ({"a": pa.int64(), "b": US}, "which column is the key, by which rows are looked up? Say --key a. Columns: a, b"),
    ],
)
def test_what_is_not_plain_is_asked(columns: dict[str, pa.DataType], said: str) -> None:
    with pytest.raises(SchemaError) as error:
        from_columns(Wishes("t"), list(columns.items()))
    assert said in str(error.value)


# ---- the command --------------------------------------------------------------------------------------------


def create(root: Path, *arguments: str) -> int:
    return cli.main(["create", "taxi", "-w", str(root / "wh"), *arguments])


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, Path]:
    """The same rows in every format."""
    rows = [{"plate": n, "ts": f"2026-01-01T00:00:0{n}", "speed": n / 2} for n in range(5)]
    table = pa.Table.from_pylist(rows).set_column(1, "ts", pa.array([r["ts"] for r in rows]).cast(pa.timestamp("us")).cast(US))
    files = {name: tmp_path / f"some.{name}" for name in ("csv", "jsonl", "parquet", "arrow", "csv.gz", "jsonl.zst")}
    csv = "plate,ts,speed\n" + "".join(f"{r['plate']},{r['ts']},{r['speed']}\n" for r in rows)
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    files["csv"].write_text(csv)
    files["jsonl"].write_text(lines)
    for name, text, codec in (("csv.gz", csv, "gzip"), ("jsonl.zst", lines, "zstd")):
        with pa.CompressedOutputStream(str(files[name]), codec) as out:
            out.write(text.encode())
    pq.write_table(table, files["parquet"])
    with pa.OSFile(str(files["arrow"]), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return files


def test_every_format_of_a_sample_gives_the_same_table(
    samples: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = set()
    for path in samples.values():
        assert create(tmp_path, "--from", str(path), "--key", "plate", "--dry-run") == 0
        shown.add(capsys.readouterr().out)
    (tmp_path / "log").write_text(samples["jsonl"].read_text())
    assert create(tmp_path, "--from", str(tmp_path / "log"), "--key", "plate", "--dry-run", "--payload", "json") == 0
    shown.add(capsys.readouterr().out)
    assert len(shown) == 1 and not (tmp_path / "wh").exists()
    assert create(tmp_path, "--from", str(tmp_path / "log"), "--key", "plate", "--payload", "json") == 0
    assert f"tidewheel load taxi {tmp_path / 'log'} -w {tmp_path / 'wh'} --payload json\n" in capsys.readouterr().out
    assert "plate  int64                  key\n  ts     timestamp[us, tz=UTC]  time\n  speed  double\n" in shown.pop()


def test_a_table_is_made_and_what_to_do_next_is_said(samples: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--from", str(samples["csv"]), "--key", "plate", "--column", "speed:float", "--partition", "2 hours"]
    assert create(tmp_path, *argv) == 0
    out = capsys.readouterr().out
    assert f"Next: tidewheel load taxi {samples['csv']} -w {tmp_path / 'wh'}\n" in out and "partitions of 2 hours" in out
    with tw.open(tmp_path / "wh") as wh:
        schema = pa.schema([("plate", pa.int64()), ("ts", US), ("speed", pa.float32())])
        assert wh.table("taxi").schema == schema and wh.table("taxi").key == ColumnKey("plate") and wh.table("taxi").time == "ts"
    assert create(tmp_path, *argv) == 1
    assert "--if-exists open" in capsys.readouterr().err
    assert create(tmp_path, *argv, "--if-exists", "open") == 0
    assert "already, and the same" in capsys.readouterr().out
    assert create(tmp_path, *argv[:4], "--if-exists", "open") == 1, "another type: not the same"


def test_numbers_that_are_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = tmp_path / "seen.csv"
    sample.write_text("at,who\n1767225600000,10.0.0.1\n1767225601000,::1\n")
    argv = ["--from", str(sample), "--key", "ip(who)"]
    assert create(tmp_path, *argv) == 1
    assert "It could be at: say --time at" in capsys.readouterr().err
    assert create(tmp_path, *argv, "--time", "at", "--dry-run") == 0
    assert "at   timestamp[ms, tz=UTC]  time" in (out := capsys.readouterr().out) and "read as epoch-ms" in out
    assert create(tmp_path, *argv, "--time", "at") == 0
    assert "--time-format epoch-ms" in capsys.readouterr().out, "in CSV they are texts, and not of the column's unit by themselves"
    with tw.open(tmp_path / "wh") as wh:
        wh.drop_table("taxi")
    assert create(tmp_path, *argv, "--time", "at ms") == 0
    assert "time at (whole numbers, ms), key ip(who)" in capsys.readouterr().out
    with tw.open(tmp_path / "wh") as wh:
        assert wh.table("taxi").schema.field("at").type == pa.int64()


def test_a_file_without_header_and_with_its_own_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = tmp_path / "trips.csv"
    sample.write_text("7;31/12/2025 23:59:59;-\n8;01/01/2026 00:00:00;2\n")
    argv = [
        "--names",
        "plate,ts,n",
        "--delimiter",
        ";",
        "--null",
        "-",
        "--time",
        "ts",
        "--time-format",
        "%d/%m/%Y %H:%M:%S",
        "--key",
        "plate",
    ]
    assert create(tmp_path, "--from", str(sample), *argv) == 0
    out = capsys.readouterr().out
    assert "ts     timestamp[us, tz=UTC]  time" in out and "n      int64" in out
    assert "--time-format '%d/%m/%Y %H:%M:%S' --delimiter ';' --columns plate,ts,n --null -" in out
    assert cli.make_parser().parse_args(shlex.split(out.partition("Next: tidewheel ")[2])).null == ["-"], "what is said can be typed"


def test_nothing_that_a_terminal_would_obey_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.csv").write_text("a\x1b]0;b,ts\n1,2026-01-01T00:00:00\n")
    assert create(tmp_path, "--from", str(tmp_path / "odd.csv"), "--key", "a") == 1
    assert create(tmp_path, "--from", str(tmp_path / "odd.csv"), "--key", "a\x1b]0;b", "--dry-run") == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "a\\x1b]0;b" in out and "a\\x1b]0;b" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 1, "which columns? Give a sample"),
        (["--from", "missing.csv"], 1, "there is no file missing.csv"),
        (["--from", "{tmp}"], 1, "is a folder"),
        (["--from", "{tmp}/twice.csv", "--key", "a"], 1, "has two columns named 'a'"),
        (["--from", "{tmp}/log", "--key", "plate"], 1, "its name says no format"),
        (["--from", "{tmp}/log", "--key", "plate", "--payload", "jsonl"], 1, "payload is one of"),
        (["--column", "k:int64", "--column", "at:int64", "--key", "k", "--time", "at"], 1, "say their unit too, as in --time 'at ms'"),
        (["--descriptor", "missing.xml"], 1, "there is no file missing.xml"),
        (["--from", "{tmp}/some.csv", "--column", "sped:float", "--key", "plate"], 1, "has no column 'sped'. Did you mean 'speed'?"),
        (["--from", "{tmp}/some.csv", "--time", "tz", "--key", "plate"], 1, "has no column 'tz'. Did you mean 'ts'?"),
        (["--from", "{tmp}/some.csv", "--key", "plat"], 1, "Did you mean 'plate'?"),
        (["--from", "{tmp}/some.csv", "--key", "plate", "--partition", "soon"], 1, "a partition looks like"),
        (["--from", "{tmp}/some.csv", "--descriptor", "x"], 1, "not from both"),
        (["--descriptor", "{tmp}/some.csv"], 1, "is not TOML"),
        (["--descriptor", "{tmp}/some.parquet"], 1, "it is no text"),
        (["--column", "a:int64", "--column", "a:int64"], 1, "gives 'a' twice"),
        (["--column", "a"], 2, "must be NAME:TYPE"),
        (["--if-exists", "replace"], 2, "Choose from error, open"),
    ],
)
def test_errors(
    samples: dict[str, Path], tmp_path: Path, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twice.csv").write_text("a,a,ts\n1,2,2026-01-01\n")
    (tmp_path / "log").write_text(samples["jsonl"].read_text())
    assert create(tmp_path, *(one.replace("{tmp}", str(tmp_path)) for one in arguments)) == code
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err and not (tmp_path / "wh").exists()
