"""The requests that nodes answer: one dataclass for each. The client packs it and the node reads it.

This file has the requests about topics, sessions, actors and the node itself. The others are in the files that it
imports (``sink_requests``, ``token_requests`` ...), so that the whole table ``REQUESTS`` is here.

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
    copy_requests,  # noqa: F401
    group_requests,  # noqa: F401
    keyed_requests,  # noqa: F401
    ordered_requests,  # noqa: F401
    peer_requests,  # noqa: F401
    schema_requests,  # noqa: F401
    sink_requests,  # noqa: F401
    spread_actors,  # noqa: F401
    spread_requests,  # noqa: F401
    token_requests,  # noqa: F401
)
from viewstamp.wire.access import ANYONE, PAYLOAD, Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.identity_proof import CHALLENGE_BYTES
from viewstamp.wire.schema import REQUESTS, Range, RequestBody, request

__all__ = [
    "REQUESTS",
    "AppendBatch",
    "AppendBatchAt",
    "AskOutcome",
    "AskStatus",
    "CallActors",
    "ChangeMembership",
    "ConfigureTopic",
    "CreateSnapshot",
    "CreateTopic",
    "DescribeActor",
    "DescribeTopic",
    "FindTime",
    "ListActors",
    "ListSnapshots",
    "ListTopics",
    "OpenSession",
    "QueryActor",
    "ReadTopic",
    "SplitTopic",
    "TransferLeadership",
    "TrimTopic",
    "WatchActor",
]

_POSITION = Range(1, remedy="positions begin at 1")
_SOME_BYTES = Range(1, remedy="ask for at least one byte")
_WAIT = Range(0, 600.0, remedy="wait from 0 to 600 s")
"""A node holds a request for at most this many seconds until there is something to answer."""
_STALENESS = Range(0, math.inf, remedy="give seconds, from 0 on, or none at all")
_CHALLENGE = Range(CHALLENGE_BYTES, CHALLENGE_BYTES, remedy=f"send a challenge of {CHALLENGE_BYTES} random bytes")

_ADMINISTER = Need(Right.ADMINISTER)
_ANY = Need(Right.READ, Right.APPEND, Right.CALL)
"""Any token that is valid."""

# -- Appends --------------------------------------------------------------------------------------------------


@request(FrameKind.APPEND, needs=Need(Right.APPEND, topic=PAYLOAD), payload=Kind.RECORDS)
class AppendBatch(RequestBody):
    """Append the batch in the payload.

    ``ordered``: a caller is going to ask for the global position of a record (``WaitOrdered``), so its stream is
    ordered as soon as the batch is committed. A release that does not know the field orders it when the caller asks.

    OK: ``receipt`` = [first position, count, term, first index, log time].
    """

    ordered: bool = False


@request(FrameKind.APPEND_AT, needs=Need(Right.APPEND, topic=PAYLOAD), payload=Kind.RECORDS)
class AppendBatchAt(RequestBody):
    """Append the batch in the payload if its first position will be ``position``.

    ``ordered``, and OK: as AppendBatch. ERROR PositionMismatchError has ``actual``, the topic's next position. It was
    decided in the log: the sequence is used up, as by a fence.
    """

    position: Annotated[int, _POSITION]
    ordered: bool = False


@request(FrameKind.CALL, needs=Need(Right.CALL, actor=PAYLOAD), payload=Kind.COMMANDS)
class CallActors(RequestBody):
    """Append the batch of commands in the payload (``wire/commands.py``).

    OK: ``receipt`` as AppendBatch, with position 0, and ``results``: a packed result for each command.
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
    """Hand the leadership over to ``node``; "" = to the member that is closest. OK: ``leader``.

    ``noted``: in another group than 0 with access control, the index that NoteTransfer returned.
    """

    node: str
    noted: int = 0


@request(FrameKind.CREATE_SNAPSHOT, needs=_ADMINISTER)
class CreateSnapshot(RequestBody):
    """Take a snapshot of this node's state. OK: ``snapshot`` = {index, term, bytes, seconds}."""


@request(FrameKind.LIST_SNAPSHOTS, needs=_ADMINISTER)
class ListSnapshots(RequestBody):
    """List the snapshots of this node. OK: ``snapshots``, a list of {index, term, bytes, created}, the newest first."""


_in_order = sorted(REQUESTS.items())  # By kind: the order of the imports, and so of the rows, depends on the importer.
REQUESTS.clear()
REQUESTS.update(_in_order)
