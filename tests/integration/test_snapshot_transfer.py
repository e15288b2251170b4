"""A member that lacks the log's dropped beginning gets a snapshot, even if its sender fails."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import viewstamp as vs
from tests.integration.actor_group import ActorGroup, Callers
from tests.integration.ledger import Ledger
from tests.integration.slow_network import slow_down
from tests.node.group import CALM, PATIENCE_SECONDS, not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.client import Client
from viewstamp.errors import StorageError, StorageFullError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId
from viewstamp.node.node import Node
from viewstamp.node.snapshots.policy import SnapshotOptions
from viewstamp.wal.budget import WalOptions

KIB, MIB = 1024, 1024 * 1024
SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
BOUND = 6 * MIB
WAL = WalOptions(segment_bytes=256 * KIB, bytes_max=BOUND, reserve_bytes=0, margin_bytes=8 * KIB)
SNAPSHOTS = SnapshotOptions(log_bytes=MIB)
VALUE = bytes(16_000)

pytestmark = pytest.mark.slow


class Shelf(vs.ReplicatedActor):
    """An actor with a state of some size, which cannot be compressed."""

    def __init__(self) -> None:
        self.books: dict[int, bytes] = {}

    @vs.command
    def put(self, place: int, size: int) -> None:
        """Add a book of ``size`` bytes."""
        self.books[place] = self.random.randbytes(size)

    @vs.query
    def count(self) -> int:
        """Return the number of books."""
        return len(self.books)


CLASSES = {"ledger": Ledger, "shelf": Shelf}


class Machines:
    """The disks of the members; the disk of a killed member ignores all calls."""

    def __init__(self) -> None:
        self._dead: set[NodeId] = set()

    def disk(self, node: NodeId) -> HookedDisk:
        self._dead.discard(node)

        def hook(call: str, path: str, caller: str) -> bool:
            if node in self._dead:
                raise StorageError("the process is dead")
            return not_on_the_loop(call, path, caller)

        return HookedDisk(RealDisk(), hook)

    async def kill(self, group: ActorGroup, name: NodeId) -> None:
        """Let a member die immediately: none of its pending writes or messages arrive."""
        self._dead.add(name)
        for other, address in group.members.items():
            if other != name:
                group.board.cut(name, address)
        await group.stop(name)
        group.heal()


def make_group(directory: Path, machines: Machines, **options: Any) -> ActorGroup:
    return ActorGroup(
        directory, classes=lambda _: CLASSES, disks=machines.disk, wal=WAL, snapshots=SNAPSHOTS, **options
    )


async def leave_behind(group: ActorGroup, callers: Callers, name: str, *, state_bytes: int = MIB) -> None:
    """Stop a member, write three times the bound, and wait until all others have dropped the records that it lacks."""
    client = callers.client
    await client.create_topic("news", retain_bytes=200_000)
    await client.append("news", b"from before")
    await callers.send(5)
    await group.stop(name)
    shelf = client.actor("shelf", Shelf)
    for place in range(state_bytes // (64 * KIB)):
        await shelf.put(place, 64 * KIB)
    written = 0
    number = 0
    while written < 3 * BOUND:
        await asyncio.gather(callers.send(2), *(append(client, b"%d " % (number + at) + VALUE) for at in range(4)))
        number += 4
        written += (4 + 2 * len(callers.names)) * len(VALUE)
        await asyncio.sleep(0.02)  # Let snapshots keep up, because a full log is not the subject of this test.
    behind = 40
    for node in group.nodes.values():
        assert node.group.wal is not None
        await wait_for(lambda node=node: node.group.wal.first_index > behind, lambda: str(group.status()))  # type: ignore[misc]


async def append(client: Client, value: bytes) -> None:
    """Append to the topic; its retention soon ends a full log."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await client.append("news", value)
            except StorageFullError:
                await asyncio.sleep(0.02)
            else:
                return


async def check_same(group: ActorGroup, callers: Callers, client: Client) -> None:
    """Check that all three members hold the same state, and each the same records of the topic."""
    await group.caught_up()
    assert len(group.nodes) == 3
    assert len(set(group.digests().values())) == 1, group.status()
    first = (await client.describe_topic("news")).first_position
    contents = [
        [(record.position, record.value) async for record in client.read("news", first, node=name)]
        for name in group.members
    ]
    assert len(contents[0]) >= 10
    assert contents[0] == contents[1] == contents[2]
    await callers.check(client)


def progress_of(node: Node) -> dict[str, object]:
    return node.group.parts.fetcher.progress if node.group.parts is not None else {}


async def in_the_middle(node: Node) -> dict[str, object]:
    """Wait until a member has a part of a snapshot."""

    def look() -> dict[str, object] | None:
        progress = progress_of(node)
        assert node.group.parts is not None
        return progress if progress and 0 < int(str(progress["bytes"])) < int(str(progress["size"])) else None

    return await wait_for(look, lambda: str(node.status))


async def test_a_member_that_is_far_behind_catches_up_and_no_append_waits_meanwhile(tmp_path: Path) -> None:
    """The transfer takes two seconds, during which appends and heartbeats continue, so there is no election."""
    rates: dict[NodeId, float] = {}
    async with make_group(tmp_path, Machines(), core=CALM) as group:
        slow_down(group.board, rates)
        await group.run()
        callers = Callers(group.client(), [str(number) for number in range(8)], padding=VALUE)
        await leave_behind(group, callers, "n3")
        leader = await group.leader()
        term = leader.status["term"]
        rates[NodeId("n3")] = MIB
        await group.start("n3")
        node = group.nodes[NodeId("n3")]
        await in_the_middle(node)
        count = 0
        while progress_of(node):
            await append(callers.client, VALUE)
            count += 1
        assert count > 5, "appends waited for the transfer"
        await check_same(group, callers, callers.client)
        assert {node.status["term"] for node in group.nodes.values()} == {term}
        assert group.journal.of("= snapshot installed", node="n3")


async def test_the_leader_dies_in_the_middle_of_the_transfer(tmp_path: Path) -> None:
    """The interrupted transfer loses nothing.

    The next leader sends its own snapshot, and the dead leader comes back, too.
    """
    rates: dict[NodeId, float] = {}
    machines = Machines()
    async with make_group(tmp_path, machines) as group:
        slow_down(group.board, rates)
        await group.run()
        callers = Callers(group.client(), [str(number) for number in range(8)], padding=VALUE)
        await leave_behind(group, callers, "n3")
        leader = (await group.leader()).options.node
        rates[NodeId("n3")] = MIB
        await group.start("n3")
        node = group.nodes[NodeId("n3")]
        progress = await in_the_middle(node)
        assert progress["from"] == leader
        await machines.kill(group, leader)
        rates.clear()
        assert not group.journal.of("= snapshot installed", node="n3"), "the transfer was already over"
        # Neither of the two has a majority alone: the one that is behind must not lead, and must catch up.
        await callers.send(1)
        assert group.journal.of("= snapshot installed", node="n3")
        await group.start(leader)
        await check_same(group, callers, group.client())


async def test_a_member_that_dies_while_it_fetches_resumes_the_transfer(tmp_path: Path) -> None:
    rates: dict[NodeId, float] = {NodeId("n3"): MIB}
    machines = Machines()
    async with make_group(tmp_path, machines) as group:
        slow_down(group.board, rates)
        await group.run()
        callers = Callers(group.client(), [str(number) for number in range(8)], padding=VALUE)
        await leave_behind(group, callers, "n3")
        await group.start("n3")
        progress = await in_the_middle(group.nodes[NodeId("n3")])
        await machines.kill(group, NodeId("n3"))
        left = [path for path in (tmp_path / "n3" / "snapshots").iterdir() if path.suffix == ".incoming"]
        assert left, "the received part was lost"
        await group.start("n3")
        again = await in_the_middle(group.nodes[NodeId("n3")])
        assert (again["index"], again["size"]) == (progress["index"], progress["size"])
        assert int(str(again["bytes"])) > int(str(progress["bytes"])), "the transfer began again from the start"
        rates.clear()
        await check_same(group, callers, callers.client)


# Lost disks.


async def test_a_learner_that_lost_its_disk_comes_back_by_a_snapshot(tmp_path: Path) -> None:
    learner = NodeId("n4")
    learners = {learner: "127.0.0.1:4"}
    async with make_group(tmp_path, Machines(), learners=learners) as group:
        await group.run()
        await group.run("n4", listen=learners[learner])
        callers = Callers(group.client(), [str(number) for number in range(8)], padding=VALUE)
        await leave_behind(group, callers, "n3")
        await group.start("n3")
        await group.caught_up()
        await group.stop("n4")
        shutil.rmtree(tmp_path / "n4")
        await group.start("n4", listen=learners[learner])
        node = group.nodes[learner]
        await wait_for(lambda: node.me != "n4" and node.status.get("role") == "learner", lambda: group.journal.tail())
        await group.caught_up()
        assert group.journal.of("= snapshot installed", node="n4")
        assert len(set(group.digests().values())) == 1
        await callers.send(1)
        await group.caught_up()
        assert len(set(group.digests().values())) == 1


async def test_a_voter_that_lost_its_disk_comes_back_under_another_id_by_a_snapshot(tmp_path: Path) -> None:
    async with make_group(tmp_path, Machines()) as group:
        await group.run()
        callers = Callers(group.client(), ["one", "two"], padding=VALUE)
        await leave_behind(group, callers, "n3", state_bytes=0)
        shutil.rmtree(tmp_path / "n3")
        await group.start("n3")
        node = group.nodes[NodeId("n3")]
        await wait_for(lambda: node.status.get("role") == "follower" and node.me != "n3", lambda: group.journal.tail())
        assert group.journal.of("= snapshot installed", node="n3")
        await callers.send(1)
        await callers.check()
