"""How long a query of key range × time range takes while 50,000 rows a second arrive; every returned value is read."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.peers import Ask, ChDB, DuckDB, System, Tidewheel, same
from benchmarks.reader import read
from benchmarks.report import Bar, Options, Report
from benchmarks.stream import Feeder, Stream

SELECTIVITIES = (0.01, 0.05, 0.1)
WINDOWS = (("recent 5 s", 5), ("recent 60 s", 60), ("recent 5 min", 300), ("historical 5 min", 300))
PER_ROUND = 3
PAUSE = 0.03
"""Seconds, at most, between two queries: random, so that also the queries of a fast system fall at any moment of the live stream."""
AWAKE = 0.002
"""Seconds that the asking thread is busy before it asks, as one that answers many is: waking an idle processor is not what is measured."""
WORST_CELL, GEOMETRIC_MEAN = 4.0, 12.0

Cell = tuple[float, str]


@dataclass(frozen=True)
class Question:
    """One position of a cell. A recent window ends at the newest row of the system that is asked, so it has no start yet."""

    cell: Cell
    key: tuple[int, int]
    seconds: int
    start: int | None
    totals: bool = False

    def ask(self, newest: int) -> Ask:
        if self.start is None:
            return Ask(self.key, (newest - self.seconds * 1_000_000, newest), self.totals)
        return Ask(self.key, (self.start, self.start + self.seconds * 1_000_000), self.totals)


@dataclass
class Measured:
    system: System
    feeder: Feeder
    seconds: dict[Cell, list[float]] = field(default_factory=dict)
    answers: list[tuple[Ask, tuple[float, ...]]] = field(default_factory=list)
    load_seconds: float = 0.0

    def put(self, question: Question) -> None:
        ask = question.ask(self.feeder.newest)
        start = time.perf_counter()
        answer = read(self.system.query(ask))
        self.seconds.setdefault(question.cell, []).append(time.perf_counter() - start)
        self.answers.append((ask, answer))

    def forget(self) -> None:
        """What was measured; the system and its rows stay."""
        self.seconds, self.answers = {}, []


@dataclass(frozen=True)
class Shown:
    """What a table of cells comes to: against the better peer in each cell."""

    figures: dict[str, object]
    worst: float | None
    mean: float | None


def run(options: Options, report: Report) -> None:
    report.title("grid")
    stream, rounds = stream_of(options)
    report.note(said_of(stream, options, rounds))
    with loaded(_systems(options), stream, options, report) as measured:
        measure(measured, stream, questions(stream, rounds * PER_ROUND), rounds)
    shown = show(report, measured, "milliseconds: median (p99)")
    figures = shown.figures | {"data": stream.history.origin, "rounds": rounds, "queries_per_cell": rounds * PER_ROUND}
    report.finish(
        "grid",
        figures,
        [
            Bar("grid, worst cell ÷ better peer", shown.worst, WORST_CELL, ">=", "×"),
            Bar("grid, geometric mean ÷ better peer", shown.mean, GEOMETRIC_MEAN, ">=", "×"),
        ],
    )


def stream_of(options: Options) -> tuple[Stream, int]:
    """The rows that all systems get, and how many rounds they are asked."""
    rows = data.load(options.data, 2_000_000 if options.quick else data.TDRIVE_ROWS)
    return Stream(rows), options.repetitions or (2 if options.quick else 5)


def said_of(stream: Stream, options: Options, rounds: int) -> str:
    return (
        f"{stream.history.origin}, re-stamped to {data.RATE:,} rows a second: {stream.loaded / data.RATE:.0f} s of stream, so 5 min is "
        f"most of it{' (cut to 80 % of it by --quick)' if options.quick else ''}. {rounds} rounds × {PER_ROUND} queries per cell and "
        "system, systems interleaved by round, the same random positions for all; 12 uncounted queries at the start of each round, pauses "
        "of 0–30 ms between queries, then 2 ms of being busy. Live batches of 5,000 rows arrive ten times a second in the system being "
        "measured. Every answer (count and sum of each column) is checked against NumPy."
    )


@contextmanager
def loaded(systems: list[System], stream: Stream, options: Options, report: Report) -> Iterator[list[Measured]]:
    """The systems, with the history in them."""
    with ExitStack() as stack:
        measured = [_load(system, stream, options, stack) for system in systems]
        for one in measured:
            report.note(f"{one.system.name}: {one.system.layout}; loaded in {one.load_seconds:.1f} s")
        yield measured


def measure(measured: list[Measured], stream: Stream, asked: list[Question], rounds: int) -> None:
    """Ask all systems in turn, and check every answer."""
    some = asked[:: max(1, len(asked) // 24)]
    for one in measured:
        _check(one.system, stream, ((question.ask(one.feeder.newest), None) for question in some))
    time.sleep(1.0)
    for number in range(rounds):
        for one in measured[number % len(measured) :] + measured[: number % len(measured)]:
            _round(one, asked, number)
    for one in measured:
        _check(one.system, stream, one.answers)


def _systems(options: Options) -> list[System]:
    systems: list[System] = [Tidewheel(), DuckDB(), DuckDB(as_it_came=True), ChDB(for_queries=True)]
    return [system for system in systems if options.wants(system.name.split()[0])]


def _load(system: System, stream: Stream, options: Options, stack: ExitStack) -> Measured:
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-grid-", ignore_cleanup_errors=True))
    stack.callback(system.close)
    system.open(Path(folder))
    start = time.perf_counter()
    system.load(stream.history.batch())
    return Measured(system, Feeder(system, stream), load_seconds=time.perf_counter() - start)


def questions(stream: Stream, each: int, seed: int = 7) -> list[Question]:
    """`each` random positions for every cell. Key ranges are cut by quantiles, so that they hold about the same share of the rows."""
    random = np.random.default_rng(seed)
    keys = np.sort(stream.history.z)
    length = stream.loaded / data.RATE
    made = []
    for share in SELECTIVITIES:
        for name, wanted in WINDOWS:
            seconds = min(wanted, int(0.8 * length))
            for _ in range(each):
                first = int(random.integers(0, int(len(keys) * (1 - share))))
                key = (int(keys[first]), int(keys[min(len(keys) - 1, first + int(share * len(keys)))]))
                start = data.BASE + int(random.integers(0, int((length - seconds) * 1e6))) if name.startswith("historical") else None
                made.append(Question((share, name), key, seconds, start))
    return made


def _round(one: Measured, asked: list[Question], number: int) -> None:
    """The questions of one round under a live stream, after an uncounted one of each cell."""
    each = len(asked) // (len(SELECTIVITIES) * len(WINDOWS))
    mine = [q for i, q in enumerate(asked) if i % each // PER_ROUND == number]
    with one.feeder:
        for question in mine[::PER_ROUND]:
            read(one.system.query(question.ask(one.feeder.newest)))
        for question, pause in zip(mine, np.random.default_rng(number).uniform(0, PAUSE, len(mine)), strict=True):
            time.sleep(pause)
            awake = time.perf_counter() + AWAKE
            while time.perf_counter() < awake:
                pass
            one.put(question)


def _check(system: System, stream: Stream, asked: Iterable[tuple[Ask, tuple[float, ...] | None]]) -> None:
    """Compares answers with NumPy's; asks now where there is no answer yet."""
    for ask, answer in asked:
        got = read(system.query(ask)) if answer is None else answer
        wanted = stream.answer(ask)
        if not same(got, wanted):
            raise AssertionError(f"{system.name} answers {got} to {ask}, right is {wanted}")


def show(report: Report, measured: list[Measured], title: str) -> Shown:
    cells = [(share, name) for share in SELECTIVITIES for name, _ in WINDOWS]
    names = [one.system.name for one in measured]
    peers = [name for name in names if name != "tidewheel"]
    median = {one.system.name: {cell: float(np.median(one.seconds[cell])) * 1e3 for cell in cells} for one in measured}
    slow = {one.system.name: {cell: float(np.percentile(one.seconds[cell], 99)) * 1e3 for cell in cells} for one in measured}
    ratios: dict[Cell, float] = {}
    live_ratios: dict[Cell, float] = {}
    if "tidewheel" in names and peers:
        ratios = {cell: min(median[peer][cell] for peer in peers) / median["tidewheel"][cell] for cell in cells}
        live = [peer for peer in peers if peer != "duckdb"] or peers
        live_ratios = {cell: min(median[peer][cell] for peer in live) / median["tidewheel"][cell] for cell in cells}
    rows = []
    for cell in cells:
        figures = [f"{median[name][cell]:.2f} ({slow[name][cell]:.1f})" for name in names]
        rows.append([f"{cell[0]:.0%}", cell[1], *figures, *(f"{r[cell]:.1f}×" if r else "" for r in (ratios, live_ratios))])
    means = [f"{_geometric(median[name].values()):.2f}" for name in names]
    rows.append(["", "geometric mean", *means, *(f"{_geometric(r.values()):.1f}×" if r else "" for r in (ratios, live_ratios))])
    report.table(title, ["keys", "time", *names, "÷ better peer", "÷ better, none rewritten"], rows, left=2)
    for one in measured:
        busy = one.feeder.busy / max(1, one.feeder.batches) * 1e3
        report.note(f"{one.system.name}: {one.feeder.rate:,.0f} live rows/s went in, {busy:.1f} ms per batch of 5,000")
    result: dict[str, object] = {
        "layouts": {one.system.name: one.system.layout for one in measured},
        "live_rows_per_second": {one.system.name: round(one.feeder.rate) for one in measured},
        "cells": [
            {
                "keys": c[0],
                "time": c[1],
                "median_ms": {n: median[n][c] for n in names},
                "p99_ms": {n: slow[n][c] for n in names},
                "ratio": ratios.get(c),
                "ratio_none_rewritten": live_ratios.get(c),
            }
            for c in cells
        ],
    }
    return Shown(result, min(ratios.values()) if ratios else None, _geometric(ratios.values()) if ratios else None)


def _geometric(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))
