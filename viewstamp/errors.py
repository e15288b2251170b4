"""Every exception of the project, sorted by what the caller has to do.

The class decides the next step: its docstring states whether the request may have happened, and the step. The message
gives the values, and ``remedy`` the next step in this particular case. ``docs/errors.md`` lists all of them.

    ViewstampError
      UnavailableError          nothing was written; try again, perhaps on another node
        NotLeaderError          this node does not lead; ``leader`` names the leader, if the node knows it
        NoQuorumError           fewer than a majority of the members answer
        OverloadedError         too many bytes are in flight; try again a little later
        ClosedError             this node, client, connection or actor is closed
      OutcomeUnknownError       the write may have been committed; ask with ``client.outcome(error.token)``
      RequestError              the request is wrong; the same request will fail again
        AccessDeniedError       the caller's token lacks the right that the request needs
        UnknownTopicError       no such topic
        TopicExistsError        the topic exists with other settings
        TrimmedError            the requested positions or changes were deleted and cannot be read any more
        StreamSealedError       the request names a stream that has ended or was removed; nothing was written or read
        PositionMismatchError   the topic's next position is not the expected one; nothing was written
        UnknownActorError       no actor has this name, or it has no such command or query
        RecordTooLargeError     one record, or one atomic batch, is over the limit
        StaleSessionError       the session has ended, so it can no longer be decided whether the write happened
        StagingError            the attempt has ended, or its staged records are not those that the caller named
        FencedError             another run, or another owner, has taken over the sink
      CommandError              the command was applied and raised this; every member has the same result
        ResultTooLargeError     the command was applied, or the query ran, but its result is over the limit
      ConfigError               a setting is wrong; the message gives file, key, value and the allowed values
        OutdatedCodeError       the log or a snapshot needs newer code than this member has
        MovedError              the membership record has other addresses than the settings; the node did not start
      PeerError                 the other side broke the protocol; the connection ends
        BrokenRuleError         a message broke a rule of the protocol; it was dropped and changed nothing
        WrongClusterError       the other side belongs to another cluster
          WrongNodeError        another node than the named directory's would have got the request; nothing was sent
        LostDiskError           a node came back with another disk; it must join again under a new id
        FrameError              the bytes are not a valid frame, batch or command of this protocol
        TlsError                a TLS handshake failed, or a certificate names another part of a cluster
      StorageError              a write or a sync failed; the node stops
        StorageFullError        the disk or the log is full; the write was refused before it began
        DirectoryInUseError     another process has this data directory open
      CorruptionError           durable bytes are wrong or missing; nothing was changed
        ContradictionError      a leader's log contradicts records that are committed here; this member stops
        DivergedError           this member's state differs from the others' after the same commands
"""

from __future__ import annotations

import copyreg
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from viewstamp.ids import GROUP_0, GroupId, NodeId, Sequence, SessionId, TopicId

__all__ = [
    "AccessDeniedError",
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
    "StreamSealedError",
    "TlsError",
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
    """Base class of all errors that viewstamp raises.

    Happened: unknown, unless a subclass states otherwise. A client raises the base class itself only for an error class
      of a newer release that it does not know.
    Do: read ``remedy``; catch a subclass where the next step depends on it.

    Example::

        try:
            await client.append("orders", b"one")
        except viewstamp.OutcomeUnknownError as error:
            outcome = await client.outcome(error.token)
        except viewstamp.UnavailableError:
            ...  # Nothing was written: call again.

    Attributes:
      message: the failure, with its values, in one sentence without a capital letter or a full stop.
      remedy: the next step, in the same form; "" = none is known.
      exit_code: the exit code of the ``viewstamp`` command if this error ends it.
      is_refusal: whether a node refused a connection with this error, so that node answers.
    """

    exit_code = 1
    is_refusal = False

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """Return ``message``, which may have been extended after the error was created."""
        return self.message


class UnavailableError(ViewstampError):
    """The request failed before anything was written.

    Happened: no.
    Do: call again, at once or later. The client has already tried other nodes until its timeout ended.
    """

    exit_code = 3


class NotLeaderError(UnavailableError):
    """The node that got the request does not lead.

    Happened: no.
    Do: send the request to ``address``. A ``Client`` does so by itself.

    Attributes:
      leader: the leader that the node follows; None = it knows none.
      address: the leader's ``host:port``; None = unknown.
    """

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
    """Fewer than a majority of the members answer.

    Happened: no.
    Do: start the missing nodes, which the message names, then call again.
    """


class OverloadedError(UnavailableError):
    """Too many bytes or requests are waiting at the node or the actor.

    Happened: no.
    Do: wait, for example 0.1 s, and call again; if it comes often, send less at a time.
    """


class ClosedError(UnavailableError):
    """The node, client, connection or actor that got the request is closed.

    Happened: no.
    Do: call again with an open client, or on another node.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeToken:
    """Identifies records whose outcome is unknown. Pass it unchanged to ``client.outcome(token)``.

    Any client of the same cluster can ask, also after a restart of the program: a token may be pickled.

    Attributes:
      session: the session that sent the records.
      sequence: the number of their batch in that session, from 1.
      topic: the id of their topic; 0 = they are commands of actors.
      offset: the place of the caller's first record in the batch, from 0.
      count: the number of the caller's records in the batch.
      group: the group that has the session; 0 = the group that every cluster has.
      stream: the stream of a spread topic, from 1; 0 = the topic has no streams.
    """

    session: SessionId
    sequence: Sequence
    topic: TopicId
    offset: int
    count: int
    group: GroupId = GROUP_0
    stream: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts of a pickle: for group 0 those of releases without groups, which can read it.

        Such a release would drop the field ``group`` and ask group 0, whose sessions have other outcomes under the same
        numbers. So a token of another group names a function that these releases do not have.
        """
        values = [self.session, self.sequence, self.topic, self.offset, self.count]
        if self.group:
            return _token_of_group, (self.group, self.stream, *values)
        return copyreg.__newobj__, (OutcomeToken,), values  # type: ignore[attr-defined]


def _set_token(token: OutcomeToken, values: list[int], group: GroupId = GROUP_0, stream: int = 0) -> None:
    """Set the fields of a token; the values are those of a pickle, which have no group."""
    for name, value in zip(OutcomeToken.__slots__, [*values, group, stream], strict=True):
        object.__setattr__(token, name, value)


def _token_of_group(group: GroupId, stream: int, *values: int) -> OutcomeToken:
    """Return the token of another group than 0 from the values of a pickle."""
    token = OutcomeToken.__new__(OutcomeToken)
    _set_token(token, [*values], group, stream)
    return token


OutcomeToken.__setstate__ = _set_token  # type: ignore[attr-defined]  # Until Python 3.11.3 one in the body is lost.


class OutcomeUnknownError(ViewstampError):
    """No answer to a write arrived in time, so it may or may not have been committed, and may still be.

    Happened: unknown.
    Do: ask ``await client.outcome(error.token)`` before you repeat the call, because a repeated append or command is a
      new one and both may be applied. If ``token`` is None, repeat the call: such requests (for example those of sinks
      and topics) have the same effect once or twice.

    Attributes:
      token: identifies the records for ``client.outcome``; None = the request can be repeated.
    """

    exit_code = 4

    def __init__(self, message: str, *, token: OutcomeToken | None, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.token = token


class RequestError(ViewstampError):
    """The request is wrong. The same request will fail again.

    Happened: no, except for ``StaleSessionError``.
    Do: correct the request; the message gives the wrong value.
    """

    exit_code = 5


class AccessDeniedError(RequestError):
    """The request needs a right that the caller does not have: it has no token, or one that ended or is not enough.

    Happened: no, and it never will: the node that refused a write had applied everything that was acknowledged before.
    Do: use a token that has the right, which the message names. An administrator creates one with
      ``viewstamp token create``, and a process that can read a member's data directory with ``--dir``.
    """


class UnknownTopicError(RequestError):
    """No topic has this name.

    Happened: no.
    Do: create the topic with ``client.create_topic``, or correct the name.
    """


class TopicExistsError(RequestError):
    """A topic of this name exists with other settings.

    Happened: no; the existing topic was not changed.
    Do: change its settings with ``client.configure_topic``, or choose another name.
    """


class TrimmedError(RequestError):
    """The requested records, changes or snapshots were deleted and cannot be read any more.

    Happened: no; nothing was read.
    Do: continue at ``first``, if the records before it are not needed.

    Attributes:
      first: the first position (of a topic) or index (of the log) that can still be read; 0 = unknown.
    """

    def __init__(self, message: str, *, first: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.first = first


class StreamSealedError(RequestError):
    """The append names a stream that has ended: its topic appends to its other streams. Or the stream was removed.

    Happened: no, and it never will.
    Do: leave out the stream and the expected position, so that the topic chooses a stream; or name another stream.
    """


class PositionMismatchError(RequestError):
    """The append was rejected, because the topic's next position is not the expected one.

    Happened: no, and it never will: the error is raised only after the conflicting record, or the rejection itself, is
      committed, so a new leader cannot undo it.
    Do: read the records up to ``actual``, and decide whether to append there.

    Attributes:
      actual: the topic's next position when the append was rejected.
    """

    def __init__(self, message: str, *, actual: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.actual = actual


class UnknownActorError(RequestError):
    """No actor has this name, or it has no such command or query, or it takes other arguments.

    Happened: no.
    Do: correct the call, or start the nodes with code that has the actor.

    Attributes:
      is_spread: the instance belongs to another group than the one that was asked, because the instances of the actor
        are spread over groups. A client of this release goes there by itself.
    """

    def __init__(self, message: str, *, is_spread: bool = False, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.is_spread = is_spread


class RecordTooLargeError(RequestError):
    """A record, or an atomic batch of records, is larger than the cluster's limit.

    Happened: no.
    Do: divide the record or the batch; ``client.record_bytes_max`` is the limit of one record in bytes.
    """


class StaleSessionError(RequestError):
    """The session has ended, or its older results are deleted, so the cluster cannot show whether a write happened.

    Happened: unknown; raised by ``client.call``: yes, but the result is no longer kept.
    Do: read the topic, or query the actor, to see whether the write is there.
    """


class StagingError(RequestError):
    """The attempt has ended (committed, aborted or expired), or its staged blocks are not those that were named.

    Happened: no; nothing of the attempt becomes visible, unless its batch is committed already.
    Do: begin another attempt and stage the records again.
    """


class FencedError(RequestError):
    """A later run, or another owner, has taken over the sink.

    Happened: no.
    Do: stop this run. To take the sink over from another owner, use ``reset=True``.
    """


class CommandError(ViewstampError):
    """A command was applied, or a query ran, and raised this error.

    Happened: yes. The error is the command's result, the same on every member. Changes that the command made before it
      raised stay.
    Do: handle it like the method's own exception. Calling the command again runs it again.

    Derive your actors' own errors from this class. The caller gets the same class if the client was given the actor's
    class, else a plain ``CommandError``.

    Attributes:
      kind: the name of the class that the command raised.
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

    Happened: yes; the command was applied on every member.
    Do: read the state with a query that returns less. Calling the command again applies it again.
    """


class ConfigError(ViewstampError):
    """A setting is wrong.

    Happened: no; nothing was started or changed.
    Do: correct the setting; the message gives file, key, value and the allowed values.
    """

    exit_code = 2


class OutdatedCodeError(ConfigError):
    """The log or a snapshot holds an actor, a method, a version or a format that this member's code does not have.

    Happened: no; the member stops before that command instead of skipping it.
    Do: install the newer code on this member and start it again.
    """


class MovedError(ConfigError):
    """The membership record has another address for this node, or for another member, than its settings.

    Happened: no; the node did not start, because its directory may be a copy of a member's, and would act as that
      member.
    Do: follow ``remedy``: put the old address back, or record the move with ``viewstamp node readdress``.
    """


class PeerError(ViewstampError):
    """The other side broke the protocol, and the connection ends.

    Happened: unknown for a write that was under way on this connection; a ``Client`` retries it elsewhere.
    Do: check that the address is a viewstamp node of a compatible release.
    """

    exit_code = 3


class BrokenRuleError(PeerError):
    """A message between members broke a rule of the protocol.

    Happened: no; the message was dropped before it changed anything, and its connection ends.
    Do: check the release of ``source``. If all members run the same release, report it.

    Attributes:
      source: the member that the message names as its sender.
      rule: the short name of the rule; the table in ``docs/protocol.md`` lists them.
    """

    def __init__(self, message: str, *, source: str, rule: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.source = source
        self.rule = rule


class WrongClusterError(PeerError):
    """The other side belongs to another cluster, or is another node than expected.

    Happened: no.
    Do: correct the address, or the cluster id.
    """


class WrongNodeError(WrongClusterError):
    """Another node than the one in the caller's directory answers, or would get the request.

    Happened: no; raised before any request is sent, because a directory may be a copy, and the membership in a copy
      names the addresses of the original.
    Do: give the directory or the address of the cluster that you mean.
    """

    exit_code = 2


class LostDiskError(PeerError):
    """A node came back with another disk, so the votes and acknowledgements that it gave before may be lost.

    Happened: no; the members refuse the node.
    Do: if its data directory was moved, put it back. Otherwise the node joins again by itself, under a new id.
    """


class FrameError(PeerError):
    """The bytes are not a valid frame, batch or command of this protocol, or the frame is over the limit.

    Happened: no; nothing of the frame was carried out.
    Do: check that both sides run compatible releases; the connection ends.
    """


class TlsError(PeerError):
    """A TLS handshake failed, or the certificate of one side does not name the part of the cluster that it has to.

    Happened: no; nothing was sent before the handshake. Unknown for a write if an open connection ends with it.
    Do: read the message, which names the certificate and the reason; ``viewstamp tls show`` prints a certificate.
    """


class StorageError(ViewstampError):
    """An operation of the disk failed, for example a write or a sync.

    Happened: unknown for a write that was under way. The node stops for good, because after a failed sync the disk's
      content is uncertain.
    Do: repair the disk, then start the node again. The other members go on without it.
    """

    exit_code = 6


class StorageFullError(StorageError):
    """The disk or the log is full.

    Happened: no; the write was refused before it began.
    Do: free space, see ``remedy``. The node accepts appends again by itself, unless it has stopped.
    """


class DirectoryInUseError(StorageError):
    """Another process has the data directory open.

    Happened: no.
    Do: stop the other process, or use another directory.
    """

    exit_code = 2


class CorruptionError(ViewstampError):
    """Bytes that were durable are wrong or missing.

    Happened: nothing was changed, and nothing was deleted.
    Do: keep the directory. If other members run, the node can fetch the records from them; else restore a copy.

    Attributes:
      path: the damaged file or directory.
      location: the byte in ``path`` at which reading failed.
      expected: the correct content, in words.
      found: the content, in words.
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
    """A leader's log contradicts records that are committed here, so one of the two has lost or invented records.

    Happened: the member has stopped, before it applies or acknowledges a record that contradicts earlier ones.
    Do: keep the data directories of all nodes, and report it.
    """


class DivergedError(CorruptionError):
    """This member's state differs from the others' after the same commands.

    Happened: the member has stopped; the records in the log are the same everywhere.
    Do: find the code that is not deterministic, or differs between members; then rebuild the state, see ``remedy``.

    Attributes:
      index: the first record after which the states differ.
    """

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
    is_read: bool = False,
    is_unknown: bool = False,
    token: OutcomeToken | None = None,
) -> ViewstampError:
    """Return the error for a request that no leader answered in time. All callers use this one wording.

    The message gives no duration, because the rest of a deadline means nothing to the caller.

    Args:
      members: the names of the members, as far as they are known.
      away: the members that do not answer. If the others are less than a majority, the message names these.
      reason: the cause in any other case.
      doctor: the command that finds the cause; the remedy names it.
      detail: more for the caller, in parentheses; "" = nothing.
      is_read: whether the request only reads, so that the message says "nothing was read" and not "written".
      is_unknown: whether the request may have been sent; False = certainly nothing was written.
      token: with ``is_unknown``: identifies the records for ``client.outcome``.

    Returns:
      OutcomeUnknownError if ``is_unknown``; else NoQuorumError without a majority; else UnavailableError.
    """
    *others, last = sorted(away, key=lambda name: (len(name), name)) or [""]
    is_minority = bool(away) and len(members) - len(away) < len(members) // 2 + 1
    if is_minority:
        names = f"{', '.join(others)} and {last}" if others else last
        reason = f"no majority: {names} {'do' if others else 'does'} not answer"
    suffix = f" ({detail})" if detail and detail != reason else ""
    remedy = f"run `{doctor}`, which names the cause and the next step"
    if is_unknown:
        if token is not None:
            remedy += "; then client.outcome(error.token) returns whether it was written"
        return OutcomeUnknownError(
            f"{reason}; it may have been written, or may still be{suffix}", token=token, remedy=remedy
        )
    error = NoQuorumError if is_minority else UnavailableError
    return error(f"{reason}; nothing was {'read' if is_read else 'written'}{suffix}", remedy=remedy)
