"""The handlers of requests, one for each row of the table of requests, and the interface of the node for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgpack

from viewstamp.errors import (
    RecordTooLargeError,
    RequestError,
    ViewstampError,
)
from viewstamp.host.interfaces import Lock
from viewstamp.ids import GroupId, Index, NodeId, Position, Sequence, SessionId, Stream
from viewstamp.node.access import ANONYMOUS, Credentials, Gate
from viewstamp.node.answers import Membered, outcome_fields, result_fields
from viewstamp.node.beats import Beats
from viewstamp.node.budget import Appending
from viewstamp.node.crowd import CrowdLimits
from viewstamp.node.inbox import FromPeer, Join
from viewstamp.node.keyed_rows import Lookup, ScannedRows
from viewstamp.node.placement_queries import PlacedGroup, SpreadTopic
from viewstamp.node.ports import ArchivingService
from viewstamp.node.reading import Reading
from viewstamp.node.state_machine import Query, Result, TopicsQuery
from viewstamp.wire.access import audit_record, opening_record
from viewstamp.wire.batch import Batch, Buffer, Kind, build_batch
from viewstamp.wire.copy_requests import CopyLog, CopySnapshot, DescribeLog
from viewstamp.wire.frame import Frame
from viewstamp.wire.group_requests import HostGroup, PlaceGroup, RemoveGroup, UnhostGroup
from viewstamp.wire.handshake import Hello
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.peer_requests import PeerReport, ReadLog, ReadSnapshot
from viewstamp.wire.requests import (
    AppendBatch,
    AppendBatchAt,
    AskOutcome,
    AskStatus,
    CallActors,
    ConfigureTopic,
    CreateSnapshot,
    CreateTopic,
    ListSnapshots,
    ListTopics,
    OpenSession,
    TrimTopic,
)
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.sink_requests import (
    AbortAttempts,
    BeginAttempt,
    CommitAttempts,
    ForgetSink,
    SealAttempt,
    StageBatch,
)
from viewstamp.wire.spread_actors import SpreadActor, SpreadActorOverGroups
from viewstamp.wire.spread_requests import AddStream, CreateSpreadTopic, LoseStream, RemoveStream, SealStream
from viewstamp.wire.token_requests import CreateToken, RevokeToken, RotateToken

__all__ = [
    "FROM_CLIENTS",
    "FROM_PEERS",
    "PROPOSED",
    "AtOnce",
    "Caller",
    "GroupService",
    "KeyedService",
    "Limits",
    "OrderingService",
    "PlacingService",
    "Service",
    "TokenService",
    "at_once",
    "in_a_task",
    "name_of_caller",
    "note_action",
    "proposes",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of requests, in bytes."""

    record_bytes_max: int = 1024 * 1024
    batch_bytes_max: int = 8 * 1024 * 1024
    frame_bytes_max: int = 64 * 1024 * 1024
    in_flight_bytes_max: int = 64 * 1024 * 1024
    """Batches of all clients that are not answered yet; of several groups each has a share (``budget.py``)."""
    staged_keep_bytes: int = 0
    """Staged records of a sink are dropped after this many further bytes of the log; 0 = no such limit."""
    crowd: CrowdLimits = field(default_factory=CrowdLimits)
    """Limits of all connections together."""


class GroupService(Appending, Membered, Protocol):
    """The requests that one group of a node answers."""

    @property
    def id(self) -> GroupId:
        """Return the id of the group."""
        ...

    def propose(
        self, batch: Batch, answer: Callable[[Result | ViewstampError], None], caller: Credentials | None = None
    ) -> None:
        """Propose ``batch`` of ``caller``; ``answer`` is called once with the outcome. Raises UnavailableError."""
        ...

    @property
    def gate(self) -> Gate:
        """Decides by the applied state about the rights of callers."""
        ...

    def incarnations_of(self, name: str) -> list[str]:
        """Return the known incarnations of the members of this name, this node's own among them."""
        ...

    @property
    def reading(self) -> Reading:
        """Return the reader of the member's state. Raises UnavailableError."""
        ...

    def check_replayed(self) -> None:
        """Raise UnavailableError until the log has been replayed; before that the state is empty."""
        ...

    def step(self, message: FromPeer, incarnation: str) -> None:
        """Take a consensus message of a peer with this disk. Raises LostDiskError, WrongClusterError."""
        ...

    def check_source(self, peer: NodeId, incarnation: str) -> None:
        """Check that messages of a peer with this disk are accepted. Raises LostDiskError, WrongClusterError."""
        ...

    def meet(self, peer: NodeId, hello: Hello) -> bool:
        """Check the opener of a peer connection; return whether it may read the log. As ``PeerPool.meet``."""
        ...

    def join(self, join: Join) -> None:
        """Take the request of a node that lost its disk to be added."""
        ...

    def take_report(self, source: NodeId, incarnation: str, asked: PeerReport) -> None:
        """Take a member's report about another group. Raises LostDiskError, FrameError."""
        ...

    async def change_members(self, action: str, node: str, address: str, replaces: str) -> dict[str, object]:
        """Change the membership; return it, committed."""
        ...

    async def transfer_leadership(self, node: str) -> dict[str, object]:
        """Hand the leadership over."""
        ...

    async def create_snapshot(self) -> dict[str, object]:
        """Take a snapshot of this node's state."""
        ...

    def list_snapshots(self, *, to_peer: bool = False) -> list[dict[str, object]]:
        """Return this node's snapshots."""
        ...

    async def read_snapshot(self, end: int, term: int, offset: int, bytes_max: int) -> tuple[int, int, bytes]:
        """Return size and identity of a snapshot's file, and bytes of it."""
        ...

    async def read_log(self, start: int, end: int, bytes_max: int) -> list[Batch]:
        """Return committed batches, for a member that repairs its log."""
        ...

    def describe_log(self, *, with_groups: bool = False) -> dict[str, object]:
        """Return the description of the applied log, and of the state there."""
        ...

    async def copy_log(self, start: int, end: int, bytes_max: int) -> list[Batch]:
        """Return committed batches without the incarnations of members, for a backup."""
        ...

    async def copy_snapshot(self, end: int, term: int, offset: int, bytes_max: int) -> tuple[int, int, bytes]:
        """Return size and identity of the copy of a snapshot, and bytes of it, for a backup."""
        ...

    def digest(self, source: NodeId, incarnation: str, body: object) -> None:
        """Take the report of a member with this disk on its state. Raises FrameError, and as :meth:`step`."""
        ...

    @property
    def me(self) -> NodeId:
        """Return the id of this member in the group."""
        ...

    @property
    def incarnation(self) -> str:
        """Return the random id of this node's disk; "" until its log has been replayed."""
        ...

    @property
    def applied_index(self) -> Index:
        """Return the last index that this node has applied."""
        ...


class PlacingService(Protocol):
    """The placing of groups by the leader of group 0."""

    async def prepare_hosts(self, asked: HostGroup | UnhostGroup, *, by: str) -> Batch | PlacedGroup:
        """Return the record that changes the hosts of a group; as ``Placer.prepare_hosts``."""
        ...

    async def prepare(self, asked: PlaceGroup, *, by: str) -> Batch | PlacedGroup:
        """Return the record to propose, or the group that exists. Raises as ``Placer.prepare``."""
        ...

    async def prepare_topic(self, asked: CreateSpreadTopic, *, by: str) -> Batch | SpreadTopic:
        """Return the record to propose, or the topic that exists. Raises as ``Placer.prepare_topic``."""
        ...

    async def prepare_change(self, record: Batch) -> Batch | SpreadTopic:
        """Return the record to propose, or the topic if it changes nothing. Raises as ``Placer.prepare_change``."""
        ...

    async def prepare_stream(self, asked: AddStream, *, by: str) -> Batch | SpreadTopic:
        """Return the record to propose, or the topic if it has the stream. Raises as ``Placer.prepare_stream``."""
        ...

    async def prepare_end(self, asked: SealStream | LoseStream, *, by: str) -> Batch | SpreadTopic:
        """Return the record to propose, or the topic if the stream is ended. Raises as ``Placer.prepare_end``."""
        ...

    async def prepare_removal(self, asked: RemoveStream, *, by: str) -> Batch | SpreadTopic:
        """Return the record to propose, or the topic if the stream is removed. Raises as ``Placer.prepare_removal``."""
        ...

    async def prepare_group_removal(self, asked: RemoveGroup, *, by: str) -> Batch | PlacedGroup:
        """Return the record to propose, or the group if it is gone. Raises as ``Placer.prepare_group_removal``."""
        ...

    async def check_parts(self) -> None:
        """Check that all members read the records about parts of attempts. Raises as ``Placer.check_parts``."""
        ...

    async def prepare_actor(self, asked: SpreadActorOverGroups, *, by: str) -> Batch | SpreadActor:
        """Return the record to propose, or the actor that is spread. Raises as ``Placer.prepare_actor``."""
        ...


class OrderingService(Protocol):
    """The order of streams."""

    async def wait(self, stream: Stream, position: int, seconds: float, *, expects: bool = False) -> list[GlobalRun]:
        """Return the runs with the records of a stream from ``position`` on. Raises as ``OrderWaits.wait``."""
        ...

    async def wait_moved(self, group: GroupId, *, further: Reading | None = None) -> None:
        """Wait until more global positions of a group's streams may be known; as ``OrderWaits.wait_moved``."""
        ...

    def expect_commit(self, group: GroupId) -> None:
        """Let the node that leads group 0 find the commit of what was just proposed; see the implementation."""
        ...

    def expect(self, group: GroupId) -> None:
        """Have a group reported at once, because it has applied a record whose caller will ask for its place."""
        ...


class TokenService(Protocol):
    """The age of the tokens that this node has."""

    def use(self, gate: Gate, credentials: Credentials) -> bool:
        """Return whether the tokens are fresh enough for a request of a caller in another group; keep them so."""
        ...

    async def confirm(self, credentials: Credentials) -> None:
        """Wait until the state of group 0 is fresh, for a request of a caller. Raises UnavailableError."""
        ...


class KeyedService(Protocol):
    """The reads of keyed topics by key. They raise as those of ``KeyedReads``."""

    async def get(self, name: str, key: bytes) -> Lookup:
        """Return the last record of a key."""
        ...

    async def scan(self, name: str, start: bytes, end: bytes | None, bytes_max: int) -> ScannedRows:
        """Return the last records of keys, in the order of the keys."""
        ...


class Service(Protocol):
    """The calls of the server to its node."""

    @property
    def token_age(self) -> TokenService:
        """Return the part that keeps the tokens fresh for requests of other groups."""
        ...

    @property
    def order_waits(self) -> OrderingService:
        """Return the part that waits for global positions."""
        ...

    @property
    def archivist(self) -> ArchivingService:
        """Return the part that archives the topics of group 0."""
        ...

    def archivist_of(self, group: GroupId) -> ArchivingService:
        """Return the part that archives the topics of a hosted group. Raises UnavailableError."""
        ...

    @property
    def keyed(self) -> KeyedService:
        """Return the part that reads keyed topics."""
        ...

    @property
    def placer(self) -> PlacingService:
        """Return the part that places groups."""
        ...

    @property
    def group(self) -> GroupService:
        """Return group 0."""
        ...

    @property
    def groups(self) -> Mapping[GroupId, GroupService]:
        """Return all hosted groups."""
        ...

    def group_of(self, group: GroupId) -> GroupService:
        """Return a group that this node hosts. Raises UnavailableError if it hosts none, or it has failed."""
        ...

    @property
    def beats(self) -> Beats:
        """Return what sends the heartbeats of all groups of the node but group 0."""
        ...

    @property
    def durability(self) -> str:
        """Return the durability that an acknowledgement here stands for."""
        ...

    @property
    def lock(self) -> Lock | None:
        """Return the lock of the data directory; None while the node is stopped."""
        ...

    @property
    def status(self) -> dict[str, object]:
        """The node's status."""
        ...


class Caller(Protocol):
    """The connection of a request."""

    @property
    def service(self) -> Service:
        """The node that answers."""
        ...

    @property
    def group(self) -> GroupService:
        """The group that answers."""
        ...

    @property
    def limits(self) -> Limits:
        """Return the limits of requests."""
        ...

    @property
    def read_lock(self) -> asyncio.Lock:
        """Return the lock to hold from before an answer to READ until the other side has read most of it."""
        ...

    def ok(self, request: int, fields: Mapping[str, object], payload: list[Buffer] | tuple[()] = ()) -> None:
        """Answer OK."""
        ...

    def propose(
        self,
        request: int,
        batch: Batch,
        fields: Callable[[Result], dict[str, object]],
        *,
        then: Callable[[GroupId], None] | None = None,
    ) -> None:
        """Propose a batch, and answer with the fields of its result; then call ``then`` with the group.

        Raises UnavailableError.
        """
        ...

    def read(self, request: int, asked: RequestBody, key: str, query: Query[object]) -> None:
        """Answer with the result of a linearizable query, under ``key``. Raises OverloadedError."""
        ...

    @property
    def gate(self) -> Gate:
        """Decides about the rights of callers, by the tokens in the state of group 0."""
        ...

    @property
    def credentials(self) -> Credentials:
        """Who sends the requests."""
        ...

    def check(self, asked: RequestBody) -> None:
        """Check whether the caller may still send the request, by the present state. Raises AccessDeniedError."""
        ...

    def start(self, request: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a handler in a task; an error that it raises is the answer. Raises OverloadedError."""
        ...

    def identity(self, challenge: bytes) -> dict[str, object]:
        """Return the answer to a challenge, {} if there is none."""
        ...

    async def drain(self) -> None:
        """Write the waiting answers, and return when the other side has read most of them."""
        ...


_PUBLIC_STATUS = (
    *("id", "cluster_id", "release", "process", "address", "lifecycle", "role", "leader", "term"),
    *("member_id", "members", "membership"),
)
"""The fields of the status that a caller without a right gets: a client needs them to find the leader."""
BodyT = TypeVar("BodyT", bound=RequestBody)
AtOnce = Callable[["Caller", int, BodyT, Frame], None]
InATask = Callable[["Caller", int, BodyT], Coroutine[Any, Any, None]]

FROM_CLIENTS: dict[int, tuple[type[RequestBody], AtOnce[Any]]] = {}
"""By the kind of a client's frame: the row that reads its body, and the handler."""
FROM_PEERS: dict[int, tuple[type[RequestBody], AtOnce[Any]]] = {}
"""The same for peers that may read the log."""


PROPOSED: set[int] = set()
"""The kinds of requests that become a batch in the log: the leader checks their caller when it admits the batch."""


def at_once(*rows: type[BodyT]) -> Callable[[AtOnce[BodyT]], AtOnce[BodyT]]:
    """Register a handler of client requests that never waits; an error that it raises is the answer."""

    def register(handler: AtOnce[BodyT]) -> AtOnce[BodyT]:
        for row in rows:
            assert row.kind not in FROM_CLIENTS, f"{row.__name__} has a handler already"
            FROM_CLIENTS[row.kind] = row, handler
        return handler

    return register


def proposes(*rows: type[BodyT]) -> Callable[[AtOnce[BodyT]], AtOnce[BodyT]]:
    """Register a handler that proposes a batch. It does nothing else, because the caller is checked at admission."""
    PROPOSED.update(row.kind for row in rows)
    return at_once(*rows)


def in_a_task(
    row: type[BodyT], table: dict[int, tuple[type[RequestBody], AtOnce[Any]]] = FROM_CLIENTS
) -> Callable[[InATask[BodyT]], InATask[BodyT]]:
    """Register the handler of a request that runs in a task of its own."""

    def register(handler: InATask[BodyT]) -> InATask[BodyT]:
        assert row.kind not in table, f"{row.__name__} has a handler already"

        def start(caller: Caller, request: int, asked: BodyT, frame: Frame) -> None:
            caller.start(request, lambda: handler(caller, request, asked))

        table[row.kind] = row, start
        return handler

    return register


@in_a_task(ListSnapshots, FROM_PEERS)
async def _offer_snapshots(caller: Caller, request: int, asked: ListSnapshots) -> None:
    caller.ok(request, {"snapshots": caller.group.list_snapshots(to_peer=True)})


@in_a_task(ReadLog, FROM_PEERS)
async def _read_log(caller: Caller, request: int, asked: ReadLog) -> None:
    bytes_max = min(asked.bytes_max, caller.limits.batch_bytes_max)
    batches = await caller.group.read_log(asked.start, asked.end, bytes_max)
    caller.ok(request, {}, [batch.buffer for batch in batches])


@in_a_task(ReadSnapshot, FROM_PEERS)
async def _read_snapshot(caller: Caller, request: int, asked: ReadSnapshot) -> None:
    bytes_max = min(asked.bytes_max, caller.limits.batch_bytes_max)
    size, identity, data = await caller.group.read_snapshot(asked.end, asked.term, asked.offset, bytes_max)
    caller.ok(request, {"size": size, "identity": identity}, [data])


# -- Requests that a batch in the log answers ------------------------------------------------------------


@proposes(AppendBatch, AppendBatchAt, CallActors, StageBatch)
def _append(caller: Caller, request: int, asked: RequestBody, frame: Frame) -> None:
    if len(frame.payload) > caller.limits.batch_bytes_max:
        raise _too_large(caller, len(frame.payload))
    # A copy of exactly this size: the leader stamps it in place, and it lives as long as the log's cache.
    batch = Batch.decode(bytearray(frame.payload))
    if batch.kind is not asked.payload or batch.first_index != 0:
        raise RequestError(f"{batch!r} is not a batch that this request can append")
    if isinstance(asked, AppendBatchAt):
        batch.first_position = Position(asked.position)
    elif batch.first_position:
        batch.first_position = Position(0)
    is_awaited = isinstance(asked, AppendBatch | AppendBatchAt) and asked.ordered
    caller.propose(request, batch, outcome_fields, then=caller.service.order_waits.expect if is_awaited else None)
    if is_awaited:
        caller.service.order_waits.expect_commit(caller.group.id)


@proposes(OpenSession)
def _open_session(caller: Caller, request: int, asked: OpenSession, frame: Frame) -> None:
    owner = caller.gate.owner(caller.credentials)
    caller.propose(request, build_batch([opening_record(owner)], kind=Kind.OPEN_SESSION), result_fields)


@proposes(AskOutcome)
def _ask_outcome(caller: Caller, request: int, asked: AskOutcome, frame: Frame) -> None:
    session, sequence = SessionId(asked.session), Sequence(asked.sequence)
    batch = build_batch([b""], kind=Kind.FENCE, session=session, sequence=sequence)
    caller.propose(request, batch, outcome_fields)


@proposes(CreateTopic, ConfigureTopic, TrimTopic, BeginAttempt, SealAttempt, AbortAttempts, CommitAttempts, ForgetSink)
@proposes(CreateToken, RotateToken, RevokeToken)
def _write_record(caller: Caller, request: int, asked: RequestBody, frame: Frame) -> None:
    """Write the body into the log, with keys that a newer client may have added: all members read it there."""
    assert asked.record is not None
    check_home(caller, asked)
    if isinstance(asked, CreateTopic):
        check_may_create(caller, asked.name)
    fields = {name: value for name, value in frame.body.items() if name not in ("id", "by")}
    if asked.needs.is_administrative or asked.record is Kind.CREATE_TOPIC:
        by = name_of_caller(caller)
        if by:
            fields["by"] = by
    if isinstance(asked, BeginAttempt):
        fields["keep_bytes"] = caller.limits.staged_keep_bytes
    batch = build_batch([msgpack.packb(fields)], kind=asked.record)
    if batch.size > caller.limits.batch_bytes_max:
        raise _too_large(caller, batch.size)
    caller.propose(request, batch, result_fields)


def check_home(caller: Caller, asked: RequestBody) -> None:
    """Raise RequestError for a record of tokens in another group than 0, and, with access control, for what is audited.

    The audit log is in group 0. The settings of a stream are those of its topic there.
    """
    if caller.group is not caller.service.group:
        is_token = isinstance(asked, CreateToken | RotateToken | RevokeToken)
        is_sink = isinstance(asked, BeginAttempt | AbortAttempts | CommitAttempts | ForgetSink)
        if is_token or is_sink or (asked.needs.is_administrative and caller.gate.access.is_on):
            raise RequestError(
                f"a {asked.kind.name} belongs to group 0, and this connection to group {caller.group.id}; nothing was"
                " changed",
                remedy="send the request on a connection whose HELLO names no group",
            )


def check_may_create(caller: Caller, topic: str) -> None:
    """Raise RequestError on the connection of another group than 0, because its leader creates its topics itself.

    They are the streams of spread topics. One that a client had created would be no stream of any topic.
    """
    if caller.group is not caller.service.group:
        raise RequestError(
            f"topic {topic!r} cannot be created in another group than 0; nothing was created",
            remedy="create a topic with streams in group 0, and the leaders of the groups create the streams",
        )


def name_of_caller(caller: Caller) -> str:
    """Return the name of the caller for the audit log; "" = none is known."""
    by = caller.gate.who(caller.credentials)
    return "" if by == ANONYMOUS else by


def _too_large(caller: Caller, size: int) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"a batch of {size} bytes is over the limit of {caller.limits.batch_bytes_max}",
        remedy="append fewer records at once, or raise [limits] batch_bytes_max on every node",
    )


# -- Requests that the node answers ----------------------------------------------------------------------


@at_once(AskStatus)
def _status(caller: Caller, request: int, asked: AskStatus, frame: Frame) -> None:
    status = caller.service.status
    if not caller.gate.sees(caller.credentials, ListTopics, None):
        status = {name: status[name] for name in _PUBLIC_STATUS if name in status}
    caller.ok(request, {"status": status, **caller.identity(asked.challenge)})


@at_once(ListSnapshots)
def _list_snapshots(caller: Caller, request: int, asked: ListSnapshots, frame: Frame) -> None:
    caller.ok(request, {"snapshots": caller.group.list_snapshots()})


@in_a_task(CreateSnapshot)
async def _create_snapshot(caller: Caller, request: int, asked: CreateSnapshot) -> None:
    if caller.group is caller.service.group:
        with suppress(ViewstampError):  # Only a leader can write it, and a snapshot changes nothing.
            await note_action(caller, "snapshot create", "")
    caller.check(asked)
    caller.ok(request, {"snapshot": await caller.group.create_snapshot()})


async def note_action(caller: Caller, action: str, detail: str) -> None:
    """Write an action in group 0 into the audit log before it is begun, if access control is on.

    So the log may have an action that failed, and lacks none that had an effect. The caller checks the right again
    afterwards, because the token may have been revoked meanwhile.

    Raises:
      UnavailableError: it was not written, so the action must not begin.
    """
    gate = caller.gate
    if gate.access.is_on:
        batch = build_batch([audit_record(action, detail, gate.who(caller.credentials))], kind=Kind.AUDIT)
        noted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer(result: Result | ViewstampError) -> None:
            if noted.done():
                return
            if isinstance(result, ViewstampError):
                noted.set_exception(result)
            else:
                noted.set_result(None)

        caller.group.propose(batch, answer)
        await noted


# -- Requests of backups ---------------------------------------------------------------------------------


@in_a_task(DescribeLog)
async def _describe_log(caller: Caller, request: int, asked: DescribeLog) -> None:
    if not asked.stale:
        await caller.group.reading.query(TopicsQuery(), stale=False)  # For the wait, not for the answer.
    caller.check(asked)
    caller.ok(request, {"log": caller.group.describe_log(with_groups=asked.groups)})


@in_a_task(CopyLog)
async def _copy_log(caller: Caller, request: int, asked: CopyLog) -> None:
    async with caller.read_lock:
        bytes_max = min(asked.bytes_max, caller.limits.batch_bytes_max)
        batches = await caller.group.copy_log(asked.start, asked.end, bytes_max)
        caller.check(asked)
        caller.ok(request, {}, [batch.buffer for batch in batches])
        await caller.drain()


@in_a_task(CopySnapshot)
async def _copy_snapshot(caller: Caller, request: int, asked: CopySnapshot) -> None:
    async with caller.read_lock:
        bytes_max = min(asked.bytes_max, caller.limits.batch_bytes_max)
        size, identity, data = await caller.group.copy_snapshot(asked.end, asked.term, asked.offset, bytes_max)
        caller.check(asked)
        caller.ok(request, {"size": size, "identity": identity}, [data])
        await caller.drain()
