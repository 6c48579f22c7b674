"""The plane as a picture: SVG text, which browsers and editors show, with the name and the rows of each region under the pointer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from tidewheel.model.figures import counted
from tidewheel.surfaces.explain.plane import Axis, Interval, Region, axes

_WIDTH, _HEIGHT = 960, 540
_TOP, _RIGHT, _BELOW = 72, 64, 88
_LETTER = 7.2
"""Pixels of a letter of a label, about."""

_LOOKS = {
    "pruned": {"fill": "#e4e7eb", "stroke": "#aab2bd"},
    "read": {"fill": "#7cc899", "fill-opacity": "0.7", "stroke": "#3d8f5c"},
    "query": {"fill": "#2f6fde", "fill-opacity": "0.18", "stroke": "#2f6fde", "stroke-width": "2"},
}
_INK, _FAINT = "#1f2933", "#616e7c"

Labels = Callable[[int], str]
Ends = tuple[str, Labels, Sequence[int]]
"""An axis as people read it: its name, the label of a code, and the steps that are round numbers of it, ascending."""


def svg(regions: Sequence[Region], asked: Sequence[Interval], time: Interval, title: str, key_ends: Ends, time_ends: Ends) -> str:
    """The picture of all regions and of the query, with keys upwards and times to the right."""
    rough, _ = axes(regions, asked, time, 1, 1)
    left = round(36 + _LETTER * max(len(text) for _, text in _ticks(rough, key_ends)))
    keys, times = axes(regions, asked, time, _WIDTH - left - _RIGHT, _HEIGHT - _TOP - _BELOW)
    bottom = _TOP + keys.cells
    root = Element(
        "svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "font-family": "system-ui, sans-serif"}
    )
    _add(root, "rect", width=_WIDTH, height=_HEIGHT, fill="#ffffff")
    _text(root, title, 24, 32, 17, _INK, weight="600")
    _text(root, key_ends[0], 24, 56, 13, _FAINT)
    for code, label in _ticks(keys, key_ends):
        y = bottom - keys.cell(code) - 0.5
        _add(root, "line", x1=left, y1=y, x2=left + times.cells, y2=y, stroke="#eef1f4")
        _text(root, label, left - 8, y + 4, 12, _FAINT, anchor="end")
    ticks, shared = _shortened(_ticks(times, time_ends))
    for code, label in ticks:
        x = left + times.cell(code) + 0.5
        _add(root, "line", x1=x, y1=bottom, x2=x, y2=bottom + 5, stroke=_FAINT)
        _text(root, label, x, bottom + 20, 12, _FAINT, anchor="middle")
    _text(root, f"{time_ends[0]}{shared}", _WIDTH - _RIGHT, bottom + 40, 13, _FAINT, anchor="end")

    def box(parent: Element, look: str, key: Interval, when: Interval) -> Element | None:
        up, right = _pixels(keys, key), _pixels(times, when)
        if not up or not right:
            return None
        return _add(parent, "rect", x=left + right.start, y=bottom - up.stop, width=len(right), height=len(up), **_LOOKS[look])

    for region in sorted(regions, key=lambda one: one.read):  # those that are read lie above the others
        drawn = box(root, "read" if region.read else "pruned", region.key, region.time)
        if drawn is not None:
            said = f"{counted(region.rows, 'row')} {'taken' if region.read else 'pruned'}"
            SubElement(drawn, "title").text = f"{region.place} {region.name}: {said}"
    for key in asked:
        box(root, "query", key, time)
    _add(root, "rect", x=left, y=_TOP, width=times.cells, height=keys.cells, fill="none", stroke=_FAINT)
    x = left
    for look, meaning in (("read", "read"), ("pruned", "pruned"), ("query", "the query")):
        _add(root, "rect", x=x, y=_HEIGHT - 30, width=14, height=14, **_LOOKS[look])
        _text(root, meaning, x + 22, _HEIGHT - 18, 13, _INK)
        x += round(48 + _LETTER * len(meaning))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _pixels(axis: Axis, interval: Interval) -> range:
    """From the first code's beginning to the last one's end, at least one; none if the interval lies outside."""
    lo, hi = max(interval[0], axis.lo), min(interval[1], axis.hi)
    if lo > hi:
        return range(0)
    return range(axis.cell(lo), max((hi + 1 - axis.lo) * axis.cells // (axis.hi - axis.lo + 1), axis.cell(lo) + 1))


def _ticks(axis: Axis, ends: Ends) -> list[tuple[int, str]]:
    """A few codes of an axis with their labels, at round numbers where there are such; labels that say the same only once."""
    _, label, steps = ends
    step = next((step for step in steps if (axis.hi - axis.lo) // step < 5), None)
    codes = [axis.lo, axis.hi] if step is None else range(-(-axis.lo // step) * step, axis.hi + 1, step)
    found = {label(code): code for code in reversed(codes or [axis.lo])}
    return [(code, text) for text, code in reversed(found.items())]


def _shortened(ticks: list[tuple[int, str]]) -> tuple[list[tuple[int, str]], str]:
    """Times without the day that all of them share, and that day."""
    days = {text.partition(" ")[0] for _, text in ticks}
    if all(text.endswith(" 00:00:00") for _, text in ticks):
        return [(code, text.removesuffix(" 00:00:00")) for code, text in ticks], ""
    if len(days) == 1 and all(" " in text for _, text in ticks):
        return [(code, text.partition(" ")[2]) for code, text in ticks], f", {days.pop()}"
    return ticks, ""


def _add(parent: Element, tag: str, **attributes: object) -> Element:
    return SubElement(parent, tag, {name: str(value) for name, value in attributes.items()})


def _text(root: Element, text: str, x: float, y: float, size: int, colour: str, *, anchor: str = "start", weight: str = "400") -> None:
    more = {"font-size": size, "text-anchor": anchor, "font-weight": weight}
    _add(root, "text", x=x, y=y, fill=colour, **more).text = text
