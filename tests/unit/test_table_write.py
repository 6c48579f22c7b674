"""Writing: packages, replace, drop, close, several servers and several threads. What is acknowledged is there, once."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.chunks import chunks_left
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
SECOND = 1_000_000


def rows(start: int, stop: int, spread: int = 1000) -> pa.Table:
    n = np.arange(start, stop)
    return pa.table([n % spread, pa.array(n * SECOND, pa.timestamp("us")), n], schema=SCHEMA)


def numbers(table: tw.Table) -> list[int]:
    return sorted(table.query(columns=["n"]).to_arrow()["n"].to_pylist())


def create(wh: tw.Warehouse, name: str = "taxi") -> tw.Table:
    return wh.create_table(name, SCHEMA, time="ts", key="id")


def files(root: Path) -> list[Path]:
    return sorted(p for p in root.rglob("*") if p.is_file() and "tables" in p.parts)


class TestPackages:
    @pytest.mark.parametrize("servers", [1, 3])
    def test_once_also_after_opening_again(self, tmp_path: Path, servers: int) -> None:
        settings = tw.Settings(indexing_servers=servers)
        with tw.open(tmp_path / "wh", settings=settings) as wh:
            taxi = create(wh)
            first = taxi.insert(rows(0, 1000), package="a.csv")
            assert (first.rows, first.duplicate) == (1000, False)
            again = taxi.insert(rows(0, 1000), package="a.csv")
            assert (again.rows, again.duplicate) == (0, True)
            taxi.flush()
            assert taxi.insert(rows(0, 1000), package="a.csv").duplicate
            assert taxi.insert(rows(1000, 1500), package="b.csv").rows == 500
        with tw.open(tmp_path / "wh", settings=settings) as wh:
            taxi = wh.table("taxi")
            assert taxi.insert(rows(0, 1000), package="a.csv").duplicate
            assert taxi.insert(rows(0, 5), package="b.csv").duplicate
            assert taxi.insert(rows(1500, 1600), package="c.csv").rows == 100
            assert numbers(taxi) == list(range(1600))

    def test_names_belong_to_a_table(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            one, two = create(wh, "one"), create(wh, "two")
            assert one.insert(rows(0, 5), package="a").rows == two.insert(rows(0, 5), package="a").rows == 5

    def test_a_refused_package_may_come_again(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            taxi = create(wh)
            with pytest.raises(tw.BadRowsError):
                taxi.insert([{"id": None, "ts": 1, "n": 1}], package="a")
            assert taxi.insert([{"id": 1, "ts": 1, "n": 1}], package="a").rows == 1

    def test_an_empty_package_counts(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            assert not create(wh).insert([], package="a").duplicate
        with tw.open(tmp_path / "wh") as wh:
            assert wh.table("taxi").insert(rows(0, 5), package="a").duplicate

    @pytest.mark.parametrize("name", ["", 5, b"a"])
    def test_a_package_has_a_name(self, tmp_path: Path, name: Any) -> None:
        with tw.open(tmp_path / "wh") as wh, pytest.raises(tw.InputError, match="a package is named by a text"):
            create(wh).insert(rows(0, 5), package=name)

    def test_the_same_package_from_many_threads(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            taxi = create(wh)
            acks: list[tw.Ack] = []
            threads = [threading.Thread(target=lambda: acks.append(taxi.insert(rows(0, 5000), package="a"))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(a.rows for a in acks) == [0] * 7 + [5000]
            assert taxi.rows == 5000

    def test_a_package_is_recorded_with_its_rows_whatever_is_inserted_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Other batches are published and flushed between the package's check and its own publishing."""
        settings = tw.Settings(indexing_servers=2)
        with tw.open(tmp_path / "wh", settings=settings) as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 1000))
            taxi.flush()
            publisher = Probe(taxi).publisher
            place = publisher.place
            busy = threading.local()

            def interrupted(data: pa.RecordBatch) -> Any:
                if not getattr(busy, "on", False):
                    busy.on = True
                    taxi.insert(rows(1000, 2000))
                    taxi.flush()
                return place(data)

            monkeypatch.setattr(publisher, "place", interrupted)
            taxi.insert(rows(0, 1, spread=1), package="a")
            taxi.insert(rows(900, 1000))  # the other server has rows, too: the flush seals two trees
            monkeypatch.undo()
        with tw.open(tmp_path / "wh", settings=settings) as wh:
            assert wh.table("taxi").insert(rows(0, 1), package="a").duplicate

    @pytest.mark.parametrize("durability", ["memory", "process"])
    def test_a_crash_loses_a_package_whole_or_not_at_all(self, tmp_path: Path, durability: str) -> None:
        code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tidewheel as tw
from test_table_write import create, rows
wh = tw.open({str(tmp_path / "wh")!r}, settings=tw.Settings(durability={durability!r}, indexing_servers=3))
taxi = create(wh)
taxi.insert(rows(0, 3000), package="flushed")
taxi.flush()
taxi.insert(rows(3000, 6000), package="fresh")
os._exit(1)
"""
        subprocess.run([sys.executable, "-c", code], check=False)
        with tw.open(tmp_path / "wh") as wh:
            taxi = wh.table("taxi")
            assert numbers(taxi) == list(range(3000 if durability == "memory" else 6000))
            assert taxi.insert(rows(0, 3000), package="flushed").duplicate
            assert taxi.insert(rows(3000, 6000), package="fresh").duplicate == (durability == "process")
            assert numbers(taxi) == list(range(6000))


class TestReplace:
    @pytest.mark.parametrize("servers", [1, 3])
    def test_the_interval_is_exchanged(self, tmp_path: Path, servers: int) -> None:
        settings = tw.Settings(indexing_servers=servers)
        want = sorted([*range(100), *range(301, 1000), 100, 150, 300])
        with tw.open(tmp_path / "wh", settings=settings) as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 200))
            taxi.flush()
            taxi.insert(rows(200, 1000))  # the interval has rows in a chunk and in a tree
            new = pa.concat_tables([rows(n, n + 1) for n in (300, 100, 150)])
            assert taxi.replace(new, time=(100 * SECOND, 300 * SECOND)).rows == 3
            assert numbers(taxi) == want and taxi.rows == len(want)
            taxi.flush()
            assert numbers(taxi) == want
            taxi.insert(rows(200, 201))  # rows that come later are not hidden
            assert numbers(taxi) == sorted([*want, 200])
        with tw.open(tmp_path / "wh", settings=settings) as wh:
            taxi = wh.table("taxi")
            assert numbers(taxi) == sorted([*want, 200])
            taxi.replace([], time=(None, None))
            assert taxi.rows == 0 and numbers(taxi) == []
        with tw.open(tmp_path / "wh") as wh:
            assert wh.table("taxi").rows == 0

    def test_twice(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 100))
            taxi.replace(rows(10, 20), time=(0, 50 * SECOND))
            taxi.replace(rows(12, 14), time=(12 * SECOND, 13 * SECOND))
            taxi.replace(rows(0, 2), time=(0, 10 * SECOND))
            assert numbers(taxi) == sorted([0, 1, *range(11, 20), *range(51, 100)])

    def test_of_an_empty_table(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            taxi = create(wh)
            assert taxi.replace([], time=(0, 1)).rows == 0
            assert taxi.replace(rows(5, 6), time=(0, 10 * SECOND)).rows == 1
            assert numbers(taxi) == [5]

    def test_rows_outside_the_interval_are_refused(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 10))
            with pytest.raises(tw.BadRowsError, match=r"row 3 of table 'taxi' has ts = 1970-01-01 00:00:03, outside") as error:
                taxi.replace(rows(0, 10), time=(0, 2 * SECOND))
            assert error.value.rows == (3,) and numbers(taxi) == list(range(10))
            with pytest.raises(tw.InputError, match="is empty"):
                taxi.replace([], time=(5, 0))

    def test_readers_see_the_old_or_the_new_rows(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 1000))
            seen: list[int] = []
            stop = threading.Event()

            def read() -> None:
                while not stop.is_set():
                    seen.append(len(taxi.query(time=(0, 999 * SECOND))))

            reader = threading.Thread(target=read)
            reader.start()
            for i in range(30):
                taxi.replace(rows(0, 10 if i % 2 == 0 else 1000), time=(0, 999 * SECOND))
            stop.set()
            reader.join()
            assert set(seen) <= {10, 1000} and len(seen) > 10

    def test_while_others_insert(self, tmp_path: Path) -> None:
        """Rows acknowledged after the replace began may stay or go with it, but batches stay whole and none comes twice."""
        with tw.open(tmp_path / "wh", settings=tw.Settings(chunk_bytes=64 << 10)) as wh:
            taxi = create(wh)
            inserted = threading.Thread(target=lambda: [taxi.insert(rows(10_000 + i * 100, 10_100 + i * 100)) for i in range(200)])
            inserted.start()
            for _ in range(20):
                taxi.replace(rows(0, 50), time=(0, 9_999 * SECOND))
            inserted.join()
            assert numbers(taxi) == [*range(50), *range(10_000, 30_000)]


class TestDrop:
    def test_a_dropped_table_is_gone_with_its_files(self, tmp_path: Path) -> None:
        root = tmp_path / "wh"
        with tw.open(root) as wh:
            for name in ("keep", "drop"):
                create(wh, name).insert(rows(0, 1000))
                wh.table(name).flush()
            wh.table("drop").insert([{"id": None, "ts": 0, "n": 0}], on_bad="reject")
            before = len(files(root))
            wh.drop_table("drop")
            gc.collect()
            assert wh.tables() == ["keep"]
            chunks_left(root, 1)
            assert len(files(root)) == before - 1
            with pytest.raises(tw.NotFoundError, match="no table 'drop'"):
                wh.table("drop")
            with pytest.raises(tw.NotFoundError):
                wh.drop_table("drop")
            again = create(wh, "drop")
            assert again.rows == 0 and len(again.rejects()) == 0
            again.insert(rows(0, 7))
        with tw.open(root) as wh:
            assert wh.tables() == ["drop", "keep"] and wh.table("drop").rows == 7 and wh.table("keep").rows == 1000

    def test_files_stay_while_a_result_reads_them(self, tmp_path: Path) -> None:
        root = tmp_path / "wh"
        with tw.open(root) as wh:
            create(wh).insert(rows(0, 1000))
            wh.table("taxi").flush()
            result = wh.table("taxi").query()
            wh.drop_table("taxi")
            gc.collect()
            assert len(files(root)) == 1
            assert result.to_arrow().num_rows == 1000
            del result
            gc.collect()
            chunks_left(root)
            assert files(root) == []

    def test_a_handle_of_a_dropped_table_says_so(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 10))
            wh.drop_table("taxi")
            for call in (lambda: taxi.insert(rows(0, 1)), taxi.query, taxi.flush, lambda: taxi.replace([], time=(0, 1))):
                with pytest.raises(tw.TidewheelError, match="dropped"):
                    call()

    def test_while_it_is_written(self, tmp_path: Path) -> None:
        root = tmp_path / "wh"
        with tw.open(root, settings=tw.Settings(chunk_bytes=64 << 10)) as wh:
            taxi = create(wh)
            failed: list[BaseException] = []

            def insert(taxi: tw.Table) -> None:
                try:
                    for i in itertools.count():
                        taxi.insert(rows(i * 1000, i * 1000 + 1000))
                except tw.TidewheelError as e:
                    failed.append(e)

            thread = threading.Thread(target=insert, args=(taxi,))
            thread.start()
            time.sleep(0.05)
            wh.drop_table("taxi")
            thread.join()
            assert len(failed) == 1
            failed.clear()
        del taxi
        gc.collect()
        chunks_left(root)
        assert files(root) == []


class TestClose:
    def test_close_flushes_and_may_be_called_twice(self, tmp_path: Path) -> None:
        wh = tw.open(tmp_path / "wh")
        taxi = create(wh)
        taxi.insert(rows(0, 10))
        wh.close()
        wh.close()
        assert "closed" in repr(wh)
        for call in (wh.tables, lambda: wh.table("taxi"), lambda: taxi.insert(rows(0, 1)), taxi.query, taxi.flush, lambda: create(wh, "x")):
            with pytest.raises(tw.TidewheelError, match="was closed; open it again"):
                call()
        with tw.open(tmp_path / "wh") as wh:
            assert numbers(wh.table("taxi")) == list(range(10))

    def test_several_handles_share_one_engine(self, tmp_path: Path) -> None:
        one = tw.open(tmp_path / "wh")
        create(one).insert(rows(0, 10))
        two = tw.open(str(tmp_path / "wh"))
        assert two.table("taxi").rows == 10
        one.close()
        two.table("taxi").insert(rows(10, 20))
        with pytest.raises(tw.InputError, match="other settings"):
            tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=7))
        two.close()
        with pytest.raises(tw.TidewheelError, match="closed"):
            two.tables()

    def test_a_closed_handle_is_closed_though_another_is_open(self, tmp_path: Path) -> None:
        one, two = tw.open(tmp_path / "wh"), tw.open(tmp_path / "wh")
        one.close()
        try:
            with pytest.raises(tw.TidewheelError, match="closed"):
                one.tables()
        finally:
            two.close()

    def test_results_outlive_the_warehouse(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh") as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 1000))
            taxi.flush()
            taxi.insert(rows(1000, 2000))
            result = taxi.query()
        assert result.to_arrow().num_rows == 2000

    def test_every_row_acknowledged_before_close_is_there_after(self, tmp_path: Path) -> None:
        """A thread inserts until it is told that the warehouse was closed."""
        for attempt in range(5):
            root = tmp_path / str(attempt)
            wh = tw.open(root)
            taxi = create(wh)
            acknowledged = [0]

            def insert(taxi: tw.Table = taxi, acknowledged: list[int] = acknowledged) -> None:
                try:
                    while True:
                        n = acknowledged[0]
                        acknowledged[0] += taxi.insert(rows(n, n + 50)).rows
                except tw.TidewheelError:
                    return

            thread = threading.Thread(target=insert)
            thread.start()
            time.sleep(0.05)
            wh.close()
            thread.join()
            with tw.open(root) as wh:
                assert wh.table("taxi").rows == acknowledged[0]

    def test_a_process_that_forgets_to_close_still_flushes(self, tmp_path: Path) -> None:
        code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tidewheel as tw
from test_table_write import create, rows
create(tw.open({str(tmp_path / "wh")!r})).insert(rows(0, 10))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        with tw.open(tmp_path / "wh") as wh:
            assert wh.table("taxi").rows == 10

    def test_rejects_are_flushed_with_their_table(self, tmp_path: Path) -> None:
        code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tidewheel as tw
from test_table_write import create, rows
taxi = create(tw.open({str(tmp_path / "wh")!r}))
taxi.insert([{{"id": 1, "ts": 1, "n": 1}}, {{"id": None, "ts": 1, "n": 1}}], on_bad="reject")
taxi.flush()
os._exit(1)
"""
        subprocess.run([sys.executable, "-c", code], check=False)
        with tw.open(tmp_path / "wh") as wh:
            assert wh.table("taxi").rows == 1 and len(wh.table("taxi").rejects()) == 1


class TestServersAndThreads:
    @pytest.mark.parametrize("servers", [2, 5])
    def test_servers_share_the_keys_and_answer_as_one(self, tmp_path: Path, servers: int) -> None:
        with tw.open(tmp_path / "wh", settings=tw.Settings(indexing_servers=servers, leaf_rows=32)) as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 5000))
            assert taxi.state().trees == servers
            taxi.flush()
            assert taxi.state().chunks == servers
            regions = sorted(s.key for s in taxi.query().plan.subqueries)
            assert all(a[1] < b[0] for a, b in itertools.pairwise(regions))
            for _ in range(3):
                taxi.insert(rows(5000, 6000))
            assert len(taxi.query(key=(100, 200))) == 101 * 8
            assert len(taxi.query(key=5).plan.subqueries) <= 4  # one chunk and the runs of one server

    def test_the_number_of_servers_may_change(self, tmp_path: Path) -> None:
        for i, servers in enumerate((1, 4, 2)):
            with tw.open(tmp_path / "wh", settings=tw.Settings(indexing_servers=servers)) as wh:
                taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id", if_exists="open")
                taxi.insert(rows(1000 * i, 1000 * i + 1000))
                assert numbers(taxi) == list(range(1000 * (i + 1)))

    def test_keys_are_divided_anew_when_shares_drift_apart(self, tmp_path: Path) -> None:
        with tw.open(tmp_path / "wh", settings=tw.Settings(indexing_servers=2)) as wh:
            taxi = create(wh)
            taxi.insert(rows(0, 1000, spread=100))  # the first division: 0 … 49 and 50 …
            for i in range(4):
                taxi.insert(rows(200_000 * i, 200_000 * i + 200_000, spread=100_000))
                taxi.flush()
            last = sorted(taxi.query().plan.subqueries, key=lambda s: s.time)[-2:]
            shares = [s.rows for s in last]
            assert max(shares) < 1.5 * min(shares), shares

    def test_writers_readers_and_flushes_together(self, tmp_path: Path) -> None:
        """Every reader sees whole batches only, and never fewer rows than before."""
        with tw.open(tmp_path / "wh", settings=tw.Settings(indexing_servers=2, chunk_bytes=256 << 10, leaf_rows=64)) as wh:
            taxi = create(wh)
            writers, batches, size = 3, 60, 500
            stop, wrong = threading.Event(), []

            def write(w: int) -> None:
                for b in range(batches):
                    start = (w * batches + b) * size
                    taxi.insert(rows(start, start + size))

            def read() -> None:
                last = 0
                while not stop.is_set():
                    n = taxi.query(columns=["n"]).to_arrow()["n"].to_numpy()
                    whole = (
                        len(n) % size == 0 and len(np.unique(n)) == len(n) and (np.bincount(n // size)[np.unique(n // size)] == size).all()
                    )
                    if not whole or len(n) < last:
                        wrong.append(len(n))
                    last = len(n)

            threads = [threading.Thread(target=write, args=(w,)) for w in range(writers)]
            readers = [threading.Thread(target=read) for _ in range(2)]
            for thread in threads + readers:
                thread.start()
            for thread in threads:
                thread.join()
            stop.set()
            for thread in readers:
                thread.join()
            assert wrong == []
            assert numbers(taxi) == list(range(writers * batches * size))
            assert taxi.state().chunks > 2
