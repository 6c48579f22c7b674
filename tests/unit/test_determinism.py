"""What is refused because it would not give the same rows twice, with what to write instead; what is only warned of."""

from __future__ import annotations

import json

import pytest

from tests.unit.plans.definitions import DEFINITIONS
from tests.unit.plans.record import recorded
from tidewheel.derive.determinism import judge

PLANS = recorded()

REFUSED = {
    "now": ["now() depends on the moment", "current_date() depends on the moment"],
    "random": ["rand() depends on chance", "uuid() depends on chance"],
    "first": ["first() depends on the order", "any_value() depends", "sort_array(collect_list(…))", "max_by(x, struct(y, x))"],
    "limit": ["LIMIT and OFFSET"],
    "session": ["session_window()"],
    "mapped": ["<lambda>() is code"],
    "grouped": ["<lambda>() is code"],
    "rounded": ["<lambda>() is code"],
}
WARNED = {
    "ordered": "ORDER BY at the end was dropped",
    "lag": "lag() OVER (… ORDER BY ts) may swap rows",
    "lag_in_hour": "ORDER BY ts, speed) may swap",
    "lag_in_null_hour": "may swap",
    "rows_frame": "avg() OVER",
    "first_of_hour": "row_number() OVER",
    "asof": "ASOF JOIN",
    "asof_band": "ASOF JOIN",
    "asof_far_side": "ASOF JOIN",
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_judged(name: str) -> None:
    found = judge(PLANS[name])
    wanted = REFUSED.get(name, [])
    assert len(found.refusals) == len(wanted)
    assert all(any(said in refusal for refusal in found.refusals) for said in wanted), found
    assert all(WARNED.get(name, "nothing") in warning for warning in found.warnings)
    assert bool(found.warnings) == (name in WARNED)


def test_functions_of_ones_own() -> None:
    assert not judge(PLANS["rounded"], trusted=frozenset({"<lambda>"})).refusals
    assert not judge(PLANS["rounded"], trusted=frozenset({"*"})).refusals
    said = PLANS["rounded"].replace('"udfDeterministic":true', '"udfDeterministic":false')
    assert "says itself that it is not deterministic" in judge(said, trusted=frozenset({"*"})).refusals[0]


def test_sparks_own_opinion() -> None:
    assert "Spark says" in judge(PLANS["filter"], deterministic=False).refusals[0]
    assert len(judge(PLANS["random"], deterministic=False).refusals) == 2


def test_order_that_does_not_matter() -> None:
    """sort_array(collect_list(…)) and max_by(x, struct(y, x)) are fine."""
    nodes = json.loads(PLANS["first"])
    columns = nodes[0]["aggregateExpressions"]
    for column in columns:
        place = next((i for i, node in enumerate(column) if node["class"].endswith("AggregateExpression")), None)
        if place is not None and column[place + 1]["class"].endswith("CollectList"):
            column.insert(place, {"class": "org.apache.spark.sql.catalyst.expressions.SortArray", "num-children": 1})
    found = judge(json.dumps(nodes))
    assert not any("collect_list" in refusal for refusal in found.refusals) and len(found.refusals) == 3


def test_what_is_no_plan() -> None:
    assert "cannot be looked through" in judge("nothing").refusals[0]
