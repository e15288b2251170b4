"""A log with a bound never exceeds it, loses nothing, holds appends up only briefly, and restarts quickly.

The tests use real disks, and measure the files by their lengths and blocks.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

import viewstamp as vs
from tests.integration.actor_group import ActorGroup, Callers, actor_processes, bytes_in
from tests.integration.ledger import Ledger
from tests.node.group import CALM, PATIENCE_SECONDS, Group, not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.client import Client
from viewstamp.errors import StorageFullError, TrimmedError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId
from viewstamp.node import Node
from viewstamp.node.snapshots.policy import SnapshotOptions
from viewstamp.wal.budget import WalOptions

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
KIB, MIB = 1024, 1024 * 1024
TIGHT = WalOptions(segment_bytes=64 * KIB, bytes_max=MIB, reserve_bytes=0, margin_bytes=8 * KIB)
"""Sixteen small segments, which are soon full."""
ROOMY = replace(TIGHT, bytes_max=4 * MIB)
OFTEN = SnapshotOptions(log_bytes=128 * KIB)

ResultT = TypeVar("ResultT")

pytestmark = pytest.mark.slow


class Sampler:
    """Measures the sizes of some directories all the time, on its own thread."""

    def __init__(self, *directories: Path) -> None:
        self.largest = 0
        self.most_blocks = 0
        self.count = 0
        self._directories = directories
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.002):
            for directory in self._directories:
                size, blocks = bytes_in(directory)
                self.largest = max(self.largest, size)
                self.most_blocks = max(self.most_blocks, blocks)
                self.count += 1


async def test_commands_never_go_over_the_bound_and_none_is_lost_and_a_restart_is_quick(tmp_path: Path) -> None:
    """The commands have three times the size of the bound; the files of three members are measured all the time."""
    wal = WalOptions(segment_bytes=256 * KIB, bytes_max=4 * MIB, reserve_bytes=0)
    snapshots = SnapshotOptions(log_bytes=MIB, restart_seconds_max=5.0)
    async with ActorGroup(tmp_path, core=CALM, wal=wal, snapshots=snapshots) as group:
        await group.run()
        callers = Callers(group.client(), [str(number) for number in range(250)], padding=bytes(450))
        with Sampler(*(tmp_path / name / "wal" for name in group.members)) as sampler:
            await callers.send(100)
            await group.caught_up()
        await callers.check()
        # All callers are refused together, every 20 ms, until the others' next report of their room.
        assert callers.refused < 25_000, "a log of commands alone is never full for long"
        assert len(set(group.digests().values())) == 1
        for node in group.nodes.values():
            assert node.group.wal is not None
            assert node.group.wal.end > 25_000
            await wait_for(lambda wal=node.group.wal: wal.first_index > 15_000, lambda: "little was dropped")  # type: ignore[misc]
        assert sampler.count > 100
        assert sampler.largest <= 4 * MIB
        assert sampler.most_blocks <= 4 * MIB + 64 * KIB, "only the file system's own blocks may come on top"
        await group.stop(*group.nodes)
        for name in group.members:
            started = time.process_time()
            await group.start(name)
            assert time.process_time() - started < 5.0
        await group.caught_up()
        await callers.send(1)
        await callers.check(group.client())


@pytest.mark.skipif(not SOAK, reason="minutes: a million commands")
async def test_a_million_commands_go_through_64_mib_and_all_processes_are_killed_in_between(tmp_path: Path) -> None:
    settings = {"wal.bytes_max": str(64 * MIB), "wal.segment_bytes": str(4 * MIB)}
    async with actor_processes(tmp_path, settings=settings) as cluster, cluster.connect() as client:
        callers = Callers(client, [str(number) for number in range(1000)], padding=bytes(200))
        with Sampler(*(tmp_path / name / "wal" for name in cluster.names)) as sampler:
            for part in range(4):
                sending = asyncio.create_task(callers.send(250))
                if part in (1, 2):
                    await asyncio.sleep(5)
                    await cluster.kill(*cluster.names)
                    began = time.monotonic()
                    await cluster.run()
                    assert time.monotonic() - began < 10, "[snapshots] restart_seconds_max"
                await sending
        await callers.check()
        assert len(callers.results) == 1_000_000
        assert sampler.largest <= 64 * MIB
        assert sampler.most_blocks <= 64 * MIB + 64 * KIB
        for node in await client.status():
            assert node["first_index"] > 700_000


HONEST = 3
"""Limit of an estimate on a quiet machine, as a multiple of the processor time. It is an estimate of wall time."""


class Slow(vs.ReplicatedActor):
    """An actor with small commands that take long."""

    def __init__(self) -> None:
        self.count = 0

    @vs.command
    def work(self) -> int:
        """Take about a millisecond."""
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            pass
        self.count += 1
        return self.count


async def restart_seconds(group: Group, name: str) -> tuple[float, float]:
    """Stop a member and start it again; return the start's processor time, and its duration."""
    await group.stop(name)
    began, used = time.monotonic(), time.process_time()
    await group.start(name)
    return time.process_time() - used, time.monotonic() - began


async def work(client: Client, count: int, at_once: int = 50) -> None:
    slow = client.actor("slow", Slow)
    for _ in range(count // at_once):
        await asyncio.gather(*(slow.work() for _ in range(at_once)))


async def test_the_estimate_of_a_restart_is_honest_also_for_few_commands_that_take_long(tmp_path: Path) -> None:
    """Nothing in the size of the log shows that replaying it takes a second."""
    never = SnapshotOptions(log_bytes=1 << 40, restart_seconds_max=0)
    async with ActorGroup(tmp_path, 1, classes=lambda _: {"slow": Slow}, snapshots=never) as group:
        await group.run()
        began = time.monotonic()
        await work(group.client(), 1000)
        worked = time.monotonic() - began  # On a busy machine much longer than the processor time.
        (node,) = group.nodes.values()
        estimate = float(str(node.status["restart_seconds_estimate"]))
        took, started = await restart_seconds(group, "n1")
        assert took > 0.9, "the commands are too quick for this test"
        assert took / 3 < estimate < max(took * HONEST, worked)
        await group.leader()
        again = float(str(group.nodes[NodeId("n1")].status["restart_seconds_estimate"]))
        # No snapshot was taken meanwhile, so the next restart takes as long.
        assert took / 3 < again < max(took * HONEST, 1.5 * started)


async def test_a_restart_takes_no_longer_than_it_may_however_little_log_there_is(tmp_path: Path) -> None:
    """Commands that take two seconds, in 100 KiB of log: a snapshot is due because of the replay time alone."""
    options = SnapshotOptions(log_bytes=64 * MIB, restart_seconds_max=0.8)
    async with ActorGroup(tmp_path, 1, classes=lambda _: {"slow": Slow}, snapshots=options) as group:
        await group.run()
        await work(group.client(), 2000)
        (node,) = group.nodes.values()
        assert node.group.parts is not None
        await wait_for(lambda: node.group.parts.snapshotter.restart_seconds < 0.8, lambda: str(node.status))  # type: ignore[union-attr]
        took, _ = await restart_seconds(group, "n1")
        assert took < 0.8
        await work(group.client(), 50)


# A full log.

VALUE = bytes(4000)


async def fill(client: Client, topic: str = "orders") -> tuple[int, StorageFullError]:
    """Append until a refusal; return the number of accepted records, and the refusal."""
    for number in range(10_000):
        try:
            await client.append(topic, VALUE)
        except StorageFullError as error:
            return number, error
    raise AssertionError("it is never full")


async def as_soon_as_there_is_room(call: Callable[[], Awaitable[ResultT]], *, pause: float = 0.02) -> ResultT:
    """Retry until the call is accepted, as the remedy of a StorageFullError asks a caller to do."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await call()
            except StorageFullError:
                await asyncio.sleep(pause)


@asynccontextmanager
async def full(directory: Path) -> AsyncIterator[tuple[ActorGroup, Client, int, StorageFullError]]:
    """Run a group with a log that is full with a topic's records and three entries of a ledger."""
    async with ActorGroup(directory, core=CALM, wal=TIGHT, snapshots=OFTEN) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        for number in range(1, 4):
            await client.actor("ledger", Ledger).enter("first", number)
        count, error = await fill(client)
        yield group, client, count, error
        for node in group.nodes.values():
            assert not node.failed.done(), group.journal.tail()
            assert node.replica is not None
            assert node.replica.led_terms <= 1, "no member was restarted or deposed because of it"


def check_refusal(error: StorageFullError) -> None:
    """Check that the refusal names the bytes left, the topic that holds the log, and the command that frees it."""
    assert "bytes can still be written" in error.message
    assert "'orders'" in error.remedy
    assert "viewstamp topic trim orders" in error.remedy


async def check_still_readable(group: ActorGroup, client: Client, count: int) -> None:
    """Check that a full log serves reads on each member, and linearizable queries."""
    for name in group.members:
        await group.caught_up_with_leader(name)
        assert len([record async for record in client.read("orders", node=name)]) == count
    assert (await client.actor("ledger", Ledger).state())[0] == 3
    assert (await client.describe_topic("orders")).last_position == count


async def check_goes_on(group: ActorGroup, client: Client, count: int) -> None:
    """Check that appends and commands are accepted again, and that all members hold the same."""
    receipt = await as_soon_as_there_is_room(lambda: client.append("orders", b"more"))
    assert receipt.position == count + 1, "no refused record is in the topic"
    entered = await as_soon_as_there_is_room(lambda: client.actor("ledger", Ledger).enter("first", 4))
    assert entered == 4
    for _ in range(30):
        await as_soon_as_there_is_room(lambda: client.append("orders", VALUE))
    await group.caught_up()
    assert len(set(group.digests().values())) == 1
    first = (await client.describe_topic("orders")).first_position
    contents = [
        [(record.position, record.value) async for record in client.read("orders", first, node=name)]
        for name in group.members
    ]
    assert contents[0] == contents[1] == contents[2]
    assert (count + 1, b"more") in contents[0]


async def test_a_log_full_of_records_refuses_early_and_goes_on_after_a_trim(tmp_path: Path) -> None:
    async with full(tmp_path) as (group, client, count, error):
        check_refusal(error)
        assert count * len(VALUE) > 0.7 * MIB, "that is very early"
        leader = await group.leader()
        assert int(str(leader.status["log_bytes"])) > 0.75 * MIB, "`viewstamp status` warns from there on"
        assert group.journal.of("! the log is filling up", node=leader.options.node), "and the log said so before"
        with pytest.raises(StorageFullError) as refused:
            await client.actor("ledger", Ledger).enter("first", 4, VALUE)
        check_refusal(refused.value)
        await check_still_readable(group, client, count)
        trimmed = await client.trim_topic("orders", count // 2)
        assert trimmed.first_position == count // 2
        await check_goes_on(group, client, count)
        with pytest.raises(TrimmedError):
            [record async for record in client.read("orders", 1)]


async def test_a_log_full_of_records_goes_on_when_the_topics_retention_is_lowered(tmp_path: Path) -> None:
    async with full(tmp_path) as (group, client, count, error):
        check_refusal(error)
        await check_still_readable(group, client, count)
        configured = await client.configure_topic("orders", retain_bytes=200_000)
        assert configured.first_position > count / 2
        await check_goes_on(group, client, count)
        before = (await client.describe_topic("orders")).last_position
        for _ in range(600):
            receipt = await as_soon_as_there_is_room(lambda: client.append("orders", VALUE))
        assert receipt.position == before + 600, "more than twice the bound goes through a topic that keeps little"


class SlowSyncs:
    """The disks of a group. Each sync of one of them takes until the leader has written 300 records more."""

    def __init__(self) -> None:
        self.slow = ""
        self.leader: Node | None = None

    def of(self, node: NodeId) -> HookedDisk:
        def hook(call: str, path: str, caller: str) -> bool:
            if node == self.slow and call in ("sync_data", "sync") and "/wal/" in path:
                self._wait()
            return not_on_the_loop(call, path, caller)

        return HookedDisk(RealDisk(), hook)

    def _wait(self) -> None:
        assert self.leader is not None
        assert self.leader.group.wal is not None
        end, until = self.leader.group.wal.end + 300, time.monotonic() + PATIENCE_SECONDS
        while self.slow and self.leader.group.wal.end < end and time.monotonic() < until:
            time.sleep(0.005)


class NoSnapshots:
    """A device without room for snapshots, until the test changes that."""

    def __init__(self) -> None:
        self.is_full = True
        self.refused = 0

    def disk(self, _: NodeId) -> HookedDisk:
        def hook(call: str, path: str, caller: str) -> bool:
            if self.is_full and call == "create" and "/snapshots/" in path:
                self.refused += 1
                raise StorageFullError("no room for a snapshot", remedy="free space")
            return not_on_the_loop(call, path, caller)

        return HookedDisk(RealDisk(), hook)


async def test_a_log_that_grew_while_no_snapshot_could_be_taken_goes_on_by_itself(tmp_path: Path) -> None:
    """A topic keeps its newest records, and the base is the last snapshot before them.

    If the log had grown to its bound without a snapshot, the next snapshot would lie behind the kept records and could
    not be a base. The log would then stay full, although little of it is needed, until an operator trimmed the topic.
    """
    device = NoSnapshots()
    async with ActorGroup(tmp_path, 1, wal=ROOMY, snapshots=OFTEN, disks=device.disk) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders", retain_bytes=100_000)
        device.is_full = False
        await client.append("orders", VALUE)
        await client.create_snapshot()
        device.is_full = True

        async def append_until_refused() -> None:
            for _ in range(10_000):
                await client.append("orders", 4 * VALUE)

        with pytest.raises(StorageFullError, match="no room for a snapshot") as refused:
            await append_until_refused()
        assert "viewstamp snapshot create" in refused.value.remedy
        (status,) = await client.status()
        assert "no room for a snapshot" in status["full"][0]
        assert device.refused
        device.is_full = False
        for _ in range(200):
            await as_soon_as_there_is_room(lambda: client.append("orders", 4 * VALUE))
        assert (await client.status())[0]["full"] is None


async def enter_until_full(ledger: type[Ledger]) -> tuple[int, StorageFullError]:
    """Enter commands until a refusal; return the number of accepted ones, and the refusal."""
    for number in range(10_000):
        try:
            await ledger.enter("only", number + 1, VALUE)
        except StorageFullError as error:
            return number, error
    raise AssertionError("it is never full")


async def test_a_log_full_of_commands_goes_on_as_soon_as_a_snapshot_can_be_taken(tmp_path: Path) -> None:
    device = NoSnapshots()
    async with ActorGroup(tmp_path, core=CALM, wal=TIGHT, snapshots=OFTEN, disks=device.disk) as group:
        await group.run()
        client = group.client()
        ledger = client.actor("ledger", Ledger)
        entered, error = await enter_until_full(ledger)
        assert "viewstamp snapshot create" in error.remedy
        assert entered > 100
        assert (await ledger.state())[0] == entered, "queries are answered"
        await wait_for(lambda: device.refused, group.journal.tail)
        device.is_full = False
        for name in group.members:
            await client.create_snapshot(name)
        for number in range(entered + 1, 3 * entered):
            entered = await as_soon_as_there_is_room(partial(ledger.enter, "only", number, VALUE))
        await group.caught_up()
        assert await ledger.state() == (entered, {"only": entered}, [])
        assert len(set(group.digests().values())) == 1
        assert not any(node.failed.done() for node in group.nodes.values())


async def test_a_log_that_is_half_full_drops_what_a_large_batch_needs(tmp_path: Path) -> None:
    """The log keeps the records back to the second newest snapshot, but not if a batch is refused for that."""
    async with ActorGroup(tmp_path, 1, wal=TIGHT) as group:
        await group.run()
        ledger = group.client().actor("ledger", Ledger)
        for number in range(1, 10):
            await ledger.enter("only", number, bytes(60 * KIB))
            if number in (3, 6):
                await group.client().create_snapshot()
        with pytest.raises(StorageFullError):
            await ledger.enter("only", 10, bytes(620 * KIB))
        # Each refused call opens a session, which is a record. A longer pause leaves too few of them for a snapshot.
        assert await as_soon_as_there_is_room(lambda: ledger.enter("only", 10, bytes(620 * KIB)), pause=0.2) == 10


# Records kept for other members.


async def test_whole_segments_go_and_a_slow_follower_is_waited_for_until_room_is_short(tmp_path: Path) -> None:
    """A member that accepts batches, however slowly, holds the log, but not once the log is three quarters full."""
    disk = SlowSyncs()
    async with ActorGroup(tmp_path, core=CALM, wal=ROOMY, snapshots=OFTEN, disks=disk.of) as group:
        await group.run()
        callers = Callers(group.client(), ["one", "two"], padding=VALUE)
        leader = await group.leader()
        assert leader.group.wal is not None
        assert leader.replica is not None
        assert leader.group.parts is not None
        disk.leader = leader
        disk.slow = next(name for name in group.members if name != leader.options.node)
        begins: set[int] = set()
        was_held = False
        while leader.group.wal.first_index == 1:
            was_pressed = leader.group.wal.bytes_left < 0.25 * ROOMY.bytes_max
            await callers.send(10)
            begins |= {segment.first_index for segment in leader.group.wal.segments()}
            first, behind = (
                leader.group.wal.first_index,
                leader.replica.raft.core.leading.progress[disk.slow].durable_end,
            )
            newest = leader.group.parts.snapshotter.newest
            if leader.group.wal.bytes_left >= 0.25 * ROOMY.bytes_max and not was_pressed:
                assert first <= behind, "the follower needs the dropped records"
                was_held |= newest is not None and newest.end > behind + 100
        assert was_held, "no records were held for the follower"
        first, behind = leader.group.wal.first_index, leader.replica.raft.core.leading.progress[disk.slow].durable_end
        assert first > behind, "the follower held a full log"
        assert first in begins, "a part of a segment was dropped"
        assert leader.group.wal.segments()[0].first_index == first, "one segment is left"
        disk.slow = ""
        await group.caught_up()
        assert len(set(group.digests().values())) == 1
        await callers.check()


async def test_a_member_that_is_away_holds_nothing_and_the_last_segment_stays(tmp_path: Path) -> None:
    async with ActorGroup(tmp_path, wal=ROOMY, snapshots=OFTEN) as group:
        await group.run()
        callers = Callers(group.client(), ["one", "two"], padding=VALUE)
        leader = await group.leader()
        assert leader.group.wal is not None
        await group.stop("n3")
        for _ in range(20):
            await callers.send(10)
        for name in group.nodes:
            await group.client().create_snapshot(name)
            await callers.send(1)
            await group.client().create_snapshot(name)
        await wait_for(lambda: leader.group.wal.first_index > 300, lambda: str(leader.status))  # type: ignore[union-attr]
        assert leader.group.wal.first_index <= leader.group.wal.end
        assert len(leader.group.wal.segments()) >= 1
        await callers.check()


async def test_a_state_larger_than_the_log_and_a_topic_that_keeps_little_never_fill_it_for_good(
    tmp_path: Path,
) -> None:
    """The first kept record lies between two snapshots.

    The log from the older snapshot on stays, and must leave room.
    """
    async with ActorGroup(tmp_path, 1, wal=ROOMY, snapshots=OFTEN) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders", retain_bytes=100_000)
        for place in range(24):
            keep = partial(client.actor("ledger", Ledger, key="large").keep, place, bytes([place]) * 256 * KIB)
            await as_soon_as_there_is_room(keep)
        callers = Callers(client, [str(number) for number in range(8)], padding=4 * VALUE)
        for _ in range(80):
            orders = [as_soon_as_there_is_room(lambda: client.append("orders", 4 * VALUE)) for _ in range(2)]
            await asyncio.gather(callers.send(1), *orders)
        await callers.check()
        assert (await client.describe_topic("orders")).last_position == 160
