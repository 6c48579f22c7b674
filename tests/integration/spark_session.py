"""The one Spark session of a test process. It is never stopped: the first job of a session waits for a dozen processes to start, the later
ones for none."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("pyspark")

import pyspark
from pyspark.sql import SparkSession

import tidewheel
import tidewheel.spark as tws
from tidewheel.spark.source import TidewheelSource

SETTINGS = {
    "spark.driver.memory": "1g",  # as docs/spark.md asks for
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.timeType.enabled": "true",
}


@cache
def _java_s_folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="tidewheel-spark-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def absolute(text: str, folder: Path) -> str:
    """Lines of Python in which paths, as the pages write them, begin in this folder."""
    text = re.sub(r"'(data/[^' ]*)'", lambda found: f"'{folder}/{found[1]}'", text)  # in SQL
    return re.sub(r'"((?:data|checkpoints)/[^" ]*|copy)"', lambda found: f'"{folder}/{found[1]}"', text)


def python_without_tidewheel(folder: Path) -> Path:
    """A `python3` in a folder of its own, as the first one of the PATH is where no virtual environment was activated: it has PySpark."""
    made = folder / "bin" / "python3"
    made.parent.mkdir()
    packages = Path(pyspark.__file__).parents[1]  # without the links that an editable install leaves there
    ours = Path(tidewheel.__file__).parents[1]
    rest = f"$(printf %s \"$PYTHONPATH\" | sed 's|{ours}||g')"
    made.write_text(f'#!/bin/sh\nPYTHONPATH={rest}:{packages} exec {sys.base_prefix}/bin/python3 -S "$@"\n')
    made.chmod(0o755)
    return made


def plain_source() -> type[TidewheelSource]:
    """Our source as a session sees it that was not registered: under a name that our Java does not know."""

    class Plain(TidewheelSource):
        @classmethod
        def name(cls) -> str:
            return "plain"

    return Plain


@contextmanager
def shared_session() -> Iterator[SparkSession]:
    """The session, for the fixture `spark`; no stream is left in it."""
    before = os.getcwd()
    os.chdir(_java_s_folder())
    try:
        session = tws.session("local[2]", **SETTINGS)
    finally:
        os.chdir(before)
    yield session
    left = [str(query.name or query.id) for query in session.streams.active]
    for query in session.streams.active:
        query.stop()
    assert not left, f"streams left running: {left}"


@contextmanager
def lent(session: SparkSession) -> Iterator[None]:
    """For pages, examples and commands that believe the session to be theirs: they get it, may change it, and end it in vain.

    Its Java runs in another folder than they do, so paths that they give to Spark have to be absolute (`absolute`).
    """
    before = session.conf.getAll
    with mock.patch.object(SparkSession, "stop"):
        yield
    assert not session.streams.active
    for table in session.catalog.listTables():
        session.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.name}")
    assert not (astray := set(os.listdir(_java_s_folder())) - {"spark-warehouse"}), astray  # that is Spark's own, of its catalog
    for name, value in session.conf.getAll.items():
        if before.get(name) != value and session.conf.isModifiable(name):
            session.conf.set(name, before[name]) if name in before else session.conf.unset(name)
