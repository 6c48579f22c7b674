"""Texts that begin with something: which LIKE patterns say that, and between which two texts they lie."""

from __future__ import annotations

_LAST = "\U0010ffff"


def after(prefix: str) -> str | None:
    """The least text that is greater than all that begin so, in the order of UTF-8's bytes; None if there is none."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return None
    code = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)


def of_like(pattern: str, escape: str = "") -> tuple[str, str]:
    """What all texts that are like a pattern begin with, and what of the pattern comes then."""
    begin, rest = _split(pattern, "%_" + escape)
    while escape and rest.startswith(escape) and len(rest) > len(escape):  # the next character stands for itself
        more, after_it = _split(rest[len(escape) + 1 :], "%_" + escape)
        begin, rest = begin + rest[len(escape)] + more, after_it
    return begin, rest


def of_glob(pattern: str) -> tuple[str, str]:
    return _split(pattern, "*?[\\")


def _split(pattern: str, special: str) -> tuple[str, str]:
    at = next((i for i, one in enumerate(pattern) if one in special), len(pattern))
    return pattern[:at], pattern[at:]
