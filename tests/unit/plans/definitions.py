"""Definitions whose analysed plans are recorded (`record.py`), and what is to be inferred from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

NAIVE, AWARE = pa.timestamp("us"), pa.timestamp("us", tz="UTC")


def _schema(*fields: tuple[str, pa.DataType], time: str) -> pa.Schema:
    return pa.schema([pa.field(name, type_, nullable=name != time) for name, type_ in fields])


TABLES: Mapping[str, pa.Schema] = {
    "taxi": _schema(("plate", pa.int32()), ("ts", NAIVE), ("speed", pa.float64()), ("n", pa.int64()), time="ts"),
    "taxi2": _schema(("plate", pa.int32()), ("ts", NAIVE), ("speed", pa.float64()), ("n", pa.int64()), time="ts"),
    "alarm": _schema(("plate", pa.int32()), ("ts", NAIVE), ("code", pa.string()), time="ts"),
    "sensors": _schema(("plate", pa.int32()), ("valid_from", NAIVE), ("valid_to", NAIVE), ("name", pa.string()), time="valid_from"),
    "flow": _schema(("host", pa.int32()), ("ts", AWARE), ("bytes", pa.int64()), ("price", pa.decimal128(10, 2)), time="ts"),
}
TIMES = {name: "valid_from" if name == "sensors" else "ts" for name in TABLES}
KEYS = {name: "host" if name == "flow" else "plate" for name in TABLES}

SAME, HOUR, DAY = "rows of the same time", "rows of the same 1 hour", "rows of the same 1 day"


@dataclass(frozen=True)
class Definition:
    """`bounds`: for each source what its bounds are in words, or, after a '!', what its refusal says; "": a refusal of all."""

    text: str | Callable[..., Any]
    bounds: Mapping[str, str]
    time: str = "ts"
    confs: Mapping[str, str] = field(default_factory=dict)

    @property
    def mutable(self) -> bool:
        """Whether it can be tried with random rows: it is bounded, and its answer depends on its rows alone."""
        return not any(said.startswith("!") for said in self.bounds.values())


def windowed(taxi: Any, alarm: Any) -> Any:
    from pyspark.sql import functions as f

    mean = taxi.groupBy("plate", f.window("ts", "1 hour").alias("w")).agg(f.avg("speed").alias("v"))
    hours = mean.select("plate", f.col("w.start").alias("ts"), "v")
    alarms = alarm.groupBy("plate", f.date_trunc("hour", "ts").cast("timestamp_ntz").alias("ts")).count()
    return hours.join(alarms, ["plate", "ts"], "left")


def mapped(taxi: Any) -> Any:
    return taxi.mapInArrow(lambda batches: batches, taxi.schema)


def grouped(taxi: Any) -> Any:
    from pyspark.sql import functions as f

    return (
        taxi.withColumn("h", f.date_trunc("hour", "ts"))
        .groupBy("plate", "h")
        .applyInPandas(lambda frame: frame[["plate", "ts"]], "plate int, ts timestamp")
    )


def rounded(taxi: Any) -> Any:
    from pyspark.sql import functions as f

    double = f.udf(lambda speed: speed and 2 * speed, "double")
    return taxi.select("plate", "ts", double("speed").alias("speed"))


DEFINITIONS: dict[str, Definition] = {
    # ---- one source -----------------------------------------------------------------------------------------
    "filter": Definition("SELECT * FROM taxi WHERE speed > 50", {"taxi": SAME}),
    "trunc_hour": Definition(
        "SELECT plate, date_trunc('HOUR', ts) ts, count(*) n, sum(n) total, min(speed) low, max(speed) top FROM taxi GROUP BY 1, 2",
        {"taxi": HOUR},
    ),
    "trunc_week": Definition(
        "SELECT date_trunc('WEEK', ts) ts, count(*) n FROM taxi GROUP BY 1",
        {"taxi": "rows of the same 1 week, counted from 4 days after midnight UTC, 1970-01-01"},
    ),
    "trunc_aware": Definition("SELECT host, date_trunc('HOUR', ts) ts, sum(bytes) b, sum(price) p FROM flow GROUP BY 1, 2", {"flow": HOUR}),
    "tumbling": Definition(
        "SELECT plate, window.start ts, count(*) n FROM taxi GROUP BY plate, window(ts, '15 minutes')",
        {"taxi": "rows of the same 15 minutes"},
    ),
    "sliding": Definition(
        "SELECT plate, window.end ts, count(*) n FROM taxi GROUP BY plate, window(ts, '1 hour', '15 minutes', '5 minutes')",
        {"taxi": "rows from 1 hour before the start of its 15 minutes to 15 minutes before their end"},
    ),
    "time_bucket": Definition(
        "SELECT plate, time_bucket(INTERVAL 15 MINUTES, ts) ts, avg(speed) v FROM taxi GROUP BY 1, 2",
        {"taxi": "rows of the same 15 minutes"},
    ),
    "time_bucket_origin": Definition(
        "SELECT plate, time_bucket(INTERVAL 1 DAY, ts, TIMESTAMP_NTZ '2026-01-01 06:00:00') ts, count(*) n FROM taxi GROUP BY 1, 2",
        {"taxi": "rows of the same 1 day, counted from 6 hours after midnight UTC, 1970-01-01"},
    ),
    "to_date": Definition("SELECT CAST(ts AS DATE) ts, count(*) n FROM flow GROUP BY 1", {"flow": DAY}),
    "to_date_function": Definition("SELECT host, CAST(to_date(ts) AS TIMESTAMP_NTZ) ts, count(*) n FROM flow GROUP BY 1, 2", {"flow": DAY}),
    "floor_unix": Definition(
        "SELECT timestamp_seconds(floor(unix_timestamp(ts) / 600) * 600) ts, count(*) n FROM flow GROUP BY 1",
        {"flow": "rows from 999999 us before the start of its 10 minutes to their end"},
    ),
    "floor_unix_seconds": Definition(
        "SELECT timestamp_seconds(floor(unix_seconds(ts) / 600) * 600) ts, count(*) n FROM flow GROUP BY 1",
        {"flow": "rows of the same 10 minutes"},
    ),
    "unix_pmod": Definition(
        "SELECT timestamp_micros(unix_micros(ts) - pmod(unix_micros(ts), 60000000)) ts, count(*) n FROM flow GROUP BY 1",
        {"flow": "rows of the same 1 minute"},
    ),
    "unix_div": Definition(
        "SELECT timestamp_micros(unix_micros(ts) div 60000000 * 60000000) ts, count(*) n FROM flow GROUP BY 1",
        {"flow": "!rounds towards 1970"},
    ),
    "shift": Definition("SELECT plate, ts + INTERVAL 30 MINUTES AS ts, speed FROM taxi", {"taxi": "rows 30 minutes before its time"}),
    "shift_mixed": Definition(
        "SELECT plate, ts + INTERVAL '1 02:03:04' DAY TO SECOND AS ts FROM taxi", {"taxi": "rows 93784 seconds before its time"}
    ),
    "timestampadd": Definition("SELECT plate, timestampadd(MINUTE, 5, ts) ts FROM taxi", {"taxi": "rows 5 minutes before its time"}),
    "dateadd": Definition("SELECT plate, dateadd(HOUR, -2, ts) ts FROM taxi", {"taxi": "rows 2 hours after its time"}),
    "shift_month": Definition(
        "SELECT plate, ts + INTERVAL 1 MONTH AS ts FROM taxi", {"taxi": "!months, years and computed ones have no length"}
    ),
    "trunc_month": Definition(
        "SELECT date_trunc('MONTH', ts) ts, count(*) n FROM taxi GROUP BY 1", {"taxi": "rows from its time to 31 days after its time"}
    ),
    "local_day": Definition(
        "SELECT date_trunc('DAY', ts) ts, count(*) n FROM flow GROUP BY 1",
        {"flow": "rows from its time to 25 hours after its time"},
        confs={"spark.sql.session.timeZone": "Europe/Berlin"},
    ),
    "local_shift": Definition(
        "SELECT ts + INTERVAL 1 DAY AS ts, bytes FROM flow",
        {"flow": "rows from 50 hours before its time to 2 hours after its time"},
        confs={"spark.sql.session.timeZone": "Europe/Berlin"},
    ),
    "distinct": Definition("SELECT DISTINCT date_trunc('HOUR', ts) ts FROM taxi", {"taxi": HOUR}),
    "having": Definition("SELECT plate, date_trunc('HOUR', ts) ts, count(*) n FROM taxi GROUP BY 1, 2 HAVING count(*) > 2", {"taxi": HOUR}),
    "grouping_sets": Definition(
        "SELECT date_trunc('HOUR', ts) ts, plate, count(*) n FROM taxi GROUP BY GROUPING SETS ((date_trunc('HOUR', ts), plate), (date_trunc('HOUR', ts)))",
        {"taxi": HOUR},
    ),
    "pivot": Definition(
        "SELECT * FROM (SELECT date_trunc('HOUR', ts) ts, plate, speed FROM taxi) PIVOT (avg(speed) FOR plate IN (1, 2))", {"taxi": HOUR}
    ),
    "unpivot": Definition(
        "SELECT ts, what, v FROM (SELECT ts, speed, CAST(n AS DOUBLE) n FROM taxi) UNPIVOT (v FOR what IN (speed, n))", {"taxi": SAME}
    ),
    "pipe": Definition("FROM taxi |> WHERE speed > 10 |> AGGREGATE count(*) AS n GROUP BY date_trunc('HOUR', ts) AS ts", {"taxi": HOUR}),
    "explode": Definition(
        "SELECT plate, explode(sequence(date_trunc('HOUR', ts), date_trunc('HOUR', ts) + INTERVAL 2 HOURS, INTERVAL 1 HOUR)) ts FROM taxi",
        {"taxi": "rows from 2 hours before the start of its 1 hour to their end"},
    ),
    "explode_back": Definition(
        "SELECT plate, explode(sequence(ts, ts - INTERVAL 2 HOURS, INTERVAL -1 HOUR)) ts FROM taxi",
        {"taxi": "rows from its time to 2 hours after its time"},
    ),
    "cte": Definition(
        "WITH h AS (SELECT plate, date_trunc('HOUR', ts) h, count(*) c FROM taxi GROUP BY 1, 2) SELECT plate, date_trunc('DAY', h) ts, max(c) top FROM h GROUP BY 1, 2",
        {"taxi": DAY},
    ),
    "cte_twice": Definition(
        "WITH h AS (SELECT plate, date_trunc('HOUR', ts) h, avg(speed) v FROM taxi GROUP BY 1, 2) "
        "SELECT a.plate, a.h AS ts, a.v - b.v AS d FROM h a JOIN h b ON a.plate = b.plate AND b.h = a.h - INTERVAL 1 HOUR",
        {"taxi": "rows from 1 hour before the start of its 1 hour to their end"},
    ),
    "no_time": Definition(
        "SELECT plate, count(*) n FROM taxi GROUP BY plate", {"": "!has no column 'ts' for the time of its rows (it has plate, n)"}
    ),
    "max_time": Definition("SELECT plate, max(ts) ts FROM taxi GROUP BY plate", {"taxi": "!`ts` has no time"}),
    # ---- several --------------------------------------------------------------------------------------------
    "union": Definition(
        "SELECT plate, ts, speed FROM taxi UNION ALL SELECT plate, ts + INTERVAL 1 HOUR, speed FROM taxi2",
        {"taxi": SAME, "taxi2": "rows 1 hour before its time"},
    ),
    "union_swapped": Definition(
        "SELECT ts, ts + INTERVAL 1 HOUR AS other FROM taxi UNION ALL SELECT ts + INTERVAL 3 HOURS, ts FROM taxi",
        {"taxi": "rows from 3 hours before its time to its time"},
    ),
    "union_hours": Definition("SELECT ts FROM taxi UNION ALL SELECT date_trunc('HOUR', ts)::timestamp_ntz FROM taxi", {"taxi": HOUR}),
    "except": Definition("SELECT plate, ts FROM taxi EXCEPT SELECT plate, ts FROM taxi2", {"taxi": SAME, "taxi2": SAME}),
    "intersect": Definition(
        "SELECT plate, ts FROM taxi INTERSECT SELECT plate, ts - INTERVAL 5 MINUTES FROM taxi2",
        {"taxi": SAME, "taxi2": "rows 5 minutes after its time"},
    ),
    "band_join": Definition(
        "SELECT a.plate, a.ts, a.code, b.speed FROM alarm a JOIN taxi b ON a.plate = b.plate AND b.ts BETWEEN a.ts - INTERVAL 5 MINUTES AND a.ts",
        {"alarm": SAME, "taxi": "rows from 5 minutes before its time to its time"},
    ),
    "band_left": Definition(
        "SELECT a.plate, a.ts, b.speed FROM alarm a LEFT JOIN taxi b ON a.plate = b.plate AND b.ts > a.ts - INTERVAL 5 MINUTES AND b.ts <= a.ts",
        {"alarm": SAME, "taxi": "rows from 299999999 us before its time to its time"},
    ),
    "band_difference": Definition(
        "SELECT a.plate, a.ts FROM alarm a JOIN taxi t ON a.plate = t.plate AND a.ts - t.ts <= INTERVAL 90 SECONDS AND a.ts >= t.ts",
        {"alarm": SAME, "taxi": "rows from 90 seconds before its time to its time"},
    ),
    "band_far_side": Definition(
        "SELECT b.plate, b.ts, a.code FROM alarm a JOIN taxi b ON a.plate = b.plate WHERE b.ts BETWEEN a.ts - INTERVAL 5 MINUTES AND a.ts",
        {"alarm": "rows from its time to 5 minutes after its time", "taxi": SAME},
    ),
    "one_sided": Definition(
        "SELECT a.plate, a.ts FROM alarm a JOIN taxi b ON b.ts <= a.ts", {"alarm": SAME, "taxi": "!can change all later rows"}
    ),
    "three_way": Definition(
        "SELECT a.plate, a.ts, s.name FROM alarm a JOIN taxi b ON a.plate = b.plate AND b.ts BETWEEN a.ts - INTERVAL 5 MINUTES AND a.ts "
        "JOIN sensors s ON s.plate = b.plate AND s.valid_from BETWEEN b.ts - INTERVAL 1 DAY AND b.ts",
        {
            "alarm": SAME,
            "taxi": "rows from 5 minutes before its time to its time",
            "sensors": "rows from 1445 minutes before its time to its time",
        },
    ),
    "bucket_join": Definition(
        "SELECT a.plate, a.ts, t.speed FROM alarm a JOIN taxi t ON a.plate = t.plate AND date_trunc('HOUR', a.ts) = date_trunc('HOUR', t.ts)",
        {"alarm": SAME, "taxi": HOUR},
    ),
    "description": Definition(
        "SELECT t.plate, t.ts, s.name FROM taxi t LEFT JOIN sensors s ON t.plate = s.plate AND t.ts BETWEEN s.valid_from AND s.valid_to",
        {"taxi": SAME, "sensors": "!tw.bounds(before='all', after='0')"},
    ),
    "lookup": Definition(
        "SELECT t.plate, t.ts, s.name FROM taxi t JOIN sensors s ON t.plate = s.plate",
        {"taxi": SAME, "sensors": "!sensors is joined without its time"},
    ),
    "full_outer": Definition(
        "SELECT coalesce(a.plate, b.plate) plate, coalesce(a.ts, b.ts) ts, a.speed, b.speed s2 FROM taxi a FULL OUTER JOIN taxi2 b ON a.plate = b.plate AND a.ts = b.ts",
        {"taxi": SAME, "taxi2": SAME},
    ),
    "full_outer_band": Definition(
        "SELECT coalesce(a.ts, b.ts) ts, a.speed, b.speed s2 FROM taxi a FULL OUTER JOIN taxi2 b ON a.plate = b.plate AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 MINUTES",
        {"taxi": "rows from 5 minutes before its time to its time", "taxi2": "rows from its time to 5 minutes after its time"},
    ),
    "right_outer": Definition(
        "SELECT b.ts, a.speed FROM taxi a RIGHT JOIN taxi2 b ON a.plate = b.plate AND a.ts = b.ts - INTERVAL 1 MINUTE",
        {"taxi": "rows 1 minute before its time", "taxi2": SAME},
    ),
    "semi": Definition("SELECT * FROM taxi t LEFT SEMI JOIN alarm a ON a.plate = t.plate AND a.ts = t.ts", {"taxi": SAME, "alarm": SAME}),
    "exists": Definition(
        "SELECT * FROM taxi t WHERE EXISTS (SELECT 1 FROM alarm a WHERE a.plate = t.plate AND a.ts BETWEEN t.ts - INTERVAL 10 MINUTES AND t.ts + INTERVAL 10 MINUTES)",
        {"taxi": SAME, "alarm": "rows from 10 minutes before its time to 10 minutes after its time"},
    ),
    "not_exists": Definition(
        "SELECT * FROM taxi t WHERE NOT EXISTS (SELECT 1 FROM alarm a WHERE a.plate = t.plate AND a.ts BETWEEN t.ts AND t.ts + INTERVAL 1 HOUR)",
        {"taxi": SAME, "alarm": "rows from its time to 1 hour after its time"},
    ),
    "exists_self": Definition(
        "SELECT * FROM taxi t WHERE EXISTS (SELECT 1 FROM taxi u WHERE u.plate = t.plate AND u.ts = t.ts - INTERVAL 1 HOUR)",
        {"taxi": "rows from 1 hour before its time to its time"},
    ),
    "in_keys": Definition(
        "SELECT * FROM taxi WHERE plate IN (SELECT plate FROM alarm)", {"taxi": SAME, "alarm": "!alarm is read in IN (SELECT …)"}
    ),
    "in_times": Definition("SELECT * FROM taxi WHERE ts IN (SELECT ts FROM alarm)", {"taxi": SAME, "alarm": SAME}),
    "not_in_times": Definition(
        "SELECT * FROM taxi WHERE ts NOT IN (SELECT valid_to FROM sensors)", {"taxi": SAME, "sensors": "!sensors is read in IN (SELECT …)"}
    ),
    "scalar": Definition(
        "SELECT plate, ts, (SELECT max(speed) FROM taxi2) top FROM taxi", {"taxi": SAME, "taxi2": "!a subquery for a value"}
    ),
    "scalar_band": Definition(
        "SELECT plate, ts, (SELECT max(speed) FROM taxi2 u WHERE u.plate = t.plate AND u.ts BETWEEN t.ts - INTERVAL 1 HOUR AND t.ts) top FROM taxi t",
        {"taxi": SAME, "taxi2": "rows from 1 hour before its time to its time"},
    ),
    "lateral": Definition(
        "SELECT t.plate, t.ts, x.c FROM taxi t, LATERAL (SELECT count(*) c FROM alarm a WHERE a.plate = t.plate AND a.ts BETWEEN t.ts - INTERVAL 1 HOUR AND t.ts) x",
        {"taxi": SAME, "alarm": "rows from 1 hour before its time to its time"},
    ),
    "asof": Definition(
        "SELECT a.plate, a.ts, b.speed FROM alarm a ASOF JOIN taxi b MATCH_CONDITION (a.ts >= b.ts) ON a.plate = b.plate",
        {"alarm": SAME, "taxi": "!can change all later rows"},
    ),
    "asof_band": Definition(
        "SELECT a.plate, a.ts, b.speed FROM alarm a ASOF JOIN taxi b MATCH_CONDITION (a.ts >= b.ts) ON a.plate = b.plate AND b.ts >= a.ts - INTERVAL 1 HOUR",
        {"alarm": SAME, "taxi": "rows from 1 hour before its time to its time"},
    ),
    "asof_far_side": Definition(
        "SELECT a.plate, b.ts, b.speed FROM alarm a ASOF JOIN taxi b MATCH_CONDITION (a.ts >= b.ts) ON a.plate = b.plate AND b.ts >= a.ts - INTERVAL 1 HOUR",
        {"alarm": "rows from its time to 1 hour after its time", "taxi": "rows from 1 hour before its time to 1 hour after its time"},
    ),
    # ---- window functions -----------------------------------------------------------------------------------
    "range_frame": Definition(
        "SELECT plate, ts, avg(speed) OVER (PARTITION BY plate ORDER BY ts RANGE BETWEEN INTERVAL 10 MINUTES PRECEDING AND INTERVAL 1 MINUTE FOLLOWING) v FROM taxi",
        {"taxi": "rows from 10 minutes before its time to 1 minute after its time"},
    ),
    "range_descending": Definition(
        "SELECT plate, ts, avg(speed) OVER (PARTITION BY plate ORDER BY ts DESC RANGE BETWEEN INTERVAL 10 MINUTES PRECEDING AND CURRENT ROW) v FROM taxi",
        {"taxi": "rows from its time to 10 minutes after its time"},
    ),
    "range_over_hours": Definition(
        "SELECT plate, ts, avg(v) OVER (PARTITION BY plate ORDER BY ts RANGE BETWEEN INTERVAL 3 HOURS PRECEDING AND CURRENT ROW) v "
        "FROM (SELECT plate, date_trunc('HOUR', ts) ts, avg(speed) v FROM taxi GROUP BY 1, 2)",
        {"taxi": "rows from 3 hours before the start of its 1 hour to their end"},
    ),
    "rows_frame": Definition(
        "SELECT plate, ts, avg(speed) OVER (PARTITION BY plate ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) v FROM taxi",
        {"taxi": "!avg() OVER (…) looks back or ahead"},
    ),
    "lag": Definition(
        "SELECT plate, ts, speed - lag(speed) OVER (PARTITION BY plate ORDER BY ts) d FROM taxi",
        {"taxi": "!lag() OVER (…) looks back or ahead without limit"},
    ),
    "lag_in_hour": Definition(
        "SELECT plate, ts, lag(speed) OVER (PARTITION BY plate, date_trunc('HOUR', ts) ORDER BY ts, speed) d FROM taxi", {"taxi": HOUR}
    ),
    "lag_in_null_hour": Definition(
        "SELECT plate, ts, lag(n) OVER (PARTITION BY CASE WHEN speed > 50 THEN date_trunc('HOUR', ts) END ORDER BY ts, n) d FROM taxi",
        {"taxi": "!lag() OVER (…) looks back or ahead"},
    ),
    "first_of_hour": Definition(
        "SELECT plate, ts, speed FROM (SELECT *, row_number() OVER (PARTITION BY plate, date_trunc('HOUR', ts) ORDER BY ts, speed, n) r FROM taxi) WHERE r = 1",
        {"taxi": HOUR},
    ),
    "running": Definition(
        "SELECT plate, ts, sum(n) OVER (PARTITION BY plate ORDER BY ts) total FROM taxi", {"taxi": "!can change all later rows"}
    ),
    "session": Definition(
        "SELECT plate, session_window.start ts, count(*) n FROM taxi GROUP BY plate, session_window(ts, '15 minutes')",
        {"": "!session_window()"},
    ),
    # ---- nulls, and rows that are missing --------------------------------------------------------------------
    "anti_outer": Definition(
        "SELECT a.plate, a.ts FROM taxi a LEFT JOIN taxi2 b ON a.plate=b.plate AND b.ts BETWEEN a.ts - INTERVAL 20 MINUTES AND a.ts WHERE b.ts IS NULL",
        {"taxi": "rows of the same time", "taxi2": "rows from 20 minutes before its time to its time"},
    ),
    "not_in_ts": Definition(
        "SELECT plate, ts FROM taxi WHERE ts NOT IN (SELECT ts FROM taxi2)",
        {"taxi": "rows of the same time", "taxi2": "!taxi2 is read in IN (SELECT …)"},
    ),
    "intersect_null": Definition(
        "SELECT ts, h FROM (SELECT ts, CASE WHEN speed > 50 THEN ts END h FROM taxi INTERSECT SELECT ts, CASE WHEN speed > 50 THEN ts END FROM taxi2)",
        {"taxi": "rows of the same time", "taxi2": "rows of the same time"},
    ),
    "null_safe": Definition(
        "SELECT b.ts, a.n FROM (SELECT *, CASE WHEN speed > 50 THEN ts END h FROM taxi) a JOIN (SELECT *, CASE WHEN speed > 50 THEN ts END h FROM taxi2) b ON a.h <=> b.h",
        {"taxi2": "rows of the same time", "taxi": "!taxi is joined without its time"},
    ),
    "full_using": Definition(
        "SELECT ts, plate, a.n, b.n m FROM taxi a FULL JOIN taxi2 b USING (plate, ts)",
        {"taxi": "rows of the same time", "taxi2": "rows of the same time"},
    ),
    "left_coalesce": Definition(
        "SELECT coalesce(b.ts, a.ts) ts, a.n, b.n m FROM taxi a LEFT JOIN taxi2 b ON a.plate=b.plate AND b.ts BETWEEN a.ts - INTERVAL 20 MINUTES AND a.ts",
        {"taxi": "rows from its time to 20 minutes after its time", "taxi2": "rows from 20 minutes before its time to its time"},
    ),
    "group_coalesce": Definition(
        "SELECT coalesce(date_trunc('HOUR', b.ts), date_trunc('HOUR', a.ts)) ts, count(*) c FROM taxi a LEFT JOIN taxi2 b ON a.plate=b.plate AND b.ts BETWEEN a.ts - INTERVAL 20 MINUTES AND a.ts GROUP BY 1",
        {
            "taxi": "rows from the start of its 1 hour to 20 minutes after their end",
            "taxi2": "rows from 20 minutes before the start of its 1 hour to their end",
        },
    ),
    "union_null": Definition(
        "SELECT coalesce(x, ts) ts, n FROM (SELECT ts, ts + INTERVAL 1 HOUR x, n FROM taxi UNION ALL SELECT ts, CAST(NULL AS TIMESTAMP_NTZ), n FROM taxi2)",
        {"taxi": "rows from 1 hour before its time to its time", "taxi2": "rows of the same time"},
    ),
    "sliding_self": Definition(
        "WITH w AS (SELECT plate, window(ts, '30 minutes', '15 minutes') w, count(*) c FROM taxi GROUP BY ALL) SELECT a.w.start ts, a.c, b.c d FROM w a JOIN w b ON a.plate = b.plate AND a.w.end = b.w.start",
        {"taxi": "rows from the start of its 15 minutes to 1 hour after their end"},
    ),
    "cube_day": Definition(
        "SELECT coalesce(h, d) ts, c FROM (SELECT date_trunc('HOUR', ts) h, date_trunc('DAY', ts) d, count(*) c FROM taxi GROUP BY GROUPING SETS ((date_trunc('HOUR', ts)), (date_trunc('DAY', ts))))",
        {"taxi": "rows of the same 1 day"},
    ),
    "range_nullable": Definition(
        "SELECT ts, count(*) OVER (ORDER BY CASE WHEN speed > 50 THEN ts END RANGE BETWEEN INTERVAL 10 MINUTES PRECEDING AND CURRENT ROW) c FROM taxi",
        {"taxi": "!count() OVER (…) looks back or ahead"},
    ),
    "rank_next": Definition(
        "SELECT ts, r FROM (SELECT ts, plate, rank() OVER (PARTITION BY date_trunc('HOUR', ts) ORDER BY speed) r FROM taxi) t WHERE EXISTS (SELECT 1 FROM taxi u WHERE u.ts BETWEEN t.ts AND t.ts + INTERVAL 1 HOUR AND u.n = t.r)",
        {"taxi": "rows from the start of its 1 hour to 1 hour after their end"},
    ),
    "max_join": Definition(
        "SELECT b.ts, a.c FROM (SELECT plate, max(ts) m, count(*) c FROM taxi GROUP BY plate, date_trunc('HOUR', ts)) a JOIN taxi2 b ON a.plate=b.plate AND b.ts = a.m",
        {"taxi2": "rows of the same time", "taxi": "!taxi is joined without its time"},
    ),
    "agg_of_left": Definition(
        "SELECT date_trunc('HOUR', a.ts) ts, count(b.ts) c FROM taxi a LEFT JOIN alarm b ON a.plate=b.plate AND date_trunc('HOUR', a.ts) = date_trunc('HOUR', b.ts) + INTERVAL 1 HOUR GROUP BY 1",
        {"taxi": "rows of the same 1 hour", "alarm": "rows from 1 hour before the start of its 1 hour to 1 hour before their end"},
    ),
    # ---- tables read twice, whose attributes Spark numbers anew ----------------------------------------------
    "between_twice": Definition(
        "SELECT t.ts, x.n FROM taxi t JOIN (SELECT u.plate, u.ts, v.n FROM taxi u JOIN taxi2 v ON v.plate = u.plate AND v.ts BETWEEN u.ts - INTERVAL 5 MINUTES AND u.ts) x ON x.plate = t.plate AND x.ts = t.ts + INTERVAL 1 HOUR",
        {"taxi": "rows from its time to 1 hour after its time", "taxi2": "rows from 55 minutes after its time to 1 hour after its time"},
    ),
    "exists_twice": Definition(
        "SELECT y.ts, x.n FROM taxi y JOIN (SELECT * FROM taxi t WHERE EXISTS (SELECT 1 FROM alarm a WHERE a.ts BETWEEN t.ts - INTERVAL 1 HOUR AND t.ts)) x ON x.ts = y.ts + INTERVAL 2 HOURS",
        {"taxi": "rows from its time to 2 hours after its time", "alarm": "rows from 1 hour after its time to 2 hours after its time"},
    ),
    # ---- Python ---------------------------------------------------------------------------------------------
    "windowed": Definition(windowed, {"taxi": HOUR, "alarm": HOUR}),
    "mapped": Definition(mapped, {"taxi": "!a Python function over rows (MapInArrow)"}),
    "grouped": Definition(grouped, {"taxi": "!a Python function over rows (FlatMapGroupsInPandas)"}),
    "rounded": Definition(rounded, {"taxi": SAME}),
    # ---- not repeatable -------------------------------------------------------------------------------------
    "limit": Definition("SELECT * FROM taxi LIMIT 10", {"": "!GlobalLimit"}),
    "now": Definition(
        "SELECT plate, ts, speed FROM taxi WHERE ts > now() - INTERVAL 1 HOUR AND current_date() > DATE '2026-01-01'", {"taxi": SAME}
    ),
    "random": Definition("SELECT plate, ts, rand() r, uuid() u FROM taxi", {"taxi": SAME}),
    "first": Definition(
        "SELECT date_trunc('HOUR', ts) ts, first(speed) f, any_value(n) a, collect_list(speed) l, max_by(n, speed) m FROM taxi GROUP BY 1",
        {"taxi": HOUR},
    ),
    "ordered": Definition("SELECT * FROM taxi ORDER BY ts", {"taxi": SAME}),
    # ---- how it can be kept up to date ----------------------------------------------------------------------
    "merge_filtered": Definition(
        "SELECT plate AS cab, date_trunc('DAY', ts) ts, count(speed) c, sum(n) FILTER (WHERE speed > 50) s, min(ts) first FROM taxi WHERE plate > 3 GROUP BY 1, 2",
        {"taxi": DAY},
    ),
    "count_distinct": Definition("SELECT plate, date_trunc('HOUR', ts) ts, count(DISTINCT n) c FROM taxi GROUP BY 1, 2", {"taxi": HOUR}),
    "float_sum": Definition("SELECT plate, date_trunc('HOUR', ts) ts, sum(speed) s FROM taxi GROUP BY 1, 2", {"taxi": HOUR}),
    "average": Definition("SELECT plate, date_trunc('HOUR', ts) ts, avg(n) a FROM taxi GROUP BY 1, 2", {"taxi": HOUR}),
    "try_sum": Definition("SELECT plate, date_trunc('HOUR', ts) ts, try_sum(n) s, max(n) top FROM taxi GROUP BY 1, 2", {"taxi": HOUR}),
    "average_with_parts": Definition(
        "SELECT plate, date_trunc('HOUR', ts) ts, avg(n) a, sum(n) total, count(n) c FROM taxi GROUP BY 1, 2", {"taxi": HOUR}
    ),
    "cte_merged": Definition(
        "WITH fast AS (SELECT * FROM taxi WHERE speed > 20), h AS (SELECT plate, date_trunc('HOUR', ts) ts, count(*) n FROM fast GROUP BY 1, 2) SELECT ts, n FROM h",
        {"taxi": HOUR},
    ),
    "renamed": Definition(
        "SELECT h AS ts, plate, c AS n FROM (SELECT plate, date_trunc('HOUR', ts) h, count(*) c, max(speed) top FROM taxi GROUP BY 1, 2)",
        {"taxi": HOUR},
    ),
    "computed": Definition("SELECT plate, date_trunc('HOUR', ts) ts, sum(n) + 1 s FROM taxi GROUP BY 1, 2", {"taxi": HOUR}),
    "not_by_key": Definition(
        "SELECT date_trunc('HOUR', ts) ts, max(plate) plate, percentile_approx(speed, 0.5) p FROM taxi GROUP BY 1", {"taxi": HOUR}
    ),
    "keys_nested": Definition(
        "SELECT plate, h AS ts, percentile_approx(v, 0.5) p FROM (SELECT plate, date_trunc('HOUR', ts) h, n, avg(speed) v FROM taxi GROUP BY 1, 2, 3) GROUP BY 1, 2",
        {"taxi": HOUR},
    ),
    # ---- several sources ------------------------------------------------------------------------------------
    "union_counts": Definition(
        "SELECT plate, date_trunc('HOUR', ts) ts, count(*) c, sum(n) s, max(speed) top FROM (SELECT plate, ts, n, speed FROM taxi WHERE n > 1 UNION ALL SELECT plate, ts, n + 1, speed FROM taxi2) GROUP BY 1, 2",
        {"taxi": HOUR, "taxi2": HOUR},
    ),
    "union_distinct": Definition("SELECT plate, ts FROM taxi UNION SELECT plate, ts FROM taxi2", {"taxi": SAME, "taxi2": SAME}),
    "fact_counts": Definition(
        "SELECT t.plate, date_trunc('HOUR', t.ts) ts, count(*) c, count(a.code) alarms, sum(n) s FROM taxi t JOIN alarm a ON t.plate = a.plate AND t.ts = a.ts GROUP BY 1, 2",
        {"taxi": HOUR, "alarm": HOUR},
    ),
    "union_of_joins": Definition(
        "SELECT t.plate, t.ts, t.speed, a.code FROM taxi t JOIN alarm a ON t.plate = a.plate AND t.ts = a.ts UNION ALL SELECT t.plate, t.ts, t.n, a.code FROM taxi2 t LEFT JOIN alarm a ON t.plate = a.plate AND t.ts = a.ts",
        {"taxi": SAME, "taxi2": SAME, "alarm": SAME},
    ),
    "union_medians": Definition(
        "SELECT plate, date_trunc('HOUR', ts) ts, percentile_approx(n, 0.5) p FROM (SELECT plate, ts, n FROM taxi UNION ALL SELECT plate, ts, n FROM taxi2) GROUP BY 1, 2",
        {"taxi": HOUR, "taxi2": HOUR},
    ),
    "of_two_hours": Definition(
        "SELECT a.plate, a.ts, a.c, b.top FROM (SELECT plate, date_trunc('HOUR', ts) ts, count(*) c FROM taxi GROUP BY 1, 2) a LEFT JOIN (SELECT plate, date_trunc('HOUR', ts) ts, max(n) top FROM taxi2 GROUP BY 1, 2) b ON a.plate = b.plate AND a.ts = b.ts",
        {"taxi": HOUR, "taxi2": HOUR},
    ),
}
