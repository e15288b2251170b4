"""Spread topics in simulated clusters: their streams are created wherever a leader dies, and whatever else happens."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.sim.leaders import leader_of
from tests.sim.test_groups import CALM, PLACED, PlacedWorld, die
from viewstamp.ids import GROUP_0
from viewstamp.sim.faults import Faults
from viewstamp.sim.keyed_appends import KeyedAppends
from viewstamp.sim.violation import Violation

DEATHS = range(0, 72, 8) if os.environ.get("VIEWSTAMP_SOAK") else (0, 16, 48)
"""The calls of the disk at which a leader dies."""


def test_each_member_of_a_group_has_its_streams() -> None:
    world = PlacedWorld(1, CALM, number=2, streams=5)
    try:
        assert world.loop.run_until(lambda: world.placer.is_done, seconds=60.0)
        world.finish(names_min=1)
        assert world.placer.spread is not None
        assert sorted(world.placer.spread.groups) == sorted([*world.placer.placed * 2, world.placer.spread.groups[0]])
    finally:
        world.close()


@pytest.mark.parametrize("is_of_group_0", [True, False])
@pytest.mark.parametrize("death", DEATHS)
def test_the_streams_are_created_wherever_a_leader_dies(death: int, is_of_group_0: bool) -> None:
    """The process dies at a call of its disk, from the last group on until all streams exist."""
    world = PlacedWorld(death, replace(CALM, seconds=0.0), number=2, streams=6)
    try:
        assert world.loop.run_until(lambda: len(world.placer.placed) == 2, seconds=60.0)
        groups = [GROUP_0] if is_of_group_0 else world.placer.placed
        assert world.loop.run_until(lambda: leader_of(world, *groups) is not None, seconds=60.0)
        victim = leader_of(world, *groups)
        assert victim is not None
        victim.disk.crash_at(victim.disk.calls + death, lambda: die(world, victim))
        world.loop.run_until(lambda: not victim.is_up, seconds=2.0)
        world.finish(names_min=1)
        assert world.placer.spread is not None
        assert world.placer.spread.streams == 6
    finally:
        world.close()


def check_keys(keyed: KeyedAppends) -> None:
    """Check that the order of the keys was checked: two records of a key that change places are found.

    It is done for all keys, because records of a stream that was given up or removed have no position to compare.
    """
    assert keyed.check() > 8
    for returned in keyed._returned.values():
        if len({one.stream for one in returned.values()}) == 1:
            first, last = min(returned), max(returned)
            returned[first], returned[last] = returned[last], returned[first]
    with pytest.raises(Violation, match="KeyKeepsItsOrder"):
        keyed.check()


@pytest.mark.parametrize("seed", [9, 11])  # Two streams end in each, and records of each key keep their positions.
def test_streams_are_created_and_configured_under_faults_and_lost_disks(seed: int) -> None:
    world = PlacedWorld(seed, PLACED, number=2, streams=8, changes=True)
    try:
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        world.loop.run_until(lambda: False, seconds=PLACED.seconds)
        faults.stop()
        world.finish(names_min=1)
        assert world.placer.spread is not None
        assert {each.stream for each in world.placer.spread.closed} == world.placer.ended
        check_keys(world.placed.keyed)
    finally:
        world.close()
