"""The first ten lines: create a table, insert rows, ask for them at once. Run it with `python examples/quickstart.py`."""

import datetime as dt
import tempfile

import pyarrow as pa

import tidewheel as tw

schema = pa.schema([("plate", pa.int32()), ("ts", pa.timestamp("us")), ("speed", pa.float32())])
start = dt.datetime(2026, 1, 1, 8)

with tempfile.TemporaryDirectory() as folder, tw.open(folder) as wh:
    taxi = wh.create_table("taxi", schema, time="ts", key="plate")
    taxi.insert([{"plate": i % 50, "ts": start + dt.timedelta(seconds=i), "speed": i % 90} for i in range(5_000)])

    print("Plates 10 to 12 in the first five minutes, faster than 60:")
    print(taxi.query(key=(10, 12), time=(start, start + dt.timedelta(minutes=5)), where="speed > 60"))

    print("\nThe three fastest on average:")
    print(taxi.query(aggregate={"n": "count(*)", "mean": "avg(speed)"}, group_by=["plate"], order_by="mean desc", limit=3))

    print("\nThe same rows, after they went to disk:")
    taxi.flush()
    print(taxi.explain(key=(10, 12), time=(start, start + dt.timedelta(minutes=5))))
