"""Membership changes, leadership transfer and lost disks in a running group, on real disks and sockets."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.node.group import Group, wait_for
from viewstamp.consensus.roles import Lifecycle, Role
from viewstamp.errors import NotLeaderError, RequestError, UnavailableError
from viewstamp.ids import Index, NodeId, Term
from viewstamp.node import Node

pytestmark = pytest.mark.slow


def voters(node: Node) -> set[str]:
    """Return the voters in a member's membership; empty while the membership is joint or the node is starting."""
    if node.replica is None:
        return set()
    membership = node.replica.raft.core.membership
    return set() if membership.is_joint else set(membership.voters)


def is_reborn_voter(node: Node) -> bool:
    """Return whether a node has rejoined under a new id and votes."""
    return node.me.startswith("n2~") and node.me in voters(node)


async def settled(group: Group) -> Node:
    """Wait until no membership change is in progress; return the leader.

    A leader records the disk of each member that it meets by a change of its own, so all running members must be
    recorded.
    """

    def is_settled() -> bool:
        leading = [
            node.replica for node in group.nodes.values() if node.replica is not None and node.replica.is_leading
        ]
        if len(leading) != 1:
            return False
        core = leading[0].raft.core
        entry, running = core.memberships[-1], {node.me for node in group.nodes.values()}
        is_named = entry.membership.incarnations.keys() >= running & entry.membership.addresses.keys()
        return is_named and entry.index < core.log.commit_end and not entry.membership.is_joint

    await wait_for(is_settled, lambda: f"not settled: {group.status()}\n{group.journal.tail()}")
    return await group.leader()


async def add(group: Group, name: str, action: str = "add", replaces: str = "") -> None:
    """Start a new node and ask the leader to add it."""
    address = f"127.0.0.1:{name.removeprefix('n')}"
    await group.start(name, listen=address)
    await (await settled(group)).group.change_members(action, name, address, replaces)


async def test_a_node_is_added_learns_is_promoted_and_can_lead(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        client = group.client()
        await client.create_topic("t")
        receipts = [await client.append("t", b"%d" % number) for number in range(20)]
        await add(group, "n4")
        await wait_for(lambda: voters(group.nodes[NodeId("n4")]) == {"n1", "n2", "n3", "n4"}, group.journal.tail)
        await group.caught_up()
        leader = await group.leader()
        assert await leader.group.transfer_leadership("n4") == {"leader": "n4"}
        assert (await group.leader(not_="n1")).me == "n4"
        receipts.append(await client.append("t", b"20"))
        assert [receipt.position for receipt in receipts] == list(range(1, 22))


@pytest.mark.slow
async def test_a_member_votes_for_a_voter_that_its_log_does_not_contain(tmp_path: Path) -> None:
    """Protocol rules 14 and 15: n2 lacks the record that made n4 a voter, and with one of three down n4 needs its vote.

    No other member can vouch for n4. It proves that it knows n2's disk, by a record that n2 does not have.
    """
    async with Group(tmp_path) as group:
        await group.run()
        await settled(group)
        await group.caught_up()
        await group.stop("n2")
        await add(group, "n4", "replace", "n3")
        await wait_for(lambda: voters(group.nodes[NodeId("n4")]) == {"n1", "n2", "n4"}, group.journal.tail)
        await settled(group)
        await group.stop("n3")
        await group.stop("n1")
        await group.start("n2")
        assert (await group.leader()).me == "n4"
        await wait_for(lambda: voters(group.nodes[NodeId("n2")]) == {"n1", "n2", "n4"}, group.journal.tail)


async def test_a_removed_leader_hands_over_and_is_refused_from_then_on(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        leader = await settled(group)
        answer = await leader.group.change_members("remove", leader.me, "", "")
        assert answer["membership"]["voters"].keys() == {"n2", "n3"}  # type: ignore[index]
        successor = await group.leader(not_=leader.me)
        assert voters(successor) == {"n2", "n3"}
        assert leader.replica is not None
        await wait_for(
            lambda: leader.replica and leader.replica.raft.core.role is Role.NON_PARTICIPANT, group.journal.tail
        )
        term = successor.replica.raft.core.term  # type: ignore[union-attr]
        await group.stop(leader.me)
        await group.start(leader.me)
        await asyncio.sleep(1.0)  # Let it campaign many times.
        assert (await group.leader()).replica.raft.core.term == term  # type: ignore[union-attr]
        assert "no member of this group" in " ".join(group.nodes[leader.me].status["refused_by"].values())  # type: ignore[attr-defined]


async def test_a_member_is_replaced_by_another_in_one_change(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        await group.stop("n3")
        await add(group, "n4", "replace", "n3")
        await wait_for(lambda: voters(group.nodes[NodeId("n4")]) == {"n1", "n2", "n4"}, group.journal.tail)
        await group.stop("n2")
        await group.client("n1").create_topic("t")


async def test_a_voter_that_lost_its_disk_comes_back_under_another_id_and_takes_its_own_place(tmp_path: Path) -> None:
    """Rule 18: it never votes under its old id, and the group keeps the votes and acknowledgements of that id."""
    async with Group(tmp_path) as group:
        await group.run()
        client = group.client()
        await client.create_topic("t")
        for number in range(30):
            await client.append("t", b"%d" % number)
        await group.stop("n2")
        shutil.rmtree(tmp_path / "n2")
        await group.start("n2")
        node = group.nodes[NodeId("n2")]
        await wait_for(lambda: is_reborn_voter(node), lambda: f"{node.status}\n{group.journal.tail(80)}")
        assert voters(await group.leader()) == {"n1", "n3", node.me}
        assert node.lifecycle is Lifecycle.RUNNING
        await group.caught_up()
        # The reborn member counts as a voter: without n3, it and n1 are the majority. It keeps its id in a restart.
        await group.stop("n3")
        await client.append("t", b"30")
        await group.stop("n2")
        await group.run("n2")
        assert group.nodes[NodeId("n2")].me == node.me
        assert [record.value async for record in client.read("t", 31)] == [b"30"]


async def test_a_member_with_a_lost_disk_rejoins_although_all_members_in_its_settings_are_gone(tmp_path: Path) -> None:
    """It then asks the members that try to connect to its address, because their HELLO contains their own address."""
    async with Group(tmp_path) as group:
        await group.run()
        await add(group, "n4", "replace", "n1")
        await wait_for(lambda: voters(group.nodes[NodeId("n4")]) == {"n2", "n3", "n4"}, group.journal.tail)
        await group.stop("n1")
        await add(group, "n5", "replace", "n3")
        await wait_for(lambda: voters(group.nodes[NodeId("n5")]) == {"n2", "n4", "n5"}, group.journal.tail)
        await group.stop("n3")
        await settled(group)
        await group.stop("n2")
        shutil.rmtree(tmp_path / "n2")
        await group.start("n2")
        node = group.nodes[NodeId("n2")]
        await wait_for(lambda: is_reborn_voter(node), lambda: f"{node.status}\n{group.journal.tail(80)}")
        assert voters(await group.leader()) == {node.me, "n4", "n5"}


async def test_a_second_loss_is_joined_anew_too(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        names = set()
        for _ in range(2):
            await group.stop("n2")
            shutil.rmtree(tmp_path / "n2")
            await group.start("n2")
            node = group.nodes[NodeId("n2")]
            await wait_for(lambda node=node: is_reborn_voter(node), lambda: group.journal.tail(80))  # type: ignore[misc]
            names.add(node.me)
        assert len(names) == 2
        assert len(voters(await group.leader())) == 3


async def test_a_learner_that_lost_its_disk_learns_on_under_another_id(tmp_path: Path) -> None:
    """For an id with two disks it would be unclear which of them acknowledged a record."""
    async with Group(tmp_path) as group:
        await group.run()
        await group.client().create_topic("t")
        await add(group, "n4", "learn")
        await group.caught_up()
        await group.stop("n4")
        shutil.rmtree(tmp_path / "n4")
        await group.start("n4", listen="127.0.0.1:4")
        leader = await group.leader()

        def learners() -> list[NodeId]:
            assert leader.replica is not None
            return list(leader.replica.raft.core.membership.learners)

        await wait_for(lambda: learners()[:1] != ["n4"] and len(learners()) == 1, lambda: group.journal.tail(80))
        assert learners() == [group.nodes[NodeId("n4")].me]
        await group.caught_up()


async def test_a_new_node_with_outdated_settings_fetches_the_snapshot_of_the_current_leader(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        client = group.client()
        await client.create_topic("t")
        for number in range(10):
            await client.append("t", b"%d" % number)
        leader = await group.leader()
        assert leader.replica is not None
        taken = leader.group.list_snapshots() or [await leader.group.create_snapshot()]
        end = Index(taken[0]["index"] + 1)  # type: ignore[operator]
        leader.replica.raft.trimmed(end, (end, Term(taken[0]["term"])))  # type: ignore[arg-type]
        await group.start("n4", listen="127.0.0.1:4", members={NodeId("n8"): "127.0.0.1:8"})
        await (await settled(group)).group.change_members("add", "n4", "127.0.0.1:4", "")
        node = group.nodes[NodeId("n4")]
        await wait_for(lambda: voters(node) == {"n1", "n2", "n3", "n4"}, lambda: group.journal.tail(60))
        assert group.journal.of("= snapshot installed", node="n4")


async def test_a_clean_stop_of_the_leader_costs_no_timeout(tmp_path: Path) -> None:
    """It transfers leadership first, so the others do not wait for an election timeout."""
    async with Group(tmp_path) as group:
        await group.run()
        leader = await group.leader()
        await group.stop(leader.me)
        handed = group.journal.of("= state", node=leader.me, role="follower")
        assert handed, "it stepped down before it stopped"
        assert (await group.leader()).me != leader.me


async def test_an_impossible_change_is_refused_with_a_remedy(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        leader = await settled(group)
        other = next(node for node in group.nodes.values() if node is not leader)
        with pytest.raises(NotLeaderError):
            await other.group.change_members("remove", "n3", "", "")
        with pytest.raises(RequestError, match="n9 is no member"):
            await leader.group.change_members("remove", "n9", "", "")
        with pytest.raises(RequestError, match="unknown change 'promote'"):
            await leader.group.change_members("promote", "n9", "a:1", "")
        with pytest.raises(RequestError, match="a change 'add' of node 'n9' at ''"):
            await leader.group.change_members("add", "n9", "", "")
        with pytest.raises(RequestError, match="cannot take the leadership over"):
            await leader.group.transfer_leadership("n9")
        assert leader.replica is not None
        core = leader.replica.raft.core
        await group.stop(other.me)
        patience = core.options.election_timeout_ticks
        await wait_for(
            lambda: core.leader != leader.me or core.leading.progress[other.me].ticks_since_response > patience,
            group.journal.tail,
        )
        with pytest.raises(UnavailableError):
            await leader.group.transfer_leadership(other.me)


async def test_a_member_that_never_met_a_disk_does_not_trust_a_new_one_under_the_same_id(tmp_path: Path) -> None:
    """n1 and n2 commit a record. Then n1 is stopped and n2 is wiped; n3 has met neither of n2's disks.

    If n2 and n3 elected a leader, the record would be lost. They wait for n1, which has it, and then continue.
    """
    async with Group(tmp_path) as group:
        group.board.cut("n2", group.members[NodeId("n3")])
        group.board.cut("n3", group.members[NodeId("n2")])
        await group.run()
        client = group.client()
        await client.create_topic("t")
        group.isolate("n3")
        await client.append("t", b"kept")
        await group.stop("n1")
        await group.stop("n2")
        shutil.rmtree(tmp_path / "n2")
        group.heal()
        await group.start("n2")
        await asyncio.sleep(1.5)  # This is many election timeouts.
        assert not any(node.replica and node.replica.raft.core.role is Role.LEADER for node in group.nodes.values())
        await group.start("n1")
        node = group.nodes[NodeId("n2")]
        await wait_for(lambda: is_reborn_voter(node), lambda: f"{node.status}\n{group.journal.tail(80)}")
        assert [record.value async for record in client.read("t")] == [b"kept"]


async def test_a_reborn_node_is_added_by_a_leader_that_its_settings_do_not_name(tmp_path: Path) -> None:
    """It asks the members in its settings; one that does not lead forwards the request to the leader."""
    async with Group(tmp_path) as group:
        await group.run()
        await add(group, "n4")
        await wait_for(lambda: voters(group.nodes[NodeId("n4")]) == {"n1", "n2", "n3", "n4"}, group.journal.tail)
        await group.caught_up()
        await (await group.leader()).group.transfer_leadership("n4")
        assert (await group.leader(not_="n1")).me == "n4"
        await group.stop("n2")
        shutil.rmtree(tmp_path / "n2")
        members = {name: address for name, address in group.members.items() if name != "n4"}
        await group.start("n2", members=members)
        node = group.nodes[NodeId("n2")]
        await wait_for(lambda: is_reborn_voter(node), lambda: f"{node.status}\n{group.journal.tail(80)}")
        assert (await group.leader()).me == "n4"


async def test_a_control_file_that_rots_before_anything_was_written_is_a_lost_disk(tmp_path: Path) -> None:
    """A vote may have been given before.

    So the node does not start under its old id, but it does not refuse to start, either.
    """
    async with Group(tmp_path) as group:
        await group.run("n1", "n2")
        await group.start("n3")
        await group.nodes[NodeId("n3")].wait_running(10)
        await group.stop("n3")
        shutil.rmtree(tmp_path / "n3" / "wal")
        for name in ("control-a", "control-b"):
            path = tmp_path / "n3" / name
            path.write_bytes(bytes(len(path.read_bytes())))
        await group.start("n3")
        node = group.nodes[NodeId("n3")]
        await wait_for(lambda: node.me.startswith("n3~") and node.me in voters(node), lambda: group.journal.tail(80))
