"""Two and three groups on each node of a simulated cluster, with the invariants of consensus checked for each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from viewstamp.ids import GROUP_0, GroupId
from viewstamp.sim.checkers.consensus import ConsensusChecker
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.cluster import Member, is_settled
from viewstamp.sim.faults import Faults
from viewstamp.sim.groups import GroupPlacer, GroupWriters
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import World

CALM = Swarm(nodes=3, faults={}, seconds=1.0)
ROUGH = Swarm(
    nodes=3,
    groups=2,
    seconds=3.0,
    faults=dict.fromkeys(("kill", "power", "isolate", "crash-in-call", "failed-sync", "pause"), 1.0),
)


class PlacedWorld(World):
    """A world in which groups are placed and written to while it runs."""

    def __init__(self, seed: int, swarm: Swarm, number: int) -> None:
        super().__init__(seed, swarm)
        self.writers = GroupWriters(self)
        self.placer = GroupPlacer(self, number, on_placed=self.on_placed)
        for member in self.members:
            self.bring_up(member)
        self.placer.start()

    def on_placed(self, group: GroupId) -> None:
        self.others.append(ConsensusChecker(self, group))
        self.writers.write_to(group)

    @property
    def is_level(self) -> bool:
        """Whether all members have all groups with the same logs."""
        placed = self.placer.placed
        return len(placed) == len(self.writers.acknowledged) and all(is_settled(self.members, each) for each in placed)

    def finish(self, names_min: int) -> None:
        """End all faults; wait until each group has acknowledged ``names_min`` topics, and check everything."""
        self.calm()
        acknowledged = self.writers.acknowledged
        assert self.loop.run_until(
            lambda: bool(acknowledged) and all(len(names) >= names_min for names in acknowledged.values()), seconds=60.0
        ), f"{acknowledged}; {self.describe()}"
        self.writers.stop()
        check_liveness(self, lambda: self.is_level)
        self.placer.check()
        self.loop.check()
        self.writers.check()

    def lose_directory(self, member: Member, group: GroupId) -> None:
        """Remove the files of a group on a machine whose process is dead."""
        directory = f"{member.data_dir}/groups/{group}"
        for path in (directory, f"{directory}/wal", f"{directory}/snapshots"):
            for name in list(member.disk.volume.names(path)):
                member.disk.volume.lose(f"{path}/{name}")


def run(seed: int, swarm: Swarm) -> GroupWriters:
    """Run a world with writers to group 0 and to the others; check all of it at the end."""
    world = World(seed, swarm)
    try:
        workload, faults = Workload(world, world.loop.entropy("workload")), Faults(world, world.loop.entropy("faults"))
        writers = GroupWriters(world)
        for member in world.members:
            world.bring_up(member)
        workload.start()
        writers.start()
        faults.start()
        world.loop.run_until(lambda: False, seconds=swarm.seconds)
        faults.stop()
        world.calm()
        workload.stop()
        writers.stop()
        faults.operator.finish()
        check_liveness(world, lambda: workload.is_done and faults.operator.is_done)
        world.loop.check()
        writers.check()
        return writers
    finally:
        world.close()


def test_three_groups_in_a_node_have_leaders_and_states_of_their_own() -> None:
    writers = run(1, replace(CALM, groups=3))
    assert all(len(names) > 5 for names in writers.acknowledged.values())
    assert GROUP_0 not in writers.acknowledged


@pytest.mark.parametrize("seed", [5])
def test_groups_survive_faults_of_their_machines(seed: int) -> None:
    assert run(seed, ROUGH).acknowledged[GroupId(1)]


PLACED = Swarm(nodes=3, seconds=3.0, faults=dict.fromkeys(("kill", "power", "isolate", "crash-in-call", "pause"), 2.0))


@pytest.mark.parametrize("seed", [1, 2])
def test_groups_are_placed_and_established_under_faults_of_the_machines(seed: int) -> None:
    world = PlacedWorld(seed, PLACED, number=2)
    try:
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        world.loop.run_until(lambda: False, seconds=PLACED.seconds)
        faults.stop()
        world.finish(names_min=2)
        assert len(world.placer.placed) == 2
    finally:
        world.close()


@pytest.mark.parametrize("death", range(0, 24, 4))
def test_a_group_is_established_wherever_a_founder_dies_while_it_is_created(death: int) -> None:
    world = PlacedWorld(death, replace(CALM, seconds=0.0), number=1)
    try:
        assert world.loop.run_until(lambda: bool(world.placer.placed), seconds=60.0)
        victim = next(each for each in world.members if each is not world.leader)
        victim.disk.crash_at(victim.disk.calls + death, lambda: die(world, victim))
        world.loop.run_until(lambda: not victim.is_up, seconds=2.0)
        world.finish(names_min=2)
    finally:
        world.close()


def test_a_founder_that_lost_a_group_is_not_taken_for_the_founder_again() -> None:
    world = PlacedWorld(3, CALM, number=1)
    try:
        acknowledged = world.writers.acknowledged
        assert world.loop.run_until(lambda: any(len(names) > 2 for names in acknowledged.values()), seconds=60.0)
        (group,) = acknowledged
        victim = world.members[2]
        world.take_down(victim, power=True)
        world.lose_directory(victim, group)
        world.bring_up(victim)
        world.finish(names_min=6)
        hosted = victim.group(group)
        assert hosted is not None
        assert hosted.me != victim.name
    finally:
        world.close()


def die(world: World, member: Member) -> None:
    world.take_down(member, power=True)
    world.loop.call_later(0.3, world.bring_up, member)
