"""Another member's segment in the place of a node's own is refused by name, and none of its records is ever served."""

from __future__ import annotations

import pytest

from tests.sim.test_lost_tail import append, is_running, read, stop, world
from viewstamp.sim.damage import DAMAGE_BY_KIND
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World

__all__ = ["world"]


@pytest.mark.parametrize("seed", range(3))
def test_a_member_refuses_a_segment_of_another_one_until_its_own_is_back(world: World, seed: int) -> None:
    append(world, 0, 10)
    world.loop.run_for(1.0)
    n1 = world.members[0]
    stop(world, n1)
    assert world.damages.do("foreign-segment", n1, world.loop.entropy(str(seed)))
    starts = n1.starts
    world.bring_up(n1)
    assert world.loop.run_until(lambda: n1.foreign is None, seconds=5), "the foreign segment was refused"
    assert world.loop.run_until(lambda: all(map(is_running, world.members)), seconds=20)
    assert n1.starts == starts + 2
    append(world, 10, 1)
    assert read(world) == [b"%d" % number for number in range(11)]
    assert world.loop.run_until(lambda: not world.damages.present, seconds=5)


def test_without_its_control_file_a_member_cannot_determine_which_of_two_logs_is_its_own() -> None:
    """It refuses all the same, and may name its own segment if the foreign one comes first."""
    world = World(7, Swarm(nodes=3, faults={}, segment_bytes=16 * 1024))
    for member in world.members:
        world.bring_up(member)
    append(world, 0, 120)
    world.loop.run_for(1.0)
    n1 = world.members[0]
    stop(world, n1)
    world.disks.look()
    first, second, *_ = world.disks.by_name["n1"].paths()
    assert world.damages.do("lost-control", n1, world.loop.entropy("control"))
    seed = 0
    while n1.foreign_path != first:
        if n1.foreign is not None:
            n1.put_own_file_back()
        DAMAGE_BY_KIND["foreign-segment"](n1, world.disks, world.loop.entropy(str(seed)))
        seed += 1
    world.bring_up(n1)
    assert world.loop.run_until(lambda: n1.foreign is None, seconds=5), "the foreign segment was refused"
    assert any(f"{second} is a segment of another log" in line for line in world.loop.trace.lines)
    assert world.loop.run_until(lambda: all(map(is_running, world.members)), seconds=20)
    assert read(world) == [b"%d" % number for number in range(120)]
    world.close()


@pytest.mark.parametrize("seed", range(5))
def test_the_file_put_there_is_never_one_of_the_nodes_own_that_stood_elsewhere(world: World, seed: int) -> None:
    append(world, 0, 10)
    world.loop.run_for(1.0)
    entropy = world.loop.entropy(str(seed))
    n1, *others = world.members
    for member in (*others, n1):
        stop(world, member)
        world.disks.look()
        # This exceeds the budget on purpose, so that every file that n1 could get was itself put in its place.
        assert DAMAGE_BY_KIND["foreign-segment"](member, world.disks, entropy) is (member is not n1)
    assert n1.foreign is None
