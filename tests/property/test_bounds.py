"""Bounds against their definition, tried for every time nearby; ends that follow each other; units; what people declare and read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import SOAK
from tidewheel.derive.bounds import EVERYTHING, FOREVER, Bounds, as_bounds, declared, nearest, outward, to_ns, words
from tidewheel.derive.ends import End, Side, inverse, tighter
from tidewheel.errors import InputError

many = settings(max_examples=20_000 if SOAK else 100)
small = st.integers(-30, 30)
times = range(-120, 121)
HOUR = 3600 * 10**9


@st.composite
def ends(draw: st.DrawFn) -> End:
    return End(draw(st.sampled_from([1, 1, 2, 3, 4, 6, 12, 7])), draw(small), draw(small), draw(small))


@st.composite
def any_bounds(draw: st.DrawFn) -> Bounds:
    every, origin = draw(st.sampled_from([1, 2, 3, 4, 6, 12, 7])), draw(small)
    a, b = sorted((draw(small), draw(small))), sorted((draw(small), draw(small)))
    open_ = draw(st.sampled_from([""] * 8 + ["l", "h", "lh"]))
    return Bounds(every, origin, a[0], a[1], None if "l" in open_ else b[0], None if "h" in open_ else b[1])


def touches(bounds: Bounds, s: int, t: int) -> bool:
    """The definition, word by word."""
    m, o = bounds.every, bounds.origin
    above = bounds.bl is None or m * ((s + bounds.al - o) // m) + o + bounds.bl <= t
    below = bounds.bh is None or t <= m * ((s + bounds.ah - o) // m) + o + bounds.bh
    return above and below


def inside(interval: tuple[int, int], time: int) -> bool:
    return interval[0] <= time <= interval[1]


@many
@given(any_bounds(), small, st.integers(-2, 8))
def test_reach_and_needs(bounds: Bounds, lo: int, wide: int) -> None:
    hi = lo + wide
    rows = [(s, t) for s in times for t in range(lo, hi + 1) if touches(bounds, s, t)]
    needs, reach = bounds.needs(lo, hi), bounds.reach(lo, hi)
    for t in range(lo, hi + 1):
        mine = bounds.needs(t, t)
        for s in times:
            assert inside(mine, s) == inside(bounds.reach(s, s), t) == touches(bounds, s, t)
    for s, _ in rows:
        assert inside(needs, s)
    reached = [t for s in range(lo, hi + 1) for t in times if touches(bounds, s, t)]
    assert all(inside(reach, t) for t in reached)
    if not bounds.is_open:  # no wider than it has to be
        assert not rows or needs == (min(s for s, _ in rows), max(s for s, _ in rows))
        assert not reached or reach == (min(reached), max(reached))


@many
@given(any_bounds(), any_bounds())
def test_hull(one: Bounds, other: Bounds) -> None:
    hull = one.hull(other)
    assert hull == other.hull(one) or hull.is_open or one.every != other.every or one.origin != other.origin
    for bounds in (one, other):
        for s in range(-60, 61):
            (lo, hi), (least, most) = bounds.reach(s, s), hull.reach(s, s)
            assert least <= lo <= hi <= most
    assert one.hull(one) == one
    assert one.hull(EVERYTHING) == EVERYTHING


def test_hull_keeps_the_grid() -> None:
    hour, row = Bounds(HOUR), Bounds()
    assert hour.hull(row) == Bounds(HOUR, bh=HOUR - 1)
    assert row.hull(hour) == Bounds(HOUR, bh=HOUR - 1)
    assert hour.hull(Bounds(24 * HOUR)) == Bounds(24 * HOUR, bh=23 * HOUR)
    assert row.hull(Bounds(bl=HOUR, bh=HOUR)) == Bounds(bl=0, bh=HOUR)
    before = Bounds(HOUR, al=-1, ah=0)  # a nanosecond before the hour, too
    assert before.hull(hour) == before
    assert nearest([End(HOUR)], [End()]) == Bounds(HOUR, bh=HOUR - 1)


@many
@given(ends(), ends(), st.sampled_from(Side))
def test_ends(outer: End, inner: End, side: Side) -> None:
    both = outer.after(inner, side)
    exact = outer.every == 1 or inner.every == 1 or outer.every % inner.every == 0 and (outer.origin - inner.origin) % inner.every == 0
    assert outer == End(outer.every, outer.origin + 5 * outer.every, outer.a - outer.every, outer.b + outer.every)
    for s in range(-60, 61):
        wanted, got = outer.at(inner.at(s)), both.at(s)
        assert got == wanted if exact else got <= wanted if side is Side.LOWER else got >= wanted
        flat = s + outer.flat(side)
        assert flat <= outer.at(s) if side is Side.LOWER else flat >= outer.at(s)
        # x is at, or beyond, the end of y: what does x say about y?
        x = outer.at(s) + (3 if side is Side.LOWER else -3)
        back = inverse(outer, side).at(x)
        assert s <= back if side is Side.LOWER else s >= back
        assert outer.scaled(10).at(s) == 10 * outer.at(s // 10) or outer.every == 1 and s % 10
    assert tighter(outer, inner, side) in (outer, inner)
    assert tighter(outer, None, side) == outer and tighter(None, inner, side) == inner


@many
@given(any_bounds())
def test_json(bounds: Bounds) -> None:
    assert Bounds.from_json(bounds.to_json()) == bounds
    assert str(bounds)


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '"al"', "1", "NaN", '{"every": 1}', "[" * 100_000, "9" * 5000, None,
     *(json.dumps({"every": 5, "origin": 0, "al": 0, "ah": 0, "bl": 0, "bh": 0} | change) for change in (
         {"every": 0}, {"every": -5}, {"every": 1.5}, {"every": True}, {"every": None}, {"al": None}, {"bl": "0"}, {"bl": 1}, {"more": 1},
         {"al": 4, "bl": 0, "bh": 4}))],
    ids=lambda text: str(text)[:60],
)  # fmt: skip
def test_corrupt_json(text: str) -> None:
    with pytest.raises(ValueError):
        Bounds.from_json(text)


@many
@given(st.sampled_from(["s", "ms", "us", "ns", "day"]), st.integers(-(10**15), 10**15), st.integers(0, 10**15))
def test_units(unit: str, lo: int, wide: int) -> None:
    first, last = to_ns(lo, lo + wide, unit)
    width = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "day": 86_400 * 10**9}[unit]
    assert first <= lo * width and last >= (lo + wide) * width + width - 1
    assert first % 1000 == 0 and last % 1000 == 999
    codes = outward(lo, lo + wide, unit)
    assert codes[0] * width <= lo and codes[1] * width + width - 1 >= lo + wide
    if unit != "ns":  # no code more than that
        assert outward(first, last, unit) == (lo, lo + wide)
        assert (codes[0] + 1) * width > lo // 1000 * 1000 and codes[1] * width <= lo + wide + 999
    assert outward(-FOREVER, FOREVER, unit)[1] > 2**63 and outward(-FOREVER, FOREVER, unit)[0] < -(2**63)


def test_nothing() -> None:
    assert Bounds(HOUR).needs(5, 7) == (HOUR, HOUR - 1)  # such times are no hours
    for lo, hi in (Bounds(HOUR).needs(1, 0), Bounds().reach(1, 0), EVERYTHING.reach(1, 0), to_ns(1, 0, "s"), outward(1, 0, "s")):
        assert lo > hi
    assert EVERYTHING.reach(3, 3) == EVERYTHING.needs(3, 3) == (-FOREVER, FOREVER)


# ---- declared -----------------------------------------------------------------------------------------------


@many
@given(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from([0, 1, 3, 4]), small)
def test_declared(before: int, after: int, every: int, t: int) -> None:
    text = {"before": f"{before} s", "after": f"{after} s"} | ({"every": f"{every} s"} if every else {})
    s = 10**9
    width = every * s if every else 1
    if before * s + after * s + width <= 0:
        with pytest.raises(InputError, match="leave no row"):
            declared(**text)
        return
    try:
        bounds = declared(**text)
    except InputError:
        assert before + after < 0 and every
        return
    bucket = t * s // width * width
    assert bounds.needs(t * s, t * s) == (bucket - before * s, bucket + width - 1 + after * s)


def test_declared_words() -> None:
    minute = 60 * 10**9
    assert declared("5 minutes") == Bounds(bl=0, bh=5 * minute)
    assert declared("0", "25h") == declared(" 0 min ", "+25 hours") == Bounds(bl=-25 * HOUR, bh=0)
    assert declared("-1h", "2 h") == Bounds(bl=-2 * HOUR, bh=-HOUR)
    assert declared("5 minutes", "0", "1 hour").needs(HOUR + 1, HOUR + 1) == (HOUR - 5 * minute, 2 * HOUR - 1)
    assert declared("all", "0") == Bounds(bl=0, bh=None)
    assert declared("all", "all") == declared("ALL", "all", "1 hour") == EVERYTHING
    assert declared(0) == Bounds()
    assert as_bounds("all") == as_bounds(" ALL ") == EVERYTHING and as_bounds(declared("1 h")) == declared("1 h")
    for wrong in ("some", None, 5, ("1 h", "0")):
        with pytest.raises(InputError, match="or 'all'"):
            as_bounds(wrong)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("five minutes",), "before='five minutes' is no duration: write one like '5 minutes'"),
        (("5",), "is no duration"),
        ((5,), "is no duration"),
        ((True,), "is no duration"),
        ((None,), "is no duration"),
        (("--5 minutes",), "is no duration"),
        (("0", "1 month"), "after='1 month': months and years differ"),
        (("0", "0", "1 month"), "leave every= out"),
        (("0", "0", "0"), "every='0' is no width"),
        (("0", "0", "-1 hour"), "is no width"),
        (("-25h", "0"), "leave no row"),
    ],
)
def test_declared_wrongly(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        declared(*arguments)


def test_words() -> None:
    assert [words(n) for n in (0, 1, HOUR, 90 * 60 * 10**9, 7 * 24 * HOUR, 14 * 24 * HOUR, 1500, -HOUR)] == [
        "0", "1 ns", "1 hour", "90 minutes", "1 week", "14 days", "1500 ns", "-1 hour"]  # fmt: skip
    shown = {
        Bounds(): "rows of the same time",
        Bounds(HOUR): "rows of the same 1 hour",
        EVERYTHING: "all rows: any change makes everything stale",
        declared("5 minutes"): "rows from 5 minutes before its time to its time",
        declared("5 minutes", "1 s"): "rows from 5 minutes before its time to 1 second after its time",
        declared("all"): "rows from the beginning to its time",
        declared("0", "all"): "rows from its time to all that follow",
        declared("5 minutes", every="1 hour"): "rows from 5 minutes before the start of its 1 hour to their end",
    }
    assert {bounds: str(bounds) for bounds in shown} == shown
