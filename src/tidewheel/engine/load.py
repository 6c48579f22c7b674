"""`wh.load`: files into a table, which is made from the first of them if it is not there."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidewheel.engine.file_loader import FileLoader
from tidewheel.engine.operations import DropTable, GetState, ListTables
from tidewheel.engine.protocol import Engine, TableEngine
from tidewheel.errors import InputError, TidewheelError
from tidewheel.ingest.file_rows import Broken, named
from tidewheel.ingest.found_files import found_files, shown, size_of
from tidewheel.ingest.infer import type_of_texts
from tidewheel.ingest.new_table import define
from tidewheel.ingest.rules import FILES, Rules, choice
from tidewheel.ingest.sample import Sample
from tidewheel.model.definition import key_text, time_name
from tidewheel.model.load_report import LoadedFile, LoadReport
from tidewheel.model.partitions import partitions_of
from tidewheel.model.report import Progress
from tidewheel.model.schema import ColumnKey, Epoch, KeyRule, TableSpec


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What is loaded, and how."""

    table: str
    files: object
    """A path, a pattern, a folder, or a list of these."""
    time: str | Epoch | None = None
    key: str | KeyRule | None = None
    """Time and key of a table that is not there."""
    partition: str | None = None
    rules: Rules = field(default_factory=lambda: Rules(FILES, extra="reject"))
    on_bad: str = "reject"
    changed: str = "refuse"
    """A file that has changed since it was loaded: "refuse", or "load" what it has now, too."""
    threads: int | None = None

    def __post_init__(self) -> None:
        choice("on_bad", self.on_bad, ("reject", "error"))
        choice("changed", self.changed, ("refuse", "load"))
        if self.threads is not None and (isinstance(self.threads, bool) or not isinstance(self.threads, int) or self.threads < 1):
            raise InputError(f"threads is a whole number of at least 1, not {self.threads!r}")


def load(engine: Engine, request: LoadRequest, progress: Progress | None = None) -> LoadReport:
    """Load them. A file that cannot be loaded is an `error` of the report, beside which the others are loaded."""
    began = time.perf_counter()
    files = found_files(request.files, bool(request.rules.payload))
    rules = request.rules
    made: tuple[str, ...] | None = None
    if request.table in engine.do(ListTables()):
        table = engine.table(request.table)
        _check_same(request, table.spec)
        rules = _with_times(rules, files, table.spec)
    else:
        table, rules, made = _created(engine, request, files)
    threads = request.threads or _cores()
    done: list[LoadedFile] = []
    try:
        loader = FileLoader(table, engine.root, rules, request.on_bad, request.changed == "load", threads, progress)
        done += loader.load(files)
    finally:
        if made is not None and all(file.error for file in done):  # nothing came of it
            with suppress(TidewheelError):
                _drop_empty(engine, table)
    gone = made is not None and all(file.error for file in done)
    return LoadReport(request.table, tuple(done), time.perf_counter() - began, made is not None and not gone, made or ())


def check(report: LoadReport) -> LoadReport:
    """The report, if all files were loaded; else InputError says which were not, and why."""
    errors = report.errors
    if not errors:
        return report
    (name, first), more = next(iter(errors.items())), len(errors) - 1
    rest = f" So were {more} more: {', '.join(list(errors)[1:6])}{', …' if more > 5 else ''}." if more else ""
    loaded = len(report) - len(errors)
    others = f" The other {loaded} are in the table." if loaded > 1 else " The other one is in the table." if loaded else ""
    raise InputError(f"{name} was not loaded: {first.rstrip('.')}.{rest}{others} When it is mended, the same call loads what is missing")


def _created(engine: Engine, request: LoadRequest, files: Sequence[str]) -> tuple[TableEngine, Rules, tuple[str, ...]]:
    """A table for files like the first, the rules with what was found out about its times, and what was concluded."""
    rules = request.rules
    first = next((file for file in files if size_of(file)), files[0])
    try:
        sample = Sample.of_file(first, None, rules)
    except Broken as e:
        raise InputError(f"{shown(first)} cannot be read, so no table can be made from it: {e}") from e
    new = define(request.table, sample, {}, time=request.time, key=request.key, partition=request.partition, time_format=rules.time_format)
    rules = replace(rules, time_format=new.time_format, time_format_found=not rules.time_format)
    return engine.create(new.spec, "error"), rules, new.notes


def _check_same(request: LoadRequest, spec: TableSpec) -> None:
    """InputError: the table is there, with another time, key or partition than was said. What was not said may be anything."""
    time, key, partition = request.time, request.key, request.partition
    rule = ColumnKey(key) if isinstance(key, str) else key
    other = ""
    if time is not None and (time_name(time) != spec.time.column or isinstance(time, Epoch) and time.unit != spec.time.unit):
        other = f"time {spec.time.column}, not {time_name(time)}"
        if time_name(time) == spec.time.column:
            other = f"times in {spec.time.unit}, not in {getattr(time, 'unit', '')}"
    elif rule is not None and rule != spec.key:
        other = f"key {key_text(spec.key)}, not {key_text(rule)}"
    elif partition is not None:
        try:
            same = partitions_of(partition, spec.time) == spec.partitions
        except ValueError as e:
            raise InputError(f"partition of table {spec.name!r}: {e}") from None
        other = "" if same else f"partitions of {spec.partition}, not of {partition}"
    if other:
        raise InputError(f"table {spec.name!r} is there already, and has {other}; leave that out, or load into a table of another name")


def _with_times(rules: Rules, files: Sequence[str], spec: TableSpec) -> Rules:
    """In CSV, numbers are text. Where the times of the first such file are whole numbers, they count the column's unit."""
    type_ = spec.schema.field(spec.time.column).type
    if rules.time_format or not pa.types.is_timestamp(type_):
        return rules
    for file in files:
        with suppress(Broken, InputError):
            if named(file, rules.payload)[0] not in ("csv", "tsv"):
                continue
            values = Sample.of_file(file, None, rules).values.get(spec.time.column, [])
            epoch = f"epoch-{type_.unit}"
            return replace(rules, time_format=epoch, time_format_found=True) if pa.types.is_integer(type_of_texts(values)) else rules
    return rules


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _drop_empty(engine: Engine, table: TableEngine) -> None:
    if not table.do(GetState()).rows:
        engine.do(DropTable(table.spec.name))
