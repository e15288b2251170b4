"""Backups of a running cluster with groups and streams, in the middle of faults, restored and compared.

Every record that was acknowledged before a backup began is in it, at its position in its stream. Each position in the
topic is that at which a reader of the original saw the record. The restored states contradict nothing.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

import pytest

from tests.sim.test_client_of_groups import change_leaders
from tests.sim.test_groups import CALM, PlacedWorld
from tests.sim.test_spread_appends import Writer, spread
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.create import BackupTaker
from viewstamp.backup.manifest import Manifest
from viewstamp.backup.options import BackupOptions
from viewstamp.backup.restore import choose, write_directories
from viewstamp.backup.source import ClusterSource, LogPoint
from viewstamp.backup.store import DirectoryStore
from viewstamp.backup.verify import BackupReader
from viewstamp.client import Receipt, SpreadTopicInfo
from viewstamp.client.aio import Client
from viewstamp.client.results import SpreadRecord
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.fork import Basis, NewMember, fork, judge_source
from viewstamp.ids import GROUP_0, GroupId, NodeId, Stream
from viewstamp.replay.read import ExtentReader
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.streams.joint_cut import contradictions
from viewstamp.streams.state import State
from viewstamp.wire.batch import Kind

pytestmark = pytest.mark.slow

DIRECTORIES = ("/n1", "/n2", "/n3")


@dataclass(frozen=True)
class Taken:
    """A backup, with the appends that were acknowledged before it began."""

    manifest: Manifest
    acknowledged: list[tuple[Receipt, bytes]]


class SlowSource(ClusterSource):
    """A running cluster, whose other groups are described some time after group 0."""

    def __init__(self, client: Client, seconds: float) -> None:
        super().__init__(client, timeout=1.0)
        self._seconds = seconds

    async def describe_group(self, group: int) -> LogPoint:
        await asyncio.sleep(self._seconds)
        return await super().describe_group(group)


class Backups:
    """Takes backups of a world, one after the other, and reads the topic beside them."""

    def __init__(self, world: PlacedWorld, writer: Writer) -> None:
        self.disk = SimulatedDisk("target", loop=world.loop)
        self.taken: list[Taken] = []
        self.failures: list[str] = []
        self.seen: list[SpreadRecord] = []
        self._world = world
        self._writer = writer
        self._reader = Writer(world, timeout=2.0)
        self._entropy = world.loop.entropy("backups")

    async def take(self) -> None:
        store = DirectoryStore(self.disk, "/target")
        client = self._reader.client
        while not self._writer.is_over:
            await asyncio.sleep(self._entropy.expovariate(2.0))
            acknowledged = [
                (answer, value) for (_, value), answer in self._writer.answers.items() if isinstance(answer, Receipt)
            ]
            size = self._entropy.choice((2000, 20_000))
            options = BackupOptions(bytes_per_second=1 << 40, share=1.0, request_bytes=size, attempts=6)
            source = SlowSource(client, self._entropy.choice((0.0, 0.7)))
            try:
                with store.held():
                    taker = BackupTaker(store, source, clock=self._world.members[0].clock, release="s", options=options)
                    self.taken.append(Taken(await taker.take(), acknowledged))
            except UnavailableError as error:
                self.failures.append(error.message)

    async def read(self) -> None:
        while not self._writer.is_over:
            start = int(self.seen[-1].position) + 1 if self.seen else 1
            try:
                async for record in self._reader.client.read("spread", start):
                    self.seen.append(record)
            except UnavailableError:
                pass
            await asyncio.sleep(0.02)

    def start(self) -> list[asyncio.Task[None]]:
        return [self._reader.process.spawn(self.take()), self._reader.process.spawn(self.read())]


def restored(target: SimulatedDisk, manifest: Manifest) -> tuple[dict[GroupId, State], dict[Stream, dict[int, bytes]]]:
    """Restore a backup; return the states of its groups, and the records by stream and position."""
    store = DirectoryStore(target, "/target")
    reader = BackupReader(store)
    assert reader.verify(manifest).errors == []
    disk = SimulatedDisk("restored")
    choice = choose(BackupCatalogue.load(store), manifest.id)
    write_directories(disk, "/source", reader, choice, random.Random(1))
    members = [
        NewMember(node=NodeId(directory[1:]), address=f"{directory[1:]}:1", directory=directory)
        for directory in DIRECTORIES
    ]
    backup = judge_source(disk, ["/source"], basis=Basis.COMMITTED, with_groups=True)
    fork(disk, backup, cluster="restored", members=members, entropy=random.Random(2), segment_bytes=1 << 16)
    source = judge_source(disk, DIRECTORIES, with_groups=True)
    states: dict[GroupId, State] = {}
    records: dict[Stream, dict[int, bytes]] = {}
    for group, log in source.logs.items():
        assert log.plan is not None
        assert log.plan.state is not None
        states[GroupId(group)] = log.plan.state
        with ExtentReader(disk) as extents:
            for batch in log.batches(extents):
                if batch.kind is Kind.RECORDS and group:
                    stream = Stream(GroupId(group), log.plan.state.topics[batch.topic].name)
                    for at, record in enumerate(batch.records()):
                        records.setdefault(stream, {})[int(batch.first_position) + at] = bytes(record.value)
    return states, records


def check(topic: SpreadTopicInfo, backups: Backups, taken: Taken) -> int:
    """Check a backup; return the number of its records with positions in the topic."""
    states, records = restored(backups.disk, taken.manifest)
    home, groups = states[GROUP_0], {group: state for group, state in states.items() if group}
    assert contradictions(home, groups) == []

    def stream_of(number: int) -> Stream:
        return Stream(topic.group_of(number), topic.topic_of(number))

    for receipt, value in taken.acknowledged:
        assert receipt.stream is not None
        assert records[stream_of(receipt.stream)].get(receipt.position) == value, f"{receipt} was acknowledged"
    for record in backups.seen:
        stream, local = stream_of(record.stream), int(record.stream_position)
        if local < home.order.ordered_end(stream):
            found = home.order.find_global(stream, local) or groups[stream.group].maps.find_global(stream.name, local)
            assert found == record.position, f"a reader saw record {local} of {stream} at another position"
            assert records[stream][local] == record.value
    ordered = sum(int(home.order.ordered_end(stream_of(number))) - 1 for number in range(1, topic.streams + 1))
    assert home.order.next_position("spread") == ordered + 1
    return ordered


@pytest.mark.parametrize("seed", [5])
def test_a_backup_of_a_running_cluster_with_groups_has_one_order(seed: int) -> None:
    world = PlacedWorld(seed, CALM, number=0)
    try:
        groups = [world.place(f"s{number}") for number in range(3)]
        assert world.loop.run_until(lambda: all(world.writers.acknowledged[each] for each in groups), seconds=60.0)
        topic = spread(world, groups, 3)
        writer = Writer(world, timeout=0.15)
        backups = Backups(world, writer)
        tasks = [writer.process.spawn(writer.write(b"key %d" % number)) for number in range(2)]
        tasks += backups.start()
        change_leaders(world, groups)
        world.take_down(world.members[0], power=True)
        world.loop.run_until(lambda: False, seconds=0.5)
        world.bring_up(world.members[0])
        world.loop.run_until(lambda: False, seconds=0.5)
        world.loop.run_until(lambda: len(backups.taken) > 4, seconds=30.0)
        writer.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=120.0)
        for task in tasks:
            task.result()
        world.finish(names_min=1)
        assert len(backups.taken) > 3, backups.failures
        step = max(1, len(backups.taken) // 3)
        ordered = [check(topic, backups, each) for each in backups.taken[::step]]
        assert ordered == sorted(ordered)
        assert len({*ordered}) > 2, "the order went on between backups"
        assert any(log.chain is None for each in backups.taken for log in each.manifest.groups), "no log was cut"
    finally:
        world.close()


class TopicBetween(ClusterSource):
    """A running cluster, in which a topic is created when group 0 has been described for the first time."""

    described = 0
    created = False

    async def describe(self) -> LogPoint:
        point = await super().describe()
        self.described += 1
        return point

    async def describe_group(self, group: int) -> LogPoint:
        if self.described == 1 and not self.created:
            self.created = True
            await self._client.create_spread_topic("late", 1)
            await self._client.describe_stream("late", 1)
            await self._client.append("late", b"x")
        return await super().describe_group(group)


def test_a_topic_that_is_created_during_a_backup_begins_it_again() -> None:
    world = PlacedWorld(1, CALM, number=0)
    try:
        placed = world.place("s1")
        assert world.loop.run_until(lambda: world.writers.acknowledged[placed], seconds=60.0)
        caller, disk = Writer(world, timeout=20.0), SimulatedDisk("target", loop=world.loop)
        store = DirectoryStore(disk, "/target")
        source = TopicBetween(caller.client)
        options = BackupOptions(bytes_per_second=1 << 40, share=1.0, attempts=4)
        with store.held():
            taker = BackupTaker(store, source, clock=world.members[0].clock, release="s", options=options)
            manifest = caller.run(taker.take())
        states, records = restored(disk, manifest)
        assert source.described == 2
        assert [*states[GROUP_0].spread.topics] == ["late"]
        assert records == {Stream(placed, "late.1"): {1: b"x"}}
    finally:
        world.close()


def test_a_log_of_a_member_alone_is_refused_with_groups() -> None:
    world = PlacedWorld(1, CALM, number=0)
    try:
        placed = world.place("s1")
        assert world.loop.run_until(lambda: world.writers.acknowledged[placed], seconds=60.0)
        caller = Writer(world, timeout=20.0)
        source = ClusterSource(caller.client, stale=True)
        with pytest.raises(RequestError, match="a backup of group 0 alone would lack their records"):
            caller.run(source.describe())
        point = caller.run(ClusterSource(caller.client).describe())
        assert point.cut is not None
        assert (len(point.groups), point.cut.version, point.cut.open_attempts) == (1, 0, frozenset())
        assert replace(point, placement=None) != point
    finally:
        world.close()
