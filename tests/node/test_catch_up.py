"""A member that was away gets the records that it missed, even after they have left the leader's memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.node.group import QUICK, Group, wait_for
from viewstamp.consensus.state import RaftOptions as CoreOptions
from viewstamp.ids import Index, NodeId

FORGETFUL = CoreOptions(
    election_timeout_ticks=QUICK.election_timeout_ticks,
    heartbeat_ticks=QUICK.heartbeat_ticks,
    append_bytes_max=16 * 1024,
    in_flight_bytes_max=64 * 1024,
    cache_bytes_max=32 * 1024,
)
"""A core with a tiny cache, so that lagging followers are fed from disk, in small pieces."""


def is_in_memory(group: Group, name: str, index: int) -> bool:
    replica = group.nodes[NodeId(name)].replica
    return replica is not None and replica.raft.core.log.slice(Index(index), 1) is not None


async def test_a_member_that_was_away_for_longer_than_the_cache_is_fed_from_disk(tmp_path: Path) -> None:
    entropy = random.Random(1)
    async with Group(tmp_path, 3, core=FORGETFUL) as group:
        await group.run()
        client = group.client()
        values: dict[str, list[bytes]] = {"orders": [], "payments": []}
        for topic in values:
            await client.create_topic(topic)
        await group.stop("n3")
        for number in range(150):
            topic = entropy.choice(list(values))
            value = f"{number} ".encode() + b"." * entropy.randrange(8_000)
            await client.append(topic, value)
            values[topic].append(value)
        leader = (await group.leader()).options.node
        assert not is_in_memory(group, leader, 5), "the cache is too large for this test"
        await group.run("n3")
        await group.caught_up()
        for topic in values:
            for name in group.members:
                assert [record.value async for record in client.read(topic, node=name)] == values[topic]


async def test_a_member_catches_up_while_appends_go_on_and_the_leader_changes(tmp_path: Path) -> None:
    """Disk reads of a deposed leader are dropped when they complete, because it no longer feeds followers."""
    async with Group(tmp_path, 3, core=FORGETFUL) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        count = 0
        for _ in range(2):
            away = next(name for name in group.members if name != (group.nodes and leader_of(group)))
            await group.stop(away)
            for _ in range(60):
                count += 1
                await client.append("orders", f"{count} ".encode() + b"." * 4_000)
            await group.start(away)
            for _ in range(10):
                count += 1
                await client.append("orders", f"{count} ".encode() + b"." * 4_000)
            leader = await group.leader()
            group.isolate(leader.options.node)
            await group.leader(not_=leader.options.node)
            group.heal()
            for _ in range(10):
                count += 1
                await client.append("orders", f"{count} ".encode() + b"." * 4_000)
            await group.caught_up()
        for name in group.members:
            found = [int(record.value.split()[0]) async for record in client.read("orders", node=name)]
            assert found == list(range(1, count + 1))


def leader_of(group: Group) -> str:
    return next((name for name, node in group.nodes.items() if node.status["role"] == "leader"), NodeId(""))


@pytest.mark.parametrize("name", ["n1", "n2", "n3"])
async def test_a_reader_gets_the_oldest_records_from_any_member_and_follows_the_end(tmp_path: Path, name: str) -> None:
    """The records come from disk, from memory and from appends during the wait, without gaps or repetitions."""
    async with Group(tmp_path, 3, core=FORGETFUL) as group:
        await group.run()
        client, reader = group.client(), group.client(name, read_bytes=20_000)
        await client.create_topic("orders")
        for number in range(60):
            await client.append("orders", f"{number} ".encode() + b"." * 3_000)
        assert not is_in_memory(group, (await group.leader()).options.node, 5)
        found: list[int] = []
        async for record in reader.read("orders", follow=True):
            found.append(int(record.value.split()[0]))
            if len(found) == 60:
                await client.append_many("orders", [b"60 x", b"61 y"])
            if len(found) == 62:
                break
        assert found == list(range(62))


async def test_the_bytes_in_flight_to_one_member_are_bounded(tmp_path: Path) -> None:
    """A member that accepts no data must not make the leader hold all of it in memory."""
    async with Group(tmp_path, 3, core=FORGETFUL) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        leader = await group.leader()
        away = next(name for name in group.members if name != leader.options.node)
        group.board.cut(leader.options.node, group.members[away])
        for number in range(60):
            await client.append("orders", f"{number} ".encode() + b"." * 8_000)
        assert leader.replica is not None
        core = leader.replica.raft.core
        bound = FORGETFUL.in_flight_bytes_max + 2 * FORGETFUL.append_bytes_max
        assert all(progress.in_flight_bytes <= bound for progress in core.leading.progress.values())
        assert core.log.cache_bytes <= FORGETFUL.cache_bytes_max + 20_000
        group.heal()
        await wait_for(
            lambda: group.nodes[away].group.applied_index >= core.log.commit_end - 1,
            lambda: f"{away} does not catch up: {group.status()}",
        )
