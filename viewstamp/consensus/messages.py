"""The messages between the members of a group.

Every message names its source, its target and the term its source is in. All of them may be lost, doubled,
late or out of order; each docstring says why that is harmless. ``number`` is the leader's count of its
announcements to that member: a message that belongs to an older announcement is dropped (protocol rule 6).
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

Frames, the log and the control file carry at least 63 bits. So what a member computes from such numbers can be written
too: one more than one of them, or the sum of two.
"""


@value_class
class Message:
    """The fields of all messages."""

    source: NodeId
    target: NodeId
    term: Term


@value_class
class PreVoteRequest(Message):
    """Asks whether the target would vote for the source in ``term``, one above its own. Changes nothing durable.

    Sent by a member that has received nothing from a leader for an election timeout. Lost or late: it asks again after
    the next timeout.
    """

    last_term: Term
    end: Index


@value_class
class PreVoteResponse(Message):
    """Granted: ``term`` is the one that was asked for. Refused: ``term`` is the voter's own.

    ``is_recovering``: as in :class:`VoteResponse`.
    """

    granted: bool
    is_recovering: bool = False


@value_class
class VoteRequest(Message):
    """Asks for the vote in ``term``. Sent once the candidate's own vote is durable.

    ``(last_term, end)`` is the pair that the candidate advertises. Doubled: a voter gives its one vote of a term
    to the same candidate again. ``transfers``: the leader itself has asked the candidate to stand, so members with a
    live leader vote too.
    """

    last_term: Term
    end: Index
    transfers: bool = False


@value_class
class VoteResponse(Message):
    """A vote or its refusal, once it is durable, with the advertised history and end that the winner starts from.

    The end never counts as an acknowledgement (protocol rule 7). ``is_recovering``: the voter lost power in interval
    mode and has not regained its log, so this vote counts only under the conditions of ``standing`` (docs/design/0007).
    """

    granted: bool
    history: TermHistory
    end: Index
    is_recovering: bool = False


@value_class
class HistoryRequest(Message):
    """The leader of ``term`` asks for the history of a member. Repeated until the member answers."""

    number: int


@value_class
class HistoryResponse(Message):
    """The member's advertised history and durable end, once ``term`` is durable there.

    Also sent unasked (``number`` 0) by a member that gets a message of a leader whose announcement it has not taken,
    and instead of taking an announcement whose point does not fit its present state. ``life`` is drawn at each start
    of a member that lost power in interval mode, and 0 on all others: the leader returns it in its announcement.
    """

    number: int
    history: TermHistory
    end: Index
    life: int = 0


@value_class
class Announcement(Message):
    """The leader of ``term`` sends its history, and ``start``, where the member's log continues: what is beyond is cut.

    The member computes the point again from its own state and refuses a mismatch; refuses to cut below its
    commit; then in three durable steps: takes the term, truncates and syncs the log, stores the history.
    Doubled or late: the point of a member that has gone on is another one, so it is refused, harmlessly.

    ``leader_end`` is the end of the leader's log when it received the history of ``life``. Whatever an earlier life of
    the member acknowledged in this term is below it, because the leader had sent it. Late, it names another life, and
    the member ignores the end.
    """

    number: int
    history: TermHistory
    start: Index
    life: int = 0
    leader_end: Index = Index(0)


@value_class
class AnnouncementResponse(Message):
    """All three steps of the announcement are durable; the log ends at ``end``. From here on appends are accepted.

    ``is_recovering``, here and below: the disk of the member has lost something that it may have acknowledged before.
    It takes batches, and its ends do not count until it holds as much as it did (protocol rule 17).
    """

    number: int
    end: Index
    is_recovering: bool = False


@value_class
class SnapshotOffer(Message):
    """The leader's log begins behind the point where the member's could go on: its snapshot holds all before ``end``.

    ``last_term`` is the term of the record before ``end``. The member fetches it on a connection of its own, installs
    it, and reports its new state when it is asked the next time. Lost or doubled: the leader asks a member whose state
    does not help at each heartbeat, and offers again; one that is fetching already goes on.
    """

    end: Index
    last_term: Term


@value_class
class AppendRequest(Message):
    """Append ``batches`` at ``start``, exactly the end of the log; all before ``commit_end`` is committed.

    ``previous_term`` is the term of the record before ``start``. Doubled: wholly below the end, answered with
    the end. One lost: the next is beyond the end, answered with the end, and the leader moves back.
    """

    number: int
    start: Index
    previous_term: Term
    commit_end: Index
    batches: tuple[Batch, ...]


@value_class
class AppendResponse(Message):
    """The log is durable up to ``end`` and received up to ``received_end``; cumulative, so a lost one does not matter.

    ``rejected``: an append did not start at the end; the leader goes on from ``received_end``.
    """

    number: int
    end: Index
    received_end: Index
    rejected: bool
    is_recovering: bool = False


@value_class
class HeartbeatRequest(Message):
    """The leader still leads; all before ``commit_end`` is committed, and all before ``sent_end`` was sent.

    ``round`` numbers the leader's checks that it still leads; a response confirms the reads that came before it.
    """

    number: int
    commit_end: Index
    sent_end: Index
    round: int


@value_class
class HeartbeatResponse(Message):
    """The heartbeat was received in this term. Sent at once; ``end`` is durable: it replaces a lost AppendResponse."""

    number: int
    end: Index
    round: int
    is_recovering: bool = False


@value_class
class ReadIndexRequest(Message):
    """A member asks its leader for the index that it must have applied before it may answer the reads of ``token``."""

    token: int


@value_class
class ReadIndexResponse(Message):
    """The index for the reads of ``token``, confirmed by a quorum after the request. Lost: the member asks again."""

    token: int
    index: Index


@value_class
class TermResponse(Message):
    """The target's term is too low. Sent for any request of a lower term, so that the two do not ignore each other."""


@value_class
class TimeoutNow(Message):
    """The target holds all that the leader holds, and is to stand for election without a pre-vote (Raft thesis 3.10).

    Lost: the leader repeats it at each heartbeat, and leads on after an election timeout. Late: an election more.
    """


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
    BatchesRead,
)
"""Every message there is, in the order of the dispatch table."""
