"""A member that dies between the steps of an installation finishes it, because the control file marks the snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.test_lost_tail import is_recovering, is_running, stop
from viewstamp.client.aio import Client
from viewstamp.sim.cluster import Member
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World
from viewstamp.wal.control_file import ControlState, read_control_state
from viewstamp.wal.verdict import snapshot_names

pytestmark = pytest.mark.slow


@pytest.fixture
def world() -> Iterator[World]:
    """Three members with short logs; n3 lacks records that the others have dropped."""
    world = World(11, Swarm(nodes=3, faults={}, bytes_max=512 * 1024, segment_bytes=16 * 1024, snapshot_bytes=8 * 1024))
    for member in world.members:
        world.bring_up(member)
    append(world, 1)
    world.loop.run_for(1.0)
    stop(world, world.members[2])
    for _ in range(3):
        append(world, 25)
        world.loop.run_for(2.0)  # The topic is trimmed, and the log with it.
    assert all(world.disks.by_name[member.name].first > 5 for member in world.members[:2])
    yield world
    world.close()


def append(world: World, count: int) -> None:
    async def run() -> None:
        network = world.network.view("client")
        async with Client(world.addresses, network=network, entropy=world.loop.entropy("client")) as client:
            if count == 1:
                await client.create_topic("orders", retain_bytes=4096)
            for number in range(count):
                await client.append("orders", b"%d" % number + b"." * 2000)

    world.loop.run_until_complete(run())


def control_of(member: Member) -> ControlState:
    disk = SimulatedDisk("a look")
    disk.volume = member.disk.volume
    state = read_control_state(disk, member.data_dir)
    assert state is not None
    return state


def installed_to(member: Member) -> list[int]:
    disk = SimulatedDisk("a look")
    disk.volume = member.disk.volume
    return [end for end, _ in snapshot_names(disk, member.data_dir)]


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("events", [0, 3, 12])
def test_a_death_after_the_file_has_its_name_is_finished_at_the_next_start(
    world: World, events: int, power: bool
) -> None:
    n3 = world.members[2]
    before = set(installed_to(n3))
    world.bring_up(n3)
    assert world.loop.run_until(lambda: bool(set(installed_to(n3)) - before), seconds=10), "n3 gets a snapshot"
    end = max(set(installed_to(n3)) - before)
    mark = control_of(n3).installing
    assert mark is not None, "the mark is stored before the rename"
    assert mark[1] >= end > control_of(n3).commit_hint
    at = world.loop.events + events
    world.loop.run_until(lambda: world.loop.events >= at, seconds=10)
    world.take_down(n3, power=power)
    world.bring_up(n3)
    assert world.loop.run_until(lambda: is_running(n3), seconds=10), world.describe()
    append(world, 2)
    assert world.loop.run_until(lambda: world.has_settled, seconds=10), world.describe()
    assert not is_recovering(n3)
    world.loop.run_for(3.0)
    state = control_of(n3)
    assert state.installing is None
    assert state.commit_hint >= end
