"""Many tables, and many chunks with few mappings: what each costs, beside one of them."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidewheel as tw
from benchmarks.report import Bar, Options, Report
from tidewheel.chunk.mappings import MAPPINGS
from tidewheel.testing.probe import Probe
from tidewheel.write.chunk_maker import ChunkMaker

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.float64())])
ROWS = 10
CHUNKS, LOW = 20_000, 1_000


def run(options: Options, report: Report) -> None:
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-growth-", ignore_cleanup_errors=True) as folder:
        many = _tables(options, report, Path(folder))
        chunks = _chunks(options, report, Path(folder))
    bars = [
        Bar("open with 1,000 tables", many.get(1_000, {}).get("open_s"), 2.0, "<=", " s"),
        Bar("close with 1,000 tables to flush", many.get(1_000, {}).get("close_s"), 2.0, "<=", " s"),
        Bar("open files with the last number of tables", many[max(many)]["handles"], 128, "<="),
        Bar("mapped chunks", chunks["mapped"], chunks["most"], "<="),
    ]
    report.finish("growth_tables", {"tables": {str(n): row for n, row in many.items()}, "chunks": chunks}, bars)


def _tables(options: Options, report: Report, folder: Path) -> dict[int, dict[str, float]]:
    """Each table gets ten rows, twice; the second time after it was closed and opened."""
    found = {}
    for count in (1, 10, 100) if options.quick else (1, 100, 1_000):
        root = folder / f"tables-{count}"
        with tw.open(root) as wh:
            made = [_timed(_make_table, wh, n)[0] for n in range(count)]
        opened, wh = _timed(tw.open, root)
        tables = [wh.table(f"t{n}") for n in range(count)]
        inserts = [_timed(tables[n].insert, _rows(n))[0] for n in range(count)]
        points = [_timed(_ask, tables[n], n, 2)[0] for n in range(count)]
        del tables
        handles = _handles()
        closed, _ = _timed(wh.close)
        again, wh = _timed(tw.open, root)
        idle, _ = _timed(wh.close)
        found[count] = {
            "make_ms": 1e3 * statistics.median(made[-100:]), "open_s": opened,
            "insert_ms": 1e3 * statistics.median(inserts), "point_ms": 1e3 * statistics.median(points), "close_s": closed,
            "open_again_s": again, "close_idle_s": idle, "handles": handles, "disk_mb": _disk(root) / 1e6,
        }  # fmt: skip
    columns = [
        "tables",
        "make one, ms",
        "open, s",
        "insert, ms",
        "point query, ms",
        "close, s",
        "close, nothing to flush, s",
        "open files",
        "disk, MB",
    ]
    shown = ("make_ms", "open_s", "insert_ms", "point_ms", "close_s", "close_idle_s")
    report.table(
        f"many tables of {ROWS} rows and {ROWS} more", columns,
        [[f"{n:,}", *(f"{row[name]:.3f}" for name in shown), f"{row['handles']:.0f}", f"{row['disk_mb']:.1f}"] for n, row in found.items()],
    )  # fmt: skip
    return found


def _chunks(options: Options, report: Report, folder: Path) -> dict[str, float]:
    """One table of few small chunks, and one of many; then far fewer of them may be mapped than there are."""
    many, most = (1_000, 50) if options.quick else (CHUNKS, LOW)
    rows = []
    figures: dict[str, float] = {"chunks": many, "most": most}
    for count in (many // 100, many):
        root = folder / f"chunks-{count}"
        _make_chunks(root, count)
        more = 0
        for limit in (None, most) if count == many else (None,):
            opened, wh = _timed(_open, root, limit)
            table = wh.table("t")
            cold, warm, scans = _asked(table, count, more)
            mapped = MAPPINGS.count
            inserts = [_timed(table.insert, _rows(-100 - n))[0] for n in range(9)]
            flushes = [_timed(_insert_and_flush, table, -100 - n)[0] for n in range(9)]
            more += 18 * ROWS
            closed, _ = _timed(wh.close)
            del wh, table
            told = {
                "open_s": opened, "close_s": closed, "scan_s": scans[0], "scan_again_s": scans[1], "mapped": mapped,
                "disk_mb": _disk(root) / 1e6,
                **{f"{name}_ms": 1e3 * statistics.median(t) for name, t in zip(TOLD, (cold, warm, inserts, flushes), strict=True)},
            }  # fmt: skip
            said = f"{count:,}" if limit is None else f"{count:,}, {limit:,} mapped"
            rows.append([said, *(f"{told[name]:.3g}" for name in SHOWN), f"{mapped:,}"])
            figures |= told
    columns = ["chunks", "open, s", "close, s", "insert, ms", "insert and flush, ms", "point query, ms", "the same again, ms"]
    columns += ["full scan, s", "second, s", "disk, MB", "mapped"]
    report.table(f"many chunks of {ROWS} rows", columns, rows)
    return figures


TOLD = ("cold", "warm", "insert", "flush")
SHOWN = ("open_s", "close_s", "insert_ms", "flush_ms", "cold_ms", "warm_ms", "scan_s", "scan_again_s", "disk_mb")


def _make_chunks(root: Path, count: int) -> None:
    """As a bulk load does it, with one commit: a flush for each would take ten minutes."""
    with tw.open(root) as wh:
        table = Probe(wh.create_table("t", SCHEMA, time="ts", key="k"))
        load = table.begin_load()
        with ChunkMaker(root, table.spec, replace(load, chunk_bytes=1)) as maker:
            for n in range(count):
                maker.add(_rows(n), "error")
        table.commit_load(load.job, [maker.written], False)
        if (made := table.state().chunks) != count:
            raise AssertionError(f"{made} chunks, wanted are {count}")


def _insert_and_flush(table: tw.Table, n: int) -> None:
    table.insert(_rows(n))
    table.flush()


def _make_table(wh: tw.Warehouse, n: int) -> None:
    wh.create_table(f"t{n}", SCHEMA, time="ts", key="k").insert(_rows(n))


def _rows(n: int) -> pa.RecordBatch:
    at = np.arange(ROWS)
    return pa.record_batch([pa.array(at * 1_000_000, pa.timestamp("us")), pa.array(at + n), pa.array(at * 0.5)], schema=SCHEMA)


def _of_key(key: int, count: int) -> int:
    """Rows of a key: chunk n has the keys n … n + 9."""
    return min(key, count - 1) - max(0, key - ROWS + 1) + 1


def _open(root: Path, limit: int | None) -> tw.Warehouse:
    return tw.open(root, settings=tw.Settings(mapped_chunks=limit))


def _asked(table: tw.Table, count: int, more: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of point queries here and there, of one again and again, and of two full scans. Every count is checked."""
    keys = np.random.default_rng(5).integers(0, count, 300).tolist()
    cold = [_timed(_ask, table, key, _of_key(key, count))[0] for key in keys]
    warm = [_timed(_ask, table, keys[0], _of_key(keys[0], count))[0] for _ in range(200)]
    return cold, warm, [_timed(_ask, table, None, count * ROWS + more)[0] for _ in range(2)]


def _ask(table: tw.Table, key: int | None, rows: int) -> None:
    found = table.query(key=key).to_arrow().num_rows
    if found != rows:
        raise AssertionError(f"{found} rows of key {key}, right is {rows}")


def _timed(act: Callable[..., Any], *given: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    done = act(*given)
    return time.perf_counter() - start, done


def _handles() -> int:
    place = Path("/proc/self/fd")
    return len(os.listdir(place)) if place.is_dir() else 0


def _disk(root: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
