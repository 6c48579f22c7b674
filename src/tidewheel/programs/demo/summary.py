"""The end of the demo: the proof that no row is missing, the observations in sentences, and commands to try next."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tidewheel.model.figures import counted, size
from tidewheel.programs.demo.numbers import DemoRequest, Numbers, Sent
from tidewheel.programs.demo.sender import PERIOD, taxis

if TYPE_CHECKING:
    from tidewheel.model.delivery import TableState
    from tidewheel.table import Table


@dataclass(frozen=True, slots=True)
class DemoFindings:
    """Findings of the queries at the end."""

    found: int
    different: int
    """Reports with different numbers among them."""
    late: int
    rejected: int
    reasons: tuple[tuple[int, str], ...]
    """Reasons, each with its number of rejects and an example."""

    def whole(self, sent: Sent) -> bool:
        """Every report is there, once: as a row, or among the rejects."""
        return (
            self.found == self.different
            and self.found + self.rejected == sent.reports
            and self.rejected == sent.broken
            and self.late == sent.late
        )


def prove(taxi: Table, sent: Sent) -> DemoFindings:
    """Count by queries, not by what was counted on the way."""
    counts = taxi.query(aggregate={"found": "count(*)", "different": "count(DISTINCT report)"}).to_arrow().to_pylist()[0]
    late = taxi.query(time=(None, sent.start - 1), aggregate={"late": "count(*)"}).to_arrow().to_pylist()[0]["late"]
    rejects = taxi.rejects().to_arrow()
    reasons = []
    if rejects.num_rows:
        for column in sorted(pc.unique(rejects["column"]).to_pylist()):
            some = rejects.filter(pc.equal(rejects["column"], column))
            example = some["reason"][0].as_py()
            reasons.append((some.num_rows, f"{column}: {example}" if column else f"a message {example}"))
    return DemoFindings(counts["found"], counts["different"], late, rejects.num_rows, tuple(sorted(reasons, reverse=True)))


def verdict(sent: Sent, proof: DemoFindings) -> str:
    if proof.whole(sent):
        return f"Every report is there once: {sent.reports:,} sent = {proof.found:,} found + {proof.rejected:,} rejected."
    return (
        f"Something is wrong: {sent.reports:,} reports were sent, {sent.broken:,} of them broken and {sent.late:,} late, but "
        f"{proof.found:,} are found ({proof.different:,} different ones, {proof.late:,} late) and {proof.rejected:,} are rejected."
    )


def sentences(
    request: DemoRequest, numbers: Numbers, proof: DemoFindings, batches: int, before: TableState, after: TableState
) -> list[str]:
    """The observations in plain words. `before` and `after` are the table's states around the last flush."""
    sent = numbers.sent
    lag, lag99 = numbers.lag()
    p50, p99 = numbers.latency()
    through = "Spark read them and put them into the table" if request.spark else "A thread read them and put them into the table"
    say = [
        f"{counted(taxis(request.rows_per_second), 'simulated taxi')} sent {counted(sent.reports, 'report')} in {numbers.streamed:.0f} s, "
        f"each about every {PERIOD:g} s, as {counted(sent.files, 'file')} of JSON lines. {through} in "
        f"{counted(batches, 'batch', 'batches')}; each batch became visible at once, and counts once even if it is sent again.",
    ]
    if numbers.lags:
        say.append(
            f"From a taxi's report until another process could query it: {lag:.2f} s for half of the rows, {lag99:.2f} s for 99 of 100. "
            f"On average {numbers.streamed / max(sent.files, 1) / 2:.2f} s of that is waiting for the fleet's next file."
        )
    if numbers.queries:
        say.append(
            f"That other process meanwhile asked {counted(len(numbers.queries), 'time')} who was in some box on the map at some time, "
            f"and read {counted(numbers.rows_read, 'row')} of answers: half of them within {p50:.1f} ms, 99 of 100 within {p99:.1f} ms."
        )
    say.append(
        f"Every answer saw one picture of fresh and old rows. At the end {before.fresh_rows:,} were still indexed in memory and "
        f"{before.historical_rows:,} in chunks, which are Arrow files; now all are in {counted(after.chunks, 'chunk')}, "
        f"{size(after.disk_bytes)}, {after.disk_bytes / max(after.historical_rows, 1):.0f} bytes a row."
    )
    if sent.late:
        say.append(
            f"{counted(sent.late, 'report')} came minutes late, up to an hour. None was dropped: a query for the time before the fleet "
            f"drove off finds {proof.late:,}."
        )
    if proof.rejected:
        reasons = "; ".join(f"{count:,} × {reason}" for count, reason in proof.reasons)
        say.append(
            f"{counted(proof.rejected, 'broken message')} did not stop the stream. They are in the table's rejects, with the reason: "
            f"{reasons}."
        )
    return say


def next_steps(request: DemoRequest) -> list[str]:
    """Three commands. Without a warehouse that was kept, the first makes one."""
    root = str(request.keep or "demo-data")
    tidewheel, python = programs()
    taxi = f'import tidewheel as tw; taxi = tw.open({json.dumps(root)}).table("taxi")'

    def code(text: str) -> str:
        return f"{python} -c {shlex.quote(text)}"

    fast = code(f'{taxi}; print(taxi.query(box=(116.35, 39.85, 116.45, 39.95), where="speed > 60", order_by="ts desc", limit=10))')
    rejects = code(f"{taxi}; print(taxi.rejects())")
    spark = code(
        f'import tidewheel.spark as tws; tws.session().read.format("tidewheel").load({json.dumps(f"{root}/taxi")})'
        '.groupBy("taxi").count().orderBy("count", ascending=False).show(5)'
    )
    made = f"{tidewheel} demo{'' if request.spark else ' --without-spark'} --keep {root}   # once more, and the warehouse stays"
    check = f"{tidewheel} check -w {shlex.quote(root)}   # reads every byte"
    return [*([fast, check] if request.keep else [made, fast]), spark if request.spark else rejects]


def programs() -> tuple[str, str]:
    """Words that call the command and its Python: by name if the PATH leads to them, else by path (`make demo` activates nothing)."""
    folder = os.path.dirname(sys.executable)
    if os.path.dirname(shutil.which("python") or "") == folder:
        return "tidewheel", "python"
    near = os.path.relpath(folder)
    shown = folder if near.startswith("..") else near
    return os.path.join(shown, "tidewheel"), os.path.join(shown, "python")
