"""The requests that nodes answer: one dataclass for each. The client packs it and the node reads it.

The body of a request's frame has ``id``, chosen by the sender, and the fields of the dataclass in their order; some
requests have a batch as payload. The node answers OK or ERROR with the same ``id``. ERROR has ``error`` (the name of
its class), ``message``, ``remedy`` and the attributes of that class; NotLeaderError also ``members`` and
``generation``, as in MEMBERS. The docstring of each request describes its OK.

``needs`` is the right that a client needs for the request once access control is on; ``streams/gate.py`` compares it
with the caller's token. A request without one cannot be declared.

To add a field, give it a default: a field with its default value is not sent, so that older nodes go on reading the
request, and a node ignores a key that it does not know. A new request needs a handler in ``node/service.py``; a test
compares the two.
"""

from __future__ import annotations

import math
from typing import Annotated

from viewstamp.wire import (  # their rows belong to the table
    archive_requests,  # noqa: F401
    ordered_requests,  # noqa: F401
    spread_actors,  # noqa: F401
    spread_requests,  # noqa: F401
)
from viewstamp.wire.access import ANYONE, MEMBERS, PAYLOAD, Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.identity_proof import CHALLENGE_BYTES
from viewstamp.wire.schema import REQUESTS, Range, RequestBody, request

__all__ = [
    "REQUESTS",
    "AbortAttempts",
    "AppendBatch",
    "AppendBatchAt",
    "AskOutcome",
    "AskStatus",
    "AskToJoin",
    "BeginAttempt",
    "CallActors",
    "CancelGroup",
    "ChangeMembership",
    "CommitAttempts",
    "ConfigureTopic",
    "CopyLog",
    "CopySnapshot",
    "CreateSnapshot",
    "CreateToken",
    "CreateTopic",
    "DescribeActor",
    "DescribeLog",
    "DescribeSink",
    "DescribeTopic",
    "FindTime",
    "ForgetSink",
    "ListActors",
    "ListAudit",
    "ListGroups",
    "ListSinks",
    "ListSnapshots",
    "ListTokens",
    "ListTopics",
    "OpenSession",
    "PeerReport",
    "PlaceGroup",
    "ProveDirectory",
    "QueryActor",
    "ReadLog",
    "ReadSnapshot",
    "ReadTopic",
    "ReportHosted",
    "ReportStreams",
    "RevokeToken",
    "RotateToken",
    "SealAttempt",
    "SplitTopic",
    "StageBatch",
    "TransferLeadership",
    "TrimTopic",
    "WatchActor",
]

_POSITION = Range(1, remedy="positions begin at 1")
_SOME_BYTES = Range(1, remedy="ask for at least one byte")
_WAIT = Range(0, 600.0, remedy="wait from 0 to 600 s")
"""A node holds a request for at most this many seconds until there is something to answer."""
_STALENESS = Range(0, math.inf, remedy="give seconds, from 0 on, or none at all")
_HASH = Range(32, 32, remedy="send the hash of a token: 32 bytes")
_CHALLENGE = Range(CHALLENGE_BYTES, CHALLENGE_BYTES, remedy=f"send a challenge of {CHALLENGE_BYTES} random bytes")

_ADMINISTER = Need(Right.ADMINISTER)
_ANY = Need(Right.READ, Right.APPEND, Right.CALL)
"""Any token that is valid."""

# -- Appends --------------------------------------------------------------------------------------------------


@request(FrameKind.APPEND, needs=Need(Right.APPEND, topic=PAYLOAD), payload=Kind.RECORDS)
class AppendBatch(RequestBody):
    """Append the batch in the payload.

    OK: ``receipt`` = [first position, count, term, first index, log time].
    """


@request(FrameKind.APPEND_AT, needs=Need(Right.APPEND, topic=PAYLOAD), payload=Kind.RECORDS)
class AppendBatchAt(RequestBody):
    """Append the batch in the payload if its first position will be ``position``.

    OK: as AppendBatch. ERROR PositionMismatchError has ``actual``, the topic's next position. That error was decided in
    the log: the sequence is used up, as by a fence.
    """

    position: Annotated[int, _POSITION]


@request(FrameKind.CALL, needs=Need(Right.CALL, actor=PAYLOAD), payload=Kind.COMMANDS)
class CallActors(RequestBody):
    """Append the batch of commands in the payload (``wire/commands.py``).

    OK: ``receipt`` as AppendBatch, with position 0, and ``results``: a packed result for each command.
    """


@request(FrameKind.STAGE, needs=Need(Right.APPEND, topic=PAYLOAD), payload=Kind.STAGED)
class StageBatch(RequestBody):
    """Append the batch in the payload to an attempt; it gets its positions when the attempt is committed.

    OK: ``receipt`` as AppendBatch, with position 0.
    """


@request(FrameKind.OPEN_SESSION, needs=Need(Right.APPEND, Right.CALL))
class OpenSession(RequestBody):
    """Open a session. OK: ``session``, its id."""


@request(FrameKind.OUTCOME, needs=Need(session="session"))
class AskOutcome(RequestBody):
    """Find out whether a sequence of a session was applied, and fence it if it was not.

    OK: ``receipt``; None = it was not applied and never will be. ``results`` for commands; None = not kept any more.
    """

    session: int
    sequence: int


# -- Topics ---------------------------------------------------------------------------------------------------


@request(FrameKind.CREATE_TOPIC, needs=Need(Right.APPEND, topic="name"), record=Kind.CREATE_TOPIC)
class CreateTopic(RequestBody):
    """Create a topic; 0 = keep everything.

    OK: ``topic`` = {id, name, first_position, last_position, bytes, retain_bytes, retain_seconds}.
    """

    name: str
    retain_bytes: int | None
    retain_seconds: float | None


@request(FrameKind.CONFIGURE_TOPIC, needs=_ADMINISTER, record=Kind.CONFIGURE_TOPIC)
class ConfigureTopic(RequestBody):
    """Change a topic's retention; None = unchanged. OK: as CreateTopic."""

    name: str
    retain_bytes: int | None
    retain_seconds: float | None


@request(FrameKind.TRIM_TOPIC, needs=_ADMINISTER, record=Kind.TRIM_TOPIC)
class TrimTopic(RequestBody):
    """Drop the records before ``position``. OK: as CreateTopic."""

    name: str
    position: int


@request(FrameKind.LIST_TOPICS, needs=_ANY)
class ListTopics(RequestBody):
    """List all topics. OK: ``topics``, a list of the maps that CreateTopic returns; ``age`` and ``applied_index``.

    ``age``: the answer contains everything that was committed this many seconds ago; 0 unless ``stale``, infinite if
    the node has had no contact with a leader since its start. A node whose age is above ``max_staleness`` asks the
    leader first, and answers NoQuorumError if there is none.
    """

    stale: bool
    max_staleness: Annotated[float, _STALENESS] | None = None


@request(FrameKind.DESCRIBE_TOPIC, needs=Need(Right.READ, Right.APPEND, topic="name"))
class DescribeTopic(RequestBody):
    """Describe a topic. OK: ``topic`` as CreateTopic, ``age`` as ListTopics, ``applied_index``.

    A ReadTopic that names this ``applied_index`` to another node sees at least as much as this answer.
    """

    name: str
    stale: bool
    max_staleness: Annotated[float, _STALENESS] | None = None


@request(FrameKind.READ, needs=Need(Right.READ, topic="topic"))
class ReadTopic(RequestBody):
    """Read records that this node has applied, after it has applied ``applied_index``.

    A ``wait`` above 0 holds the answer until there is a record at ``position``, or for that many seconds.

    OK: ``last_position`` and ``applied_index`` of this node; payload: whole batches in order, the first of which holds
    ``position``; empty = nothing is there yet.
    """

    topic: int
    position: Annotated[int, _POSITION]
    bytes_max: Annotated[int, _SOME_BYTES]
    applied_index: int
    wait: Annotated[float, _WAIT]


@request(FrameKind.SPLIT_TOPIC, needs=Need(Right.READ, topic="name"))
class SplitTopic(RequestBody):
    """Divide a range of positions into parts of about ``bytes`` bytes of records.

    OK: ``positions``, the bounds of the parts, rising from ``start`` to ``end``.
    """

    name: str
    start: int
    end: int
    bytes: int


@request(FrameKind.FIND_TIME, needs=Need(Right.READ, topic="name"))
class FindTime(RequestBody):
    """Find a log time. OK: ``position``, at or before the first record of this log time or a later one."""

    name: str
    timestamp: int


# -- Actors ---------------------------------------------------------------------------------------------------


@request(FrameKind.QUERY, needs=Need(Right.READ, Right.CALL, actor="actor"))
class QueryActor(RequestBody):
    """Run a query of an actor, not before ``applied_index`` was applied. ``arguments``: packed.

    OK: ``result`` (packed), ``applied_index``, and ``age`` as ListTopics.
    """

    actor: str
    key: str
    method: str
    arguments: bytes
    stale: bool
    max_staleness: Annotated[float, _STALENESS] | None = None
    applied_index: int


@request(FrameKind.WATCH, needs=Need(Right.READ, Right.CALL, actor="actor"))
class WatchActor(RequestBody):
    """Return the changes of an actor, of all keys or of one, from ``index`` on; 0 = from now on.

    OK: ``changes``, a list of [index, log time, actor, key, method, arguments (packed), result (packed)], and
    ``index``, from which to ask on. ERROR TrimmedError: those changes are not kept any more.
    """

    actor: str
    key: str | None
    index: int
    wait: Annotated[float, _WAIT]


@request(FrameKind.LIST_ACTORS, needs=_ANY)
class ListActors(RequestBody):
    """List the actors. OK: ``actors``, a list of {name, class, version, instances, digest}."""

    stale: bool


@request(FrameKind.DESCRIBE_ACTOR, needs=Need(Right.READ, Right.CALL, actor="name"))
class DescribeActor(RequestBody):
    """Describe an actor. OK: ``actor`` = {name, version, commands, queries}: ``Interface.to_wire()``."""

    name: str


# -- Sinks ----------------------------------------------------------------------------------------------------


@request(FrameKind.BEGIN_ATTEMPT, needs=Need(Right.APPEND, sink="sink"), record=Kind.BEGIN_ATTEMPT)
class BeginAttempt(RequestBody):
    """Begin an attempt at a batch of a sink.

    The leader adds ``keep_bytes`` to the record: the attempt is dropped when the log has grown by this many bytes.

    OK: ``attempt``, its id; 0 = the batch is committed already, and ``commit`` is as CommitAttempts returns it.
    """

    sink: str
    owner: str
    run: str
    batch: int
    name: str
    reset: bool
    keep_seconds: int
    forget_seconds: int = 0
    """0 = the sink is kept until ForgetSink."""


@request(FrameKind.SEAL_ATTEMPT, needs=Need(Right.APPEND, attempt="attempt"), record=Kind.SEAL_ATTEMPT)
class SealAttempt(RequestBody):
    """Close an attempt that holds ``batches`` batches.

    ``checksum``: the crc32c over the entries of the batches (see CommitAttempts) in the order of their indices.
    """

    attempt: int
    batches: int
    checksum: int


@request(FrameKind.ABORT_ATTEMPTS, needs=Need(Right.APPEND, sink="sink"), record=Kind.ABORT_ATTEMPTS)
class AbortAttempts(RequestBody):
    """Drop an attempt at a batch; ``attempt`` 0 = all of the run's."""

    sink: str
    run: str
    batch: int
    attempt: int


@request(FrameKind.COMMIT, needs=Need(Right.APPEND, sink="sink"), record=Kind.COMMIT)
class CommitAttempts(RequestBody):
    """Assign positions to all records that these attempts staged, at once.

    ``parts``: [attempt, entries] in the order that the records get. The entries are 20 bytes for each staged batch,
    little-endian: index u64, topic id u32, record count u32, size u32.

    OK: ``commit`` = {sink, batch, duplicate, ranges, index, log_time}; ``ranges`` is a list of [topic's name, first
    position, count], None if they are no longer kept.
    """

    sink: str
    owner: str
    run: str
    batch: int
    parts: list[list[object]]


@request(FrameKind.LIST_SINKS, needs=_ANY)
class ListSinks(RequestBody):
    """List all sinks. OK: ``sinks``, a list of the maps that DescribeSink returns."""

    stale: bool


@request(FrameKind.DESCRIBE_SINK, needs=Need(Right.READ, Right.APPEND, sink="name"))
class DescribeSink(RequestBody):
    """Describe a sink.

    OK: ``sink`` = {name, owner, run, batch (the last committed, -1 = none), index and log_time (of that COMMIT),
    ranges, keep_seconds, forget_seconds, attempts, sealed, bytes (staged)}.
    """

    name: str
    stale: bool


@request(FrameKind.FORGET_SINK, needs=_ADMINISTER, record=Kind.FORGET_SINK)
class ForgetSink(RequestBody):
    """Forget which batches were committed to a sink, and drop its staged records."""

    name: str


# -- Nodes ----------------------------------------------------------------------------------------------------


@request(FrameKind.STATUS, needs=ANYONE)
class AskStatus(RequestBody):
    """Ask for the node's status, which ``viewstamp status`` prints.

    OK: ``status``; if the request has a challenge, also its answer (``identity_fields`` in ``wire/identity_proof.py``).
    """

    challenge: Annotated[bytes, _CHALLENGE] = b""


@request(FrameKind.CHANGE_MEMBERS, needs=_ADMINISTER)
class ChangeMembership(RequestBody):
    """Change the membership; ``action`` is add, learn, replace or remove.

    OK, once the change is committed: ``membership`` = {generation, voters, learners, outgoing, joining}. A member that
    is added is a learner then, and is promoted when it has caught up.
    """

    action: str
    node: str
    address: str
    replaces: str


@request(FrameKind.TRANSFER_LEADERSHIP, needs=_ADMINISTER)
class TransferLeadership(RequestBody):
    """Hand the leadership over to ``node``; "" = to the member that is closest. OK: ``leader``."""

    node: str


@request(FrameKind.CREATE_SNAPSHOT, needs=_ADMINISTER)
class CreateSnapshot(RequestBody):
    """Take a snapshot of this node's state. OK: ``snapshot`` = {index, term, bytes, seconds}."""


@request(FrameKind.LIST_SNAPSHOTS, needs=_ADMINISTER)
class ListSnapshots(RequestBody):
    """List the snapshots of this node. OK: ``snapshots``, a list of {index, term, bytes, created}, the newest first."""


# -- Groups ---------------------------------------------------------------------------------------------------


@request(FrameKind.PLACE_GROUP, needs=_ADMINISTER, record=Kind.PLACE_GROUP)
class PlaceGroup(RequestBody):
    """Place a group with these streams on these nodes. A second copy of the request finds the same group.

    The leader of group 0 first asks every member of group 0 whether its release knows groups, and adds the addresses of
    the founders to the record.

    OK: ``group`` = {id, members (the founders: name to address), streams, hosted (the founders that have created their
    directory), is_established}.
    """

    streams: list[str]
    founders: list[str]
    """The names of voters of group 0; [] = all of them, or those of the group that has these streams."""
    since: int
    """An index that was applied somewhere before the first copy of the request was sent. The request is refused if a
    group was cancelled after it, so that a late copy does not place a cancelled group again."""


@request(FrameKind.CANCEL_GROUP, needs=_ADMINISTER, record=Kind.CANCEL_GROUP)
class CancelGroup(RequestBody):
    """Cancel a group that is not established. A second copy of the request changes nothing. OK without fields."""

    group: int


@request(FrameKind.LIST_GROUPS, needs=_ANY)
class ListGroups(RequestBody):
    """List the groups that are placed. OK: ``groups``, a list of the maps that PlaceGroup returns; ``applied_index``.

    ``applied_index``: what ``since`` of a PlaceGroup has to be.
    """


# -- Tokens ---------------------------------------------------------------------------------------------------


@request(FrameKind.CREATE_TOKEN, needs=_ADMINISTER, record=Kind.CREATE_TOKEN)
class CreateToken(RequestBody):
    """Create a token. The same request again changes nothing.

    The first token with the role administer turns access control on, for good.

    OK: ``token`` = {id, name, roles, created, expires, ended, old_until, rotation, is_on}: log times in microseconds, 0
    = never; ``is_on``: whether access control is on.
    """

    token: str
    """Its public id, chosen by the client."""
    name: str
    roles: list[str]
    hash: Annotated[bytes, _HASH]
    expire_seconds: int
    """Seconds of log time until it ends; 0 = never."""


@request(FrameKind.ROTATE_TOKEN, needs=_ADMINISTER, record=Kind.ROTATE_TOKEN)
class RotateToken(RequestBody):
    """Give a token a new secret. The secret before it stays valid for ``keep_seconds`` of log time. OK: as CreateToken.

    ``rotation``: one more than the token's present number, so that a late copy of an older request changes nothing.
    """

    token: str
    rotation: int
    hash: Annotated[bytes, _HASH]
    keep_seconds: int


@request(FrameKind.REVOKE_TOKEN, needs=_ADMINISTER, record=Kind.REVOKE_TOKEN)
class RevokeToken(RequestBody):
    """End a token for good, or only the secrets before its newest one. OK: as CreateToken."""

    token: str
    only_old: bool


@request(FrameKind.LIST_TOKENS, needs=_ADMINISTER)
class ListTokens(RequestBody):
    """List all tokens. OK: ``tokens``, a list of the maps that CreateToken returns; ``is_on``."""


@request(FrameKind.LIST_AUDIT, needs=_ADMINISTER)
class ListAudit(RequestBody):
    """List the newest administrative actions.

    OK: ``entries``, a list of [log time, index, caller, action, subject], the oldest first.
    """

    since: int
    """Log time in microseconds; entries before it are left out."""


@request(FrameKind.PROVE_DIRECTORY, needs=ANYONE)
class ProveDirectory(RequestBody):
    """Prove that the client can read the data directory of a member; it is an administrator on this connection then.

    ``proof``: ``administrator_proof`` of the incarnation in the directory of ``node`` and of the challenge in WELCOME.
    Has no id and no answer, so that the next request need not wait.
    """

    node: str
    proof: bytes


# -- Backups --------------------------------------------------------------------------------------------------


@request(FrameKind.DESCRIBE_LOG, needs=_ADMINISTER)
class DescribeLog(RequestBody):
    """Describe the log that this node has applied, and its state at that index, for a backup.

    The node first applies everything that was committed when the request arrived, as for a linearizable read; so it
    needs a leader. With ``stale`` it answers at once, and the newest records may be missing.

    OK: ``log`` = {cluster, node, first_index, end (exclusive), term and log_time of the last record, history (pairs of
    term and first index), chain and lineage (checksums of the state), topics, sinks, actors and snapshots (as the
    requests that list them answer)}.
    """

    stale: bool


@request(FrameKind.COPY_LOG, needs=_ADMINISTER)
class CopyLog(RequestBody):
    """Read committed batches, as ReadLog, with zeros in place of the incarnations of members.

    OK; payload: whole batches from index ``start`` on, none beyond ``end``; none = not durable here yet.
    """

    start: int
    end: int
    bytes_max: Annotated[int, _SOME_BYTES]


@request(FrameKind.COPY_SNAPSHOT, needs=_ADMINISTER)
class CopySnapshot(RequestBody):
    """Read a piece of a snapshot's file, as ReadSnapshot, with zeros in place of the incarnations of members."""

    end: int
    term: int
    offset: int
    bytes_max: Annotated[int, _SOME_BYTES]


# -- Peers ----------------------------------------------------------------------------------------------------


@request(FrameKind.READ_SNAPSHOT, needs=MEMBERS)
class ReadSnapshot(RequestBody):
    """Read a piece of a snapshot's file. OK: ``size`` and ``identity`` of the file; payload: bytes from ``offset``."""

    end: int
    term: int
    offset: int
    bytes_max: int


@request(FrameKind.READ_LOG, needs=MEMBERS)
class ReadLog(RequestBody):
    """Read committed batches. OK; payload: whole batches from index ``start`` on, at least one, none beyond ``end``."""

    start: int
    end: int
    bytes_max: int


@request(FrameKind.JOIN, needs=MEMBERS)
class AskToJoin(RequestBody):
    """Ask to be added; has no id and no answer. ``member``: passed on for another node that asks; "" = the sender."""

    address: str
    member: str = ""


@request(FrameKind.HOSTED, needs=MEMBERS)
class ReportHosted(RequestBody):
    """Report the disk of the sender in a group that was placed on it; has no id and no answer, and is repeated."""

    group: int
    incarnation: str


@request(FrameKind.REPORT_STREAMS, needs=MEMBERS)
class ReportStreams(RequestBody):
    """Report the committed ends of streams of a group; has no id and no answer, and is repeated.

    ``ends``: of each stream that has moved, its name, the end of its records and the end of its map. ``is_awaited``: a
    caller waits for global positions, so they are given at once.
    """

    group: int
    ends: list[object]
    is_awaited: bool


PeerReport = ReportHosted | ReportStreams
"""What a member reports to the leader of group 0 about the other groups that it hosts."""
