"""Messages that break a rule are refused before they change anything; the member continues."""

from __future__ import annotations

import pytest

from tests.consensus.group import Group
from tests.consensus.test_changes import N1, N2, N3, knowing, started
from viewstamp.consensus.messages import (
    AppendRequest,
    HeartbeatRequest,
    Message,
    ReadIndexResponse,
    SnapshotOffer,
    TermResponse,
    VoteRequest,
)
from viewstamp.consensus.raft import Raft
from viewstamp.errors import BrokenRuleError
from viewstamp.ids import Index, NodeId, Term


def raft_of(group: Group, me: NodeId) -> Raft:
    raft = group[me].raft
    assert raft is not None
    return raft


def named() -> Group:
    """Return a group led by n1 in which each member's log names all three disks."""
    group = started()
    for me in (N1, N2, N3):
        knowing(group, me, N1, N2, N3)
    group.run(10)
    assert not any(group[me].core.is_newcomer for me in (N1, N2, N3))
    return group


def test_an_offer_of_another_than_the_leader_is_refused() -> None:
    group = started()
    raft = raft_of(group, N2)
    offer = SnapshotOffer(source=N3, target=N2, term=raft.core.term, end=Index(1000), last_term=raft.core.term)
    with pytest.raises(BrokenRuleError, match="both n1 and n3 lead") as refused:
        raft.step(offer)
    assert (refused.value.source, refused.value.rule) == (N3, "one-leader")
    assert raft.core.output.offer is None
    assert raft.core.leader == N1


@pytest.mark.parametrize("leap", [(1 << 32) + 1, 1 << 61])
def test_a_term_that_leaps_is_not_taken(leap: int) -> None:
    group = named()
    raft = raft_of(group, N1)
    term = Term(raft.core.term + leap)
    messages: list[Message] = [
        TermResponse(source=N2, target=N1, term=term),
        VoteRequest(source=N2, target=N1, term=term, last_term=term, end=Index(1 << 40), transfers=True),
        HeartbeatRequest(source=N2, target=N1, term=term, number=1, commit_end=Index(1), sent_end=Index(1), round=0),
    ]
    before = raft.core.term
    for message in messages:
        with pytest.raises(BrokenRuleError, match="rule term-leap"):
            raft.step(message)
    assert (raft.core.term, raft.core.leader) == (before, N1)


def test_a_term_that_a_lagging_member_may_meet_is_taken() -> None:
    group = named()
    raft = raft_of(group, N1)
    term = Term(raft.core.term + (1 << 32))
    raft.step(TermResponse(source=N2, target=N1, term=term))
    assert raft.core.term == term


def test_a_newcomer_takes_any_term_that_leaves_as_many_above_it() -> None:
    raft = raft_of(Group(3), N2)
    with pytest.raises(BrokenRuleError, match="rule term-leap"):
        raft.step(TermResponse(source=N1, target=N2, term=Term((1 << 61) + 1)))
    raft.step(TermResponse(source=N1, target=N2, term=Term(1 << 61)))
    assert raft.core.term == 1 << 61


def test_a_commit_end_inside_a_batch_is_refused() -> None:
    """It would be handed out for applying, but a part of a batch cannot be applied."""
    group = started()
    group.propose("n1", b"a", b"b", b"c")
    group.deliver(AppendRequest, target="n2")
    raft = raft_of(group, N2)
    core = raft.core
    end = core.log.end
    with pytest.raises(BrokenRuleError, match="rule boundary"):
        raft.step(
            HeartbeatRequest(
                source=N1,
                target=N2,
                term=core.term,
                number=core.announced_number,
                commit_end=Index(end - 1),
                sent_end=end,
                round=0,
            )
        )
    assert core.log.commit_end <= end - 3


def test_only_the_leader_answers_up_to_which_index_reads_may_go() -> None:
    group = started()
    group.propose("n1", b"a")
    group.deliver(AppendRequest, target="n2")
    raft = raft_of(group, N2)
    before = raft.core.log.commit_end
    raft.step(
        ReadIndexResponse(source=N3, target=N2, term=raft.core.term, token=1, index=Index(raft.core.log.end - 1)),
    )
    assert raft.core.log.commit_end == before < raft.core.log.end
    assert raft.core.output.reads == []
