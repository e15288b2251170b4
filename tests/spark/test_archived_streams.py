"""Both sources over topics with streams and an archive: each record comes from the store or from the nodes, once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.archive.test_run_store import of_stream
from tests.mutants.mutants import patched
from tests.spark.cluster import RunningCluster, running_cluster
from tests.spark.test_spread import COLUMNS, batch, fill, places, rows, stream
from viewstamp.archive import run_file
from viewstamp.archive.committed_runs import RunFile
from viewstamp.client import Client
from viewstamp.client.results import SpreadRecord
from viewstamp.errors import CorruptionError, TrimmedError
from viewstamp.spark import archived, archived_streams
from viewstamp.spark.archived_streams import StreamRunRange, cut_stream
from viewstamp.spark.data_source import ViewstampDataSource
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.source import read_part
from viewstamp.spark.spread import SpreadRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)


@pytest.fixture(scope="module", name="store")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module", name="spread")
def _spread(store: Path) -> Iterator[RunningCluster]:
    """One node with two groups, and an archive in a directory."""
    with running_cluster(nodes=1, groups=2, settings={"archive.directory": str(store)}) as cluster:
        yield cluster


async def create(client: Client, topic: str) -> None:
    await client.create_spread_topic(topic, 3)
    for number in (1, 2, 3):
        await client.describe_stream(topic, number)


@pytest.fixture(name="orders")
def _orders(spread: RunningCluster) -> str:
    """A topic with 80 records in three streams: two runs of streams 1 and 2, one of stream 3, and 20 unarchived ones.

    Stream 3 has none of the last ones.
    """
    topic = f"orders-{next(_numbers)}"

    async def make(client: Client) -> None:
        await create(client, topic)
        await fill(client, topic, [1, 2, 1])
        await client.archive_spread_topic(topic)
        await fill(client, topic, [3, 2, 1])
        await client.archive_spread_topic(topic)
        await fill(client, topic, [1, 2])

    spread.run(make)
    return topic


def records(cluster: RunningCluster, topic: str) -> list[SpreadRecord]:
    async def read(client: Client) -> list[SpreadRecord]:
        return [record async for record in client.read(topic) if isinstance(record, SpreadRecord)]

    return cluster.run(read)


def by_position(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: row["position"])


def of_runs(parts: Sequence[Any]) -> list[StreamRunRange]:
    return [part for part in parts if isinstance(part, StreamRunRange)]


def file_of(store: Path, part: StreamRunRange) -> Path:
    return store / part.file.name


def test_archived_records_of_streams_are_read_from_the_store_alone(
    spread: RunningCluster, store: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = batch(spread, orders, archive=store, columns=COLUMNS)
    parts = found.partitions()
    runs = of_runs(parts)
    assert sorted((part.stream, part.first, part.last_end) for part in runs) == [
        (1, 1, 21),
        (1, 21, 31),
        (2, 1, 11),
        (2, 11, 21),
        (3, 1, 11),
    ]
    assert len({part.file.group for part in runs}) == 2
    others = [part for part in parts if part not in runs]
    assert sorted((type(part), part.stream, part.first, part.last_end) for part in others) == [
        (SpreadRange, 1, 31, 41),
        (SpreadRange, 2, 21, 31),
    ]
    plain = batch(spread, orders, columns=COLUMNS)
    assert by_position(rows(found, parts)) == by_position(rows(plain, plain.partitions()))

    def unreachable(*_: object) -> None:
        raise AssertionError("a node was asked")

    for module in ("archived", "archived_streams", "spread", "source"):
        monkeypatch.setattr(f"viewstamp.spark.{module}.blocking_client", unreachable)
    wanted = {position for part in runs for position in range(part.start, part.end)}
    assert {row["position"] for row in rows(found, runs)} <= wanted
    assert len(rows(found, runs)) == 60


def test_a_task_reads_a_piece_of_a_run_in_order(spread: RunningCluster, store: Path, orders: str) -> None:
    found = batch(spread, orders, archive=store)
    for part in found.partitions():
        positions = [row["position"] for row in rows(found, [part])]
        assert positions == sorted(positions)
        assert len(positions) == part.records
        assert all(part.start <= position < part.end for position in positions)


@pytest.mark.parametrize(
    ("start", "end"), [("earliest", "latest"), (5, 26), (31, 61), (61, 81), (60, 62), (12, 13), (81, 81), (1, 1)]
)
def test_each_position_of_a_query_is_read_once(
    spread: RunningCluster, store: Path, orders: str, start: object, end: object
) -> None:
    given = {"startingPosition": start, "endingPosition": end, "archive": store}
    expected = range(1 if start == "earliest" else start, 81 if end == "latest" else end)  # type: ignore[call-overload]
    assert places(batch(spread, orders, **given)) == list(expected)
    small = batch(spread, orders, **given, maxRecordsPerPartition=3, minPartitions=5)
    assert max((part.records for part in small.partitions()), default=0) <= 3
    assert places(small) == list(expected)


def test_records_that_are_archived_between_the_steps_of_a_plan_and_before_the_read_are_read_once(
    spread: RunningCluster, store: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are committed after the range was divided by streams, before the catalogue is read, and after the plan."""
    expected = list(range(1, 81))
    original = archived.committed_stream_runs

    async def later(client: Client, topic: str) -> Any:
        await client.archive_spread_topic(topic)
        return await original(client, topic)

    found = batch(spread, orders, archive=store)
    parts = found.partitions()
    with monkeypatch.context() as patch:
        patch.setattr(archived, "committed_stream_runs", later)
        second = batch(spread, orders, archive=store)
        second_parts = second.partitions()
    assert len(of_runs(parts)) == 5
    assert len(of_runs(second_parts)) == len(second_parts) == 7
    spread.run(lambda client: fill(client, orders, [2, 3]))
    for reader, planned in ((found, parts), (second, second_parts)):
        assert sorted(row["position"] for row in rows(reader, planned)) == expected


def test_files_are_cut_between_row_groups_at_positions_of_the_topic(tmp_path: Path) -> None:
    with patched(run_file, GROUP_RECORDS=2):
        _, run = of_stream(tmp_path)
    options = SourceOptions.parse({"cluster": "h:1", "topic": "t", "archive": str(tmp_path / "store")}, streaming=False)
    file = RunFile(run.id, "c1", run.size, run.digest.hex(), run.group)
    whole = StreamRunRange("t", 13, 25, 2, 3, 9, file)
    pieces = cut_stream(options, whole, 1)
    assert [(part.start, part.end, part.first, part.last_end) for part in pieces] == [(13, 21, 3, 5), (21, 25, 5, 9)]
    assert cut_stream(options, whole, 2) == [whole]
    found = [[row["position"] for table in read_part(options, part) for row in table.to_pylist()] for part in pieces]
    assert found == [[13, 14], [21, 22, 23, 24]]


def test_times_are_those_of_the_records_in_runs_too(spread: RunningCluster, store: Path, orders: str) -> None:
    times = sorted({record.timestamp for record in records(spread, orders)})
    middle = times[len(times) // 2]
    given = {"endingTimestamp": middle, "columns": "position,timestamp"}
    expected = places(batch(spread, orders, **given))
    assert 0 < len(expected) < 80
    assert places(batch(spread, orders, **given, archive=store)) == expected


def test_only_the_records_of_a_run_with_the_wanted_times_are_read(spread: RunningCluster, store: Path) -> None:
    topic = f"times-{next(_numbers)}"

    async def make(client: Client) -> None:
        await create(client, topic)
        while len({record.timestamp for record in await fill(client, topic, [1])}) < 3:
            pass
        await client.archive_spread_topic(topic)

    spread.run(make)
    found = batch(spread, topic, archive=store)
    [part] = found.partitions()
    times = [record.timestamp for record in records(spread, topic)]
    assert isinstance(part, StreamRunRange)
    bounds = [0, *sorted({*times, *(time + 1 for time in times)}), 1 << 63]
    for low, high in itertools.product(bounds, bounds):
        tables = archived_streams.read_stream_run(found.options, part, (low, high))
        positions = [row["position"] for table in tables for row in table.to_pylist()]
        assert positions == [at for at, time in enumerate(times, 1) if low <= time < high]


def test_the_fields_of_rows_come_from_runs_of_streams(spread: RunningCluster, store: Path) -> None:
    topic = f"payments-{next(_numbers)}"

    async def make(client: Client) -> None:
        await create(client, topic)
        await client.set_schema(topic, "id: int64, name: string?")
        for number in (1, 2):
            await client.append_rows(topic, [{"id": 10 * number + at} for at in range(10)], stream=number)
        while (await client.describe_spread_topic(topic)).next_position < 21:
            pass
        await client.archive_spread_topic(topic)

    spread.run(make)
    given = {"cluster": spread.addresses, "topic": topic, "rows": "true", "columns": "position", "archive": str(store)}
    source = ViewstampDataSource(given)
    reader: Any = source.reader(source.schema())
    parts = reader.partitions()
    assert len(of_runs(parts)) == len(parts) == 2
    assert sorted(row["id"] for row in rows(reader, parts)) == list(range(10, 30))


def test_a_run_of_a_stream_that_was_dropped_after_the_plan_is_named_or_passed(
    spread: RunningCluster, store: Path, orders: str
) -> None:
    strict, lenient = (batch(spread, orders, archive=store, failOnDataLoss=each) for each in ("true", "false"))
    parts = strict.partitions()
    before = places(strict)
    # The first runs of streams 1 and 2 are below it.
    spread.run(lambda client: client.trim_spread_topic(orders, 31))
    while any(file_of(store, part).exists() for part in of_runs(parts) if part.first == 1 and part.stream < 3):
        spread.run(lambda client: client.archive_spread_topic(orders))
    gone = [part for part in of_runs(parts) if not file_of(store, part).exists()]
    assert sorted((part.stream, part.first) for part in gone) == [(1, 1), (2, 1)]
    for part in gone:
        with pytest.raises(TrimmedError, match=f"of topic {orders} is to be read, but the first .* is 31"):
            rows(strict, [part])
    assert rows(lenient, gone) == []
    kept = [part for part in parts if part not in gone]
    assert sorted(row["position"] for row in rows(strict, kept)) == before[30:]


def test_a_file_that_is_lost_changed_or_replaced_is_an_error(spread: RunningCluster, store: Path, orders: str) -> None:
    found = batch(spread, orders, archive=store)
    parts = found.partitions()
    part, other = sorted(of_runs(parts), key=lambda each: (each.stream, each.first))[:2]
    file, data = file_of(store, part), file_of(store, part).read_bytes()
    changed = bytearray(data)
    for at in range(4, len(data) // 2):
        changed[at] ^= 1
    for damaged in (None, data[:-10], bytes(changed), file_of(store, other).read_bytes()):
        file.unlink(missing_ok=True)
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=file.name):
            rows(found, [part])
    file.write_bytes(data)
    assert len(rows(found, [part])) == 20


def test_micro_batches_read_the_runs_of_streams_and_then_the_log(
    spread: RunningCluster, store: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each position is in one of them. A restart has the same rows, whatever was archived meanwhile."""
    asked = []
    original = archived.committed_stream_runs
    monkeypatch.setattr(archived, "committed_stream_runs", lambda *given: asked.append(given[1]) or original(*given))
    given = {"archive": store, "columns": COLUMNS}
    source, at, limit = stream(spread, orders, **given), {"v": 1, orders: 5}, ReadMaxRows(19)
    planned = []
    while (end := source.latestOffset(at, limit)) != at:
        parts = source.partitions(at, end)
        planned.append((at, end, by_position(rows(source, parts))))
        at = end
    assert [row["position"] for _, _, found in planned for row in found] == list(range(5, 81))
    assert asked == [orders] * 3, "behind the archived records no catalogue is needed"
    spread.run(lambda client: client.archive_spread_topic(orders))
    restarted = stream(spread, orders, **given)
    for start, end, found in planned:
        parts = restarted.partitions(start, end)
        assert len(of_runs(parts)) == len(parts)
        assert by_position(rows(restarted, parts)) == found


def test_spark_reads_archived_streams_and_the_rest_as_one_table(
    spark: SparkSession, spread: RunningCluster, store: Path, orders: str
) -> None:
    given = {"cluster": spread.addresses, "topic": orders, "columns": COLUMNS}
    plain = spark.read.format("viewstamp").options(**given).load().orderBy("position")
    found = spark.read.format("viewstamp").options(**given, archive=str(store)).load().orderBy("position")
    assert found.schema == plain.schema
    assert found.collect() == plain.collect()
    assert found.count() == 80
