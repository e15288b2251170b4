"""One connection to one node: handshake, requests and answers, and errors turned back into exceptions."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from viewstamp.client.results import DURABILITY
from viewstamp.client.routing import ExpectedNode
from viewstamp.client.runtime import Dialer, Future, Runtime, Wire
from viewstamp.errors import (
    ConfigError,
    FrameError,
    PeerError,
    ResultTooLargeError,
    UnavailableError,
    ViewstampError,
    WrongNodeError,
)
from viewstamp.host.address import parse_address
from viewstamp.host.interfaces import Buffer
from viewstamp.ids import NodeId, name_of
from viewstamp.wire.answers import error_from, is_answer
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.commands import TOO_LARGE_REMEDY
from viewstamp.wire.frame import Frame, FrameDecoder, FrameKind, TooLarge, encode_frame
from viewstamp.wire.handshake import Hello, Opening, Welcome, read_members
from viewstamp.wire.identity_proof import directory_proof, identity_proof
from viewstamp.wire.schema import RequestBody

__all__ = [
    "NodeConnection",
    "check_identity",
    "open_connection",
    "parse_addresses",
    "too_large",
]


def parse_addresses(addresses: str | Sequence[str]) -> list[str]:
    """Return the addresses of ``"host:port,host:port"`` or of a sequence of them, in order, each once.

    Raises:
      ConfigError: there is none, or one has another shape.
    """
    parts = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    parsed = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not parsed:
        raise ConfigError(
            f"no address in {addresses!r}", remedy="name at least one node: host:port, several joined by commas"
        )
    for address in parsed:
        _, port = parse_address(address)
        if port == 0:
            raise ConfigError(f"{address!r} has port 0, where nobody can listen", remedy="name the node's real port")
    return parsed


class NodeConnection:
    """One open connection to a node: the handshake, and which answer belongs to which question.

    Answers to requests that were sent with :meth:`ask` resolve their futures; all others go to ``on_answer``.

    Invariants:
      * every future that ``ask`` waits for is resolved when the connection ends
      * ``closed`` resolves exactly once, and nothing is delivered after it
    """

    def __init__(self, runtime: Runtime, address: str, request_ids: Iterator[int], *, frame_bytes_max: int) -> None:
        self.address = address
        self.node = NodeId("")
        self.cluster = ""
        self.record_bytes_max = 0
        self.batch_bytes_max = 0
        self.durability = DURABILITY
        """How durable what this node acknowledges is, in its own words."""
        self.heard = runtime.time()
        """When the node last sent anything, on the runtime's clock."""
        self.is_silent = False
        """The client left it because nothing came any more: the node may be gone without a word."""
        self.has_led = False
        """The node has answered here what only a leader answers."""
        self._members: tuple[dict[str, str], int] = {}, 0
        """The members and their generation, as the node said last."""
        self._on_members: Callable[[dict[str, str], int], None] | None = None
        self.closed: Future[ViewstampError] = runtime.create_future()
        """Resolves with the reason when the connection has ended."""
        self.on_answer: Callable[[NodeConnection, Frame], None] | None = None
        """Hears the answers to requests that were sent with :meth:`send`."""
        self.on_chunk: Callable[[], None] | None = None
        """Called after the frames of one chunk were delivered."""
        self._runtime = runtime
        self._request_ids = request_ids
        self._decoder = FrameDecoder(frame_bytes_max, skips_too_large=True)
        self._connection: Wire | None = None
        self._asked: dict[int, tuple[FrameKind, Future[Frame]]] = {}
        self._given_up: dict[int, bool] = {}
        """Questions that nobody waits for any more; their answers may still come."""
        self.doubt: ViewstampError | None = None
        """Why only STATUS may be sent: the node cannot prove yet, or contradicts, what is expected at its address."""
        self._opening: Opening | None = None
        self._welcome: Future[Welcome] = runtime.create_future()

    # What the network calls.

    def accept(self, connection: Wire) -> NodeConnection:
        """Take the connection."""
        self._connection = connection
        return self

    def on_bytes(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
          PeerError: the node does not speak our protocol; the network aborts the connection.
        """
        self.heard = self._runtime.time()
        for frame in self._decoder.feed(data):
            try:
                self._on_frame(frame)
            except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
                raise PeerError(
                    f"{self.address} sent a frame of kind {frame.kind} with a wrong body: {error!r:.200}"
                ) from error
        if self.on_chunk is not None:
            self.on_chunk()

    def on_closed(self, error: BaseException | None) -> None:
        """Tell everybody who waits that no answer will come."""
        if self.closed.done():
            return
        if isinstance(error, ViewstampError):
            reason: ViewstampError = error
        else:
            detail = f": {error}" if error is not None and str(error) else ""
            reason = UnavailableError(f"the connection to {self.address} was lost{detail}", remedy="try again")
        self.closed.set_result(reason)
        waiting: list[Future[Any]] = [self._welcome, *(future for _, future in self._asked.values())]
        for future in waiting:
            if not future.done():
                future.set_exception(reason)
                future.exception()  # Marks it as retrieved: nobody may be waiting for the handshake any more.
        self._asked.clear()

    def _on_too_large(self, frame: Frame) -> None:
        """Settle the one request whose answer is too large for this client; the connection goes on."""
        size, request = frame.body
        if request is None or frame.kind != FrameKind.OK:
            raise FrameError(f"{self.address} sent a frame of {size:,} bytes that is no answer, which is too large")
        if self._given_up.pop(request, False):
            return
        _, future = self._asked.get(request, (None, None))
        if future is None:
            if self.on_answer is not None:
                self.on_answer(self, frame)
        elif not future.done():
            future.set_exception(too_large(size))

    def _on_frame(self, frame: Frame) -> None:
        if type(frame.body) is TooLarge:
            self._on_too_large(frame)
            return
        if frame.kind == FrameKind.OK or frame.kind == FrameKind.ERROR:
            if frame.kind == FrameKind.ERROR:
                self._hear_members(frame.body)
            if self._given_up.pop(frame.body["id"], False):
                return
            kind, future = self._asked.get(frame.body["id"], (None, None))
            if kind is None or future is None:
                if self.on_answer is not None:
                    self.on_answer(self, frame)
            elif frame.kind == FrameKind.ERROR:
                if not future.done():
                    future.set_exception(error_from(frame.body))
            elif not is_answer(kind, frame.body):
                raise PeerError(f"{self.address} answered {kind.name} with {brief_repr(frame.body)}")
            elif not future.done():
                future.set_result(frame)
        elif frame.kind == FrameKind.MEMBERS:
            self._hear_members(frame.body)
        elif self._opening is not None and self._opening.receive(frame):
            assert self._opening.welcome is not None, "received just now"
            self._on_welcome(self._opening.welcome)
        else:
            raise PeerError(f"{self.address} sent a frame of kind {frame.kind}, which no client expects")

    def _on_welcome(self, welcome: Welcome) -> None:
        self.node = NodeId(welcome.node)
        self.cluster = welcome.cluster
        self.record_bytes_max = welcome.record_bytes_max
        self.batch_bytes_max = welcome.batch_bytes_max
        self.durability = welcome.durability or DURABILITY
        self._hear_members(welcome.members or {})
        self._welcome.set_result(welcome)

    def _hear_members(self, body: Mapping[str, Any]) -> None:
        """Take what a node says of the members, if it does: older ones do not."""
        if "members" in body:
            self._members = read_members(body)
            if self._on_members is not None:
                self._on_members(*self._members)

    # What the client calls.

    @property
    def is_open(self) -> bool:
        """Whether requests may still be answered."""
        return not self.closed.done()

    @property
    def is_usable(self) -> bool:
        """Whether any request may be sent; where there is a doubt, STATUS alone."""
        return self.is_open and self.doubt is None

    @property
    def is_asked(self) -> bool:
        """Whether an answer to :meth:`ask` is outstanding."""
        return bool(self._asked)

    async def greet(self, cluster_id: str, expected: ExpectedNode | None, challenge: bytes) -> None:
        """Say hello, wait for the welcome, and compare it with who is expected (None = anybody).

        Raises:
          WrongClusterError: the node belongs to another cluster than ``cluster_id``; "" takes any.
          WrongNodeError: it is not the node that is expected.
          PeerError: no node of ours, or of another version.
          UnavailableError: the connection was lost.
        """
        assert self._connection is not None, "the network gave no connection"
        hello = Hello(cluster=cluster_id, members=True, challenge=challenge if expected is not None else b"")
        self._opening = Opening(hello.to_map(), self.address, refused=error_from)
        self._connection.send(self._opening.frame)
        welcome = await self._welcome
        if expected is not None:
            self.doubt = check_identity(self.address, expected, welcome.to_map(), challenge)

    def tell_members(self, told: Callable[[dict[str, str], int], None]) -> None:
        """Tell who the members are and how new that is, now and whenever the node says so: it is one of ours."""
        self._on_members = told
        told(*self._members)

    def send(self, kind: FrameKind, body: dict[str, object], payload: Sequence[Buffer]) -> None:
        """Send a frame. Never awaits; dropped silently when the connection has ended."""
        assert self._connection is not None, "the network gave no connection"
        self._connection.send(encode_frame(kind, body, payload))

    async def ask(self, request: RequestBody, *, timeout: float) -> Frame:
        """Send a request and wait for its answer. Cancelled: the answer is dropped when it comes.

        Raises:
          TimeoutError: no answer within ``timeout`` seconds; it may still be carried out.
          ViewstampError: what the node answered, or UnavailableError when the connection was lost.
        """
        if self.closed.done():
            raise self.closed.result()
        request_id = next(self._request_ids)
        future: Future[Frame] = self._runtime.create_future()
        self._asked[request_id] = request.kind, future
        self.send(request.kind, {"id": request_id, **request.to_map()}, ())
        timer = self._runtime.call_later(timeout, _expire, future)
        try:
            return await future
        finally:
            timer.cancel()
            if self._asked.pop(request_id, None) is not None and not _was_answered(future):
                self._given_up[request_id] = True

    def abort(self) -> None:
        """End the connection at once; ``closed`` resolves."""
        if self._connection is not None:
            self._connection.abort()
        self.on_closed(None)


async def open_connection(
    runtime: Runtime,
    network: Dialer,
    address: str,
    request_ids: Iterator[int],
    *,
    cluster_id: str,
    expected: ExpectedNode | None,
    challenge: bytes,
    timeout: float,
    frame_bytes_max: int,
    on_answer: Callable[[], None],
) -> NodeConnection:
    """Connect to a node and shake hands. Cancelled: the connection is closed again.

    ``on_answer`` is called once somebody has answered, whoever it is.

    Raises:
      UnavailableError: nobody answers there within ``timeout`` seconds.
      WrongClusterError, PeerError, FrameError: somebody else answers there.
      WrongNodeError: not the node that is ``expected``.
    """
    connection = NodeConnection(runtime, address, request_ids, frame_bytes_max=frame_bytes_max)

    async def greet() -> None:
        await network.connect(address, connection.accept)
        try:
            await connection.greet(cluster_id, expected, challenge)
        except PeerError:
            on_answer()
            raise
        on_answer()

    try:
        await runtime.within(timeout, greet())
    except TimeoutError:
        connection.abort()
        raise UnavailableError(
            f"{address} did not answer within {timeout:g} s", remedy="check that the node runs and can be reached"
        ) from None
    except OSError as error:
        connection.abort()
        raise UnavailableError(
            f"cannot connect to {address}: {error.strerror or error}",
            remedy="check that the node runs and that the address is right",
        ) from error
    except BaseException:
        connection.abort()
        raise
    return connection


def too_large(size: int) -> ResultTooLargeError:
    """Return what a caller gets whose answer is larger than this client takes."""
    return ResultTooLargeError(
        f"the answer takes {size:,} bytes, more than this client takes; what was asked was carried out",
        remedy=TOO_LARGE_REMEDY,
    )


def _was_answered(future: Future[Frame]) -> bool:
    """Whether the node answered; else the asker was cancelled, or the time was over."""
    return future.done() and not future.cancelled() and not isinstance(future.exception(), TimeoutError)


def _expire(future: Future[Frame]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def check_identity(
    address: str, expected: ExpectedNode, welcome: Mapping[str, Any], challenge: bytes
) -> ViewstampError | None:
    """Compare the WELCOME of the node that answers at ``address`` with the one that is expected there.

    Returns:
      Why it may be asked for STATUS only; None = it is the one.

    Raises:
      WrongNodeError: it is another node, or runs on another directory.
    """
    found, file = str(welcome.get("node")), expected.file or "the directory"
    proof = welcome.get("proof")
    if name_of(found) != expected.node:
        raise _mismatch(address, f"{found} answers at {address}, where {file} has {expected.node}")
    if "proof" in welcome and proof is None:
        return UnavailableError(f"{found} at {address} is replaying its log", remedy="try again in a moment")
    if expected.incarnation and not _is_proof(proof, expected.incarnation, challenge):
        raise _mismatch(address, f"{found} answers at {address}, but from another data directory than {file} names")
    members = welcome.get("members")
    recorded = members.get(found) if isinstance(members, dict) else None
    if recorded is not None and recorded != address:
        return WrongNodeError(
            f"{found} answers at {address}, but its membership has it at {recorded}; nothing was sent to it",
            remedy=f"if the directory of {file} is a copy, stop its nodes: they pass for the original's; if {found} was"
            f" moved, write {recorded} into its settings and restart it",
        )
    elsewhere = _directory_elsewhere(welcome, expected, challenge)
    if elsewhere:
        raise WrongNodeError(
            f"{found} at {address} runs on {elsewhere}, not on {expected.directory}, and one is a copy of the other; "
            "nothing was sent to it",
            remedy=f"name the directory on which it runs by --dir, or name the node by --cluster {address}; to start "
            "the node of this directory, stop that one first",
        )
    return None


def _directory_elsewhere(welcome: Mapping[str, Any], expected: ExpectedNode, challenge: bytes) -> str:
    """Return the directory on which a node runs if it is another one than expected; "" = the same, or it does not say.

    Older releases do not say it, and neither does a node whose disk has nothing that a copy lacks.
    """
    path, proof = welcome.get("directory"), welcome.get("directory_proof")
    if not expected.incarnation or not expected.directory_id or not isinstance(path, str):
        return ""
    own = directory_proof(expected.incarnation, expected.directory_id, path, challenge)
    if isinstance(proof, bytes) and hmac.compare_digest(proof, own):
        return ""
    return path if path.isprintable() else brief_repr(path)


def _is_proof(proof: object, incarnation: str, challenge: bytes) -> bool:
    return isinstance(proof, bytes) and hmac.compare_digest(proof, identity_proof(incarnation, challenge))


def _mismatch(address: str, what: str) -> WrongNodeError:
    return WrongNodeError(
        f"{what}; nothing was sent to it",
        remedy=f"stop the process that listens at {address} and start the node of the directory, or correct the address"
        f" in its settings; to act on the node that answers, name it by --cluster {address}",
    )
