"""The fault injector: faults that raise errors themselves, and the files that damages may affect."""

from __future__ import annotations

import random

import pytest

from viewstamp.sim.cluster import Member
from viewstamp.sim.faults import Faults
from viewstamp.sim.run import run_seed
from viewstamp.sim.swarm import DAMAGES, Swarm
from viewstamp.sim.world import World


def test_a_fault_that_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(_: Faults, member: Member) -> None:
        raise RuntimeError(f"no way to kill {member.id}")

    monkeypatch.setattr(Faults, "_kill", kill)
    verdict = run_seed(1, swarm=Swarm(nodes=1, faults={"kill": 1.0}, fault_seconds=0.1, strike_seconds=0.5))
    assert verdict.invariant == "no RuntimeError"
    assert "no way to kill n1" in verdict.detail
    assert "test_faults.py" in verdict.detail


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damage_may_fall_on_every_file_of_a_member(kind: str) -> None:
    """Each kind is drawn many times, because a fifth of the damages affect snapshots and the others the log."""
    for seed in range(20):
        world = World(seed, Swarm(nodes=3, faults={}))
        for member in world.members:
            world.bring_up(member)
        assert world.loop.run_until(lambda: world.has_settled, seconds=10)  # noqa: B023
        member = world.members[2]
        world.take_down(member, power=False)
        snapshot = member.disk.volume.adopt(f"{member.data_dir}/snapshots/1-1.snapshot", bytes(3000))
        snapshot.sync()
        member.disk.volume.sync_directory(f"{member.data_dir}/snapshots")
        world.damages.do(kind, member, random.Random(seed))
        world.close()
