"""Takes a backup: the log of a source, its newest snapshot, and last the manifest.

| step | the process dies in it: the target has |
| --- | --- |
| 1. read the manifests; take the pieces that an earlier backup has | the earlier backups |
| 2. copy the log from the end of these pieces on | the earlier backups, and pieces that no manifest names |
| 3. copy the newest snapshot, unless an earlier backup has it | the same, and parts of a snapshot |
| 4. check that all objects are there, and write the manifest | the earlier backups, or all of the new one |

The log is copied before the snapshot, because a node deletes old log only up to a snapshot: if it deletes a part during
the copy, the next attempt goes on where this one ended.

Only committed records are copied. They are the same on every member and never change, so a backup goes on with another
member if one fails, and a later backup continues the log of an earlier one from any member. Each join is checked: by
the term that each batch names for the record before it, and by the term history of the source. If they contradict the
target, the cluster has lost committed records since (in interval mode), and the backup fails before it writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.manifest import Manifest, SnapshotCopy, manifest_name
from viewstamp.backup.objects import (
    PIECE_BYTES,
    PIECE_HEADER,
    LogPiece,
    StoredObject,
    describe,
    log_name,
    part_name,
)
from viewstamp.backup.source import BackupSource, LogPoint, OfferedSnapshot
from viewstamp.backup.store import BackupStore
from viewstamp.errors import (
    CorruptionError,
    FrameError,
    TrimmedError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Clock
from viewstamp.ids import Index
from viewstamp.node.snapshots.file import SnapshotScanner
from viewstamp.wire.batch import Batch, Buffer

__all__ = ["BackupOptions", "BackupTaker"]

ResultT = TypeVar("ResultT")

_SMALL_BYTES: Final = 1024 * 1024
"""A last piece below this size is copied again with the records after it, so that many backups leave few pieces."""
_EMPTY_MAX: Final = 40
_EMPTY_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions:
    """The load that a backup puts on a node, and its attempts.

    The backup pauses between two requests, so that it reads at most ``bytes_per_second``, and so that a node works on
    its requests for at most ``share`` of the time. ``request_bytes``: the size of one request. ``attempts``: the backup
    fails after this number of failed nodes. ``is_full``: use nothing of earlier backups, and write every object again,
    also over a damaged one.
    """

    bytes_per_second: int = 32 * 1024 * 1024
    share: float = 0.25
    request_bytes: int = 512 * 1024
    attempts: int = 5
    is_full: bool = False


class BackupTaker:
    """Takes one backup into a store that the caller holds (``BackupStore.held``).

    Invariants:
      * ``_pieces`` are in the store, in order and without gaps
    """

    def __init__(
        self,
        store: BackupStore,
        source: BackupSource,
        *,
        clock: Clock,
        release: str,
        options: BackupOptions | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Prepare a backup; nothing is read.

        Args:
          store: the target.
          source: the cluster.
          clock: for the time in the manifest.
          release: the version of viewstamp, for the manifest.
          options: see the class.
          on_bytes: called with the bytes read from the source since the last call.
        """
        self._store = store
        self._source = source
        self._clock = clock
        self._release = release
        self._options = options or BackupOptions()
        self._on_bytes = on_bytes
        self._pieces: list[LogPiece] = []
        self._snapshots: list[SnapshotCopy] = []
        """Whole ones in the store, of earlier backups."""
        self._sent_bytes = 0
        self._final: ViewstampError | None = None
        """An error that another node would give too, so that a further attempt is useless."""

    async def take(self) -> Manifest:
        """Take the backup, and return its manifest, which is durable. If cancelled, the target has no new backup.

        Raises:
          WrongClusterError: the target has backups of another cluster.
          CorruptionError: the source and the target contradict each other, or the source is damaged.
          UnavailableError: no node answered, or the target did not; the earlier backups are unchanged.
          StorageError: the target refused; StorageFullError: it is full. The earlier backups are unchanged.
        """
        catalogue = await in_thread(BackupCatalogue.load, self._store)
        if not self._options.is_full:
            self._take_known(catalogue)
        error: ViewstampError | None = None
        for attempt in range(self._options.attempts):
            if attempt:
                await asyncio.sleep(_PAUSE_SECONDS)
            point = None
            try:
                point = await self._source.describe()
                catalogue.check_cluster(point.cluster)
                return await self._copy(catalogue, point)
            except (TrimmedError, UnavailableError, FrameError, CorruptionError) as reason:
                if reason is self._final:
                    raise
                error = reason
            if point is not None:
                self._source.failed(point.node)
        assert error is not None, "every attempt returns or fails"
        raise UnavailableError(
            f"no backup was taken in {self._options.attempts} attempts: {error.message}",
            remedy=error.remedy or "run it again; the earlier backups are unchanged",
        ) from error

    def _take_known(self, catalogue: BackupCatalogue) -> None:
        """Use the pieces of the newest backup after the last one that is not whole in the target, and the snapshots."""
        for manifest in catalogue.manifests:
            if manifest.snapshot is not None and not catalogue.lacks(manifest.snapshot.parts):
                self._snapshots.append(manifest.snapshot)
        if catalogue.newest is not None:
            for piece in catalogue.newest.log:
                if catalogue.lacks([piece]):
                    self._pieces.clear()
                else:
                    self._pieces.append(piece)

    async def _copy(self, catalogue: BackupCatalogue, point: LogPoint) -> Manifest:
        self._check_joins(point)
        offer = self._choose_snapshot(point)
        await self._copy_log(catalogue, point)
        snapshot = await self._copy_snapshot(catalogue, point, offer) if isinstance(offer, OfferedSnapshot) else offer
        newest = catalogue.newest
        manifest = Manifest(
            id=self._new_id(catalogue, point),
            cluster=point.cluster,
            node=point.node,
            created_us=self._clock.wall_us(),
            release=self._release,
            end=point.end,
            term=point.term,
            log_time=point.log_time,
            snapshot=snapshot,
            log=tuple(self._pieces),
            chain=point.chain,
            lineage=point.lineage,
            topics=point.topics,
            sinks=point.sinks,
            actors=point.actors,
            sent_bytes=self._sent_bytes,
            previous=newest.id if newest is not None else "",
        )
        await self._finish(manifest)
        return manifest

    # -- Joining the earlier backups ------------------------------------------------------------------------

    def _check_joins(self, point: LogPoint) -> None:
        """Keep those of the known pieces that the log of this node continues.

        Raises:
          UnavailableError: this node is behind the target.
          CorruptionError: its log is another one.
        """
        pieces = self._pieces
        if pieces and pieces[-1].end > point.end:
            raise UnavailableError(
                f"{point.node} has applied the log up to index {point.end - 1}, and the target has it up to"
                f" {pieces[-1].end - 1}",
                remedy="wait until the node has caught up, or take the backup from another one",
            )
        if pieces:
            last, starts = pieces[-1], point.history.starts
            if starts[0].begin < last.end and point.history.term_at(Index(last.end - 1)) != last.last_term:
                self._final = CorruptionError(
                    f"{self._store.where} has a record of term {last.last_term} at index {last.end - 1}, and the log of"
                    f" {point.node} one of term {point.history.term_at(Index(last.end - 1))}: the cluster has lost"
                    " committed records since that backup",
                    path=f"{self._store.where}/{last.name}",
                    expected=f"term {last.last_term}",
                    found=f"term {point.history.term_at(Index(last.end - 1))}",
                    remedy="nothing was written; keep that target, because it may have the lost records, and take the"
                    " next backup into another one",
                )
                raise self._final
        if pieces and pieces[-1].end < point.first_index:
            pieces.clear()  # The node has deleted the log between them.
        while pieces and pieces[0].end <= point.first_index:
            del pieces[0]
        if (
            pieces
            and pieces[-1].size < _SMALL_BYTES
            and point.first_index <= pieces[-1].start < pieces[-1].end < point.end
        ):
            del pieces[-1]

    def _choose_snapshot(self, point: LogPoint) -> OfferedSnapshot | SnapshotCopy | None:
        """Return the newest snapshot from whose end on the log is complete: the node's, or one that the target has.

        The log begins with the known pieces. If no snapshot fits, they are dropped, because the node's log may begin
        earlier than they do.

        Raises:
          UnavailableError: this node has no such snapshot.
        """
        offer = max(point.snapshots, key=lambda each: each.end, default=None)
        for begin in (self._pieces[0].start if self._pieces else point.first_index, point.first_index):
            known = [each for each in self._snapshots if begin <= each.end <= point.end and _is_past(each, point)]
            stored = max(known, key=lambda each: each.end, default=None)
            if offer is not None and offer.end >= begin and (stored is None or offer.end > stored.end):
                return offer
            if stored is not None:
                return stored
            if begin == 1:
                return None
            self._pieces.clear()
        raise UnavailableError(
            f"the log of {point.node} begins at index {point.first_index}, and it has no snapshot from there on",
            remedy="take one first: viewstamp snapshot create",
        )

    # -- Copying --------------------------------------------------------------------------------------------

    async def _copy_log(self, catalogue: BackupCatalogue, point: LogPoint) -> None:
        last = self._pieces[-1] if self._pieces else None
        start = last.end if last is not None else point.first_index
        piece = _OpenPiece(start, last.last_term if last is not None else None)
        empty = 0
        while piece.end < point.end:
            asked = self._clock.monotonic()
            batches = await self._source.read_log(point, piece.end, self._options.request_bytes)
            empty = empty + 1 if not batches else 0
            if empty > _EMPTY_MAX:
                raise UnavailableError(f"{point.node} does not send the records from index {piece.end} on")
            for batch in batches:
                piece.add(batch, point)
            if piece.size >= PIECE_BYTES:
                piece = await self._store_piece(catalogue, piece)
            await self._rest(sum(batch.size for batch in batches), asked, is_empty=not batches)
        if piece.size:
            await self._store_piece(catalogue, piece)

    async def _store_piece(self, catalogue: BackupCatalogue, piece: _OpenPiece) -> _OpenPiece:
        data, stored = await in_thread(piece.close)
        await self._write(catalogue, stored, data)
        self._pieces.append(stored)
        return _OpenPiece(stored.end, stored.last_term)

    async def _copy_snapshot(self, catalogue: BackupCatalogue, point: LogPoint, offer: OfferedSnapshot) -> SnapshotCopy:
        """Copy a snapshot in parts, each verified before it is stored.

        Raises:
          TrimmedError: the node does not keep it any more.
          CorruptionError: it is damaged on the node.
        """
        scanner = SnapshotScanner(f"the snapshot of {point.node} up to index {offer.end - 1}")
        parts: list[StoredObject] = []
        gathered = bytearray()
        offset, size, identity = 0, 1, None
        while offset < size:
            asked = self._clock.monotonic()
            size, found, data = await self._source.read_snapshot(point, offer, offset, self._options.request_bytes)
            if identity not in (None, found) or (not data and offset < size):
                raise FrameError(f"{point.node} sent another snapshot, or nothing, at byte {offset} of {size}")
            identity = found
            offset += len(data)
            gathered += data
            if gathered and (len(gathered) >= PIECE_BYTES or offset >= size):
                content = bytes(gathered)
                gathered.clear()
                await in_thread(scanner.feed, content)
                part = describe(part_name(offer.end, offer.term, len(parts)), content)
                await self._write(catalogue, part, content)
                parts.append(part)
            await self._rest(len(data), asked)
        scanner.finish()
        assert scanner.header is not None, "a whole file has a header"
        meta = scanner.header.meta
        if (meta.end, meta.term, meta.cluster) != (offer.end, offer.term, point.cluster):
            raise FrameError(f"{point.node} sent the snapshot {meta.term}.{meta.end} of {meta.cluster} for {offer}")
        return SnapshotCopy(end=meta.end, term=meta.term, size=size, log_time=meta.log_time, parts=tuple(parts))

    async def _rest(self, count: int, asked: float, *, is_empty: bool = False) -> None:
        """Report the bytes that were read, and wait before the next request."""
        self._on_bytes(count)
        options = self._options
        took = self._clock.monotonic() - asked
        wait = max(count / options.bytes_per_second, took / options.share) - took
        await asyncio.sleep(_EMPTY_SECONDS if is_empty else max(0.0, wait))

    # -- Writing --------------------------------------------------------------------------------------------

    async def _write(self, catalogue: BackupCatalogue, stored: StoredObject, data: bytes) -> None:
        """Write an object, unless it is there already, for example from a backup that was interrupted."""
        if not self._options.is_full and catalogue.sizes.get(stored.name) == stored.size:
            return
        await self._in_store(self._store.write, stored.name, data)
        catalogue.sizes[stored.name] = stored.size
        self._sent_bytes += stored.size

    async def _finish(self, manifest: Manifest) -> None:
        """Check that all objects are there, because others may have removed some meanwhile; write the manifest."""
        fresh = await self._in_store(BackupCatalogue.load, self._store)
        if missing := fresh.lacks(manifest.objects):
            raise UnavailableError(
                f"{len(missing)} objects of this backup have disappeared from {self._store.where}, the first is"
                f" {missing[0].name}; the backup was not completed",
                remedy="run it again, and find the program that removes objects there",
            )
        await self._in_store(self._store.check_held)
        await self._in_store(self._store.write, manifest_name(manifest.id), manifest.encode())

    async def _in_store(self, call: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Make a blocking call of the store; its errors are final, because the store has its own attempts."""
        try:
            return await in_thread(call, *arguments)
        except ViewstampError as error:
            self._final = error
            raise

    def _new_id(self, catalogue: BackupCatalogue, point: LogPoint) -> str:
        made = datetime.fromtimestamp(self._clock.wall_us() / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
        backup, number = f"{made}-{point.end - 1}", 1
        while any(each.id == backup for each in catalogue.manifests) or manifest_name(backup) in catalogue.problems:
            number += 1
            backup = f"{made}-{point.end - 1}-{number}"
        return backup


def _is_past(snapshot: SnapshotCopy, point: LogPoint) -> bool:
    """Return whether the log of the node goes on from a stored snapshot: it has the same term at its end."""
    last = Index(snapshot.end - 1)
    return last < point.history.starts[0].begin or point.history.term_at(last) == snapshot.term


class _OpenPiece:
    """A piece of the log that is being gathered. ``previous_term`` None = that of the first batch is taken."""

    def __init__(self, start: int, previous_term: int | None) -> None:
        self.start = self.end = start
        self.size = 0
        self.buffers: list[Buffer] = [PIECE_HEADER]
        self._previous_term = previous_term
        self._last_term = previous_term
        self._times: list[int] = []

    def add(self, batch: Batch, point: LogPoint) -> None:
        """Take the next batch.

        Raises:
          FrameError: it does not follow, or ends beyond the point.
        """
        is_joined = self._last_term in (None, batch.previous_term) and batch.term >= batch.previous_term
        if batch.first_index != self.end or batch.end > point.end or not is_joined:
            raise FrameError(
                f"{point.node} sent {batch!r} after term {batch.previous_term}; expected is index {self.end} after term"
                f" {self._last_term}"
            )
        if self._previous_term is None:
            self._previous_term = int(batch.previous_term)
        self._last_term = int(batch.term)
        self._times = [*self._times[:1], batch.log_time]
        self.end = int(batch.end)
        self.size += batch.size
        self.buffers.append(batch.buffer)

    def close(self) -> tuple[bytes, LogPiece]:
        """Return the object and its description."""
        data = b"".join(self.buffers)
        stored = describe(log_name(self.start, self.end), data)
        assert self._previous_term is not None, "it has a batch"
        assert self._last_term is not None, "it has a batch"
        piece = LogPiece(
            name=stored.name,
            size=stored.size,
            sha256=stored.sha256,
            start=self.start,
            end=self.end,
            previous_term=self._previous_term,
            last_term=self._last_term,
            first_time=self._times[0],
            last_time=self._times[-1],
        )
        return data, piece
