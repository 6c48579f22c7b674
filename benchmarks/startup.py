"""How long a fresh process takes to import Tidewheel, and to answer its first query."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.report import Bar, Options, Report

RUNS = 7
HEAVY = ("numba", "duckdb", "sqlalchemy", "pyspark", "pandas")
IMPORT_LIMIT, QUERY_LIMIT = 0.3, 1.5

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
    bars = [
        Bar("import tidewheel", import_median, IMPORT_LIMIT, "<", " s"),
        Bar(f"heavy packages loaded by it ({', '.join(HEAVY)})", float(len(heavy)), 0, "<="),
        Bar("import, open, create, first insert, first query", steps["seconds"], QUERY_LIMIT, "<", " s"),
    ]
    report.finish("startup", {"runs": runs, "import": imports, "first_query": firsts}, bars)


def _runs(program: str, runs: int, options: Options) -> list[dict]:
    """What the program printed in each of `runs` fresh processes, after one that is not counted."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    results = []
    for _ in range(runs + 1):
        with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-startup-", ignore_cleanup_errors=True) as folder:
            child = subprocess.run([sys.executable, "-c", program, f"{folder}/wh"], env=surroundings, capture_output=True, text=True)
        if child.returncode:
            raise RuntimeError(f"the fresh process failed:\n{child.stderr}")
        results.append(json.loads(child.stdout.splitlines()[-1]))
    return results[1:]
