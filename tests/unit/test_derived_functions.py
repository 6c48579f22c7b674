"""Functions that define derived tables: named, told apart by what they do, found again; and definitions in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tidewheel.derive.bounds import Bounds, declared
from tidewheel.derive.explanation import explained
from tidewheel.derive.pairings import pairs_partitions
from tidewheel.errors import SchemaError
from tidewheel.model.derived import MERGE, PYTHON, RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.schema import make_spec
from tidewheel.spark.functions import digest_of, function_of, name_of, register_function

ANEW = (Mode(RECOMPUTE, "always"),)


def ours(taxi: Any) -> Any:
    # a comment counts for nothing
    return taxi.where("speed > 3")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "definitions_of_a_test.py"
    sys.modules.pop("definitions_of_a_test", None)


def defined(text: str, digest: str) -> Definition:
    return Definition(PYTHON, text, digest, ANEW)


def test_a_function_is_found_by_its_name() -> None:
    assert name_of(ours) == f"{__name__}:ours"
    assert function_of(defined(name_of(ours), digest_of(ours))) is ours
    with pytest.raises(SchemaError, match="source has changed"):
        function_of(defined(name_of(ours), "another"))


def test_it_is_imported_where_it_is_not_known(module: Path) -> None:
    module.write_text("def mine(taxi):\n    return taxi\n\nclass Kept:\n    @staticmethod\n    def also(taxi): return taxi\n")
    import definitions_of_a_test as found  # type: ignore[import-not-found]

    assert function_of(defined("definitions_of_a_test:mine", digest_of(found.mine))) is found.mine
    assert function_of(defined("definitions_of_a_test:Kept.also", digest_of(found.Kept.also))) is found.Kept.also
    for name in ("definitions_of_a_test:yours", "no_such_module_at_all:mine", "definitions_of_a_test:mine.<locals>.inner"):
        with pytest.raises(SchemaError, match="does not know"):
            function_of(defined(name, ""))
    with pytest.raises(SchemaError, match="notebook or a script"):
        function_of(defined("__main__:mine", ""))


def test_what_a_decorator_replaced_is_known() -> None:
    def inner(taxi: Any) -> Any:
        return taxi

    with pytest.raises(SchemaError):
        function_of(defined(name_of(inner), digest_of(inner)))
    assert register_function(inner) == name_of(inner)
    assert function_of(defined(name_of(inner), digest_of(inner))) is inner


def test_digests_are_of_what_is_done(module: Path) -> None:
    texts = ["def f(a):\n    return a", "@list.append\ndef f(a):  # says something\n\n    return (a)", "def f(a):\n    return a.b"]
    digests = []
    for text in texts:
        space: dict[str, Any] = {"__name__": "m"}
        module.write_text(text)
        exec(compile(text.replace("@list.append", ""), str(module), "exec"), space)
        import linecache

        linecache.checkcache()
        digests.append(digest_of(space["f"]))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("what", [lambda taxi: taxi, 7, "SELECT", len, str.upper])
def test_what_is_no_definition(what: Any) -> None:
    with pytest.raises(SchemaError):
        digest_of(what) if callable(what) and name_of(what) else name_of(what)


def test_a_definition_in_words() -> None:
    spec = make_spec("hourly", pa.schema([("hour", pa.timestamp("us")), ("plate", pa.int64())]), time="hour", key="plate")
    merge = Mode(MERGE, "it sums up", groups=("hour",))
    definition = Definition(SPARK_SQL, "SELECT 1\nFROM taxi", "", (merge, *ANEW), (Mode("append", "it groups"),), begin=0, apart=True)
    said = explained(spec, definition, {"taxi": declared("0", "0", "1 hour").to_json(), "s": '"all"'}, ("mind the gap",))
    assert said.mode == MERGE and said.sources == ("taxi", "s") and said.bounds["taxi"].every == 3600 * 10**9
    for word in ("hourly: derived from taxi, s by Spark SQL", "  FROM taxi", "rows of the same 1 hour", "merged", "it sums up", "not by",
                 "it groups", "1970-01-01", "one partition at a time", "timestamp[us]", "warning: mind the gap"):  # fmt: skip
        assert word in str(said), word


def test_pairings() -> None:
    joined = '[{"class": "a.b.Join", "num-children": 0}]'
    band, hour = declared("5 minutes"), declared("0", "0", "1 hour")
    assert pairs_partitions(joined, [Bounds(), band])
    assert not pairs_partitions(joined, [hour, Bounds(), Bounds(bl=None, bh=None)])
    assert not pairs_partitions('[{"class": "a.b.Window", "num-children": 0}]', [band])
    assert pairs_partitions("no plan", [band])
