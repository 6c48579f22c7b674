"""Bounds inferred from recorded plans: what each definition comes out as, what is refused and why, and what is declared instead."""

from __future__ import annotations

import json

import pytest

from tests.unit.plans.definitions import DEFINITIONS, TIMES, Definition
from tests.unit.plans.record import recorded
from tidewheel.derive.bounds import EVERYTHING, Bounds, declared
from tidewheel.derive.inference import Inference, infer
from tidewheel.derive.plan_words import normalised, relations, writes
from tidewheel.errors import SchemaError
from tidewheel.model.times import TimeAxis

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


def test_a_shift_of_an_hour_would_be_seen() -> None:
    """The words are exact: bounds that differ have different ones."""
    seen: dict[str, Bounds] = {}
    for name in DEFINITIONS:
        for bounds in infer(PLANS[name], TIMES, DEFINITIONS[name].time).bounds.values():
            first = bounds.needs(bounds.origin, bounds.origin + bounds.every - 1)
            assert seen.setdefault(str(bounds), bounds).needs(bounds.origin, bounds.origin + bounds.every - 1) == first


def test_declared_bounds_override() -> None:
    hour = declared("1 hour")
    found = infer(PLANS["lookup"], TIMES, "ts", {"Sensors": EVERYTHING})
    assert found.required() == {"taxi": Bounds(), "sensors": EVERYTHING}
    assert infer(PLANS["lag"], TIMES, "ts", {"taxi": hour}).required() == {"taxi": hour}
    assert infer(PLANS["session"], TIMES, "ts", {"taxi": hour}).required() == {"taxi": hour}
    assert infer(PLANS["mapped"], TIMES, "nothing", {"taxi": hour}).required() == {"taxi": hour}
    assert infer(PLANS["filter"], TIMES, "ts", {"alarm": hour}).required() == {"taxi": Bounds()}
    one_sided = infer(PLANS["asof"], TIMES, "ts").refusals[0]
    assert one_sided.found == declared("all") and one_sided.source == "taxi"


def test_what_is_to_be_declared_can_be() -> None:
    """ "all" is proposed only beside a source that has bounds: a derived table whose sources all reach everywhere has no partitions."""
    proposed = set[bool]()
    for name, definition in DEFINITIONS.items():
        found = infer(PLANS[name], TIMES, definition.time)
        bounded = any(not bounds.is_open for bounds in found.bounds.values())
        for refusal in found.refusals:
            declare = refusal.reason.rpartition("bounds=")[2] if "declare" in refusal.reason.lower() else ""
            if "'all'" in refusal.reason:
                assert bounded or "tw.bounds(before='1 hour'), " in declare, (name, refusal.reason)
            elif declare:
                assert not bounded and "tw.bounds(before='1 hour')" in declare, (name, refusal.reason)
            proposed.add("'all'" in refusal.reason)
    assert proposed == {True, False}


def test_nodes_that_are_not_understood() -> None:
    """They are refused, unless only a source with declared bounds is below."""
    plan = PLANS["lookup"]
    nodes = json.loads(plan)
    places = [i for i, node in enumerate(nodes) if node["class"].endswith(".SubqueryAlias")]
    assert len(places) == 4  # t, taxi, s, sensors
    for place, known in ((places[2], True), (places[0], False)):
        changed = json.loads(plan)
        columns = [node["output"] for node in changed if node["class"].endswith("LocalRelation")]
        changed[place] = {"class": "org.apache.spark.sql.catalyst.plans.logical.Novelty", "num-children": 1, "output": columns[known]}
        found = infer(json.dumps(changed), TIMES, "ts", {"sensors": EVERYTHING})
        assert bool(found.refusals) != known
        assert known or "Novelty is not understood" in found.refusals[0].reason


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "[1]", '[{"class": "a.Project", "num-children": 1}]', "[" * 50_000, "null", '[{"num-children": 0}]']
)
def test_what_is_no_plan(text: str) -> None:
    found = infer(text, {"taxi": "ts"}, "ts")
    assert not found.bounds and "cannot be inferred" in found.refusals[0].reason


def test_plans_with_a_part_missing() -> None:
    """Whatever is taken out of a plan, the answer is bounds or a refusal, never another error."""
    for name in ("tumbling", "band_left", "range_frame", "exists", "cte_twice", "grouping_sets", "lateral", "asof_band"):
        for place, node in enumerate(nodes := json.loads(PLANS[name])):
            for gone in [*node]:
                changed = [*nodes]
                changed[place] = {key: value for key, value in node.items() if key != gone}
                infer(json.dumps(changed), TIMES, "ts")


def test_times_that_are_numbers() -> None:
    """A column of whole numbers counts what its axis says."""
    plan = PLANS["floor_unix_seconds"].replace('"dataType":"timestamp"', '"dataType":"long"')
    plan = plan.replace("UnixSeconds", "Alias")  # timestamp_seconds(floor(ts / 600) * 600)
    assert infer(plan, {"flow": TimeAxis("ts", "s")}, "ts").required() == {"flow": Bounds(600 * 10**9)}
    assert infer(plan, {"flow": TimeAxis("ts", "ms")}, "ts").refusals
    assert infer(plan, {"flow": "ts"}, "ts").refusals


def test_axes_of_times() -> None:
    """The unit of a column that is a time already says nothing about Spark's."""
    axes = {name: TimeAxis(column, "ms") for name, column in TIMES.items()}
    for name in ("filter", "band_left", "union_hours", "cte_twice"):
        assert infer(PLANS[name], axes, TimeAxis("ts", "s")) == infer(PLANS[name], TIMES, "ts")


def test_sliding_windows_of_too_many_steps() -> None:
    nodes = json.loads(PLANS["sliding"])
    (expand,) = [node for node in nodes if node["class"].endswith("Expand")]
    expand["projections"] = expand["projections"] * 33
    assert "132 rows of each" in infer(json.dumps(nodes), TIMES, "ts").refusals[0].reason


def test_names_of_columns() -> None:
    assert infer(PLANS["filter"], TIMES, "TS").required() == {"taxi": Bounds()}
    assert "no column 'when'" in infer(PLANS["filter"], TIMES, "when").refusals[0].reason
    with_other = infer(PLANS["filter"], {"alarm": "ts"}, "ts")
    assert "reads 'taxi', which is not one of its sources" in with_other.refusals[0].reason


def test_plans_as_text() -> None:
    plan = PLANS["cte_twice"]
    assert normalised(plan) == plan
    relation = {"class": "x.UnresolvedRelation", "num-children": 0, "multipartIdentifier": "[other, taxi]"}
    assert relations(json.dumps([relation])) == [("other", "taxi")]
    assert writes(json.dumps([{"class": "x.InsertIntoStatement", "num-children": 0}])) == "InsertIntoStatement"
    assert writes(json.dumps([relation])) is None
