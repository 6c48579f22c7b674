"""How far a call walks, functions and files of ours between a user's call and what comes of it; and how large the house is.

    python -m benchmarks.walks

Counted by Python's own profiler hook, warm, so that what is only loaded or remembered the first time does not count.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidewheel as tw
from tidewheel.cluster.client import attach
from tidewheel.engine.operations import Stage
from tidewheel.model.delivery import RowStream, SliceId
from tidewheel.spark import connections, options
from tidewheel.spark.stream_sink import StreamSink, TaskReport
from tidewheel.write.streams import Streams

HOUSE = str(Path(tw.__file__).parent)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])


def rows(first: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": i % 7, "ts": i, "v": 1.0} for i in range(first, first + 100)], schema=SCHEMA)


def walked(call: Callable[[], Any]) -> tuple[int, int, int]:
    """(calls of functions of ours in this thread, different functions, files)"""
    seen: list[tuple[str, str]] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOUSE):
            seen.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(seen), len(set(seen)), len({file for file, _ in seen})


def frames(first: str, last: str) -> int:
    """Frames of ours at this moment: of the caller from `first` on, of the thread that sends for it, and of the one that serves it."""
    found = 0
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        stack, here = [], frame
        while here is not None:
            if here.f_code.co_filename.startswith(HOUSE) or here.f_code.co_name == last:
                stack.append(here.f_code.co_qualname)
            here = here.f_back
        stack.reverse()
        if first in stack:
            found += len(stack) - stack.index(first)
        elif names.get(number, "").startswith("tidewheel-aside") or any(name.endswith(last) for name in stack):
            found += len(stack)
    return found


def stream_commit(root: Path) -> int:
    """Frames between a Spark sink's commit and the engine's, over the wire."""
    place = options.place_of({"path": str(root / "t")})
    owner = attach(root)
    connections._engines[str(root)] = owner
    slice_id = SliceId("s", "run", 0, 0, 0)
    found: list[int] = []
    commit = Streams.commit

    def counted(self: Streams, *arguments: Any) -> Any:
        found.append(frames("StreamSink.commit", "counted"))
        return commit(self, *arguments)

    table = connections.table(place)
    table.give(Stage(slice_id), RowStream(SCHEMA, iter([rows(900)])))
    Streams.commit = counted  # type: ignore[method-assign]
    try:
        StreamSink(place, "s").commit([TaskReport(slice_id, (slice_id,))], 0)
    finally:
        Streams.commit = commit  # type: ignore[method-assign]
        owner.close()
    return found[0]


def packages() -> None:
    """Files and lines of each folder."""
    print("\n| package | files | lines |\n| --- | --- | --- |")
    for folder in sorted(one for one in Path(HOUSE).iterdir() if (one / "__init__.py").exists()):
        sizes = [len(file.read_text().splitlines()) for file in folder.rglob("*.py")]
        print(f"| `{folder.name}` | {len(sizes)} | {sum(sizes):,} |")


def main() -> None:
    with tempfile.TemporaryDirectory() as place, tw.open(Path(place) / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(rows(0))
        table.query(key=(1, 3)).to_arrow()
        wh.sql("SELECT * FROM t WHERE id = 3").to_arrow()
        print("| from … | calls | functions | files |\n| --- | --- | --- | --- |")
        for name, call in {
            "`insert` to visible": lambda: table.insert(rows(100)),
            "`query` to rows": lambda: table.query(key=(1, 3)).to_arrow(),
            "`wh.sql` of a plain statement to rows": lambda: wh.sql("SELECT * FROM t WHERE id = 4").to_arrow(),
        }.items():
            print(f"| {name} | {' | '.join(map(str, walked(call)))} |")
        print(f"\na Spark batch: {stream_commit(Path(place) / 'wh')} frames from the sink's commit to the engine's, the wire between them")
    packages()


if __name__ == "__main__":
    main()
