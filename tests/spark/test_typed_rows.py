"""The option ``rows``: fields of rows as columns, in batch queries, in streams, and from archived runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructField, StructType

from tests.spark.cluster import RunningCluster
from viewstamp.client import Client
from viewstamp.errors import ConfigError, FrameError, RequestError
from viewstamp.spark.data_source import ViewstampDataSource
from viewstamp.spark.source import BatchReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 23, 12, 30, 15, 123456, tzinfo=UTC)
SCHEMA = "a: bool, b: int32, c: int64, d: float32, e: float64, f: string?, g: binary, h: timestamp"
ROW = {"a": True, "b": 7, "c": 1 << 40, "d": 0.5, "e": 0.1, "f": "é", "g": b"\xff", "h": NOW}


@pytest.fixture(name="payments")
def _payments(cluster: RunningCluster, topic: str) -> str:
    """A topic with two rows; the second one lacks a field."""

    async def fill(client: Client) -> None:
        await client.set_schema(topic, SCHEMA)
        await client.append_rows(topic, [ROW, {**ROW, "f": None}])

    cluster.run(fill)
    return topic


def source(cluster: RunningCluster, topic: str, **options: str) -> ViewstampDataSource:
    return ViewstampDataSource({"cluster": cluster.addresses, "topic": topic, "rows": "true", **options})


def read(found: ViewstampDataSource) -> list[dict[str, Any]]:
    reader = found.reader(found.schema())
    assert isinstance(reader, BatchReader)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_spark_reads_the_fields_as_columns_with_types(
    spark: SparkSession, cluster: RunningCluster, payments: str
) -> None:
    frame = spark.read.format("viewstamp").option("cluster", cluster.addresses).option("topic", payments)
    found = frame.option("rows", True).option("columns", "position").load()
    types = "position:bigint,a:boolean,b:int,c:bigint,d:float,e:double,f:string,g:binary,h:timestamp"
    assert found.schema.simpleString() == f"struct<{types}>"
    rows = found.where("c > 0").selectExpr("position", "b", "f", "unix_micros(h)").orderBy("position").collect()
    micros = int(NOW.timestamp()) * 1_000_000 + NOW.microsecond
    assert [tuple(row) for row in rows] == [(1, 7, "é", micros), (2, 7, None, micros)]


def test_each_type_is_read_as_it_was_written(cluster: RunningCluster, payments: str) -> None:
    assert read(source(cluster, payments)) == [ROW, {**ROW, "f": None}]


def test_a_query_keeps_the_schema_of_its_plan(cluster: RunningCluster, payments: str) -> None:
    found = source(cluster, payments, endingPosition="latest")
    reader = found.reader(found.schema())

    async def widen(client: Client) -> None:
        await client.set_schema(payments, SCHEMA.replace("b: int32", "b: int64") + ", i: string?")
        await client.append_rows(payments, [{**ROW, "i": "new"}])

    cluster.run(widen)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]  # type: ignore[call-arg]
    assert rows[-1] == ROW
    assert read(source(cluster, payments))[-1] == {**ROW, "i": "new"}


def test_a_stream_reads_rows(cluster: RunningCluster, payments: str) -> None:
    found = source(cluster, payments, columns="position", checkpointLocation="/nowhere", maxRecordsPerTrigger="9")
    reader: Any = found.streamReader(found.schema())
    parts = reader.partitions(reader.initialOffset(), _latest(reader))
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == [{"position": 1, **ROW}, {"position": 2, **ROW, "f": None}]


def _latest(reader: Any) -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_record_that_is_no_row_is_an_error_with_its_position(cluster: RunningCluster, payments: str) -> None:
    cluster.append(payments, [b"plain text"])
    with pytest.raises(FrameError, match=f"position 3 of topic {payments}: a record that is no row"):
        read(source(cluster, payments))


def test_what_rows_cannot_be_is_refused(cluster: RunningCluster, payments: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rows is given for several topics"):
        source(cluster, f"{payments},other").schema()
    plain = source(cluster, payments)
    with pytest.raises(ConfigError, match="takes that of the topic"):
        plain.reader(StructType([StructField("c", LongType())]))
    cluster.create_topic(f"{payments}-plain")
    with pytest.raises(RequestError, match="has no schema"):
        source(cluster, f"{payments}-plain").schema()
    cluster.create_topic(f"{payments}-position")
    cluster.run(lambda client: client.set_schema(f"{payments}-position", "Position: int64"))
    with pytest.raises(ConfigError, match=r"field Position of topic .* has the name of a column"):
        source(cluster, f"{payments}-position", columns="position,key").schema()


def test_a_table_has_no_rows(spark: SparkSession, cluster: RunningCluster, payments: str) -> None:
    with pytest.raises(PySparkException, match="a table cannot have the option rows"):
        spark.sql(
            f"CREATE TABLE t USING viewstamp OPTIONS (cluster '{cluster.addresses}', topic '{payments}', rows 'true')"
        )


def test_rows_are_written_as_the_schema_has_them(spark: SparkSession, cluster: RunningCluster, topic: str) -> None:
    cluster.run(lambda client: client.set_schema(topic, SCHEMA))
    columns = "true a, cast(id as int) b, id c, cast(0.5 as float) d, 0.1D e, cast(null as string) f, X'ff' g"
    frame = spark.range(1, 3).selectExpr(*columns.split(", "), "timestamp '2026-11-23 12:30:15.123456Z' h")

    def write(frame: DataFrame) -> None:
        options = {"cluster": cluster.addresses, "topic": topic, "format": "rows"}
        frame.write.format("viewstamp").mode("append").options(**options).save()

    write(frame)
    write(frame.drop("f"))
    found = sorted(read(source(cluster, topic)), key=lambda row: row["c"])
    assert found == [{**ROW, "b": number, "c": number, "f": None} for number in (1, 1, 2, 2)]
    nulls = frame.selectExpr("*", "if(c = 2, null, c) n").drop("c").withColumnRenamed("n", "c")
    for wrong, message in (
        (frame.withColumn("b", frame.c), "column 'b' is bigint, and the field of the topic's rows is int32"),
        (nulls, "column 'c' is null, and the field of the topic's rows is not"),
    ):
        with pytest.raises(PySparkException, match=message):
            write(wrong)
    assert cluster.describe(topic).last_position == 4
