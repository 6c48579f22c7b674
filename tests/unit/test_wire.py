"""The wire: everything that crosses comes out as it went in, and nothing that crosses can do anything."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import inspect
import json
import pickle
import zoneinfo
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tidewheel import errors
from tidewheel.cluster import requests, wire
from tidewheel.engine import operations
from tidewheel.errors import BadRowsError, CorruptionError, NotFoundError, OwnerLostError, TidewheelError
from tidewheel.maintenance import warehouse_care
from tidewheel.metrics import TableMetrics
from tidewheel.model.conditions import Both, Comparison, Condition, Either, HasText, IsNull, Negation, OneOf
from tidewheel.model.delivery import Ack, Load, Pin, ServerState, SliceId, Staged, StreamState, TableState, Written
from tidewheel.model.packed_plan import PackedPlan
from tidewheel.model.query import Plan, Query, Stats, Subquery
from tidewheel.model.records import ChunkRecord, Lease, MaskRecord
from tidewheel.model.recovery import Recovery, TableRecovery
from tidewheel.model.report import BackupReport, CheckReport, Problem
from tidewheel.model.schema import TableSpec, make_spec
from tidewheel.settings import Settings
from tidewheel.sql import duck_filters
from tidewheel.testing.strategies import BatchStream, table_cases
from tidewheel.testing.strategies import random as randoms

ZONES = [dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), zoneinfo.ZoneInfo("Europe/Vienna"), None]

numbers = st.one_of(st.integers(), st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.decimals())
texts = st.one_of(st.text(), st.text(st.characters(codec=None)), st.binary())
times = st.one_of(
    st.sampled_from(ZONES).flatmap(lambda zone: st.datetimes(timezones=st.just(zone) if zone else st.none())),
    st.dates(), st.times(), st.timedeltas(),
)  # fmt: skip
numpies = st.one_of(
    st.integers(0, 2**32 - 1).map(np.uint32), st.floats(width=32).map(np.float32), st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.booleans().map(np.bool_), st.integers(-(2**62), 2**62).map(lambda n: np.datetime64(n, "ns")),
    st.integers(-(2**40), 2**40).map(lambda n: np.timedelta64(n, "h")), st.text("ab", min_size=1).map(np.str_),
)  # fmt: skip
arrows = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(lambda n: pa.scalar(n, pa.int32())),
    st.integers(-(2**62), 2**62).map(lambda n: pa.scalar(n, pa.timestamp("ns", "UTC"))),
    st.text().map(lambda t: pa.scalar(t, pa.large_string())), st.just(pa.scalar(None, pa.float64())),
    st.decimals(-1000, 1000, places=2).map(lambda d: pa.scalar(d, pa.decimal128(9, 2))),
)  # fmt: skip
scalars = st.one_of(st.none(), numbers, texts, times, numpies, arrows)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=4),
    ),
    max_leaves=10,
)  # fmt: skip


def there_and_back(value: Any) -> Any:
    return wire.unpack(pa.py_buffer(wire.pack(value)))[0]


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, and NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)) and not hasattr(a, "_fields"):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    if isinstance(a, dt.datetime):
        return a == b and a.tzinfo == b.tzinfo and a.fold == b.fold
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, pa.Scalar):
        return bool(a.type == b.type and a.equals(b))
    if isinstance(a, Decimal):
        return str(a) == str(b)
    return bool(a == b or a != a and b != b)


@given(values)
def test_values(value: Any) -> None:
    assert same(there_and_back(value), value)


queries = st.builds(
    Query, key=st.one_of(st.none(), scalars, st.tuples(scalars, scalars)), time=st.tuples(scalars, scalars),
    box=st.none() | st.lists(scalars).map(tuple), where=st.none() | st.text(), columns=st.none() | st.lists(st.text()),
    limit=st.none() | st.integers(), aggregate=st.none() | st.dictionaries(st.text(), st.text()), max_rows=st.none() | st.floats(),
)  # fmt: skip


@settings(max_examples=examples(40))
@given(queries)
def test_queries(query: Query) -> None:
    again = there_and_back(query)
    assert all(same(getattr(again, f.name), getattr(query, f.name)) for f in fields(Query))


def test_conditions() -> None:
    """Also with values that Python has none for, and as deep as they are taken from DuckDB."""
    late = pa.scalar(2**62, pa.timestamp("s", "Europe/Vienna"))
    condition: Condition = Either(
        Both(Comparison("ts", ">=", late), OneOf("note", pa.array(["a", "é\0"], pa.large_string()))),
        Negation(Either(IsNull("ts"), HasText("note", "inside", "it's"))),
    )
    for _ in range(duck_filters._DEEPEST):
        condition = Negation(condition)
    assert there_and_back(Query(condition=condition)).condition == condition
    assert pickle.loads(pickle.dumps(condition)) == condition


# ---- classes: random ones of each, made from their types ---------------------------------------------------

CLASSES = [
    Ack, BackupReport, CheckReport, ChunkRecord, Lease, Load, MaskRecord, Pin, Plan, Recovery, ServerState, PackedPlan, SliceId, Staged,
    Stats, StreamState, Subquery, TableMetrics, TableRecovery, TableState, Written, Problem,
]  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES)
def test_classes(kind: type[Any]) -> None:
    @settings(max_examples=examples(15))
    @given(st.builds(kind, **{name: st.from_type(hint) for name, hint in get_type_hints(kind).items()}))
    def check(value: Any) -> None:
        again = there_and_back(value)
        assert type(again) is kind
        names = value._fields if issubclass(kind, tuple) else [f.name for f in fields(kind)]
        assert all(repr(getattr(again, name)) == repr(getattr(value, name)) for name in names)

    check()


def test_the_protocol_is_counted_up_when_a_class_changes() -> None:
    """Owners outlive an upgrade: one that knows other fields must be told by its number. On a change: count PROTOCOL up, and put the new
    digest here."""
    said = sorted((kind.__name__, [field.name for field in fields(kind)]) for kind in wire._CLASSES)
    assert (requests.PROTOCOL, hashlib.sha256(repr(said).encode()).hexdigest()[:16]) == (9, "05221d72dee1824f")


def test_every_request_and_every_operation_is_known() -> None:
    for home in (requests, operations, warehouse_care):
        known = {kind.__name__ for kind in vars(home).values() if inspect.isclass(kind) and is_dataclass(kind)}
        assert known - {"TableSpec"} <= set(wire._READERS)
    commit = operations.CommitBatch("s", "r", 7, (SliceId("s", "r", 7, 0, 1), SliceId("s", "r", 7, 1, 4)))
    request = requests.OnTable(3, commit)
    assert there_and_back(request) == request
    assert there_and_back(Settings(chunk_bytes=4096, query_rows=None)) == Settings(chunk_bytes=4096, query_rows=None)


@settings(max_examples=examples(40))
@given(table_cases())
def test_specs(case: Any) -> None:
    spec = make_spec("t", case.schema, time=case.time, key=case.key, partition=case.partition)
    again: TableSpec = there_and_back(spec)
    assert again == spec
    assert again.schema.equals(spec.schema, check_metadata=True)


# ---- what is not plain --------------------------------------------------------------------------------------


def test_values_of_pandas_need_no_pandas_on_the_other_side() -> None:
    assert there_and_back(pd.Timestamp("2026-01-01 00:00:00.123456789")) == np.datetime64("2026-01-01T00:00:00.123456789")
    assert there_and_back(pd.Timestamp("2026-01-01", tz="Europe/Vienna")) == np.datetime64("2025-12-31T23:00:00")
    assert there_and_back(pd.Timedelta("1 ns")) == np.timedelta64(1, "ns")
    assert np.isnat(there_and_back(pd.NaT))
    assert there_and_back(pd.NA) is None


class Odd:
    def __repr__(self) -> str:
        return "<odd>"

    def __str__(self) -> str:
        return "odd"


@pytest.mark.parametrize("value", [Odd(), {1, 2}, object, len, np.array([Odd(), 1], dtype=object).reshape(2, 1), 1 + 2j])
def test_strangers_look_the_same(value: Any) -> None:
    again = there_and_back(value)
    assert isinstance(again, wire.Stranger)
    assert (repr(again), str(again)) == (repr(value), str(value))
    assert (repr(there_and_back(again)), str(there_and_back(again))) == (repr(value), str(value))


def test_arrays_and_subclasses() -> None:
    assert same(there_and_back(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3))
    assert there_and_back(np.array([1, "a", None], dtype=object)) == [1, "a", None]
    assert there_and_back(bytearray(b"ab")) == b"ab"

    class Number(int):
        pass

    assert there_and_back(Number(5)) == 5


# ---- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k in vars(errors).values() if inspect.isclass(k) and issubclass(k, TidewheelError)])
def test_errors_keep_their_class(kind: type[TidewheelError]) -> None:
    error = kind("what happened, and what to do")
    error.add_note("a note")
    again = there_and_back(error)
    assert type(again) is kind
    assert str(again) == "what happened, and what to do"
    assert again.retryable == error.retryable
    assert again.__notes__ == ["a note"]


def test_errors_keep_what_they_know() -> None:
    again = there_and_back(BadRowsError("m", table="t", column="c", rows=(3, 5)))
    assert (again.table, again.column, again.rows) == ("t", "c", (3, 5))
    again = there_and_back(CorruptionError("m", file="f", rows=(3, 5)))
    assert (again.file, again.rows) == ("f", (3, 5))
    assert there_and_back(OwnerLostError("m", untouched=True)).untouched
    assert str(there_and_back(NotFoundError("no 't'"))) == "no 't'"


def test_other_errors_become_ours() -> None:
    class Private(TidewheelError):
        pass

    def fails() -> None:
        raise ZeroDivisionError("division by zero")

    assert type(there_and_back(Private("m"))) is TidewheelError
    try:
        fails()
    except ZeroDivisionError as e:
        again = there_and_back(e)
    assert type(again) is TidewheelError
    assert str(again) == "ZeroDivisionError in the owner: division by zero"
    assert any("in fails" in note for note in again.__notes__)


def test_nothing_else_is_made() -> None:
    @dataclass
    class Mine:
        a: int

    assert isinstance(there_and_back(Mine(1)), wire.Stranger)
    for tag in ("Mine", "os.system", "object"):
        head = json.dumps({"$": tag, "v": 1}).encode()
        with pytest.raises(KeyError):
            wire.unpack(pa.py_buffer(len(head).to_bytes(8, "little") + head))
    head = json.dumps({"$": "numpy", "v": base64.b64encode(b"x" * 8).decode(), "dtype": "|O", "shape": None}).encode()
    with pytest.raises((ValueError, TypeError)):
        wire.unpack(pa.py_buffer(len(head).to_bytes(8, "little") + head))


@pytest.mark.parametrize("head", [b"", b" null", b"null ", b"null null", b'{"$": "tuple", "v": []', b"\xff", b"nul"])
def test_a_message_that_is_not_one_value(head: bytes) -> None:
    with pytest.raises(ValueError):
        wire.unpack(pa.py_buffer(len(head).to_bytes(8, "little") + head))


# ---- rows ---------------------------------------------------------------------------------------------------


def shown(batches: list[pa.RecordBatch]) -> list[str]:
    """As text, where NaN is NaN."""
    return [column.to_string(window=100) for batch in batches for column in batch.columns]


@settings(max_examples=examples(40))
@given(table_cases(), st.integers(0, 2**32), st.integers(0, 40), st.integers(0, 3))
def test_rows(case: Any, seed: int, rows: int, spare: int) -> None:
    source = BatchStream(case, randoms.Random(seed))
    batches = [source.batch(rows, spare=spare), source.batch(3)]
    value, buffer = wire.unpack(pa.py_buffer(wire.pack({"a": 1}, wire.stream(case.schema, batches))))
    schema, again = wire.unstream(buffer)
    assert value == {"a": 1}
    assert schema.equals(case.schema, check_metadata=True)
    assert shown(again) == shown(batches)
    wrapped = [one for batch in batches for one in wire.unwrapped(wire.wrapped(batch))]
    assert shown(wrapped) == shown(batches)


def test_rows_lie_where_numbers_may_lie() -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    for shift in range(16):
        message = b"x" * shift + wire.pack("a" * shift, wire.stream(batch.schema, [batch]))
        _, rows = wire.unpack(pa.py_buffer(message).slice(shift))
        (again,) = wire.unstream(rows)[1]
        assert again.equals(batch)
        assert again.column(0).buffers()[1].address % 8 == 0


def test_a_message_without_rows() -> None:
    assert wire.unpack(pa.py_buffer(wire.pack([1, "é"])))[0] == [1, "é"]
    assert len(wire.unpack(pa.py_buffer(wire.pack(None)))[1]) == 0
