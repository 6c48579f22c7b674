"""The plane for a terminal: a character for each cell, labels at the ends of its axes, and what the characters mean."""

from __future__ import annotations

from rich.text import Text

from tidewheel.surfaces.explain.plane import ASKED, PRUNED, READ, Plane

FINE = {"empty": " ", "asked": "·", "pruned": "░", "read": "▒", "hit": "█"}
PLAIN = {"empty": " ", "asked": ".", "pruned": "-", "read": "+", "hit": "#"}
_STYLES = {"empty": "", "asked": "cyan", "pruned": "bright_black", "read": "green", "hit": "bold green"}
_MEANING = {"hit": "read, in the query", "read": "read", "pruned": "pruned", "asked": "query, no region"}


def kind(cell: int) -> str:
    """The one content of a cell that is shown, where the cell has several."""
    if cell & READ:
        return "hit" if cell & ASKED else "read"
    return "pruned" if cell & PRUNED else "asked" if cell & ASKED else "empty"


def draw(plane: Plane, keys: tuple[str, str], times: tuple[str, str], names: tuple[str, str], plain: bool = False) -> Text:
    """The drawing. `keys`, `times`: what stands at the ends of the axes; `names`: of the axes."""
    marks = PLAIN if plain else FINE
    left, right, corner, line = ("|", "|", "+", "-") if plain else ("│", "│", "└", "─")
    margin = max(len(keys[0]), len(keys[1]), len(names[0]))
    out = Text(no_wrap=True)
    out.append(f"{names[0]:>{margin}}\n", "cyan")
    rows = plane.cells[::-1].tolist()
    for number, row in enumerate(rows):
        label = keys[1] if number == 0 else keys[0] if number == len(rows) - 1 else ""
        out.append(f"{label:>{margin}} {left}")
        for cell in row:
            shown = kind(cell)
            out.append(marks[shown], _STYLES[shown])
        out.append(f"{right}\n")
    width = len(rows[0])
    out.append(f"{'':>{margin}} {corner}{line * width}{'+' if plain else '┘'}\n")
    room = width - len(times[0]) - len(times[1])
    below = f"{times[0]}{names[1]:^{room}}{times[1]}" if room > len(names[1]) else f"{times[0]} .. {times[1]}"
    out.append(f"{'':>{margin}}  {below}\n")
    out.append(f"{'':>{margin}}  ")
    for name, meaning in _MEANING.items():
        out.append(marks[name], _STYLES[name])
        out.append(f" {meaning}   ")
    out.rstrip()
    return out
