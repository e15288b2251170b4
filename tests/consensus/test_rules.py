"""The twenty rules of the protocol, each with tests that fail without it; this file has those that fit nowhere else.

The model check behind the rules counted the steps in which the absence of each loses data, elects two leaders or stops
a healthy node; ``viewstamp/consensus/__init__.py`` summarises them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.consensus.group import Disk, Group, age, record
from tests.consensus.test_changes import N1, N2, N3, N4, memberships, started
from viewstamp.consensus import standing
from viewstamp.consensus.membership import AddMember, Membership
from viewstamp.consensus.messages import (
    Announcement,
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryRequest,
    HistoryResponse,
    PreVoteRequest,
    PreVoteResponse,
    ReadIndexResponse,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.roles import Role
from viewstamp.consensus.term_history import TermHistory, common_point
from viewstamp.ids import Index, NodeId, Position, Term
from viewstamp.wire.batch import Kind, build_batch

RULES = {
    1: (
        "consensus/test_term_history.py::test_only_terms_that_the_log_has_reached_are_advertised_the_boundary_included",
        "consensus/test_announcement.py::test_a_stored_history_ahead_of_the_log_is_advertised_only_as_far_as_the_log_reaches",
    ),
    2: (
        "consensus/test_election.py::test_the_log_is_synced_before_a_vote",
        "consensus/test_election.py::test_a_vote_is_durable_before_it_is_sent",
        "consensus/test_election.py::test_term_and_vote_are_one_durable_write",
        "consensus/test_election.py::test_a_restarted_leader_never_goes_on_in_its_stored_term",
    ),
    3: ("consensus/test_announcement.py::test_a_winner_extends_its_advertised_history_and_not_the_stored_one",),
    4: (
        "consensus/test_term_history.py::test_the_logs_part_in_the_middle_at_the_earlier_end_of_the_common_term",
        "consensus/test_rules.py::test_rule_4_the_point_is_at_the_highest_term_that_both_know",
    ),
    5: (
        "consensus/test_announcement.py::test_the_three_steps_are_written_in_their_order_term_truncation_history",
        "consensus/test_announcement.py::test_until_truncation_and_history_are_durable_the_member_answers_nothing",
        "consensus/test_announcement.py::test_an_announcement_waits_until_the_log_is_synced",
    ),
    6: (
        "consensus/test_replication.py::test_a_member_that_claims_more_than_its_leader_holds_is_a_broken_peer",
        "consensus/test_replication.py::test_a_doubled_append_is_answered_with_the_end_and_changes_nothing",
        "consensus/test_commit.py::test_after_a_new_announcement_a_member_counts_from_its_new_report",
        "consensus/test_rules.py::test_rule_6_an_announcement_that_was_taken_is_not_taken_again",
        "consensus/test_rules.py::test_rule_6_answers_under_an_older_announcement_do_not_count",
    ),
    7: (
        "consensus/test_commit.py::test_a_long_divergent_log_does_not_count_before_it_was_cut",
        "consensus/test_commit.py::test_a_leader_counts_itself_only_from_its_own_sync",
        "consensus/test_commit.py::test_the_end_in_a_vote_response_is_no_acknowledgement",
    ),
    8: (
        "consensus/test_commit.py::test_the_commit_index_is_the_leaders_as_far_as_the_own_log_reaches",
        "consensus/test_replication.py::test_a_member_takes_no_commit_index_before_the_announcement",
        "consensus/test_rules.py::test_rule_8_nor_from_the_answer_to_a_read",
        "wal/test_recovery.py::test_the_commit_hint_on_disk_is_at_most_the_durable_end_before_the_group",
    ),
    9: (
        "consensus/test_durable.py::test_the_same_record_cut_and_appended_again_is_another_write",
        "consensus/test_durable.py::test_a_completion_that_outlives_a_truncation_acknowledges_nothing",
        "consensus/test_durable.py::test_only_the_completion_of_its_own_writes_ends_the_installation",
    ),
    10: ("consensus/test_election.py::test_a_deposed_leader_keeps_its_tail_until_an_announcement_cuts_it",),
    11: ("consensus/test_rules.py::test_rule_11_a_member_that_follows_the_leader_of_a_term_has_voted_in_it",),
    12: ("client/test_session_model.py::test_answers_to_callers_stay_true_for_ever",),
    13: (
        "consensus/test_announcement.py::test_an_announcement_of_an_older_term_is_ignored_and_answered_with_the_present_one",
        "consensus/test_election.py::test_a_request_of_a_lower_term_is_answered_even_by_a_member_that_withholds_votes",
        "consensus/test_election.py::test_a_pre_vote_changes_nothing_on_either_side",
    ),
    14: (
        "consensus/test_election.py::test_a_non_voter_by_its_own_log_does_not_campaign_but_answers",
        "consensus/test_election.py::test_the_acknowledgements_of_learners_do_not_count",
        "consensus/test_rules.py::test_rule_14_learners_are_no_part_of_a_majority",
    ),
    15: (
        "consensus/test_changes.py::test_one_change_at_a_time",
        "consensus/test_changes.py::test_a_change_is_refused_until_a_record_of_the_term_is_committed",
        "consensus/test_changes.py::test_while_joint_both_majorities_have_to_agree",
        "consensus/test_changes.py::test_a_removed_leader_leads_until_its_removal_is_committed_and_then_hands_over",
        "consensus/test_rules.py::test_rule_15_a_membership_is_gone_the_moment_it_is_cut",
        "consensus/test_rules.py::test_rule_15_while_joint_the_majority_of_the_new_alone_commits_nothing",
        "consensus/test_rules.py::test_rule_15_while_joint_both_majorities_elect_and_all_are_asked",
        "consensus/test_rules.py::test_rule_15_while_joint_both_majorities_confirm_reads_and_keep_a_leader",
    ),
    16: (
        "wal/test_recovery.py::test_the_unreadable_end_of_the_last_group_is_cut",
        "wal/test_recovery.py::test_a_flip_below_a_later_groups_durable_field_is_damage",
    ),
    17: (
        "consensus/test_changes.py::test_a_member_that_has_lost_something_is_recovering_until_it_holds_its_old_pair_again",
        "consensus/test_changes.py::test_a_recovering_member_that_takes_a_heartbeat_confirms_no_read",
        "consensus/test_changes.py::test_nothing_counts_before_the_end_of_recovery_is_on_the_disk",
        "consensus/test_rules.py::test_rule_17_a_recovering_member_answers_no_vote",
    ),
    18: (
        "node/test_lifecycle.py::test_a_wiped_member_is_refused_by_members_that_met_its_old_disk_and_never_votes_under_its_old_id",
        "node/test_pool.py::test_a_learner_with_another_disk_is_refused_as_it_may_be_a_voter_elsewhere_already",
        "node/test_pool.py::test_the_disk_of_a_peer_that_connected_before_it_was_a_member_is_recorded",
    ),
    19: (
        "consensus/test_snapshots.py::test_the_log_is_reset_before_the_history_of_the_snapshot_is_stored",
        "consensus/test_snapshots.py::test_a_death_between_the_file_and_the_reset_is_made_good_at_the_next_start",
        "consensus/test_snapshots.py::test_a_restart_does_not_take_a_member_back_behind_the_term_that_it_has_reached",
        "consensus/test_snapshots.py::test_a_snapshot_waits_until_no_write_is_under_way",
    ),
    20: (
        "consensus/test_replication.py::test_an_append_whose_previous_term_is_wrong_is_refused",
        "node/test_recovery.py::test_a_history_that_contradicts_the_log_is_corruption_and_nothing_is_guessed",
    ),
}
"""Rule → the tests that fail if it is broken."""

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("rule", range(1, 21))
def test_each_rule_has_its_tests(rule: int) -> None:
    for name in RULES[rule]:
        path, _, test = name.partition("::")
        assert re.search(rf"^(async )?def {test}\(", (TESTS / path).read_text(), re.MULTILINE), name


def joint(replaces: NodeId = N3) -> Group:
    """n1 leads n1, n2, n3 and has promoted n4 in the place of one of them; only n1 and n4 have that record so far."""
    group = started()
    group.add("n4")
    group.change("n1", AddMember(N4, "at-n4", replaces=replaces))
    while not memberships(group, "n1").is_joint:
        group.settle()
        group.tick("n1")
    group.settle("n1", "n4")
    assert memberships(group, "n4") == memberships(group, "n1")
    assert not memberships(group, "n2").is_joint
    return group


def test_rule_4_the_point_is_at_the_highest_term_that_both_know() -> None:
    leader, member = TermHistory([(0, 1), (1, 1), (2, 3), (3, 5)]), TermHistory([(0, 1), (1, 1), (2, 3)])
    assert common_point(leader, Index(7), member, Index(5)) == 5


def test_rule_6_an_announcement_that_was_taken_is_not_taken_again() -> None:
    """A member that installed it again would send no answers meanwhile, and drop the messages sent to it."""
    group = Group(3)
    group.campaign("n1")
    while not group.matching(Announcement, target="n2"):
        group.deliver()
    [announcement] = group.deliver(Announcement, target="n2")
    before = list(group["n2"].disk.log)
    group.messages.clear()
    group.step("n2", announcement)
    assert group["n2"].disk.log == before
    assert group.messages == []


def test_rule_6_answers_under_an_older_announcement_do_not_count() -> None:
    group = started()
    group.restart("n2")
    group.run(3)
    group.crash("n3")
    group.propose("n1")
    group.drop(AppendRequest)
    core = group["n1"].core
    committed, number = core.log.commit_end, core.leading.progress[N2].number
    old = AppendResponse(
        source=N2,
        target=N1,
        term=core.term,
        number=number - 1,
        end=core.log.end,
        received_end=core.log.end,
        rejected=False,
    )
    group.step("n1", old)
    assert core.log.commit_end == committed


def test_rule_8_nor_from_the_answer_to_a_read() -> None:
    """The log of a member that has not accepted the announcement may contain other records."""
    disk = Disk(term=Term(1), history=TermHistory([(0, 1), (1, 1)]), batches=[record(1, 1), record(1, 2)])
    group = Group(3, disks={N3: disk})
    group.step("n3", HistoryRequest(source=N1, target=N3, term=Term(2), number=0))
    group.step("n3", ReadIndexResponse(source=N1, target=N3, term=Term(2), token=1, index=Index(2)))
    assert group["n3"].core.log.commit_end == 1


def test_rule_11_a_member_that_follows_the_leader_of_a_term_has_voted_in_it() -> None:
    """Safety does not need this rule; it makes "one leader per term" visible on a single disk."""
    disk = Disk(term=Term(1), history=TermHistory([(0, 1), (1, 1)]), batches=[record(1, 1)])
    group = Group(3, disks={N3: disk})
    group.step("n3", VoteRequest(source=N2, target=N3, term=Term(2), last_term=Term(0), end=Index(1)))
    assert (group["n3"].disk.term, group["n3"].disk.vote) == (2, "")
    group.step("n3", HistoryRequest(source=N1, target=N3, term=Term(2), number=0))
    assert (group["n3"].disk.term, group["n3"].disk.vote) == (2, "n1")


def test_rule_14_learners_are_no_part_of_a_majority() -> None:
    membership = Membership({N1: "1", N2: "2", N3: "3"}, {N4: "4", NodeId("n5"): "5"})
    assert not standing.is_majority(membership, [N1, N4, NodeId("n5")])
    assert standing.is_majority(membership, [N1, N2])


def test_rule_15_a_membership_is_gone_the_moment_it_is_cut() -> None:
    """It is gone at once, not at the next record.

    Until then the member would campaign, or not, by a record that is gone.
    """
    first = build_batch([Membership({N1: "1", N2: "2", N3: "3"}).encode()], kind=Kind.MEMBERSHIP)
    first.stamp(term=Term(1), first_index=Index(1), previous_term=Term(0), log_time=0, first_position=Position(0))
    second = build_batch([Membership({N3: "3"}).encode()], kind=Kind.MEMBERSHIP)
    second.stamp(term=Term(1), first_index=Index(2), previous_term=Term(1), log_time=0, first_position=Position(0))
    history = TermHistory([(0, 1), (1, 1)])
    group = Group(
        3,
        disks={
            me: Disk(term=Term(1), history=history, batches=batches)
            for me, batches in ((N1, [first]), (N2, [first]), (N3, [first, second]))
        },
    )
    assert list(memberships(group, "n3").voters) == [N3]
    group.elect("n1", "n1", "n2")
    group.tick("n1", 2)
    for kind in (HistoryRequest, HistoryResponse, Announcement):
        group.deliver(kind)
    assert group["n3"].disk.end == 2
    assert set(memberships(group, "n3").voters) == {N1, N2, N3}


def test_rule_15_while_joint_the_majority_of_the_new_alone_commits_nothing() -> None:
    """n1 and n4 are two of n1, n2 and n4, but one of n1, n2 and n3."""
    group = joint()
    group.settle("n1", "n4")
    assert group["n1"].core.leading.progress[N4].counted_end == group["n1"].core.log.end
    assert group["n1"].core.log.commit_end < group["n1"].core.log.end
    group.run(2, "n1", "n2", "n4")
    assert group["n1"].core.log.commit_end == group["n1"].core.log.end


def test_rule_15_while_joint_both_majorities_elect_and_all_are_asked() -> None:
    group = joint()
    group.restart("n1")
    group.campaign("n1")
    assert {message.target for message in group.matching(PreVoteRequest)} == {N2, N3, N4}
    for kinds in ((PreVoteRequest, VoteRequest), (PreVoteResponse, VoteResponse)) * 2:
        age(group["n4"].core, 99)
        for kind in kinds:
            group.drop(kind, source="n1", target="n2")
            group.drop(kind, source="n1", target="n3")
            group.deliver(kind)
    assert group["n1"].core.role is not Role.LEADER, "n1 and n4 are a majority of the new voters only"
    group.elect("n1", "n1", "n2", "n4")


def test_rule_15_while_joint_both_majorities_confirm_reads_and_keep_a_leader() -> None:
    group = joint()
    token = group.read("n1")
    group.deliver(HeartbeatRequest, target="n4")
    group.deliver(HeartbeatResponse, source="n4")
    group.settle("n1", "n4")
    assert token not in group["n1"].reads
    group.run(2 * group.options[N1].election_timeout_ticks + 1, "n1", "n4")
    assert group["n1"].core.role is not Role.LEADER


def test_rule_15_a_joint_membership_is_left_only_when_it_is_committed() -> None:
    group = joint()
    group.tick("n1", 2 * group.options[N1].heartbeat_ticks)
    assert group["n1"].core.role is Role.LEADER
    assert memberships(group, "n1").is_joint
    group.run(2, "n1", "n2", "n4")
    assert not memberships(group, "n1").is_joint


@pytest.mark.parametrize("kind", [PreVoteRequest, VoteRequest])
def test_rule_17_a_recovering_member_answers_no_vote(kind: type[PreVoteRequest | VoteRequest]) -> None:
    group = started()
    group.crash("n3")
    group["n3"].disk.damage(group["n3"].disk.end - 1, is_end_known=False)
    group.start("n3")
    group.step("n3", kind(source=N2, target=N3, term=Term(9), last_term=Term(8), end=Index(99)))
    assert group.matching((PreVoteResponse, VoteResponse), source="n3") == []
    assert group["n3"].disk.vote != "n2"
