"""The invariants themselves: each one reports exactly its own violation."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.consensus.group import Group, record
from viewstamp.consensus.invariants import (
    INVARIANTS,
    BrokenInvariantError,
    Durable,
    Facts,
    check,
    check_sent,
    check_stored,
    terms_of,
)
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    HistoryRequest,
    HistoryResponse,
    Message,
    VoteResponse,
)
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Term, Viewstamp


def running() -> Group:
    """n1 leads and has led two terms; two records are committed everywhere."""
    group = Group(3)
    group.elect("n1")
    group.elect("n2")
    group.elect("n1")
    group.run(3)
    group.propose("n1", b"a")
    group.propose("n1", b"b")
    group.run(3)
    group.check()
    return group


def two_leaders(group: Group) -> None:
    group["n2"].core.leader = NodeId("n2")


def commit_beyond_the_end(group: Group) -> None:
    group["n2"].core.log.commit_end = Index(99)


def window_miscounted(group: Group) -> None:
    group["n1"].core.leading.progress[NodeId("n2")].in_flight_bytes = 7


def another_past(group: Group) -> None:
    starts = group["n2"].core.history.starts
    group["n2"].core.history = TermHistory([*starts[:-2], starts[-1]])


def history_off_by_one(group: Group) -> None:
    core = group["n2"].core
    *before, (term, begin) = core.history.starts
    core.history = TermHistory([*before, (term, begin + 1)])
    group.facts.pasts.clear()


def another_record_at_a_viewstamp(group: Group) -> None:
    core = group["n2"].core
    core.log.append(record(core.term, core.log.end, b"mine"))
    group["n1"].core.log.append(record(core.term, core.log.end - 1, b"other"))


def commit_backwards(group: Group) -> None:
    log = group["n2"].core.log
    log.commit_end = log.handed_end = Index(2)


def another_committed_prefix(group: Group) -> None:
    group.facts.committed = group.facts.committed[:-1]
    group["n2"].core.history = TermHistory(group["n2"].core.history.starts)
    group.facts.seen.clear()


def cut_below_what_was_kept(group: Group) -> None:
    group.facts.kept_ends[NodeId("n3")] = Index(99)


def new_leader_without_the_committed(group: Group) -> None:
    core = group["n3"].core
    core.term = Term(9)
    core.leader = core.me
    group.facts.commits.append((Term(8), Index(99)))


def follower_ahead(group: Group) -> None:
    core = group["n2"].core
    core.log.append(record(core.term, core.log.end))


def acknowledged_and_lost(group: Group) -> None:
    group.facts.promised[NodeId("n3"), group["n3"].core.term] = Index(99)


def commit_alone(group: Group) -> None:
    group.crash("n2")
    group.crash("n3")
    group.propose("n1", b"c")
    core = group["n1"].core
    core.log.commit_end = core.log.end


@pytest.mark.parametrize(
    ("tamper", "invariant"),
    [
        (two_leaders, "OneLeader"),
        (commit_beyond_the_end, "CursorsOrdered"),
        (window_miscounted, "CursorsOrdered"),
        (another_past, "HistoriesAgree"),
        (history_off_by_one, "HistoryTrue"),
        (another_record_at_a_viewstamp, "LogMatching"),
        (commit_backwards, "CommittedStays"),
        (another_committed_prefix, "CommittedStays"),
        (cut_below_what_was_kept, "NeverCut"),
        (new_leader_without_the_committed, "LeaderComplete"),
        (acknowledged_and_lost, "AckKept"),
        (commit_alone, "CommitOnQuorum"),
        (follower_ahead, "FollowsLeader"),
    ],
)
def test_each_violation_is_found_and_named(tamper: Callable[[Group], None], invariant: str) -> None:
    group = running()
    tamper(group)
    with pytest.raises(BrokenInvariantError) as caught:
        group.check()
    assert caught.value.invariant == invariant


def test_a_leader_may_count_an_acknowledgement_in_the_turn_in_which_it_hears_of_a_newer_term() -> None:
    """The check sees a follower then, whose commit end nobody had before."""
    group = running()
    group.propose("n1", b"c")
    group.sync("n1")
    group.deliver(AppendRequest, target="n2")
    group.drop(AppendRequest, target="n3")
    group.sync("n2")
    acknowledged = group.drop(AppendResponse, source="n2", target="n1")
    group.let_vote_for("n2")
    group.campaign("n2")
    for _ in range(20):
        if asked := group.matching(HistoryRequest, source="n2", target="n1"):
            break
        for each in ("n3", "n2"):
            group.deliver(target=each)
            group.sync(each)
    before = group.facts.committed_end
    group.step("n1", *acknowledged, *asked)
    core = group["n1"].core
    assert (core.leader, core.log.commit_end) == ("n2", before + 1)


def test_every_invariant_of_a_core_is_shown_to_complain() -> None:
    shown = {"OneLeader", "CursorsOrdered", "HistoriesAgree", "HistoryTrue", "LogMatching", "CommittedStays"}
    assert set(INVARIANTS) == shown | {"NeverCut", "LeaderComplete", "AckKept"}


DISK = Durable(term=Term(3), vote="n2", history=TermHistory([(0, 1), (1, 1)]), end=Index(4))


def message(kind: type[Message], term: int, **fields: object) -> Message:
    return kind(source=NodeId("n1"), target=NodeId("n2"), term=Term(term), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sent", "invariant"),
    [
        (message(AppendResponse, 1, number=1, end=Index(5), received_end=Index(5), rejected=False), "AckDurable"),
        (message(AnnouncementResponse, 3, number=1, end=Index(4)), "AckDurable"),
        (message(VoteResponse, 4, granted=True, history=TermHistory(), end=Index(1)), "VoteDurable"),
        (message(VoteResponse, 4, granted=False, history=TermHistory(), end=Index(1)), "VoteDurable"),
        (message(HistoryResponse, 4, number=0, history=TermHistory(), end=Index(1)), "VoteDurable"),
        (message(Announcement, 3, number=1, history=TermHistory(), start=Index(1)), "AnnouncedDurable"),
    ],
)
def test_a_message_sent_before_its_write_is_durable_is_found_and_named(sent: Message, invariant: str) -> None:
    with pytest.raises(BrokenInvariantError) as caught:
        check_sent(Facts(), sent, DISK)
    assert caught.value.invariant == invariant


def test_two_votes_in_one_term_are_found_even_if_each_was_durable() -> None:
    facts = Facts()
    vote = message(VoteResponse, 3, granted=True, history=TermHistory(), end=Index(1))
    check_sent(facts, vote, DISK)
    with pytest.raises(BrokenInvariantError, match="votes for n2 and n3"):
        check_sent(facts, replace(vote, target=NodeId("n3")), replace(DISK, vote="n3"))


def test_a_stored_history_that_does_not_describe_the_stored_log_is_found() -> None:
    batches = [record(1, 1, previous_term=0), record(2, 2, previous_term=1)]
    check_stored("n1", TermHistory([(0, 1), (1, 1), (2, 2), (3, 9)]), batches)
    with pytest.raises(BrokenInvariantError, match="HistoryTrue"):
        check_stored("n1", TermHistory([(0, 1), (1, 1)]), batches)


def test_the_terms_of_a_log_are_those_that_have_records_below_its_end() -> None:
    history = TermHistory([(0, 1), (1, 1), (2, 3), (3, 3), (4, 5)])
    assert terms_of(history, Index(5)) == ((1, 1), (3, 3))
    assert terms_of(history, Index(6)) == ((1, 1), (3, 3), (4, 5))
    assert terms_of(history, Index(1)) == ()


def test_facts_outlive_a_restart() -> None:
    group = running()
    facts = group.facts
    leader = facts.leaders[group["n1"].core.term]
    group.restart("n1")
    assert facts.leaders[group["n1"].core.term] == leader
    assert facts.kept_ends[NodeId("n1")] == group["n1"].disk.end
    assert Viewstamp(Term(1), Index(1)) in facts.batches
    check(facts, [member.core for member in group.up()])
