"""Text from outside as people may see it: on one line, and without anything that a terminal would obey."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _CONTROL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    mark = found[0]
    return _NAMED.get(mark) or (f"\\x{ord(mark):02x}" if ord(mark) < 256 else f"\\u{ord(mark):04x}")
