"""No modules import each other in a circle, not even inside of functions: each can be read after those that it is made of.

Circles that only type checkers see are left: an engine and its tables name each other.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp


def test_no_module_is_part_of_a_circle() -> None:
    graph = grimp.build_graph("tidewheel", exclude_type_checking_imports=True)
    of = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(of).prepare()
    except CycleError as e:
        raise AssertionError(f"these import each other: {' -> '.join(e.args[1])}") from None
