"""The messages between the members of a group.

Every message names its source, its target and the present term of its source. All of them may be lost, doubled, late
or out of order; each docstring gives the reason why that is harmless. ``number`` is the leader's count of its
announcements to that member. A message that belongs to an older announcement is dropped (protocol rule 6).
"""

from __future__ import annotations

from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Term
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch

__all__ = [
    "MESSAGES",
    "NUMBER_END",
    "Announcement",
    "AnnouncementResponse",
    "AppendRequest",
    "AppendResponse",
    "BatchesRead",
    "DurableNotice",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "HistoryRequest",
    "HistoryResponse",
    "Message",
    "PreVoteRequest",
    "PreVoteResponse",
    "ReadIndexRequest",
    "ReadIndexResponse",
    "SnapshotOffer",
    "TermResponse",
    "TimeoutNow",
    "VoteRequest",
    "VoteResponse",
]

NUMBER_END = 1 << 62
"""The terms, indices, counts and times in a message are below this.

Frames, the log and the control file carry at least 63 bits. So a member can also write the numbers that it computes
from them, for example one more than one of them, or the sum of two.
"""


@value_class
class Message:
    """The fields of all messages."""

    source: NodeId
    target: NodeId
    term: Term


@value_class
class PreVoteRequest(Message):
    """Asks whether the target would vote for the source in ``term``, one above the source's. Changes nothing durable.

    Sent by a member that has received nothing from a leader for an election timeout. If it is lost or late, the member
    asks again after the next timeout.
    """

    last_term: Term
    end: Index


@value_class
class PreVoteResponse(Message):
    """Grants or refuses a pre-vote. If granted, ``term`` is the requested one; if refused, the voter's own.

    ``is_recovering``: as in :class:`VoteResponse`.
    """

    granted: bool
    is_recovering: bool = False


@value_class
class VoteRequest(Message):
    """Asks for the vote in ``term``. Sent once the candidate's own vote is durable.

    ``(last_term, end)`` is the pair that the candidate advertises. If the request is doubled, a voter gives its one
    vote of the term to the same candidate again. ``transfers``: the leader itself has asked the candidate to campaign,
    so members with a live leader vote too.
    """

    last_term: Term
    end: Index
    transfers: bool = False


@value_class
class VoteResponse(Message):
    """A vote or its refusal, sent once it is durable, with the advertised history and end from which the winner starts.

    The end never counts as an acknowledgement (protocol rule 7). ``is_recovering``: the voter lost power in interval
    mode and has not regained its log, so this vote counts only under the conditions of ``standing`` (docs/design/0007).
    """

    granted: bool
    history: TermHistory
    end: Index
    is_recovering: bool = False


@value_class
class HistoryRequest(Message):
    """The leader of ``term`` asks for the history of a member. It is repeated until the member answers."""

    number: int


@value_class
class HistoryResponse(Message):
    """The member's advertised history and durable end, sent once ``term`` is durable there.

    Also sent without a request (``number`` 0) by a member that gets a message under an announcement that it has not
    accepted, and in answer to an announcement with a point that does not fit its present state. ``life`` is drawn at
    each start of a member that lost power in interval mode, and 0 on all others. The leader returns it in its
    announcement.
    """

    number: int
    history: TermHistory
    end: Index
    life: int = 0


@value_class
class Announcement(Message):
    """The leader of ``term`` sends its history, and ``start``, where the member cuts its log and continues it.

    The member computes the point again from its own state and refuses a mismatch, and refuses to cut below its commit
    end. Then, in three durable steps, it stores the term, truncates and syncs the log, and stores the history. A
    doubled or late announcement is harmless: it is ignored, or refused because the point of the member has moved since.

    ``leader_end`` is the end of the leader's log when it received the history of ``life``. All records that an earlier
    life of the member acknowledged in this term are below it, because the leader had sent them. A late announcement
    names another life, so the member ignores the end in it.
    """

    number: int
    history: TermHistory
    start: Index
    life: int = 0
    leader_end: Index = Index(0)


@value_class
class AnnouncementResponse(Message):
    """All three steps of the announcement are durable; the log ends at ``end``. From now on appends are accepted.

    ``is_recovering``, here and below: the disk of the member has lost data that it may have acknowledged before. It
    accepts batches, but its ends do not count until it has regained its pair from before the loss (protocol rule 17).
    """

    number: int
    end: Index
    is_recovering: bool = False


@value_class
class SnapshotOffer(Message):
    """The leader offers its snapshot, which holds all before ``end``, because its log begins behind the common point.

    ``last_term`` is the term of the record before ``end``. The member fetches it on a connection of its own, installs
    it, and reports its new state when it is asked the next time. A lost offer is repeated, because the leader asks a
    member that needs a snapshot at each heartbeat. A doubled one changes nothing for a member that is fetching already.
    """

    end: Index
    last_term: Term


@value_class
class AppendRequest(Message):
    """Append ``batches`` at ``start``, exactly the end of the log; all before ``commit_end`` is committed.

    ``previous_term`` is the term of the record before ``start``. A doubled request is wholly below the end, and is
    answered with the end. If one is lost, the next is beyond the end and answered with the end, so that the leader
    moves back.
    """

    number: int
    start: Index
    previous_term: Term
    commit_end: Index
    batches: tuple[Batch, ...]


@value_class
class AppendResponse(Message):
    """The log is durable up to ``end`` and received up to ``received_end``.

    Both are cumulative, so a lost response does not matter. ``rejected``: an append did not start at the end, or was
    lost; the leader continues from ``received_end``.
    """

    number: int
    end: Index
    received_end: Index
    rejected: bool
    is_recovering: bool = False


@value_class
class HeartbeatRequest(Message):
    """The leader still leads; all before ``commit_end`` is committed, and all before ``sent_end`` was sent.

    ``round`` numbers the leader's checks that it still leads. A response confirms the reads of that round and earlier
    ones.
    """

    number: int
    commit_end: Index
    sent_end: Index
    round: int


@value_class
class HeartbeatResponse(Message):
    """The heartbeat was received in this term. Sent immediately.

    ``end`` is durable, so it replaces a lost AppendResponse. ``promise_us``: the microseconds after the heartbeat in
    which the member elects no other leader (``lease``); 0 = it promises nothing.
    """

    number: int
    end: Index
    round: int
    is_recovering: bool = False
    promise_us: int = 0


@value_class
class ReadIndexRequest(Message):
    """A member asks its leader for the index that it must have applied before it may answer the reads of ``token``."""

    token: int


@value_class
class ReadIndexResponse(Message):
    """The index for the reads of ``token``, confirmed by a quorum after the request. If lost, the member asks again."""

    token: int
    index: Index


@value_class
class TermResponse(Message):
    """Answers any request of a term that is too low, so that the two members do not ignore each other for ever."""


@value_class
class TimeoutNow(Message):
    """Asks the target, which holds the leader's whole log, to campaign without a pre-vote (Raft thesis 3.10).

    The leader repeats it at each heartbeat, in case it is lost, and continues to lead after an election timeout. A late
    one costs one more election.
    """


@value_class
class DurableNotice(Message):
    """The log of the leader is durable up to ``end``. Sent to a member whose node waits for a record to be committed.

    If the two are a majority, the member finds what is committed without the leader (``follower.on_durable_notice``).
    A leader's log is never cut in its term, so a late or doubled notice is true. If it is lost, the member learns the
    commit end from the leader.
    """

    number: int
    end: Index


@value_class
class BatchesRead(Message):
    """From the node to its own core: the batches of a ``Fetch``, read from the log on disk for member ``member``."""

    member: NodeId
    number: int
    start: Index
    batches: tuple[Batch, ...]


MESSAGES: tuple[type[Message], ...] = (
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
    HistoryRequest,
    HistoryResponse,
    Announcement,
    AnnouncementResponse,
    SnapshotOffer,
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TermResponse,
    TimeoutNow,
    DurableNotice,
    BatchesRead,
)
"""All messages, in the order of the dispatch table."""
