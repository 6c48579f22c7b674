"""What a fresh process loads before it has answered: to load is most of what a short command costs (benchmarks/startup.py measures it).

No time is taken here. An owner that lives for a second loads Flight, to listen: whether it does depends on the machine, so nothing is said
about that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.integration.owners import OwnerProcess

COMPILER = ("numba.np.linalg", "numba.np.arraymath", "numba.typed.typeddict")
"""What Numba compiles with."""

HEAVY = ("numba", "llvmlite", "sqlalchemy", "duckdb", "pandas", "polars", "pyspark", "prompt_toolkit", "pygments", "fastapi")
FUNCTIONS = ("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "importlib.metadata")

RUN = """
import json, sys
{program}
print(json.dumps([name for name in {names!r} if name in sys.modules]))
"""

COMMAND = """
from tidewheel.surfaces import cli
assert cli.main({arguments!r}) == 0
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("start") / "wh"
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64())])
    with tw.open(root) as wh:
        rows = pa.table([range(100), pa.array(range(100), pa.timestamp("us")), [0.5] * 100], schema=schema)
        wh.create_table("t", schema, time="ts", key="id").insert(rows)
    return root


def after(program: str, names: tuple[str, ...]) -> tuple[list[str], str]:
    """Which of these modules a fresh process has loaded when it has run the program; and what it printed."""
    done = subprocess.run([sys.executable, "-c", RUN.format(program=program, names=names)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *said, loaded = done.stdout.splitlines()
    return json.loads(loaded), "\n".join(said)


def command(*arguments: str) -> str:
    return COMMAND.format(arguments=list(arguments))


@pytest.mark.parametrize(
    ("statement", "answer"),
    [("SELECT count(*) FROM t", "100"), ("select COUNT( * )\nfrom t ;", "100")],
)
def test_a_count_without_an_owner(root: Path, statement: str, answer: str) -> None:
    loaded, said = after(command("sql", "-w", str(root), "--format", "csv", "-c", statement), (*HEAVY, *FUNCTIONS, "rich.console"))
    assert loaded == []
    assert said.splitlines()[-1] == answer


def test_a_count_and_rows_with_an_owner(root: Path) -> None:
    with OwnerProcess() as owner:
        owner.open(root)
        loaded, said = after(command("sql", "-w", str(root), "--format", "csv", "-c", "SELECT count(*) FROM t"), (*HEAVY, *FUNCTIONS))
        assert (loaded, said.splitlines()[-1]) == ([], "100")
        some = command("sql", "-w", str(root), "--format", "csv", "-c", "SELECT id FROM t LIMIT 1")
        loaded, said = after(some, (*HEAVY, *FUNCTIONS, "tidewheel.cluster.owner", "tidewheel.engine.local_engine", "tidewheel.write.log"))
        assert (loaded, said.splitlines()) == ([], ["id", "0"])
        owner.close(root)


def test_import_open_query(root: Path) -> None:
    program = f"""
import tidewheel as tw
with tw.open({str(root)!r}) as wh:
    assert wh.table("t").query(key=(10, 19)).to_arrow().num_rows == 10
"""
    names = ("sqlalchemy", "duckdb", "pandas", "polars", "pyspark", "rich", *COMPILER)
    loaded, _ = after(program, names)
    if loaded == list(COMPILER):  # the first process after a kernel was changed compiles it
        loaded, _ = after(program, names)
    assert loaded == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id, x FROM t WHERE x > 0.2 AND id IN (3, 5) AND ts < TIMESTAMP '2026-01-01'",
        "SELECT id % 7 AS k, sum(id), avg(x) FROM t WHERE ts > now() - INTERVAL '99 years' GROUP BY k HAVING count(*) > 1 ORDER BY k",
        "SELECT id FROM t ORDER BY x DESC, id LIMIT 3",
    ],
)
def test_conditions_groups_and_orders_need_no_pandas(root: Path, statement: str) -> None:
    """Arrow loads it with the first value of Python's that it converts."""
    loaded, _ = after(command("sql", "-w", str(root), "--format", "csv", "-c", statement), ("pandas", "polars", "sqlalchemy"))
    assert loaded == []


def test_what_asks_for_no_row_needs_no_kernel(root: Path) -> None:
    program = f"""
import tidewheel as tw
with tw.open({str(root)!r}) as wh:
    assert wh.tables() == ["t"] and wh.table("t").schema.names == ["id", "ts", "x"]
"""
    assert after(program, (*HEAVY, *FUNCTIONS))[0] == []


@pytest.mark.parametrize("arguments", [("--help",), ("sql", "--help"), ("--version",)], ids=" ".join)
def test_help(arguments: tuple[str, ...]) -> None:
    light = () if arguments == ("--version",) else ("importlib.metadata",)
    assert after(command(*arguments), (*HEAVY, "numpy", "pyarrow", "rich", "sqlite3", "asyncio", *light))[0] == []


def test_the_prompt_waits_for_nothing_but_itself() -> None:
    """All that is imported before the first line is typed."""
    program = (
        "import tidewheel.surfaces.shell.editor, tidewheel.surfaces.shell.opening, tidewheel.cluster.address, tidewheel.surfaces.arguments"
    )
    assert after(program, ("numpy", "pyarrow", "numba", "sqlalchemy", "duckdb", "pandas"))[0] == []
