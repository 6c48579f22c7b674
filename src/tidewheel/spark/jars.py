"""Spark's connectors that PySpark does not bring: Kafka and Avro.

`connector(spark, "kafka")` makes `format("kafka")` work in a running session, ours or anybody's; call it before the first use of the
format, as often as you like. Nothing is done if the session has the connector already, say by `spark.jars.packages`. Otherwise
Spark's own resolver gets the jars from the Maven repositories that Spark is set up to use, and keeps them in its own cache, so only the
first call on a machine needs the network.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from tidewheel.errors import InputError, SparkError
from tidewheel.spark.jvm import add_jar, has_class, java_of, scala_object
from tidewheel.spark.user_folders import cache_folder

SETTING = "spark.tidewheel.packages."
"""With the kind behind it: other coordinates than ours."""


@dataclass(frozen=True, slots=True)
class Connector:
    proof: str
    """A class that is there when the connector is."""
    packages: tuple[str, ...]
    """Known to work together, as they are, with PySpark 4.3; nothing else is resolved with them."""


CONNECTORS = {
    # Not all parts of one version are in every copy of Maven Central: these are, and were run for days. Only Kerberos delegation tokens
    # would notice that the second is older.
    "kafka": Connector(
        "org.apache.spark.sql.kafka010.KafkaSourceProvider",
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
    ),
    "avro": Connector("org.apache.spark.sql.v2.avro.AvroDataSourceV2", ("org.apache.spark:spark-avro_2.13:4.1.1",)),
}

_lock = threading.Lock()


def connector(spark: SparkSession, *kinds: str) -> None:
    """Make `format("kafka")` or `format("avro")` available in a session. Safe to call from any thread, and again.

    The jars are those of the session's setting `spark.tidewheel.packages.<kind>`, Maven coordinates with commas between them, resolved
    with all they depend on, or else ones that are known to work with this PySpark. Raises `SparkError` if they cannot be had.
    """
    for kind in kinds:
        if kind not in CONNECTORS:
            raise InputError(f"there is no connector {kind!r}; there are {', '.join(CONNECTORS)}")
    for kind in kinds:
        known = CONNECTORS[kind]
        with _lock:
            _jvm(spark)
            if has_class(spark, known.proof):
                continue
            named = spark.conf.get(SETTING + kind, None)
            packages = [part.strip() for part in named.split(",") if part.strip()] if named else known.packages
            try:
                files = resolve(spark, packages, transitive=bool(named))
            except SparkError as e:
                raise SparkError(
                    f"no {kind} connector for Spark: {e}. The first time it needs the network; where there is none, start Spark with "
                    f"the jars in spark.jars, or name others that can be reached in the setting {SETTING}{kind}"
                ) from e
            _add(spark, files)
            if not has_class(spark, known.proof):
                raise SparkError(
                    f"{', '.join(packages)} have no {kind} connector for Spark ({known.proof}): check the setting {SETTING}{kind}"
                )


def resolve(spark: SparkSession, coordinates: Sequence[str], *, transitive: bool = True) -> list[Path]:
    """The jar files of Maven coordinates (`group:artifact:version`), by the resolver in the session's JVM.

    It leaves out what Spark has itself. Spark's settings `spark.jars.repositories`, `spark.jars.ivy` and `spark.jars.ivySettings` count.
    """
    jvm = _jvm(spark)
    none = scala_object(jvm.scala, "None")

    def setting(name: str) -> Any:
        value = spark.conf.get(name, None)
        return jvm.scala.Some(value) if value else none

    said = jvm.java.io.ByteArrayOutputStream()
    out = jvm.java.io.PrintStream(said)
    maven = scala_object(jvm.org.apache.spark.util, "MavenUtils")
    with _alone():
        try:
            if own := spark.conf.get("spark.jars.ivySettings", None):
                ivy = maven.loadIvySettings(own, setting("spark.jars.repositories"), setting("spark.jars.ivy"), out)
            else:
                ivy = maven.buildIvySettings(setting("spark.jars.repositories"), setting("spark.jars.ivy"), True, out)
            nothing = scala_object(jvm.scala.collection.immutable, "Nil")
            found = maven.resolveMavenCoordinates(",".join(coordinates), ivy, none, transitive, nothing, False, out)
        except Py4JJavaError as e:
            raise SparkError(f"{', '.join(coordinates)} could not be resolved: {e.java_exception.getMessage()}") from e
    return [Path(found.apply(n)) for n in range(found.length())]


def _add(spark: SparkSession, files: Sequence[Path]) -> None:
    """Driver and executors learn the classes of these jars."""
    try:
        for file in files:
            add_jar(spark, file)
    except Py4JError as e:
        raise SparkError(f"this session takes no new jars: start it with spark.jars={','.join(map(str, files))}") from e


def _jvm(spark: SparkSession) -> Any:
    jvm = java_of(spark)
    if jvm is None:
        raise SparkError("a Spark Connect session cannot be given connectors: start its server with them, by --packages or spark.jars")
    return jvm


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: two resolvers in one cache see each other's half-written files."""
    with (cache_folder() / "jars.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
