"""Election timeouts follow the measured delays, within bounds, and equal the setting on a good network."""

import pytest

from tests.consensus.group import OPTIONS, Group, phase_of
from viewstamp.consensus.messages import HeartbeatRequest, PreVoteRequest, PreVoteResponse, VoteRequest, VoteResponse
from viewstamp.consensus.patience import Patience
from viewstamp.consensus.state import CampaignPhase
from viewstamp.ids import NodeId

LEAST = OPTIONS.election_timeout_ticks
N1, N2, N3 = (NodeId(f"n{number}") for number in (1, 2, 3))


def test_a_timeout_is_twice_the_longest_delay_within_its_bounds() -> None:
    patience = Patience(10, 100)
    assert patience.ticks == 10
    for delay, expected in [(5, 10), (6, 12), (20, 40), (8, 40), (60, 100), (200, 100)]:
        patience.note(N2, delay)
        assert patience.ticks == expected
    assert patience.scaled(8) == 80


def test_a_gap_longer_than_any_timeout_is_an_outage_and_no_delay() -> None:
    patience = Patience(10, 100)
    patience.note(N2, 201)
    assert patience.ticks == 10


def test_a_delay_is_forgotten_after_one_to_two_windows() -> None:
    patience = Patience(10, 100)
    patience.note(N2, 20)
    changed = [patience.tick() for _ in range(999)]
    assert (patience.ticks, any(changed)) == (40, False)
    assert patience.tick()
    assert (patience.ticks, patience.delays) == (10, {})


def test_on_a_good_network_no_delay_is_noted_and_every_timeout_is_drawn_from_the_setting() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(300)
    for member in group.up():
        assert member.core.patience.delays == {}
        assert LEAST <= member.core.draw_election_ticks() < 2 * LEAST


def test_a_follower_with_late_heartbeats_waits_longer_next_time() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    group["n2"].core.election_ticks = 99
    group.tick("n2", 9)
    group.tick("n1", OPTIONS.heartbeat_ticks)
    group.deliver(HeartbeatRequest, target="n2")
    core = group["n2"].core
    assert 16 <= core.patience.ticks <= 20
    assert core.patience.ticks <= core.election_ticks < 2 * core.patience.ticks, "drawn anew"


def test_a_follower_that_gave_up_its_leader_too_early_waits_longer_afterwards() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    group.tick("n2", 25)
    group.drop()
    assert group["n2"].core.leader is None
    group.tick("n1", OPTIONS.heartbeat_ticks)
    group.deliver(HeartbeatRequest, target="n2")
    assert group["n2"].core.leader == N1
    assert group["n2"].core.patience.ticks >= 50


def asked_for_votes(group: Group) -> None:
    group.campaign("n1")
    group.deliver(PreVoteRequest)
    group.deliver(PreVoteResponse)
    assert phase_of(group["n1"].core) is CampaignPhase.VOTE


def test_a_vote_has_a_timeout_of_its_own() -> None:
    """The candidate waits a whole election timeout for votes, however long it waited for pre-votes before."""
    group = Group(3)
    group.campaign("n1")
    group.tick("n1", group["n1"].core.election_ticks - 1)
    group.deliver(PreVoteRequest)
    group.deliver(PreVoteResponse)
    assert phase_of(group["n1"].core) is CampaignPhase.VOTE
    group.tick("n1", LEAST - 1)
    assert phase_of(group["n1"].core) is CampaignPhase.VOTE


@pytest.mark.parametrize("answers", ["never", "late"])
def test_a_vote_that_is_not_answered_in_time_gives_the_next_one_longer(answers: str) -> None:
    group = Group(3)
    asked_for_votes(group)
    waited = group["n1"].core.election_ticks
    group.tick("n1", waited)
    core = group["n1"].core
    assert (phase_of(core), core.term) == (CampaignPhase.PRE_VOTE, 1)
    assert core.patience.ticks == min(2 * waited, 10 * LEAST)
    if answers == "late":
        group.tick("n1", 5)
        group.deliver(VoteRequest)
        group.deliver(VoteResponse)
        assert core.patience.ticks == min(2 * (waited + 5), 10 * LEAST)
    assert core.term == 1, "late votes do not elect"


def test_a_dead_voter_does_not_make_the_others_wait_longer() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(5)
    group.crash("n3")
    group.run(200, "n1", "n2")
    assert [group[me].core.patience.ticks for me in ("n1", "n2")] == [LEAST, LEAST]
    assert group.leaders() == ["n1"]


def test_a_leader_whose_followers_answer_slowly_waits_longer_for_its_quorum() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    for _ in range(8):
        group.tick("n1", 8)
        group.settle()
    assert group.leaders() == ["n1"]
    assert group["n1"].core.patience.ticks > LEAST
