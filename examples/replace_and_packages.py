"""Deliveries: the same file loaded twice counts once, and a corrected day takes the place of the wrong one at once."""

import datetime as dt
import tempfile

import pyarrow as pa

import tidewheel as tw

schema = pa.schema([("shop", pa.string()), ("sold", pa.timestamp("s")), ("cents", pa.int64())])


def day_of_sales(day: int, cents: int) -> pa.Table:
    start = dt.datetime(2026, 1, day, 9)
    rows = [{"shop": f"shop-{i % 3}", "sold": start + dt.timedelta(minutes=i), "cents": cents} for i in range(480)]
    return pa.Table.from_pylist(rows, schema)


def show(sales: tw.Table) -> None:
    print(sales.query(aggregate={"rows": "count(*)", "euros": "sum(cents) / 100"}, group_by=["shop"], order_by="shop"))


with tempfile.TemporaryDirectory() as folder:
    with tw.open(folder) as wh:
        sales = wh.create_table("sales", schema, time="sold", key="shop")
        for attempt in (1, 2):  # the job that delivers is run twice, as jobs are
            ack = sales.insert(day_of_sales(1, 250), package="sales-2026-01-01.csv")
            print(f"attempt {attempt}: {ack.rows} rows" + (" (loaded before)" if ack.duplicate else ""))
        sales.insert(day_of_sales(2, 250), package="sales-2026-01-02.csv")

    with tw.open(folder) as wh:  # another day, another process: names are remembered
        sales = wh.table("sales")
        ack = sales.insert(day_of_sales(1, 250), package="sales-2026-01-01.csv")
        print(f"after opening again: {ack.rows} rows" + (" (loaded before)" if ack.duplicate else ""))
        show(sales)

        second_day = ("2026-01-02", "2026-01-02T23:59:59")
        before = sales.query(time=second_day)
        print("\nThe second day was wrong. Readers see the old day or the new one, never half of each:")
        sales.replace(day_of_sales(2, 300), time=second_day)
        show(sales)

        then, now = before.to_arrow()["cents"][0], sales.query(time=second_day).to_arrow()["cents"][0]
        print(f"\nA result that was asked for before still shows what was there then: {then} cents. Now: {now}.")
