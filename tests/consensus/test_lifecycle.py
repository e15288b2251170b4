"""CONFIGURING and RUNNING: no client writes before the membership record of the present term is committed."""

from dataclasses import replace

import pytest

from tests.consensus.group import OPTIONS, Disk, Group
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import AppendResponse
from viewstamp.consensus.roles import Lifecycle, Role
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import NotLeaderError, UnavailableError
from viewstamp.ids import Index, NodeId, Position, Term
from viewstamp.wire.batch import Batch, Kind, build_batch


def test_a_new_leader_refuses_clients_until_its_membership_record_is_committed() -> None:
    """A refused client may retry, because nothing was written.

    This holds for new groups, restarted groups and every new leader.

    The record is appended at the election and committed two deliveries later; only the commit counts.
    """
    group = Group(3)
    for me in ("n1", "n2", "n1"):
        group.let_vote_for(me)
        group.campaign(me)
        core, refusals = group[me].core, 0
        while core.role is not Role.LEADER or not group.is_running(me):
            group.deliver()
            if core.role is not Role.LEADER:
                continue
            record = group[me].disk.batches[-1]
            assert (record.kind, record.term) == (Kind.MEMBERSHIP, core.term), "it is appended at once"
            assert group.is_running(me) == (core.log.commit_end >= record.end), "and RUNNING comes with its commit"
            if not group.is_running(me):
                with pytest.raises(UnavailableError, match="is not committed yet"):
                    group.propose(me, b"too early")
                refusals += 1
        assert refusals >= 2, "at least during the election and the announcement"
        group.propose(me, b"in time")
        group.run(3)
    assert group.values("n3") == [b"in time"] * 3


def test_running_needs_the_record_committed_and_not_only_replicated() -> None:
    group = Group(3)
    group.elect("n1", "n1", "n2")
    assert group.is_running("n1")
    group = Group(3)
    group.campaign("n1")
    while not group.matching(AppendResponse):
        group.deliver()
    assert group["n2"].disk.end == 2
    assert group["n1"].core.lifecycle is Lifecycle.CONFIGURING
    group.deliver(AppendResponse)
    assert group.is_running("n1")
    assert not group.is_running("n2"), "it has not received the commit yet"
    group.run(2)
    assert group.is_running("n2")


def test_a_rebooted_group_configures_itself_anew() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    for me in list(group.members):
        group.crash(me)
    for me in list(group.members):
        group.start(me)
    assert {member.core.lifecycle for member in group.up()} == {Lifecycle.CONFIGURING}
    for _ in range(100):
        group.run(1)
        if all(group.is_running(me) for me in group.members):
            break
    assert {member.core.lifecycle for member in group.up()} == {Lifecycle.RUNNING}


def test_a_follower_that_restarts_is_configuring_until_the_leader_has_announced_to_it() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    group.restart("n2")
    assert group["n2"].core.lifecycle is Lifecycle.CONFIGURING
    group.run(4)
    assert group.is_running("n2")


def test_a_group_whose_majority_is_absent_stays_absent() -> None:
    """Two of three are still bootstrapping, so they answer nothing."""
    group = Group(3)
    group.crash("n2")
    group.crash("n3")
    group.run(100)
    assert (group.leaders(), group["n1"].core.term) == ([], 0)
    group.start("n2")
    group.run(100)
    assert len(group.leaders()) == 1


def test_the_hinted_leader_leads_a_new_group_at_once() -> None:
    group = Group(3)
    group.restart("n2", options=replace(OPTIONS, campaign_at_once=True))
    group.run(3)
    assert group.leaders() == ["n2"]
    assert all(group.is_running(me) for me in group.members)


def test_a_hinted_leader_whose_peers_come_later_asks_again_soon() -> None:
    group = Group(3)
    group.crash("n1")
    group.crash("n3")
    group.restart("n2", options=replace(OPTIONS, campaign_at_once=True))
    group.run(7)
    group.start("n1")
    group.run(4)
    assert group.leaders() == ["n2"]


def test_when_the_hinted_leader_is_dead_the_others_elect_one_of_themselves() -> None:
    """The new leader also replicates a membership record of its own term (checklist B2, line 13)."""
    group = Group(3)
    group.crash("n1")
    for _ in range(100):
        group.run(1)
        if group.leaders() and group.is_running(group.leaders()[0]):
            break
    [leader] = group.leaders()
    assert leader in ("n2", "n3")
    newest = group[leader].core.memberships[-1]
    assert newest.term == group[leader].core.term
    assert group[leader].disk.batches[-1].kind is Kind.MEMBERSHIP


def test_a_hinted_leader_that_restarts_does_not_disturb_a_running_group() -> None:
    group = Group(3)
    group.elect("n2")
    group.run(3)
    term = group["n2"].core.term
    group.restart("n1", options=replace(OPTIONS, campaign_at_once=True))
    group.run(20)
    assert (group.leaders(), group["n2"].core.term) == (["n2"], term)


def test_the_membership_of_the_settings_counts_only_where_the_log_holds_none() -> None:
    """Checklist B2, line 13: a change of the settings is not a change of the membership."""
    group = Group(3)
    group.elect("n1")
    group.run(3)
    other = Membership({NodeId("n1"): "elsewhere"}, {}, 0)
    group.crash("n1")
    group.start("n1", hint=other)
    assert group["n1"].core.membership == group.hint
    fresh = Group(3)
    fresh.crash("n1")
    fresh.start("n1", hint=other)
    assert fresh["n1"].core.membership == other


def membership_record(term: int, index: int, voters: str, *, previous_term: int) -> Batch:
    membership = Membership({NodeId(voter): f"at-{voter}" for voter in voters.split()}, {}, index)
    batch = build_batch([membership.encode()], kind=Kind.MEMBERSHIP)
    batch.stamp(
        term=Term(term),
        first_index=Index(index),
        previous_term=Term(previous_term),
        log_time=0,
        first_position=Position(0),
    )
    return batch


def test_a_membership_is_in_force_from_the_moment_it_is_in_the_log_and_gone_when_it_is_cut() -> None:
    """Rule 15 holds on every member, also while the membership is not committed."""
    first = membership_record(1, 1, "n1 n2 n3", previous_term=0)
    second = membership_record(1, 2, "n3", previous_term=1)
    history = TermHistory([(0, 1), (1, 1)])
    group = Group(
        3,
        disks={
            NodeId(me): Disk(term=Term(1), history=history, batches=batches)
            for me, batches in (("n1", [first]), ("n2", [first]), ("n3", [first, second]))
        },
    )
    assert list(group["n3"].core.membership.voters) == ["n3"]
    assert len(group["n1"].core.membership.voters) == 3
    group.elect("n1", "n1", "n2")
    group.run(8)
    assert len(group["n3"].core.membership.voters) == 3
    assert [entry.term for entry in group["n3"].core.memberships] == [group["n1"].core.term]


def test_a_member_that_does_not_lead_names_the_leader() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    with pytest.raises(NotLeaderError) as caught:
        group.propose("n2", b"x")
    assert (caught.value.leader, caught.value.address) == ("n1", "at-n1")
    fresh = Group(3)
    with pytest.raises(NotLeaderError) as caught:
        fresh.propose("n2", b"x")
    assert caught.value.leader is None


def test_a_single_member_leads_itself() -> None:
    group = Group(1)
    group.run(25)
    assert group["n1"].core.role is Role.LEADER
    assert group.is_running("n1")
    group.propose("n1", b"alone")
    assert group.values("n1") == [b"alone"]
