"""The columns of its sources that each recorded definition uses."""

from __future__ import annotations

import pytest

from tests.unit.plans.definitions import DEFINITIONS, TABLES
from tests.unit.plans.record import recorded
from tidewheel.derive.plan_words import normalised
from tidewheel.derive.used_columns import narrowed, used_columns

PLANS = recorded()
ALL = {name: tuple(schema.names) for name, schema in TABLES.items()}


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("filter", {"taxi": "plate ts speed n"}),
        ("tumbling", {"taxi": "plate ts"}),
        ("band_left", {"taxi": "plate ts speed", "alarm": "plate ts"}),
        ("in_keys", {"taxi": "plate ts speed n", "alarm": "plate"}),
        ("scalar", {"taxi": "plate ts", "taxi2": "speed"}),
        ("lateral", {"taxi": "plate ts", "alarm": "plate ts"}),
        ("cte_twice", {"taxi": "plate ts speed"}),
        ("asof", {"taxi": "plate ts speed", "alarm": "plate ts"}),
        ("union", {"taxi": "plate ts speed", "taxi2": "plate ts speed"}),
        ("windowed", {"taxi": "plate ts speed", "alarm": "plate ts"}),
        ("mapped", {"taxi": "plate ts speed n"}),
    ],
)
def test_used(name: str, columns: dict[str, str]) -> None:
    found = used_columns(PLANS[name], ALL)
    assert {source: " ".join(names) for source, names in found.items() if names} == columns


@pytest.mark.parametrize("name", DEFINITIONS)
def test_what_is_used_is_left(name: str) -> None:
    """A plan without the columns that it does not use refers to no column that is not there, and uses what it used."""
    used = used_columns(PLANS[name], ALL)
    less = narrowed(PLANS[name], used)
    assert used_columns(less, ALL) == used and normalised(narrowed(less, used)) == normalised(less)


def test_a_plan_that_cannot_be_read_uses_all() -> None:
    assert used_columns("[]", ALL) == ALL
