"""Queries for one text key, whatever keys look like and in whatever order they come, beside DuckDB's table sorted by key.

Also how fast such rows come in, beside the same rows with numbers as keys. Real GHCN-Daily rows, in file order, if the data folder has
them.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidewheel as tw
from benchmarks.report import Bar, Options, Report

BATCH = 10_000
ASKED = 15
"""Keys that are asked for."""
HOSTS = ("https://www.example.org", "https://shop.example.org", "http://a.org", "https://cdn.shop.example.org")

NAMES: dict[str, Callable[[int], str]] = {
    "sorted": lambda i: f"dev-{'ABCDEFGH'[i % 8]}-{i:06d}",
    "device by device": lambda i: f"dev-{'ABCDEFGH'[i % 8]}-{i:06d}",
    "shuffled": lambda i: f"dev-{'ABCDEFGH'[i % 8]}-{i:06d}",
    "1 KB prefix": lambda i: ("/a/very/long/path" * 61)[:1024] + f"{i:06d}",
    "mixed lengths": lambda i: f"{('sensor', 'gate', 'thermometer')[i % 3]}-{i}",
    "UUIDs": lambda i: str(uuid.UUID(int=random.Random(i).getrandbits(128))),
    "URLs": lambda i: f"{HOSTS[i % 4]}/catalog/{('books', 'garden', 'music')[i % 3]}/items/{i:06d}/reviews?page=1",
    "non-ASCII": lambda i: f"станция-{'ЖЯ日'[i % 3]}-{i:06d}",
}


def generated(kind: str, rows: int, keys: int) -> pa.Table:
    """Rows in order of arrival, their times rising."""
    names = [NAMES[kind](i) for i in range(keys)]
    numbers = np.arange(rows) % keys if kind not in ("sorted", "device by device") else np.arange(rows) * keys // rows
    if kind == "sorted":
        names.sort()
    elif kind != "device by device":
        np.random.default_rng(1).shuffle(numbers)
    key = pa.array(names).take(pa.array(numbers))
    return pa.table({"k": key, "ts": pa.array(np.arange(rows) * 20, pa.timestamp("us")), "v": np.arange(rows), "i": numbers})


def real(folder: str | None, rows: int) -> pa.Table | None:
    """Climate observations, station by station."""
    path = None if folder is None else Path(folder) / "ghcnd_hcn" / "ghcnd_hcn.parquet"
    if path is None or not path.exists():
        return None
    found = pq.read_table(path, columns=["station", "date", "value"]).slice(0, rows)
    station = found["station"].cast(pa.string()).combine_chunks()
    numbers = np.asarray(station.dictionary_encode().indices).astype(np.int64)
    return pa.table({"k": station, "ts": found["date"].cast(pa.timestamp("us")), "v": found["value"].cast(pa.int64()), "i": numbers})


def run(options: Options, report: Report) -> None:
    report.title("text_keys")
    if not (options.wants("tidewheel") and options.wants("duckdb")):
        report.note("left out: Tidewheel is compared with DuckDB here")
        return
    rows = 200_000 if options.quick else 2_000_000
    rounds = options.repetitions or (5 if options.quick else 7)
    streams: dict[str, pa.Table] = {}
    if (found := real(options.data, 10 * rows)) is not None:
        streams["GHCN in file order"] = found
    for kind in NAMES:
        streams[kind] = generated(kind, rows // 20 if kind == "1 KB prefix" else rows, 5_000)
    shown, figures = [], {}
    for kind, table in streams.items():
        one = _measure(table.combine_chunks(), options, rounds)
        figures[kind] = one
        texts = [f"{one['rows']:,}", f"{one['insert'] / 1e6:.1f}", f"{one['insert'] / one['numbers']:.2f}", f"{one['beyond']:.1f}"]
        shown.append([kind, *texts, *(f"{one[name] * 1e3:.2f}" for name in ("fresh", "flushed", "duckdb")), f"{one['times']:.1f}"])
    report.note(
        f"One key at any time, {ASKED} keys, median of {rounds} rounds in turns, answers compared first. `beyond`: most leaves read per "
        "region that are not full of the key. `numbers`: insert rate beside that of the same rows with a number as key."
    )
    head = ["", "rows", "insert M/s", "of numbers", "beyond", "fresh ms", "flushed ms", "DuckDB sorted ms", "times"]
    report.table("text keys", head, shown)
    least = min(one["times"] for one in figures.values())
    beyond = max(one["beyond"] for one in figures.values())
    bars = [Bar("point queries beside DuckDB sorted by key, worst", least, 3.0, ">="), Bar("leaves beyond full ones", beyond, 2.0, "<=")]
    report.finish("text_keys", {"streams": figures, "rounds": rounds}, bars)


def _measure(table: pa.Table, options: Options, rounds: int) -> dict[str, float]:
    import duckdb

    names = table["k"].unique().to_pylist()
    asked = random.Random(1).sample(names, min(ASKED, len(names)))
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-text-", ignore_cleanup_errors=True) as folder:
        numbers = _insert(Path(folder) / "numbers", table.drop_columns(["k"]), "i")[1]
        wh, insert = _insert(Path(folder) / "texts", table.drop_columns(["i"]), "k", keep=True)
        peer = duckdb.connect(str(Path(folder) / "peer.duckdb"))
        try:
            peer.register("given", table)
            peer.execute("CREATE TABLE t AS SELECT k, ts, v FROM given ORDER BY k, ts")
            peer.execute("CHECKPOINT")
            mine = wh.table("t")

            def ours(key: str) -> pa.Table:
                return mine.query(key=key).to_arrow()

            def theirs(key: str) -> pa.Table:
                return peer.sql("SELECT * FROM t WHERE k = ?", params=[key]).to_arrow_table()

            beyond = _compare(mine, theirs, asked)
            fresh, _ = _times(ours, theirs, asked, rounds)
            mine.flush()
            beyond = max(beyond, _compare(mine, theirs, asked))
            flushed, other = _times(ours, theirs, asked, rounds)
        finally:
            peer.close()
            wh.close()
    return {
        "rows": table.num_rows, "insert": insert, "numbers": numbers, "beyond": beyond, "fresh": fresh, "flushed": flushed,
        "duckdb": other, "times": other / max(fresh, flushed),
    }  # fmt: skip


def _insert(folder: Path, table: pa.Table, key: str, keep: bool = False) -> tuple[Any, float]:
    """(the warehouse, rows a second)."""
    wh = tw.open(folder)
    target = wh.create_table("t", table.schema, time="ts", key=key, partition="100 days")
    batches = table.to_batches(max_chunksize=BATCH)
    began = time.perf_counter()
    for batch in batches:
        target.insert(batch)
    rate = table.num_rows / (time.perf_counter() - began)
    if not keep:
        wh.close()
    return wh, rate


def _compare(mine: Any, theirs: Callable[[str], pa.Table], asked: list[str]) -> float:
    """Raises if answers differ. Returns the most leaves per region that were read and are not full of the key."""
    most = 0.0
    for key in asked:
        result = mine.query(key=key)
        rows, others = result.to_arrow(), theirs(key)
        if sorted(rows["v"].to_pylist()) != sorted(others["v"].to_pylist()):
            raise AssertionError(f"answers for {key!r} differ")
        full = -(-rows.num_rows // tw.Settings().leaf_rows)
        most = max(most, (result.stats.leaves_read - full) / max(1, result.stats.regions_read))
    return most


def _times(ours: Callable[[str], pa.Table], theirs: Callable[[str], pa.Table], asked: list[str], rounds: int) -> tuple[float, float]:
    """Median seconds of a query, ours and theirs, taken in turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for key in asked:
            for ask, times in ((ours, found[0]), (theirs, found[1])):
                began = time.perf_counter()
                ask(key)
                times.append(time.perf_counter() - began)
    return statistics.median(found[0]), statistics.median(found[1])
