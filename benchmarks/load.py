"""How long files take to become a table, beside DuckDB's `CREATE TABLE AS` from the same files into a file database.

T-Drive as it is stored (Parquet, taxi by taxi), and a gigabyte of CSV made of its rows. Each run is a process of its own, started in turn
for both systems, with two threads; a small file is loaded first, so that nothing is counted that a process does only once. When the clock
stops, all rows are on the disk: synced chunks and a catalog commit here, a checkpoint there. The sums of both are compared.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.report import Bar, Options, Report

THREADS = 2
RUNS = 5
CSV_BYTES = 1_000_000_000
WEEK = 7 * 86_400
BARS = {"parquet": 0.6, "csv": 0.5}
MEMORY_MB = 512.0
CSV_SCHEMA = pa.schema([("taxi_id", pa.int32()), ("ts", pa.timestamp("s")), ("lon", pa.float64()), ("lat", pa.float64())])


def run(options: Options, report: Report) -> None:
    report.title("load")
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-load-") as folder:
        source = _parquet(options, Path(folder))
        files = {"parquet": source, "csv": _csv(source, Path(folder), CSV_BYTES // 20 if options.quick else CSV_BYTES)}
        report.note(
            f"{source.name}: {pq.read_metadata(source).num_rows:,} rows, {source.stat().st_size / 1e6:.0f} MB; CSV of the same rows, some "
            f"of them again a week later: {files['csv'].stat().st_size / 1e6:,.0f} MB. {THREADS} threads each. RssAnon every 20 ms, less "
            "what the process had before."
        )
        for kind, file in files.items():
            found = _measured(kind, file, options, Path(folder))
            figures[kind] = found
            rows = [
                [system, f"{one['seconds']:.2f} s", f"{one['processor']:.2f} s", f"{one['rows'] / one['seconds'] / 1e6:.2f} M rows/s",
                 f"{one['disk_mb']:,.0f} MB", f"{one['memory_mb']:.0f} MB"]
                for system, one in found.items()
            ]  # fmt: skip
            report.table(
                f"{kind}, median of {len(next(iter(found.values()))['all'])}", ["", "time", "processor", "speed", "disk", "memory"], rows
            )
            ours, other = found.get("tidewheel"), found.get("duckdb")
            ratio = other["seconds"] / ours["seconds"] if ours and other else None
            cost = other["processor"] / ours["processor"] if ours and other else None
            report.note(f"{kind}: by processor time {cost:.2f} of DuckDB's speed" if cost else "")
            bars.append(Bar(f"{kind}: speed beside DuckDB", ratio, BARS[kind], ">="))
            bars.append(Bar(f"{kind}: memory", ours["memory_mb"] if ours else None, MEMORY_MB, "<=", " MB"))
    report.finish("load", figures, bars)


def _measured(kind: str, file: Path, options: Options, folder: Path) -> dict[str, Any]:
    """Medians by system. Both must have the same rows."""
    systems = [system for system in ("tidewheel", "duckdb") if options.wants(system)]
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
    for _ in range(options.repetitions or (1 if options.quick else RUNS)):
        for system in systems:
            with tempfile.TemporaryDirectory(dir=folder, prefix=f"{system}-") as place:
                command = [sys.executable, "-m", "benchmarks.load", system, str(file), place]
                child = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
            if child.returncode:
                raise RuntimeError(f"the measured process failed:\n{child.stderr}")
            runs[system].append(json.loads(child.stdout.splitlines()[-1]))
    sums = {json.dumps(one["sums"]) for found in runs.values() for one in found}
    if len(sums) != 1:
        raise AssertionError(f"{kind}: the systems do not have the same rows: {sums}")
    return {system: _median(found) for system, found in runs.items()}


def _median(found: list[dict[str, Any]]) -> dict[str, Any]:
    medians = {name: statistics.median(one[name] for one in found) for name in ("seconds", "processor", "memory_mb", "disk_mb", "rows")}
    return {**medians, "all": found}


# ---- the files -----------------------------------------------------------------------------------------------


def _parquet(options: Options, folder: Path) -> Path:
    """T-Drive as it is stored, or generated rows like it."""
    there = Path(options.data or "") / "tdrive" / "tdrive_e5.parquet"
    if options.data and there.exists() and not options.quick:
        return there
    rows = data.generate(200_000 if options.quick else 5_000_000)
    order = np.argsort(rows.taxi, kind="stable")
    columns = {
        "taxi_id": pa.array(rows.taxi[order], pa.int32()), "ts": pa.array(rows.ts[order] // 1_000_000, pa.int64()),
        "lon_e5": pa.array((rows.lon[order] * 1e5).astype(np.int32)), "lat_e5": pa.array((rows.lat[order] * 1e5).astype(np.int32)),
    }  # fmt: skip
    path = folder / "generated.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1 << 20, compression="zstd")
    return path


def _csv(source: Path, folder: Path, size: int) -> Path:
    """The same rows as text, again a week later until there are enough."""
    path = folder / "rows.csv"
    again = 0
    with pcsv.CSVWriter(str(path), CSV_SCHEMA) as out:
        while True:
            for batch in pq.ParquetFile(source).iter_batches(1 << 18):
                ts = pa.array(np.asarray(batch["ts"]) + again * WEEK, pa.int64()).cast(pa.timestamp("s"))
                lon, lat = (pa.array(np.asarray(batch[name]) / 1e5) for name in ("lon_e5", "lat_e5"))
                out.write(pa.record_batch([batch["taxi_id"], ts, lon, lat], schema=CSV_SCHEMA))
                if path.stat().st_size >= size:
                    return path
            again += 1


# ---- the measured process ------------------------------------------------------------------------------------


def child(system: str, file: str, place: str) -> dict[str, Any]:
    pa.set_cpu_count(THREADS)
    small = Path(place) / f"small{Path(file).suffix}"
    _small(Path(file), small)
    return (_tidewheel if system == "tidewheel" else _duckdb)(file, str(small), Path(place) / "db")


def _small(file: Path, small: Path) -> None:
    """Some of the same rows."""
    if file.suffix == ".csv":
        with file.open("rb") as lines:
            small.write_bytes(b"".join(lines.readline() for _ in range(20_000)))
    else:
        pq.write_table(pa.Table.from_batches([next(pq.ParquetFile(file).iter_batches(20_000))]), small)


def _tidewheel(file: str, small: str, place: Path) -> dict[str, Any]:
    import tidewheel as tw
    from tidewheel.engine import file_loader

    with tw.open(place) as wh:
        large, file_loader.LARGE = file_loader.LARGE, 0  # the small one goes the way of the large one
        wh.load("small", small, time="ts", key="taxi_id", threads=THREADS)
        file_loader.LARGE = large

        def load() -> None:
            wh.load("t", file, time="ts", key="taxi_id", threads=THREADS)
            wh.table("t").flush()

        measured = _timed(load)
        names = wh.table("t").schema.names
        sums = wh.sql(_sums(names, "epoch(ts)::BIGINT")).to_arrow().to_pylist()[0]
        measured["disk_mb"] = wh.table("t").state().disk_bytes / 1e6
    return measured | _counted(sums)


def _duckdb(file: str, small: str, place: Path) -> dict[str, Any]:
    import duckdb

    con = duckdb.connect(str(place))
    con.execute(f"SET threads = {THREADS}")
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"CREATE TABLE small AS SELECT * FROM '{small}'")
    con.execute("CHECKPOINT")

    def load() -> None:
        con.execute(f"CREATE TABLE t AS SELECT * FROM '{file}'")
        con.execute("CHECKPOINT")

    measured = _timed(load)
    names = [row[0] for row in con.execute("DESCRIBE t").fetchall()]
    kind = {row[0]: row[1] for row in con.execute("DESCRIBE t").fetchall()}["ts"]
    cursor = con.execute(_sums(names, "ts" if kind == "BIGINT" else "epoch(ts)::BIGINT"))
    sums = dict(zip([d[0] for d in cursor.description], cursor.fetchone(), strict=True))
    con.close()
    measured["disk_mb"] = os.path.getsize(place) / 1e6
    return measured | _counted(sums)


def _sums(names: list[str], ts: str) -> str:
    """Whole numbers only: floats would be added in another order."""
    lon, lat = names[2:4]
    scale = "" if lon.endswith("_e5") else " * 1e5"
    whole = ", ".join(f"sum(round({name}{scale})::BIGINT)::VARCHAR AS {name}" for name in (lon, lat))
    times = f"min({ts}) AS lo, max({ts}) AS hi, sum({ts})::VARCHAR AS times"
    return f"SELECT count(*) AS n, sum(taxi_id)::VARCHAR AS taxi, {times}, {whole} FROM t"


def _counted(sums: dict[str, Any]) -> dict[str, Any]:
    return {"rows": sums["n"], "sums": {name: str(value) for name, value in sums.items()}}


def _timed(work: Callable[[], None]) -> dict[str, Any]:
    """Seconds, processor seconds, and the most memory beyond what was there before."""
    before = _anonymous()
    peak = [before]
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], _anonymous())

    sampler = threading.Thread(target=sample)
    sampler.start()
    began, processor = time.perf_counter(), time.process_time()
    work()
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    over.set()
    sampler.join()
    return {"seconds": seconds, "processor": processor, "memory_mb": peak[0] - before}


def _anonymous() -> float:
    """RssAnon of this process in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(child(*sys.argv[1:])))
