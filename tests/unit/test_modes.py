"""How each recorded definition may be kept up to date, and why not otherwise."""

from __future__ import annotations

import pytest

from tests.unit.plans.definitions import DEFINITIONS, KEYS
from tests.unit.plans.record import recorded
from tidewheel.derive.modes import Append, Keys, Merge, Recompute, decide
from tidewheel.model.derived import average_state

PLANS = recorded()

WANTED = {
    "append keys": "union_of_joins "
    "filter shift shift_mixed timestampadd dateadd shift_month explode explode_back union rounded now random ordered "
    "band_join band_left band_difference band_far_side one_sided three_way bucket_join description lookup semi exists not_exists in_keys "
    "in_times not_in_times scalar scalar_band asof asof_band asof_far_side anti_outer not_in_ts",
    "append": "union_null local_shift unpivot union_swapped union_hours right_outer lateral null_safe left_coalesce max_join between_twice",
    "merge keys": "union_counts union_distinct fact_counts "
    "trunc_hour trunc_aware tumbling sliding time_bucket_origin to_date_function no_time max_time merge_filtered "
    "average_with_parts renamed",
    "merge": "trunc_week to_date floor_unix floor_unix_seconds unix_pmod unix_div trunc_month local_day distinct pipe group_coalesce "
    "agg_of_left",
    "keys": "union_medians of_two_hours "
    "time_bucket having cte cte_twice except intersect range_frame range_descending range_over_hours rows_frame lag lag_in_hour "
    "first_of_hour running session windowed count_distinct float_sum try_sum average computed keys_nested",
    "": "intersect_null full_using sliding_self cube_day range_nullable rank_next exists_twice "
    "grouping_sets pivot full_outer full_outer_band exists_self lag_in_null_hour mapped grouped limit first not_by_key cte_merged",
}
NAMES = {Append: "append", Merge: "merge", Keys: "keys"}


def key_of(name: str) -> str:
    return {"merge_filtered": "cab"}.get(name, "host" if '"table":"flow"' in PLANS[name] else "plate")


@pytest.mark.parametrize("name", DEFINITIONS)
def test_modes(name: str) -> None:
    found = decide(PLANS[name], key_of(name), KEYS)
    held = " ".join(NAMES[type(mode)] for mode in found.holds[:-1])
    assert isinstance(found.holds[-1], Recompute)
    assert [held] == [modes for modes, names in WANTED.items() if name in names.split()], str(found)
    assert set(found.reasons) == {"append", "merge", "keys"} - set(held.split())
    assert str(found).count("\n") >= 2


def only(name: str, kind: type, **options: bool) -> object:
    (mode,) = [mode for mode in decide(PLANS[name], key_of(name), KEYS, **options).holds if isinstance(mode, kind)]
    return mode


def test_merge() -> None:
    combine = {"n": "sum", "total": "sum", "low": "min", "top": "max"}
    assert only("trunc_hour", Merge) == Merge((("taxi",),), ("plate", "ts"), combine)
    assert only("merge_filtered", Merge) == Merge((("taxi",),), ("cab", "ts"), {"c": "sum", "s": "sum", "first": "min"})
    assert only("distinct", Merge) == Merge((("taxi",),), ("ts",), {})
    assert only("renamed", Merge) == Merge((("taxi",),), ("plate", "ts"), {"n": "sum"})
    assert only("sliding", Merge) == Merge((("taxi",),), ("plate", "ts"), {"n": "sum"})
    parts = {"total": "sum", "c": "sum"}
    assert only("average_with_parts", Merge) == Merge((("taxi",),), ("plate", "ts"), parts, {"a": ("total", "c")})


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("union", (("taxi", "taxi2"),)),
        ("band_join", (("alarm",), ("taxi",))),
        ("three_way", (("alarm",), ("sensors",), ("taxi",))),
        ("band_left", (("alarm",),)),
        ("right_outer", (("taxi2",),)),
        ("asof", (("alarm",),)),
        ("not_exists", (("taxi",),)),
        ("max_join", (("taxi2",),)),
    ],
)
def test_append_of_several_sources(name: str, sources: tuple[tuple[str, ...], ...]) -> None:
    """A join is additive in each side that every row has one row of, a union in all of its parts at once."""
    assert only(name, Append) == Append(sources)


def test_what_can_be_allowed() -> None:
    assert only("float_sum", Merge, floats=True) == Merge((("taxi",),), ("plate", "ts"), {"s": "sum"})
    assert only("average", Merge, hidden=True) == Merge((("taxi",),), ("plate", "ts"), {}, {}, {"a": average_state(2)})
    assert "avg needs its sum and count" in decide(PLANS["time_bucket"], "plate", KEYS, hidden=True).reasons["merge"]
    assert only("time_bucket", Merge, hidden=True, floats=True)


def test_keys() -> None:
    one = only("keys_nested", Keys)
    assert one == Keys("plate", {"taxi": "plate"})
    assert only("band_left", Keys) == Keys("plate", {"taxi": "plate", "alarm": "plate"})
    assert only("one_sided", Keys) == Keys("plate", {"alarm": "plate"})
    assert "not a single column" in decide(PLANS["filter"], None, KEYS).reasons["keys"]
    assert "not a single column" in decide(PLANS["filter"], "plate", {"taxi": None}).reasons["keys"]
    assert "speed is not taxi.plate, passed on; plate would be" in decide(PLANS["filter"], "speed", KEYS).reasons["keys"]


@pytest.mark.parametrize(
    ("name", "mode", "said"),
    [
        ("having", "merge", "HAVING hides groups"),
        ("count_distinct", "merge", "count(DISTINCT …) cannot be merged"),
        ("float_sum", "merge", "s is a sum of floating-point numbers"),
        ("average", "merge", "avg needs its sum and count"),
        ("try_sum", "merge", "try_sum(…) is null where a sum was too large"),
        ("computed", "merge", "s is computed from"),
        ("grouping_sets", "merge", "groups could not be told apart"),
        ("first", "merge", "first(…), which cannot be merged"),
        ("session", "merge", "session_window()"),
        ("lag_in_null_hour", "keys", "add it to PARTITION BY"),
        ("exists_self", "keys", "a subquery reads taxi"),
        ("exists_self", "append", "a subquery looks at other rows"),
        ("full_outer", "append", "it joins rows with others"),
        ("grouped", "append", "not known to look at each row alone"),
        ("not_by_key", "keys", "it groups rows of several taxi.plate together"),
    ],
)
def test_reasons(name: str, mode: str, said: str) -> None:
    found = decide(PLANS[name], key_of(name), KEYS)
    assert said in found.reasons[mode]


def test_what_is_no_plan() -> None:
    (mode,) = decide("[]", "plate", KEYS).holds
    assert isinstance(mode, Recompute) and "cannot be looked through" in str(mode)
