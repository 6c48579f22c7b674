"""Codes of text, binary and text addresses: coarse, so that values decide where codes tie."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.arrays import take
from tidewheel.model.codes import NOWHERE, TIES, Codes, KeyCoder, KeyIntervals, Mask, OneColumn, Refusal, plain, through_dictionary
from tidewheel.model.times import INT64_MAX, INT64_MIN


class BytesCoder(OneColumn):
    """Text and binary by the eight bytes after a common prefix, in the order of their bytes."""

    def __init__(self, column: str, type_: pa.DataType, prefix: bytes = b"") -> None:
        super().__init__(column, type_)
        self.prefix = prefix
        self._prefix = np.frombuffer(prefix, np.uint8).copy()

    def with_prefix(self, prefix: bytes) -> KeyCoder:
        return self if prefix == self.prefix else BytesCoder(self.columns[0], self.type, prefix)

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return through_dictionary(batch.column(self.columns[0]), self._codes)

    def _codes(self, array: pa.Array) -> Codes:
        from tidewheel.model.kernels import byte_codes

        out = np.empty(len(array), np.int64)
        if len(array):
            offsets, wide, data, _keep = byte_addresses(array)
            byte_codes(offsets, wide, data, len(array), self._prefix, out)
        return out

    def common_prefix(self, batch: pa.RecordBatch) -> bytes:
        """What nearly all of a sample of the keys begin with; the few others will be clamped."""
        array = batch.column(self.columns[0])
        sample = plain(take(array, np.linspace(0, len(array) - 1, min(len(array), 512)).astype(np.int64)))
        texts = sorted(t.encode() if isinstance(t, str) else t for t in sample.to_pylist())
        first, last = texts[len(texts) // 64], texts[-1 - len(texts) // 64]
        same = 0
        while same < min(len(first), len(last), 255) and first[same] == last[same]:
            same += 1
        return bytes(first[:same])

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        a = INT64_MIN if lo is None else int(self._codes(pa.array([self._scalar(lo).as_py()], self._narrow()))[0])
        b = INT64_MAX if hi is None else int(self._codes(pa.array([self._scalar(hi).as_py()], self._narrow()))[0])
        return NOWHERE if a > b else KeyIntervals(np.array([a]), np.array([b]), TIES)

    def _narrow(self) -> pa.DataType:
        t = pa.types
        return pa.string() if t.is_string(self.type) or t.is_large_string(self.type) or t.is_string_view(self.type) else pa.binary()

    def _scalar(self, value: Any) -> pa.Scalar:
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        try:
            return pa.scalar(value, self._narrow())
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise QueryError(f"{value!r} is no {self.type}, the type of key column {self.columns[0]!r}: {e}") from None

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        array = plain(batch.column(self.columns[0]))
        wide = pa.large_string() if self._narrow() == pa.string() else pa.large_binary()
        widened = pa.RecordBatch.from_arrays([array.cast(wide)], [self.columns[0]])
        first, last = (None if bound is None else self._scalar(bound).cast(wide) for bound in (lo, hi))
        return super().matches(widened, first, last)


def byte_addresses(array: pa.Array) -> tuple[int, int, int, pa.Array]:
    """(address of the offsets, wide flag, address of the bytes, what to keep alive) for `byte_codes`."""
    t = array.type
    if pa.types.is_fixed_size_binary(t):
        return 0, -t.byte_width, array.buffers()[1].address + array.offset * t.byte_width, array
    if pa.types.is_string_view(t) or pa.types.is_binary_view(t):
        array = array.cast(pa.binary())
    wide = int(pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))
    _, offsets, data = array.buffers()
    return offsets.address + array.offset * (8 if wide else 4), wide, data.address if data is not None else 0, array


class IpCoder(OneColumn):
    """Text addresses in numeric order: v4 exactly, then v6 by its upper 62 bits."""

    def __init__(self, column: str) -> None:
        super().__init__(column, pa.string())

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return through_dictionary(batch.column(self.columns[0]), self._codes)

    def _codes(self, array: pa.Array) -> Codes:
        from tidewheel.model.kernels import ipv4_codes

        out = np.empty(len(array), np.int64)
        if len(array):
            offsets, wide, data, keep = byte_addresses(array)
            ipv4_codes(offsets, wide, data, len(array), out)
            for i in np.flatnonzero(out < 0).tolist():
                out[i] = _ip_code(_address(keep[i].as_py()))
        return out

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        bad = self.encode(batch) < 0
        return (bad, "the key is no IPv4 or IPv6 address") if bad.any() else None

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        a = INT64_MIN if lo is None else _ip_code(self._parse(lo))
        b = INT64_MAX if hi is None else _ip_code(self._parse(hi))
        return NOWHERE if a > b else KeyIntervals(np.array([a]), np.array([b]), TIES)

    def _parse(self, value: Any) -> tuple[int, int]:
        found = _address(value.as_py() if isinstance(value, pa.Scalar) else value)
        if found is None:
            raise QueryError(f"{value!r} is no IPv4 or IPv6 address, as key column {self.columns[0]!r} holds them")
        return found

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        a = (0, 0) if lo is None else self._parse(lo)
        b = (7, 0) if hi is None else self._parse(hi)
        return np.array([a <= (_address(v) or (9, 0)) <= b for v in plain(batch.column(self.columns[0])).to_pylist()], bool)


def _address(value: Any) -> tuple[int, int] | None:
    """(version, number) of an address, None if it is none. A sortable pair: v4 before v6."""
    try:
        found = ipaddress.ip_address(value.decode() if isinstance(value, bytes) else value)
    except (ValueError, AttributeError):
        return None
    return (found.version, int(found))


def _ip_code(address: tuple[int, int] | None) -> int:
    if address is None:
        return -1
    version, number = address
    return number if version == 4 else (1 << 33) + (number >> 66)
