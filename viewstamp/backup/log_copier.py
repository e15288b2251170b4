"""Copies the log of one group and its newest snapshot into a target, behind what earlier backups have of them.

Only committed records are copied. They are the same on every member and never change, so a copy goes on with another
member if one fails, and a later backup continues the log of an earlier one from any member. Each join is checked: by
the term that each batch names for the record before it, and by the term history of the source.

The log is copied before the snapshot, because a node deletes old log only up to a snapshot: if it deletes a part during
the copy, the next attempt goes on where this one ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.manifest import LogCopy, Manifest, SnapshotCopy, archived_of
from viewstamp.backup.objects import (
    PIECE_BYTES,
    PIECE_HEADER,
    LogPiece,
    StoredObject,
    describe,
    log_name,
    part_name,
)
from viewstamp.backup.options import BackupOptions
from viewstamp.backup.source import BackupSource, LogPoint, OfferedSnapshot
from viewstamp.backup.store import BackupStore
from viewstamp.errors import CorruptionError, FrameError, UnavailableError, ViewstampError
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Clock
from viewstamp.ids import Index
from viewstamp.node.order_queries import HomeCut
from viewstamp.node.snapshots.file import SnapshotScanner
from viewstamp.streams.joint_cut import ends_before
from viewstamp.wire.batch import Batch, Buffer

__all__ = ["LogCopier", "ObjectWriter"]

ResultT = TypeVar("ResultT")

_SMALL_BYTES: Final = 1024 * 1024
"""A last piece below this size is copied again with the records after it, so that many backups leave few pieces."""
_EMPTY_MAX: Final = 40
_EMPTY_SECONDS: Final = 0.05


class ObjectWriter:
    """Writes the objects of one backup, unless the target has them.

    Attributes:
      sent_bytes: the bytes that were written.
      final: an error that another node would give too, so that a further attempt is useless; None = there was none.
    """

    def __init__(self, store: BackupStore, catalogue: BackupCatalogue, *, is_full: bool) -> None:
        """Write into ``store``, which had the content ``catalogue``; ``is_full``: also over objects that it has."""
        self.store = store
        self.sent_bytes = 0
        self.final: ViewstampError | None = None
        self._catalogue = catalogue
        self._is_full = is_full

    async def write(self, stored: StoredObject, data: bytes) -> None:
        """Write an object, unless it is there already, for example from a backup that was interrupted."""
        if not self._is_full and self._catalogue.sizes.get(stored.name) == stored.size:
            return
        await self.in_store(self.store.write, stored.name, data)
        self._catalogue.sizes[stored.name] = stored.size
        self.sent_bytes += stored.size

    async def in_store(self, call: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Make a blocking call of the store; its errors are final, because the store has its own attempts."""
        try:
            return await in_thread(call, *arguments)
        except ViewstampError as error:
            self.final = error
            raise


class LogCopier:
    """Copies the log of one group. A failed copy can be repeated, and goes on where it ended.

    Invariants:
      * ``_pieces`` are in the store, in order and without gaps
    """

    def __init__(
        self,
        group: int,
        writer: ObjectWriter,
        source: BackupSource,
        *,
        clock: Clock,
        options: BackupOptions,
        on_bytes: Callable[[int], None],
    ) -> None:
        """Prepare; the arguments are those of ``BackupTaker``."""
        self._group = group
        self._writer = writer
        self._store = writer.store
        self._source = source
        self._clock = clock
        self._options = options
        self._on_bytes = on_bytes
        self._pieces: list[LogPiece] = []
        self._snapshots: list[SnapshotCopy] = []
        """Whole ones in the store, of earlier backups."""

    def take_known(self, catalogue: BackupCatalogue) -> None:
        """Use the pieces of the newest backup after the last one that is not whole in the target, and the snapshots."""
        copies = [copy for manifest in catalogue.manifests if (copy := self._copy_in(manifest)) is not None]
        self._snapshots += [
            copy.snapshot for copy in copies if copy.snapshot and not catalogue.lacks(copy.snapshot.parts)
        ]
        for piece in copies[-1].log if copies else ():
            if catalogue.lacks([piece]):
                self._pieces.clear()
            else:
                self._pieces.append(piece)

    def _copy_in(self, manifest: Manifest) -> LogCopy | None:
        return next((log for log in manifest.logs if log.group == self._group), None)

    async def copy(self, point: LogPoint, home: HomeCut | None = None, floor: LogPoint | None = None) -> LogCopy:
        """Copy the log up to the point, and the newest snapshot up to there.

        Args:
          point: a node, and the end of its log.
          home: the cut of group 0, by which the log of another group is cut; None = at the point.
          floor: with ``home``: the log of the group before group 0 was cut.

        Raises:
          CorruptionError: the source and the target contradict each other, or the source is damaged.
          TrimmedError, UnavailableError, FrameError: this node cannot be used, or not now.
          StorageError: the target refused.
        """
        self._check_joins(point)
        offer = self._choose_snapshot(point)
        cut = await self._copy_log(point, home, floor)
        if cut.end < point.end:
            assert floor is not None, "only the log of another group is cut"
            offer = self._snapshot_below(cut, floor)
        snapshot = await self._copy_snapshot(cut, offer) if isinstance(offer, OfferedSnapshot) else offer
        return LogCopy(
            group=self._group,
            node=cut.node,
            end=cut.end,
            term=cut.term,
            log_time=cut.log_time,
            snapshot=snapshot,
            log=tuple(self._pieces),
            chain=cut.chain,
            lineage=cut.lineage,
            archived=archived_of(point.topics) if self._group else {},
        )

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
                self._writer.final = CorruptionError(
                    f"{self._store.where} has a record of term {last.last_term} at index {last.end - 1}, and the log of"
                    f" {point.node} one of term {point.history.term_at(Index(last.end - 1))}: the cluster has lost"
                    " committed records since that backup",
                    path=f"{self._store.where}/{last.name}",
                    expected=f"term {last.last_term}",
                    found=f"term {point.history.term_at(Index(last.end - 1))}",
                    remedy="no backup was written; keep that target, because it may have the lost records, and take the"
                    " next backup into another one",
                )
                raise self._writer.final
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
        offer = max(
            (each for each in point.snapshots if each.end <= point.end), key=lambda each: each.end, default=None
        )
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

    def _snapshot_below(self, cut: LogPoint, floor: LogPoint) -> OfferedSnapshot | SnapshotCopy | None:
        """Return the snapshot for a log that was cut: one from whose end on the copied log is complete.

        The state at the cut has records that the node's newer state may have released. Those of them that the state at
        the floor had are in the log that the node had then; the others are behind the floor.

        Raises:
          UnavailableError: there is none, because the node has taken its snapshots above the cut; or the node has
            deleted log since the floor.
        """
        begin = self._pieces[0].start if self._pieces else cut.first_index
        if begin > floor.first_index:
            raise UnavailableError(
                f"{cut.node} has deleted its log of group {self._group} below index {begin} during the backup, and the"
                f" state at the cut may need it from index {floor.first_index} on",
                remedy="run it again; the earlier backups are unchanged",
            )
        pieces = list(self._pieces)
        with suppress(UnavailableError):
            offer = self._choose_snapshot(cut)
            if self._pieces == pieces:
                return offer
        self._pieces = pieces
        raise UnavailableError(
            f"{cut.node} has no snapshot of group {self._group} up to index {cut.end - 1}, where the log of this group"
            " is cut; it has taken newer ones meanwhile",
            remedy="run it again; the earlier backups are unchanged",
        )

    # -- Copying --------------------------------------------------------------------------------------------

    async def _copy_log(self, point: LogPoint, home: HomeCut | None, floor: LogPoint | None) -> LogPoint:
        """Copy the log, and return the point at which the copy ends."""
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
                if home is not None and floor is not None and ends_before(batch, home, floor.end):
                    point = _cut_before(batch, point, piece)
                    break
                piece.add(batch, point)
            if piece.size >= PIECE_BYTES:
                piece = await self._store_piece(piece)
            await self._rest(sum(batch.size for batch in batches), asked, is_empty=not batches)
        if piece.size:
            await self._store_piece(piece)
        return point

    async def _store_piece(self, piece: _OpenPiece) -> _OpenPiece:
        data, stored = await in_thread(piece.close)
        await self._writer.write(stored, data)
        self._pieces.append(stored)
        return _OpenPiece(stored.end, stored.last_term)

    async def _copy_snapshot(self, point: LogPoint, offer: OfferedSnapshot) -> SnapshotCopy:
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
                await self._writer.write(part, content)
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


def _is_past(snapshot: SnapshotCopy, point: LogPoint) -> bool:
    """Return whether the log of the node goes on from a stored snapshot: it has the same term at its end."""
    last = Index(snapshot.end - 1)
    return last < point.history.starts[0].begin or point.history.term_at(last) == snapshot.term


def _cut_before(batch: Batch, point: LogPoint, piece: _OpenPiece) -> LogPoint:
    """Return the point before a batch. The checksums of the state are unknown there."""
    if batch.first_index != piece.end:
        raise FrameError(f"{point.node} sent {batch!r}; expected is index {piece.end}")
    return replace(
        point,
        end=piece.end,
        term=int(batch.previous_term),
        log_time=piece.last_time if piece.size else min(point.log_time, batch.log_time),
        chain=None,
        lineage=None,
    )


class _OpenPiece:
    """A piece of the log that is being gathered. ``previous_term`` None = that of the first batch is taken."""

    def __init__(self, start: int, previous_term: int | None) -> None:
        self.start = self.end = start
        self.size = 0
        self.buffers: list[Buffer] = [PIECE_HEADER]
        self._previous_term = previous_term
        self._last_term = previous_term
        self._times: list[int] = []

    @property
    def last_time(self) -> int:
        """The log time of the last batch; there has to be one."""
        return self._times[-1]

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
