"""Groups that are placed by a record of group 0: founders create and open them, and never with an empty disk again."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.mutants.mutants import patched
from tests.node.caller import call
from tests.node.group import CLUSTER, PATIENCE_SECONDS, SMALL, Group, wait_for
from tests.node.snapshots import make_meta
from tests.node.test_address_check import move
from viewstamp.errors import ConfigError, RequestError, ViewstampError
from viewstamp.host.interfaces import Host
from viewstamp.ids import GroupId, NodeId, name_of
from viewstamp.node import Node, NodeOptions
from viewstamp.node.archive_rounds import ArchiveRounds
from viewstamp.node.hosting import complete_directory
from viewstamp.node.placement_queries import GroupsQuery, PlacedGroup
from viewstamp.node.snapshots.file import encode_header
from viewstamp.node.state_machine import Result, TopicsQuery
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.wal.control_file import ControlFile, read_control_state
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.placing import encode_place

G = GroupId(7)
N1 = NodeId("n1")
PATH = "/n1/groups/7"


class Placing(Group):
    """Nodes on which tests place groups."""

    async def place(self, *streams: str, nodes: tuple[str, ...] = ()) -> GroupId:
        """Place a group by a client."""
        return (await self.client().place_group(*streams, founders=nodes)).id

    async def place_unprobed(self, *streams: str) -> GroupId:
        """Place a group on all nodes by its record alone, because one of them is down."""
        record = encode_place(self.members, streams, since=0)
        while True:
            leader = await self.leader()
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            with suppress(ViewstampError):
                leader.group.propose(Batch.decode(bytearray(record.buffer)), answered.set_result)
                answer = await asyncio.wait_for(answered, PATIENCE_SECONDS)
                if not isinstance(answer, Exception):
                    return GroupId(answer["group"]["id"])
            await asyncio.sleep(0.01)

    def states(self, group: GroupId) -> list[PlacedGroup | None]:
        """Return the group as each node has it."""
        machines = [node.machine for node in self.nodes.values()]
        return [next((each for each in m.query(GroupsQuery()) if each.id == group), None) for m in machines]

    async def recorded(self, group: GroupId, *nodes: str) -> None:
        """Wait until all nodes have exactly these founders of a group on record."""

        def is_so() -> bool:
            return all(each is not None and each.incarnations.keys() == set(nodes) for each in self.states(group))

        await wait_for(is_so, lambda: f"{self.states(group)}\n{self.journal.tail()}")

    def leader_of(self, group: GroupId) -> Node | None:
        for node in self.nodes.values():
            hosted = node.groups.get(group)
            if hosted is not None and hosted.replica is not None and hosted.replica.is_leading:
                return node
        return None

    async def create(self, group: GroupId, name: str) -> None:
        """Create a topic in a group, which has to elect a leader for it."""
        record = msgpack.packb({"name": name, "retain_bytes": 0, "retain_seconds": 0.0})
        while True:
            leader = await wait_for(lambda: self.leader_of(group), self.journal.tail)
            answered: asyncio.Future[Result | Exception] = asyncio.get_running_loop().create_future()
            leader.groups[group].propose(build_batch([record], kind=Kind.CREATE_TOPIC), answered.set_result)
            if not isinstance(await asyncio.wait_for(answered, PATIENCE_SECONDS), Exception):
                return

    async def has_topics(self, group: GroupId, *names: str) -> None:
        """Wait until every node hosts the group with exactly these topics."""

        def is_level() -> bool:
            hosted = [node.groups.get(group) for node in self.nodes.values()]
            return all(
                each is not None and [topic["name"] for topic in each.machine.query(TopicsQuery())] == list(names)
                for each in hosted
            )

        await wait_for(is_level, self.journal.tail)


async def test_founders_open_a_placed_group_and_open_it_again_at_each_start(tmp_path: Path) -> None:
    async with Placing(tmp_path) as group:
        await group.run()
        placed = await group.place("s1")
        await group.create(placed, "one")
        await group.has_topics(placed, "one")
        state = group.states(placed)[0]
        assert state is not None
        assert state.is_established
        with pytest.raises(RequestError, match=f"also has the groups {placed}, and a backup of group 0 alone"):
            group.nodes[N1].group.describe_log()
        for name, node in group.nodes.items():
            assert node.groups[placed].incarnation == state.incarnations[name] != node.group.incarnation
            assert node.groups[placed].membership.incarnations == state.incarnations
        await group.stop("n3")
        await group.create(placed, "two")
        await group.run("n3")
        await group.has_topics(placed, "one", "two")
        assert group.nodes[NodeId("n3")].groups[placed].me == "n3"
        status = group.nodes[NodeId("n3")].status
        assert status["placed"] == [{**state.describe(), "failure": ""}]
        await wait_for(lambda: not group.nodes[NodeId("n3")].hosting.unserved, group.journal.tail)
        assert await group.place("s1") == placed


async def test_a_group_that_opens_while_its_node_stops_gets_no_archivist(tmp_path: Path) -> None:
    """Nobody would end its jobs, and the node would fail while it stops."""
    async with Placing(tmp_path, 1) as group:
        await group.run()
        placed, node = await group.place("s1"), group.nodes[N1]
        await wait_for(lambda: group.leader_of(placed) is not None, group.journal.tail)
        hosted, original = node.groups[placed], ArchiveRounds.stop
        del node.archives._parts[placed]

        async def stop(self: ArchiveRounds) -> None:
            node.archives.start(hosted)
            await original(self)

        with patched(ArchiveRounds, stop=stop):
            await group.stop("n1")
        with pytest.raises(ViewstampError, match=f"group {placed} is not open on this node now"):
            node.archives.of(placed)


async def test_a_node_that_has_moved_serves_its_groups_at_the_new_address(tmp_path: Path) -> None:
    """The membership of the group has the old address for ever; that of group 0 counts."""
    async with Placing(tmp_path) as group:
        await group.run()
        placed = await group.place("s1")
        await group.create(placed, "one")
        await group.has_topics(placed, "one")
        await group.stop("n3")
        await move(group, "n3", "127.0.0.1:13")
        await group.run("n3", listen="127.0.0.1:13")
        await group.has_topics(placed, "one")
        await group.stop("n2")
        await group.create(placed, "two")  # Without n3 there is no majority.
        await group.has_topics(placed, "one", "two")
        hosted = group.nodes[NodeId("n3")].groups[placed]
        assert hosted.me == "n3"
        assert hosted.membership.voters[NodeId("n3")] == group.members[NodeId("n3")]


async def test_only_a_member_with_its_recorded_disk_reports_for_a_founder(tmp_path: Path) -> None:
    async with Placing(tmp_path) as group:
        await group.run()
        await group.stop("n3")
        placed = await group.place_unprobed("s1")
        await group.recorded(placed, "n1", "n2")
        leader = (await group.leader()).options.node
        async with call(group, leader) as caller:
            caller.send(FrameKind.HOSTED, {"group": placed, "incarnation": "e" * 16})
            assert await caller.is_ended(), "a client is no member"
        for stranger in ("n3", "n4"):
            async with call(group, leader, greet=False) as caller:
                assert (await caller.hello(node=stranger, incarnation="f" * 16)).kind == FrameKind.REFUSED
        await group.client().create_topic("zero")
        await group.caught_up()
        assert all(each is not None and "n3" not in each.incarnations for each in group.states(placed))


# The directory of a founder.


def options(**incarnations: str) -> NodeOptions:
    own = NodeOptions(node=N1, cluster=CLUSTER, data_dir="/n1", listen="", members={}, wal=SMALL)
    return own.of_group(G, {N1: "a:1"}, learners={}, incarnations={NodeId(n): each for n, each in incarnations.items()})


def nothing(_: Batch, __: int) -> None:
    """Take a batch of a log that has none."""
    raise AssertionError("the log of a new group is empty")


def host(disk: SimulatedDisk, seed: int) -> Host:
    return Host(None, disk, None, random.Random(seed))  # type: ignore[arg-type]


def test_a_founder_keeps_its_disk_wherever_its_process_dies_while_the_directory_is_created() -> None:
    ends, call_number = 0, 0
    while not ends:
        disk = SimulatedDisk("d")
        disk.make_directory("/n1")
        disk.crash_at(disk.calls + call_number)
        reported = ""
        try:
            reported = complete_directory(host(disk, 1), options())
            disk.crash_at(None)
            ends += 1
        except SimulatedCrash:
            disk.crash(random.Random(call_number))
        again = complete_directory(host(disk, 2), options())
        disk.crash(random.Random(call_number))
        assert complete_directory(host(disk, 3), options()) == again
        assert not reported or again == reported
        state = read_control_state(disk, PATH)
        assert state is not None
        assert (state.incarnation, state.member_id, state.group) == (again, "", 7)
        log = Wal.open(disk, f"{PATH}/wal", SMALL, on_batch=nothing, must_exist=True, log_id=state.log_id)
        assert log.end == 1
        log.abandon()
        call_number += 1
    assert call_number > 10


def test_a_copied_snapshot_of_another_group_is_refused() -> None:
    disk = SimulatedDisk("d")
    disk.make_directory("/n1")
    complete_directory(host(disk, 1), options())
    path = f"{PATH}/snapshots/{10:020d}-1.snapshot"
    disk.open(path, create=True).write(0, [encode_header(make_meta(10))])
    with pytest.raises(ConfigError, match=f"{path} is of group 0, and its directory is that of group 7"):
        complete_directory(host(disk, 1), options())


def test_an_empty_directory_of_an_established_group_gets_a_new_id() -> None:
    disk = SimulatedDisk("d")
    disk.make_directory("/n1")
    incarnation = complete_directory(host(disk, 1), options(n1="e" * 16))
    state = read_control_state(disk, PATH)
    assert state is not None
    assert name_of(state.member_id) == "n1" != state.member_id
    assert complete_directory(host(disk, 2), options(n1="e" * 16)) == incarnation
    assert read_control_state(disk, PATH) == state


def test_a_directory_whose_report_was_refused_gets_a_new_id_unless_it_has_voted() -> None:
    disk = SimulatedDisk("d")
    disk.make_directory("/n1")
    incarnation = complete_directory(host(disk, 1), options())
    complete_directory(host(disk, 1), options(n1=incarnation))
    state = read_control_state(disk, PATH)
    assert state is not None
    assert state.member_id == ""
    control = ControlFile.open(disk, PATH)
    control.write(replace(state, term=1))
    with pytest.raises(ConfigError, match="another disk of n1"):
        complete_directory(host(disk, 2), options(n1="e" * 16))
    control = ControlFile.open(disk, PATH)
    control.write(state)
    assert complete_directory(host(disk, 2), options(n1="e" * 16)) == incarnation
    changed = read_control_state(disk, PATH)
    assert changed is not None
    assert name_of(changed.member_id) == "n1" != changed.member_id
