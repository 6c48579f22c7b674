"""`python -m benchmarks [NAME …]`: runs benchmarks, prints them, appends JSON lines. Without a name: all of them."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path

from benchmarks.report import Options, Report, commit, machine, versions

NAMES = (
    "insert", "load", "durability", "recovery", "grid", "template", "text_keys", "small", "startup", "memory",
    "growth", "derived_cost", "derived", "sql_overhead", "sql_grid", "analyst", "tsbs", "mraq",
    "attach", "spark_sink", "spark_latency", "spark_reader",
)  # fmt: skip
SYSTEMS = ("tidewheel", "duckdb", "chdb")
HERE = Path(__file__).parent


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Tidewheel beside DuckDB and chDB.")
    parser.add_argument("names", nargs="*", metavar="|".join((*NAMES, "all")), help="which benchmarks to run (default: all)")
    parser.add_argument("--data", metavar="DIR", help="folder with tdrive/tdrive_e5.parquet; generated rows without it")
    parser.add_argument("--quick", action="store_true", help="fewer rows and runs: to see that it works, not to quote")
    parser.add_argument("--only", metavar="SYSTEMS", help=f"comma-separated, of {', '.join(SYSTEMS)}")
    parser.add_argument("--repetitions", type=int, metavar="N", help="runs (insert) or rounds (grid) instead of the default")
    parser.add_argument("--rows", type=int, metavar="N", help="rows of a table at most (analyst, tsbs, mraq)")
    parser.add_argument("--scratch", metavar="DIR", help="where to put temporary databases (default: the system's)")
    parser.add_argument("--out", metavar="FILE", default=str(HERE / "results" / "runs.jsonl"), help="JSON lines are appended here")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a bar is missed")
    given = parser.parse_args(arguments)
    names = [name for name in NAMES if not given.names or "all" in given.names or name in given.names]
    only = tuple(given.only.split(",")) if given.only else ()
    for word, known in (*((name, (*NAMES, "all")) for name in given.names), *((system, SYSTEMS) for system in only)):
        if word not in known:
            parser.error(f"unknown {word!r}; known: {', '.join(known)}")
    options = Options(given.data or _found_data(), given.quick, only, given.scratch, given.repetitions, given.rows)
    report = Report(Path(given.out))
    facts = machine()
    report.note(f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, Linux {facts['kernel']}, load {facts['load_average']}")
    report.note(", ".join(f"{name} {version}" for name, version in versions().items()) + f"; commit {commit()}")
    for name in names:
        if importlib.util.find_spec(f"benchmarks.{name}") is None:
            report.note(f"{name}: there is no benchmarks/{name}.py yet, left out")
            continue
        importlib.import_module(f"benchmarks.{name}").run(options, report)
    report.note(f"appended to {given.out}; bars missed: {report.missed}")
    return 1 if given.strict and report.missed else 0


def _found_data() -> str | None:
    """The shared data folder beside the repository, when it is there."""
    folder = HERE.parent.parent / "shared" / "data"
    return str(folder) if folder.is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
