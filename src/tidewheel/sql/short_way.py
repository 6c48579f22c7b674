"""The shortest statements, which need nothing of DuckDB, not even its parser: SELECT count(*) FROM t, SELECT * FROM t LIMIT 10, SELECT a, b
FROM t.

They are what people ask first, and to load DuckDB takes longer than to answer them. Only what DuckDB would certainly read the same way is
taken: plain names that are no words of SQL, in a text of single signs. All else, and all that is wrong, goes the long way
(sql/run_statement.py), which says why.
"""

from __future__ import annotations

import re

from tidewheel.engine.protocol import Engine
from tidewheel.errors import NotFoundError
from tidewheel.model.query import Query
from tidewheel.read.limits import Limits
from tidewheel.read.totals.parse import ROWS, Total
from tidewheel.sql.asking import Asking
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.direct import Direct, asked_of
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.order_limit import Tail

_LONGEST = 500
"""Characters of a statement that is looked at."""

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_SHORT = re.compile(
    rf"""[ ]*SELECT[ ]+
         (?: (?P<count>count[ ]*\([ ]*\*[ ]*\)) | (?P<all>\*) | (?P<names>{_NAME}(?:[ ]*,[ ]*{_NAME})*) )
         [ ]+FROM[ ]+(?P<table>{_NAME})
         (?: [ ]+LIMIT[ ]+(?P<limit>[0-9]{{1,9}}) )?
         [ ]*;?[ ]*""",
    re.IGNORECASE | re.VERBOSE,
)

_SQL = """
all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast check collate collation
column concurrently constraint create cross current_date current_time current_timestamp default deferrable desc describe distinct
do else end except false fetch for foreign freeze from full glob group having ilike in initially inner intersect into is isnull
join lambda lateral leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer
overlaps pivot pivot_longer pivot_wider placing positional primary qualify references returning right select semi show similar
some summarize symmetric table tablesample then to trailing true union unique unpack unpivot using variadic verbose when where
window with
"""
_WORDS = frozenset(_SQL.split())
"""Every word that DuckDB does not take for a plain name in all of these places (tests/unit/test_short_way.py tries all that it knows)."""

_BLANKS = str.maketrans("\t\r\n", "   ")


def short_of(text: str) -> tuple[str, Direct] | None:
    """The table that such a statement reads and what it asks; None if it is none."""
    found = _SHORT.fullmatch(text.translate(_BLANKS)) if len(text) <= _LONGEST else None
    if found is None:
        return None
    table, columns = found["table"], tuple(one.strip() for one in (found["names"] or "").split(",") if one)
    words = {one.lower() for one in (table, *columns)}
    if words & _WORDS or len({one.lower() for one in columns}) < len(columns):
        return None
    totals = ((Total(ROWS), "count_star()"),) if found["count"] else ()
    return table, Direct(table.lower(), tuple((one, one) for one in columns), totals, Tail(limit=found["limit"]), None)


def shortly(
    engine: Engine, text: object, began: float, timeout: float | None, max_rows: float | None, max_bytes: float | None
) -> DirectResult | None:
    """The answer to such a statement; None if it goes the long way."""
    found = short_of(text) if isinstance(text, str) else None
    if found is None:
        return None
    asking = Asking(began)
    try:
        (table,) = engine.versions([found[0]])
    except NotFoundError:
        return None
    limits = Limits.of(engine.settings).asked_by(Query(timeout=timeout, max_rows=max_rows, max_bytes=max_bytes))
    try:
        asked = asked_of(found[1], table.spec, None)
    except NotDirectError:
        return None
    return DirectResult(engine.root, table, asked, limits, str(text), asking)
