"""Kafka as a stream: `python kafka_stream.py broker:9092 topic` shows what has arrived, every second. Needs tidewheel[spark].

Messages are JSON objects: {"plate": 11, "ts": "2026-01-05T08:00:00Z", "speed": 50}. Ctrl-C ends it; started again, it goes on.
"""

import sys
import time

import tidewheel as tw
import tidewheel.spark as tws

servers, topic, *most = sys.argv[1:]
spark = tws.session("local[2]")
with tw.open("taxi-warehouse") as wh:
    query = tws.ingest(spark, f"kafka://{servers}/{topic}", "taxi-warehouse/taxi", time="ts", key="plate", meta=["offset"])
    taxi = wh.table("taxi")
    try:
        while query.isActive and (not most or taxi.rows < int(most[0])):
            time.sleep(1)
            newest = taxi.query(order_by="ts desc", limit=1, columns=["plate", "speed"]).to_arrow().to_pylist()
            print(f"{taxi.rows} rows, {len(taxi.rejects())} rejected, newest: {newest}", flush=True)
    except KeyboardInterrupt:
        print("stopped")
    query.stop()
spark.stop()
