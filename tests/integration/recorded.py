"""A cluster of real nodes under load, with a recording of every disk operation and of every promise in between.

Only three things differ from production: the recording wraps the disks, a switchboard provides the addresses, and
elections are quicker than by default.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from tests.integration.promises import Acknowledged, Durable, Refused, Seen, Sent
from tests.node.group import Group
from tests.node.hooked_disk import HookedDisk
from viewstamp.client import Client
from viewstamp.errors import OutcomeUnknownError, StorageError, UnavailableError
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Disk
from viewstamp.ids import NodeId
from viewstamp.sim.recording import Recording
from viewstamp.wal.budget import WalOptions

__all__ = ["TOPICS", "WAL", "Forgets", "nothing", "record"]

TOPICS = ("orders", "payments")
APPENDERS = 6

SEGMENT_BYTES = (32 * 1024, 512 * 1024)
"""Small segments: the load fills a dozen in a second, so files are created and renamed. Large ones are never full."""

WAL = WalOptions(segment_bytes=SEGMENT_BYTES[0], reserve_bytes=0, idle_seconds=0.05)

Forgets = Callable[[str, str], bool]
"""Called with a disk call, such as ``sync_data``, and its calling function; returns whether to omit the call."""


def nothing(call: str, caller: str) -> bool:
    """Omit no call."""
    return False


async def record(directory: Path, *, seed: int, forgets: Forgets = nothing, changes: int = 8) -> Recording:
    """Run a cluster of three below ``directory`` under load, while leaders are deposed and members stopped and killed.

    Args:
      directory: exists; the cluster starts from its contents.
      seed: decides all random choices here, but not the scheduling of threads and sockets.
      forgets: selects syncs that are omitted, on the disk and in the recording.
      changes: the number of faults.
    """
    recording = Recording(str(directory))
    machines = _Machines(recording.disk(RealDisk()), forgets)
    entropy = random.Random(seed)
    wal = replace(WAL, segment_bytes=SEGMENT_BYTES[seed % 2])
    async with Group(directory, disks=machines.disk, seed=seed, wal=wal) as group:
        await group.run()
        client = group.client(seed=seed, batch_bytes=16 * 1024)
        for topic in TOPICS:
            await client.create_topic(topic)
        load = _Load(recording, group, client, entropy)
        async with asyncio.TaskGroup() as tasks:
            for number in range(APPENDERS):
                tasks.create_task(load.append(f"{seed}-{number}", TOPICS[number % len(TOPICS)]))
            tasks.create_task(load.look())
            for change in _draw_changes(changes, entropy):
                await asyncio.sleep(entropy.uniform(0.02, 0.1))
                await change(group, load, machines)
            await asyncio.sleep(0.05)
            load.is_over = True
    return recording


class _Machines:
    """The disks of the members, each of which ends with its process.

    A process dies between two calls of its disk. Its unsynced writes stay in the page cache, where the next process
    finds them, and are unsynced in the recording, too.
    """

    def __init__(self, disk: Disk, forgets: Forgets) -> None:
        self._disk = disk
        self._forgets = forgets
        self._calls_left: dict[NodeId, int] = {}

    def disk(self, node: NodeId) -> Disk:
        """Return the disk as a new process of ``node`` finds it."""
        self._calls_left.pop(node, None)

        def hook(call: str, _: str, caller: str) -> bool:
            if node in self._calls_left:
                self._calls_left[node] -= 1
                if self._calls_left[node] < 0:
                    raise StorageError("the process is dead")
            return not self._forgets(call, caller)

        return HookedDisk(self._disk, hook)

    def kill(self, node: NodeId, calls: int) -> None:
        """Let the process of ``node`` die after ``calls`` more calls of its disk."""
        self._calls_left[node] = calls


class _Load:
    def __init__(self, recording: Recording, group: Group, client: Client, entropy: random.Random) -> None:
        self.entropy = entropy
        self.is_over = False
        self._recording = recording
        self._group = group
        self._client = client
        self._floods = 0
        self._durable: dict[NodeId, int] = {}

    async def append(self, name: str, topic: str) -> None:
        """Append small records one by one, and sometimes several in one append."""
        number = 0
        while not self.is_over:
            number += 1
            count = self.entropy.choice((1, 1, 1, 4))
            await self._append(topic, self._values(f"{name}-{number}", count, 400))
            await asyncio.sleep(self.entropy.uniform(0, 0.004))

    async def look(self) -> None:
        """Ask for the ends of the topics, linearizably."""
        while not self.is_over:
            for topic in TOPICS:
                described = await self._client.describe_topic(topic)
                self._recording.mark(Seen(topic, described.last_position))
                await asyncio.sleep(0.02)

    async def flood(self, batches: int) -> None:
        """Append large batches in quick succession; some of them fill several segments."""
        self._floods += 1
        async with asyncio.TaskGroup() as appending:
            for number in range(batches):
                values = self._values(f"flood-{self._floods}-{number}-{self.entropy.random()}", 2, 20_000)
                appending.create_task(self._append(TOPICS[0], values))
                await asyncio.sleep(0.01)

    def _values(self, name: str, count: int, bytes_max: int) -> tuple[bytes, ...]:
        sizes = [self.entropy.randrange(bytes_max) for _ in range(count)]
        return tuple(f"{name}-{at} ".encode() + b"." * size for at, size in enumerate(sizes))

    async def _append(self, topic: str, values: tuple[bytes, ...]) -> None:
        self._recording.mark(Sent(topic, values))
        try:
            if len(values) == 1:
                receipts = [await self._client.append(topic, values[0])]
            else:
                receipts = await self._client.append_many(topic, values)
        except UnavailableError:
            self._recording.mark(Refused(topic, values))
        except OutcomeUnknownError:
            return
        else:
            self._recording.mark(Acknowledged(topic, values, receipts[0].position))
            for name, node in self._group.nodes.items():
                end = node.replica.raft.core.log.durable_end if node.replica is not None else 0
                if end != self._durable.get(name, 0):
                    self._durable[name] = end
                    self._recording.mark(Durable(name, end))


Change = Callable[[Group, _Load, _Machines], Awaitable[None]]


async def _depose_leader(group: Group, load: _Load, _: _Machines) -> None:
    """Cut the leader off while it accepts appends, so that its log has a tail to be cut when it comes back."""
    leader = (await group.leader()).options.node
    group.isolate(leader)
    flood = asyncio.create_task(load.flood(load.entropy.choice((0, 8))))
    await group.leader(not_=leader)
    await asyncio.sleep(load.entropy.uniform(0, 0.1))
    group.heal()
    await group.caught_up_with_leader(leader)
    await flood


async def _restart_one(group: Group, load: _Load, _: _Machines) -> None:
    name = load.entropy.choice(list(group.members))
    await group.stop(name)
    await asyncio.sleep(load.entropy.uniform(0, 0.1))
    await group.run(name)


async def _restart_all(group: Group, load: _Load, _: _Machines) -> None:
    await group.stop(*group.nodes)
    await group.run()


async def _kill_one(group: Group, load: _Load, machines: _Machines) -> None:
    await _kill([load.entropy.choice(list(group.members))], group, load, machines)


async def _kill_all(group: Group, load: _Load, machines: _Machines) -> None:
    await _kill(list(group.members), group, load, machines)


async def _kill(names: list[NodeId], group: Group, load: _Load, machines: _Machines) -> None:
    for name in names:
        machines.kill(name, load.entropy.randrange(12))
    await asyncio.wait([group.nodes[name].failed for name in names], timeout=0.05)
    for name in names:
        machines.kill(name, 0)  # A member that has nothing to write, because the others are dead, dies at once.
    await group.stop(*names)
    await group.run(*names)


def _draw_changes(count: int, entropy: random.Random) -> list[Change]:
    """Draw the faults: each kind once, then random ones."""
    changes: list[Change] = [_depose_leader, _kill_all, _restart_one, _depose_leader, _restart_all, _kill_one]
    drawn = [*changes, *entropy.choices(changes, k=count)][:count]
    entropy.shuffle(drawn)
    return drawn
