"""Names that other libraries have for what is here under another: the error about a name that there is not says what to write.

They are no second names: what is written in one way is read by everybody. Where DuckDB's names are in use (`df`, `fetchall`), they are
methods of `Result` itself.
"""

from __future__ import annotations

from collections.abc import Mapping

_ROWS = {
    "select": "query(columns=[…])",
    "filter": 'query(where="…")',
    "where": 'query(where="…")',
    "order_by": 'query(order_by="…")',
    "sort": 'query(order_by="…")',
    "sort_by": 'query(order_by="…")',
    "sort_values": 'query(order_by="…")',
    "limit": "query(limit=…)",
    "group_by": "query(aggregate={…}, group_by=[…])",
    "groupby": "query(aggregate={…}, group_by=[…])",
    "aggregate": "query(aggregate={…}, group_by=[…])",
}
"""What is asked of a table, and not of an answer that is there."""

_TAKEN = {
    name: f"query(…).{name}()"
    for name in (
        "arrow", "df", "fetchall", "fetchmany", "fetchone", "pl", "to_arrow", "to_batches", "to_pandas", "to_parquet", "to_polars",
        "to_pylist",
    )
}  # fmt: skip

OF_TABLES: Mapping[str, str] = {
    **_ROWS,
    **_TAKEN,
    **dict.fromkeys(("columns", "names", "column_names"), "schema.names"),
    **dict.fromkeys(("dtypes", "fields"), "schema"),
    **dict.fromkeys(("shape", "num_rows", "count", "count_rows", "size"), "rows"),
    **dict.fromkeys(("append", "write", "add", "upsert", "insert_many", "insert_rows", "ingest"), "insert(rows)"),
    **dict.fromkeys(("delete", "truncate", "update", "overwrite"), "replace(rows, time=(first, last))"),
    **dict.fromkeys(("last", "last_rows", "newest"), "latest()"),
    **dict.fromkeys(("tail",), 'query(order_by="ts desc", limit=10)'),
    **dict.fromkeys(("sample", "show", "peek"), "head()"),
    **dict.fromkeys(("info", "summary", "statistics"), "describe()"),
    **dict.fromkeys(("load", "read_csv", "read_parquet"), "Warehouse.load(table, files)"),
    **dict.fromkeys(("sql", "execute"), "Warehouse.sql(statement)"),
    **dict.fromkeys(("drop",), "Warehouse.drop_table(name)"),
    **dict.fromkeys(("to_dataset", "scan", "scanner"), "dataset()"),
    **dict.fromkeys(("commit", "sync", "save"), "flush()"),
}

OF_RESULTS: Mapping[str, str] = {
    **{name: f"{said}, of the table" for name, said in _ROWS.items()},
    "head": "query(limit=…), of the table",
    **dict.fromkeys(("names", "column_names"), "columns"),
    **dict.fromkeys(("types", "dtypes", "description"), "schema"),
    **dict.fromkeys(("rows", "num_rows", "rowcount", "row_count", "count", "height", "size", "empty"), "len(result)"),
    "shape": "len(result) and columns",
    **dict.fromkeys(("fetchdf", "fetch_df", "to_df", "pandas", "fetchnumpy", "to_numpy"), "df()"),
    **dict.fromkeys(("polars", "to_pl"), "pl()"),
    **dict.fromkeys(("fetch_arrow_table", "to_table", "to_arrow_table", "combine_chunks"), "arrow()"),
    **dict.fromkeys(("fetch_record_batch", "to_reader", "to_arrow_reader", "record_batch"), "reader()"),
    **dict.fromkeys(("to_dicts", "to_dict", "to_list", "tolist", "dicts", "collect"), "to_pylist()"),
    "to_pydict": "arrow().to_pydict()",
    **dict.fromkeys(("all", "fetch", "to_tuples"), "fetchall()"),
    **dict.fromkeys(("first", "one", "scalar", "fetchval", "item"), "fetchone()"),
    **dict.fromkeys(("write_parquet", "save"), "to_parquet(path)"),
    **dict.fromkeys(("to_csv", "write_csv"), "df().to_csv(path)"),
    **dict.fromkeys(("to_json", "write_json"), "df().to_json(path)"),
    "show": "print(result)",
    "iter_batches": "for batch in result",
    "close": "cancel()",
}

OF_WAREHOUSES: Mapping[str, str] = {
    **dict.fromkeys(("query", "execute", "run", "read_sql", "cursor"), "sql(statement)"),
    **dict.fromkeys(("insert", "append", "write"), "table(name).insert(rows)"),
    **dict.fromkeys(("get_table", "open_table", "get", "read_table"), "table(name)"),
    **dict.fromkeys(("list_tables", "table_names", "show_tables", "keys"), "tables()"),
    **dict.fromkeys(("create", "new_table", "from_df", "from_pandas", "from_arrow", "register"), "create_table(name, rows, time=…, key=…)"),
    **dict.fromkeys(("drop", "delete_table", "remove"), "drop_table(name)"),
    **dict.fromkeys(
        (
            "read_csv",
            "read_parquet",
            "read_json",
            "from_csv",
            "from_parquet",
            "from_csv_auto",
            "import_files",
            "copy",
            "load_files",
            "ingest",
        ),
        "load(table, files)",
    ),
    **dict.fromkeys(("create_view", "view"), "create_derived(name, sql, time=…, key=…)"),
    **dict.fromkeys(("save", "commit", "flush"), "table(name).flush()"),
    **dict.fromkeys(("verify", "fsck"), "check()"),
    "latest": "table(name).latest()",
}


def unknown_name(kind: str, name: str, known: Mapping[str, str], more: str = "") -> AttributeError:
    """As Python says it, and what to write instead."""
    instead = more or (f"; write {known[name]}" if name in known else "")
    return AttributeError(f"{kind!r} object has no attribute {name!r}{instead}", name=name)
