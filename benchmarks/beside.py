"""This tree beside another commit of the project: the same work in turns, each in a process of its own, by processor time.

    python -m benchmarks.beside COMMIT [turns|grid|calls|texts|sink …] [--pairs N] [--data DIR]

Only what users can call is used, so that any two commits can be compared. Machines change their speed from minute to minute: processes
alternate, and the ratio of each pair is taken before the median. The other commit is a work tree in a temporary folder, so its kernels are
compiled and cached there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import commit, machine, versions

HERE = Path(__file__).parent
WORK = HERE / "beside_work.py"
TURNS = HERE / "beside_turns.py"
KINDS = {"turns": 200, "grid": 60, "calls": 15, "texts": 15, "sink": 8}
"""What can be compared, and how many pairs of runs there are by default."""
IN_TURNS = ("turns", "grid")
STARTS = 4
"""Processes of each tree that take turns one after the other: where memory lies is chance, and stays for as long as a process does."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description="This tree beside another commit, by processor time.")
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("kinds", nargs="*", metavar="|".join(KINDS), help="what to compare (default: calls)")
    parser.add_argument("--pairs", type=int, help="pairs of runs (default: 200 for turns, 60 for grid, 8 for sink, else 15)")
    parser.add_argument("--data", metavar="DIR", help="folder with tdrive/tdrive_e5.parquet, for grid and sink; generated rows without it")
    parser.add_argument("--tree", metavar="DIR", help="the other commit's work tree, with its kernels: made if it is not there, and kept")
    given = parser.parse_args(arguments)
    for kind in given.kinds:
        if kind not in KINDS:
            parser.error(f"unknown {kind!r}; known: {', '.join(KINDS)}")
    facts = machine()
    print(
        f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, load {facts['load_average']}; {commit()} beside {given.commit}"
    )
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    with tree_of(given.commit, given.tree) as old:
        for kind in given.kinds or ["calls"]:
            words, trees, count = (
                [kind, given.data] if given.data else [kind],
                (old / "src", HERE.parent / "src"),
                given.pairs or KINDS[kind],
            )
            table(turns(*trees, count, words) if kind in IN_TURNS else pairs(*trees, count, words))
    return 0


@contextmanager
def tree_of(commit: str, kept: str | None) -> Iterator[Path]:
    """A work tree of a commit: the one that is kept somewhere, or a new one for this run alone."""
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        tree = Path(kept or folder, "old")
        if not tree.exists():
            subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(tree), commit], cwd=HERE.parent, check=True)
        try:
            yield tree
        finally:
            if not kept:
                subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=HERE.parent, check=True)


def pairs(old: Path, new: Path, count: int, words: list[str]) -> list[tuple[dict[str, float], dict[str, float]]]:
    """What both measured, in turns; the first run of each compiles its kernels and does not count."""
    for tree in (old, new):
        measured(tree, words)
    found = []
    for i in range(count):
        first, second = (old, new) if i % 2 else (new, old)
        one, other = measured(first, words), measured(second, words)
        found.append((one, other) if first is old else (other, one))
        print(f"\rpair {i + 1} of {count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def turns(old: Path, new: Path, count: int, words: list[str]) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Both in turns, by processes that stay for a while."""
    shares = [count // STARTS + (start < count % STARTS) for start in range(STARTS)]
    return [pair for share in shares if share for pair in some_turns(old, new, share, words)]


def some_turns(old: Path, new: Path, count: int, words: list[str]) -> list[tuple[dict[str, float], dict[str, float]]]:
    """The first tenth of the turns does not count."""
    workers = [
        subprocess.Popen(
            [sys.executable, str(TURNS), *words], env=surroundings(tree), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for tree in (old, new)
    ]
    kinds, _ = (json.loads(said_by(worker)) for worker in workers)
    found = []
    for i in range(count + count // 10 + 1):
        pair: tuple[dict[str, float], dict[str, float]] = {}, {}
        for kind in kinds:
            for side in (0, 1) if i % 2 else (1, 0):
                stdin = workers[side].stdin
                assert stdin is not None
                stdin.write(kind + "\n")
                stdin.flush()
                pair[side].update(json.loads(said_by(workers[side])))
        found.append(pair)
    for worker in workers:
        worker.communicate()
    return found[-count:]


def said_by(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def surroundings(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(HERE.parent)])}


def measured(tree: Path, words: list[str]) -> dict[str, float]:
    """Microseconds of processor time, of all threads and processes, by what was done."""
    done = subprocess.run([sys.executable, str(WORK), *words], env=surroundings(tree), cwd=HERE.parent, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} in {tree}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(found: list[tuple[dict[str, float], dict[str, float]]]) -> None:
    print(f"\n| {'µs of processor time':<48} | before | after | after ÷ before (median of {len(found)} pairs; quartiles) |")
    print("| --- | --- | --- | --- |")
    for name in found[0][0]:
        before, after = ([run[side][name] for run in found] for side in (0, 1))
        ratios = sorted(b / a for a, b in zip(before, after, strict=True))
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        medians = f"{statistics.median(before):.1f} | {statistics.median(after):.1f}"
        print(f"| {name:<48} | {medians} | {middle:.3f} ({low:.2f} to {high:.2f}) |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
