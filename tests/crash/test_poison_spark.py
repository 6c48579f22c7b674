"""Poison through Spark: batches through `df.write`, a stream and `ingest`, with an owner that is killed now and then.

What a table should have of each batch is known beforehand: it is there, with its bad rows among the rejects, or the batch is refused with
an error that begins with our sentence. Nothing that was acknowledged is missing after a kill. The seed is printed; TIDEWHEEL_SEED=n draws
the same batches again.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidewheel as tw
import tidewheel.spark as tws
from tests.conftest import SOAK
from tests.crash.campaign_mishaps import kill_owner
from tests.crash.poison_child import texts
from tests.crash.poison_frames import TABLES, Frame, file, frame
from tests.integration.spark_session import spark  # noqa: F401
from tidewheel.cluster.start_owner import summon
from tidewheel.testing.probe import Probe

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SEED = int(os.environ.get("TIDEWHEEL_SEED") or (random.randrange(2**32) if SOAK else 1))
WRITES, STREAMED, FILES, KILLS = (600, 200, 200, 10) if SOAK else (8, 3, 5, 1)

ORIGIN = 10**6
"""The numbers of the first batch; each has a thousand."""


class Campaign:
    """A warehouse whose owner is a process that Spark's own start for themselves, and what was acknowledged so far."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session, self.folder, self.root = session, folder, folder / "wh"
        self.rng = random.Random(SEED)
        self.acknowledged: dict[int, tuple[str, Counter[str]]] = {}
        self.counts: Counter[str] = Counter()
        with tw.open(self.root) as wh:
            for name, (schema, key) in TABLES.items():
                wh.create_table(name, schema, time="ts", key=key)
            self.specs = {name: Probe(wh.table(name)).spec for name in TABLES}

    def kill(self) -> None:
        if (pid := kill_owner(self.root)) is not None:
            with suppress(psutil.Error):
                psutil.Process(pid).wait(30)
            self.counts["kills"] += 1

    def rows(self, name: str) -> Any:
        engine = summon(self.root)
        try:
            return _by_number(Probe(engine.table(name)).query().to_arrow())
        finally:
            engine.close()

    def look(self) -> int:
        """All that was acknowledged is there."""
        there = {name: self.rows(name) for name in TABLES}
        for number, (name, rows) in self.acknowledged.items():
            assert texts(there[name](number)) == rows, f"TIDEWHEEL_SEED={SEED}: batch {number} of {name}"
        return sum(rows.total() for _, rows in self.acknowledged.values())

    # ---- one batch --------------------------------------------------------------------------------------

    def frame(self, made: Frame) -> DataFrame:
        df = self.session.createDataFrame(made.rows)  # type: ignore[call-overload]
        for name in made.raw:
            df = df.withColumn(name, f.col(name).cast("string"))
        return df

    def write(self, number: int, killed: bool = False) -> None:
        """Write a batch. If the owner is `killed` meanwhile, it is there whole or not at all."""
        name, on_bad = self.rng.choice(list(TABLES)), self.rng.choice(["error", "reject"])
        made = frame(name, self.rng, number * 1000)
        expected = made.expected(self.specs[name], on_bad)
        timer = threading.Timer(self.rng.uniform(0.0, 0.8), self.kill) if killed else None
        if timer is not None:
            timer.start()
        said: str | None = None
        try:
            self.frame(made).write.format("tidewheel").mode("append").option("onBad", on_bad).save(f"{self.root}/{name}")
        except PySparkException as e:
            said = str(e)
        if timer is not None:
            timer.join()
            self.look()
        what = f"TIDEWHEEL_SEED={SEED}: batch {number} into {name}, onBad={on_bad}"
        if timer is not None and said is not None and not isinstance(expected, tw.InputError):
            there = self.rows(name)(number)
            assert there.num_rows == 0 or texts(there) == texts(expected), f"{what}: a part of it is there"
            self.counts["lost with the owner" if not there.num_rows else "taken"] += 1
        elif said is not None:
            cast = "does not fit table" in said and self._has_other_types(made, name)  # Spark's door takes no text for numbers
            assert cast or isinstance(expected, tw.InputError), f"{what}: it was refused, and is good: {said[:2000]}"
            assert _begins_with_ours(said), f"{what}: {said[:2000]}"
            self.counts["refused"] += 1
        else:
            assert isinstance(expected, pa.Table), f"{what}: it was taken, and should be refused: {expected}"
            self.counts["taken"] += 1
            self.acknowledged[number] = name, texts(expected)

    # ---- many at once -----------------------------------------------------------------------------------

    def _has_other_types(self, made: Frame, name: str) -> bool:
        wanted, given = self.specs[name].schema, made.rows.schema
        return any(f.name in wanted.names and f.name not in made.raw and f.type != wanted.field(f.name).type for f in given)

    def stream(self, numbers: range) -> None:
        """Files of Parquet through a stream, which keeps bad rows as rejects."""
        folder = self.folder / "stream"
        folder.mkdir()
        spec = self.specs["plain"]
        for number in numbers:
            made = frame("plain", self.rng, number * 1000, shapes=False)
            expected = made.expected(spec, "reject")
            assert isinstance(expected, pa.Table)
            rows = made.rows
            for name in made.raw:  # Parquet does not look whether texts are text
                rows = rows.set_column(rows.schema.get_field_index(name), name, rows.column(name).combine_chunks().view(pa.string()))
            pq.write_table(rows, folder / f"{number}.parquet")
            self.acknowledged[number] = "plain", texts(expected)
        ddl = "n long, k long, ts timestamp, s string, c double"
        df = self.session.readStream.schema(ddl).option("maxFilesPerTrigger", 3).parquet(str(folder))
        writer = df.writeStream.format("tidewheel").option("checkpointLocation", str(self.folder / "checkpoint"))
        assert writer.trigger(availableNow=True).start(f"{self.root}/plain").awaitTermination(240)
        self.counts["streamed"] += len(numbers)

    def ingest(self, numbers: range) -> None:
        """A folder of files of all kinds, most of them damaged."""
        folder = self.folder / "in"
        folder.mkdir()
        made = {number: file(self.rng, number) for number in numbers}
        for one in made.values():
            (folder / one.name).write_bytes(one.data)
        tws.ingest(self.session, str(folder), self.root / "plain", trigger="once").awaitTermination(240)
        there = self.rows("plain")
        engine = summon(self.root)
        try:
            rejects = Probe(engine.table("plain")).rejects().to_arrow()
        finally:
            engine.close()
        origins = " ".join(filter(None, rejects.column("origin").to_pylist()))
        for number, one in made.items():
            rows = there(number)
            assert sorted(rows.column("n").to_pylist()) == one.rows, f"TIDEWHEEL_SEED={SEED}: file {one.name}"
            assert (f"/in/{one.name}" in origins) == one.rejects, f"TIDEWHEEL_SEED={SEED}: rejects of file {one.name}"
            self.acknowledged[number] = "plain", texts(rows)
        self.counts["files"] += len(made)


def _by_number(rows: pa.Table) -> Any:
    """The rows of a batch, by its number."""
    places: dict[int, list[int]] = {}
    for at, n in enumerate(rows.column("n").to_pylist()):
        places.setdefault(n // 1000, []).append(at)
    return lambda number: rows.take(pa.array(places.get(number, []), pa.int64()))


_OURS = re.compile(r"(BadRowsError|SchemaError|InputError|QueryError|tidewheel\.errors\.\w+|table '\w+')")


def _begins_with_ours(said: str) -> bool:
    """Whether a sentence of ours is what is read first: before any traceback."""
    found = _OURS.search(said)
    return found is not None and "Traceback" not in said[: found.start()] and found.start() < 400


@pytest.mark.timeout(3600 if SOAK else 300)
def test_poison_through_spark_is_refused_or_right_and_every_good_row_survives(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    print(f"TIDEWHEEL_SEED={SEED}")
    began = time.monotonic()
    campaign = Campaign(spark, tmp_path)
    kills = set(campaign.rng.sample(range(ORIGIN + 1, ORIGIN + WRITES), KILLS))
    for number in range(ORIGIN, ORIGIN + WRITES):
        campaign.write(number, number in kills)
    campaign.stream(range(ORIGIN + WRITES, ORIGIN + WRITES + STREAMED))
    campaign.ingest(range(ORIGIN + WRITES + STREAMED, ORIGIN + WRITES + STREAMED + FILES))
    campaign.kill()
    rows = campaign.look()
    campaign.kill()
    with tw.open(tmp_path / "wh") as wh:
        assert wh.check().ok
    assert campaign.counts["taken"] and campaign.counts["refused"]
    what = ", ".join(f"{n:,} {what}" for what, n in campaign.counts.most_common())
    print(f"{what}; {rows:,} rows acknowledged and there; {time.monotonic() - began:.0f} s")
