"""A derived table in the world of faults: how many rows of each minute and stream the table `t` has.

What must hold after any death: each partition has what its query gives over `t` at the generation that the partition's vector names; a
pass brings it to what the query gives over `t` as it is.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

import tidewheel as tw
from tests.crash.book import SECOND, rows_of
from tidewheel.derive.bounds import declared
from tidewheel.engine.operations import CreateDerived
from tidewheel.engine.refresher import refresh
from tidewheel.model.derived import MERGE, RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.partitions import interval
from tidewheel.model.query import Query
from tidewheel.model.schema import make_spec
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import Probe, engine_of

NAME = "minutes"
MINUTE = 60 * SECOND
TEXT = "SELECT date_trunc('minute', ts) AS minute, stream, count(*) AS n FROM t GROUP BY 1, 2"
SCHEMA = pa.schema([("minute", pa.timestamp("us")), ("stream", pa.int64()), ("n", pa.int64())])
MERGED = Mode(MERGE, "", groups=("minute", "stream"), combine=(("n", "sum"),))


def derive(wh: tw.Warehouse) -> None:
    spec = make_spec(NAME, SCHEMA, time="minute", key="stream", partition="10 minutes")
    definition = Definition(SPARK_SQL, TEXT, "", (MERGED, Mode(RECOMPUTE, "")))
    engine_of(wh).do(CreateDerived(spec, definition, (("t", declared("0", every="1 minute").to_json()),), "open"))


def refresh_all(wh: tw.Warehouse) -> None:
    duck = DuckCompute()
    try:
        for one in refresh(engine_of(wh), duck).tables:
            if one.cause is not None:
                raise one.cause
    finally:
        duck.close()


def check(wh: tw.Warehouse) -> None:
    """Each partition has the rows of its query at its vector."""
    probe, source = Probe(wh.table(NAME)), Probe(wh.table("t"))
    known = probe.local.as_derived().refreshed
    expected: Counter[tuple[int, int, int]] = Counter()
    for start, (generation,) in zip(known.starts.tolist(), known.vectors.tolist(), strict=True):
        lo, hi = interval(probe.spec.partitions, start)
        if generation < source.version.horizon:  # cannot be read any more as it was, and will be computed anew
            expected += Counter(row for row in _counts(probe) if lo <= row[0] < hi)
            continue
        rows = rows_of(source.query(Query(upto=generation)).to_arrow())
        counts = Counter((ts // MINUTE * MINUTE, stream) for _, ts, stream, _ in rows)
        expected += Counter((minute, stream, n) for (minute, stream), n in counts.items() if lo <= minute < hi)
    assert Counter(_counts(probe)) == expected, "a partition is not what its sources were"


def check_all(wh: tw.Warehouse) -> None:
    """It has the rows of its query over the table as it is."""
    counts = Counter((ts // MINUTE * MINUTE, stream) for _, ts, stream, _ in rows_of(wh.table("t").query().to_arrow()))
    assert Counter(_counts(Probe(wh.table(NAME)))) == Counter((*which, n) for which, n in counts.items())


def _counts(probe: Probe) -> list[tuple[int, int, int]]:
    table = probe.query().to_arrow()
    columns = [table.column(name).cast(pa.int64()).to_pylist() for name in SCHEMA.names]
    return list(zip(*columns, strict=True))
