"""Two and three groups on each node of a simulated cluster, with the invariants of consensus checked for each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from viewstamp.ids import GROUP_0, GroupId
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.faults import Faults
from viewstamp.sim.groups import GroupWriters
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
