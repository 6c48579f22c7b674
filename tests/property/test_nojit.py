"""The kernels run once as plain Python: what Numba compiles is what the code says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOAK

SCRIPT = """
import random, sys, warnings
from collections import Counter
import numpy as np
import pyarrow as pa
warnings.simplefilter("ignore", RuntimeWarning)  # int64 and uint64 wrap around; NumPy's scalars say so, machine code does not
import numba
assert numba.config.DISABLE_JIT
import tidewheel as tw
from tidewheel.model.text.kernels import byte_codes
assert not hasattr(byte_codes, "signatures"), "compiled after all"
from tidewheel.model.query import Query
from tidewheel.read.groups.partitions import dividing, planning
from tidewheel.testing.oracle import OracleTable, same_rows
from tidewheel.testing.probe import Probe
from tidewheel.testing.strategies import KEY, SERIAL, SIGN, TIME, BatchStream, TableCase

common = [(SERIAL, pa.int64()), (SIGN, pa.int8()), (TIME, pa.timestamp("us")), ("s", pa.string()), ("b", pa.bool_()),
          ("w", pa.decimal128(20, 2)), ("l", pa.large_string()), ("x", pa.list_(pa.int8())), ("f", pa.float32()), ("h", pa.int16())]
keys = {
    "int": ([(KEY, pa.int32())], KEY),
    "text": ([(KEY, pa.string())], KEY),
    "wide": ([(KEY, pa.large_binary())], KEY),
    "fixed": ([(KEY, pa.binary(5))], KEY),
    "ip": ([(KEY, pa.string())], tw.ip(KEY)),
    "z2": ([("c0", pa.float64()), ("c1", pa.int32())], tw.zorder("c0", "c1", bounds=(-10, -10, 10, 10))),
    "z3": ([("c0", pa.float64()), ("c1", pa.int32()), ("c2", pa.float64())],
           tw.zorder("c0", "c1", "c2", bounds=(-10, -10, -10, 10, 10, 10))),
}
fields, key = keys[sys.argv[2]]
case = TableCase(pa.schema(common + fields), TIME, key, "1 hour")
stream, oracle = BatchStream(case, random.Random(1)), OracleTable(case.schema, case.time, case.key)
rounds, planned = 0, []
planning.LEAST_ROWS, planning.MANY, planning.MANY_IN_WINDOW, planning.RUN = 1, 0, 0, 1 << 20
planning.APART, planning.WINDOW_BYTES = 1 << 20, 1000
plan = dividing.planned
dividing.planned = lambda *given: planned.append(plan(*given)) or planned[-1]
with tw.open(sys.argv[1], settings=tw.Settings(chunk_bytes=8192, leaf_rows=8, zero_copy_rows=16, indexing_servers=2)) as wh:
    table = wh.create_table("t", case.schema, time=TIME, key=key)

    def ask():
        same_rows(table.query().to_arrow(), oracle.query())
        rows = table.query().to_arrow()
        known = {name: [value for value in rows[name].to_pylist() if value is not None] for name in (SERIAL, TIME, "h", "f")}
        totals = {"n": "count(*)", "s": f"sum({SERIAL})", "h": "sum(h)", "low": "min(h)", "f": "count(f)", "t": f"max({TIME})"}
        expected = {"n": rows.num_rows, "s": sum(known[SERIAL]), "h": sum(known["h"]) if known["h"] else None,
                    "low": min(known["h"], default=None), "f": len(known["f"]), "t": max(known[TIME])}
        assert table.query(aggregate=totals).to_pylist() == [expected]
        groups = {}
        for row in rows.to_pylist():
            groups.setdefault((row["s"], row[TIME].replace(second=0, microsecond=0)), []).append(row)
        asked = {"n": "count(*)", "i": f"sum({SERIAL})", "d": "count(DISTINCT h)", "low": "min(f)", "v": "var_pop(h)"}
        asked["l"] = f"arg_max(h, {TIME})"
        result = table.query(aggregate=asked, group_by=["s", f"date_trunc('minute', {TIME}) AS m"])
        assert type(result._pipeline._aggregation).__name__ == "Grouping"
        found = result.to_pylist()
        assert len(found) == len(groups)
        for row in found:
            of = groups[row["s"], row["m"]]
            low, h = [one["f"] for one in of if one["f"] is not None], [one["h"] for one in of if one["h"] is not None]
            mean = sum(h) / max(len(h), 1)
            best = max((one[TIME], one["h"]) for one in of if one["h"] is not None)[0] if h else None
            assert row["n"] == len(of) and row["i"] == sum(one[SERIAL] for one in of) and row["d"] == len(set(h))
            assert (row["v"] is None) == (not h)
            assert not h or abs(row["v"] - sum((x - mean) ** 2 for x in h) / len(h)) <= 1e-6 * (1 + row["v"])
            assert row["l"] in {one["h"] for one in of if one["h"] is not None and one[TIME] == best} if h else row["l"] is None
            numbers = [x for x in low if x == x]
            assert row["low"] == min(numbers) if numbers else row["low"] is None or row["low"] != row["low"]
        asked = {"n": "count(*)", "i": f"sum({SERIAL})", "h": "min(h)", "f": "count(f)"}
        by_sign = table.query(aggregate=asked, group_by=[SIGN]).to_pylist()
        assert not planned[-1].hashed and len(by_sign) == len({row[SIGN] for row in rows.to_pylist()})
        for found in by_sign:
            of = [row for row in rows.to_pylist() if row[SIGN] == found[SIGN]]
            known = [row["h"] for row in of if row["h"] is not None]
            assert found["n"] == len(of) and found["i"] == sum(row[SERIAL] for row in of) and found["h"] == min(known, default=None)
            assert found["f"] == sum(row["f"] is not None for row in of)
        far = [f"{SERIAL} * 10000000000 AS far", "h AS g"]
        by_serial = table.query(aggregate={"n": "count(*)", "h": "max(h)"}, group_by=far).to_pylist()
        assert planned[-1].hashed and all(row["h"] == row["g"] for row in by_serial)
        counted = {(row["far"] // 10**10, row["g"]): row["n"] for row in by_serial}
        assert len(counted) == len(by_serial) and counted == Counter((row[SERIAL], row["h"]) for row in rows.to_pylist())
        for after, upto in ((0, oracle.generation), (0, 1), (2, 7), (9, 23), (23, oracle.generation)):
            if upto < Probe(table).version.horizon:
                continue  # chunks have left with what was replaced
            came = [row.values for row in oracle.rows if after < row.born <= upto < row.died]
            same_rows(Probe(table).query(Query(after=after, upto=upto)).to_arrow(), came)
        for _ in range(6):
            asked = stream.key_bounds()
            if any(isinstance(v, float) and v != v or abs(v) > 1e30 for v in asked.get("box", ()) if v is not None):
                continue
            bounds = {n: v if isinstance(v, tuple) else (v, v) for n, v in asked.items()}
            time = (stream.now - 10_000_000, stream.now - 1_000_000) if random.Random(_).random() < 0.7 else None
            same_rows(table.query(**asked, time=time).to_arrow(), oracle.query(**bounds, time=time))

    for rows in (20, 1, 1, 60, *[1] * 20):
        batch = stream.batch(rows, late=rows == 60, spare=rows % 2)
        table.insert(batch)
        oracle.insert(batch)
    ask()
    publisher = Probe(table).publisher
    for server in publisher.servers:
        server.check_at = 0
    publisher.redivide()
    table.flush()
    ask()
    batch = stream.batch(10)
    table.replace(batch, time=(stream.now - 20_000_000, stream.now))
    oracle.replace(batch, (stream.now - 20_000_000, stream.now))
    ask()
print("same")
"""


@pytest.mark.parametrize("key", ["int", "text", "z2", *(["wide", "fixed", "ip", "z3"] if SOAK else [])])
def test_kernels_as_plain_python(tmp_path: Path, key: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "wh"), key],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.strip().endswith("same"), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


UNLUCKY = """
import sys, warnings
import numpy as np
import pyarrow as pa
warnings.simplefilter("ignore", RuntimeWarning)
import tidewheel as tw
from tidewheel.read.groups import gathering, groups_found
from tidewheel.read.groups.slots import kernels

ROWS = 5200
kernels._PROBES = 3  # as if many had one hash
given_up = []
clear = groups_found.Groups._clear
groups_found.Groups._clear = lambda groups, why: (given_up.append(why), clear(groups, why))[1]
gathering.SHARED_ROWS, gathering.cores = 1, lambda: int(sys.argv[2])
n = np.arange(ROWS)
rows = pa.table({"k": n % 2, "ts": pa.array(n, pa.timestamp("us")), "n": n * 7919})
with tw.open(sys.argv[1]) as wh:
    table = wh.create_table("t", rows, time="ts", key="k")
    for _ in range(50):  # hashes are begun with numbers at random
        found = table.query(aggregate={"d": "count(DISTINCT n)"}, group_by=["k"], order_by="k").to_pylist()
        assert found == [{"k": 0, "d": ROWS // 2}, {"k": 1, "d": ROWS // 2}], found
        if groups_found.layout.PAIRS_UNLUCKY in given_up:
            break
    else:
        raise AssertionError("no hash was without luck")
print("same")
"""


UNLUCKY_TEXTS = """
import sys, warnings
import numpy as np
import pyarrow as pa
warnings.simplefilter("ignore", RuntimeWarning)
import tidewheel as tw
from tidewheel.read.groups import gathering, groups_found
from tidewheel.read.groups.texts import kernels

ROWS, GROUPS = 600, 200
kernels._PROBES = 0  # as if many had one hash
given_up = []
clear = groups_found.Groups._clear
groups_found.Groups._clear = lambda groups, why: (given_up.append(why), clear(groups, why))[1]
gathering.SHARED_ROWS, gathering.cores, gathering.MOST_ROWS = 1, lambda: int(sys.argv[2]), 300
n = np.arange(ROWS)
texts = [f"{i * 7919 % 5003:04} of a row" for i in n]
rows = pa.table({"k": n % GROUPS, "ts": pa.array(n, pa.timestamp("us")), "s": texts})
expected = [{"k": k, "a": min(texts[k::GROUPS]), "b": max(texts[k::GROUPS]), "c": texts[k - GROUPS], "d": texts[k]} for k in range(GROUPS)]
asked = {"a": "min(s)", "b": "max(s)", "c": "last(s ORDER BY ts)", "d": "arg_min(s, ts)"}
with tw.open(sys.argv[1]) as wh:
    table = wh.create_table("t", rows, time="ts", key="k")
    for _ in range(50):  # hashes are begun with numbers at random
        assert table.query(aggregate=asked, group_by=["k"], order_by="k").to_pylist() == expected
        if groups_found.layout.TEXTS_UNLUCKY in given_up:
            break
    else:
        raise AssertionError("no hash was without luck")
print("same")
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_texts_are_kept_though_a_table_is_given_up(tmp_path: Path, threads: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNLUCKY_TEXTS, str(tmp_path / "wh"), threads],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.strip().endswith("same"), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("threads", ["1", "2"])
def test_pairs_are_counted_though_a_table_is_given_up(tmp_path: Path, threads: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNLUCKY, str(tmp_path / "wh"), threads],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.strip().endswith("same"), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
