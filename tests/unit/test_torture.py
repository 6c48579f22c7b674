"""The torture's proof can fail: every kind of loss, forged, is found. And what the proof stands on: rows, journal, ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.programs.torture.journal import (
    Acknowledged,
    Begun,
    Compared,
    Event,
    Failed,
    Follower,
    Journal,
    Proof,
    Recovered,
    Settled,
    Verified,
)
from tidewheel.programs.torture.ledger import Ledger, State
from tidewheel.programs.torture.proof import FoundRows, found, row_id, settle, verify
from tidewheel.programs.torture.readers import Questioner
from tidewheel.programs.torture.victim import everything
from tidewheel.programs.torture.workload import SCHEMA, BatchOutline, good_rows, next_batch, rows_of, slot, sound

SEED = 11


def batch(order: int, first: int, rows: int = 10, stream: int = 0, **more: object) -> BatchOutline:
    return BatchOutline(stream, order, first, rows, 1_000_000 * order, 1000, **more)  # type: ignore[arg-type]


ONE = batch(0, 0)
TWO = batch(1, 10, back=0, back_rows=10, bad=2)
THREE = batch(2, 22, package=True, back=10, back_rows=10)
SLOT = replace(batch(3, 32, slot=True), time=slot(0)[0])
OTHER = batch(0, 0, stream=1, rows=3000)
LOADED = (ONE, TWO, THREE, SLOT, OTHER)


def ledger_of(*loaded: BatchOutline, then: Iterable[Event] = ()) -> Ledger:
    ledger = Ledger()
    for one in loaded:
        ledger.apply(Begun(one))
        ledger.apply(Acknowledged(one.stream, one.order))
    for event in then:
        ledger.apply(event)
    return ledger


def rejects_of(*batches: BatchOutline) -> list[str]:
    return [f'{{"stream": {b.stream}, "number": {b.first + b.rows + i}}}' for b in batches for i in range(b.bad)]


def table_of(*batches: BatchOutline) -> FoundRows:
    return found([good_rows(SEED, b) for b in batches], rejects_of(*batches))


def without(there: FoundRows, *ids: int) -> FoundRows:
    keep = ~np.isin(there.ids, ids)
    return FoundRows(there.ids[keep], there.previous[keep], there.sound[keep], there.rejects)


def test_a_table_with_everything_is_whole() -> None:
    assert verify(ledger_of(*LOADED), table_of(*LOADED)) == Proof()
    assert verify(Ledger(), found([], [])).whole


def test_a_lost_batch_is_holes() -> None:
    proof = verify(ledger_of(*LOADED), table_of(ONE, TWO, SLOT, OTHER))
    assert proof.counts() == Proof(holes=10).counts() and "batch 0/2" in proof.notes[0] and "acknowledged" in proof.notes[0]


def test_a_lost_row_is_a_hole_and_its_batch_is_partial() -> None:
    proof = verify(ledger_of(*LOADED), without(table_of(*LOADED), row_id(1, 7)))
    assert (proof.holes, proof.partial, proof.duplicates) == (1, 1, 0)


def test_a_hole_that_only_the_rows_tell_of() -> None:
    """No ledger knows batch 0: the rows that point at it do."""
    lonely = Ledger([Begun(ONE), Settled(0, 0, False), Begun(TWO), Acknowledged(0, 1)])
    proof = verify(lonely, table_of(TWO))
    assert 1 <= proof.holes <= 10 and "point at" in proof.notes[0]


def test_duplicates_are_found() -> None:
    proof = verify(ledger_of(*LOADED), found([good_rows(SEED, b) for b in (*LOADED, ONE)], rejects_of(*LOADED)))
    assert proof.counts() == Proof(duplicates=10).counts()


def test_a_package_loaded_twice_is_duplicates() -> None:
    again = [*LOADED, THREE]
    assert verify(ledger_of(*LOADED), table_of(*again)).duplicates == THREE.rows


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_row_altered_in_any_column_is_found(name: str) -> None:
    made = good_rows(SEED, OTHER)
    assert sound(made).all() and sound(made.slice(100, 37)).all() and sound(made.slice(0, 0)).all()
    values = made.column(name).to_pylist()
    values[5] = 2 if name in ("stream", "previous") else values[6]
    field = SCHEMA.field(name)
    forged = made.set_column(SCHEMA.names.index(name), field, pa.array(values, field.type))
    assert np.flatnonzero(~sound(forged)).tolist() == [5]
    proof = verify(ledger_of(*LOADED), found([*(good_rows(SEED, b) for b in LOADED[:-1]), forged], rejects_of(*LOADED)))
    assert proof.altered == 1 and not proof.whole


def test_a_payload_that_grew_or_moved_is_found() -> None:
    made = good_rows(SEED, OTHER)
    for change in (lambda text: text + "a", lambda text: text[1:] + text[:1], lambda text: text[::-1], lambda text: ""):
        values = made.column("payload").to_pylist()
        at = next(i for i, text in enumerate(values) if len(set(text)) > 2 and text != text[::-1])
        values[at] = change(values[at])
        forged = made.set_column(5, SCHEMA.field("payload"), pa.array(values))
        assert np.flatnonzero(~sound(forged)).tolist() == [at]
    endless = pa.array(["x" * 1000] * made.num_rows)  # longer than any that was made
    assert not sound(made.set_column(5, SCHEMA.field("payload"), endless)).any()


@pytest.mark.parametrize(("there", "partial"), [(0, 0), (10, 0), (1, 1), (9, 1)])
def test_a_batch_in_doubt_is_there_as_a_whole_or_not_at_all(there: int, partial: int) -> None:
    doubt = batch(4, 42)
    ledger = ledger_of(*LOADED, then=[Begun(doubt)])
    table = without(table_of(*LOADED, doubt), *(row_id(0, 42 + i) for i in range(there, 10)))
    proof = verify(ledger, table)
    assert proof.counts() == Proof(partial=partial).counts()
    assert settle(ledger, table) == [Settled(0, 4, there == 10)]


def test_what_was_settled_holds_for_ever() -> None:
    doubt = batch(4, 42)
    with_it, without_it = table_of(*LOADED, doubt), table_of(*LOADED)
    for loaded, right, wrong in ((True, with_it, without_it), (False, without_it, with_it)):
        ledger = ledger_of(*LOADED, then=[Begun(doubt), Settled(0, 4, loaded)])
        assert verify(ledger, right).whole and not ledger.doubts()
        assert verify(ledger, wrong).counts() == Proof(holes=10 if loaded else 0, unexpected=0 if loaded else 10).counts()


def test_rows_of_no_batch_are_unexpected() -> None:
    for stranger in (batch(9, 900), batch(0, 0, stream=7)):
        assert verify(ledger_of(*LOADED), table_of(*LOADED, stranger)).counts() == Proof(unexpected=10).counts()


def test_a_replaced_interval_holds_one_content() -> None:
    new = batch(4, 42, rows=7, slot=True, replaces=True)
    done = ledger_of(*LOADED, new)
    kept = (ONE, TWO, THREE, OTHER)
    assert done.slots[0] == [(), (3,), (4,)] and done.streams[0][3].state is State.REPLACED
    assert verify(done, table_of(*kept, new)).whole
    assert verify(done, table_of(*kept, SLOT)).counts() == Proof(holes=7, unexpected=10).counts()
    assert verify(done, table_of(*kept, SLOT, new)).counts() == Proof(unexpected=10).counts()
    assert verify(done, table_of(*kept)).counts() == Proof(holes=7).counts()


def test_a_replace_in_doubt_leaves_the_old_content_or_the_new_one() -> None:
    new = batch(4, 42, rows=7, slot=True, replaces=True)
    ledger = ledger_of(*LOADED, then=[Begun(new)])
    kept = (ONE, TWO, THREE, OTHER)
    assert verify(ledger, table_of(*kept, new)).whole and verify(ledger, table_of(*kept, SLOT)).whole
    assert verify(ledger, table_of(*kept)).counts() == Proof(holes=10).counts()
    assert verify(ledger, table_of(*kept, SLOT, new)).counts() == Proof(unexpected=10).counts()


def test_lost_and_repeated_rejects_are_found() -> None:
    ledger, table = ledger_of(*LOADED), table_of(*LOADED)
    first = row_id(0, 20)
    for rejects, count in (({}, 2), ({first: 1}, 1), ({first: 2, first + 1: 2}, 2), ({first: 1, first + 1: 1, 99: 1}, 1)):
        forged = replace(table, rejects=type(table.rejects)(rejects))
        assert verify(ledger, forged).counts() == Proof(rejects=count).counts(), rejects


def test_rejects_of_a_batch_in_doubt_come_with_its_rows() -> None:
    doubt = batch(4, 42, bad=3, package=True)
    ledger = ledger_of(*LOADED, then=[Begun(doubt)])
    rows = [good_rows(SEED, b) for b in LOADED]
    assert verify(ledger, found(rows, rejects_of(*LOADED, doubt))).whole  # rejects are kept first
    assert verify(ledger, found([*rows, good_rows(SEED, doubt)], rejects_of(*LOADED))).rejects == 3
    for event in (Settled(0, 4, False), Begun(doubt), Acknowledged(0, 4)):  # the package is tried again
        ledger.apply(event)
    for times in (1, 2, 3):
        table = found([*rows, good_rows(SEED, doubt)], rejects_of(*LOADED, *[doubt] * times))
        assert verify(ledger, table).rejects == (3 if times == 3 else 0)


def test_batches_are_the_same_every_time_and_of_all_kinds() -> None:
    made: list[BatchOutline] = []
    first = 0
    for order in range(600):
        one = next_batch(SEED, 2, order, first, [b for b in made if not b.slot])
        assert one == next_batch(SEED, 2, order, first, [b for b in made if not b.slot])
        made.append(one)
        first += one.rows + one.bad
    for kind in (
        lambda b: b.package, lambda b: b.bad, lambda b: b.package and b.bad, lambda b: b.slot and not b.replaces, lambda b: b.replaces,
        lambda b: b.rows == 1, lambda b: b.rows == 20_000, lambda b: not b.slot and b.time < made[0].time,
    ):  # fmt: skip
        assert any(map(kind, made))
    for one in made[1:60]:
        rows = rows_of(SEED, one)
        assert rows.equals(rows_of(SEED, one)) and rows.num_rows == one.rows + one.bad
        good = good_rows(SEED, one)
        assert good.num_rows == one.rows and sound(good).all()
        times = good.column("time").to_numpy().view(np.int64)
        low, high = slot(2) if one.slot else (one.time, one.last)
        assert low <= times.min() and times.max() <= high
        previous = good.column("previous").to_numpy()
        assert one.back <= previous.min() and previous.max() < one.back + one.back_rows <= one.first


def test_the_journal_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    follower = Follower(path)
    assert list(follower.events()) == []
    proof = Proof(holes=3, notes=("a", "b"))
    before: list[Event] = [Recovered(0.25, "recovered"), Begun(TWO), Acknowledged(0, 1), Settled(1, 2, True)]
    events = [*before, Verified(proof, 7), Compared(10)]
    journal = Journal(path)
    for event in events:
        journal.write(event)
    assert list(follower.events()) == events and list(follower.events()) == []
    journal.close()


def test_a_torn_line_is_not_an_event(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.write(Acknowledged(0, 1))
    journal.close()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole + whole[:cut])
        follower = Follower(path)
        assert list(follower.events()) == [Acknowledged(0, 1)]
        journal = Journal(path)
        journal.write(Failed("later"))
        journal.close()
        later = list(follower.events())
        assert later[-1] == Failed("later") and later[:-1] in ([], [Acknowledged(0, 1)] if cut == len(whole) - 1 else [])


@pytest.fixture
def table(tmp_path: Path) -> Iterator[tw.Table]:
    with tw.open(tmp_path, settings=tw.Settings(durability="memory")) as warehouse:
        yield warehouse.create_table("torture", SCHEMA, time="time", key="key")


def notes_of(table: tw.Table, ledger: Ledger) -> set[str]:
    """What a reader has to say in a hundred questions."""
    reader = Questioner(table, ledger, SEED, 1)
    return {note for _ in range(100) if (note := reader.ask())}


def test_readers_are_content_with_right_answers(table: tw.Table) -> None:
    doubt = batch(1, 3000, stream=1)
    for one in (*LOADED, doubt):
        table.insert(rows_of(SEED, one), on_bad="reject")
    assert not notes_of(table, Ledger())
    for then in ([], [Begun(doubt)], [Begun(doubt), Acknowledged(1, 1)]):
        assert not notes_of(table, ledger_of(*LOADED, then=then))
    later = batch(2, 3010, stream=1)
    assert not notes_of(table, ledger_of(*LOADED, doubt, then=[Begun(later)]))  # it is not there yet
    assert not notes_of(table, ledger_of(*LOADED, doubt, then=[Begun(later), Settled(1, 2, False)]))
    assert everything(table).rejects.total() == TWO.bad


@pytest.mark.parametrize("rows", [0, 9])
@pytest.mark.parametrize("loaded", [ONE, SLOT])
def test_readers_notice_rows_that_are_not_there(table: tw.Table, loaded: BatchOutline, rows: int) -> None:
    events = [Begun(replace(loaded, order=0)), Acknowledged(0, 0)]
    table.insert(good_rows(SEED, loaded).slice(0, rows))
    notes = notes_of(table, Ledger(events))
    assert notes and all(("private interval" in note) == loaded.slot for note in notes)
    if rows:  # a part is wrong also before it is acknowledged
        assert notes_of(table, Ledger(events[:1]))


def test_readers_notice_what_should_be_gone_and_what_is_altered(table: tw.Table) -> None:
    table.insert(good_rows(SEED, ONE))
    assert notes_of(table, Ledger([Begun(ONE), Settled(0, 0, False)]))
    right = good_rows(SEED, ONE)
    table.replace(right.set_column(5, SCHEMA.field("payload"), pa.array(["forged"] * 10)), time=(None, None))
    assert any("altered" in note for note in notes_of(table, Ledger([Begun(ONE), Acknowledged(0, 0)])))
