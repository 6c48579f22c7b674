"""The words of SQL that are offered for completion: those that people type, not all there are."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KEYWORDS = _words("""
    ALL ANALYZE AND ANTI ANY AS ASC ASOF BETWEEN BY CASE CAST CREATE CROSS CURRENT_DATE CURRENT_TIMESTAMP DATE DESC DESCRIBE DISTINCT DROP
    ELSE END EXCEPT EXCLUDE EXISTS EXPLAIN EXTRACT FALSE FILTER FIRST FOLLOWING FROM FULL GROUP HAVING IF ILIKE IN INNER INSERT INTERSECT
    INTERVAL INTO IS JOIN LAST LATERAL LEFT LIKE LIMIT MATERIALIZED NATURAL NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER PARTITION PIVOT
    POSITIONAL PRECEDING QUALIFY RANGE RECURSIVE REPLACE RIGHT ROWS SAMPLE SELECT SEMI SHOW SUMMARIZE TABLE TABLES THEN TIMESTAMP TRUE
    UNBOUNDED UNION UNPIVOT USING VALUES WHEN WHERE WINDOW WITH
""")

RESERVED = frozenset(KEYWORDS) - frozenset(
    _words("DATE DROP FIRST IF INSERT LAST RANGE REPLACE ROWS TABLES TIMESTAMP SAMPLE FILTER EXCLUDE INTERVAL")
)
"""Keywords that cannot be names without quotes."""

FUNCTIONS = _words("""
    abs approx_count_distinct approx_quantile arg_max arg_min array_agg avg bool_and bool_or ceil coalesce concat concat_ws contains
    corr count count_if date_diff date_part date_trunc dense_rank ends_with epoch epoch_ms epoch_us exp first first_value floor format
    greatest histogram hour ifnull lag last last_value lead least len length list ln log10 lower ltrim make_timestamp max mean median
    min minute mod mode month now ntile nullif pow power quantile_cont quantile_disc rank regexp_extract regexp_matches regexp_replace
    replace round row_number rtrim sign split_part sqrt starts_with stddev string_agg strftime strptime struct_pack substring sum
    time_bucket to_timestamp trim trunc unnest upper var_pop var_samp week year
""")

TABLE_PLACES = frozenset(_words("FROM JOIN DESCRIBE SUMMARIZE INTO TABLE"))
"""Words after which a table is named."""
