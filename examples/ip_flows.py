"""Network flows keyed by the sender's address: ranges of addresses are ranges of keys, IPv4 and IPv6 in one table."""

import tempfile

import numpy as np
import pyarrow as pa

import tidewheel as tw

schema = pa.schema([("src", pa.string()), ("seen_ms", pa.int64()), ("port", pa.uint16()), ("bytes", pa.int64())])
rng = np.random.default_rng(1)


def flows(n: int, start: int) -> list[dict[str, object]]:
    """Mostly office addresses, some from outside, some IPv6."""
    out = []
    for i in range(n):
        kind = rng.random()
        if kind < 0.7:
            src = f"10.0.{rng.integers(0, 8)}.{rng.integers(1, 255)}"
        elif kind < 0.9:
            src = f"{rng.integers(11, 224)}.{rng.integers(0, 256)}.{rng.integers(0, 256)}.{rng.integers(1, 255)}"
        else:
            src = f"2001:db8::{rng.integers(1, 0xFFFF):x}"
        out.append({"src": src, "seen_ms": start + i, "port": int(rng.choice([22, 53, 443])), "bytes": int(rng.integers(60, 90_000))})
    return out


with tempfile.TemporaryDirectory() as folder, tw.open(folder) as wh:
    # the times are plain integers, so the table says what they count
    table = wh.create_table("flows", schema, time=tw.epoch("seen_ms", "ms"), key=tw.ip("src"))
    start = 1_767_225_600_000  # 2026-01-01 in milliseconds
    for batch in range(20):
        table.insert(flows(1_000, start + batch * 60_000))  # one batch a minute

    subnet = ("10.0.3.0", "10.0.3.255")  # 9.255.… and 10.0.10.… are outside: the order is numeric, not alphabetic
    print("Who in 10.0.3.0/24 sent most in the first ten minutes?")
    print(
        table.query(
            key=subnet,
            time=("2026-01-01", "2026-01-01 00:10"),
            aggregate={"flows": "count(*)", "sent": "sum(bytes)"},
            group_by=["src"],
            order_by="sent desc",
            limit=5,
        )
    )
    print("\nssh from outside the office (all of IPv6 comes after all of IPv4):")
    print(table.query(key=("2001:db8::", "2001:db8::ffff"), where="port = 22", order_by="seen_ms", limit=5))
