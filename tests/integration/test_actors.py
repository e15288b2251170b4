"""Replicated actors on killed nodes: each acknowledged command is applied once, and on all members alike.

Nodes are processes that SIGKILL ends at any moment, or they die in this process at each call of their disks in turn.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.integration.actor_group import ActorGroup, Callers, actor_processes
from tests.integration.ledger import Ledger
from tests.node.group import PATIENCE_SECONDS
from tests.processes import eventually, is_level, leader_of
from viewstamp.client import Client
from viewstamp.errors import OutcomeToken, OutcomeUnknownError, StorageFullError, UnavailableError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId
from viewstamp.node.snapshots.policy import SnapshotOptions
from viewstamp.streams import Streams
from viewstamp.wal import read_batches
from viewstamp.wire.batch import Batch

KIB, MIB = 1024, 1024 * 1024
SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
ROUNDS = 30 if SOAK else 4
CALLERS = 16

pytestmark = pytest.mark.slow


@dataclass
class Account:
    """The answers that the callers of all rounds received."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    """The last acknowledged number of each caller."""
    results: list[int] = field(default_factory=list)
    unknown: list[tuple[OutcomeToken | None, str, int]] = field(default_factory=list)
    is_over: bool = False

    async def call(self, client: Client, name: str, padding: bytes) -> None:
        """Enter number after number, until stopped or until an outcome is unknown."""
        ledger = client.actor("ledger", Ledger)
        number = 0
        while not self.is_over:
            number += 1
            try:
                result = await ledger.enter(name, number, padding)
            except StorageFullError:
                number -= 1  # The command was certainly not written, and there will be room again.
                await asyncio.sleep(0.01)
            except UnavailableError:
                return  # The command was certainly not written.
            except OutcomeUnknownError as error:
                self.unknown.append((error.token, name, number))
                return
            else:
                self.results.append(result)
                self.acknowledged[name] = number

    async def has(self, count: int) -> bool:
        """Return whether that many results have arrived."""
        return len(self.results) >= count

    async def resolve(self, client: Client) -> int:
        """Ask for the unknown outcomes; return how many there were."""
        unknown, self.unknown = self.unknown, []
        for token, name, number in unknown:
            assert token is not None, "a batch of a session has a token"
            if (await client.outcome(token)).applied:
                self.acknowledged[name] = number
        return len(unknown)

    async def check(self, client: Client) -> None:
        """Check that the state has no missing, doubled, misordered or invented command."""
        total, last, wrong = await client.actor("ledger", Ledger).state()
        assert wrong == []
        assert last == self.acknowledged
        assert total == sum(last.values())
        assert len(set(self.results)) == len(self.results)
        assert max(self.results, default=0) <= total


async def check_members(client: Client) -> None:
    """Check that all members report the same state."""

    async def is_same() -> bool:
        nodes = await client.status()
        assert len(nodes) == 3
        told = {(node.get("applied_index"), str(node.get("state", {}).get("actors"))) for node in nodes}
        return len(told) == 1

    await eventually(lambda: is_level(client))
    await eventually(is_same)


async def test_every_acknowledged_command_is_applied_once_although_all_nodes_are_killed(tmp_path: Path) -> None:
    """The kills come at random moments, also during snapshots and drops of the log.

    In every second round the client dies, too.
    """
    entropy = random.Random(1)
    account = Account()
    asked = 0
    settings = {"wal.bytes_max": str(16 * MIB), "snapshots.log_bytes": str(256 * KIB)}
    async with actor_processes(tmp_path, settings=settings) as cluster:
        for number in range(ROUNDS):
            async with cluster.connect() as client:
                account.is_over = False
                calling = [
                    asyncio.create_task(account.call(client, f"{number}-{caller}", bytes(3000)))
                    for caller in range(CALLERS)
                ]
                await eventually(partial(account.has, len(account.results) + 120))
                await asyncio.sleep(entropy.uniform(0, 0.3))
                await cluster.kill(*entropy.sample(cluster.names, 3))
                if number % 2:
                    await cluster.run()
                else:
                    await client.close()
                account.is_over = True
                await asyncio.gather(*calling)
            assert not (account.unknown and number % 2), "a client that stays alive gets every outcome in the end"
            await cluster.run()
            async with cluster.connect() as client:
                asked += await account.resolve(client)
                await account.check(client)
                await check_members(client)
        async with cluster.connect() as client:
            (first, *_) = await client.status()
            assert first["last_snapshot_index"] > 0
    assert sum(account.acknowledged.values()) > 100 * ROUNDS
    assert asked > 0, "no kill came in the middle of a command"


async def test_the_leaders_process_is_killed_while_it_sends_a_snapshot(tmp_path: Path) -> None:
    """The third member lacks three times as many records as a log holds, and a snapshot of 16 MiB takes some time."""
    settings = {
        "wal.bytes_max": str(16 * MIB),
        "snapshots.log_bytes": str(2 * MIB),
        "limits.batch_bytes_max": str(MIB * 2),
    }
    async with actor_processes(tmp_path, settings=settings) as cluster, cluster.connect() as client:
        await client.create_topic("news", retain_bytes=200_000)
        callers = Callers(client, [str(number) for number in range(8)], padding=bytes(30_000))
        await callers.send(1)
        away = "n3" if await eventually(lambda: leader_of(client)) != "n3" else "n1"
        await cluster.kill(away)
        books = client.actor("ledger", Ledger, key="books")
        for place in range(64):
            await patiently(partial(books.keep, place, bytes([place]) * (256 * KIB)))
        while len(callers.results) * 30_000 < 3 * 16 * MIB:
            await callers.send(4)
        for number in range(40):
            await patiently(partial(client.append, "news", b"%d" % number + bytes(16_000)))
        await eventually(lambda: have_dropped(client, 200))
        leader = await eventually(lambda: leader_of(client))
        await cluster.start(away)
        log = Path(cluster.node(away).log_file)
        await eventually(lambda: has_line(log, "= fetching a snapshot"))
        await cluster.kill(leader)
        await callers.send(1)
        await cluster.run()
        await check_members(client)
        first = (await client.describe_topic("news")).first_position
        contents = [
            [(record.position, record.value) async for record in client.read("news", first, node=name)]
            for name in cluster.names
        ]
        assert len(contents[0]) > 10
        assert contents[0] == contents[1] == contents[2]
        await callers.check()
        await eventually(lambda: has_line(log, "= snapshot installed"))


async def patiently(call: Callable[[], Awaitable[object]]) -> None:
    """Retry until the call is accepted, because a full log is soon trimmed."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await call()
            except StorageFullError:
                await asyncio.sleep(0.02)
            else:
                return


async def have_dropped(client: Client, index: int) -> bool:
    """Return whether two members have dropped their logs up to ``index``."""
    return sum(node.get("first_index", 0) > index for node in await client.status()) == 2


async def has_line(log: Path, event: str) -> bool:
    return event in await asyncio.to_thread(log.read_text)


# The contents of a state.


async def test_a_replay_on_an_empty_state_gives_the_same_bytes(tmp_path: Path) -> None:
    """The same from the log alone, and from a snapshot with the log behind it, as at a restart (checklist B1, 1)."""
    never = SnapshotOptions(log_bytes=1 << 40, restart_seconds_max=0)
    async with ActorGroup(tmp_path, 1, snapshots=never) as group:
        await group.run()
        callers = Callers(group.client(), [str(number) for number in range(50)], padding=b"x" * 100)
        await callers.send(20)
        before, chain = group.digests()[NodeId("n1")], group.nodes[NodeId("n1")].machine.chain
        await group.stop("n1")
        replayed = Streams({"ledger": Ledger})
        values = [value for batch in batches_of(tmp_path / "n1" / "wal", replayed) for value in batch.values()]
        assert replayed.digest() == before
        assert replayed.chain == chain
        assert sum(b"enter" in value for value in values) == 1000, "calls are logged"
        assert not any(b"total" in value for value in values), "but not their effects"

        await group.run()
        await group.client().create_snapshot()
        await callers.send(20)
        before, chain = group.digests()[NodeId("n1")], group.nodes[NodeId("n1")].machine.chain
        await group.stop("n1")
        await group.start("n1")
        assert group.digests()[NodeId("n1")] == before
        assert group.nodes[NodeId("n1")].machine.chain == chain
        await callers.check(group.client())


def batches_of(directory: Path, machine: Streams) -> Iterator[Batch]:
    """Apply a log to a machine, batch by batch."""
    for batch in read_batches(RealDisk(), str(directory)):
        machine.apply(batch)
        yield batch
