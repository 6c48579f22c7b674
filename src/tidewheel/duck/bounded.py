"""Which expressions keep to their limits by themselves, seen by their tree.

DuckDB looks at the clock and at its memory between two vectors of 2,048 rows, not within the call of one function. So a statement may run
in this process only if no single call in it can take long or make much: scans, joins, sorts and groups, over functions whose work and
whose answer are of the size of their arguments. All that is not known to be so runs in a process apart (`read/apart.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidewheel.duck.ip_functions import NAMES as IP_FUNCTIONS
from tidewheel.duck.nodes import arguments, string_of, walk

LONGEST = 10_000
"""Characters of a text that is planned in this process: planning takes more than its share of time with the length."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GROWING = 3
"""Calls in one statement that may make the sum of their arguments: n of them within each other make 2ⁿ times one."""

_ALIASES = 3
"""Names of a SELECT that it may use itself: DuckDB writes out each, so n of them within each other make 2ⁿ expressions."""

_COPIES = 64
"""Tables that a statement names, and reads when each common table expression is written out wherever it is named, as DuckDB may do."""

_SELECTS = 24
"""SELECTs of a statement that is planned in this process: DuckDB looks at no clock while it plans, and may work out each for each other."""

_WITHIN = 6
"""Those of them that stand in an expression, with which it has to do far more."""

_STARS = 8
"""Columns by `*`: those of one SELECT are times those of the next within it."""

_LIKE = frozenset({"~~", "!~~", "~~*", "!~~*"})
_REGEXP = frozenset({"regexp_matches", "regexp_full_match", "regexp_extract"})
_CONCAT = frozenset({"||", "concat", "concat_ws", "list_value", "struct_pack", "row"})
_EXTREMES = {"min": 1, "max": 1, "arg_min": 2, "arg_max": 2, "argmin": 2, "argmax": 2, "min_by": 2, "max_by": 2}
"""With one argument more they keep so many values for each group."""

AGGREGATES = _words(
    """any_value approx_count_distinct approx_quantile arbitrary avg bit_and bit_or bit_xor bool_and bool_or corr count count_if
    count_star countif covar_pop covar_samp favg first fsum kahan_sum kurtosis kurtosis_pop last mean median product quantile_cont
    quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem
    skewness stddev stddev_pop stddev_samp sum sumkahan var_pop var_samp variance"""
) | frozenset(_EXTREMES)
"""Whose state is a few numbers for each group, or a number for each row."""

_LARGE = _words("approx_count_distinct approx_quantile reservoir_quantile")
"""Whose state is large: a window keeps one for every few rows."""

_RANKS = _words("""row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value rank_dense fill""")

SCALARS = _words(
    """+ - * / // % ** ^ @ & | << >> ~ ! add subtract multiply divide mod pow power xor abs acos acosh asin asinh atan atan2 atanh cbrt
    ceil ceiling cos cosh cot degrees even exp factorial floor gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm
    least least_common_multiple lgamma ln log log10 log2 nextafter pi radians round round_even roundbankers sign signbit sin sinh sqrt
    tan tanh trunc bit_count fdiv fmod ascii bit_length char_length character_length chr contains ends_with instr lcase left
    left_grapheme len length length_grapheme lower ltrim md5 md5_number md5_number_lower md5_number_upper nfc_normalize octet_length
    ord position prefix reverse right right_grapheme rtrim sha1 sha256 starts_with ^@ strip_accents strlen strpos substr substring
    substring_grapheme suffix trim ucase unicode upper split_part hash typeof nullif if ->> json_extract_string age century date_add
    date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear
    days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear julian last_day make_date make_time make_timestamp
    make_timestamp_ms make_timestamp_ns make_timestamptz microsecond millennium millisecond minute month monthname nanosecond quarter
    second strftime strptime time_bucket timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours
    to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years
    try_strptime week weekday weekofyear year yearweek now today get_current_timestamp transaction_timestamp get_current_time
    array_extract list_extract list_element element_at struct_extract array_length list_contains list_has list_position array_contains
    cardinality map_extract map_extract_value unnest error random uuid gen_random_uuid"""
)
"""Whose answer is no larger than their arguments, and made in one pass over them."""

_TYPES = _words(
    """bool boolean tinyint smallint integer int int1 int2 int4 int8 int16 int32 int64 bigint hugeint utinyint usmallint uinteger ubigint
    uhugeint uint8 uint16 uint32 uint64 signed short long oid float float4 float8 real double decimal numeric dec varchar text string
    char bpchar nvarchar date time timetz timestamp timestamptz datetime timestamp_s timestamp_ms timestamp_us timestamp_ns interval
    uuid blob bytea binary varbinary"""
) | {"time with time zone", "timestamp with time zone"}  # fmt: skip

_CLASSES = _words(
    """CAST TYPE COLUMN_REF COMPARISON CONJUNCTION CONSTANT OPERATOR PARAMETER STAR SUBQUERY BETWEEN CASE POSITIONAL_REFERENCE"""
)
_OPERATORS = frozenset({"ARRAY_CONSTRUCTOR"})
_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})


def is_bounded(nodes: Iterable[dict[str, Any]], text: str) -> bool:
    """Whether a statement, or an expression, of these nodes may run in this process."""
    if len(text) > LONGEST:
        return False
    growing = aliases = selects = within = stars = tables = 0
    makes_rows: set[int] = set()
    common: dict[str, list[str]] = {}
    for node in nodes:
        if id(node) in makes_rows:
            continue
        kind = node.get("type")
        if kind == "RECURSIVE_CTE_NODE":  # it repeats what only grows a little
            return False
        for one in (node.get("cte_map") or {}).get("map", ()):
            common.setdefault(one["key"].lower(), []).extend(_tables(one["value"]))
        if kind == "SELECT_NODE":
            aliases += _own_names(node)
            selects += 1
        elif kind == "BASE_TABLE":
            tables += 1
        elif kind == "TABLE_FUNCTION":
            makes_rows.add(id(node["function"]))
            growing += 0 if node["function"].get("function_name", "").lower() in _TABLE_FUNCTIONS else _GROWING + 1
        if "class" in node:
            within += node["class"] == "SUBQUERY"
            stars += node["class"] == "STAR"
            growing += _growth(node)
        if growing > _GROWING or aliases > _ALIASES or selects > _SELECTS or within > _WITHIN or stars > _STARS or tables > _COPIES:
            return False
    return not common or max(_copies(common).values()) <= _COPIES


def _tables(tree: Any) -> list[str]:
    return [node["table_name"].lower() for node in walk(tree) if node.get("type") == "BASE_TABLE"]


def _copies(common: dict[str, list[str]]) -> dict[str, int]:
    """How many tables each common table expression is, written out. (Names within each other's reach are not told apart.)"""
    found: dict[str, int] = {}
    for name in common:
        path = [name]  # each waits for the next
        while path:
            parts = common[path[-1]]
            unknown = next((part for part in parts if part in common and part not in found and part not in path), None)
            if unknown is not None:
                path.append(unknown)
            else:
                last = path.pop()
                found[last] = min(_COPIES + 1, sum(found.get(part, 1) for part in parts))
    return found


def _growth(node: dict[str, Any]) -> int:
    """0 if it keeps to the size of its arguments, 1 if it makes the sum of them, and else more than a statement may have."""
    too_much = _GROWING + 1
    match node["class"]:
        case "FUNCTION":
            return _function(node["function_name"].lower(), node)
        case "WINDOW":
            name = node["function_name"].lower()
            counts = name in AGGREGATES and name not in _LARGE and not node.get("distinct") and _fits(name, node)
            return 0 if name in _RANKS or counts else too_much
        case "TYPE":
            return 0 if node.get("type_name", "").lower() in _TYPES else too_much
        case "OPERATOR":
            return 1 if node.get("type") in _OPERATORS else 0
        case kind:
            return 0 if kind in _CLASSES else too_much


def _function(name: str, node: dict[str, Any]) -> int:
    if name in SCALARS or name in IP_FUNCTIONS or name in AGGREGATES and _fits(name, node):
        return 0
    if name in _CONCAT:
        return 1
    given = arguments(node)
    if name in _LIKE and len(given) == 2 and (pattern := string_of(given[1])) is not None:
        # DuckDB tries every way to share a text among the %; without _ and with LIKE it searches for one part after the other
        return 0 if pattern.count("%") <= 2 or "_" not in pattern and not name.endswith("*") else _GROWING + 1
    if name in _REGEXP and len(given) > 1 and string_of(given[1]) is not None:
        return 0
    if name in ("replace", "translate") and len(given) == 3:
        before, after = string_of(given[1]), string_of(given[2])
        return 0 if before is not None and after is not None and len(after.encode()) <= len(before.encode()) else _GROWING + 1
    return _GROWING + 1


def _fits(name: str, node: dict[str, Any]) -> bool:
    return name not in _EXTREMES or len(arguments(node)) <= _EXTREMES[name]


def _own_names(select: dict[str, Any]) -> int:
    """How often the list of a SELECT names something that it makes itself."""
    items = select.get("select_list") or []
    made = {item["alias"].lower() for item in items if item.get("alias")}
    if not made:
        return 0
    found = 0
    for item in items:
        for node in walk(item):
            names = node.get("column_names")
            if names and len(names) == 1 and names[0].lower() in made and names[0].lower() != (item.get("alias") or "").lower():
                found += 1
    return found
