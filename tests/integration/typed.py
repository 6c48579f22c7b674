"""Shell commands, typed into a real shell, of which `tidewheel` is answered by this process: a start of Python is saved for each.

What a shell gives to a command is what it gets here: its arguments, folder, environment and the three streams, redirected or piped as
the line says; the shell gets its exit code. A process of its own is what tests of processes are for (test_commands.py).
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tidewheel.surfaces import cli

_STAND_IN = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(line, [len(told).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(told)
    sys.exit(int(line.recv(16)))
"""


def shell(text: str, folder: Path, out: IO[str]) -> None:
    """Run lines of bash to their end, with all that they print in `out`. Raises `CalledProcessError` if one fails."""
    with tempfile.TemporaryDirectory(prefix="tw") as home, socket.socket(socket.AF_UNIX) as desk:
        address = f"{home}/desk"
        desk.bind(address)
        desk.listen()
        stand_in = Path(home) / "tidewheel"
        stand_in.write_text(_STAND_IN.format(python=sys.executable, address=address))
        stand_in.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{home}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TERM": "dumb",
        }
        command = ["bash", "-euo", "pipefail", "-c", text]
        with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as bash:
            try:
                while bash.poll() is None:
                    if select.select([desk], [], [], 0.02)[0]:
                        _answer(desk)
            except BaseException:
                bash.kill()
                raise
        if bash.returncode:
            raise subprocess.CalledProcessError(bash.returncode, text)


def _answer(desk: socket.socket) -> None:
    line, _ = desk.accept()
    with line:
        size, streams, _, _ = socket.recv_fds(line, 4, 3)
        told = b""
        while len(told) < int.from_bytes(size, "big"):
            told += line.recv(1 << 16)
        arguments, folder, environment = json.loads(told)
        with _as_if_there(folder, environment, streams):
            code = cli.main(arguments)
        line.sendall(str(code).encode())


@contextmanager
def _as_if_there(folder: str, environment: dict[str, str], streams: list[int]) -> Iterator[None]:
    before = os.getcwd(), dict(os.environ), (sys.stdin, sys.stdout, sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in range(3)]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (open(n, "w" if n else "r", closefd=False) for n in range(3))  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, stream in enumerate(kept):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout, sys.stderr = before[2]
        os.chdir(before[0])
        os.environ.clear()
        os.environ.update(before[1])
