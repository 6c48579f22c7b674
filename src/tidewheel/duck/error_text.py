"""What is wrong with a statement or an expression, said with the name that was probably meant, and of a statement with the place."""

from __future__ import annotations

import re

from tidewheel.model.schema import nearest

_KIND = re.compile(r"\A[A-Z][A-Za-z ]* Error: ")
_CANDIDATES = re.compile(r"((?:^\t.*\n){6})(?:^\t.*\n)+", re.MULTILINE)
_LINE = re.compile(r"^LINE (\d+): (.*)\n( *)(\^+)", re.MULTILINE)
_HINTED = ("Did you mean", "Candidate")
_NO_TIME = re.compile(r"(Could not convert string '\d{4}-[^']*' to INT64)(?=$|\n)")
_PARAMETERS = "Parameters are written ?, with their values in a list, or $name, with a mapping"

_CALLS = {
    "count": "count(*)", "sum": "sum(column)", "min": "min(column)", "max": "max(column)", "avg": "avg(column)", "mean": "avg(column)",
    "median": "median(column)", "std": "stddev(column)", "first": "arg_min(column, time)", "last": "arg_max(column, time)",
}  # fmt: skip
"""Aggregates, as DataFrames name them."""

_OTHER_DIALECTS = (
    (re.compile(r"(?<![:\w'\]]):[A-Za-z_]|%s|%\("), _PARAMETERS),
    (re.compile(r"\bLATEST\s+(?:ON|BY)\b", re.I), "The last row of each key is SELECT DISTINCT ON (key) * FROM … ORDER BY key, time DESC"),
    (re.compile(r"\bSAMPLE\s+BY\b", re.I), "Steps of time are SELECT time_bucket('1 hour', time) AS t, … GROUP BY t"),
    (re.compile(r"\bSELECT\s+TOP\b", re.I), "The first rows are SELECT … LIMIT 10"),
)
"""What a statement that cannot be parsed has of other databases, and what to write."""


def pointed(message: str, text: str, place: tuple[int, int]) -> str:
    """A message with the line that it is about, and a mark under the place. `place` counts bytes of UTF-8."""
    at, length = place
    data = text.encode()
    if not 0 <= at <= len(data):
        return message
    before = data[:at].decode(errors="ignore")
    number = before.count("\n") + 1
    start = before.rfind("\n") + 1
    line = text[start:].split("\n", 1)[0]
    column = len(before) - start
    width = max(1, min(len(data[at : at + length].decode(errors="ignore").split("\n", 1)[0]), len(line) - column))
    if len(line) > 160:  # the neighbourhood is enough
        cut = max(0, column - 60)
        line, column = ("…" if cut else "") + line[cut : cut + 120], column - cut + (1 if cut else 0)
    head = f"LINE {number}: "
    return f"{message}\n\n{head}{line}\n{' ' * (len(head) + column)}{'^' * min(width, 120)}"


def said_by_duckdb(message: str, columns: list[str] | None = None) -> str:
    """DuckDB's message, without the name of its error; if a column is unknown and DuckDB has no hint, with ours."""
    said = _KIND.sub("", message).replace("Values list ", "Table ").strip()
    said = _NO_TIME.sub(r"\1. A time is written like '2026-01-31 12:00:00'", _CANDIDATES.sub(r"\1\t…\n", said))
    missing = re.search(r'[Cc]olumn (?:named )?"([^"]+)"', said)
    if columns and missing and "not found" in said and not any(name.lower() == missing[1].lower() for name in columns):
        lines = "\n".join(found[2] for found in _LINE.finditer(said))
        hint = _hint(missing[1], [] if any(hint in said for hint in _HINTED) else columns, lines)
        first, break_, rest = said.partition("\n")
        said = f"{first}{hint}{break_}{rest}"
    return said


def of_another_dialect(message: str, text: str) -> str:
    """The message about a text that cannot be parsed, in its first line with what to write instead, if it is known from elsewhere."""
    first, break_, rest = message.partition("\n")
    found = next((advice for pattern, advice in _OTHER_DIALECTS if pattern.search(text)), "") if first.startswith("syntax error") else ""
    return f"{first}. {found}{break_}{rest}" if found else message


def said_of_an_expression(message: str, columns: list[str], text: str) -> str:
    """DuckDB's message in one line, because its places are those of `text`, which the user has not written. If a column is unknown, with
    our hint, or else with all `columns`."""
    first = _KIND.sub("", message.split("\n")[0])
    if "not found" not in first:
        return first
    quoted = first.split('"')
    hint = _hint(quoted[1], columns, text) if len(quoted) > 2 and quoted[1] else ""
    return f"{first}{hint}" if hint else f"{first} Columns: {', '.join(columns)}"


def _hint(missing: str, columns: list[str], written: str) -> str:
    """What was probably meant by a column that there is not."""
    if (call := _CALLS.get(missing.lower())) and f"({missing}\n)" in written:  # all of an expression
        return f" An aggregate is a call: {call}."
    if hint := nearest(missing, columns) if columns else "":
        return hint
    if re.search(rf"%\(?{re.escape(missing)}\b", written):
        return f" {_PARAMETERS}."
    compared = re.search(rf"(?:[=<>]|\bI?LIKE\b|\bIN\s*\([^()]*)\s*{re.escape(missing)}\s*(?:$|[),;]|\b(?:AND|OR)\b)", written, re.I)
    return f" A text is written in single quotes: '{missing}'." if f'"{missing}"' in written or compared else ""


def of_the_line_before(message: str) -> str:
    """What DuckDB says of a statement with one more line before it, as it would say it of the statement."""

    def renumbered(found: re.Match[str]) -> str:
        head, old = f"LINE {int(found[1]) - 1}: ", f"LINE {found[1]}: "
        return f"{head}{found[2]}\n{' ' * (len(found[3]) - len(old) + len(head))}{found[4]}"

    return _LINE.sub(renumbered, message)


def as_written(message: str, shown: str, original: str) -> str:
    """DuckDB's message with the lines that the user wrote: DuckDB was shown a statement in which some parts were blanked out."""

    def restored(found: re.Match[str]) -> str:
        line = int(found[1]) - 1
        before, after = (text.split("\n")[line : line + 1] for text in (shown, original))
        same_width = before == [found[2]] and len(before[0]) == len(after[0])  # else the mark would not fit
        return found[0].replace(found[2], after[0], 1) if same_width else found[0]

    return _LINE.sub(restored, message.replace("DEFAULT is not allowed here!", "columns have no defaults: write NULL, or leave them out"))
