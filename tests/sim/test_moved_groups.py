"""Forks, backups, recoveries and reshards of a simulated cluster whose groups have other hosts than their founders.

Group "wide" was founded by n1, n2 and n3; n4 was added, and n1 has left. Group "far" was founded by n1 and n2, and is
on n4 alone. n1 and n2 still have old directories of groups, as if they had died before they removed them; these end
before the last acknowledged records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgpack
import pytest

from tests.mutants.mutants import patched
from tests.sim.kept_records import kept_records
from tests.sim.test_forks import Forked, images_of
from tests.sim.test_group_backups import restored
from tests.sim.test_groups import CALM, PlacedWorld
from tests.sim.test_lost_streams import Loser
from tests.sim.test_reshards import CLASSES, machine
from tests.sim.test_spread_appends import spread
from viewstamp.backup.create import BackupTaker
from viewstamp.backup.options import BackupOptions
from viewstamp.backup.source import ClusterSource
from viewstamp.backup.store import DirectoryStore
from viewstamp.client import Receipt, SpreadTopicInfo
from viewstamp.errors import NoQuorumError
from viewstamp.fork import Basis, ForkSource, NewMember, fork, judge_source, plan_groups, plan_reshard, possible_loss
from viewstamp.ids import GroupId, NodeId, Stream
from viewstamp.node import hosting
from viewstamp.node.placement_queries import GroupsQuery
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.volume import Volume, VolumeImage
from viewstamp.streams import Streams
from viewstamp.wire.commands import decode_result

pytestmark = pytest.mark.slow

FOUR = replace(CALM, nodes=4)
CALLS = ["a", "b", "c"]
"""The keys of the instances that were called."""


@dataclass(frozen=True)
class Moved:
    """The disks after the moves, and the values that were acknowledged before them, between them and behind them."""

    image: VolumeImage
    groups: tuple[GroupId, GroupId]
    topic: SpreadTopicInfo
    acknowledged: dict[bytes, Receipt]
    backup: SimulatedDisk
    taken: object
    drawn: dict[str, list[list[str]]]

    def disk(self) -> SimulatedDisk:
        disk = SimulatedDisk("copy")
        disk.volume = Volume.from_image(self.image)
        return disk

    def stream(self, number: int) -> Stream:
        return Stream(self.topic.group_of(number), self.topic.topic_of(number))


def has_hosts(world: PlacedWorld, group: GroupId, *nodes: str) -> Callable[[], bool]:
    """Return whether exactly these nodes have the group open, and are its voters."""

    def is_so() -> bool:
        hosted = [member for member in world.members if member.group(group) is not None]
        placed = next(each for each in world.members[0].machine.query(GroupsQuery()) if each.id == group)
        voters = world.damages_of[group]._disks.membership
        names = {each.split("~")[0] for each in voters.voters} if voters is not None else set()
        return {each.name for each in hosted} == set(placed.hosts) == names == set(nodes) and not placed.leaving

    return is_so


@pytest.fixture(scope="module")
def moved() -> Moved:
    with patched(hosting, remove_removed=lambda disk, options: False):
        return run()


def run() -> Moved:
    world = PlacedWorld(4, FOUR, number=0, machine=machine)
    try:
        wide, far = world.place("wide", "n1", "n2", "n3"), world.place("far", "n1", "n2")
        assert world.loop.run_until(
            lambda: bool(world.writers.acknowledged[wide] and world.writers.acknowledged[far]), seconds=60.0
        )
        world.writers.stop()
        topic = spread(world, [wide, far], 2)
        world.ask(lambda client: client.spread_actor("drawer", groups=[wide, far]))
        writer = Loser(world, timeout=20.0)
        acknowledged: dict[bytes, Receipt] = {}
        drawn: dict[str, list[list[str]]] = {}

        async def work() -> None:
            for number in range(8):
                value = b"%06d" % next(writer.numbers)
                acknowledged[value] = await writer.client.append("spread", value, stream=1 + number % 2)
            for key in CALLS:
                calls = drawn.setdefault(key, [])
                calls.append(await writer.client.call("drawer", "draw", str(len(calls)), key=key))

        def move(group: GroupId, added: str, *left: str) -> None:
            world.ask(lambda client: client.add_group_member(group, added))
            for node in left:
                world.ask(lambda client, node=node: client.remove_group_member(group, node))  # type: ignore[misc]

        writer.run(work())
        move(wide, "n4", "n1")
        assert world.loop.run_until(has_hosts(world, wide, "n2", "n3", "n4"), seconds=60.0), world.describe()
        writer.run(work())
        world.ask(lambda client: client.add_group_member(far, "n4"))
        assert world.loop.run_until(has_hosts(world, far, "n1", "n2", "n4"), seconds=60.0), world.describe()
        for node, rest in (("n1", ("n2", "n4")), ("n2", ("n4",))):
            world.ask(lambda client, node=node: client.remove_group_member(far, node))  # type: ignore[misc]
            assert world.loop.run_until(has_hosts(world, far, *rest), seconds=60.0), world.describe()
        writer.run(work())
        target = SimulatedDisk("target", loop=world.loop)
        store = DirectoryStore(target, "/target")

        async def back_up() -> object:
            options = BackupOptions(bytes_per_second=1 << 40, share=1.0, attempts=6)
            with store.held():
                source = ClusterSource(writer.client, timeout=5.0)
                return await BackupTaker(
                    store, source, clock=world.members[0].clock, release="s", options=options
                ).take()

        taken = writer.run(back_up())
        image, _ = images_of(world)
        world.loop.run_until(lambda: False, seconds=0.01)
        writer.client._close()
        return Moved(image, (wide, far), topic, acknowledged, target, taken, drawn)
    finally:
        world.close()


def records_of(disk: SimulatedDisk, source: ForkSource) -> dict[Stream, dict[int, bytes]]:
    """Return the values of all streams in the logs of a source."""
    *_, records = kept_records(disk, source)
    return {stream: {at: bytes(record.value) for at, record in of.items()} for stream, of in records.items()}


def missing(moved: Moved, found: dict[Stream, dict[int, bytes]]) -> set[bytes]:
    """Return the acknowledged values that are not at their positions."""
    assert len(moved.acknowledged) == 24
    return {
        value
        for value, receipt in moved.acknowledged.items()
        if found.get(moved.stream(receipt.stream or 0), {}).get(int(receipt.position)) != value
    }


def members_at(place: str) -> list[NewMember]:
    return [NewMember(node=NodeId(n), address=f"127.0.0.1:{7000 + at}", directory=f"{place}/{n}") for at, n in NODES]


NODES = [(1, "n1"), (2, "n2"), (3, "n3"), (4, "n4")]


@pytest.mark.parametrize("sources", [["/n1", "/n2", "/n3", "/n4"], ["/n1", "/n2", "/n4"], ["/n1", "/n3", "/n4"]])
def test_a_fork_takes_the_logs_of_the_present_hosts(moved: Moved, sources: Sequence[str]) -> None:
    disk = moved.disk()
    source = judge_source(disk, sources, with_groups=True)
    assert source.has_majorities
    assert missing(moved, records_of(disk, source)) == set()


def test_a_fork_without_the_present_hosts_of_a_group_is_refused_although_its_founders_are_there(moved: Moved) -> None:
    with pytest.raises(NoQuorumError, match=f"group {moved.groups[1]}: no majority"):
        judge_source(moved.disk(), ["/n1", "/n2", "/n3"], with_groups=True)


def test_a_fork_in_place_moves_the_directories_of_nodes_that_have_left_aside(moved: Moved) -> None:
    disk, new = moved.disk(), Forked(3, FOUR, machine=machine)
    try:
        sources = [f"/{name}" for _, name in NODES]
        source = judge_source(disk, sources, with_groups=True)
        fork(disk, source, cluster="forked", members=members_at(""), entropy=random.Random(1))
        for member in new.members:
            member.disk.volume = disk.volume
            new.bring_up(member)
        check_liveness(new, lambda: True)
        wide, far = moved.groups
        placed = {each.id: each for each in new.members[0].machine.query(GroupsQuery())}
        assert {group: set(each.members) for group, each in placed.items()} == {wide: {"n2", "n3", "n4"}, far: {"n4"}}
        for member in new.members:
            assert member.node is not None
            unused = [member.directory_of(group) for group in member.node.hosting.unused]
            assert not any(disk.list_directory(f"{each}/wal") for each in unused), "its old log was moved aside"
            assert {*member.node.groups} - {0} == {each.id for each in placed.values() if member.name in each.members}
    finally:
        new.close()


def recovered(disk: SimulatedDisk, sources: Sequence[str]) -> tuple[ForkSource, ForkSource]:
    """Recover these disks; return what they had, and what the new cluster has."""
    source = judge_source(disk, sources, basis=Basis.SURVIVORS, with_groups=True)
    plan_groups(disk, source)
    new = [NewMember(node=NodeId("n1"), address="n1:1", directory="/new")]
    fork(disk, source, cluster="recovered", members=new, entropy=random.Random(2), segment_bytes=1 << 16)
    return source, judge_source(disk, ["/new"], with_groups=True)


def test_a_recovery_prefers_a_present_host_to_a_node_that_has_left(moved: Moved) -> None:
    disk = moved.disk()
    source, new = recovered(disk, ["/n1", "/n4"])
    losses = [possible_loss(each.source) for each in source.groups]
    assert [each.survivors for each in losses] == [["n4"], ["n4"]]
    assert [each.acknowledged for each in losses] == [True, False], "n4 is the only host of the second group"
    assert missing(moved, records_of(disk, new)) == set()


@pytest.mark.parametrize("sources", [["/n1"], ["/n1", "/n2"]])
def test_a_recovery_from_nodes_that_have_left_names_the_loss(moved: Moved, sources: list[str]) -> None:
    disk = moved.disk()
    source, new = recovered(disk, sources)
    loss = possible_loss(source.groups[1].source)
    assert loss.acknowledged, "the records behind the change of the hosts are lost"
    assert loss.survivors == []
    assert {*loss.uncounted.values()} == {"it has left the group; its records are used all the same"}
    lost = missing(moved, records_of(disk, new))
    assert lost, "n4 has acknowledged some that nobody else has"
    assert {moved.acknowledged[value].stream for value in lost} >= {2}


def test_a_reshard_keeps_what_the_present_hosts_have(moved: Moved) -> None:
    disk, new = moved.disk(), Forked(3, FOUR, machine=machine)
    try:
        source = judge_source(disk, [f"/{name}" for _, name in NODES], with_groups=True)
        to = members_at("/new")
        plan = plan_reshard(disk, source, groups=3, members=to, classes=CLASSES, spread=[])
        made = fork(disk, plan.source, cluster="forked", members=to, entropy=random.Random(1), check=plan.check)
        for member in new.members:
            member.data_dir = f"/new{member.data_dir}"
            member.disk.volume = disk.volume
        for member in new.members:
            new.bring_up(member)
        groups = [GroupId(each) for each in made.groups]
        check_liveness(new, lambda: all(any(each.settled_end(group) for each in new.members) for group in groups))
        for key, drawn in moved.drawn.items():
            hosted = [found for each in new.members for group in groups if (found := each.group(group)) is not None]
            machines = [each.machine for each in hosted if isinstance(each.machine, Streams)]
            owners = [each for each in machines if each._actors.has_instance("drawer", key)]
            assert owners, key
            for each in owners:
                packed = each._actors.query("drawer", key, "read", msgpack.packb([[], {}]))
                assert decode_result(packed)[1] == drawn
    finally:
        new.close()


def test_a_backup_has_the_records_of_the_present_hosts(moved: Moved) -> None:
    _, records = restored(moved.backup, moved.taken)  # type: ignore[arg-type]
    assert missing(moved, records) == set()
