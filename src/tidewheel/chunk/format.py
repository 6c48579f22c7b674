"""The chunk format, versions 1 to 3, as values and bytes: docs/chunk-format.md in code. No I/O."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tidewheel.chunk.blocks import Blocks
from tidewheel.errors import CorruptionError, FormatError
from tidewheel.model.arrays import with_bytes
from tidewheel.model.dataclass import dataclass
from tidewheel.model.pieces import BLOCK_ROWS, OTHER, column_kind
from tidewheel.model.records import ChunkRecord
from tidewheel.model.schema import TableSpec, ZOrder
from tidewheel.model.text.division import LONGEST_PREFIX
from tidewheel.model.times import INT64_MAX, INT64_MIN

FORMAT = 3
READABLE = (1, 2, 3)
"""The formats that there have been. The last is written where codes of texts are more than a prefix left out, else the one before."""
HEADER_KEY = b"tidewheel.chunk"
INDEX_KEY = b"tidewheel.index"
KEY_CODES = "tidewheel.key"
TIME_CODES = "tidewheel.time"
GENERATIONS = "tidewheel.generation"

REMEDY = 'restore the file from a backup, or leave its rows out with on_corrupt="skip"'

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Leaves:
    """The index of a chunk: its leaves and what is known of each."""

    starts: Array
    bounds: Array
    zones: Array
    masks: Array
    ordered: Array
    more_zones: Array
    mask_start: int
    mask_width: int

    @property
    def count(self) -> int:
        return len(self.bounds)

    def without(self, lost: Array) -> Leaves:
        """The same, but a query passes the marked leaves by, or takes them whole, without a look at any row of them: their zone
        maps lie inside every interval and meet none that has an end."""
        zones = self.zones.copy()
        zones[0::2, lost], zones[1::2, lost] = INT64_MAX, INT64_MIN
        return replace(self, zones=zones)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a chunk, field by field as documented."""

    format: int
    id: str
    table: str
    server: int
    late: bool
    layout: str
    fields: tuple[int, ...]
    rows: int
    leaves: int
    prefix: bytes
    key: tuple[int, int]
    time: tuple[int, int]
    generations: tuple[int, int]
    batches: tuple[tuple[int, int], ...]
    mask: tuple[int, int]
    zones: tuple[str, ...]
    block_rows: int
    blocks: int
    index: str

    def to_json(self) -> str:
        data = {name: getattr(self, name) for name in Header.__slots__}
        data["prefix"] = self.prefix.hex()
        data["layout"] = json.loads(self.layout)
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: bytes, file: str) -> Header:
        try:
            data = json.loads(text)
            if data["format"] not in READABLE:
                raise FormatError(f"chunk {file} has format {data['format']}, this Tidewheel reads up to {FORMAT}: use a newer version")
            data["layout"] = json.dumps(data["layout"], sort_keys=True)
            data["prefix"] = bytes.fromhex(data["prefix"])
            data["batches"] = tuple(tuple(pair) for pair in data["batches"])
            lists = {k: tuple(v) for k, v in data.items() if isinstance(v, list)}
            return cls(**{**data, **lists})
        except (KeyError, TypeError, ValueError) as e:
            raise CorruptionError(f"chunk {file}: its header cannot be read ({e}); {REMEDY}") from e


def damaged_frame(file: str, where: str) -> CorruptionError:
    return CorruptionError(f"chunk {where}: header or footer is damaged; {REMEDY}", file=file)


def damaged_block(file: str, where: str, column: str, block: int, rows: tuple[int, int] | None) -> CorruptionError:
    """`rows` are those of the block, None if it is a whole column."""
    return CorruptionError(f"chunk {where}: block {block} of column {column!r} is damaged; {REMEDY}", file=file, rows=rows)


def stored_schema(spec: TableSpec, generations: pa.DataType | None = None) -> pa.Schema:
    """The columns of a chunk: the table's, then the codes that its own columns do not show, then its rows' generations, if they differ."""
    fields = list(spec.stored)
    if spec.direct_key < 0:
        fields.append(pa.field(KEY_CODES, pa.int64(), nullable=False))
    if spec.direct_time < 0:
        fields.append(pa.field(TIME_CODES, pa.int64(), nullable=False))
    if generations is not None:
        fields.append(pa.field(GENERATIONS, generations, nullable=False))
    return pa.schema(fields, spec.schema.metadata)


def check_columns(found: pa.Schema, spec: TableSpec, record: ChunkRecord, file: str) -> None:
    """Raises CorruptionError if a chunk does not have the columns it must have."""
    schema = stored_schema(spec, found.types[-1] if has_generations(record) else None)
    if found.names != schema.names:
        raise CorruptionError(f"chunk {file} has columns {found.names}, its table {schema.names}: {REMEDY}")
    if found.types != schema.types:
        raise CorruptionError(f"chunk {file} has columns of types {found.types}, its table {schema.types}: {REMEDY}")


def check_header(header: Header, record: ChunkRecord, spec: TableSpec, rows: int, file: str) -> None:
    """Raises CorruptionError if a chunk is not the one that the catalog's row describes.

    Kernels trust the row for how far they may read, and queries for which chunks they need not look at. (Chunks of a load were written
    before their generations were known; `tidewheel check` compares those, and all that only it needs.)
    """
    known = (record.format, record.id, record.rows, record.prefix, (record.key_lo, record.key_hi), (record.time_lo, record.time_hi))
    found = (header.format, header.id, header.rows, header.prefix, header.key, header.time)
    for name, there, said in zip(("format", "id", "rows", "prefix", "key", "time"), found, known, strict=True):
        if there != said:
            raise CorruptionError(
                f"chunk {file}: its {name} is {there!r}, but {said!r} in the catalog; restore the warehouse from a backup"
            )
    of_load = not any(header.generations)
    if (
        not of_load
        and header.generations != (record.generation_lo, record.generation_hi)
        or of_load
        and record.generation_lo != record.generation_hi
    ):
        raise CorruptionError(
            f"chunk {file}: its generations are {header.generations}, but {(record.generation_lo, record.generation_hi)} in the catalog; "
            "restore the warehouse from a backup"
        )
    if rows != header.rows or header.blocks != block_count(rows) or not 0 < header.leaves <= rows or header.block_rows != BLOCK_ROWS:
        raise CorruptionError(f"chunk {file}: it has {rows} rows, its header says otherwise; {REMEDY}")
    if header.layout != spec.layout_json() or header.fields != spec.field_ids:
        raise CorruptionError(
            f"chunk {file} was written for another layout of table {spec.name!r} ({header.layout}), or the catalog's is damaged; "
            "restore the warehouse from a backup"
        )


def format_of(prefix: bytes) -> int:
    """The format of a chunk whose codes are described by this: the oldest that can say it, so that older readers can read it."""
    return 2 if len(prefix) <= LONGEST_PREFIX else FORMAT


def has_generations(record: ChunkRecord) -> bool:
    """Whether a chunk stores a generation for each row."""
    return record.format > 1 and record.generation_lo < record.generation_hi


def first_generation(record: ChunkRecord) -> int:
    """The first generation that a row of a chunk is known to have come with."""
    return record.generation_lo if record.format > 1 else record.generation_hi


def generation_column(spec: TableSpec) -> int:
    """The number of the stored column with the rows' generations, in chunks that have it."""
    return len(stored_schema(spec))


def code_columns(spec: TableSpec) -> tuple[int, int]:
    """The numbers of the stored columns that hold key codes and time codes."""
    names = stored_schema(spec).names
    key = spec.direct_key if spec.direct_key >= 0 else names.index(KEY_CODES)
    return key, spec.direct_time if spec.direct_time >= 0 else names.index(TIME_CODES)


def zoned_columns(spec: TableSpec) -> tuple[str, ...]:
    """Indexed columns besides key and time."""
    return spec.key.columns if isinstance(spec.key, ZOrder) else ()


def coordinate_zones(leaves: Leaves, header: Header, spec: TableSpec) -> int:
    """The address of the zone maps of a z-order key's coordinates; 0 if a chunk has none, or others."""
    return leaves.more_zones.ctypes.data if header.zones and header.zones == zoned_columns(spec) else 0


def pack_index(leaves: Leaves, checksums: Array) -> bytes:
    parts = (leaves.starts, leaves.bounds, leaves.zones, leaves.masks, leaves.ordered, leaves.more_zones, checksums)
    return b"".join(p.astype(p.dtype.newbyteorder("<"), copy=False).tobytes() for p in parts)


def unpack_index(data: bytes, header: Header, columns: int, file: str) -> tuple[Leaves, Array]:
    n, z, blocks = header.leaves, len(header.zones), header.blocks
    if f"{xxhash.xxh3_64_intdigest(data):016x}" != header.index:
        raise CorruptionError(f"chunk {file}: its index is damaged; {REMEDY}")
    at = 0

    def take(dtype: str, *shape: int) -> Array:
        nonlocal at
        count = int(np.prod(shape))
        array = np.frombuffer(data, dtype, count, at).reshape(shape)
        at += array.nbytes
        return array

    starts, bounds, zones = take("<u4", n + 1), take("<i8", n), take("<i8", 4, n)
    masks, ordered, more = take("<u8", n), take("<u1", n), take("<i8", z, 2, n)
    # a copy each: the arrays lie unaligned in the packed bytes, and kernels want them aligned
    starts, bounds, zones, masks, ordered, more = (np.ascontiguousarray(a).copy() for a in (starts, bounds, zones, masks, ordered, more))
    leaves = Leaves(starts, bounds, zones, masks, ordered, more, header.mask[0], header.mask[1])
    return leaves, take("<u8", columns, blocks).copy()


def metadata(schema: pa.Schema, header: Header, index: bytes) -> dict[bytes, bytes]:
    return {**(schema.metadata or {}), HEADER_KEY: header.to_json().encode(), INDEX_KEY: base64.b64encode(index)}


def block_count(rows: int) -> int:
    return -(-rows // BLOCK_ROWS)


def column_checksums(array: pa.Array, blocks: int) -> Array:
    """The checksum of every block of a column."""
    column = Blocks(array)
    return np.array([column.checksum(b) for b in range(blocks)], np.uint64)


def is_intact(array: pa.Array, block: int, checksum: int) -> bool:
    """Whether a block of a column that was read is the one that was written. Never fails, whatever the bytes are."""
    try:
        if column_kind(array.type)[0] == OTHER:
            _check_structure(array)
        return Blocks(array).checksum(block) == checksum
    except (ValueError, IndexError, pa.ArrowException):
        return False


def _check_structure(array: pa.Array) -> None:
    """Raises ArrowInvalid if offsets point outside: Arrow trusts them when it serialises, and would end the process.

    Text that is no UTF-8 is not damage (it may have come in so), so it is looked at as bytes.
    """
    plain = with_bytes(array.type)
    try:
        (array if plain == array.type else array.view(plain)).validate(full=True)
    except pa.ArrowInvalid as e:
        if "UTF8" not in str(e):  # text inside of types that cannot be looked at otherwise
            raise
