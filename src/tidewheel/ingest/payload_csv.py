"""CSV records: fields in a known order. A line that has another number of fields is a failure, and so is one whose quotes do not close."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from tidewheel.ingest.parsed import Parsed, Part, halving, joined, only_wanted, texts
from tidewheel.model.arrow_types import is_text


class CsvPayload:
    """Reads the wanted ones of the named fields, all as text: what type they have is for the table to say."""

    def __init__(self, wanted: pa.Schema, names: Sequence[str], delimiter: str = ",", nulls: Sequence[str] = ("",)) -> None:
        self._wanted = wanted
        self._names = list(names)
        self._delimiter = delimiter
        here = [n for n in names if wanted.get_field_index(n) >= 0]
        self._converting = pcsv.ConvertOptions(
            column_types=dict.fromkeys(here, pa.string()), include_columns=here, null_values=list(nulls), strings_can_be_null=True,
            quoted_strings_can_be_null=False, check_utf8=False,
        )  # fmt: skip
        # a field that is not text has no use for spaces around it
        self._trimmed = {f.name for f in wanted if not is_text(f.type)}

    def parse(self, values: pa.Array) -> Parsed:
        text, numbers, failures = texts(values)
        out = Parsed(failures=failures)
        plain = not pc.any(pc.match_substring_regex(text, r"[\r\n]")).as_py()
        if not plain:
            text = pc.utf8_rtrim(text, characters="\r\n")

        def fast(lo: int, n: int) -> bool:
            part = text.slice(lo, n)
            if not plain and pc.any(pc.match_substring_regex(part, r"[\r\n]")).as_py():
                return False
            batch, bad = self._read(part, False)
            # lines only ever melt together (by quotes that do not close): as many as before means that each is itself
            if batch.num_rows + len(bad) != n:
                return False
            self._keep(out, batch, bad, numbers[lo : lo + n])
            return True

        def slow(lo: int, n: int) -> None:
            """One record, perhaps of several lines: all of them are rows, or it is a failure."""
            batch, bad = self._read(text.slice(lo, n), True)
            number = int(numbers[lo])
            if bad or not batch.num_rows:
                out.failures.append((number, next(iter(bad.values()), "is empty")))
            else:
                self._keep(out, batch, {}, np.full(batch.num_rows, number))

        halving(len(text), 1, fast, slow)
        return out

    def _keep(self, out: Parsed, batch: pa.RecordBatch, bad: dict[int, str], numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        out.failures += [(int(numbers[i]), why) for i, why in bad.items()]
        if batch.num_rows:
            out.parts.append(Part(batch, np.delete(numbers, list(bad)) if bad else numbers))

    def _read(self, text: pa.Array, newlines: bool) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The rows, and for each line that is none, why."""
        bad: dict[int, str] = {}
        expected = len(self._names)

        def note(row: pcsv.InvalidRow) -> str:
            few = ": does a quote not close?" if row.actual_columns < expected and '"' in row.text else ""
            bad[row.number - 1] = f"has {row.actual_columns} field{'s' if row.actual_columns != 1 else ''}, not {expected}{few}"
            return "skip"

        data = joined(text)
        if not text[-1].as_py():  # Arrow sees a last line that is empty only by its end
            data = pa.py_buffer(data.to_pybytes() + b"\n")
        reading = pcsv.ReadOptions(use_threads=False, block_size=data.size + 1, column_names=self._names)
        parsing = pcsv.ParseOptions(
            delimiter=self._delimiter, newlines_in_values=newlines, ignore_empty_lines=False, invalid_row_handler=note
        )
        table = pcsv.read_csv(pa.BufferReader(data), reading, parsing, self._converting)
        batches = table.combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
        return only_wanted(trimmed(batch, self._trimmed.intersection(table.column_names)), self._wanted), bad


def trimmed(batch: pa.RecordBatch, columns: Iterable[str]) -> pa.RecordBatch:
    """The batch, in these columns of text without spaces around the values; nothing but spaces is no value."""
    for name in columns:
        at = batch.schema.get_field_index(name)
        text = pc.utf8_trim_whitespace(batch.column(at))
        batch = batch.set_column(at, name, pc.if_else(pc.equal(text, ""), None, text))
    return batch
