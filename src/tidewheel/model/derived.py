"""Derived tables as plain values: the query that makes one, the plan of a refresh, and the outcome. All of it can go over a wire.

A derived table is a query over other tables, its *sources*. Its partitions are computed one set at a time, each at the generations of its
sources that the partition's *vector* names: one number for each source. A partition is stale when a partition of a source that it is made
of changed after that number. Nothing is ever marked as invalid: the comparison is all there is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from tidewheel.model.dataclass import dataclass
from tidewheel.model.schema import HIDDEN

SPARK_SQL = "spark-sql"
PYTHON = "python"

RECOMPUTE = "recompute"
"""All rows of the partitions are computed anew."""
APPEND = "append"
"""The rows that new source rows make are added; those that are there stay."""
MERGE = "merge"
"""What new source rows add up to is merged with the sums that are there."""
KEYS = "keys"
"""All rows of the keys that changed are computed anew; those of other keys stay."""

SUM, COUNT = f"{HIDDEN}sum", f"{HIDDEN}count"
"""How the names of hidden columns begin that keep the state of averages."""

MODES = (APPEND, MERGE, KEYS, RECOMPUTE)
INCREMENTAL = ("auto", "never", "strict")


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to bring a derived table up to date, and why it can be used for this definition, or why not."""

    name: str
    reason: str
    column: str = ""
    """keys: the derived table's column whose value is the key of sources."""
    source_column: str = ""
    """keys: the column of the source that it is, where there is only one source."""
    groups: tuple[str, ...] = ()
    """merge: the columns that rows are grouped by."""
    combine: tuple[tuple[str, str], ...] = ()
    """merge: how the values of every other column are merged: (column, sum | min | max)."""
    ratios: tuple[tuple[str, str, str], ...] = ()
    """merge: columns that are quotients of two merged ones, as averages are: (column, dividend, divisor). The two may be hidden columns."""
    sources: tuple[tuple[str, ...], ...] = ()
    """append, merge: sets of sources. If only sources of one set changed, their new rows are computed, with all rows of those that are
    not in it. Empty: the only source."""
    source_keys: tuple[tuple[str, str], ...] = ()
    """keys: (source, key column) of the sources of which only rows of the keys that changed are read. Empty: the only source."""

    def grown_by(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """append, merge: `sources` of a definition over the sources of these names."""
        return self.sources or ((tuple(names),) if len(names) == 1 else ())

    def keys_by(self, names: Sequence[str]) -> dict[str, str]:
        """keys: `source_keys` of a definition over the sources of these names."""
        return dict(self.source_keys) or ({names[0]: self.source_column} if len(names) == 1 else {})


@dataclass(frozen=True, slots=True)
class Definition:
    """What makes a derived table. Stored with the table as JSON, so that every process refreshes it alike."""

    language: str
    text: str
    """The query in Spark SQL, or module:function of a Python function."""
    digest: str
    """Of the text, or of the function's source: a process that would compute something else refuses to."""
    modes: tuple[Mode, ...]
    """Those that can be used, the best first; recompute is always the last."""
    unusable: tuple[Mode, ...] = ()
    """Those that cannot, with the reason."""
    incremental: str = "auto"
    begin: int | None = None
    """Partitions before this time, in units of the time column, are never computed."""
    conf: tuple[tuple[str, str], ...] = ()
    """Settings of the Spark session that the answer may depend on: time zone, ANSI mode and others."""
    apart: bool = False
    """Partitions are computed one by one: a join pairs rows of all that are computed together."""
    made_with: str = ""
    """The version of Spark that analysed it."""
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(source, columns) that each source is narrowed to before the query runs, in their order: `SELECT *` stands for these, whatever
    columns the source has later. A source that is not named here has all of its columns."""

    output: tuple[tuple[str, str], ...] = ()
    """(name, type) of the columns that it gave when it was analysed; empty: it was stored before this was."""

    def columns_of(self, source: str) -> tuple[str, ...] | None:
        """What a source is narrowed to; None: to nothing."""
        return dict(self.columns).get(source)

    def means_the_same(self, other: Definition) -> bool:
        """Whether both make the same rows. How they are kept up to date, and which columns are read, may differ:
        other versions of Tidewheel know other modes, and did not write down the columns."""
        one, two = (replace(each, modes=(), unusable=(), made_with="", columns=(), output=()) for each in (self, other))
        return one == two

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden columns that every computation gives behind those that are shown: the state that merging needs."""
        used = (name for mode in self.modes for _, *parts in mode.ratios for name in parts if name.startswith(HIDDEN))
        return tuple(dict.fromkeys(used))

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Definition:
        """The inverse of `to_json`. ValueError, KeyError or TypeError, if it cannot have been made by it."""
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("a definition is an object")
        for many in ("modes", "unusable"):
            data[many] = tuple(_mode(one) for one in data[many])
        data["conf"] = tuple((str(name), str(value)) for name, value in data["conf"])
        data["columns"] = tuple((str(source), tuple(map(str, names))) for source, names in data.get("columns", ()))
        data["output"] = tuple((str(name), str(type_)) for name, type_ in data.get("output", ()))
        found = Definition(**data)
        texts = (found.language, found.text, found.digest, found.incremental, found.made_with)
        if not all(isinstance(one, str) for one in texts) or found.language not in (SPARK_SQL, PYTHON) or not found.modes:
            raise ValueError("this is no definition of a derived table")
        if found.incremental not in INCREMENTAL or not (found.begin is None or type(found.begin) is int):
            raise ValueError("this is no definition of a derived table")
        return found


def average_state(position: int) -> tuple[str, str]:
    """The hidden columns that keep the sum and the count of an average, which is so many columns behind the first of its aggregate."""
    return f"{SUM}{position}", f"{COUNT}{position}"


def _mode(data: dict[str, Any]) -> Mode:
    combine = tuple((str(column), str(how)) for column, how in data["combine"])
    ratios = tuple((str(column), str(dividend), str(divisor)) for column, dividend, divisor in data["ratios"])
    sources = tuple(tuple(map(str, some)) for some in data.get("sources", ()))
    keys = tuple((str(source), str(column)) for source, column in data.get("source_keys", ()))
    groups = tuple(map(str, data["groups"]))
    mode = Mode(**{**data, "groups": groups, "combine": combine, "ratios": ratios, "sources": sources, "source_keys": keys})
    if mode.name not in MODES:
        raise ValueError(f"{mode.name!r} is no mode")
    return mode


# ---- what the catalog knows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Label:
    """A partition of a table: the last generation that brought or took rows, and the last that took some."""

    partition: int
    changed: int
    undone: int = 0


@dataclass(frozen=True, slots=True)
class Dependency:
    """One source of a derived table."""

    source_id: int
    source: str
    """The table's name; tables are not renamed."""
    bounds: str
    """JSON of `derive.bounds.Bounds`: which rows of the source make which rows."""
    verified: int = 0
    """All that changed in the source up to this generation is in the derived table."""


@dataclass(frozen=True, slots=True)
class RefreshedPartition:
    """A partition of a derived table that was computed, perhaps to no rows at all."""

    partition: int
    refresh: int
    """The number of the refresh that computed it last."""
    vector: tuple[int, ...]
    """The generation of each source, in the order of the dependencies."""


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """One refresh, as the catalog commits it: all of its partitions have one vector."""

    refresh: int
    """Refreshes of a table are numbered from 1."""
    job: str
    """A name that no other refresh has: whoever lost the owner during a commit asks for it."""
    mode: str
    vector: tuple[tuple[int, int], ...]
    """(id of the source, generation)."""
    partitions: tuple[tuple[int, int], ...]
    """(start of the partition, the refresh that made what was there; 0: none). Another one there means: somebody was faster."""
    verified: tuple[tuple[int, int], ...]
    """(id of the source, generation) up to which the table now has all changes; only those that rise."""
    began: float
    ended: float
    rows_read: int
    rows_written: int
    computed: int
    """Partitions."""
    changed: int
    """Partitions whose rows are others than before."""
    generation: int = 0
    """Of the derived table, after it."""
    keys: bytes | None = None
    """The keys whose rows it changed, and perhaps others, as an Arrow stream; None: too many to remember."""


@dataclass(frozen=True, slots=True)
class DerivedContents:
    """What a derived table is made of, besides rows."""

    dependencies: tuple[Dependency, ...]
    """In the order of the definition."""
    refreshed: tuple[RefreshedPartition, ...]
    """In rising order of the partition."""
    refreshes: tuple[RefreshRecord, ...]
    """The last ones, without their partitions, in rising order."""


# ---- a refresh ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceRead:
    """The rows of a source that a refresh reads: those of these times that were there at generation `upto`."""

    table: str
    upto: int
    times: tuple[tuple[int, int], ...]
    """Closed intervals in units of the source's time column, in rising order, apart from each other."""
    after: int | None = None
    """Only rows that came with a later generation."""
    bytes: int = 0
    """About how many, as they are stored."""
    whole: int = 0
    """About how many bytes all rows of these times have, also those that came before `after`."""
    contained: int = 0
    """All that changed in the source up to this generation is in the table, once the plan is committed. 0: no more than before,
    because partitions are left for later sets, or because nothing was in it."""


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """One set of stale partitions, and what has to be read to compute them. A value: whoever has it may compute and commit it."""

    job: str
    table: str
    mode: Mode
    partitions: tuple[tuple[int, int], ...]
    """(start, the refresh that made what is there; 0: none), in rising order."""
    intervals: tuple[tuple[int, int], ...]
    """The partitions' times: closed intervals in units of the derived table's time column, neighbours joined."""
    sources: tuple[SourceRead, ...]
    """In the order of the dependencies."""
    left: int = 0
    """Stale partitions that are left for later sets."""
    keys: tuple[Any, ...] | None = None
    """In mode keys: those that changed in sources that are derived themselves. Others are those of the rows that came to the sources that
    are read after a generation."""
    stored: int = 0
    """About how many bytes of the derived table's own chunks lie in the intervals."""


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """What the commit of a refresh did."""

    refresh: int
    generation: int
    """Of the derived table, after it."""
    partitions: int
    changed: int
    """Partitions whose rows are others than before: only these make further tables stale."""
    rows: int
    """Rows that were written."""


@dataclass(frozen=True, slots=True)
class DerivedState:
    """A derived table at one moment."""

    definition: Definition
    dependencies: tuple[Dependency, ...]
    partitions: int
    """That were computed."""
    stale: int
    """That are to be computed, fresh rows of the sources included."""
    stale_since: float | None
    """When the oldest change that is not in it yet came, or somewhat earlier: of changes from before its owner began, only the last of
    each partition has a time, so the age is counted from the last refresh that had them all, and misses the time from the cut of its
    pass to its own beginning. None: nothing is stale."""
    refreshed_at: float | None
    """When the last refresh ended."""
    refreshes: tuple[RefreshRecord, ...]
    """The last ones, in rising order, without their partitions."""
