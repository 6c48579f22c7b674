"""Makes docs/pictures/first-steps.svg: a recording of real commands in a real terminal, as an SVG that moves.

    python docs/pictures/record.py [FILE]

Each command of `STEPS` runs in a pseudo-terminal of `WIDTH` × `HEIGHT`, one after the other in a folder that is removed; all that they
print is shown as they printed it. Only time is made up: commands are typed at an even pace, waits of more than `LONGEST` are cut to it, and
each answer stays for as long as it takes to read. So the same output makes the same file.
"""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from fcntl import ioctl
from html import escape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WIDTH, HEIGHT = 112, 30
PACE, LONGEST = 0.022, 0.7
"""Seconds for a letter that is typed, and of the longest wait."""

ASK = "SELECT plate, count(*) AS n, max(ts) AS last FROM taxi WHERE plate BETWEEN 7 AND 9 GROUP BY 1 ORDER BY 1"
STEPS = (
    ("tidewheel load taxi rides.parquet --time ts --key plate -w wh", 2.5),
    (f'tidewheel sql -w wh -c "{ASK}"', 3.0),
    ('tidewheel explain taxi --key 100 140 --time "2026-01-03" "2026-01-04" -w wh', 6.0),
)
"""Commands, and the seconds for which their answers are looked at."""

_LINE, _LETTER, _EDGE = 19, 8.4, 14
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_ABOVE = re.compile(r"[^\n]*\n(?:\x1b\[\?25h)?\r?\x1b\[1A(?=\x1b\[2K)")
_CLEARED = re.compile(r"[^\n]*\x1b\[2K")
_OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b\][^\x07]*\x07|\x1b[=>]")
_COLOURS = ("#484f58", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#c9d1d9")


@dataclass(frozen=True)
class Shown:
    """A line of the terminal: when it comes, and its parts with their colours. A line that is typed has letters that come one by one."""

    at: float
    parts: list[tuple[str, str]]
    typed: bool = False


def printed(command: str, folder: Path) -> tuple[str, float]:
    """What a command prints into a terminal, and for how long it runs."""
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT), "NO_PROXY": "*"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    began = time.monotonic()
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment, stdin=its, stdout=its, stderr=its, close_fds=True)
    os.close(its)
    found = b""
    try:
        while data := os.read(ours, 65_536):
            found += data
    except OSError:  # how a terminal says on Linux that nobody is at the other end any more
        pass
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{command}\n{found.decode()}")
    return found.decode(), time.monotonic() - began


def coloured(text: str) -> list[list[tuple[str, str]]]:
    """Lines of parts with their colours, as they are at last: of a bar that moves, nothing is left. No other moves are understood."""
    lines, style = [], ""
    text = _ABOVE.sub("", text)
    for line in _OTHER.sub("", _CLEARED.sub("", text)).replace("\r\n", "\n").rstrip("\n").split("\n"):
        pieces = _SGR.split(line)
        parts = [(pieces[0], style)] if pieces[0] else []
        for codes, words in zip(pieces[1::2], pieces[2::2], strict=True):
            style = styled(style, [int(code or 0) for code in codes.split(";")])
            if words:
                parts.append((words, style))
        lines.append(parts)
    return lines


def styled(style: str, codes: list[int]) -> str:
    """The attributes of a text after these codes."""
    while codes:
        code = codes.pop(0)
        if code == 0 or code == 39:
            style = ""
        elif code == 1:
            style += ' font-weight="600"'
        elif code == 2:
            style += ' opacity="0.6"'
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = f' fill="{_COLOURS[code % 10]}"'
        elif code == 38 and codes[0] == 2:
            style = ' fill="#{:02x}{:02x}{:02x}"'.format(*codes[1:4])
            del codes[:4]
        elif code == 38:
            style = f' fill="{_cube(codes[1])}"'
            del codes[:2]
        elif code == 48:
            del codes[: 4 if codes[0] == 2 else 2]
    return style


def _cube(number: int) -> str:
    """One of the 256 colours of terminals."""
    if number < 16:
        return _COLOURS[number % 8]
    if number > 231:
        return "#{0:02x}{0:02x}{0:02x}".format(8 + 10 * (number - 232))
    levels = [(number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6]
    return "#" + "".join(f"{55 + 40 * one if one else 0:02x}" for one in levels)


def recorded(folder: Path) -> tuple[list[Shown], float]:
    """All lines, and when the recording ends."""
    lines: list[Shown] = []
    now = 0.4
    for command, looked_at in STEPS:
        for i in range(0, len(command), WIDTH - 2):
            part = command[i : i + WIDTH - 2]
            lines.append(Shown(now, [("$ " if i == 0 else "  ", ' fill="#7ee787"'), (part, ' fill="#f0f6fc"')], typed=True))
            now += PACE * len(part)
        said, seconds = printed(command, folder)
        now += min(seconds, LONGEST)
        lines += [Shown(now, parts) for parts in coloured(said.replace(str(folder), "~"))]
        now += looked_at
    return lines, now


def drawn(lines: list[Shown], end: float) -> str:
    """The SVG: lines appear when their time has come, and the first ones leave at the top when there are too many."""
    wide, high = round(WIDTH * _LETTER + 2 * _EDGE), HEIGHT * _LINE + 2 * _EDGE
    repeat = f'dur="{end:.2f}s" repeatCount="indefinite" calcMode="discrete"'
    body = []
    for i, line in enumerate(lines):
        y = _EDGE + _LINE * (i + 1) - 5
        words = "".join(f"<tspan{style}>{escape(text)}</tspan>" for text, style in line.parts)
        at = line.at / end
        shown = f'<animate attributeName="opacity" values="0;1" keyTimes="0;{at:.4f}" {repeat}/>'
        clip, letters = "", sum(len(text) for text, _ in line.parts)
        if line.typed:
            clip = f' clip-path="url(#c{i})"'
            times = [f"{(line.at + PACE * n) / end:.4f}" for n in range(letters - 1)]
            widths = [f"{_EDGE + _LETTER * (n + 2):.0f}" for n in range(letters)]
            grown = f'<animate attributeName="width" values="{";".join(widths)}" keyTimes="0;{";".join(times)}" {repeat}/>'
            body.append(f'<clipPath id="c{i}"><rect x="0" y="{y - _LINE}" height="{_LINE + 8}" width="{wide}">{grown}</rect></clipPath>')
        wider = f' textLength="{letters * _LETTER:.1f}" lengthAdjust="spacingAndGlyphs"' if letters else ""  # whatever the font is
        body.append(f'<text x="{_EDGE}" y="{y}"{wider}{clip}>{shown}{words}</text>')
    moves = [(line.at / end, i + 1 - HEIGHT) for i, line in enumerate(lines) if i >= HEIGHT]
    steps = {f"{at:.4f}": f"0 {-_LINE * out}" for at, out in moves}
    values, times = ";".join(["0 0", *steps.values()]), ";".join(["0", *steps])
    scroll = f'<animateTransform attributeName="transform" type="translate" values="{values}" keyTimes="{times}" {repeat}/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="ui-monospace, Menlo, Consolas, monospace"'
            ' font-size="14" xml:space="preserve" style="white-space: pre">',
            f'<rect width="{wide}" height="{high}" rx="8" fill="#0d1117"/>',
            f'<clipPath id="screen"><rect width="{wide}" height="{high - 4}"/></clipPath>',
            f'<g clip-path="url(#screen)"><g fill="#c9d1d9">{scroll if moves else ""}',
            *body,
            "</g></g>",
            "</svg>",
            "",
        ]
    )


def prepare(folder: Path) -> None:
    """Six million reports of five hundred taxis in a week, as a file that somebody has."""
    i = np.arange(6_000_000)
    ts = pa.array(i // 10 * 1_000_000 + 1_767_225_600_000_000, pa.timestamp("us"))
    rides = {"plate": (i % 500).astype(np.int32), "ts": ts, "speed": (i % 90).astype(np.float32)}
    pq.write_table(pa.table(rides), folder / "rides.parquet")


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("first-steps.svg"))
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        lines, end = recorded(Path(folder).resolve())
    target.write_text(drawn(lines, end))
    print(f"{target}: {len(lines)} lines, {end:.0f} seconds")


if __name__ == "__main__":
    main()
