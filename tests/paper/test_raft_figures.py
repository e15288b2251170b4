"""Figures 7 and 8 of the Raft paper (Ongaro, Ousterhout: In Search of an Understandable Consensus Algorithm)."""

import pytest

from tests.consensus.group import Group, age
from tests.consensus.test_announcement import SYNC_ONLY, disk_of
from tests.consensus.test_commit import commit_index
from tests.mutants.catalogue import CATALOGUE
from viewstamp.consensus.invariants import BrokenInvariantError
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    PreVoteResponse,
    VoteResponse,
)
from viewstamp.consensus.roles import Role
from viewstamp.ids import NodeId

FIGURE_7 = {
    "leader": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6),
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}
POINTS = {"a": 10, "b": 5, "c": 11, "d": 11, "e": 6, "f": 4}
"""The first index at which each follower's log differs from the leader's, read from the figure."""


def figure_7() -> Group:
    """Return the figure's group with its leader elected in term 8 by the followers that may vote for it."""
    group = Group(
        [NodeId(me) for me in FIGURE_7],
        options=SYNC_ONLY,
        disks={NodeId(me): disk_of(*terms, term=7) for me, terms in FIGURE_7.items()},
    )
    for me in "abcdef":
        age(group[me].core, 10)
    group.campaign("leader")
    while group["leader"].core.role is not Role.LEADER:
        group.deliver()
    assert group["leader"].core.term == 8
    return group


def test_figure_7_the_voters_of_the_leader() -> None:
    """§5.4.1: the voter denies its vote if its own log is more up to date than that of the candidate."""
    group = figure_7()
    given = {m.source for m in group.sent if isinstance(m, PreVoteResponse) and m.granted}
    assert given == set("abef")


def test_figure_7_each_announcement_has_exactly_the_point_at_which_the_logs_part() -> None:
    """§5.3: the leader must find the latest log entry where the two logs agree.

    Here it does so from the histories, at once.
    """
    group = figure_7()
    group.run(10)
    told = {m.target: m.start for m in reversed(group.sent) if isinstance(m, Announcement)}
    assert told == POINTS


def test_figure_7_every_log_becomes_the_leaders_and_no_matching_record_is_sent_again() -> None:
    """§5.3: delete any entries in the follower's log after that point, send all of the leader's after it."""
    group = figure_7()
    group.run(10)
    expected = group["leader"].disk.records()
    assert {me: group[me].disk.records() for me in "abcdef"} == dict.fromkeys("abcdef", expected)
    first = {m.target: m.start for m in reversed(group.sent) if isinstance(m, AppendRequest) and m.source == "leader"}
    assert first == {me: point for me, point in POINTS.items() if point <= len(expected)}
    assert commit_index(group, "leader") == 10


def figure_8() -> Group:
    """Return the figure at (c): S1 leads term 4 and has sent its record 2.2 to S2 and S3; S5 holds 3.2."""
    group = Group(
        [NodeId(me) for me in ("S1", "S2", "S3", "S4", "S5")],
        options=SYNC_ONLY,
        disks={
            NodeId("S1"): disk_of(1, 2, term=3),
            NodeId("S2"): disk_of(1, 2),
            NodeId("S3"): disk_of(1, term=3),
            NodeId("S4"): disk_of(1, term=3),
            NodeId("S5"): disk_of(1, 3),
        },
    )
    for me in ("S2", "S3", "S4"):
        age(group[me].core, 10)
    group.crash("S5")
    group.campaign("S1")
    while group["S1"].core.role is not Role.LEADER:
        group.deliver((VoteResponse,))
        group.deliver(target="S2")
        group.deliver(target="S3")
        group.deliver(target="S1")
    group.drop(source="S1", target="S4")
    group.crash("S4")
    return group


def figure_8_with_the_old_record_on_a_majority() -> Group:
    """Return the figure's group after S3 and S4 accepted S1's announcement of term 4; both hold 2.2, as S1 does.

    S1's log is 1.1 2.2 2.3, so its term starts at index 4, which only S1 has reached. S5 holds 1.1 3.2.
    """
    group = Group(
        [NodeId(me) for me in ("S1", "S2", "S3", "S4", "S5")],
        options=SYNC_ONLY,
        disks={
            NodeId("S1"): disk_of(1, 2, 2, term=3),
            NodeId("S2"): disk_of(1, term=3),
            NodeId("S3"): disk_of(1, 2, term=3),
            NodeId("S4"): disk_of(1, 2, term=3),
            NodeId("S5"): disk_of(1, 3),
        },
    )
    for me in ("S2", "S5"):
        group.crash(me)
    for me in ("S3", "S4"):
        age(group[me].core, 10)
    group.campaign("S1")
    while len(group.matching(AnnouncementResponse)) < 2:
        group.deliver()
    group.deliver(AnnouncementResponse)
    group.drop()
    leader = group["S1"].core
    assert leader.leading.term_start == 4
    assert [leader.leading.progress[NodeId(me)].counted_end for me in ("S3", "S4")] == [3, 3], "2.2 is on three of five"
    return group


def test_figure_8_a_record_of_an_old_term_on_a_majority_is_not_committed_by_that() -> None:
    """§5.4.2: a leader cannot immediately conclude that an entry from a previous term is committed.

    It would be wrong because S5 can still win with the votes of S2, S3 and S4, and then overwrites 2.2.
    """
    group = figure_8_with_the_old_record_on_a_majority()
    assert commit_index(group, "S1") == 0
    group.crash("S1")
    group.start("S2")
    group.start("S5")
    while group["S5"].core.role is not Role.LEADER:
        for me in ("S2", "S3", "S4"):
            age(group[me].core, 10)
            group[me].core.election_ticks = 50
        group.campaign("S5")
        group.settle()
    group.run(10)
    assert group["S3"].disk.records() == ["1.1", "3.2"]


def test_figure_8_with_counting_alone_the_overwritten_record_was_committed() -> None:
    """The same scenario against the mutant: without the term start S1 commits 2.2."""
    with (
        CATALOGUE["commit-by-counting"].plant(),
        pytest.raises(BrokenInvariantError, match="CommitOnQuorum: S1 commits up to 3"),
    ):
        figure_8_with_the_old_record_on_a_majority()


def test_figure_8_the_old_record_is_committed_once_a_majority_has_reached_the_term_start() -> None:
    group = figure_8_with_the_old_record_on_a_majority()
    for _ in range(10):
        group.tick("S1")
        group.settle("S1", "S3", "S4")
    assert commit_index(group, "S1") == 3


def test_figure_8_before_a_quorum_reached_the_term_the_other_log_may_win() -> None:
    """(d): S1 dies, S5 is elected by S3 and S4 and overwrites 2.2, which was never committed."""
    group = figure_8()
    group.drop()
    group.crash("S1")
    group.start("S4")
    group.start("S5")
    while group["S5"].core.role is not Role.LEADER:
        for me in ("S3", "S4"):
            age(group[me].core, 10)
        group.campaign("S5")
        group.settle("S3", "S4", "S5")
    group.run(10, "S2", "S3", "S4", "S5")
    assert group["S2"].disk.records() == ["1.1", "3.2"]
    assert commit_index(group, "S5") == 2


def test_figure_8_once_a_quorum_has_reached_the_term_start_the_other_log_cannot_win() -> None:
    """Part (e) of the figure: a record that is committed can no longer be overwritten by S5.

    In the paper S1 has to replicate a record of its new term 4. Here S2 and S3 only have to reach the start of that
    term, by S1's announcement, because from then on they grant no vote to S5.
    """
    group = figure_8()
    for _ in range(10):
        group.tick("S1")
        group.settle("S1", "S2", "S3")
    assert commit_index(group, "S1") == 2
    assert group["S2"].core.pair[0] == group["S1"].core.term
    group.crash("S1")
    group.start("S4")
    group.start("S5")
    for _ in range(5):
        for me in ("S2", "S3", "S4"):
            age(group[me].core, 10)
            group[me].core.election_ticks = 50
        group.campaign("S5")
        group.settle()
        assert group["S5"].core.role is not Role.LEADER
    group.run(80)
    assert {tuple(member.disk.records()) for member in group.up()} == {("1.1", "2.2")}


def hazard_of_the_strict_comparison() -> None:
    """Run the 17 steps by which a model checker reached a committed record that the leader lacks.

    n3 leads term 2 with a record of its own; n1 leads term 3, proposes nothing and commits its old 1.2 with n2. Then n3
    campaigns again with the pair (2, 3). n2 has reached the start of term 3, but holds no record of it.
    """
    group = Group(
        3,
        options=SYNC_ONLY,
        disks={NodeId("n1"): disk_of(1, 1, term=2), NodeId("n2"): disk_of(1, term=2), NodeId("n3"): disk_of(1, 2)},
    )
    group.crash("n3")
    group.elect("n1")
    group.run(4)
    assert commit_index(group, "n1") == 2
    group.crash("n1")
    group.start("n3")
    for _ in range(5):
        age(group["n2"].core, 10)
        group["n2"].core.election_ticks = 50
        group.campaign("n3")
        group.settle()
        assert group["n3"].core.role is not Role.LEADER


def test_the_boundary_of_the_advertised_history_is_included() -> None:
    hazard_of_the_strict_comparison()


def test_with_a_strict_comparison_a_committed_record_is_overwritten() -> None:
    """The same scenario against the mutant: only this comparison prevents the loss."""
    with (
        CATALOGUE["strictly-advertised"].plant(),
        pytest.raises(BrokenInvariantError, match="LeaderComplete"),
    ):
        hazard_of_the_strict_comparison()


def hazard_of_the_history_first() -> None:
    """Run a crash between the announcement's two writes, with the cut of the log last, as a model checker found it.

    n1 holds an uncommitted 1.1 1.2; n2 and n3 hold the committed 2.1. n2 announces term 3 to n1, which dies between
    its two durable steps and then stands for election itself.
    """
    group = Group(
        3,
        options=SYNC_ONLY,
        disks={NodeId("n1"): disk_of(1, 1), NodeId("n2"): disk_of(2), NodeId("n3"): disk_of(2)},
    )
    group.crash("n1")
    group.elect("n2")
    group.run(4)
    assert commit_index(group, "n2") == 1
    group.start("n1")
    while not group.matching(Announcement, target="n1"):
        group.tick("n2")
        group.deliver(target="n1")
        group.deliver(target="n2")
    group.is_quick_disk = False
    group.deliver(Announcement, target="n1")
    group.crash("n1", durable_writes=1)
    group.is_quick_disk = True
    group.crash("n2")
    group.start("n1")
    for _ in range(5):
        age(group["n3"].core, 10)
        group["n3"].core.election_ticks = 50
        group.campaign("n1")
        group.settle()
        assert group["n1"].core.role is not Role.LEADER
    assert group["n3"].disk.records() == ["2.1"]


def test_a_crash_between_truncation_and_history_loses_nothing() -> None:
    hazard_of_the_history_first()


def test_with_the_history_first_the_same_crash_is_found() -> None:
    """The restarted member would advertise term 3 for records of term 1 and overwrite the committed one."""
    with CATALOGUE["history-first"].plant(), pytest.raises(BrokenInvariantError, match="HistoryTrue"):
        hazard_of_the_history_first()
