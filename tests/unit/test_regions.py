"""The region index against a pass over all regions."""

from __future__ import annotations

import numpy as np
import pytest

from tidewheel.index.regions import FANOUT, RegionIndex

LIMITS = np.array([-(1 << 63), (1 << 63) - 1])


def boxes(random: np.random.Generator, n: int, spread: int) -> np.ndarray:
    corner = random.integers(-spread, spread, (n, 2))
    size = random.integers(0, spread // 4 + 1, (n, 2))
    return np.stack([corner[:, 0], corner[:, 0] + size[:, 0], corner[:, 1], corner[:, 1] + size[:, 1]], axis=1)


@pytest.mark.parametrize("n", [1, 2, FANOUT, FANOUT + 1, FANOUT**2, FANOUT**2 + 1, 5000])
def test_finds_what_a_pass_over_all_finds(n: int) -> None:
    random = np.random.default_rng(n)
    regions = boxes(random, n, 10_000)
    regions[random.integers(0, n)] = [*LIMITS, *LIMITS]
    index = RegionIndex(regions)
    for _ in range(200):
        k0, t0 = random.integers(-12_000, 12_000, 2)
        k1, t1 = k0 + random.integers(0, 3000), t0 + random.integers(0, 3000)
        meets = (regions[:, 0] <= k1) & (regions[:, 1] >= k0) & (regions[:, 2] <= t1) & (regions[:, 3] >= t0)
        assert index.search(k0, k1, t0, t1).tolist() == np.flatnonzero(meets).tolist()
    assert len(index.search(*LIMITS.tolist(), *LIMITS.tolist())) == n


def test_chunks_beyond_the_worth_of_a_tree_are_found(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose chunks are indexed answers like one that looks at all of them."""
    import pyarrow as pa

    import tidewheel as tw
    from tidewheel.index import version

    monkeypatch.setattr(version, "WORTH", 8)
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("s"))])
    random = np.random.default_rng(5)
    with tw.open(str(tmp_path)) as wh:
        table = wh.create_table("t", schema, time="t", key="k")
        keys, times = [], []
        for i in range(60):
            k, t = random.integers(0, 1000, 20), random.integers(i * 100, i * 100 + 150, 20)
            keys.append(k)
            times.append(t)
            table.insert(pa.table({"k": k, "t": pa.array(t).cast(pa.timestamp("s"))}))
            table.flush()
        k, t = np.concatenate(keys), np.concatenate(times)
        for _ in range(50):
            k0, t0 = random.integers(0, 1000), random.integers(0, 6000)
            wanted = ((k >= k0) & (k <= k0 + 200) & (t >= t0) & (t <= t0 + 500)).sum()
            result = table.query(key=(int(k0), int(k0) + 200), time=(int(t0), int(t0) + 500))
            assert len(result) == wanted == result.to_arrow().num_rows
        assert table.query(time=(0, 100)).stats.regions_read < 10
