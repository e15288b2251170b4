"""Answering candidates: the same for every role, also for one that is no voter in its own configuration.

A learner may be a voter that has not heard so yet; if it kept silent, the group could wait for it for ever
(protocol rule 14). Candidates count only the voters that they know.
"""

from __future__ import annotations

from viewstamp.consensus import follower, standing
from viewstamp.consensus.messages import PreVoteRequest, PreVoteResponse, VoteRequest, VoteResponse
from viewstamp.consensus.state import Core

__all__ = ["is_up_to_date", "on_pre_vote_request", "on_vote_request"]


def is_up_to_date(core: Core, message: PreVoteRequest | VoteRequest) -> bool:
    """Say whether the candidate's advertised pair is at least one's own (design §4): never "the longer log"."""
    return standing.is_up_to_date((message.last_term, message.end), core.pair)


def on_pre_vote_request(core: Core, message: PreVoteRequest) -> None:
    """Say whether one would vote; nothing changes here, not even a timer (rule 13)."""
    if not standing.may_vote(core.recovering_until, lost_power=core.lost_power):
        return
    granted = message.term > core.term and not core.hears_leader and is_up_to_date(core, message)
    core.send(
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

    Order: the log is synced (the question waits for it), then term and vote are made durable as one write,
    then the answer leaves (rule 2). Dying on the way: the vote may be stored and never said; it is given
    to the same candidate when it asks again.
    """
    if message.term < core.term:
        core.answer_term(message)
        return
    if not standing.may_vote(core.recovering_until, lost_power=core.lost_power):
        return  # It does not know any more what it had promised to whom (rule 17).
    if message.term > core.term and core.hears_leader and not message.transfers:
        return  # A candidate that cannot hear the leader must not depose it (Raft §6, thesis 4.2.3).
    if not core.is_synced:
        core.stash_until_synced(message)
        return
    is_given = message.term == core.term and core.vote == message.source  # Once given it is, whatever came since.
    may_vote = message.term > core.term or core.vote == ""
    granted = is_given or (may_vote and is_up_to_date(core, message))
    if message.term > core.term:
        follower.step_down(core, message.term, vote=message.source if granted else "")
    elif granted and core.vote == "":
        core.store_term(core.term, message.source)
    if granted:
        core.restart_election_timer()
    core.send_after_durable(
        VoteResponse(
            source=core.me,
            target=message.source,
            term=core.term,
            granted=granted,
            history=core.advertised,
            end=core.log.durable_end,
            is_recovering=core.recovering_until is not None,
        )
    )
