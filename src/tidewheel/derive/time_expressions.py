"""Expressions of Spark as functions of times: `evaluate` says between which ends a value lies, or that nothing is known of it (None).

Nothing is assumed of expressions that are not named here, and what is said of the others holds for every row: where Spark computes in a
time zone, wide enough for every zone there is. `notes` gathers why something that looks like a time is not known, for people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidewheel.derive.ends import End
from tidewheel.derive.plan_tree import PlanTree, integer, interval, is_null, text
from tidewheel.derive.time_values import DAY, HOUR, MICRO, MINUTE, SCALES, SECOND, Arm, Attr, Value, one_of
from tidewheel.derive.zones import CHANGE, OFFSET, is_utc, set_back

Resolve = Callable[[PlanTree], tuple[Attr, int | None] | None]
"""The attribute that an AttributeReference or OuterReference means here, and what it counts; None: neither is known."""

_UNITS = {
    "MICROSECOND": MICRO, "MILLISECOND": 10**6, "SECOND": SECOND, "MINUTE": MINUTE, "HOUR": HOUR, "DAY": DAY, "DD": DAY, "WEEK": 7 * DAY,
}  # fmt: skip
_LONGER = {"MONTH": 31, "MM": 31, "MON": 31, "QUARTER": 92, "YEAR": 366, "YYYY": 366, "YY": 366}
_MONDAY = 4 * DAY
"""1970-01-05: weeks begin there."""


class SessionWindow(Exception):
    """session_window() was met: what it looks like is not what it does."""


class Evaluator:
    """Evaluates expressions of one plan; `notes` is added to."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def value(self, tree: PlanTree, resolve: Resolve) -> Value | None:
        rule = _RULES.get(tree.kind)
        if rule is not None:
            return rule(self, tree, resolve)
        if tree.field("replacement") is not None and len(tree.children) == 1:  # Spark computes this one's child in its place
            return self.value(tree.children[0], resolve)
        return None

    def arms(self, trees: Sequence[PlanTree], resolve: Resolve, sure: bool = True) -> Value | None:
        """The value that is one of several, those that are null left out."""
        there = [self.value(tree, resolve) for tree in trees if not is_null(tree)]
        known = [value for value in there if value is not None]
        found = one_of(known) if len(known) == len(there) else None
        if found is None or sure and len(there) == len(trees):
            return found
        return replace(found, sure=False)

    def field(self, struct: PlanTree, name: str, resolve: Resolve) -> Value | None:
        """A field of a column that is a struct."""
        value = self.value(struct, resolve)
        type_ = struct.type
        if struct.kind == "OuterReference" and (inner := struct.tree("e")) is not None:
            type_ = inner.type
        if value is None or len(value.arms) != 1 or not isinstance(type_, dict):
            return None
        types = [one.get("type") for one in type_.get("fields") or () if one.get("name") == name]
        return _column((*value.arms[0].attr, name), types[0]) if len(types) == 1 and isinstance(types[0], str) else None

    def note(self, said: str) -> None:
        if said not in self.notes:
            self.notes.append(said)


def _attribute(_: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    found = resolve(tree)
    if found is None:
        return None
    attr, scale = found
    of = tree.tree("e") if tree.kind == "OuterReference" else tree
    return _column(attr, of.type if of is not None else None, scale)


def _column(attr: Attr, type_: object, scale: int | None = None) -> Value:
    known = type_ if isinstance(type_, str) and type_ in SCALES else "number"
    return Value((Arm(attr),), known, SCALES.get(known, scale))


def _child(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    return e.value(tree.children[0], resolve)


def _precise(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    if tree.children[0].kind == tree.kind:
        raise SessionWindow
    value, to = _child(e, tree, resolve), str(tree.field("toType"))
    if value is None or value.scale != MICRO or not value.whole:
        return None
    return value.as_type(to) if to in ("timestamp", "timestamp_ntz") else value.number(MICRO) if to == "long" else None


def _field(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    of, name = tree.children[0], tree.name
    if of.kind == "CreateNamedStruct":
        pairs = {text(key): value for key, value in zip(of.children[::2], of.children[1::2], strict=True)}
        return e.value(pairs[name], resolve) if name in pairs else None
    return e.field(of, name, resolve)


# ---- casts --------------------------------------------------------------------------------------------------


def _cast(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    value, to = _child(e, tree, resolve), tree.type
    if value is None or value.scale is None:
        return None
    given, utc = value.type, is_utc(tree.field("timeZoneId"))
    if to == given:
        return value
    if to == "date" or tree.kind == "ParseToDate":
        return _to_date(value, utc)
    if to in ("timestamp", "timestamp_ntz"):
        if given != "number":
            exact = utc or (given == "date" and to == "timestamp_ntz")
            return (value if exact else value.shifted(-OFFSET, OFFSET)).as_type(to)
        return value.as_type(to) if to == "timestamp" and value.scale == SECOND and value.whole else None
    if given == "number":  # exact in a double for 285 years of microseconds
        return value if to in ("long", "integer") and value.whole or to == "double" and value.scale >= MICRO else None
    return value.floored(SECOND).number(SECOND) if given == "timestamp" and to == "long" else None


def _to_date(value: Value, utc: bool) -> Value | None:
    if value.type not in ("timestamp", "timestamp_ntz"):
        return value if value.type == "date" else None
    exact = utc or value.type == "timestamp_ntz"
    return (value.floored(DAY) if exact else value.shifted(-OFFSET - DAY, OFFSET)).as_type("date")


def _parse_to_date(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    """to_date(x): a cast, unless there is a format, which is for text."""
    return _cast(e, tree, resolve) if len(tree.children) == 1 else None


# ---- buckets ------------------------------------------------------------------------------------------------


def _trunc(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    stamp = tree.kind == "TruncTimestamp"
    unit, of = (tree.children[0], tree.children[1]) if stamp else (tree.children[1], tree.children[0])
    word, value = str(text(unit) or "").upper(), e.value(of, resolve)
    if value is None or value.type != ("timestamp" if stamp else "date"):
        return None
    zone = tree.field("timeZoneId") if stamp else None
    if word in _LONGER:
        return value.shifted(-_LONGER[word] * DAY - (0 if is_utc(zone) else set_back(zone)), 0)
    width = _UNITS.get(word)
    if width is None:
        return None
    if is_utc(zone) or width <= SECOND:
        return value.floored(width, _MONDAY if word == "WEEK" else 0)
    return value.shifted(-width - set_back(zone), 0)


def _time_bucket(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    size, of, origin = tree.children
    width, value = interval(size), e.value(of, resolve)
    if width is None:
        e.note("time_bucket() of a width that is not written down as days, hours, minutes or seconds")
    if width is None or width <= 0 or value is None or not value.type.startswith("timestamp") or not is_utc(tree.field("timeZoneId")):
        return None
    if origin.kind != "Literal" or origin.type not in ("timestamp", "timestamp_ntz") or origin.field("value") is None:
        return None
    return value.floored(width * MICRO, int(origin.field("value")) * MICRO)


def _subtract(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    left, right = tree.children
    grid = _remainder(left, right)
    if grid is None:
        return _plus(e, tree, resolve)
    value = e.value(left, resolve)
    if value is None or value.scale is None or not value.whole:
        return None
    return value.floored(grid[0] * value.scale, grid[1] * value.scale)


def _remainder(x: PlanTree, tree: PlanTree) -> tuple[int, int] | None:
    """(m, o), if the second is (x − o) modulo m, never negative: as window() writes it, or pmod()."""
    if tree.kind == "Pmod" and tree.children[0] == x:
        width = integer(tree.children[1])
        return (width, 0) if width and width > 0 else None
    rest, arms = tree.tree("elseValue"), tree.field("branches")
    if tree.kind != "CaseWhen" or rest is None or rest.kind != "Remainder" or not isinstance(arms, list) or len(arms) != 1:
        return None
    test, lifted = tree.children[0], tree.children[1]
    shifted, width = rest.children[0], integer(rest.children[1])
    origin = integer(shifted.children[1]) if shifted.kind == "Subtract" and shifted.children[0] == x else None
    sound = (
        test.kind == "LessThan" and test.children[0] == rest and integer(test.children[1]) == 0
        and lifted.kind == "Add" and lifted.children[0] == rest and integer(lifted.children[1]) == width
    )  # fmt: skip
    return (width, origin) if sound and width and width > 0 and origin is not None else None


# ---- arithmetic ---------------------------------------------------------------------------------------------


def _plus(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    left, right = tree.children
    number = integer(right)
    if number is None and tree.kind == "Add" and integer(left) is not None:
        left, number = right, integer(left)
    value = e.value(left, resolve) if number is not None else None
    if value is None or value.scale is None or number is None or value.type != "number":
        return None
    return value.shifted(number * value.scale * (1 if tree.kind == "Add" else -1))


def _add_interval(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    value, micros = _child(e, tree, resolve), interval(tree.children[1])
    if value is None or value.type == "number":
        return None
    if micros is None:
        e.note("an interval that is not written down as days, hours, minutes or seconds: months, years and computed ones have no length")
        return None
    if value.type == "date" and micros * MICRO % DAY:
        return None
    local = not is_utc(tree.field("timeZoneId")) and abs(micros * MICRO) >= DAY and value.type == "timestamp"
    spread = CHANGE if local else 0
    return value.shifted(micros * MICRO - spread, micros * MICRO + spread)


def _timestamp_add(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    number, width, value = integer(tree.children[0]), _UNITS.get(str(tree.field("unit")).upper()), e.value(tree.children[1], resolve)
    if number is None or width is None or value is None or not value.type.startswith("timestamp"):
        return None
    spread = 0 if is_utc(tree.field("timeZoneId")) or width < DAY else CHANGE
    return value.shifted(number * width - spread, number * width + spread)


def _days(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    value, days = _child(e, tree, resolve), integer(tree.children[1])
    if value is None or days is None or value.type != "date":
        return None
    return value.shifted(days * DAY * (1 if tree.kind == "DateAdd" else -1))


_UNIX = {"UnixMicros": MICRO, "UnixMillis": 10**6, "UnixSeconds": SECOND, "UnixDate": DAY}
_FROM_UNIX = {"MicrosToTimestamp": MICRO, "MillisToTimestamp": 10**6, "SecondsToTimestamp": SECOND}


def _unix(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    value, unit = _child(e, tree, resolve), _UNIX.get(tree.kind, SECOND)
    if value is None or value.type == "number" or value.type == "date" and tree.kind != "UnixDate":
        return None
    if value.type == "timestamp_ntz" and not is_utc(tree.field("timeZoneId")):
        return None
    if tree.kind in ("UnixTimestamp", "ToUnixTimestamp"):  # cut off towards 1970: before it, that is up
        return value.then(End(SECOND), End(SECOND, 0, SECOND - MICRO)).number(SECOND)
    return value.floored(unit).number(unit)


def _from_unix(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    value = _child(e, tree, resolve)
    fits = value is not None and value.type == "number" and value.scale == _FROM_UNIX[tree.kind] and value.whole
    return value.as_type("timestamp") if value is not None and fits else None


def _from_unix_date(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    value = _child(e, tree, resolve)
    return value.as_type("date") if value is not None and value.type == "number" and value.scale == DAY and value.whole else None


def _divide(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    value, by = _child(e, tree, resolve), integer(tree.children[1])
    if value is None or value.scale is None or value.scale < MICRO or by is None or by <= 0:
        return None
    return value.number(value.scale * by, whole=False)


def _multiply(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    left, right = tree.children
    by = integer(right)
    if by is None:
        left, by = right, integer(left)
    value = e.value(left, resolve) if by is not None and by > 0 else None
    if value is None or value.scale is None or not value.whole or by is None or value.scale % by:
        return None
    return value.number(value.scale // by)


def _floor(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    value = _child(e, tree, resolve)
    if value is None or value.scale is None or len(tree.children) > 1:
        return None
    up = value.scale - 1 if tree.kind == "Ceil" else 0
    return value.then(End(value.scale, 0, up)).number(value.scale)


def _div(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    if _child(e, tree, resolve) is not None:
        e.note("`div`, which rounds towards 1970: write floor(… / …), or time_bucket()")
    return None


# ---- one of several -----------------------------------------------------------------------------------------


def _any(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    return e.arms(tree.children, resolve)


def _if(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    return e.arms(tree.children[1:], resolve)


def _case(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    count = len(tree.field("branches") or ())
    rest = tree.tree("elseValue")
    arms = [tree.children[2 * i + 1] for i in range(count)] + ([rest] if rest is not None else [])
    return e.arms(arms, resolve, sure=rest is not None)


def _explode(e: Evaluator, tree: PlanTree, resolve: Resolve) -> Value | None:
    """One of the times from the first to the last of a sequence, whichever is the earlier."""
    sequence = tree.children[0]
    return e.arms(sequence.children[:2], resolve) if sequence.kind == "Sequence" else None


_RULES: dict[str, Callable[[Evaluator, PlanTree, Resolve], Value | None]] = {
    "AttributeReference": _attribute,
    "OuterReference": _attribute,
    **dict.fromkeys(("Alias", "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"), _child),
    "PreciseTimestampConversion": _precise,
    "GetStructField": _field,
    "Cast": _cast,
    "ParseToDate": _parse_to_date,
    **dict.fromkeys(("TruncTimestamp", "TruncDate"), _trunc),
    "TimeBucket": _time_bucket,
    "Subtract": _subtract,
    "Add": _plus,
    **dict.fromkeys(("TimestampAddInterval", "DateAddInterval"), _add_interval),
    "TimestampAddYMInterval": _add_interval,
    "TimestampAdd": _timestamp_add,
    **dict.fromkeys(("DateAdd", "DateSub"), _days),
    **dict.fromkeys((*_UNIX, "UnixTimestamp", "ToUnixTimestamp"), _unix),
    **dict.fromkeys(_FROM_UNIX, _from_unix),
    "DateFromUnixDate": _from_unix_date,
    "Divide": _divide,
    "Multiply": _multiply,
    **dict.fromkeys(("Floor", "Ceil"), _floor),
    "IntegralDivide": _div,
    **dict.fromkeys(("Coalesce", "Least", "Greatest"), _any),
    "If": _if,
    "CaseWhen": _case,
    "Explode": _explode,
}
