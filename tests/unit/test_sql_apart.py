"""Statements in a process apart: they end within their limits, answer as all others do, and leave no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK, check_nothing_left
from tests.hostile_statements import AGGREGATES, HOSTILE, WHERE, measured
from tidewheel.env.workers import workers
from tidewheel.read import apart
from tidewheel.read.apart import Wrong
from tidewheel.sql.answer import _taken as _taken_of
from tidewheel.sql.apart_process import wrong
from tidewheel.sql.database import Session
from tidewheel.sql.monitor import Monitor
from tidewheel.sql.statement import Statement, parse, remembered

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])
MOST = 200 << 20
SECONDS = 3.0 if SOAK else 0.5

SAMPLE = (
    "replace",
    "levenshtein",
    "flatten",
    "bitstring",
    "a recursive text",
    "names of names",
    "stars of stars",
    "a long insert",
    "explain",
)
"""Of each kind one; the soak asks them all."""


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path_factory.mktemp("apart")) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(pa.table([pa.array(range(1000)), pa.array(range(1000), pa.timestamp("us")), pa.array([1.0] * 1000)], schema=SCHEMA))
        yield wh
    check_nothing_left()
    assert not _children()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


def _children() -> list[str]:
    """Processes of this one, those that ended and were not waited for too."""
    give_up = time.monotonic() + 30
    while True:
        found = [Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task")]
        left = [pid for line in found for pid in line.split() if b"apart_start" in _command(pid) or not _command(pid)]
        if not left or time.monotonic() > give_up:
            return left
        time.sleep(0.05)


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"gone"


_taken: list[tuple[float, str]] = []


def _keeps_to_its_limits(name: str, ask: object) -> None:
    with measured(SECONDS) as peak:
        try:
            ask()  # type: ignore[operator]
        except tw.LimitError as e:
            assert "inf" not in str(e)
    _taken.append((peak.seconds, f"{peak.seconds:6.2f} s ({peak.late:.2f} of it for want of a core) {peak.bytes >> 20:6} MB  {name}"))
    assert peak.bytes <= 2 * MOST + (200 << 20), f"{peak.bytes >> 20} MB"
    assert peak.seconds < SECONDS + 2 + peak.late, f"{peak.seconds} s, of which {peak.late} s for want of a core"


@pytest.mark.parametrize("name", HOSTILE if SOAK else SAMPLE)
def test_a_statement_keeps_to_its_limits(wh: tw.Warehouse, name: str) -> None:
    _keeps_to_its_limits(name, lambda: wh.sql(HOSTILE[name], timeout=SECONDS, max_bytes=MOST).to_arrow())
    assert wh.table("t").rows == 1000


@pytest.mark.parametrize("name", WHERE if SOAK else ("replace", "cases"))
def test_a_condition_keeps_to_its_limits(wh: tw.Warehouse, name: str) -> None:
    _keeps_to_its_limits(f"where: {name}", lambda: wh.table("t").query(where=WHERE[name], timeout=SECONDS, max_bytes=MOST).to_arrow())


@pytest.mark.parametrize("name", AGGREGATES if SOAK else ("replace",))
def test_an_aggregate_keeps_to_its_limits(wh: tw.Warehouse, name: str) -> None:
    asked = {"x": AGGREGATES[name]}
    _keeps_to_its_limits(f"aggregate: {name}", lambda: wh.table("t").query(aggregate=asked, timeout=SECONDS, max_bytes=MOST).to_arrow())


def test_there_are_enough_of_them() -> None:
    assert len(HOSTILE) >= 60
    print(f"of {len(_taken)} under a timeout of {SECONDS:g} s and {MOST >> 20} MB, those that took longest:")
    print("\n".join(line for _, line in sorted(_taken, reverse=True)[:20]))


IN_PROCESS = [
    "SELECT * FROM t WHERE v > 1 AND id % 2 = 0 ORDER BY id LIMIT 10",
    "SELECT date_trunc('hour', ts) AS h, count(*), avg(v), median(v) FROM t GROUP BY h ORDER BY h",
    "SELECT upper('a' || id), round(v::DOUBLE, 2), CASE WHEN v > 1 THEN 'x' END FROM t WHERE 'x' LIKE 'a%'",
    "SELECT a.id, row_number() OVER (PARTITION BY a.id ORDER BY b.ts) FROM t a JOIN t b USING (id)",
    "WITH x AS (SELECT id, sum(v) AS s FROM t GROUP BY id) SELECT * FROM x a JOIN x b USING (id)",
    "SELECT count(*) FROM t WHERE id IN (SELECT i FROM range(10) q(i)) AND ts < now()",
    "SELECT v, v + 1 AS w, w + 1 AS x FROM t",
    "SELECT replace(id::VARCHAR, '1', ''), regexp_matches(id::VARCHAR, '^1') FROM t",
]


@pytest.mark.parametrize("text", IN_PROCESS, ids=lambda text: text[:40])
def test_ordinary_statements_stay_in_this_process(text: str) -> None:
    statement = parse(text)
    assert isinstance(statement, Statement) and statement.bounded


@pytest.mark.parametrize("name", [name for name, text in HOSTILE.items() if len(text) < 60_000 and not text.startswith("INSERT")])
def test_hostile_statements_do_not_or_can_be_interrupted(name: str) -> None:
    """What may run here looks at the clock between two vectors: scans, joins, sorts, groups."""
    statement = parse(HOSTILE[name])
    assert isinstance(statement, Statement)
    here = {
        "range",
        "generate_series",
        "a cross join",
        "an ordered cross join",
        "a join of everything",
        "a cube",
        "quantile",
        "median",
        "decimals",
        "the middle of each frame",
    }
    assert statement.bounded == (name in here)


# ---- as all others --------------------------------------------------------------------------------------------


def test_it_answers_as_all_others_do(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same statements, here and apart: rows, names, types, errors, plans."""
    texts = [
        ("SELECT id, ts, v, [id] AS l, {'a': v} AS s FROM t WHERE id BETWEEN 5 AND 900 ORDER BY id", None),
        ("SELECT a.id % 7 AS k, count(*) AS n, max(b.ts) AS m FROM t a JOIN t b ON a.id = b.id + 1 GROUP BY k ORDER BY k", None),
        ("SELECT * FROM t WHERE id = ? OR id = ? ORDER BY ALL", [3, 5]),
        ("SELECT name, rows FROM system.tables ORDER BY name", None),
        ("SELECT count(*) FROM t WHERE id > $low", {"low": 500}),
        ("SELECT idd FROM t", None),
        ("SELECT id FROM t WHERE id = 'x'", None),
        ("SELECT sum(id FROM t", None),
        ("SELECT nothing(id) FROM t", None),
        ("SELECT (id - 1000)::UTINYINT FROM t", None),
        ("SELECT id FROM t WHERE id = ?", None),
        ("SELECT error('é' || id) FROM t", None),
    ]

    def answer(text: str, given: object) -> object:
        try:
            result = wh.sql(text, given)  # type: ignore[arg-type]
            return result.to_arrow(), result.stats.rows_returned, result.stats.rows_scanned, result.generation
        except tw.TidewheelError as e:
            return type(e), str(e)

    here = [answer(*one) for one in texts]
    plan = wh.sql("EXPLAIN SELECT median(id) FROM t WHERE id < 10 GROUP BY v").to_pylist()
    monkeypatch.setattr("tidewheel.sql.statement.is_bounded", lambda *_: False)
    monkeypatch.setattr("tidewheel.sql.statement.direct_of", lambda *_: None)
    monkeypatch.setattr("tidewheel.sql.statement.summary_of", lambda *_: None)
    monkeypatch.setattr("tidewheel.sql.statement_cache.known", lambda *_: None)
    remembered.cache_clear()
    try:
        for (text, given), expected in zip(texts, here, strict=True):
            assert answer(text, given) == expected, text
        again = wh.sql("EXPLAIN SELECT median(id) FROM t WHERE id < 10 GROUP BY v").to_pylist()
        for one, two in zip(again, plan, strict=True):  # all but the reason why DuckDB answers it
            assert one["explain_value"].partition("  answered ")[0] == two["explain_value"].partition("  answered ")[0]
        analyzed = wh.sql("EXPLAIN ANALYZE SELECT median(id) FROM t WHERE id < 10 GROUP BY v").to_pylist()
    finally:
        remembered.cache_clear()
    assert [row["explain_key"] for row in analyzed] == [row["explain_key"] for row in plan] and "returned   10 rows" in analyzed[0][
        "explain_value"
    ]


def test_its_rows_are_those_of_its_moment(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT len(list(id)) AS n FROM u") if "u" in wh.tables() else None
    assert result is None
    table = wh.create_table("u", SCHEMA, time="ts", key="id")
    table.insert([{"id": 1, "ts": 1, "v": 1.0}])
    result = wh.sql("SELECT len(list(id)) AS n FROM u")
    table.insert([{"id": 2, "ts": 2, "v": 1.0}])
    assert result.to_pylist() == result.to_pylist() == [{"n": 1}]
    assert wh.sql("SELECT len(list(id)) AS n FROM u").to_pylist() == [{"n": 2}]
    wh.drop_table("u")


def test_many_at_once_and_some_never_read(wh: tw.Warehouse) -> None:
    held = [wh.sql(f"SELECT list(id) AS l FROM t WHERE id < {n}") for n in range(8)]
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(wh.sql(f"SELECT len(list(id)) + {n} AS l FROM t").to_pylist())) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers, key=str) == [[{"l": 1000 + n}] for n in range(4)]
    assert [len(one.to_pylist()[0]["l"] or ()) for one in held] == list(range(8))
    assert len(workers._all) <= 8


def test_the_first_rows_are_enough(wh: tw.Warehouse) -> None:
    """Whoever stops early gives the process back."""
    result = wh.sql("SELECT unnest(range(90000)) AS x FROM t")
    assert "the first 10 rows" in repr(result)
    for batch in result:
        assert batch.num_rows
        break
    assert wh.sql("SELECT len(range(5)) AS n").to_pylist() == [{"n": 5}]


def test_it_can_be_cancelled(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT levenshtein(repeat('ab', 50000), repeat('ba', 50000)) FROM t")
    timer = threading.Timer(0.3, result.cancel)
    timer.start()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    timer.join()


def test_ctrl_c(wh: tw.Warehouse, interruptible: None) -> None:
    result = wh.sql("SELECT levenshtein(repeat('ab', 50000), repeat('ba', 50000) || id) FROM t")
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        result.to_arrow()
    timer.join()
    assert wh.sql("SELECT len(range(5)) AS n").to_pylist() == [{"n": 5}]


def test_a_process_that_is_killed_is_replaced(wh: tw.Warehouse) -> None:
    wh.sql("SELECT len(range(5))").to_arrow()
    for worker in list(workers._all):
        os.kill(worker.pid, signal.SIGKILL)
        worker._process.wait(30)
    assert wh.sql("SELECT len(range(5)) AS n").to_pylist() == [{"n": 5}]


_ALONE = """
import os, sys, tidewheel as tw
from tidewheel.env.workers import workers
wh = tw.open(sys.argv[1])
wh.sql("SELECT len(range(5))").to_arrow()
print(*(worker.pid for worker in workers._all), flush=True)
os.kill(os.getpid(), 9)
"""


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _ALONE, str(tmp_path)], capture_output=True, text=True, timeout=120)
    (pid,) = done.stdout.split()
    give_up = time.monotonic() + 30
    while b"apart_start" in _command(pid):
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_all_steps_of_a_statement_share_its_time(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(step: object) -> object:
        return lambda *given: time.sleep(0.4) or step(*given)  # type: ignore[operator, func-returns-value]

    monkeypatch.setattr(Session, "bind", slowly(Session.bind))
    assert wh.sql("SELECT sum(id * v) AS x FROM t", timeout=30).to_pylist()
    with pytest.raises(tw.LimitError, match="its timeout of 0.6 s"):  # it is bound when it is asked, and when it is read
        wh.sql("EXPLAIN SELECT sum(id * v) FROM t GROUP BY ts", timeout=0.6).to_arrow()
    monkeypatch.undo()
    monkeypatch.setattr("tidewheel.sql.answer._taken", slowly(_taken_of))
    parts = " AND ".join(f"id IN (SELECT id FROM t WHERE id < {n})" for n in (5, 6, 7))
    with pytest.raises(tw.LimitError, match="its timeout of 1 s"):  # small queries are answered before it
        wh.sql(f"SELECT count(*), sum(v) FROM t WHERE {parts} GROUP BY ts", timeout=1).to_arrow()


class _Talker:
    """A worker that always has something to say."""

    whole = True
    said = 0

    @property
    def line(self) -> _Talker:
        return self

    def receive(self, *_: object) -> tuple[int, int, bytes]:
        self.said += 1
        assert self.said < 100, "nobody looks at the clock"
        return apart.NEXT, 1, b""

    def send(self, *_: object) -> None: ...

    def kill(self) -> None: ...

    def memory(self) -> int:
        return 0


def test_a_process_that_is_never_waited_for_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "take", lambda _: _Talker())

    def late() -> None:
        raise tw.LimitError("too late")

    work = apart.Apart({}, iter, float("inf"), late)
    with pytest.raises(tw.LimitError):
        work.until((apart.DONE,), late)


def test_too_much_memory_is_never_said_to_be_too_late() -> None:
    """An interrupt is repeated, and says the same."""
    said: list[str] = []
    monitor = Monitor()
    over = threading.Event()

    def large() -> None:
        said.append("large")
        if len(said) == 3:
            over.set()

    with monitor.watching(float("inf"), -1.0, lambda: said.append("late"), large):
        assert over.wait(30)
    assert set(said) == {"large"}


def test_what_duckdb_says_of_itself_is_no_answer() -> None:
    """Without memory it fails wherever it is, and not always by the name of it."""
    said = "INTERNAL Error: Memory allocation failure\n\nStack Trace:\n\n/usr/lib/duckdb.so(+0x17635dc)"
    assert wrong(duckdb.InternalException(said)) == Wrong("memory", "Memory allocation failure")
    assert wrong(duckdb.InternalException(said.replace("Memory allocation failure", "x"))) == Wrong("query", "INTERNAL Error: x")


def test_a_process_that_does_nothing_is_not_waited_for(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one would be that DuckDB has locked up."""
    monkeypatch.setattr("tidewheel.read.apart._STALLED", 1.0)
    result = wh.sql("SELECT levenshtein(repeat('ab', 50000), repeat('ba', 50000)) FROM t")
    timer = threading.Timer(0.5, lambda: [os.kill(worker.pid, signal.SIGSTOP) for worker in list(workers._all)])
    timer.start()
    with pytest.raises(tw.LimitError, match="has ended"):
        result.to_arrow()
    timer.join()
    workers.end_idle()  # those that were stopped with it
    assert wh.sql("SELECT len(range(5)) AS n").to_pylist() == [{"n": 5}]
