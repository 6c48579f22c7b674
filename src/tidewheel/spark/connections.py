"""One connection per worker process and warehouse, kept from task to task.

Spark's Python workers are reused, so a task finds what the last one left. A connection whose owner died is made anew; so is one that was
inherited by a fork, because its threads did not come along.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tidewheel.chunk.names import CATALOG
from tidewheel.cluster.start_owner import summon
from tidewheel.engine.protocol import Engine, TableEngine, TableOperation
from tidewheel.errors import ClosedError, NotFoundError, OwnerLostError
from tidewheel.model.schema import TableSpec
from tidewheel.spark.options import TablePath

T = TypeVar("T")

ATTEMPTS = 3
"""Calls that change nothing, or that can be repeated, are made so often before a lost owner is reported."""

_engines: dict[str, Engine] = {}
_tables: dict[TablePath, TableEngine] = {}
_lock = threading.Lock()


def engine(root: str) -> Engine:
    """The warehouse's owner, which is started if there is none."""
    with _lock:
        found = _engines.get(root)
        if found is None or found.lost:
            for place in [p for p in _tables if p.root == root]:
                del _tables[place]
            if found is not None:
                found.close()
            _engines[root] = found = summon(root)
            _settle()
        return found


def _settle() -> None:
    """Spark has its Python processes look for garbage after every task, through all modules that they have loaded: 20 to 40 ms of a core
    each time, in four processes for every batch of a stream. What is here by now stays anyway, so it need not be looked at again.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":  # one of Spark's own, not a user's
        gc.freeze()


def table(place: TablePath) -> TableEngine:
    """A table of it. Raises NotFoundError if there is none, and makes no warehouse to look for it."""
    if place.root not in _engines:
        _check_is_there(place)
    owner = engine(place.root)
    with _lock:
        found = _tables.get(place)
        if found is None or found.lost:
            _tables[place] = found = owner.table(place.table)
        return found


def _check_is_there(place: TablePath) -> None:
    if os.path.lexists(os.path.join(place.root, CATALOG)):
        return
    if os.path.lexists(os.path.join(str(place), CATALOG)):
        raise NotFoundError(f"{place} is a warehouse, and not a table in one: add the table's name, as in load('{place}/taxi')")
    raise NotFoundError(
        f"there is no warehouse in {place.root}, where table {place.table!r} should be: it has no {CATALOG}. A path is the folder of the "
        "warehouse, then the table's name"
    )


def forget(place: TablePath) -> None:
    """The table may have been dropped or made anew since it was looked at."""
    with _lock:
        _tables.pop(place, None)


@contextmanager
def of(place: TablePath) -> Iterator[TableEngine]:
    """A table for as long as a task uses it. If it was dropped meanwhile, the next attempt looks for it anew."""
    found = _repeated(place, lambda: table(place), twice=True)
    try:
        yield found
    except ClosedError:
        forget(place)
        raise


def spec(place: TablePath) -> TableSpec:
    """The definition of a table that is there."""
    return _repeated(place, lambda: table(place), twice=True).spec


def do(place: TablePath, operation: TableOperation[T], twice: bool = True) -> T:
    """Have the owner carry out what may be done twice: if the owner dies meanwhile, the next one is asked.

    With `twice=False` the next one is asked only if it is certain that nothing was done, as by an owner that just leaves.
    """
    return _repeated(place, lambda: table(place).do(operation), twice)


def create(place: TablePath, wanted: TableSpec) -> TableSpec:
    """The table of this definition, which is made if it is not there."""
    return _repeated(place, lambda: engine(place.root).create(wanted, "open").spec, twice=True)


def _repeated(place: TablePath, ask: Callable[[], T], twice: bool) -> T:
    for _ in range(ATTEMPTS - 1):
        try:
            return ask()
        except OwnerLostError as e:
            if not twice and not e.untouched:
                raise
        except ClosedError:  # the table was dropped, and perhaps made anew
            forget(place)
    return ask()


def _forget_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _engines.clear()
    _tables.clear()


os.register_at_fork(after_in_child=_forget_in_child)
