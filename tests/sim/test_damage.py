"""The damage budget: which members are damaged, and when a damage is over."""

from __future__ import annotations

from viewstamp.client.aio import Client
from viewstamp.ids import NodeId
from viewstamp.sim.cluster import Member
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World


def add(world: World, *, replaces: str = "") -> Member:
    """Start one more machine, and have it added."""
    newcomer = world.join()
    assert newcomer is not None
    world.bring_up(newcomer)

    async def work() -> None:
        addresses = [member.address for member in world.members if member is not newcomer]
        network = world.network.view("client")
        async with Client(addresses, network=network, entropy=world.loop.entropy("client")) as client:
            await client.add_member(newcomer.name, newcomer.address, replaces=replaces)

    world.loop.create_task(work())
    return newcomer


def test_a_disk_that_was_lost_before_any_record_named_it_leaves_no_damage_behind() -> None:
    """No message from the old disk was ever counted, so the member may take part with a new disk under its old id."""
    world = World(3, Swarm(nodes=3, faults={}))
    n1, n2, n3 = world.members
    for other in (n1, n3):
        world.network.partition(n2.name, other.name)
        world.network.partition(other.name, n2.name)
    for member in world.members:
        world.bring_up(member)
    assert world.loop.run_until(lambda: world.leader is not None, seconds=10)
    world.loop.run_for(1.0)
    assert world.disks.membership is not None
    assert n2.id not in world.disks.membership.incarnations
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


def test_a_membership_that_only_a_lagging_member_still_holds_has_no_budget() -> None:
    world = World(3, Swarm(nodes=4, faults={}))
    _, n2, n3, n4 = world.members
    for member in world.members:
        world.bring_up(member)
    assert world.loop.run_until(lambda: world.leader is not None and world.has_settled, seconds=10)

    def is_joint_and_not_committed() -> bool:
        assert n2.node is not None
        assert n2.node.replica is not None
        core = n2.node.replica.raft.core
        return core.memberships[-1].membership.is_joint and core.memberships[-1].index >= core.log.commit_end

    n5 = add(world)
    assert world.loop.run_until(is_joint_and_not_committed, seconds=10)
    world.take_down(n2, power=False)

    def is_made() -> bool:
        membership = world.disks.membership
        return membership is not None and n5.id in membership.voters and not membership.is_joint

    assert world.loop.run_until(is_made, seconds=10)
    world.loop.run_for(1.0)
    for member in (n3, n4):  # Two of five.
        world.take_down(member, power=False)
        assert world.damages.do("lose-tail", member, world.loop.entropy(member.name))
    world.bring_up(n2)
    world.loop.run_for(1.0)
    assert {NodeId("n3"), NodeId("n4")} == set(world.damages.present)
    for member in (n3, n4):
        world.bring_up(member)
    assert world.loop.run_until(lambda: world.has_settled, seconds=20), world.describe()
    world.close()


def test_a_removed_machine_that_forgot_its_removal_may_refuse_to_start() -> None:
    """Its settings name it alone, so it considers itself the only voter, without any copy of the lost data."""
    world = World(3, Swarm(nodes=1, faults={}))
    (n1,) = world.members
    world.bring_up(n1)
    assert world.loop.run_until(lambda: world.leader is not None, seconds=10)
    n2 = add(world, replaces="n1")
    assert world.loop.run_until(lambda: world.leader is n2, seconds=10)
    world.loop.run_for(1.0)
    world.take_down(n1, power=False)

    def lose_all() -> bool:
        for path in world.disks.by_name["n1"].paths():
            n1.disk.volume.find(path).spoil(0, bytes(1 << 16))
        return True

    assert world.damages.inflict("lose-tail", n1, lambda _: lose_all())
    world.bring_up(n1)
    world.loop.run_for(2.0)
    assert n1.starts > 3, "it refuses to start, and is started again like any service"
    assert world.leader is n2
    world.close()


def test_a_removed_machine_is_no_member_although_a_log_still_names_it() -> None:
    """With an empty disk and its settings, which name it alone, it would begin a group as a new machine does."""
    world = World(3, Swarm(nodes=1, faults={}))
    (n1,) = world.members
    world.bring_up(n1)
    assert world.loop.run_until(lambda: world.leader is not None, seconds=10)
    n2 = add(world, replaces="n1")
    assert world.loop.run_until(lambda: world.leader is n2, seconds=10)
    world.take_down(n1, power=False)
    world.take_down(n2, power=False)
    world.bring_up(n2)
    assert world.loop.run_until(lambda: n2.node is not None and n2.node.replica is not None, seconds=10)
    entries = n2.node.replica.raft.core.memberships  # type: ignore[union-attr]
    assert any("n1" in entry.membership.addresses for entry in entries), "n2 knows no commit end behind the removal"
    assert not world.damages.inflict("lost-disk", n1, lambda _: True)
    world.close()


def test_before_the_first_record_no_voter_may_be_damaged_and_one_may_lose_power() -> None:
    """No record names a disk yet.

    So none of the three can help to elect (protocol rule 18), and the budget of damage is used up. A member that lost
    power still votes.
    """
    world = World(1, Swarm(nodes=3, faults={}, sync_seconds=1.0))
    for member in world.members:
        world.bring_up(member)
    assert world.loop.run_until(lambda: len(world.disks.by_name) == 3, seconds=1)
    for member in world.members:
        world.take_down(member, power=False)
    assert not any(world.damages.allows(member.id) for member in world.members)
    assert [world.damages.lose_power(member) for member in world.members] == [True, False, False]
    world.close()


def test_no_disk_may_be_damaged_while_a_voter_has_never_stored_a_membership_record() -> None:
    """The record names the disk of n2, but n2 does not hold it.

    If n1 is down and n3 loses its disk, n2 and n3 cannot be distinguished from members of a new group.
    """
    world = World(1, Swarm(nodes=3, faults={}))
    n1, n2, n3 = world.members
    for member in world.members:
        world.bring_up(member)

    def have_met() -> bool:
        return all(each.node is not None and "n2" in str(each.node.status.get("connected")) for each in (n1, n3))

    def is_named() -> bool:
        membership = world.disks.membership
        return membership is not None and n2.id in membership.incarnations

    assert world.loop.run_until(have_met, seconds=1)
    for source in (n1, n3):
        world.network.partition(source.name, n2.name)
    assert world.loop.run_until(is_named, seconds=10)
    assert world.disks.by_name["n2"].end == 1
    assert not world.damages.allows(n3.id)
    world.network.heal()
    assert world.loop.run_until(lambda: world.damages.allows(n3.id), seconds=10)
    world.close()
