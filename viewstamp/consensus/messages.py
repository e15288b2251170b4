"""What the members of a group say to each other.

Every message names its source, its target and the term its source is in. All of them may be lost, doubled,
late or out of order; each docstring says why that is harmless. ``number`` is the leader's count of its
announcements to that member: what belongs to an older announcement is dropped (protocol rule 6).
"""

from __future__ import annotations

from dataclasses import dataclass

from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Term
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

Frames, the log and the control file carry at least 63 bits. So whatever a member computes from such numbers can be
written too: one more than one of them, or the sum of two.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What all messages carry."""

    source: NodeId
    target: NodeId
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteRequest(Message):
    """Would you vote for me in ``term`` (one above my own)? Changes nothing durable on either side.

    Sent by a member whose leader has been silent. Lost or late: it asks again after the next timeout.
    """

    last_term: Term
    end: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteResponse(Message):
    """I would (``term`` is the one asked for), or I would not (``term`` is mine).

    ``is_recovering``: as in :class:`VoteResponse`.
    """

    granted: bool
    is_recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(Message):
    """Vote for me in ``term``. Sent once the candidate's own vote is durable.

    ``(last_term, end)`` is the pair that the candidate advertises. Doubled: a voter gives its one vote of a term
    to the same candidate again. ``transfers``: the leader itself has asked the candidate to stand, so also those who
    hear a leader vote.
    """

    last_term: Term
    end: Index
    transfers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(Message):
    """The answer, once it is durable, with the advertised history and the durable end: the winner starts from them.

    The end never counts as an acknowledgement (protocol rule 7). ``is_recovering``: the voter lost power in interval
    mode and has not regained its log, so this vote counts only under the conditions of ``standing`` (docs/design/0007).
    """

    granted: bool
    history: TermHistory
    end: Index
    is_recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest(Message):
    """I lead ``term``; tell me your history. Repeated to a member whose state is not known, until it answers."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResponse(Message):
    """My advertised history and durable end, once ``term`` is durable here.

    Also sent unasked (``number`` 0) by a member that hears from a leader whose announcement it has not taken, and
    instead of taking an announcement whose point does not fit its present state. ``life`` is drawn at random at each
    start of a member that lost power in interval mode, and 0 on all others: the leader returns it in its announcement.
    """

    number: int
    history: TermHistory
    end: Index
    life: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement(Message):
    """I lead ``term``, this is its history, and your log continues at ``start``: cut what is beyond.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementResponse(Message):
    """All three steps are durable; my log ends at ``end``. From here on appends are accepted.

    ``is_recovering``, here and in what follows: my disk has lost something that I may have acknowledged before. I take
    batches, and nothing that I say counts, until I hold as much as I did (protocol rule 17).
    """

    number: int
    end: Index
    is_recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOffer(Message):
    """My log begins behind the point where yours could go on: take my snapshot of everything before ``end``.

    ``last_term`` is the term of the record before ``end``. The member fetches it on a connection of its own, installs
    it, and reports its new state when it is asked the next time. Lost or doubled: the leader asks a member whose state
    does not help at each heartbeat, and offers again; one that is fetching already goes on.
    """

    end: Index
    last_term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest(Message):
    """Append ``batches`` at ``start``, which must be exactly the end of your log; ``commit_end`` is committed.

    ``previous_term`` is the term of the record before ``start``. Doubled: wholly below the end, answered with
    the end. One lost: the next is beyond the end, answered with the end, and the leader moves back.
    """

    number: int
    start: Index
    previous_term: Term
    commit_end: Index
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResponse(Message):
    """My log is durable up to ``end`` and received up to ``received_end``; cumulative, so a lost one does not matter.

    ``rejected``: an append did not start at my end; go on from ``received_end``.
    """

    number: int
    end: Index
    received_end: Index
    rejected: bool
    is_recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest(Message):
    """I still lead; ``commit_end`` is committed; I have sent you everything up to ``sent_end``.

    ``round`` numbers the leader's questions "am I still leading?"; a response confirms reads that came before it.
    """

    number: int
    commit_end: Index
    sent_end: Index
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse(Message):
    """I heard you in this term. Leaves at once; ``end`` is durable, so a lost AppendResponse is made good."""

    number: int
    end: Index
    round: int
    is_recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexRequest(Message):
    """A member asks its leader up to where it must have applied before it may answer the reads of ``token``."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexResponse(Message):
    """Up to ``index``, confirmed by a quorum after the question came. Lost: the member asks again."""

    token: int
    index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class TermResponse(Message):
    """Your term is behind mine. Sent for any request of a lower term, or the two would ignore each other for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow(Message):
    """You hold all that I hold: stand for election now, without asking first (Raft thesis 3.10).

    Lost: the leader says it again at each heartbeat, and leads on after an election timeout. Late: an election more.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
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
