"""The lean `dataclass` is Python's in all that can be seen of it: one class is made by both, and compared."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.model.dataclass import dataclass as lean

T = TypeVar("T")
Make = Callable[..., Any]


class Base(ABC, Generic[T]):
    __slots__ = ()

    @abstractmethod
    def on(self) -> T: ...


def classes(dataclass: Make) -> dict[str, type[Any]]:
    @dataclass(frozen=True, slots=True)
    class Nothing:
        """Has no field."""

    @dataclass(frozen=True, slots=True)
    class One:
        only: Any

    @dataclass(frozen=True, slots=True)
    class Many:
        """Fields of every kind that there is here."""

        kind: ClassVar[str] = "many"
        a: Any
        b: Any = 7
        c: Any = field(default_factory=list)
        d: Any = field(default=None, compare=False)
        e: Any = field(default=(), repr=False)

    @dataclass(frozen=True, slots=True)
    class Checked(Base[int]):
        a: int
        b: int = 2

        def __post_init__(self) -> None:
            if self.b < 0:
                object.__setattr__(self, "b", 0)

        def on(self) -> int:
            return self.a + self.b

    @dataclass(frozen=True, slots=True)
    class Said:
        a: Any

        def __repr__(self) -> str:
            return "said"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    @dataclass(frozen=True, slots=True)
    class Later(One):
        """Inherits a field."""

        more: Any = 3

    return {made.__name__: made for made in (Nothing, One, Many, Checked, Said, Later)}


OURS, PYTHONS = classes(lean), classes(dataclasses.dataclass)

values = st.one_of(st.integers(), st.text(), st.none(), st.floats(allow_nan=False), st.tuples(st.integers(), st.text()))


def both(name: str, *given: Any, **named: Any) -> list[Any]:
    return [made[name](*given, **named) for made in (OURS, PYTHONS)]


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as e:
        return type(e)


@given(values, values, values)
def test_objects_are_alike(a: Any, b: Any, c: Any) -> None:
    for name, given_ in (("Nothing", ()), ("One", (a,)), ("Many", (a,)), ("Many", (a, b, c, b, a)), ("Checked", (1, 2)), ("Later", (a, b))):
        ours, theirs = both(name, *given_)
        assert repr(ours) == repr(theirs)
        assert dataclasses.astuple(ours) == dataclasses.astuple(theirs) and dataclasses.asdict(ours) == dataclasses.asdict(theirs)
        assert outcome(lambda o=ours: hash(o)) == outcome(lambda o=theirs: hash(o))
        assert ours == OURS[name](*given_) and ours != theirs
        assert copy.deepcopy(ours) == ours
        assert ours.__getstate__() == theirs.__getstate__()
        again = OURS[name].__new__(OURS[name])
        again.__setstate__(ours.__getstate__())
        assert again == ours


@given(values, values)
def test_equality_and_hashes_are_those_of_the_fields(a: Any, b: Any) -> None:
    for name in ("One", "Many", "Later"):
        (ours, theirs), (ours2, theirs2) = both(name, a), both(name, b)
        assert (ours == ours2) == (theirs == theirs2)
    assert OURS["Many"](a, d=1) == OURS["Many"](a, d=2)  # which is not compared
    assert OURS["One"](a) != OURS["Later"](a)


def test_what_is_frozen_stays() -> None:
    for name in ("One", "Many", "Checked", "Later"):
        for one in both(name, 1):
            for change in (lambda o=one: setattr(o, "a", 2), lambda o=one: setattr(o, "new", 2), lambda o=one: delattr(o, "only")):
                with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
                    change()
            assert not hasattr(one, "__dict__")
    ours = OURS["One"](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'only'"):
        ours.only = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'only'"):
        del ours.only


def test_how_they_are_called() -> None:
    for given_, named in (((), {}), ((1, 2, 3, 4, 5, 6), {}), ((1,), {"a": 1}), ((), {"b": 2}), ((1,), {"wrong": 2})):
        for made in (OURS, PYTHONS):
            with pytest.raises(TypeError):
                made["Many"](*given_, **named)
    first, second = OURS["Many"](1), OURS["Many"](1)
    assert first.c == [] and first.c is not second.c
    assert both("Many", a=1, e=2)[0].e == 2
    assert [one.b for one in both("Checked", 1, -5)] == [0, 0] and both("Checked", 1)[0].on() == 3
    assert repr(OURS["Said"](1)) == "said" and OURS["Said"](1) == 5 and hash(OURS["Said"](2)) == 1


def test_what_python_knows_of_them() -> None:
    for name, ours in OURS.items():
        theirs = PYTHONS[name]
        known = [[(f.name, f.type, f.compare, f.repr) for f in dataclasses.fields(made)] for made in (ours, theirs)]
        assert known[0] == known[1] and ours.__match_args__ == theirs.__match_args__ and ours.__slots__ == theirs.__slots__
        assert ours.__doc__
    changed = dataclasses.replace(OURS["Many"](1, 2), b=3)
    assert (changed.a, changed.b) == (1, 3)
    match OURS["Later"](1, 2):
        case object(only=1, more=2):
            pass
        case _:
            pytest.fail("it has these fields")


@lean(frozen=True, slots=True)
class Pickled:
    a: int
    b: str = ""


def test_pickles() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(Pickled(1, "x"), protocol)) == Pickled(1, "x")
    assert copy.copy(Pickled(1)) == Pickled(1)


def test_others_are_pythons_own() -> None:
    @lean(slots=True)
    class Open:
        a: int

    one = Open(1)
    one.a = 2
    assert one == Open(2) and Open.__dataclass_params__.frozen is False  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="use Python's dataclass"):

        @lean(frozen=True, slots=True)
        class Wrong:
            a: int = field(init=False)
