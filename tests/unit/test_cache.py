"""The leaf cache: bounded, least recently used out first, every group loaded once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tidewheel.chunk.cache import Group, Key, LeafCache, Units


class Store:
    """Four leaves to a group, `size` bytes each; counts what is loaded."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.loads: list[Group] = []

    def load(self, groups: list[Group]) -> Mapping[Group, Units]:
        self.loads += groups
        return {g: {leaf: (f"{g}/{leaf}", self.size) for leaf in range(4 * g[2], 4 * g[2] + 4)} for g in groups}


def key(leaf: int, chunk: str = "c", column: int = 0) -> Key:
    return (chunk, column, leaf // 4), leaf


def test_a_unit_is_loaded_once_and_then_found() -> None:
    cache = LeafCache(100)
    loads: list[int] = []

    def load() -> tuple[str, int]:
        loads.append(1)
        return "frame", 40

    for _ in range(3):
        assert cache.get_or_load(key(0), load) == "frame"
    assert len(loads) == 1
    assert (cache.stats.hits, cache.stats.misses, cache.stats.bytes, cache.stats.units) == (2, 1, 40, 1)


def test_units_come_in_the_order_asked_for_also_twice() -> None:
    cache, store = LeafCache(1000), Store()
    keys = [key(5), key(1), key(5), key(9)]
    assert cache.get(keys, store.load) == [f"{k[0]}/{k[1]}" for k in keys]
    assert store.loads == [("c", 0, 1), ("c", 0, 0), ("c", 0, 2)]


def test_the_least_recently_used_goes_first() -> None:
    cache = LeafCache(30)
    for leaf in (0, 4, 8):
        cache.get_or_load(key(leaf), lambda: ("unit", 10))
    cache.get_or_load(key(0), lambda: pytest.fail("it is there"))
    cache.get_or_load(key(12), lambda: ("unit", 10))  # 4 goes, not 0
    cache.get_or_load(key(0), lambda: pytest.fail("it is there"))
    assert cache.stats.evictions == 1
    loads: list[int] = []
    cache.get_or_load(key(4), lambda: loads.append(1) or ("unit", 10))
    assert loads


def test_neighbours_use_free_room_but_displace_nothing() -> None:
    cache, store = LeafCache(50), Store()
    cache.get([key(0)], store.load)
    assert cache.stats.units == 4  # its neighbours came along
    cache.get([key(4), key(5)], store.load)
    assert cache.stats.bytes == 50
    cache.get([key(0), key(4), key(5)], lambda groups: pytest.fail("what was asked for is still there"))
    cache.get([key(8), key(9)], store.load)
    cache.get([key(0), key(4), key(5), key(8), key(9)], lambda groups: pytest.fail("only neighbours have gone"))


def test_what_is_larger_than_the_cache_is_handed_out_and_not_kept() -> None:
    cache = LeafCache(100)
    cache.get_or_load(key(0), lambda: ("small", 60))
    assert cache.get_or_load(key(4), lambda: ("huge", 101)) == "huge"
    assert (cache.stats.units, cache.stats.bytes, cache.stats.evictions) == (1, 60, 0)
    nothing, store = LeafCache(0), Store()
    assert len(nothing.get([key(0), key(1), key(7)], store.load)) == 3
    assert nothing.stats.bytes == 0


def test_one_call_may_ask_for_more_than_fits() -> None:
    cache, store = LeafCache(35), Store()
    keys = [key(leaf) for leaf in range(40)]
    assert cache.get(keys, store.load) == [f"{k[0]}/{k[1]}" for k in keys]
    assert cache.stats.bytes == 30


def test_against_a_plain_model() -> None:
    rng = np.random.default_rng(7)
    cache, model = LeafCache(100), OrderedDict[int, int]()
    for leaf, size in zip(rng.integers(0, 30, 3000).tolist(), rng.integers(1, 40, 3000).tolist(), strict=True):
        hit = leaf in model
        cache.get_or_load((("c", 0, leaf), 0), lambda size=size: ("unit", size))
        if hit:
            model.move_to_end(leaf)
        else:
            while sum(model.values()) + size > 100:
                model.popitem(last=False)
            model[leaf] = size
        assert cache.stats.bytes == sum(model.values()) <= 100
    assert [k[0][2] for k in cache._units] == list(model)


def in_threads(work: Any, count: int) -> list[Any]:
    """What each thread returned or raised."""
    out: list[Any] = [None] * count

    def run(i: int) -> None:
        try:
            out[i] = work(i)
        except BaseException as e:
            out[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
        assert not t.is_alive(), "threads wait for each other"
    return out


def test_threads_that_miss_the_same_group_load_it_once() -> None:
    cache, store, all_here = LeafCache(1000), Store(), threading.Barrier(8)
    gate = threading.Event()

    def slow(groups: list[Group]) -> Mapping[Group, Units]:
        gate.wait(5)
        return store.load(groups)

    def ask(i: int) -> Any:
        all_here.wait(5)
        if i == 0:
            threading.Timer(0.05, gate.set).start()
        return cache.get([key(i % 4), key(4 + i % 4)], slow)  # different leaves of the same two groups

    assert in_threads(ask, 8) == [[f"{key(i % 4)[0]}/{i % 4}", f"{key(4)[0]}/{4 + i % 4}"] for i in range(8)]
    assert sorted(store.loads) == [("c", 0, 0), ("c", 0, 1)]


def test_threads_that_want_each_others_groups_do_not_lock_up() -> None:
    cache, store = LeafCache(55), Store()
    rng = np.random.default_rng(3)
    asked = [[rng.permutation(40)[:12].tolist() for _ in range(60)] for _ in range(6)]

    def ask(i: int) -> bool:
        return all(cache.get([key(x) for x in leaves], store.load) == [f"{key(x)[0]}/{x}" for x in leaves] for leaves in asked[i])

    assert in_threads(ask, 6) == [True] * 6
    assert cache.stats.bytes <= 55
    assert not cache._flights


def test_all_who_wait_see_the_error_and_the_next_one_tries_again() -> None:
    cache, waiting = LeafCache(100), threading.Barrier(4)

    def ask(i: int) -> Any:
        def fail() -> Any:
            threading.Event().wait(0.1)
            raise OSError("no network")

        waiting.wait(5)
        return cache.get_or_load(key(0), fail)

    assert all(isinstance(e, OSError) for e in in_threads(ask, 4))
    assert cache.get_or_load(key(0), lambda: ("unit", 1)) == "unit"


def test_an_interrupted_load_is_taken_over_by_who_waits_for_it() -> None:
    cache, loading = LeafCache(100), threading.Event()

    def interrupted() -> Any:
        loading.set()
        threading.Event().wait(0.1)
        raise KeyboardInterrupt

    def ask(i: int) -> Any:
        if i == 0:
            return cache.get_or_load(key(0), interrupted)
        loading.wait(5)
        return cache.get_or_load(key(0), lambda: ("unit", 1))

    first, second = in_threads(ask, 2)
    assert isinstance(first, KeyboardInterrupt)
    assert second == "unit"
    assert cache.stats.misses == 2


def test_a_load_that_forgets_a_group_fails_and_locks_nobody_out() -> None:
    cache = LeafCache(100)
    with pytest.raises(KeyError):
        cache.get([key(0)], lambda groups: {})
    assert cache.get_or_load(key(0), lambda: ("unit", 1)) == "unit"
