"""A second process that owns warehouses, for the tests of those that attach to them.

Run as a script it opens and closes warehouses as it is told, and ends with whoever started it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any


class OwnerProcess:
    """A living process. `kill` ends it as a crash would."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).resolve())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._tell({"do": "hello"})

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self, root: Path, **settings: Any) -> None:
        self._tell({"do": "open", "root": str(root), "settings": settings})

    def close(self, root: Path) -> None:
        self._tell({"do": "close", "root": str(root)})

    def results(self, root: Path) -> int:
        """How many results it holds for others."""
        return int(self._tell({"do": "results", "root": str(root)}))

    def _tell(self, message: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the owner ended"
        said = json.loads(answer)
        assert "error" not in said, said["error"]
        return said["value"]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """SIGSTOP: it lives, and does nothing, from when this returns."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> OwnerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait(30)
        self._process.stdin.close()
        self._process.stdout.close()


def _main() -> None:
    from tidewheel.cluster.owner import OwnedEngine
    from tidewheel.settings import Settings
    from tidewheel.testing.probe import listener_of, sessions_of

    engines: dict[str, OwnedEngine] = {}

    def do(message: dict[str, Any]) -> Any:
        match message["do"]:
            case "open":
                engine = engines[message["root"]] = OwnedEngine(Path(message["root"]), Settings.of(message["settings"]))
                assert listener_of(engine).wait(60)
                assert listener_of(engine).failure is None, listener_of(engine).failure
            case "close":
                engines.pop(message["root"]).close()
            case "results":
                return sessions_of(engines[message["root"]]).results

    for line in sys.stdin:
        try:
            said: Any = {"value": do(json.loads(line))}
        except BaseException as e:
            said = {"error": repr(e)}
        print(json.dumps(said), flush=True)
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    _main()
