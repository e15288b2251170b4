"""A disk that loses the end of the log below the commit hint: the member is recovering, and no record is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from viewstamp.client.aio import Client
from viewstamp.consensus.roles import Lifecycle
from viewstamp.sim.cluster import Member
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.volume import Inode
from viewstamp.sim.world import World

Damage = Callable[[Inode, int], bool]


def zeros(inode: Inode, at: int) -> bool:
    inode.spoil(at, bytes(len(inode.data) - at))
    return True


def cut(inode: Inode, at: int) -> bool:
    inode.cut(at)
    return True


def garble(inode: Inode, at: int) -> bool:
    """Overwrite the end with other bytes; nothing follows it."""
    inode.spoil(at, b"\xa5" * 800)
    return True


@pytest.fixture
def world() -> Iterator[World]:
    """Three running members."""
    world = World(7, Swarm(nodes=3, faults={}))
    for member in world.members:
        world.bring_up(member)
    yield world
    world.close()


def append(world: World, start: int, count: int) -> None:
    async def run() -> None:
        network = world.network.view("client")
        async with Client(world.addresses, network=network, entropy=world.loop.entropy("client")) as client:
            if start == 0:
                await client.create_topic("orders")
            for number in range(start, start + count):
                await client.append("orders", b"%d" % number)

    world.loop.run_until_complete(run())


def read(world: World) -> list[bytes]:
    async def run() -> list[bytes]:
        network = world.network.view("client")
        async with Client(world.addresses, network=network, entropy=world.loop.entropy("client")) as client:
            return [record.value async for record in client.read("orders")]

    return world.loop.run_until_complete(run())


def stop(world: World, member: Member) -> None:
    assert member.node is not None
    assert member.process is not None
    world.loop.run_until_complete(member.process.spawn(member.node.stop()))
    world.take_down(member, power=False)


def newest(world: World, member: Member) -> tuple[Inode, int]:
    log = world.disks.by_name[member.name]
    log.look(member.disk.volume)
    assert log.newest is not None
    path, written = log.newest
    return member.disk.volume.find(path), written


def is_running(member: Member) -> bool:
    return member.is_up and member.node is not None and member.node.lifecycle is Lifecycle.RUNNING


def is_recovering(member: Member) -> bool:
    replica = member.node.replica if member.node is not None else None
    return replica is not None and replica.raft.core.recovering_until is not None


@pytest.mark.parametrize("damage", [zeros, cut, garble])
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_member_that_lost_the_end_of_its_log_elects_no_leader_with_a_lagging_one(
    world: World, damage: Damage, is_clean: bool
) -> None:
    """A former bug: the loss read as a torn tail, and the leader that the two elected lacked acknowledged records."""
    n1, n2, n3 = world.members
    append(world, 0, 5)
    world.loop.run_for(1.0)
    stop(world, n3)
    append(world, 5, 10)
    world.loop.run_for(1.0)  # The log becomes idle.
    world.take_down(n2, power=True)
    if is_clean:
        stop(world, n1)
    else:
        world.take_down(n1, power=True)
    inode, written = newest(world, n1)
    assert world.damages.inflict("lose-tail", n1, lambda _: damage(inode, written - 800))
    world.bring_up(n1)
    world.bring_up(n3)
    world.loop.run_for(5.0)
    assert is_recovering(n1)
    assert not is_running(n3), "n1 gives no vote"
    world.bring_up(n2)
    assert world.loop.run_until(lambda: all(map(is_running, world.members)) and not is_recovering(n1), seconds=20)
    append(world, 15, 1)
    assert read(world) == [b"%d" % number for number in range(16)]


@pytest.mark.parametrize("at", [0, 63, 64, 200])
def test_a_log_whose_only_segment_is_cut_short_is_repaired_from_the_others(world: World, at: int) -> None:
    append(world, 0, 10)
    world.loop.run_for(1.0)
    n1 = world.members[0]
    stop(world, n1)
    inode, _ = newest(world, n1)
    assert world.damages.inflict("lose-tail", n1, lambda _: cut(inode, at))
    world.bring_up(n1)
    assert world.loop.run_until(lambda: is_recovering(n1), seconds=5)
    assert world.loop.run_until(lambda: all(map(is_running, world.members)), seconds=20)
    append(world, 10, 1)
    assert read(world) == [b"%d" % number for number in range(11)]


@pytest.mark.parametrize("idle_seconds", [0.05, 0.1, 0.2, 0.3, 1.0])
def test_a_power_cut_of_all_members_is_no_lost_end(world: World, idle_seconds: float) -> None:
    """The hint is never above the synced end, so a member that lost nothing durable is not recovering."""
    append(world, 0, int(50 * idle_seconds) + 3)
    world.loop.run_for(idle_seconds)
    for member in world.members:
        world.take_down(member, power=True)
    for member in world.members:
        world.bring_up(member)
    assert world.loop.run_until(lambda: all(map(is_running, world.members)), seconds=20)
    assert not any(map(is_recovering, world.members))


def test_the_end_of_a_log_with_a_hole_below_the_hint_is_not_lost_too(world: World) -> None:
    """A former fault of the simulator: after the repair of the hole nothing says that the log was longer."""
    append(world, 0, 10)
    world.loop.run_for(1.0)
    n1 = world.members[0]
    stop(world, n1)
    inode, written = newest(world, n1)

    def flip() -> bool:
        at = written // 2
        inode.spoil(at, bytes([inode.data[at] ^ 1]))
        return True

    assert world.damages.inflict("flip", n1, lambda _: flip())
    assert not world.damages.do("lose-tail", n1, world.loop.entropy("damage"))
    world.bring_up(n1)
    assert world.loop.run_until(lambda: all(map(is_running, world.members)), seconds=20)
