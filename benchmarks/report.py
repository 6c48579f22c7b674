"""What a run says: tables for people, one JSON line per benchmark for machines, and the bars it is held to."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

PACKAGES = ("tidewheel", "duckdb", "chdb", "pyarrow", "numpy", "numba", "pyspark")


@dataclass(frozen=True)
class Options:
    """What the command line asked for, the same for every benchmark."""

    data: str | None
    quick: bool
    only: tuple[str, ...]
    scratch: str | None
    repetitions: int | None = None
    rows: int | None = None
    """Rows of a table, at most, where a benchmark has several."""

    def wants(self, system: str) -> bool:
        return not self.only or system in self.only


@dataclass(frozen=True)
class Bar:
    """A target beside what was measured. `value` is None when the run left out what the bar needs."""

    what: str
    value: float | None
    target: float
    sense: str
    unit: str = ""

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not run"
        kept = {">=": self.value >= self.target, "<=": self.value <= self.target, "<": self.value < self.target}[self.sense]
        return "PASS" if kept else "MISS"


@dataclass
class Report:
    """Collects the figures of one benchmark after the other. Not for several threads."""

    out: Path
    console: Console = field(default_factory=lambda: Console(width=None if sys.stdout.isatty() else 160))
    missed: int = 0

    def note(self, text: str) -> None:
        self.console.print(text, style="dim", highlight=False, markup=False)

    def title(self, text: str) -> None:
        self.console.rule(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
        """Prints a table; the first `left` columns are words, the others figures."""
        table = Table(title=title, title_justify="left")
        for i, column in enumerate(columns):
            table.add_column(column, justify="left" if i < left else "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def finish(self, benchmark: str, figures: dict[str, object], bars: Sequence[Bar]) -> None:
        """Prints the bars and appends the JSON line."""
        if bars:
            table = Table(title="bars", title_justify="left")
            for column in ("bar", "measured", "target", ""):
                table.add_column(column)
            for bar in bars:
                style = {"PASS": "green", "MISS": "bold red"}.get(bar.verdict, "dim")
                measured = "–" if bar.value is None else f"{bar.value:,.4g}{bar.unit}"
                table.add_row(bar.what, measured, f"{bar.sense} {bar.target:,.4g}{bar.unit}", f"[{style}]{bar.verdict}[/]")
            self.console.print(table)
        self.missed += sum(bar.verdict == "MISS" for bar in bars)
        verdicts = [{"bar": b.what, "value": b.value, "sense": b.sense, "target": b.target, "verdict": b.verdict} for b in bars]
        line = {"benchmark": benchmark, **surroundings(), "figures": figures, "bars": verdicts}
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def surroundings() -> dict[str, object]:
    """Where, when and with what a figure was measured."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.executable).name, "-m", "benchmarks", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }


def machine() -> dict[str, object]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> str:
    """The checked-out commit, with `+changes` when files differ from it."""
    here = Path(__file__).parent
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
    if head.returncode:
        return "none"
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True).stdout.strip()
    return head.stdout.strip() + ("+changes" if changed else "")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
