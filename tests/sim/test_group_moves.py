"""Hosts are added to groups and removed from them while nodes die, lose their disks and are cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sim.test_groups import PlacedWorld
from viewstamp.ids import GroupId, NodeId
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.cluster import is_settled
from viewstamp.sim.faults import Faults
from viewstamp.sim.group_moves import GroupMoves
from viewstamp.sim.swarm import Swarm

ROUGH = Swarm(
    nodes=5,
    seconds=8.0,
    faults=dict.fromkeys(
        ("kill", "power", "isolate", "one-way", "crash-in-call", "pause", "lost-disk", "transfer"), 1.0
    ),
)


def run(seed: int, swarm: Swarm = ROUGH, **more: Any) -> list[tuple[str, GroupId, NodeId]]:
    """Run a world with random changes of the hosts of two groups; return the changes."""
    world = PlacedWorld(seed, swarm, number=2, **{"founders": 3, **more})
    try:
        moves, faults = GroupMoves(world, world.placer), Faults(world, world.loop.entropy("faults"))
        moves.start()
        faults.start()
        world.loop.run_until(lambda: False, seconds=swarm.seconds)
        faults.stop()
        world.calm()
        moves.stop()
        world.placed.stop()
        faults.operator.finish()

        def is_over() -> bool:
            # A node without a group may still lag in group 0, and not have the topic.
            is_done = moves.is_done and faults.operator.is_done and is_settled(world.members)
            return is_done and world.is_level and not moves.unlike

        check_liveness(world, is_over)
        world.loop.check()
        world.placed.check()
        moves.check()
        return moves.done
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(2))
def test_hosts_change_while_nodes_die(seed: int) -> None:
    assert run(seed, replace(ROUGH, seconds=4.0))
