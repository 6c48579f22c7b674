"""What a registered session finds for `format("tidewheel")`: some Java of ours around Spark's own class for Python sources.

Spark 4.3 by itself keeps what a Python source planned for one scan with the DataFrame that `load` returned, and uses it for every other
scan of that DataFrame: after `df.where("plate < 9").count()`, `df.count()` counts the plates below 9, and in a union of two filtered halves
both halves get the filters of the second. A source that uses the filters it is given then gives wrong answers. And it hands a Python source
none of the options of a table in Spark's catalog, so that INSERT INTO such a table cannot know where it lies. There is no switch for
either.

So a registered session gets a provider of ours (`TidewheelProvider.java`), made by the compiler that Spark has with it anyway, and kept as
a jar in the user's cache. Spark looks for providers among its jars before it asks for Python sources. Ours plans each scan anew, for the
columns that it needs, and adds the options of CREATE TABLE. Without it (in a session that was not registered, or in a Spark for which it
does not compile) no filter is used while reading: the answers are right, and take longer; and tables of the catalog can only be read.

A scan is planned in two steps. The *probe*, with all columns, tells Spark which filters we take; what it made of them comes back as its
only partition. The *scan* gets that with the columns that are needed. Both travel as options.
"""

from __future__ import annotations

import logging
import os
import tempfile
import zipfile
from hashlib import blake2b
from importlib import resources
from pathlib import Path

from pyspark.sql import SparkSession

from tidewheel.spark import jvm
from tidewheel.spark.user_folders import cache_folder

_log = logging.getLogger("tidewheel.spark")

PROVIDER = "tidewheel.spark.TidewheelProvider"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


def install(spark: SparkSession) -> bool:
    """Do it for a session; False if it cannot be done."""
    if not jvm.is_classic(spark):
        return False
    if jvm.has_class(spark, PROVIDER):  # in a Java process that had a session before
        return True
    try:
        jvm.know_jar(spark, _jar(spark))
    except Exception as e:  # whatever a strange Spark makes of it: reading works without
        _log.warning("filters do not reach tables of Tidewheel in this Spark, so reading is slower: %s", e)
        return False
    return True


def _jar(spark: SparkSession) -> Path:
    """The jar with the provider, compiled against this Spark if it is not there yet."""
    source = resources.files(__package__).joinpath("TidewheelProvider.java").read_text()
    file = cache_folder() / f"provider-{spark.version}-{blake2b(source.encode(), digest_size=8).hexdigest()}.jar"
    if not file.is_file():
        classes = jvm.compiled(spark, source)
        handle, made = tempfile.mkstemp(prefix=".provider-", dir=file.parent)
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w") as jar:
            for name, code in classes.items():
                jar.writestr(f"{name.replace('.', '/')}.class", code)
            jar.writestr(_SERVICE, PROVIDER + "\n")
        os.replace(made, file)
    return file
