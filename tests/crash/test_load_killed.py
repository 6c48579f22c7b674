"""kill -9 while files are loaded, at any step; loaded again, every row and every reject is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidewheel as tw
from tests.conftest import SOAK

SEED = int(os.environ.get("TIDEWHEEL_SEED") or (time.time() if SOAK else 1))
ROWS = 3000

CHILD = """
import os, signal, sys
import tidewheel as tw
from tidewheel.engine import file_loader
from tidewheel.ingest import csv_blocks
from tidewheel.write import bulk_loads, chunk_maker, file_loads, publish, streams

root, files, step, after = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "after"
left = [step]
csv_blocks.csv_blocks.__defaults__ = (20_000,)

def deadly(kind, name):
    plain = getattr(kind, name)
    def call(*given, **named):
        left[0] -= 1
        if left[0] == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = plain(*given, **named)
        if left[0] <= 0 and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(kind, name, call)

for kind, name in ((file_loader._Pieces, "next"), (chunk_maker.ChunkMaker, "_write"), (bulk_loads.Loads, "begin"),
                   (bulk_loads.Loads, "deliver"), (bulk_loads.Loads, "_place_all"), (publish.Publisher, "insert_placed"),
                   (streams.Streams, "insert_once"), (file_loads.FileLoads, "load"), (file_loads.FileLoads, "_publish")):
    deadly(kind, name)
with tw.open(root) as wh:
    file_loader.LARGE = 30_000
    wh.load("t", files, threads=2)
    print(step - left[0])
"""


def write_files(folder: Path) -> tuple[list[int], list[str]]:
    """Small and large ones, with bad rows; the good rows by number, the bad ones by place."""
    folder.mkdir()
    good: list[int] = []
    bad: list[str] = []
    for n, (name, rows) in enumerate({"a.csv": 200, "b.csv": ROWS, "c.parquet": ROWS, "d.csv": 300}.items()):
        ids = np.arange(n * 10_000, n * 10_000 + rows)
        if name.endswith("parquet"):
            ts = pa.array(ids * 1_000_000, pa.timestamp("us", "UTC"))
            pq.write_table(pa.table({"id": ids, "ts": ts}), folder / name, row_group_size=700)
            good += ids.tolist()
            continue
        lines = ["id,ts"]
        for i in ids.tolist():
            spoiled = i % 97 == 5
            lines.append(f"{i},{'soon' if spoiled else '2026-01-01'}")
            if spoiled:
                bad.append(f"{folder / name}:{len(lines)}")
            else:
                good.append(i)
        (folder / name).write_text("\n".join(lines))
    return good, bad


def test_a_load_that_is_killed_is_repeated(tmp_path: Path) -> None:
    print(f"TIDEWHEEL_SEED={SEED}")
    rng = random.Random(SEED)
    files = tmp_path.resolve() / "files"
    good, bad = write_files(files)
    for n in range(60 if SOAK else 3):
        root = tmp_path / f"wh{n}"
        with tw.open(root) as wh:
            schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
            wh.create_table("t", schema, time="ts", key="id")
        for _ in range(rng.randint(1, 2) if SOAK else 1):
            step, when = rng.randint(1, 40), rng.choice(["before", "after"])
            command = [sys.executable, "-c", CHILD, str(root), str(files), str(step), when]
            child = subprocess.run(command, capture_output=True, text=True)
            assert child.returncode in (0, -signal.SIGKILL), child.stderr
        with tw.open(root) as wh:
            report = wh.load("t", files)
            table = wh.table("t")
            what = f"killed {when} step {step}: {report}"
            assert sorted(table.query().to_arrow()["id"].to_pylist()) == good, what
            assert sorted(table.rejects().to_arrow()["origin"].to_pylist()) == sorted(bad), what
            assert wh.load("t", files).duplicates == 4
            assert not [problem for problem in wh.check().problems if problem.severity == "error"], what
