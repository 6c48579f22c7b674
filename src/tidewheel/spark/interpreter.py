"""Which Python Spark's workers run: the one that runs us, wherever that can be said.

Spark starts `python3` of the PATH unless PYSPARK_PYTHON names another, and that one may lack Tidewheel. `agree` sees to it in a session
that somebody else made; sessions of ours are started right (`launch.use_this_python`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tidewheel.errors import SparkError
from tidewheel.spark.conf import cores
from tidewheel.spark.jvm import is_classic, spark_home
from tidewheel.spark.user_folders import cache_folder


def agree(spark: SparkSession) -> None:
    """From now on the workers of a local session run this Python. One that was chosen on purpose stays, and must have Tidewheel.

    On a cluster the name is that of a program on other machines, about which nothing can be known here. A session of Spark Connect has
    its workers elsewhere as well.
    """
    if not is_classic(spark):
        return
    context = spark.sparkContext
    if cores(str(context.master), 1) is None:
        return
    if not os.environ.get("PYSPARK_PYTHON") or _is_this(context.pythonExec):
        context.pythonExec = for_workers()
    elif fault := _fault(context.pythonExec):
        raise SparkError(
            f"the workers of this session would run {context.pythonExec}, because PYSPARK_PYTHON says so, and that Python {fault}: "
            f"set PYSPARK_PYTHON={shlex.quote(sys.executable)} before the session is made, or leave it unset"
        )


def for_workers() -> str:
    """The command that starts this Python as a worker on this machine.

    Spark puts an archive of PySpark's sources before all else on the path of its workers, and every one of them compiles it anew, most of a
    second each. Where this Python has the same PySpark installed, a script leaves the archive out.
    """
    home = Path(spark_home())
    if Path(pyspark.__file__).resolve().parent != home.resolve():
        return sys.executable
    archives = sorted((home / "python" / "lib").glob("*.zip"))
    script = f"""#!/bin/sh
set -f
path=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    {" | ".join(shlex.quote(str(one)) for one in archives) or "''"}) ;;
    *) path=$path:$entry ;;
  esac
done
unset IFS
PYTHONPATH=${{path#:}} exec {shlex.quote(sys.executable)} "$@"
"""
    try:
        return str(_kept(script))
    except (OSError, SparkError):
        return sys.executable


def _kept(script: str) -> Path:
    """The script as a file in the cache, made if it is not there."""
    file = cache_folder() / f"python-{blake2b(script.encode(), digest_size=8).hexdigest()}"
    if not os.access(file, os.X_OK):
        handle, made = tempfile.mkstemp(prefix=".python-", dir=file.parent)
        with os.fdopen(handle, "w") as out:
            out.write(script)
        os.chmod(made, 0o755)
        os.replace(made, file)
    return file


def _is_this(command: str) -> bool:
    """Whether it is the Python that runs us. A virtual environment's is a link to another, so links are not followed."""
    found = shutil.which(command)
    return found is not None and (os.path.abspath(found) == os.path.abspath(sys.executable) or found == for_workers())


@cache
def _fault(command: str) -> str:
    """Why workers of ours cannot run on it; empty if they can."""
    try:
        done = subprocess.run([command, "-c", "import tidewheel.spark"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"does not start ({e})"
    return "" if done.returncode == 0 else "has no Tidewheel"
