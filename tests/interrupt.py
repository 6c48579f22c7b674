"""Ctrl-C at a point that is chosen.

Python raises KeyboardInterrupt where it looks for signals: when a function begins, behind a call, and at the end of each turn of a loop. A
trace function does the same here, at points of our code.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import tidewheel as tw

OURS = os.path.dirname(tw.__file__) + os.sep

LOOKS = {dis.opmap[name] for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD") if name in dis.opmap}
"""Instructions after which Python looks for signals."""


@functools.cache
def handler(code: CodeType, offset: int) -> int:
    """Where an exception at an instruction is handled, or -1."""
    regions = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return next((r.target for r in regions if r.start <= offset < r.end), -1)


class Interrupt:
    """Runs something and raises KeyboardInterrupt at the n-th point where Python would; counts them if there are fewer."""

    def __init__(self, at: int, within: CodeType | None = None) -> None:
        """`within`: only in this function, not in what it calls."""
        self.at = at
        self._within = within
        self.seen = 0
        self.where = ""
        self._last: dict[FrameType, int] = {}

    def run(self, work: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            return work()
        finally:
            sys.settrace(before)
            self._last.clear()

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS) or self._within not in (None, frame.f_code):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "return":
            self._last.pop(frame, None)
        if event == "opcode":
            code, at = frame.f_code, frame.f_lasti
            last = self._last.get(frame, -1)
            self._last[frame] = at
            # Python raises at the instruction before this one, which must not be another region: a lock's, say
            if last < 0 or code.co_code[last] not in LOOKS or handler(code, last) != handler(code, at):
                return self._step
            self.seen += 1
            if self.seen == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._step
