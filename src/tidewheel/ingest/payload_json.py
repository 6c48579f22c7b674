"""JSON records: one object each, or a list of objects.

Arrow parses whole blocks at once and stops at the first thing that is odd. What is before it is kept, the odd record and some of its
neighbours are read one by one with Python's parser, which is exact, kinder to types, and says what is wrong; then Arrow goes on.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tidewheel.ingest.parsed import Numbers, Parsed, Part, extra_fields, joined, texts
from tidewheel.model.arrow_types import is_text

FEW = 256
"""Records that are read one by one where one is odd: trying Arrow again costs as much as these."""
_ROW = re.compile(r" in row (\d+)$")
_KINDS = {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number", bool: "a truth value", type(None): "null"}


class JsonPayload:
    """Reads the wanted fields of objects. Made for one task: it learns how the stream writes its times."""

    def __init__(self, wanted: pa.Schema, extra: str = "ignore") -> None:
        self._wanted = wanted
        self._reject_extra = extra == "reject"
        self._text = {f.name for f in wanted if is_text(f.type)}
        shapes = [_shape(wanted, times_as_numbers) for times_as_numbers in (False, True)]
        self._shapes = [] if None in shapes else [_Shape(s) for s in shapes[: 1 if shapes[0] == shapes[1] else 2]]
        """Schemas that the records may have for Arrow; the last that was right comes first."""
        self._odd = not self._shapes
        """Whether most records are nothing for Arrow."""

    def parse(self, values: pa.Array) -> Parsed:
        text, numbers, failures = texts(values)
        if not _all_objects(text):
            text = pc.utf8_trim_whitespace(text)
        work = _Work(text, numbers, Parsed(failures=failures))
        first = min(FEW, len(text)) if self._odd else 0
        if self._shapes and self._blocks(work, 0, first) == first:
            self._read(work, first, len(text))
        else:
            self._one_by_one(work, 0, len(text))
        self._odd = not self._shapes or 2 * work.slow > len(text)
        return work.done()

    def _read(self, work: _Work, lo: int, hi: int) -> None:
        """All of them, in windows that are smaller near odd records and grow where there are none."""
        window = hi - lo
        while lo < hi:
            end = min(hi, lo + window)
            good = self._blocks(work, lo, end)
            if good == end - lo:
                lo, window = end, 4 * window
            elif good < 0 and end - lo > FEW:  # somewhere in there; Arrow does not say where
                window = (end - lo) // 2
            elif good > FEW:
                if self._blocks(work, lo, lo + good) != good:
                    self._one_by_one(work, lo, lo + good)
                lo, window = lo + good, 2 * FEW
            else:
                end = min(end, lo + FEW)
                self._one_by_one(work, lo, end)
                lo, window = end, 2 * FEW

    def _blocks(self, work: _Work, lo: int, hi: int) -> int:
        """Read these records as a block. All of them: it is done. Fewer: so many are well, and nothing is done. -1: not all of them are."""
        if lo == hi:
            return 0
        if not _all_objects(work.text.slice(lo, hi - lo)):
            odd = pc.invert(_objects(work.text.slice(lo, hi - lo)))
            return int(pc.index(odd, True).as_py())
        most = 0
        for shape in list(self._shapes):
            found = self._block(work, shape, lo, hi)
            if isinstance(found, int):
                most = found if most < found or found < 0 else most
                continue
            if shape is not self._shapes[0]:
                self._shapes.reverse()
            work.keep(shape, found, lo, hi)
            return hi - lo
        return most

    def _block(self, work: _Work, shape: _Shape, lo: int, hi: int) -> pa.Table | int:
        """The rows of the records, or how many of the first are well, or -1.

        Each text begins with { and ends with }, so it is at least one object or an error: as many rows as texts means one row each.
        """
        data = joined(work.text.slice(lo, hi - lo))
        parsing = pj.ParseOptions(shape.schema, unexpected_field_behavior="error" if self._reject_extra else "ignore")
        reading = pj.ReadOptions(use_threads=False, block_size=max(data.size + 1, 1 << 10))
        try:
            table = pj.read_json(pa.BufferReader(data), reading, parsing)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            said = _ROW.search(str(e))
            return min(int(said[1]), hi - lo - 1) if said else -1
        return table.select(self._wanted.names) if table.num_rows == hi - lo else -1

    def _one_by_one(self, work: _Work, lo: int, hi: int) -> None:
        work.slow += hi - lo
        for number, one in zip(work.numbers[lo:hi].tolist(), work.text.slice(lo, hi - lo).to_pylist(), strict=True):
            found = self._objects(one)
            if isinstance(found, str):
                work.out.failures.append((number, found))
            else:
                work.rows += found
                work.records += [number] * len(found)

    def _objects(self, text: str) -> list[dict[str, Any]] | str:
        """The rows of one record, or why it has none."""
        try:
            found = json.loads(text)
        except json.JSONDecodeError as e:
            return f"is not JSON: {e.msg} at character {e.pos}"
        except (ValueError, RecursionError) as e:
            return f"is not JSON: {e}"
        objects = found if isinstance(found, list) else [found]
        if not objects:
            return "is an empty list"
        for one in objects:
            if not isinstance(one, dict):
                kind = _KINDS[type(one)]
                return f"is {kind}, not an object" if one is found else f"is a list with {kind} in it, not only objects"
            if self._reject_extra and (why := extra_fields(one, self._wanted)):
                return why
        return [{name: self._value(name, one.get(name)) for name in self._wanted.names} for one in objects]

    def _value(self, name: str, value: Any) -> Any:
        """A column of text takes whatever was written, as it was written."""
        return value if value is None or isinstance(value, str) or name not in self._text else json.dumps(value, ensure_ascii=False)


@dataclass(eq=False, slots=True)
class _Shape:
    """The types that Arrow's parser is told to expect."""

    schema: pa.Schema


@dataclass(slots=True)
class _Work:
    """The records of one call, and what has become of them."""

    text: pa.Array
    numbers: Numbers
    out: Parsed
    rows: list[dict[str, Any]] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    tables: dict[_Shape, tuple[list[pa.Table], list[Numbers]]] = field(default_factory=dict)
    slow: int = 0

    def keep(self, shape: _Shape, table: pa.Table, lo: int, hi: int) -> None:
        tables, records = self.tables.setdefault(shape, ([], []))
        tables.append(table)
        records.append(self.numbers[lo:hi])

    def done(self) -> Parsed:
        """Few large parts: what is done with a part costs more than its rows."""
        read = self.slow + sum(len(some) for _, numbers in self.tables.values() for some in numbers)
        assert read == len(self.numbers), "every record is read once"
        for tables, numbers in self.tables.values():
            records = np.concatenate(numbers)
            at = 0
            for batch in pa.concat_tables(tables).combine_chunks().to_batches():
                self.out.parts.append(Part(batch, records[at : at + batch.num_rows]))
                at += batch.num_rows
        if self.rows:
            self.out.parts.append(Part(self.rows, np.array(self.records, dtype=np.int64)))
        return self.out


def _objects(text: pa.Array) -> pa.Array:
    return pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))


def _all_objects(text: pa.Array) -> bool:
    return bool(pc.all(_objects(text)).as_py())


def _shape(wanted: pa.Schema, times_as_numbers: bool) -> pa.Schema | None:
    """The type that Arrow's parser is told to expect; None where it knows no such type."""
    fields = []
    for f in wanted:
        type_ = _expected(f.type, times_as_numbers)
        if type_ is None:
            return None
        fields.append(pa.field(f.name, type_))
    return pa.schema(fields)


def _expected(type_: pa.DataType, times_as_numbers: bool) -> pa.DataType | None:
    t = pa.types
    if t.is_dictionary(type_):
        return _expected(type_.value_type, times_as_numbers)
    if t.is_integer(type_) or t.is_float32(type_) or t.is_float64(type_) or t.is_boolean(type_) or t.is_decimal(type_):
        return type_
    if is_text(type_):
        return pa.large_string()
    if t.is_timestamp(type_) or t.is_date(type_):
        return pa.int64() if times_as_numbers else pa.large_string()
    if t.is_time(type_):
        return pa.large_string()
    if t.is_float16(type_):
        return pa.float32()
    if t.is_list(type_) or t.is_large_list(type_):
        value = _expected(type_.value_type, times_as_numbers)
        return None if value is None else pa.list_(value)
    if t.is_struct(type_):
        inner = [(type_.field(i).name, _expected(type_.field(i).type, times_as_numbers)) for i in range(type_.num_fields)]
        return None if any(found is None for _, found in inner) else pa.struct(inner)
    return None
