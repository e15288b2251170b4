"""The server: one port for peers and clients. Decodes frames, admits or refuses requests, writes the answers."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any

from viewstamp.errors import (
    AccessDeniedError,
    FrameError,
    OverloadedError,
    RequestError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.address import parse_address
from viewstamp.host.interfaces import Connection
from viewstamp.host.logger import Logger
from viewstamp.ids import ClusterId, GroupId, NodeId
from viewstamp.node import (  # They register their handlers.
    archive_requests,  # noqa: F401
    keyed_requests,  # noqa: F401
    member_requests,  # noqa: F401
    ordered_reads,  # noqa: F401
    queries,  # noqa: F401
    schema_requests,  # noqa: F401
)
from viewstamp.node.access import Credentials
from viewstamp.node.answers import error_of_group, member_fields
from viewstamp.node.budget import AppendBudget
from viewstamp.node.crowd import Complaints, Crowd
from viewstamp.node.peer_frames import PeerFrames, PeerSender
from viewstamp.node.read_index import Barrier
from viewstamp.node.reading import Reading
from viewstamp.node.rota import REQUESTS_AT_ONCE, Rota
from viewstamp.node.service import FROM_CLIENTS, PROPOSED, AtOnce, GroupService, Limits, Service
from viewstamp.node.state_machine import Placement, Query, Result
from viewstamp.wire.answers import error_fields
from viewstamp.wire.batch import Batch, Buffer, Kind
from viewstamp.wire.frame import Frame, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.handshake import Hello, Welcome
from viewstamp.wire.identity_proof import CHALLENGE_BYTES, administrator_proof, identity_fields
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.token_requests import ProveDirectory

__all__ = ["Server"]

_BODY_BYTES = 64 * 1024
"""Limit of the body of a request, without the batch or the arguments in it."""
_BODY_BYTES_MIN = 4 * 1024 * 1024
"""Lowest limit of a body, because a DIGEST names 65,536 commands even if the limit of batches is small."""
_STRUCTURE_BYTES = 1024 * 1024
"""Limit of a client's body without its texts and bytes, because a byte of lists and maps takes up to 80 in memory."""
_FRAME_BATCHES = 2
"""Limit of a client's frame, in batches of the maximum size. Two, so that a batch that is too large gets an answer."""
_PIECE_BUFFERS = 32
"""Buffers that are written together, so that the other side works on the first answers of a turn during the rest."""
_JOINING = "a node that asks to join"
"""Stands in the limits of connections for all peers that are no members."""
_REQUESTS_MAX = 1024
"""Requests of one connection that may wait: for a record, for a leader, for the disk."""


class Server:
    """Accepts connections and owns them."""

    def __init__(
        self,
        service: Service,
        *,
        cluster: ClusterId,
        limits: Limits,
        entropy: Random,
        log: Logger,
        monotonic: Callable[[], float],
        requires_certificates: bool = False,
    ) -> None:
        self.service = service
        self.entropy = entropy
        self.cluster = cluster
        self.requires_certificates = requires_certificates
        """Whether a peer has to prove by a certificate that it is the member whose id it gives."""
        self.limits = limits
        self.log = log
        self.complaints = Complaints(log)
        self.budget = AppendBudget(limits.in_flight_bytes_max, service.groups)
        self.connections: dict[_ServerConnection, None] = {}
        self.crowd = Crowd(limits.crowd)
        self.rota = Rota(monotonic)

    def accept(self, connection: Connection) -> _ServerConnection:
        """Take a new connection; its first frame must be a HELLO."""
        session = _ServerConnection(self, connection)
        self.connections[session] = None
        self.crowd.arrived(session)
        return session

    def tell_members(self, groups: Sequence[GroupService]) -> None:
        """Send the members of these groups to the clients that subscribed to them, if they have changed."""
        members = {group: member_fields(group) for group in groups}
        for session in self.connections:
            if session.group in members:
                session.tell_members(members[session.group])

    def refuse(self, peer: NodeId, group: GroupService, error: ViewstampError) -> None:
        """End the connections of a peer in one group because of a heartbeat that arrived on that of another group."""
        for session in list(self.connections):
            if session.group is group and session.peer == peer:
                session.refuse(error)

    def close(self, group: GroupService | None = None) -> None:
        """Close the connections of a group; None = all. Pending requests get no answer."""
        for session in list(self.connections):
            if group is None or session.group is group:
                session.close()


class _ServerConnection:
    """One connection, of a client or of a peer.

    All answers of one turn of the event loop are sent in one write, or in pieces of ``_PIECE_BUFFERS``.

    Invariants:
      * one answer to READ at a time is held for it, and ``_REQUESTS_MAX`` requests that wait
      * a connection with more than ``frame_bytes_max`` bytes of unread answers is ended
    """

    def __init__(self, server: Server, connection: Connection) -> None:
        self._server = server
        self.service = server.service
        self.limits = server.limits
        self._connection = connection
        self.group = server.service.group
        """The group to which the messages belong; group 0 until HELLO names another one."""
        self.gate = self.group.gate
        """The gate of the group. The state of group 0 has the tokens."""
        self.credentials = Credentials()
        self._challenge = b""
        """The random bytes with which the other side may prove that it can read a data directory; b"" = it may not."""
        limits = server.limits
        self._decoder = FrameDecoder(
            limits.frame_bytes_max,
            first_bytes_max=limits.crowd.hello_bytes_max,
            body_bytes_max=max(limits.batch_bytes_max + _BODY_BYTES, _BODY_BYTES_MIN),
        )
        self._late = asyncio.get_running_loop().call_later(limits.crowd.hello_seconds, self._on_late)
        self.counted_bytes = 0
        self._held_bytes = self._unsent_bytes = 0
        """The values that were counted last."""
        self._on_frame: Callable[[Frame], None] = self._on_hello
        self._out: list[Buffer] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.reads: dict[_Read, None] = {}
        """Linearizable queries that wait for a leader."""
        self.read_lock = asyncio.Lock()
        self._is_closed = False
        self._peer = ""
        self._rota: Rota | None = None
        """Limits the share of the event loop; None = not limited: before HELLO, and if the other side is a member."""
        self._failure: BaseException | None = None
        """The error of a request that was handled in a turn of the rota."""
        self._told: dict[str, object] | None = None
        """The members that were last sent to a client; None = it did not subscribe to them."""

    # -- Bytes ----------------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        """Decode and handle the received bytes; those of a client only as long as this turn has time for clients.

        A HELLO does not wait for that: a member that came back would otherwise be late if many clients are connected.
        """
        rota, decoder = self._rota, self._decoder
        if rota is None:
            for frame in decoder.feed(data):
                self._on_frame(frame)
            if decoder.has_more:  # That was a HELLO, so the side that sends the rest is known now.
                self.on_bytes(b"")
                return
        elif rota.begin():
            for frame in decoder.feed(data, REQUESTS_AT_ONCE):
                self._on_frame(frame)
            if decoder.has_more:
                self._go_on(rota)
            rota.end()
        else:
            for frame in decoder.feed(data, 0):
                self._on_frame(frame)
            if decoder.has_more:
                self._wait(rota)
        if decoder.held != self._held_bytes:
            self._count_held()

    def on_turn(self) -> None:
        """Handle the next requests; as :meth:`rota.RotaConnection.on_turn`."""
        rota = self._server.rota
        try:
            for frame in self._decoder.feed(b"", REQUESTS_AT_ONCE):
                self._on_frame(frame)
            self._go_on(rota)
        except Exception as error:
            self._failure = error.with_traceback(None)
            self._decoder.drop()
            self._connection.abort()
            return
        self._count_held()
        if not rota.is_waiting(self):
            self._connection.resume_reading()

    def _go_on(self, rota: Rota) -> None:
        """Handle the requests that are held already."""
        while self._decoder.has_more:
            if rota.is_over:
                self._wait(rota)
                return
            for frame in self._decoder.feed(b"", REQUESTS_AT_ONCE):
                self._on_frame(frame)

    def _wait(self, rota: Rota) -> None:
        rota.wait(self)
        self._connection.pause_reading()

    def _count_held(self) -> None:
        self._held_bytes = self._decoder.held
        self._server.crowd.count(self, self._held_bytes + self._unsent_bytes)

    @property
    def peer(self) -> str:
        """The member id of the other side; "" = it is a client, or has not sent its HELLO."""
        return self._peer

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an unfinished frame, and of unread answers."""
        return self._decoder.held + self._connection.unsent_bytes

    def cut(self, reason: str) -> None:
        """End the connection immediately."""
        where = self._peer or self._connection.peer
        self._server.complaints.warning("! connection ended", where, OverloadedError(reason))
        self._forget()
        self._connection.abort()

    def _on_late(self) -> None:
        self.cut(f"no HELLO within {self.limits.crowd.hello_seconds:g} s")

    def on_closed(self, error: BaseException | None) -> None:
        """Cancel the pending requests of the connection. Appends that were proposed go on."""
        error = self._failure or error
        self._is_closed = True
        self._late.cancel()
        self._forget()
        self._on_frame = _ignore  # Otherwise the bound method keeps this object until a collection of garbage.
        self._server.connections.pop(self, None)
        self._server.crowd.left(self)
        for task in list(self._tasks):
            task.cancel()
        self._server.crowd.requests -= len(self.reads)
        reads, self.reads = self.reads, {}
        for read in reads:
            read.cancel()
        if isinstance(error, ViewstampError):
            self._server.complaints.warning("! connection ended", self._peer or self._connection.peer, error)

    def _forget(self) -> None:
        """Give up the requests that are not handled yet, and their memory."""
        self._decoder.drop()
        self._server.rota.leave(self)

    def refuse(self, error: ViewstampError) -> None:
        """End the connection because of a message on it."""
        if not self._is_closed:
            self._server.complaints.warning("! message refused", self._peer or self._connection.peer, error)
            self._connection.abort()

    def close(self) -> None:
        """Write the waiting answers, then close."""
        self._flush()
        self._connection.close()

    def _send(self, buffers: list[Buffer]) -> None:
        if self._is_closed:
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += buffers
        if len(self._out) >= _PIECE_BUFFERS:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            out, self._out = self._out, []
            self._connection.send(out)
            unsent = self._connection.unsent_bytes
            if unsent > self.limits.frame_bytes_max:
                self.cut(f"the other side does not read: {unsent} B of answers wait")
            elif unsent != self._unsent_bytes:
                self._unsent_bytes = unsent
                self._server.crowd.count(self, self._held_bytes + unsent)

    # -- The handshake --------------------------------------------------------------------------------------

    def _on_hello(self, frame: Frame) -> None:
        try:
            hello = Hello.read(frame, self._server.cluster)
            hello.check_certificate(
                self._connection.identity, self._server.cluster, is_required=self._server.requires_certificates
            )
            if hello.group:
                self.group = self.service.group_of(hello.group)
                self.gate = self.group.gate
            self._peer, is_member = hello.node, False
            if self._peer:
                if hello.address:
                    parse_address(hello.address)
                is_member = self.group.meet(NodeId(self._peer), hello)
            else:
                named = self._connection.identity
                self.credentials = Credentials(hello.token, named.part if named is not None else "")
            # Nodes that ask to join count as one peer, because anyone can make up ids for them.
            is_joining = bool(self._peer) and not is_member
            self._server.crowd.greeted(self, _JOINING if is_joining else self._peer, hello.group)
        except ViewstampError as error:
            self._send(encode_frame(FrameKind.REFUSED, error_fields(error)))
            self._on_frame = _ignore
            self._forget()
            self._server.complaints.warning("! refused", self._connection.peer, error)
            self.close()
            return
        # A member that repairs its log gives no address. It may know only members that have been removed since.
        is_link = bool(self._peer and hello.address)
        members = None if is_link else member_fields(self.group)
        self._told = members if hello.members else None
        if hello.proves and not self._peer:
            self._challenge = self._server.entropy.randbytes(CHALLENGE_BYTES)
        takes_beats = is_link and hello.group > 0
        welcome = Welcome(
            cluster=self._server.cluster,
            node=self.group.me,
            durability=self.service.durability,
            record_bytes_max=self.limits.record_bytes_max,
            batch_bytes_max=self.limits.batch_bytes_max,
            members=members,
            identity=self.identity(hello.challenge),
            challenge=self._challenge,
            takes_beats=takes_beats,
            takes_notices=is_link,
            kinds=max(Kind),
        )
        self._send(encode_frame(FrameKind.WELCOME, welcome.to_map()))
        self._late.cancel()
        if self._peer:
            sender = PeerSender(NodeId(self._peer), hello.incarnation, is_member, takes_beats)
            self._on_frame = PeerFrames(self, sender, self.refuse, self._server.refuse).on_frame
        else:
            self._on_frame = self._on_request_of_group if hello.group else self._on_request
        if is_member:
            self._decoder.believe()
        else:
            self._rota = self._server.rota
            limit = _FRAME_BATCHES * self.limits.batch_bytes_max + _BODY_BYTES
            self._decoder.believe(
                frame_bytes_max=min(self.limits.frame_bytes_max, limit), structure_bytes_max=_STRUCTURE_BYTES
            )

    def identity(self, challenge: bytes) -> dict[str, object]:
        """Return the answer to a challenge; as :meth:`Caller.identity`. It is the same in all groups of the node."""
        lock = self.service.lock
        return identity_fields(challenge, self.service.group.incarnation, lock.directory_id if lock is not None else "")

    def tell_members(self, members: dict[str, object]) -> None:
        """Send the members of the group to a client; see :meth:`Server.tell_members`."""
        if self._told not in (None, members):
            self._told = members
            self._send(encode_frame(FrameKind.MEMBERS, members))

    # -- Clients, and the calls of handlers (``service.Caller``) ----------------------------------------------

    def _on_request(self, frame: Frame) -> None:
        body = frame.body
        request = body.get("id") if isinstance(body, dict) else None
        if type(request) is not int:
            if frame.kind == ProveDirectory.kind:
                self._on_proof(frame)
                return
            raise FrameError(f"a request of kind {frame.kind} without an id")
        try:
            row = FROM_CLIENTS.get(frame.kind)
            if row is None:
                raise RequestError(f"unknown request {frame.kind}", remedy="run the same release on both sides")
            asked, handler = row
            decoded = (asked.bare if len(body) == 1 else None) or asked.decode(body)
            if self.gate.access.is_on and asked.kind not in PROPOSED and not self._may(decoded):
                self.start(request, lambda: self._confirm(request, decoded, handler, frame))
                return
            handler(self, request, decoded, frame)
        except ViewstampError as error:
            self._error(request, error)

    def _on_request_of_group(self, frame: Frame) -> None:
        """Handle a request for another group than 0, as soon as the tokens in the state of group 0 are known here."""
        request = frame.body.get("id") if isinstance(frame.body, dict) else None
        try:
            self._check_tokens_known()
            tokens = self.service.token_age
            if type(request) is int and self.gate.access.is_on and not tokens.use(self.gate, self.credentials):
                self.start(request, lambda: self._when_known(frame))
                return
        except ViewstampError as error:
            if type(request) is int:
                self._error(request, error)
                return
        self._on_request(frame)

    async def _when_known(self, frame: Frame) -> None:
        await self.service.token_age.confirm(self.credentials)
        self._on_request(frame)

    def _check_tokens_known(self) -> None:
        """Raise UnavailableError while group 0 starts again in this process: access control then looks as if off.

        Its connections have ended, but those of the other groups go on.
        """
        if self.group is not self.service.group:
            self.service.group.check_replayed()

    def propose(
        self,
        request: int,
        batch: Batch,
        fields: Callable[[Result], dict[str, object]],
        *,
        then: Callable[[GroupId], None] | None = None,
    ) -> None:
        """Propose a batch; as :meth:`Caller.propose`."""
        group = self.group
        size, waiting = batch.size, group.in_flight_bytes
        if waiting and waiting + size > self._server.budget.share_bytes:
            self._server.budget.check(group, size)

        def answer(result: Result | ViewstampError) -> None:
            group.in_flight_bytes -= size
            if type(result) is Placement:  # As `outcome_fields` and `ok`, without further calls for each batch.
                placed = [result.first_position, result.count, result.term, result.first_index, result.log_time]
                self._send(encode_frame(FrameKind.OK, {"id": request, "receipt": placed}))
            elif isinstance(result, AccessDeniedError):
                self._deny(request, result)
            elif isinstance(result, ViewstampError):
                self._error(request, result)
            else:
                self.ok(request, fields(result))
            if then is not None and type(result) is Placement:
                then(group.id)

        group.propose(batch, answer, self.credentials)
        group.in_flight_bytes += size

    def read(self, request: int, asked: RequestBody, key: str, query: Query[object]) -> None:
        """Answer a linearizable query without a task; as :meth:`Caller.read`."""
        reading = self.group.reading
        read = _Read(self, request, asked, key, query, reading)
        self._count_request()
        try:
            read.barrier = reading.join(read)
        except BaseException:
            self._server.crowd.requests -= 1
            raise
        self.reads[read] = None

    def answer_read(self, read: _Read, error: ViewstampError | None) -> None:
        """Query the state, which is fresh enough now, or answer with ``error``."""
        del self.reads[read]
        self._server.crowd.requests -= 1
        if error is None:
            try:
                self.check(read.asked)
                result = read.reading.query_now(read.query)
            except ViewstampError as refusal:
                error = refusal
            else:
                self.ok(read.request, {read.key: result, "age": 0.0, "applied_index": self.group.applied_index})
                return
        self._error(read.request, error)

    def _count_request(self) -> None:
        """Count a request that has to wait. Raises OverloadedError."""
        waiting, crowd = len(self._tasks) + len(self.reads), self._server.crowd
        if waiting >= _REQUESTS_MAX:
            raise OverloadedError(
                f"{waiting} requests of this connection wait already", remedy="wait for answers before asking more"
            )
        crowd.check_requests()
        crowd.requests += 1

    # -- Rights ---------------------------------------------------------------------------------------------

    def _on_proof(self, frame: Frame) -> None:
        try:
            asked = ProveDirectory.decode(frame.body if isinstance(frame.body, dict) else {})
        except RequestError as error:
            raise FrameError(f"an invalid proof of a directory: {error.message}") from error
        challenge, self._challenge = self._challenge, b""  # One attempt for each connection.
        for incarnation in self.service.group.incarnations_of(asked.node) if challenge else ():
            proof = administrator_proof(incarnation, directory_of=asked.node, to=self.group.me, challenge=challenge)
            if hmac.compare_digest(proof, asked.proof):
                self.credentials.prove_directory(asked.node)

    def check(self, asked: RequestBody) -> None:
        """Check whether the caller may still send a request; as :meth:`Caller.check`."""
        self._check_tokens_known()
        if self.gate.access.is_on:
            self.gate.check(self.credentials, asked)

    def _may(self, asked: RequestBody) -> bool:
        try:
            self.gate.check(self.credentials, asked)
        except AccessDeniedError:
            return False
        return True

    async def _confirm(self, request: int, asked: RequestBody, handler: AtOnce[Any], frame: Frame) -> None:
        """Check a request again on a state that has everything acknowledged, because this node may lack the token."""
        await self._confirm_state()
        try:
            self.gate.check(self.credentials, asked)
        except AccessDeniedError as error:
            self._complain(error)
            raise
        handler(self, request, asked, frame)

    async def _confirm_state(self) -> None:
        """Wait until this node has every token and every name that was committed before. Raises UnavailableError."""
        if self.group is not self.service.group:
            await self.service.token_age.confirm(self.credentials)
        await self.group.reading.confirm()

    def _deny(self, request: int, error: AccessDeniedError) -> None:
        """Deny a request that this node has refused as the leader, once it is confirmed that it still leads."""

        async def confirm() -> None:
            before = self.credentials.version
            await self._confirm_state()
            self.gate.owner(self.credentials)
            if self.credentials.version != before:
                raise UnavailableError("the tokens have changed meanwhile; nothing was written", remedy="try again")
            self._complain(error)
            raise error

        try:
            self.start(request, confirm)
        except ViewstampError as overloaded:
            self._error(request, overloaded)

    def _complain(self, error: AccessDeniedError) -> None:
        self._server.complaints.warning("! access denied", self._connection.peer, error)

    def start(self, request: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a request that has to wait; as :meth:`Caller.start`."""
        self._count_request()
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

    def ok(self, request: int, fields: Mapping[str, object], payload: Sequence[Buffer] = ()) -> None:
        """Answer OK; an answer over the limit of a frame becomes an error, or loses its results."""
        frame = encode_frame(FrameKind.OK, {"id": request, **fields}, payload)
        size, limit = len(frame[0]), self.limits.frame_bytes_max
        if size <= limit:
            self._send(frame)
        elif fields.get("results"):
            self.ok(request, {**fields, "results": None})  # Applied, but the results do not fit.
        else:
            message = f"the answer takes {size:,} bytes, over the limit of {limit:,} bytes for a frame"
            self._error(request, RequestError(message, remedy="ask for less"))

    async def drain(self) -> None:
        """Write the waiting answers, and return when the other side has read most of them."""
        self._flush()
        await self._connection.drain()

    def _error(self, request: int, error: ViewstampError) -> None:
        self._send(encode_frame(FrameKind.ERROR, {"id": request, **error_of_group(error, self.group)}))


class _Read:
    """A linearizable query of a connection that waits for a leader. Called as a ``Reader`` when it may be answered."""

    __slots__ = ("_connection", "asked", "barrier", "key", "query", "reading", "request")

    def __init__(
        self,
        connection: _ServerConnection,
        request: int,
        asked: RequestBody,
        key: str,
        query: Query[object],
        reading: Reading,
    ) -> None:
        self._connection = connection
        self.asked = asked
        self.reading = reading
        self.request = request
        self.key = key
        self.query = query
        self.barrier: Barrier | None = None

    def __call__(self, error: ViewstampError | None) -> None:
        self._connection.answer_read(self, error)

    def cancel(self) -> None:
        """Leave the barrier, because the connection has ended."""
        if self.barrier is not None:
            self.barrier.leave(self)


def _ignore(_: Frame) -> None:
    """Drop a frame, because its connection was refused and is closing."""
