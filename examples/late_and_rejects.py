"""Real streams are late and dirty: late rows are found like all others, bad ones are kept aside with the reason."""

import datetime as dt
import tempfile

import pyarrow as pa

import tidewheel as tw

schema = pa.schema([("sensor", pa.string()), ("ts", pa.timestamp("us")), ("celsius", pa.float32())])
noon = dt.datetime(2026, 1, 1, 12)


def readings(start: dt.datetime, n: int) -> list[dict[str, object]]:
    return [{"sensor": f"s{i % 20:02d}", "ts": start + dt.timedelta(seconds=i), "celsius": 15 + i % 10} for i in range(n)]


with tempfile.TemporaryDirectory() as folder, tw.open(folder, settings=tw.Settings(late_after=60)) as wh:
    table = wh.create_table("readings", schema, time="ts", key="sensor")
    table.insert(readings(noon, 3600))
    table.flush()  # the first hour is on disk

    # A sensor was out of reach for half an hour and now sends what it kept.
    kept_back = [{"sensor": "s99", "ts": noon + dt.timedelta(seconds=i), "celsius": 3} for i in range(1200)]
    table.insert(kept_back + readings(noon + dt.timedelta(hours=1), 600))
    print(f"{len(table.query(key='s99', time=(noon, noon + dt.timedelta(minutes=20))))} late rows can be queried at once")

    table.flush()
    print("On disk they are apart, so that the other chunk stays narrow in time:")
    print(table.explain())

    # A bad row is an error by default, and nothing of its batch is inserted …
    dirty = [
        {"sensor": "s01", "ts": "2026-01-01T14:00:00", "celsius": 17.5},
        {"sensor": "s02", "ts": "2026-01-01T14:00:00", "celsius": "warm"},
        {"sensor": None, "ts": "2026-01-01T14:00:00", "celsius": 18.0},
    ]
    try:
        table.insert(dirty)
    except tw.BadRowsError as error:
        print(f"\nRefused: {error}")

    # … or the good rows go in and the bad ones are kept.
    ack = table.insert(dirty, on_bad="reject")
    print(f"\n{ack.rows} row went in, {ack.rejected} were rejected:")
    for bad in table.rejects().to_pylist():
        print(f"  row {bad['position']}, column {bad['column']}: {bad['reason']}\n    {bad['row']}")
