"""The plane as a picture: a PNG file with a palette, and letters of three by five dots. No library is needed for so little."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from tidewheel.surfaces.explain.drawing import kind
from tidewheel.surfaces.explain.plane import Cells, Interval, Plane, Region

WIDTH, HEIGHT = 960, 540
_LEFT, _TOP, _BELOW, _RIGHT = 24, 40, 56, 24
_DOT = 2
"""Pixels of a dot of a letter."""

_COLOURS = {
    "empty": (255, 255, 255), "asked": (214, 230, 250), "pruned": (216, 216, 216), "read": (150, 210, 150), "hit": (60, 160, 80),
    "edge": (120, 120, 120), "query": (30, 90, 200), "ink": (40, 40, 40),
}  # fmt: skip
_NUMBER = {name: number for number, name in enumerate(_COLOURS)}

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-+:.,/()_'=… "
_DOTS = (
    "75557 26227 71747 71717 55711 74717 74757 71244 75757 75717 25755 65656 34443 65556 74647 74644 34553 55755 72227 11152 55655 "
    "44447 57755 65555 25552 65644 25563 65655 34216 72222 55557 55552 55775 55255 55222 71247 00700 02720 02020 00002 00024 11244 "
    "12221 42224 00007 22000 07070 00005 00000"
)
"""Five rows of three dots each, as octal digits. What is not here is a blank."""
_GLYPHS = dict(zip(_LETTERS, _DOTS.split(), strict=True))


def inner_size(width: int = WIDTH, height: int = HEIGHT) -> tuple[int, int]:
    """The cells that the plane of such a picture has: one for each pixel between the margins."""
    return width - _LEFT - _RIGHT, height - _TOP - _BELOW


def paint(plane: Plane, regions: Sequence[Region], keys: Sequence[Interval], time: Interval, texts: Sequence[str]) -> bytes:
    """The file's bytes. `texts`: the title, the ends of the key axis (low, high) and of the time axis (first, last)."""
    width, height = plane.time.cells + _LEFT + _RIGHT, plane.key.cells + _TOP + _BELOW
    pixels = np.zeros((height, width), np.uint8)
    inside = pixels[_TOP : _TOP + plane.key.cells, _LEFT : _LEFT + plane.time.cells]
    inside[:] = np.array([_NUMBER[kind(cell)] for cell in range(8)], np.uint8)[plane.cells[::-1]]
    for region in regions:
        _outline(inside, plane, region.key, region.time, _NUMBER["edge"])
    for key in keys:
        _outline(inside, plane, key, time, _NUMBER["query"])
    title, low, high, first, last = texts
    bottom = _TOP + plane.key.cells
    _write(pixels, title, _LEFT, 8)
    _write(pixels, f"KEY {low} .. {high} (UPWARDS)", _LEFT, 24)
    _write(pixels, first, _LEFT, bottom + 8)
    _write(pixels, last, width - _RIGHT - _length(last), bottom + 8)
    at = _LEFT
    for name, meaning in (("hit", "READ, IN THE QUERY"), ("read", "READ"), ("pruned", "PRUNED"), ("asked", "QUERY, NO REGION")):
        pixels[bottom + 30 : bottom + 40, at : at + 10] = _NUMBER[name]
        _write(pixels, meaning, at + 16, bottom + 30)
        at += 16 + _length(meaning) + 24
    return encode([row.tobytes() for row in pixels], list(_COLOURS.values()))


def encode(pixels: Sequence[bytes], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """Rows of palette numbers as a PNG file."""

    def block(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 3, 0, 0, 0)  # eight bits, a palette
    rows = b"".join(b"\0" + row for row in pixels)
    colours = b"".join(bytes(colour) for colour in palette)
    parts = [block(b"IHDR", header), block(b"PLTE", colours), block(b"IDAT", zlib.compress(rows, 9)), block(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _outline(inside: Cells, plane: Plane, key: Interval, time: Interval, colour: int) -> None:
    box = inside[::-1][plane.key.span(key), plane.time.span(time)]
    if box.size:
        box[0] = box[-1] = colour
        box[:, 0] = box[:, -1] = colour


def _write(pixels: Cells, text: str, x: int, y: int) -> None:
    for letter in text.upper():
        for row, digit in enumerate(_GLYPHS.get(letter, "00000")):
            for column in range(3):
                if int(digit) >> (2 - column) & 1:
                    down, right = y + row * _DOT, x + column * _DOT
                    pixels[down : down + _DOT, right : right + _DOT] = _NUMBER["ink"]  # what is too long is cut
        x += 4 * _DOT


def _length(text: str) -> int:
    return 4 * _DOT * len(text)
