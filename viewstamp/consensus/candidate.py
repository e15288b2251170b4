"""Elections, from both sides: a candidate asks for pre-votes, which change nothing, then for votes; a voter answers.

Every role answers candidates in the same way. So does a member that is no voter in its own membership, because it may
be a voter and not have that record yet: if it did not answer, the group could wait for it for ever (protocol rule 14).
Candidates count only the voters that their own membership names.
"""

from __future__ import annotations

from viewstamp.consensus import follower, leader, lease, standing
from viewstamp.consensus.messages import (
    PreVoteRequest,
    PreVoteResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.state import Campaign, CampaignPhase, Core
from viewstamp.ids import NodeId, Term

__all__ = [
    "is_up_to_date",
    "on_pre_vote_request",
    "on_pre_vote_response",
    "on_timeout_now",
    "on_vote_request",
    "on_vote_response",
    "start",
]


# -- Voting ------------------------------------------------------------------------------------------------------------


def is_up_to_date(core: Core, message: PreVoteRequest | VoteRequest) -> bool:
    """Return whether the candidate's advertised pair is at least the own one (design §4); lengths do not decide."""
    return standing.is_up_to_date((message.last_term, message.end), core.pair)


def on_pre_vote_request(core: Core, message: PreVoteRequest) -> None:
    """Respond whether this member would vote; this changes nothing here, not even a timer (rule 13)."""
    if not standing.may_vote(core.recovering_until, lost_power=core.lost_power):
        return
    may_vote = message.term > core.term and not core.has_live_leader and not lease.is_promised(core)
    granted = may_vote and is_up_to_date(core, message)
    core.output.messages.append(
        PreVoteResponse(
            source=core.me,
            target=message.source,
            term=message.term if granted else core.term,
            granted=granted,
            is_recovering=core.recovering_until is not None,
        )
    )


def on_vote_request(core: Core, message: VoteRequest) -> None:
    """Give the one vote of a term, or refuse it.

    Order: the log is synced (the request waits for it), then term and vote are made durable as one write,
    then the response is sent (rule 2). If the process dies in between, the vote may be stored and never sent; it is
    given to the same candidate when that asks again.
    """
    if message.term < core.term:
        core.answer_term(message)
        return
    if not standing.may_vote(core.recovering_until, lost_power=core.lost_power):
        return  # This member may have lost a record that the candidate lacks (rule 17).
    if message.term > core.term and core.has_live_leader and not message.transfers:
        return  # A candidate that cannot reach the leader must not depose it (Raft §6, thesis 4.2.3).
    is_given = message.term == core.term and core.vote == message.source
    if lease.is_promised(core) and not message.transfers and not is_given:
        return  # The leader may still answer reads by its lease.
    if not core.is_synced:
        core.stash_until_synced(message)
        return
    # A vote that was given stays, even if this log has grown since.
    may_vote = message.term > core.term or core.vote == ""
    granted = is_given or (may_vote and is_up_to_date(core, message))
    if message.term > core.term:
        follower.step_down(core, message.term, vote=message.source if granted else "")
    elif granted and core.vote == "":
        core.store_term(core.term, message.source)
    if granted:
        core.restart_election_timer()
    _send_vote(core, message.source, granted=granted)


def _send_vote(core: Core, candidate: NodeId, *, granted: bool) -> None:
    core.send_after_durable(
        VoteResponse(
            source=core.me,
            target=candidate,
            term=core.term,
            granted=granted,
            history=core.advertised,
            end=core.log.durable_end,
            is_recovering=core.recovering_until is not None,
        )
    )


# -- Standing for election ---------------------------------------------------------------------------------------------


def start(core: Core) -> None:
    """Ask for pre-votes. If the log is not synced, or the member is installing, it waits one more tick."""
    if not _may_stand(core):
        return
    before = core.state
    if isinstance(before, Campaign) and before.phase is CampaignPhase.VOTE:
        # A majority had granted the pre-vote but did not answer in time, so the next vote gets more time.
        for voter in _other_voters(core):
            if voter not in before.votes:
                core.patience.note(voter, core.ticks_since_leader)
    follower.step_down(core, core.term)
    is_recovering = core.recovering_until is not None
    core.become(
        Campaign(CampaignPhase.PRE_VOTE, votes={core.me: True}, recovering_votes={core.me} if is_recovering else set())
    )
    core.restart_election_timer()
    last_term, end = core.pair
    term = Term(core.term + 1)
    for voter in _other_voters(core):
        core.output.messages.append(
            PreVoteRequest(source=core.me, target=voter, term=term, last_term=last_term, end=end)
        )
    _maybe_start_vote(core)


def on_timeout_now(core: Core, message: TimeoutNow) -> None:
    """Ask for votes immediately, without pre-votes, because the leader itself requests the election."""
    if message.source != core.leader or not _may_stand(core, transfers=True):
        return
    follower.step_down(core, core.term)
    _start_vote(core, transfers=True)


def on_pre_vote_response(core: Core, message: PreVoteResponse) -> None:
    """Count a pre-vote; a quorum of them starts the vote."""
    campaign = core.state
    if not isinstance(campaign, Campaign) or campaign.phase is not CampaignPhase.PRE_VOTE:
        return
    if (message.granted and message.term != core.term + 1) or not _counts(core, message.source):
        return
    campaign.votes[message.source] = message.granted
    if message.is_recovering:
        campaign.recovering_votes.add(message.source)
    if not _maybe_give_up(core, campaign):
        _maybe_start_vote(core)


def on_vote_response(core: Core, message: VoteResponse) -> None:
    """Count a vote. Late and doubled votes change nothing; a changed vote is refused, because its sender is broken."""
    core.note_vote_delay(message)
    campaign = core.state
    if not isinstance(campaign, Campaign) or campaign.phase is not CampaignPhase.VOTE:
        return
    if not _counts(core, message.source):
        return
    if campaign.votes.get(message.source, message.granted) != message.granted:
        core.refuse(message.source, "one-vote", f"{message.source} changed its vote")
    campaign.votes[message.source] = message.granted
    campaign.vote_responses[message.source] = message
    if message.is_recovering:  # Its log was compared while it was recovering, even if it has recovered since.
        campaign.recovering_votes.add(message.source)
    if _wins(core, campaign):
        leader.become_leader(core, campaign, elected_without=_missing(core, campaign))
    else:
        _maybe_give_up(core, campaign)


def _maybe_give_up(core: Core, campaign: Campaign) -> bool:
    """Step down if the members that have not refused are no quorum; return whether this happened.

    It does not wait for the timeout, because a follower answers and follows others without delay.
    """
    refused = _voted(campaign, granted=False)
    if standing.is_majority(core.membership, core.membership.electors.keys() - refused):
        return False
    follower.step_down(core, core.term)
    return True


def _maybe_start_vote(core: Core) -> None:
    if isinstance(core.state, Campaign) and _wins(core, core.state) and core.is_synced:
        _start_vote(core, transfers=False)


def _wins(core: Core, campaign: Campaign) -> bool:
    has_waited = core.leaderless_ticks >= core.options.wait_all_ticks
    granted = _voted(campaign, granted=True)
    return standing.wins(core.membership, granted, campaign.recovering_votes, has_waited=has_waited)


def _missing(core: Core, campaign: Campaign) -> tuple[NodeId, ...]:
    """Return the voters that granted no vote and may hold the last copy of acknowledged records.

    () = none, because the votes of members that lost power were not needed, or all such voters granted theirs.
    """
    granted = _voted(campaign, granted=True)
    is_sure = standing.wins(core.membership, granted, campaign.recovering_votes, has_waited=False)
    return () if is_sure else tuple(sorted(standing.may_have_acknowledged(core.membership).difference(granted)))


def _start_vote(core: Core, *, transfers: bool) -> None:
    core.become(Campaign(CampaignPhase.VOTE))
    core.restart_election_timer()  # The vote gets a full timeout, because the pre-vote may have used most of the last.
    core.announced_number = 0
    core.store_term(Term(core.term + 1), core.me)
    core.vote_term, core.vote_ticks = core.term, 0
    last_term, end = core.pair
    for voter in _other_voters(core):
        core.send_after_durable(
            VoteRequest(source=core.me, target=voter, term=core.term, last_term=last_term, end=end, transfers=transfers)
        )
    _send_vote(core, core.me, granted=True)  # The own vote counts when it is durable, like any other.


def _counts(core: Core, voter: NodeId) -> bool:
    return standing.vote_counts(core.membership, voter, core.me)


def _may_stand(core: Core, *, transfers: bool = False) -> bool:
    """Return whether this member may campaign now: it is an elector, synced, able to lead, and lost nothing.

    It also has no promise to the leader, unless the leader itself asked for the campaign (``transfers``).

    See rules 2, 14 and 17.
    """
    is_able = core.is_synced and not core.installing and core.has_room
    is_able = is_able and (transfers or not lease.is_promised(core))
    return is_able and standing.may_stand(core.me, core.memberships, core.recovering_until, lost_power=core.lost_power)


def _other_voters(core: Core) -> list[NodeId]:
    return [voter for voter in sorted(core.membership.electors) if voter != core.me]


def _voted(campaign: Campaign, *, granted: bool) -> list[NodeId]:
    return [voter for voter, vote in campaign.votes.items() if vote == granted]
