"""Archived records: the log deletes its copy, and the same reads return them from the runs, or a clear error."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from array import array
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.backup.cases import back_up, store_in
from tests.mutants.mutants import patched
from tests.node.group import PATIENCE_SECONDS, Group, Journal, wait_for
from tests.node.test_archivist import Store
from tests.replay.test_real_cluster import replayed
from tests.steady import clock_of_the_loop
from viewstamp.archive import run_batches, run_file
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.verify import BackupReader
from viewstamp.client import Attempt
from viewstamp.client.aio import Client
from viewstamp.config import node_file
from viewstamp.embed.connect import connect
from viewstamp.embed.open_node import open_node
from viewstamp.errors import ConfigError, CorruptionError, OverloadedError, TrimmedError, UnavailableError
from viewstamp.host.disk import RealDisk
from viewstamp.host.logger import SafeLogger
from viewstamp.ids import Index, NodeId, Position, RunId, Term, TopicId
from viewstamp.local.offline import offline_records
from viewstamp.local.restore import RestorePlan, restore_cluster
from viewstamp.node import archived
from viewstamp.node.archive_queries import ArchivedRun, ArchiveQuery
from viewstamp.node.archived import ArchivedReads, LoadedRecords
from viewstamp.node.snapshots import policy
from viewstamp.replay import OfflineReplay
from viewstamp.streams import state
from viewstamp.wire.batch import Batch, Record, build_batch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed"),
]

BATCHES = 12
RECORDS = 40
BYTES = 500


class Source(Store):
    """The store of a test; ``before`` is also called before a row group is loaded."""

    def __init__(self, directory: Path, before: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(directory, before)
        self.loads: list[tuple[int, int]] = []

    def load(self, run: ArchivedRun, position: Position) -> LoadedRecords:
        self.loads.append((run.id, position))
        self.before("load")
        return super().load(run, position)


async def fill(client: Client, topic: str = "orders", batches: int = BATCHES) -> None:
    """Append several segments of records, with and without keys and headers."""
    await client.create_topic(topic)
    for number in range(batches):
        keys = [None if at % 3 else f"key {at}".encode() for at in range(RECORDS)] if number % 2 else None
        headers = {"number": str(number).encode()} if number % 3 else None
        values = [f"{topic} {number} {at} ".encode() + bytes(BYTES) for at in range(RECORDS)]
        await client.append_many(topic, values, keys=keys, headers=headers and [headers] * RECORDS)


async def read(client: Client, topic: str = "orders", start: int = 1, end: int | None = None) -> list[Record]:
    return [record async for record in client.read(topic, start, end=end)]


@asynccontextmanager
async def archived_group(path: Path, sources: Callable[[NodeId], Source], size: int = 1) -> AsyncIterator[Group]:
    """Run a group whose topic ``orders`` is archived, and whose logs have deleted its records."""
    with quick():
        async with Group(path, size, run_stores=sources) as group:
            await group.run()
            client = group.client()
            await fill(client)
            await client.archive_topic("orders", delay=0.0)
            await drop(group, client)
            yield group


@contextmanager
def quick() -> Iterator[None]:
    """Let archive delays end, and logs be deleted, without a wait for the next second."""
    with patched(state, _SECOND_US=1000), patched(policy, _DROP_SECONDS=0.05, _IDLE_LOOK_SECONDS=0.05):
        yield


async def drop(group: Group, client: Client, *names: str) -> None:
    """Take snapshots until the log of each node, or of the named ones, begins behind the archived records."""
    end = max(run.end_index for run in group_runs(group))
    await client.create_topic("filler", retain_bytes=1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(first_index(group, name) < end - RECORDS for name in names or group.nodes):
            await client.append("filler", bytes(20_000))
            for node in list(group.nodes.values()):
                await node.group.create_snapshot()


def group_runs(group: Group) -> list[ArchivedRun]:
    """Return the committed runs of orders, as a node's state has them."""
    machine = next(iter(group.nodes.values())).group.machine
    return [run for run in machine.query(ArchiveQuery("orders")).runs if run.state == "committed"]


def first_index(group: Group, node: str = "n1") -> int:
    parts = group.nodes[NodeId(node)].group.parts
    return int(parts.wal.first_index) if parts is not None else 0


async def test_the_log_deletes_archived_records_and_reads_return_the_same(tmp_path: Path) -> None:
    source = Source(tmp_path)
    with quick():
        async with Group(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            client = group.client()
            await fill(client)
            before = await read(client)
            await client.archive_topic("orders", delay=0.0)
            assert source.loads == []
            await drop(group, client)
            assert await read(client) == before
            assert source.loads, "from the run"
            topic = await client.describe_topic("orders")
            assert (topic.first_position, topic.last_position) == (1, len(before)), "they are kept records"
            for start, end in [(1, 2), (7, 9), (39, 42), (len(before), None)]:
                assert await read(client, start=start, end=end) == before[start - 1 : end and end - 1]
            await client.append("orders", b"new")
            assert [record.value for record in await read(client, start=len(before))] == [before[-1].value, b"new"]
            await group.stop("n1")
            await group.run("n1")
            assert (await read(client))[:-1] == before, "after a restart"


async def values_of(group: Group, position: int, node: str = "n1", bytes_max: int = 1) -> list[Record]:
    """Read on a node itself, without the repetitions of a client."""
    reading = group.nodes[NodeId(node)].group.reading
    buffers, _ = await reading.read(TopicId(1), Position(position), bytes_max=bytes_max)
    return [record for batch in Batch.decode_all(b"".join(buffers)) for record in batch.records()]


async def test_every_kind_of_record_comes_back_as_it_was(tmp_path: Path) -> None:
    """Batches of one, of many, of a sink, with empty values, keys and headers, in two topics between one another."""
    source = Source(tmp_path)
    with quick(), patched(run_batches, _BATCH_RECORDS=7, _BATCH_BYTES=2000):
        async with Group(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            client = group.client()
            await client.create_topic("orders")
            await client.create_topic("others")
            for number in range(20):
                await client.append("orders", b"" if number % 4 else b"one", key=[None, b"", b"key"][number % 3])
                await client.append("others", b"other")
                await client.append_many(
                    "orders", [b"many"] * 25, keys=[None, b"k"] * 12 + [None], headers=[None, {"a": b""}] * 12 + [None]
                )
            await stage(client)
            await fill(client)
            before = await read(client)
            others = await read(client, "others")
            for topic in ("orders", "others"):
                await client.archive_topic(topic, delay=0.0)
            await drop(group, client)
            assert await read(client) == before
            assert await read(client, "others") == others
            assert {run for run, _ in source.loads} == {run.id for run in await client.list_runs()}
            for start in range(1, 560, 11):
                found = await values_of(group, start)
                assert found[0].position <= start <= found[-1].position
                assert found == before[found[0].position - 1 : found[-1].position]


def test_an_answer_does_not_keep_the_row_group_in_memory() -> None:
    """A thousand clients that receive nothing would otherwise keep a thousand row groups, whatever the cache holds."""
    records = LoadedRecords(Position(1), Position(4), bytes(300), array("Q", [1, 2, 3]), array("Q", [0, 100, 200]))
    for position, bytes_max, size in ((1, 1, 100), (2, 200, 200), (3, 1000, 100)):
        (buffer,) = records.batches(Position(position), bytes_max)
        with memoryview(buffer) as view:
            assert len(view) == size == len(view.obj)


async def stage(client: Client) -> None:
    """Commit a batch of a sink whose records are staged before other records."""
    sink = client.sink("lake", owner="query", run="r1")
    attempt = await sink.begin(0, "part-1")
    assert isinstance(attempt, Attempt)
    await attempt.stage_records("orders", [b"staged"] * 30)
    await client.append("orders", b"in between")
    await attempt.stage_records("orders", [b"staged later"] * 3)
    await sink.commit(0, [await attempt.seal()])


async def test_records_behind_a_topic_that_was_archived_as_a_whole_are_read_and_archived(tmp_path: Path) -> None:
    """The topic has no entry for them in its sparse map, and its last entry is at an index that the log has deleted."""
    source = Source(tmp_path)
    with quick():
        async with Group(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            client = group.client()
            await fill(client, batches=1)
            await client.archive_topic("orders", delay=0.0)
            archived = max(run.end_index for run in group_runs(group))
            await client.create_topic("filler", retain_bytes=1)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while first_index(group) <= archived:
                    await client.append("filler", bytes(20_000))
                    await group.nodes[NodeId("n1")].group.create_snapshot()
                    await asyncio.sleep(0.05)
                await client.append("orders", b"behind")
                assert (await read(client))[-1].value == b"behind"
            end = await client.archive_topic("orders", delay=0.0)
            assert end == len(await read(client)) + 1


async def test_a_row_group_that_many_read_at_once_is_loaded_once(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:
        go_on = threading.Event()
        source.before = lambda call: wait_in_thread(go_on, call == "load")
        reads = [asyncio.create_task(values_of(group, position)) for position in (1, 1, 2, 300, 480)]
        await wait_for(lambda: source.loads, lambda: "no load")
        go_on.set()
        found = await asyncio.gather(*reads)
        assert [
            any(record.position == at for record in records)
            for records, at in zip(found, (1, 1, 2, 300, 480), strict=True)
        ]
        assert len(source.loads) == 1
        await read(group.client())
        assert len(source.loads) == 1


def wait_in_thread(event: threading.Event, is_waiting: bool) -> None:
    assert not is_waiting or event.wait(PATIENCE_SECONDS)


async def test_the_cache_has_a_bound_in_bytes_and_drops_what_was_not_used_for_longest(tmp_path: Path) -> None:
    source = Source(tmp_path)
    with patched(run_file, GROUP_RECORDS=40):
        async with archived_group(tmp_path, lambda _: source) as group:
            reads = group.nodes[NodeId("n1")].archived
            with patched_value(reads, _cache_bytes=100_000):
                await read(group.client())
                assert len({position for _, position in source.loads}) > 4
                assert 0 < reads._bytes <= 100_000
                assert reads._bytes == sum(each.size for each in reads._cached.values())
                source.loads.clear()
                await values_of(group, 480)
                assert source.loads == [], "the newest one is there"
                await values_of(group, 1)
                assert len(source.loads) == 1, "the oldest one is not"


async def test_the_next_row_group_is_loaded_while_a_reader_is_in_the_second_half_of_one(tmp_path: Path) -> None:
    source = Source(tmp_path)
    with patched(run_file, GROUP_RECORDS=40):
        async with archived_group(tmp_path, lambda _: source) as group:
            await values_of(group, 20)
            assert [position for _, position in source.loads] == [20]
            await values_of(group, 22)
            await wait_for(lambda: len(source.loads) == 2, lambda: f"{source.loads}")
            assert source.loads[1][1] == 41
            await values_of(group, 41)
            assert len(source.loads) == 2
            await values_of(group, 480)
            assert len(source.loads) == 3, "behind the last one there is none"


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@contextmanager
def patched_value(owner: object, **values: object) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


async def test_the_records_of_a_run_are_not_taken_for_those_of_another_one(tmp_path: Path) -> None:
    """Of one topic and the same positions, as after a recovery without a majority, which uses positions again."""
    source = Source(tmp_path)
    reads = ArchivedReads(
        source, "n1", RealDisk(), clock_of_the_loop(), SafeLogger.of(Journal().logger()), cache_bytes=1 << 20
    )
    runs = [await asyncio.to_thread(written, source, number, b"of run %d" % number) for number in (5, 6)]
    try:
        for run in [*runs, *runs]:
            buffers = await reads.read(run, Position(1), 1)
            [batch] = Batch.decode_all(b"".join(buffers))
            assert batch.values() == [b"of run %d" % run.id]
        assert len(source.loads) == 2
    finally:
        await reads.stop()


def written(source: Source, number: int, value: bytes) -> ArchivedRun:
    """Write the object of a run with one record."""
    batch = build_batch([value], topic=TopicId(1))
    batch.stamp(term=Term(1), first_index=Index(1), previous_term=Term(0), log_time=7, first_position=Position(1))
    assert source.recognise([]), "a new store"
    writing = source.begin(RunId(number), TopicId(1), Position(1))
    assert writing.add(Position(2), [batch.buffer]) == 2
    done = writing.finish()
    return ArchivedRun(
        RunId(number), TopicId(1), Position(1), Position(2), "committed", "", done.size, done.digest, Index(1), Index(2)
    )


@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone", "another run", "another cluster", "empty"])
async def test_a_damaged_object_is_an_error_that_names_it_and_the_node_goes_on(tmp_path: Path, damage: str) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:
        client = group.client()
        before = group_runs(group)[0]
        await client.create_topic("others")
        await client.append_many("others", [b"wrong"] * (before.end - 1))
        await client.archive_topic("others")
        [orders, others] = await client.list_runs()
        file = source.file(orders.id)
        intact = file.read_bytes()
        replacements = {
            "truncated": intact[:-100],
            "flipped": flipped(intact, 1000),
            "another run": source.file(others.id).read_bytes(),
            "another cluster": intact.replace(b'"cluster": "c1"', b'"cluster": "c2"'),
            "empty": b"",
        }
        if damage == "gone":
            file.unlink()
        else:
            assert replacements[damage] != intact
            file.write_bytes(replacements[damage])
        with pytest.raises(CorruptionError, match=file.name):
            await values_of(group, 1)
        with pytest.raises(UnavailableError, match=file.name):
            await read(group.client(timeout=0.5))
        await client.append("orders", b"it goes on")
        assert [record.value for record in await read(client, start=before.end)] == [b"it goes on"]
        file.write_bytes(intact)
        assert (await read(client, end=41))[0].value.startswith(b"orders 0 0 ")


async def test_a_flipped_byte_anywhere_never_gives_another_record(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:
        [run] = group_runs(group)
        right = await values_of(group, 1, bytes_max=1 << 30)
        reads = group.nodes[NodeId("n1")].archived
        intact = source.file(run.id).read_bytes()
        wrong = 0
        for at in range(3, len(intact), max(len(intact) // 60, 1)):
            reads._cached.clear()
            source.file(run.id).write_bytes(flipped(intact, at))
            try:
                assert await values_of(group, 1, bytes_max=1 << 30) == right
            except CorruptionError:
                wrong += 1
        assert wrong > 30


async def test_a_store_that_hangs_delays_only_reads_of_archived_records_and_no_stop(tmp_path: Path) -> None:
    source = Source(tmp_path)
    go_on = threading.Event()
    try:
        async with archived_group(tmp_path, lambda _: source) as group:
            client = group.client()
            source.before = lambda call: wait_in_thread(go_on, call == "load")
            [run] = group_runs(group)
            with patched(archived, _ANSWER_SECONDS=0.05):
                for position in (1, 1, 200):
                    with pytest.raises(UnavailableError, match=f"run {run.id}, .* has not arrived"):
                        await values_of(group, position)
                receipt = await client.append("orders", b"new")
                assert [record.value for record in await read(client, start=receipt.position)] == [b"new"]
                with patched(archived, _LOADS_MAX=2), pytest.raises(OverloadedError):
                    await values_of(group, 77)
                reading = asyncio.create_task(values_of(group, 300))
                await asyncio.sleep(0)
                await group.stop("n1")
                with pytest.raises(UnavailableError):
                    await reading
    finally:
        go_on.set()


async def test_a_node_without_the_archive_leads_and_names_the_remedy(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:
        await group.stop("n1")
        group._run_stores = lambda _: None
        await group.run("n1")
        with pytest.raises(UnavailableError, match="n1 has no archive") as error:
            await values_of(group, 1)
        assert "[archive] directory or url" in (error.value.remedy or "")
        client = group.client(timeout=1.0)
        receipt = await client.append("orders", b"new")
        assert len(await read(client, start=receipt.position)) == 1
        with pytest.raises(UnavailableError, match="has no archive"):
            await read(client)


async def test_a_node_without_pyarrow_leads_and_names_the_remedy(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:

        def missing(call: str) -> None:
            raise ConfigError("pyarrow is not installed", remedy="pip install 'viewstamp[archive]'")

        source.before = missing
        with pytest.raises(UnavailableError, match=r"n1 cannot read run .*pyarrow") as error:
            await values_of(group, 1)
        assert error.value.remedy == "pip install 'viewstamp[archive]'"
        await group.client().append("orders", b"new")


# The log keeps its copy.


async def settled(group: Group, client: Client) -> None:
    """Give the log every reason to be deleted: log time goes on, and each node takes snapshots and looks again."""
    await client.create_topic("filler", retain_bytes=1)
    for _ in range(8):
        await client.append("filler", bytes(20_000))
        for node in group.nodes.values():
            await node.group.create_snapshot()
            assert node.group.parts is not None
            await node.group.parts.snapshotter._drop()
        await asyncio.sleep(0.05)


async def test_the_log_keeps_archived_records_until_the_archive_delay_is_over(tmp_path: Path) -> None:
    source = Source(tmp_path)
    with quick():
        async with Group(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            client = group.client()
            await fill(client)
            await client.archive_topic("orders")
            await settled(group, client)
            assert first_index(group) == 1
            await read(client)
            assert source.loads == [], "from the log"


async def test_the_log_keeps_records_of_a_run_that_the_store_has_lost(tmp_path: Path) -> None:
    """Each node reads the object itself before it relies on it; the state says only that it was committed once."""
    source = Source(tmp_path)
    with quick():
        async with Group(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            client = group.client()
            await fill(client)
            before = await read(client)
            with patched(archived, _RETRY_SECONDS=0.0):
                await client.archive_topic("orders", delay=0.0)
                [run] = group_runs(group)
                intact = source.file(run.id).read_bytes()
                for damaged in (None, flipped(intact, 1000)):
                    if damaged is None:
                        source.file(run.id).unlink()
                    else:
                        source.file(run.id).write_bytes(damaged)
                    await settled(group, client)
                    assert first_index(group) == 1
                    assert await read(client) == before
                    assert str(run.id) in group.nodes[NodeId("n1")].archived.status["unreadable_runs"]
                    parts = group.nodes[NodeId("n1")].group.parts
                    assert parts is not None
                    assert f"archived run {run.id} cannot be read" in parts.snapshotter.explain_full()
                source.file(run.id).write_bytes(intact)
                await drop(group, client)
            assert await read(client) == before
            assert group.nodes[NodeId("n1")].archived.status["unreadable_runs"] == {}


async def test_a_node_without_the_archive_keeps_its_log(tmp_path: Path) -> None:
    source = Source(tmp_path)
    with quick():
        async with Group(tmp_path, 1, run_stores=lambda _: source) as group:
            await group.run()
            client = group.client()
            await fill(client)
            await client.archive_topic("orders", delay=0.0)
            await group.stop("n1")
            group._run_stores = lambda _: None
            await group.run("n1")
            await settled(group, client)
            assert first_index(group) == 1
            assert len(await read(client)) == BATCHES * RECORDS


# Several members.


async def test_each_member_returns_archived_records_also_one_that_began_without_the_log(tmp_path: Path) -> None:
    sources = {NodeId(name): Source(tmp_path) for name in ("n1", "n2", "n3")}
    with quick():
        async with Group(tmp_path, 3, run_stores=lambda node: sources[node]) as group:
            await group.run()
            client = group.client()
            await fill(client)
            before = await read(client)
            await client.archive_topic("orders", delay=0.0)
            await drop(group, client)
            for name in group.nodes:
                assert [record async for record in client.read("orders", 1, end=len(before) + 1, node=name)] == before
                assert sources[NodeId(name)].loads
            await group.stop("n3")
            shutil.rmtree(tmp_path / "n3")
            sources[NodeId("n3")].loads.clear()
            await group.run("n3")
            await group.caught_up()
            assert first_index(group, "n3") > 1
            assert [record async for record in client.read("orders", 1, end=len(before) + 1, node="n3")] == before
            assert sources[NodeId("n3")].loads


async def test_records_of_a_run_that_was_dropped_are_not_read(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:
        client = group.client()
        await values_of(group, 1)
        [run] = group_runs(group)
        await client.trim_topic("orders", int(run.end))
        with pytest.raises(TrimmedError):
            await values_of(group, 1)
        await client.append("orders", b"new")
        await client.archive_topic("orders")
        assert not source.file(run.id).exists()
        with pytest.raises(TrimmedError):
            await values_of(group, 1)
        assert [record.value for record in await read(client, start=int(run.end))] == [b"new"]


# Programs that read the files of nodes.


async def test_a_replay_says_which_positions_are_archived_and_reports_no_damage(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:
        client = group.client()
        await client.append_many("orders", [b"in the log"] * 3)
        [run] = group_runs(group)
        await group.stop("n1")
        replay = OfflineReplay.open(RealDisk(), [str(tmp_path / "n1")])
        found, _ = replayed(replay)
        assert [record.position for record in found["orders"]][-3:] == [run.end, run.end + 1, run.end + 2]
        [finding] = [finding for finding in replay.findings if finding.kind == "archived"]
        first = found["orders"][0].position
        assert f"positions 1 to {first - 1} of topic 'orders'" in finding.text


async def test_a_replay_reports_records_that_are_neither_in_the_log_nor_archived(tmp_path: Path) -> None:
    """A disk has lost the first segments, and only some of their records are archived."""
    source = Source(tmp_path)
    async with Group(tmp_path, 1, run_stores=lambda _: source) as group:
        await group.run()
        client = group.client()
        await fill(client)
        await client.archive_topic("orders", 41, delay=0.0)
        await group.nodes[NodeId("n1")].group.create_snapshot()
        await group.stop("n1")
        for segment in sorted((tmp_path / "n1" / "wal").glob("*.segment"))[:2]:
            segment.unlink()
        replay = OfflineReplay.open(RealDisk(), [str(tmp_path / "n1")])
        assert replay.problem is not None
        assert "positions 1 to " in replay.problem.message


async def test_a_read_of_the_files_says_that_the_first_records_are_archived(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:
        client = group.client()
        await client.append("orders", b"in the log")
        [run] = group_runs(group)
        await group.stop("n1")
        found: list[int] = []
        records = list(offline_records(str(tmp_path / "n1"), "orders", found.append))
        assert found == [run.end]
        assert records[-1].value == b"in the log"
        assert records[0].position > 1


async def test_a_backup_says_what_is_archived_and_a_fork_of_it_reads_the_same_files(tmp_path: Path) -> None:
    source = Source(tmp_path)
    async with archived_group(tmp_path, lambda _: source) as group:
        client = group.client()
        before = await read(client)
        store = store_in(tmp_path / "backup")
        manifest = await back_up(store, client)
        [run] = group_runs(group)
        assert manifest.archived == {"orders": run.end - 1}
        assert BackupReader(store).verify(manifest).errors == []
        assert BackupCatalogue.load(store).find(None).archived == manifest.archived
    command = [sys.executable, "-m", "viewstamp", "backup", "verify", store.where, "--start"]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    assert "Keep the archive too: a backup lacks its files" in printed
    assert f"  orders: up to position {run.end - 1:,}" in printed
    assert "Not compared: these archived records, because the started node has no archive" in printed
    await asyncio.to_thread(
        restore_cluster,
        store,
        str(tmp_path / "restored"),
        RestorePlan(target=store.where, nodes=1, settings=(("archive.directory", source.where),)),
    )
    async with open_node(node_file(str(tmp_path / "restored"), "n1")) as node, connect(node.address) as client:
        assert await read(client) == before
        assert await client.find_orphans() == {}
