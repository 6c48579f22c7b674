"""Keeps pandas out of a process: Arrow loads it with the first array that it makes of Python's values, which takes half a second."""

from __future__ import annotations

import sys
from typing import Any


class _Refuses:
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not loaded here")


_refuses: Any = _Refuses()


def keep_out() -> None:
    sys.meta_path.insert(0, _refuses)


def let_in() -> None:
    """It is needed after all."""
    if _refuses in sys.meta_path:
        sys.meta_path.remove(_refuses)
