"""The links to the other members: one outgoing connection to each, kept open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from viewstamp.actors import AsyncActor
from viewstamp.errors import ConfigError, LostDiskError, PeerError
from viewstamp.host.interfaces import Buffer, Connection, Network
from viewstamp.host.logger import Logger
from viewstamp.ids import NodeId
from viewstamp.node.peers.peer_client import refusal_of
from viewstamp.wire.frame import FrameDecoder
from viewstamp.wire.handshake import Opening, Welcome

__all__ = ["PeerConnection"]

_RETRY_SECONDS_FIRST = 0.02
_RETRY_SECONDS_MAX = 0.5
_HANDSHAKE_SECONDS = 5.0
_LOSSES_MAX = 4
"""Calls of ``on_lost`` for one lost connection. More than one, because messages of the peer may be read after the
first call, and make it look alive again."""


class PeerConnection(AsyncActor[None]):
    """The connection to one peer, for messages *to* it; its own messages arrive on a connection that it opens.

    Messages are dropped while there is no connection, or too many bytes are unsent. The core repeats important ones.

    If a connection ends and a new one is refused, the process of the peer is dead; this is faster than any timeout.

    Invariants:
      * at most ``unsent_bytes_max`` bytes, plus one message, wait for the peer
      * ``on_lost`` is called at most ``_LOSSES_MAX`` times for each established connection
    """

    def __init__(
        self,
        peer: NodeId,
        address: Callable[[], str | None],
        *,
        is_meant: Callable[[object], bool],
        hello: Callable[[], dict[str, object]],
        network: Network,
        entropy: Random,
        unsent_bytes_max: int,
        on_lost: Callable[[NodeId], None],
        on_lost_disk: Callable[[LostDiskError], None],
        on_unreached: Callable[[str], Awaitable[None]],
        greeting: Callable[[], list[Buffer]],
        log: Logger,
    ) -> None:
        self.is_over = False
        """Whether the link has ended, because the peer is no member any more."""
        self._on_lost = on_lost
        """Called when the connection has ended and a new one is refused, so that the process seems to be dead."""
        self._on_lost_disk = on_lost_disk
        self._on_unreached = on_unreached
        """Called with the address at which the peer was not reached, before the next attempt."""
        self._greeting = greeting
        """Returns the first frame of each connection; empty = none."""
        self.peer = peer
        self._address = address
        self._is_meant = is_meant
        self._hello = hello
        self._network = network
        self._entropy = entropy
        self.unsent_bytes_max = unsent_bytes_max
        self._logger = log.bind(peer=peer)
        self.connection: Connection | None = None
        """The open connection; None = messages are dropped."""
        self.takes_beats = False
        """Whether the peer reads BEATS frames on the latest connection."""
        self.takes_notices = False
        """Whether the peer reads the message DurableNotice on the latest connection."""
        self.beats_number = 0
        """The number of the latest BEATS frame that this link has carried, of all such frames of this node."""
        self.refusal = ""
        """The reason why the peer refused the latest connection; "" = it did not."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the peer; 0 if there is no connection."""
        return self.connection.unsent_bytes if self.connection is not None else 0

    @property
    def is_connected(self) -> bool:
        """Whether messages are being sent at present."""
        return self.connection is not None

    def send(self, frame: list[Buffer]) -> None:
        """Send the buffers of a frame, or drop it. Never awaits."""
        connection = self.connection
        if connection is not None and connection.unsent_bytes <= self.unsent_bytes_max:
            connection.send(frame)

    async def run(self) -> None:
        """Connect, and connect again after each end, as long as the peer has an address."""
        delay = _RETRY_SECONDS_FIRST
        told = ""
        losses_left = 0
        while (address := self._address()) is not None:
            try:
                connection, session = await self._connect(address)
            except (OSError, PeerError, TimeoutError, ConfigError) as error:  # ConfigError: it is no address
                reason = f"{type(error).__name__}: {error}"
                self.refusal = str(error) if isinstance(error, PeerError) else ""
                if reason != told:
                    self._logger.warning("! peer unreachable", address=address, reason=reason)
                    told = reason
                if isinstance(error, LostDiskError):
                    self._on_lost_disk(error)
                # A peer that refuses the HELLO is alive, and so is one that ends the handshake of TLS.
                if isinstance(error, OSError) and not isinstance(error, ConnectionAbortedError) and losses_left:
                    losses_left -= 1
                    self._on_lost(self.peer)
                await self._on_unreached(address)
                await asyncio.sleep(delay * self._entropy.uniform(0.5, 1.0))
                delay = min(2 * delay, _RETRY_SECONDS_MAX)
                continue
            delay, told, self.refusal = _RETRY_SECONDS_FIRST, "", ""
            self._logger.info("= peer connected", address=address)
            self.connection = connection
            welcome = session.welcome
            self.takes_beats = welcome is not None and welcome.takes_beats
            self.takes_notices = welcome is not None and welcome.takes_notices
            connection.send(self._greeting())
            try:
                reason = await session.closed
            finally:
                self.connection = None
                connection.abort()
                losses_left = _LOSSES_MAX
            self._logger.info("= peer disconnected", reason=reason)
        self.is_over = True

    async def _connect(self, address: str) -> tuple[Connection, _LinkSession]:
        session = _LinkSession(self.peer, self._is_meant, self._hello())
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            connection = await self._network.connect(address, session.accept)
            try:
                await asyncio.shield(session.welcomed)
            except BaseException:
                connection.abort()
                raise
        return connection, session


class _LinkSession:
    """One connection of a link. After the handshake the other side sends nothing."""

    def __init__(self, peer: NodeId, is_meant: Callable[[object], bool], hello: dict[str, object]) -> None:
        loop = asyncio.get_running_loop()
        self.welcomed: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[str] = loop.create_future()
        self._peer = peer
        self._opening = Opening(hello, peer, refused=refusal_of, is_meant=is_meant)
        self._decoder = FrameDecoder()
        self._connection: Connection | None = None

    @property
    def welcome(self) -> Welcome | None:
        """The node's WELCOME; None = not received yet."""
        return self._opening.welcome

    def accept(self, connection: Connection) -> _LinkSession:
        self._connection = connection
        connection.send(self._opening.frame)
        return self

    def on_bytes(self, data: bytes) -> None:
        assert self._connection is not None, "it comes with the first byte at the latest"
        for frame in self._decoder.feed(data):
            if self._opening.receive(frame, self._connection.identity):
                self.welcomed.set_result(None)

    def on_closed(self, error: BaseException | None) -> None:
        if not self.welcomed.done():
            self.welcomed.set_exception(error or PeerError(f"{self._peer} closed the connection in the handshake"))
            self.welcomed.exception()  # Marks it as retrieved, because the link may have given up already.
        if not self.closed.done():
            self.closed.set_result(str(error) if error else "closed")
