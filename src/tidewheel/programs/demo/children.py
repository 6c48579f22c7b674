"""Processes that belong to the demo: told what to do as JSON, started by a word, ended by the end of their standard input.

A child says what it does as JSON lines. It is in a session of its own, so Ctrl-C reaches only the demo, and because it ends with its
standard input, it outlives the demo in no case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from tidewheel.errors import TidewheelError

_GO = b"go\n"
_PATIENCE = 10.0  # seconds that a child may take to end

Said = Mapping[str, Any]


class Child:
    """Seen from the demo. `heard` is called with everything it says, by a thread of its own; having said something, it is ready."""

    def __init__(self, module: str, orders: Said, heard: Callable[[Said], None]) -> None:
        self._name = module.rpartition(".")[2]
        self._heard = heard
        self.ready = threading.Event()
        self._failure = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, name=f"demo-{self._name}", daemon=True)
        self._listener.start()

    def go(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it is gone: `check` says why
            self._process.stdin.write(_GO)
            self._process.stdin.flush()

    def end(self) -> None:
        """Let it finish what it is doing; everything that it said has then been heard."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(_PATIENCE)

    def check(self) -> None:
        """Raise what ended it too early, if something did."""
        code = self._process.poll()
        if code:
            self._listener.join(_PATIENCE)
            raise TidewheelError(self._failure or f"the demo's {self._name} ended with code {code}")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError:  # the last line of a traceback says most
                self._failure = f"the demo's {self._name} failed: {line.decode('utf-8', 'replace').strip()}"
                continue
            if said:
                self._heard(said)
            self.ready.set()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Parent:
    """Seen from a child: what it is to do, when to begin and when to end."""

    def __init__(self) -> None:
        self.orders: dict[str, Any] = json.loads(sys.argv[1])
        self.begin, self.end = threading.Event(), threading.Event()
        threading.Thread(target=self._listen, name="parent", daemon=True).start()

    def tell(self, **facts: Any) -> None:
        with suppress(BrokenPipeError):  # nobody listens: the end is near
            os.write(1, json.dumps(facts).encode() + b"\n")

    def _listen(self) -> None:
        # not by sys.stdin: a thread that waits in it blocks the interpreter's end
        while os.read(0, 64):
            self.begin.set()
        self.end.set()
        self.begin.set()
