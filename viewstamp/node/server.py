"""The server: one port for peers and clients. Decodes frames, admits or refuses requests, writes the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgpack

from viewstamp.consensus.membership import Membership
from viewstamp.errors import (
    FrameError,
    NotLeaderError,
    OverloadedError,
    PeerError,
    RecordTooLargeError,
    RequestError,
    UnavailableError,
    ViewstampError,
    WrongClusterError,
)
from viewstamp.host.address import parse_address
from viewstamp.host.interfaces import Connection
from viewstamp.host.logger import Logger
from viewstamp.ids import ClusterId, Index, NodeId, Position, Sequence, SessionId, TopicId
from viewstamp.node.answers import error_fields, member_fields, outcome_fields, result_fields
from viewstamp.node.changes import check_address
from viewstamp.node.complaints import Complaints
from viewstamp.node.crowd import Crowd, CrowdLimits
from viewstamp.node.peers.codec import decode_message
from viewstamp.node.reading import Reading
from viewstamp.node.replica import FromPeer, Join
from viewstamp.node.request_fields import check_challenge, check_fields, max_staleness
from viewstamp.node.state_machine import Result
from viewstamp.wire.batch import Batch, Buffer, Kind, build_batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import PROTOCOL_VERSION, Frame, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.identity_proof import identity_proof

__all__ = ["Limits", "Server", "Service"]

_COMMANDS = {
    FrameKind.CREATE_TOPIC: Kind.CREATE_TOPIC,
    FrameKind.CONFIGURE_TOPIC: Kind.CONFIGURE_TOPIC,
    FrameKind.TRIM_TOPIC: Kind.TRIM_TOPIC,
    FrameKind.BEGIN_ATTEMPT: Kind.BEGIN_ATTEMPT,
    FrameKind.SEAL_ATTEMPT: Kind.SEAL_ATTEMPT,
    FrameKind.ABORT_ATTEMPTS: Kind.ABORT_ATTEMPTS,
    FrameKind.COMMIT: Kind.COMMIT,
    FrameKind.FORGET_SINK: Kind.FORGET_SINK,
}
"""Requests whose body, packed, is the record of a batch of that kind."""

_BODY_BYTES = 64 * 1024
"""What the body of a request may take beside the batch, or the arguments, in it."""
_BODY_BYTES_MIN = 4 * 1024 * 1024
"""What a body may always take: a DIGEST names 65,536 commands, however small batches are."""
_NAME_MAX = 256
"""Characters of the id and of the incarnation of a peer."""
_REQUESTS_MAX = 1024
"""Requests of one connection that may wait: for a record, for a leader, for the disk."""
_WAIT_SECONDS_MAX = 600.0
"""How long a reader that follows the end may have its request held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may be, in bytes."""

    record_bytes_max: int = 1024 * 1024
    batch_bytes_max: int = 8 * 1024 * 1024
    frame_bytes_max: int = 64 * 1024 * 1024
    in_flight_bytes_max: int = 64 * 1024 * 1024
    """Batches of clients that are not answered yet, all together."""
    staged_keep_bytes: int = 0
    """What a sink has staged goes when the log has gone on by so much; 0 = never for that reason."""
    crowd: CrowdLimits = field(default_factory=CrowdLimits)
    """What all connections may take together."""


class Service(Protocol):
    """What the server asks of its node."""

    def propose(self, batch: Batch, answer: Callable[[Result | ViewstampError], None]) -> None:
        """Propose ``batch``; ``answer`` is told once. Raises UnavailableError."""
        ...

    @property
    def reading(self) -> Reading:
        """What is asked of the member's state. Raises UnavailableError."""
        ...

    def step(self, message: FromPeer, incarnation: str) -> None:
        """Take a consensus message of a peer with this disk. Raises LostDiskError, WrongClusterError."""
        ...

    def meet(self, peer: NodeId, hello: Mapping[str, object]) -> bool:
        """Check who opens a peer connection; return whether it may read the log. As ``PeerPool.meet``."""
        ...

    def join(self, join: Join) -> None:
        """Hear that a node which has lost its disk asks to be added."""
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
        """Take what a member with this disk says of its state. Raises FrameError, and as :meth:`step`."""
        ...

    @property
    def durability(self) -> str:
        """What an acknowledgement means here."""
        ...

    @property
    def incarnation(self) -> str:
        """Which disk this node has; "" until its log has been replayed."""
        ...

    @property
    def membership(self) -> Membership:
        """Who belongs to the group, as far as this node knows."""
        ...

    @property
    def applied_index(self) -> Index:
        """Up to where this node has applied."""
        ...

    @property
    def status(self) -> dict[str, object]:
        """The node's status."""
        ...


class Server:
    """Accepts connections and holds them.

    Invariants:
      * the batches of clients that wait for an answer take at most ``in_flight_bytes_max`` bytes
    """

    def __init__(
        self,
        service: Service,
        *,
        cluster: ClusterId,
        node: NodeId,
        limits: Limits,
        log: Logger,
    ) -> None:
        self.service = service
        self.cluster = cluster
        self.limits = limits
        self.log = log
        self.complaints = Complaints(log)
        self.in_flight_bytes = 0
        self.connections: dict[_ServerConnection, None] = {}
        self.crowd = Crowd(limits.crowd)
        self._node = node

    @property
    def node(self) -> NodeId:
        """What the node is called in its group, and says in every WELCOME.

        Set to another name, every connection ends: who was welcomed under the old one would never find the new one.
        """
        return self._node

    @node.setter
    def node(self, node: NodeId) -> None:
        if node != self._node:
            self._node = node
            for session in list(self.connections):
                session.close()

    def accept(self, connection: Connection) -> _ServerConnection:
        """Take a new connection; it has to say HELLO first."""
        session = _ServerConnection(self, connection)
        self.connections[session] = None
        self.crowd.arrived(session)
        return session

    def tell_members(self) -> None:
        """Tell clients who belongs to the group, where they want to know and were told something else."""
        for session in self.connections:
            session.tell_members()

    async def close(self) -> None:
        """Close every connection; requests that were not answered are not answered any more."""
        for session in list(self.connections):
            session.close()


class _ServerConnection:
    """One connection, of a client or of a peer.

    Answers that become known in one turn of the event loop leave as one write.

    Invariants:
      * one answer to READ at a time is held for it, and ``_REQUESTS_MAX`` requests that wait
      * who leaves more than ``frame_bytes_max`` bytes of answers lying is disconnected
    """

    def __init__(self, server: Server, connection: Connection) -> None:
        self._server = server
        self._service = server.service
        self._connection = connection
        limits = server.limits
        self._decoder = FrameDecoder(
            limits.frame_bytes_max,
            first_bytes_max=limits.crowd.hello_bytes_max,
            body_bytes_max=max(limits.batch_bytes_max + _BODY_BYTES, _BODY_BYTES_MIN),
        )
        self._late = asyncio.get_running_loop().call_later(limits.crowd.hello_seconds, self._on_late)
        self.counted_bytes = 0
        self._held_bytes = self._unsent_bytes = 0
        """What was counted last."""
        self._on_frame: Callable[[Frame], None] = self._on_hello
        self._out: list[Buffer] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._reading = asyncio.Lock()
        """Held while an answer to READ is made and until the other side has taken most of it."""
        self._is_closed = False
        self._peer = self._incarnation = ""
        self._may_read = False
        self._told: dict[str, object] | None = None
        """The members that a client was told last; None = it does not want to be told."""

    # -- Bytes ----------------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        """Decode and handle what has arrived."""
        for frame in self._decoder.feed(data):
            self._on_frame(frame)
        if self._decoder.held != self._held_bytes:
            self._held_bytes = self._decoder.held
            self._server.crowd.count(self, self._held_bytes + self._unsent_bytes)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an unfinished frame, and of answers that the other side has not taken."""
        return self._decoder.held + self.unsent_bytes

    def cut(self, reason: str) -> None:
        """End the connection at once."""
        where = self._peer or self._connection.peer
        self._server.complaints.warning("! connection ended", where, OverloadedError(reason))
        self._connection.abort()

    def _on_late(self) -> None:
        self.cut(f"no HELLO within {self._server.limits.crowd.hello_seconds:g} s")

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the other side has not taken."""
        return self._connection.unsent_bytes

    def on_closed(self, error: BaseException | None) -> None:
        """Drop what the connection still wanted to know. Appends that are under way go on."""
        self._is_closed = True
        self._late.cancel()
        self._server.connections.pop(self, None)
        self._server.crowd.left(self)
        for task in list(self._tasks):
            task.cancel()
        if isinstance(error, ViewstampError):
            self._server.complaints.warning("! connection ended", self._peer or self._connection.peer, error)

    def refuse(self, error: ViewstampError) -> None:
        """End the connection because of what came over it."""
        if not self._is_closed:
            self._server.complaints.warning("! message refused", self._peer or self._connection.peer, error)
            self._connection.abort()

    def close(self) -> None:
        """Write what is waiting, then close."""
        self._flush()
        self._connection.close()

    def _send(self, buffers: list[Buffer]) -> None:
        if self._is_closed:
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += buffers

    def _flush(self) -> None:
        if self._out:
            out, self._out = self._out, []
            self._connection.send(out)
            unsent = self.unsent_bytes
            if unsent > self._server.limits.frame_bytes_max:
                self.cut(f"{unsent} B not taken")
            elif unsent != self._unsent_bytes:
                self._unsent_bytes = unsent
                self._server.crowd.count(self, self._held_bytes + unsent)

    # -- The handshake --------------------------------------------------------------------------------------

    def _on_hello(self, frame: Frame) -> None:
        try:
            if frame.kind != FrameKind.HELLO:
                raise FrameError("the first frame of a connection must be HELLO")
            self._check_hello(frame.body)
            self._server.crowd.greeted(self, self._peer)
        except ViewstampError as error:
            self._send(encode_frame(FrameKind.REFUSED, error_fields(error)))
            self._on_frame = _ignore
            self._server.complaints.warning("! refused", self._connection.peer, error)
            self.close()
            return
        members = member_fields(self._service.membership) if not self._peer else {}
        self._told = members if members and frame.body.get("members") is True else None
        self._send(
            encode_frame(
                FrameKind.WELCOME,
                {
                    "cluster": self._server.cluster,
                    "node": self._server.node,
                    "version": PROTOCOL_VERSION,
                    "durability": self._service.durability,
                    "limits": {
                        "record_bytes_max": self._server.limits.record_bytes_max,
                        "batch_bytes_max": self._server.limits.batch_bytes_max,
                    },
                    **members,
                    **self._proof(frame.body),
                },
            )
        )
        self._late.cancel()
        self._on_frame = self._on_peer_frame if self._peer else self._on_request
        for following in self._decoder.believe():
            self._on_frame(following)

    def _check_hello(self, hello: dict[str, Any]) -> None:
        if not isinstance(hello, dict) or not {"version", "cluster", "node", "incarnation"} <= hello.keys():
            raise FrameError("a HELLO without version, cluster, node or incarnation")
        if not all(isinstance(hello[name], str) for name in ("cluster", "node", "incarnation")):
            raise FrameError("a HELLO whose cluster, node or incarnation is no text")
        if hello["version"] != PROTOCOL_VERSION:
            raise PeerError(
                f"the other side speaks protocol version {brief_repr(hello['version'])}, this node {PROTOCOL_VERSION}",
                remedy="run the same release on both sides",
            )
        if hello["cluster"] not in ("", self._server.cluster):
            raise WrongClusterError(
                f"this node belongs to cluster {self._server.cluster}, not to {hello['cluster'][:_NAME_MAX]}",
                remedy="check the address, and [cluster] id in the settings of the other side",
            )
        check_challenge(hello)
        self._peer, self._incarnation = hello["node"], hello["incarnation"]
        if self._peer:
            if hello["cluster"] == "":
                raise WrongClusterError("a peer must name its cluster", remedy="set [cluster] id")
            address = hello.get("address", "")
            if max(len(self._peer), len(hello["incarnation"])) > _NAME_MAX:
                raise FrameError(f"a HELLO with a name of more than {_NAME_MAX} characters")
            if not isinstance(address, str) or not isinstance(hello.get("proof", b""), bytes):
                raise FrameError("a HELLO whose address is no text, or whose proof is no bytes")
            if address:
                parse_address(address)
            self._may_read = self._service.meet(NodeId(self._peer), hello)

    def _proof(self, asked: dict[str, Any]) -> dict[str, object]:
        """Return the answer to a challenge, {} where there was none: the proof is None until the log is replayed."""
        if "challenge" not in asked:
            return {}
        incarnation = self._service.incarnation
        return {"proof": identity_proof(incarnation, asked["challenge"]) if incarnation else None}

    def tell_members(self) -> None:
        """Tell a client who belongs to the group; see :meth:`Server.tell_members`."""
        if self._told not in (None, member_fields(self._service.membership)):
            self._told = member_fields(self._service.membership)
            self._send(encode_frame(FrameKind.MEMBERS, self._told))

    # -- Peers ----------------------------------------------------------------------------------------------

    def _on_peer_frame(self, frame: Frame) -> None:
        if frame.kind == FrameKind.PEER:
            message = decode_message(frame)
            if message.source != self._peer or message.target != self._server.node:
                raise PeerError(f"{self._peer} sent a message from {message.source} to {message.target}")
            self._service.step(FromPeer(message, self.refuse), self._incarnation)
        elif frame.kind == FrameKind.DIGEST:
            self._service.digest(NodeId(self._peer), self._incarnation, frame.body)
        elif frame.kind in (FrameKind.READ_SNAPSHOT, FrameKind.READ_LOG, FrameKind.LIST_SNAPSHOTS):
            self._on_peer_request(frame)
        elif frame.kind == FrameKind.JOIN:
            body = frame.body if isinstance(frame.body, dict) else {}
            address, member = body.get("address"), body.get("member", self._peer)
            if not isinstance(address, str) or not address or not isinstance(member, str) or len(member) > _NAME_MAX:
                raise FrameError("a peer asks to join without an address, or for nobody")
            check_address(address)
            self._service.join(Join(NodeId(member), address, is_direct=member == self._peer))
        else:
            raise FrameError(f"a peer sent a frame of kind {frame.kind}")

    def _on_peer_request(self, frame: Frame) -> None:
        body = frame.body
        request = body.get("id") if isinstance(body, dict) else None
        if type(request) is not int:
            raise FrameError(f"a peer's request of kind {frame.kind} without an id")
        check_fields(frame.kind, body)
        if not self._may_read:  # The log and its snapshots hold the incarnations of all members.
            raise WrongClusterError(f"{self._peer} is no member of this group, and may only ask to join it")
        if frame.kind == FrameKind.READ_SNAPSHOT:
            self._start(request, lambda: self._read_snapshot(request, body))
        elif frame.kind == FrameKind.READ_LOG:
            self._start(request, lambda: self._read_log(request, body))
        else:
            self._start(request, lambda: self._offer_snapshots(request))

    async def _offer_snapshots(self, request: int) -> None:
        self._ok(request, {"snapshots": self._service.list_snapshots(to_peer=True)})

    async def _read_log(self, request: int, body: dict[str, Any]) -> None:
        bytes_max = min(body["bytes_max"], self._server.limits.batch_bytes_max)
        batches = await self._service.read_log(body["start"], body["end"], bytes_max)
        self._ok(request, {}, [batch.buffer for batch in batches])

    async def _read_snapshot(self, request: int, body: dict[str, Any]) -> None:
        size, identity, data = await self._service.read_snapshot(
            body["end"], body["term"], body["offset"], min(body["bytes_max"], self._server.limits.batch_bytes_max)
        )
        self._ok(request, {"size": size, "identity": identity}, [data])

    # -- Clients --------------------------------------------------------------------------------------------

    def _on_request(self, frame: Frame) -> None:
        body = frame.body
        request = body.get("id") if isinstance(body, dict) else None
        if type(request) is not int:
            raise FrameError(f"a request of kind {frame.kind} without an id")
        try:
            check_fields(frame.kind, body)
            match frame.kind:
                case FrameKind.APPEND:
                    self._append(request, frame, Kind.RECORDS)
                case FrameKind.APPEND_AT:
                    if body["position"] == 0:
                        raise RequestError("nothing is appended at position 0", remedy="positions begin at 1")
                    self._append(request, frame, Kind.RECORDS, expected_position=Position(body["position"]))
                case FrameKind.CALL:
                    self._append(request, frame, Kind.COMMANDS)
                case FrameKind.STAGE:
                    self._append(request, frame, Kind.STAGED)
                case FrameKind.OPEN_SESSION:
                    self._propose(request, build_batch([b""], kind=Kind.OPEN_SESSION), result_fields)
                case kind if kind in _COMMANDS:
                    # What the fields may hold the state machine says, to every member alike.
                    fields = {name: value for name, value in body.items() if name != "id"}
                    if kind == FrameKind.BEGIN_ATTEMPT:
                        fields["keep_bytes"] = self._server.limits.staged_keep_bytes
                    batch = build_batch([msgpack.packb(fields)], kind=_COMMANDS[FrameKind(kind)])
                    self._check_size(batch.size)
                    self._propose(request, batch, result_fields)
                case FrameKind.OUTCOME:
                    session, sequence = SessionId(body["session"]), Sequence(body["sequence"])
                    batch = build_batch([b""], kind=Kind.FENCE, session=session, sequence=sequence)
                    self._propose(request, batch, outcome_fields)
                case FrameKind.READ:
                    self._start(request, lambda: self._read(request, body))
                case FrameKind.DESCRIBE_TOPIC:
                    wanted = {"name": body["name"], "stale": body["stale"], "max_staleness": max_staleness(body)}
                    self._start(request, lambda: self._query(request, "describe_topic", "topic", **wanted))
                case FrameKind.LIST_SINKS:
                    stale = body["stale"]
                    self._start(request, lambda: self._query(request, "list_sinks", "sinks", stale=stale))
                case FrameKind.DESCRIBE_SINK:
                    name, stale = body["name"], body["stale"]
                    self._start(request, lambda: self._query(request, "describe_sink", "sink", stale=stale, name=name))
                case FrameKind.SPLIT_TOPIC:
                    asked = {name: body[name] for name in ("name", "start", "end", "bytes")}
                    self._start(request, lambda: self._query(request, "split_topic", "positions", stale=False, **asked))
                case FrameKind.FIND_TIME:
                    asked = {name: body[name] for name in ("name", "timestamp")}
                    self._start(request, lambda: self._query(request, "find_time", "position", stale=False, **asked))
                case FrameKind.LIST_TOPICS:
                    wanted = {"stale": body["stale"], "max_staleness": max_staleness(body)}
                    self._start(request, lambda: self._query(request, "list_topics", "topics", **wanted))
                case FrameKind.QUERY:
                    self._start(request, lambda: self._call_query(request, body))
                case FrameKind.WATCH:
                    self._start(request, lambda: self._watch(request, body))
                case FrameKind.LIST_ACTORS:
                    stale = body["stale"]
                    self._start(request, lambda: self._query(request, "list_actors", "actors", stale=stale))
                case FrameKind.DESCRIBE_ACTOR:
                    name = body["name"]
                    self._start(request, lambda: self._query(request, "describe_actor", "actor", stale=True, name=name))
                case FrameKind.CHANGE_MEMBERS:
                    self._start(request, lambda: self._change_members(request, body))
                case FrameKind.TRANSFER_LEADERSHIP:
                    self._start(request, lambda: self._transfer_leadership(request, body["node"]))
                case FrameKind.CREATE_SNAPSHOT:
                    self._start(request, lambda: self._create_snapshot(request))
                case FrameKind.LIST_SNAPSHOTS:
                    self._ok(request, {"snapshots": self._service.list_snapshots()})
                case FrameKind.STATUS:
                    check_challenge(body)
                    self._ok(request, {"status": self._service.status, **self._proof(body)})
                case _:
                    raise RequestError(f"unknown request {frame.kind}", remedy="run the same release on both sides")
        except ViewstampError as error:
            self._error(request, error)

    def _append(self, request: int, frame: Frame, kind: Kind, *, expected_position: Position = Position(0)) -> None:
        self._check_size(len(frame.payload))
        # A copy of exactly this size: the leader stamps it in place, and it lives as long as the log's cache.
        batch = Batch.decode(bytearray(frame.payload))
        if batch.kind is not kind or batch.first_index != 0:
            raise RequestError(f"{batch!r} is not a client's to append")
        batch.first_position = expected_position
        self._propose(request, batch, outcome_fields)

    def _check_size(self, size: int) -> None:
        limit = self._server.limits.batch_bytes_max
        if size > limit:
            raise RecordTooLargeError(
                f"a batch of {size} bytes is over the limit of {limit}",
                remedy="append fewer records at once, or raise [limits] batch_bytes_max on every node",
            )

    def _propose(self, request: int, batch: Batch, fields: Callable[[Result], dict[str, object]]) -> None:
        server = self._server
        if server.in_flight_bytes + batch.size > server.limits.in_flight_bytes_max and server.in_flight_bytes:
            raise OverloadedError(
                f"{server.in_flight_bytes} bytes of appends wait on this node,"
                f" the limit is {server.limits.in_flight_bytes_max}",
                remedy="try again a little later",
            )

        def answer(result: Result | ViewstampError) -> None:
            server.in_flight_bytes -= batch.size
            if isinstance(result, ViewstampError):
                self._error(request, result)
            else:
                self._ok(request, fields(result))

        self._service.propose(batch, answer)
        server.in_flight_bytes += batch.size

    async def _read(self, request: int, body: dict[str, Any]) -> None:
        position, bytes_max, wait = Position(body["position"]), body["bytes_max"], body["wait"]
        if not (position >= 1 and bytes_max >= 1 and wait <= _WAIT_SECONDS_MAX):
            raise RequestError(
                f"a read of {bytes_max} bytes from position {position} within {wait} s",
                remedy=f"ask for at least one byte from position 1 on, within 0 to {_WAIT_SECONDS_MAX:g} s",
            )
        topic, applied_index = TopicId(body["topic"]), Index(body["applied_index"])
        await self._service.reading.wait_readable(topic, position, applied_index=applied_index, wait=wait)
        async with self._reading:
            bytes_max = min(bytes_max, self._server.limits.batch_bytes_max)
            batches, last_position = await self._service.reading.read(topic, position, bytes_max=bytes_max)
            fields: dict[str, object] = {"last_position": last_position, "applied_index": self._service.applied_index}
            self._ok(request, fields, batches)
            self._flush()
            await self._connection.drain()

    async def _query(
        self,
        request: int,
        question: str,
        key: str,
        *,
        stale: bool,
        max_staleness: float | None = None,
        **arguments: object,
    ) -> None:
        result, age = await self._service.reading.query(question, stale=stale, max_staleness=max_staleness, **arguments)
        self._ok(request, {key: result, "age": age, "applied_index": self._service.applied_index})

    async def _call_query(self, request: int, body: dict[str, Any]) -> None:
        result, age = await self._service.reading.call_query(
            body["actor"],
            body["key"],
            body["method"],
            body["arguments"],
            stale=body["stale"],
            max_staleness=max_staleness(body),
            applied_index=Index(body["applied_index"]),
        )
        self._ok(request, {"result": result, "age": age, "applied_index": self._service.applied_index})

    async def _watch(self, request: int, body: dict[str, Any]) -> None:
        key = body.get("key")
        if body["wait"] > _WAIT_SECONDS_MAX or not (key is None or isinstance(key, str)):
            raise RequestError(
                f"a watch of key {brief_repr(key)} for {body['wait']} s",
                remedy=f"name a key or none, and wait 0 to {_WAIT_SECONDS_MAX:g} s",
            )
        changes, index = await self._service.reading.watch(body["actor"], key, body["index"], wait=body["wait"])
        self._ok(request, {"changes": changes, "index": index})

    async def _change_members(self, request: int, body: dict[str, Any]) -> None:
        wanted = [body[name] for name in ("action", "node", "address", "replaces")]
        self._ok(request, await self._service.change_members(*wanted))

    async def _transfer_leadership(self, request: int, node: str) -> None:
        self._ok(request, await self._service.transfer_leadership(node))

    async def _create_snapshot(self, request: int) -> None:
        self._ok(request, {"snapshot": await self._service.create_snapshot()})

    def _start(self, request: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if len(self._tasks) >= _REQUESTS_MAX:
            raise OverloadedError(
                f"{len(self._tasks)} requests of this connection wait already",
                remedy="wait for answers before asking more",
            )
        self._server.crowd.check_requests()
        self._server.crowd.requests += 1
        task = asyncio.get_running_loop().create_task(self._guard(request, work))
        self._tasks[task] = None
        task.add_done_callback(self._on_answered)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._server.crowd.requests -= 1

    async def _guard(self, request: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one request that has to wait; this is its task's root."""
        try:
            await work()
        except ViewstampError as error:
            self._error(request, error)
        except TimeoutError:
            self._error(request, UnavailableError("no answer in time", remedy="try again, perhaps on another node"))

    def _ok(self, request: int, fields: dict[str, object], payload: list[Buffer] | None = None) -> None:
        frame = encode_frame(FrameKind.OK, {"id": request, **fields}, payload or ())
        size, limit = len(frame[0]), self._server.limits.frame_bytes_max
        if size <= limit:
            self._send(frame)
        elif fields.get("results"):
            self._ok(request, {**fields, "results": None})  # Applied, and nobody could take what it came to.
        else:
            message = f"the answer takes {size:,} bytes, over the limit of {limit:,} bytes for a frame"
            self._error(request, RequestError(message, remedy="ask for less"))

    def _error(self, request: int, error: ViewstampError) -> None:
        members = member_fields(self._service.membership) if isinstance(error, NotLeaderError) else {}
        self._send(encode_frame(FrameKind.ERROR, {"id": request, **error_fields(error), **members}))


def _ignore(_: Frame) -> None:
    """A refused connection is closing; whatever else it says does not matter."""
