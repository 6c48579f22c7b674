"""CSV that is read straight into types is what the exact reader makes of it line by line: rows, and dead letters with their places."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tidewheel.ingest import csv_blocks, file_rows
from tidewheel.ingest.file_rows import FileRows
from tidewheel.ingest.row_maker import RowMaker
from tidewheel.ingest.rules import FILES, Rules
from tidewheel.model.schema import make_spec

UTC = pa.timestamp("us", "UTC")
WIDE = pa.schema(
    [
        ("plate", pa.int32()), ("ts", UTC), ("day", pa.date32()), ("speed", pa.float32()), ("ok", pa.bool_()), ("note", pa.string()),
        ("at", pa.timestamp("s")), ("price", pa.decimal128(9, 2)), ("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)  # fmt: skip
WIDE_SPEC = make_spec("wide", WIDE, time="ts", key="plate")
CELLS: list[list[str]] = [
    ["1", "-7", " 12 ", "007", "0x1f", "1.0", "", "x", "99999999999", '"5"', "+5"],
    ["2026-01-01T08:00:00Z", "2026-01-01 08:00:00", "2026-01-01", "2026-01-01T08:00:00+02:00", "2026-01-01 08:00:00.123456", "", "noon",
     "2026-01-01 08:00:00.1234567", "2026-01-01 08:00:00.100", " 2026-01-01 "],
    ["2026-01-01", "", "2026-1-1", "2026-01-01T00:00:00", "2026-01-01T01:00:00", "x"],
    ["1.5", "", "nan", "inf", "-Infinity", "1e39", "1e999", "fast", " 2 ", ".5", "1_000"],
    ["true", "false", "True", "TRUE", "1", "0", "", "yes", "t", " true ", "tRuE"],
    ["a", "", '"a, b"', '"say ""hi"""', " padded ", "ü", "NA", '""', '"two\nlines"', "a\rb", 'stray"quote', "a'b"],
    ["2026-01-01 08:00:00", "2026-01-01", "", "2026-01-01 08:00:00.5", "2026-01-01T08:00:00Z", "2026-01-01 08:00:00.000"],
    ["1.25", "", "1.255", "12345678.1", " 3 ", "x", "1e2"],
    ["a", "b", "", '"c"'],
]  # fmt: skip
FORMATTED: dict[str, list[str]] = {
    "": CELLS[1],
    "epoch-s": ["1767225600", "-1", "1767225600.5", "0x1f", "+5", " 5 ", "", "noon", "1e9", "1_000", "007", "9" * 19, "9" * 25,
                "2026-01-01"],
    "%d/%m/%Y %H:%M": ["01/01/2026 00:00", "1/1/2026 0:00", " 01/01/2026 00:00 ", "30/02/2026 00:00", "", "noon", "01/01/2026 08:00:00",
                       "01/01/0026 08:00", "01/01/26 08:00", "01/01/2026  08:00", "2026-01-01"],
    "%Y-%d-%m": ["2026-01-02", "2026-25-01", "2026-01-25", "", "x"],
}  # fmt: skip
"""Times in a format: some have it."""


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[bytes, int, tuple[str, ...], str]:
    """Lines, most of them plain; the size of a block; the texts that mean no value; the format of times."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    odd = draw(st.sampled_from([0.0, 0.02, 0.2]))
    time_format = draw(st.sampled_from(sorted(FORMATTED)))
    times = FORMATTED[time_format]
    both = {i: draw(st.sampled_from([CELLS[i], [*times, *CELLS[i]]])) for i in (2, 6)}
    columns = [times if i == 1 else both.get(i, cells) for i, cells in enumerate(CELLS)]
    lines = []
    for _ in range(draw(st.integers(0, 60))):
        line = ",".join(rng.choice(cells) if rng.random() < odd else cells[0] for cells in columns)
        if rng.random() < odd / 4:
            line = rng.choice(["", "  ", "1,2", line + ",more", line.replace("1", "\xff", 1)])
        lines.append(line)
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = end.join([",".join(WIDE.names), *lines]) + draw(st.sampled_from(["", end]))
    nulls = draw(st.sampled_from([("",), ("", "NA"), ("NA",)]))
    return text.encode("latin-1"), draw(st.sampled_from([40, 300, 1 << 20])), nulls, time_format


@settings(max_examples=examples(25), deadline=None)
@given(csv_files())
def test_typed_csv_is_what_line_by_line_is(case: tuple[bytes, int, tuple[str, ...], str]) -> None:
    """Rows and dead letters, with their places, are those of the exact reader, wherever blocks end."""
    data, block, nulls, time_format = case
    rules = Rules(FILES, payload="csv", nulls=nulls, time_format=time_format, time_format_found=block == 300)
    rows = FileRows(RowMaker(WIDE_SPEC, rules), rules)

    def read() -> tuple[list[str], list[tuple[str, str, str]]]:
        good: list[str] = []
        bad: list[tuple[str, str, str]] = []
        for parsed, records in rows.parts("f.csv", data):
            batches, letters = rows._maker.make(parsed, records)
            good += [repr(row) for batch in batches for row in batch.to_pylist()]
            bad += [(letter.origin, letter.column, letter.raw) for letter in letters]
        return sorted(good), sorted(bad)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_blocks.csv_blocks, "__defaults__", (block,))
        patch.setattr(file_rows, "SMALL_BLOCK", 100)
        fast = read()
        patch.setattr(csv_blocks.TypedCsv, "read", lambda self, block: None)
        patch.setattr(csv_blocks.csv_blocks, "__defaults__", (1 << 20,))
        slow = read()
    assert fast == slow
