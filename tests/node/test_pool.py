"""Admission of peers by id and disk, which belong together permanently."""

import asyncio
import random
from typing import Any

import pytest

from tests.consensus.group import Group as Cores
from tests.consensus.test_changes import N1, N2, N4, knowing, started
from tests.node.group import Journal
from tests.node.switchboard import Switchboard
from viewstamp.actors import System
from viewstamp.consensus.membership import AddMember, Membership, MembershipEntry, RemoveMember
from viewstamp.errors import CorruptionError, LostDiskError, WrongClusterError
from viewstamp.ids import NodeId
from viewstamp.node.beats import Beats
from viewstamp.node.inbox import Inbox, Item, RememberPeer
from viewstamp.node.peers.identity import joining_change
from viewstamp.node.peers.pool import PeerPool
from viewstamp.wire.handshake import Hello
from viewstamp.wire.identity_proof import fingerprint


def hello(peer: NodeId, incarnation: str) -> dict[str, Any]:
    return {"cluster": "c", "node": peer, "incarnation": incarnation, "address": f"at-{peer}"}


def meet(pool: PeerPool, peer: NodeId, said: dict[str, Any]) -> bool:
    return pool.meet(peer, Hello(**{name: value for name, value in said.items() if name != "version"}))


class Remembering(Inbox):
    """Stores the pool's records in a dict, immediately."""

    def __init__(self, known: dict[str, str]) -> None:
        super().__init__()
        self.known = known

    def put(self, item: Item) -> None:
        if isinstance(item, RememberPeer):
            self.known[item.peer] = item.incarnation


class IgnoringNode:
    """A node that ignores all reports."""

    def address_of(self, member: NodeId) -> str | None:
        return None

    def on_change(self) -> None:
        raise AssertionError

    def on_superseded(self, reason: str) -> None:
        raise AssertionError

    def on_lost_disk(self, error: LostDiskError) -> None:
        raise AssertionError

    def on_rot(self, error: CorruptionError) -> None:
        raise AssertionError


def at(cores: Cores, me: str, known: dict[str, str]) -> PeerPool:
    """Return the pool of a member; it stores its records in ``known``."""
    raft = cores[me].raft
    assert raft is not None
    return PeerPool(
        raft,
        System(me),
        greeting=dict,
        beats=Beats(1.0, list),
        inbox=Remembering(known),
        group=IgnoringNode(),
        hello={"cluster": "c", "node": me, "incarnation": f"disk-of-{me}", "address": me},
        network=Switchboard().network(me),
        entropy=random.Random(1),
        unsent_bytes_max=1000,
        log=Journal().logger(),
    )


async def test_a_learner_with_another_disk_is_refused_as_it_may_be_a_voter_elsewhere_already() -> None:
    """n2 lacks the promotion. The connection of the new disk would outlive it and vote in the name of the old disk."""
    cores = started()
    cores.add("n4")
    cores.change("n1", AddMember(N4, "at-n4", becomes_voter=False))
    cores.run(5)
    known: dict[str, str] = {}
    pool = at(cores, "n2", known)
    meet(pool, N4, hello(N4, "a"))
    meet(pool, N4, hello(N4, "a"))
    with pytest.raises(LostDiskError, match=f"fingerprint {fingerprint('b')}, known {fingerprint('a')}"):
        meet(pool, N4, hello(N4, "b"))
    assert known == {N4: "a"}


async def test_of_two_disks_that_come_at_once_the_second_is_refused() -> None:
    """Both connect before the disk of the first is recorded on this member's own disk."""
    pool = at(started(), "n2", {})
    pool._inbox = Inbox()  # The replica has not had a turn yet.
    meet(pool, N1, hello(N1, "a"))
    with pytest.raises(LostDiskError, match=f"fingerprint {fingerprint('b')}, known {fingerprint('a')}"):
        meet(pool, N1, hello(N1, "b"))


async def test_the_disk_of_a_peer_that_connected_before_it_was_a_member_is_recorded() -> None:
    """Otherwise it could come back with another disk unnoticed, because its first connection is not made again."""
    cores = Cores(3)
    cores.elect("n1")
    known: dict[str, str] = {}
    pool = at(cores, "n2", known)
    cores["n2"].core.ticks_since_leader = 99  # It sees no leader, so it accepts a stranger.
    meet(pool, N4, hello(N4, "a"))
    assert pool.address(N4) == "at-n4"
    assert known == {}
    cores.run(5)
    cores.add("n4")
    cores.change("n1", AddMember(N4, "at-n4"))
    cores.run(10)
    pool.connect_all()
    assert known == {N4: "a"}
    await pool._system.stop()


def named() -> Cores:
    """Return a group led by n1 in which each member's log names all three disks."""
    cores = started()
    for me in ("n1", "n2", "n3"):
        knowing(cores, me, "n1", "n2", "n3")
    cores.run(10)
    return cores


def introduction(cores: Cores, incarnation: str) -> dict[str, Any]:
    """Return the HELLO that n4 sends to n2; n4's log names all disks."""
    sender = at(cores, "n1", {})
    sender._hello |= {"node": N4, "incarnation": incarnation}
    return sender._hello_to(N2)


async def test_a_peer_that_proves_that_it_knows_this_disk_is_taken_for_a_member() -> None:
    """A record that this member lacks makes it a member, and it may need this one's vote (protocol rules 14 and 15)."""
    cores = named()
    pool = at(cores, "n2", {})
    cores["n2"].core.ticks_since_leader = 99  # It sees no leader: one may lead by such a record.
    assert meet(pool, N4, introduction(cores, "a"))
    pool.check_source(N4, "a")
    assert pool.address(N4) == "n1"


async def test_an_unknown_peer_without_a_proof_is_not_taken_for_a_member() -> None:
    cores = named()
    pool = at(cores, "n2", {})
    cores["n2"].core.ticks_since_leader = 99
    stolen = {**introduction(cores, "a"), "incarnation": "b"}
    for refused in (hello(N4, "a"), {**hello(N4, "a"), "proof": bytes(16)}, stolen):
        with pytest.raises(WrongClusterError, match="no member"):
            meet(pool, N4, refused)
        with pytest.raises(WrongClusterError, match="no member"):
            pool.check_source(N4, "a")
    reborn = NodeId("n3~x")
    assert not meet(pool, reborn, hello(reborn, "a")), "it may ask to join"
    assert pool.address(reborn) is None
    with pytest.raises(WrongClusterError, match="no member"):
        pool.check_source(reborn, "a")


async def test_the_trusted_set_follows_the_membership() -> None:
    """A node checks only ``trusted`` for each message, so a removed member must not stay in it."""
    cores = named()
    core = cores["n2"].core
    pool = at(cores, "n2", {})
    pool.connect_all()
    assert pool.trusted == {N1: "disk-of-n1", N2: "disk-of-n2", NodeId("n3"): "disk-of-n3"}
    entry = core.memberships[-1]
    membership = Membership({N2: "at-n2"}, incarnations={N2: "disk-of-n2"})
    core.memberships = [MembershipEntry(entry.index, entry.term, membership)]
    pool.connect_all()
    assert pool.trusted == {N2: "disk-of-n2"}
    await pool._system.stop()


async def test_a_leader_is_followed_until_its_term_ends_also_when_it_has_removed_itself() -> None:
    cores = named()
    core = cores["n2"].core
    pool = at(cores, "n2", {})
    entry = core.memberships[-1]
    membership = Membership({N2: "at-n2"}, incarnations={N2: "disk-of-n2"})
    core.memberships = [MembershipEntry(entry.index, entry.term, membership)]
    pool.check_source(N1, "disk-of-n1")
    core.leader = None
    with pytest.raises(WrongClusterError, match="no member"):
        pool.check_source(N1, "disk-of-n1")


@pytest.mark.parametrize("member", ["n2~b", "n3~b", "n2"])
def test_a_reborn_node_takes_the_place_of_its_latest_id(member: str) -> None:
    """The new node replaces a voter only when it has caught up, but a learner at once; it gets the learner's role."""
    membership = Membership(
        {N1: "1", N2: "2"},
        {NodeId("n2~a"): "2", NodeId("n3"): "3"},
        joining={NodeId("n2~a"): N2},
    )
    change = joining_change(membership, NodeId(member), "new", is_heard=lambda _: False)
    if member == "n2":
        assert change is None
        return
    assert change is not None
    changed = membership.changed(change)
    assert changed.voters == membership.voters
    assert not changed.is_joint
    if member == "n2~b":
        assert changed.learners == {"n2~b": "new", "n3": "3"}
        assert changed.joining == {"n2~b": N2}
    else:
        assert changed.learners == {"n2~a": "2", "n3~b": "new"}
        assert changed.joining == membership.joining


def test_an_unknown_reborn_node_is_added_by_an_operator_only() -> None:
    assert joining_change(Membership({N1: "1"}), NodeId("n9~b"), "new", is_heard=lambda _: False) is None


@pytest.mark.parametrize("heard", [N2, "n2~a"])
def test_a_member_that_still_answers_keeps_its_place(heard: str) -> None:
    membership = Membership({N1: "1", N2: "2"}, {NodeId("n2~a"): "2"}, joining={NodeId("n2~a"): N2})
    assert joining_change(membership, NodeId("n2~b"), "new", is_heard=lambda member: member == heard) is None


async def test_a_member_that_leaves_and_is_back_at_once_is_connected_anew() -> None:
    """A new member that fetches the log sees years of changes in a moment, while the old link has only just ended."""
    cores = started()
    cores.add("n4")
    cores.change("n1", AddMember(N4, "at-n4", becomes_voter=False))
    cores.run(5)
    pool = at(cores, "n2", {})
    pool.connect_all()
    link = pool._links[N4]
    cores.change("n1", RemoveMember(N4))
    cores.run(5)
    async with asyncio.timeout(20):
        while not link.is_over:  # noqa: ASYNC110 - no turn later than the one in which it ends
            await asyncio.sleep(0)
    cores.change("n1", AddMember(N4, "at-n4", becomes_voter=False))
    cores.run(5)
    pool.connect_all()
    assert pool._links[N4] is not link
    await pool._system.stop()
