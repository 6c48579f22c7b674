"""For all tests: Hypothesis profiles, no test may leave threads or open warehouses behind, and how the workers share the files."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Verbosity, settings

from tests.hand_clock import HandClock, hand_clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAK = os.environ.get("TIDEWHEEL_SOAK") == "1"

if not SOAK:
    # Most Spark processes here live for seconds: Java's second compiler and its large collector take half of their time and never pay.
    # (In the environment, because a folder of settings would stand on the class path, and Java's archive of classes is for one path alone.)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The first example compiles kernels, so no deadline; a state machine that writes files is slow, and should be.
settings.register_profile("ci", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck), verbosity=Verbosity.normal)
settings.register_profile("soak", parent=settings.get_profile("ci"), max_examples=20 * settings.get_profile("ci").max_examples)
settings.load_profile("soak" if SOAK else "ci")


HERE = Path(__file__).parent
_USES_SPARK = re.compile(r"\(.*\bspark: SparkSession\b|getfixturevalue\(\"spark\"\)")
SPARK_FILES = {
    str(f.relative_to(HERE.parent))
    for f in HERE.rglob("test_*.py")
    if _USES_SPARK.search(text := f.read_text()) and "def spark(" not in text
}
"""They share one session, which belongs to a process: one worker has all of them, and no other starts a Java for them."""

LONGEST = ("test_stream_campaign", "test_spark_session", "test_faults", "test_corruption", "test_demo", "test_kill", "test_sql_conformance")
"""Begun before the others, so that the workers end together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def turn(item: pytest.Item) -> int:
        if item.nodeid.partition("::")[0] in SPARK_FILES:
            return -1
        return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class OneSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return "Spark" if file in SPARK_FILES else file

    return OneSpark(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def _loaded() -> None:
    """What is loaded when it is first needed takes seconds on a busy machine, and many tests bound how long something may take."""
    for module in ("catalog.sql", "index.kernels", "model.text.kernels", "read.kernels", "read.texts.kernels", "write.kernels"):
        importlib.import_module(f"tidewheel.{module}")


def examples(n: int) -> int:
    """So many examples, twenty times as many in a soak."""
    return 20 * n if SOAK else n


class Voice:
    """How a campaign that runs for minutes or hours says what it does: what it prints is lost if it passes, and if it is killed."""

    def __init__(self, request: pytest.FixtureRequest, record: Callable[[str, object], None]) -> None:
        self._capture = request.config.pluginmanager.getplugin("capturemanager")
        self._record = record

    def now(self, line: str) -> None:
        with self._capture.global_and_fixture_disabled():
            print(f"\n{line}", file=sys.stderr, flush=True)

    def at_the_end(self, line: str) -> None:
        """Under pytest's summary, whichever worker says it."""
        self._record(TOLD, line)


@pytest.fixture
def voice(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Voice:
    return Voice(request, record_property)


TOLD = "campaign"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind)]
    for one in reports:
        for name, line in getattr(one, "user_properties", []):
            if name == TOLD and one.when == "call":
                terminalreporter.write_line(f"{one.nodeid}: {line}")


def check_nothing_left() -> None:
    """Fails if a thread of ours or an open warehouse is left; then closes it, so that the next test starts clean."""
    current_engine = sys.modules.get("tidewheel.cluster.current_engine")
    left = [str(root) for root in current_engine._engines] if current_engine is not None else []
    if current_engine is not None and left:
        current_engine._leave_all()
    monitors = sys.modules.get("tidewheel.sql.monitor")
    linger = monitors._LINGER if monitors is not None else 0.0
    if monitors is not None:
        monitors._LINGER = 0.0  # its thread ends by itself when no statement comes: no test has to wait for that
    give_up = time.monotonic() + 30
    while (threads := [t.name for t in threading.enumerate() if t.name.startswith("tidewheel")]) and time.monotonic() < give_up:
        time.sleep(0.01)
    if monitors is not None:
        monitors._LINGER = linger
    assert not left, f"warehouses left open: {left}"
    assert not threads, f"threads left running: {threads}"


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """After each test. Modules whose tests share a warehouse look once, when all of them are done."""
    yield
    check_nothing_left()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works: the workers of a parallel test run ignore it.

    Python drops one that comes while an object is freed, and says so: nobody can catch it there.
    """
    before, said = signal.signal(signal.SIGINT, signal.default_int_handler), sys.unraisablehook
    sys.unraisablehook = lambda dropped: None if issubclass(dropped.exc_type, KeyboardInterrupt) else said(dropped)
    yield
    sys.unraisablehook = said
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """The time of queries and statements, for tests of their limits."""
    return hand_clock(monkeypatch)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The one session of this process."""
    from tests.integration.spark_session import shared_session

    with shared_session() as session:
        yield session
