"""Fetching committed records, or a snapshot, from the other members, by a node whose core does not run.

Any member that has them as committed may answer, and the group need not have a leader. Received records are checked:
their checksums, indices without a gap, and the term by this node's own history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import ConfigError, CorruptionError, FrameError, PeerError, StorageFullError, TrimmedError
from viewstamp.host.interfaces import Network
from viewstamp.host.logger import Logger
from viewstamp.ids import Index, NodeId
from viewstamp.node.peers.peer_client import LostError, PeerSession
from viewstamp.node.snapshots.store import SnapshotStore, StoredSnapshot
from viewstamp.node.snapshots.transfer import receive_piece
from viewstamp.wire.batch import Batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.peer_requests import ReadLog
from viewstamp.wire.requests import ListSnapshots

__all__ = ["GoneError", "Refetcher", "RepairProgress", "check_batches", "is_described"]

_PIECE_BYTES = 1024 * 1024
_RETRY_SECONDS_FIRST = 0.1
_RETRY_SECONDS_MAX = 2.0
_REFUSALS = (OSError, PeerError, TrimmedError, LostError, TimeoutError)
"""Errors after which the next member is asked."""


class GoneError(TrimmedError):
    """Every other member has answered that it does not keep the missing records, or has lost them too."""


@dataclass(slots=True, kw_only=True)
class RepairProgress:
    """The progress of a repair, for ``status`` and for errors of callers that must wait.

    ``bytes_total`` is an estimate, 0 = unknown. ``ranges`` are the missing indices (half-open). ``waits``: in the last
    round no member had the missing records.
    """

    sentence: str
    source: str = ""
    bytes: int = 0
    bytes_total: int = 0
    waits: bool = False
    ranges: list[tuple[int, int | None]] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """Return the fields of ``status``."""
        return {
            "sentence": self.sentence,
            "from": self.source,
            "bytes": self.bytes,
            "bytes_total": max(self.bytes, self.bytes_total),
            "waits": self.waits,
            "ranges": self.ranges,
        }


class Refetcher:
    """Asks the other members in turn, without a limit, until one has the missing records.

    Members may have been removed and added since this node's log was damaged. A removed one may never answer again, so
    each answer of a member with a newer membership replaces the addresses.

    Invariants:
      * at most one connection is open; the member that answered last is asked first
    """

    def __init__(
        self,
        addresses: Mapping[NodeId, str],
        *,
        generation: int,
        me: NodeId,
        node: NodeId,
        hello: dict[str, object],
        address_of: Callable[[NodeId], str | None],
        network: Network,
        progress: RepairProgress,
        log: Logger,
    ) -> None:
        """Begin with the members at ``addresses`` of a membership's ``generation``; ``me`` is this member's own id.

        ``address_of`` returns an address that counts instead of these; None = there is none.
        """
        self._addresses = {peer: address for peer, address in addresses.items() if peer != me}
        self._generation = generation
        self._me = me
        self._newer: dict[str, str] = {}
        """The members of ``_generation`` if they are not in ``_addresses`` yet, where the next round takes them."""
        self._node = node
        self._hello = hello
        self._address_of = address_of
        self._network = network
        self._progress = progress
        self._logger = log
        self._session: PeerSession | None = None

    async def fetch(self, start: int, end: int, history: TermHistory) -> list[Batch]:
        """Return batches from index ``start`` on, at least one, none beyond ``end``; checked against ``history``.

        Raises:
          GoneError: no member keeps them.
        """
        delay = _RETRY_SECONDS_FIRST
        while True:
            refusals: dict[NodeId, Exception] = {}
            for peer in self._in_turn():
                try:
                    return await self._fetch_from(peer, start, end, history)
                except _REFUSALS as error:
                    refusals[peer] = error
                    self._close_after_refusal()
            if _is_gone(refusals):
                raise GoneError(f"no member keeps the records from index {start} to {end - 1}")
            self._say_stalled(f"the records from index {start} to {end - 1}", refusals)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _RETRY_SECONDS_MAX)

    async def has(self, start: int, end: int) -> bool:
        """Ask every member once, and return whether one still keeps the records from index ``start`` on."""
        for peer in self._in_turn():
            try:
                session = await self._open(peer)
                frame = await session.ask(ReadLog(start=start, end=end, bytes_max=1))
            except _REFUSALS:
                self.close()
            else:
                return len(frame.payload) > 0
        return False

    async def fetch_snapshot(self, store: SnapshotStore, begin: int, end: int) -> StoredSnapshot:
        """Fetch the newest snapshot that ends at ``begin`` or later, and at ``end`` at most.

        Raises:
          GoneError: no member has such a snapshot.
          StorageError: the disk failed; StorageFullError: there is no space.
        """
        delay = _RETRY_SECONDS_FIRST
        while True:
            refusals: dict[NodeId, Exception] = {}
            for peer in self._in_turn():
                try:
                    return await self._fetch_snapshot_from(peer, store, begin, end)
                except StorageFullError:
                    raise
                except (*_REFUSALS, ConfigError, CorruptionError) as error:
                    refusals[peer] = error
                    self._close_after_refusal()
            if _is_gone(refusals):
                raise GoneError(f"no member has a snapshot that ends from index {begin - 1} to {end - 1}")
            self._say_stalled(f"a snapshot that ends at index {begin - 1} or later", refusals)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _RETRY_SECONDS_MAX)

    def close(self) -> None:
        """End the connection. Idempotent."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _close_after_refusal(self) -> None:
        """Note the members that the session's other side named, for the next round; then end the connection."""
        with contextlib.suppress(PeerError):
            found = self._session.members if self._session is not None else None
            if found is not None and found[1] > self._generation:
                self._newer, self._generation = found
        self.close()

    def _in_turn(self) -> list[NodeId]:
        """Begin a round: return the members, the one to which a connection is open first."""
        if self._newer:
            self._addresses = {NodeId(peer): at for peer, at in self._newer.items() if peer != self._me}
            self._newer = {}
        first = self._session.peer if self._session is not None else None
        return sorted(self._addresses, key=lambda peer: (peer != first, peer))

    async def _open(self, peer: NodeId) -> PeerSession:
        if self._session is None or self._session.peer != peer:
            self.close()
            address = self._address_of(peer) or self._addresses[peer]
            self._session = await PeerSession.open(self._network, address, peer, self._hello)
        return self._session

    async def _fetch_from(self, peer: NodeId, start: int, end: int, history: TermHistory) -> list[Batch]:
        session = await self._open(peer)
        frame = await session.ask(ReadLog(start=start, end=end, bytes_max=_PIECE_BYTES))
        batches = Batch.decode_all(bytes(frame.payload))
        check_batches(batches, start, end, history, peer)
        progress = self._progress
        progress.source, progress.waits = peer, False
        progress.bytes += len(frame.payload)
        of = f" of about {progress.bytes_total:,}" if progress.bytes_total > progress.bytes else ""
        progress.sentence = f"{self._node} is repairing its log: {progress.bytes:,}{of} bytes from {peer}"
        return batches

    async def _fetch_snapshot_from(self, peer: NodeId, store: SnapshotStore, begin: int, end: int) -> StoredSnapshot:
        session = await self._open(peer)
        frame = await session.ask(ListSnapshots())
        try:
            offered = [(int(each["index"]) + 1, int(each["term"])) for each in frame.body["snapshots"]]
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise FrameError(f"{peer} sent no list of snapshots: {brief_repr(frame.body)}") from error
        fitting = [each for each in offered if begin <= each[0] <= end]
        if not fitting:
            raise TrimmedError(f"{peer} has no snapshot that ends from index {begin - 1} to {end - 1}")
        incoming = await store.receive(*max(fitting))
        try:
            while not incoming.is_complete:
                self._progress.bytes_total = await receive_piece(session, incoming)
                self._progress.source, self._progress.waits = peer, False
                self._progress.bytes = incoming.offset
                self._progress.sentence = (
                    f"{self._node} is repairing its snapshots: {incoming.offset:,} of"
                    f" {self._progress.bytes_total:,} bytes from {peer}"
                )
            return await incoming.finish()
        finally:
            await incoming.close()

    def _say_stalled(self, what: str, refusals: Mapping[NodeId, Exception]) -> None:
        reasons = "; ".join(f"{peer}: {str(error) or type(error).__name__}" for peer, error in refusals.items())
        sentence = f"{self._node} is repairing, and no other member can give it {what}: {reasons}"
        if sentence != self._progress.sentence:
            self._logger.warning("! repair waits", reason=sentence)
        self._progress.sentence, self._progress.waits = sentence, True


def _is_gone(refusals: Mapping[NodeId, Exception]) -> bool:
    """Return whether no member has the missing records, and at least one has a snapshot that replaces them.

    If all members have lost them, the repair waits, because an administrator may put a disk back.
    """
    return all(isinstance(error, (TrimmedError, LostError)) for error in refusals.values()) and (
        not refusals or any(isinstance(error, TrimmedError) for error in refusals.values())
    )


def check_batches(batches: list[Batch], start: int, end: int, history: TermHistory, peer: NodeId) -> None:
    """Check that batches, whose checksums are right, are the missing records.

    Raises:
      PeerError: they have other indices, or another term than in this node's history. They are dropped.
    """
    if not batches:
        raise FrameError(f"{peer} sent no records from index {start} on")
    at = start
    for batch in batches:
        if batch.first_index != at or batch.end > end:
            raise FrameError(f"{peer} sent {batch!r}, expected records from index {at} on, up to {end - 1}")
        if not is_described(batch, history):
            term = history.term_at(batch.first_index)
            raise PeerError(f"{peer} sent {batch!r}, but this node's history has term {term} at its first index")
        at = batch.end


def is_described(batch: Batch, history: TermHistory) -> bool:
    """Return whether the history has the batch's term at its indices, or begins after them."""
    if batch.first_index < history.starts[0].begin:
        return True
    return batch.term == history.term_at(batch.first_index) == history.term_at(Index(batch.end - 1))
