"""Backups in the middle of a simulated run with faults, restored as a new cluster.

Every record that was acknowledged before a backup began is in it; nothing is invented, reordered or there twice; the
restored state is the one that the source had.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.sim.swarms import whole_and_short_logs
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.create import BackupTaker
from viewstamp.backup.manifest import Manifest
from viewstamp.backup.options import BackupOptions
from viewstamp.backup.prune import prune
from viewstamp.backup.restore import choose, write_directories
from viewstamp.backup.source import ClusterSource
from viewstamp.backup.store import DirectoryStore
from viewstamp.backup.verify import BackupReader
from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import UnavailableError
from viewstamp.fork import Basis, NewMember, fork, judge_source
from viewstamp.ids import ClusterId
from viewstamp.node.applier import Applier
from viewstamp.node.options import NodeOptions
from viewstamp.node.replay import point_of
from viewstamp.node.snapshots.file import read_header, read_pieces
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.checkers.replicas import Contents, Kept, check_replicas, check_states
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.ending import contents_of, journals_of
from viewstamp.sim.faults import Faults
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.violation import Violation
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import World
from viewstamp.wal.offline import read_batches
from viewstamp.wire.batch import Batch

pytestmark = pytest.mark.slow

TARGET = "/target"
KINDS = {
    "kill": 1.0,
    "power": 1.0,
    "isolate": 1.0,
    "slow": 1.0,
    "break": 1.0,
    "pause": 1.0,
    "transfer": 0.5,
    "members": 0.3,
    "flip": 0.2,
}
SEEDS = range(1, 13) if os.environ.get("VIEWSTAMP_SOAK") else [4]
SWARMS = whole_and_short_logs(KINDS, seconds=6.0)


@dataclass(frozen=True)
class Taken:
    """A backup, and the appends and calls that were acknowledged before it began."""

    manifest: Manifest
    appends: list[tuple[str, int, bytes]]
    calls: list[tuple[str, int, str]]


class Backups:
    """Takes backups of a world again and again, into a directory of a disk of its own."""

    def __init__(self, world: World, workload: Workload) -> None:
        self.taken: list[Taken] = []
        self.failures: list[str] = []
        self.disk = SimulatedDisk("target", loop=world.loop)
        self.is_over = False
        self._world = world
        self._workload = workload
        self._entropy = world.loop.entropy("backups")
        self._process = world.loop.process("backups")
        self._process.spawn(self._run()).add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self.is_over = True
        if not task.cancelled() and (error := task.exception()) is not None:
            self._world.fail(error)

    async def _run(self) -> None:
        world = self._world
        store = DirectoryStore(self.disk, TARGET)
        options = ClientOptions(timeout=2.0)
        network = world.network.view("backups")
        clock = world.members[0].clock
        async with Client(world.addresses, network=network, entropy=self._entropy, options=options) as client:
            for _ in range(5):
                await asyncio.sleep(self._entropy.expovariate(1.0))
                appends = [
                    (each.topic, int(each.position), each.value) for each in self._workload.appends if each.position
                ]
                calls = [(each.key, each.number, each.entry) for each in self._workload.calls if each.number]
                small = BackupOptions(request_bytes=self._entropy.choice((2000, 20_000)), attempts=8)
                try:
                    with store.held():
                        taker = BackupTaker(
                            store, ClusterSource(client, timeout=1.0), clock=clock, release="sim", options=small
                        )
                        manifest = await taker.take()
                        if self._entropy.random() < 0.3:
                            prune(store, 2)
                except UnavailableError as error:
                    self.failures.append(error.message)
                    continue
                self.taken.append(Taken(manifest, appends, calls))


class Restored(Cluster):
    """The new cluster, on the disks to which a backup was restored."""

    def _options(self, member: Member) -> NodeOptions:
        return replace(super()._options(member), cluster=ClusterId("restored"))


def restore(source: SimulatedDisk, taken: Taken, cluster: Restored) -> None:
    """Write the data directories of a new cluster from a backup."""
    store = DirectoryStore(source, TARGET)
    choice = choose(BackupCatalogue.load(store), taken.manifest.id)
    disk = SimulatedDisk("restore")
    entropy = random.Random(1)
    write_directories(disk, "/source", BackupReader(store), choice, entropy)
    judged = judge_source(disk, ["/source"], basis=Basis.COMMITTED)
    assert (judged.end, judged.cluster) == (taken.manifest.end, "simulated")
    members = [NewMember(node=each.name, address=each.address, directory=each.data_dir) for each in cluster.members]
    fork(disk, judged, cluster="restored", members=members, entropy=entropy)
    for member in cluster.members:
        member.disk.volume = disk.volume


def check_state(disk: SimulatedDisk, member: Member, taken: Taken, cluster: Cluster) -> None:
    """Apply the restored log up to the end of the backup: the checksum of the state is that of the source."""
    machine = cluster._make_machine(member.name)
    applier = Applier(machine, member.clock)
    names = sorted(disk.list_directory(f"{member.data_dir}/snapshots"), reverse=True)
    if names:
        file = disk.open_read(f"{member.data_dir}/snapshots/{names[0]}")
        header = read_header(file)
        applier.adopt(machine.prepare(list(read_pieces(file, header))), point_of(header.meta))
        file.close()
    pending: deque[Batch] = deque(
        each for each in read_batches(disk, member.data_dir) if each.first_index >= applier.applied_end
    )
    applier.apply_to(pending, taken.manifest.end)
    assert (applier.applied_end, machine.lineage) == (taken.manifest.end, taken.manifest.lineage)
    assert machine.chain == taken.manifest.chain, f"another state at {taken.manifest.end}"


def check_contents(taken: Taken, found: Contents, final: Contents, journals: dict[str, list[str]]) -> None:
    for topic, position, value in taken.appends:
        kept = found.get(topic, Kept(1, [], []))
        at = position - kept.first
        if at >= 0 and (at >= len(kept.values) or kept.values[at] != value):
            raise Violation(
                "BackupKeepsAcknowledged", f"{topic} {position} is {value!r}, restored: {kept.values[at : at + 1]}"
            )
    for topic, kept in found.items():
        whole = final.get(topic, Kept(1, [], []))
        for at, value in enumerate(kept.values, kept.first):
            if at >= whole.first and whole.values[at - whole.first : at - whole.first + 1] != [value]:
                raise Violation("BackupInventsNothing", f"{topic} {at} is {value!r}, in the source it is not")
    for key, number, entry in taken.calls:
        assert journals[key][number - 1] == entry, f"call {number} of {key!r} was acknowledged"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SWARMS)
def test_a_backup_holds_what_was_acknowledged_and_nothing_else(name: str, seed: int) -> None:
    taken, disk, final = run(SWARMS[name], seed)
    for each in (taken[0], taken[-1]) if taken else ():
        new = Restored(seed, Swarm(nodes=3 if seed % 2 else 1, faults={}))
        try:
            if each.manifest.id not in {m.id for m in BackupCatalogue.load(DirectoryStore(disk, TARGET)).manifests}:
                continue  # It was pruned.
            restore(disk, each, new)
            looked = SimulatedDisk("a look")
            looked.volume = new.members[0].disk.volume
            check_state(looked, new.members[0], each, new)
            for member in new.members:
                new.bring_up(member)
            check_liveness(new, lambda: True)
            contents = {member.id: contents_of(member) for member in new.members}
            check_replicas(contents)
            check_states({member.id: member.machine for member in new.members})
            journals = journals_of(new.members[0], Workload(new, new.loop.entropy("nothing")))
            check_contents(each, next(iter(contents.values())), final, journals)
        finally:
            new.close()


def run(swarm: Swarm, seed: int) -> tuple[list[Taken], SimulatedDisk, Contents]:
    """Run a world with faults, and take backups meanwhile; return these, their disk, and the final contents."""
    world = World(seed, swarm)
    try:
        workload = Workload(world, world.loop.entropy("workload"))
        faults = Faults(world, world.loop.entropy("faults"))
        for member in world.members:
            world.bring_up(member)
        workload.start()
        faults.start()
        backups = Backups(world, workload)
        world.loop.run_until(lambda: False, seconds=swarm.seconds)
        faults.stop()
        world.calm()
        workload.stop()
        faults.operator.finish()
        check_liveness(world, lambda: workload.is_done and faults.operator.is_done and backups.is_over)
        store = DirectoryStore(backups.disk, TARGET)
        reader = BackupReader(store)
        for manifest in BackupCatalogue.load(store).manifests:
            assert reader.verify(manifest).errors == []
        return backups.taken, backups.disk, contents_of(world.members[0])
    finally:
        world.close()


def crashes() -> Iterator[int]:
    yield from range(1, 400, 7)


def test_a_power_cut_at_any_call_leaves_whole_backups_and_the_next_one_goes_on() -> None:
    """The target's machine loses power in the middle of a second backup, or of the pruning after it."""
    world = World(3, Swarm(nodes=1, faults={}))
    world.bring_up(world.members[0])
    target = SimulatedDisk("target", loop=world.loop)
    client_entropy = world.loop.entropy("client")

    async def append(number: int) -> None:
        network = world.network.view("client")
        async with Client(world.addresses, network=network, entropy=client_entropy) as client:
            await client.create_topic("orders")
            for at in range(3):
                await client.append("orders", b"%d %d" % (number, at))

    async def back_up(keep: int | None = None) -> Manifest:
        store = DirectoryStore(target, TARGET)
        network = world.network.view("backup")
        async with Client(world.addresses, network=network, entropy=client_entropy) as client:
            with store.held():
                manifest = await BackupTaker(
                    store, ClusterSource(client), clock=world.members[0].clock, release="sim"
                ).take()
                if keep is not None:
                    prune(store, keep)
                return manifest

    try:
        loop = world.loop
        loop.run_until_complete(append(0))
        loop.run_until_complete(back_up())
        interrupted = 0
        for call in crashes():
            loop.run_until_complete(append(call))
            before = {each.id for each in BackupCatalogue.load(DirectoryStore(target, TARGET)).manifests}
            target.crash_at(target.calls + 1 + call % 40)
            process = loop.process(f"backup {call}")
            task = process.spawn(back_up(keep=2))
            assert loop.run_until(lambda: task.done() or process.is_dead, seconds=60.0)  # noqa: B023
            interrupted += process.is_dead
            target.crash_at(None)
            target.crash()
            store = DirectoryStore(target, TARGET)
            catalogue = BackupCatalogue.load(store)
            assert catalogue.problems == {}
            assert catalogue.manifests, "no backup is left"
            assert before & {each.id for each in catalogue.manifests} or len(catalogue.manifests) > 0
            reader = BackupReader(store)
            for manifest in catalogue.manifests:
                assert reader.verify(manifest).errors == []
            after = loop.run_until_complete(back_up(keep=2))
            assert BackupReader(store).verify(after).errors == []
        assert interrupted > 10
    finally:
        world.close()
