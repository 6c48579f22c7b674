"""A definition that another version of Spark analysed: whether it is still the same table here.

Versions that differ in the third number only are taken as one. With any other, the definition is analysed anew before the first refresh in
this process, which takes milliseconds: functions change what they return between versions, and a table's columns do not.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from tidewheel.errors import SchemaError
from tidewheel.model.derived import PYTHON, Definition
from tidewheel.spark.analysed import analyse_function, analyse_sql
from tidewheel.spark.functions import function_of

_judged: dict[tuple[Path, str, str], str] = {}
"""By warehouse, digest and version: why a definition is refused; "": it is not. Whoever is here was warned."""


def columns_made(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """(name, type) of the columns that a definition gives, as they are stored with it."""
    return tuple((field.name, str(field.type)) for field in schema)


def check_version(session: SparkSession, root: Path, definition: Definition, sources: Mapping[str, pa.Schema]) -> None:
    """Warns once of a definition that another version of Spark analysed; SchemaError, each time, if its columns are others here.

    `sources` has the columns that the definition is to see. Called by one thread at a time.
    """
    if not definition.made_with or _minor(definition.made_with) == _minor(pyspark.__version__):
        return
    key = root, definition.digest, definition.made_with
    if key not in _judged:
        _judged[key] = _difference(session, definition, sources)
        warnings.warn(
            f"{_said(definition)} was made with Spark {definition.made_with}, and is computed by {pyspark.__version__} now: rows that are "
            "computed from now on may differ from those that are there; refresh(full=True) computes all of them anew",
            stacklevel=2,
        )
    if _judged[key]:
        raise SchemaError(
            f"Spark {pyspark.__version__} gives other columns for this definition than {definition.made_with}, which it was made with: "
            f"{_judged[key]}. Refresh it with Spark {_minor(definition.made_with)}, or drop the table and make it anew with this one"
        )


def _difference(session: SparkSession, definition: Definition, sources: Mapping[str, pa.Schema]) -> str:
    confs = dict(definition.conf)
    try:
        if definition.language == PYTHON:
            found = analyse_function(session, function_of(definition), sources, confs)
        else:
            found = analyse_sql(session, definition.text, sources, confs)
    except SchemaError as e:
        return str(e)
    made = columns_made(found.schema)
    if not definition.output or made == definition.output:  # older definitions do not say what they gave
        return ""
    before, now = (", ".join(f"{name} {type_}" for name, type_ in one) for one in (definition.output, made))
    return f"{now}; it gave {before}"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _said(definition: Definition) -> str:
    words = " ".join(definition.text.split())
    return f"the derived table that is `{words if len(words) <= 60 else words[:59] + '…'}`"
