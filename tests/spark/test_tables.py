"""Tables of Spark's catalogue whose rows are the records of topics: CREATE TABLE, INSERT INTO, spark.table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.cluster import RunningCluster
from tests.spark.jobs import put_file, read_files

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)


@pytest.fixture
def name(spark: SparkSession) -> Iterator[str]:
    """A name for a table, which is dropped at the end."""
    name = f"table_{next(_numbers)}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def create(spark: SparkSession, name: str, cluster: RunningCluster, topic: str, more: str = "") -> None:
    spark.sql(f"CREATE TABLE {name} USING viewstamp OPTIONS (cluster '{cluster.addresses}', topic '{topic}'{more})")


def failure(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_a_table_is_read_and_inserted_into(spark: SparkSession, cluster: RunningCluster, topic: str, name: str) -> None:
    create(spark, name, cluster, topic)
    assert spark.table(name).count() == 0
    spark.sql(f"INSERT INTO {name} (key, value) VALUES (X'6b', X'76')")
    spark.sql(f"INSERT INTO {name} (value) SELECT cast(cast(id AS string) AS binary) FROM range(2)")
    assert [(record.key, record.value) for record in cluster.read(topic)] == [(b"k", b"v"), (None, b"0"), (None, b"1")]
    rows = spark.sql(f"SELECT topic, position, cast(value AS string) FROM {name} ORDER BY position").collect()
    assert [tuple(row) for row in rows] == [(topic, 1, "v"), (topic, 2, "0"), (topic, 3, "1")]


def test_frames_are_saved_into_a_table_once_with_a_name(
    spark: SparkSession, cluster: RunningCluster, topic: str, name: str
) -> None:
    create(spark, name, cluster, topic)
    rows = spark.sql("SELECT cast('v' AS binary) AS value")
    for _ in range(2):
        rows.write.format("viewstamp").mode("append").option("txnId", f"once-{topic}").saveAsTable(name)
    rows.writeTo(name).append()
    assert cluster.values(topic) == [b"v", b"v"]


def test_columns_that_the_cluster_fills_in_cannot_be_inserted(
    spark: SparkSession, cluster: RunningCluster, topic: str, name: str
) -> None:
    create(spark, name, cluster, topic)
    text = failure(lambda: spark.sql(f"INSERT INTO {name} (position, value) VALUES (7, X'76')"))
    assert "column 'position' of a table is filled in by the cluster" in text
    assert cluster.values(topic) == []


def test_a_table_over_several_topics_is_inserted_into_by_the_column(
    spark: SparkSession, cluster: RunningCluster, new_topic: Callable[[], str], name: str
) -> None:
    one, other = new_topic(), new_topic()
    create(spark, name, cluster, f"{one},{other}")
    spark.sql(f"INSERT INTO {name} (topic, value) VALUES ('{other}', X'76')")
    assert (cluster.values(one), cluster.values(other)) == ([], [b"v"])
    assert [row.topic for row in spark.table(name).collect()] == [other]


def test_options_of_a_query_go_before_those_of_the_table(
    spark: SparkSession, cluster: RunningCluster, topic: str, name: str
) -> None:
    cluster.append(topic, [b"0", b"1", b"2"])
    create(spark, name, cluster, topic, ", startingPosition '2'")
    assert spark.table(name).count() == 2
    assert spark.sql(f"SELECT * FROM {name} WITH ('startingPosition' = '3')").count() == 1
    assert spark.read.option("startingPosition", "earliest").table(name).count() == 3


def test_a_table_is_read_as_a_stream(
    spark: SparkSession, cluster: RunningCluster, topic: str, name: str, tmp_path: Path
) -> None:
    cluster.append(topic, [b"0", b"1"])
    create(spark, name, cluster, topic, ", columns 'value, position'")
    stream = spark.readStream.table(name).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = stream.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert query.lastProgress["numInputRows"] == 2


def test_a_stream_is_written_to_a_table_with_its_address(
    spark: SparkSession, cluster: RunningCluster, topic: str, name: str, tmp_path: Path
) -> None:
    """Spark passes no metadata of columns to a stream, so the stream has to name the topic."""
    create(spark, name, cluster, topic)
    put_file(tmp_path / "files", 0, ["a", "b"])
    writer = read_files(spark, tmp_path / "files").writeStream.format("viewstamp").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).options(cluster=cluster.addresses, topic=topic)
    assert writer.toTable(name).awaitTermination(60)
    assert cluster.values(topic) == [b"a", b"b"]


def test_neither_text_nor_overwriting_goes_into_a_table(
    spark: SparkSession, cluster: RunningCluster, topic: str, name: str
) -> None:
    create(spark, name, cluster, topic)
    assert "CANNOT_SAFELY_CAST" in failure(lambda: spark.sql(f"INSERT INTO {name} (value) VALUES ('text')"))
    text = failure(lambda: spark.sql(f"INSERT OVERWRITE {name} (value) VALUES (X'76')"))
    assert "a topic can be appended to" in text
    assert cluster.values(topic) == []


def test_a_wrong_option_of_a_table_fails_at_its_creation(
    spark: SparkSession, cluster: RunningCluster, topic: str, name: str
) -> None:
    text = failure(lambda: create(spark, name, cluster, topic, ", startPosition '2'"))
    assert "no option startposition" in text
    assert "did you mean startingPosition?" in text
    assert not spark.catalog.tableExists(name)


def test_rows_that_would_create_a_table_are_refused_and_none_is_left(
    spark: SparkSession, cluster: RunningCluster, topic: str, name: str
) -> None:
    """Spark keeps no options of a table that rows create, so it could not be read."""
    rows = spark.sql("SELECT 'v' AS value")
    options = {"cluster": cluster.addresses, "topic": topic}
    writer = rows.write.format("viewstamp").mode("append").options(**options)
    text = failure(lambda: writer.saveAsTable(name))
    assert "create the table first, without columns: CREATE TABLE" in text
    assert not spark.catalog.tableExists(name)
    given = f"cluster '{cluster.addresses}', topic '{topic}'"
    failure(lambda: spark.sql(f"CREATE TABLE {name} USING viewstamp OPTIONS ({given}) AS SELECT 'v' AS value"))
    assert not spark.catalog.tableExists(name)
    assert cluster.values(topic) == []
    writer.save()
    assert cluster.values(topic) == [b"v"]


def test_a_table_without_its_options_says_how_to_create_it(spark: SparkSession, name: str) -> None:
    """Spark passes the options of a table to no source in Python, and asks for no columns if they are given."""
    spark.sql(f"CREATE TABLE {name} (value BINARY) USING viewstamp OPTIONS (topic 'orders')")
    text = failure(lambda: spark.table(name).collect())
    assert "only if CREATE TABLE made it without columns, not if saveAsTable or AS SELECT made it" in text
