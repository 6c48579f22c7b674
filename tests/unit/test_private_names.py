"""What is private to DuckDB and to Spark is named in one module each, so that an upgrade has one place to look at."""

from __future__ import annotations

import re
from pathlib import Path

import tidewheel

HOUSE = Path(tidewheel.__file__).parent

DUCKDB = re.compile(r"\b_?duckdb\._|\b_register_|json_(de)?serialize_sql\(|PYTHON_ARROW_SCAN")
SPARK = re.compile(r"[.\"]_(jvm|jsc|jdf|jwrite|jreader|jconf|jsparkSession|gateway|active\w*|instantiated\w*)\b|import _\w|MODULE\$")


def uses(pattern: re.Pattern[str], files: list[Path]) -> set[str]:
    return {str(file.relative_to(HOUSE)) for file in files if pattern.search(file.read_text())}


def test_duckdb() -> None:
    assert uses(DUCKDB, list(HOUSE.rglob("*.py"))) == {"duck/internals.py"}


def test_spark() -> None:
    assert uses(SPARK, list((HOUSE / "spark").rglob("*.py"))) == {"spark/jvm.py"}
