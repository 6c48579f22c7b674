"""What derived tables cost the process that owns them, with DuckDB as the computer: nothing of Spark is in these numbers.

Ingest beside tables that depend on it, the check of what is stale among very many partitions, and a table that was refreshed ten thousand
times beside one that was just built: none of it may grow with the past.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidewheel as tw
from benchmarks.report import Bar, Options, Report
from tidewheel.chunk import names
from tidewheel.derive.bounds import declared
from tidewheel.engine.operations import CreateDerived, PlanRefresh
from tidewheel.engine.refresher import refresh
from tidewheel.model.derived import RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.schema import make_spec
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import Probe, engine_of

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("plate", pa.int64()), ("speed", pa.float64())])
HOURLY = "SELECT date_trunc('hour', ts) AS hour, plate, count(*) AS n FROM taxi GROUP BY 1, 2"
OUT = pa.schema([("hour", pa.timestamp("us")), ("plate", pa.int64()), ("n", pa.int64())])
HOUR = 3600 * 1_000_000
PLATES = 200
GROWING = ("open, ms", "catalog, MB")
HOUR_OF = declared("0", every="1 hour").to_json()


def run(options: Options, report: Report) -> None:
    if not options.wants("tidewheel"):
        return
    figures: dict[str, object] = {}
    bars: list[Bar] = []
    for part in (staleness, refreshed_often, ingest_beside_dependents):
        with tempfile.TemporaryDirectory(prefix="bench-derived-", dir=options.scratch) as folder:
            found, more = part(Path(folder), options.quick, report)
        figures |= {part.__name__: found}
        bars += more
    report.finish("derived_cost", figures, bars)


def rows(count: int, first: float, hours: float, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(int(first * HOUR), int((first + hours) * HOUR), count))
    return pa.table([pa.array(times, pa.timestamp("us")), rng.integers(0, PLATES, count), rng.random(count)], schema=SCHEMA)


def derive(wh: tw.Warehouse, name: str = "hourly", partition: str = "1 hour") -> None:
    spec = make_spec(name, OUT, time="hour", key="plate", partition=partition)
    definition = Definition(SPARK_SQL, HOURLY, "", (Mode(RECOMPUTE, "as this benchmark wants it"),))
    engine_of(wh).do(CreateDerived(spec, definition, (("taxi", HOUR_OF),), "error"))


def median_ms(call: Callable[[], object], runs: int) -> float:
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)


def staleness(folder: Path, quick: bool, report: Report) -> tuple[dict[str, float], list[Bar]]:
    """How long the owner looks for what is stale: ten partitions of very many."""
    found = {}
    duck = DuckCompute()
    for many in (1_000, 10_000 if quick else 100_000):
        with tw.open(folder / str(many)) as wh:
            taxi = wh.create_table("taxi", SCHEMA, time="ts", key="plate")
            derive(wh)
            at = np.arange(many, dtype=np.int64) * HOUR
            taxi.insert(pa.table([pa.array(at, pa.timestamp("us")), at // HOUR % PLATES, at / HOUR], schema=SCHEMA))
            refresh(engine_of(wh), duck)
            for n in range(10):
                taxi.insert(rows(1, n * many // 10, 1, n))
            taxi.flush()
            table = engine_of(wh).table("hourly")
            state = table.do(PlanRefresh())
            assert state is not None and len(state.partitions) == 10, state
            found[f"{many:,} partitions"] = median_ms(lambda table=table: table.do(PlanRefresh()), 21)
    duck.close()
    report.table("the check of what is stale, ten partitions of many", ["", "ms"], [[name, f"{ms:.2f}"] for name, ms in found.items()])
    return found, [Bar("stale check, most partitions", list(found.values())[-1], 5, "<=", " ms")]


def refreshed_often(folder: Path, quick: bool, report: Report) -> tuple[dict[str, float], list[Bar]]:
    """A key query, the catalog, the files and the next open: of rows built at once, and after half and all of very many refreshes."""
    hours, many = 240, 500 if quick else 10_000
    duck = DuckCompute()
    for name in ("built", "refreshed"):
        with tw.open(folder / name) as wh:
            wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(rows(hours * 400, 0, hours))
            derive(wh)
            refresh(engine_of(wh), duck)
    table = {"built": as_opened(folder / "built")}
    for part in range(2):
        with tw.open(folder / "refreshed") as wh:
            for n in range(part * many // 2, (part + 1) * many // 2):
                first = n * 37 % hours
                wh.table("taxi").replace(rows(400, first, 0.999, n), time=(first * HOUR, first * HOUR + HOUR - 1))
                refresh(engine_of(wh), duck)
        table[f"{(part + 1) * many // 2:,} refreshes"] = as_opened(folder / "refreshed")
    duck.close()
    report.table(
        f"a table of {hours} partitions, built at once and refreshed often",
        ["", *table], [[name, *(f"{one[name]:,.3g}" for one in table.values())] for name in table["built"]],
    )  # fmt: skip
    built, half, whole = table.values()
    return {f"{a}: {n}": v for a, of in table.items() for n, v in of.items()}, [
        Bar(
            f"key query after {many:,} refreshes beside a table just built", whole["key query, ms"] / built["key query, ms"], 1.2, "<=", "×"
        ),
        *(Bar(f"{name} after {many:,} refreshes beside half of them", whole[name] / half[name], 1.2, "<=", "×") for name in GROWING),
    ]


def as_opened(root: Path) -> dict[str, float]:
    """What a warehouse costs that is opened now, least of five."""
    opened = []
    for _ in range(5):
        began = time.perf_counter()
        with tw.open(root) as wh:
            opened.append(1000 * (time.perf_counter() - began))
            hourly = wh.table("hourly")
            key = median_ms(lambda hourly=hourly: hourly.query(key=17).to_arrow(), 201)
            chunks = hourly.state().chunks
            files = len(list((root / names.table_folder(Probe(hourly).record.id)).iterdir()))
    size = (root / names.CATALOG).stat().st_size / 1e6
    return {"key query, ms": key, "open, ms": min(opened), "files": files, "catalog, MB": size, "chunks": chunks}


def ingest_beside_dependents(folder: Path, quick: bool, report: Report) -> tuple[dict[str, float], list[Bar]]:
    """Rows per second with and without tables that depend on them, by processor time, in turns."""
    batches = [rows(10_000, n / 10, 0.5, n) for n in range(50 if quick else 200)]
    taken: dict[int, list[float]] = {0: [], 3: []}
    for turn in range(3 if quick else 9):
        for dependents in (0, 3) if turn % 2 else (3, 0):
            with tw.open(folder / f"{turn}-{dependents}") as wh:
                taxi = wh.create_table("taxi", SCHEMA, time="ts", key="plate")
                for n in range(dependents):
                    derive(wh, f"hourly{n}")
                began = time.process_time()
                for batch in batches:
                    taxi.insert(batch)
                taxi.flush()
                taken[dependents].append(time.process_time() - began)
    without, with_ = (statistics.median(taken[n]) for n in (0, 3))
    report.table("ingest of batches of 10,000 rows", ["dependents", "processor seconds"], [["0", f"{without:.3f}"], ["3", f"{with_:.3f}"]])
    return {"without": without, "with": with_}, [Bar("ingest with three dependents, of that without", without / with_, 0.97, ">=", "×")]
