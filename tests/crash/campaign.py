"""The world of the stream campaign: a broker, a driver process with its query, a warehouse with a detached owner; and what befalls them."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pyarrow as pa
import pytest

from tests.crash.campaign_mishaps import ERROR, FOLDER, KILL, OWNER, ROOT, Mishaps, kill_owner, owner_of
from tests.crash.campaign_rows import FILES, missing, wrong, wrong_rejects
from tests.crash.campaign_source import Feed
from tests.servers.children import die_with_parent
from tests.servers.kafka import JARS, Broker
from tidewheel.cluster.attached import AttachedEngine
from tidewheel.cluster.start_owner import summon
from tidewheel.errors import NotFoundError, TidewheelError
from tidewheel.model.query import Query
from tidewheel.testing.probe import Probe, check_of

HERE = Path(__file__).parents[2]
TOPIC, TABLE = "rows", "rows"
PATIENCE = 300.0
"""Seconds in which the stream must go on after whatever happened."""

T = TypeVar("T")


class Driver:
    """The process that runs the query (`stream_driver`), and all that belong to it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._log = folder / "driver.err"
        places = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]  # workers are not started in this folder
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), **environment}
        with self._log.open("ab") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.stream_driver"], cwd=HERE, env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, preexec_fn=die_with_parent,
            )  # fmt: skip

    def ask(self, do: str, patience: float = PATIENCE, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], patience)[0]:
            raise AssertionError(f"the driver does not answer {do!r}: {self._said()}")
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(f"the driver ended: {self._said()}")
        return dict(json.loads(answer))

    def workers(self) -> list[psutil.Process]:
        """The Python processes that Spark started: they run tasks and commits, or start those that do."""
        return [one for one in self._all() if "pyspark.daemon" in _command(one)]

    def _all(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def kill(self) -> list[psutil.Process]:
        """kill -9 of Java, where Spark's driver is, and of the Python process that holds it. Returns the workers: they have to notice."""
        workers, others = [], []
        for one in self._all():
            (workers if "pyspark.daemon" in _command(one) else others).append(one)
        for one in others:
            with suppress(psutil.Error):
                one.kill()
        self._process.kill()
        self._process.communicate()
        return workers

    def end(self) -> None:
        """Stop the query, then everything."""
        children = self._all()
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate(timeout=60)
        self._process.kill()
        self._process.wait()
        end_all(children)

    def _said(self) -> str:
        return self._log.read_text("utf-8", "replace")[-4000:]


def end_all(processes: list[psutil.Process]) -> None:
    """They should be ending; those that do not are killed."""
    _, alive = psutil.wait_procs(processes, 10)
    for one in alive:
        with suppress(psutil.Error):
            one.kill()


class Campaign:
    """Everything that takes part. `begin` first, `end` always."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.root = folder / "wh"
        self.checkpoint = folder / "checkpoint"
        self._folder = folder
        self._seed = seed
        self._engine: AttachedEngine | None = None
        self._broker: Broker | None = None
        self._driver: Driver | None = None
        self._feed: Feed | None = None
        self._cut: dict[str, int] = {}
        self._orphans: list[psutil.Process] = []
        """Workers whose driver was killed."""
        self.failures: list[str] = []
        """Why the query failed, each time."""
        (folder / "mishaps").mkdir()
        self.mishaps = Mishaps(str(folder / "mishaps"), str(self.root))

    @property
    def driver(self) -> Driver:
        assert self._driver is not None
        return self._driver

    @property
    def feed(self) -> Feed:
        assert self._feed is not None
        return self._feed

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    # ---- beginning and end ------------------------------------------------------------------------------

    def begin(self) -> None:
        self._start_driver()
        known = self.driver.ask("jars", patience=300, packages=list(JARS))
        if "missing" in known:
            pytest.skip(f"a broker's jars cannot be had here: {known['missing']}")
        jars = [Path(one) for one in known["jars"]]
        spark = next(Path(one) for one in _spark_jars() if one.name.startswith("scala-library"))
        self._broker = Broker([*jars, spark], self._folder / "kafka", f"{known['java']}/bin/java").start(PATIENCE)
        self._feed = Feed(self._broker.address, TOPIC, 2, self._folder / "files", self._seed)
        self.start_query()
        self.wait_for_progress()

    def _start_driver(self) -> None:
        self._driver = Driver(self._folder, {FOLDER: self.mishaps.folder, ROOT: self.mishaps.root})
        self._told = 0

    def start_query(self) -> None:
        where = {
            "table": str(self.root / TABLE), "checkpoint": str(self.checkpoint), "servers": self.broker.address, "topic": TOPIC,
            "folder": str(self._folder / "files"),
        }  # fmt: skip
        self.driver.ask("start", settings=where, cut=self._cut)

    def end(self) -> None:
        if self._engine is not None:
            self._engine.close()
        if self._feed is not None:
            self._feed.abandon()
        if self._driver is not None:
            self._driver.end()
        if self._broker is not None:
            self._broker.stop(kill=True)
        end_all(self._orphans)
        pid = owner_of(self.root)
        kill_owner(self.root)
        if pid is not None:
            with suppress(psutil.Error):
                psutil.Process(pid).wait(10)

    def finish(self) -> dict[int, int]:
        """Stop producing, wait until the table has everything, and end the stream in an orderly way. Returns what was produced."""
        produced = self.feed.finish()
        give_up = time.monotonic() + PATIENCE
        while lost := missing(self.rows(), produced):
            if time.monotonic() > give_up:
                raise AssertionError(f"rows are lost: { ({part: (len(of), of[:5]) for part, of in lost.items()}) }; {self.failures[-3:]}")
            time.sleep(0.2)
            self._look()
        self.driver.ask("stop")
        assert not (bad := self.fault(complete=True)), bad
        report = self._with(check_of)
        assert report.ok, report
        return produced

    # ---- looking ----------------------------------------------------------------------------------------

    def _with(self, ask: Callable[[AttachedEngine], T]) -> T:
        """Ask the owner, whoever it is by now. This process never becomes it: it would be killed."""
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                if self._engine is None or self._engine.lost:
                    if self._engine is not None:
                        self._engine.close()
                    self._engine = summon(self.root, idle=20.0)
                return ask(self._engine)
            except TidewheelError as e:
                if not e.retryable or time.monotonic() > give_up:
                    raise
                time.sleep(0.02)

    def table(self, ask: Callable[[Probe], T]) -> T:
        return self._with(lambda engine: ask(Probe(engine.table(TABLE))))

    def rows(self) -> pa.Table:
        return self.table(lambda table: table.query().to_arrow())

    def flush(self) -> None:
        self.table(lambda table: table.flush())

    def reached(self) -> dict[int, int]:
        """The last row of each part."""
        try:
            found = self.table(lambda table: table.query(Query(aggregate={"last": "max(seq)"}, group_by=["part"])).to_arrow())
        except NotFoundError:
            return {}
        last = dict(zip(found["part"].to_pylist(), found["last"].to_pylist(), strict=True))
        self.feed.seen(sum(last.values()))
        return last

    def fault(self, complete: bool = False) -> str:
        """What is wrong with the table, if anything."""
        rows, rejects = self.rows(), self.table(lambda table: table.rejects().to_arrow())
        produced = self.feed.produced  # afterwards: what is in the table was produced before
        return wrong(rows, produced) or wrong_rejects(rejects, produced, complete)

    def wait_for_progress(self) -> float:
        """Returns, with the seconds it took, when a row is visible that was produced after this call, from Kafka and from a file."""
        before = self.feed.produced
        began = time.monotonic()
        want = {"kafka", "file"}
        while want:
            assert self.feed.failure is None, self.feed.failure
            now = self.reached()
            want -= {"file" if part == FILES else "kafka" for part, last in now.items() if last >= before.get(part, 0)}
            if time.monotonic() - began > PATIENCE:
                raise AssertionError(
                    f"the stream stands still, seen {now} of {self.feed.produced}; {self.failures[-3:]}, {self.driver.ask('state')}"
                )
            time.sleep(0.05)
        self._look()
        return time.monotonic() - began

    def _look(self) -> None:
        """Learn of failures of the query."""
        known = self.driver.ask("state")["failures"]
        self.failures += known[self._told :]
        self._told = len(known)

    # ---- what befalls them ------------------------------------------------------------------------------

    def kill_worker(self) -> str:
        if self.rng.random() < 0.5:
            return self._mishap(self.rng.choice(["task-begins", "task-middle", "task-ends", "commit-begins", "commit-ends"]), KILL)
        for _ in range(self.rng.randrange(1, 4)):
            workers = self.driver.workers()
            if workers:
                with suppress(psutil.Error):
                    self.rng.choice(workers).kill()
            time.sleep(self.rng.random() * 0.3)
        return "any"

    def kill_owner(self) -> str:
        if self.rng.random() < 0.6:
            return self._mishap(self.rng.choice(["task-middle", "task-ends", "commit-begins", "committing", "commit-ends"]), OWNER)
        give_up = time.monotonic() + 20
        while kill_owner(self.root) is None and time.monotonic() < give_up:
            time.sleep(0.02)
        return "at any time"

    def kill_driver(self) -> str:
        time.sleep(self.rng.random())
        self._orphans += self.driver.kill()
        self._start_driver()
        self.start_query()
        return ""

    def task_error(self) -> str:
        return self._mishap(self.rng.choice(["task-begins", "task-middle", "task-ends"]), ERROR)

    def commit_error(self) -> str:
        return self._mishap(self.rng.choice(["commit-begins", "commit-ends"]), ERROR)

    def kill_broker(self) -> str:
        self.broker.stop(kill=True)
        time.sleep(self.rng.random())
        self.broker.start(PATIENCE)
        return ""

    def replay(self) -> str:
        """Let Spark forget that it committed the last batch, and have it cut differently when it comes again."""
        self.driver.ask("stop")
        commits, offsets = (_numbered(self.checkpoint / name) for name in ("commits", "offsets"))
        stream = json.loads((self.checkpoint / "metadata").read_text())["id"]
        reached = self.table(lambda table: table.last_batch(stream))
        assert reached is not None
        last = max(commits)
        later = [n for n in offsets if n > last]
        if later and reached > last:
            # The table has a batch of which Spark has only the plan. Whoever deletes that plan makes another batch of that number.
            what = f"batch {max(later)}, committed but unknown to Spark"
        else:
            for number in later:
                _forget(self.checkpoint / "offsets", number)
            _forget(self.checkpoint / "commits", last)
            what = f"batch {last}"
        self._cut = self._another_cut()
        self.start_query()
        return f"{what}, cut {self._cut}"

    def cut_differently(self) -> str:
        if self.rng.random() < 0.4 and self.feed.partitions < 8:
            return f"{self.feed.grow()} partitions of the topic"
        self.driver.ask("stop")
        self._cut = self._another_cut()
        self.start_query()
        return f"cut {self._cut}"

    def _another_cut(self) -> dict[str, int]:
        return {
            "per_topic": self.rng.choice([0, 1, 3, 5]),
            "file_bytes": self.rng.choice([1 << 27, 1 << 14, 1 << 12]),
            "slices": self.rng.choice([0, 0, 1, 3]),
        }

    def _mishap(self, place: str, what: str) -> str:
        planted = self.mishaps.plant(place, what)
        give_up = time.monotonic() + PATIENCE
        while planted.exists():
            assert time.monotonic() < give_up, f"nobody came by {place}"
            time.sleep(0.01)
        return place


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _spark_jars() -> list[Path]:
    import pyspark

    return list((Path(pyspark.__file__).parent / "jars").glob("*.jar"))


def _numbered(folder: Path) -> list[int]:
    return sorted(int(one.name) for one in folder.iterdir() if one.name.isdigit())


def _forget(folder: Path, number: int) -> None:
    (folder / str(number)).unlink()
    (folder / f".{number}.crc").unlink(missing_ok=True)
