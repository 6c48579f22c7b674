"""`tidewheel load TABLE FILE…`: files into a table, without Spark and Java."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from tidewheel.surfaces.arguments import Commands, count, examples, name_list, there

if TYPE_CHECKING:
    from tidewheel.engine.load import LoadRequest


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "load",
        parents=parents,
        help="load files into a table: Parquet, CSV, JSON lines, Arrow, Avro",
        description="Load files into a table, each whole or not at all, and once: the same command again loads what is new.\n"
        "Bad rows are kept in the table's rejects. Exit code 1: some files could not be loaded, and the last lines say why.",
        epilog=examples(
            [
                "tidewheel load bike 'rides/*.parquet' -w data/wh --time started_at --key station",
                "tidewheel load taxi monday.csv.gz tuesday.jsonl -w data/wh",
                "tidewheel load flows log.txt -w data/wh --payload csv --columns src,seen,bytes --time-format epoch-ms",
            ]
        ),
    )
    parser.add_argument(
        "table", metavar="TABLE", help="the table; made from the first file if it is not there and --time and --key are given"
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a file, a pattern, or a folder: all files below it; also .gz, .zst, .bz2 …"
    )
    table = parser.add_argument_group("a new table")
    table.add_argument("--time", metavar="COLUMN", help="its time column; for whole numbers that stay such with their unit: 'seen ms'")
    table.add_argument("--key", metavar="COLUMN", help="its key: a column, 'ip(src)', or 'zorder(lon, lat, 115, 39, 118, 41)'")
    table.add_argument("--partition", metavar="WIDTH", help="as in '1 month' (default: 1 hour; 1 day if times are days)")
    records = parser.add_argument_group("records")
    records.add_argument("--payload", default="", metavar="FORMAT", help="csv, json, parquet, avro or arrow, if names do not say it")
    records.add_argument(
        "--time-format", default="", metavar="FORMAT", help="epoch-s, epoch-ms, epoch-us, epoch-ns, or a pattern: '%%d/%%m/%%Y %%H:%%M:%%S'"
    )
    records.add_argument("--columns", type=name_list, default=[], metavar="A,B,…", help="the fields of CSV files that have no header")
    records.add_argument("--delimiter", default=",", metavar="CHAR", help="between CSV fields (default: a comma)")
    records.add_argument(
        "--null", action="append", metavar="TEXT", help="a CSV field that means: no value; may be repeated (default: empty)"
    )
    records.add_argument(
        "--extra",
        choices=("reject", "ignore"),
        default="reject",
        help="columns that the table does not have: refuse (default) or leave out",
    )
    records.add_argument("--on-bad", choices=("reject", "error"), default="reject", help="bad rows: reject them (default), or their file")
    work = parser.add_argument_group("the work")
    work.add_argument(
        "--changed", choices=("refuse", "load"), default="refuse",
        help="a file that has changed since it was loaded: refuse it (default), or load it beside what it brought then",
    )  # fmt: skip
    work.add_argument("--threads", type=count, metavar="N", help="how many (default: as many as there are cores)")
    work.add_argument("--format", choices=("table", "json"), default="table", help="how to print the report (default: table)")


def run(options: argparse.Namespace) -> int:
    from tidewheel.engine.load import load
    from tidewheel.ingest.found_files import found_files
    from tidewheel.surfaces.progress_bar import bar, open_warehouse

    request = _request(options)
    # a name that was mistyped should not make a new warehouse: only a new table is said so much about
    if options.time and options.key:
        root = options.warehouse.expanduser().resolve()
    else:
        root = there(options.warehouse, f"give --time COLUMN and --key COLUMN, and it is made, with table {options.table}")
    found_files(request.files, bool(options.payload))  # nor should the name of a file that was
    with open_warehouse(root) as warehouse, bar("loading") as progress:
        report = load(warehouse._engine, request, progress)
        schema = warehouse.table(options.table).schema if report.created else None
    if options.format == "json":
        print(json.dumps(report.as_json()))
        return 0 if report.ok else 1
    if schema is not None:
        print(f"Table {options.table} created: {', '.join(f'{field.name} {field.type}' for field in schema)}")
    for note in report.notes:
        print(f"Note: {note}")
    print(report)
    if report.rejected:
        print(f"Why rows were rejected: SELECT origin, \"column\", reason FROM system.rejects WHERE table_name = '{options.table}'")
    return 0 if report.ok else 1


def _request(options: argparse.Namespace) -> LoadRequest:
    from tidewheel.engine.load import LoadRequest
    from tidewheel.ingest.rules import FILES, Rules
    from tidewheel.model.definition import key_of, time_of

    rules = Rules(
        FILES, payload=options.payload, time_format=options.time_format, extra=options.extra, columns=tuple(options.columns),
        delimiter=options.delimiter, nulls=tuple(options.null or ("",)),
    )  # fmt: skip
    return LoadRequest(
        options.table, options.files, options.time and time_of(options.time), options.key and key_of(options.key), options.partition,
        rules, options.on_bad, options.changed, options.threads,
    )  # fmt: skip
