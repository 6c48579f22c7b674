"""The machine of random DAGs (`tests/property/test_derived.py`) with Spark as the computer: the same promises, the same oracle."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import SOAK, Voice
from tests.property.test_derived import DerivedMachine, campaign
from tidewheel.spark.derived_compute import SparkCompute


@pytest.mark.timeout(0 if SOAK else 300)
def test_every_partition_is_its_query_at_its_vector_on_spark(spark: SparkSession, voice: Voice) -> None:
    class SparkMachine(DerivedMachine):
        def __init__(self) -> None:
            super().__init__()
            self.compute = SparkCompute(spark, Path(self.root))

    campaign(SparkMachine, 60 if SOAK else 10, 10, voice)
