"""What a table accepts, what it refuses, and what it says then."""

from __future__ import annotations

import datetime as dt
import json
import sys
import uuid
from decimal import Decimal
from itertools import chain, permutations
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidewheel.errors import BadRowsError, InputError
from tidewheel.model.schema import TableSpec, epoch, make_spec
from tidewheel.write import arrow_input
from tidewheel.write.accept import Accepted, Acceptor, accept

NAN = float("nan")
UTC = dt.UTC
MOMENT = dt.datetime(2026, 1, 31, 12)
SCHEMA = pa.schema([pa.field("plate", pa.int64()), pa.field("ts", pa.timestamp("us", "UTC")), pa.field("speed", pa.float32())])


def refuse(batch: pa.RecordBatch) -> tuple[np.ndarray[Any, Any], str] | None:
    if not pa.types.is_floating(batch.schema.field(0).type):
        return None
    nan = pc.is_nan(batch.column(0)).to_numpy(zero_copy_only=False)
    return (nan, "NaN has no place in an order") if nan.any() else None


def taxi(**more: Any) -> TableSpec:
    return make_spec("taxi", SCHEMA, time="ts", key="plate", **more)


def one_column(type_: pa.DataType) -> TableSpec:
    return make_spec("t", pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", type_)]), time="ts", key="k")


def take(data: Any, spec: TableSpec | None = None, on_bad: str = "error") -> Accepted:
    spec = spec or taxi()
    out = accept(data, spec, refuse, on_bad)
    for batch in out.batches:
        batch.validate(full=True)
        assert batch.schema.equals(spec.schema, check_metadata=True)
        assert batch.num_rows
    return out


def values(out: Accepted, column: str = "v") -> list[Any]:
    return [v for b in out.batches for v in b.column(column).to_pylist()]


def rows(n: int = 3) -> pa.RecordBatch:
    ts = pa.array([MOMENT] * n, pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([pa.array(range(n), pa.int64()), ts, pa.array([0.5] * n, pa.float32())], schema=SCHEMA)


def with_value(column: Any) -> dict[str, Any]:
    n = len(column)
    return {"k": pa.array(range(n), pa.int64()), "ts": pa.array([MOMENT] * n, pa.timestamp("us")), "v": column}


# ------------------------------------------------------------------------------------------------------------------- inputs


def test_a_batch_of_the_right_schema_passes_uncopied() -> None:
    batch = rows()
    assert take(batch).batches[0] is batch


class Stream:
    def __arrow_c_stream__(self, requested: Any = None) -> Any:
        return pa.table(rows()).__arrow_c_stream__(requested)


class Array:
    def __arrow_c_array__(self, requested: Any = None) -> Any:
        return rows().__arrow_c_array__(requested)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rows(),
        lambda: pa.table(rows()),
        lambda: pa.table(rows()).to_reader(),
        lambda: rows().to_pylist(),
        lambda: tuple(rows().to_pylist()),
        lambda: rows().to_pandas(),
        lambda: rows().to_pandas().set_index("speed", drop=False),
        lambda: rows().to_pandas().convert_dtypes(),
        lambda: rows().to_pandas(types_mapper=pd.ArrowDtype),
        lambda: rows().to_pandas().astype(object),
        lambda: pl.from_arrow(rows()),
        lambda: pl.from_arrow(rows()).lazy(),  # type: ignore[union-attr]
        Stream,
        Array,
        lambda: np.array([(i, MOMENT, 0.5) for i in range(3)], dtype=[("plate", ">i8"), ("ts", "M8[us]"), ("speed", "f4")]),
        lambda: rows().select(["speed", "plate", "ts"]),
        lambda: rows().replace_schema_metadata({"a": "b"}),
    ],
)
def test_every_kind_of_input_gives_the_same_rows(make: Any) -> None:
    assert pa.Table.from_batches(take(make()).batches).to_pylist() == rows().to_pylist()


@pytest.mark.parametrize("data", [{"plate": [1]}, 5, "text", None, object(), np.arange(3), pa.array([1, 2]), {1, 2}])
def test_other_objects_are_refused_with_what_is_accepted(data: Any) -> None:
    with pytest.raises(InputError):
        take(data)
    with pytest.raises(InputError, match=r"takes a pyarrow Table.*not int"):
        take(5)
    with pytest.raises(InputError, match="for one row"):
        take({"plate": 1})


def test_a_row_that_is_no_dict_is_named() -> None:
    with pytest.raises(BadRowsError, match="row 1 is a int") as e:
        take([rows().to_pylist()[0], 5])
    assert e.value.rows == (1,)


@pytest.mark.parametrize("data", [[], rows().slice(0, 0), pa.table(rows().slice(0, 0)), rows().to_pandas().iloc[:0]])
def test_empty_input_is_no_rows(data: Any) -> None:
    assert take(data) == Accepted([], [])


def test_memory_of_pandas_and_numpy_is_copied() -> None:
    frame = rows().to_pandas()
    structured = np.array([(1, MOMENT, 0.5)], dtype=[("plate", "i8"), ("ts", "M8[us]"), ("speed", "f4")])
    taken, taken_too = take(frame), take(structured)
    frame["plate"].to_numpy()[:] = 99
    structured["plate"] = 99
    assert values(taken, "plate") == [0, 1, 2]
    assert values(taken_too, "plate") == [1]


def test_small_chunks_are_combined_and_huge_batches_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(take(pa.Table.from_batches([rows()] * 50)).batches) == 1
    assert len(take(pa.Table.from_batches([rows(5000)] * 3)).batches) == 3
    big = rows((1 << 20) + 5)
    for data in (big, pa.table(big), big.to_pandas()):
        assert [b.num_rows for b in take(data).batches] == [1 << 20, 5]


def test_nothing_of_pandas_or_polars_is_imported() -> None:
    import subprocess

    code = "import sys, tidewheel.write.accept; assert not {'pandas', 'polars'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p)})


# ------------------------------------------------------------------------------------------------------------------ columns


def test_missing_and_unknown_columns_are_named_with_the_nearest() -> None:
    wrong = [{"plate": 1, "time": MOMENT, "speed": 1.0}]
    for data in (wrong, pa.Table.from_pylist(wrong), pd.DataFrame(wrong)):
        for on_bad in ("error", "reject") if data is not wrong else ("error",):
            with pytest.raises(BadRowsError, match=r"lacks column 'ts'\. the table has no column 'time'") as e:
                take(data, on_bad=on_bad)
            assert (e.value.table, e.value.column) == ("taxi", "time")
    wrong = [{"plate": 1, "ts": MOMENT, "sped": 1.0}]
    for data in (wrong, pa.Table.from_pylist(wrong), pd.DataFrame(wrong)):
        with pytest.raises(BadRowsError, match=r"no column 'sped'. Did you mean 'speed'"):
            take(data)


def test_a_column_that_is_not_there_is_null_whatever_the_input_is() -> None:
    part = [{"plate": 1, "ts": MOMENT}, {"plate": 2, "ts": MOMENT}]
    for data in (
        part,
        pa.Table.from_pylist(part),
        pd.DataFrame(part),
        pa.RecordBatch.from_pylist(part),
        np.array([(1, MOMENT)], "i8,M8[us]"),
    ):
        if isinstance(data, np.ndarray):
            data.dtype.names = ("plate", "ts")
        for on_bad in ("error", "reject"):
            assert set(values(take(data, on_bad=on_bad), "speed")) == {None}


def test_each_dict_is_judged_by_itself() -> None:
    """The same row has the same fate alone and in any company."""
    good, bare = {"plate": 1, "ts": MOMENT, "speed": 1.0}, {"plate": 2, "ts": MOMENT}
    timeless, keyless, odd = {"plate": 3, "speed": 1.0}, {"ts": MOMENT}, {"plate": 4, "ts": MOMENT, "sped": 2.0}
    kinds = {"good": good, "bare": bare, "timeless": timeless, "keyless": keyless, "odd": odd, "empty": {}}
    taken = {"good", "bare"}
    for names in chain(*(permutations(kinds, n) for n in (1, 2, 3))):
        out = take([kinds[name] for name in names], on_bad="reject")
        assert sum(b.num_rows for b in out.batches) == sum(name in taken for name in names)
        assert [r.position for r in out.rejected] == [i for i, name in enumerate(names) if name not in taken]
    reasons = {name: take([row], on_bad="reject").rejected[0].reason for name, row in kinds.items() if name not in taken}
    assert reasons["timeless"] == "None has no value in the time column"
    assert reasons["odd"] == "2.0 is in a column that the table does not have. Did you mean 'speed'?"


def test_a_column_given_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([*rows().columns, rows().column(0)], names=["plate", "ts", "speed", "plate"])
    frame = rows().to_pandas()
    for data in (batch, pa.table(batch), pd.concat([frame, frame], axis=1)):
        with pytest.raises(BadRowsError, match="'plate' appears twice"):
            take(data)


# -------------------------------------------------------------------------------------------------------------------- casts

D = Decimal
ts, us, ms, ns = pa.timestamp, pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("ns")
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
SAME: Any = object()
LOSSLESS: list[tuple[list[Any], pa.DataType, pa.DataType, Any]] = [
    ([1, None, -5], pa.int64(), pa.int8(), SAME),
    ([1, 255], pa.int64(), pa.uint8(), SAME),
    ([2**63 - 1], pa.uint64(), pa.int64(), SAME),
    ([2**53, 2**60], pa.int64(), pa.float64(), SAME),
    ([2**24], pa.int32(), pa.float32(), SAME),
    ([2048], pa.int32(), pa.float16(), SAME),
    ([1.0, None], pa.float64(), pa.int32(), SAME),
    ([0.1], pa.float64(), pa.float32(), [float(np.float32(0.1))]),
    ([float("inf")], pa.float64(), pa.float32(), SAME),
    ([0.5], pa.float32(), pa.float16(), SAME),
    ([0.5, float("-inf")], pa.float16(), pa.float64(), SAME),
    ([True, False], pa.bool_(), pa.int8(), SAME),
    ([0, 1, None], pa.int64(), pa.bool_(), SAME),
    (["1", "-7"], pa.string(), pa.int16(), [1, -7]),
    (["1", None], pa.dictionary(pa.int8(), pa.string()), pa.int16(), [1, None]),
    (["1e3", "inf", "0.5"], pa.string_view(), pa.float64(), [1000.0, float("inf"), 0.5]),
    (["true", "0"], pa.large_string(), pa.bool_(), [True, False]),
    (["1.2"], pa.string(), pa.decimal128(5, 2), [D("1.20")]),
    ([5], pa.int64(), pa.decimal128(3, 2), [D("5.00")]),
    ([2**64 - 1], pa.uint64(), pa.decimal128(20, 0), [D(2**64 - 1)]),
    ([D("1.50")], pa.decimal128(5, 2), pa.decimal128(2, 1), SAME),
    ([D("5.00")], pa.decimal128(5, 2), pa.int64(), SAME),
    ([D("0.1")], pa.decimal128(5, 2), pa.float64(), [0.1]),
    ([D("1.5"), D("1.005")], pa.decimal128(4, 3), pa.float32(), [1.5, float(np.float32("1.005"))]),
    ([D(n).scaleb(-3) for n in range(0, 999_999, 997)], pa.decimal128(9, 3), pa.float64(), [n / 1000 for n in range(0, 999_999, 997)]),
    ([0.25], pa.float64(), pa.decimal128(5, 2), SAME),
    ([1500000], us, ms, [dt.datetime(1970, 1, 1, 0, 0, 1, 500000)]),
    ([0], ts("s", "Asia/Tokyo"), us, [dt.datetime(1970, 1, 1)]),
    ([0], us, ts("ms", "America/New_York"), [dt.datetime(1970, 1, 1, tzinfo=UTC)]),
    ([dt.date(2026, 1, 31)], pa.date32(), us, [dt.datetime(2026, 1, 31)]),
    ([dt.date(2026, 1, 31)], pa.date64(), pa.date32(), SAME),
    ([dt.datetime(2026, 1, 31)], ts("us", "UTC"), pa.date32(), [dt.date(2026, 1, 31)]),
    ([5], pa.int32(), us, [dt.datetime(1970, 1, 1, 0, 0, 0, 5)]),
    ([5], pa.int64(), pa.date32(), [dt.date(1970, 1, 6)]),
    ([86_400_000], pa.int64(), pa.date64(), [dt.date(1970, 1, 2)]),
    (["2026-01-31", "2026-01-31T12:00:00.500000Z", "2026-01-31 12:00:00.000+02:00", None], pa.string(), ms,
     [dt.datetime(2026, 1, 31), dt.datetime(2026, 1, 31, 12, 0, 0, 500000), dt.datetime(2026, 1, 31, 10), None]),
    (["2026-01-31 12:00:00"], pa.string(), ts("s", "Europe/Rome"), [MOMENT.replace(tzinfo=UTC)]),
    (["2026-01-31", "2026-01-31T00:00:00Z"], pa.string(), pa.date32(), [dt.date(2026, 1, 31)] * 2),
    (["12:00:01.5"], pa.string(), pa.time32("ms"), [dt.time(12, 0, 1, 500000)]),
    ([1000], pa.time32("ms"), pa.time32("s"), [dt.time(0, 0, 1)]),
    ([1000], pa.duration("ms"), pa.duration("s"), [dt.timedelta(seconds=1)]),
    ([None, None], pa.null(), pa.float64(), SAME),
    ([None], pa.null(), pa.dictionary(pa.int8(), pa.string()), SAME),
    (["a", b"b".decode()], pa.string(), pa.binary(), [b"a", b"b"]),
    ([b"ab", None], pa.binary(), pa.binary(2), SAME),
    ([b"ab"], pa.binary(2), pa.string(), ["ab"]),
    ([3, 3, None], pa.int64(), pa.dictionary(pa.uint8(), pa.int32()), SAME),
    ([3, 3, None], pa.int64(), pa.run_end_encoded(pa.int32(), pa.int16()), SAME),
    ([uuid.UUID(int=7).bytes], pa.binary(16), pa.uuid(), [uuid.UUID(int=7)]),
    ([uuid.UUID(int=7)], pa.uuid(), pa.binary(16), [uuid.UUID(int=7).bytes]),
    ([[1, 2], None, []], pa.list_(pa.int64()), pa.large_list(pa.float32()), SAME),
    ([[1, 2], None, [3, 4]], pa.large_list(pa.int64()), pa.list_(pa.int8(), 2), SAME),
    ([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2), pa.list_(pa.int8()), SAME),
    ([["a"], None], pa.list_(pa.string()), pa.large_list_view(pa.string_view()), SAME),
    ([["a"], None], pa.large_list_view(pa.string()), pa.list_(pa.string_view(), 1), SAME),
    ([["a"], None], pa.list_(pa.string()), pa.list_view(pa.dictionary(pa.int8(), pa.string())), SAME),
    ([{"b": 1, "a": "x"}, None], pa.struct([("b", pa.int64()), ("a", pa.string())]),
     pa.struct([("a", pa.large_string()), ("b", pa.int8()), ("c", us)]), [{"a": "x", "b": 1, "c": None}, None]),
    ([[("a", 1)], None], pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8()), SAME),
    *[(["a", None, "b"], a, b, SAME) for a in TEXTS for b in TEXTS],
]  # fmt: skip


def same(got: list[Any], want: list[Any]) -> bool:
    return [g.astimezone(UTC) if isinstance(g, dt.datetime) and g.tzinfo else g for g in got] == want


@pytest.mark.parametrize(("given", "from_", "to", "want"), LOSSLESS)
def test_a_cast_that_keeps_the_values_is_done(given: list[Any], from_: pa.DataType, to: pa.DataType, want: Any) -> None:
    want = given if want is SAME else want
    padded = pa.array([given[0], *given, given[0]], from_)
    sliced = padded.slice(1, len(given))  # an offset must not matter
    assert same(values(take(pa.table(with_value(sliced)), one_column(to))), want)


FAR = 2**62
BAD: list[tuple[list[Any], pa.DataType, pa.DataType, list[int]]] = [
    ([1, 128, -129, None], pa.int64(), pa.int8(), [1, 2]),
    ([2**63, 1], pa.uint64(), pa.int64(), [0]),
    ([2**53 + 1, 2**63 - 1, 4], pa.int64(), pa.float64(), [0, 1]),
    ([70000, 2049, 1], pa.int64(), pa.float16(), [0, 1]),
    ([NAN, 1.0, 1.5, 2.0**63, float("inf")], pa.float64(), pa.int64(), [0, 2, 3, 4]),
    ([1e300, 1.0, -1e39], pa.float64(), pa.float32(), [0, 2]),
    ([70000.0, 1.0], pa.float32(), pa.float16(), [0]),
    ([2, 1, 0], pa.int64(), pa.bool_(), [0]),
    (["1e3", "1", "", " 1", "x"], pa.string(), pa.int64(), [0, 2, 3, 4]),
    (["1e400", "fast", "1"], pa.string_view(), pa.float64(), [0, 1]),
    (["1e60", "1"], pa.dictionary(pa.int8(), pa.string()), pa.float32(), [0]),
    (["yes", "true"], pa.string(), pa.bool_(), [0]),
    (["1.234", "1e9", "1.2"], pa.string(), pa.decimal128(5, 2), [0, 1]),
    ([100, 9], pa.int64(), pa.decimal128(3, 2), [0]),
    ([D("1.25"), D("1.50")], pa.decimal128(5, 2), pa.decimal128(5, 1), [0]),
    ([D("1.5"), D("1.0")], pa.decimal128(5, 2), pa.int64(), [0]),
    ([0.125, NAN, 1e9, 0.5], pa.float64(), pa.decimal128(5, 2), [0, 1, 2]),
    ([D(2**53 + 1), D(1)], pa.decimal128(20, 0), pa.float64(), [0]),
    ([1500, 1000], ms, ts("s"), [0]),
    ([FAR, 1], ts("s"), ns, [0]),
    ([FAR, 0, 86_400, 5], ts("s"), pa.date32(), [0, 3]),
    ([2**31 - 1, 1], pa.date32(), ns, [0]),
    ([5, 86_400_000], pa.int64(), pa.date64(), [0]),
    ([2**40, 1], pa.int64(), pa.date32(), [0]),
    (["2500-01-01", "2026-01-01", "x", "2026-01-01 25:00:00"], pa.string(), ns, [0, 2, 3]),
    (["2026-01-01 00:00:00.1234567", "2026-01-01 00:00:00.1234560"], pa.string(), us, [0]),
    (["2026-01-01 10:00:00", "2026-01-01"], pa.string(), pa.date32(), [0]),
    (["25:00", "23:00"], pa.string(), pa.time64("us"), [0]),
    ([b"\xff", b"a"], pa.binary(), pa.string(), [0]),
    ([b"abc", b"ab"], pa.binary(), pa.binary(2), [0]),
    ([[1, 300], [1], None], pa.list_(pa.int64()), pa.list_(pa.int8()), [0]),
    ([[1], [1, 2], None], pa.list_(pa.int64()), pa.list_(pa.int64(), 2), [0]),
    ([{"a": 300}, {"a": 1}], pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int8())]), [0]),
    ([[("a", 300)], [("a", 1)]], pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8()), [0]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "from_", "to", "bad"), BAD)
def test_values_that_would_change_are_bad_rows(given: list[Any], from_: pa.DataType, to: pa.DataType, bad: list[int]) -> None:
    column = pa.array(given, from_)
    data = pa.table(with_value(column))
    with pytest.raises(BadRowsError, match="table 't', column 'v': ") as e:
        take(data, one_column(to))
    assert e.value.rows == tuple(bad)
    assert f"({from_} → {to})" in str(e.value) and f"first: row {bad[0]}: " in str(e.value)
    out = take(data, one_column(to), "reject")
    assert [r.position for r in out.rejected] == bad
    assert values(out, "k") == [i for i in range(len(given)) if i not in bad]
    good = pa.concat_arrays([column.slice(i, 1) for i in range(len(given)) if i not in bad])
    assert values(out) == values(take(pa.table(with_value(good)), one_column(to)))


@pytest.mark.parametrize(
    ("from_", "to"),
    [
        (pa.struct([("a", pa.int64())]), pa.int64()),
        (pa.float64(), pa.bool_()),
        (pa.int64(), pa.string()),
        (us, pa.int64()),
        (pa.list_(pa.int64()), pa.float64()),
        (pa.float64(), us),
        (pa.string(), pa.duration("s")),
        (pa.struct([("x", pa.int64())]), pa.struct([("a", pa.int64())])),
        (pa.list_(pa.struct([("x", pa.int64())])), pa.list_(pa.int64())),
        (pa.map_(pa.string(), us), pa.map_(pa.string(), pa.bool_())),
    ],
)
@pytest.mark.parametrize("on_bad", ["error", "reject"])
def test_types_that_never_fit_are_said_once(from_: pa.DataType, to: pa.DataType, on_bad: str) -> None:
    with pytest.raises(BadRowsError, match=r"column 'v': .* → .* is no match") as e:
        take(pa.table(with_value(pa.array([None, None], from_))), one_column(to), on_bad)
    assert e.value.column == "v" and str(from_) in str(e.value) and str(to) in str(e.value)


def test_narrow_dictionaries_get_wide_indices() -> None:
    """A table holds more different values than the eight bits of one batch's dictionary."""
    accepted = take(pa.table(with_value(pa.array(map(str, range(300))))), one_column(pa.dictionary(pa.int8(), pa.string())))
    assert accepted.batches[0].column("v").type == pa.dictionary(pa.int32(), pa.string())
    assert accepted.batches[0].num_rows == 300


# ------------------------------------------------------------------------------------------------------------- Python values

PLUS2 = dt.timezone(dt.timedelta(hours=2))
PYTHON: list[tuple[list[Any], pa.DataType, list[Any], list[int]]] = [
    ([1, "2", 3.0, True, None, 1.5, "x", 2**70, NAN, [1], D("4")], pa.int64(), [1, 2, 3, 1, None, 4], [5, 6, 7, 8, 9]),
    ([2**64 - 1, -1, 2**64], pa.uint64(), [2**64 - 1], [1, 2]),
    ([1, 0.1, "0.5", D("0.25"), 1e300, b"1", np.float32(2)], pa.float32(), [1.0, float(np.float32(0.1)), 0.5, 0.25, 2.0], [4, 5]),
    ([True, 1, "false", 2, 1.0], pa.bool_(), [True, True, False], [3, 4]),
    (["a", b"b", 5, b"\xff", "\ud800", None], pa.string(), ["a", "b", None], [2, 3, 4]),
    (["a", b"b", 5], pa.string_view(), ["a", "b"], [2]),
    ([1, "2", "x"], pa.run_end_encoded(pa.int32(), pa.int64()), [1, 2], [2]),
    (["a", b"b", 5], pa.dictionary(pa.int8(), pa.string()), ["a", "b"], [2]),
    ([MOMENT, MOMENT.replace(tzinfo=PLUS2), dt.date(2026, 1, 31), "2026-01-31T12:00Z", np.datetime64("2026-01-31", "D"), 5, 5.5, "x",
      pd.Timestamp(5), pd.NaT, pd.Timestamp("2026-01-31", tz="UTC"), dt.datetime(2026, 1, 1, microsecond=7)], ms,
     [MOMENT, MOMENT.replace(hour=10), dt.datetime(2026, 1, 31), MOMENT, dt.datetime(2026, 1, 31), dt.datetime(1970, 1, 1, 0, 0, 0, 5000),
      None, dt.datetime(2026, 1, 31)], [6, 7, 8, 11]),
    ([dt.datetime(9999, 1, 1), dt.date(9999, 1, 1), dt.date(2026, 1, 1)], ns, [pd.Timestamp("2026-01-01")], [0, 1]),
    ([dt.date(2026, 1, 31), MOMENT, dt.datetime(2026, 1, 31)], pa.date32(), [dt.date(2026, 1, 31)] * 2, [1]),
    ([dt.time(1, 2, 3), dt.time(1, 2, 3, 4)], pa.time32("s"), [dt.time(1, 2, 3)], [1]),
    ([dt.timedelta(seconds=5), dt.timedelta(microseconds=5)], pa.duration("s"), [dt.timedelta(seconds=5)], [1]),
    ([D("1.5"), 2, 0.25, "3", D("1.234"), 2**70], pa.decimal128(5, 2), [D("1.5"), D(2), D("0.25"), D(3)], [4, 5]),
    ([[1, "2"], (3,), None, [1.5], 7, "ab", np.array([4])], pa.list_(pa.int8()), [[1, 2], [3], None, [4]], [3, 4, 5]),
    ([[1, 2], [1], None, [3, 4]], pa.list_(pa.int8(), 2), [[1, 2], None, [3, 4]], [1]),
    ([[MOMENT], ["x"]], pa.large_list(us), [[MOMENT]], [1]),
    ([{"a": 1}, {"a": "2", "b": [{"c": 0.5}]}, {"z": 1}, {"b": [{"c": "x"}]}, 5, None], pa.struct(
        [("a", pa.int8()), ("b", pa.list_(pa.struct([("c", pa.float64())])))]),
     [{"a": 1, "b": None}, {"a": 2, "b": [{"c": 0.5}]}, None], [2, 3, 4]),
    ([{"a": 1}, [("b", "2")], None, {"a": 1.5}, [(None, 1)], 5], pa.map_(pa.string(), pa.int8()),
     [[("a", 1)], [("b", 2)], None], [3, 4, 5]),
    ([uuid.UUID(int=3), uuid.UUID(int=4).bytes, "x"], pa.uuid(), [uuid.UUID(int=3), uuid.UUID(int=4)], [2]),
    ([b"ab", "cd", b"x"], pa.binary(2), [b"ab", b"cd"], [2]),
    ([object(), None], pa.int64(), [None], [0]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "to", "want", "bad"), PYTHON)
def test_python_values_are_typed_one_by_one(given: list[Any], to: pa.DataType, want: list[Any], bad: list[int]) -> None:
    data = [{"k": i, "ts": MOMENT, "v": v} for i, v in enumerate(given)]
    out = take(data, one_column(to), "reject")
    assert values(out) == want
    assert [r.position for r in out.rejected] == bad
    assert all(r.column == "v" and json.loads(r.row)["k"] == r.position for r in out.rejected)
    with pytest.raises(BadRowsError, match=r"don't fit|doesn't fit") as e:
        take(data, one_column(to))
    assert e.value.rows == tuple(bad)


def test_a_pandas_column_of_several_types() -> None:
    frame = pd.DataFrame({"plate": [1, 2, 3, 4], "ts": [MOMENT] * 4, "speed": [1.5, "2", None, "fast"]})
    out = take(frame, on_bad="reject")
    assert values(out, "speed") == [1.5, 2.0, None]
    assert [r.position for r in out.rejected] == [3]


def test_polars_types() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("ts", us), ("e", pa.string()),
                        ("t", pa.time64("us")), ("l", pa.list_(pa.string())),
                        ("a", pa.list_(pa.float32(), 2)), ("s", pa.struct([("x", pa.string())])), ("n", pa.int8()),
                        ("d", pa.duration("ms"))])  # fmt: skip
    row = {"k": "a", "ts": MOMENT, "e": "b", "t": dt.time(1), "l": ["x", None], "a": [1.0, 2.0], "s": {"x": "y"}, "n": None,
           "d": dt.timedelta(seconds=1)}  # fmt: skip
    frame = pl.DataFrame([row, row]).with_columns(
        pl.col("k").cast(pl.Categorical), pl.col("e").cast(pl.Enum(["a", "b"])), pl.col("a").cast(pl.Array(pl.Float64, 2))
    )
    out = take(frame, make_spec("t", schema, time="ts", key="k"))
    assert pa.Table.from_batches(out.batches).to_pylist() == [row, row]


def test_pandas_types() -> None:
    schema = pa.schema(
        [("k", pa.string()), ("ts", pa.timestamp("ns", "UTC")), ("i", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.int8()))]
    )
    frame = pd.DataFrame(
        {
            "k": pd.Categorical(["a", "b"]),
            "ts": pd.to_datetime(["2026-01-31", "2026-02-01"]).tz_localize("Asia/Tokyo"),
            "i": [1.0, NAN],
            "s": pd.array(["x", pd.NA], dtype="string"),
            "l": [[1], None],
        },
        index=[7, 7],
    )
    out = take(frame, make_spec("t", schema, time="ts", key="k"))
    assert [values(out, c) for c in "kisl"] == [["a", "b"], [1, None], ["x", None], [[1], None]]
    assert values(out, "ts")[0] == pd.Timestamp("2026-01-30 15:00", tz="UTC")


def test_dictionaries_of_views_are_read() -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array(["1", "2"], pa.string_view()))
    assert values(take(pa.table(with_value(coded)), one_column(pa.int8()))) == [1, None, 2]
    assert values(take(pa.table(with_value(coded)), one_column(pa.string_view()))) == ["1", None, "2"]


def test_list_fields_of_another_name_are_the_same_type() -> None:
    given = pa.array([[1]], pa.list_(pa.field("element", pa.int64())))
    assert values(take(pa.table(with_value(given)), one_column(pa.list_(pa.int64())))) == [[1]]


def test_an_integer_time_column_counts_its_unit() -> None:
    spec = make_spec("seen", pa.schema([("device", pa.string()), ("at", pa.int64())]), time=epoch("at", "ms"), key="device")
    moment = dt.datetime(1970, 1, 1, 0, 0, 1)
    given = [moment, "1970-01-01T00:00:01Z", "1000", 1000, 1000.0, dt.date(1970, 1, 2), "x", moment.replace(microsecond=1)]
    out = take([{"device": "d", "at": v} for v in given], spec, "reject")
    assert values(out, "at") == [1000] * 5 + [86_400_000]
    assert [r.position for r in out.rejected] == [6, 7]
    arrow = pa.table({"device": ["d"], "at": pa.array([moment], pa.timestamp("ns", "Asia/Tokyo"))})
    assert values(take(arrow, spec), "at") == [1000]


# ------------------------------------------------------------------------------------------------------- nulls, keys, refusal


def test_nulls_in_key_time_and_non_nullable_columns() -> None:
    schema = pa.schema([pa.field("k", pa.float64()), pa.field("ts", us), pa.field("must", pa.string(), nullable=False), ("may", pa.int8())])
    spec = make_spec("t", schema, time="ts", key="k")
    good = {"k": 1.0, "ts": MOMENT, "must": "x", "may": None}
    data = [good, good | {"k": None}, good | {"ts": None}, good | {"must": None}, good | {"k": NAN}, good | {"k": NAN, "ts": None}]
    arrays = [pa.array([d[n] for d in data], schema.field(n).type) for n in schema.names]
    for given in (data, pa.table(arrays, names=schema.names), pa.RecordBatch.from_arrays(arrays, schema=schema)):
        out = take(given, spec, "reject")
        assert [(r.position, r.column) for r in out.rejected] == [(1, "k"), (2, "ts"), (3, "must"), (4, "k"), (5, "ts")]
        assert "NaN has no place" in out.rejected[3].reason and "key column" in out.rejected[0].reason
        assert values(out, "must") == ["x"]
        with pytest.raises(BadRowsError, match="column 'k': 1 row has no value in the key column") as e:
            take(given, spec)
        assert e.value.rows == (1,)
    with pytest.raises(BadRowsError, match=r"has no key: NaN has no place in an order .first: row 1: nan"):
        take([good, good | {"k": NAN}], spec)


def test_nulls_hidden_in_a_dictionary_are_found() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("ts", us)])
    key = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))
    batch = pa.RecordBatch.from_arrays([key, pa.array([MOMENT] * 2, us)], schema=schema)
    with pytest.raises(BadRowsError, match="no value in the key column"):
        take(batch, make_spec("t", schema, time="ts", key="k"))


def test_the_message_names_table_column_types_and_first_rows() -> None:
    speeds = ["1.5"] * 40
    for i in (17, 20, 21, 22, 23, 39):
        speeds[i] = "fast"
    data = pa.table({"plate": range(40), "ts": [MOMENT] * 40, "speed": speeds})
    with pytest.raises(BadRowsError) as e:
        take(data)
    assert str(e.value) == (
        "table 'taxi', column 'speed': 6 rows don't fit float (string → float) (first: row 17: 'fast', row 20: 'fast', "
        "row 21: 'fast', row 22: 'fast', row 23: 'fast', …)"
    )


def test_positions_count_through_the_whole_input() -> None:
    batch = rows(5000)
    speed = pa.array(["x" if i == 7 else "1" for i in range(5000)])
    text = pa.RecordBatch.from_arrays([*batch.columns[:2], speed], names=SCHEMA.names)
    data = pa.Table.from_batches([text] * 3)
    with pytest.raises(BadRowsError, match=r"3 rows don't fit.*row 7: 'x', row 5007: 'x', row 10007: 'x'") as e:
        take(data)
    assert e.value.rows == (7, 5007, 10007)
    assert [r.position for r in take(data, on_bad="reject").rejected] == [7, 5007, 10007]


def test_an_error_stops_counting_and_is_quick() -> None:
    data = pa.table(rows(100_000)).set_column(2, "speed", pa.array(["x"] * 100_000))
    with pytest.raises(BadRowsError, match="1000 or more rows don't fit"):
        take(data)


def test_a_rejected_row_is_json_whatever_it_holds() -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", ns), ("b", pa.binary()), ("f", pa.float64()), ("d", pa.date32()), ("v", pa.int8())])
    spec = make_spec("t", schema, time="ts", key="k")
    data = pa.table([[1], pa.array([1], ns), [b"\x01\xff"], [NAN], pa.array([2**30], pa.date32()), ["x"]], names=schema.names)
    [bad] = take(data, spec, "reject").rejected
    row = json.loads(bad.row)
    assert (row["k"], row["ts"], row["b"], row["f"], row["v"]) == (1, "1970-01-01 00:00:00.000000001", "01ff", "nan", "x")
    python = {"k": 1, "ts": MOMENT, "b": b"\x01", "f": np.float64(2), "d": dt.date(2026, 1, 1), "v": {"a": [D("1.5"), "\ud800"]}}
    [bad] = take([python], spec, "reject").rejected
    assert json.loads(bad.row) == {"k": 1, "ts": "2026-01-31T12:00:00", "b": "01", "f": 2.0, "d": "2026-01-01", "v": {"a": ["1.5", "?"]}}


@pytest.mark.parametrize("on_bad", ["drop", "", None, 1])
def test_other_values_of_on_bad_are_refused(on_bad: Any) -> None:
    with pytest.raises(InputError, match="on_bad is"):
        take(rows(), on_bad=on_bad)


def test_every_accepted_kind_is_known_to_the_message() -> None:
    assert all(word in arrow_input.ACCEPTED for word in ("Table", "pandas", "polars", "dicts", "__arrow_c_stream__"))


def test_the_fast_path_reads_only_null_counts() -> None:
    asked: list[int] = []
    acceptor = Acceptor(taxi(), lambda batch: asked.append(batch.num_rows))
    batch = rows(10)
    assert acceptor.accept(batch).batches[0] is batch
    assert asked == [10]
