"""What is certain about a time zone without its table: whether it is UTC, and how far its clocks can be from UTC and from themselves."""

from __future__ import annotations

_UTC = frozenset({"UTC", "Z", "GMT", "+00:00", "Etc/UTC", "UCT", "Etc/GMT", "Zulu", "Etc/Zulu", "Universal", "GMT0", "UTC+0", "UTC+00:00"})
_HOUR = 3600 * 10**9

OFFSET = 16 * _HOUR
"""No local time was ever farther away from UTC."""

CHANGE = 26 * _HOUR
"""No zone's offset ever changed by more: islands that moved across the date line."""


def is_utc(zone: object) -> bool:
    """None is a place where no zone matters."""
    return zone is None or zone in _UTC


def set_back(zone: object) -> int:
    """How far the clocks of a zone were set back at once, at most, since 1970: so much longer a local day can be."""
    return 3 * _HOUR if str(zone).startswith(("Asia/", "Antarctica/")) else _HOUR
