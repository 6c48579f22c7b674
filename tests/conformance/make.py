"""`python -m tests.conformance.make`: writes what is expected in all files of cases, and the list of them.

Answers and types are those of DuckDB over tables of its own. Statements are written by hand, with `?` for types and without an answer;
those of the files named in `random_cases.py` are made there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from tests.conformance.random_cases import files
from tests.conformance.records import Query, Record, Statement, answered, parse, render, threshold_of
from tests.conformance.tables import HERE, TABLES, in_duckdb, rows_of, types_of

CONTENTS = HERE / "contents.txt"


def cases() -> list[Path]:
    return [path for path in sorted(HERE.glob("*.test")) if path != TABLES]


def filled(records: Sequence[Record], duck: Any) -> list[Record]:
    """The records with the answers that DuckDB has."""
    threshold = threshold_of(records)
    made: list[Record] = []
    for record in records:
        if isinstance(record, Query) and record.is_for("duckdb"):
            answer = duck.sql(record.sql).to_arrow_table()
            record = answered(replace(record, types=types_of(answer.schema)), rows_of(answer), threshold)
        elif isinstance(record, Statement) and record.is_for("duckdb") and fails(duck, record.sql) == record.ok:
            raise ValueError(f"line {record.line}: DuckDB {'refuses' if record.ok else 'has an answer to'} {record.sql}")
        made.append(record)
    return made


def fails(duck: Any, sql: str) -> bool:
    try:
        duck.sql(sql).to_arrow_table()
    except duckdb.Error:
        return True
    return False


def contents() -> str:
    """A line for each file: its name, its queries and its statements."""
    lines = []
    whole = [0, 0]
    for path in cases():
        records = parse(path.read_text())
        counts = [sum(isinstance(one, kind) for one in records) for kind in (Query, Statement)]
        whole = [a + b for a, b in zip(whole, counts, strict=True)]
        lines.append(f"{path.name:<28}{counts[0]:>6}{counts[1]:>6}")
    return "\n".join([f"{'file':<28}{'query':>6}{'stmt':>6}", *lines, f"{'all':<28}{whole[0]:>6}{whole[1]:>6}"]) + "\n"


def main() -> None:
    for name, text in files().items():
        (HERE / name).write_text(text)
    with in_duckdb() as duck:
        for path in cases():
            try:
                path.write_text(render(filled(parse(path.read_text()), duck)))
            except Exception as e:
                raise SystemExit(f"{path.name}: {e}") from e
    CONTENTS.write_text(contents())
    print(contents(), end="")


if __name__ == "__main__":
    main()
