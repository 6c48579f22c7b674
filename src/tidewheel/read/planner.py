"""The planner: checks a query, turns its bounds into codes and hands out a lazy result.

Everything that can be wrong with a query is found here, before any row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.chunk.format import generation_column
from tidewheel.errors import QueryError
from tidewheel.index.version import Version
from tidewheel.model.codes import KeyCoder
from tidewheel.model.ip_addresses import address_text, is_network, network_of
from tidewheel.model.pieces import Shape
from tidewheel.model.query import Query, pair
from tidewheel.model.schema import Ip, TableSpec, ZOrder, nearest
from tidewheel.read.damage import Damage, find_intact
from tidewheel.read.limits import Limits, Watch
from tidewheel.read.materialise import Columns
from tidewheel.read.ordering import SortKey, parse_order
from tidewheel.read.scan import Era, Found, Matrix, StoredColumns, find
from tidewheel.read.wanted import Wanted
from tidewheel.settings import Settings

Mask = np.ndarray

_REMEMBERED = 256
"""Choices of columns."""


class Planner:
    """Answers queries about one table. Holds what can be worked out once; safe to use from several threads."""

    def __init__(self, spec: TableSpec, shape: Shape, settings: Settings, stored: StoredColumns) -> None:
        self.spec = spec
        self.shape = shape
        self.settings = settings
        self.stored = stored
        self.limits = Limits.of(settings)
        self.names: list[str] = spec.schema.names
        self._numbers = {n: i for i, n in enumerate(self.names)}
        self._generations = generation_column(spec)
        self._all = Columns(list(range(len(self.names))), spec.stored, shape)
        self.everything = Columns(list(range(len(spec.stored))), spec.stored, shape) if spec.hidden else self._all
        """All columns, the hidden ones too: for refreshes."""
        self._some: dict[tuple[str, ...], Columns] = {}
        """Other columns that were asked for: they often are again."""
        self.remembered: dict[Any, Any] = {}
        """Parsed totals of queries, by their expressions: `read.aggregate` keeps them here."""

    def columns(self, names: Sequence[str] | None, role: str = "columns") -> Columns:
        if names is None:
            return self._all
        if isinstance(names, str) or not isinstance(names, Iterable):
            like = f", like [{names!r}]" if isinstance(names, str) else ""
            raise QueryError(f"{role} is a list of column names{like}, not {names!r}")
        asked = tuple(names)
        try:
            if (known := self._some.get(asked)) is not None:
                return known
        except TypeError:  # no name of a column, as is said below
            pass
        numbers = [self.number(n, role) for n in asked]
        if len(set(numbers)) < len(numbers):
            raise QueryError(f"{role}: a column of table {self.spec.name!r} is named twice in {list(asked)}")
        made = self._all if numbers == self._all.numbers else Columns(numbers, self.spec.stored, self.shape)
        if len(self._some) < _REMEMBERED:
            self._some[asked] = made
        return made

    def are_columns(self, names: Any) -> bool:
        """Whether a list names nothing but columns; also of what is no such list, which is refused as it is."""
        if names.__class__ not in (list, tuple):
            return True
        known = self._numbers
        return all(name.__class__ is not str or name in known for name in names)

    def number(self, name: str, role: str) -> int:
        try:
            return self._numbers[name]
        except (KeyError, TypeError):
            hint = nearest(name, self.names) if isinstance(name, str) else ""
            raise QueryError(f"{role}: table {self.spec.name!r} has no column {name!r}.{hint} Columns: {', '.join(self.names)}") from None

    def scan(self, version: Version, query: Query, columns: Columns, watch: Watch) -> Scan:
        """Check the bounds of a query and find its segments. `columns` are those that it will read."""
        spec = self.spec
        if query.key.__class__ is list:
            keys, check = self._listed(version.coder, query)
        else:
            lo, hi = self._key_bounds(query)
            keys, check = Wanted(version.coder, lo, hi), _checker(version.coder, lo, hi)
        t0, t1 = pair(query.time, "time")
        first, last = spec.time.interval(t0, t1)
        era: Era | None = None
        if query.after is not None or query.upto is not None:
            version, era = self._era(version, query)
        corners = None if query.box is None else partial(_corners, spec, keys)
        damage: Damage | None = None
        if query.on_corrupt == "error":
            found = find(version, keys, first, last, self.stored, watch, era=era, corners=corners)
        else:
            found, damage = find_intact(
                lambda known: find(version, keys, first, last, self.stored, watch, known, era, corners),
                version,
                lambda found: (columns, self.columns(version.coder.columns)) if found.doubtful else (columns,),
                watch,
            )
        return Scan(self, found, keys, (first, last), check, damage)

    def _era(self, version: Version, query: Query) -> tuple[Version, Era]:
        """The version as it was, and the generations whose rows are wanted."""
        name = self.spec.name
        after = 0 if query.after is None else _generation(query.after, "after")
        upto = version.settled if query.upto is None else _generation(query.upto, "upto")
        if after > version.generation:
            raise QueryError(
                f"after: table {name!r} has only reached generation {version.generation}, not {after}: it is not the table that was read "
                "before, or was restored to an earlier state. Read it from the beginning"
            )
        if upto > version.settled:
            raise QueryError(f"upto: table {name!r} has only reached generation {version.settled}, not {upto}")
        if query.after is None:
            if upto < version.horizon:
                raise QueryError(
                    f"upto: table {name!r} cannot be read any more as it was at generation {upto}: rows of it were replaced, and are gone. "
                    f"The earliest generation it can be read at is {version.horizon}"
                )
            _check_known(version, upto, name)
        return version.at(upto), Era(after, upto, self._generations)

    def _listed(self, coder: KeyCoder, query: Query) -> tuple[Wanted, Callable[[pa.RecordBatch], Mask]]:
        """A list of keys: where they are, and which rows have them."""
        from tidewheel.read.key_list import WantedKeys

        assert isinstance(query.key, list)
        if isinstance(self.spec.key, ZOrder) or query.box is not None:
            self._key_bounds(query)  # says why not
        keys = WantedKeys(coder, query.key)
        return keys, keys.matches

    def _key_bounds(self, query: Query) -> tuple[Any, Any]:
        zorder = isinstance(self.spec.key, ZOrder)
        if query.box is not None:
            if not zorder:
                raise QueryError(f"box: table {self.spec.name!r} has no z-order key; ask with key=(lo, hi)")
            columns = self.spec.key.columns
            dims = len(columns)
            if not isinstance(query.box, (tuple, list)) or len(query.box) != 2 * dims:
                raise QueryError(
                    f"box of table {self.spec.name!r} has {2 * dims} numbers: all lower ends, then all upper ends, of {columns}"
                )
            if query.key is not None:
                raise QueryError("give either key= or box=, not both")
            return tuple(query.box[:dims]), tuple(query.box[dims:])
        if query.key is None:
            return None, None
        if zorder:
            raise QueryError(
                f"key: table {self.spec.name!r} is keyed by the z-order of {self.spec.key.columns}; ask with box=(lower ends…, upper ends…)"
            )
        if isinstance(self.spec.key, Ip) and is_network(query.key):
            first, last = network_of(query.key)
            return address_text(first), address_text(last)
        return pair(query.key, "key")


class Scan:
    """Pieces and segments of one query, before rows are copied."""

    __slots__ = ("check", "damage", "found", "keys", "planner", "time")

    def __init__(
        self,
        planner: Planner,
        found: Found,
        keys: Wanted,
        time: tuple[int, int],
        check: Callable[[pa.RecordBatch], Mask],
        damage: Damage | None,
    ) -> None:
        self.planner = planner
        self.found = found
        self.keys = keys
        self.time = time
        self.check = check
        self.damage = damage


def _checker(coder: KeyCoder, lo: Any, hi: Any) -> Callable[[pa.RecordBatch], Mask]:
    return lambda batch: coder.matches(batch, lo, hi)


def _corners(spec: TableSpec, keys: Wanted) -> Matrix | None:
    from tidewheel.read.coordinates.corner_codes import corner_codes

    return corner_codes(spec, *keys.corners)


def _check_known(version: Version, generation: int, table: str) -> None:
    """Raise unless all rows can be told apart by this generation. (Changes need only be told apart once.)"""
    for chunk in version.chunks:
        record = chunk.record
        if record.format == 1 and record.generation_lo <= generation < record.generation_hi:
            raise QueryError(
                f"upto: which rows table {table!r} had at generation {generation} is not known, because {record.file} "
                f"is a chunk of format 1; ask for generation {record.generation_hi} or a later one"
            )


def _generation(value: Any, role: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise QueryError(f"{role} is a generation, a whole number such as Ack.generation, not {value!r}")
    return int(value)


def check_limit(limit: Any) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 0:
        raise QueryError(f"limit is a whole number of rows, not {limit!r}")
    return int(limit)


def check_offset(offset: Any) -> int:
    if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)) or offset < 0:
        raise QueryError(f"offset is a whole number of rows to leave out, not {offset!r}")
    return int(offset)


def check_corrupt(on_corrupt: Any) -> None:
    if on_corrupt not in ("error", "skip"):
        raise QueryError(f'on_corrupt is "error" or "skip", not {on_corrupt!r}')


def sort_keys(planner: Planner, order_by: Any, names: Sequence[str]) -> list[SortKey]:
    keys = parse_order(order_by, names)
    for key in keys:
        if key.column not in names:
            falling = key.column.removeprefix("-")
            hint = f" Falling is {falling + ' desc'!r}." if key.column != falling in names else nearest(key.column, list(names))
            raise QueryError(
                f"order_by: no column {key.column!r} in the result of table {planner.spec.name!r}.{hint} Columns: {', '.join(names)}"
            )
    return keys
