"""`tidewheel create TABLE`: a table from a sample of its records, from flags, or from a record descriptor."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.errors import ExistsError, InputError, NotFoundError
from tidewheel.surfaces.arguments import Commands, examples, name_list

if TYPE_CHECKING:
    from tidewheel.ingest.new_table import NewTable
    from tidewheel.ingest.sample import Sample
    from tidewheel.model.schema import TableSpec


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "create",
        parents=parents,
        help="create an empty table: from a sample file, from columns, or from a record descriptor",
        description="Create a table. Its columns come from a sample file, whose types are inferred, from --column, or from a record\n"
        "descriptor. It has no rows: `tidewheel load` brings them. The warehouse is made if it is not there.",
        epilog=examples(
            [
                "tidewheel create taxi -w data/wh --from rides.csv.gz --time ts --key plate",
                "tidewheel create taxi -w data/wh --column plate:int64 --column ts:timestamp --column speed:float --key plate",
                "tidewheel create seen -w data/wh --from seen.jsonl --time 'at ms' --key 'ip(source)' --dry-run",
                "tidewheel create cabs -w data/wh --from gps.parquet --key 'zorder(lon, lat, 115, 39, 118, 41)' --partition '1 day'",
                "tidewheel create trips -w data/wh --descriptor trips.xml",
            ]
        ),
    )
    parser.add_argument("table", metavar="TABLE", help="its name")
    columns = parser.add_argument_group("columns")
    columns.add_argument(
        "--from", dest="sample", type=Path, metavar="FILE", help="a sample: csv, tsv, json, parquet, avro or arrow; also .gz …"
    )
    columns.add_argument(
        "--column", dest="columns", action="append", default=[], type=_column, metavar="NAME:TYPE",
        help="a column, in order; beside --from and --descriptor: another type for a column that is there; may be repeated",
    )  # fmt: skip
    columns.add_argument("--descriptor", type=Path, metavar="FILE", help="a record descriptor, XML as MDDS has it or TOML")
    table = parser.add_argument_group("the table")
    table.add_argument(
        "--time",
        metavar="COLUMN",
        help="its time; for whole numbers that stay such with their unit: 'seen ms' (default: the column of times)",
    )
    table.add_argument("--key", metavar="COLUMN", help="its key: a column, 'ip(src)', or 'zorder(lon, lat, 115, 39, 118, 41)'")
    table.add_argument("--partition", metavar="WIDTH", help="as in '1 month' (default: 1 hour; 1 day if times are days)")
    table.add_argument(
        "--if-exists", choices=("error", "open"), default="error", help="if it is there: an error (default), or fine if it is the same"
    )
    table.add_argument("--dry-run", action="store_true", help="show what would be made, and make nothing")
    records = parser.add_argument_group("the sample")
    records.add_argument("--payload", metavar="FORMAT", help="what it is, if its name does not say it: json, csv, avro, arrow or parquet")
    records.add_argument("--delimiter", metavar="CHAR", help="between CSV fields (default: a comma)")
    records.add_argument("--names", type=name_list, metavar="A,B,…", help="the fields of a CSV file that has no header")
    records.add_argument(
        "--null", action="append", metavar="TEXT", help="a CSV field that means: no value; may be repeated (default: empty)"
    )
    records.add_argument(
        "--time-format", default="", metavar="FORMAT", help="epoch-s, epoch-ms, epoch-us, epoch-ns, or a pattern: '%%d/%%m/%%Y %%H:%%M:%%S'"
    )


def run(options: argparse.Namespace) -> int:
    new = _define(options)
    root = options.warehouse.expanduser().resolve()
    made = True
    if not options.dry_run:
        import tidewheel as tw
        from tidewheel.surfaces.progress_bar import open_warehouse

        spec = new.spec
        with open_warehouse(root) as wh:
            made = spec.name not in wh.tables()
            time = tw.epoch(spec.time.column, spec.time.unit) if _counted(spec) else spec.time.column
            if not made and options.if_exists == "error":
                raise ExistsError(
                    f"there is a table {spec.name!r} in {root} already; choose another name, or say --if-exists open if it is the same"
                )
            wh.create_table(spec.name, spec.schema, time=time, key=spec.key, partition=spec.partition, if_exists=options.if_exists)
    for line in told(new, options.warehouse, options.dry_run, made):
        print(line)
    if made and not options.dry_run:
        print("It has no rows yet.")
    print(f"Next: {_next(options, new)}")
    return 0


def told(new: NewTable, root: Path, dry: bool, made: bool = True) -> list[str]:
    """The table that was made, or would be, in lines of text."""
    from rich.cells import cell_len

    from tidewheel.model.definition import key_text
    from tidewheel.model.visible_text import visible

    spec = new.spec
    said = f"would be created in {root}" if dry else f"created in {root}" if made else f"is in {root} already, and the same"
    lines = [f"Table {spec.name} {said}:"]
    names = [visible(name) for name in spec.schema.names]
    types = [str(field.type) for field in spec.schema]
    width, wide = max(map(cell_len, names)), max(map(len, types))
    for field, name, type_ in zip(spec.schema, names, types, strict=True):
        roles = ["key"] * (field.name in spec.key.columns) + ["time"] * (field.name == spec.time.column)
        lines.append(f"  {name}{' ' * (width - cell_len(name))}  {type_:<{wide}}  {', '.join(roles)}".rstrip())
    time = f"{spec.time.column} (whole numbers, {spec.time.unit})" if _counted(spec) else spec.time.column
    lines.append(f"time {time}, key {key_text(spec.key)}, partitions of {spec.partition}")
    return [visible(line) for line in (*lines, *(f"Note: {note}" for note in new.notes))]


def _counted(spec: TableSpec) -> bool:
    """Whether its times are whole numbers that stay such."""
    import pyarrow as pa

    return bool(pa.types.is_integer(spec.schema.field(spec.time.column).type))


def _next(options: argparse.Namespace, new: NewTable) -> str:
    """The command that fills the table with records like those of the sample."""
    if options.dry_run:
        return "the same command without --dry-run"
    words = ["tidewheel", "load", options.table, str(options.sample) if options.sample else "FILE", "-w", str(options.warehouse)]
    if options.sample is None:
        return shlex.join(words)
    words += ["--payload", options.payload] if options.payload else []
    words += ["--time-format", new.time_format] if new.time_format else []
    words += ["--delimiter", options.delimiter] if options.delimiter else []
    words += ["--columns", ",".join(options.names)] if options.names else []
    return shlex.join([*words, *(word for null in options.null or () for word in ("--null", null))])


def _define(options: argparse.Namespace) -> NewTable:
    from tidewheel.ingest.new_table import Wishes, from_columns, from_descriptor, from_sample
    from tidewheel.model.type_names import type_named

    types: dict[str, Any] = {}
    for name, type_ in options.columns:
        if name in types:
            raise InputError(f"--column gives {name!r} twice")
        types[name] = type_named(type_)
    wishes = Wishes(options.table, options.time, options.key, options.partition, options.time_format)
    if options.sample is not None and options.descriptor is not None:
        raise InputError("columns come from --from or from --descriptor, not from both")
    if options.descriptor is not None:
        from tidewheel.ingest.descriptor import read_descriptor

        try:
            text = _file(options.descriptor).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{options.descriptor} is not a record descriptor: it is no text") from None
        return from_descriptor(wishes, read_descriptor(text, str(options.descriptor)), types, str(options.descriptor))
    if options.sample is not None:
        return from_sample(wishes, _sample(options), types)
    if not types:
        raise InputError("which columns? Give a sample (--from FILE), --column NAME:TYPE, or --descriptor FILE")
    return from_columns(wishes, list(types.items()))


def _sample(options: argparse.Namespace) -> Sample:
    from tidewheel.ingest.file_rows import Broken
    from tidewheel.ingest.rules import FILES, Rules
    from tidewheel.ingest.sample import Sample

    path = _file(options.sample)
    rules = Rules(
        FILES, payload=options.payload or "", time_format=options.time_format, columns=tuple(options.names or ()),
        delimiter=options.delimiter or ",", nulls=tuple(options.null or ("",)),
    )  # fmt: skip
    try:
        return Sample.of_file(str(path), None, rules)
    except Broken as e:
        raise InputError(f"{path} cannot be a sample: {e}") from e


def _file(given: Path) -> Path:
    path = given.expanduser()
    if path.is_dir():
        raise InputError(f"{path} is a folder: give one of its files")
    if not path.exists():
        raise NotFoundError(f"there is no file {path}")
    if not path.is_file():
        raise InputError(f"{path} is a pipe or a device: give a file, which can be read more than once")
    return path


def _column(text: str) -> tuple[str, str]:
    name, mark, type_ = text.partition(":")
    if not mark or not name.strip() or not type_.strip():
        raise argparse.ArgumentTypeError(f"must be NAME:TYPE, such as speed:float, not {text!r}")
    return name.strip(), type_.strip()
