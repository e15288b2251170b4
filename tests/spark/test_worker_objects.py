"""A worker freezes its objects in its first task that reads, and never again; no other process does."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from tests.spark.cluster import RunningCluster
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.records import spark_schema
from viewstamp.spark.source import batch_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = "process long, before long, after long, records long"


def reading(cluster: RunningCluster, topic: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task that reads the topic, and reports the frozen objects of its process before and after."""
    given = {"cluster": cluster.addresses, "topic": topic}
    reader = batch_reader(SourceOptions.parse(given, streaming=False), spark_schema())
    parts = reader.partitions()

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        before = gc.get_freeze_count()
        records = sum(batch.num_rows for part in parts for batch in reader.read(part))
        row = {"process": os.getpid(), "before": before, "after": gc.get_freeze_count(), "records": records}
        yield pa.RecordBatch.from_pylist([row])

    return read


@pytest.mark.slow
def test_a_worker_freezes_its_objects_in_the_first_task_that_reads(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    cluster.append(topic, [b"a", b"b"])
    read = reading(cluster, topic)
    environment = spark.sparkContext.environment
    environment["TEST_WORKERS_OF"] = topic  # Spark starts new workers for another environment.
    try:
        tasks = [spark.range(1, numPartitions=1).mapInArrow(read, COUNTS).collect()[0] for _ in range(3)]
    finally:
        del environment["TEST_WORKERS_OF"]
    assert len({task.process for task in tasks}) == 1, "the tasks had several workers"
    assert [task.records for task in tasks] == [2, 2, 2]
    first, *later = tasks
    assert 0 < first.before < first.after, "the daemon of the tests has frozen objects, and this task more"
    # The end of the first task frees some, by their reference counts.
    (frozen,) = {count for task in later for count in (task.before, task.after)}
    assert first.before < frozen <= first.after


def test_a_reader_outside_of_a_task_freezes_nothing(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may read in the driver, and plans are made there or in workers of their own."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    cluster.append(topic, [b"a"])
    before = gc.get_freeze_count()
    (found,) = reading(cluster, topic)(iter(()))
    assert found.to_pylist()[0]["records"] == 1
    assert gc.get_freeze_count() == before
