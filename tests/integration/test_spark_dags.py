"""The machine of random DAGs (`tests/property/test_derived.py`) with Spark as the computer: the same promises, the same oracle."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

from tests.conftest import SOAK
from tests.property.test_derived import DerivedMachine
from tidewheel.spark.derived_compute import SparkCompute


def test_every_partition_is_its_query_at_its_vector_on_spark(spark: SparkSession) -> None:
    class SparkMachine(DerivedMachine):
        def __init__(self) -> None:
            super().__init__()
            self.compute = SparkCompute(spark, Path(self.root))

    run_state_machine_as_test(SparkMachine, settings=settings(max_examples=60 if SOAK else 10, stateful_step_count=10))
