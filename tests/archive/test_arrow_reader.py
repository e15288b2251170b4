"""A topic as Arrow batches: archived records from the files, the others from the nodes, each position once."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from tests.archive.runs import fill_runs
from tests.spark.cluster import RunningCluster, running_cluster
from viewstamp import ArrowReader, connect, open_arrow
from viewstamp.archive import arrow_lanes
from viewstamp.archive.run_file import RunReader
from viewstamp.client import Client
from viewstamp.errors import CorruptionError, RequestError, TrimmedError, UnknownTopicError, ViewstampError

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)


@pytest.fixture(scope="module", name="store")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module", name="cluster")
def _cluster(store: Path) -> Iterator[RunningCluster]:
    """One node with two groups, and an archive in a directory."""
    with running_cluster(nodes=1, groups=2, settings={"archive.directory": str(store)}) as cluster:
        yield cluster


@pytest.fixture(name="orders")
def _orders(cluster: RunningCluster) -> str:
    """A topic with three runs of ten records each, and five records that are not archived."""
    topic = f"orders-{next(_numbers)}"

    cluster.run(lambda client: fill_runs(client, topic, 3))
    return topic


@pytest.fixture(name="parcels")
def _parcels(cluster: RunningCluster) -> str:
    """A topic with 80 records in three streams, of which the first 60 are archived; stream 3 has none of the others."""
    topic = f"parcels-{next(_numbers)}"

    async def fill(client: Client) -> None:
        await client.create_spread_topic(topic, 3)
        for end, streams in ((31, [1, 2, 1]), (61, [3, 2, 1]), (81, [1, 2])):
            for stream in streams:
                await client.append_many(topic, [b"%d" % at for at in range(10)], stream=stream)
            while (await client.describe_spread_topic(topic)).next_position < end:
                pass
            if end < 81:
                await client.archive_spread_topic(topic)

    cluster.run(fill)
    return topic


def read(cluster: RunningCluster, topic: str, **options: Any) -> Any:
    """Return the reader and its table."""

    async def read(client: Client) -> tuple[ArrowReader, Any]:
        reader = await open_arrow(client, topic, **options)
        return reader, await reader.to_table()

    return cluster.run(read)


def positions(cluster: RunningCluster, topic: str, **options: Any) -> list[int]:
    _, table = read(cluster, topic, **options)
    return list(table["position"].to_pylist())


def test_the_records_of_files_and_nodes_are_those_that_a_client_reads(
    cluster: RunningCluster, store: Path, orders: str
) -> None:
    reader, table = read(cluster, orders, archive=str(store))
    assert (reader.start, reader.end) == (1, 36)
    assert [(each.first_position, each.last_position, each.records) for each in reader.files] == [
        (1, 10, 10),
        (11, 20, 10),
        (21, 30, 10),
    ]
    assert all((store / each.name).stat().st_size == each.bytes for each in reader.files)
    expected = [
        {
            "position": record.position,
            "term": record.term,
            "index": record.index,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": list((record.headers or {}).items()) or None,
        }
        for record in cluster.read(orders)
    ]
    found = table.set_column(3, "timestamp", table["timestamp"].cast("int64")).to_pylist()
    assert found == expected
    assert table.schema == reader.schema
    without, same = read(cluster, orders)
    assert same.equals(table)
    assert without.files == ()


@pytest.mark.parametrize(("start", "end"), [(5, 26), (11, 21), (31, 36), (30, 32), (12, 13), (36, 36), (1, 1), (7, 99)])
def test_each_position_is_read_once(cluster: RunningCluster, store: Path, orders: str, start: int, end: int) -> None:
    expected = list(range(start, min(end, 36)))
    assert positions(cluster, orders, archive=str(store), start=start, end=end) == expected


def test_archived_records_are_read_without_a_node(
    cluster: RunningCluster, store: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise AssertionError("a node was asked for records")

    monkeypatch.setattr(arrow_lanes.ArrowLane, "_of_log", unreachable)
    found = positions(cluster, orders, archive=str(store), end="archived", columns=["value", "position"])
    assert found == list(range(1, 31))


def test_threads_read_row_groups_and_their_records_stay_in_order(
    cluster: RunningCluster, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewstamp.archive.run_file.GROUP_RECORDS", 7)
    topic = f"orders-{next(_numbers)}"

    async def fill(client: Client) -> None:
        await client.create_topic(topic)
        for _ in range(20):
            await client.append_many(topic, [b"value"] * 5)
        await client.archive_topic(topic)

    cluster.run(fill)
    for threads in (1, 3):
        assert positions(cluster, topic, archive=str(store), start=3, threads=threads) == list(range(3, 101))


def test_a_file_that_is_lost_or_changed_is_an_error_and_never_fewer_records(
    cluster: RunningCluster, store: Path, orders: str
) -> None:
    reader, _ = read(cluster, orders, archive=str(store))
    path = store / reader.files[1].name
    whole = path.read_bytes()
    changed = whole[:4] + bytes(byte ^ 255 for byte in whole[4:400]) + whole[400:]
    for content in (None, whole[:-100], changed, (store / reader.files[0].name).read_bytes()):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ViewstampError) as raised:
            read(cluster, orders, archive=str(store))
        assert (type(raised.value), path.name in str(raised.value)) == (CorruptionError, True)
        path.write_bytes(whole)
    assert positions(cluster, orders, archive=str(store)) == list(range(1, 36))


def test_the_store_of_another_cluster_is_an_error_that_names_the_file(
    cluster: RunningCluster, tmp_path: Path, orders: str
) -> None:
    """So is one that is away, for example a mount point without its mount."""
    (tmp_path / "other").mkdir()
    for where in (tmp_path, tmp_path / "missing"):
        said = rf"archive at {where} is away, or is another one.*\.parquet"
        with pytest.raises(CorruptionError, match=said) as raised:
            read(cluster, orders, archive=str(where))
        assert "mount it on this machine" in raised.value.remedy


def test_records_that_are_deleted_after_the_plan_are_trimmed_and_not_lost(
    cluster: RunningCluster, store: Path, orders: str
) -> None:
    async def read_late(client: Client) -> None:
        reader = await open_arrow(client, orders, archive=str(store))
        await client.trim_topic(orders, 15)
        (store / reader.files[0].name).unlink(missing_ok=True)
        with pytest.raises(TrimmedError) as trimmed:
            await reader.to_table()
        assert trimmed.value.first == 15

    cluster.run(read_late)
    # The file of the second run still has records that were deleted.
    assert positions(cluster, orders, archive=str(store)) == list(range(15, 36))
    with pytest.raises(TrimmedError, match="first kept position is 15"):
        read(cluster, orders, archive=str(store), start=14)


def test_a_run_that_is_not_committed_does_not_count(
    cluster: RunningCluster, store: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(client: Client) -> None:
        original = client.list_runs

        async def list_runs(**options: Any) -> Any:
            runs = [run for run in await original(**options) if run.topic == orders]
            states = ("prepared", "committed", "dropped")
            return [replace(run, state=state) for run, state in zip(runs, states, strict=True)]

        monkeypatch.setattr(client, "list_runs", list_runs)
        reader = await open_arrow(client, orders, archive=str(store))
        assert [each.first_position for each in reader.files] == [11]
        assert (await reader.to_table())["position"].to_pylist() == list(range(1, 36))

    cluster.run(read)


def test_a_program_that_does_not_await_reads_in_another_thread(
    cluster: RunningCluster, store: Path, orders: str
) -> None:
    async def read(client: Client) -> None:
        reader = await open_arrow(client, orders, archive=str(store), columns=["position", "key"])
        table = await asyncio.to_thread(lambda: reader.reader().read_all())
        assert table["position"].to_pylist() == list(range(1, 36))
        assert table.schema == reader.schema
        with pytest.raises(RequestError, match="event loop's own thread"):
            reader.reader().read_all()
        batches = reader.batches()
        await anext(batches)
        await batches.aclose()

    cluster.run(read)


def test_a_read_of_streams_that_is_cancelled_ends_and_can_be_repeated(
    cluster: RunningCluster, store: Path, parcels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = threading.Event()
    release = threading.Event()
    original = RunReader.read

    def read_late(self: RunReader, start: int, end: int) -> Iterator[Any]:
        entered.set()
        release.wait(30)
        return original(self, start, end)

    async def read(client: Client) -> None:
        reader = await open_arrow(client, parcels, archive=str(store))
        with monkeypatch.context() as patch:
            patch.setattr(RunReader, "read", read_late)
            reading = asyncio.ensure_future(reader.to_table())
            await asyncio.to_thread(entered.wait, 30)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            release.set()
        assert (await reader.to_table())["position"].to_pylist() == list(range(1, 81))

    cluster.run(read)


def test_duckdb_and_pandas_take_the_records(cluster: RunningCluster, store: Path, orders: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pandas")

    def ask(orders: Any) -> Any:
        return duckdb.sql("SELECT count(*), max(position) FROM orders").fetchall()

    def ask_for_one(orders: Any) -> Any:
        return duckdb.sql("SELECT position FROM orders LIMIT 1").fetchall()

    async def read(client: Client) -> None:
        records = await open_arrow(client, orders, archive=str(store), columns=["position", "headers"])
        assert await asyncio.to_thread(ask, records.reader()) == [(35, 35)]
        assert await asyncio.to_thread(ask_for_one, records.reader()) == [(1,)]
        frame = (await records.to_table()).to_pandas()
        assert frame["position"].tolist() == list(range(1, 36))

    cluster.run(read)


def test_a_reader_of_an_event_loop_that_has_ended_is_refused(cluster: RunningCluster, orders: str) -> None:
    async def plan() -> Any:
        async with connect(cluster.addresses) as client:
            return (await open_arrow(client, orders)).reader()

    reader = asyncio.run(plan())
    with pytest.raises(RequestError, match="does not run any more"):
        reader.read_all()


def test_a_program_that_does_not_await_gets_the_named_error(
    cluster: RunningCluster, store: Path, orders: str, tmp_path: Path
) -> None:
    async def read(client: Client) -> None:
        records = await open_arrow(client, orders, archive=str(store))
        reader = records.reader()
        path = store / records.files[2].name
        path.rename(tmp_path / "away")
        try:
            with pytest.raises(CorruptionError, match=path.name):
                await asyncio.to_thread(reader.read_all)
        finally:
            (tmp_path / "away").rename(path)

    cluster.run(read)


def test_wrong_requests_are_refused_with_the_reason(cluster: RunningCluster, store: Path, orders: str) -> None:
    with pytest.raises(UnknownTopicError):
        read(cluster, "no-such-topic")
    with pytest.raises(RequestError, match="no column 'colour'"):
        read(cluster, orders, columns=["colour"])
    with pytest.raises(RequestError, match="no column 'row'"):
        read(cluster, orders, columns=["row"])
    with pytest.raises(RequestError, match="no stream 1"):
        read(cluster, orders, stream=1)
    with pytest.raises(RequestError, match="position 99"):
        read(cluster, orders, start=99)
    cluster.create_topic(empty := f"empty-{next(_numbers)}")
    with pytest.raises(RequestError, match="no archived records"):
        read(cluster, empty, archive=str(store), end="archived")
    assert read(cluster, empty, archive=str(store))[1].num_rows == 0


def test_a_topic_with_a_schema_has_its_rows(cluster: RunningCluster, store: Path) -> None:
    topic = f"typed-{next(_numbers)}"

    async def fill(client: Client) -> None:
        await client.create_topic(topic)
        await client.append(topic, b"no row")
        await client.set_schema(topic, "id: int64, name: string?")
        await client.append_rows(topic, [{"id": 1, "name": "a"}, {"id": 2}])
        await client.archive_topic(topic)
        await client.append_rows(topic, [{"id": 3, "name": "c"}])

    cluster.run(fill)
    _, table = read(cluster, topic, archive=str(store), columns=["row"])
    rows = [None, {"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]
    assert table["row"].to_pylist() == rows


def test_streams_are_read_in_the_order_of_the_topic(cluster: RunningCluster, store: Path, parcels: str) -> None:
    reader, table = read(cluster, parcels, archive=str(store))
    assert len(reader.files) >= 5
    expected: list[Any] = cluster.read(parcels)
    found = zip(*(table[name].to_pylist() for name in ("position", "stream", "index", "value")), strict=True)
    assert list(found) == [(record.position, record.stream, record.index, record.value) for record in expected]
    assert table["position"].to_pylist() == list(range(1, 81))
    assert read(cluster, parcels)[1].equals(table)


@pytest.mark.parametrize(("start", "end"), [(5, 26), (31, 61), (61, 81), (60, 62), (12, 13), (81, 81)])
def test_each_position_of_streams_is_read_once(
    cluster: RunningCluster, store: Path, parcels: str, start: int, end: int
) -> None:
    assert positions(cluster, parcels, archive=str(store), start=start, end=end) == list(range(start, end))


def test_one_stream_of_a_topic_is_read(cluster: RunningCluster, store: Path, parcels: str) -> None:
    expected: list[Any] = cluster.read(parcels)
    for stream in (1, 2, 3):
        found = positions(cluster, parcels, archive=str(store), stream=stream)
        assert found == [record.position for record in expected if record.stream == stream]
    assert positions(cluster, parcels, archive=str(store), end="archived") == list(range(1, 61))


def test_a_lost_file_of_a_stream_is_an_error(cluster: RunningCluster, store: Path, parcels: str) -> None:
    reader, _ = read(cluster, parcels, archive=str(store))
    path = store / reader.files[0].name
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(CorruptionError, match=path.name):
        read(cluster, parcels, archive=str(store))
    path.write_bytes(whole)
    assert positions(cluster, parcels, archive=str(store)) == list(range(1, 81))
