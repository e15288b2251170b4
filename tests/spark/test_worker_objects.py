"""A worker freezes its objects in its first task that reads or writes, and never again; no other process does."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.spark.cluster import RunningCluster
from viewstamp.spark.options import SinkOptions, SourceOptions
from viewstamp.spark.records import spark_schema
from viewstamp.spark.sink import batch_writer
from viewstamp.spark.source import batch_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = "process long, before long, after long, records long"
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def task(work: Callable[[], int]) -> Task:
    """Return a task that does some work, and reports the frozen objects of its process before and after."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        before = gc.get_freeze_count()
        records = work()
        row = {"process": os.getpid(), "before": before, "after": gc.get_freeze_count(), "records": records}
        yield pa.RecordBatch.from_pylist([row])

    return run


def reading(cluster: RunningCluster, topic: str) -> Task:
    """Return a task that reads the topic; it has two records."""
    given = {"cluster": cluster.addresses, "topic": topic}
    reader = batch_reader(SourceOptions.parse(given, streaming=False), spark_schema())
    cluster.append(topic, [b"a", b"b"])
    parts = reader.partitions()
    return task(lambda: sum(batch.num_rows for part in parts for batch in reader.read(part)))


def writing(cluster: RunningCluster, topic: str) -> Task:
    """Return a task that stages two records for the topic."""
    given = {"cluster": cluster.addresses, "topic": topic}
    writer = batch_writer(SinkOptions.parse(given, streaming=False), StructType([StructField("value", BinaryType())]))

    def write() -> int:
        staged = writer.write(iter([pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})]))
        return 0 if staged.sealed is None else 2

    return task(write)


@pytest.mark.slow
@pytest.mark.parametrize("begin", [reading, writing])
def test_a_worker_freezes_its_objects_in_the_first_task_that_reads_or_writes(
    spark: SparkSession, cluster: RunningCluster, topic: str, begin: Callable[[RunningCluster, str], Task]
) -> None:
    work = begin(cluster, topic)
    environment = spark.sparkContext.environment
    environment["TEST_WORKERS_OF"] = topic  # Spark starts new workers for another environment.
    try:
        tasks = [spark.range(1, numPartitions=1).mapInArrow(work, COUNTS).collect()[0] for _ in range(3)]
    finally:
        del environment["TEST_WORKERS_OF"]
    assert len({each.process for each in tasks}) == 1, "the tasks had several workers"
    assert [each.records for each in tasks] == [2, 2, 2]
    first, *later = tasks
    assert 0 < first.before < first.after, "the daemon of the tests has frozen objects, and this task more"
    # The end of the first task frees some, by their reference counts.
    (frozen,) = {count for each in later for count in (each.before, each.after)}
    assert first.before < frozen <= first.after


def test_a_reader_outside_of_a_task_freezes_nothing(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may read in the driver, and plans are made there or in workers of their own."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    work = reading(cluster, topic)
    before = gc.get_freeze_count()
    (found,) = work(iter(()))
    assert found.to_pylist()[0]["records"] == 2
    assert gc.get_freeze_count() == before
