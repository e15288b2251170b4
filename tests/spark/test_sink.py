"""``format("viewstamp")`` as a sink: whole batches, each once, in the order of the rows; or an error and no record."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.cluster import RunningCluster, running_cluster
from tests.spark.jobs import finish, put_file, read_files, save, start
from viewstamp.client import SinkInfo
from viewstamp.spark.options import SinkOptions
from viewstamp.spark.sink import batch_writer

pytestmark = pytest.mark.slow


def sinks(cluster: RunningCluster) -> dict[str, SinkInfo]:
    return {sink.name: sink for sink in cluster.run(lambda client: client.list_sinks())}


def numbers(spark: SparkSession, count: int, partitions: int = 1) -> DataFrame:
    """Return the rows "0", "1", ..., in this order over all partitions."""
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) value")


def texts(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def failure(action: Callable[[], object]) -> str:
    """Return the text that a user sees when ``action`` fails."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


# Batches.


def test_a_batch_lands_whole_and_in_the_order_of_its_partitions(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    before = sinks(cluster)
    save(numbers(spark, 1000, 4), cluster.addresses, topic=topic)
    records = cluster.read(topic)
    assert [record.value for record in records] == texts(1000)
    assert [record.position for record in records] == list(range(1, 1001))
    assert len({record.timestamp for record in records}) == 1, "one commit gave all of them their positions"
    assert sinks(cluster) == before, "a sink that was made for one write is forgotten"


def test_keys_headers_and_whole_rows_arrive(spark: SparkSession, cluster: RunningCluster, topic: str) -> None:
    rows = spark.sql("select 'v' value, 'k' key, map('trace', 't') headers union all select 'w', null, null")
    save(rows.coalesce(1), cluster.addresses, topic=topic)
    save(spark.sql("select 1 id, 'LH' carrier"), cluster.addresses, topic=topic, format="json")
    first, second, third = cluster.read(topic)
    assert (first.value, first.key, first.headers) == (b"v", b"k", {"trace": b"t"})
    assert (second.value, second.key, second.headers) == (b"w", None, None)
    assert third.value == b'{"id":1,"carrier":"LH"}'


def test_a_batch_over_several_topics_becomes_visible_at_once(
    spark: SparkSession, cluster: RunningCluster, new_topic: Callable[[], str]
) -> None:
    even, odd = new_topic(), new_topic()
    rows = numbers(spark, 1000, 3).selectExpr("value", f"if(value % 2 = 0, '{even}', '{odd}') topic")
    save(rows, cluster.addresses)
    assert cluster.values(even) == texts(1000)[::2]
    assert cluster.values(odd) == texts(1000)[1::2]
    assert len({record.timestamp for name in (even, odd) for record in cluster.read(name)}) == 1


def test_what_fails_in_one_topic_leaves_nothing_in_another(
    spark: SparkSession, cluster: RunningCluster, new_topic: Callable[[], str]
) -> None:
    good = new_topic()
    rows = numbers(spark, 1000, 3).selectExpr("value", f"if(value = 999, 'nowhere', '{good}') topic")
    text = failure(lambda: save(rows, cluster.addresses))
    assert "no topic is named 'nowhere'" in text
    assert "viewstamp topic create nowhere" in text
    assert cluster.values(good) == []


def test_partitions_without_rows_stage_nothing(spark: SparkSession, cluster: RunningCluster, topic: str) -> None:
    save(
        numbers(spark, 40, 8).where("value >= 17 and value < 19"), cluster.addresses, topic=topic, txnId=f"few-{topic}"
    )
    assert cluster.values(topic) == [b"17", b"18"]


def test_a_batch_without_rows_changes_nothing(spark: SparkSession, cluster: RunningCluster, topic: str) -> None:
    before = sinks(cluster)
    save(numbers(spark, 8, 4).where("false"), cluster.addresses, topic=topic)
    assert cluster.values(topic) == []
    assert sinks(cluster) == before


def test_a_transaction_that_is_written_again_lands_once(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    name = f"2026-11-{topic}"
    save(numbers(spark, 100, 2), cluster.addresses, topic=topic, txnId=name)
    save(numbers(spark, 100, 3), cluster.addresses, topic=topic, txnId=name)
    assert cluster.values(topic) == texts(100)
    assert sinks(cluster)[name].forget_seconds == 30 * 86_400, "else 10,000 of them would fill the list for ever"
    save(numbers(spark, 100, 2), cluster.addresses, topic=topic, txnId=f"{name}-another")
    assert cluster.values(topic) == texts(100) * 2


def test_a_transaction_that_failed_can_be_written_again(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    name = f"again-{topic}"
    bad = numbers(spark, 100, 2).selectExpr("if(value = 70, null, value) value")
    failure(lambda: save(bad, cluster.addresses, topic=topic, txnId=name))
    assert cluster.values(topic) == []
    assert sinks(cluster)[name].attempts == 0, "what the tasks staged is dropped at once"
    save(numbers(spark, 100, 2), cluster.addresses, topic=topic, txnId=name)
    assert cluster.values(topic) == texts(100)


def test_a_row_that_is_no_record_is_named_and_nothing_lands(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    before = sinks(cluster)
    bad = numbers(spark, 100, 2).selectExpr("if(value = 70, null, value) value")
    text = failure(lambda: save(bad, cluster.addresses, topic=topic))
    assert f"RequestError: partition 1, row 20 (from 0), topic '{topic}': column 'value' is null" in text
    assert 'leave such rows out: .na.drop(subset=["value"])' in text
    assert cluster.values(topic) == []
    assert sinks(cluster) == before


def test_a_record_over_the_limit_is_named_and_nothing_lands(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    large = spark.range(3).coalesce(1).selectExpr("if(id = 2, repeat('x', 1500000), 'y') value")
    text = failure(lambda: save(large, cluster.addresses, topic=topic))
    assert "RecordTooLargeError: partition 0, row 2 (from 0)" in text
    assert cluster.values(topic) == []


@pytest.mark.parametrize(
    ("options", "rows", "complaint"),
    [
        ({"topic": "nowhere"}, "select 'x' value", "no topic is named 'nowhere'"),
        ({"topik": "TOPIC"}, "select 'x' value", "did you mean topic?"),
        ({"topic": "TOPIC"}, "select 1 value", "column 'value' is int"),
        ({"topic": "TOPIC"}, "select 'x' value, 2 more", "a record has no place for column 'more'"),
        ({"topic": "TOPIC", "sinkId": "s"}, "select 'x' value", "only one of sinkId and batchId"),
        ({}, "select 'x' value", "the rows have no topic"),
    ],
)
def test_what_cannot_work_fails_before_any_task(
    spark: SparkSession, cluster: RunningCluster, topic: str, options: dict[str, str], rows: str, complaint: str
) -> None:
    group = f"planning {topic}"
    spark.sparkContext.setJobGroup(group, "")
    options = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    try:
        assert complaint in failure(lambda: save(spark.sql(rows), cluster.addresses, **options))
        assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert cluster.values(topic) == []


def test_a_topic_is_never_overwritten(spark: SparkSession, cluster: RunningCluster, topic: str) -> None:
    writer = numbers(spark, 3).write.format("viewstamp").options(cluster=cluster.addresses, topic=topic)
    text = failure(lambda: writer.mode("overwrite").save())
    assert "a topic can be appended to" in text
    assert '.mode("append")' in text


@pytest.mark.parametrize(("days", "seconds"), [("0", 0), ("7", 7 * 86_400)])
def test_a_transaction_is_kept_as_long_as_the_option_says(
    spark: SparkSession, cluster: RunningCluster, topic: str, days: str, seconds: int
) -> None:
    save(numbers(spark, 1), cluster.addresses, topic=topic, txnId=f"kept-{topic}", txnKeepDays=days)
    assert sinks(cluster)[f"kept-{topic}"].forget_seconds == seconds


def test_a_write_that_fails_before_any_attempt_reports_nothing_else(
    cluster: RunningCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No task has begun an attempt, so there is no sink to forget, which is no failure."""
    options = SinkOptions(cluster=cluster.addresses, topic=topic)
    batch_writer(options, StructType([StructField("value", StringType())])).abort([])
    assert caplog.messages == []


# Streams.


def test_a_stream_lands_each_file_once_over_restarts(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    for number in range(3):
        put_file(files, number, [f"{number}-{row}" for row in range(50)])
    for last in (3, 3, 4):
        if last == 4:
            put_file(files, 3, [f"3-{row}" for row in range(50)])
        finish(query := start(read_files(spark, files), checkpoint, cluster.addresses, topic=topic))
        expected = [f"{number}-{row}".encode() for number in range(last) for row in range(50)]
        assert cluster.values(topic) == expected
    sink = sinks(cluster)[query.id]
    assert (sink.owner, sink.run, sink.batch, sink.attempts) == (query.id, query.runId, 3, 0)
    assert sink.forget_seconds == 0, "a query is remembered for ever"


def test_a_file_becomes_visible_at_once(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    for number in range(3):
        put_file(tmp_path / "files", number, [f"{number}-{row}" for row in range(50)])
    finish(start(read_files(spark, tmp_path / "files").repartition(3), tmp_path / "c", cluster.addresses, topic=topic))
    commits: dict[int, set[bytes]] = {}
    for record in cluster.read(topic):
        commits.setdefault(record.timestamp, set()).add(record.value)
    assert list(commits.values()) == [{f"{number}-{row}".encode() for row in range(50)} for number in range(3)]


def test_micro_batches_without_rows_are_passed_over(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    for number in range(3):
        put_file(tmp_path / "files", number, [str(number)])
    rows = read_files(spark, tmp_path / "files").where("value <> '1'")
    finish(start(rows, tmp_path / "checkpoint", cluster.addresses, topic=topic, sinkId=f"gaps-{topic}"))
    assert cluster.values(topic) == [b"0", b"2"]
    assert sinks(cluster)[f"gaps-{topic}"].batch == 2
    finish(start(rows, tmp_path / "checkpoint", cluster.addresses, topic=topic, sinkId=f"gaps-{topic}"))
    assert cluster.values(topic) == [b"0", b"2"]


def test_a_row_that_is_no_record_ends_a_query_and_leaves_nothing_behind(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    """If every task fails, Spark gives the driver no message, so each task deletes its own staged rows."""
    put_file(tmp_path / "files", 0, ["good"])
    put_file(tmp_path / "files", 1, ["good", None])
    name = f"null-{topic}"
    query = start(
        read_files(spark, tmp_path / "files"), tmp_path / "checkpoint", cluster.addresses, topic=topic, sinkId=name
    )
    assert f"partition 0, row 1 (from 0), topic '{topic}': column 'value' is null" in failure(lambda: finish(query))
    assert cluster.values(topic) == [b"good"]
    assert (sinks(cluster)[name].batch, sinks(cluster)[name].attempts) == (0, 0)


def test_a_sink_of_another_checkpoint_is_refused_until_it_is_reset(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    """A new checkpoint counts from 0 again, so the sink would take its first batches for repeated ones."""
    put_file(tmp_path / "files", 0, ["a", "b"])
    rows = read_files(spark, tmp_path / "files")
    name = f"nightly-{topic}"
    finish(start(rows, tmp_path / "first", cluster.addresses, topic=topic, sinkId=name))
    text = failure(lambda: finish(start(rows, tmp_path / "second", cluster.addresses, topic=topic, sinkId=name)))
    assert "FencedError" in text
    assert name in text
    assert "sinkReset" in text
    assert cluster.values(topic) == [b"a", b"b"]
    for _ in range(2):  # The option stays in a job that starts again, and must not take over again.
        finish(
            start(rows, tmp_path / "second", cluster.addresses, topic=topic, sinkId=name, sinkReset="true"),
        )
        assert cluster.values(topic) == [b"a", b"b", b"a", b"b"]
    put_file(tmp_path / "files", 1, ["c"])
    text = failure(
        lambda: finish(start(rows, tmp_path / "first", cluster.addresses, topic=topic, sinkId=name, sinkReset="true"))
    )
    assert "FencedError" in text, "who was replaced stays so: two jobs would take the sink from each other for ever"


def test_an_unknown_topic_ends_a_query_before_any_task(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    put_file(tmp_path / "files", 0, ["a"])
    query = start(read_files(spark, tmp_path / "files"), tmp_path / "checkpoint", cluster.addresses, topic="nowhere")
    assert "no topic is named 'nowhere'" in failure(lambda: finish(query))
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(query.runId)) == []


def test_a_stream_never_overwrites(spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path) -> None:
    put_file(tmp_path / "files", 0, ["a"])
    counts = read_files(spark, tmp_path / "files").groupBy("value").count().select("value")
    writer = counts.writeStream.format("viewstamp").options(cluster=cluster.addresses, topic=topic)
    writer = writer.outputMode("complete").option("checkpointLocation", str(tmp_path / "checkpoint"))
    text = failure(lambda: finish(writer.trigger(availableNow=True).start()))
    assert "a topic can be appended to" in text
    assert cluster.values(topic) == []


def test_batches_of_foreach_batch_land_once_though_the_query_fails_behind_the_write(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    for number in range(3):
        put_file(tmp_path / "files", number, [f"{number}-{row}" for row in range(20)])
    fails = True

    def write(rows: DataFrame, batch: int) -> None:
        save(rows.repartition(2), cluster.addresses, topic=topic, sinkId=f"each-{topic}", batchId=batch)
        if batch == 1 and fails:
            raise RuntimeError("the power is gone")

    writer = read_files(spark, tmp_path / "files").writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert "the power is gone" in failure(lambda: finish(writer.start()))
    assert len(cluster.values(topic)) == 40
    fails = False
    query = writer.start()
    finish(query)
    assert sorted(cluster.values(topic)) == sorted(
        f"{number}-{row}".encode() for number in range(3) for row in range(20)
    )
    sink = sinks(cluster)[f"each-{topic}"]
    assert (sink.owner, sink.run, sink.batch) == (query.id, query.runId, 2)


def test_a_full_quota_makes_a_write_wait_and_then_go_on(spark: SparkSession) -> None:
    """Staged bytes of other attempts slow a write down, but are no error."""
    with running_cluster(settings={"limits.staged_bytes_max": 12 * 2**20}) as cluster:
        cluster.create_topic("t")

        async def hog(client):  # type: ignore[no-untyped-def]
            attempt = await client.sink("hog", owner="o", run="r").begin(0)
            await attempt.stage_records("t", [b"x" * 2**19] * 20)
            await attempt.seal()
            return attempt

        attempt = cluster.run(hog)
        ended = threading.Event()

        def make_room() -> None:
            while not (sinks(cluster).get("patient") and sinks(cluster)["patient"].bytes):
                assert not ended.wait(0.02)
            assert not ended.wait(2), "there is no room for what it stages"
            assert cluster.values("t") == []
            cluster.run(lambda client: attempt.abort())

        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(make_room)
            rows = spark.range(0, 8, 1, 1).selectExpr("repeat(cast(id as string), 1000000) value")
            try:
                save(rows, cluster.addresses, topic="t", txnId="patient")
            finally:
                ended.set()
            made.result()
        assert [value[:1] for value in cluster.values("t")] == texts(8)


def test_a_batch_over_the_whole_quota_fails_and_leaves_nothing(spark: SparkSession) -> None:
    with running_cluster(settings={"limits.staged_bytes_max": 4 * 2**20}) as cluster:
        cluster.create_topic("t")
        rows = spark.range(0, 8, 1, 1).selectExpr("repeat(cast(id as string), 1000000) value")
        text = failure(lambda: save(rows, cluster.addresses, topic="t"))
        assert "write smaller batches" in text
        assert cluster.values("t") == []
        assert sinks(cluster) == {}
