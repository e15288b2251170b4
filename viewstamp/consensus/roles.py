"""Roles, the lifecycle, and the table of what each role does with each message.

The table is data: ``docs/protocol.md`` prints it, a test proves that it covers every pair exactly once, and
:class:`~viewstamp.consensus.raft.Raft` dispatches by it. By the time it is consulted the term of the message
equals the core's (``raft.py`` has dealt with the others), votes and pre-votes excepted.
"""

from __future__ import annotations

from enum import Enum

from viewstamp.consensus import messages as m
from viewstamp.consensus.membership import Membership
from viewstamp.enums import fast_members
from viewstamp.ids import NodeId

__all__ = ["DISPATCH", "IGNORED", "IMPOSSIBLE", "Lifecycle", "Role", "describe_dispatch", "role_of"]


@fast_members
class Role(Enum):
    """What a member does in its group. Derived from (membership, leader, self), never stored."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEARNER = "learner"
    NON_PARTICIPANT = "non-participant"


@fast_members
class Lifecycle(Enum):
    """How far a member has come.

    BOOTSTRAPPING: replaying its log; it answers nobody. CONFIGURING: no client writes; a leader replicates the
    membership record of its term. RUNNING: that record is *committed*, as far as this member knows.
    """

    BOOTSTRAPPING = "bootstrapping"
    CONFIGURING = "configuring"
    RUNNING = "running"


def role_of(membership: Membership, me: NodeId, leader: NodeId | None, *, campaigning: bool) -> Role:
    """Derive a member's role (Kudu's ``GetConsensusRole``)."""
    if me in membership.electors:
        if leader == me:
            return Role.LEADER
        return Role.CANDIDATE if campaigning else Role.FOLLOWER
    return Role.LEARNER if me in membership.learners else Role.NON_PARTICIPANT


IGNORED = "ignored"
"""Harmless here: late, doubled, or meant for a role that this member no longer has."""

IMPOSSIBLE = "impossible"
"""Only a broken peer can cause it: two leaders in one term. Raises BrokenRuleError."""

_FOLLOWING = {
    m.PreVoteRequest: "voter.on_pre_vote_request",
    m.PreVoteResponse: IGNORED,
    m.VoteRequest: "voter.on_vote_request",
    m.VoteResponse: IGNORED,
    m.HistoryRequest: "follower.on_history_request",
    m.HistoryResponse: IGNORED,
    m.Announcement: "follower.on_announcement",
    m.AnnouncementResponse: IGNORED,
    m.SnapshotOffer: "follower.on_snapshot_offer",
    m.AppendRequest: "follower.on_append_request",
    m.AppendResponse: IGNORED,
    m.HeartbeatRequest: "follower.on_heartbeat_request",
    m.HeartbeatResponse: IGNORED,
    m.ReadIndexRequest: IGNORED,
    m.ReadIndexResponse: "follower.on_read_index_response",
    m.TermResponse: IGNORED,
    m.TimeoutNow: "candidate.on_timeout_now",
    m.BatchesRead: IGNORED,
}

DISPATCH: dict[Role, dict[type[m.Message], str]] = {
    Role.LEADER: {
        m.PreVoteRequest: "voter.on_pre_vote_request",
        m.PreVoteResponse: IGNORED,
        m.VoteRequest: "voter.on_vote_request",
        m.VoteResponse: "leader.on_vote_response",
        m.HistoryRequest: IMPOSSIBLE,
        m.HistoryResponse: "leader.on_history_response",
        m.Announcement: IMPOSSIBLE,
        m.AnnouncementResponse: "leader.on_announcement_response",
        m.SnapshotOffer: IMPOSSIBLE,
        m.AppendRequest: IMPOSSIBLE,
        m.AppendResponse: "leader.on_append_response",
        m.HeartbeatRequest: IMPOSSIBLE,
        m.HeartbeatResponse: "leader.on_heartbeat_response",
        m.ReadIndexRequest: "leader.on_read_index_request",
        m.ReadIndexResponse: IGNORED,
        m.TermResponse: IGNORED,
        m.TimeoutNow: IMPOSSIBLE,
        m.BatchesRead: "leader.on_batches_read",
    },
    Role.FOLLOWER: _FOLLOWING,
    Role.CANDIDATE: {
        **_FOLLOWING,
        m.PreVoteResponse: "candidate.on_pre_vote_response",
        m.VoteResponse: "candidate.on_vote_response",
        m.ReadIndexResponse: IGNORED,
    },
    Role.LEARNER: _FOLLOWING,
    Role.NON_PARTICIPANT: _FOLLOWING,
}
"""(role, message) → the handler ``module.function``, IGNORED or IMPOSSIBLE."""


def describe_dispatch() -> str:
    """Return the table as Markdown, a row for a message, a column for a role: ``docs/protocol.md`` holds it."""
    cells = {IGNORED: IGNORED, IMPOSSIBLE: f"**{IMPOSSIBLE}**"}
    header = ["message", *(role.value for role in Role)]
    rows = [header, ["---"] * len(header)]
    for kind in m.MESSAGES:
        found = [DISPATCH[role][kind] for role in Role]
        rows.append([f"`{kind.__name__}`", *(cells.get(cell, f"`{cell}`") for cell in found)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
