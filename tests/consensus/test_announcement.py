"""The announcement: the point at which two logs part, the order of a member's steps, and crashes in between."""

import random

import pytest

from tests.consensus.group import Disk, Group, Member, age, record
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    HistoryResponse,
    PreVoteRequest,
    PreVoteResponse,
    TermResponse,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.ready import TruncateLog, WriteHistory, WriteTerm
from viewstamp.consensus.roles import Role
from viewstamp.consensus.state import RaftOptions
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import ContradictionError, PeerError
from viewstamp.ids import Index, NodeId, Term

SYNC_ONLY = RaftOptions(election_timeout_ticks=10, heartbeat_ticks=2, sync_only=True)


def disk_of(*terms: int, term: int = 0, history: list[tuple[int, int]] | None = None) -> Disk:
    """Return a disk with one record of each of ``terms``; the history is the log's, or a longer one."""
    batches = [
        record(each, index, previous_term=terms[index - 2] if index > 1 else 0) for index, each in enumerate(terms, 1)
    ]
    if history is None:
        history = [(0, 1)]
        for index, each in enumerate(terms, 1):
            if each != history[-1][0]:
                history.append((each, index))
    return Disk(term=Term(term or max(terms, default=0)), history=TermHistory(history), batches=batches)


def neon() -> Group:
    """Return Neon's history: P1 wrote 1.1 everywhere and more on A only, P2 2.2 and 2.3 on C and D, P3 (on D) 3.4 on D.

    Here P2 and P3 are members: C led term 2; D leads term 3 once C and E have voted for it, and its record is 3.4.
    """
    return Group(
        [NodeId(me) for me in "ABCDE"],
        options=SYNC_ONLY,
        disks={
            NodeId("A"): disk_of(1, 1, 1, 1),
            NodeId("B"): disk_of(1),
            NodeId("C"): disk_of(1, 2, 2),
            NodeId("D"): disk_of(1, 2, 2),
            NodeId("E"): disk_of(1, term=2),
        },
    )


def lead_with_d(group: Group) -> None:
    """D wins term 3 with the votes of C and E, has sent no announcement yet, and alone has 3.4."""
    for me in "CE":
        age(group[me].core, 10)
    group.campaign("D")
    for kind in (PreVoteRequest, PreVoteResponse, VoteRequest, VoteResponse):
        for me in "CE":
            group.deliver(kind, source=me)
            group.deliver(kind, target=me)
    group.drop()
    assert group["D"].core.role is Role.LEADER
    group["D"].core.append(record(3, 4, previous_term=2))
    group.after("D")
    assert group["D"].disk.records() == ["1.1", "2.2", "2.3", "3.4"]
    assert group["E"].disk.records() == ["1.1"]


def test_neon_a_gets_back_and_is_cut_to_the_shared_prefix_before_any_record_arrives() -> None:
    """A gets the announcement of start 2 and [(1,1),(2,2),(3,4)], and then advertises term 2, not 3.

    Its end is 2 (checklist B3, line 1).
    """
    group = neon()
    lead_with_d(group)
    while not group.matching(Announcement, target="A"):
        group.tick("D")
        group.deliver(target="A")
        group.deliver(HistoryResponse, source="A")
    [announcement] = group.matching(Announcement, target="A")
    assert isinstance(announcement, Announcement)
    assert announcement.start == 2
    assert announcement.history.starts == ((0, 1), (1, 1), (2, 2), (3, 4))
    group.deliver(Announcement, target="A")
    assert group["A"].disk.records() == ["1.1"]
    assert group["A"].core.advertised.starts == ((0, 1), (1, 1), (2, 2))
    assert group["A"].core.pair == (2, 2)
    group.run(6)
    assert group["A"].disk.records() == ["1.1", "2.2", "2.3", "3.4"]


def test_neon_a_stopped_after_one_record_holds_no_mixture_and_its_old_tail_is_never_committed() -> None:
    """A holds 1.1 2.2, never 1.1 2.2 1.3 1.4.

    A, B and E elect P4, and none of A's old records is committed (checklist B3, line 2).
    """
    group = neon()
    lead_with_d(group)
    group["D"].core.options = RaftOptions(election_timeout_ticks=10, heartbeat_ticks=2, append_bytes_max=1)
    while not group.matching(AppendRequest, target="A"):
        group.tick("D")
        group.deliver(target="A")
        group.deliver(source="A")
    group.step("A", group.matching(AppendRequest, target="A")[0])
    group.drop()
    assert group["A"].disk.records() == ["1.1", "2.2"]
    group.crash("C")
    group.crash("D")
    group.elect("A", "A", "B", "E")
    group.run(4, "A", "B", "E")
    assert group["B"].disk.records() == group["E"].disk.records() == group["A"].disk.records() == ["1.1", "2.2"]
    assert group["A"].core.log.commit_end == 3
    group.start("C")
    group.start("D")
    group.run(10)
    assert {tuple(member.disk.records()) for member in group.up()} == {("1.1", "2.2")}


def test_the_longer_log_of_the_older_term_does_not_win() -> None:
    """The vote rule compares terms before lengths.

    A, at (1, 5), asks B, E and C; C is at (2, 4) and refuses, although A's log is the longest of all.
    """
    group = neon()
    for me in "ABCDE":
        age(group[me].core, 10)
    group.crash("D")
    group.crash("B")
    group.campaign("A")
    group.settle()
    assert group["A"].core.role is not Role.LEADER
    group.elect("C")
    group.run(6)
    assert group["A"].disk.records() == ["1.1", "2.2", "2.3"]


def divergent() -> Group:
    """n3 holds two records of term 1 that n1, the leader of term 2, lacks; the announcement to n3 is in flight."""
    group = Group(
        3,
        options=SYNC_ONLY,
        disks={
            NodeId("n1"): disk_of(1, 2),
            NodeId("n2"): disk_of(1, 2),
            NodeId("n3"): disk_of(1, 1, 1),
        },
    )
    group.elect("n1", "n1", "n2")
    while not group.matching(Announcement, target="n3"):
        group.tick("n1")
        group.deliver(target="n3")
        group.deliver(HistoryResponse, source="n3")
    return group


def writes_of(member: Member) -> list[type]:
    return [type(write) for pending in member.queue for write in pending.writes]


def test_the_three_steps_are_written_in_their_order_term_truncation_history() -> None:
    """If the history came first, it would describe old records as ones of the new term.

    Committed data is lost in 10 steps.
    """
    group = divergent()
    announcement = group.drop(Announcement, target="n3")[0]
    group.crash("n3")
    group["n3"].disk.term, group["n3"].disk.vote = Term(1), ""
    group.start("n3")
    group.is_quick_disk = False
    group.step("n3", announcement)
    assert writes_of(group["n3"]) == [WriteTerm, TruncateLog, WriteHistory]
    group.sync("n3")
    assert group["n3"].disk.log[-3:] == ["term 3 vote n1", "truncate 2", "history [(0,1), (1,1), (2,2), (3,3)]"]


@pytest.mark.parametrize("kept", range(4))
def test_a_restart_continues_after_a_crash_at_each_step(kept: int) -> None:
    """After the term, after the truncation and after the history: each time the group ends with one log."""
    group = divergent()
    group.is_quick_disk = False
    group.deliver(Announcement, target="n3")
    assert group.matching(AnnouncementResponse, source="n3") == []
    group.crash("n3", durable_writes=kept)
    history = group["n3"].disk.history
    assert (history.last_term == 3) == (kept >= 2), "the history is stored last"
    assert (group["n3"].disk.end == 2) == (kept >= 1), "the log is cut before"
    group.is_quick_disk = True
    group.start("n3")
    group.run(16)
    assert group["n3"].disk.records() == ["1.1", "2.2"]
    assert group["n3"].core.log.commit_end == 3


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_inside_the_truncation_leaves_a_shorter_prefix_of_the_old_log(seed: int) -> None:
    group = divergent()
    group.is_quick_disk = False
    group.deliver(Announcement, target="n3")
    group.crash("n3", torn=random.Random(seed))
    assert group["n3"].disk.records() == ["1.1", "1.2", "1.3"][: len(group["n3"].disk.records())]
    assert group["n3"].disk.history.last_term == 1
    group.is_quick_disk = True
    group.start("n3")
    group.run(16)
    assert group["n3"].disk.records() == ["1.1", "2.2"]


def test_until_truncation_and_history_are_durable_the_member_answers_nothing() -> None:
    """It answers nothing and grants nothing: no vote, no heartbeat, no history (rule 5)."""
    group = divergent()
    group.is_quick_disk = False
    group.deliver(Announcement, target="n3")
    group.drop()
    group.write("n3", 1)
    for kind in (VoteRequest,):
        message = kind(
            source=NodeId("n2"), target=NodeId("n3"), term=Term(9), last_term=Term(9), end=Index(99)
        )  # It would grant this vote at any other time.
        age(group["n3"].core, 99)
        group.step("n3", message)
    group.tick("n1", 2)
    group.deliver(target="n3")
    group.tick("n3", 50)
    assert group.matching(source="n3") == []
    assert group["n3"].core.term == 3
    group.sync("n3")
    assert [type(message) for message in group.matching(source="n3")] == [AnnouncementResponse]


def test_an_announcement_again_cuts_nothing_and_is_harmless() -> None:
    """A doubled announcement has a known number. After a restart, its point is the member's own end."""
    group = divergent()
    [announcement] = group.deliver(Announcement, target="n3", keep=True)
    group.run(6)
    log = list(group["n3"].disk.log)
    group.step("n3", announcement)
    assert group["n3"].disk.log == log
    group.restart("n3")
    group.step("n3", announcement)
    assert group["n3"].disk.records() == ["1.1", "2.2"]
    assert "truncate" not in "".join(group["n3"].disk.log[len(log) :])
    group.run(6)
    assert group["n3"].core.log.commit_end == 3


def test_an_announcement_that_does_not_fit_the_present_log_is_refused_and_made_anew() -> None:
    """It arrives late, after the member has continued and forgotten it.

    The old point would now cut acknowledged records.
    """
    group = divergent()
    [announcement] = group.deliver(Announcement, target="n3", keep=True)
    group.run(6)
    group.crash("n3")
    group.start("n3")
    group.step("n3", announcement)
    [refusal] = group.matching(HistoryResponse, source="n3")
    assert isinstance(refusal, HistoryResponse)
    assert (refusal.number, refusal.end) == (announcement.number, 3)  # type: ignore[attr-defined]
    assert group["n3"].core.log.end == 3
    group.run(6)
    assert group["n1"].core.leading.progress[NodeId("n3")].durable_end == 3


def test_an_announcement_below_the_own_commit_index_is_refused_and_fatal() -> None:
    """A peer broke the protocol, or a disk lied: the member stops, and cuts nothing."""
    group = divergent()
    [announcement] = group.drop(Announcement, target="n3")
    group["n3"].disk.commit_hint = Index(4)
    group.crash("n3")
    group.facts.kept_ends.clear()
    member = Member(NodeId("n3"), group["n3"].disk)
    group.members[NodeId("n3")] = member
    # No member of this group can know this to be committed, so the other checks must not see it.
    group.facts.committed, group.facts.committed_end = member.disk.history.starts, Index(4)
    group.crash("n1")
    group.crash("n2")
    group.start("n3")
    with pytest.raises(ContradictionError, match="everything before 4 is committed"):
        group.step("n3", announcement)
    assert group["n3"].disk.records() == ["1.1", "1.2", "1.3"]


def test_an_announcement_of_an_older_term_is_ignored_and_answered_with_the_present_one() -> None:
    group = divergent()
    [announcement] = group.drop(Announcement, target="n3")
    group.drop()
    group.elect("n2", "n2", "n3")
    log = list(group["n3"].disk.log)
    group.step("n3", announcement)
    assert group["n3"].disk.log == log
    assert len(group.matching(TermResponse, source="n3", target="n1")) == 1


def test_an_announcement_of_a_higher_term_is_adopted_with_its_leader_as_the_vote() -> None:
    """Rule 11: this makes "one leader per term" checkable on one member."""
    group = divergent()
    [announcement] = group.drop(Announcement, target="n3")
    group.crash("n3")
    group["n3"].disk.term, group["n3"].disk.vote = Term(1), ""
    group.start("n3")
    group.step("n3", announcement)
    assert (group["n3"].disk.term, group["n3"].disk.vote) == (3, "n1")


def test_an_announcement_waits_until_the_log_is_synced() -> None:
    """A pending truncation never overtakes older writes of the log, and the point is computed from a durable end."""
    group = Group(3, options=SYNC_ONLY, disks={NodeId("n3"): disk_of(1)}, is_quick_disk=False)
    member = group["n3"]
    member.core.append(record(1, 2))
    group.after("n3")
    announcement = Announcement(
        source=NodeId("n1"),
        target=NodeId("n3"),
        term=Term(2),
        number=1,
        history=TermHistory([(0, 1), (1, 1), (2, 2)]),
        start=Index(2),
    )
    group.step("n3", announcement)
    assert TruncateLog not in writes_of(member)
    group.write("n3", 9)
    group.notify("n3", 1)
    assert [type(w) for p in (*member.notices, *member.queue) for w in p.writes] == [TruncateLog, WriteHistory]
    group.sync("n3")
    assert member.disk.records() == ["1.1"]


def test_two_leaders_in_one_term_are_a_broken_peer() -> None:
    group = divergent()
    group.deliver(Announcement, target="n3")
    other = Announcement(
        source=NodeId("n2"),
        target=NodeId("n3"),
        term=group["n3"].core.term,
        number=9,
        history=group["n1"].core.history,
        start=Index(2),
    )
    with pytest.raises(PeerError, match="both n1 and n2 lead"):
        group.step("n3", other)


def test_a_stored_history_ahead_of_the_log_is_advertised_only_as_far_as_the_log_reaches() -> None:
    """The control file is written before the records, so at first only the boundary counts (checklist B3, line 5)."""
    ahead = disk_of(1, 1, term=4, history=[(0, 1), (1, 1), (2, 3), (4, 7)])
    group = Group(3, disks={NodeId("n3"): ahead})
    assert group["n3"].core.advertised.starts == ((0, 1), (1, 1), (2, 3))
    assert group["n3"].core.pair == (2, 3)


def test_a_winner_extends_its_advertised_history_and_not_the_stored_one() -> None:
    """If the stored history were extended, it would go backwards: [(1,1),(2,3),(4,7),(5,3)] (rule 3, 9 steps)."""
    ahead = disk_of(1, 1, term=4, history=[(0, 1), (1, 1), (2, 3), (4, 7)])
    group = Group(3, disks={NodeId("n1"): ahead})
    group.elect("n1")
    assert group["n1"].disk.history.starts == ((0, 1), (1, 1), (2, 3), (5, 3))


def test_a_last_term_rises_when_its_begin_is_reached() -> None:
    """With the history [(1,1),(2,3)] the last term stays 1 until the end is 3; then it is 2 (checklist B3, line 9)."""
    group = Group(3, disks={NodeId("n3"): disk_of(1, term=2, history=[(0, 1), (1, 1), (2, 3)])})
    core = group["n3"].core
    assert core.pair == (1, 2)
    core.append(record(1, 2))
    group.after("n3")
    assert core.pair == (2, 3)


def test_a_member_without_any_common_point_is_left_alone_until_a_snapshot_helps() -> None:
    """No record is cut or sent by guessing; the leader continues with the others."""
    group = Group(3)
    group.elect("n1", "n1", "n2")
    report = HistoryResponse(
        source=NodeId("n3"),
        target=NodeId("n1"),
        term=group["n1"].core.term,
        number=0,
        history=TermHistory([(7, 100)]),
        end=Index(120),
    )
    group["n1"].core.history = TermHistory(group["n1"].core.history.starts[1:])
    group["n1"].core.history = TermHistory([(1, 50)])
    group.facts.seen.clear()
    group.facts.pasts.clear()
    assert group["n1"].raft is not None
    group["n1"].raft.step(report)
    assert group["n1"].core.leading.progress[NodeId("n3")].number == 0
    assert not [m for m in group["n1"].core.output.messages if isinstance(m, Announcement)]
