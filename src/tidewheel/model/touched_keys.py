"""The keys that a refresh touched, as bytes for the catalog: with them, what is derived from a derived table need not compute all of it."""

from __future__ import annotations

import pyarrow as pa

MOST_KEYS = 1000
"""Keys of one refresh that are remembered, and of which a refresh computes only those; more are computed as whole partitions."""


def packed(keys: pa.Array) -> bytes:
    keys = keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys
    batch = pa.record_batch([keys], names=["key"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Array:
    """The inverse of `packed`. ValueError if it is not that."""
    try:
        (batch,) = pa.ipc.open_stream(data)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as e:
        raise ValueError(f"these are no keys: {e}") from e
    return batch.column(0)
