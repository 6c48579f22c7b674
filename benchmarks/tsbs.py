"""The Time Series Benchmark Suite's `cpu-only`: its fifteen types of queries, from their published description, over generated rows.

Hosts report ten metrics every ten seconds for three days. Of the suite's ten tags the statements use the host's name alone; two others
lie beside it. All systems get the same statements with the same hosts and the same windows of time, which are new each time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from benchmarks.report import Options, Report
from benchmarks.side_by_side import Asked, Constants, Given, Kind, bars, loaded, measure, show

GEOMETRIC_MEAN = 3.0
HOSTS = 800
STEP, DAYS = 10, 3
STEPS = DAYS * 86_400 // STEP
START = dt.datetime(2016, 1, 1)
METRICS = tuple(f"usage_{name}" for name in ("user", "system", "idle", "nice", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"))
REGIONS = (
    "us-east-1",
    "us-west-1",
    "us-west-2",
    "eu-west-1",
    "eu-central-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-northeast-1",
    "sa-east-1",
)


def given(options: Options) -> Given:
    hosts = min(HOSTS, max(8, (options.rows or (1_000_000 if options.quick else HOSTS * STEPS)) // STEPS))
    names = pa.array([f"host_{i}" for i in range(hosts)])
    regions = pa.array([REGIONS[i % len(REGIONS)] for i in range(hosts)])
    centres = pa.array([f"{REGIONS[i % len(REGIONS)]}{'abc'[i // 9 % 3]}" for i in range(hosts)])
    host = np.tile(np.arange(hosts), STEPS)
    first = int((START - dt.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
    ts = np.repeat(first + np.arange(STEPS) * STEP * 1_000_000, hosts)
    taken = pa.array(host)
    columns = {
        "hostname": names.take(taken),
        "region": regions.take(taken),
        "datacenter": centres.take(taken),
        "ts": pa.array(ts, pa.timestamp("us")),
    }
    random = np.random.default_rng(123)
    for name in METRICS:
        columns[name] = pa.array(walks(random, hosts))
    origin = f"{hosts} hosts × {STEPS:,} steps of {STEP} s"
    few = frozenset({"hostname", "region", "datacenter"})
    return Given("cpu", pa.table(columns), origin, "ts", "hostname", ("hostname, ts",), "(hostname, ts)", few=few)


def walks(random: np.random.Generator, hosts: int) -> np.ndarray:
    """A walk of each host with steps of a normal distribution, from anywhere between 0 and 100, turned back at these ends; step by step."""
    steps = random.standard_normal((STEPS, hosts), np.float32)
    steps[0] = random.uniform(0, 100, hosts)
    places = np.cumsum(steps, axis=0, dtype=np.float64) % 200
    return np.floor(100 - np.abs(places - 100)).ravel()


class Draw:
    def __init__(self, hosts: int) -> None:
        self.hosts = hosts

    def host(self, rng: Constants, count: int) -> str:
        names = ", ".join(f"'host_{i}'" for i in rng.choice(self.hosts, min(count, self.hosts), replace=False))
        return f"hostname IN ({names})" if count > 1 else f"hostname = {names}"

    def window(self, rng: Constants, hours: int) -> str:
        since = START + dt.timedelta(seconds=int(rng.integers(0, DAYS * 86_400 - hours * 3600)))
        until = since + dt.timedelta(hours=hours)
        return f"ts >= TIMESTAMP '{since}' AND ts < TIMESTAMP '{until}'"


def kinds(hosts: int) -> Sequence[Kind]:
    draw = Draw(hosts)

    def single(metrics: int, count: int, hours: int) -> Kind:
        shown = ", ".join(f"max({name}) AS max_{name}" for name in METRICS[:metrics])

        def make(rng: Constants) -> Asked:
            where = f"{draw.host(rng, count)} AND {draw.window(rng, hours)}"
            return Asked(f"SELECT date_trunc('minute', ts) AS minute, {shown} FROM cpu WHERE {where} GROUP BY minute ORDER BY minute")

        return Kind(f"single-groupby-{metrics}-{count}-{hours}", None, make, True)

    def cpu_max_all(count: int) -> Kind:
        shown = ", ".join(f"max({name}) AS max_{name}" for name in METRICS)

        def make(rng: Constants) -> Asked:
            where = f"{draw.host(rng, count)} AND {draw.window(rng, 8)}"
            return Asked(f"SELECT date_trunc('hour', ts) AS hour, {shown} FROM cpu WHERE {where} GROUP BY hour ORDER BY hour")

        return Kind(f"cpu-max-all-{count}", None, make, True)

    def double(metrics: int) -> Kind:
        shown = ", ".join(f"avg({name}) AS mean_{name}" for name in METRICS[:metrics])

        def make(rng: Constants) -> Asked:
            said = f"SELECT date_trunc('hour', ts) AS hour, hostname, {shown} FROM cpu WHERE {draw.window(rng, 12)}"
            return Asked(f"{said} GROUP BY hour, hostname ORDER BY hour, hostname")

        return Kind(f"double-groupby-{'all' if metrics == len(METRICS) else metrics}", None, make, True)

    def high(count: int | None) -> Kind:
        def make(rng: Constants) -> Asked:
            where = f"usage_user > 90.0 AND {draw.window(rng, 12)}"
            return Asked(f"SELECT * FROM cpu WHERE {where}" + (f" AND {draw.host(rng, count)}" if count else ""))

        return Kind(f"high-cpu-{count or 'all'}", None, make)

    def lastpoint(rng: Constants) -> Asked:
        text = "SELECT DISTINCT ON (hostname) * FROM cpu ORDER BY hostname, ts DESC"
        return Asked(text, "SELECT * FROM cpu ORDER BY hostname, ts DESC LIMIT 1 BY hostname")

    def latest_minutes(rng: Constants) -> Asked:
        until = START + dt.timedelta(seconds=int(rng.integers(43_200, DAYS * 86_400)))
        said = f"SELECT date_trunc('minute', ts) AS minute, max(usage_user) AS top FROM cpu WHERE ts < TIMESTAMP '{until}'"
        return Asked(f"{said} GROUP BY minute ORDER BY minute DESC LIMIT 5")

    return [
        single(1, 1, 1), single(1, 1, 12), single(1, 8, 1), single(5, 1, 1), single(5, 1, 12), single(5, 8, 1),
        cpu_max_all(1), cpu_max_all(8), double(1), double(5), double(len(METRICS)), high(None), high(1),
        Kind("lastpoint", None, lastpoint, True), Kind("groupby-orderby-limit", None, latest_minutes, True),
    ]  # fmt: skip


def run(options: Options, report: Report) -> None:
    report.title("tsbs")
    rounds = options.repetitions or (3 if options.quick else 7)
    rows = given(options)
    with loaded(rows, options, report) as systems:
        hosts = rows.rows.num_rows // STEPS
        cells = measure(systems, kinds(hosts), rows.name, rounds, report)
    figures = show(report, "TSBS cpu-only", cells) | {"data": rows.origin, "rows": rows.rows.num_rows, "rounds": rounds}
    report.finish("tsbs", figures, bars(cells, "TSBS cpu-only", GEOMETRIC_MEAN))
