"""Kernels are compiled for their declared types when they are first called, by whatever thread, and for no others."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tidewheel
from tidewheel.index.kernels import leaf_counts
from tidewheel.model.jit.kernels import KERNELS, kernel, ready


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Kernels of these tests are made inside them and forgotten after them: other tests of this process compile and count all there are."""
    before = len(KERNELS)
    yield
    del KERNELS[before:]


def test_nothing_is_compiled_before_it_is_called() -> None:
    @kernel("int64(int64)", cache=False)
    def doubled(n):  # type: ignore[no-untyped-def]
        return 2 * n

    @kernel("int64(int64[::1])", cache=False)
    def total_of_doubles(numbers):  # type: ignore[no-untyped-def]
        total = 0
        for n in numbers:
            total += doubled(n)
        return total

    assert not total_of_doubles.signatures and not doubled.signatures
    assert total_of_doubles(np.arange(4)) == 12
    assert len(total_of_doubles.signatures) == 1 == len(doubled.signatures)  # that which it calls comes with it


def test_other_types_are_refused() -> None:
    @kernel("int64(int64)", cache=False)
    def following(n):  # type: ignore[no-untyped-def]
        return n + 1

    assert following(1) == 2
    with pytest.raises(TypeError):
        following(np.arange(2))
    assert len(following.signatures) == 1


def test_many_threads_call_it_first() -> None:
    @kernel("int64(int64)", cache=False)
    def preceding(n):  # type: ignore[no-untyped-def]
        return n - 1

    together = threading.Barrier(8)

    def call(n: int) -> int:
        together.wait()
        return int(preceding(np.int32(n)))  # a type that has to be converted

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(8))) == [n - 1 for n in range(8)]
    assert len(preceding.signatures) == 1


def test_those_of_the_warehouse_are_known() -> None:
    dispatcher, signature = next(one for one in KERNELS if one[0] is leaf_counts)
    assert ready(dispatcher, signature) is dispatcher and len(dispatcher.signatures) == 1


def test_every_kernel_is_compiled_at_setup() -> None:
    """Otherwise the first query that needs it waits for a compiler."""
    root = Path(tidewheel.__file__).parent
    known = {".".join(("tidewheel", *path.relative_to(root).with_suffix("").parts)) for path in root.rglob("kernels.py")}
    script = "import sys; from tidewheel.surfaces.warm import kernels; kernels(); print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=True)
    assert known <= set(done.stdout.split()), known - set(done.stdout.split())
