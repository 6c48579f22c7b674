"""What a statement may not do, and what to do instead."""

from __future__ import annotations

import json
import re
from typing import Any

from tidewheel.duck.error_text import pointed
from tidewheel.duck.row_functions import ABOUT_THE_PROCESS
from tidewheel.duck.tokens import Tokens
from tidewheel.errors import QueryError
from tidewheel.sql.identifiers import A_FILE

TABLE_FUNCTIONS = frozenset(
    {
        "range",
        "generate_series",
        "unnest",
        "repeat",
        "repeat_row",
        "json_each",
        "json_tree",
        "generate_subscripts",
        "summary",
        "test_all_types",
    }
)
"""Functions that make rows of their arguments alone."""

_DERIVED = "derived tables: wh.create_derived(name, sql, time=…, key=…), refreshed by wh.refresh() or `tidewheel refresh`"

_MATERIALISED = re.compile(r"\s*(CREATE(\s+OR\s+REPLACE)?|REFRESH|ALTER|DROP)\s+MATERIALIZED\s+VIEW\b", re.IGNORECASE)

_INSTEAD = {
    "CREATE": "of all that can be created, a warehouse has tables: CREATE TABLE name (column type, …) WITH (time = …, key = …), and, for "
    f"queries whose rows are kept, {_DERIVED}",
    "DROP": "of all that can be dropped, a warehouse has tables: DROP TABLE name",
    "UPDATE": "rows are not changed one by one; exchange those of an interval of time with table.replace(rows, time=(first, last))",
    "DELETE": "rows are not deleted one by one; those of an interval of time leave with table.replace([], time=(first, last)), all with "
    "time=(None, None)",
    "MERGE_INTO": "exchange the rows of an interval of time with table.replace(rows, time=(first, last))",
    "ALTER": "a table keeps its columns; make another one and fill it with INSERT INTO … SELECT …",
    "COPY": "write what wh.sql(...) returns with to_parquet(...), and bring files in with wh.load(...)",
    "COPY_DATABASE": "make a backup with wh.backup(...)",
    "EXPORT": "make a backup with wh.backup(...)",
    "ATTACH": "a statement knows one warehouse; open the other with tw.open(...)",
    "DETACH": "a statement knows one warehouse",
    "LOAD": "extensions are not loaded",
    "SET": "limits are given with timeout=, max_rows= and max_bytes=, settings with tw.open(..., settings=...)",
    "VARIABLE_SET": "give values as parameters",
    "PRAGMA": "system.settings tells the settings",
    "CALL": "write SELECT * FROM the function",
    "EXECUTE": "give values as parameters",
    "PREPARE": "give values as parameters; statements are remembered by themselves",
    "TRANSACTION": "every statement reads one consistent set of versions, and changes all or nothing, by itself",
    "VACUUM": "the warehouse takes care of its files itself",
    "ANALYZE": "the warehouse takes care of its statistics itself",
    "MULTI": "a PIVOT must list its values: PIVOT t ON column IN (…) USING …",
}

_EXPLAINED = "EXPLAIN is of statements that read; of an INSERT, explain its SELECT"


def check_words(text: str) -> None:
    """Raises QueryError for statements that people know from elsewhere, and DuckDB cannot parse."""
    if _MATERIALISED.match(text):
        raise QueryError(f"there are no materialized views here, but {_DERIVED}; they are dropped with DROP TABLE name")


def refused_statement(kind: str, text: str, explained: bool = False) -> QueryError:
    """The error for a statement that is none of ours."""
    if explained:
        return QueryError(_EXPLAINED)
    word = Tokens(text).here.text.upper()
    kind = "MULTI" if word == "PIVOT" else kind.removesuffix("_STATEMENT")
    instead = _INSTEAD.get(kind, "only SELECT, EXPLAIN, DESCRIBE, SHOW TABLES, CREATE TABLE, DROP TABLE and INSERT are")
    return QueryError(f"{kind.replace('_', ' ') if word == 'WITH' else word} is not run here: {instead}")


def refused_table_function(name: str, text: str, place: tuple[int, int]) -> QueryError:
    said = f"{name}(…) is not allowed here: a statement reads tables of the warehouse only, no files and no network"
    if name.lower().startswith(("read_", "parquet_")):
        said += f". {A_FILE}"
    return QueryError(pointed(said, text, place))


def refused_function(node: dict[str, Any], text: str, place: tuple[int, int]) -> None:
    """Raises QueryError if a scalar function is one of those that are refused."""
    name = node["function_name"]
    if (node.get("schema") or node.get("catalog")) and not node.get("is_operator"):
        raise QueryError(pointed(f"write {name}(…) without a schema before it", text, place))
    if name.lower() in ("format", "printf") and not _is_short(node):
        raise QueryError(pointed(f"{name}(…) takes a constant text, with widths below 100000", text, place))
    if name.lower() in ABOUT_THE_PROCESS:
        raise QueryError(pointed(f"{name}(…) is not allowed here: it is about the process, not about rows", text, place))


def _is_short(node: dict[str, Any]) -> bool:
    """Whether a format is known, and pads nothing to more than a few thousand characters."""
    arguments = node.get("arguments") or [{}]
    first = arguments[0].get("expression", arguments[0])
    said = json.dumps(first)
    return (
        first.get("class") == "CONSTANT" and not re.search(r"\d{6,}", re.sub(r'"query_location[a-z_]*": \d+', "", said)) and "*" not in said
    )
