"""Bounds inferred from recorded plans: what each definition comes out as, what is refused and why, and what is declared instead."""

from __future__ import annotations

import pytest

from tests.unit.plans.definitions import DEFINITIONS, TIMES, Definition
from tests.unit.plans.record import recorded
from tidewheel.derive.inference import Inference, infer
from tidewheel.errors import SchemaError

PLANS = recorded()


def in_words(found: Inference, wanted: Definition) -> dict[str, str]:
    """As the definition tells them, where it does."""
    said = {name: str(bounds) for name, bounds in found.bounds.items()}
    for refusal in found.refusals:
        name = refusal.source or ""
        expected = wanted.bounds.get(name, "!?")[1:]
        said[name] = f"!{expected if expected in refusal.reason else refusal.reason}"
    return said


@pytest.mark.parametrize("name", DEFINITIONS)
def test_inferred(name: str) -> None:
    definition = DEFINITIONS[name]
    found = infer(PLANS[name], TIMES, definition.time)
    assert in_words(found, definition) == definition.bounds
    if found.refusals:
        with pytest.raises(SchemaError):
            found.required()
    else:
        assert found.required() == found.bounds
