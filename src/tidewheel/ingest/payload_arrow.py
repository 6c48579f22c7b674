"""Arrow records: each message is an IPC stream, with any number of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidewheel.ingest.parsed import Parsed, Part, extra_fields, only_wanted
from tidewheel.write.soundness import settled_rows, unspeakable


class ArrowPayload:
    """Reads the wanted columns of IPC streams. Messages of one schema are joined, because they are often small."""

    def __init__(self, wanted: pa.Schema, extra: str = "ignore") -> None:
        self._wanted = wanted
        self._reject_extra = extra == "reject"

    def parse(self, values: pa.Array) -> Parsed:
        out = Parsed()
        groups: dict[pa.Schema, tuple[list[pa.RecordBatch], list[int]]] = {}
        for number in range(len(values)):
            found = self._batches(values[number].as_buffer())
            if isinstance(found, str):
                out.failures.append((number, found))
                continue
            for batch in found:
                batches, records = groups.setdefault(batch.schema.remove_metadata(), ([], []))
                batches.append(batch.replace_schema_metadata(None))
                records += [number] * batch.num_rows
        for batches, records in groups.values():
            table = pa.Table.from_batches(batches).combine_chunks()
            at = 0
            for batch in table.to_batches():
                out.parts.append(Part(only_wanted(batch, self._wanted), np.array(records[at : at + batch.num_rows], dtype=np.int64)))
                at += batch.num_rows
        return out

    def batches(self, data: pa.Buffer) -> list[pa.RecordBatch]:
        """All columns of a message; nothing if it cannot be read."""
        found = self._batches(data)
        return [] if isinstance(found, str) else found

    def _batches(self, data: pa.Buffer) -> list[pa.RecordBatch] | str:
        try:
            with pa.ipc.open_stream(data) as stream:
                if why := unspeakable(stream.schema):
                    return why
                if self._reject_extra and (why := extra_fields(stream.schema.names, self._wanted)):
                    return why
                if len(set(stream.schema.names)) < len(stream.schema.names):
                    return "has two columns of the same name"
                batches = list(stream)
            for batch in batches:
                batch.validate(full=True)  # it comes from elsewhere, and its lengths and offsets are trusted after this
        except (pa.ArrowException, OSError, ValueError) as e:
            return f"is not an Arrow IPC stream: {' '.join(str(e).split())}"
        return [settled_rows(b) for b in batches if b.num_rows] or "has no rows"
