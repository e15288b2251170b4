"""The batch source: its records, positions and pieces; most tests call it as the driver and a task do."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # the usual name
from pyspark.sql.datasource import GreaterThanOrEqual, InputPartition, LessThan

from tests.spark.cluster import RunningCluster, running_cluster
from viewstamp.client import Client
from viewstamp.errors import ConfigError, PeerError, TrimmedError, UnknownTopicError
from viewstamp.spark import ranges, source
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.ranges import describe
from viewstamp.spark.records import spark_schema
from viewstamp.spark.source import FilteringBatchReader, batch_reader, read_range
from viewstamp.spark.topic_range import TopicRange
from viewstamp.wire.batch import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NewTopic = Callable[[], str]


def load(spark: SparkSession, cluster: RunningCluster, topic: str, **options: object) -> DataFrame:
    """Return the rows of topics, as Spark reads them."""
    reader = spark.read.format("viewstamp").option("cluster", cluster.addresses).option("topic", topic)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def parse(cluster: RunningCluster, topic: str, **options: object) -> SourceOptions:
    given = {"cluster": cluster.addresses, "topic": topic} | {name: str(value) for name, value in options.items()}
    return SourceOptions.parse(given, streaming=False)


def read(cluster: RunningCluster, topic: str, **options: object) -> list[tuple[str, int]]:
    """Return (topic, position) of all records of a reader, read in this process without Spark's processes."""
    reader = batch_reader(parse(cluster, topic, **options), spark_schema())
    batches = itertools.chain.from_iterable(map(reader.read, reader.partitions()))
    return [(row["topic"], row["position"]) for batch in batches for row in batch.to_pylist()]


def positions(cluster: RunningCluster, topic: str, **options: object) -> list[int]:
    return [position for _, position in read(cluster, topic, **options)]


def append_each(cluster: RunningCluster, topic: str, sizes: list[int], *, record_bytes: int = 10) -> None:
    """Append one batch for each of these numbers of records."""

    async def append(client: Client) -> None:
        for size in sizes:
            await client.append_many(topic, [bytes(record_bytes)] * size)

    cluster.run(append)


def append_over_times(cluster: RunningCluster, topic: str, count: int) -> list[Record]:
    """Append batches until they have this many log times, which rise with the leader's ticks; return all records."""

    async def append(client: Client) -> None:
        times: set[int] = set()
        while len(times) < count:
            receipts = await client.append_many(topic, [bytes(10)] * 10)
            times.add(receipts[0].timestamp)

    cluster.run(append)
    return cluster.read(topic)


def commit_staged(cluster: RunningCluster, topic: str, *, attempts: int, blocks: int, records: int) -> None:
    """Commit one micro-batch of several attempts through a sink; they are staged in turns, so mixed in the log."""

    async def commit(client: Client) -> None:
        sink = client.sink(f"sink of {topic}", owner="test")
        begun: list[Any] = [await sink.begin(0, f"attempt {number}") for number in range(attempts)]
        for block in range(blocks):
            for number, attempt in enumerate(begun):
                values = [f"{number}.{block}.{record}".encode() for record in range(records)]
                await attempt.stage_records(topic, values)
                await client.append(topic, b"between")
        await sink.commit(0, [await attempt.seal() for attempt in begun])

    cluster.run(commit)


# Through Spark itself.


@pytest.mark.slow
def test_spark_reads_each_record_with_all_that_it_has(spark: SparkSession, cluster: RunningCluster, topic: str) -> None:
    """The rows are equal to the client's, column by column, nulls included."""
    headers = [None, {"a": b"1", "b": b""}, None]
    cluster.run(lambda c: c.append_many(topic, [b"x", b"", b"zz"], keys=[b"k", None, b""], headers=headers))
    cluster.append(topic, [b"alone"])
    rows = load(spark, cluster, topic).orderBy("position").select("*", F.unix_micros("timestamp").alias("us")).collect()
    found = [(r.position, r.term, r["index"], r.us, r.value, r.key, r.headers) for r in rows]
    assert found == [tuple(record) for record in cluster.read(topic)]
    assert {row.topic for row in rows} == {topic}
    assert rows[0].__fields__[:-1] == ["topic", "position", "term", "index", "timestamp", "key", "value", "headers"]


@pytest.mark.slow
def test_columns_narrow_what_spark_gets(spark: SparkSession, cluster: RunningCluster, topic: str) -> None:
    """Spark asks sources in Python for all columns of every query, so only the option reduces them."""
    cluster.append(topic, [b"a", b"b"])
    frame = load(spark, cluster, topic, columns="value,position")
    assert frame.schema == spark_schema(("value", "position"))
    assert [tuple(row) for row in frame.orderBy("position").collect()] == [(b"a", 1), (b"b", 2)]


@pytest.mark.slow
def test_an_empty_topic_is_no_rows(spark: SparkSession, cluster: RunningCluster, topic: str) -> None:
    """If this source has no partition, Spark makes one of its own."""
    assert load(spark, cluster, topic).collect() == []


@pytest.mark.slow
def test_pushed_filters_cut_what_is_read(spark: SparkSession, cluster: RunningCluster, new_topic: NewTopic) -> None:
    """Spark counts the rows that come from Python: rows outside of the range are never sent."""
    wanted, other = new_topic(), new_topic()
    records = append_over_times(cluster, wanted, 3)
    append_each(cluster, other, [100])
    time, end = records[-1].timestamp, len(records) - 2
    condition = (
        f"topic = '{wanted}' and position > 5 and position <= {end} and length(value) > 1"
        f" and timestamp >= timestamp_micros({time})"
    )
    expected = [record.position for record in records if record.timestamp >= time and record.position <= end]
    for push_filters, received in ((True, len(expected)), (False, len(records) + 100)):
        frame = load(spark, cluster, f"{wanted},{other}", pushFilters=push_filters).where(condition)
        assert sorted(row.position for row in frame.collect()) == expected
        assert rows_from_python(frame) == received


def rows_from_python(frame: DataFrame) -> int:
    """Return how many rows the workers gave to the scan of an executed query."""
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    return int(leaf.metrics().apply("numOutputRows").value())


@pytest.mark.slow
def test_an_unknown_topic_fails_on_the_driver(spark: SparkSession, cluster: RunningCluster) -> None:
    """It fails while the query is planned, so that no task is started."""
    spark.sparkContext.setJobGroup("unknown topic", "")
    with pytest.raises(Exception, match=r"no topic is named 'nowhere'"):
        load(spark, cluster, "nowhere").collect()
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("unknown topic")) == []


# Which positions.


def test_a_range_of_positions_is_half_open(cluster: RunningCluster, topic: str) -> None:
    """This holds also if the range begins and ends within batches."""
    append_each(cluster, topic, [5, 5])
    assert positions(cluster, topic) == list(range(1, 11))
    assert positions(cluster, topic, startingPosition=3, endingPosition=9) == list(range(3, 9))
    assert positions(cluster, topic, startingPosition="latest") == []
    assert positions(cluster, topic, startingPosition=11) == []
    assert positions(cluster, topic, endingPosition="earliest") == []


def test_several_topics_have_bounds_of_their_own(cluster: RunningCluster, new_topic: NewTopic) -> None:
    """They are read in the order in which they are named."""
    one, other = new_topic(), new_topic()
    append_each(cluster, one, [3])
    append_each(cluster, other, [3])
    start = f'{{"{one}": 3, "{other}": 2}}'
    assert read(cluster, f"{other},{one}", startingPosition=start) == [(other, 2), (other, 3), (one, 3)]


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_a_position_that_does_not_exist_yet_is_an_error(cluster: RunningCluster, topic: str, option: str) -> None:
    """Otherwise the user could take an incomplete result for a complete one."""
    append_each(cluster, topic, [3])
    with pytest.raises(ConfigError, match=f"{option} is 5, but the last position of topic {topic} is 3"):
        positions(cluster, topic, **{option: 5})


def test_a_starting_timestamp_is_exact(cluster: RunningCluster, topic: str) -> None:
    """The nodes know times roughly, but the read begins with the first record of that time or later."""
    records = append_over_times(cluster, topic, 5)
    times = sorted({record.timestamp for record in records})
    for time in (times[0] - 1, times[0], times[3], times[3] + 1, times[-1], times[-1] + 1):
        expected = [record.position for record in records if record.timestamp >= time]
        assert positions(cluster, topic, startingTimestamp=time) == expected


def test_an_ending_timestamp_is_exact_and_pushed_times_cut_it(cluster: RunningCluster, topic: str) -> None:
    """It is the first log time that is not read, as endingPosition is the first position."""
    records = append_over_times(cluster, topic, 5)
    times = sorted({record.timestamp for record in records})
    for time in (times[0], times[0] + 1, times[3], times[3] + 1, times[-1] + 1):
        expected = [record.position for record in records if record.timestamp < time]
        assert positions(cluster, topic, endingTimestamp=time) == expected
        assert positions(cluster, topic, endingTimestamp=time, startingPosition=3) == [at for at in expected if at >= 3]
    reader = batch_reader(parse(cluster, topic, pushFilters=True, endingTimestamp=times[3]), spark_schema())
    assert isinstance(reader, FilteringBatchReader)
    low = pa.scalar(times[1], pa.timestamp("us", tz="UTC")).as_py()
    assert list(reader.pushFilters([GreaterThanOrEqual(("timestamp",), low)])) == []
    covered = [position for part in reader.partitions() for position in range(part.start, part.end)]
    assert covered == [record.position for record in records if times[1] <= record.timestamp < times[3]]


def test_pushed_times_are_exact_and_both_ends_cut(cluster: RunningCluster, topic: str) -> None:
    """Spark does not apply a pushed comparison again."""
    records = append_over_times(cluster, topic, 4)
    _, low, _, high = sorted({record.timestamp for record in records})
    reader = batch_reader(parse(cluster, topic, pushFilters=True), spark_schema())
    assert isinstance(reader, FilteringBatchReader)
    times = [pa.scalar(time, pa.timestamp("us", tz="UTC")).as_py() for time in (low, high)]
    rest = reader.pushFilters([GreaterThanOrEqual(("timestamp",), times[0]), LessThan(("timestamp",), times[1])])
    assert list(rest) == []
    covered = [position for part in reader.partitions() for position in range(part.start, part.end)]
    assert covered == [record.position for record in records if low <= record.timestamp < high]


def test_only_who_asks_gets_a_reader_that_pushes_filters(cluster: RunningCluster, topic: str) -> None:
    """Spark rejects a reader that can push filters unless its own setting allows it."""
    assert not isinstance(batch_reader(parse(cluster, topic), spark_schema()), FilteringBatchReader)


# In which pieces.


def test_pieces_follow_the_bytes_and_cover_the_range(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are contiguous, about equally large, and their number grows with the bytes."""
    append_each(cluster, topic, [100] * 12, record_bytes=1000)
    monkeypatch.setattr(ranges, "_TASK_BYTES_MIN", 100_000)
    monkeypatch.setattr(ranges, "_TASK_BYTES_MAX", 100_000)
    parts = batch_reader(parse(cluster, topic, startingPosition=150), spark_schema()).partitions()
    assert [part.start for part in parts] == [150, *(part.end for part in parts[:-1])]
    assert parts[-1].end == 1201
    assert 9 <= len(parts) <= 13
    assert all(50 <= part.end - part.start <= 150 for part in parts)


def test_a_small_range_is_one_piece(cluster: RunningCluster, topic: str) -> None:
    """Each task costs Spark more than the reading of a megabyte."""
    append_each(cluster, topic, [1000] * 3, record_bytes=300)
    [part] = batch_reader(parse(cluster, topic), spark_schema()).partitions()
    assert part == TopicRange(topic, 1, 3001)


def test_a_query_asks_for_more_partitions(cluster: RunningCluster, topic: str) -> None:
    """The driver plans by its own cores, because it does not know the executors'. minPartitions raises the number."""
    append_each(cluster, topic, [1000] * 3, record_bytes=300)
    parts = batch_reader(parse(cluster, topic, minPartitions=100), spark_schema()).partitions()
    assert len(parts) == 100
    assert [part.start for part in parts] == [1, *(part.end for part in parts[:-1])]
    assert parts[-1].end == 3001
    assert {part.end - part.start for part in parts} == {30}
    parts = batch_reader(parse(cluster, topic, maxRecordsPerPartition=1000), spark_schema()).partitions()
    assert [(part.start, part.end) for part in parts] == [(1, 1001), (1001, 2001), (2001, 3001)]


def test_a_gigabyte_is_cut_for_more_cores_than_the_drivers(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test uses a thousandth of the limits for a thousandth of the bytes."""
    append_each(cluster, topic, [100] * 10, record_bytes=1000)
    monkeypatch.setattr(ranges, "_TASK_BYTES_MIN", ranges._TASK_BYTES_MIN // 1000)
    monkeypatch.setattr(ranges, "_TASK_BYTES_MAX", ranges._TASK_BYTES_MAX // 1000)
    monkeypatch.setattr(ranges.os, "cpu_count", lambda: 2)
    assert len(batch_reader(parse(cluster, topic), spark_schema()).partitions()) >= 15


@pytest.mark.parametrize(
    ("sizes", "at_least", "records_max", "expected"),
    [
        ([10], 1, None, [10]),
        ([10], 3, None, [3, 3, 4]),
        ([10, 2], 3, None, [5, 5, 2]),
        ([10, 2], 100, None, [1] * 12),
        ([10, 2], 1, 4, [3, 3, 4, 2]),
        ([], 5, 5, []),
    ],
)
def test_pieces_are_cut_by_records(
    sizes: list[int], at_least: int, records_max: int | None, expected: list[int]
) -> None:
    ends = list(itertools.accumulate(sizes, initial=1))
    pieces = [TopicRange("t", start, end) for start, end in itertools.pairwise(ends)]
    parts = ranges.cut(pieces, at_least, records_max)
    assert [part.end - part.start for part in parts] == expected
    assert [part.start for part in parts] == list(itertools.accumulate(expected, initial=1))[:-1]


def test_more_partitions_than_spark_can_plan_are_refused() -> None:
    with pytest.raises(ConfigError, match="makes 1,000,000 partitions") as raised:
        ranges.cut([TopicRange("t", 1, 1_000_001)], 1, 1)
    assert raised.value.remedy == "write at least 11"


def test_small_batches_come_to_spark_joined(cluster: RunningCluster, topic: str) -> None:
    """Each batch has the same fixed cost in Spark. Large ones pass without a copy."""
    append_each(cluster, topic, [1] * 50)
    assert [batch.num_rows for batch in read_range(parse(cluster, topic), TopicRange(topic, 1, 51))] == [50]
    append_each(cluster, topic, [500, 500], record_bytes=400)
    large = read_range(parse(cluster, topic), TopicRange(topic, 51, 1051))
    assert [batch.num_rows for batch in large] == [500, 500]


def test_a_partition_without_a_range_is_empty(cluster: RunningCluster, topic: str) -> None:
    """If this source plans no partition, Spark calls the reader once, with a partition of its own."""
    assert list(batch_reader(parse(cluster, topic), spark_schema()).read(InputPartition(None))) == []


# Records that sinks committed.


def test_a_committed_micro_batch_is_read_in_the_order_of_its_positions(cluster: RunningCluster, topic: str) -> None:
    """Its blocks are mixed with others in the log before other records; the positions are those of the COMMIT."""
    commit_staged(cluster, topic, attempts=3, blocks=4, records=5)
    between = 12
    committed = [f"{a}.{b}.{r}".encode() for a in range(3) for b in range(4) for r in range(5)]
    expected = [b"between"] * between + committed
    options = parse(cluster, topic, columns="position,value")
    for start in (1, between + 1, between + 3, between + 23, between + 60):
        for end in (between + 24, between + 61):
            rows = [row for batch in read_range(options, TopicRange(topic, start, end)) for row in batch.to_pylist()]
            assert [row["position"] for row in rows] == list(range(start, end))
            assert [row["value"] for row in rows] == expected[start - 1 : end - 1]


def test_the_ends_of_several_topics_are_of_one_moment(cluster: RunningCluster, new_topic: NewTopic) -> None:
    """Each commit adds one record to both topics, so no answer shows a commit in one topic and not in the other."""
    one, other = new_topic(), new_topic()

    async def race(client: Client) -> list[tuple[int, int]]:
        sink = client.sink(f"sink of {one}", owner="test")

        async def commit() -> None:
            for number in range(12):
                attempt: Any = await sink.begin(number)
                await attempt.stage_records(one, [b"x"])
                await attempt.stage_records(other, [b"x"])
                await sink.commit(number, [await attempt.seal()])

        committing = asyncio.create_task(commit())
        seen = []
        while not committing.done():
            found = await describe(client, [one, other])
            seen.append((found[one].last_position, found[other].last_position))
        await committing
        return seen

    seen = cluster.run(race)
    assert len(set(seen)) > 3, "the race was none"
    assert all(first == last for first, last in seen)


# Records that were trimmed.


def test_a_trimmed_start_is_an_error_that_says_what_is_left(cluster: RunningCluster, topic: str) -> None:
    """The error names the topic, the wanted and the first retained position; the remedy is in the traceback."""
    append_each(cluster, topic, [10])
    cluster.run(lambda client: client.trim_topic(topic, 5))
    assert positions(cluster, topic) == list(range(5, 11))
    with pytest.raises(TrimmedError, match=f"position 2 of topic {topic} .* retained position is 5") as raised:
        positions(cluster, topic, startingPosition=2)
    assert "failOnDataLoss=false" in raised.value.__notes__[0]


def test_a_trimmed_start_is_skipped_with_a_warning_where_that_is_no_matter(
    cluster: RunningCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """There is always a warning."""
    append_each(cluster, topic, [10])
    cluster.run(lambda client: client.trim_topic(topic, 5))
    with caplog.at_level(logging.WARNING):
        assert positions(cluster, topic, startingPosition=2, failOnDataLoss=False) == list(range(5, 11))
    assert "3 records are skipped" in caplog.text


@pytest.mark.parametrize("fail", [True, False])
def test_what_is_trimmed_between_plan_and_task_fails_or_is_skipped(
    cluster: RunningCluster, topic: str, fail: bool
) -> None:
    """Retention also works while a query runs."""
    append_each(cluster, topic, [10])
    options = parse(cluster, topic, failOnDataLoss=fail)
    [part] = batch_reader(options, spark_schema()).partitions()
    cluster.run(lambda client: client.trim_topic(topic, 8))
    if fail:
        with pytest.raises(TrimmedError, match="position 1 of topic"):
            list(read_range(options, part))
    else:
        found = [position for batch in read_range(options, part) for position in batch["position"].to_pylist()]
        assert found == [8, 9, 10]
    cluster.run(lambda client: client.trim_topic(topic, 11))
    if not fail:
        assert list(read_range(options, part)) == []


def test_a_topic_that_ends_too_early_is_an_error(cluster: RunningCluster, topic: str) -> None:
    """The plan had more records, so fewer rows would be a silent loss."""
    append_each(cluster, topic, [10])
    with pytest.raises(PeerError, match=f"topic {topic} ends at 11, but the plan reads up to 13"):
        list(read_range(parse(cluster, topic), TopicRange(topic, 1, 13)))


def test_an_unknown_topic_is_named(cluster: RunningCluster) -> None:
    """It fails before any record is read."""
    with pytest.raises(UnknownTopicError, match="nowhere"):
        positions(cluster, "nowhere")


@pytest.mark.slow
def test_reader_continues_while_each_node_is_stopped_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node that it reads from is stopped at some time; each position still comes once, in order."""
    monkeypatch.setattr(source, "_CHUNK_BYTES", 256 * 1024)
    with running_cluster() as cluster:
        cluster.create_topic("t")
        append_each(cluster, "t", [1000] * 40, record_bytes=400)
        batches = read_range(parse(cluster, "t"), TopicRange("t", 1, 40_001))
        found: list[int] = []
        for node in ("n1", "n2", "n3"):
            take(batches, found, len(found) + 5000)
            cluster.stop(node)
            take(batches, found, len(found) + 8000)
            cluster.start(node)
        take(batches, found, 40_000)
        assert found == list(range(1, 40_001))
        assert next(batches, None) is None


def take(batches: Iterator[pa.RecordBatch], found: list[int], count: int) -> None:
    """Continue to read until this many positions were found."""
    while len(found) < count:
        found += next(batches)["position"].to_pylist()
