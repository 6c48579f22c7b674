"""Functions of DataFrames that define derived tables: how they are named, told apart, and found again in another process.

A function is stored by its name, `module:function`, and a digest of its source; never as code. A process that is to refresh the table
imports the module. A function of a notebook or a script is known only in the process that registered it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from tidewheel.errors import SchemaError
from tidewheel.model.derived import Definition

Function = Callable[..., Any]

_registered: dict[str, Function] = {}
"""By their names. What a decorator replaced by a table is found here, too."""


def register_function(function: Function) -> str:
    """Make a function known in this process; returns its name."""
    name = name_of(function)
    _registered[name] = function
    return name


def name_of(function: Function) -> str:
    """module:function. SchemaError, if nobody could find it by that."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not callable(function) or not module or not name.replace("<locals>.", "").replace(".", "_").isidentifier():
        raise SchemaError(f"a definition is SQL, or a function with a name whose parameters are named like its sources; not {function!r}")
    return f"{module}:{name}"


def digest_of(function: Function) -> str:
    """The same for functions that do the same by their source: comments, spaces and decorators do not count."""
    try:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as e:
        raise SchemaError(f"the source of {name_of(function)} cannot be read, so nobody could tell whether it changed: {e}") from e
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == function.__name__:
            node.decorator_list = []
            tree = node
            break
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()


def function_of(definition: Definition) -> Function:
    """The function of a definition, if this process has it and it does the same as when the table was made."""
    name = definition.text
    found = _registered.get(name) or _imported(name)
    if found is None:
        module = name.partition(":")[0]
        raise SchemaError(
            f"this process does not know the function {name}: "
            + (
                "it was defined in a notebook or a script; refresh the table there, or move it into a module"
                if module == "__main__"
                else f"{module} cannot be imported here, or has no such function; refresh where it can be"
            )
        )
    if digest_of(found) != definition.digest:
        raise SchemaError(
            f"the function {name} is not the one that the table was made with: its source has changed. Bring the old one back, or drop "
            "the table and make it anew"
        )
    return found


def _imported(name: str) -> Function | None:
    module, _, path = name.partition(":")
    if module == "__main__" or "<locals>" in path:
        return None
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    # a decorator may have put a table in its place, and registered it
    return _registered.get(name) or (found if inspect.isfunction(found) else None)
