"""A machine with a disk that is full to the last byte: its node stays up, does not campaign, and recovers."""

from __future__ import annotations

from viewstamp.client.aio import Client
from viewstamp.consensus.roles import Lifecycle
from viewstamp.sim.cluster import Member
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World


def running(members: list[Member]) -> bool:
    return all(member.node is not None and member.node.lifecycle is Lifecycle.RUNNING for member in members)


def ends(world: World) -> set[int]:
    return {
        member.node.replica.raft.core.log.durable_end
        for member in world.members
        if member.node is not None and member.node.replica is not None
    }


def test_a_node_without_room_for_one_more_record_does_not_lead_and_recovers_when_there_is_room() -> None:
    """Found on a small file system: such a node was elected, could not write its membership record, and ended."""
    world = World(5, Swarm(nodes=3, faults={}))
    for member in world.members:
        world.bring_up(member)
    loop = world.loop

    async def append(count: int) -> None:
        network = world.network.view("client")
        async with Client(world.addresses, network=network, entropy=world.loop.entropy("client")) as client:
            await client.create_topic("orders")
            for number in range(count):
                await client.append("orders", b"%d" % number)

    loop.run_until_complete(append(50))
    full = world.members[0]  # The hinted leader.
    # A clean stop cuts off the prepared zeros, so that not even the open segment has room.
    assert full.node is not None
    assert full.process is not None
    loop.run_until_complete(full.process.spawn(full.node.stop()))
    for member in world.members:
        world.take_down(member, power=False)
    full.disk.capacity_bytes = full.disk.volume.bytes_used()
    for member in world.members:
        world.bring_up(member)
    assert loop.run_until(lambda: running(world.members[1:]), seconds=20)
    loop.run_until_complete(append(50))
    loop.run_for(5.0)
    assert full.starts == 2, "the node did not end for lack of space"
    assert full.node is not None
    assert full.node.status["role"] == "follower"
    assert len(ends(world)) == 2, "the full node accepts nothing, and the others continue"
    full.disk.capacity_bytes *= 1000
    assert loop.run_until(lambda: len(ends(world)) == 1 and running(world.members), seconds=20)
    world.close()
