"""A query's groups, planned: what the kernels read and keep of each group. Nothing in it changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidewheel.model.dataclass import dataclass
from tidewheel.model.pieces import COLUMNS, SLOTS
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.aggregates import ARG_MAX, ARG_MIN, Aggregate, type_of_aggregate
from tidewheel.read.groups.keys import Key, type_of_key
from tidewheel.read.groups.lowering import CODE, TEXT, KernelStep, Lowered, Numbers, lowered
from tidewheel.read.totals.parse import MIN

_WORDS = {layout.SUM_WIDE: 2, layout.MOMENTS: 3, layout.BEFORE: 3, layout.AFTER: 3}
_EMPTY = {layout.LEAST: INT64_MAX, layout.GREATEST: INT64_MIN, layout.LEAST_TEXT: INT64_MIN, layout.GREATEST_TEXT: INT64_MIN}
_TEXT_AT = {layout.BEFORE: 2, layout.AFTER: 2}
"""Which word of a fold is the number of a text, if it is not the first."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Something that is folded of a value."""

    what: int
    by: str = ""
    skips_nulls: bool = False


@dataclass(frozen=True, slots=True)
class FoldedValue:
    """A value that something is wanted of, and where groups have it."""

    key: Key
    type: pa.DataType
    form: Lowered
    nulls_at: int
    folds: dict[Fold, int]
    """The first word of each."""


class Grouping:
    """Groups by some keys, of which there may be none, and what they come to, over rows of a schema."""

    folds = None
    in_place = True

    def __init__(self, keys: Mapping[str, Key], aggregates: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        """All of them have a type."""
        self.keys, self.aggregates = list(keys.values()), list(aggregates.values())
        fields = [pa.field(name, type_of_key(key, schema)) for name, key in keys.items()]
        fields += [pa.field(name, type_of_aggregate(aggregate, schema)) for name, aggregate in aggregates.items()]
        self.schema = pa.schema(fields)
        self.key_forms = [lowered(key, schema, late=True) for key in self.keys]
        words = [0]
        self.values: dict[Key, FoldedValue] = {}
        for aggregate in self.aggregates:
            if aggregate.of is not None:
                self._add(aggregate, aggregate.of, words, schema)
        self.empty: Numbers = np.array(words, np.int64)
        """The words of a group without rows."""
        self._lower(schema)

    def _add(self, aggregate: Aggregate, key: Key, words: list[int], schema: pa.Schema) -> None:
        value = self.values.get(key)
        if value is None:
            type_ = type_of_key(key, schema) or schema.field(key.column).type
            value = self.values[key] = FoldedValue(key, type_, lowered(key, schema), len(words), {})
            words.append(0)
        if (fold := fold_of(aggregate, value)) is not None and fold not in value.folds:
            value.folds[fold] = len(words)
            words += [_EMPTY.get(fold.what, 0)] * _WORDS.get(fold.what, 1)

    def _lower(self, schema: pa.Schema) -> None:
        deciding = list(dict.fromkeys(fold.by for value in self.values.values() for fold in value.folds if fold.by))
        used = [key.column for key in (*self.keys, *self.values)]
        self.reads = list(dict.fromkeys([*used, *deciding]))
        """Columns."""
        self.columns_at = [COLUMNS + SLOTS * schema.get_field_index(name) for name in self.reads]
        """Their first words in a piece, which has `width` words at least."""
        self.width = COLUMNS + SLOTS * len(schema)
        steps: list[KernelStep] = []
        folds: list[tuple[int, int, int, int]] = []
        rows: list[tuple[int, ...]] = []

        def add(column: str, form: Lowered, more: tuple[KernelStep, ...], nulls_at: int, own: list[tuple[int, int, int, int]]) -> None:
            at = COLUMNS + SLOTS * schema.get_field_index(column)
            made = (len(steps), len(steps) + len(more), int(form.rises), int(form.real), len(folds), len(folds) + len(own))
            rows.append((at, form.kind, *made, nulls_at))
            steps.extend(more)
            folds.extend(own)

        for key, form in zip(self.keys, self.key_forms, strict=True):
            add(key.column, form, (*form.steps, *([(CODE, 0, 0)] if form.real and not form.whole else [])), -1, [])
        behind = len(self.keys) + len(self.values)
        for value in self.values.values():
            own: list[tuple[int, int, int, int]] = [
                (fold.what, at, behind + deciding.index(fold.by) if fold.by else -1, int(fold.skips_nulls))
                for fold, at in value.folds.items()
            ]
            add(value.key.column, value.form, value.form.steps, value.nulls_at, own)
        for column in deciding:
            add(column, lowered(Key(column), schema), (), -1, [])
        self.paired = any(fold[0] == layout.NEW for fold in folds)
        self.value_rows: Numbers = np.array(rows, np.int64).reshape(-1, layout.VALUE)
        self.steps: Numbers = np.array(steps, np.int64).reshape(-1, 3)
        joined = [(layout.SUM_NARROW, layout.ROWS_AT), *((layout.SUM_NARROW, value.nulls_at) for value in self.values.values())]
        joined += [(fold[0], fold[1]) for fold in folds if fold[0] != layout.NEW]
        self.joined: Numbers = np.array(joined, np.int64)
        """What is done to the words of two groups to make one of them: (what, at)."""
        self.counted_at: Numbers = np.array([fold[1] for fold in folds], np.int64)
        of_texts = [f for row in rows if row[layout.KIND] == TEXT for f in range(row[layout.FIRST_FOLD], row[layout.BEHIND_FOLDS])]
        self.texted = sum(form.kind == TEXT for form in self.key_forms) + len(of_texts)
        """Texts among the keys, and folds of texts."""
        self.texted_folds = sum(1 << f for f in of_texts if folds[f][0] == layout.NEW)
        """A bit for each fold of texts that are told apart."""
        self.texts_at = [folds[f][1] + _TEXT_AT.get(folds[f][0], 0) for f in of_texts if folds[f][0] != layout.NEW]
        """The words of a group that are numbers of texts."""
        self.fold_rows: Numbers = np.array(folds, np.int64).reshape(-1, layout.FOLD)


def fold_of(aggregate: Aggregate, value: FoldedValue) -> Fold | None:
    """What the kernel does for an aggregate, besides counting."""
    match aggregate.what:
        case "count":
            return None
        case "count(distinct)":
            return Fold(layout.NEW)
        case "sum" | "avg":
            if value.form.real:
                return Fold(layout.SUM_REAL)
            return Fold(layout.SUM_NARROW if value.type.bit_width < 64 else layout.SUM_WIDE)
        case "min" | "max" if value.form.kind == TEXT:
            return Fold(layout.LEAST_TEXT if aggregate.what == MIN else layout.GREATEST_TEXT)
        case "min" | "bool_and":
            return Fold(layout.LEAST)
        case "max" | "bool_or":
            return Fold(layout.GREATEST)
        case "arg_min" | "first":
            return Fold(layout.BEFORE, aggregate.by, aggregate.what == ARG_MIN)
        case "arg_max" | "last":
            return Fold(layout.AFTER, aggregate.by, aggregate.what == ARG_MAX)
    return Fold(layout.MOMENTS)
