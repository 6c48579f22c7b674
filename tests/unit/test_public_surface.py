"""The public surface: a tested list of names, light to import, one tree of errors."""

from __future__ import annotations

import inspect
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import tidewheel as tw
from tidewheel import errors

NAMES = [
    "Ack", "BadRowsError", "CorruptionError", "Derived", "InputError", "LimitError", "NotFoundError", "OwnedError", "QueryError", "Result",
    "Settings", "StorageError", "Table", "TidewheelError", "Warehouse", "bounds", "epoch", "ip", "open", "restore",
    "zorder",
]  # fmt: skip
HEAVY = ("numba", "duckdb", "sqlalchemy", "pyspark", "pandas", "polars", "fastapi", "llvmlite", "rich")


def test_the_exported_names_are_this_list() -> None:
    assert sorted(tw.__all__) == NAMES
    assert len(NAMES) < 30
    assert dir(tw) == sorted([*NAMES, "__version__"])
    for name in NAMES:
        assert getattr(tw, name).__doc__, name


def test_what_few_need_can_be_named_too() -> None:
    assert tw.CancelledError is errors.CancelledError and issubclass(tw.CancelledError, tw.LimitError)
    assert tw.CorruptionWarning is errors.CorruptionWarning and issubclass(tw.CorruptionWarning, UserWarning)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        tw.opne  # noqa: B018


@pytest.mark.parametrize(
    "where, takes",
    [
        ("open", ["path", "create", "settings"]),
        ("Warehouse.create_table", ["self", "name", "schema", "time", "key", "partition", "if_exists"]),
        (
            "Warehouse.load",
            [
                "self", "table", "files", "time", "key", "partition", "on_bad", "changed", "extra", "payload", "time_format", "columns",
                "delimiter", "nulls", "threads", "progress",
            ],
        ),
        ("Warehouse.table", ["self", "name"]),
        ("Warehouse.tables", ["self"]),
        ("Warehouse.drop_table", ["self", "name", "cascade"]),
        (
            "Warehouse.create_derived",
            [
                "self", "name", "sql", "time", "key", "partition", "bounds", "incremental", "begin", "if_exists", "deterministic", "spark",
            ],
        ),
        (
            "Warehouse.explain_derived",
            ["self", "sql", "time", "key", "partition", "bounds", "incremental", "begin", "deterministic", "spark"],
        ),
        ("Warehouse.derived", ["self", "name", "if_exists", "how"]),
        ("Warehouse.refresh", ["self", "names", "spark", "progress"]),
        ("Warehouse.refresher", ["self", "every", "names", "spark"]),
        ("bounds", ["before", "after", "every"]),
        ("Derived.refresh", ["self", "time", "full", "spark", "progress"]),
        ("Derived.verify", ["self", "sample", "spark"]),
        ("Warehouse.sql", ["self", "statement", "params", "tables", "timeout", "max_rows", "max_bytes"]),
        ("Warehouse.cancel", ["self", "query"]),
        ("Table.dataset", ["self"]),
        ("Warehouse.check", ["self", "repair", "progress"]),
        ("Warehouse.backup", ["self", "folder", "verify", "progress"]),
        ("restore", ["folder", "root", "progress", "disk"]),
        ("Table.insert", ["self", "data", "package", "on_bad", "timeout"]),
        ("Table.replace", ["self", "data", "time", "timeout"]),
        ("Table.describe", ["self"]),
        ("Table.flush", ["self"]),
        ("Table.rejects", ["self"]),
        ("Table.metrics", ["self"]),
        ("Result.cancel", ["self"]),
        ("Result.to_parquet", ["self", "path", "compression"]),
        ("Result.fetchmany", ["self", "size"]),
        ("Table.head", ["self", "n"]),
        (
            "Table.query",
            [
                "self", "key", "time", "box", "ranges", "where", "params", "columns", "order_by", "limit", "offset", "aggregate",
                "group_by", "timeout", "max_rows", "max_bytes", "on_corrupt",
            ],
        ),
        (
            "Table.latest",
            [
                "self", "key", "time", "box", "ranges", "where", "params", "columns", "order_by", "limit", "offset", "timeout", "max_rows",
                "max_bytes", "on_corrupt",
            ],
        ),
    ],
)  # fmt: skip
def test_what_users_call_takes_these(where: str, takes: list[str]) -> None:
    thing = tw
    for part in where.split("."):
        thing = getattr(thing, part)
    assert list(inspect.signature(thing).parameters) == takes  # type: ignore[arg-type]


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, tidewheel; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_open_insert_and_query_need_no_duckdb(tmp_path: Path) -> None:
    code = f"""
import sys, pyarrow as pa, tidewheel as tw
with tw.open({str(tmp_path / "wh")!r}) as wh:
    t = wh.create_table("t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="id")
    t.insert(pa.table([pa.array([1, 2]), pa.array([1, 2], pa.timestamp("us"))], schema=t.schema))
    assert len(t.query(key=(1, 1)).to_arrow()) == 1
print([m for m in ("duckdb", "polars", "pyspark", "rich") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_import_is_quick() -> None:
    """Less than 0.3 s of a processor, which a busy machine hardly changes; it gets ten tries all the same."""
    taken = []
    for _ in range(10):
        began = processor_time_of_children()
        subprocess.run([sys.executable, "-c", "import tidewheel"], check=True)
        taken.append(processor_time_of_children() - began)
        if taken[-1] < 0.3:
            return
    pytest.fail(f"import tidewheel took {sorted(taken)} s")


def processor_time_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_all_errors_are_one_tree_and_drawn_in_the_docstring() -> None:
    found = [e for _, e in inspect.getmembers(errors, inspect.isclass) if issubclass(e, Exception) and not issubclass(e, Warning)]
    for error in found:
        assert issubclass(error, tw.TidewheelError)
        assert error.__name__ in (errors.__doc__ or "")
        assert isinstance(error.retryable, bool)
    assert tw.OwnedError.retryable and tw.StorageError.retryable and not tw.InputError.retryable


class TestSettings:
    def test_they_are_frozen(self) -> None:
        with pytest.raises(AttributeError):
            tw.Settings().chunk_bytes = 5  # type: ignore[misc]

    @pytest.mark.parametrize(
        "wrong, said",
        [
            ({"durability": "disk"}, "durability is one of 'memory', 'process', 'fsync', not 'disk'"),
            ({"damaged_log": "ignore"}, "damaged_log is one of 'refuse', 'skip'"),
            ({"chunk_bytes": 1}, "chunk_bytes must be a number of at least 4096, not 1"),
            ({"chunk_bytes": 5000.5}, "chunk_bytes must be a whole number"),
            ({"indexing_servers": 0}, "indexing_servers must be a number of at least 1"),
            ({"indexing_servers": True}, "indexing_servers"),
            ({"flush_after": float("nan")}, "flush_after"),
            ({"flush_after": "soon"}, "flush_after must be a number"),
            ({"late_after": -1}, "late_after"),
            ({"max_batch_bytes": 5}, "max_batch_bytes must be a number of at least 4096"),
            ({"query_seconds": 0}, "query_seconds must be a number above 0, or None"),
            ({"query_rows": "many"}, "query_rows must be a number above 0"),
            ({"query_bytes": -0.5}, "query_bytes must be a number above 0"),
        ],
    )
    def test_impossible_values_are_refused(self, wrong: dict[str, object], said: str) -> None:
        with pytest.raises(tw.InputError, match=said):
            tw.Settings(**wrong)  # type: ignore[arg-type]

    def test_an_unknown_name_lists_the_known_ones(self) -> None:
        with pytest.raises(tw.InputError, match="unknown setting 'chunk_byte'; known: durability, damaged_log, late_after"):
            tw.Settings.of({"chunk_byte": 1})

    def test_every_setting_says_what_it_trades(self) -> None:
        source = inspect.getsource(tw.Settings)
        for name in tw.Settings.__dataclass_fields__:
            assert f"    {name}: " in source and source.split(f"    {name}: ")[1].split("\n")[1].strip().startswith('"""'), name
