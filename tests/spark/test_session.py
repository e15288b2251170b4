"""A session on this machine: Spark finds the format, and shows wrong options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from viewstamp.errors import ConfigError
from viewstamp.spark import register, session
from viewstamp.spark.data_source import ViewstampDataSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow import RecordBatch

pytestmark = pytest.mark.slow

NOWHERE = {"cluster": "127.0.0.1:1", "topic": "orders"}
"""A cluster without nodes, because the errors are found before a request is sent."""


@pytest.fixture
def bare(spark: SparkSession) -> SparkSession:
    """A session without any registration."""
    return spark.newSession()


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(3).selectExpr("cast(id as string) value")


def stream(spark: SparkSession, directory: Path) -> DataStreamWriter:
    rows(spark).write.mode("overwrite").parquet(str(directory / "in"))
    read = spark.readStream.schema("value string").parquet(str(directory / "in"))
    return read.writeStream.option("checkpointLocation", str(directory / "checkpoint"))


def test_a_python_job_runs_on_the_interpreter_of_the_driver(spark: SparkSession) -> None:
    def interpreter(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import sys

        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable] * batch.num_rows})

    found = spark.range(2).mapInArrow(interpreter, "python string").collect()
    assert {row.python for row in found} == {sys.executable}


def test_a_session_is_private_and_takes_what_the_caller_wants_else(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.master") == "local[2,4]"
    again = session(cores=3, **{"spark.sql.session.timeZone": "Europe/Berlin"})
    assert again.sparkContext is spark.sparkContext, "there is only one"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    session()
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_without_spark_a_session_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigError, match="not installed here: pyspark") as raised:
        session()
    assert raised.value.__notes__ == ["pip install 'viewstamp[spark]'"], "a traceback shows it"


def test_a_spark_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Otherwise it would fail with an import error that names a class of Spark."""
    for version in ("3.5.1", "4.1.4"):
        monkeypatch.setattr("pyspark.version.__version__", version)
        for use in (session, lambda: register(spark), lambda: ViewstampDataSource({})):
            with pytest.raises(ConfigError, match=f"Spark {version} is installed here, but viewstamp needs") as raised:
                use()
            assert "pip install 'viewstamp[spark]'" in raised.value.__notes__[0]
    for version in ("4.2.0.dev1", "4.10.1"):
        monkeypatch.setattr("pyspark.version.__version__", version)
        ViewstampDataSource({})


def test_spark_finds_the_format_though_nobody_registered_it(bare: SparkSession) -> None:
    frame = bare.read.format("viewstamp").options(**NOWHERE).load()
    assert frame.columns == ["topic", "position", "term", "index", "timestamp", "key", "value", "headers"]
    narrow = bare.readStream.format("viewstamp").options(columns="value, position", **NOWHERE).load()
    assert narrow.schema.simpleString() == "struct<value:binary,position:bigint>"


def test_registering_it_is_the_other_way(bare: SparkSession) -> None:
    register(bare)
    register(bare)
    assert "position" in bare.read.format("viewstamp").options(**NOWHERE).load().columns


@pytest.mark.parametrize("read", ["read", "readStream"])
def test_an_unknown_option_of_a_reader_names_the_nearest(spark: SparkSession, read: str) -> None:
    reader = getattr(spark, read).format("viewstamp").options(**NOWHERE)
    with pytest.raises(AnalysisException, match=r"no option \S*position\ndid you mean startingPosition\?"):
        reader.option("startPosition", "earliest").load()


def test_a_wrong_option_of_a_writer_fails_before_any_task(spark: SparkSession, tmp_path: Path) -> None:
    tasks = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("wrong", "")
    writer = rows(spark).write.format("viewstamp").mode("append").options(**NOWHERE)
    with pytest.raises(AnalysisException, match=r"format is 'yaml'\nwrite json, msgpack or rows"):
        writer.option("format", "yaml").save()
    assert list(tasks.getJobIdsForGroup("wrong")) == []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")


def test_a_wrong_option_of_a_stream_fails_before_its_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    query = stream(spark, tmp_path).format("viewstamp").options(**NOWHERE).option("sink", "x")
    with pytest.raises(Exception, match=r"no option sink\ndid you mean sinkId\?"):
        query.trigger(availableNow=True).start().awaitTermination(60)


def test_a_topic_is_never_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match=r'but not overwritten\nwrite .mode\("append"\)'):
        rows(spark).write.format("viewstamp").mode("overwrite").options(**NOWHERE).save()


def test_a_schema_of_ones_own_is_refused(spark: SparkSession) -> None:
    frame: Callable[[], object] = (
        spark.read.format("viewstamp").options(**NOWHERE).schema("value string").load().collect
    )
    with pytest.raises(Exception, match=r"the requested schema is struct<value:string>"):
        frame()


def test_a_cluster_that_refuses_fails_a_query_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    nowhere = {**NOWHERE, "connectSeconds": "0"}
    read: Callable[[], object] = spark.read.format("viewstamp").options(**nowhere).load().collect
    write = rows(spark).write.format("viewstamp").mode("append").options(**nowhere).save
    routed = rows(spark).selectExpr("value", "'orders' AS topic").write.format("viewstamp").mode("append")
    scatter = routed.options(cluster=nowhere["cluster"], connectSeconds="0").save
    followed = spark.readStream.format("viewstamp").options(**nowhere).load().writeStream.format("noop")
    follow = followed.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    for action in (read, write, scatter, lambda: follow.start().awaitTermination(60)):
        with pytest.raises(PySparkException, match=r"accepted a connection .*127.0.0.1:1 \(connection refused\)"):
            action()
