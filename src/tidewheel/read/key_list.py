"""A list of keys: where they can be under every coder, and whether a row has one of them.

Keys are points of the index; of addresses they may also be networks, which are intervals. A key that the column cannot have (2.5 in a
column of whole numbers) is one that no row has. The same key twice is one key.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.errors import QueryError
from tidewheel.model.codes import ALL, EXACT, NOWHERE, TIES, DecimalCoder, IntegerCoder, KeyCoder, KeyIntervals, Mask, plain
from tidewheel.model.ip_addresses import Address, address_of, is_network, network_of
from tidewheel.model.text.division import as_bytes
from tidewheel.model.text_codes import BytesCoder, IpCoder, ip_code
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.wanted import Matrix, Wanted

MANY = 256
"""Intervals from which on every leaf that one of them meets is taken whole, and its rows are asked by value: to look through it once for
each would take longer."""

Codes = npt.NDArray[np.int64]
Matches = Callable[[pa.RecordBatch], Mask]


class WantedKeys(Wanted):
    """Some keys. Raises QueryError if these are no keys of the table."""

    __slots__ = ("_keys", "matches")

    def __init__(self, coder: KeyCoder, keys: list[Any]) -> None:
        for key in keys:
            _check_single(key, coder)
        self._keys: pa.Array | None = None
        self._texts = coder if isinstance(coder, BytesCoder) else None
        self.matches: Matches
        """A mask of the rows that have one of the keys."""
        if self._texts is not None:
            texts = sorted({bound for key in keys if (bound := self._texts.bound(key)) is not None})
            self._keys = pa.array(texts, pa.large_binary())
            self._lo, self._hi = (texts[0], texts[-1]) if texts else (None, None)
            self.is_empty, self.check = not texts, ALL if len(texts) > MANY else TIES
            self.matches = _has_text(self._texts.columns[0], self._keys)
            return
        if isinstance(coder, IpCoder):
            spans = _spans(coder, keys)
            lo, hi = (np.array([ip_code(span[end]) for span in spans], np.int64) for end in (0, 1))
            self._known, self.matches = _joined(lo, hi, TIES), _has_address(coder.columns[0], spans)
        else:
            self._known = _intervals(coder, keys)
            self.matches = _has_decimal(coder, keys) if isinstance(coder, DecimalCoder) else _has_code(coder, self._known)
        self.check = self._known.check
        self.is_empty = not len(self._known.lo)

    @property
    def intervals(self) -> KeyIntervals:
        if self._texts is None:
            return self._known
        if self.is_empty:
            return NOWHERE
        codes = np.unique(self._texts.codes(self._keys))
        return KeyIntervals(codes, codes, self.check)

    @property
    def texts(self) -> tuple[bytes | None, bytes | None] | None:
        return None  # `matches` decides, not two bounds

    def _under(self, coders: Mapping[int, KeyCoder]) -> tuple[Matrix, Matrix, Matrix]:
        """Coders tell different numbers of the keys apart: the last code is repeated where there are fewer."""
        assert self._texts is not None
        slots = np.zeros(max(coders, default=0) + 1, np.int64)
        found: list[Codes] = []
        for slot, (number, coder) in enumerate(coders.items()):
            assert isinstance(coder, BytesCoder)
            slots[number] = slot
            found.append(np.unique(coder.codes(self._keys)))
        found = found or [np.unique(self._texts.codes(self._keys))]
        codes = np.empty((len(found), max(map(len, found))), np.int64)
        for row, own in zip(codes, found, strict=True):
            row[: len(own)], row[len(own) :] = own, own[-1]
        return slots, codes, codes


def _check_single(key: Any, coder: KeyCoder) -> None:
    if key is None:
        raise QueryError(f"key: a list holds keys, and the key ({', '.join(coder.columns)}) is never null; leave None out")
    if isinstance(key, (list, tuple, set, dict)):
        raise QueryError(f"key: a list holds single keys, not {key!r}; an interval stands alone, as key=(lo, hi)")


def _intervals(coder: KeyCoder, keys: list[Any]) -> KeyIntervals:
    whole = isinstance(coder, IntegerCoder) and pa.types.is_signed_integer(coder.type)
    if whole and all(type(key) is int and INT64_MIN <= key <= INT64_MAX for key in keys):
        codes = np.array(keys, np.int64)
        return _joined(codes, codes, EXACT)
    found = [coder.intervals(key, key) for key in keys]
    check = max((one.check for one in found), default=EXACT)
    lo, hi = (np.concatenate([_NO_CODES, *parts]) for parts in ([one.lo for one in found], [one.hi for one in found]))
    return _joined(lo, hi, check)


_NO_CODES: Codes = np.empty(0, np.int64)


def _joined(lo: Codes, hi: Codes, check: int) -> KeyIntervals:
    """Intervals in rising order and without overlap. Where codes decide, neighbours become one; where rows on the ends are checked, an
    end may lie inside of another interval, and then all rows are."""
    if not len(lo):
        return NOWHERE
    pairs = np.unique(np.stack([lo, hi], axis=1), axis=0)
    lo, hi = np.ascontiguousarray(pairs[:, 0]), np.maximum.accumulate(pairs[:, 1])
    meets = lo[1:] <= hi[:-1] if check != EXACT else (lo[1:] <= hi[:-1]) | (lo[1:] - 1 == hi[:-1])
    if check == TIES and meets.any():
        check = ALL
    first = np.concatenate([[True], ~meets])
    last = np.concatenate([~meets, [True]])
    lo, hi = lo[first], hi[last]
    return KeyIntervals(lo, hi, ALL if len(lo) > MANY else check)


# ---- rows by their values -------------------------------------------------------------------------------------


def _has_code(coder: KeyCoder, known: KeyIntervals) -> Matches:
    """For keys whose codes are exact."""

    def matches(batch: pa.RecordBatch) -> Mask:
        codes = coder.encode(batch)
        at = np.searchsorted(known.lo, codes, "right") - 1
        return (at >= 0) & (codes <= known.hi[at])

    return matches


def _has_text(column: str, keys: pa.Array) -> Matches:
    return lambda batch: np.asarray(pc.is_in(as_bytes(plain(batch.column(column))), value_set=keys))


def _has_decimal(coder: DecimalCoder, keys: list[Any]) -> Matches:
    wanted = {coder.number_of(key) for key in keys}
    return lambda batch: np.array([value in wanted for value in plain(batch.column(coder.columns[0])).to_pylist()], bool)


def _spans(coder: IpCoder, keys: list[Any]) -> list[tuple[Address, Address]]:
    """Addresses and networks in rising order, without overlap: one network may lie within another."""
    merged: list[tuple[Address, Address]] = []
    for lo, hi in sorted(network_of(key) if is_network(key) else (coder.address(key),) * 2 for key in keys):
        if merged and lo <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(hi, merged[-1][1])
        else:
            merged.append((lo, hi))
    return merged


def _has_address(column: str, spans: list[tuple[Address, Address]]) -> Matches:
    firsts = [lo for lo, _ in spans]

    def has(text: Any) -> bool:
        address = address_of(text)
        at = -1 if address is None else bisect_right(firsts, address) - 1
        return at >= 0 and address is not None and address <= spans[at][1]

    def matches(batch: pa.RecordBatch) -> Mask:
        values = plain(batch.column(column)).dictionary_encode()
        found: Mask = np.array([has(text) for text in values.dictionary.to_pylist()], bool)[np.asarray(values.indices)]
        return found

    return matches
