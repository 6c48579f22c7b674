"""Statements of a few words that would take all memory, or hours, if nobody ended them; and what they took.

Over a table `t` with columns id (whole numbers from 0 on), ts and v.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _doubled(start: str, step: str, times: int) -> str:
    """A statement within a statement within …"""
    text = f"SELECT {start} AS x"
    for _ in range(times):
        text = f"SELECT {step} AS x FROM ({text})"
    return text


_LONG = "repeat('ab', 50000)"

HOSTILE: dict[str, str] = {
    # texts
    "replace": f"SELECT length(replace({_LONG}, 'a', {_LONG}))",
    "replace, every row": "SELECT max(length(replace(repeat('x', 90000), 'x', repeat('y', 1000) || id))) FROM t",
    "regexp_replace": f"SELECT length(regexp_replace({_LONG}, 'a', {_LONG}, 'g'))",
    "regexp backtracking": "SELECT regexp_extract_all(repeat('a', 100000), '(a*)*b') FROM t",
    "regexp_split": f"SELECT len(regexp_split_to_array({_LONG}, '')) FROM t",
    "string_split": f"SELECT max(len(string_split({_LONG} || id, ''))) FROM t",
    "levenshtein": f"SELECT levenshtein({_LONG}, reverse({_LONG}))",
    "damerau_levenshtein": f"SELECT damerau_levenshtein({_LONG}, reverse({_LONG}))",
    "jaro_similarity": f"SELECT jaro_similarity({_LONG}, reverse({_LONG})) FROM t",
    "jaccard": f"SELECT max(jaccard({_LONG} || id, reverse({_LONG}))) FROM t, range(1000)",
    "concatenated again and again": "SELECT length(x) FROM (" + _doubled("(SELECT 'ab' || max(id) FROM t)", "x || x", 36) + ")",
    "translate": f"SELECT max(length(translate({_LONG} || id, 'ab', 'ba'))) FROM t, range(100000)",
    "like": "SELECT count(*) FROM t WHERE repeat('a', 90000) || id LIKE '%a%a_a%a%a%a%a%a%a%b'",
    "glob": "SELECT count(*) FROM t WHERE repeat('a', 90000) || id GLOB '*a*a*a*a*a*a*a*a*a*a*b'",
    "lpad": "SELECT max(length(lpad(id::VARCHAR, 99999, 'x'))) FROM t, range(100000)",
    "repeat of a repeat": f"SELECT max(length(repeat(repeat('x', 300), 300) || {_LONG} || id)) FROM t, range(10000)",
    "bin and hex": f"SELECT length(bin(bin(bin(bin({_LONG})))))",
    "url_encode": "SELECT length(url_encode(url_encode(url_encode(url_encode(url_encode(repeat('é', 50000)))))))",
    "format": f"SELECT length(format('{'{0}' * 9}', format('{'{0}' * 9}', {_LONG} || id))) FROM t",
    # bits
    "bitstring": "SELECT length(bitstring('1', 2000000000)::VARCHAR)",
    "bitstring of every row": "SELECT bit_count(bitstring('1', (100000000 + id)::INTEGER)) FROM t",
    "bitstring_agg": "SELECT bit_count(bitstring_agg(i, 0, 900000000)) FROM range(1000) q(i) GROUP BY i",
    # lists, maps and structs
    "flatten": "SELECT len(flatten(list_transform(range(20000), lambda x: range(20000))))",
    "list_transform": "SELECT list_sum(list_transform(range(90000), lambda x: list_sum(range(90000))))",
    "a transform in a transform": "SELECT len(list_transform(range(90000), lambda x: list_transform(range(9000), lambda y: x * y)))",
    "list_reduce": "SELECT list_reduce(list_transform(range(100), lambda x: [1, 2]), lambda a, b: a || a || b)",
    "list_concat again and again": "SELECT len(x) FROM (" + _doubled("range(1000)", "list_concat(x, x)", 26) + ")",
    "list_sort of lists": "SELECT max(len(list_sort(list_transform(range(50000), lambda x: hash(x + id))))) FROM t",
    "list_distinct": "SELECT max(len(list_distinct(range(id, id + 90000)))) FROM t, range(1000)",
    "list_zip": "SELECT max(len(list_zip(range(90000), range(90000), range(id, id + 90000)))) FROM t",
    "list_cosine_similarity": "SELECT list_sum(list_transform(range(50000), lambda x: list_cosine_similarity(l, l))) "
    "FROM (SELECT range(50000)::DOUBLE[] AS l)",
    "list_resize": "SELECT max(len(list_resize([id], 99999))) FROM t",
    "map": "SELECT cardinality(map(range(99000), list_transform(range(99000), lambda x: range(1000))))",
    "map_concat": "SELECT max(cardinality(map_concat(map(range(90000), range(90000)), map([id], [id])))) FROM t",
    "structs of structs": "SELECT length(x::VARCHAR) FROM (" + _doubled("{'a': repeat('x', 1000)}", "{'a': x, 'b': x}", 20) + ")",
    "histogram": "SELECT cardinality(histogram(hash(i) || repeat('x', 100))) FROM range(100000000) q(i)",
    # json
    "json_array": "SELECT json_array_length(x) FROM (" + _doubled("json_array(1)", "json_array(x, x)", 30) + ")",
    "to_json": "SELECT length(to_json(list_transform(range(90000), lambda x: range(1000)))::VARCHAR)",
    "json_group_array": "SELECT length(json_group_array(repeat('x', 10000))) FROM range(10000000)",
    "json_pretty": "SELECT length(json_pretty(json_pretty(to_json(range(99999))) || repeat(' ', 10))) FROM t",
    # recursion
    "a recursive text": "WITH RECURSIVE x AS (SELECT 'ab' AS s UNION ALL SELECT s || s FROM x) SELECT max(length(s)) FROM x",
    "a recursive count": "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x) SELECT count(*) FROM x",
    "a recursive crowd": "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + i FROM x, range(1000) q(i)) SELECT count(*) FROM x",
    # rows out of nothing
    "range": "SELECT sum(i * i) FROM range(1000000000000) q(i)",
    "unnest": "SELECT max(x) FROM (SELECT unnest(range(99999)) + id AS x FROM t, range(100000))",
    "generate_series": "SELECT count(DISTINCT i) FROM generate_series(1, 10000000000) q(i)",
    "a cross join": "SELECT count(*) FROM t a, t b, t c, t d WHERE a.v + b.v + c.v + d.v < 0",
    "an ordered cross join": "SELECT * FROM t a, t b, t c ORDER BY hash(a.id * b.id * c.id)",
    "a join of everything": "SELECT sum(a.id) FROM t a JOIN t b ON a.v = b.v JOIN t c ON a.v = c.v JOIN t d ON b.v = d.v",
    "a window of everything": "SELECT max(x) FROM (SELECT list(a.id) OVER (ORDER BY a.id + b.id) AS x FROM t a, t b)",
    "a cube": "SELECT count(*) FROM t a, t b GROUP BY CUBE (" + ", ".join(f"(a.id + {n} * b.id)" for n in range(15)) + ")",
    # aggregates
    "string_agg": "SELECT length(string_agg(repeat('x', 10000), '')) FROM range(10000000)",
    "list": "SELECT len(list(i)) FROM range(10000000000) q(i)",
    "list of texts": "SELECT len(list(repeat('x', 10000) || i)) FROM range(10000000) q(i)",
    "quantile": "SELECT quantile_cont(i, [0.1, 0.2, 0.5]) FROM range(10000000000) q(i)",
    "median": "SELECT median(hash(i)::DOUBLE) FROM range(10000000000) q(i)",
    "mode": "SELECT mode(hash(i)) FROM range(10000000000) q(i)",
    "max of many": "SELECT max(hash(i), 999999) FROM range(100000000) q(i) GROUP BY i % 1000",
    "approx_top_k": "SELECT approx_top_k(hash(i), 999999) FROM range(100000000) q(i) GROUP BY i % 1000",
    # numbers
    "decimals": "SELECT sum((i::DECIMAL(38, 10) * 1.0000001)::DECIMAL(38, 10)::VARCHAR::DECIMAL(38, 9)) FROM range(100000000000) q(i)",
    "bignum": "SELECT max(length((repeat('9', 90000)::BIGNUM + id::BIGNUM)::VARCHAR)) FROM t, range(1000)",
    # long and deep
    "many values": "SELECT count(*) FROM t WHERE id + v IN (" + ", ".join(str(7 * n) for n in range(120_000)) + ")",
    "many cases": "SELECT sum(CASE " + " ".join(f"WHEN id = {n} THEN {n + 1}" for n in range(30_000)) + " END) FROM t",
    "many terms": "SELECT count(*) FROM t WHERE " + " OR ".join(f"id = {n} AND v < {n}" for n in range(30_000)),
    "many unions": " UNION ALL ".join(["SELECT * FROM t"] * 40_000),
    "many columns": "SELECT " + ", ".join(f"id + {n}" for n in range(80_000)) + " FROM t",
    "many rows": "SELECT count(*) FROM (VALUES " + ", ".join(["(1, 2, 'x')"] * 70_000) + ")",
    "names of names": "SELECT id + 1 AS a0, " + ", ".join(f"a{n} + a{n} AS a{n + 1}" for n in range(40)) + " FROM t",
    "guarded calls within each other": "SELECT length(" + "repeat(" * 60 + "'x'" + ", 1)" * 60 + ")",
    "expressions of expressions": "WITH a0 AS (FROM t), "
    + ", ".join(f"a{n + 1} AS NOT MATERIALIZED (FROM a{n} UNION ALL FROM a{n})" for n in range(40)) + " SELECT count(*) FROM a40",
    # planned by DuckDB without a look at the clock
    "sub-queries beside each other": "SELECT count(*) FROM t a WHERE "
    + " OR ".join(f"EXISTS (SELECT 1 FROM t b, t c WHERE b.id + c.id = a.id + {n})" for n in range(60)),
    "sub-queries within each other": "SELECT * FROM t WHERE id = " + "(SELECT max(id) FROM t WHERE id < " * 60 + "5" + ")" * 60,
    "sub-queries on the left": "SELECT count(*) FROM t a0" + "".join(
        f", LATERAL (SELECT a{n}.id + b.id AS id FROM t b WHERE b.id > a{n}.id) a{n + 1}" for n in range(30)
    ),
    "stars of stars": "SELECT count(*) FROM (SELECT " + " FROM (SELECT ".join([", ".join(["*"] * 50)] * 3) + " FROM t)))",
    "many joins": "SELECT count(*) FROM " + ", ".join(f"t a{n}" for n in range(120)) + " WHERE "
    + " AND ".join(f"a0.id = a{n}.id" for n in range(1, 120)),
    "a long insert": "INSERT INTO t SELECT " + " + ".join(["1"] * 9) + ", TIMESTAMP '2026-01-01', CASE "
    + " ".join(f"WHEN id = {n} THEN {n + 1}" for n in range(30_000)) + " END FROM t",
    "a long explain": "EXPLAIN SELECT count(*) FROM t WHERE " + " OR ".join(f"id = {n} AND v < {n}" for n in range(30_000)),
    # windows whose rows each take long, or keep much
    "a sample of each frame": "SELECT max(m) FROM (SELECT reservoir_quantile(i, 0.5) OVER "
    "(ORDER BY i ROWS BETWEEN 100000 PRECEDING AND 100000 FOLLOWING) AS m FROM range(2000000) q(i))",
    "the kinds in each frame": "SELECT max(m) FROM (SELECT count(DISTINCT hash(i)) OVER "
    "(ORDER BY i ROWS BETWEEN 1000000 PRECEDING AND 1000000 FOLLOWING) AS m FROM range(2000000) q(i))",
    "the middle of each frame": "SELECT max(m) FROM (SELECT median(hash(i)) OVER "
    "(ORDER BY i ROWS BETWEEN 1000000 PRECEDING AND 1000000 FOLLOWING) AS m FROM range(10000000) q(i))",
    # what changes something
    "insert": f"INSERT INTO t SELECT length(replace({_LONG}, 'a', {_LONG})), TIMESTAMP '2026-01-01', 1.0",
    "insert many": "INSERT INTO t SELECT levenshtein(repeat('ab', 50000), repeat('ba', 50000)), TIMESTAMP '2026-01-01', 1.0 FROM t",
    "explain": f"EXPLAIN SELECT length(replace({_LONG}, 'a', {_LONG}))",
    "explain analyze": "EXPLAIN ANALYZE SELECT len(flatten(list_transform(range(20000), lambda x: range(20000))))",
}  # fmt: skip

WHERE: dict[str, str] = {
    "replace": f"length(replace({_LONG} || id, 'a', {_LONG})) > 5",
    "levenshtein": f"levenshtein({_LONG} || id, reverse({_LONG})) > 5",
    "flatten": "len(flatten(list_transform(range(20000), lambda x: range(id, id + 20000)))) > 5",
    "bitstring": "length(bitstring('1', (1000000000 + id)::INTEGER)::VARCHAR) > 5",
    "cases": "CASE " + " ".join(f"WHEN id = {n} THEN {n + 1}" for n in range(30_000)) + " END > 3",
}
"""Conditions for table.query."""

AGGREGATES: dict[str, str] = {
    "replace": f"max(length(replace({_LONG} || id, 'a', {_LONG})))",
    "string_agg": "length(string_agg(repeat('x', 90000), '')) + length(string_agg(repeat('y', 90000) || id, ''))",
    "levenshtein": f"sum(levenshtein({_LONG} || id, reverse({_LONG})))",
}


class Peak:
    """What was taken, of memory and of time."""

    bytes = 0
    """The most that this process and its children had for themselves, more than at the beginning."""
    seconds = 0.0
    late = 0.0
    """Of these, after the time that was given, for how long a thread of this process could have run and other programs did."""


@contextmanager
def measured(timeout: float) -> Iterator[Peak]:
    peak, over = Peak(), threading.Event()
    before, began = _memory(), time.perf_counter()
    at_the_end: dict[str, float] = {}

    def look() -> None:
        while not over.wait(0.005):
            peak.bytes = max(peak.bytes, _memory() - before)
            waited = _waited()
            if time.perf_counter() < began + timeout:
                at_the_end.update(waited)
            else:
                peak.late = max(peak.late, *(seconds - at_the_end.setdefault(task, 0.0) for task, seconds in waited.items()))

    thread = threading.Thread(target=look, name="measure")
    thread.start()
    try:
        yield peak
    finally:
        peak.seconds = time.perf_counter() - began
        over.set()
        thread.join()


def _waited() -> dict[str, float]:
    """Seconds that each thread of this process was ready to run, and did not: for want of a core, not of Python's lock."""
    found = {"": 0.0}
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError, IndexError, ValueError), open(f"/proc/self/task/{task}/schedstat", "rb") as file:
            found[task] = int(file.read().split()[1]) / 1e9
    return found


def _memory() -> int:
    pids = ["self"]
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            pids += filter(_is_apart, file.read().split())  # other tests of this process may have left a Java
    return sum(map(_private, pids))


def _is_apart(pid: str) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"tidewheel.sql.apart" in file.read()
    return False


def _private(pid: str) -> int:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        words = file.read().split()
        return (int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")
    return 0
