"""Forged frames from a process outside the group change nothing, under any name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from viewstamp.ids import NodeId
from viewstamp.sim import stranger
from viewstamp.sim.cluster import Member
from viewstamp.sim.run import run_seed
from viewstamp.sim.stranger import FORGERIES, Stranger, can_be_attacked
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World

QUIET = Swarm(nodes=3, faults={})


def running() -> World:
    """Return a world of three RUNNING members that name each other's disks in committed records."""
    world = World(11, QUIET)
    for member in world.members:
        world.bring_up(member)
    assert world.loop.run_until(lambda: world.has_settled and all(map(can_be_attacked, world.members)), seconds=20)
    world.loop.run_for(1.0)
    return world


def state(world: World) -> list[object]:
    """Return the state that no stranger may change."""
    found: list[object] = []
    for member in world.members:
        core = core_of(member)
        found.append((core.me, core.term, core.vote, core.leader, core.log.end, core.history, core.membership))
    return found


def core_of(member: Member) -> stranger.Core:
    assert member.node is not None
    assert member.node.replica is not None
    return member.node.replica.raft.core


class Sending(Stranger):
    """Sends one kind of frame under one name."""

    def __init__(self, world: World, word: str, name: str) -> None:
        super().__init__(world, world.loop.entropy("stranger"))
        self.word = word
        self.name = NodeId(name)

    def _names(self, member: Member) -> list[tuple[NodeId, str]]:
        return [(self.name, "feedfacefeedface")]

    def _frame(self, member: Member, name: NodeId, word: str) -> stranger.Sequence[stranger.Buffer]:
        return super()._frame(member, name, self.word)


@pytest.mark.parametrize("name", ["n9", "n9~x", "n2~x", "n3"])
@pytest.mark.parametrize("word", [*FORGERIES, "join", "digest"])
def test_frames_of_a_stranger_change_nothing(word: str, name: str) -> None:
    world = running()
    before = state(world)
    for _ in range(3):
        for member in world.members:
            Sending(world, word, name).attack(member)
        world.loop.run_for(0.3)
    assert state(world) == before
    assert world.has_settled
    world.close()


def test_a_seed_draws_strangers_beside_all_other_faults() -> None:
    faults = {"stranger": 3.0, "kill": 1.0, "power": 1.0, "members": 1.0, "isolate": 1.0}
    verdict = run_seed(5, swarm=replace(QUIET, faults=faults, fault_seconds=0.1))
    assert verdict.faults["stranger"] > 10
    assert verdict.invariant == "", verdict.detail
