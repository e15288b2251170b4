"""Who is damaged, and when a damage is over: what the checkers of the disks reckon with."""

from __future__ import annotations

from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World


def test_a_disk_that_was_lost_before_any_record_named_it_leaves_no_damage_behind() -> None:
    """Nothing that it said has ever counted: the disk that comes in its place is the member's, under the old name."""
    world = World(3, Swarm(nodes=3, faults={}))
    n1, n2, n3 = world.members
    for other in (n1, n3):
        world.network.partition(n2.name, other.name)
        world.network.partition(other.name, n2.name)
    for member in world.members:
        world.bring_up(member)
    assert world.loop.run_until(lambda: world.leader is not None, seconds=10)
    world.loop.run_for(1.0)
    assert world.durability.membership is not None
    assert n2.id not in world.durability.membership.incarnations
    world.take_down(n2, power=False)
    assert world.damages.do("lost-disk", n2, world.loop.entropy("damage"))
    world.bring_up(n2)
    world.loop.run_for(1.0)
    assert n2.id in world.damages
    world.heal(n2.name)
    assert world.loop.run_until(lambda: world.has_settled, seconds=20), world.describe()
    assert n2.id not in world.damages
    assert [member.id for member in world.members] == ["n1", "n2", "n3"]
    world.close()
