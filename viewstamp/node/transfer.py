"""Fetching a leader's snapshot: on a connection of its own, so that batches and heartbeats never wait behind it.

The leader offers (``SnapshotOffer``), again at each heartbeat as long as it helps; this member pulls. One piece is
asked for at a time, by offset, so what was received before a connection, or the leader, was lost is not sent twice
where the next leader has the same file. Whoever pulls is in charge: the other side keeps nothing but the file.

A death leaves the intact beginning of a file, or a whole one that is a snapshot like any other: recovery installs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from structlog.typing import FilteringBoundLogger

from viewstamp.actors import AsyncActor
from viewstamp.consensus.messages import SnapshotOffer
from viewstamp.errors import ConfigError, CorruptionError, FrameError, OutdatedCodeError, PeerError, StorageFullError
from viewstamp.host.blocking import in_thread
from viewstamp.host.seam import Connection, Network
from viewstamp.ids import NodeId
from viewstamp.node.recovery import point_of
from viewstamp.node.replica import InstallSnapshot
from viewstamp.node.snapshot_store import IncomingSnapshot, SnapshotStore, StoredSnapshot
from viewstamp.node.state_machine import StateMachine
from viewstamp.wire.frame import Frame, FrameDecoder, encode_frame
from viewstamp.wire.requests import FrameKind

__all__ = ["SnapshotFetcher"]

_PIECE_BYTES = 256 * 1024
_ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 0.5
"""After a failure; the offers go on coming meanwhile."""


class SnapshotFetcher(AsyncActor[None]):
    """Takes offers, of which the latest counts; hands over what is to be installed.

    Invariants:
      * one snapshot is fetched at a time, over one connection
    """

    def __init__(
        self,
        store: SnapshotStore,
        machine: StateMachine,
        *,
        hello: dict[str, object],
        address: Callable[[NodeId], str],
        network: Network,
        on_fetched: Callable[[InstallSnapshot], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._machine = machine
        self._hello = hello
        self._address = address
        self._network = network
        self._on_fetched = on_fetched
        self._log = log
        self.progress: dict[str, object] = {}
        """What is being fetched, for ``status``: {"from", "index", "bytes", "size"}; empty = nothing."""
        self._offer: SnapshotOffer | None = None
        self._offered = asyncio.Event()
        self._fetched_end = 0
        """Up to where snapshots were handed over: offers of those come for a while yet."""

    def offer(self, offer: SnapshotOffer) -> None:
        """Take an offer in the place of one that has not been looked at. Never awaits."""
        if offer.end > self._fetched_end:
            self._offer = offer
            self._offered.set()

    async def run(self) -> None:
        """Fetch what is offered: for ever."""
        while True:
            await self._offered.wait()
            self._offered.clear()
            offer = self._offer
            if offer is None or offer.end <= self._fetched_end:
                continue
            try:
                await self._fetch(offer)
            except OutdatedCodeError:
                raise  # A state of newer code: this node stops, and says so.
            except (OSError, PeerError, TimeoutError, ConfigError, CorruptionError, StorageFullError) as error:
                self._log.warning("! snapshot not fetched", peer=offer.source, index=offer.end - 1, reason=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                self.progress = {}

    async def _fetch(self, offer: SnapshotOffer) -> None:
        """Fetch one snapshot, unless its file is here already; then have it installed."""
        stored = self._store.find(offer.end, offer.last_term)
        if stored is None:
            self._log.info("= fetching a snapshot", peer=offer.source, index=offer.end - 1)
            stored = await self._receive(offer)
        try:
            prepared = await in_thread(self._prepare, stored)
        except CorruptionError as error:
            self._store.set_aside(stored, error)
            raise
        self._fetched_end = stored.end
        self._on_fetched(InstallSnapshot(point_of(stored.meta), prepared))

    def _prepare(self, stored: StoredSnapshot) -> object:
        return self._machine.prepare(self._store.load(stored))

    async def _receive(self, offer: SnapshotOffer) -> StoredSnapshot:
        incoming = await self._store.receive(offer.end, offer.last_term)
        try:
            session = _Session(offer.source, self._hello)
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = await self._network.connect(self._address(offer.source), session.accept)
            try:
                while not incoming.is_complete:
                    await self._receive_piece(session, incoming, offer)
            finally:
                connection.abort()
            return await incoming.finish()
        finally:
            await incoming.close()

    async def _receive_piece(self, session: _Session, incoming: IncomingSnapshot, offer: SnapshotOffer) -> None:
        offset = incoming.offset
        request: dict[str, object] = {"end": offer.end, "term": offer.last_term}
        request |= {"offset": offset, "bytes_max": _PIECE_BYTES}
        async with asyncio.timeout(_ANSWER_SECONDS):
            frame = await session.ask(request)
        size, identity = frame.body.get("size"), frame.body.get("identity")
        if type(size) is not int or type(identity) is not int or (not frame.payload and offset < size):
            raise FrameError(f"{offer.source} sent no piece of a snapshot: {str(frame.body)[:200]}")
        await incoming.add(bytes(frame.payload), offset=offset, size=size, identity=identity)
        self.progress = {"from": offer.source, "index": offer.end - 1, "bytes": incoming.offset, "size": size}


class _Session:
    """One connection: the handshake of a peer, then one question and its answer at a time."""

    def __init__(self, peer: NodeId, hello: dict[str, object]) -> None:
        self._peer = peer
        self._hello = hello
        self._decoder = FrameDecoder()
        self._connection: Connection | None = None
        self._answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._closed: BaseException | None = None
        self._number = 0

    def accept(self, connection: Connection) -> _Session:
        """Say who we are."""
        self._connection = connection
        connection.send(encode_frame(FrameKind.HELLO, self._hello))
        return self

    async def ask(self, request: dict[str, object]) -> Frame:
        """Ask for a piece, and return the answer. Raises PeerError: refused, or the connection has ended."""
        if self._closed is not None or self._connection is None:
            raise PeerError(f"{self._peer} closed the connection")
        self._number += 1
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(encode_frame(FrameKind.READ_SNAPSHOT, {"id": self._number, **request}))
        return await self._answer

    def on_bytes(self, data: bytes) -> None:
        """Take what came."""
        for frame in self._decoder.feed(data):
            body: Any = frame.body
            if frame.kind == FrameKind.WELCOME:
                if body.get("cluster") != self._hello["cluster"] or body.get("node") != self._peer:
                    raise FrameError(f"expected {self._peer}, found {body.get('node')} of {body.get('cluster')}")
            elif frame.kind == FrameKind.OK and body.get("id") == self._number:
                if not self._answer.done():
                    self._answer.set_result(frame)
            elif frame.kind in (FrameKind.REFUSED, FrameKind.ERROR):
                raise PeerError(str(body.get("message")), remedy=str(body.get("remedy")))

    def on_closed(self, error: BaseException | None) -> None:
        """Tell who waits."""
        self._closed = error or PeerError(f"{self._peer} closed the connection")
        if not self._answer.done():
            self._answer.set_exception(self._closed)
            self._answer.exception()  # Nobody may be waiting.
