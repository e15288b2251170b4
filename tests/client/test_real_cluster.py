"""Actors through a client of real nodes, on real disks and sockets, while the leader goes away."""

from __future__ import annotations

import asyncio

import pytest

import viewstamp
from tests.processes import eventually
from viewstamp.client import Change, Client
from viewstamp.embed.local_cluster import ClusterHandle
from viewstamp.wire.commands import Stale

pytestmark = pytest.mark.slow

CALLERS = 8
CALLS = 40


class Counter(viewstamp.ReplicatedActor):
    """Each result is the number of applied commands, so that a lost or repeated one is visible in all later results."""

    def __init__(self) -> None:
        self.count = 0

    @viewstamp.command
    def add(self, by: int = 1) -> int:
        if by < 1:
            raise TooLittleError(f"{by}")
        self.count += by
        return self.count

    @viewstamp.query
    def value(self) -> int:
        return self.count


class TooLittleError(viewstamp.CommandError):
    """Raised by ``Counter.add`` if the number to add is below 1."""


async def leader_of(cluster: ClusterHandle) -> str:
    """Wait for a leader, because a busy machine may cost the cluster its leader for a moment."""

    async def find() -> str:
        return next((str(node.id) for node in cluster.nodes.values() if node.node_status["role"] == "leader"), "")

    return await eventually(find)


async def watch(client: Client, into: list[Change]) -> None:
    changes = client.watch("counter", index=1)
    async for change in changes:
        into.append(change)
        if len(into) == CALLERS * CALLS:
            break
    await changes.aclose()


async def test_commands_are_applied_once_and_a_watcher_misses_none_while_the_leader_goes_away() -> None:
    async with viewstamp.local_cluster(nodes=3, actors={"counter": Counter}) as cluster:
        client = cluster.client()
        counter = client.actor("counter", Counter)
        seen: list[Change] = []
        watching = asyncio.create_task(watch(client, seen))
        results: list[int] = []

        async def call() -> None:
            for _ in range(CALLS):
                results.append(await counter.add())

        calling = asyncio.gather(*(call() for _ in range(CALLERS)))
        while len(results) < CALLERS * CALLS // 4:  # noqa: ASYNC110 - the condition is the callers' progress
            await asyncio.sleep(0.001)
        stopped = await leader_of(cluster)
        await cluster.stop(stopped)
        await calling
        assert sorted(results) == list(range(1, CALLERS * CALLS + 1))
        await cluster.start(stopped)
        await watching
        assert [change.result for change in seen] == list(range(1, CALLERS * CALLS + 1))
        for node in cluster.nodes:
            answer = await client.query("counter", "value", node=node)
            assert answer == CALLERS * CALLS


async def test_a_client_understands_the_answers_of_real_nodes() -> None:
    """Real nodes answer every request about actors, topics and snapshots."""
    settings = {"wal.bytes_max": 16 * 2**20, "wal.segment_bytes": 2**20}
    async with viewstamp.local_cluster(nodes=3, actors={"counter": Counter}, settings=settings) as cluster:
        client = cluster.client()
        counter = client.actor("counter", Counter, key="one")
        assert await counter.add(by=5) == 5
        with pytest.raises(TooLittleError, match="0"):
            await counter.add(0)
        with pytest.raises(viewstamp.UnknownActorError, match="its commands: add"):
            await client.call("counter", "subtract", 1)
        with pytest.raises(viewstamp.UnknownActorError, match="nothing"):
            await client.call("nothing", "add", 1)
        with pytest.raises(viewstamp.UnknownActorError):
            await client.query("counter", "nothing")
        answer = await counter.value.stale()
        assert isinstance(answer, Stale)
        assert answer.age_seconds >= 0

        (actor,) = await client.list_actors()
        assert (actor.name, actor.class_name, actor.version, actor.instances) == ("counter", "Counter", 1, 1)
        assert sorted((await client.describe_actor("counter")).commands) == ["add"]

        topic = await client.create_topic("orders", retain_bytes=1 << 20)
        assert (topic.retain_bytes, topic.retain_seconds) == (1 << 20, 0.0)
        topic = await client.configure_topic("orders", retain_seconds=60.0)
        assert (topic.retain_bytes, topic.retain_seconds) == (1 << 20, 60.0)
        receipts = [await client.append("orders", b"%d" % n) for n in range(3)]
        assert receipts[0].durability == "majority, synced"
        assert (await client.trim_topic("orders", 3)).first_position == 3
        with pytest.raises(viewstamp.RequestError):
            await client.trim_topic("orders", 9)

        taken = await client.create_snapshot()
        held = {node: await client.list_snapshots(node) for node in cluster.ids}
        ((listed,),) = filter(None, held.values())
        assert (listed.index, listed.term, listed.bytes) == (taken.index, taken.term, taken.bytes)
        elsewhere = next(node for node, snapshots in held.items() if not snapshots)
        assert (await client.create_snapshot(elsewhere)).bytes > 0
