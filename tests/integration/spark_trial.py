"""What people type first who know Spark, line by line, with what they should see; and their mistakes, with the sentence each gets.

Run as a program (`python -m tests.integration.spark_trial FOLDER`) it makes a plain session of Spark's own, gives it to `tws.register`, and
types it all: in a folder with `rides.parquet`, columns plate, ts, lon, lat. `typed` does the same in a session that is there. Expectations
are over the same rows as an Arrow table (`rides`).
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidewheel as tw
from tests.integration.trial import Line, make_mistakes, type_lines

FIRST: list[Line] = [
    # a file becomes a table
    "df = spark.read.parquet(f'{HERE}/rides.parquet')",
    ("df.count()", "len(rides)"),
    "df.write.format('tidewheel').option('time', 'ts').option('key', 'plate').save(f'{WH}/taxi')",
    "taxi = spark.read.format('tidewheel').load(f'{WH}/taxi')",
    ("taxi.count()", "len(rides)"),
    ("taxi.columns", "rides.schema.names"),
    ("dict(taxi.dtypes)['ts']", "'timestamp'"),
    # questions
    ("taxi.where('plate = 3').count()", "int(pc.sum(pc.equal(rides['plate'], 3)).as_py() or 0)"),
    ("taxi.where(taxi.plate.between(2, 5)).count()", "int(pc.sum(pc.is_in(rides['plate'], pa.array([2, 3, 4, 5]))).as_py() or 0)"),
    ("taxi.agg(f.max('lon')).first()[0]", "pc.max(rides['lon']).as_py()"),
    ("taxi.select('plate').distinct().count()", "len(pc.unique(rides['plate']))"),
    ("taxi.groupBy('plate').count().agg(f.sum('count')).first()[0]", "len(rides)"),
    ("taxi.orderBy(f.desc('ts'), 'plate').select('ts').first()[0].replace(tzinfo=UTC)", "pc.max(rides['ts']).as_py()"),
    ("len(taxi.limit(7).collect())", "7"),
    ("len(taxi.head(3))", "3"),
    ("taxi.toPandas().shape", "rides.shape"),
    ("taxi.toArrow().num_rows", "len(rides)"),
    ("taxi.where('lon is null').isEmpty()", "pc.count(rides['lon'], mode='only_null').as_py() == 0"),
    ("taxi.rdd.map(lambda row: row.plate).max()", "pc.max(rides['plate']).as_py()"),
    (
        "taxi.join(taxi.groupBy('plate').agg(f.max('ts').alias('ts')), ['plate', 'ts']).select('plate').distinct().count()",
        "len(pc.unique(rides['plate']))",
    ),
    # views
    "taxi.createOrReplaceTempView('taxi')",
    ("spark.sql('SELECT count(*) FROM taxi').first()[0]", "len(rides)"),
    "spark.sql(f\"CREATE OR REPLACE TEMPORARY VIEW cars USING tidewheel OPTIONS (path '{WH}/taxi')\")",
    ("spark.table('cars').count()", "len(rides)"),
    "spark.sql(f\"CREATE OR REPLACE TEMPORARY VIEW few USING tidewheel OPTIONS (warehouse '{WH}', table 'taxi', columns 'plate,ts')\")",
    ("spark.table('few').columns", "['plate', 'ts']"),
    "spark.sql(\"INSERT INTO cars VALUES (-1, TIMESTAMP '2030-01-01 00:00:00', 1.5, 2.5)\")",
    ("spark.sql('SELECT count(*) FROM cars').first()[0]", "len(rides) + 1"),
    ("spark.sql('SELECT count(*) FROM taxi').first()[0]", "len(rides) + 1"),
    # what another process inserts
    "elsewhere(f'{WH}', 'taxi', [-2])",
    ("spark.sql('SELECT count(*) FROM cars').first()[0]", "len(rides) + 2"),
    ("len(taxi.collect())", "len(rides) + 2"),
    "elsewhere(f'{WH}', 'taxi', [-3])",
    ("len(taxi.collect())", "len(rides) + 3"),
    ("sorted(row.plate for row in taxi.where('plate < 0').collect())", "[-3, -2, -1]"),
    ("[row.lon for row in taxi.where('plate = -2').collect()]", "[None]"),
    # tables of Spark's catalog
    "spark.sql(f\"CREATE TABLE by_path USING tidewheel OPTIONS (path '{WH}/taxi')\")",
    "spark.sql(f\"CREATE TABLE by_name USING tidewheel OPTIONS (warehouse '{WH}', table 'taxi')\")",
    "spark.sql(f\"CREATE TABLE by_place USING tidewheel LOCATION '{WH}/taxi'\")",
    ("[spark.table(name).count() for name in ('by_path', 'by_name', 'by_place')]", "[len(rides) + 3] * 3"),
    ("spark.table('by_name').schema == taxi.schema", "True"),
    "spark.sql(\"INSERT INTO by_path VALUES (-4, TIMESTAMP '2030-01-01 00:00:00', 1.5, 2.5)\")",
    "spark.sql(\"INSERT INTO by_name (plate, ts) VALUES (-5, TIMESTAMP '2030-01-01 00:00:00')\")",
    "spark.sql(\"INSERT INTO by_place BY NAME SELECT TIMESTAMP '2030-01-01 00:00:00' AS ts, -6 AS plate\")",
    "one = spark.createDataFrame([(-7, dt.datetime(2030, 1, 1), 1.0, 2.0)], taxi.schema)",
    "one.write.insertInto('by_path')",
    "one.selectExpr('-8 AS plate', 'ts').writeTo('by_path').append()",
    ("sorted(row.plate for row in spark.sql('SELECT plate FROM by_name WHERE plate < -3').collect())", "[-8, -7, -6, -5, -4]"),
    ("[row.lon for row in taxi.where('plate IN (-5, -8)').collect()]", "[None, None]"),
    "said = f\"OPTIONS (path '{WH}/copy', time 'ts', key 'plate')\"",
    "spark.sql(f'CREATE TABLE copy USING tidewheel {said} AS SELECT * FROM by_path WHERE plate < 0')",
    ("spark.table('copy').count()", "8"),
    'spark.sql("INSERT OVERWRITE copy SELECT * FROM by_path WHERE plate < -6")',
    ("sorted(row.plate for row in spark.table('copy').collect())", "[-8, -7]"),
    "said = f\"OPTIONS (path '{WH}/made', time 'ts', key 'plate')\"",
    "spark.sql(f'CREATE TABLE made (plate BIGINT, ts TIMESTAMP, note STRING) USING tidewheel {said}')",
    ("spark.table('made').count()", "0"),
    "spark.sql(\"INSERT INTO made VALUES (1, TIMESTAMP '2030-01-01 00:00:00', 'first')\")",
    ("spark.sql('SELECT note FROM made').first()[0]", "'first'"),
    "one.write.format('tidewheel').options(path=f'{WH}/saved', time='ts', key='plate').saveAsTable('saved')",
    "one.write.format('tidewheel').mode('append').saveAsTable('saved')",
    ("spark.table('saved').count()", "2"),
    "one.writeTo('written').using('tidewheel').options(path=f'{WH}/written', time='ts', key='plate').create()",
    ("spark.table('written').count()", "1"),
    # columns that are not there are null
    "one.selectExpr('-9 AS plate', 'ts').write.format('tidewheel').mode('append').save(f'{WH}/taxi')",
    ("taxi.where('plate = -9').first().lon", "None"),
    # modes
    "one.write.format('tidewheel').mode('overwrite').save(f'{WH}/saved')",
    ("spark.table('saved').count()", "1"),
    "one.write.format('tidewheel').mode('ignore').save(f'{WH}/saved')",
    ("spark.table('saved').count()", "1"),
    # one version in an execution, the rows of now in the next
    ("taxi.union(taxi).count() == 2 * taxi.count()", "True"),
    "cached = spark.table('saved').cache()",
    ("cached.count()", "1"),
    "elsewhere(f'{WH}', 'saved', [-10])",
    ("cached.count()", "1"),
    ("cached.unpersist().count()", "2"),
    # streams
    "changes = spark.readStream.format('tidewheel').load(f'{WH}/copy')",
    "to = changes.writeStream.format('tidewheel').option('checkpointLocation', f'{HERE}/checkpoint').options(time='ts', key='plate')",
    ("to.trigger(availableNow=True).start(f'{WH}/streamed').awaitTermination(120)", "True"),
    ("spark.read.format('tidewheel').load(f'{WH}/streamed').count()", "2"),
    "again = spark.readStream.table('copy').selectExpr('plate', 'ts').writeStream.option('checkpointLocation', f'{HERE}/again')",
    ("again.trigger(availableNow=True).toTable('written').awaitTermination(120)", "True"),
    ("sorted((row.plate, row.lon) for row in spark.table('written').where('plate = -8').collect())", "[(-8, None)]"),
    # DataFrames of Spark where rows are wanted
    "wh = tw.open(WH)",
    ("wh['taxi'].insert(one.selectExpr('-12 AS plate', 'ts')).rows", "1"),
    ("wh.create_table('given', one, time='ts', key='plate').rows", "1"),
    ("wh.sql('SELECT count(*) FROM given JOIN one USING (plate)', tables={'one': one}).fetchone()", "(1,)"),
    ("spark.createDataFrame(wh['given'].query().df()).count()", "1"),
    "wh.close()",
    # Spark forgets a table of its catalog, Tidewheel does not
    "spark.sql('DROP TABLE by_path')",
    ("spark.table('by_name').where('plate < 0').count()", "10"),
]

MISTAKES: list[tuple[str, str]] = [
    ("spark.read.format('tidewheel').load(f'{WH}/taxis')", "there is no table 'taxis'. Did you mean 'taxi'?"),
    (
        "spark.read.format('tidewheel').load(WH)",
        "{WH} is a warehouse, and not a table in one: add the table's name, as in load('{WH}/taxi')",
    ),
    ("spark.read.format('tidewheel').load(f'{HERE}/absent/taxi')", "there is no warehouse in {HERE}/absent, where table 'taxi' should be"),
    ("spark.read.format('tidewheel').load(f'{WH}/ta-xi')", "does not end in the name of a table"),
    (
        "spark.read.format('tidewheel').option('nanoseconds', 'round').load(f'{WH}/taxi')",
        "option nanoseconds is one of error, truncate, long, not 'round'",
    ),
    ("spark.table('by_name').writeStream", "can be called only on streaming"),
    ("spark.read.format('tidewheel').load()", "say which table: load('folder/of/the/warehouse/table')"),
    (
        "spark.read.format('tidewheel').option('colums', 'plate').load(f'{WH}/taxi')",
        "unknown option 'colums' of format tidewheel. Did you mean 'columns'?",
    ),
    (
        "spark.read.format('tidewheel').option('columns', 'plat').load(f'{WH}/taxi')",
        "table 'taxi' has no column 'plat'. Did you mean 'plate'?",
    ),
    ("spark.read.format('tidewheel').load([f'{WH}/taxi', f'{WH}/copy'])", "one table is read at a time, not 2; unite them with df.union"),
    ("spark.read.format('tidewheel').schema('plate string').load(f'{WH}/taxi').count()", "table 'taxi' cannot be read with this schema"),
    ("spark.read.format('tidewheel').option('warehouse', WH).load()", "say both, warehouse and table; or one path"),
    ("spark.read.format('tidewheel').load('s3://bucket/wh/taxi')", "a warehouse is a folder that all workers see; s3 is not supported"),
    (
        "spark.read.format('tidewheel').option('partitions', 'many').load(f'{WH}/taxi').count()",
        "option partitions is a whole number of at least 1, not 'many'",
    ),
    (
        "df.write.format('tidewheel').save(f'{WH}/taxi')",
        'table \'taxi\' is in {WH} already; add to it with mode("append"), or mode("overwrite") it',
    ),
    (
        "df.write.format('tidewheel').mode('append').save(f'{WH}/new')",
        "To have it made for this DataFrame, say which columns are its time and its key",
    ),
    (
        "df.write.format('tidewheel').mode('append').option('time', 'tss').option('key', 'plate').save(f'{WH}/new')",
        "time column 'tss' is not in the schema of table 'new'. Did you mean 'ts'?",
    ),
    (
        "df.withColumn('fuel', f.lit(1)).write.format('tidewheel').mode('append').save(f'{WH}/taxi')",
        "the table has no column fuel (int), and cannot get it yet",
    ),
    (
        "df.withColumn('fuel', f.lit(1)).write.format('tidewheel').mode('append').option('mergeSchema', 'true').save(f'{WH}/taxi')",
        "mergeSchema: a table cannot get new columns yet. Write the columns that it has, or write to a new table that has them all",
    ),
    (
        "df.drop('ts').write.format('tidewheel').mode('append').save(f'{WH}/taxi')",
        "this DataFrame does not fit table 'taxi': ts must not be missing",
    ),
    (
        "df.withColumn('plate', f.lit('x')).write.format('tidewheel').mode('append').save(f'{WH}/taxi')",
        "this DataFrame does not fit table 'taxi': plate must be cast",
    ),
    (
        "df.withColumn('plate', f.lit(None).cast('long')).write.format('tidewheel').mode('append').save(f'{WH}/taxi')",
        "no value in the key column",
    ),
    (
        "df.write.format('tidewheel').mode('append').option('onBad', 'skip').save(f'{WH}/taxi')",
        "option onBad is one of error, reject, not 'skip'",
    ),
    (
        "spark.sql('CREATE TABLE wrong USING tidewheel')",
        "say which table: load('folder/of/the/warehouse/table') or save('…'), in SQL OPTIONS (path '…')",
    ),
    (
        "spark.sql(f\"CREATE TABLE wrong USING tidewheel OPTIONS (path '{WH}/none')\")",
        "To have it made, say its columns, its time and its key: CREATE TABLE none (plate BIGINT",
    ),
    (
        "spark.sql(f\"CREATE TABLE wrong USING tidewheel OPTIONS (pth '{WH}/taxi')\")",
        "unknown option 'pth' of format tidewheel. Did you mean 'path'?",
    ),
    (
        "spark.sql(f\"CREATE TABLE wrong USING tidewheel OPTIONS (path '{WH}/copy') AS SELECT * FROM by_name\")",
        "in SQL, CREATE TABLE … USING tidewheel without AS SELECT, then INSERT INTO",
    ),
    (
        "(spark.sql('CREATE TABLE lost (plate BIGINT, ts TIMESTAMP) USING tidewheel'), spark.table('lost').count())",
        "this table of Spark's catalog does not say where its rows are: say it with .option('path', 'folder/of/the/warehouse/table')",
    ),
    (
        "one.write.format('tidewheel').saveAsTable('nowhere')",
        "this table of Spark's catalog does not say where its rows are: say it with .option('path', 'folder/of/the/warehouse/table')",
    ),
    ("one.write.format('tidewheel').options(path=f'{WH}/saved').saveAsTable('twice')", "table 'saved' is in {WH} already"),
    ("spark.sql('INSERT INTO by_name VALUES (1)')", "Table columns: `plate`, `ts`, `lon`, `lat`."),
    ("spark.sql(\"INSERT INTO by_name VALUES ('x', now(), 1, 2)\")", 'Cannot safely cast `plate` "STRING" to'),
    ("spark.sql('INSERT INTO by_name (plate, ts, fuel) VALUES (1, now(), 2)')", "name `fuel` cannot be resolved"),
    ("one.withColumn('fuel', f.lit(1)).writeTo('by_name').append()", "Data columns: `plate`, `ts`, `lon`, `lat`, `fuel`"),
    ("spark.sql('DELETE FROM by_name WHERE plate = 1')", "does not support deletes"),
    ("spark.sql('UPDATE by_name SET lon = 1')", "does not support UPDATE TABLE"),
    ("spark.sql(f'SELECT * FROM tidewheel.`{WH}/taxi`')", "Unsupported data source type for direct query on files: tidewheel"),
    ("spark.readStream.format('tidewheel').load(f'{WH}/none')", "there is no table 'none'"),
    (
        "run(spark.readStream.format('tidewheel').option('startingGeneration', 'x').load(f'{WH}/taxi'), 'written')",
        "option startingGeneration is a whole number of at least 0, not 'x'",
    ),
    ("run(changes.withColumn('fuel', f.lit(1)), 'written')", "the table has no column fuel (int), and cannot get it yet"),
    ("run(changes.drop('plate'), 'written')", "plate must not be missing"),
    ("run(changes, 'absent')", "say which columns are its time and its key"),
]


HEADING = (
    r"(\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: )?"
    r"(\[\w+\] Failed [\w ]+: |An exception was thrown from the Python worker:\n)tidewheel\.errors\.\w+: "
)
"""What Spark says, always, before it says what a Python source said."""


def typed(spark: Any, here: str, lines: list[Line] = FIRST, mistakes: list[tuple[str, str]] = MISTAKES) -> list[str]:
    """Type all of it; returns what went another way than it should, and leaves no table in Spark's catalog."""
    from pyspark.sql import functions as f

    def run(stream: Any, table: str) -> None:
        to = stream.writeStream.format("tidewheel").option("checkpointLocation", f"{here}/mistake-{time.monotonic_ns()}")
        to.trigger(availableNow=True).start(f"{here}/wh/{table}").awaitTermination(120)

    names: dict[str, Any] = {
        "spark": spark, "HERE": here, "WH": f"{here}/wh", "rides": pq.read_table(f"{here}/rides.parquet"), "elsewhere": elsewhere,
        "run": run, "f": f, "pa": pa, "pc": pc, "dt": dt, "UTC": dt.UTC, "tw": tw,
    }  # fmt: skip
    wrong = type_lines(names, lines) + make_mistakes(names, mistakes, heading=HEADING)
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.name}")
    return wrong


ELSEWHERE = """
import datetime as dt, json, sys
import tidewheel as tw
for line in sys.stdin:
    root, table, plates = json.loads(line)
    with tw.open(root) as wh:
        wh.table(table).insert([{"plate": plate, "ts": dt.datetime(2030, 1, 1)} for plate in plates])
    print("done", flush=True)
"""
_process: list[subprocess.Popen[str]] = []


def elsewhere(root: str, table: str, plates: list[int]) -> None:
    """Another process, always the same, inserts rows."""
    if not _process:
        _process.append(subprocess.Popen([sys.executable, "-c", ELSEWHERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    (one,) = _process
    assert one.stdin is not None and one.stdout is not None
    one.stdin.write(json.dumps([root, table, plates]) + "\n")
    one.stdin.flush()
    assert one.stdout.readline() == "done\n"


def end_elsewhere() -> None:
    for one in _process:
        assert one.stdin is not None and one.stdout is not None
        one.stdin.close()
        one.wait(60)
        one.stdout.close()
    _process.clear()


def main() -> None:
    here = sys.argv[1]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    from pyspark.sql import SparkSession

    import tidewheel.spark as tws

    spark = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    before = []
    try:
        spark.read.format("tidewheel").load(f"{here}/wh/taxi")
    except Exception as e:
        before.append("DATA_SOURCE_NOT_FOUND" if "DATA_SOURCE_NOT_FOUND" in str(e) else str(e))
    tws.register(spark)
    wrong = typed(spark, here)
    spark.sql(f"CREATE TEMPORARY VIEW again USING tidewheel OPTIONS (path '{here}/wh/taxi')")
    taxi = spark.read.format("tidewheel").load(f"{here}/wh/taxi")
    counts = [spark.table("again").count(), len(taxi.collect())]
    elsewhere(f"{here}/wh", "taxi", [-11])
    counts += [spark.table("again").count(), len(taxi.collect())]
    end_elsewhere()
    time.sleep(seconds)
    counts += [spark.table("again").count(), len(taxi.collect())]
    spark.stop()
    print(json.dumps({"before": before, "wrong": wrong, "counts": counts}))


if __name__ == "__main__":
    main()
