"""The handlers of requests, one for each row of the table of requests, and the interface of the node for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgpack

from viewstamp.consensus.membership import Membership
from viewstamp.errors import (
    RecordTooLargeError,
    RequestError,
    ViewstampError,
)
from viewstamp.host.interfaces import Lock
from viewstamp.ids import Index, NodeId, Position, Sequence, SessionId, TopicId
from viewstamp.node.answers import outcome_fields, result_fields
from viewstamp.node.crowd import CrowdLimits
from viewstamp.node.inbox import FromPeer, Join
from viewstamp.node.reading import Reading
from viewstamp.node.state_machine import (
    ActorQuery,
    ActorsQuery,
    InterfaceQuery,
    Query,
    Result,
    SinkQuery,
    SinksQuery,
    SplitQuery,
    TimeQuery,
    TopicQuery,
    TopicsQuery,
)
from viewstamp.wire.batch import Batch, Buffer, Kind, build_batch
from viewstamp.wire.frame import Frame
from viewstamp.wire.handshake import Hello
from viewstamp.wire.requests import (
    AbortAttempts,
    AppendBatch,
    AppendBatchAt,
    AskOutcome,
    AskStatus,
    BeginAttempt,
    CallActors,
    ChangeMembership,
    CommitAttempts,
    ConfigureTopic,
    CreateSnapshot,
    CreateTopic,
    DescribeActor,
    DescribeSink,
    DescribeTopic,
    FindTime,
    ForgetSink,
    ListActors,
    ListSinks,
    ListSnapshots,
    ListTopics,
    OpenSession,
    QueryActor,
    ReadLog,
    ReadSnapshot,
    ReadTopic,
    SealAttempt,
    SplitTopic,
    StageBatch,
    TransferLeadership,
    TrimTopic,
    WatchActor,
)
from viewstamp.wire.schema import RequestBody

__all__ = ["FROM_CLIENTS", "FROM_PEERS", "Caller", "Limits", "Service"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of requests, in bytes."""

    record_bytes_max: int = 1024 * 1024
    batch_bytes_max: int = 8 * 1024 * 1024
    frame_bytes_max: int = 64 * 1024 * 1024
    in_flight_bytes_max: int = 64 * 1024 * 1024
    """Batches of all clients that are not answered yet."""
    staged_keep_bytes: int = 0
    """Staged records of a sink are dropped when the log has grown by this many bytes since; 0 = never because of it."""
    crowd: CrowdLimits = field(default_factory=CrowdLimits)
    """Limits of all connections together."""


class Service(Protocol):
    """The calls of the server to its node."""

    def propose(self, batch: Batch, answer: Callable[[Result | ViewstampError], None]) -> None:
        """Propose ``batch``; ``answer`` is called once with the outcome. Raises UnavailableError."""
        ...

    @property
    def reading(self) -> Reading:
        """Return the reader of the member's state. Raises UnavailableError."""
        ...

    def step(self, message: FromPeer, incarnation: str) -> None:
        """Take a consensus message of a peer with this disk. Raises LostDiskError, WrongClusterError."""
        ...

    def meet(self, peer: NodeId, hello: Hello) -> bool:
        """Check the opener of a peer connection; return whether it may read the log. As ``PeerPool.meet``."""
        ...

    def join(self, join: Join) -> None:
        """Take the request of a node that lost its disk to be added."""
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

    def digest(self, source: NodeId, incarnation: str, body: object) -> None:
        """Take the report of a member with this disk on its state. Raises FrameError, and as :meth:`step`."""
        ...

    @property
    def durability(self) -> str:
        """Return the durability that an acknowledgement here stands for."""
        ...

    @property
    def incarnation(self) -> str:
        """Return the random id of this node's disk; "" until its log has been replayed."""
        ...

    @property
    def lock(self) -> Lock | None:
        """Return the lock of the data directory; None while the node is stopped."""
        ...

    @property
    def membership(self) -> Membership:
        """Return the newest membership in this node's log."""
        ...

    @property
    def applied_index(self) -> Index:
        """Return the last index that this node has applied."""
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

    def propose(self, request: int, batch: Batch, fields: Callable[[Result], dict[str, object]]) -> None:
        """Propose a batch, and answer with the fields of its result. Raises UnavailableError."""
        ...

    def read(self, request: int, key: str, query: Query[object]) -> None:
        """Answer with the result of a linearizable query, under ``key``. Raises OverloadedError."""
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


BodyT = TypeVar("BodyT", bound=RequestBody)
AtOnce = Callable[["Caller", int, BodyT, Frame], None]
InATask = Callable[["Caller", int, BodyT], Coroutine[Any, Any, None]]

FROM_CLIENTS: dict[int, tuple[type[RequestBody], AtOnce[Any]]] = {}
"""By the kind of a client's frame: the row that reads its body, and the handler."""
FROM_PEERS: dict[int, tuple[type[RequestBody], AtOnce[Any]]] = {}
"""The same for peers that may read the log."""


def _at_once(*rows: type[BodyT]) -> Callable[[AtOnce[BodyT]], AtOnce[BodyT]]:
    """Register a handler of client requests that never waits; an error that it raises is the answer."""

    def register(handler: AtOnce[BodyT]) -> AtOnce[BodyT]:
        for row in rows:
            assert row.kind not in FROM_CLIENTS, f"{row.__name__} has a handler already"
            FROM_CLIENTS[row.kind] = row, handler
        return handler

    return register


def _in_a_task(
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


@_in_a_task(ListSnapshots, FROM_PEERS)
async def _offer_snapshots(caller: Caller, request: int, asked: ListSnapshots) -> None:
    caller.ok(request, {"snapshots": caller.service.list_snapshots(to_peer=True)})


@_in_a_task(ReadLog, FROM_PEERS)
async def _read_log(caller: Caller, request: int, asked: ReadLog) -> None:
    bytes_max = min(asked.bytes_max, caller.limits.batch_bytes_max)
    batches = await caller.service.read_log(asked.start, asked.end, bytes_max)
    caller.ok(request, {}, [batch.buffer for batch in batches])


@_in_a_task(ReadSnapshot, FROM_PEERS)
async def _read_snapshot(caller: Caller, request: int, asked: ReadSnapshot) -> None:
    bytes_max = min(asked.bytes_max, caller.limits.batch_bytes_max)
    size, identity, data = await caller.service.read_snapshot(asked.end, asked.term, asked.offset, bytes_max)
    caller.ok(request, {"size": size, "identity": identity}, [data])


# -- Requests that a batch in the log answers ------------------------------------------------------------


@_at_once(AppendBatch, AppendBatchAt, CallActors, StageBatch)
def _append(caller: Caller, request: int, asked: RequestBody, frame: Frame) -> None:
    if len(frame.payload) > caller.limits.batch_bytes_max:
        raise _too_large(caller, len(frame.payload))
    # A copy of exactly this size: the leader stamps it in place, and it lives as long as the log's cache.
    batch = Batch.decode(bytearray(frame.payload))
    if batch.kind is not asked.payload or batch.first_index != 0:
        raise RequestError(f"{batch!r} is not a client's to append")
    batch.first_position = Position(asked.position if isinstance(asked, AppendBatchAt) else 0)
    caller.propose(request, batch, outcome_fields)


@_at_once(OpenSession)
def _open_session(caller: Caller, request: int, asked: OpenSession, frame: Frame) -> None:
    caller.propose(request, build_batch([b""], kind=Kind.OPEN_SESSION), result_fields)


@_at_once(AskOutcome)
def _ask_outcome(caller: Caller, request: int, asked: AskOutcome, frame: Frame) -> None:
    session, sequence = SessionId(asked.session), Sequence(asked.sequence)
    batch = build_batch([b""], kind=Kind.FENCE, session=session, sequence=sequence)
    caller.propose(request, batch, outcome_fields)


@_at_once(CreateTopic, ConfigureTopic, TrimTopic, BeginAttempt, SealAttempt, AbortAttempts, CommitAttempts, ForgetSink)
def _write_record(caller: Caller, request: int, asked: RequestBody, frame: Frame) -> None:
    """Write the body into the log, with keys that a newer client may have added: all members read it there."""
    assert asked.record is not None
    fields = {name: value for name, value in frame.body.items() if name != "id"}
    if isinstance(asked, BeginAttempt):
        fields["keep_bytes"] = caller.limits.staged_keep_bytes
    batch = build_batch([msgpack.packb(fields)], kind=asked.record)
    if batch.size > caller.limits.batch_bytes_max:
        raise _too_large(caller, batch.size)
    caller.propose(request, batch, result_fields)


def _too_large(caller: Caller, size: int) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"a batch of {size} bytes is over the limit of {caller.limits.batch_bytes_max}",
        remedy="append fewer records at once, or raise [limits] batch_bytes_max on every node",
    )


# -- Requests that this member's state answers -----------------------------------------------------------


@_in_a_task(ReadTopic)
async def _read(caller: Caller, request: int, asked: ReadTopic) -> None:
    topic, position, reading = TopicId(asked.topic), Position(asked.position), caller.service.reading
    await reading.wait_readable(topic, position, applied_index=Index(asked.applied_index), wait=asked.wait)
    async with caller.read_lock:
        bytes_max = min(asked.bytes_max, caller.limits.batch_bytes_max)
        batches, last_position = await reading.read(topic, position, bytes_max=bytes_max)
        fields: dict[str, object] = {"last_position": last_position, "applied_index": caller.service.applied_index}
        caller.ok(request, fields, batches)
        await caller.drain()


@_in_a_task(ListTopics)
async def _list_topics(caller: Caller, request: int, asked: ListTopics) -> None:
    await _query(caller, request, "topics", TopicsQuery(), stale=asked.stale, max_staleness=asked.max_staleness)


@_in_a_task(DescribeTopic)
async def _describe_topic(caller: Caller, request: int, asked: DescribeTopic) -> None:
    query = TopicQuery(asked.name)
    await _query(caller, request, "topic", query, stale=asked.stale, max_staleness=asked.max_staleness)


@_in_a_task(SplitTopic)
async def _split_topic(caller: Caller, request: int, asked: SplitTopic) -> None:
    await _query(caller, request, "positions", SplitQuery(asked.name, asked.start, asked.end, asked.bytes))


@_in_a_task(FindTime)
async def _find_time(caller: Caller, request: int, asked: FindTime) -> None:
    await _query(caller, request, "position", TimeQuery(asked.name, asked.timestamp))


@_in_a_task(ListSinks)
async def _list_sinks(caller: Caller, request: int, asked: ListSinks) -> None:
    await _query(caller, request, "sinks", SinksQuery(), stale=asked.stale)


@_in_a_task(DescribeSink)
async def _describe_sink(caller: Caller, request: int, asked: DescribeSink) -> None:
    await _query(caller, request, "sink", SinkQuery(asked.name), stale=asked.stale)


@_in_a_task(ListActors)
async def _list_actors(caller: Caller, request: int, asked: ListActors) -> None:
    await _query(caller, request, "actors", ActorsQuery(), stale=asked.stale)


@_in_a_task(DescribeActor)
async def _describe_actor(caller: Caller, request: int, asked: DescribeActor) -> None:
    await _query(caller, request, "actor", InterfaceQuery(asked.name), stale=True)


@_at_once(QueryActor)
def _query_actor(caller: Caller, request: int, asked: QueryActor, frame: Frame) -> None:
    query = ActorQuery(asked.actor, asked.key, asked.method, asked.arguments)
    if not asked.stale:
        caller.read(request, "result", query)  # Without a task, because a task costs more than the query itself.
        return
    age, index = asked.max_staleness, asked.applied_index
    caller.start(
        request,
        lambda: _query(caller, request, "result", query, stale=True, max_staleness=age, applied_index=index),
    )


async def _query(
    caller: Caller,
    request: int,
    key: str,
    query: Query[object],
    *,
    stale: bool = False,
    max_staleness: float | None = None,
    applied_index: int = 0,
) -> None:
    result, age = await caller.service.reading.query(
        query, stale=stale, max_staleness=max_staleness, applied_index=applied_index
    )
    caller.ok(request, {key: result, "age": age, "applied_index": caller.service.applied_index})


@_in_a_task(WatchActor)
async def _watch(caller: Caller, request: int, asked: WatchActor) -> None:
    changes, index = await caller.service.reading.watch(asked.actor, asked.key, asked.index, wait=asked.wait)
    caller.ok(request, {"changes": changes, "index": index})


# -- Requests that the node answers ----------------------------------------------------------------------


@_at_once(AskStatus)
def _status(caller: Caller, request: int, asked: AskStatus, frame: Frame) -> None:
    caller.ok(request, {"status": caller.service.status, **caller.identity(asked.challenge)})


@_at_once(ListSnapshots)
def _list_snapshots(caller: Caller, request: int, asked: ListSnapshots, frame: Frame) -> None:
    caller.ok(request, {"snapshots": caller.service.list_snapshots()})


@_in_a_task(CreateSnapshot)
async def _create_snapshot(caller: Caller, request: int, asked: CreateSnapshot) -> None:
    caller.ok(request, {"snapshot": await caller.service.create_snapshot()})


@_in_a_task(ChangeMembership)
async def _change_members(caller: Caller, request: int, asked: ChangeMembership) -> None:
    changed = caller.service.change_members(asked.action, asked.node, asked.address, asked.replaces)
    caller.ok(request, await changed)


@_in_a_task(TransferLeadership)
async def _transfer_leadership(caller: Caller, request: int, asked: TransferLeadership) -> None:
    caller.ok(request, await caller.service.transfer_leadership(asked.node))
