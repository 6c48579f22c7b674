"""What grows with history and what must not: one table per part, from little to much."""

from __future__ import annotations

import importlib
import importlib.util

from benchmarks.report import Options, Report

PARTS = ("growth_tables", "growth_history")
"""Modules with `run(options, report)` that prints its table and its bars."""


def run(options: Options, report: Report) -> None:
    report.title("growth")
    for part in PARTS:
        if importlib.util.find_spec(f"benchmarks.{part}") is not None:
            importlib.import_module(f"benchmarks.{part}").run(options, report)
