"""Made the samples: a small warehouse with a bit of everything, and the rows it must give for ever.

`v1` to `v3` were closed, `v2` with rows of several generations in its chunks, `v3` with divided text keys; `log1` and `log2` were left by
killed owners, with rows that are in their logs only, in `log2` also of a stream; `log2-replaced` has chunks of which nothing is seen, as
all had before chunks left their tables, and a catalog of the first version; `derived` has derived tables, and a catalog of the third
version. Run once per format version, with the first Tidewheel that
writes it: `python tests/compat/make_samples.py v1`. The samples are then checked in and never made again. A later format gets a folder of
its own.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidewheel as tw
from tidewheel.model.delivery import SliceId
from tidewheel.testing.probe import Probe

DAY = dt.datetime(2026, 1, 1)
N = 120


def some(values: list[object]) -> list[object]:
    """With a null now and then."""
    return [None if i % 7 == 3 else v for i, v in enumerate(values)]


def everything(sites: bool = False) -> pa.Table:
    """One column of nearly every type; `n` numbers the rows. With sites, a common prefix and eight bytes do not tell its keys apart."""
    n = range(N)
    sites_of = [f"https://example.org/fleets/{'north' if i % 3 else 'south'}/taxis/{i * 37 % 100:03d}" for i in n]
    columns = {
        "n": pa.array(n, pa.int64()),
        "plate": pa.array([sites_of[i] if sites and i % 4 else f"city/taxi-{i * 37 % 100:03d}" for i in n]),
        "ts": pa.array([DAY + dt.timedelta(minutes=i) for i in n], pa.timestamp("us", "UTC")),
        "small": pa.array(some([i % 100 for i in n]), pa.int8()),
        "large": pa.array(some([2**63 + i for i in n]), pa.uint64()),
        "half": pa.array(some([np.float16(i) for i in n]), pa.float16()),
        "speed": pa.array(some([i / 3 for i in n]), pa.float64()),
        "busy": pa.array(some([i % 2 == 0 for i in n])),
        "fare": pa.array(some([Decimal(i) / 4 for i in n]), pa.decimal128(20, 2)),
        "note": pa.array(some(["é" * (i % 5) for i in n])),
        "label": pa.array(some([f"a label of some length {i}" for i in n]), pa.string_view()),
        "blob": pa.array(some([bytes([i % 256]) * (i % 4) for i in n]), pa.large_binary()),
        "hash": pa.array(some([bytes([i % 256]) * 3 for i in n]), pa.binary(3)),
        "day": pa.array(some([i for i in n]), pa.date32()),
        "clock": pa.array(some([i for i in n]), pa.time64("us")),
        "took": pa.array(some([i for i in n]), pa.duration("s")),
        "kind": pa.array(some([f"kind {i % 5}" for i in n])).dictionary_encode(),
        "tags": pa.array(some([[f"t{j}" for j in range(i % 4)] for i in n])),
        "place": pa.array(some([{"lon": i / 7, "name": None if i % 2 else str(i)} for i in n])),
        "extra": pa.array(some([[("k", i)] for i in n]), pa.map_(pa.string(), pa.int64())),
        "pair": pa.array(some([[i, i + 1] for i in n]), pa.list_(pa.int32(), 2)),
        "nothing": pa.nulls(N),
    }
    return pa.table(columns)


def points() -> pa.Table:
    rng = np.random.default_rng(1)
    xy = rng.uniform(0, 10, (N, 2))
    xy[:3] = ((-50.0, 5.0), (5.0, 1e300), (-0.0, 10.0))  # outside the bounds, and on them
    seconds = pa.array(1_767_225_600 + np.arange(N))
    return pa.table({"n": pa.array(range(N), pa.int64()), "x": xy[:, 0], "y": xy[:, 1], "seen": seconds})


def flows() -> pa.Table:
    addresses = [f"10.0.{i % 8}.{i % 251}" if i % 3 else f"2001:db8::{i:x}" for i in range(N)]
    days = [DAY.date() + dt.timedelta(days=i // 10) for i in range(N)]
    return pa.table({"n": pa.array(range(N), pa.int64()), "src": addresses, "day": pa.array(days, pa.date32())})


def floats() -> pa.Table:
    keys = [(-1) ** i * i / 8 for i in range(N)]
    keys[:4] = [float("-inf"), float("inf"), -0.0, 0.0]
    ms = pa.array([1_767_225_600_000 + i * 1000 for i in range(N)], pa.timestamp("ms"))
    return pa.table({"n": pa.array(range(N), pa.int64()), "level": pa.array(keys, pa.float32()), "at": ms})


def insert(table: tw.Table, data: pa.Table, size: int) -> None:
    """In batches of so many rows."""
    for start in range(0, data.num_rows, size):
        table.insert(data.slice(start, size))


def make(root: Path, size: int = N, sites: bool = False) -> dict[str, pa.Table]:
    """Make the warehouse; returns what each of its tables must hold, by `n`. Rows come in batches of `size`."""
    settings = tw.Settings(leaf_rows=16, indexing_servers=2, chunk_bytes=16 << 10)
    with tw.open(root, settings=settings) as wh:
        data = everything(sites)
        table = wh.create_table("everything", data.schema, time="ts", key="plate")
        table.insert(data.slice(0, 80), package="first")
        table.flush()
        insert(table, data.slice(80), size)
        table.flush()

        data = points()
        table = wh.create_table("points", data.schema, time=tw.epoch("seen", "s"), key=tw.zorder("x", "y", bounds=(0, 0, 10, 10)))
        insert(table, data, size)
        table.flush()
        early = data.slice(10, 5).set_column(3, "seen", pa.array([5, 6, 7, 8, 9]))  # decades late: a late chunk
        table.insert(early)

        data = flows()
        table = wh.create_table("flows", data.schema, time="day", key=tw.ip("src"), partition="7 days")
        insert(table, data, size)
        table.insert([{"n": 1, "src": "nowhere", "day": DAY.date()}], on_bad="reject", package="dirty")

        data = floats()
        table = wh.create_table("floats", data.schema, time="at", key="level")
        insert(table, data, size)
        table.flush()
        table.replace(data.slice(40, 10), time=(data["at"][40], data["at"][79]))  # a mask
        wh.create_table("empty", data.schema, time="at", key="level")
    return {
        "everything": everything(sites),
        "points": pa.concat_tables([points(), early]),
        "flows": flows(),
        "floats": pa.concat_tables([floats().slice(0, 50), floats().slice(80)]),
        "empty": data.schema.empty_table(),
    }


def deliver(table: tw.Table, data: pa.Table) -> None:
    """As batch 7 of a stream, which is a package as well."""
    slice_id = SliceId("sensors", "run", 7, 0, 0, "file")
    Probe(table).stage(slice_id, data.to_batches(), data.schema)
    Probe(table).commit_batch("sensors", "run", 7, [slice_id])


def make_log(root: Path, stream: bool, replaced: bool = False) -> dict[str, pa.Table]:
    """As `make`, but most rows are only in the log: every encoding, several servers, late rows, a package, rejects, a mask."""
    wh = tw.open(root, settings=tw.Settings(leaf_rows=16, indexing_servers=2, late_after=0.0))
    data = everything()
    table = wh.create_table("everything", data.schema, time="ts", key="plate")
    table.insert(data.slice(0, 50))
    table.flush()
    table.insert(data.slice(50, 40), package="first")
    table.insert(pa.concat_tables([data.slice(90, 20), data.slice(110)]))  # one batch, two records

    data = points()
    table = wh.create_table("points", data.schema, time=tw.epoch("seen", "s"), key=tw.zorder("x", "y", bounds=(0, 0, 10, 10)))
    table.insert(data)
    table.flush()
    early = data.slice(10, 5).set_column(3, "seen", pa.array([5, 6, 7, 8, 9]))
    table.insert(pa.concat_tables([early, data.slice(0, 3)]).combine_chunks())  # both trees of both servers

    data = flows()
    table = wh.create_table("flows", data.schema, time="day", key=tw.ip("src"), partition="7 days")
    deliver(table, data) if stream else table.insert(data)
    table.insert([{"n": 1, "src": "nowhere", "day": DAY.date()}], on_bad="reject", package="dirty")

    data = floats()
    table = wh.create_table("floats", data.schema, time="at", key="level")
    table.insert(data)
    if replaced:
        table.flush()
        for _ in range(2):
            table.replace(data, time=(None, None))
    table.replace(data.slice(40, 10), time=(data["at"][40], data["at"][79]))
    table.insert(data.slice(60, 5))
    wh.create_table("empty", data.schema, time="at", key="level")
    return {
        "everything": everything(),
        "points": pa.concat_tables([points(), early, points().slice(0, 3)]),
        "flows": flows(),
        "floats": pa.concat_tables([floats().slice(0, 50), floats().slice(60, 5), floats().slice(80)]),
        "empty": data.schema.empty_table(),
    }


TAXI = pa.schema([("ts", pa.timestamp("us")), ("plate", pa.int64()), ("speed", pa.int64())])
HOURLY = "SELECT date_trunc('hour', ts) AS hour, plate, count(*) AS n, CAST(sum(speed) AS BIGINT) AS total FROM taxi GROUP BY 1, 2"
DAILY = "SELECT date_trunc('day', hour) AS day, plate, max(total) AS top FROM hourly GROUP BY 1, 2"


def reports(first: int, count: int) -> pa.Table:
    """One every five minutes, from minute `first` on."""
    times = [DAY + dt.timedelta(minutes=first + 5 * i) for i in range(count)]
    return pa.table([times, [i % 3 for i in range(count)], [i * 7 % 50 for i in range(count)]], schema=TAXI)


def make_derived(root: Path) -> dict[str, pa.Table]:
    """Derived tables in two steps: built, added to, computed anew; then rows that they do not have yet."""
    from tidewheel.derive.bounds import declared
    from tidewheel.engine.operations import CreateDerived
    from tidewheel.engine.refresher import refresh
    from tidewheel.model.derived import MERGE, RECOMPUTE, SPARK_SQL, Definition, Mode
    from tidewheel.model.schema import make_spec
    from tidewheel.testing.duck_compute import DuckCompute
    from tidewheel.testing.probe import engine_of

    duck, anew = DuckCompute(), Mode(RECOMPUTE, "always right")
    merged = Mode(MERGE, "counts and sums", groups=("hour", "plate"), combine=(("n", "sum"), ("total", "sum")))
    with tw.open(root) as wh:
        taxi = wh.create_table("taxi", TAXI, time="ts", key="plate")
        for name, text, source, every, modes in (
            ("hourly", HOURLY, "taxi", "1 hour", (merged, anew)),
            ("daily", DAILY, "hourly", "1 day", (anew,)),
        ):
            schema = duck.schema(text, {source: wh.table(source).schema})
            time = schema.names[0]
            spec = make_spec(name, schema, time=time, key="plate", partition=every)
            definition = Definition(SPARK_SQL, text, "", modes, conf=(("spark.sql.session.timeZone", "UTC"),), made_with="4.3.0")
            engine_of(wh).do(CreateDerived(spec, definition, ((source, declared("0", every=every).to_json()),), "error"))
        taxi.insert(reports(0, 500))
        refresh(engine_of(wh), duck)
        taxi.insert(reports(2, 20))
        refresh(engine_of(wh), duck)
        taxi.replace(reports(700, 1), time=(DAY + dt.timedelta(hours=10), DAY + dt.timedelta(hours=12)))
        refresh(engine_of(wh), duck)
        found = {name: wh.table(name).query().to_arrow() for name in ("hourly", "daily")}
        taxi.insert(reports(3, 5))
        return found | {"taxi": taxi.query().to_arrow()}


def main(version: str) -> None:
    folder = Path(__file__).parent / version
    if folder.exists():
        sys.exit(f"{folder} is there: samples are made once and never again")
    (folder / "expected").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        if version == "derived":
            expected = make_derived(root)
        elif version.startswith("log"):
            expected = make_log(root, version != "log1", version == "log2-replaced")
        else:
            expected = make(root, size=N if version == "v1" else 7, sites=version > "v2")
        shutil.make_archive(str(folder / ("derived" if version == "derived" else "warehouse")), "zip", temporary)
    for name, table in expected.items():
        with pa.ipc.new_file(folder / "expected" / f"{name}.arrow", table.schema) as out:
            out.write_table(table.combine_chunks())
    print(f"{folder}: {sum(f.stat().st_size for f in folder.rglob('*') if f.is_file()) // 1024} KB")
    os._exit(0)  # the owner of a log is never closed


if __name__ == "__main__":
    main(sys.argv[1])
