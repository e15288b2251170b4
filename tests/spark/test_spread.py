"""Topics with streams in Spark: the rows of both sources are those of a client that reads the topic."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from tests.spark.cluster import RunningCluster, running_cluster
from tests.spark.queries import run_to_end
from viewstamp.client import Client
from viewstamp.client.results import SpreadRecord
from viewstamp.errors import ConfigError, RequestError, TrimmedError, UnknownTopicError
from viewstamp.spark.data_source import ViewstampDataSource
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.records import spark_schema
from viewstamp.spark.source import FilteringBatchReader, batch_reader
from viewstamp.spark.spread import SpreadRange
from viewstamp.spark.stream_source import StreamReader
from viewstamp.wire.spreading import slot_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

ALL = ReadAllAvailable()
COLUMNS = "topic,position,stream,term,index,timestamp,key,value,headers"


@pytest.fixture(scope="module", name="spread")
def _spread() -> Iterator[RunningCluster]:
    """One node with two groups."""
    with running_cluster(nodes=1, groups=2) as cluster:
        yield cluster


_numbers = itertools.count(1)
_KEYS = [b"%d" % number for number in range(100)]


async def fill(client: Client, topic: str, streams: Sequence[int], *, size: int = 10) -> list[SpreadRecord]:
    """Append a batch of ``size`` records to each of these streams, and return all records of the topic in its order."""
    found = await client.describe_spread_topic(topic)
    before = found.next_position
    keyed = next(key for key in _KEYS if found.stream_of(slot_of(key, found.slots)) == 3)
    for stream in streams:
        values = [b"%d.%d" % (stream, each) for each in range(size)]
        headers: Any = [None, {"a": b"1"}] * (size // 2)
        keys: Any = [keyed, None] * (size // 2) if stream == 3 else None
        await client.append_many(topic, values, stream=stream, keys=keys, headers=headers)
    while (await client.describe_spread_topic(topic)).next_position < before + len(streams) * size:
        pass
    return [record async for record in client.read(topic) if isinstance(record, SpreadRecord)]


@pytest.fixture(name="orders")
def _orders(spread: RunningCluster) -> str:
    """A topic with three streams and 50 records."""
    topic = f"orders-{next(_numbers)}"

    async def create(client: Client) -> None:
        await client.create_spread_topic(topic, 3)
        for stream in (1, 2, 3):
            await client.describe_stream(topic, stream)
        await fill(client, topic, [1, 2, 1])
        await fill(client, topic, [3, 2])

    spread.run(create)
    return topic


def options(cluster: RunningCluster, topic: str, given: dict[str, object]) -> dict[str, str]:
    return {"cluster": cluster.addresses, "topic": topic} | {name: str(value) for name, value in given.items()}


def batch(cluster: RunningCluster, topic: str, **given: object) -> Any:
    return batch_reader(SourceOptions.parse(options(cluster, topic, given), streaming=False), spark_schema())


def stream(cluster: RunningCluster, topic: str, **given: object) -> StreamReader:
    return StreamReader(SourceOptions.parse(options(cluster, topic, given), streaming=True))


def rows(found: Any, parts: Sequence[Any]) -> list[dict[str, Any]]:
    return [row for part in parts for batch in found.read(part) for row in batch.to_pylist()]


def places(found: Any, *bounds: Any) -> list[int]:
    return sorted(row["position"] for row in rows(found, found.partitions(*bounds)))


def expected_rows(topic: str, records: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (topic, r.position, r.stream, r.term, r.index, datetime.fromtimestamp(r.timestamp / 1e6, UTC), *r[4:])
        for r in records
    ]


def test_each_stream_is_a_task_and_the_rows_are_those_of_a_client(spread: RunningCluster, orders: str) -> None:
    records = spread.read(orders)
    found = batch(spread, orders, columns=COLUMNS)
    parts = found.partitions()
    assert [(type(part), part.stream, part.start, part.end) for part in parts] == [
        (SpreadRange, each, 1, 51) for each in (1, 2, 3)
    ]
    got = rows(found, parts)
    for row in got:
        row["headers"] = dict(row["headers"]) if row["headers"] is not None else None
        row["timestamp"] = row["timestamp"].astimezone(UTC)
    in_order = [tuple(row.values()) for row in sorted(got, key=lambda row: row["position"])]
    assert [row[:5] for row in in_order] == [row[:5] for row in expected_rows(orders, records)]
    assert [(row[6], row[7], row[8]) for row in in_order] == [(r.key, r.value, r.headers) for r in records]
    for part in parts:
        positions = [row["position"] for row in rows(found, [part])]
        assert positions == sorted(positions), "the rows of a task are in order"
    assert [row["stream"] for row in rows(batch(spread, orders, columns="stream"), parts[1:2])] == [2] * 20


@pytest.mark.parametrize(
    ("start", "end"),
    [("earliest", "latest"), (5, 26), (1, 1), (51, 51), (50, 51), ("latest", "latest"), (30, "latest")],
)
def test_bounds_are_positions_of_the_topic(spread: RunningCluster, orders: str, start: object, end: object) -> None:
    found = batch(spread, orders, startingPosition=start, endingPosition=end)
    first = {"earliest": 1, "latest": 51}.get(str(start), start)
    last = {"latest": 51}.get(str(end), end)
    assert places(found) == list(range(first, last))  # type: ignore[call-overload]


def test_tasks_are_as_many_and_as_small_as_wanted(spread: RunningCluster, orders: str) -> None:
    found = batch(spread, orders, maxRecordsPerPartition=4)
    parts = found.partitions()
    assert max(part.last_end - part.first for part in parts) <= 4
    assert places(found) == list(range(1, 51))
    assert len(batch(spread, orders, minPartitions=20).partitions()) >= 20
    plain = f"plain-{orders}"
    spread.create_topic(plain)
    spread.append(plain, [b"x"] * 30)
    both = batch(spread, f"{plain},{orders}", minPartitions=8)
    assert len(both.partitions()) >= 8
    got = rows(both, both.partitions())
    for topic, count in ((plain, 30), (orders, 50)):
        assert sorted(row["position"] for row in got if row["topic"] == topic) == list(range(1, count + 1))


def test_a_position_that_does_not_exist_yet_and_an_unknown_topic_are_named(spread: RunningCluster, orders: str) -> None:
    with pytest.raises(ConfigError, match=f"startingPosition is 60, but the last position of topic {orders} is 50"):
        batch(spread, orders, startingPosition=60).partitions()
    with pytest.raises(UnknownTopicError, match="nowhere"):
        batch(spread, "nowhere").partitions()
    with pytest.raises(ConfigError, match=f"the checkpoint is at position 77 of topic {orders}, whose last one is 50"):
        stream(spread, orders).latestOffset({"v": 1, orders: 77}, ALL)


def test_a_stream_that_is_added_is_read_from_its_first_record_on(spread: RunningCluster, orders: str) -> None:
    source = stream(spread, orders)
    at = source.initialOffset()
    middle = source.latestOffset(at, ALL)
    assert places(source, at, middle) == list(range(1, 51))

    async def add(client: Client) -> None:
        topic = await client.add_stream(orders)
        await client.append_many(orders, [b"x"] * 5, stream=topic.streams, ordered=True)
        await client.append_many(orders, [b"y"] * 5, stream=1, ordered=True)

    spread.run(add)
    end = source.latestOffset(middle, ALL)
    assert places(source, middle, end) == list(range(51, 61))
    assert places(batch(spread, orders)) == list(range(1, 61))


def test_a_query_goes_on_when_a_stream_is_removed_and_its_rows_are_trimmed_ones(
    spread: RunningCluster, orders: str
) -> None:
    source = stream(spread, orders)
    at = source.initialOffset()
    planned = batch(spread, orders)
    (part, *_) = planned.partitions()
    assert part.stream == 1
    middle = source.latestOffset(at, ALL)

    async def remove(client: Client) -> int:
        records = [record async for record in client.read(orders) if isinstance(record, SpreadRecord)]
        behind = max(record.position for record in records if record.stream == 1) + 1
        await client.seal_stream(orders, 1)
        await client.trim_spread_topic(orders, behind)
        while 1 not in (await client.describe_spread_topic(orders)).removed_streams:
            with suppress(RequestError):  # Until it is sealed, and its group has followed.
                await client.remove_stream(orders, 1)
        await client.append_many(orders, [b"y"] * 5, stream=2, ordered=True)
        return behind

    behind = spread.run(remove)
    end = source.latestOffset(middle, ALL)
    assert places(source, middle, end) == list(range(51, 56))
    first = places(batch(spread, orders))
    assert first == list(range(behind, 56))
    assert places(batch(spread, orders, startingTimestamp=0)) == first
    with pytest.raises(TrimmedError) as caught:
        places(source, at, middle)
    assert caught.value.first == behind
    with pytest.raises(TrimmedError):
        rows(planned, [part])
    lenient = batch(spread, orders, startingPosition=1, failOnDataLoss="false")
    assert places(lenient) == first


def test_rows_of_a_topic_with_streams_are_columns_and_are_written_by_its_schema(
    spread: RunningCluster, spark: SparkSession
) -> None:
    topic = f"rows-{next(_numbers)}"

    async def create(client: Client) -> None:
        await client.create_spread_topic(topic, 3)
        await client.set_schema(topic, "id: int64, name: string?")
        for stream in (1, 2, 3):
            await client.describe_stream(topic, stream)
            await client.append_rows(topic, [{"id": stream, "name": "Ada"}], stream=stream, ordered=True)

    spread.run(create)
    source = ViewstampDataSource(options(spread, topic, {"rows": "true", "columns": "position"}))
    assert source.schema().simpleString() == "struct<position:bigint,id:bigint,name:string>"
    settings = options(spread, topic, {"rows": "true", "columns": "position,stream"})
    found = spark.read.format("viewstamp").options(**settings).load()
    rows = [(1, 1, 1, "Ada"), (2, 2, 2, "Ada"), (3, 3, 3, "Ada")]
    assert sorted(map(tuple, found.collect())) == rows
    new = spark.createDataFrame([(8,), (9,)], "id long")
    written = options(spread, topic, {"format": "rows"})
    new.write.format("viewstamp").mode("append").options(**written).save()
    assert sorted(row.id for row in found.where("position > 3").collect()) == [8, 9]
    sink = ViewstampDataSource(written)
    with pytest.raises(RequestError, match="column 'id' is string, and the field of the topic's rows is int64"):
        sink.writer(StructType().add("id", "string"), False)


def test_rows_of_a_topic_with_streams_need_a_schema(spread: RunningCluster, orders: str) -> None:
    source = ViewstampDataSource(options(spread, orders, {"rows": "true"}))
    with pytest.raises(RequestError, match=f"topic '{orders}' has no schema"):
        source.schema()


def test_a_time_is_a_position_from_which_on_all_later_records_come(spread: RunningCluster, orders: str) -> None:
    times = {record.timestamp for record in spread.read(orders)}

    async def later(client: Client) -> list[SpreadRecord]:
        topic = orders
        while True:
            records = await fill(client, topic, [2, 3])
            if min(record.timestamp for record in records[-20:]) > max(times):
                return records

    records = spread.run(later)
    since = records[-20].timestamp
    wanted = {record.position for record in records if record.timestamp >= since}
    got = places(batch(spread, orders, startingTimestamp=since))
    assert wanted <= set(got) == set(range(got[0], len(records) + 1))
    assert got[0] > 50
    never = places(batch(spread, orders, startingTimestamp=records[-1].timestamp + 10**12))
    assert never == []
    assert places(batch(spread, orders, endingTimestamp=since)) == [r.position for r in records if r.timestamp < since]
    reader = batch(spread, orders, pushFilters=True)
    assert isinstance(reader, FilteringBatchReader)
    first, last = (datetime.fromtimestamp(each / 1e6, UTC) for each in (min(times), since))
    rest = list(reader.pushFilters([GreaterThanOrEqual(("timestamp",), first), LessThan(("timestamp",), last)]))
    assert rest == []
    assert places(reader) == [r.position for r in records if min(times) <= r.timestamp < since]


def test_micro_batches_end_at_positions_of_the_topic(spread: RunningCluster, orders: str) -> None:
    """The checkpoint has one position for the topic, as for one without streams."""
    source = stream(spread, orders)
    at, read = source.initialOffset(), []
    assert json.dumps(at) == json.dumps({"v": 1, orders: 1})
    while (end := source.latestOffset(at, ReadMaxRows(7))) != at:
        found = places(source, at, end)
        assert found == list(range(at[orders], end[orders]))
        assert places(stream(spread, orders), at, end) == found, "another process reads the same"
        read += found
        at = end
    assert read == list(range(1, 51))
    spread.run(lambda client: fill(client, orders, [2]))
    end = source.latestOffset(at, ALL)
    assert places(source, at, end) == list(range(51, 61))
    assert source.reportLatestOffset() == end == {"v": 1, orders: 61}
    assert 1 < source.latestOffset({"v": 1, orders: 1}, ReadMaxBytes(100))[orders] < 30


def test_trimmed_positions_fail_unless_that_is_no_matter(
    spread: RunningCluster, orders: str, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = (batch(spread, orders, startingPosition=3, failOnDataLoss=each) for each in ("true", "false"))
    planned = strict.partitions()

    async def trim(client: Client) -> None:
        records = [record async for record in client.read(orders) if isinstance(record, SpreadRecord)]
        await client.trim_spread_topic(orders, 41)
        for stream in (1, 2, 3):
            first = 1 + sum(record.stream == stream and record.position < 41 for record in records)
            while (await client.describe_stream(orders, stream)).first_position != first:
                pass

    kept = list(range(41, 51))
    spread.run(trim)
    assert places(batch(spread, orders)) == kept
    for read in (
        strict.partitions,
        lambda: stream(spread, orders).partitions({"v": 1, orders: 3}, {"v": 1, orders: 51}),
    ):
        with pytest.raises(TrimmedError, match=f"position 3 of topic {orders} .* retained position is 41") as no:
            read()
        assert "failOnDataLoss=false" in no.value.__notes__[0]
    with pytest.raises(TrimmedError, match=f"position 3 of topic {orders}"):
        rows(strict, planned[:1])
    with caplog.at_level(logging.WARNING):
        assert places(lenient) == kept
        assert {row["position"] for row in rows(lenient, planned)} == set(kept)
    assert "records are skipped" in caplog.text


def test_each_micro_batch_is_in_all_streams_of_a_topic_once_though_the_query_is_started_again(
    spark: SparkSession, spread: RunningCluster, orders: str, tmp_path: Path
) -> None:
    """The second start runs the last batch again, as after a death between the commit and the checkpoint."""
    made = itertools.count()
    source = str(tmp_path / "in")
    schema = "key string, value string"

    def write() -> None:
        rows = [(f"{next(made)}", f"row {number}") for number in range(40)]
        spark.createDataFrame(rows, schema).coalesce(2).write.mode("append").json(source)

    def start() -> None:
        frame = spark.readStream.schema(schema).json(source)
        writer: Any = frame.writeStream.format("viewstamp").options(**options(spread, orders, {}))
        run_to_end(writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start)

    write()
    start()
    (tmp_path / "at" / "commits" / "0").unlink()
    for extra in (tmp_path / "at" / "commits").glob(".0*"):
        extra.unlink()
    start()
    write()
    start()
    records = [record for record in spread.read(orders) if isinstance(record, SpreadRecord)][50:]
    assert sorted(int(record.key or b"") for record in records) == list(range(80))
    assert {record.stream for record in records} == {1, 2, 3}
    first = {int(record.key or b"") for record in records[:40]}
    assert first == set(range(40)), "a micro-batch becomes visible at one moment, so it lies before the next one"
    frame = spark.createDataFrame([("one", b"x"), ("two", b"y")], "key string, value binary")
    frame.write.format("viewstamp").options(**options(spread, orders, {})).mode("append").save()
    assert [bytes(record.value) for record in spread.read(orders)][-2:] in ([b"x", b"y"], [b"y", b"x"])


def test_spark_reads_a_topic_with_streams_as_a_table_and_as_a_stream(
    spark: SparkSession, spread: RunningCluster, orders: str, tmp_path: Path
) -> None:
    """The stream has two micro-batches, and continues from its checkpoint."""
    given = options(spread, orders, {"columns": "topic,position,stream,value"})
    frame = spark.read.format("viewstamp").options(**given).load()
    records = [(orders, r.position, r.stream, r.value) for r in spread.read(orders) if isinstance(r, SpreadRecord)]
    assert [tuple(row) for row in frame.orderBy("position").collect()] == records
    batches: dict[int, list[int]] = {}

    def handle(found: DataFrame, number: int) -> None:
        batches[number] = sorted(row.position for row in found.collect())

    def start() -> None:
        source = spark.readStream.format("viewstamp").options(**given, maxRecordsPerTrigger="30").load()
        writer: Any = source.select("position").writeStream.foreachBatch(handle)
        run_to_end(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start)

    start()
    spread.run(lambda client: fill(client, orders, [3]))
    start()
    assert list(batches.values()) == [list(range(1, 31)), list(range(31, 51)), list(range(51, 61))]
