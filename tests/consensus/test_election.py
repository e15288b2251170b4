"""Elections: votes that are kept, logs that are compared, and groups that always find a leader again."""

import itertools
import random
from dataclasses import replace

import pytest

from tests.consensus.group import OPTIONS, Disk, Group, phase_of, record, with_slow_disks
from tests.consensus.test_announcement import disk_of
from viewstamp.consensus import candidate
from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.messages import (
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryRequest,
    PreVoteRequest,
    PreVoteResponse,
    TermResponse,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import WriteHistory, WriteTerm
from viewstamp.consensus.roles import Role
from viewstamp.consensus.state import CampaignPhase, SnapshotPoint, Stored
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import PeerError
from viewstamp.ids import Index, NodeId, Term

L1, L2 = NodeId("l1"), NodeId("l2")


def vote_request(source: str, term: int, *, last_term: int = 0, end: int = 1, target: str = "n1") -> VoteRequest:
    return VoteRequest(
        source=NodeId(source), target=NodeId(target), term=Term(term), last_term=Term(last_term), end=Index(end)
    )


def answers(group: Group, me: str = "n1") -> list[tuple[str, bool]]:
    return [(m.target, m.granted) for m in group.matching(VoteResponse, source=me) if isinstance(m, VoteResponse)]


def test_one_vote_in_a_term_also_after_a_restart() -> None:
    group = Group(3)
    group.step("n1", vote_request("n2", 5))
    group.step("n1", vote_request("n3", 5))
    assert answers(group) == [("n2", True), ("n3", False)]
    group.restart("n1")
    group.step("n1", vote_request("n3", 5))
    group.step("n1", vote_request("n2", 5))
    assert answers(group)[2:] == [("n3", False), ("n2", True)]


def test_a_vote_is_durable_before_it_is_sent() -> None:
    group = Group(3, is_quick_disk=False)
    group.step("n1", vote_request("n2", 5))
    assert answers(group) == []
    group.sync("n1")
    assert answers(group) == [("n2", True)]
    assert (group["n1"].disk.term, group["n1"].disk.vote) == (5, "n2")


def test_a_doubled_vote_request_does_not_get_its_answer_before_the_first_is_durable() -> None:
    """The second answer has no write of its own; it still waits for the first one's write."""
    group = Group(3, is_quick_disk=False)
    group.step("n1", vote_request("n2", 5))
    group.step("n1", vote_request("n2", 5))
    assert answers(group) == []
    group.crash("n1")
    group.start("n1")
    group.step("n1", vote_request("n3", 5))
    group.sync("n1")
    assert answers(group) == [("n3", True)]


def test_a_vote_is_repeated_even_after_the_voters_log_has_grown() -> None:
    """Its log may have grown since, by a fetched snapshot.

    And the candidate treats two different answers as a broken peer.
    """
    group = Group(3)
    group.step("n1", vote_request("n2", 5))
    assert answers(group) == [("n2", True)]
    group.messages.clear()
    membership = MembershipEntry(Index(1), Term(1), group.hint)
    history = TermHistory(((0, 1), (1, 1)))
    raft = group["n1"].raft
    assert raft is not None
    assert raft.install(
        SnapshotPoint(end=Index(4), last_term=Term(1), history=history, membership=membership, log_time=0)
    )
    group.after("n1")
    group.step("n1", vote_request("n2", 5))
    group.step("n1", vote_request("n3", 5))
    assert answers(group) == [("n2", True), ("n3", False)]


def test_the_log_is_synced_before_a_vote() -> None:
    """The voter compares the candidate's log with its whole log, so it first makes the unsynced end durable."""
    group = Group(3, is_quick_disk=False, disks={NodeId("n1"): disk_of(1)})
    group["n1"].core.append(record(1, 2))
    group.after("n1")
    group.step("n1", vote_request("n2", 5, last_term=1, end=2))
    assert group["n1"].core.term == 1
    group.sync("n1")
    assert answers(group) == [("n2", False)]
    assert group["n1"].disk.records() == ["1.1", "1.2"]


def test_a_vote_goes_to_the_larger_pair_and_never_to_the_longer_log() -> None:
    group = Group(3, disks={NodeId("n1"): disk_of(1, 3, term=3)})
    for last_term, end, granted in ((1, 99, False), (3, 2, False), (3, 3, True), (4, 1, True)):
        group.step("n1", vote_request("n2", group["n1"].core.term + 1, last_term=last_term, end=end))
        assert answers(group)[-1] == ("n2", granted), f"({last_term}, {end})"


def test_a_vote_response_carries_the_advertised_history_and_the_durable_end() -> None:
    ahead = disk_of(1, 1, term=4, history=[(0, 1), (1, 1), (2, 3), (4, 7)])
    group = Group(3, disks={NodeId("n1"): ahead})
    group.step("n1", vote_request("n2", 5, last_term=9))
    [answer] = group.matching(VoteResponse)
    assert isinstance(answer, VoteResponse)
    assert answer.history == TermHistory([(0, 1), (1, 1), (2, 3)])
    assert answer.end == 3


def test_a_candidate_counts_its_own_vote_when_it_is_durable() -> None:
    group = Group(1, is_quick_disk=False)
    group.campaign("n1")
    assert group["n1"].core.role is Role.CANDIDATE
    group.sync("n1", 1)
    assert group["n1"].core.role is Role.LEADER
    assert group["n1"].core.installing


def test_a_candidate_asks_for_votes_when_its_own_is_durable() -> None:
    group = Group(3, is_quick_disk=False)
    group.campaign("n1")
    group.deliver(PreVoteRequest)
    group.deliver(PreVoteResponse)
    assert group.matching(VoteRequest) == []
    group.sync("n1")
    assert len(group.matching(VoteRequest)) == 2


def test_a_pre_vote_changes_nothing_on_either_side() -> None:
    """It changes neither term nor vote, history or timer (rule 13)."""
    group = Group(3)
    group.tick("n2", 3)
    before = (group["n2"].core.ticks_since_leader, group["n2"].core.election_ticks)
    group.campaign("n1")
    group.deliver(PreVoteRequest)
    assert [(member.disk.term, member.disk.log) for member in group.up()] == [(0, [])] * 3
    assert (group["n2"].core.ticks_since_leader, group["n2"].core.election_ticks) == before
    assert group["n2"].core.term == 0


def test_a_member_with_a_leader_gives_no_pre_vote_and_no_vote() -> None:
    """A candidate that the leader's messages do not reach must not depose it."""
    group = Group(3)
    group.elect("n1")
    group.run(3)
    term = group["n2"].core.term
    group.campaign("n3")
    group.deliver(PreVoteRequest)
    assert [m.granted for m in group.matching(PreVoteResponse)] == [False, False]  # type: ignore[attr-defined]
    group.step("n2", vote_request("n3", term + 5, last_term=9, end=99, target="n2"))
    assert group["n2"].core.term == term
    assert answers(group, "n2") == []


def test_a_returning_member_does_not_disturb_a_live_leader() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    term = group["n1"].core.term
    group.run(60, "n1", "n2")
    group.tick("n3", 60)
    group.run(10)
    assert (group.leaders(), group["n1"].core.term) == (["n1"], term)


def test_a_leader_without_answers_steps_down() -> None:
    """Check-quorum: otherwise a leader with only outgoing links would keep the group useless for ever."""
    group = Group(3)
    group.elect("n1")
    group.run(3)
    for _ in range(25):
        group.tick("n1")
        group.drop(target="n1")
        group.deliver(target="n2")
        group.deliver(target="n3")
    assert group.leaders() == []


def test_a_leader_with_answers_of_a_quorum_stays() -> None:
    group = Group(5)
    group.elect("n1")
    group.crash("n4")
    group.crash("n5")
    group.run(60)
    assert group.leaders() == ["n1"]


def test_a_member_ahead_in_terms_and_a_leader_do_not_ignore_each_other_for_ever() -> None:
    """The member answers the lower term with its own, so the leader steps down; the next leads above both (rule 13)."""
    group = Group(3, disks={NodeId("n3"): Disk(term=Term(9), vote="n3")})
    group.elect("n1", "n1", "n2")
    assert group["n1"].core.term < 9
    for _ in range(80):
        group.run(1)
        if all(group.is_running(me) for me in group.members):
            break
    assert len(group.leaders()) == 1
    assert {member.core.term for member in group.up()} == {group[group.leaders()[0]].core.term}
    assert group[group.leaders()[0]].core.term > 9


def test_a_request_of_a_lower_term_is_answered_even_by_a_member_that_withholds_votes() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    group.step("n2", vote_request("n3", 0, target="n2"))
    assert [m.term for m in group.matching(TermResponse, target="n3")] == [group["n2"].core.term]


def test_a_restarted_leader_never_goes_on_in_its_stored_term() -> None:
    """It stored "term 1, vote: me". If it led on, it could write a second record with the same viewstamp (6 steps)."""
    group = Group(3)
    group.elect("n1")
    group.restart("n1")
    group.drop()
    assert group["n1"].core.role is Role.FOLLOWER
    votes = [
        VoteResponse(
            source=NodeId(me),
            target=NodeId("n1"),
            term=group["n1"].core.term,
            granted=True,
            history=TermHistory(),
            end=Index(1),
        )
        for me in ("n2", "n3")
    ]
    group.step("n1", *votes)
    assert group["n1"].core.role is Role.FOLLOWER
    term = group["n1"].core.term
    group.elect("n1")
    assert group["n1"].core.term > term


def test_a_restarted_voter_that_voted_for_itself_does_not_count_it() -> None:
    group = Group(3, disks={NodeId("n1"): Disk(term=Term(4), vote="n1")})
    group.campaign("n1")
    assert phase_of(group["n1"].core) is CampaignPhase.PRE_VOTE
    group.settle()
    assert group["n1"].core.term >= 5


def test_a_split_vote_ends_because_timeouts_are_drawn_anew() -> None:
    group = Group(4, seed=3)
    for me in group.members:
        group.campaign(me)
    group.settle()
    for _ in range(200):
        group.run(1)
        if len([me for me in group.leaders() if group.is_running(me)]) == 1:
            break
    assert len(group.leaders()) == 1


def test_late_and_doubled_votes_change_nothing_and_a_changed_one_is_a_broken_peer() -> None:
    group = Group(5)
    group.campaign("n1")
    group.deliver(PreVoteRequest)
    group.deliver(PreVoteResponse)
    group.deliver(VoteRequest, target="n2")
    [vote] = group.matching(VoteResponse, source="n2")
    assert isinstance(vote, VoteResponse)
    group.step("n1", vote)
    group.step("n1", vote)
    assert group["n1"].core.role is Role.CANDIDATE, "a vote counts once"
    with pytest.raises(PeerError, match="changed its vote"):
        group["n1"].raft.step(replace(vote, granted=False))  # type: ignore[union-attr]


def test_a_refused_candidate_stands_back_when_a_majority_has_refused() -> None:
    group = Group(3)
    group.campaign("n1")
    group.deliver(PreVoteRequest)
    group.deliver(PreVoteResponse)
    for me in ("n2", "n3"):
        group["n1"].raft.step(  # type: ignore[union-attr]
            VoteResponse(
                source=NodeId(me),
                target=NodeId("n1"),
                term=group["n1"].core.term,
                granted=False,
                history=TermHistory(),
                end=Index(1),
            )
        )
    assert group["n1"].core.role is Role.FOLLOWER


def candidate_after(voters: str, outgoing: str, answers: dict[str, bool], *, phase: CampaignPhase) -> Role:
    """Return the role of n1, a candidate in a membership, after ``answers`` to its pre-vote or its vote."""
    members = [{NodeId(f"n{number}"): "" for number in numbers} for numbers in (voters, outgoing)]
    stored = Stored(memberships=[MembershipEntry(Index(0), Term(0), Membership(members[0], outgoing=members[1]))])
    raft = Raft(NodeId("n1"), OPTIONS, stored, random.Random(0))
    core = raft.core
    raft.tick(0)
    core.ticks_since_leader = core.election_ticks
    candidate.start(core)
    if phase is CampaignPhase.VOTE and phase_of(core) is CampaignPhase.PRE_VOTE:
        candidate._start_vote(core, transfers=False)
    asked = Term(core.term + (phase is CampaignPhase.PRE_VOTE))
    while (ready := raft.ready()) is not None:  # Its own vote, once durable.
        if ready.durable is not None:
            raft.durable(ready.durable)
        for message in ready.messages_after_durable:
            raft.step(message)
    for name, granted in answers.items():
        source, target = NodeId(f"n{name}"), NodeId("n1")
        if phase is CampaignPhase.PRE_VOTE:
            term = asked if granted else Term(asked - 1)
            raft.step(PreVoteResponse(source=source, target=target, term=term, granted=granted))
        else:
            raft.step(
                VoteResponse(
                    source=source, target=target, term=asked, granted=granted, history=TermHistory(), end=Index(1)
                )
            )
        if phase_of(core) is not phase:
            break
    return Role.LEADER if phase_of(core) is CampaignPhase.VOTE and phase is CampaignPhase.PRE_VOTE else core.role


@pytest.mark.parametrize("phase", list(CampaignPhase))
@pytest.mark.parametrize(
    ("voters", "outgoing"), [("12", ""), ("123", ""), ("1234", ""), ("12345", ""), ("123", "124"), ("1", "123")]
)
def test_a_candidate_gives_up_exactly_when_no_further_answer_could_elect_it(
    voters: str, outgoing: str, phase: CampaignPhase
) -> None:
    """Every combination of answers, against all possible missing ones. Each half of a joint membership counts."""
    others = sorted({*voters, *outgoing} - {"1"})

    def elects(granted: set[str]) -> bool:
        return all(2 * len(granted & set(half)) > len(half) for half in (voters, outgoing) if half)

    for combination in itertools.product((None, False, True), repeat=len(others)):
        answers = {name: answer for name, answer in zip(others, combination, strict=True) if answer is not None}
        is_won = elects({"1", *(name for name, granted in answers.items() if granted)})
        can_win = elects({"1", *(name for name in others if answers.get(name, True))})
        expected = Role.LEADER if is_won else Role.CANDIDATE if can_win else Role.FOLLOWER
        assert candidate_after(voters, outgoing, answers, phase=phase) is expected, answers


def test_a_vote_that_comes_after_the_majority_serves_as_the_history_that_would_be_asked_for() -> None:
    group = Group(3)
    group.campaign("n1")
    group.deliver(PreVoteRequest)
    group.deliver(PreVoteResponse)
    group.deliver(VoteRequest)
    group.deliver(VoteResponse, source="n2")
    assert group["n1"].core.role is Role.LEADER
    asked = group.drop(HistoryRequest, target="n3")
    assert len(asked) == 1
    group.deliver(VoteResponse, source="n3")
    group.settle()
    assert group["n1"].core.leading.progress[NodeId("n3")].durable_end > 0


def won_with_a_pending_history() -> Group:
    """Return a group in which n1 has won an election, but the write of its history is not durable."""
    group = Group(3, is_quick_disk=False)
    group.campaign("n1")
    for _ in range(4):
        group.deliver()
        for me in ("n2", "n3"):
            group.sync(me)
        if group["n1"].core.role is not Role.LEADER:
            group.sync("n1", 1)
    return group


def test_a_leader_announces_only_when_its_own_history_is_durable() -> None:
    """Announced earlier, a crash could leave records of a term that its own history lacks (5 steps)."""
    group = won_with_a_pending_history()
    assert group["n1"].core.role is Role.LEADER
    assert [type(w) for p in group["n1"].queue for w in p.writes] == [WriteHistory]
    group.tick("n1", 8)
    assert group.matching(source="n1") == []
    group.sync("n1", 1)
    assert group.matching(source="n1") != []


def test_a_leader_that_steps_down_while_its_history_is_being_written_leads_no_more() -> None:
    group = won_with_a_pending_history()
    group.tick("n1", 25)
    assert group["n1"].core.role is Role.FOLLOWER
    group.sync("n1")
    assert group["n1"].core.role is Role.FOLLOWER
    assert not group["n1"].core.installing
    assert group.matching((HistoryRequest, HeartbeatRequest), source="n1") == []
    group.is_quick_disk = True
    group.run(60)
    assert len(group.leaders()) == 1


def test_a_deposed_leader_keeps_its_tail_until_an_announcement_cuts_it() -> None:
    """The tail may be on other disks, and may win (rule 10)."""
    group = with_slow_disks()
    group.propose("n1", b"tail")
    group.step("n1", TermResponse(source=NodeId("n2"), target=NodeId("n1"), term=Term(7)))
    core = group["n1"].core
    assert (core.role, core.log.end, core.log.durable_end) == (Role.FOLLOWER, 3, 2)
    group.step("n1", vote_request("n2", 8, last_term=1, end=2))
    group.sync("n1")
    assert answers(group) == [("n2", False)], "the tail was synced before the vote, and is longer"
    assert group["n1"].disk.end == 3


def test_a_non_voter_by_its_own_log_does_not_campaign_but_answers() -> None:
    """A learner may have become a voter by a record that its log lacks, and then the group may need its vote."""
    group = Group(3, learners=[NodeId("l1")])
    group.tick("l1", 60)
    assert group.matching(source="l1") == []
    group.step("l1", vote_request("n1", 5, target="l1"))
    assert answers(group, "l1") == [("n1", True)]


def test_a_learner_is_not_asked_for_its_vote() -> None:
    group = Group(3, learners=[L1, L2])
    group.campaign("n1")
    group.let_vote_for("n1")
    group.deliver()
    group.deliver()
    asked = {m.target for m in group.sent if isinstance(m, PreVoteRequest | VoteRequest)}
    assert asked == {"n2", "n3"}


def test_the_votes_of_learners_do_not_count() -> None:
    """A learner answers, because it may be a voter that has not received that record yet; a candidate ignores it."""
    group = Group(3, learners=[L1, L2])
    core = group["n1"].core
    group.campaign("n1")
    group.drop()
    term = Term(core.term + 1)
    for learner in (L1, L2):
        group.step("n1", PreVoteResponse(source=learner, target=NodeId("n1"), term=term, granted=True))
    assert (core.role, core.term) == (Role.CANDIDATE, 0), "one pre-vote of three, its own"
    group.step("n1", PreVoteResponse(source=NodeId("n2"), target=NodeId("n1"), term=term, granted=True))
    assert core.term == term, "a voter's makes two of three"
    for learner in (L1, L2):
        vote = VoteResponse(
            source=learner, target=NodeId("n1"), term=term, granted=True, history=TermHistory(), end=Index(1)
        )
        group.step("n1", vote)
    assert core.role is Role.CANDIDATE
    group.drop(VoteResponse, source="n1")
    group.let_vote_for("n1", "n2")
    group.deliver(VoteRequest, target="n2")
    group.deliver(VoteResponse, source="n2")
    assert core.role is Role.LEADER


def test_the_acknowledgements_of_learners_do_not_count() -> None:
    group = Group(3, learners=[NodeId("l1"), NodeId("l2")])
    group.elect("n1")
    group.run(3)
    group.crash("n2")
    group.crash("n3")
    group.propose("n1", b"a")
    group.deliver()
    assert [m.end for m in group.matching(AppendResponse)] == [3, 3]  # type: ignore[attr-defined]
    group.deliver(AppendResponse)
    assert group.values("n1") == []
    group.start("n2")
    group.run(8)
    assert group.values("l1") == group.values("n1") == [b"a"]


def test_an_acknowledgement_of_a_heartbeat_is_a_sign_of_life() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(2)
    group.tick("n1", 2)
    group.deliver(HeartbeatRequest)
    assert len(group.matching(HeartbeatResponse, target="n1")) == 2


def test_term_and_vote_are_one_durable_write() -> None:
    group = Group(3, is_quick_disk=False)
    group.step("n1", vote_request("n2", 5))
    assert [w for p in group["n1"].queue for w in p.writes] == [WriteTerm(Term(5), "n2")]


def test_terms_taken_in_one_turn_are_one_write_of_the_last() -> None:
    group = Group(3, is_quick_disk=False)
    group.step("n1", vote_request("n2", 5), vote_request("n3", 6))
    assert [w for p in group["n1"].queue for w in p.writes] == [WriteTerm(Term(6), "n3")]
    group.sync("n1")
    assert answers(group) == [("n2", True), ("n3", True)]


def test_a_member_that_loses_its_leader_writes_nothing_and_gives_its_vote_to_others() -> None:
    """The end of a connection proves nothing and changes nothing durable: it only ends a wait."""
    group = Group(3)
    group.elect("n1")
    group.run(2)
    before = group["n2"].core
    stored = (before.term, before.vote, before.history, before.log.end, before.announced_number)
    group.messages.clear()
    group.step("n2", vote_request("n3", 2, last_term=1, end=2, target="n2"))
    assert answers(group, "n2") == [], "it has a leader"
    group.lose("n2", "n3")
    group.step("n2", vote_request("n3", 2, last_term=1, end=2, target="n2"))
    assert answers(group, "n2") == [], "that is not its leader"
    group.lose("n2", "n1")
    core = group["n2"].core
    assert (core.term, core.vote, core.history, core.log.end, core.announced_number) == stored
    assert group.messages == []
    assert not group["n2"].queue
    group.step("n2", vote_request("n3", 2, last_term=1, end=2, target="n2"))
    assert answers(group, "n2") == [("n3", True)]


def test_a_leader_ignores_reports_of_its_own_death() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(2)
    group.lose("n1", "n1")
    group.lose("n1", "n2")
    assert group.is_running("n1")
    assert group["n1"].core.role is Role.LEADER


def test_members_that_lose_their_leader_campaign_one_after_another_and_learners_never() -> None:
    """They stand in the order of their names, a heartbeat apart, so that they do not split the votes."""
    group = Group(5, learners=[NodeId("l1")])
    group.elect("n2")
    group.run(2)
    group.crash("n2")
    stands = {}
    for me in ("n1", "n3", "n4", "n5", "l1"):
        group.lose(me, "n2")
        while group["n1"].core.options.election_timeout_ticks > stands.setdefault(me, 0) and not group.matching(
            PreVoteRequest, source=me
        ):
            group.tick(me)
            stands[me] += 1
    heartbeat = group["n1"].core.options.heartbeat_ticks
    assert stands == {"n1": 2, "n3": 2 + heartbeat, "n4": 2 + 2 * heartbeat, "n5": 2 + 3 * heartbeat, "l1": 10}
