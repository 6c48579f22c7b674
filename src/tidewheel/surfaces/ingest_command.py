"""`tidewheel ingest TABLE --from …`: what can be said on the command line, and what is shown while it runs.

The stream is Spark's. Ctrl-C, or a polite signal to end, lets the batch under way finish; the same command then goes on where it was.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tidewheel.errors import InputError, TidewheelError
from tidewheel.surfaces.arguments import Commands, name_list

if TYPE_CHECKING:
    from tidewheel.spark.ingestion import IngestRequest, Stream
    from tidewheel.surfaces.progress_view import View

PATIENCE = 60.0
"""Seconds that a batch under way may take to finish before it is stopped: it comes again when the stream is started again."""

EXAMPLES = """\
examples:
  tidewheel ingest taxi --from kafka://broker:9092/rides --time ts --key plate
  tidewheel ingest taxi --from incoming/ --time ts --key plate --once
  tidewheel ingest taxi --from kafka://broker/rides --payload csv --columns plate,ts,speed --time-format epoch-ms --with offset,key=driver
  tidewheel ingest ticks --from rate://1000 --time timestamp --key value"""


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "ingest",
        parents=parents,
        help="stream Kafka topics or a folder of files into a table",
        description="Stream a source into a table, through Spark. Rows can be queried as soon as their batch is in; records that\n"
        "cannot be rows are kept in the table's rejects. Ctrl-C ends it; the same command goes on where it was.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "table", metavar="TABLE", help="the table; made from the first records if it is not there and --time and --key are given"
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="SOURCE",
        help="kafka://host:port/topic[,topic…], a folder of files, rate://rows_per_second or socket://host:port",
    )  # fmt: skip
    table = parser.add_argument_group("a new table")
    table.add_argument("--time", metavar="COLUMN", help="its time column; for whole numbers that stay such with their unit: 'seen ms'")
    table.add_argument("--key", metavar="COLUMN", help="its key: a column, 'ip(src)', or 'zorder(lon, lat, 115, 39, 118, 41)'")
    table.add_argument("--partition", metavar="WIDTH", help="as in '1 month' (default: 1 hour; 1 day if times are days)")
    records = parser.add_argument_group("records")
    records.add_argument("--payload", metavar="FORMAT", help="json (default), csv, avro, confluent-avro or arrow; files: by their names")
    records.add_argument(
        "--time-format", metavar="FORMAT", help="epoch-s, epoch-ms, epoch-us, epoch-ns, or a pattern: '%%d/%%m/%%Y %%H:%%M:%%S'"
    )
    records.add_argument(
        "--columns", type=name_list, metavar="A,B,…", help="the fields of CSV records, in their order; then files have no header"
    )
    records.add_argument("--delimiter", metavar="CHAR", help="between CSV fields (default: a comma)")
    records.add_argument(
        "--null", action="append", metavar="TEXT", help="a CSV field that means: no value; may be repeated (default: empty)"
    )
    records.add_argument(
        "--extra", metavar="WHAT", help="a record with fields the table has no column for: ignore them (default) or reject it"
    )
    records.add_argument("--avro-schema", type=Path, metavar="FILE", help="the schema of Avro messages")
    records.add_argument(
        "--with", dest="meta", type=name_list, default=[], metavar="A,B,…",
        help="what of a Kafka message to keep: key, headers, topic, partition, offset, timestamp, as columns _key …; or key=plate",
    )  # fmt: skip
    stream = parser.add_argument_group("the stream")
    stream.add_argument(
        "--start", default="earliest", metavar="WHERE", help="where a new stream begins: earliest (default), latest, a time, or JSON"
    )
    stream.add_argument("--trigger", metavar="TIME", help="time between batches: 1s, 500ms, 0, or once (default: 0; folders: 1s)")
    stream.add_argument("--once", action="store_true", help="read what is there now, and end")
    stream.add_argument(
        "--checkpoint", metavar="DIR", help="where the stream remembers how far it is (default: in the warehouse, by its name)"
    )
    stream.add_argument("--name", metavar="NAME", help="the stream's name (default: made of table and source)")
    stream.add_argument(
        "--option", action="append", default=[], type=_option, metavar="K=V", help="for Spark's source, as it is; K=@FILE reads it"
    )
    stream.add_argument("--master", metavar="URL", help="Spark's master (default: local[*])")


def run(options: argparse.Namespace) -> int:
    """Run the stream to its end, to Ctrl-C, or to an error."""
    from tidewheel.surfaces.configuration import settings_of

    request = _request(options)
    settings_of(options.warehouse.expanduser().resolve())  # the owner that is started has them; what is wrong is said here
    with _installed():
        import tidewheel.spark as tws
        from tidewheel.spark import ingestion
    from tidewheel.surfaces.progress_view import View

    ingestion.check(request)  # before Spark is started for nothing
    view = View()
    with view.working("Starting Spark"):
        spark = tws.session(options.master)
    try:
        with ending() as ended:
            with view.working("Looking at the source"):
                stream = ingestion.prepare(spark, request, lambda: _wait(ended, request, view))
            view.about(stream)
            _watch(spark, stream, view, ended)
            return 0
    finally:
        spark.stop()


def _watch(spark: Any, stream: Stream, view: View, ended: threading.Event) -> None:
    from tidewheel.spark.sources.stream_watch import Counters, StreamWatch

    with Counters(stream.place) as counters:
        query = stream.start(spark)
        watch = StreamWatch(query, counters)
        with view.live(watch):
            while query.isActive and not ended.is_set():
                ended.wait(view.pause)
                view.show()
            if ended.is_set():
                finish(query)
        failure = query.exception()
        if failure is not None and not ended.is_set():
            from tidewheel.spark import log_file

            raise TidewheelError(f"the stream ended: {why(str(failure))}. Spark's log: {log_file()}. The same command goes on where it was")
        view.summary(stream, watch.look(), stopped=ended.is_set())


def finish(query: Any, patience: float = PATIENCE) -> None:
    """Let the batch under way finish, then stop. What is begun in between is not lost: it comes again."""
    until = time.monotonic() + patience
    progress = query.lastProgress
    before = progress["timestamp"] if progress is not None else ""
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
        progress = query.lastProgress
        if progress is not None and progress["timestamp"] != before:
            break
        time.sleep(0.02)
    query.stop()


@contextmanager
def ending() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set. A second Ctrl-C is an interrupt. Spark's own handler would cancel the batch under way."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        if ended.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        ended.set()

    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def why(text: str) -> str:
    """The reason of a failure, out of a message that is mostly about Spark's innards."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "tidewheel.errors." in line]
    if told:
        return told[-1].partition("tidewheel.errors.")[2].partition(": ")[2]
    return lines[0].partition("terminated with exception: ")[2] or lines[0] if lines else "no reason was given"


def _wait(ended: threading.Event, request: IngestRequest, view: View) -> None:
    view.waiting(request.source)
    if ended.is_set():
        raise KeyboardInterrupt


def _request(options: argparse.Namespace) -> IngestRequest:
    with _installed():
        from tidewheel.spark.ingestion import IngestRequest
    if options.once and options.trigger not in (None, "once"):
        raise InputError("--once reads what is there and ends, so there is no time between batches: leave out --trigger")
    rules = {
        "payload": options.payload, "time_format": options.time_format, "columns": options.columns, "delimiter": options.delimiter,
        "nulls": options.null, "extra": options.extra, "avro_schema": options.avro_schema and _text(options.avro_schema),
    }  # fmt: skip
    return IngestRequest(
        options.source, str(Path(options.warehouse) / options.table), options.time, options.key, options.partition, options.meta,
        options.start, "once" if options.once else options.trigger, options.checkpoint, options.name, dict(options.option), rules,
    )  # fmt: skip


@contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise TidewheelError("PySpark is not installed: pip install 'tidewheel[spark]'") from e


def _option(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE or NAME=@FILE, not {text!r}")
    if value.startswith("@"):
        try:
            value = _text(Path(value[1:])).strip()
        except OSError as e:
            raise argparse.ArgumentTypeError(f"cannot read {value[1:]}: {e.strerror}") from None
        except InputError as e:
            raise argparse.ArgumentTypeError(str(e)) from None
    return name, value


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
