"""What a fresh process costs: until Tidewheel is imported, until its first query is answered, and for the commands that people type first.

Commands are measured in processor seconds, user and system, of the process and of what it started, from its start to its end: what a
person waits for depends on what else the machine does. To compare another version, let PYTHONPATH name its `src`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.report import Bar, Options, Report

RUNS = 7
COMMAND = (sys.executable, "-m", "tidewheel.surfaces.cli")
HEAVY = ("numba", "duckdb", "sqlalchemy", "pyspark", "pandas")
IMPORT_LIMIT, QUERY_LIMIT = 0.3, 1.5

HELP = "--help"
COUNT_ALONE = "sql -c: count(*), no owner"
COUNT_ATTACHED = "sql -c: count(*), with an owner"
GROUPS_ALONE = "sql -c: groups of a filter, no owner"
GROUPS_ATTACHED = "sql -c: groups of a filter, with an owner"
OPEN_AND_QUERY = "import, open, query"
LIMITS = {HELP: 0.2, COUNT_ALONE: 0.9, COUNT_ATTACHED: 0.5, GROUPS_ALONE: 0.9, GROUPS_ATTACHED: 0.5, OPEN_AND_QUERY: 1.1}
"""Processor seconds."""

IMPORT = f"""
import time
start = time.perf_counter()
import tidewheel
seconds = time.perf_counter() - start
import json, sys
print(json.dumps({{"seconds": seconds, "heavy": [name for name in {HEAVY!r} if name in sys.modules]}}))
"""

FIRST_QUERY = """
import time
start = time.perf_counter()
import tidewheel as tw
imported = time.perf_counter() - start
import sys
import pyarrow as pa
schema = pa.schema([pa.field("z", pa.int64()), pa.field("ts", pa.timestamp("us")), pa.field("v", pa.float64())])
n = 1000
batch = pa.record_batch([pa.array(range(n)), pa.array(range(n), pa.timestamp("us")), pa.array([0.5] * n)], schema=schema)
with tw.open(sys.argv[1]) as wh:
    table = wh.create_table("t", schema, time="ts", key="z")
    created = time.perf_counter() - start
    table.insert(batch)
    inserted = time.perf_counter() - start
    rows = table.query(key=(100, 199)).to_arrow().num_rows
    seconds = time.perf_counter() - start
assert rows == 100, rows
import json
print(json.dumps({"imported": imported, "created": created, "inserted": inserted, "seconds": seconds}))
"""

MAKE = """
import sys
import pyarrow as pa
import tidewheel as tw
schema = pa.schema([pa.field("z", pa.int64()), pa.field("ts", pa.timestamp("us")), pa.field("v", pa.float64())])
n = 100_000
with tw.open(sys.argv[1]) as wh:
    rows = [pa.array(range(n)), pa.array(range(n), pa.timestamp("us")), pa.array([0.5] * n)]
    wh.create_table("t", schema, time="ts", key="z").insert(pa.record_batch(rows, schema=schema))
"""

OPEN_QUERY = """
import sys
import tidewheel as tw
with tw.open(sys.argv[1]) as wh:
    assert wh.table("t").query(key=(100, 199)).to_arrow().num_rows == 100
"""

OWN = """
import sys
import tidewheel as tw
with tw.open(sys.argv[1]) as wh:
    wh.tables()
    print("open", flush=True)
    sys.stdin.read()
"""

COUNT = "SELECT count(*) FROM t"
GROUPS = "SELECT z % 10 AS g, avg(v) AS v FROM t WHERE v > 0.2 GROUP BY g ORDER BY g"


def run(options: Options, report: Report) -> None:
    report.title("startup")
    if not options.wants("tidewheel"):
        report.note("left out: only Tidewheel is measured here")
        return
    runs = 3 if options.quick else RUNS
    imports = _runs(IMPORT, runs, options)
    firsts = _runs(FIRST_QUERY, runs, options)
    import_median = statistics.median(one["seconds"] for one in imports)
    steps = {step: statistics.median(one[step] for one in firsts) for step in ("imported", "created", "inserted", "seconds")}
    heavy = sorted({name for one in imports for name in one["heavy"]})
    report.note(
        f"Fresh processes, 1 uncounted run that leaves .pyc files and compiled kernels behind, then {runs}; medians of seconds since the "
        "first line of the program, without the start of Python itself."
    )
    rows = [["import tidewheel", f"{import_median:.3f}"], ["… loads of the heavy packages", ", ".join(heavy) or "none"]]
    words = {"imported": "import", "created": "… open and create_table", "inserted": "… first insert", "seconds": "… first query answered"}
    rows += [[words[step], f"{value:.3f}"] for step, value in steps.items()]
    report.table("start-up", ["until", "s"], rows)
    costs = _commands(runs, options)
    report.note(
        f"Processor seconds from start to end, a warehouse of 100,000 rows in one chunk, least and median of {runs} fresh processes."
    )
    report.table(
        "commands", ["", "least", "median"], [[what, f"{min(all_):.3f}", f"{statistics.median(all_):.3f}"] for what, all_ in costs.items()]
    )
    bars = [
        Bar("import tidewheel", import_median, IMPORT_LIMIT, "<", " s"),
        Bar(f"heavy packages loaded by it ({', '.join(HEAVY)})", float(len(heavy)), 0, "<="),
        Bar("import, open, create, first insert, first query", steps["seconds"], QUERY_LIMIT, "<", " s"),
        *(Bar(f"{what}, processor", statistics.median(costs[what]), limit, "<=", " s") for what, limit in LIMITS.items()),
    ]
    report.finish("startup", {"runs": runs, "import": imports, "first_query": firsts, "processor": costs}, bars)


def _commands(runs: int, options: Options) -> dict[str, list[float]]:
    """The processor seconds of each command, in turns."""
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-startup-", ignore_cleanup_errors=True) as folder:
        root = f"{folder}/wh"
        _seconds([sys.executable, "-c", MAKE, root])
        alone = {
            "python alone": [sys.executable, "-c", "pass"],
            "import numpy, pyarrow": [sys.executable, "-c", "import numpy, pyarrow"],
            HELP: [*COMMAND, "--help"],
            COUNT_ALONE: [*COMMAND, "sql", "-w", root, "-c", COUNT],
            GROUPS_ALONE: [*COMMAND, "sql", "-w", root, "-c", GROUPS],
            OPEN_AND_QUERY: [sys.executable, "-c", OPEN_QUERY, root],
        }
        attached = {
            COUNT_ATTACHED: [*COMMAND, "sql", "-w", root, "-c", COUNT],
            GROUPS_ATTACHED: [*COMMAND, "sql", "-w", root, "-c", GROUPS],
        }
        costs = _in_turns(alone, runs)
        with subprocess.Popen([sys.executable, "-c", OWN, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdin is not None and owner.stdout is not None and owner.stdout.readline() == "open\n"
            costs |= _in_turns(attached, runs)
            owner.stdin.close()
    return costs


def _in_turns(commands: dict[str, list[str]], runs: int) -> dict[str, list[float]]:
    rounds = [{what: _seconds(command) for what, command in commands.items()} for _ in range(runs + 1)]
    return {what: [one[what] for one in rounds[1:]] for what in commands}


def _seconds(command: list[str]) -> float:
    """Of processor, for a command that must succeed."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=_surroundings())
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{command} failed")
    return used.ru_utime + used.ru_stime


def _surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _runs(program: str, runs: int, options: Options) -> list[dict]:
    """What the program printed in each of `runs` fresh processes, after one that is not counted."""
    results = []
    for _ in range(runs + 1):
        with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-startup-", ignore_cleanup_errors=True) as folder:
            child = subprocess.run([sys.executable, "-c", program, f"{folder}/wh"], env=_surroundings(), capture_output=True, text=True)
        if child.returncode:
            raise RuntimeError(f"the fresh process failed:\n{child.stderr}")
        results.append(json.loads(child.stdout.splitlines()[-1]))
    return results[1:]
