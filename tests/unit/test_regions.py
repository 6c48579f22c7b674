"""The region index against a pass over all regions."""

from __future__ import annotations

import numpy as np
import pytest

from tidewheel.index.regions import FANOUT, RegionIndex, tile

LIMITS = np.array([-(1 << 63), (1 << 63) - 1])


def boxes(random: np.random.Generator, n: int, spread: int, dimensions: int) -> np.ndarray:
    corner = random.integers(-spread, spread, (n, dimensions))
    size = random.integers(0, spread // 4 + 1, (n, dimensions))
    return np.stack([corner, corner + size], axis=2).reshape(n, -1)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 2, FANOUT, FANOUT + 1, FANOUT**2, FANOUT**2 + 1, 5000])
def test_finds_what_a_pass_over_all_finds(n: int, dimensions: int) -> None:
    random = np.random.default_rng(n)
    regions = boxes(random, n, 10_000, dimensions)
    regions[random.integers(0, n)] = [*LIMITS] * dimensions
    index = RegionIndex(regions)
    for _ in range(200):
        (box,) = boxes(random, 1, 12_000, dimensions)
        meets = ((regions[:, 0::2] <= box[1::2]) & (regions[:, 1::2] >= box[0::2])).all(axis=1)
        assert index.search(*box.tolist()).tolist() == np.flatnonzero(meets).tolist()
    assert len(index.search(*LIMITS.tolist() * dimensions)) == n


@pytest.mark.parametrize("dimensions", [2, 3])
def test_neighbours_in_the_order_are_neighbours_in_space(dimensions: int) -> None:
    """A node's box is far smaller than by chance: about as large as a cube with its share of the space."""
    random = np.random.default_rng(1)
    regions = np.repeat(random.integers(0, 1 << 20, (FANOUT**3, dimensions)), 2, axis=1)
    order = tile(regions)
    assert sorted(order.tolist()) == list(range(FANOUT**3))
    nodes = regions[order, 0::2].reshape(-1, FANOUT, dimensions)
    sides = (nodes.max(axis=1) - nodes.min(axis=1)).mean(axis=0) / (1 << 20)
    assert (sides < 1.5 * (1 / FANOUT**2) ** (1 / dimensions)).all()


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
