"""Why a mode does not hold."""

from __future__ import annotations


class Not(Exception):
    """A mode does not hold; the message is a sentence for people."""
