"""Reads: an index that a quorum has confirmed after the request."""

from tests.consensus.group import Group
from tests.consensus.test_announcement import SYNC_ONLY, disk_of
from viewstamp.consensus.messages import (
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ReadIndexRequest,
    ReadIndexResponse,
)
from viewstamp.consensus.roles import Role
from viewstamp.ids import NodeId, Term


def running(count: int = 3) -> Group:
    group = Group(count)
    group.elect("n1")
    group.run(3)
    group.propose("n1", b"a")
    group.run(3)
    return group


def test_a_leader_answers_a_read_when_a_quorum_has_confirmed_it() -> None:
    group = running()
    token = group.read("n1")
    assert token not in group["n1"].reads
    group.deliver(HeartbeatRequest, target="n2")
    group.deliver(HeartbeatResponse, source="n2")
    assert group["n1"].reads[token] == 2


def test_a_response_to_an_older_heartbeat_confirms_nothing() -> None:
    """It may have been sent before another leader was elected, and the read came later."""
    group = running()
    group.tick("n1", 2)
    group.deliver(HeartbeatRequest)
    token = group.read("n1")
    group.deliver(HeartbeatResponse)
    group.drop(HeartbeatRequest)
    assert token not in group["n1"].reads


def test_an_acknowledgement_or_a_vote_confirms_no_read() -> None:
    group = running()
    group.propose("n1", b"b")
    token = group.read("n1")
    group.deliver(AppendRequest)
    group.deliver(AppendResponse)
    assert token not in group["n1"].reads


def test_a_deposed_leader_answers_no_read() -> None:
    """It has not learned of the other leader, but the quorum has, and does not confirm."""
    group = running()
    group.elect("n2", "n2", "n3")
    group.run(3, "n2", "n3")
    group.propose("n2", b"new")
    group.run(3, "n2", "n3")
    assert group["n1"].core.role is Role.LEADER
    token = group.read("n1")
    group.deliver(HeartbeatRequest)
    group.deliver(source="n2", target="n1")
    group.deliver(source="n3", target="n1")
    assert token not in group["n1"].reads
    assert group["n1"].core.role is Role.FOLLOWER


def test_a_lost_confirmation_is_made_good_by_the_next_heartbeat() -> None:
    group = running()
    token = group.read("n1")
    group.drop()
    group.run(3)
    assert group["n1"].reads[token] == 2


def test_reads_of_one_turn_share_a_round() -> None:
    group = running()
    raft = group["n1"].raft
    assert raft is not None
    for token in (101, 102, 103):
        group["n1"].reads_asked[token] = group.facts.committed_end
        raft.read(token)
    group.after("n1")
    assert len(group.matching(HeartbeatRequest)) == 2
    group.settle()
    assert group["n1"].reads == {101: 2, 102: 2, 103: 2}


def test_a_member_reads_by_asking_its_leader() -> None:
    group = running()
    token = group.read("n3")
    group.deliver(ReadIndexRequest)
    group.deliver(HeartbeatRequest, target="n2")
    group.deliver(HeartbeatResponse, source="n2")
    group.deliver(ReadIndexResponse)
    assert group["n3"].reads[token] == 2
    assert group["n3"].core.log.commit_end == 3


def test_a_member_advances_its_commit_index_by_a_read() -> None:
    """A quorum confirmed the answer in this term, so the member may apply up to it."""
    group = running()
    group.propose("n1", b"b")
    group.deliver(AppendRequest)
    group.deliver(AppendResponse)
    group.drop()
    assert group.values("n3") == [b"a"]
    group.read("n3")
    group.deliver(ReadIndexRequest)
    group.deliver(HeartbeatRequest, target="n2")
    group.deliver(HeartbeatResponse, source="n2")
    group.drop(HeartbeatRequest)
    group.deliver(ReadIndexResponse)
    assert group.values("n3") == [b"a", b"b"]


def test_a_member_without_a_leader_sends_no_read_request() -> None:
    group = Group(3)
    group.read("n2")
    assert group.messages == []


def test_reads_before_the_term_start_is_reached_wait_and_are_not_refused() -> None:
    """Index = max(commit index, term start - 1), because earlier terms may have acknowledged all records up to it."""
    group = Group(3, options=SYNC_ONLY, disks={NodeId(me): disk_of(1, 1) for me in ("n1", "n2", "n3")})
    group.campaign("n1")
    while group["n1"].core.role is not Role.LEADER:
        group.deliver()
    token = group.read("n1")
    assert not group["n1"].core.leading.is_reached
    assert group["n1"].core.log.commit_end == 1
    assert group.matching(HeartbeatRequest) == []
    group.deliver()
    group.deliver(AnnouncementResponse)
    group.settle()
    assert group["n1"].reads[token] == 2


def test_a_single_voter_confirms_itself() -> None:
    group = running(1)
    token = group.read("n1")
    assert group["n1"].reads[token] == 2


def test_learners_read_but_confirm_nothing() -> None:
    group = Group(3, learners=[NodeId("l1")])
    group.elect("n1")
    group.run(3)
    token = group.read("l1")
    group.deliver(ReadIndexRequest)
    group.deliver(HeartbeatRequest, target="l1")
    group.deliver(HeartbeatResponse, source="l1")
    assert group.matching(ReadIndexResponse) == []
    group.settle()
    assert group["l1"].reads[token] == 1


def test_a_read_for_a_leader_of_an_older_term_is_answered_with_the_term() -> None:
    group = running()
    group.step(
        "n1",
        ReadIndexRequest(source=NodeId("n3"), target=NodeId("n1"), term=Term(0), token=9),
    )
    assert [(m.target, m.term) for m in group.messages] == [("n3", group["n1"].core.term)]


def test_pending_reads_are_dropped_by_a_leader_that_steps_down() -> None:
    group = running()
    token = group.read("n1")
    group.drop()
    for _ in range(25):
        group.tick("n1")
        group.drop()
    assert group["n1"].core.role is not Role.LEADER
    assert token not in group["n1"].reads
    group.elect("n1")
    group.run(10)
    assert token not in group["n1"].reads, "its next leadership has reads of its own"
