"""Short calls, and the grid, for `benchmarks/beside.py`: a process of each tree stays, and does a few calls of a kind when it is its turn.

The turns of two trees follow each other within a twentieth of a second, so that both meet the same machine: its speed, and what else runs.
The first line out has the names of all kinds. A line in is one of them, a line out the microseconds of processor time of one call, by who
spent them.

    python beside_turns.py turns|grid [DATA]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import tidewheel as tw
from benchmarks.beside_work import CELLS, FRESH, SCHEMA, rows, spent

ROWS = 2_000_000
EVERYWHERE = (0, 10**15)
TEXT = "SELECT id, ts, lon, lat, speed FROM t WHERE id = {} AND ts BETWEEN '1970-01-01' AND '1999-01-01'"
COUNT = "SELECT count(*) FROM t WHERE id BETWEEN {} AND {} AND speed > 0.5"
FILTERED = "SELECT sum(speed) FROM t WHERE id BETWEEN {} AND {} AND lon > 0.5"

Block = Callable[[], Any]


def blocks(wh: tw.Warehouse) -> dict[str, tuple[int, Block]]:
    """By the name of a kind: so many calls, of about ten milliseconds together, and one after the other."""
    table = wh.table("t")
    turn = iter(range(10**9))

    def each(calls: int, ask: Callable[[int], Any]) -> tuple[int, Block]:
        return calls, lambda: [ask(next(turn) % 100_000) for _ in range(calls)]

    found = {
        "query of ten rows": each(100, lambda i: table.query(key=(i, i), time=EVERYWHERE).to_arrow()),
        "the same in SQL, new literals": each(50, lambda i: wh.sql(TEXT.format(i)).to_arrow()),
        "count(*) with another column": each(5, lambda i: wh.sql(COUNT.format(i, i + 5)).to_arrow()),
        "sum with another column": each(5, lambda i: wh.sql(FILTERED.format(i, i + 500)).to_arrow()),
    }
    for keys, times in CELLS:
        key, end = (0, int(keys * ROWS / 10)), int(times * ROWS * 1000)
        calls = 50 if keys < 0.05 else 10
        found[f"query of {keys:.0%} × {times:.0%}"] = each(
            calls, lambda i, key=key, end=end: table.query(key=key, time=(0, end)).to_arrow()
        )
    return found


def serve(known: Mapping[str, Callable[[], Mapping[str, float]]]) -> None:
    """Do what is asked for until nothing more is."""
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        print(json.dumps(known[line.strip()]()), flush=True)


def timed(kind: str, calls: int, work: Block) -> dict[str, float]:
    return {kind: 1e6 * spent(work) / calls}


def calls_of(wh: tw.Warehouse) -> dict[str, Callable[[], dict[str, float]]]:
    return {kind: partial(timed, kind, calls, work) for kind, (calls, work) in blocks(wh).items()}


def by_attached(attached: Any, kind: str, calls: int) -> dict[str, float]:
    """The same calls by another process, whose owner is this one."""
    began = time.process_time()
    attached.stdin.write(kind + "\n")
    attached.stdin.flush()
    client = json.loads(attached.stdout.readline())[kind]
    owner = 1e6 * (time.process_time() - began) / calls
    return {f"{kind}, attached: client": client, f"{kind}, attached: owner": owner}


def serve_calls() -> None:
    data = rows()
    with tempfile.TemporaryDirectory(prefix="beside-turns-") as root, tw.open(root) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        for part in (data.slice(0, ROWS - FRESH), data.slice(ROWS - FRESH)):
            table.flush()  # of the first part, so that nothing is written while queries are asked
            for batch in part.to_batches(max_chunksize=10_000):
                table.insert(batch)
        words = [sys.executable, __file__, "attached", root]
        attached = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert attached.stdout is not None
        attached.stdout.readline()
        also = {f"attached: {kind}": partial(by_attached, attached, kind, calls) for kind, (calls, _) in blocks(wh).items()}
        serve({**calls_of(wh), **also})
        attached.communicate()


def main() -> None:
    match sys.argv[1:]:
        case ["turns", *_]:
            serve_calls()
        case ["attached", root]:
            with tw.open(root) as wh:
                serve(calls_of(wh))
        case ["grid", *folder]:
            from benchmarks.beside_grid import cells

            with cells(folder[0] if folder else None) as known:
                serve({name: lambda name=name, turn=turn: {name: turn()} for name, turn in known.items()})  # type: ignore[misc]


if __name__ == "__main__":
    main()
