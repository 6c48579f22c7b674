"""The last row of each key: of all rows with one key the one with the greatest time, and of several with that time the one that was
inserted last.

Rows are taken as they come, oldest insert first, and no more of them are held than there are keys, a few times over.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.arrays import take_rows
from tidewheel.model.codes import integer_codes
from tidewheel.model.ip_addresses import address_of
from tidewheel.model.schema import Ip, TableSpec
from tidewheel.read.limits import Watch
from tidewheel.read.ordering import sortable

_AT_ONCE = 1 << 16
"""Rows that are held at least before they are looked through."""

_CLOSE = 4
"""Whole numbers for each row, among which keys are numbered by themselves."""


def last_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, spec: TableSpec, watch: Watch) -> list[pa.RecordBatch]:
    """The last row of each key, as one batch at most."""
    held: list[pa.RecordBatch] = []
    rows, most = 0, _AT_ONCE
    for batch in batches:
        watch.check()
        held.append(batch)
        rows += batch.num_rows
        if rows > most:
            held = _reduced(held, schema, spec, watch)
            rows = held[0].num_rows
            most = 4 * rows + _AT_ONCE
    return _reduced(held, schema, spec, watch) if held else []


def _reduced(held: list[pa.RecordBatch], schema: pa.Schema, spec: TableSpec, watch: Watch) -> list[pa.RecordBatch]:
    whole = pa.Table.from_batches(held, schema).combine_chunks().to_batches()
    if not whole:
        return []
    (batch,) = whole
    watch.held = batch.nbytes
    watch.take(batch.nbytes)
    kept = take_rows(batch, last_of(numbers(batch, spec), integer_codes(batch.column(spec.time.column))))
    watch.held = kept.nbytes
    return [kept]


def last_of(keys: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The positions of the last row of each key, in rising order. Keys are numbered from 0."""
    best = np.full(int(keys.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(best, keys, times)
    of_best = np.flatnonzero(times == best[keys])
    last = np.full(len(best), -1)
    last[keys[of_best]] = of_best  # of several, the last one stays
    return np.sort(last[last >= 0])


def numbers(batch: pa.RecordBatch, spec: TableSpec) -> npt.NDArray[np.int64]:
    """A number for each row: the same for the same key, and for no other."""
    found: npt.NDArray[np.int64] | None = None
    first = batch.column(spec.key.columns[0])
    if len(spec.key.columns) == 1 and pa.types.is_integer(first.type) and len(first):  # mostly they lie close to each other
        codes = integer_codes(first)
        least, most = int(codes.min()), int(codes.max())
        if most - least < _CLOSE * len(codes) + _AT_ONCE:
            return codes - least
    for name in spec.key.columns:
        column = sortable(pa.chunked_array([batch.column(name)]))
        if pa.types.is_floating(column.type):
            column = pa.chunked_array([pa.array(np.asarray(column) + 0.0)])  # -0.0 is 0.0
        one = column.combine_chunks().dictionary_encode()
        codes = np.asarray(one.indices).astype(np.int64)
        if isinstance(spec.key, Ip):  # an address has several texts
            addresses: dict[object, int] = {}
            same = [addresses.setdefault(address_of(text), len(addresses)) for text in one.dictionary.to_pylist()]
            codes = np.array(same, np.int64)[codes]
        found = codes if found is None else np.unique(found * (len(one.dictionary) + 1) + codes, return_inverse=True)[1]
    assert found is not None
    return found
