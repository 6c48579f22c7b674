"""The campaign of damage for logs; see corruption.py.

    python -m tests.crash.log_corruption make FOLDER small|large     a process that inserts and ends as if it were killed
    python -m tests.crash.log_corruption small|large FOLDER SEED     what is left of it, damaged and opened

What may come of damage: the warehouse is refused with CorruptionError; or, if the end of the log is missing as after a
crash, it holds a beginning of what was acknowledged, and the recovery says that something was cut off.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidewheel as tw
from tests.conftest import SOAK
from tests.crash.corruption import STEP, Campaign, ways
from tidewheel.env.local_files import LocalFiles
from tidewheel.model.records import TableRecord
from tidewheel.testing.abandon import abandon
from tidewheel.testing.probe import Probe
from tidewheel.write import accept, arrow_input, log
from tidewheel.write.log_format import batch_of, read_segment
from tidewheel.write.log_reader import Covered, read_log

PLAIN = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int32())])
TEXT = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("tags", pa.list_(pa.string()))])
COLOURS = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("colour", pa.dictionary(pa.int32(), pa.string()))])
SCHEMAS = {"plain": PLAIN, "text": TEXT, "colours": COLOURS}

Rows = list[dict[str, Any]]


def batch(table: str, number: int, rows: int) -> pa.Table:
    """Batch n of a table; no two rows are the same."""
    n = [number * 1000 + i for i in range(rows)]
    times = pa.array([i * 1_000_000 for i in n], pa.timestamp("us"))
    if table == "plain":
        return pa.table([pa.array([i * 37 % 101 for i in n]), times, pa.array(n, pa.int32())], schema=PLAIN)
    if table == "text":
        return pa.table([[f"key {i * 37 % 101}" for i in n], times, pa.array([[f"t{i}"] * (i % 3) for i in n], TEXT[2].type)], schema=TEXT)
    colours = pa.array([f"c{i % 5}" for i in n]).dictionary_encode()
    return pa.table([pa.array([i * 37 % 101 for i in n]), times, colours], schema=COLOURS)


def sizes(scale: str) -> list[int]:
    """Rows of each batch."""
    return [2, 1] if scale == "small" else [5 + i * 7 % 40 for i in range(60)] + [130]


def make(root: Path, scale: str) -> None:
    if scale == "large":
        log.SEGMENT_BYTES = 8000
        accept.MOST_ROWS = arrow_input.MOST_ROWS = 50  # type: ignore[attr-defined]  # then the last batch is a group of records
    wh = tw.open(root, settings=tw.Settings(durability="process", indexing_servers=1 if scale == "small" else 2))
    tables = {name: wh.create_table(name, schema, time="ts", key="k") for name, schema in SCHEMAS.items()}
    for number, rows in enumerate(sizes(scale)):
        for name, table in tables.items():
            table.insert(batch(name, number, rows), package=f"p{number}" if number % 2 else None)
    os._exit(0)


class DamagedFiles(LocalFiles):
    """A table's log in memory, damaged in one place. `boot`: another says that the machine was started again since."""

    def __init__(self, root: Path, content: dict[str, bytes], boot: str = "") -> None:
        super().__init__(root)
        self.content = content
        if boot:
            self.disk.boot = lambda: boot  # type: ignore[method-assign]

    def list(self, folder: str) -> Iterator[str]:
        return iter(self.content)

    def size(self, name: str) -> int:
        return len(self.content[name])

    def map(self, name: str, size: int, temporary: bool = False) -> pa.Buffer:
        return pa.py_buffer(self.content[name])


class Target:
    """What a killed process left of one table: its segments, and the batches it was told are safe."""

    def __init__(self, root: Path, name: str, scale: str) -> None:
        self.root = root
        self.name = name
        self.acknowledged = [batch(name, number, rows).to_pylist() for number, rows in enumerate(sizes(scale))]
        copy = shutil.copytree(root, root.with_name("look"), ignore=shutil.ignore_patterns("owner"))
        wh = tw.open(copy)
        local = Probe(wh.table(name))
        self.record: TableRecord = local.record
        self.widths = log.fixed_widths(local.publisher.shape) or ()
        abandon(wh)
        shutil.rmtree(copy)
        self.segments = {str(p.relative_to(root)): p.read_bytes() for p in sorted((root / "logs" / str(self.record.id)).iterdir())}
        self.sums = list(accumulate(len(content) for content in self.segments.values()))

    @property
    def size(self) -> int:
        return self.sums[-1]

    def changed(self, at: int, content: bytes) -> dict[str, bytes]:
        """The log with some bytes exchanged; counted over all segments."""
        out, start = dict(self.segments), 0
        for name, old in self.segments.items():
            lo, hi = max(at - start, 0), min(at + len(content) - start, len(old))
            if lo < hi:
                out[name] = old[:lo] + content[lo + start - at : hi + start - at] + old[hi:]
            start += len(old)
        return out

    def cut(self, at: int) -> dict[str, bytes]:
        """The log as if its last bytes had never been written."""
        out, start = {}, 0
        for name, old in self.segments.items():
            if at > start or not out:
                out[name] = old[: max(0, at - start)]
            start += len(old)
        return out

    def borders(self) -> set[int]:
        """Where batches end: a cut there looks as if nothing had ever followed."""
        found, start = set(), 0
        for content in self.segments.values():
            segment = read_segment(pa.py_buffer(content), self.widths)
            found |= {start + r.end for r in segment.records if not r.more}
            found.add(start)
            if segment.records:
                found.add(start + segment.records[0].offset)
            start += len(content)
        return found

    def read(self, content: dict[str, bytes], boot: str = "", skip: bool = False) -> tuple[list[Rows], int, list[str]]:
        """The batches in a log, how many bytes were cut off, and what was skipped."""
        found = read_log(DamagedFiles(self.root, content, boot), self.record, self.widths, Covered(()), skip)
        batches = []
        for group in found.batches:
            parts = [batch_of(record, self.record.spec.schema, self.widths) for record in group]
            for part in parts:
                part.validate(full=True)
            batches.append([row for part in parts for row in part.to_pylist()])
        return batches, found.cut_bytes, found.damage

    def open(self, content: dict[str, bytes]) -> tuple[list[Rows], int, list[str]]:
        """The same through the front door: a copy of the whole folder is opened."""
        copy = self.root.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.root, copy, ignore=shutil.ignore_patterns("owner"))  # its socket cannot be copied
        for name in self.segments:
            (copy / name).unlink()
        for name, data in content.items():
            (copy / name).write_bytes(data)
        wh = tw.open(copy)
        try:
            rows = wh.table(self.name).query(order_by="ts").to_arrow().to_pylist()
            others = [n for n in SCHEMAS if n != self.name]
            assert all(wh.table(n).rows == sum(map(len, self.acknowledged)) for n in others), "another table changed"
            recovery = {t.table: t for t in wh.recovery.tables}.get(self.name)
        finally:
            abandon(wh)
        batches = []
        for want in self.acknowledged:
            if rows:
                batches.append(rows[: len(want)])
                rows = rows[len(want) :]
        return batches + ([rows] if rows else []), recovery.cut_bytes if recovery else 0, list(recovery.damage) if recovery else []


class LogCampaign(Campaign):
    def __init__(self, folder: Path, target: Target) -> None:
        super().__init__(folder)
        self.target = target

    def whole(self, what: str, read: Callable[[], tuple[list[Rows], int, list[str]]]) -> bool:
        """Bytes were changed: nothing is missing, or it was refused."""
        return self.attempt(what, read, lambda found: found[0] == self.target.acknowledged and not found[2])

    def beginning(self, what: str, read: Callable[[], tuple[list[Rows], int, list[str]]], silent: bool) -> bool:
        """The end is missing: what is there came first, and what is not was reported, unless it left no trace."""

        def check(found: tuple[list[Rows], int, list[str]]) -> bool:
            there, cut, _ = found
            return there == self.target.acknowledged[: len(there)] and (len(there) == len(self.target.acknowledged) or cut > 0 or silent)

        return self.attempt(what, read, check)

    def parts(self, what: str, read: Callable[[], tuple[list[Rows], int, list[str]]]) -> bool:
        """Damage is to be skipped: whole batches, in order, each once, and if any is missing that is said."""

        def check(found: tuple[list[Rows], int, list[str]]) -> bool:
            there, cut, damage = found
            known = iter(self.target.acknowledged)
            return all(one in known for one in there) and (there == self.target.acknowledged or cut > 0 or bool(damage))

        return self.attempt(what, read, check)


def small(folder: Path, seed: int) -> None:
    """Every byte of three small logs; every byte of the first through the front door. If this is no soak, every sixth, and a few."""
    rng = random.Random(seed)
    root = left_behind(folder, "small")
    campaign = Campaign(folder)
    opened = 0
    for name in SCHEMAS:
        one = LogCampaign(folder, Target(root, name, "small"))
        one.outcomes, one.wrong, target = campaign.outcomes, campaign.wrong, one.target
        whole = b"".join(target.segments.values())
        borders = target.borders()
        for at in range(seed % STEP, target.size, STEP):
            for by, first in ways(at):
                content = target.changed(at, bytes([whole[at] ^ by]))
                what = f"{name}: byte {at} of {target.size} ^ {by:#x}"
                one.whole(what, lambda c=content, t=target: t.read(c))
                if first:
                    one.parts(f"{what}, skipped", lambda c=content, t=target: t.read(c, skip=True))
                    one.beginning(f"{what}, after a restart", lambda c=content, t=target: t.read(c, boot="another"), silent=False)
                    if (name == "plain" and (SOAK or rng.random() < 0.3)) or rng.random() < 0.03:
                        opened += 1
                        one.whole(f"{what}, opened", lambda c=content, t=target: t.open(c))
            cut = target.cut(at)
            one.beginning(f"{name}: cut at {at} of {target.size}", lambda c=cut, t=target: t.read(c), at in borders)
        for at in (*rng.sample(range(target.size), 12), *sorted(borders)[:3]):
            opened += 1
            cut = target.cut(at)
            one.beginning(f"{name}: cut at {at} of {target.size}, opened", lambda c=cut, t=target: t.open(c), at in borders)
    campaign.report(opened=opened)


def large(folder: Path, seed: int) -> None:
    """Samples of logs of many segments with lanes, packages and groups of records."""
    rng = random.Random(seed)
    root = left_behind(folder, "large")
    campaign = Campaign(folder)
    opened = segments = 0
    for name in SCHEMAS:
        one = LogCampaign(folder, Target(root, name, "large"))
        one.outcomes, one.wrong, target = campaign.outcomes, campaign.wrong, one.target
        segments += len(target.segments)
        whole = b"".join(target.segments.values())
        borders = target.borders()
        for number in range(120 if SOAK else 30):
            at = rng.randrange(target.size)
            length = rng.choice([1, 1, 1, 8, 512])
            content = bytes(b ^ rng.randrange(1, 256) for b in whole[at : at + length])
            bad = target.changed(at, content)
            what = f"{name}: {length} bytes at {at} of {target.size}"
            one.whole(what, lambda c=bad, t=target: t.read(c))
            one.parts(f"{what}, skipped", lambda c=bad, t=target: t.read(c, skip=True))
            one.beginning(f"{what}, after a restart", lambda c=bad, t=target: t.read(c, boot="another"), silent=False)
            cut = target.cut(at)
            one.beginning(f"{name}: cut at {at} of {target.size}", lambda c=cut, t=target: t.read(c), at in borders)
            if number % 12 == 0:
                opened += 2
                one.whole(f"{what}, opened", lambda c=bad, t=target: t.open(c))
                one.beginning(f"{name}: cut at {at} of {target.size}, opened", lambda c=cut, t=target: t.open(c), at in borders)
        for gone in list(target.segments)[1:-1]:
            bad = {n: c for n, c in target.segments.items() if n != gone}
            one.beginning(f"{name}: without {gone}", lambda c=bad, t=target: t.read(c), silent=False)
    campaign.report(opened=opened, segments=segments)


def left_behind(folder: Path, scale: str) -> Path:
    """The folder of a warehouse whose owner was killed."""
    root = folder / "left"
    subprocess.run([sys.executable, "-m", "tests.crash.log_corruption", "make", str(root), scale], check=True)
    return root


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), sys.argv[3])
    else:
        {"small": small, "large": large}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
