"""Fetches a leader's snapshot on a connection of its own, so that batches and heartbeats never wait for it.

The leader sends an offer (``SnapshotOffer``) with each heartbeat while this member needs it, and this member requests
the pieces, one at a time, by offset. So bytes that were received before a connection, or the leader, was lost are not
sent twice if the next leader has the same file. The sender keeps no state except the file.

If the process dies, it leaves the intact beginning of a file; or the mark (``ControlState.installing``) without a file,
which has no effect; or the mark and a whole file, which recovery installs. The write that stores the history clears the
mark.
"""

from __future__ import annotations

import asyncio

from viewstamp.actors import AsyncActor
from viewstamp.consensus.messages import SnapshotOffer
from viewstamp.errors import (
    ConfigError,
    CorruptionError,
    FrameError,
    OutdatedCodeError,
    PeerError,
    StorageFullError,
    TrimmedError,
)
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Network
from viewstamp.host.logger import Logger
from viewstamp.node.inbox import Inbox, InstallSnapshot
from viewstamp.node.log_store import LogStore
from viewstamp.node.peers.peer_client import PeerSession
from viewstamp.node.peers.pool import PeerPool
from viewstamp.node.replay import point_of
from viewstamp.node.snapshots.store import IncomingSnapshot, SnapshotStore, StoredSnapshot
from viewstamp.node.state_machine import StateMachine
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.peer_requests import ReadSnapshot

__all__ = ["SnapshotFetcher", "receive_piece"]

_PIECE_BYTES = 256 * 1024
_PAUSE_SECONDS = 0.5
"""Pause after a failure. Offers still arrive meanwhile."""


class SnapshotFetcher(AsyncActor[None]):
    """Takes offers, of which the latest counts, and hands fetched snapshots to the replica.

    Invariants:
      * one snapshot is fetched at a time, over one connection
    """

    def __init__(
        self,
        store: SnapshotStore,
        machine: StateMachine,
        *,
        hello: dict[str, object],
        peers: PeerPool,
        network: Network,
        log_store: LogStore,
        inbox: Inbox,
        log: Logger,
    ) -> None:
        self._store = store
        self._machine = machine
        self._hello = hello
        self._peers = peers
        self._network = network
        self._log_store = log_store
        self._inbox = inbox
        self._logger = log
        self.progress: dict[str, object] = {}
        """The snapshot being fetched, for ``status``: {"from", "index", "bytes", "size"}; empty = none."""
        self._offer: SnapshotOffer | None = None
        self._offered = asyncio.Event()
        self._fetched_end = 0
        """The end of the last snapshot handed over, because offers of it may still arrive."""

    def offer(self, offer: SnapshotOffer) -> None:
        """Take an offer, replacing one that has not been handled. Never awaits."""
        if offer.end > self._fetched_end:
            self._offer = offer
            self._offered.set()

    async def run(self) -> None:
        """Fetch the offered snapshots, until stopped."""
        while True:
            await self._offered.wait()
            self._offered.clear()
            offer = self._offer
            if offer is None or offer.end <= self._fetched_end:
                continue
            try:
                await self._fetch(offer)
            except OutdatedCodeError:
                raise  # A newer release wrote the state, so this node stops with this error.
            except (
                OSError,
                PeerError,
                TrimmedError,
                TimeoutError,
                ConfigError,
                CorruptionError,
                StorageFullError,
            ) as error:
                self._logger.warning(
                    "! snapshot not fetched", peer=offer.source, index=offer.end - 1, reason=str(error)
                )
                await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                self.progress = {}

    async def _fetch(self, offer: SnapshotOffer) -> None:
        """Fetch one snapshot, unless its file is here already, and hand it to the replica."""
        stored = self._store.find(offer.end, offer.last_term)
        if stored is None:
            self._logger.info("= fetching a snapshot", peer=offer.source, index=offer.end - 1)
            stored = await self._receive(offer)
        try:
            prepared = await in_thread(self._prepare, stored)
        except CorruptionError as error:
            self._store.set_aside(stored, error)
            raise
        self._fetched_end = stored.end
        self._inbox.put(InstallSnapshot(point_of(stored.meta), prepared))

    def _prepare(self, stored: StoredSnapshot) -> object:
        return self._machine.prepare(self._store.load(stored))

    async def _receive(self, offer: SnapshotOffer) -> StoredSnapshot:
        incoming = await self._store.receive(offer.end, offer.last_term)
        try:
            address = self._peers.address(offer.source)
            if address is None:
                raise PeerError(f"this node does not know the address of {offer.source}")
            session = await PeerSession.open(self._network, address, offer.source, self._hello)
            try:
                while not incoming.is_complete:
                    size = await receive_piece(session, incoming)
                    self.progress = {
                        "from": offer.source,
                        "index": offer.end - 1,
                        "bytes": incoming.offset,
                        "size": size,
                    }
            finally:
                session.close()
            # Without the mark, recovery would treat the renamed file as damage, because the log ends before it.
            await self._log_store.mark_installing(offer.end, offer.last_term)
            return await incoming.finish()
        finally:
            await incoming.close()


async def receive_piece(session: PeerSession, incoming: IncomingSnapshot) -> int:
    """Request the next piece of a snapshot, and add it; return the size of the whole.

    Raises:
      PeerError, TimeoutError: it was not sent.
      StorageError: the disk failed; StorageFullError: there is no space.
    """
    offset = incoming.offset
    request = ReadSnapshot(end=incoming.end, term=incoming.term, offset=offset, bytes_max=_PIECE_BYTES)
    frame = await session.ask(request)
    size, identity = frame.body.get("size"), frame.body.get("identity")
    if type(size) is not int or type(identity) is not int or (not frame.payload and offset < size):
        raise FrameError(f"{session.peer} answered a request for a piece of a snapshot with {brief_repr(frame.body)}")
    await incoming.add(bytes(frame.payload), offset=offset, size=size, identity=identity)
    return size
