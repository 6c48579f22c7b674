"""An answer in a file, whose name says the format. The file appears when it is whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from tidewheel.env.whole_file import whole_file
from tidewheel.errors import InputError
from tidewheel.surfaces.shell.formats import write

FORMATS = {
    ".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".arrow": "arrow", ".feather": "arrow",
    ".md": "markdown",
}  # fmt: skip


def format_of(path: Path) -> str:
    """The format of a file of this name."""
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InputError(f"{path}: the ending of the name says what to write: {', '.join(FORMATS)}")
    return found


def save(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write an answer into a file, in place of one that may be there, and return how many rows it has."""
    format_ = format_of(path)
    with whole_file(path) as file:
        try:
            return write(format_, schema, batches, file)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as e:  # a type that the format does not have
            raise InputError(f"{path}: {format_} cannot hold this answer: {str(e).splitlines()[0]}") from e
