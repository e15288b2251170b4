"""Runs a seed of the simulator, without its checkers, and records the steps of its members."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from tests.mutants.aims import AIMS
from tests.traces.recorder import Recorder, Step
from viewstamp.sim.faults import Faults
from viewstamp.sim.group_writers import GroupWriters
from viewstamp.sim.network import LinkOptions
from viewstamp.sim.notices import Notices
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import World

__all__ = ["SWARMS", "Run", "record"]


def _aimed(name: str) -> Swarm:
    swarm = AIMS[name].swarm
    assert swarm is not None, f"{name} draws its swarm"
    return swarm


_FAULTS = ("kill", "power", "power-all", "crash-in-call", "isolate", "one-way", "break", "pause", "stall", "transfer")
_MIXED = Swarm(
    clients=1,
    seconds=20.0,
    fault_seconds=0.3,
    down_seconds=0.3,
    pause_seconds=0.05,
    faults=dict.fromkeys(_FAULTS, 1.0),
    links=LinkOptions(delay_mean=0.002, drop=0.05, double=0.1, reorder=0.1, reorder_seconds=0.5),
    disk_mean=0.01,
    value_bytes_max=40,
)

SWARMS: dict[str, Swarm] = {
    **{
        name: _aimed(name)
        for name in ("diverging tails", "fallen leaders", "late appends", "late messages", "changing members")
    },
    "changing voters": replace(
        _aimed("changing members"), fault_seconds=0.12, faults={"members": 5, "isolate": 1, "kill": 1}
    ),
    "mixed": _MIXED,
    "mixed, five members": replace(_MIXED, nodes=5),
    "mixed, the second group": replace(_MIXED, groups=2),
    "mixed, told": replace(_MIXED, notices=True),
}
"""Swarms without what the specification leaves out: snapshots, damaged and lost disks. The last group is recorded."""


@dataclass(frozen=True, slots=True)
class Run:
    """The steps of a run, and the voters before its first record. ``failure``: the error that ended it ("" = none)."""

    steps: list[Step]
    founders: frozenset[str]
    failure: str = ""


def record(swarm: str, seed: int, *, steps_max: int) -> Run:
    """Run a seed until ``steps_max`` steps are recorded, or its faults end.

    The simulator's own checkers do not run, so that a mistake in the product has to be found by its steps.
    """
    world = World(seed, SWARMS[swarm])
    recorder = Recorder(world, steps_max, world.groups[-1])
    world.loop.after_event = recorder.after_event
    workload = Workload(world, world.loop.entropy("workload"))
    writers = GroupWriters(world)
    faults = Faults(world, world.loop.entropy("faults"))
    notices = Notices(world, world.loop.entropy("when to tell"))
    failure = ""
    try:
        for member in world.members:
            world.bring_up(member)
        workload.start()
        writers.start()
        faults.start()
        if world.swarm.notices:
            notices.start()
        world.loop.run_until(lambda: recorder.is_full, seconds=world.swarm.seconds)
    except Exception as error:  # A mistake in the product may end a node; the steps before have to show it.
        failure = f"{type(error).__name__}: {error}"
    with suppress(Exception):
        world.close()
    return Run(recorder.steps, recorder.founders, failure)
