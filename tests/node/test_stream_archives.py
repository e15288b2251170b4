"""Archives of topics with streams, on real nodes: what the logs have deleted is read from the runs, in one order."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, STDOUT
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutants import patched
from tests.node.group import PATIENCE_SECONDS, Journal, not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from tests.node.test_archive_rounds import ROUNDS
from tests.node.test_archived import back_up, quick, store_in
from tests.node.test_ordered_reads import ordered
from tests.node.test_stream_topics import Spreading
from tests.steady import clock_of_the_loop
from viewstamp.archive.run_store import RunObjects
from viewstamp.archive.store import DirectoryObjects
from viewstamp.client.aio import Client
from viewstamp.errors import RequestError, TrimmedError
from viewstamp.host.disk import RealDisk
from viewstamp.host.logger import SafeLogger
from viewstamp.ids import ClusterId, GlobalPosition, GroupId, Index, NodeId, Position, RunId, Term, TopicId
from viewstamp.node.archive_queries import ArchivedRun, ArchiveQuery, RunsQuery
from viewstamp.node.archived import ArchivedReads, LoadedRecords
from viewstamp.node.archivist import Archivist
from viewstamp.node.state_machine import TopicsQuery
from viewstamp.streams import state
from viewstamp.wire.batch import build_batch
from viewstamp.wire.ordering import GlobalRun

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

CLUSTER = ClusterId("c1")


class Source(RunObjects):
    """A store in a directory, which notes what is loaded."""

    def __init__(self, directory: Path) -> None:
        disk = HookedDisk(RealDisk(), not_on_the_loop)
        super().__init__(DirectoryObjects(disk, str(directory / "store")), CLUSTER)
        self.directory = directory / "store"
        self.loads: list[tuple[int, int]] = []

    def load(self, run: ArchivedRun, position: Position) -> LoadedRecords:
        self.loads.append((run.group, run.id))
        return super().load(run, position)

    def files(self) -> list[str]:
        return sorted(str(each.relative_to(self.directory)) for each in self.directory.rglob("*.parquet"))


async def fill(client: Client, count: int = 180, name: str = "orders", size: int = 2000) -> None:
    """Append to all streams, in batches of different sizes, so that the order has many runs."""
    info = await client.describe_spread_topic(name)
    for stream in range(1, info.streams + 1):
        await client.describe_stream(name, stream)
    done = 0
    while done < count:
        for stream in range(1, info.streams + 1):
            values = [f"{stream}:{done + at} ".encode() + bytes(size) for at in range(stream)]
            await client.append_many(name, values, stream=stream)
            done += len(values)
        if done % 3 == 0:
            await asyncio.sleep(0.02)
    await ordered(client, name, done)


async def read(client: Client, start: int | None = None, **options: Any) -> list[Any]:
    return [record async for record in client.read("orders", start, **options)]


def first_index(group: Spreading, placed: GroupId, node: str) -> int:
    hosted = group.nodes[NodeId(node)].groups.get(placed)
    return int(hosted.parts.wal.first_index) if hosted is not None and hosted.parts is not None else 0


async def drop(group: Spreading, client: Client, placed: GroupId, name: str = "orders") -> None:
    """Append and take snapshots until the log of each node of a group begins behind the archived records."""
    await client.create_spread_topic(f"filler{placed}", 1, groups=[placed], retain_bytes=1)
    await client.describe_stream(f"filler{placed}", 1)
    runs = [run for run in await client.list_stream_runs(name) if run.group == placed and run.state == "committed"]
    half = min(run.id for run in runs) // 2
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(first_index(group, placed, node) < half for node in group.nodes):
            await client.append(f"filler{placed}", bytes(20_000), stream=1)
            for node in list(group.nodes.values()):
                await node.groups[placed].create_snapshot()


async def test_the_logs_delete_archived_streams_and_readers_by_position_get_the_same(tmp_path: Path) -> None:
    source = Source(tmp_path)
    with quick():
        async with Spreading(tmp_path, run_stores=lambda _: source) as group:
            await group.run()
            first, second = await group.established("s1"), await group.established("s2")
            client = group.client()
            await client.create_spread_topic("orders", 3, groups=[first, second])
            await fill(client)
            before = await read(client)
            assert [record.position for record in before] == list(range(1, len(before) + 1))
            ends = await client.archive_spread_topic("orders", delay=0.0)
            assert tuple(ends.values()) == (await client.describe_spread_topic("orders")).ordered_ends
            assert source.loads == []
            runs = await client.list_stream_runs()
            assert [(run.stream, run.group, run.first_position) for run in runs] == [
                (1, first, 1),
                (2, second, 1),
                (3, first, 1),
            ]
            for placed in (first, second):
                await drop(group, client, placed)
            for node in ("n1", "n2", "n3"):
                found = await read(group.client(seed=2), end=len(before) + 1, node=node)
                assert found == before
            assert {each for each, _ in source.loads} == {first, second}
            assert await read(client, 7, end=50) == before[6:49]


async def test_before_the_first_run_of_a_group_the_store_is_asked_for_a_run_of_group_0(tmp_path: Path) -> None:
    source = Source(tmp_path)
    with quick():
        async with Spreading(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            placed = await group.established("s1")
            client = group.client()
            await client.create_topic("plain")
            await client.append("plain", b"record")
            assert await client.archive_topic("plain") == 2
            await client.create_spread_topic("orders", 1, groups=[placed])
            await fill(client, 3)
            source.directory.rename(tmp_path / "away")
            with pytest.raises(RequestError, match="is empty, or another store, because it has no file of run"):
                await client.archive_spread_topic("orders")
            assert not source.directory.exists()
            (tmp_path / "away").rename(source.directory)
            assert await client.archive_spread_topic("orders") == {1: 4}
            assert [each.partition("/")[0] for each in source.files()] == [CLUSTER, f"{CLUSTER}@{placed}"]


async def test_before_the_first_run_of_group_0_the_store_is_asked_for_the_runs_of_the_other_groups(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path)
    with quick():
        async with Spreading(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            placed = [await group.established(name) for name in ("s1", "s2")]
            client = group.client()
            await client.create_topic("plain")
            await client.append("plain", b"record")
            await client.create_spread_topic("orders", 1, groups=placed[:1])
            await client.create_spread_topic("bills", 1, groups=placed[1:])
            await fill(client, 3)
            await client.append("bills", b"record", ordered=True)
            assert await client.archive_spread_topic("orders") == {1: 4}
            source.directory.rename(tmp_path / "away")
            error = f"is empty, or another store, because it has no file of run [0-9]+ of group {placed[0]}"
            with pytest.raises(RequestError, match=error):
                await client.archive_topic("plain")
            with pytest.raises(RequestError, match=error):
                await client.archive_spread_topic("bills")
            assert not source.directory.exists()
            (tmp_path / "away").rename(source.directory)
            assert await client.archive_topic("plain") == 2
            assert await client.archive_spread_topic("bills") == {1: 2}


def settings_of(group: Spreading, placed: GroupId) -> list[list[tuple[int, object]]]:
    """Return the retention and the archive of the streams of a group, on each node."""
    hosted = [node.groups[placed] for node in group.nodes.values()]
    return [
        [(each["retain_bytes"], each.get("archive")) for each in one.machine.query(TopicsQuery())] for one in hosted
    ]


async def test_streams_follow_the_archive_settings_of_their_topic_and_archive_themselves(tmp_path: Path) -> None:
    """Also an added stream, and a retention never deletes what is in no run."""
    source = Source(tmp_path)
    with patched(state, _SECOND_US=1000):
        async with Spreading(tmp_path, 1, run_stores=lambda _: source, archive_rounds=ROUNDS) as group:
            await group.run()
            placed = await group.established("s1")
            client = group.client()
            await client.create_spread_topic("orders", 2)
            topic = await client.configure_spread_topic("orders", archive=True, retain_bytes=1)
            assert topic.archive is not None
            assert (topic.archive.delay_seconds, topic.archive.delete_seconds) == (86_400.0, 0.0)
            on = {"is_on": True, "after_seconds": 0.0, "delay_seconds": 86_400.0, "delete_seconds": 0.0}
            await wait_for(lambda: settings_of(group, placed) == [[(1, on)] * 2], group.journal.tail)
            await client.add_stream("orders", stream=3)
            await wait_for(lambda: settings_of(group, placed) == [[(1, on)] * 3], group.journal.tail)
            await fill(client, 30, size=100)
            info = await client.describe_spread_topic("orders")

            def ends() -> list[int]:
                machine = group.nodes[NodeId("n1")].groups[placed].machine
                return [machine.query(ArchiveQuery(f"orders.{stream}")).archived_end for stream in (1, 2, 3)]

            await wait_for(lambda: ends() == list(info.ordered_ends), lambda: f"{ends()} {group.journal.tail()}")
            assert len(await read(client)) == info.next_position - 1, "the retention deletes nothing"
            for run in await client.list_stream_runs("orders"):
                assert await client.check_stream_run(run.group, run.id) == ""
                assert run.first_global > 0
            assert await client.find_stream_orphans(placed) == {}
            with pytest.raises(RequestError, match="would delete archived records"):
                await client.configure_spread_topic("orders", archive=False)
            topic = await client.configure_spread_topic("orders", archive=False, retain_bytes=0)
            await wait_for(lambda: settings_of(group, placed) == [[(0, None)] * 3], group.journal.tail)
            assert len(await read(client)) == info.next_position - 1
            found = [node for node in group.nodes[NodeId("n1")].status["hosted"] if node["group"] == placed]  # type: ignore[attr-defined]
            assert found[0]["archiving"]["state"] == "off"


async def test_files_that_no_run_of_the_group_has_are_orphans_of_this_group_only(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with Spreading(tmp_path, 1, run_stores=lambda _: source) as group:
        await group.run()
        placed = await group.established("s1")
        client = group.client()
        await client.create_spread_topic("orders", 1)
        await fill(client, 3)
        await client.create_topic("plain")
        await client.append("plain", b"x")
        await client.archive_topic("plain")
        await client.archive_spread_topic("orders")
        files = source.files()
        orphan = source.directory / f"{CLUSTER}@{placed}" / f"{1:020d}.parquet"
        orphan.write_bytes(b"left")
        assert await client.find_orphans(remove=True) == {}
        assert orphan.exists(), "group 0 does not see it"
        assert await client.find_stream_orphans(placed) == {1: 4}
        assert await client.find_stream_orphans(placed, remove=True) == {1: 4}
        assert source.files() == files


async def test_what_was_read_whole_for_one_group_is_remembered_beside_that_of_another(tmp_path: Path) -> None:
    """Otherwise the looks of two groups forget each other's runs, and no log is deleted."""
    source = Source(tmp_path)
    runs = [await asyncio.to_thread(written, source.of_group(GroupId(each)), GroupId(each)) for each in (7, 8)]
    reads = ArchivedReads(
        source,
        "n1",
        HookedDisk(RealDisk(), not_on_the_loop),
        clock_of_the_loop(),
        SafeLogger.of(Journal().logger()),
        cache_bytes=0,
    )
    try:
        for run in runs:
            await wait_for(lambda run=run: reads.held([run]) is None, str)  # type: ignore[misc]
        assert [reads.held([run]) for run in runs] == [None, None]
    finally:
        await reads.stop()


def written(store: RunObjects, group: GroupId) -> ArchivedRun:
    """Write the object of a run of a stream with one record."""
    batch = build_batch([b"value"], topic=TopicId(1))
    batch.stamp(term=Term(1), first_index=Index(1), previous_term=Term(0), log_time=7, first_position=Position(1))
    assert store.recognise([]), "a new store"
    writing = store.begin(RunId(3), TopicId(1), Position(1))
    order = [GlobalRun(1, GlobalPosition(1), Position(1), 1)]
    assert writing.add(Position(2), [batch.buffer], order) == 2
    done = writing.finish()
    known = (
        RunId(3),
        TopicId(1),
        Position(1),
        Position(2),
        "committed",
        "",
        done.size,
        done.digest,
        Index(1),
        Index(2),
    )
    return ArchivedRun(*known, group=group, first_global=GlobalPosition(1), end_global=GlobalPosition(2))


async def test_deleted_records_of_streams_are_named_as_trimmed_and_their_files_are_removed(tmp_path: Path) -> None:
    """By a trim to a position in the topic, by a delete age, and after a restart, with what the logs lack."""
    source = Source(tmp_path)
    with quick():
        async with Spreading(tmp_path, 1, run_stores=lambda _: source, archive_rounds=ROUNDS) as group:
            await group.run()
            placed = await group.established("s1")
            client = group.client()
            await client.create_spread_topic("orders", 2)
            await client.configure_spread_topic("orders", archive=True, archive_delay_seconds=0.0)
            await fill(client, 90)
            info = await client.describe_spread_topic("orders")
            before = await read(client)
            await client.archive_spread_topic("orders", delay=0.0)
            await drop(group, client, placed)
            await group.stop("n1")
            await group.run("n1")
            await wait_for(lambda: group.leader_of(placed) is not None, group.journal.tail)
            client = group.client()
            assert await read(client, end=len(before) + 1) == before
            last = len(before)
            await client.trim_spread_topic("orders", last)
            streams = group.nodes[NodeId("n1")].groups[placed].machine
            await wait_for(
                lambda: all(
                    topic["first_position"] > 1
                    for topic in streams.query(TopicsQuery())
                    if topic["name"].startswith("orders")
                ),
                group.journal.tail,
            )
            with pytest.raises(TrimmedError) as caught:
                await read(client, 1, end=last)
            assert caught.value.first <= last
            assert (await read(client, last, end=last + 1)) == before[-1:]

            def runs() -> list[object]:
                return [run["id"] for run in streams.query(RunsQuery())]

            def files() -> list[str]:
                return [file for file in source.files() if file.startswith("c1@")]

            # The run of the other stream has deleted records only.
            await wait_for(lambda: len(runs()) == len(files()) == 1, lambda: f"{runs()} {files()}")
            topic = await client.configure_spread_topic("orders", delete_after_seconds=0.001)
            assert topic.configured > info.configured
            while runs():
                await client.append(f"filler{placed}", b"time passes", stream=1)
                await asyncio.sleep(0.05)
            await wait_for(lambda: not files(), str)
            with pytest.raises(TrimmedError):
                await read(client, last, end=last + 1)


async def test_a_drill_reads_what_the_logs_have_of_archived_streams_and_says_what_it_does_not_compare(
    tmp_path: Path,
) -> None:
    """Also the records of stream 1 that come before archived ones of stream 2 in the order, and are in the log only."""
    source = Source(tmp_path)
    with quick():
        async with Spreading(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            placed = await group.established("s1")
            client = group.client()
            await client.create_spread_topic("orders", 2)
            await fill(client, 60)
            await client.archive_spread_topic("orders", delay=0.0)
            await drop(group, client, placed)
            for stream in (1, 2, 1):
                await client.append_many("orders", [b"value"] * 5, stream=stream, ordered=True)
            archivist = group.nodes[NodeId("n1")].archivist_of(placed)
            await wait_for_archive(archivist, "orders.2", 46)
            store = store_in(tmp_path / "backup")
            assert (await back_up(store, client)).archived == {"orders.1": 20, "orders.2": 45}
    shown = await verify(store.where, "--output", "json")
    drilled = json.loads(shown)["drill"]
    assert drilled["differences"] == []
    assert drilled["archived"] == {"orders.1": 20, "orders.2": 45}
    assert drilled["records"]["orders"] == 10
    assert "Not compared: these archived records" in await verify(store.where)


async def verify(target: str, *options: str) -> str:
    """Run the drill of a backup, which has to succeed; return what it prints."""
    command = [sys.executable, "-m", "viewstamp", "backup", "verify", target, "--start", *options]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    return printed


async def wait_for_archive(archivist: Archivist, name: str, end: int) -> None:
    """Archive the records of a stream before a position, as soon as its group knows their global positions."""
    while (await archivist.archive(name, end, 0))[0] < end:
        pass
