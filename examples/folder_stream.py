"""A folder as a stream: files become rows as they come, each once; a broken one is named and stops nothing. Needs tidewheel[spark]."""

import tempfile
from pathlib import Path

import tidewheel as tw
import tidewheel.spark as tws

MONDAY = """\
plate,ts,speed
11,2026-01-05T08:00:00,50
12,2026-01-05T08:00:01,52
13,2026-01-05T08:00:02
14,2026-01-05T08:00:03,54
"""

with tempfile.TemporaryDirectory() as home:
    incoming = Path(home) / "incoming"
    incoming.mkdir()
    (incoming / "monday.csv").write_text(MONDAY)
    (incoming / "broken.csv.gz").write_text("this is not gzip")

    spark = tws.session("local[2]")
    with tw.open(f"{home}/wh") as wh:

        def read_what_is_new() -> None:
            tws.ingest(spark, str(incoming), f"{home}/wh/taxi", time="ts", key="plate", trigger="once").awaitTermination()

        read_what_is_new()
        (incoming / "tuesday.jsonl").write_text('{"plate": 15, "ts": "2026-01-06T08:00:00", "speed": 60}\n')
        read_what_is_new()
        taxi = wh.table("taxi")
        print(taxi.query(order_by="ts"))
        for reject in taxi.rejects().to_arrow().to_pylist():
            print(f"rejected {Path(reject['origin']).name}: {reject['reason']}")
    spark.stop()
