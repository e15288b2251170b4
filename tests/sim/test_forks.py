"""Forks in the middle of a simulated run with faults: of a majority's files, and of one survivor's.

The machines lose power at one moment, and their disks are copied. The original goes on, and is checked as ever. The
copies become a new cluster. It has everything that was acknowledged before that moment. A survivor has everything
below the place that its report names, and lacks acknowledged records only if the report says so.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from tests.sim.swarms import whole_and_short_logs
from viewstamp.fork import Basis, NewMember, PossibleLoss, fork, judge_source, possible_loss
from viewstamp.ids import ClusterId
from viewstamp.node.options import NodeOptions
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.checkers.replicas import Contents, Kept, check_replicas, check_states
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.ending import contents_of, journals_of
from viewstamp.sim.faults import Faults
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.violation import Violation
from viewstamp.sim.volume import Volume, VolumeImage
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import World

pytestmark = pytest.mark.slow

KINDS = {"kill": 1.0, "power": 1.0, "isolate": 1.0, "slow": 1.0, "break": 1.0, "pause": 1.0, "transfer": 0.5}
SEEDS = 8 if os.environ.get("VIEWSTAMP_SOAK") else 1
"""A seed takes about 15 s."""
SWARMS = whole_and_short_logs(KINDS, seconds=5.0)


@dataclass(frozen=True)
class Copied:
    """The disks of all machines at one moment, and the appends and calls that were acknowledged before it."""

    image: VolumeImage
    directories: list[str]
    appends: list[tuple[str, int, bytes]]
    calls: list[tuple[str, int, str]]

    def disk(self) -> SimulatedDisk:
        disk = SimulatedDisk("copy")
        disk.volume = Volume.from_image(self.image)
        return disk


class Forked(Cluster):
    """The new cluster, on the directories of a fork."""

    def _options(self, member: Member) -> NodeOptions:
        return replace(super()._options(member), cluster=ClusterId("forked"))


def copy_disks(world: World, workload: Workload) -> Copied:
    """Cut the power of all machines, copy their disks, and start them again."""
    appends = [(each.topic, int(each.position), each.value) for each in workload.appends if each.position]
    calls = [(each.key, each.number, each.entry) for each in workload.calls if each.number]
    return Copied(*images_of(world), appends, calls)


def images_of(world: World) -> tuple[VolumeImage, list[str]]:
    """Cut the power of all machines, copy their disks into one, and start them; return it, and the directories."""
    members = [member for member in world.members if not member.is_retired]
    for member in members:
        world.take_down(member, power=True)
    directories: list[str] = []
    files: dict[str, bytes] = {}
    for member in members:
        volume = member.disk.volume
        directories += volume.directories
        files |= {path: bytes(inode.data) for path, inode in volume._names.items()}
    for member in members:
        world.bring_up(member)
    return VolumeImage(tuple(dict.fromkeys(directories)), files), [member.data_dir for member in members]


def run(swarm: Swarm, seed: int) -> tuple[list[Copied], set[bytes]]:
    """Run a world with faults, and copy its disks at some moments; return the copies, and all appended values."""
    world = World(seed, swarm)
    try:
        workload = Workload(world, world.loop.entropy("workload"))
        faults = Faults(world, world.loop.entropy("faults"))
        entropy = world.loop.entropy("copies")
        for member in world.members:
            world.bring_up(member)
        workload.start()
        faults.start()
        copies = []
        for _ in range(3):
            world.loop.run_until(lambda: False, seconds=entropy.uniform(0.5, swarm.seconds / 2))
            copies.append(copy_disks(world, workload))
        faults.stop()
        world.calm()
        workload.stop()
        faults.operator.finish()
        check_liveness(world, lambda: workload.is_done and faults.operator.is_done)
        contents = {member.id: contents_of(member) for member in world.members}
        check_replicas(contents)
        check_states({member.id: member.machine for member in world.members})
        check_contents(copies[-1], next(iter(contents.values())), None)
        return copies, {each.value for each in workload.appends}
    finally:
        world.close()


def start_fork(
    copied: Copied, sources: Sequence[str], basis: Basis, cluster: Forked
) -> tuple[Contents, dict[str, list[str]], PossibleLoss]:
    """Fork, start the new cluster, and return its contents and journals, and the possible loss that was reported."""
    disk = copied.disk()
    source = judge_source(disk, sources, basis=basis)
    members = [
        NewMember(node=each.name, address=each.address, directory=f"/new{each.data_dir}") for each in cluster.members
    ]
    fork(disk, source, cluster="forked", members=members, entropy=random.Random(1))
    for member in cluster.members:
        member.data_dir = f"/new{member.data_dir}"
        member.disk.volume = disk.volume
    for member in cluster.members:
        cluster.bring_up(member)
    check_liveness(cluster, lambda: True)
    contents = {member.id: contents_of(member) for member in cluster.members}
    check_replicas(contents)
    check_states({member.id: member.machine for member in cluster.members})
    journals = journals_of(cluster.members[0], Workload(cluster, cluster.loop.entropy("nothing")))
    return next(iter(contents.values())), journals, possible_loss(source)


def check_contents(copied: Copied, found: Contents, loss: PossibleLoss | None) -> None:
    """Check that acknowledged records are there; with a report, only those that it calls committed have to be."""
    known = {topic.name: topic.known for topic in loss.topics} if loss is not None else {}
    for topic, position, value in copied.appends:
        kept = found.get(topic, Kept(1, [], []))
        at = position - kept.first
        is_there = at < 0 or kept.values[at : at + 1] == [value]
        may_be_lost = loss is not None and loss.acknowledged and position > known.get(topic, 0)
        if not is_there and not may_be_lost:
            raise Violation("ForkKeepsAcknowledged", f"{topic} {position} is {value!r}: {kept.values[at : at + 1]}")


def check_no_invention(found: Contents, written: set[bytes]) -> None:
    for topic, kept in found.items():
        appended = [value for value in kept.values if value in written]
        if len(appended) != len(set(appended)):
            raise Violation("ForkInventsNothing", f"a record is in {topic} twice")


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
@pytest.mark.parametrize("name", SWARMS)
def test_forks_keep_what_was_acknowledged_and_leave_the_original_alone(name: str, seed: int) -> None:
    copies, written = run(SWARMS[name], seed)
    chosen = random.Random(seed)
    for number, copied in enumerate(copies):
        majority = chosen.sample(copied.directories, len(copied.directories) // 2 + 1)
        new = Forked(seed, Swarm(nodes=3 if number % 2 else 1, faults={}))
        try:
            found, journals, loss = start_fork(copied, majority, Basis.ELECTED, new)
            assert not loss.acknowledged
            check_contents(copied, found, None)
            check_no_invention(found, written)
            for key, place, entry in copied.calls:
                assert journals[key][place - 1] == entry, f"call {place} of {key!r} was acknowledged"
        finally:
            new.close()


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
@pytest.mark.parametrize("name", SWARMS)
def test_survivor_lacks_only_what_its_report_names(name: str, seed: int) -> None:
    copies, written = run(SWARMS[name], seed)
    chosen = random.Random(seed)
    for copied in copies:
        new = Forked(seed, Swarm(nodes=1, faults={}))
        try:
            survivor = chosen.choice(copied.directories)
            found, journals, loss = start_fork(copied, [survivor], Basis.SURVIVORS, new)
            assert loss.acknowledged == (len(copied.directories) > 1)
            check_contents(copied, found, loss)
            check_no_invention(found, written)
            for topic in loss.topics:
                kept = found.get(topic.name)
                assert kept is None or not kept.values or kept.first + len(kept.values) - 1 == topic.kept
            for key, place, entry in copied.calls:
                assert loss.acknowledged or journals[key][place - 1] == entry
        finally:
            new.close()
