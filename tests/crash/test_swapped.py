"""Another warehouse takes the place of the one that is being opened, and gives it back, at any two moments: both keep all their rows.

Files are found by name, and a name can lead to another folder from one step to the next: to a catalog that knows none of our chunks, or to
a log of the same name with other rows. A trace function swaps the folders where one function of ours begins and back where another does, or
between two lines and two later ones, drawn from all that opening, an insert, a flush and closing pass. The seed is printed;
TIDEWHEEL_SEED=n draws the same lines again.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.errors import TidewheelError
from tidewheel.model.schema import make_spec
from tidewheel.settings import Settings
from tidewheel.testing.abandon import abandon
from tidewheel.testing.probe import Probe

SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
OURS = os.path.dirname(tw.__file__) + os.sep
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
SPEC = make_spec("t", SCHEMA, time="ts", key="id")
NEW = 99


def rows(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids), pa.array(ids, pa.timestamp("us"))], schema=SCHEMA)


def make(root: Path, first: int) -> set[int]:
    """A warehouse whose owner was killed: one row is in a chunk, one in the log. All but the chunks have the same names in each."""
    engine = OwnedEngine(root, Settings(), listen=False)
    Probe(engine.create(SPEC, "error")).insert(rows(first))
    engine.close()
    engine = OwnedEngine(root, Settings(), listen=False)
    Probe(engine.table("t")).insert(rows(first + 1))
    abandon(engine)
    return {first, first + 1}


class Swaps:
    """Two folders that take each other's place at some moments of a thread: lines of our code, by number, or functions, by name."""

    def __init__(self, ours: Path, theirs: Path, moments: Sequence[int | str]) -> None:
        self.ours, self.theirs, self.moments = ours, theirs, list(moments)
        self.passed = 0
        self.seen: list[str] = []
        """Where they were swapped."""

    def during(self, work: Callable[[], None]) -> None:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            work()
        finally:
            sys.settrace(before)
        if len(self.seen) % 2:
            self._swap()

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        self._pass(frame, frame.f_code.co_qualname)
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.passed += 1
            self._pass(frame, self.passed)
        return self._line

    def _pass(self, frame: FrameType, moment: int | str) -> None:
        if self.moments and self.moments[0] == moment:
            self.moments.pop(0)
            self.seen.append(f"{os.path.relpath(frame.f_code.co_filename, OURS)}:{frame.f_lineno}")
            self._swap()

    def _swap(self) -> None:
        aside = self.ours.with_name("aside")
        self.ours.rename(aside)
        self.theirs.rename(self.ours)
        aside.rename(self.theirs)


def use(root: Path, acknowledged: set[int]) -> None:
    """What it may raise is said to its user; what it says is done must be done."""
    try:
        engine = OwnedEngine(root, Settings(), listen=False)
    except (TidewheelError, OSError):
        return
    with suppress(TidewheelError):
        table = Probe(engine.table("t"))
        table.insert(rows(NEW))
        acknowledged.add(NEW)
        table.flush()
    with suppress(TidewheelError):
        engine.close()


def found(root: Path) -> list[int]:
    engine = OwnedEngine(root, Settings(), listen=False)
    try:
        return sorted(Probe(engine.table("t")).query().to_arrow()["id"].to_pylist())
    finally:
        engine.close()


class Cases:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = {name: make(folder / "made" / name, first) for name, first in (("ours", 1), ("theirs", 11))}
        self.number = 0

    def check(self, *moments: int | str) -> Swaps:
        self.number += 1
        place = self.folder / f"case-{self.number}"
        shutil.copytree(self.folder / "made", place)
        swaps, acknowledged = Swaps(place / "ours", place / "theirs", moments), set[int]()
        swaps.during(lambda: use(place / "ours", acknowledged))
        there = {name: found(place / name) for name in self.kept}
        for name, ids in there.items():
            assert set(ids) - {NEW} == self.kept[name], f"{name} has {ids}: swapped at {swaps.seen}"
            assert len(ids) == len(set(ids)), f"{name} has {ids}: swapped at {swaps.seen}"
        assert acknowledged <= {*there["ours"], *there["theirs"]}, f"an acknowledged row is lost: swapped at {swaps.seen}"
        shutil.rmtree(place)
        return swaps


@pytest.mark.parametrize(
    "moments",
    [
        ("OwnedEngine.__init__", "LocalEngine._sweep"),  # the catalog of the other knows none of our chunks
        ("open_light", "Tenure.__init__"),
        ("open_light", "LocalEngine._sweep"),
        ("segment_names", "batch_of"),  # the log of the other has the name of ours
        ("check_catalog", "Flusher.start"),
        ("Log._writable", "Log.append"),
        ("LocalEngine.close",),
    ],
    ids=" ".join,
)
def test_where_it_matters(tmp_path: Path, moments: tuple[str, ...]) -> None:
    swaps = Cases(tmp_path).check(*moments)
    assert swaps.seen


def test_anywhere(tmp_path: Path) -> None:
    print(f"TIDEWHEEL_SEED={SEED}")
    rng, cases = random.Random(SEED), Cases(tmp_path)
    lines = cases.check().passed
    for _ in range(examples(5)):
        first = rng.randrange(1, lines)
        cases.check(*((first, first + 1 + int(rng.expovariate(1 / 200))) if rng.random() < 0.8 else (first,)))
