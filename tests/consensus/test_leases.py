"""Leases: reads without a round, the promises of members, and everything that ends a lease."""

from dataclasses import replace

from tests.consensus.group import OPTIONS, Group, age
from viewstamp.consensus.lease import CLOCK_ERROR_MAX
from viewstamp.consensus.membership import AddMember
from viewstamp.consensus.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    PreVoteResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.roles import Role
from viewstamp.ids import NodeId, Term

LEASE_US = 1_000_000
LEASES = replace(OPTIONS, lease_us=LEASE_US)
LENGTH_US = int(LEASE_US * (1 - CLOCK_ERROR_MAX) / (1 + CLOCK_ERROR_MAX))
"""The length of a lease by the leader's own clock."""


def show(group: Group, uptime_us: int, *members: str) -> None:
    """Let the clocks of these members show a time, or those of all members."""
    for member in group.up():
        if not members or member.me in members:
            assert member.raft is not None
            member.raft.begin_turn(uptime_us)


def running(count: int = 3) -> Group:
    """Return a group whose leader n1 has just got a lease; the clocks show 0."""
    group = Group(count, options=LEASES)
    show(group, 0)
    group.elect("n1")
    group.run(3)
    group.propose("n1", b"a")
    group.run(3)
    return group


def extend(group: Group) -> None:
    """Let the leader n1 send a heartbeat, and deliver it and the answers."""
    group.drop()
    group.tick("n1", 2 * LEASES.heartbeat_ticks)
    group.deliver(HeartbeatRequest)
    group.deliver(HeartbeatResponse)
    group.drop()


def test_a_leader_with_a_lease_answers_a_read_without_a_round() -> None:
    group = running()
    extend(group)
    show(group, LENGTH_US - 1)
    token = group.read("n1")
    assert group["n1"].reads[token] == 2
    assert group.messages == []


def test_a_lease_counts_from_the_beginning_of_the_round_and_ends() -> None:
    group = running()
    show(group, 100)
    group.drop()
    group.tick("n1", 2 * LEASES.heartbeat_ticks)
    show(group, 500_000)
    group.deliver(HeartbeatRequest)
    group.deliver(HeartbeatResponse)
    group.drop()
    show(group, 100 + LENGTH_US)
    token = group.read("n1")
    assert token not in group["n1"].reads
    assert len(group.matching(HeartbeatRequest)) == 2
    group.settle()
    assert group["n1"].reads[token] == 2


def test_without_answers_of_a_quorum_there_is_no_lease() -> None:
    group = running(5)
    group["n1"].core.leading.lease_until_us = 0
    group.drop()
    group.tick("n1", 2 * LEASES.heartbeat_ticks)
    group.deliver(HeartbeatRequest, target="n2")
    group.deliver(HeartbeatResponse)
    group.drop()
    assert group.read("n1") not in group["n1"].reads


def test_members_that_promise_nothing_give_no_lease() -> None:
    """They run with other settings: their promises would be shorter than the leader's lease."""
    group = Group(3, options=LEASES)
    for name in ("n2", "n3"):
        group.restart(name, options=replace(LEASES, lease_us=LEASE_US // 2))
    show(group, 0)
    group.elect("n1")
    group.run(3)
    extend(group)
    assert group.read("n1") not in group["n1"].reads


def test_a_member_that_has_promised_grants_no_vote_before_the_promise_ends() -> None:
    group = running()
    extend(group)
    for name in ("n2", "n3"):
        age(group[name].core, 1000)
    show(group, LEASE_US - 1)
    group.tick("n2")
    assert group["n2"].core.role is Role.FOLLOWER
    # A candidate without a promise.
    request = VoteRequest(
        source=NodeId("n2"), target=NodeId("n3"), term=Term(9), last_term=Term(9), end=group["n3"].core.log.end
    )
    group.step("n3", request)
    assert group["n3"].core.term < 9
    show(group, LEASE_US)
    group.step("n3", request)
    assert [message.granted for message in group.matching(VoteResponse) if isinstance(message, VoteResponse)] == [True]


def test_a_promise_holds_in_a_term_that_began_without_a_vote() -> None:
    group = running()
    extend(group)
    core = group["n3"].core
    group.step("n3", PreVoteResponse(source=NodeId("n2"), target=NodeId("n3"), term=Term(9), granted=False))
    assert (core.term, core.vote) == (9, "")
    request = VoteRequest(source=NodeId("n2"), target=NodeId("n3"), term=Term(9), last_term=Term(9), end=core.log.end)
    group.step("n3", request)
    assert core.vote == ""


def test_members_wait_for_the_end_of_their_promise_although_the_leader_seems_dead() -> None:
    group = running()
    extend(group)
    group.crash("n1")
    group.lose("n2", "n1")
    group.lose("n3", "n1")
    ticks = LEASES.election_timeout_ticks
    for tick in range(1, ticks):
        show(group, tick * LEASE_US // ticks)
        group.tick("n2")
        group.tick("n3")
        group.deliver()
        assert {group[name].core.role for name in ("n2", "n3")} == {Role.FOLLOWER}
    for tick in range(ticks, 2 * ticks):
        show(group, tick * LEASE_US // ticks)
        group.tick("n2")
        group.tick("n3")
        group.settle()
    assert Role.LEADER in {group[name].core.role for name in ("n2", "n3")}


def test_a_member_that_starts_again_keeps_the_promise_of_its_earlier_process() -> None:
    group = running()
    extend(group)
    show(group, 10)
    group.restart("n3", options=OPTIONS)  # Without leases now.
    assert group["n3"].core.held_back_us == 0, "the disk of this model holds the promise of the options"
    group.restart("n3", options=LEASES)
    core = group["n3"].core
    request = VoteRequest(source=NodeId("n2"), target=NodeId("n3"), term=Term(9), last_term=Term(9), end=core.log.end)
    group.step("n3", request)
    assert core.term < 9, "the clock was not read yet"
    show(group, 10)
    show(group, 9 + LEASE_US)
    group.step("n3", request)
    assert core.term < 9
    show(group, 10 + LEASE_US)
    group.step("n3", request)
    assert core.vote == "n2"


def test_a_leader_that_hands_over_uses_no_lease_in_its_term_any_more() -> None:
    """The other member is elected in spite of all promises, also by a message that was on its way for long."""
    group = running()
    extend(group)
    group.transfer("n1", "n2")
    assert group.matching(TimeoutNow)
    assert group.read("n1") not in group["n1"].reads
    late = group.drop(TimeoutNow)
    show(group, 1)
    extend(group)
    core = group["n1"].core
    core.leading.transferee = None
    assert group.read("n1") not in group["n1"].reads
    group.drop()
    group.step("n2", *late)
    group.settle()
    assert group["n2"].core.role is Role.LEADER


def test_a_change_of_the_membership_ends_the_lease() -> None:
    group = running()
    extend(group)
    group.add("n4")
    show(group, 1)
    group.change("n1", AddMember(NodeId("n4"), "at-n4", becomes_voter=False))
    assert group.read("n1") not in group["n1"].reads
    group.settle()
    extend(group)
    token = group.read("n1")
    assert token in group["n1"].reads


def test_a_clock_that_goes_back_does_not_make_a_lease_longer() -> None:
    group = running()
    extend(group)
    show(group, LENGTH_US)
    show(group, 1)
    assert group.read("n1") not in group["n1"].reads
