"""The hosts of an established group change: a node is added, catches up and votes; another one leaves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutants import patched
from tests.node.group import CLUSTER, wait_for
from tests.node.test_hosting import Placing
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import RequestError, UnavailableError, ViewstampError
from viewstamp.host.blocking import in_thread
from viewstamp.ids import GroupId, NodeId, name_of
from viewstamp.node import Node, NodeOptions, server
from viewstamp.node.applier import Applier
from viewstamp.node.group import Group as Member
from viewstamp.node.host_changes import has_left, ids_of
from viewstamp.node.hosting import options_of
from viewstamp.node.inbox import Join
from viewstamp.node.placement_queries import GroupsQuery, PlacedGroup
from viewstamp.wire.batch import Kind

N1, N2, N3, N4 = map(NodeId, ("n1", "n2", "n3", "n4"))


class Moving(Placing):
    """Nodes on which tests change the hosts of groups."""

    def voters(self, group: GroupId) -> set[NodeId]:
        """Return the names of the voters that the leader of a group has committed; empty = none is known now."""
        node = self.leader_of(group)
        hosted = node.groups[group] if node is not None else None
        if hosted is None or hosted.parts is None:
            return set()
        entry = hosted.parts.raft.core.memberships[-1]
        is_committed = entry.index < hosted.parts.raft.core.log.commit_end and not entry.membership.is_joint
        return set(map(name_of, entry.membership.voters)) if is_committed else set()

    async def votes(self, group: GroupId, *nodes: NodeId) -> None:
        """Wait until exactly these nodes are the voters."""
        await wait_for(lambda: self.voters(group) == set(nodes), lambda: f"{self.voters(group)}\n{self.journal.tail()}")

    async def left(self, group: GroupId, *nodes: NodeId) -> None:
        """Wait until all nodes have exactly these nodes as those that have left."""

        def is_so() -> bool:
            return all(each is not None and set(each.left) == set(nodes) for each in self.states(group))

        await wait_for(is_so, lambda: f"{self.states(group)}\n{self.journal.tail()}")


async def test_a_node_is_added_to_a_group_and_another_one_leaves_it(tmp_path: Path) -> None:
    async with Moving(tmp_path, 4) as group:
        await group.run()
        placed = await group.place("s1", nodes=("n1", "n2", "n3"))
        await group.create(placed, "one")
        client = group.client()
        info = await client.add_group_member(placed, "n4")
        assert (set(info.hosts), set(info.founders)) == ({"n1", "n2", "n3", "n4"}, {"n1", "n2", "n3"})
        await group.votes(placed, N1, N2, N3, N4)
        added = group.nodes[N4].groups[placed]
        assert name_of(added.me) == "n4" != added.me, "it never votes under its name"
        assert added.membership.incarnations[added.me] == added.incarnation
        await group.has_topics(placed, "one")
        assert await client.add_group_member(placed, "n4") == info, "a second copy finds it"

        info = await client.remove_group_member(placed, "n3")
        assert info.leaving == ("n3",) or "n3" not in info.hosts
        await group.votes(placed, N1, N2, N4)
        await group.left(placed, N3)
        directory = Path(group.nodes[N3].options.data_dir, "groups", str(placed))
        await wait_for(lambda: not directory.exists(), group.journal.tail)
        assert placed not in group.nodes[N3].groups
        assert set((await client.remove_group_member(placed, "n3")).hosts) == {"n1", "n2", "n4"}
        with pytest.raises(RequestError, match=f"n3 has left group {placed}, and a node is not added to a group again"):
            await client.add_group_member(placed, "n3")

        await group.stop("n3")
        await in_thread(directory.mkdir)  # As if the removal had been interrupted at its last step.
        await group.run("n3")
        await group.create(placed, "two")
        await wait_for(lambda: not directory.exists(), group.journal.tail)
        assert placed not in group.nodes[N3].groups
        assert group.nodes[N3].hosting.unused == {}
        await client.remove_member("n3")
        assert [name_of(each) for each in group.nodes[N1].group.membership.addresses] == ["n1", "n2", "n4"]


async def test_a_leader_that_lags_in_group_0_adds_no_node_that_has_left(tmp_path: Path) -> None:
    """It would be a voter of the group, and nobody would remove it."""
    async with Moving(tmp_path, 4) as group:
        await group.run()
        placed = await group.place("s1", nodes=("n1", "n2", "n3"))
        await group.create(placed, "one")
        client = group.client()
        await group.stop("n4")
        await client.add_group_member(placed, "n4")
        home = await group.leader()
        lagging, other = (node for node in group.nodes.values() if node.options.node not in ("n4", home.options.node))
        await wait_for(lambda: group.states(placed)[list(group.nodes).index(lagging.options.node)], group.journal.tail)
        await wait_for(lambda: all(each and each.added for each in group.states(placed)[:3]), group.journal.tail)
        assert lagging.group.parts is not None
        frozen, original = {lagging.group.parts.applier}, Applier.apply_turn

        def apply_turn(self: Applier) -> None:
            if self not in frozen:
                original(self)

        async def lead(node: Node) -> None:
            while group.leader_of(placed) is not node:
                leader = await wait_for(lambda: group.leader_of(placed), group.journal.tail)
                with suppress(ViewstampError):
                    await leader.groups[placed].transfer_leadership(node.groups[placed].me)

        with patched(Applier, apply_turn=apply_turn):
            await lead(other)
            await client.remove_group_member(placed, "n4")
            await wait_for(lambda: "n4" in (left_by(other, placed)), group.journal.tail)
            await lead(lagging)
            await wait_for(lambda: lagging.groups[placed].lifecycle is Lifecycle.RUNNING, group.journal.tail)
            assert "n4" not in left_by(lagging, placed), "it lags"
            lagging.on_join(placed, Join(NodeId("n4~8c21f0aa"), "127.0.0.1:4"))
            core = lagging.groups[placed].replica.raft.core  # type: ignore[union-attr]
            await group.create(placed, "two")
            assert [name_of(each) for each in core.membership.addresses] == ["n1", "n2", "n3"]
            frozen.clear()
            await wait_for(lambda: "n4" in left_by(lagging, placed), group.journal.tail)
            await wait_for(lambda: not lagging.host_changes.is_busy, group.journal.tail)
        assert [name_of(each) for each in lagging.groups[placed].membership.addresses] == ["n1", "n2", "n3"]


def left_by(node: Node, group: GroupId) -> tuple[NodeId, ...]:
    """Return the nodes that have left a group, as a node has applied it."""
    return next(each.left for each in node.machine.query(GroupsQuery()) if each.id == group)


async def test_a_leader_that_cannot_confirm_that_it_leads_reports_nobody_as_gone(tmp_path: Path) -> None:
    """Another leader may just be adding the node."""
    async with Moving(tmp_path, 4) as group:
        await group.run()
        placed = await group.place("s1", nodes=("n1", "n2", "n3"))
        await group.create(placed, "one")
        client = group.client()
        await group.stop("n4")
        await client.add_group_member(placed, "n4")
        leader = await wait_for(lambda: group.leader_of(placed), group.journal.tail)
        replica, reports = leader.groups[placed].replica, list[Node]()
        original = Member.report_left

        def report_left(self: Member, of: GroupId, node: NodeId) -> None:
            reports.append(next(each for each in group.nodes.values() if each.group is self))
            original(self, of, node)

        assert replica is not None
        with patched(Member, report_left=report_left):
            replica.send = lambda _: None
            await client.remove_group_member(placed, "n4")
            await wait_for(lambda: any(left_by(node, placed) for node in group.nodes.values()), group.journal.tail)
        assert reports
        assert leader not in reports, "its messages reach nobody in this group"


async def test_a_leaving_host_keeps_its_records_until_it_has_left(tmp_path: Path) -> None:
    """Without n2 no removal of n3 can be committed."""
    async with Moving(tmp_path, 3) as group:
        await group.run()
        placed = await group.place("s1")
        await group.create(placed, "one")
        await group.has_topics(placed, "one")
        await group.stop("n2")
        await group.client().remove_group_member(placed, "n3")
        last = group.nodes[N3]
        await wait_for(
            lambda: next(each.leaving for each in last.machine.query(GroupsQuery()) if each.id == placed),
            group.journal.tail,
        )
        await wait_for(lambda: last.hosting._sweep is None, group.journal.tail)
        directory = Path(last.options.data_dir, "groups", str(placed))
        assert placed in last.groups
        assert await in_thread(lambda: (directory / "wal").exists())
        await group.run("n2")
        await wait_for(lambda: not directory.exists(), group.journal.tail)


async def test_a_removal_that_is_not_committed_is_none(tmp_path: Path) -> None:
    async with Moving(tmp_path, 3) as group:
        await group.run()
        placed = await group.place("s1")
        await group.create(placed, "one")
        leader = await wait_for(lambda: group.leader_of(placed), group.journal.tail)
        gone = next(name for name in (N1, N2, N3) if name != leader.options.node)
        hosted = leader.groups[placed]
        assert hosted.replica is not None
        core = hosted.replica.raft.core
        assert not has_left(core, gone)

        async def remove() -> None:
            while not has_left(core, gone):
                with suppress(UnavailableError):  # No majority of the new voters has answered yet.
                    await hosted.change_members("remove", gone, "", "")
                await asyncio.sleep(0)

        replica, original = hosted.replica, hosted.replica.send

        def send(message: Any) -> None:
            if ids_of(core, gone):
                original(message)

        replica.send = send  # Nobody hears of the last record of the removal, so it is not committed.
        removing = asyncio.create_task(remove())
        await wait_for(lambda: not ids_of(core, gone), group.journal.tail)
        assert not has_left(core, gone)
        replica.send = original
        await removing
        assert has_left(core, gone)


def test_a_founder_begins_with_the_founders_and_an_added_node_asks_all_hosts(tmp_path: Path) -> None:
    """A founder without records would elect itself, if it began with the hosts that are left."""
    founders = {N1: "a:1", N2: "a:2"}
    disks = {N1: "0" * 16, N2: "1" * 16}
    placed = PlacedGroup(GroupId(7), founders, ("s",), disks, {N3: "a:3", N4: "a:4"}, (), (N2,))
    one, four = (
        options_of(
            NodeOptions(node=node, cluster=CLUSTER, data_dir=str(tmp_path), listen="a:0", members=founders), placed
        )
        for node in (N1, N4)
    )
    assert (one.members, one.learners, one.incarnations) == (founders, {}, disks)
    assert (four.members, four.learners) == (founders, {N3: "a:3"})


async def test_a_node_that_hosts_a_group_is_no_member_of_the_cluster_until_it_has_left(tmp_path: Path) -> None:
    async with Moving(tmp_path, 4) as group:
        await group.run()
        placed = await group.place("s1", nodes=("n1", "n2", "n3"))
        await group.create(placed, "one")
        client = group.client()
        await client.add_group_member(placed, "n4")
        await group.votes(placed, N1, N2, N3, N4)
        with pytest.raises(RequestError, match=f"n4 hosts the groups {placed}, so it has to stay a member"):
            await client.remove_member("n4")
        with pytest.raises(RequestError, match="'n5', which is no member of group 0"):
            await client.add_group_member(placed, "n5")
        await group.stop("n4")
        await group.create(placed, "two")
        await group.run("n4")
        await group.has_topics(placed, "one", "two")
        assert name_of(group.nodes[N4].groups[placed].me) == "n4"


async def test_hosts_do_not_change_while_a_member_runs_an_older_release(tmp_path: Path) -> None:
    async with Moving(tmp_path, 3) as group:
        await group.run()
        placed = await group.place("s1", nodes=("n1", "n2"))
        await group.create(placed, "one")
        client = group.client()
        with patched(server, Kind=[Kind.LOSE_SEALED_STREAM]):  # The highest kind in its WELCOME.
            with pytest.raises(RequestError, match="the hosts of the group were not changed: n"):
                await client.add_group_member(placed, "n3")
            with pytest.raises(RequestError, match="the hosts of the group were not changed: n"):
                await client.remove_group_member(placed, "n2")
        assert set((await client.add_group_member(placed, "n3")).hosts) == {"n1", "n2", "n3"}
