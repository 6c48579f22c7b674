"""Messages become rows or dead letters: every one, once, with its reason and where it came from. No Spark in here."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import InputError
from tidewheel.ingest.decode import MessageDecoder, decoder
from tidewheel.ingest.row_maker import RowMaker
from tidewheel.ingest.rules import MESSAGES, Rules, rules_from_json
from tidewheel.model.dead_letters import DeadLetter, split
from tidewheel.model.schema import TableSpec, ip, make_spec, zorder

SCHEMA = pa.schema(
    [("plate", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("speed", pa.float32()), ("note", pa.string()), ("ok", pa.bool_())]
)
SPEC = make_spec("taxi", SCHEMA, time="ts", key="plate")


def messages(values: list[bytes | None], **more: Any) -> pa.RecordBatch:
    n = len(values)
    columns = {"value": pa.array(values, pa.binary()), "topic": ["rides"] * n, "partition": [3] * n, "offset": list(range(100, 100 + n))}
    return pa.record_batch({**columns, **more})


def decode(
    values: list[bytes | None], spec: TableSpec = SPEC, payload: str = "json", **rules: Any
) -> tuple[list[dict[str, Any]], list[DeadLetter]]:
    decoder_ = MessageDecoder(RowMaker(spec, found := Rules(MESSAGES, payload, **rules)), found)
    batches, letters = decoder_.decode(messages(values))
    assert all(b.schema.equals(spec.schema) for b in batches)
    rows = pa.Table.from_batches(batches, spec.schema)
    if pa.types.is_timestamp(spec.schema.field("ts").type):
        rows = rows.set_column(1, "ts", rows.column(1).cast(pa.string()))
    return rows.to_pylist(), letters


def reasons(letters: list[DeadLetter]) -> list[str]:
    return [f"{x.origin} {x.column}: {x.reason}" for x in letters]


GOOD = b'{"plate": 1, "ts": "2026-01-01T08:00:00Z", "speed": 12.5, "note": "a", "ok": true}'


def test_json() -> None:
    rows, letters = decode([GOOD, b'{"plate":2,"ts":"2026-01-01 08:00:01.5","extra":{"x":[1]}}'])
    assert letters == []
    assert rows[0] == {"plate": 1, "ts": "2026-01-01 08:00:00.000000Z", "speed": 12.5, "note": "a", "ok": True}
    assert rows[1] == {"plate": 2, "ts": "2026-01-01 08:00:01.500000Z", "speed": None, "note": None, "ok": None}


def test_every_broken_json_record_says_why_and_stops_no_other() -> None:
    broken = [
        b"", None, b"{", b'{"plate": 1} x', b"[]", b"[1]", b"7", b'"text"', b'{"plate": "x", "ts": "2026-01-01"}', b'{"ts": "2026-01-01"}',
        b'{"plate": 1, "ts": "yesterday"}', b'{"plate": 99999999999999999999, "ts": "2026-01-01"}', b"\xff\xfe",
        b'{"plate": 1}{"plate": 2}',
        b'{"plate": 1.5, "ts": "2026-01-01"}', b"[" * 100_000,
    ]  # fmt: skip
    values: list[bytes | None] = []
    for one in broken:
        values += [one, GOOD]
    rows, letters = decode(values)
    assert len(rows) == len(broken) and len(letters) == len(broken)
    assert sorted(x.origin for x in letters) == sorted(f"rides/3@{100 + 2 * i}" for i in range(len(broken)))
    by_origin = {int(x.origin.rpartition("@")[2]) // 2 - 50: x for x in letters}
    said = {i: (x.column, x.reason) for i, x in by_origin.items()}
    assert said[0] == said[1] == ("", "is empty")
    assert said[2][1].startswith("is not JSON: ") and said[3][1].startswith("is not JSON: Extra data")
    assert said[4][1] == "is an empty list" and said[6][1] == "is a number, not an object"
    assert said[8] == ("plate", "'x' doesn't fit int64") and said[9] == ("plate", "None has no value in the key column")
    assert said[10][0] == "ts" and "yesterday" in said[10][1]
    assert said[12][1] == "is not UTF-8 text: byte 0xff at 0"
    assert by_origin[8].raw == '{"plate": "x", "ts": "2026-01-01"}' and by_origin[12].raw == "fffe"


def test_a_list_of_objects_is_many_rows() -> None:
    rows, letters = decode([b'[{"plate":1,"ts":"2026-01-01"},{"plate":"?","ts":"2026-01-01"},{"plate":3,"ts":"2026-01-01"}]', GOOD])
    assert [r["plate"] for r in rows] == [1, 3, 1]
    assert reasons(letters) == ["rides/3@100 row 1 plate: '?' doesn't fit int64"]


def test_values_are_cast_and_never_changed() -> None:
    rows, letters = decode(
        [b'{"plate":"7","ts":"2026-01-01","speed":"1.5","note":5,"ok":1}', b'{"plate":8.0,"ts":"2026-01-01","note":{"a":[1]}}']
    )
    assert letters == []
    assert [(r["plate"], r["speed"], r["note"], r["ok"]) for r in rows] == [(7, 1.5, "5", True), (8, None, '{"a": [1]}', None)]


def test_fields_without_a_column_can_be_refused() -> None:
    values: list[bytes | None] = [GOOD, b'{"plate":1,"ts":"2026-01-01","colour":"red"}']
    assert len(decode(values)[0]) == 2
    rows, letters = decode(values, extra="reject")
    assert len(rows) == 1 and letters[0].reason == "has fields that the table has no column for: colour"


@pytest.mark.parametrize(
    ("format_", "given"),
    [
        ("epoch-s", 1767254400),
        ("epoch-s", 1767254400.0),
        ("epoch-s", "1767254400"),
        ("epoch-ms", 1767254400000),
        ("epoch-us", 1767254400000000),
        ("epoch-ns", 1767254400000000000),
        ("%d/%m/%Y %H:%M:%S", "01/01/2026 08:00:00"),
        ("%d/%m/%Y %H:%M:%S.%f", "01/01/2026 08:00:00.0"),
        ("%Y-%m-%d %H:%M %z", "2026-01-01 09:00 +0100"),
        ("", "2026-01-01T09:00:00+01:00"),
        ("", 1767254400000000),
    ],
)
def test_time_formats(format_: str, given: Any) -> None:
    good = json.dumps({"plate": 1, "ts": given}).encode()
    rows, letters = decode([good] * 3, time_format=format_)
    assert letters == [] and {r["ts"] for r in rows} == {"2026-01-01 08:00:00.000000Z"}
    bad = json.dumps({"plate": 1, "ts": "noon"}).encode()
    rows, letters = decode([good, bad, good], time_format=format_)
    assert len(rows) == 2 and letters[0].column == "ts" and "'noon'" in letters[0].reason and letters[0].origin == "rides/3@101"


def test_a_pattern_makes_no_time_of_what_is_none() -> None:
    """Neither beside good ones, nor alone. Days that a month does not have are not those of the next one."""
    texts = ["01/02/2026", "1/2/2026", "30/02/2026", "29/02/2025", "01/02/26", "31/12/2025"]
    values: list[bytes | None] = [json.dumps({"plate": 1, "ts": text}).encode() for text in texts]
    rows, letters = decode(values, time_format="%d/%m/%Y")
    assert [row["ts"][:10] for row in rows] == ["2026-02-01", "2026-02-01", "2025-12-31"]
    assert [letter.position for letter in letters] == [2, 3, 4]
    assert [len(decode([value], time_format="%d/%m/%Y")[0]) for value in values] == [1, 1, 0, 0, 0, 1]


def test_days_beyond_all_dates_are_letters() -> None:
    schema = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    rules = Rules(MESSAGES, "csv", time_format="epoch-s")
    decoder = MessageDecoder(RowMaker(make_spec("days", schema, time="ts", key="plate"), rules), rules)
    batches, letters = decoder.decode(messages([b"1,5,86400", b"2,5,9223372036854775807", b"3,5,-86401"]))
    assert [str(day) for batch in batches for day in batch.column("day").to_pylist()] == ["1970-01-02", "1969-12-30"]
    assert [(letter.position, letter.column) for letter in letters] == [(1, "day")]


def test_a_fraction_of_an_epoch_second() -> None:
    rows, _ = decode([b'{"plate":1,"ts":1767254400.123456}', b'{"plate":1,"ts":-0.5}'], time_format="epoch-s")
    assert [r["ts"] for r in rows] == ["2026-01-01 08:00:00.123456Z", "1969-12-31 23:59:59.500000Z"]


def test_times_that_are_now_numbers_now_text_and_records_that_are_odd_in_many_places() -> None:
    def value(i: int, kind: int) -> bytes:
        times = "2026-01-01T00:00:00", 1767225600000000, 1767225600000000.0, "noon"
        plate = f"{i}.0" if kind == 4 else str(i)
        return b'{"plate": %s, "ts": %s}' % (plate.encode(), json.dumps(times[kind % 4]).encode()) if kind != 5 else b"{%d" % i

    payload = MessageDecoder(RowMaker(SPEC, found := Rules(MESSAGES, "json")), found)
    for kinds in ([0], [1], [0] * 999 + [1], [0] * 999 + [5], [1, 0], [4], [0] * 300 + [4] * 300, [3], [5], [0] * 400 + [2], [0]):
        values = [value(i, kinds[i % len(kinds)]) for i in range(2000)]
        batches, letters = payload.decode(messages(list(values)))
        good = [i for i in range(2000) if kinds[i % len(kinds)] in (0, 1, 4)]
        assert sorted(p for b in batches for p in b.column("plate").to_pylist()) == good
        assert sorted(int(x.origin.partition("@")[2]) - 100 for x in letters) == sorted(set(range(2000)) - set(good))


def test_an_impossible_time_format_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="epoch-ms"):
        Rules(MESSAGES, "json", time_format="milliseconds")
    with pytest.raises(InputError, match="'%T %F' has a code that Python's strptime does not know: 'T'"):
        Rules(MESSAGES, "json", time_format="%T %F")


@pytest.mark.parametrize("values", [[b"\n"], [b"\r\n", b"\n"], [GOOD_CSV := b"1,2026-01-01,2.5,a,true", b"\n"]])
def test_csv_that_is_a_line_end_is_a_letter(values: list[bytes | None]) -> None:
    rows, letters = decode(values, payload="csv")
    assert len(rows) == values.count(GOOD_CSV) and len(letters) == len(values) - len(rows)


def test_csv() -> None:
    rows, letters = decode([b'1,2026-01-01,2.5,"a, ""b""",true', b" 2 ,2026-01-01 , ,,", b'3,2026-01-01,,"",\r\n'], payload="csv")
    assert letters == []
    assert [(r["plate"], r["speed"], r["note"], r["ok"]) for r in rows] == [
        (1, 2.5, 'a, "b"', True),
        (2, None, None, None),
        (3, None, "", None),
    ]


def test_broken_csv() -> None:
    line = b"1,2026-01-01,2.5,a,true"
    values = [
        line,
        b"1,2",
        line,
        b'1,2026-01-01,2.5,"a,true',
        line,
        line + b"," + line,
        b"x,2026-01-01,,,",
        line,
        b"1,\xff,,,",
        line + b"\n" + line,
    ]
    rows, letters = decode(list(values), payload="csv")
    assert len(rows) == 6
    assert sorted(reasons(letters)) == [
        "rides/3@101 : has 2 fields, not 5",
        "rides/3@103 : has 4 fields, not 5: does a quote not close?",
        "rides/3@105 : has 10 fields, not 5",
        "rides/3@106 plate: 'x' doesn't fit int64 (string → int64)",
        "rides/3@108 : is not UTF-8 text: byte 0xff at 2",
    ]


def test_csv_with_named_fields_and_other_nulls() -> None:
    rows, letters = decode(
        [b"2026-01-01|9|NA|what"], payload="csv", columns=("ts", "plate", "speed", "colour"), delimiter="|", nulls=("NA",)
    )
    assert letters == [] and rows[0]["plate"] == 9 and rows[0]["speed"] is None and rows[0]["note"] is None


AVRO = {
    "type": "record", "name": "Ride",
    "fields": [
        {"name": "plate", "type": "long"}, {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "speed", "type": ["null", "float"]}, {"name": "colour", "type": "string"},
    ],
}  # fmt: skip


def avro(plate: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, {"plate": plate, "ts": 1767254400000, "speed": 1.5, "colour": "red"})
    return out.getvalue()


def test_avro() -> None:
    container = io.BytesIO()
    fastavro.writer(container, AVRO, [{"plate": n, "ts": 1767254400000, "speed": None, "colour": ""} for n in (5, 6)])
    values = [avro(1), b"\xff\xff", avro(2) + b"x", container.getvalue(), avro(3)[:-2]]
    rows, letters = decode(list(values), payload="avro", avro_schema=json.dumps(AVRO))
    assert [r["plate"] for r in rows] == [1, 5, 6] and {r["ts"] for r in rows} == {"2026-01-01 08:00:00.000000Z"}
    assert [x.origin for x in letters] == ["rides/3@101", "rides/3@102", "rides/3@104"] and "1 bytes more" in letters[1].reason
    header = b"\x00\x00\x00\x00\x07"
    rows, letters = decode([header + avro(4), avro(4)], payload="confluent-avro", avro_schema=json.dumps(AVRO))
    assert len(rows) == 1 and "header" in letters[0].reason


def test_avro_without_a_schema() -> None:
    assert "no schema" in decode([avro(1)], payload="avro")[1][0].reason
    with pytest.raises(InputError, match="no Avro schema"):
        decode([], payload="avro", avro_schema='{"type": "rec"}')


def stream(rows: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_batch(rows)
    return out.getvalue().to_pybytes()


def test_arrow_messages_have_many_rows() -> None:
    def some(plates: list[int | None], speed: Any = 1.0) -> bytes:
        return stream(
            pa.record_batch({"speed": [speed] * len(plates), "plate": pa.array(plates, pa.int32()), "ts": ["2026-01-01"] * len(plates)})
        )

    values = [some([1, 2, None]), b"nonsense", some([4]), some([5, 6])[:-20], some([7], speed="fast"), some([8], speed=[1])]
    rows, letters = decode(list(values), payload="arrow")
    assert [r["plate"] for r in rows] == [1, 2, 4]
    assert sorted(x.origin for x in letters) == ["rides/3@100 row 2", "rides/3@101", "rides/3@103", "rides/3@104", "rides/3@105"]
    null = next(x for x in letters if x.origin.endswith("row 2"))
    assert null.reason == "None has no value in the key column" and json.loads(null.raw)["ts"] == "2026-01-01"


def test_an_arrow_message_with_a_name_that_is_not_text() -> None:
    """The stream goes on behind it; a row of it is bad too, and would have to be told of by its names."""
    row = pa.record_batch({"plate": pa.array([None], pa.int32()), "ts": ["2026-01-01"], "speed": pa.array([{"inside": 1}])})
    good = pa.record_batch({"plate": pa.array([1], pa.int32()), "ts": ["2026-01-01"], "speed": [1.0]})
    rows, letters = decode([stream(row).replace(b"inside", b"\xffnside"), stream(good)], payload="arrow")
    assert [r["plate"] for r in rows] == [1]
    assert [x.reason for x in letters] == ["has a column whose name is not UTF-8 text"]


def test_values_that_python_does_not_have_are_told_of_all_the_same() -> None:
    far = pa.array([2**62], pa.int64()).view(pa.timestamp("us"))
    tiny = pa.Array.from_buffers(pa.decimal128(20, 2**31 - 1), 1, [None, pa.py_buffer(b"\x01" + bytes(15))])
    for speed in (far, tiny):
        row = pa.record_batch([pa.array([None], pa.int32()), pa.array(["2026-01-01"]), speed], ["plate", "ts", "speed"])
        rows, (letter,) = decode([stream(row)], payload="arrow")
        assert not rows and json.loads(letter.raw)["ts"] == "2026-01-01"


def test_what_is_around_the_payload_fills_columns() -> None:
    fields = [
        *SCHEMA,
        pa.field("_offset", pa.int64()),
        pa.field("who", pa.string()),
        pa.field("_headers", pa.map_(pa.string(), pa.string())),
    ]
    spec = make_spec("taxi", pa.schema(fields), time="ts", key="plate")
    rules = Rules(MESSAGES, "json", meta={"_offset": "offset", "who": "key", "_headers": "headers"})
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": b"\xff"}], None])
    batch = messages([GOOD, b'{"plate":1,"ts":"2026-01-01","_offset":7,"note":5}'], key=pa.array([b"k", b"\xff"]), headers=headers)
    rows, letters = MessageDecoder(RowMaker(spec, rules), rules).decode(batch)
    found = pa.Table.from_batches(rows).to_pylist()
    assert letters == [] and [(r["_offset"], r["who"], r["_headers"]) for r in found] == [
        (100, "k", [("a", "1"), ("a", "\\xff")]),
        (101, "\\xff", None),
    ]


def test_keys_that_cannot_be() -> None:
    schema = pa.schema([("src", pa.string()), ("ts", pa.timestamp("ms"))])
    rows, letters = decode(
        [b'{"src":"10.0.0.1","ts":"2026-01-01"}', b'{"src":"10.0.0","ts":"2026-01-01"}'], make_spec("f", schema, time="ts", key=ip("src"))
    )
    assert len(rows) == 1 and letters[0].column == "src" and "has no key" in letters[0].reason
    schema = pa.schema([("x", pa.float64()), ("ts", pa.timestamp("ms")), ("y", pa.float64())])
    spec = make_spec("z", schema, time="ts", key=zorder("x", "y", bounds=(0, 0, 1, 1)))
    rows, letters = decode([b'{"x":1,"y":NaN,"ts":"2026-01-01"}', b'{"x":1,"y":2,"ts":"2026-01-01"}'], spec)
    assert len(rows) == 1 and letters[0].column == "x, y"


def test_types_that_spark_does_not_have() -> None:
    schema = pa.schema([
        ("k", pa.uint64()), ("ts", pa.timestamp("ns")), ("d", pa.dictionary(pa.int32(), pa.string())), ("n", pa.decimal128(20, 2)),
        ("l", pa.list_(pa.struct([("a", pa.int16()), ("b", pa.timestamp("ms"))]))), ("m", pa.map_(pa.string(), pa.int64())),
        ("h", pa.float16()),
    ])  # fmt: skip
    spec = make_spec("odd", schema, time="ts", key="k")
    value = b'{"k":18446744073709551615,"ts":"2026-01-01T00:00:00.123456789","d":"x","n":"1.25","h":0.5,'
    value += b'"l":[{"a":1,"b":"2026-01-01"}],"m":{"z":1}}'
    decoder_ = MessageDecoder(RowMaker(spec, found := Rules(MESSAGES, "json")), found)
    rows, letters = decoder_.decode(messages([value]))
    assert letters == [] and rows[0].column("k")[0].as_py() == (1 << 64) - 1 and rows[0].column("m")[0].as_py() == [("z", 1)]
    assert rows[0].column("ts").cast(pa.int64())[0].as_py() % 1000 == 789
    simple = make_spec("odd", schema.remove(5), time="ts", key="k")  # without the map Arrow parses it all
    rows, letters = MessageDecoder(RowMaker(simple, found), found).decode(messages([value]))
    assert letters == [] and rows[0].column("ts").cast(pa.int64())[0].as_py() % 1000 == 789


def test_the_sink_s_door() -> None:
    rules = Rules(MESSAGES, "json", columns=("a",), time_format="epoch-s")
    assert rules_from_json(rules.to_json()) == rules
    deliveries = list(decoder(Rules(MESSAGES, "json").to_json(), SPEC)(iter([messages([GOOD, b"{", GOOD])])))
    assert len(deliveries) == 1 and deliveries[0].package is None
    rows, letters = 0, 0
    for batch in deliveries[0].batches:
        assert batch.schema == deliveries[0].schema
        good, bad = split(batch)
        rows, letters = rows + good.num_rows, letters + len(bad)
    assert (rows, letters) == (2, 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["2026-01-01", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["plate", "ts", "speed", "x"]), inner, max_size=4),
)


@given(
    st.lists(st.binary(max_size=20) | JSON.map(lambda v: json.dumps(v).encode()) | st.just(GOOD), max_size=200),
    st.sampled_from(["json", "csv", "avro", "arrow"]),
)
def test_every_record_is_a_row_or_a_letter(values: list[bytes | None], payload: str) -> None:
    rows, letters = decode(values, payload=payload, avro_schema=json.dumps(AVRO))
    in_letters = {x.origin.split(" ")[0] for x in letters}
    assert len(in_letters) + len(rows) >= len(values)
    if payload == "json":  # one by one, each by Python's parser, says the same
        apart = [decode([value], payload="json") for value in values]
        assert sorted(str(r) for found, _ in apart for r in found) == sorted(map(str, rows))
