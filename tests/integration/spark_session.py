"""A Spark session for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

import tidewheel.spark as tws


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = tws.session("local[2]", **{"spark.sql.shuffle.partitions": "2", "spark.sql.timeType.enabled": "true"})
    yield session
    session.stop()
