"""Every exception of the project, sorted by what the caller does about it.

The class says what to do next, the message names the values and the remedy:

    ViewstampError
      UnavailableError          nothing was written; try again, perhaps elsewhere
        NotLeaderError          this node does not lead; ``leader`` names who does, if anyone
        NoQuorumError           no majority answers
        OverloadedError         too many bytes are in flight; try again a little later
        ClosedError             this node, client or actor has been closed
      OutcomeUnknownError       it may have been committed; ask with ``client.outcome(error.token)``
      RequestError              the request is wrong; the same request will fail again
        UnknownTopicError       no such topic
        TopicExistsError        the topic exists with other settings
        TrimmedError            the positions, or the changes, that were asked for are gone for good
        PositionMismatchError   the topic goes on at another position than the append expected; nothing was written
        UnknownActorError       no actor has this name, or no command or query of it
        RecordTooLargeError     one record, or one atomic batch, is over the limit
        StaleSessionError       the session is not known any more; its retries are refused
        StagingError            what was staged is not there any more, or not as it is said to be: stage it again
        FencedError             another run, or another query, has taken the sink over
      CommandError              the command was applied, and raised this: that is its result, on every member
      ConfigError               the settings are wrong: file, key, value, what is allowed
        OutdatedCodeError       the log holds a command that this member's code does not know
      PeerError                 the other side broke the protocol; the connection ends
        WrongClusterError       the other side belongs to another cluster
        LostDiskError           this node came back with another disk than its peers know: it has to join anew
        FrameError              bytes that are no frame of ours
      StorageError              a write or a sync failed; final for this node
        StorageFullError        refused before anything was harmed: the disk or the log is full
        DirectoryInUseError     another process has this data directory open
      CorruptionError           bytes that were durable are wrong or missing; nothing was cut
        DivergedError           this member's state is not the others'; names the first command that differed
"""

from __future__ import annotations

from dataclasses import dataclass

from viewstamp.ids import NodeId, Sequence, SessionId, TopicId

__all__ = [
    "ClosedError",
    "CommandError",
    "ConfigError",
    "CorruptionError",
    "DirectoryInUseError",
    "DivergedError",
    "FencedError",
    "FrameError",
    "LostDiskError",
    "NoQuorumError",
    "NotLeaderError",
    "OutcomeToken",
    "OutcomeUnknownError",
    "OutdatedCodeError",
    "OverloadedError",
    "PeerError",
    "PositionMismatchError",
    "RecordTooLargeError",
    "RequestError",
    "StagingError",
    "StaleSessionError",
    "StorageError",
    "StorageFullError",
    "TopicExistsError",
    "TrimmedError",
    "UnavailableError",
    "UnknownActorError",
    "UnknownTopicError",
    "ViewstampError",
    "WrongClusterError",
]


class ViewstampError(Exception):
    """The root of the tree: a message that names the values, and a remedy that says what to do next.

    ``exit_code`` is what the ``viewstamp`` command exits with when the error reaches it.
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """Return the message as it is now: who passes an error on may have added to it."""
        return self.message


class UnavailableError(ViewstampError):
    """Nothing was written; the same call may succeed later or on another node."""

    exit_code = 3


class NotLeaderError(UnavailableError):
    """The node does not lead. ``leader`` is who does, as far as it knows, ``address`` where; None = unknown."""

    def __init__(
        self,
        message: str,
        *,
        leader: NodeId | None = None,
        address: str | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.leader = leader
        self.address = address


class NoQuorumError(UnavailableError):
    """No majority of the members answers."""


class OverloadedError(UnavailableError):
    """Too many bytes are waiting already; back off and try again."""


class ClosedError(UnavailableError):
    """The node, client, connection or actor is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeToken:
    """What ``client.outcome()`` needs to answer "did it happen?": one batch of one session.

    ``offset`` and ``count`` say which records of the batch the caller's were (0-based, half-open).
    """

    session: SessionId
    sequence: Sequence
    topic: TopicId
    offset: int
    count: int


class OutcomeUnknownError(ViewstampError):
    """The append may or may not have been committed. Never retried under another session."""

    exit_code = 4

    def __init__(self, message: str, *, token: OutcomeToken | None, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.token = token


class RequestError(ViewstampError):
    """The request is wrong; sending it again will fail again."""

    exit_code = 5


class UnknownTopicError(RequestError):
    """No topic has this name."""


class TopicExistsError(RequestError):
    """A topic of this name exists with other settings."""


class TrimmedError(RequestError):
    """What was asked for has been trimmed: gone for good. ``first`` is the first position or index that is left."""

    def __init__(self, message: str, *, first: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.first = first


class PositionMismatchError(RequestError):
    """An append expected another position than the topic's next one, ``actual``. Decided in the log: never written."""

    def __init__(self, message: str, *, actual: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.actual = actual


class UnknownActorError(RequestError):
    """No actor has this name here, or it has no such command or query, or that takes other arguments."""


class RecordTooLargeError(RequestError):
    """A record, or an atomic batch of records, is larger than the limit."""


class StaleSessionError(RequestError):
    """The session was opened too long ago, or never; a retry in it can no longer be told from a new append."""


class StagingError(RequestError):
    """An attempt is gone (committed, aborted, too old, of an earlier run), or holds something else than is said."""


class FencedError(RequestError):
    """The sink belongs to another run, or to another query: this one must stop, or be told to take it over."""


class CommandError(ViewstampError):
    """A command was applied and raised: its replicated result, the same on every member. Calling again runs it again.

    Derive from it for errors of your own actors: raised by a command, the caller gets the same class again where its
    code knows the class. ``kind`` is the name of the class that the command raised.
    """

    exit_code = 8

    def __init__(self, message: str = "", *, kind: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.kind = kind or type(self).__name__


class ConfigError(ViewstampError):
    """Settings are wrong: the message names file, key, value and what is allowed."""

    exit_code = 2


class OutdatedCodeError(ConfigError):
    """The log holds a command of an actor, a method or a version that this member's code does not know."""


class PeerError(ViewstampError):
    """The other side broke the protocol; the connection ends."""

    exit_code = 3


class WrongClusterError(PeerError):
    """The other side belongs to another cluster, or is another node than it should be."""


class LostDiskError(PeerError):
    """A node came back with another disk: what it had acknowledged and voted may be gone, so it has to join anew."""


class FrameError(PeerError):
    """Bytes on a connection that are no frame of ours, or one over the limit."""


class StorageError(ViewstampError):
    """A write or a sync failed. Final: the node stops and is not to be trusted until it is started again."""

    exit_code = 6


class StorageFullError(StorageError):
    """The disk or the log is full; refused before anything was harmed."""


class DirectoryInUseError(StorageError):
    """Another process has the data directory open."""

    exit_code = 2


class CorruptionError(ViewstampError):
    """Bytes that were durable are wrong or missing: needs a human or a peer's copy. Nothing was cut.

    ``location`` is the byte in ``path`` where reading failed; ``expected`` and ``found`` describe the difference.
    """

    exit_code = 7

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        location: int = 0,
        expected: str = "",
        found: str = "",
        remedy: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.path = path
        self.location = location
        self.expected = expected
        self.found = found


class DivergedError(CorruptionError):
    """This member has applied the same log to another state than the others. ``index`` is the first that differed."""

    def __init__(self, message: str, *, index: int, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.index = index
