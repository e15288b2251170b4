"""Campaigning: first a pre-vote, which changes nothing, then the vote in a new term."""

from __future__ import annotations

from viewstamp.consensus import follower, leader, standing
from viewstamp.consensus.messages import (
    PreVoteRequest,
    PreVoteResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.state import Campaign, Core
from viewstamp.ids import NodeId, Term

__all__ = ["on_pre_vote_response", "on_timeout_now", "on_vote_response", "start"]


def start(core: Core) -> None:
    """Ask for pre-votes. A member whose log is not synced, or which is installing, waits one more tick."""
    if not _may_stand(core):
        return
    if core.campaign is Campaign.VOTE:
        # A majority would have voted and has not answered in time: the next vote gets longer.
        for voter in _other_voters(core):
            if voter not in core.votes:
                core.patience.note(voter, core.ticks_since_leader)
    follower.step_down(core, core.term)
    core.campaign = Campaign.PRE_VOTE
    core.votes = {core.me: True}
    core.recovering_votes = {core.me} if core.recovering_until is not None else set()
    core.restart_election_timer()
    last_term, end = core.pair
    for voter in _other_voters(core):
        core.send(PreVoteRequest(source=core.me, target=voter, term=Term(core.term + 1), last_term=last_term, end=end))
    _maybe_start_vote(core)


def on_timeout_now(core: Core, message: TimeoutNow) -> None:
    """Stand for election at once: the leader itself asks for it, so nobody's pre-vote is needed."""
    if message.source != core.leader or not _may_stand(core):
        return
    follower.step_down(core, core.term)
    _start_vote(core, transfers=True)


def on_pre_vote_response(core: Core, message: PreVoteResponse) -> None:
    """Count a pre-vote; a quorum of them starts the vote."""
    if core.campaign is not Campaign.PRE_VOTE or (message.granted and message.term != core.term + 1):
        return
    if not _counts(core, message.source):
        return
    core.votes[message.source] = message.granted
    if message.is_recovering:
        core.recovering_votes.add(message.source)
    if not _maybe_give_up(core):
        _maybe_start_vote(core)


def on_vote_response(core: Core, message: VoteResponse) -> None:
    """Count a vote. Late and doubled ones elect nobody; a changed one is a broken peer."""
    core.note_vote_delay(message)
    if core.campaign is not Campaign.VOTE or not _counts(core, message.source):
        return
    if core.votes.get(message.source, message.granted) != message.granted:
        core.refuse(message.source, "one-vote", f"{message.source} changed its vote")
    core.votes[message.source] = message.granted
    core.vote_responses[message.source] = message
    if message.is_recovering:  # Also where it says later that it is not: its log was compared while it was.
        core.recovering_votes.add(message.source)
    if _wins(core):
        _note_missing(core)
        leader.become_leader(core)
    else:
        _maybe_give_up(core)


def _maybe_give_up(core: Core) -> bool:
    """Step down if so many have refused that no quorum is left; return whether.

    At once and not when the timeout is over: a member that does not stand itself answers and follows without delay.
    """
    refused = _voted(core, granted=False)
    if standing.is_majority(core.membership, core.membership.electors.keys() - refused):
        return False
    follower.step_down(core, core.term)
    return True


def _maybe_start_vote(core: Core) -> None:
    if _wins(core) and core.is_synced:
        _start_vote(core, transfers=False)


def _wins(core: Core) -> bool:
    has_waited = core.leaderless_ticks >= core.options.wait_all_ticks
    return standing.wins(core.membership, _voted(core, granted=True), core.recovering_votes, has_waited=has_waited)


def _note_missing(core: Core) -> None:
    """Note which voters are missing, where that makes a difference: votes of members that lost power were needed."""
    granted = _voted(core, granted=True)
    is_sure = standing.wins(core.membership, granted, core.recovering_votes, has_waited=False)
    core.elected_without = () if is_sure else tuple(sorted(core.membership.electors.keys() - granted))


def _start_vote(core: Core, *, transfers: bool) -> None:
    core.campaign = Campaign.VOTE
    core.restart_election_timer()  # What the pre-vote took is not taken from the vote.
    core.votes = {}
    core.recovering_votes = set()
    core.vote_responses = {}
    core.announced_number = 0
    core.store_term(Term(core.term + 1), core.me)
    core.vote_term, core.vote_ticks = core.term, 0
    last_term, end = core.pair
    for voter in _other_voters(core):
        core.send_after_durable(
            VoteRequest(source=core.me, target=voter, term=core.term, last_term=last_term, end=end, transfers=transfers)
        )
    # One's own vote counts when it is durable, like any other.
    core.send_after_durable(
        VoteResponse(
            source=core.me,
            target=core.me,
            term=core.term,
            granted=True,
            history=core.advertised,
            end=end,
            is_recovering=core.recovering_until is not None,
        )
    )


def _counts(core: Core, voter: NodeId) -> bool:
    return standing.vote_counts(core.membership, voter, core.me)


def _may_stand(core: Core) -> bool:
    """Say whether this member may campaign now: an elector, synced, nothing lost, able to lead (rules 2, 14, 17)."""
    is_able = core.is_synced and not core.installing and core.has_room
    return is_able and standing.may_stand(core.me, core.memberships, core.recovering_until, lost_power=core.lost_power)


def _other_voters(core: Core) -> list[NodeId]:
    return [voter for voter in sorted(core.membership.electors) if voter != core.me]


def _voted(core: Core, *, granted: bool) -> list[NodeId]:
    return [voter for voter, vote in core.votes.items() if vote == granted]
