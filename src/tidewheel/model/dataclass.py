"""`dataclass(frozen=True, slots=True)` as Python has it, made in a quarter of the time.

Python compiles six functions for each such class, one by one, which takes up to a millisecond; a process that asks one question makes two
hundred classes. Here only `__init__` is compiled. The other functions are closures over the names of the fields, alike in what they do:
`fields`, `replace`, `asdict`, `match`, pickles, hashes and texts are the same (tests/unit/test_dataclass.py compares them). A hierarchy is
made of these, or of Python's own, not of both.

To be deleted when Python 3.13 is the oldest, which compiles all six at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_FACTORY: Any = object()
"""Stands for a default that is made for each object."""


def _made(cls: type[Any]) -> type[Any]:
    own = vars(cls)
    kept = {name for name in ("__init__", "__repr__", "__eq__", "__hash__", "__getstate__", "__setstate__") if own.get(name) is not None}
    if not cls.__doc__:  # Python would write its signature there, which takes longer than all the rest
        cls.__doc__ = f"{cls.__name__}({', '.join(own.get('__annotations__', ()))})"
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    fields = dataclasses.fields(cls)
    values = _getter([one.name for one in fields if one.compare])
    functions = {
        "__init__": _init(cls),
        "__repr__": _repr([one.name for one in fields if one.repr]),
        "__eq__": _eq(values),
        "__hash__": lambda self: hash(values(self)),
        "__getstate__": _getstate(_getter([one.name for one in fields])),
        "__setstate__": _setstate([one.name for one in fields]),
    }
    for name, function in functions.items():
        if name not in kept:
            function.__name__, function.__qualname__ = name, f"{cls.__qualname__}.{name}"
            setattr(cls, name, function)
    cls.__setattr__, cls.__delattr__ = _refuse_change, _refuse_removal  # type: ignore[assignment]
    return cls


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these fields, always as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _init(cls: type[Any]) -> Any:
    known: dict[str, Any] = {"_FACTORY": _FACTORY}
    taken, set_ = [], []
    for one in dataclasses.fields(cls):
        if not one.init or one.kw_only:
            raise TypeError(f"{cls.__qualname__}.{one.name}: only plain fields are known here; use Python's dataclass")
        known[f"_set_{one.name}"] = getattr(cls, one.name).__set__  # the slot itself: nothing stands before it
        value = one.name
        if one.default_factory is not dataclasses.MISSING:
            known[f"_new_{one.name}"] = one.default_factory
            taken.append(f"{one.name}=_FACTORY")
            value = f"_new_{one.name}() if {one.name} is _FACTORY else {one.name}"
        elif one.default is not dataclasses.MISSING:
            known[f"_else_{one.name}"] = one.default
            taken.append(f"{one.name}=_else_{one.name}")
        else:
            taken.append(one.name)
        set_.append(f"    _set_{one.name}(_self, {value})")
    if hasattr(cls, "__post_init__"):
        set_.append("    _self.__post_init__()")
    exec(f"def __init__({', '.join(['_self', *taken])}):\n" + "\n".join(set_ or ["    pass"]), known)
    return known["__init__"]


def _repr(names: list[str]) -> Any:
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return recursive_repr()(__repr__)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _getstate(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    return lambda self: list(values(self))


def _setstate(names: list[str]) -> Any:
    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __setstate__


def _refuse_change(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_removal(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        if options == {"frozen": True, "slots": True}:
            return _made if cls is None else _made(cls)
        return dataclasses.dataclass(cls, **options)
