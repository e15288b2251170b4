"""Membership changes: learners, promotion, joint changes, the guard, and a leader that removes itself."""

from dataclasses import replace

import pytest

from tests.consensus.group import OPTIONS, Disk, Group, Member, age
from viewstamp.consensus.membership import AddMember, Membership, MembershipEntry, RemoveMember
from viewstamp.consensus.messages import (
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    HeartbeatResponse,
    PreVoteRequest,
    TimeoutNow,
    VoteRequest,
)
from viewstamp.consensus.reconfigure import GONE_TIMEOUTS
from viewstamp.consensus.roles import Lifecycle, Role
from viewstamp.errors import NotLeaderError, RequestError, UnavailableError
from viewstamp.ids import NodeId

N1, N2, N3, N4, N5 = (NodeId(f"n{number}") for number in range(1, 6))


def started(members: int = 3) -> Group:
    """Return a RUNNING group that n1 leads."""
    group = Group(members)
    group.elect("n1")
    group.run(5)
    assert group["n1"].core.lifecycle is Lifecycle.RUNNING
    return group


def memberships(group: Group, me: str) -> Membership:
    return group[me].core.membership


def test_a_new_member_learns_and_is_promoted_by_itself_when_it_has_caught_up() -> None:
    group = started()
    for _ in range(20):
        group.propose("n1")
    group.settle()
    group.add("n4")
    group.change("n1", AddMember(N4, "at-n4"))
    assert group["n1"].core.membership.joining == {N4: ""}
    group.settle()
    assert group["n4"].core.role is Role.LEARNER
    group.run(10)
    assert {*memberships(group, "n1").voters} == {N1, N2, N3, N4}
    for me in (N1, N2, N3, N4):
        assert memberships(group, me) == memberships(group, "n1")
        assert not memberships(group, me).is_joint
        assert group[me].disk.records() == group["n1"].disk.records()
    assert group["n4"].core.role is Role.FOLLOWER


def test_a_learner_that_is_to_stay_one_is_not_promoted() -> None:
    group = started()
    group.add("n4")
    group.change("n1", AddMember(N4, "at-n4", becomes_voter=False))
    group.run(30)
    assert group["n4"].core.role is Role.LEARNER
    assert group["n4"].disk.records() == group["n1"].disk.records()


def test_a_learner_that_receives_nothing_is_not_promoted() -> None:
    """Promoted without an answer, it would make the quorum larger without making the group stronger."""
    group = started()
    group.change("n1", AddMember(N4, "at-n4"))
    group.members[N4] = Member(N4, Disk())  # It is down.
    group.run(40)
    assert {*memberships(group, "n1").voters} == {N1, N2, N3}
    group.propose("n1")
    group.settle()
    assert group["n1"].core.log.commit_end == group["n1"].core.log.end


def test_a_learner_never_counts() -> None:
    """n1 and the learner n4 are not two of three."""
    group = started()
    group.add("n4")
    group.change("n1", AddMember(N4, "at-n4", becomes_voter=False))
    group.run(5)
    committed = group["n1"].core.log.commit_end
    group.propose("n1")
    group.settle("n1", "n4")
    assert group["n4"].core.log.durable_end == group["n1"].core.log.end
    assert group["n1"].core.log.commit_end == committed


def test_while_joint_both_majorities_have_to_agree() -> None:
    """Five become four, as n5 leaves: three of the old five are needed, and three of the new four."""
    group = started(3)
    for me in ("n4", "n5"):
        group.add(me)
        group.change("n1", AddMember(NodeId(me), f"at-{me}"))
        group.run(10)
    group.change("n1", RemoveMember(N3))
    joint = memberships(group, "n1")
    assert (set(joint.voters), set(joint.outgoing)) == ({N1, N2, N4, N5}, {N1, N2, N3, N4, N5})
    group.settle("n1", "n2")
    assert group["n1"].core.log.commit_end < group["n1"].core.log.end, "two are no majority of five, nor of four"
    group.settle("n1", "n2", "n3")
    assert group["n1"].core.log.commit_end < group["n1"].core.log.end, "three of five, but two of four"
    group.run(2, "n1", "n2", "n3", "n4")
    assert group["n1"].core.log.commit_end == group["n1"].core.log.end


def test_replacing_is_one_joint_change_of_two_members() -> None:
    group = started()
    group.add("n4")
    group.change("n1", AddMember(N4, "at-n4", replaces=N2))
    assert {*memberships(group, "n1").voters} == {N1, N2, N3}
    group.run(12)
    assert {*memberships(group, "n1").voters} == {N1, N3, N4}
    assert group["n2"].core.role is Role.NON_PARTICIPANT, "the removed member learns of its removal"


def test_a_change_is_refused_until_a_record_of_the_term_is_committed() -> None:
    """Without this guard two leaders can be elected in one term; a model checker found this in nine steps."""
    group = started()
    group.elect("n2", "n1", "n2", "n3")
    group.messages.clear()
    group.run(1)
    group.elect("n3")
    group.restart("n1")
    group.restart("n2")
    group.restart("n3")
    for me in ("n2", "n3"):
        age(group[me].core, 99)
    group.campaign("n1")
    for _ in range(6):  # Up to the election, but not to the commit.
        group.deliver((PreVoteRequest, VoteRequest))
        group.deliver()
        if group["n1"].core.role is Role.LEADER:
            break
    assert group["n1"].core.role is Role.LEADER
    assert group["n1"].core.lifecycle is Lifecycle.CONFIGURING
    with pytest.raises(UnavailableError, match="is not committed yet"):
        group.change("n1", RemoveMember(N3))
    group.settle()
    group.change("n1", RemoveMember(N3))


def test_one_change_at_a_time() -> None:
    group = started()
    group.change("n1", AddMember(N4, "at-n4"))
    with pytest.raises(UnavailableError, match="another change"):
        group.change("n1", RemoveMember(N3))
    group.settle("n1", "n2", "n3")
    group.change("n1", RemoveMember(N3))
    group.settle("n1", "n2", "n3")
    assert memberships(group, "n1").is_joint
    with pytest.raises(UnavailableError, match="another change"):
        group.change("n1", AddMember(N5, "at-n5"))


def test_writes_go_on_while_the_membership_changes() -> None:
    """RUNNING is reported once per term; a later uncommitted membership record does not revoke it."""
    group = started()
    group.change("n1", RemoveMember(N3))
    assert group["n1"].core.lifecycle is Lifecycle.RUNNING
    group.propose("n1")
    group.run(5)
    assert group["n1"].core.log.commit_end == group["n1"].core.log.end


def test_a_removed_leader_leads_until_its_removal_is_committed_and_then_hands_over() -> None:
    group = started()
    group.change("n1", RemoveMember(N1))
    group.propose("n1", b"while it leaves")
    assert group["n1"].core.role is Role.LEADER
    for _ in range(6):
        group.tick("n1")
        group.settle()
    assert group["n1"].core.role is Role.NON_PARTICIPANT
    assert group.leaders() != []
    assert group.leaders()[0] in (N2, N3), "no election timeout was needed"
    assert {*memberships(group, "n2").voters} == {N2, N3}
    group.run(5)
    group.propose(group.leaders()[0], b"after")
    group.run(3)
    assert group[group.leaders()[0]].core.log.commit_end == group["n2"].core.log.end


def test_a_removed_leader_does_not_count_itself() -> None:
    """By the record that leaves the joint membership, n1 is not a voter, and n2 alone is no majority of n2 and n3."""
    group = started()
    group.change("n1", RemoveMember(N1))
    group.settle()
    group.tick("n1")  # This sends the second record.
    assert not memberships(group, "n1").is_joint
    group.settle("n1", "n2")
    assert group["n1"].core.log.commit_end < group["n1"].core.log.end
    group.settle()
    group.run(2)
    assert group["n1"].core.log.commit_end == group["n1"].core.log.end


def test_a_member_removed_by_an_uncommitted_record_can_still_lead_the_group_out_of_it() -> None:
    """Four become three; n1, which leaves, restarts with the longest log, and n4 is down.

    The others need n1's vote among the four, and it gives none to a shorter log, so only n1 can be elected.
    """
    group = Group(4)
    group.elect("n1")
    group.run(5)
    group.change("n1", RemoveMember(N1))
    group.settle()
    group.tick("n1")  # Only n1 has this record, which leaves the joint membership.
    assert not memberships(group, "n1").is_joint
    group.messages.clear()
    group.crash("n4")
    group.restart("n1")
    group.run(60, "n1", "n2", "n3")
    assert {*memberships(group, "n2").voters} == {N2, N3, N4}
    assert group.leaders()
    assert set(group.leaders()) <= {N2, N3}
    assert group["n1"].core.role is Role.NON_PARTICIPANT


def test_a_removed_member_without_the_record_of_its_removal_disturbs_no_leader() -> None:
    group = started()
    group.crash("n3")
    group.change("n1", RemoveMember(N3))
    group.run(40, "n1", "n2")
    assert N3 not in group["n1"].core.leading.progress
    term = group["n1"].core.term
    group.start("n3")
    for _ in range(5):
        group.campaign("n3")
        group.settle()
        group.run(3)
    assert group["n1"].core.role is Role.LEADER
    assert group["n1"].core.term == term


def test_a_leader_that_falls_in_the_middle_of_a_change_leaves_it_to_the_next_one() -> None:
    group = started(5)
    group.change("n1", RemoveMember(N5))
    group.settle()
    assert memberships(group, "n2").is_joint
    group.crash("n1")
    group.elect("n2", "n2", "n3", "n4")
    group.run(6, "n2", "n3", "n4")
    assert not memberships(group, "n2").is_joint
    assert {*memberships(group, "n2").voters} == {N1, N2, N3, N4}


def test_a_change_that_is_cut_is_not_in_force_any_more() -> None:
    """Rule 15: a membership is in force as soon as it is in the log, and no longer when it is cut."""
    group = started()
    group.change("n1", RemoveMember(N2))
    group.messages.clear()
    assert {*memberships(group, "n1").voters} == {N1, N3}
    group.elect("n2", "n2", "n3")
    group.run(8)
    assert {*memberships(group, "n1").voters} == {N1, N2, N3}
    assert group["n1"].core.role is Role.FOLLOWER


def test_a_member_that_has_moved_gets_its_new_address_by_one_record() -> None:
    group = started()
    group.change("n1", AddMember(N2, "elsewhere"))
    group.run(3)
    assert memberships(group, "n3").addresses[N2] == "elsewhere"
    assert not memberships(group, "n3").is_joint


def test_the_same_change_again_changes_nothing() -> None:
    """A caller without an answer repeats its request."""
    group = started()
    group.add("n4")
    group.change("n1", AddMember(N4, "at-n4", becomes_voter=False))
    group.run(3)
    end = group["n1"].core.log.end
    group.change("n1", AddMember(N4, "at-n4", becomes_voter=False))
    assert group["n1"].core.log.end == end


def test_a_change_that_could_not_be_committed_is_not_begun() -> None:
    """It would lock the group, because the next change is refused until this one is committed."""
    group = started()
    group.crash("n3")
    group.run(15, "n1", "n2")
    with pytest.raises(UnavailableError, match="of the voters n1, n3 only n1 can agree"):
        group.change("n1", RemoveMember(N2))
    group.change("n1", RemoveMember(N3))


def test_an_impossible_change_is_refused_with_its_reason() -> None:
    group = started()
    for wanted, complaint in (
        (RemoveMember(N5), "n5 is no member"),
        (AddMember(N4, "at-n4", replaces=N5), "n5 is no voter"),
        (AddMember(N2, "at-n2", replaces=N3), "n2 is a voter already"),
    ):
        with pytest.raises(RequestError, match=complaint):
            group.change("n1", wanted)
    with pytest.raises(NotLeaderError):
        group.change("n2", RemoveMember(N3))
    alone = Group(1)
    alone.elect("n1")
    with pytest.raises(RequestError, match="last voter"):
        alone.change("n1", RemoveMember(N1))
    for target in (None, "n1", "n2"):
        with pytest.raises(RequestError, match="n1 is the only voter, so no other member can lead"):
            alone.transfer("n1", target)


def test_a_transferred_leadership_passes_without_a_timeout_and_without_the_pre_vote() -> None:
    group = started()
    group.propose("n1")
    assert group.transfer("n1", "n3") == N3
    with pytest.raises(UnavailableError, match="handing its leadership over to n3"):
        group.propose("n1")
    group.settle()
    assert group["n3"].core.role is Role.LEADER
    assert group["n1"].core.role is Role.FOLLOWER
    assert not [message for message in group.sent if isinstance(message, PreVoteRequest) and message.source == N3]


def test_a_transfer_waits_until_the_target_has_everything() -> None:
    group = started()
    group.propose("n1")
    group.drop(AppendRequest, target="n3")
    group.transfer("n1", "n3")
    assert not group.matching(TimeoutNow)
    group.run(8)
    assert group["n3"].core.role is Role.LEADER


def test_many_acknowledgements_do_not_use_up_the_time_of_a_transfer() -> None:
    """With many acknowledged appends in flight, the target still gets its whole election timeout."""
    group = Group(3, options=replace(OPTIONS, append_bytes_max=1))
    group.elect("n1")
    group.run(5)
    for number in range(3 * OPTIONS.election_timeout_ticks):
        group.propose("n1", b"%d" % number)
    group.transfer("n1", "n3")
    group.settle()
    assert group["n3"].core.role is Role.LEADER


def test_a_transfer_to_one_that_does_not_answer_is_given_up() -> None:
    group = started()
    group.crash("n3")
    assert group.transfer("n1", "n3") == N3
    group.run(group.options[N1].election_timeout_ticks + 3, "n1", "n2")
    assert group["n1"].core.role is Role.LEADER
    group.propose("n1")


def test_a_transfer_without_a_target_goes_to_the_most_advanced_member() -> None:
    group = started()
    group.propose("n1")
    group.drop(AppendRequest, target="n2")
    group.settle("n1", "n3")
    assert group.transfer("n1") == N3


def test_only_its_leader_can_make_a_member_campaign() -> None:
    group = started()
    group.step("n2", TimeoutNow(source=N3, target=N2, term=group["n2"].core.term))
    group.settle()
    assert group["n1"].core.role is Role.LEADER


def test_a_late_timeout_now_only_costs_an_election() -> None:
    group = started()
    group.transfer("n1", "n2")
    late = group.matching(TimeoutNow)[0]
    group.settle()
    assert group["n2"].core.role is Role.LEADER
    group.step("n2", late)
    group.settle()
    assert group["n2"].core.role is Role.LEADER


@pytest.mark.parametrize("is_end_known", [True, False])
def test_a_member_that_has_lost_something_is_recovering_until_it_holds_its_old_pair_again(is_end_known: bool) -> None:
    """Rule 17. Without it, two members can lose a record that three had, in 9 steps."""
    group = started()
    group.propose("n1", b"kept")
    group.settle()
    group.crash("n3")
    end = group["n3"].disk.end
    group["n3"].disk.damage(2, is_end_known=is_end_known)
    group.start("n3")
    assert group["n3"].core.recovering_until is not None
    group.campaign("n3")
    assert not group.matching(PreVoteRequest, source="n3")
    group.run(8)
    assert group["n3"].disk.end >= end
    assert (group["n3"].core.recovering_until is None) == is_end_known
    if not is_end_known:
        # Only a higher term proves that none of its records is missing, so the leader transfers its leadership after a
        # timeout.
        group.run(6 * group.options[N1].election_timeout_ticks)
        assert group["n2"].core.role is Role.LEADER
        assert group["n3"].core.recovering_until is None
    assert group["n3"].disk.recovering_until is None


def test_a_recovering_member_does_not_vote_and_does_not_count_for_commit() -> None:
    """Without this rule a model checker found a lost record in 12 steps.

    A leader's commit index may be below a record that this member acknowledged before its disk lost the record.
    """
    group = started()
    group.propose("n1", b"r")
    group.settle("n1", "n3")
    group.crash("n3")
    group["n3"].disk.damage(group["n3"].disk.end - 1)
    group["n3"].disk.recovering_until = (group["n3"].disk.recovering_until or (0, 0))[0], group["n1"].core.log.end + 5  # type: ignore[assignment]
    group.start("n3")
    committed = group["n1"].core.log.commit_end
    group.propose("n1", b"s")
    group.run(8, "n1", "n3")
    assert group["n3"].core.log.durable_end == group["n1"].core.log.end, "it follows the leader"
    assert group["n1"].core.log.commit_end == committed, "its acknowledgement does not count"
    assert group["n1"].core.role is Role.LEADER, "but the leader stays, as the member needs it for its repair"
    group.crash("n1")
    group.campaign("n2")
    group.settle("n2", "n3")
    assert group["n2"].core.role is not Role.LEADER, "its vote does not count"


def test_a_recovering_member_that_takes_a_heartbeat_confirms_no_read() -> None:
    group = started()
    group.crash("n3")
    group["n3"].disk.recovering_until = (99, 99)  # type: ignore[assignment]
    group.start("n3")
    group.run(6)
    token = group.read("n1")
    group.run(6, "n1", "n3")
    assert token not in group["n1"].reads
    group.read("n1")
    group.run(2)
    assert group["n1"].reads


def test_a_wiped_voter_under_a_new_name_takes_the_place_of_the_old_one() -> None:
    """Rule 18: never under the old id, and never promoted in place."""
    group = started()
    group.propose("n1")
    group.settle()
    group.crash("n2")
    group.add("n2~1")
    group.change("n1", AddMember(NodeId("n2~1"), "at-n2", replaces=N2))
    group.run(GONE_TIMEOUTS * OPTIONS.election_timeout_ticks, "n1", "n3", "n2~1")
    assert {*memberships(group, "n1").voters} == {N1, N2, N3}  # The old disk might still answer.
    group.run(3, "n1", "n3", "n2~1")
    assert {*memberships(group, "n1").voters} == {N1, N3, "n2~1"}
    group.crash("n1")
    group.elect("n2~1", "n3", "n2~1")
    group.run(3, "n3", "n2~1")
    assert group["n3"].disk.records()[:2] == ["1.1", "1.2"]


def test_no_learner_is_promoted_in_the_place_of_a_member_whose_disk_still_answers() -> None:
    """The learner may have been added while the old disk was only cut off; see also ``joining_change``."""
    group = started()
    group.add("n2~1")
    group.change("n1", AddMember(NodeId("n2~1"), "at-n2", replaces=N2))
    group.run(2 * GONE_TIMEOUTS * OPTIONS.election_timeout_ticks)
    assert {*memberships(group, "n1").voters} == {N1, N2, N3}
    group.crash("n2")
    group.run(GONE_TIMEOUTS * OPTIONS.election_timeout_ticks + 3)
    assert {*memberships(group, "n1").voters} == {N1, N3, "n2~1"}


def test_a_member_that_answers_slowly_keeps_its_place() -> None:
    """On a slow network all timeouts are longer, including the one after which a disk may be replaced."""
    group = started()
    group.add("n2~1")

    def let_n2_answer_late() -> None:
        """Let six election timeouts pass between two answers of n2."""
        group.run(6 * OPTIONS.election_timeout_ticks, "n1", "n3", "n2~1")
        group.run(OPTIONS.heartbeat_ticks)

    for _ in range(3):
        let_n2_answer_late()
    group.change("n1", AddMember(NodeId("n2~1"), "at-n2", replaces=N2))
    for _ in range(8):
        let_n2_answer_late()
    assert {*memberships(group, "n1").voters} == {N1, N2, N3}
    group.crash("n2")
    group.run(GONE_TIMEOUTS * group["n1"].core.patience.ticks + 3)
    assert {*memberships(group, "n1").voters} == {N1, N3, "n2~1"}


def test_a_wiped_voter_takes_its_old_place_also_where_the_leader_changes_meanwhile() -> None:
    """A new leader has no answers yet and waits as long as its predecessor; then it promotes by itself."""
    group = started()
    group.crash("n2")
    group.add("n2~1")
    group.change("n1", AddMember(NodeId("n2~1"), "at-n2", replaces=N2))
    group.run(GONE_TIMEOUTS * OPTIONS.election_timeout_ticks, "n1", "n3", "n2~1")
    group.transfer("n1", "n3")
    group.settle("n1", "n3", "n2~1")
    group.run(5, "n1", "n3", "n2~1")
    assert group["n3"].core.role is Role.LEADER
    assert {*memberships(group, "n3").voters} == {N1, N2, N3}
    group.run(GONE_TIMEOUTS * OPTIONS.election_timeout_ticks, "n1", "n3", "n2~1")
    assert {*memberships(group, "n3").voters} == {N1, N3, "n2~1"}


def test_nothing_counts_before_the_end_of_recovery_is_on_the_disk() -> None:
    """A crash in between leaves the old viewstamp on the disk, without the messages that were sent meanwhile."""
    group = started()
    group.propose("n1")
    group.settle()
    group.crash("n3")
    group["n3"].disk.damage(group["n3"].disk.end - 1)
    group.start("n3")
    group.is_quick_disk = False
    acknowledgements = (AnnouncementResponse, AppendResponse, HeartbeatResponse)
    for _ in range(30):
        group.tick("n1")
        group.propose("n1")
        group.messages = [message for message in group.messages if NodeId("n2") not in (message.source, message.target)]
        group.deliver(target="n3")
        group.sync("n1")
        said = len(group.sent)
        group.write("n3")
        group.notify("n3")
        for message in group.sent[said:]:
            if isinstance(message, acknowledgements) and message.source == N3:
                assert message.is_recovering == (group["n3"].disk.recovering_until is not None)
        group.deliver(target="n1")
    assert group["n3"].disk.recovering_until is None
    assert group["n1"].core.leading.progress[N3].counted_end > 0


def test_a_joining_learner_that_is_recovering_without_a_known_end_is_helped_too() -> None:
    """Otherwise it would never be promoted, because only a new term ends its recovery."""
    group = started()
    group.add("n4")
    group.change("n1", AddMember(N4, "at-n4", replaces=N3))
    group.settle()
    group.crash("n4")
    group["n4"].disk.damage(2, is_end_known=False)
    group.start("n4")
    group.run(15 * group.options[N1].election_timeout_ticks)
    assert {*memberships(group, "n1").voters} == {N1, N2, N4}


def knowing(group: Group, me: str, *peers: str) -> None:
    """Let a member meet others, and know its own disk."""
    raft = group[me].raft
    assert raft is not None
    for peer in (me, *peers):
        raft.note_incarnation(NodeId(peer), f"disk-of-{peer}")


def test_the_acknowledgements_of_a_member_count_only_if_a_record_names_its_disk() -> None:
    """Rule 18: no record is committed with the help of a disk that later leaders do not know.

    For example n1 commits a record with the help of n2. Then the disk of n2 is wiped, and n1 stops. n3, which has never
    had a message from the first disk of n2, would accept the empty one and elect a leader without the record.
    """
    group = Group(3)
    knowing(group, "n1", "n3")
    knowing(group, "n2")
    knowing(group, "n3")
    group.elect("n1", "n1", "n2")
    group.run(3, "n1", "n2")
    assert group["n1"].core.membership.incarnations == {N1: "disk-of-n1", N3: "disk-of-n3"}
    assert group["n1"].core.log.commit_end == 1, "n2 holds it, but no record names its disk"
    raft = group["n1"].raft
    assert raft is not None
    raft.note_incarnation(N2, "disk-of-n2")
    group.run(3)
    assert group["n3"].core.membership.incarnations == {me: f"disk-of-{me}" for me in (N1, N2, N3)}
    assert group["n1"].core.lifecycle is Lifecycle.RUNNING


def test_the_vote_of_a_disk_that_the_membership_does_not_name_is_not_counted() -> None:
    group = Group(3)
    knowing(group, "n1", "n3")
    knowing(group, "n3")
    group.elect("n1", "n1", "n3")
    group.run(3, "n1", "n3")
    assert group["n3"].core.membership.incarnations == {N1: "disk-of-n1", N3: "disk-of-n3"}
    group.crash("n1")
    for _ in range(3):
        group.campaign("n3")
        group.settle("n2", "n3")
    assert group["n3"].core.role is not Role.LEADER
    group.start("n1")
    knowing(group, "n1", "n2", "n3")
    group.elect("n3")


def test_a_heartbeat_of_a_disk_that_no_record_names_confirms_no_read() -> None:
    group = Group(3)
    for me in ("n1", "n2", "n3"):
        knowing(group, me, "n1", "n2", "n3")
    group.elect("n1")
    group.run(3)
    core = group["n1"].core
    entry = core.memberships[0]
    core.memberships[0] = MembershipEntry(
        entry.index, entry.term, Membership(entry.membership.voters, incarnations={N1: "x"})
    )
    core.incarnations = {N1: "x"}
    token = group.read("n1")
    group.settle()
    assert token not in group["n1"].reads


def test_a_removed_members_disk_is_no_longer_named() -> None:
    group = Group(3)
    for me in ("n1", "n2", "n3"):
        knowing(group, me, "n1", "n2", "n3")
    group.elect("n1")
    group.run(3)
    group.change("n1", RemoveMember(N3))
    assert N3 in memberships(group, "n1").incarnations, "while joint it counts"
    group.run(6)
    assert memberships(group, "n1").incarnations == {N1: "disk-of-n1", N2: "disk-of-n2"}
