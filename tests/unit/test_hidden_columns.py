"""Hidden columns: stored with the rows of a derived table, seen by refreshes alone. DuckDB computes, so no Java is needed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.derive.bounds import declared
from tidewheel.engine import refresh_commit
from tidewheel.engine.operations import CreateDerived
from tidewheel.engine.refresher import refresh
from tidewheel.errors import QueryError, SchemaError
from tidewheel.model.derived import MERGE, RECOMPUTE, SPARK_SQL, Definition, Mode, average_state
from tidewheel.model.schema import HIDDEN, check_spec, make_spec, spec_from_layout, with_hidden
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import engine_of

HOUR = 3_600_000_000
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())])
MEANS = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("mean", pa.float64())])
SUM, COUNT = average_state(2)
STATE = [pa.field(SUM, pa.float64()), pa.field(COUNT, pa.int64())]
SHOWN = "SELECT date_trunc('hour', ts) AS ts, k, avg(v) AS mean FROM a GROUP BY 1, 2"
TEXT = f"""SELECT date_trunc('hour', ts) AS ts, k, avg(v) AS mean, sum(v::DOUBLE) AS "{SUM}", count(v) AS "{COUNT}" FROM a GROUP BY 1, 2"""
MERGED = Mode(MERGE, "", groups=("ts", "k"), combine=((SUM, "sum"), (COUNT, "sum")), ratios=(("mean", SUM, COUNT),))


@pytest.fixture
def compute() -> Iterator[DuckCompute]:
    compute = DuckCompute()
    yield compute
    compute.close()


def made(root: Path) -> tw.Warehouse:
    wh = tw.open(root)
    wh.create_table("a", SCHEMA, time="ts", key="k")
    spec = with_hidden(make_spec("means", MEANS, time="ts", key="k"), STATE)
    definition = Definition(SPARK_SQL, TEXT, "", (MERGED, Mode(RECOMPUTE, "")))
    engine_of(wh).do(CreateDerived(spec, definition, (("a", declared("0", every="1 hour").to_json()),), "error"))
    return wh


def rows(rng: random.Random, n: int) -> pa.Table:
    values = [(rng.randrange(3 * HOUR), rng.randrange(4), rng.choice([None, *range(-9, 9)])) for _ in range(n)]
    return pa.table([pa.array(column, field.type) for column, field in zip(zip(*values, strict=True), SCHEMA, strict=True)], schema=SCHEMA)


def shown(wh: tw.Warehouse, what: str) -> list[dict[str, Any]]:
    return wh.sql(f"SELECT * FROM {what} ORDER BY ts, k").to_pylist()


@pytest.mark.parametrize("patched", [False, True])
def test_they_are_kept_and_not_shown(tmp_path: Path, compute: DuckCompute, monkeypatch: pytest.MonkeyPatch, patched: bool) -> None:
    """`patched`: rows are exchanged where they stand, however small the chunks are."""
    if patched:
        monkeypatch.setattr(refresh_commit, "PATCHED_BYTES", 0)
    rng = random.Random(1)
    wh = made(tmp_path / "wh")
    for turn, n in enumerate((200, 1, 5, 30, 2)):
        wh.table("a").insert(rows(rng, n))
        report = refresh(engine_of(wh), compute, None)
        assert report.ok and report["means"].mode == ("merge" if turn else "recompute"), report
        assert shown(wh, "means") == shown(wh, f"({SHOWN})")
        wh.table("a").flush()
        wh.close()
        wh = tw.open(tmp_path / "wh")
    assert engine_of(wh).table("means").spec.stored.names == ["ts", "k", "mean", SUM, COUNT]
    means = wh.table("means")
    assert means.schema == MEANS == means.query().schema == means.dataset().schema
    assert [one.name for one in means.describe().columns] == MEANS.names
    with pytest.raises(QueryError, match="no column"):
        means.query(columns=[SUM])
    assert wh.check().ok
    wh.close()


def test_their_names_are_nobody_elses(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="Tidewheel's own"):
        make_spec("t", pa.schema([*SCHEMA, (f"{HIDDEN}x", pa.int64())]), time="ts", key="k")


def test_a_definition_that_is_read_again_has_them() -> None:
    spec = with_hidden(make_spec("means", MEANS, time="ts", key="k"), STATE)
    check_spec(spec)
    assert spec_from_layout(spec.name, spec.stored, spec.layout_json(), spec.partition, spec.field_ids) == spec
    assert Definition(SPARK_SQL, TEXT, "", (MERGED,)).hidden == (SUM, COUNT)
    assert Definition(SPARK_SQL, TEXT, "", (Mode(RECOMPUTE, ""),), (MERGED,)).hidden == ()


def test_another_version_may_know_other_modes(tmp_path: Path) -> None:
    """A table that was made before averages were merged is opened by the same definition, and stays as it is."""
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("a", SCHEMA, time="ts", key="k")
        plain = make_spec("means", MEANS, time="ts", key="k")
        bounds = (("a", declared("0", every="1 hour").to_json()),)
        engine_of(wh).do(CreateDerived(plain, Definition(SPARK_SQL, SHOWN, "", (Mode(RECOMPUTE, ""),)), bounds, "error"))
        again = CreateDerived(with_hidden(plain, STATE), Definition(SPARK_SQL, SHOWN, "", (MERGED, Mode(RECOMPUTE, ""))), bounds, "open")
        assert engine_of(wh).do(again) == plain
