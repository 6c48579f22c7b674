"""Which functions an expression over rows may call: those that make a value of a row, the same whenever they are asked.

DuckDB's own list of functions decides: what it calls volatile, or the same only within one query, is no function of a row. The exception
are those that tell the time: a query reads the clock once, for all of its rows and for every reading of its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from tidewheel.duck.bounded import AGGREGATES, SCALARS
from tidewheel.duck.evaluator import asked, evaluator
from tidewheel.duck.internals import tree_of_text
from tidewheel.duck.ip_functions import NAMES as IP_FUNCTIONS
from tidewheel.duck.nodes import walk

ABOUT_THE_PROCESS = frozenset(
    {
        "getenv", "current_setting", "getvariable", "set_config", "setseed", "nextval", "currval", "write_log", "sleep", "sleep_ms",
        "pg_sleep", "which_secret", "json_execute_serialized_sql", "from_substrait", "from_substrait_json", "get_block_size",
        "current_catalog", "current_database", "current_schemas", "current_query", "in_search_path", "txid_current", "duckdb_secrets",
        "load_aws_credentials", "pg_get_viewdef", "pg_get_constraintdef", "pg_get_expr", "read_text", "read_blob",
        "parse_duckdb_log_message", "current_connection_id", "current_transaction_id", "current_query_id",
    }
)  # fmt: skip
"""Functions that tell about the process, or change something in it. No statement may call them."""

MOMENTS = frozenset(
    {
        "now", "get_current_timestamp", "transaction_timestamp", "today", "current_date", "get_current_time", "current_localtime",
        "current_localtimestamp", "current_timestamp", "current_time", "localtime", "localtimestamp",
    }
)  # fmt: skip
"""Functions, and words, that tell the time."""

OTHER_WORDS = frozenset({"user", "current_user", "session_user", "current_role", "current_catalog", "current_schema", "current_database"})
"""Words that are calls, unless a column has that name."""

_SAME = frozenset({"error"})
"""Called volatile so that it is not left out; what it does depends on the row alone."""
_CHANGING = frozenset({"random", "uuid", "gen_random_uuid"})


class RowFunctions:
    """What kind each function is. DuckDB is asked when the first function comes that is not known to be harmless."""

    def __init__(self) -> None:
        self.kind = cache(self._kind)
        self._all = cache(self._listed)
        self._looked_at: set[str] = set()
        """Definitions of macros: one may have the name of what it calls."""

    def _listed(self) -> dict[str, list[tuple[str, str | None, str | None]]]:
        found: dict[str, list[tuple[str, str | None, str | None]]] = {}
        for name, *kind in asked("SELECT function_name, function_type, stability, macro_definition FROM duckdb_functions()"):
            found.setdefault(name.lower(), []).append((kind[0], kind[1], kind[2]))
        return found

    def _kind(self, name: str) -> str:
        """`row`, `moment`, `aggregate`, `window`, `changing` or `process`; `unknown` if there is no function of that name."""
        if name in ABOUT_THE_PROCESS:
            return "process"
        if name in MOMENTS:
            return "moment"
        if name in AGGREGATES:
            return "aggregate"
        if name in SCALARS and name not in _CHANGING or name in _SAME or name in IP_FUNCTIONS:
            return "row"
        kinds = {self._kind_of(*one) for one in self._all().get(name, ())}
        for kind in ("process", "changing", "moment", "aggregate", "window", "row"):
            if kind in kinds:
                return "process" if kind == "moment" else kind
        return "unknown"

    def _kind_of(self, type_: str, stability: str | None, macro: str | None) -> str:
        match type_, stability:
            case "scalar", "CONSISTENT":
                return "row"
            case "scalar", "CONSISTENT_WITHIN_QUERY":
                return "process"
            case "scalar", _:
                return "changing"
            case "aggregate" | "window", _:
                return type_
            case "macro", _:
                return self._macro(macro or "")
        return "unknown"

    def _macro(self, definition: str) -> str:
        """The worst of what it calls."""
        if definition in self._looked_at:
            return "row"
        self._looked_at.add(definition)
        with evaluator() as cursor:
            tree = tree_of_text(cursor, f"SELECT ({definition})")
        if tree.get("error"):
            return "process"
        kinds = {"process" if node.get("class") == "SUBQUERY" else "row" for node in walk(tree)}
        kinds.update(self.kind(name) for name in _called(tree))
        return next((kind for kind in ("process", "unknown", "changing", "moment", "aggregate", "window") if kind in kinds), "row")


def _called(tree: Any) -> Iterator[str]:
    for node in walk(tree):
        if node.get("class") in ("FUNCTION", "WINDOW"):
            yield node["function_name"].lower()
        words: list[str] = node.get("column_names") or []
        if len(words) == 1 and words[0].lower() in MOMENTS | OTHER_WORDS:
            yield "current_query" if words[0].lower() in OTHER_WORDS else "now"
