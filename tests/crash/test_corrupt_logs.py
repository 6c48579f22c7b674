"""A log with any byte changed, or cut off anywhere: an error that names it, or right rows. Never wrong rows, never a dead process."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tidewheel.catalog.sql import open_sqlite
from tidewheel.chunk import names
from tidewheel.env.files import LocalFiles
from tidewheel.model.pieces import Shape
from tidewheel.model.records import TableRecord
from tidewheel.testing.abandon import abandon
from tidewheel.write import log as logs
from tidewheel.write.log import fixed_widths
from tidewheel.write.log_format import Record, batch_of
from tidewheel.write.log_reader import Covered, read_log

FIXED = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int32())])
TEXTS = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.list_(pa.int32()))])
LABELS = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.dictionary(pa.int32(), pa.string()))])


def rows(schema: pa.Schema, first: int, last: int) -> pa.RecordBatch:
    n = range(first, last)
    keys = pa.array([f"k{i:04d}" for i in n]) if schema is TEXTS else pa.array(n, pa.int64())
    values = {
        pa.int32(): lambda: pa.array(n, pa.int32()),
        TEXTS.field("v").type: lambda: pa.array([[i] * (i % 3) for i in n], pa.list_(pa.int32())),
        LABELS.field("v").type: lambda: pa.array([f"label {i % 7}" for i in n]).dictionary_encode(),
    }[schema.field("v").type]()
    return pa.record_batch([keys, pa.array(n, pa.timestamp("us")), values], schema=schema)


class Log:
    """The log of a killed owner, and what reading it gives."""

    def __init__(self, root: Path, schema: pa.Schema, batches: int, size: int, durability: str = "process") -> None:
        wh = tw.open(root, settings=tw.Settings(indexing_servers=2, durability=durability))
        table = wh.create_table("t", schema, time="ts", key="k")
        for n in range(batches):
            table.insert(rows(schema, n * size, (n + 1) * size), package="p" if n == 1 else None)
        abandon(wh._engine)
        catalog = open_sqlite(root / names.CATALOG)
        record = catalog.table("t")
        catalog.close()
        assert record is not None
        self.root, self.schema, self.table = root, schema, record
        self.files = LocalFiles(root)
        self.widths = fixed_widths(Shape(self.table.spec)) or ()
        self.segments = sorted((root / "logs").rglob("*.log"))
        self.whole = self.read()
        assert len(self.whole) == batches

    def read(self) -> list[list[dict[str, object]]]:
        """The rows of each batch, as a recovery would read them. Raises what it would raise."""
        contents = read_log(self.files, TableRecord(self.table.id, self.table.spec), self.widths, Covered([]))
        self.cut = contents.cut_bytes
        return [[row for record in batch for row in batch_of(record, self.schema, self.widths).to_pylist()] for batch in contents.batches]

    def changed(self, segment: Path, at: int, mask: int) -> str:
        """What a changed byte leads to."""
        data = bytearray(segment.read_bytes())
        data[at] ^= mask
        segment.write_bytes(data)
        try:
            found = self.read()
        except tw.CorruptionError as e:
            assert segment.name in str(e) or "before it are missing" in str(e)
            return "detected"
        except tw.StorageError:
            return "detected"
        finally:
            data[at] ^= mask
            segment.write_bytes(data)
        assert found == self.whole, f"byte {at} of {segment.name} ^ {mask}: other rows, and no error"
        return "harmless"

    def cut_off(self, segment: Path, size: int) -> None:
        """A segment that ends early: a prefix of the batches, or an error if others follow."""
        data = segment.read_bytes()
        segment.write_bytes(data[:size])
        try:
            found = self.read()
            assert found == self.whole[: len(found)], f"{segment.name} cut to {size} bytes: no prefix"
        except tw.CorruptionError:
            assert segment is not self.segments[-1], f"the last segment cut to {size} bytes is what a crash leaves"
        finally:
            segment.write_bytes(data)


@pytest.mark.parametrize("schema", [FIXED, TEXTS, LABELS], ids=["fixed", "texts", "labels"])
def test_every_byte_of_a_small_log(tmp_path: Path, schema: pa.Schema) -> None:
    log = Log(tmp_path, schema, batches=3, size=3)
    (segment,) = log.segments
    size = segment.stat().st_size
    outcomes = [log.changed(segment, at, mask) for at in range(size) for mask in (0x01, 0xFF)]
    padding = outcomes.count("harmless") / 2
    assert outcomes.count("detected") > 1.6 * size, f"{padding} of {size} bytes may be changed unnoticed"
    for at in range(size):
        log.cut_off(segment, at)


@pytest.mark.parametrize("schema", [FIXED, TEXTS, LABELS], ids=["fixed", "texts", "labels"])
def test_sampled_bytes_of_a_large_log(tmp_path: Path, schema: pa.Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SEGMENT_BYTES", 40_000)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    log = Log(tmp_path, schema, batches=12, size=700)
    assert len(log.segments) > 2
    for _ in range(examples(700)):
        segment = rng.choice(log.segments)
        log.changed(segment, rng.randrange(segment.stat().st_size), rng.choice([0x01, 0x80, 0xFF]))
    for _ in range(examples(100)):
        segment = rng.choice(log.segments)
        log.cut_off(segment, rng.randrange(segment.stat().st_size))


def test_what_a_user_sees(tmp_path: Path) -> None:
    """Some of the same through `tw.open`: refused with what to do next, or opened with a report of what was cut off."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    log = Log(tmp_path / "wh", FIXED, batches=5, size=40)
    (segment,) = log.segments
    size = segment.stat().st_size
    name = segment.relative_to(tmp_path / "wh")
    for n in range(examples(30)):
        copy = tmp_path / f"copy {n}"
        shutil.copytree(tmp_path / "wh", copy)
        data = bytearray((copy / name).read_bytes())
        at = rng.randrange(size)
        if n % 2:
            del data[at:]
        else:
            data[at] ^= 0xFF
        (copy / name).write_bytes(data)
        try:
            with tw.open(copy) as wh:
                found = sorted(wh.table("t").query(columns=["v"]).to_arrow()["v"].to_pylist())
                assert found == list(range(len(found))) and len(found) % 40 == 0, f"seed {seed}, {n}: byte {at}"
                if n % 2 == 0:
                    assert len(found) == 200
                cut = sum(table.cut_bytes for table in wh.recovery.tables)
                assert cut or len(found) == 200 or at in {r.end for r in _records(log)} | {_records(log)[0].offset}
        except tw.CorruptionError as e:
            assert n % 2 == 0 and "damaged_log" in str(e), f"seed {seed}, {n}: byte {at}: {e}"
        shutil.rmtree(copy)


def _records(log: Log) -> list[Record]:
    contents = read_log(log.files, log.table, log.widths, Covered([]))
    return [record for batch in contents.batches for record in batch]
