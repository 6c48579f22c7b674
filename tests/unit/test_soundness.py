"""Arrow data that cannot be read safely is refused at every door, by name, and leaves nothing behind; text that is no text is a bad row."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.poison import FAULTS, ipc
from tidewheel.cluster import requests as ask
from tidewheel.cluster.handlers import Handlers, _rows
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.cluster.wire import stream
from tidewheel.engine.operations import Insert
from tidewheel.errors import SchemaError
from tidewheel.model.arrays import with_bytes
from tidewheel.model.dead_letters import HIDDEN
from tidewheel.model.delivery import SliceId
from tidewheel.testing.abandon import abandon
from tidewheel.testing.fixed_engine import held
from tidewheel.testing.probe import Probe
from tidewheel.write.arrow_input import InputColumns, to_batches
from tidewheel.write.chunk_maker import ChunkMaker
from tidewheel.write.soundness import readable, unreadable_text

TEXT = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("c", pa.string())])
NOT_TEXT = pa.array([b"ab", b"\xff\xfe", None, b"caf\xc3\xa9", b"\xc3"]).view(pa.string())


def rows_with(column: pa.Array, first: int = 0) -> pa.RecordBatch:
    numbers = pa.array(np.arange(first, first + len(column)))
    batch = pa.RecordBatch.from_arrays([numbers, numbers.cast(pa.timestamp("us"))], names=["k", "ts"])
    return batch.append_column("c", column)  # unlike `from_arrays`, without a look at it


def with_hidden_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    for name in HIDDEN:
        batch = batch.append_column(name, pa.nulls(batch.num_rows, pa.string()))
    return batch


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with held(OwnedEngine(tmp_path / "wh", tw.Settings(), listen=False)) as wh:
        yield wh


def table_for(wh: tw.Warehouse, type_: pa.DataType) -> tw.Table:
    return wh.create_table("t", rows_with(pa.nulls(1, type_)).schema, time="ts", key="k", if_exists="open")


def slice_of(number: int) -> SliceId:
    return SliceId("s", "run", number, 0, 0)


def stage(table: tw.Table, *batches: pa.RecordBatch, number: int = 0) -> Any:
    return Probe(table).stage(slice_of(number), iter(batches), batches[0].schema)


def in_bulk(table: tw.Table, batch: pa.RecordBatch) -> None:
    engine = Probe(table)
    load = engine.begin_load()
    try:
        with ChunkMaker(engine.owner.root, engine.spec, load) as maker:
            maker.add(batch, "error")
    finally:
        engine.abort_load(load.job)


def over_the_wire(table: tw.Table, batch: pa.RecordBatch, **beside: list[Any]) -> Any:
    """As another process sends it, and as it arrives. Python values may go beside it."""
    names = (*batch.schema.names, *beside)
    return taken(table, batch, ask.Values(batch.num_rows, names, beside) if beside else None)


def taken(table: tw.Table, batch: pa.RecordBatch, values: ask.Values | None = None) -> Any:
    handlers = Handlers(Probe(table).owner, 1)
    number = handlers.answer("", ask.OpenTable("t"), pa.py_buffer(b""))[0].table
    return handlers.take(ask.GiveTable(number, Insert(None, "error"), values), batch.schema, [batch])


DOORS: dict[str, Callable[[tw.Table, pa.RecordBatch], Any]] = {
    "insert": lambda t, b: t.insert(b),
    "insert, rejecting": lambda t, b: t.insert(b, on_bad="reject"),
    "a package": lambda t, b: t.insert(b, package="p"),
    "a table": lambda t, b: t.insert(pa.Table.from_batches([b])),
    "a table of small pieces": lambda t, b: t.insert(pa.Table.from_batches([b, b, b])),
    "a reader": lambda t, b: t.insert(pa.RecordBatchReader.from_batches(b.schema, [b])),
    "other columns": lambda t, b: t.insert(b.select(["ts", "c", "k"])),
    "replace": lambda t, b: t.replace(b, time=(None, None)),
    "stage": lambda t, b: stage(t, b),
    "stage with dead letters": lambda t, b: stage(t, with_hidden_columns(b)),
    "bulk": in_bulk,
    "the wire": over_the_wire,
    "the wire, beside values": lambda t, b: over_the_wire(t, b.select(["ts", "c"]), k=[1, 2, 3]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_door_takes_what_cannot_be_read(wh: tw.Warehouse, fault: str) -> None:
    column = FAULTS[fault]()
    table = table_for(wh, column.type)
    batch = rows_with(column)
    for door, through in DOORS.items():
        with pytest.raises(tw.BadRowsError) as e:
            through(table, batch)
        assert e.value.column == "c" and "'c'" in str(e.value), door
        assert "'t'" in str(e.value) or fault == "negative start", door
    assert table.rows == 0 and len(table.rejects()) == 0 and wh.tables() == ["t"]
    good = pa.nulls(3, column.type)
    assert table.insert(rows_with(good), package="p").rows == 3  # the package was not taken for loaded
    assert wh.sql("SELECT count(*) AS n FROM t").to_arrow()["n"].to_pylist() == [3]


def test_no_door_takes_a_field_of_negative_length(wh: tw.Warehouse) -> None:
    """As a reader of IPC makes it of changed bytes. Arrow ends the process that takes such a field in the hand."""
    column = pa.StructArray.from_arrays([pa.array([7, 8, 9], pa.int64())], ["x"])
    table = table_for(wh, column.type)
    data = ipc(rows_with(column))
    at = data.rfind(struct.pack("<4q", 3, 0, 3, 0)) + 16  # the length of the last column's field, behind that of the column
    data[at : at + 8] = struct.pack("<q", -(2**62))
    (batch,) = pa.ipc.open_stream(pa.py_buffer(bytes(data)))
    for door in ("insert", "a reader", "replace", "stage", "the wire"):
        with pytest.raises(tw.BadRowsError, match="negative length"):
            DOORS[door](table, batch)
    assert table.rows == 0 and len(table.rejects()) == 0


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_text_that_is_not_utf8_is_a_bad_row(wh: tw.Warehouse, type_: pa.DataType) -> None:
    raw = as_type(NOT_TEXT, type_)
    table = table_for(wh, type_)
    with pytest.raises(tw.BadRowsError, match=r"table 't', column 'c': 2 rows are not UTF-8 text \(first: row 1: '.*xff.*', row 4:") as e:
        table.insert(rows_with(raw))
    assert e.value.rows == (1, 4) and table.rows == 0
    for first, through in enumerate((
        lambda b: table.insert(b, on_bad="reject"),
        lambda b: table.insert(pa.Table.from_batches([b]), on_bad="reject"),
        lambda b: table.insert(in_pandas(b), on_bad="reject"),
        lambda b: stage(table, b, number=1) and Probe(table).commit_batch("s", "run", 1, [slice_of(1)]),
        lambda b: stage(table, with_hidden_columns(b), number=2) and Probe(table).commit_batch("s", "run", 2, [slice_of(2)]),
    )):  # fmt: skip
        ack = through(rows_with(raw, 10 * first))
        assert (ack.rows, ack.rejected) == (3, 2)
    found = table.query(order_by="k").to_arrow()
    assert found["c"].to_pylist() == ["ab", None, "café"] * 5
    found.validate(full=True)
    assert len(table.rejects()) == 10 and set(table.rejects().to_arrow()["column"].to_pylist()) == {"c"}
    table.flush()
    assert table.query(order_by="k").to_arrow()["c"].to_pylist() == ["ab", None, "café"] * 5


def in_pandas(batch: pa.RecordBatch) -> pd.DataFrame:
    """A frame that holds the very arrays."""
    held_by = pd.arrays.ArrowExtensionArray
    return pd.DataFrame({name: pd.Series(held_by(column)) for name, column in zip(batch.schema.names, batch.columns, strict=True)})


def as_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Text of another type, without a look at its bytes."""
    if pa.types.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 3, 4], pa.int32()), array)
    return array.view(pa.binary()).cast(with_bytes(type_)).view(type_)


def test_text_inside_of_lists_and_structs() -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 5], pa.int32()), NOT_TEXT)
    structs = pa.StructArray.from_arrays([NOT_TEXT.slice(0, 4), lists], ["a", "b"])
    for column, bad in ((lists, [True, False, False, True]), (structs, [True, True, False, True])):
        assert unreadable_text(pa.record_batch([column], ["c"]), "t") == {"c"}
        clean, found = readable(column)
        assert found.tolist() == bad
        clean.validate(full=True)
        assert [v is None for v in clean.to_pylist()][:4] == bad


def hidden_indices(dictionary: list[str]) -> pa.Array:
    """A dictionary array that is valid, and has wild indices where it is null."""
    bits, numbers = pa.py_buffer(bytes([0b0101])), pa.py_buffer(np.array([0, -1_000_000_000, 1, 99_999_999], np.int32))
    indices = pa.Array.from_buffers(pa.int32(), 4, [bits, numbers])
    return pa.DictionaryArray.from_arrays(indices, pa.array(dictionary), safe=False)


def hidden_views(texts: list[str]) -> pa.Array:
    """The same for views."""
    array = pa.array([texts[0], None, texts[1] * 20, None], pa.string_view())
    raw = np.frombuffer(array.buffers()[1], np.int32).copy().reshape(4, 4)
    raw[[1, 3]] = [[2**31 - 1, 0, 7, 99], [-5, 1, 2, 3]]
    bits, _, *data = array.buffers()
    return pa.Array.from_buffers(pa.string_view(), 4, [bits, pa.py_buffer(raw), *data])


@pytest.mark.parametrize("make", [hidden_indices, hidden_views])
@pytest.mark.parametrize("inside", ["itself", "list", "struct", "map", "fixed"])
def test_what_is_wild_under_nulls_is_nobodys_trouble(tmp_path: Path, make: Callable[[list[str]], pa.Array], inside: str) -> None:
    """Arrow takes it for valid, and reads wild memory when it joins dictionaries or casts views."""
    ends = pa.array([0, 1, 2, 3, 4], pa.int32())
    wrap: dict[str, Callable[[pa.Array], pa.Array]] = {
        "itself": lambda c: c,
        "list": lambda c: pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([c], ["d"])),
        "struct": lambda c: pa.StructArray.from_arrays([c, c], ["d", "e"], mask=pa.array([False, False, False, True])),
        "map": lambda c: pa.MapArray.from_arrays(ends, pa.array(["p", "q", "r", "s"]), c),
        "fixed": lambda c: pa.FixedSizeListArray.from_arrays(c, 1),
    }
    columns = [wrap[inside](make(names)) for names in (["a", "b"], ["c", "d"], ["e", "f"])]
    wanted = [value for column in columns for value in column.to_pylist()]
    root = tmp_path / "wh"
    wh = held(OwnedEngine(root, tw.Settings(), listen=False))
    table = table_for(wh, columns[0].type)
    table.insert(rows_with(columns[0]))
    table.insert(pa.Table.from_batches([rows_with(columns[1], 4)]))
    Probe(table).publisher.insert([rows_with(columns[2], 8)])  # as an older version logged it
    abandon(wh)
    with held(OwnedEngine(root, tw.Settings(), listen=False)) as wh:
        table = wh.table("t")
        assert table.query(order_by="k").to_arrow()["c"].to_pylist() == wanted
        table.flush()
        assert table.query(order_by="k").to_arrow()["c"].to_pylist() == wanted and wh.check().ok


def test_nothing_wild_comes_in_beside_text_that_cannot_be_read(tmp_path: Path) -> None:
    """Where rows are looked at column by column: slices of a stream, and columns that come beside Python's values."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("s", pa.string()), ("v", pa.string_view())])
    offsets, data = pa.py_buffer(np.array([0, 1, 2, 3, 4], np.int32)), pa.py_buffer(b"ab\xffd")
    unreadable = pa.StringArray.from_buffers(4, offsets, data)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(4)), pa.array(range(4), pa.timestamp("us")), unreadable, hidden_views(["x", "y"])], schema=schema
    )
    with tw.open(tmp_path) as wh:
        table = Probe(wh.create_table("t", schema, time="ts", key="k"))
        slice_id = SliceId("stream", "run", 0, 0, 0)
        assert table.stage(slice_id, [batch], schema).rejected == 1
        staged = [run.source.data.column("v") for _, _, run in dict(table.streams._staged.items())[slice_id].placed]
        beside = _rows(ask.Values(4, ("k", *schema.names[1:]), {"k": [0, 1, 2, 3]}), batch.schema, [batch], "t").columns["v"]
        for views in (*staged, beside):
            raw = np.frombuffer(views.buffers()[1], np.int64).reshape(-1, 2)[views.offset : views.offset + len(views)]
            assert not raw[views.is_null().to_numpy(zero_copy_only=False)].any()


def test_nothing_wild_comes_in_with_a_data_frame(tmp_path: Path) -> None:
    spec = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("d", pa.string())])
    series = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([hidden_indices(["a", "b"])])))
    frame = pd.DataFrame({"k": range(4), "ts": pd.to_datetime([0] * 4), "d": series})
    with tw.open(tmp_path) as wh:
        table: Any = wh.create_table("t", spec, time="ts", key="k")
        (columns,) = to_batches(frame, Probe(table).spec)
        assert isinstance(columns, InputColumns)
        indices = columns.columns["d"].indices
        assert indices.null_count == 2 and np.frombuffer(indices.buffers()[1], np.int32)[:4].tolist() == [0, 0, 1, 0]
        table.insert(frame)
        assert table.query(order_by="k").to_arrow()["d"].to_pylist() == ["a", None, "b", None]


def test_lists_whose_items_have_another_name_are_stored_as_the_table_names_them(wh: tw.Warehouse) -> None:
    """Parquet and Spark say element where Arrow says item, and Arrow calls the types equal; a chunk has names, and checksums of them."""
    table = table_for(wh, pa.list_(pa.struct([("a", pa.list_(pa.int32()))])))
    other = pa.list_(pa.field("element", pa.struct([("a", pa.list_(pa.field("element", pa.int32())))])))
    assert other == table.schema.field("c").type
    values = [[{"a": [1, 2]}], None, [{"a": None}, {"a": []}]]
    table.insert(rows_with(pa.array(values, other)))
    table.flush()
    assert wh.check().ok and table.query(order_by="k").to_arrow()["c"].to_pylist() == values


@pytest.mark.parametrize("door", ["insert", "replace", "bulk"])
def test_a_schema_that_names_the_items_otherwise_than_its_columns(wh: tw.Warehouse, door: str) -> None:
    """Arrow makes such batches, since it takes both types for equal; Spark's came so."""
    items = pa.list_(pa.struct([("a", pa.int64())]))
    table = table_for(wh, items)
    column = pa.array([None, [], [{"a": 1}]], pa.list_(pa.field("element", items.value_type)))
    batch = rows_with(column)
    batch = pa.RecordBatch.from_arrays(batch.columns, schema=table.schema)
    if door == "bulk":
        engine = Probe(table)
        load = engine.begin_load()
        with ChunkMaker(engine.owner.root, engine.spec, load) as maker:
            maker.add(batch, "error")
        engine.commit_load(load.job, [maker.written], False)
    else:
        DOORS[door](table, batch)
    table.flush()
    assert wh.check().ok and table.query(order_by="k").to_arrow()["c"].to_pylist() == [None, [], [{"a": 1}]]


def test_a_name_that_is_not_text(wh: tw.Warehouse) -> None:
    table = table_for(wh, pa.string())
    data = bytearray(stream(TEXT, [rows_with(pa.array(["x"]))]).to_pybytes())
    at = data.rindex(b"c", 0, data.index(b"ts"))  # names are stored from the last to the first
    data[at] = 0xFF
    with pytest.raises(tw.InputError, match="UTF-8"):
        table.insert(pa.ipc.open_stream(pa.py_buffer(bytes(data))))
    batch = pa.ipc.open_stream(pa.py_buffer(bytes(data))).read_next_batch()
    with pytest.raises(tw.InputError, match="UTF-8"):  # past the checks of whoever sends
        taken(table, batch)


@pytest.mark.parametrize("inside", [False, True])
def test_a_type_that_only_other_languages_have(wh: tw.Warehouse, inside: bool) -> None:
    """Arrow reads an interval of months and days, and has nothing in Python to hold it."""
    column = pa.array([[0]] * 3, pa.list_(pa.duration("s"))) if inside else pa.array([0] * 3, pa.duration("s"))
    table = table_for(wh, column.type)
    batch = rows_with(column)
    data = bytearray(stream(batch.schema, [batch]).to_pybytes())
    found = None
    for at in range(len(data)):  # the byte that says which type it is: 18 is a duration, 11 an interval
        if data[at] == 18:
            data[at] = 11
            with suppress(pa.ArrowException, OSError):
                (found,) = pa.ipc.open_stream(pa.py_buffer(bytes(data)))
                if "interval" in str(found.schema.field("c").type):
                    break
            data[at] = 18
    assert found is not None
    for through in (table.insert, lambda b: table.insert(pa.Table.from_batches([b])), lambda b: taken(table, b)):
        with pytest.raises(tw.InputError, match="a type that only other languages have"):
            through(found)


def test_a_name_inside_of_a_type_that_is_not_text(wh: tw.Warehouse) -> None:
    column = pa.array([[{"inside": 1}]])
    table = table_for(wh, column.type)
    batch = rows_with(column)
    data = stream(batch.schema, [batch]).to_pybytes().replace(b"inside", b"\xffnside")
    with pytest.raises(tw.InputError, match="UTF-8"):
        table.insert(pa.ipc.open_stream(pa.py_buffer(data)))


@pytest.mark.parametrize("to", [pa.decimal128(20, 4), pa.float64(), pa.int64(), pa.string(), pa.list_(pa.decimal128(20, 4))], ids=str)
@pytest.mark.parametrize("scale", [16_777_220, -16_777_220, 39])
def test_a_decimal_whose_scale_is_beyond_all_digits(wh: tw.Warehouse, to: pa.DataType, scale: int) -> None:
    """Arrow calls it valid, and reads wild memory when it is cast."""
    table = table_for(wh, to)
    column = pa.Array.from_buffers(pa.decimal128(20, scale), 1, [None, pa.py_buffer((5).to_bytes(16, "little"))])
    if pa.types.is_list(to):
        column = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    with pytest.raises(tw.InputError, match="is beyond its 38 digits"):
        table.insert(rows_with(column))
    with pytest.raises(SchemaError, match="is beyond its 38 digits"):
        wh.create_table("odd", rows_with(column).schema, time="ts", key="k")


def test_decimals_whose_scales_are_too_far_apart(wh: tw.Warehouse) -> None:
    column = pa.Array.from_buffers(pa.decimal128(38, 38), 1, [None, pa.py_buffer((5).to_bytes(16, "little"))])
    with pytest.raises(tw.InputError, match="can't become"):
        table_for(wh, pa.decimal128(38, -38)).insert(rows_with(column))


def test_a_stream_that_ends_early_is_an_error_about_the_input(wh: tw.Warehouse) -> None:
    table = table_for(wh, pa.string())
    data = stream(TEXT, [rows_with(pa.array(["x" * 1000]))])
    for cut in range(600, data.size - 16, 100):
        with pytest.raises(tw.InputError):
            table.insert(pa.ipc.open_stream(data.slice(0, cut)))
    assert table.rows == 0


# ---- logs of a version that took what it should not have -----------------------------------------------------


def logged(root: Path, fault: str, durability: str = "process") -> int:
    """A warehouse whose owner died with a record in its log that nobody can read, between good ones, beside a good table."""
    column = FAULTS[fault]()
    wh = held(OwnedEngine(root, tw.Settings(durability=durability), listen=False))
    table, other = table_for(wh, column.type), wh.create_table("other", TEXT, time="ts", key="k")
    table.insert(rows_with(pa.nulls(3, column.type)))
    Probe(table).publisher.insert([rows_with(column, 3)])  # past the acceptor
    table.insert(rows_with(pa.nulls(4, column.type), 6), package="later")
    other.insert(rows_with(pa.array(["x"])))
    abandon(wh)
    return 7


READABLE_WHEN_LOGGED = ["offsets that decrease", "an index past the dictionary", "a view past its buffer", "lists that decrease"]


@pytest.mark.parametrize("fault", READABLE_WHEN_LOGGED)
def test_a_record_that_cannot_be_read_is_set_aside_and_all_else_opens(tmp_path: Path, fault: str) -> None:
    root = tmp_path / "wh"
    rows = logged(root, fault)
    for _ in range(2):
        with pytest.raises(
            tw.CorruptionError, match=r"record 1 \(3 rows\) of the log of table 't' cannot be read(.|\n)*damaged_log=\"skip\""
        ):
            OwnedEngine(root, tw.Settings(), listen=False)
    with held(OwnedEngine(root, tw.Settings(damaged_log="skip"), listen=False)) as wh:
        assert sorted(wh.table("t").query().to_arrow()["k"].to_pylist()) == [0, 1, 2, 6, 7, 8, 9]
        assert wh.table("t").rows == rows and wh.table("other").rows == 1
        (damaged,) = [one for one in wh.recovery.tables if one.table == "t"]
        assert "record 1 (3 rows)" in damaged.damage[0] and "quarantine" in damaged.damage[1]
        assert damaged.damage[0] in str(wh.recovery)
        kept = list((root / "quarantine").rglob("*.log"))
        assert len(kept) == 1 and kept[0].stat().st_size
        assert wh.table("t").insert(rows_with(pa.nulls(4, wh.table("t").schema.field("c").type)), package="later").duplicate
        assert wh.table("t").insert(rows_with(pa.nulls(3, wh.table("t").schema.field("c").type), 3)).rows == 3
    with tw.open(root) as wh:  # it is over, and the segment is still kept
        assert wh.table("t").rows == rows + 3 and not wh.recovery.tables
    assert kept[0].exists()


def test_two_bad_records_of_one_segment(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    wh = held(OwnedEngine(root, tw.Settings(), listen=False))
    table = table_for(wh, pa.string())
    for first in (0, 3):
        Probe(table).publisher.insert([rows_with(FAULTS["offsets that decrease"](), first)])
    abandon(wh)
    with held(OwnedEngine(root, tw.Settings(damaged_log="skip"), listen=False)) as wh:
        assert wh.table("t").rows == 0 and len(wh.recovery.tables[0].damage) == 3
        assert wh.table("t").insert(rows_with(pa.array(["a"]))).generation > 2  # generations are not given out twice
