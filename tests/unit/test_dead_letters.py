"""Dead letters travel with rows and come apart again."""

from __future__ import annotations

import pyarrow as pa

from tidewheel.model.dead_letters import DeadLetter, letters_batch, rows_batch, split, with_hidden

SCHEMA = pa.schema([pa.field("plate", pa.int64(), nullable=False), pa.field("note", pa.string_view())])
ROWS = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), pa.array(["a", None, "c"], pa.string_view())], schema=SCHEMA)
LETTERS = [DeadLetter(0, "not JSON", "", "{", "taxi/0@7"), DeadLetter(1, "'x' doesn't fit int64", "plate", '{"plate": "x"}', "")]


def test_a_batch_without_hidden_columns_passes_as_it_is() -> None:
    rows, letters = split(ROWS)
    assert rows is ROWS and letters == []


def test_rows_lose_the_hidden_columns_and_nothing_else() -> None:
    batch = rows_batch(ROWS)
    assert batch.schema == with_hidden(SCHEMA)
    rows, letters = split(batch)
    assert letters == [] and rows.to_pydict() == ROWS.to_pydict()
    assert rows.column(0).buffers()[1].address == ROWS.column(0).buffers()[1].address


def test_letters_alone_come_back_with_their_positions() -> None:
    rows, letters = split(letters_batch(SCHEMA, LETTERS), start=10)
    assert rows.num_rows == 0 and rows.schema.names == SCHEMA.names
    assert [x.position for x in letters] == [10, 11]
    assert [(x.reason, x.column, x.raw, x.origin) for x in letters] == [(x.reason, x.column, x.raw, x.origin) for x in LETTERS]


def test_rows_and_letters_of_one_batch() -> None:
    schema = pa.schema([("plate", pa.int64())])
    rows = rows_batch(pa.record_batch({"plate": [1, 2]}, schema))
    mixed = pa.Table.from_batches([rows, letters_batch(schema, LETTERS), rows]).combine_chunks().to_batches()[0]
    good, letters = split(mixed)
    assert good.to_pydict() == {"plate": [1, 2, 1, 2]}
    assert [x.position for x in letters] == [2, 3]


def test_only_the_reason_is_needed() -> None:
    batch = pa.record_batch({"plate": pa.array([1, None]), "_tw_bad": pa.array([None, "why"])})
    good, letters = split(batch)
    assert good.to_pydict() == {"plate": [1]} and letters == [DeadLetter(1, "why", "", "", "")]
