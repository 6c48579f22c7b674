"""The fleet's process: `python -m tidewheel.programs.demo.sender`. It writes a file of JSON lines five times a second.

A few reports are sent at once: with them, whoever carries them gets ready. The fleet itself drives off when it is told to. The stream's
time is the real one: a report's `ts` is the moment at which it was made.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path

from tidewheel.programs.demo.children import Parent
from tidewheel.programs.demo.numbers import Sent
from tidewheel.programs.fleet import Fleet, FleetMessages

TICK = 0.2
"""Seconds between two files: a report waits half of it on average."""
PERIOD = 2.0
"""Seconds between two reports of a taxi."""
_FIRST_ROWS = 200
_LATE_SHARE, _BROKEN_SHARE = 0.005, 0.0005


def main() -> None:
    parent = Parent()
    folder, seed, rate = Path(parent.orders["folder"]), parent.orders["seed"], parent.orders["rate"]
    fleet = Fleet(
        seed, taxis=taxis(rate), period=PERIOD, start=_now(), late_share=_LATE_SHARE, broken_share=_BROKEN_SHARE
    )  # fmt: skip
    sent = Sent(start=fleet.start)

    def send(delivery: FleetMessages) -> None:
        nonlocal sent
        deliver(folder, sent.files, delivery)
        sent = replace(
            sent,
            reports=sent.reports + len(delivery.lines),
            late=sent.late + delivery.late,
            broken=sent.broken + delivery.broken,
            files=sent.files + 1,
        )
        parent.tell(**asdict(sent))

    send(fleet.delivery(_FIRST_ROWS, _now()))
    parent.begin.wait()
    fleet.pause(_now())
    began, made = time.monotonic(), 0
    while not parent.end.wait(TICK):
        rows = round((time.monotonic() - began) * rate) - made
        if rows > rate:  # a rate that cannot be reached is not made up for
            rows = rate
            began = time.monotonic() - (made + rows) / rate
        if rows > 0:
            send(fleet.delivery(rows, max(fleet.now, _now())))  # a clock may be set back
            made += rows


def deliver(folder: Path, number: int, delivery: FleetMessages) -> None:
    """Spark sees a file when it is whole: until then its name begins with a dot."""
    name = f"reports-{number:06d}.jsonl"
    draft = folder / f".{name}"
    draft.write_bytes(delivery.text())
    draft.rename(folder / name)


def taxis(rate: int) -> int:
    """The number of taxis that send so many reports a second."""
    return max(1, round(rate * PERIOD))


def _now() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    main()
