"""The streaming source: the ends of micro-batches, the content of the checkpoint, and each record once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from tests.spark.cluster import RunningCluster
from tests.spark.queries import run_to_end
from viewstamp.client import Client
from viewstamp.errors import ConfigError, TrimmedError, UnknownTopicError
from viewstamp.spark import lag
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.records import spark_schema
from viewstamp.spark.source import batch_reader
from viewstamp.spark.stream_source import StreamReader, decode_positions, encode_positions, share, stream_reader
from viewstamp.spark.trigger_delay import TriggerDelay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NewTopic = Callable[[], str]
ALL = ReadAllAvailable()


def reader(cluster: RunningCluster, topic: str, **options: object) -> StreamReader:
    """Return a reader as Spark's own process has it."""
    given = {"cluster": cluster.addresses, "topic": topic} | {name: str(value) for name, value in options.items()}
    return stream_reader(SourceOptions.parse(given, streaming=True), spark_schema())


def append(cluster: RunningCluster, topic: str, count: int, *, record_bytes: int = 10) -> None:
    cluster.run(lambda client: client.append_many(topic, [bytes(record_bytes)] * count))


def read(source: StreamReader, start: dict[str, int], end: dict[str, int]) -> list[tuple[str, int]]:
    """Return (topic, position) of all records of a micro-batch."""
    batches = [batch for part in source.partitions(start, end) for batch in source.read(part)]
    return [(row["topic"], row["position"]) for batch in batches for row in batch.to_pylist()]


def ends_of(source: StreamReader, topic: str, limit: ReadLimit) -> list[int]:
    """Return the positions at which micro-batches end, until no record is left."""
    at = source.initialOffset()
    ends = []
    while (following := source.latestOffset(at, limit)) != at:
        ends.append(following[topic])
        at = following
    return ends


# Micro-batches.


def test_new_query_begins_at_the_position_of_the_options(cluster: RunningCluster, new_topic: NewTopic) -> None:
    """Its first micro-batch has the present records."""
    one, other = sorted([new_topic(), new_topic()])
    append(cluster, one, 5)
    append(cluster, other, 5)
    bounds = json.dumps({one: 4, other: "latest"})
    source = reader(cluster, f"{other},{one}", startingPosition=bounds)
    start = source.initialOffset()
    assert json.dumps(start) == json.dumps({"v": 1, one: 4, other: 6})
    append(cluster, other, 1)
    end = source.latestOffset(start, source.getDefaultReadLimit())
    assert end == {"v": 1, one: 6, other: 7}
    assert source.reportLatestOffset() == end
    assert read(source, start, end) == [(one, 4), (one, 5), (other, 6)]
    assert source.latestOffset(end, ALL) == end
    assert source.partitions(end, end) == []


def test_the_same_positions_give_the_same_records_again(cluster: RunningCluster, topic: str) -> None:
    """A failed micro-batch is read again by another process, when more records have been appended."""
    append(cluster, topic, 10)
    source = reader(cluster, topic)
    start, end = source.initialOffset(), source.latestOffset(source.initialOffset(), ReadMaxRows(7))
    first = read(source, start, end)
    append(cluster, topic, 10)
    assert read(reader(cluster, topic), start, end) == first == [(topic, position) for position in range(1, 8)]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxRecordsPerTrigger": 7}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": 1000}, ReadMaxBytes(1000)),
        ({"maxRecordsPerTrigger": 7, "maxBytesPerTrigger": 1000}, ReadMaxRows(7)),
    ],
)
def test_spark_is_told_the_limit_of_the_options(options: dict[str, int], limit: ReadLimit) -> None:
    """Spark accepts one limit for each source; of two it gets the first."""
    given = {"cluster": "127.0.0.1:1", "topic": "t"} | {name: str(value) for name, value in options.items()}
    assert stream_reader(SourceOptions.parse(given, streaming=True), spark_schema()).getDefaultReadLimit() == limit


def test_record_limit_is_exact(cluster: RunningCluster, topic: str) -> None:
    """Spark's request for all records overrides the options, as its interface requires."""
    append(cluster, topic, 20)
    source = reader(cluster, topic, maxRecordsPerTrigger=7)
    assert ends_of(source, topic, source.getDefaultReadLimit()) == [8, 15, 21]
    assert ends_of(source, topic, ALL) == [21]


def test_byte_limit_is_approximate(cluster: RunningCluster, topic: str) -> None:
    """It uses the sparse map, so it is not exact to the record; also if records became much smaller than their mean."""

    async def fill(client: Client) -> None:
        await client.append_many(topic, [bytes(100_000)] * 40)
        for _ in range(8):
            await client.append_many(topic, [bytes(10)] * 1000)

    cluster.run(fill)
    source = reader(cluster, topic, maxBytesPerTrigger=30_000)
    ends = ends_of(source, topic, source.getDefaultReadLimit())
    assert ends[-1] == 8041
    large = [end for end in ends if end <= 41]
    assert len(large) >= 35, "one record is more than the limit, and is read all the same"
    assert 3 <= len(ends) - len(large) <= 8


def test_both_limits_hold_where_both_are_set(cluster: RunningCluster, topic: str) -> None:
    """The limit that is reached first ends the micro-batch."""
    for _ in range(20):
        append(cluster, topic, 100, record_bytes=1000)
    few = reader(cluster, topic, maxRecordsPerTrigger=50, maxBytesPerTrigger=10_000_000)
    assert ends_of(few, topic, few.getDefaultReadLimit())[:2] == [51, 101]
    light = reader(cluster, topic, maxRecordsPerTrigger=1_000_000, maxBytesPerTrigger=200_000)
    assert 8 <= len(ends_of(light, topic, light.getDefaultReadLimit())) <= 13


def test_a_limit_is_shared_by_what_waits() -> None:
    """All of it is used, so a small backlog does not slow down a large one."""
    assert share(100, {"a": 10, "b": 10}) == {"a": 10, "b": 10}
    assert share(100, {"a": 1000, "b": 3000}) == {"a": 25, "b": 75}
    assert share(1, {"a": 5, "b": 5}) == {"a": 1, "b": 0}
    assert share(7, {"a": 0, "b": 1000, "c": 1000}) == {"a": 0, "b": 4, "c": 3}
    assert share(7, {}) == {}


def test_available_now_ends_at_the_records_that_were_there_at_its_start(cluster: RunningCluster, topic: str) -> None:
    """Records that are appended meanwhile are for the next run."""
    append(cluster, topic, 10)
    source = reader(cluster, topic)
    source.prepareForTriggerAvailableNow()
    append(cluster, topic, 10)
    assert ends_of(source, topic, ReadMaxRows(7)) == [8, 11]
    late = {"v": 1, topic: 15}
    assert source.latestOffset(late, ALL) == late, "a checkpoint may be further; it never goes back"


# The content of the checkpoint.


def test_positions_are_written_in_one_way() -> None:
    """Spark compares them as text. A topic may have the name of the version key."""
    positions = {"b": 2, "v": 7, "a": 1}
    assert json.dumps(encode_positions(positions)) == '{"v": 1, "a": 1, "b": 2, "/v": 7}'
    assert decode_positions(encode_positions(positions)) == positions


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"v": 2, "a": 1}, "version 2"),
        ({"a": 1}, "version None"),
        ({"v": 1, "a": "1"}, "not positions of topics"),
        ({"v": 1, "a": 0}, "not positions of topics"),
        ({"v": 1, "a": True}, "not positions of topics"),
        ({"v": 1, "a": {"0": 1}}, "not positions of topics"),
        ([1], "not positions of topics"),
        (None, "not positions of topics"),
    ],
)
def test_positions_of_another_release_or_source_are_rejected(stored: object, message: str) -> None:
    """A guess would lose records."""
    with pytest.raises(ConfigError, match=message):
        decode_positions(stored)


def test_a_topic_that_is_named_later_begins_before_it_is_read(cluster: RunningCluster, new_topic: NewTopic) -> None:
    """The checkpoint has its start before any of its records is read, so that a restart begins at the same place."""
    old, new = new_topic(), new_topic()
    append(cluster, old, 3)
    append(cluster, new, 3)
    source = reader(cluster, f"{old},{new}", startingPosition="latest")
    start = {"v": 1, old: 2}
    end = source.latestOffset(start, ALL)
    assert end == encode_positions({old: 4, new: 4})
    append(cluster, new, 2)
    assert read(source, start, end) == [(old, 2), (old, 3)]
    following = source.latestOffset(end, ALL)
    assert read(source, end, following) == [(new, 4), (new, 5)]


def test_available_now_ends_with_a_topic_that_is_named_later(cluster: RunningCluster, new_topic: NewTopic) -> None:
    """It takes two micro-batches: one to begin the topic, one to read it."""
    old, new = new_topic(), new_topic()
    append(cluster, new, 3)
    source = reader(cluster, f"{old},{new}")
    source.prepareForTriggerAvailableNow()
    begun = source.latestOffset({"v": 1, old: 1}, ALL)
    assert begun == encode_positions({old: 1, new: 1})
    read_all = source.latestOffset(begun, ALL)
    assert read_all == encode_positions({old: 1, new: 4})
    assert source.latestOffset(read_all, ALL) == read_all


def matching(cluster: RunningCluster, pattern: str, **options: object) -> StreamReader:
    given = {"cluster": cluster.addresses, "topicPattern": pattern} | {k: str(v) for k, v in options.items()}
    return stream_reader(SourceOptions.parse(given, streaming=True), spark_schema())


def test_a_topic_that_is_found_later_is_read_from_its_first_record(
    cluster: RunningCluster, new_topic: NewTopic
) -> None:
    """Also if the query began at the latest records, because the topic has records before it is found."""
    first = new_topic()
    append(cluster, first, 2)
    source = matching(cluster, f"{first}(-late.*)?", startingPosition="latest")
    start = source.initialOffset()
    assert start == {"v": 1, first: 3}
    for name in (f"{first}-late", f"other-{first}-late"):
        cluster.create_topic(name)
        append(cluster, name, 3)
    found = source.latestOffset(start, ALL)
    assert found == {"v": 1, first: 3, f"{first}-late": 1}
    assert source.partitions(start, found) == []
    end = source.latestOffset(found, ALL)
    assert read(source, found, end) == [(f"{first}-late", position) for position in (1, 2, 3)]
    ending = matching(cluster, f"{first}.*")
    ending.prepareForTriggerAvailableNow()
    cluster.create_topic(f"{first}-too-late")
    assert ending.latestOffset(end, ALL) == end


def test_a_batch_query_reads_the_topics_that_match(cluster: RunningCluster, new_topic: NewTopic) -> None:
    topics = sorted([new_topic(), new_topic()])
    for topic in topics:
        append(cluster, topic, 2)
    given = {"cluster": cluster.addresses, "subscribePattern": "|".join(topics), "startingPosition": "2"}
    source = batch_reader(SourceOptions.parse(given, streaming=False), spark_schema())
    assert [(part.topic, part.start, part.end) for part in source.partitions()] == [  # type: ignore[attr-defined]
        (topic, 2, 3) for topic in topics
    ]
    with pytest.raises(UnknownTopicError, match=r"no topic matches topicPattern 'no\.such'"):
        matching(cluster, "no.such").initialOffset()


def test_a_micro_batch_waits_for_records_until_the_delay_is_over(cluster: RunningCluster, topic: str) -> None:
    append(cluster, topic, 2)
    options = {"minRecordsPerTrigger": 3, "maxTriggerDelay": "1d"}
    source = reader(cluster, topic, **options)
    start = source.initialOffset()
    assert source.latestOffset(start, ALL) == start
    assert source.latestOffset(start, ALL) == start
    append(cluster, topic, 1)
    assert source.latestOffset(start, ALL) == {"v": 1, topic: 4}
    at_once = reader(cluster, topic, minRecordsPerTrigger=9, maxTriggerDelay="0")
    assert at_once.latestOffset(start, ALL) == {"v": 1, topic: 4}
    ending = reader(cluster, topic, minRecordsPerTrigger=9)
    ending.prepareForTriggerAvailableNow()
    assert ending.latestOffset(start, ALL) == {"v": 1, topic: 4}


def test_the_delay_begins_with_the_first_record_that_waits() -> None:
    delay = TriggerDelay(5, 60.0)
    assert not delay.holds(0, 0.0)
    assert delay.holds(1, 100.0)
    assert delay.holds(4, 159.0)
    assert not delay.holds(4, 160.0)
    assert delay.holds(4, 161.0)
    assert not delay.holds(5, 162.0)
    assert delay.holds(1, 1000.0)
    assert not TriggerDelay(None, 60.0).holds(1, 0.0)


def test_topic_that_is_not_named_any_more_keeps_its_position(cluster: RunningCluster, new_topic: NewTopic) -> None:
    """It is not read; but a micro-batch that was planned before is run again as planned."""
    kept, dropped = new_topic(), new_topic()
    append(cluster, kept, 3)
    append(cluster, dropped, 3)
    source = reader(cluster, kept)
    start = encode_positions({kept: 1, dropped: 2})
    assert source.latestOffset(start, ALL) == encode_positions({kept: 4, dropped: 2})
    planned = encode_positions({kept: 2, dropped: 4})
    assert sorted(read(source, start, planned)) == sorted([(kept, 1), (dropped, 2), (dropped, 3)])


# Records that were trimmed.


def test_trimmed_positions_fail_unless_that_is_no_matter(
    cluster: RunningCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The error names the topic, the wanted and the first retained position; skipping them is logged as a warning."""
    append(cluster, topic, 10)
    cluster.run(lambda client: client.trim_topic(topic, 6))
    start, end = {"v": 1, topic: 3}, {"v": 1, topic: 9}
    strict = reader(cluster, topic)
    for ask in (lambda: strict.latestOffset(start, ALL), lambda: strict.partitions(start, end)):
        with pytest.raises(TrimmedError, match=f"position 3 of topic {topic} .* retained position is 6") as raised:
            ask()
        assert "failOnDataLoss=false" in raised.value.__notes__[0]
    lax = reader(cluster, topic, failOnDataLoss=False)
    with caplog.at_level(logging.WARNING):
        assert lax.latestOffset(start, ReadMaxRows(2)) == {"v": 1, topic: 8}
    assert "3 records are skipped" in caplog.text
    assert read(lax, start, end) == [(topic, 6), (topic, 7), (topic, 8)]
    cluster.run(lambda client: client.trim_topic(topic, 11))
    assert read(lax, start, end) == []


def test_a_checkpoint_of_another_cluster_is_refused(cluster: RunningCluster, topic: str) -> None:
    """A topic that never reached that position is not the one that was read; waiting for it would lose records."""
    append(cluster, topic, 3)
    source = reader(cluster, topic, failOnDataLoss=False)
    with pytest.raises(ConfigError, match=f"position 9 of topic {topic}, whose last one is 3"):
        source.latestOffset({"v": 1, topic: 9}, ALL)
    with pytest.raises(ConfigError, match=f"position 9 of topic {topic}"):
        source.partitions({"v": 1, topic: 2}, {"v": 1, topic: 9})


def test_an_unknown_topic_is_named(cluster: RunningCluster) -> None:
    """It fails before the first micro-batch."""
    with pytest.raises(UnknownTopicError, match="nowhere"):
        reader(cluster, "nowhere").initialOffset()


# Through Spark itself.


class Collected:
    """The content of each micro-batch of a query, by its number: (topic, position), in order."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[str, int]]] = {}
        self.lags: list[dict[str, int]] = []

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.batches[batch] = sorted((row.topic, row.position) for row in rows.collect())


def run(spark: SparkSession, cluster: RunningCluster, topic: str, checkpoint: Path, **options: object) -> Collected:
    """Run a query over the present records; return its micro-batches."""
    rows = spark.readStream.format("viewstamp").option("cluster", cluster.addresses).option("topic", topic)
    rows = rows.options(**{name: str(value) for name, value in options.items()})
    collected = Collected()
    writer: Any = rows.load().select("topic", "position").writeStream.foreachBatch(collected)
    query = run_to_end(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start)
    collected.lags = [lag(progress) for progress in query.recentProgress if progress["numInputRows"]]
    return collected


@pytest.mark.slow
def test_query_continues_from_its_checkpoint(
    spark: SparkSession, cluster: RunningCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Each record comes once over all runs, in micro-batches within the limit; also those of a topic named later."""
    topic, other = new_topic(), new_topic()
    append(cluster, topic, 20)
    limit = {"maxRecordsPerTrigger": 7}
    collected = run(spark, cluster, topic, tmp_path, **limit)
    assert collected.lags == [{topic: 13}, {topic: 6}, {topic: 0}]
    first = collected.batches
    assert {batch: len(rows) for batch, rows in first.items()} == {0: 7, 1: 7, 2: 6}
    append(cluster, topic, 10)
    append(cluster, other, 2)
    second = run(spark, cluster, f"{topic},{other}", tmp_path, **limit, startingPosition="earliest").batches
    read = [row for batch in (first | second).values() for row in batch]
    assert sorted(read) == sorted([*((topic, n) for n in range(1, 31)), (other, 1), (other, 2)])
    assert len(read) == len(set(read))
    assert run(spark, cluster, f"{topic},{other}", tmp_path, **limit).batches == {}
    written = (tmp_path / "offsets" / "1").read_text().splitlines()[-1]
    assert written == json.dumps({"v": 1, topic: 15})


@pytest.mark.slow
def test_a_query_whose_positions_were_trimmed_fails_with_the_remedy(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    """The remedy is in the exception of the query, which the user sees."""
    append(cluster, topic, 5)
    run(spark, cluster, topic, tmp_path)
    append(cluster, topic, 5)
    cluster.run(lambda client: client.trim_topic(topic, 8))
    with pytest.raises(
        Exception, match=f"(?s)position 6 of topic {topic} .* retained position is 8.*failOnDataLoss=false"
    ):
        run(spark, cluster, topic, tmp_path)
    assert run(spark, cluster, topic, tmp_path, failOnDataLoss="false").batches == {1: [(topic, n) for n in (8, 9, 10)]}
