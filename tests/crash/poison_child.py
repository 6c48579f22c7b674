"""A process that is handed poisoned batches: it owns a warehouse and inserts them, through every door that needs no Spark.

    python -m tests.crash.poison_child ROOT JOURNAL SEED FIRST COUNT

What Arrow validates as good must be taken, or refused with a reason for its rows; what it does not must be refused. Bytes that nobody has
read yet are taken as Arrow itself reads them, or refused as input. Each batch that was acknowledged is written into the journal with its
rows, so that whoever killed this process can look for them. The door "wire" sends raw frames with a valid token to the service in this
process, whose owner reads them as it reads those of any other process.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidewheel as tw
from tests.poison import ipc, is_good, mutate, poisoned, reread
from tidewheel.cluster import requests as ask
from tidewheel.cluster.client import attach
from tidewheel.engine.operations import Insert
from tidewheel.ingest.decode import FileDecoder, MessageDecoder
from tidewheel.ingest.row_maker import RowMaker
from tidewheel.ingest.rules import FILES, Rules
from tidewheel.model.coders import key_coder
from tidewheel.model.delivery import SliceId
from tidewheel.testing.probe import Probe, connection_of
from tidewheel.testing.strategies import PAYLOADS
from tidewheel.testing.values import column
from tidewheel.write.accept import accept
from tidewheel.write.soundness import check_lengths

TYPES: tuple[pa.DataType, ...] = (
    *PAYLOADS, pa.date64(), pa.time32("s"), pa.decimal32(7, 2), pa.dictionary(pa.uint32(), pa.binary()),
    pa.list_(pa.struct([("x", pa.dictionary(pa.int32(), pa.string())), ("y", pa.large_string())])),
    pa.struct([("a", pa.list_(pa.large_binary())), ("b", pa.dictionary(pa.int16(), pa.string()))]),
)  # fmt: skip
"""Each has a table of its own: a key, a time, a text and a column of the type."""

DOORS = ("insert", "table", "reader", "reject", "replace", "stage", "attached", "wire", "put", "file", "message")


def schema_of(type_: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("s", pa.string()), ("c", type_)])


def good_batch(type_: pa.DataType, rng: random.Random, first: int) -> pa.RecordBatch:
    n = rng.choice([1, 2, 3, 9, 64, 200])
    numbers = pa.array(np.arange(first, first + n))
    texts = column(pa.string(), rng, n)
    return pa.RecordBatch.from_arrays([numbers, numbers.cast(pa.timestamp("us")), texts, column(type_, rng, n)], schema=schema_of(type_))


class Poisoner:
    def __init__(self, root: Path, journal: Path, seed: int) -> None:
        self.wh = tw.open(root, settings=tw.Settings(chunk_bytes=1 << 16, max_batch_bytes=64 << 20))
        self.seed = seed
        self.journal = journal.open("a")
        self.folder = root.parent
        self.tables = [
            self.wh.create_table(f"t{i}", schema_of(type_), time="ts", key="k", if_exists="open") for i, type_ in enumerate(TYPES)
        ]
        self.attached: Any = attach(root, wait=30)
        self.others = [Probe(self.attached.table(table.name)) for table in self.tables]
        self.counts: Counter[str] = Counter()

    def close(self) -> None:
        self.attached.close()
        self.wh.close()

    def one(self, number: int) -> None:
        rng = random.Random(f"{self.seed} {number}")
        at = rng.randrange(len(TYPES))
        table, other, spec = self.tables[at], self.others[at], Probe(self.tables[at]).spec
        door = rng.choice(DOORS)
        batch = good_batch(TYPES[at], rng, number * 1000)
        if door in ("wire", "file", "message"):
            self._bytes(door, number, rng, table, other, batch)
            return
        made = rng.choice([poisoned, reread, lambda batch, rng: [batch]])(batch, rng)
        if not made:
            self.counts["unreadable"] += 1
            return
        given = made[0]
        right = is_good(given)
        wanted = _rows(given, spec) if right else None
        try:
            ack = self._through(door, number, table, other, given)
        except tw.TidewheelError as e:
            assert isinstance(e, tw.InputError), (number, door, e)
            outside = door == "replace" and "outside the interval" in str(e) and wanted is not None and not _is_own(wanted, number)
            assert wanted is None or outside, f"{number} through {door}: a good batch was refused: {e}"
            self.counts["refused"] += 1
            return
        if not right:  # all that may be wrong with it is text, and such rows are rejects
            assert ack.rejected or not ack.rows, f"{number} through {door}: a bad batch was taken"
            self.counts["rows rejected"] += 1
            return
        self._taken(number, table, given, wanted, ack)

    def _through(self, door: str, number: int, table: tw.Table, other: Any, given: pa.RecordBatch) -> Any:
        slice_id = SliceId(f"s{self.seed}", "run", number, 0, 0)
        match door:
            case "insert":
                return table.insert(given)
            case "table":
                return table.insert(pa.Table.from_batches([given]))
            case "reader":
                return table.insert(pa.RecordBatchReader.from_batches(given.schema, [given]))
            case "reject":
                return table.insert(given, on_bad="reject")
            case "replace":
                return table.replace(given, time=(number * 1000, number * 1000 + 999))
            case "stage":
                Probe(table).stage(slice_id, iter([given]), given.schema)
                return Probe(table).commit_batch(slice_id.stream, "run", number, [slice_id])
            case "attached":
                return other.insert(given)
            case "put":  # past most checks of whoever sends
                check_lengths(given, table.name)
                return connection_of(other.engine).put(ask.GiveTable(other.engine._number, Insert(None, "error")), given.schema, [given])
        raise AssertionError(door)

    def _bytes(self, door: str, number: int, rng: random.Random, table: tw.Table, other: Any, batch: pa.RecordBatch) -> None:
        """Bytes that nobody has read yet: frames with a valid token, files and messages."""
        data = ipc(batch)
        changed = rng.random() < 0.8
        if changed:
            mutate(data, rng)
        spec = Probe(table).spec
        wanted = _read(bytes(data), spec, door)
        assert changed or wanted is not None
        try:
            if door == "wire":
                ack = connection_of(other.engine).call(
                    ask.GiveTable(other.engine._number, Insert(None, "error")), pa.py_buffer(bytes(data))
                )[0]
                assert wanted is not None or not ack.rows, f"{number} through {door}: {ack.rows} rows of what Arrow cannot read"
                self._taken(number, table, batch, wanted, ack)
                return
            maker = RowMaker(Probe(table).spec, Rules(FILES if door == "file" else "kafka", payload="arrow"))
            if door == "file":
                path = self.folder / "poison.arrows"
                path.write_bytes(data)
                batches = list(FileDecoder(maker, Rules(FILES, payload="arrow"))._deliver(str(path), len(data), 0, None).batches)
            else:
                decoder = MessageDecoder(maker, Rules("kafka", payload="arrow"))
                batches = list(decoder._all(iter([pa.record_batch([pa.array([bytes(data)], pa.binary())], ["value"])])))
            slice_id = SliceId(f"s{self.seed}", "run", number, 0, 0)
            staged = other.stage(slice_id, iter(batches), batches[0].schema) if batches else None
            if staged is not None:
                ack = other.commit_batch(slice_id.stream, "run", number, [slice_id])
                assert ack.rows or ack.rejected, f"{number} through {door}: nothing is left, and nothing is said"
                assert wanted is not None or not ack.rows, f"{number} through {door}: {ack.rows} rows of what Arrow cannot read"
                if ack.rows:
                    self._taken(number, table, batch, wanted, ack)
                else:
                    self.counts["rows rejected"] += 1
        except tw.TidewheelError as e:
            assert isinstance(e, tw.InputError), (number, door, e)
            assert wanted is None, f"{number} through {door}: what can be read was refused: {e}"
            self.counts["refused"] += 1

    def _taken(self, number: int, table: tw.Table, given: pa.RecordBatch, wanted: Any, ack: Any) -> None:
        """What was acknowledged is there, as it was given."""
        self.counts["taken"] += 1
        if wanted is None or given.num_rows == 0:
            return
        assert ack.rows == len(wanted), (number, ack, len(wanted))
        if _is_own(wanted, number):
            found = own_rows(table, number)
            found.validate(full=True)
            assert found.num_rows == wanted.num_rows, f"{number}: {found.num_rows} rows for {ack.rows}"
            if found.num_rows < 20 or number % 8 == 0:  # it takes long
                there, given_rows = texts(found), texts(wanted)
                assert there == given_rows, f"{number}: {list(there - given_rows)[:1]} instead of {list(given_rows - there)[:1]}"
        self._note(number, table)

    def _note(self, number: int, table: tw.Table) -> None:
        """For whoever kills us: so many rows of this number must be there from now on."""
        self.journal.write(json.dumps([number, table.name, own_rows(table, number).num_rows]) + "\n")
        self.journal.flush()


def _is_own(rows: pa.Table, number: int) -> bool:
    """Whether all keys and times are still those that this number was given."""
    return {*rows["k"].to_pylist(), *rows["ts"].cast(pa.int64()).to_pylist()} <= set(range(number * 1000, number * 1000 + 1000))


def own_rows(table: tw.Table, number: int) -> pa.Table:
    """The rows of one number, if they still have their keys and times."""
    mine = number * 1000, number * 1000 + 999
    return table.query(key=mine, time=mine).to_arrow()


def texts(rows: pa.Table) -> Counter[str]:
    """Rows as text, in any order."""
    return Counter(" | ".join(_text(column[i]) for column in rows.columns) for i in range(rows.num_rows))


def _text(value: pa.Scalar) -> str:
    """A value as text, without what lies under its nulls; dictionaries by their values. Python has not all of them, so Arrow tells them."""
    t = pa.types
    if not value.is_valid:
        return "null"
    if t.is_dictionary(value.type):
        return _text(value.dictionary[value.index.as_py()])
    if t.is_struct(value.type):
        return "{" + ", ".join(_text(value[i]) for i in range(value.type.num_fields)) + "}"
    if t.is_nested(value.type) and hasattr(value, "values"):
        return "[" + ", ".join(map(_text, value.values)) + "]"
    return str(pa.array([value], value.type).to_string())


def _rows(batch: pa.RecordBatch, spec: Any) -> pa.Table | None:
    """What the table should have of a good batch; None if it must be refused for what its rows are."""
    try:
        found = accept(pa.Table.from_batches([batch]), spec, key_coder(spec).refuse)
    except tw.InputError:
        return None
    return pa.Table.from_batches(found.batches, spec.schema)


def _read(data: bytes, spec: Any, door: str) -> pa.Table | None:
    """What the table should have of bytes, as Arrow itself reads them; None if it cannot, or they must be refused."""
    try:
        batches = list(pa.ipc.open_stream(pa.py_buffer(data)))
        if not batches:
            return None
        rows = pa.Table.from_batches(batches)
        if door != "wire":  # columns that a table does not have are left out there, and bad rows put aside
            rows.validate(full=True)
            rows = rows.select([name for name in spec.schema.names if name in rows.schema.names])
        found = accept(rows, spec, key_coder(spec).refuse, "error" if door == "wire" else "reject")
    except (pa.ArrowException, OSError, LookupError, ValueError, MemoryError):  # InputError is a ValueError
        return None
    return pa.Table.from_batches(found.batches, spec.schema)


def main() -> None:
    root, journal, seed, first, count = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6])
    one = Poisoner(root, journal, seed)
    for number in range(first, first + count):
        print(number, flush=True)
        one.one(number)
    one.close()
    print(json.dumps(one.counts), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
