"""Texts that begin with something: which patterns say that."""

from __future__ import annotations


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
