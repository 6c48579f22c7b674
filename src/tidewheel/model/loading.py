"""Modules that are loaded when they are first needed, because loading them takes longer than most short questions.

    k = later("tidewheel.read.kernels")
    ...
    k.scan(...)

The first look at a name loads the module, in whatever thread it is; every later one is that at an attribute. Nothing may look while it is
imported itself: two threads could wait for each other.

A child that is forked while another thread loads a module would wait for that thread for ever, when it needs the module: so no process is
forked meanwhile.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.compute as pc

__all__ = ["later", "loaded", "pc"]

_loading = threading.RLock()


def loaded(module: str) -> Any:
    """The module, now. Ctrl-C ends the wait for it, and not the loading: what is half loaded may never load again."""
    if threading.current_thread() is threading.main_thread():
        thread = threading.Thread(target=_try, args=(module,), name="tidewheel-load")
        thread.start()
        thread.join()
    return _load(module)


def _try(module: str) -> None:
    with suppress(Exception):  # it is said to whoever waits
        _load(module)


def _load(module: str) -> Any:
    with _loading:
        return import_module(module)


class _Later:
    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copies, pickles and looks at things asks any object for
            raise AttributeError(name)
        found = getattr(loaded(self._module), name)
        setattr(self, name, found)
        return found


def later(module: str) -> Any:
    """The names of a module."""
    return _Later(module)


if not TYPE_CHECKING:
    pc = later("pyarrow.compute")  # it makes a function of each of Arrow's, with its documentation

os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)
