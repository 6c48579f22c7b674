"""Codes of text, binary and text addresses: coarse, so that values decide where codes tie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.codes import NOWHERE, TIES, Codes, KeyIntervals, Mask, OneColumn, Refusal, plain, through_dictionary
from tidewheel.model.ip_addresses import Address, address_of, is_network
from tidewheel.model.loading import later
from tidewheel.model.plain_values import scalar_of
from tidewheel.model.text.division import Node, as_bytes, byte_addresses, compiled, described, keys_of, parsed, paths
from tidewheel.model.times import INT64_MAX, INT64_MIN

kernels = later("tidewheel.model.kernels")
texts = later("tidewheel.model.text.kernels")

MANY = 256
"""Keys in one array from which on a division is laid out for many keys."""


class BytesCoder(OneColumn):
    """Text and binary in the order of their bytes, by a division that was learned from such keys (`model.text.division`).

    `prefix` describes the division; at its simplest it is the common prefix that codes leave out.
    """

    learns = True

    def __init__(self, column: str, type_: pa.DataType, prefix: bytes = b"", number: int = 0) -> None:
        super().__init__(column, type_)
        self.prefix = prefix
        self.number = number
        self._is_text = self._narrow() == pa.string()
        self._node: Node | None = None
        self._table: npt.NDArray[np.int64] | None = None
        self._address = 0
        self._paths: npt.NDArray[np.int64] | None = None
        self._has_paths: bool | None = None

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = parsed(self.prefix)
        return self._node

    @property
    def shared(self) -> bytes:
        """What keys begin with, or lie outside: below or above all others."""
        return self.node.shared

    @property
    def address(self) -> int:
        """Of the division as kernels walk it. Made when it is first needed: of most chunks' coders it never is."""
        if not self._address:
            self._table = compiled(self.node)
            self._address = self._table.ctypes.data
        return self._address

    def _paths_at(self, keys: int) -> int:
        """Address of the division as kernels walk it for many keys; 0 if these are few, or if there is none."""
        if self._has_paths is None and keys >= MANY:
            self._paths = None if self.node.is_plain else paths(self.node)
            self._has_paths = self._paths is not None  # last: other threads look at it first
        return self._paths.ctypes.data if self._has_paths and self._paths is not None else 0

    def with_prefix(self, prefix: bytes, number: int = 0) -> BytesCoder:
        return self if (prefix, number) == (self.prefix, self.number) else BytesCoder(self.columns[0], self.type, prefix, number)

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return through_dictionary(batch.column(self.columns[0]), self.codes)

    def codes(self, array: pa.Array, *, greatest: bool = False) -> Codes:
        """The codes of keys; of the greatest ones that begin with them, if that is asked for."""
        out = np.empty(len(array), np.int64)
        if len(array):
            offsets, wide, data, _keep = byte_addresses(array)
            texts.byte_codes(offsets, wide, data, len(array), self.address, self._paths_at(len(array)), 255 if greatest else 0, out)
        return out

    def learned(self, keys: Sequence[pa.Array], most: int) -> bytes:
        from tidewheel.model.text.learning import learned

        arrays = [as_bytes(plain(array)) for array in keys if len(array)]
        return described(learned(pa.concat_arrays(arrays), most)) if arrays else b""

    def tells(self, code: int, keys: pa.Array) -> bool:
        """Whether these keys of one code are all the same, and no other key has the code (but for zero bytes added to it)."""
        from tidewheel.model.text.learning import one_text

        key = one_text(plain(keys))
        least, most = keys_of(self.node, code)
        return key is not None and key.rstrip(b"\0") == least and most is not None and len(key) <= len(most)

    def keys_of(self, code: int) -> tuple[bytes, bytes | None]:
        return keys_of(self.node, code)

    def bound(self, value: Any) -> bytes | None:
        """A bound of a query as bytes, None for an open one. Raises QueryError if the key column cannot have it."""
        if value is None:
            return None
        if type(value) is str and value.isascii() and self._is_text:
            return value.encode()
        value = self._scalar(value).as_py()
        return value.encode() if isinstance(value, str) else bytes(value)

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        return text_intervals([self], self.bound(lo), self.bound(hi))[0]

    def _narrow(self) -> pa.DataType:
        t = pa.types
        return pa.string() if t.is_string(self.type) or t.is_large_string(self.type) or t.is_string_view(self.type) else pa.binary()

    def _scalar(self, value: Any) -> pa.Scalar:
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        try:
            return scalar_of(value, self._narrow())
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise QueryError(f"{value!r} is no {self.type}, the type of key column {self.columns[0]!r}: {e}") from None

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        array = plain(batch.column(self.columns[0]))
        keep = np.empty(len(array), np.bool_)
        if len(array):
            offsets, wide, data, _keep = byte_addresses(array)
            first, last = ((b"" if bound is None else bound) for bound in (self.bound(lo), self.bound(hi)))
            ends = [np.frombuffer(end, np.uint8).copy() for end in (first, last)]
            texts.between(offsets, wide, data, len(array), ends[0], int(lo is not None), ends[1], int(hi is not None), keep.view(np.uint8))
        return keep


def text_intervals(coders: Sequence[BytesCoder], lo: bytes | None, hi: bytes | None) -> list[KeyIntervals]:
    """The keys from lo to hi under each of many coders."""
    if lo is not None and hi is not None and lo > hi:
        return [NOWHERE] * len(coders)
    return [KeyIntervals(first, last, TIES) for first, last in zip(*text_ends(coders, lo, hi), strict=True)]


def text_ends(coders: Sequence[BytesCoder], lo: bytes | None, hi: bytes | None) -> tuple[Codes, Codes]:
    """The codes of lo and of hi under each of many coders, a row each."""
    first = np.full(len(coders), INT64_MIN) if lo is None else text_codes(coders, lo)
    last = np.full(len(coders), INT64_MAX) if hi is None else first if hi == lo else text_codes(coders, hi)
    return first.reshape(-1, 1), last.reshape(-1, 1)


def text_codes(coders: Sequence[BytesCoder], key: bytes) -> Codes:
    """The code of one key under each of many coders."""
    addresses = np.array([coder.address for coder in coders], np.int64)
    out = np.empty(len(addresses), np.int64)
    texts.bound_codes(addresses, np.frombuffer(key, np.uint8).copy(), out)
    return out


class IpCoder(OneColumn):
    """Text addresses in numeric order: v4 exactly, then v6 by its upper 62 bits."""

    def __init__(self, column: str) -> None:
        super().__init__(column, pa.string())

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return through_dictionary(batch.column(self.columns[0]), self._codes)

    def _codes(self, array: pa.Array) -> Codes:
        out = np.empty(len(array), np.int64)
        if len(array):
            offsets, wide, data, keep = byte_addresses(array)
            kernels.ipv4_codes(offsets, wide, data, len(array), out)
            for i in np.flatnonzero(out < 0).tolist():
                out[i] = ip_code(address_of(keep[i].as_py()))
        return out

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        bad = self.encode(batch) < 0
        return (bad, "the key is no IPv4 or IPv6 address") if bad.any() else None

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        a = INT64_MIN if lo is None else ip_code(self.address(lo))
        b = INT64_MAX if hi is None else ip_code(self.address(hi))
        return NOWHERE if a > b else KeyIntervals(np.array([a]), np.array([b]), TIES)

    def address(self, value: Any) -> Address:
        """Raises QueryError if a value is no address."""
        found = address_of(value.as_py() if isinstance(value, pa.Scalar) else value)
        if found is None:
            hint = "; a network stands alone, or in a list" if is_network(value) else ""
            raise QueryError(f"{value!r} is no IPv4 or IPv6 address, as key column {self.columns[0]!r} holds them{hint}")
        return found

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        a = (0, 0) if lo is None else self.address(lo)
        b = (7, 0) if hi is None else self.address(hi)
        return np.array([a <= (address_of(v) or (9, 0)) <= b for v in plain(batch.column(self.columns[0])).to_pylist()], bool)


def ip_code(address: Address | None) -> int:
    """-1 for what is no address."""
    if address is None:
        return -1
    version, number = address
    return number if version == 4 else (1 << 33) + (number >> 66)
