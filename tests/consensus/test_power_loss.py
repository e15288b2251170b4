"""The rules for a member that lost power in interval mode, until it counts again (docs/design/0007)."""

from __future__ import annotations

import random

import pytest

from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    HeartbeatRequest,
    HistoryRequest,
    HistoryResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.state import RaftOptions, Stored
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Term

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
VOTERS = Membership({N1: "a", N2: "b", N3: "c"})
FOR_EVER = Index(2**62)
HISTORY = TermHistory([(0, 1), (1, 1)])


def recovering(*, lost_power: bool = True, history: TermHistory = HISTORY) -> Raft:
    """Return n2, which has lost all records that it accepted in term 1."""
    stored = Stored(
        term=Term(1),
        vote="n1",
        history=history,
        memberships=[MembershipEntry(Index(0), Term(0), VOTERS)],
        recovering_until=(Term(1), FOR_EVER),
        lost_power=lost_power,
    )
    return Raft(N2, RaftOptions(may_lose_acknowledged=True), stored, random.Random(1))


def turn(raft: Raft) -> list[Message]:
    """Perform the core's actions until there are none; return the sent messages."""
    sent: list[Message] = []
    while (ready := raft.ready()) is not None:
        sent += ready.messages
        if ready.durable is not None:
            raft.durable(ready.durable)
            sent += ready.messages_after_durable
    return sent


def announcement(life: int, end: int, number: int = 1) -> Announcement:
    return Announcement(
        source=N1,
        target=N2,
        term=Term(1),
        number=number,
        history=HISTORY,
        start=Index(1),
        life=life,
        leader_end=Index(end),
    )


def life_of(raft: Raft) -> int:
    raft.step(HistoryRequest(source=N1, target=N2, term=Term(1), number=0))
    [response] = [message for message in turn(raft) if isinstance(message, HistoryResponse)]
    return response.life


def test_the_end_of_a_leader_counts_for_the_life_that_asked_only() -> None:
    """A late announcement, for a life before the power loss, names an end below records acknowledged since."""
    raft = recovering()
    life = life_of(raft)
    assert life > 0
    raft.step(announcement(life + 1, end=1))
    assert [each.is_recovering for each in turn(raft) if isinstance(each, AnnouncementResponse)] == [True]
    assert raft.core.recovering_until == (1, FOR_EVER)
    raft.step(announcement(life, end=1, number=2))
    turn(raft)
    assert raft.core.recovering_until is None
    assert not raft.core.lost_power


def test_it_is_recovering_until_it_holds_the_leaders_records() -> None:
    raft = recovering()
    raft.step(announcement(life_of(raft), end=7))
    turn(raft)
    assert raft.core.recovering_until == (1, 7)
    raft.step(HeartbeatRequest(source=N1, target=N2, term=Term(1), number=1, commit_end=1, sent_end=1, round=0))  # type: ignore[arg-type]
    turn(raft)
    assert raft.core.recovering_until == (1, 7)


@pytest.mark.parametrize("lost_power", [True, False])
def test_its_vote_is_marked_and_a_damaged_member_does_not_vote(lost_power: bool) -> None:
    raft = recovering(lost_power=lost_power)
    raft.step(VoteRequest(source=N3, target=N2, term=Term(2), last_term=Term(1), end=Index(1)))
    votes = [each for each in turn(raft) if isinstance(each, VoteResponse)]
    assert [(each.granted, each.is_recovering) for each in votes] == ([(True, True)] if lost_power else [])


@pytest.mark.parametrize(
    ("votes", "recovering", "has_waited", "wins"),
    [
        ("n1 n2", "", False, True),
        ("n1 n2", "n2", False, False),
        ("n1 n2 n3", "n2", False, True),
        ("n1 n2 n3", "n1 n2 n3", False, True),
        ("n1 n2", "n2", True, True),
        ("n1 n2", "n1 n2", True, True),
        ("n2", "n2", True, False),
    ],
)
def test_votes_of_members_that_lost_power_count_if_all_grant_one_or_after_the_wait(
    votes: str, recovering: str, has_waited: bool, wins: bool
) -> None:
    named = [NodeId(vote) for vote in votes.split()]
    assert standing.wins(VOTERS, named, [NodeId(each) for each in recovering.split()], has_waited=has_waited) is wins
