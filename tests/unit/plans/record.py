"""Records the analysed plans of `definitions.py` with the Spark that is installed: python -m tests.unit.plans.record"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from pyspark.sql import SparkSession

from tests.unit.plans.definitions import DEFINITIONS, TABLES, Definition
from tidewheel.derive.plan_words import normalised
from tidewheel.spark.analysed import PINNED, Analysed, analyse_function, analyse_sql

FILE = Path(__file__).parent / "plans.json.gz"


def analyse(spark: SparkSession, definition: Definition) -> Analysed:
    confs = {**PINNED, **definition.confs}
    if callable(definition.text):
        return analyse_function(spark, definition.text, TABLES, confs)
    return analyse_sql(spark, definition.text, TABLES, confs)


def recorded() -> dict[str, str]:
    """The plans by name."""
    plans: dict[str, str] = json.loads(gzip.decompress(FILE.read_bytes()))
    return plans


def main() -> None:
    import tidewheel.spark as tws

    spark = tws.session("local[2]", **{"spark.driver.memory": "1g"})
    plans = {name: normalised(analyse(spark, definition).plan_json) for name, definition in DEFINITIONS.items()}
    FILE.write_bytes(gzip.compress(json.dumps(plans, indent=0).encode(), mtime=0))
    print(f"{len(plans)} plans, {FILE.stat().st_size} bytes")
    spark.stop()


if __name__ == "__main__":
    main()
