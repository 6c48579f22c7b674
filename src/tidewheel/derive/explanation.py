"""What a derived table is made of, and how it is kept up to date, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tidewheel.derive.bounds import Bounds
from tidewheel.model.derived import PYTHON, Definition, Mode
from tidewheel.model.schema import TableSpec

_WHAT = {
    "append": "new source rows are computed and added",
    "merge": "sums of new source rows are merged with those that are there",
    "keys": "keys of new source rows are computed anew, others stay",
    "recompute": "partitions are computed anew",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A definition, looked at from outside. `print` it."""

    name: str
    text: str
    """The query in Spark SQL, or module:function."""
    language: str
    sources: tuple[str, ...]
    bounds: Mapping[str, Bounds]
    """By source: which of its rows a row is made of."""
    mode: str
    """The best mode that it can be kept up to date by."""
    modes: tuple[Mode, ...]
    """All that can be used, the best first, each with the reason."""
    unusable: tuple[Mode, ...]
    """Those that cannot, each with the reason."""
    policy: Mapping[str, str | None]
    """How it is to be refreshed: incremental, partition, begin, together."""
    schema: pa.Schema
    time: str
    key: tuple[str, ...]
    warnings: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        what = "function" if self.language == PYTHON else "Spark SQL"
        lines = [f"{self.name}: derived from {', '.join(self.sources)} by {what}", *_indented(self.text.strip().splitlines())]
        lines.append("a row is made of")
        lines += _columns([(source, str(bounds)) for source, bounds in self.bounds.items()])
        lines.append("refreshed by")
        lines += _columns([(one.name, _because(one)) for one in self.modes])
        if self.unusable:
            lines.append("not by")
            lines += _columns([(one.name, one.reason) for one in self.unusable])
        lines.append("policy")
        lines += _columns([(name, str(value)) for name, value in self.policy.items() if value is not None])
        lines.append(f"columns (time {self.time}, key {', '.join(self.key)})")
        lines += _columns([(one.name, str(one.type)) for one in self.schema])
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def explained(spec: TableSpec, definition: Definition, bounds: Mapping[str, str], warnings: tuple[str, ...] = ()) -> Explanation:
    """`bounds`: JSON of `Bounds`, by source."""
    begin = None if definition.begin is None else spec.time.show(definition.begin)
    return Explanation(
        spec.name, definition.text, definition.language, tuple(bounds), {name: Bounds.from_json(text) for name, text in bounds.items()},
        definition.modes[0].name, definition.modes, definition.unusable,
        {
            "incremental": definition.incremental, "partition": spec.partition, "begin": begin,
            "together": "one partition at a time, because it pairs rows by near times" if definition.apart else None,
        },
        spec.schema, spec.time.column, spec.key.columns, warnings,
    )  # fmt: skip


def _because(mode: Mode) -> str:
    return _WHAT[mode.name] + (f": {mode.reason}" if mode.reason else "")


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]


def _columns(pairs: list[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"  {name:{width}}  {text}".rstrip() for name, text in pairs]
