"""Plans as text for people."""

from __future__ import annotations

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
