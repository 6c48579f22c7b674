"""The key × time plane of `tidewheel explain`: cells against a slow oracle, the drawing, the picture, and labels of codes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.conftest import examples
from tidewheel.model.coders import key_coder
from tidewheel.model.schema import make_spec
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.surfaces import cli
from tidewheel.surfaces.explain.drawing import PLAIN, draw, kind
from tidewheel.surfaces.explain.labels import is_relative, key_label
from tidewheel.surfaces.explain.plane import ASKED, PRUNED, READ, Region, plane, regions_of
from tidewheel.surfaces.explain.render import key_value, time_steps, time_value
from tidewheel.surfaces.explain.svg import svg

SVG = "{http://www.w3.org/2000/svg}"
READ_EDGE, PRUNED_EDGE, QUERY_EDGE = "#3d8f5c", "#aab2bd", "#2f6fde"

# ---- cells --------------------------------------------------------------------------------------------------

intervals = st.tuples(st.integers(-50, 50), st.integers(-50, 50)).map(lambda pair: (min(pair), max(pair)))
far = st.one_of(intervals, st.just((INT64_MIN, INT64_MAX)), st.just((INT64_MIN, 3)), st.just((1, 0)), st.just((10**15, 10**16)))
regions = st.lists(st.builds(lambda k, t, r: Region("chunk", "c", k, t, r, 1), intervals, intervals, st.booleans()), max_size=6)


@settings(max_examples=examples(60))
@given(regions, st.lists(far, max_size=3), far, st.integers(1, 30), st.integers(1, 20))
def test_cells_are_those_that_are_touched(found: list[Region], keys: list[Any], time: Any, width: int, height: int) -> None:
    """A cell has a bit exactly if some code of it is inside: every code of the axes is tried, where they are short enough."""
    made = plane(found, keys, time, width, height)
    assert made.cells.shape == (height, width)
    if made.key.hi - made.key.lo > 400 or made.time.hi - made.time.lo > 400:
        return
    expected = [bytearray(width) for _ in range(height)]
    for key in range(made.key.lo, made.key.hi + 1):
        for when in range(made.time.lo, made.time.hi + 1):
            bits = 0
            for r in found:
                if r.key[0] <= key <= r.key[1] and r.time[0] <= when <= r.time[1]:
                    bits |= READ if r.read else PRUNED
            if time[0] <= when <= time[1] and any(lo <= key <= hi for lo, hi in keys):
                bits |= ASKED
            expected[made.key.cell(key)][made.time.cell(when)] |= bits
    if made.key.hi - made.key.lo + 1 >= height and made.time.hi - made.time.lo + 1 >= width:  # else some cells have no code of their own
        assert made.cells.tolist() == [list(row) for row in expected]
    for r in found:
        assert made.key.lo <= r.key[0] and r.key[1] <= made.key.hi, "every region is on the plane"


def test_a_query_far_away_does_not_shrink_the_regions() -> None:
    made = plane([Region("chunk", "c", (0, 99), (0, 99), False, 1)], [(10**12, 10**13)], (INT64_MIN, INT64_MAX), 10, 10)
    assert made.key.hi < 200 and (made.time.lo, made.time.hi) == (0, 99)
    assert not (made.cells & ASKED).any()


def test_nothing_at_all() -> None:
    assert plane([], [(INT64_MIN, INT64_MAX)], (3, 9), 4, 2).time.hi == 9


def test_regions_of_a_table(tmp_path: Path) -> None:
    """What is read and what is pruned, compared with the regions themselves."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        for n in range(4):
            table.insert([{"k": n * 100 + i, "ts": n * 1000 + i} for i in range(50)])
            if n < 3:
                table.flush()
        result = table.query(key=(100, 320), time=(0, 2500))
        found = sorted(regions_of(table.query().plan, result.plan), key=lambda r: r.key)
        assert [(r.place, r.key, r.time, r.read) for r in found] == [
            ("chunk", (0, 49), (0, 49), False),
            ("chunk", (100, 149), (1000, 1049), True),
            ("chunk", (200, 249), (2000, 2049), True),
            ("live tree", (300, 349), (3000, 3049), False),
        ]
        assert regions_of(table.query(limit=0, key=(-2, -1)).plan, result.plan)[0].read, "one that came in between is there too"


def test_runs_of_one_large_batch(tmp_path: Path) -> None:
    """A batch that comes in several parts is several runs of one name."""
    rows = 20_000
    data = pa.table({"k": pa.array(range(rows)), "ts": pa.array(range(rows), pa.timestamp("us"))})
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", data.schema, time="ts", key="k")
        table.insert(pa.concat_tables(data.slice(at, 5_000) for at in range(0, rows, 5_000)))
        result = table.query(time=(0, 10))
        found = regions_of(table.query().plan, result.plan)
        assert len(found) == result.stats.regions_considered > 1
        assert min(r.time[0] for r in found) == 0 and max(r.time[1] for r in found) == rows - 1
        assert [r.time[0] for r in found if r.read] == [0]


# ---- the drawing --------------------------------------------------------------------------------------------


def test_the_drawing() -> None:
    found = [Region("chunk", "a", (0, 9), (0, 9), True, 1), Region("chunk", "b", (10, 19), (10, 19), False, 1)]
    made = plane(found, [(0, 4)], (0, 19), 10, 4)
    text = draw(made, ("0", "19"), ("a", "z"), ("key", "ts"), plain=True).plain
    assert text.splitlines()[:7] == [
        "key",
        " 19 |     -----|",
        "    |     -----|",
        "    |+++++     |",
        "  0 |#####.....|",
        "    +----------+",
        "     a   ts   z",
    ]
    assert "# read, in the query   + read   - pruned   . query, no region" in text
    assert {kind(n) for n in range(8)} == set(PLAIN)


def picture(found: list[Region], keys: list[Any], time: Any, title: str = "t", name: str = "k") -> ElementTree.Element:
    steps = [digit * 10**power for power in range(19) for digit in (1, 2, 5)]
    return ElementTree.fromstring(svg(found, keys, time, title, (name, str, steps), ("ts", str, steps)))


def boxes(root: ElementTree.Element, edge: str) -> list[tuple[int, ...]]:
    """The rectangles with edges of a colour, without that of the legend."""
    found = [one for one in root.iter(f"{SVG}rect") if one.get("stroke") == edge]
    return [tuple(int(one.attrib[name]) for name in ("x", "y", "width", "height")) for one in found[:-1]]


def test_the_picture_has_every_region_at_its_place() -> None:
    found = [Region("chunk", "a", (0, 99), (0, 99), True, 7), Region("chunk", "b", (100, 199), (100, 199), False, 1)]
    root = picture(found, [(0, 49)], (0, 199))
    (read,), (pruned,), (query,) = boxes(root, READ_EDGE), boxes(root, PRUNED_EDGE), boxes(root, QUERY_EDGE)
    assert read[0] + read[2] == pruned[0] and pruned[1] + pruned[3] == read[1], "later: right; greater key: above"
    assert read[2] == pytest.approx(pruned[2], abs=1) and read[3] == pytest.approx(pruned[3], abs=1)
    assert query[0] == read[0] and query[2] == pytest.approx(read[2] + pruned[2], abs=1), "all times"
    assert query[1] + query[3] == read[1] + read[3] and query[3] == pytest.approx(read[3] / 2, abs=1), "the lower half of the keys"
    assert [one.text for one in root.iter(f"{SVG}title")] == ["chunk b: 1 row pruned", "chunk a: 7 rows taken"]


@settings(max_examples=examples(60))
@given(regions, st.lists(far, max_size=3), far)
def test_the_picture_has_as_many_boxes_as_there_is_to_see(found: list[Region], keys: list[Any], time: Any) -> None:
    root = picture(found, keys, time)
    assert len(boxes(root, READ_EDGE)) == sum(r.read for r in found) and len(boxes(root, PRUNED_EDGE)) == sum(not r.read for r in found)
    for x, y, width, height in [box for edge in (READ_EDGE, PRUNED_EDGE, QUERY_EDGE) for box in boxes(root, edge)]:
        assert width > 0 and height > 0 and x > 0 and x + width <= 960 - 64 and y >= 72 and y + height <= 540 - 88


def test_letters_of_a_picture_are_text() -> None:
    root = picture([Region("chunk", "<&>", (0, 99), (0, 99), True, 1)], [], (0, 9), "taxi: <1 & 2>", "\u00fc\"'")
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert texts[:2] == ["taxi: <1 & 2>", "\u00fc\"'"] and texts[2:7] == ["0", "20", "40", "60", "80"]
    assert time_steps(1000)[:4] == [1, 2, 5, 10] and 3600_000_000 in time_steps(1000) and time_steps(86_400 * 10**9)[:3] == [1, 2, 7]


# ---- labels and ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        (pa.int64(), -7, "-7"),
        (pa.uint8(), 200, "200"),
        (pa.uint64(), 2**64 - 1, str(2**64 - 1)),
        (pa.float32(), -2.5, "-2.5"),
        (pa.float64(), 1e300, "1e+300"),
        (pa.timestamp("ms"), dt.datetime(2026, 1, 1, 8), "2026-01-01 08:00:00"),
        (pa.date32(), dt.date(2026, 1, 1), "2026-01-01"),
        (pa.decimal128(9, 2), Decimal("12.34"), "12.34"),
        (pa.string(), "taxi", "…taxi"),
        (pa.dictionary(pa.int32(), pa.string()), "taxi", "…taxi"),
        (pa.binary(), b"\xff\x01", "…ff01"),
    ],
)
def test_a_code_is_shown_as_what_it_stands_for(type_: pa.DataType, value: Any, shown: str) -> None:
    spec = make_spec("t", pa.schema([("k", type_), ("ts", pa.timestamp("us"))]), time="ts", key="k")
    batch = pa.RecordBatch.from_arrays([pa.array([value], type_)], ["k"])
    assert key_label(spec, int(key_coder(spec).encode(batch)[0])) == shown
    assert is_relative(spec) == (shown[0] == "…")


@pytest.mark.parametrize("address", ["10.0.0.1", "255.255.255.255", "2001:db8::", "::"])
def test_codes_of_addresses(address: str) -> None:
    spec = make_spec("t", pa.schema([("k", pa.string()), ("ts", pa.timestamp("us"))]), time="ts", key=tw.ip("k"))
    batch = pa.RecordBatch.from_arrays([pa.array([address])], ["k"])
    assert key_label(spec, int(key_coder(spec).encode(batch)[0])) == address


def test_ends_of_intervals() -> None:
    def end(type_: pa.DataType, text: str) -> Any:
        return key_value(make_spec("t", pa.schema([("k", type_), ("ts", pa.timestamp("us"))]), time="ts", key="k"), text)

    assert end(pa.int32(), "-5") == -5 and end(pa.float64(), "2.5") == 2.5 and end(pa.string(), "5") == "5" and end(pa.int8(), "-") is None
    assert end(pa.timestamp("us"), "2026-01-01") == "2026-01-01" and end(pa.bool_(), "true") is True
    assert (time_value("-"), time_value("-12"), time_value("2026")) == (None, -12, 2026) and time_value("2026-01-01") == "2026-01-01"
    for type_, text in ((pa.int8(), "x"), (pa.int8(), "300"), (pa.float64(), "")):
        with pytest.raises(tw.QueryError, match="is no"):
            end(type_, text)


def test_ends_below_zero_can_be_said() -> None:
    options = cli.make_parser().parse_args(["explain", "t", "-w", "x", "--key", "-5", "-1.5", "--time", "-3600", "-"])
    assert (options.key, options.time) == (["-5", "-1.5"], ["-3600", "-"])
    assert cli.make_parser().parse_args(["explain", "t", "-w", "x", "--box", "-74.3", "40", "-73", "41"]).box == [-74.3, 40, -73, 41]
