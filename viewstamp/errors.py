"""Every exception of the project, sorted by what the caller has to do.

The class tells the caller what to do next. The message names the values, and ``remedy`` names the next step:

    ViewstampError
      UnavailableError          nothing was written; try again, perhaps elsewhere
        NotLeaderError          this node does not lead; ``leader`` names who does, if anyone
        NoQuorumError           no majority answers
        OverloadedError         too many bytes are in flight; try again a little later
        ClosedError             this node, client, connection or actor is closed
      OutcomeUnknownError       it may have been committed; ask with ``client.outcome(error.token)``
      RequestError              the request is wrong; the same request will fail again
        UnknownTopicError       no such topic
        TopicExistsError        the topic exists with other settings
        TrimmedError            the requested positions or changes were deleted and cannot be read any more
        PositionMismatchError   the topic's next position is not the expected one; nothing was written
        UnknownActorError       no actor has this name, or no command or query of it
        RecordTooLargeError     one record, or one atomic batch, is over the limit
        StaleSessionError       the session has ended; its retries are refused
        StagingError            staged records are gone or differ from what the caller named: stage them again
        FencedError             another run, or another owner, has taken the sink over
      CommandError              the command was applied and raised this: that is its result, on every member
        ResultTooLargeError     the command was applied, or the query run; its result is over the limit
      ConfigError               the settings are wrong: file, key, value, what is allowed
        OutdatedCodeError       the log holds a command that this member's code does not have
        MovedError              the membership has this node at another address than its settings; nothing was started
      PeerError                 the other side broke the protocol; the connection ends
        BrokenRuleError         a message broke a rule of the protocol; it was dropped and nothing changed
        WrongClusterError       the other side belongs to another cluster
          WrongNodeError        the node is not the one that the named directory holds; nothing was sent to it
        LostDiskError           a node came back with another disk than before: it has to join again
        FrameError              bytes that are not a frame of this protocol
      StorageError              a write or a sync failed; final for this node
        StorageFullError        the disk or the log is full; the write was refused before it began
        DirectoryInUseError     another process has this data directory open
      CorruptionError           bytes that were durable are wrong or missing; nothing was cut
        ContradictionError      a leader's log contradicts what is committed here; this member stops
        DivergedError           this member's state differs from the others'; names the first command that differed
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from viewstamp.ids import NodeId, Sequence, SessionId, TopicId

__all__ = [
    "BrokenRuleError",
    "ClosedError",
    "CommandError",
    "ConfigError",
    "ContradictionError",
    "CorruptionError",
    "DirectoryInUseError",
    "DivergedError",
    "FencedError",
    "FrameError",
    "LostDiskError",
    "MovedError",
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
    "ResultTooLargeError",
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
    "WrongNodeError",
]


class ViewstampError(Exception):
    """The base class of all errors.

    Attributes:
      message: what is wrong, with the values.
      remedy: what to do next, in a sentence; "" = nothing to suggest.
      exit_code: the exit code of the ``viewstamp`` command if the error ends it.
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """Return the current message, because code that passes the error on may have extended it."""
        return self.message


class UnavailableError(ViewstampError):
    """The call failed before anything was written. Try again: later, or on another node, it may succeed."""

    exit_code = 3


class NotLeaderError(UnavailableError):
    """The node is not the leader. ``leader`` and ``address`` name the leader that it follows; None = unknown."""

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
    """No majority of the members answers. Nothing was written; try again when more nodes run."""


class OverloadedError(UnavailableError):
    """Too many bytes are in flight. Nothing was written; wait a moment and try again."""


class ClosedError(UnavailableError):
    """The node, client, connection or actor is closed. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeToken:
    """Names records whose outcome is unknown, for ``client.outcome(token)``. Keep it; pass it on unchanged.

    Attributes:
      session: the session in which they were sent.
      sequence: the number of their batch in that session.
      topic: the topic they were sent to; 0 for commands of actors.
      offset: the first of the caller's records in the batch, from 0.
      count: how many records of the batch are the caller's.
    """

    session: SessionId
    sequence: Sequence
    topic: TopicId
    offset: int
    count: int


class OutcomeUnknownError(ViewstampError):
    """The write may or may not have been committed, because its answer did not arrive in time.

    Do not simply repeat the call: a repeated call is a new write, and both may be applied. Ask
    ``await client.outcome(error.token)`` first. ``token`` is None for requests that happen once however often they are
    repeated (those of sinks): call those again.
    """

    exit_code = 4

    def __init__(self, message: str, *, token: OutcomeToken | None, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.token = token


class RequestError(ViewstampError):
    """The request is wrong, and the same request will fail again. Nothing was written."""

    exit_code = 5


class UnknownTopicError(RequestError):
    """No topic has this name."""


class TopicExistsError(RequestError):
    """A topic of this name exists with other settings."""


class TrimmedError(RequestError):
    """The requested records or changes were deleted. ``first`` is the first position or index that can be read."""

    def __init__(self, message: str, *, first: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.first = first


class PositionMismatchError(RequestError):
    """The append was rejected, because the topic's next position is ``actual`` and not the expected one.

    Nothing was written, and nothing will be: the rejection itself is committed, so a new leader cannot undo it.
    """

    def __init__(self, message: str, *, actual: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.actual = actual


class UnknownActorError(RequestError):
    """No actor has this name, or it has no such command or query, or the arguments do not fit."""


class RecordTooLargeError(RequestError):
    """A record, or an atomic batch of records, is larger than the limit."""


class StaleSessionError(RequestError):
    """The session has ended or never existed, so a retry in it cannot be told from a new append any more."""


class StagingError(RequestError):
    """The attempt has ended (committed, aborted, expired, or of an earlier run), or holds other blocks than named.

    Begin another attempt and stage the records again.
    """


class FencedError(RequestError):
    """A later run, or another owner, has the sink. Stop this run; or take the sink over with ``reset=True``."""


class CommandError(ViewstampError):
    """A command was applied and raised this. That is its result, the same on every member.

    Calling the command again runs it again. Derive your actors' own errors from this class: the caller then gets the
    same class, if the client was given the actor's class; else a plain ``CommandError``. ``kind`` is the name of the
    class that the command raised.

    Example::

        class OutOfStock(viewstamp.CommandError):
            ...
    """

    exit_code = 8

    def __init__(self, message: str = "", *, kind: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.kind = kind or type(self).__name__


class ResultTooLargeError(CommandError):
    """The result of a command or query takes more bytes than the limit, so it was dropped.

    A command was applied all the same, on every member: calling it again applies it again.
    """


class ConfigError(ViewstampError):
    """Settings are wrong: the message names file, key, value and what is allowed."""

    exit_code = 2


class OutdatedCodeError(ConfigError):
    """The log holds a command of an actor, a method or a version that this member's code does not have.

    Start the member with the newer code; until then it stops rather than skip the command.
    """


class MovedError(ConfigError):
    """A node's settings name another address for it than the membership record does: it has not started.

    It may be a copy of a member, and would pass for that member, because it holds the same identity.
    """


class PeerError(ViewstampError):
    """The other side broke the protocol; the connection ends."""

    exit_code = 3


class BrokenRuleError(PeerError):
    """A message broke a rule of the protocol. It was dropped before it changed anything, and its connection ends.

    ``source`` is the member that the message names as its sender, ``rule`` the short name of the rule: the table in
    ``docs/protocol.md`` lists them.
    """

    def __init__(self, message: str, *, source: str, rule: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.source = source
        self.rule = rule


class WrongClusterError(PeerError):
    """The other side belongs to another cluster, or is another node than expected."""


class WrongNodeError(WrongClusterError):
    """The node that answers, or the address that the members name, is not what the caller's directory holds.

    Raised before any request is sent there: a directory may be a copy, and its nodes may name the original's addresses.
    """

    exit_code = 2


class LostDiskError(PeerError):
    """A node came back with another disk. Its acknowledgements and votes may be lost, so it has to join again."""


class FrameError(PeerError):
    """Bytes on a connection that are not a frame of this protocol, or a frame over the limit."""


class StorageError(ViewstampError):
    """A write or a sync failed. This is final: the node stops, because the disk's content is not known any more."""

    exit_code = 6


class StorageFullError(StorageError):
    """The disk or the log is full. The write was refused before it began; the message says what frees space."""


class DirectoryInUseError(StorageError):
    """Another process has the data directory open."""

    exit_code = 2


class CorruptionError(ViewstampError):
    """Bytes that were durable are wrong or missing. Nothing was changed; a peer's copy or an operator must help.

    Attributes:
      path: the damaged file or directory.
      location: the byte in ``path`` at which reading failed.
      expected: what should be there, in words.
      found: what is there, in words.
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


class ContradictionError(CorruptionError):
    """A leader's log contradicts records that are committed here: one of the two has lost or invented something.

    The member stops, because going on could apply or acknowledge records that contradict what it has acknowledged.
    """


class DivergedError(CorruptionError):
    """This member's state differs from the others' after the same log. ``index`` is the first record that differed."""

    def __init__(self, message: str, *, index: int, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.index = index


def unanswered(
    members: Collection[str],
    away: Collection[str],
    reason: str,
    *,
    doctor: str = "viewstamp doctor",
    detail: str = "",
    is_unknown: bool = False,
    token: OutcomeToken | None = None,
) -> ViewstampError:
    """Return the error for a request that no leader has answered in time: the one wording of all callers.

    It names no duration, because what is left of a deadline says nothing to the caller.

    Args:
      members: the names of those who could have answered, as far as they are known.
      away: those of them that do not answer. Without a majority of ``members``, they are the reason.
      reason: what stands in the way otherwise.
      doctor: the command that says more.
      detail: what else the caller should know, in parentheses; "" = nothing.
      is_unknown: whether the request may have been sent; False = it is certain that nothing was written.
      token: with ``is_unknown``, to ask for the outcome.

    Returns:
      OutcomeUnknownError where ``is_unknown``; NoQuorumError without a majority; else UnavailableError.
    """
    *others, last = sorted(away, key=lambda name: (len(name), name)) or [""]
    is_minority = bool(away) and len(members) - len(away) < len(members) // 2 + 1
    if is_minority:
        names = f"{', '.join(others)} and {last}" if others else last
        reason = f"no majority: {names} {'do' if others else 'does'} not answer"
    suffix = f" ({detail})" if detail and detail != reason else ""
    if is_unknown:
        remedy = f"{doctor}; ask what became of it: client.outcome(error.token)" if token is not None else doctor
        return OutcomeUnknownError(
            f"{reason}; it may have been written, or may still be{suffix}", token=token, remedy=remedy
        )
    error = NoQuorumError if is_minority else UnavailableError
    return error(f"{reason}; nothing was written{suffix}", remedy=doctor)
