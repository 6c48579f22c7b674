"""Arrow values made of bytes are those that Arrow makes, and are made without pandas."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tidewheel.model import plain_values
from tidewheel.model.plain_values import array_of, scalar_of

TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.date32(), pa.bool_(), pa.binary(), pa.time64("us")),
    *(pa.decimal128(9, 2), pa.decimal128(38, 0), pa.decimal128(5, 0)),
    *(pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns")),
]
ZONES = st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=2))])
VALUES = st.one_of(
    st.integers(-(1 << 64), 1 << 64), st.integers(-130, 300), st.floats(), st.text(), st.dates(), st.datetimes(), st.booleans(), st.none(),
    st.datetimes(timezones=ZONES), st.decimals(), st.integers(-(10**39), 10**39).map(Decimal),
    st.sampled_from([2.0**53, -0.0, "\ud800", "", b"x", 1 << 63, (1 << 63) - 1, -(1 << 63)]),
)  # fmt: skip
ALIKE = (st.text(), st.floats(), st.integers(), st.integers().map(Decimal), st.booleans(), st.dates(), st.datetimes())


@pytest.fixture
def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not loaded."""

    monkeypatch.setattr(plain_values, "sys", SimpleNamespace(modules={}))


def outcome(make: Any) -> tuple[str, Any]:
    """The value, or the error: also that of showing one that is no value of its type, which Arrow makes, too."""
    try:
        made = make()
        made.validate(full=True)
        return repr(made) if isinstance(made, pa.Scalar) else made.to_string(), made.type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
        return type(e).__name__, None


class TestAsArrowMakesThem:
    @pytest.fixture(autouse=True)
    def _as_if(self, without_pandas: None) -> None:
        pass

    @settings(max_examples=examples(300))
    @given(st.sampled_from(TYPES), st.one_of(*(st.lists(some, max_size=9) for some in (VALUES, *ALIKE))))
    def test_arrays(self, type_: pa.DataType, values: list[Any]) -> None:
        assert outcome(lambda: array_of(values, type_)) == outcome(lambda: pa.array(values, type_))

    @settings(max_examples=examples(300))
    @given(st.sampled_from(TYPES), VALUES)
    def test_scalars(self, type_: pa.DataType, value: Any) -> None:
        assert outcome(lambda: scalar_of(value, type_)) == outcome(lambda: pa.scalar(value, type_))


def test_without_pandas() -> None:
    program = """
import datetime as dt, sys
import pyarrow as pa
from tidewheel.model.plain_values import array_of, scalar_of
for value, type_ in ((1, pa.int8()), (2.5, pa.float64()), ("x", pa.string()), (7, pa.timestamp("us")), (dt.date(2026, 1, 1), pa.date32())):
    assert scalar_of(value, type_).type == type_ and len(array_of([value, value], type_)) == 2
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert dt.date(1970, 1, 2) == scalar_of(dt.date(1970, 1, 2), pa.date32()).as_py()
