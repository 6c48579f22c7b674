"""Kernels are compiled for the types that they declare, and no others; each comes from the cache when it is called for the first time.

All of them together take most of a second, and a process that asks one question calls a tenth of them. Numba itself would, before it looks
into the cache, load all that it can compile with, which takes longer than everything else in that process; what is compiled needs no more
than Numba's runtime.

Check, when Numba changes: its dispatchers still call `_compile_for_args` for types they have no code for, and `get_call_template` when
another kernel that calls them is compiled; both are looked up on the object. `Dispatcher.compile` still does with what comes from the cache
what `_from_cache` does, but for refreshing the target.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numba as nb
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys

KERNELS: list[tuple[Any, str]] = []
"""All kernels of the modules that were imported, and their types."""


def kernel(signature: str, makes_arrays: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A function that is compiled for these types, runs without the GIL, and is cached on disk. Any thread may be the first to call it.

    One that makes no arrays counts no references: of small kernels that call each other, counting took a sixth of the time. (Numba then
    refuses to compile what would need it, as a copy of a row does.) `options` are Numba's.
    """

    def made(function: Callable[..., Any]) -> Any:
        dispatcher = nb.njit(**{"nogil": True, "cache": True, "_nrt": makes_arrays} | options)(function)
        if nb.config.DISABLE_JIT:  # it is the function itself
            return dispatcher
        dispatcher._compile_for_args = lambda *args, **named: ready(dispatcher, signature)  # what is to be called with them
        dispatcher.get_call_template = partial(_template, dispatcher, signature)
        KERNELS.append((dispatcher, signature))
        return dispatcher

    return made


def _template(dispatcher: Any, signature: str, args: Any, named: Any) -> Any:
    """For a kernel that calls it."""
    ready(dispatcher, signature)
    return type(dispatcher).get_call_template(dispatcher, args, named)


def ready(dispatcher: Any, signature: str) -> Any:
    """The kernel, with its code. Numba's lock, and no second one: whoever compiles a kernel asks for those that it calls."""
    with global_compiler_lock:
        if not dispatcher.signatures:
            if not _from_cache(dispatcher, signature):
                dispatcher.compile(signature)
            dispatcher.disable_compile()
    return dispatcher


def _from_cache(dispatcher: Any, signature: str) -> bool:
    """Whether its code was there."""
    if not isinstance(dispatcher._cache, FunctionCache):
        return False
    target = dispatcher.targetctx
    rtsys.initialize(target)
    found = dispatcher._cache._load_overload(signature, target)
    if found is None:
        return False
    target.insert_user_function(found.entry_point, found.fndesc, [found.library])
    dispatcher.add_overload(found)
    return True


# A child that is forked while another thread compiles would wait for that thread for ever.
os.register_at_fork(
    before=global_compiler_lock.acquire, after_in_parent=global_compiler_lock.release, after_in_child=global_compiler_lock.release
)
