"""Plans and rows as text for people."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidewheel.model.query import Plan
from tidewheel.model.schema import TableSpec
from tidewheel.model.times import INT64_MAX, INT64_MIN

_SHOWN = 12


def plan_text(plan: Plan, spec: TableSpec) -> str:
    s = plan.stats
    axis = spec.time
    keys = ", ".join(f"{_code(a)} .. {_code(b)}" for a, b in plan.key_intervals[:4]) or "none"
    more = f" and {len(plan.key_intervals) - 4} more" if len(plan.key_intervals) > 4 else ""
    lines = [
        f"table {plan.table}, generation {plan.generation}",
        f"  key codes  {keys}{more}",
        f"  time       {axis.show(plan.time[0])} .. {axis.show(plan.time[1])}",
        f"  regions    {s.regions_read} read of {s.regions_considered}",
        f"  leaves     {s.leaves_read} read, {s.leaves_skipped} skipped",
    ]
    for sub in plan.subqueries[:_SHOWN]:
        span = f"{axis.show(sub.time[0])} .. {axis.show(sub.time[1])}"
        lines.append(
            f"  {sub.place:<11} {sub.name}  time {span}  {sub.rows} rows in {sub.segments} segment{'' if sub.segments == 1 else 's'}"
        )
    if len(plan.subqueries) > _SHOWN:
        lines.append(f"  … and {len(plan.subqueries) - _SHOWN} more regions")
    return "\n".join(lines)


def _code(code: int) -> str:
    return "-∞" if code == INT64_MIN else "+∞" if code == INT64_MAX else str(code)


def rows_text(table: pa.Table, total: int | None) -> str:
    """A few rows as a table, with a last line that says how many there are."""
    names = table.schema.names
    rows = [[_cell(column[i]) for column in table.columns] for i in range(table.num_rows)]
    widths = [max([len(n), *(len(r[i]) for r in rows)]) for i, n in enumerate(names)]
    lines = ["  ".join(n.ljust(w) for n, w in zip(names, widths, strict=True)).rstrip()]
    lines += ["  ".join(v.ljust(w) for v, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    if total is None:
        lines.append("…")
    else:
        lines.append(f"{total} row{'' if total == 1 else 's'}" + (f", the first {len(rows)} shown" if total > len(rows) else ""))
    return "\n".join(lines)


def _cell(scalar: pa.Scalar) -> str:
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):  # a time that Python has no date for
        value = getattr(scalar, "value", "?")
    if value is not None and pa.types.is_float32(scalar.type):
        value = np.float32(value)  # as short as its own precision
    text = "" if value is None else str(value)
    return text if len(text) <= 40 else text[:39] + "…"
