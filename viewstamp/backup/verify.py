"""Verifies backups without restoring them: all digests, the checksums inside, and that the ranges join."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from viewstamp.backup.manifest import LogCopy, Manifest
from viewstamp.backup.objects import LogPiece, StoredObject, strip_header
from viewstamp.backup.store import BackupStore
from viewstamp.errors import ConfigError, CorruptionError, FrameError, ViewstampError
from viewstamp.node.snapshots.file import SnapshotScanner
from viewstamp.wire.batch import Batch

__all__ = ["BackupReader", "BackupVerification"]


@dataclass(slots=True)
class BackupVerification:
    """The result for one backup: verified objects, bytes, batches and records of the log, and the errors found."""

    backup: str
    objects: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    errors: list[ViewstampError] = field(default_factory=list)


class BackupReader:
    """Reads objects of a store, and verifies them. Each object is verified once, however many backups need it.

    Blocks.
    """

    def __init__(self, store: BackupStore, *, on_bytes: Callable[[int], None] = lambda _: None) -> None:
        """Read ``store``; ``on_bytes`` is called with the bytes read since the last call."""
        self._store = store
        self._on_bytes = on_bytes
        self._counts: dict[str, tuple[int, int]] = {}
        """Batches and records of each piece that is intact."""
        self._snapshots: set[tuple[str, ...]] = set()
        """The parts of each snapshot that is intact."""

    def read(self, stored: StoredObject) -> bytes:
        """Return an object with the right digest.

        Raises:
          CorruptionError: it is missing or damaged.
          StorageError, UnavailableError: the target cannot be read.
        """
        try:
            data = self._store.read(stored.name)
        except FileNotFoundError as error:
            path = f"{self._store.where}/{stored.name}"
            raise CorruptionError(
                f"{path} is missing",
                path=path,
                expected=f"{stored.size} bytes",
                found="no object",
                remedy="put the object back from a copy of the target; or restore another backup that does not need it,"
                " which `viewstamp backup verify` names",
            ) from error
        self._on_bytes(len(data))
        stored.check(data, self._store.where)
        return data

    def read_piece(self, piece: LogPiece) -> list[Batch]:
        """Return the batches of a piece of the log, verified: they have the indices and terms of its description.

        Raises:
          CorruptionError: it is missing or damaged.
          ConfigError: it has a newer format.
        """
        path = f"{self._store.where}/{piece.name}"
        try:
            batches = Batch.decode_all(strip_header(self.read(piece), path))
        except FrameError as error:
            raise _contradicts(path, "intact batches", error.message) from error
        at, term, time = piece.start, piece.previous_term, piece.first_time
        for batch in batches:
            if (batch.first_index, batch.previous_term) != (at, term) or batch.log_time < time:
                raise _contradicts(path, f"index {at} after term {term}, not before {time}", repr(batch))
            at, term, time = batch.end, batch.term, batch.log_time
        if (at, term, time) != (piece.end, piece.last_term, piece.last_time):
            raise _contradicts(path, f"records up to {piece.end - 1} in term {piece.last_term}", f"up to {at - 1}")
        return batches

    def verify(self, manifest: Manifest) -> BackupVerification:
        """Verify all of one backup. Damage is in the result.

        Raises:
          StorageError, UnavailableError: the target cannot be read.
        """
        found = BackupVerification(manifest.id)
        for log in manifest.logs:
            self._verify_log(manifest, log, found)
        return found

    def _verify_log(self, manifest: Manifest, log: LogCopy, found: BackupVerification) -> None:
        before: LogPiece | None = None
        for piece in log.log:
            if before is not None and (before.end, before.last_term) != (piece.start, piece.previous_term):
                path = f"{self._store.where}/{piece.name}"
                found.errors.append(_contradicts(path, f"a piece from index {before.end} on", f"{piece.start}"))
            before = piece
            try:
                self._count(piece, found)
            except (ConfigError, CorruptionError) as error:
                found.errors.append(error)
        if before is not None and (before.end, before.last_term) != (log.end, log.term):
            path = f"{self._store.where}/{before.name}"
            found.errors.append(_contradicts(path, f"the log up to index {log.end - 1}", f"up to {before.end - 1}"))
        try:
            self._verify_snapshot(manifest, log, found)
        except (ConfigError, CorruptionError) as error:
            found.errors.append(error)

    def _count(self, piece: LogPiece, found: BackupVerification) -> None:
        if piece.sha256 not in self._counts:
            batches = self.read_piece(piece)
            self._counts[piece.sha256] = len(batches), sum(batch.count for batch in batches)
        count, records = self._counts[piece.sha256]
        found.objects += 1
        found.bytes += piece.size
        found.batches += count
        found.records += records

    def _verify_snapshot(self, manifest: Manifest, log: LogCopy, found: BackupVerification) -> None:
        snapshot = log.snapshot
        if snapshot is None:
            if log.begin > 1:
                raise _contradicts(
                    f"{self._store.where}: backup {manifest.id}",
                    f"a snapshot, because the log begins at {log.begin}",
                    "none",
                )
            return
        if not log.begin <= snapshot.end <= log.end:
            raise _contradicts(
                f"{self._store.where}: backup {manifest.id}",
                f"a snapshot that ends from index {log.begin} to {log.end}",
                f"one that ends at {snapshot.end}",
            )
        key = tuple(part.sha256 for part in snapshot.parts)
        if key not in self._snapshots:
            path = f"{self._store.where}: the snapshot of backup {manifest.id}"
            meta = self.scan_snapshot(snapshot.parts, path)
            expected = (manifest.cluster, snapshot.end, snapshot.term)
            if meta != expected:
                raise _contradicts(path, str(expected), str(meta))
            self._snapshots.add(key)
        found.objects += len(snapshot.parts)
        found.bytes += snapshot.size

    def scan_snapshot(
        self, parts: Iterable[StoredObject], path: str, take: Callable[[bytes], None] = lambda _: None
    ) -> tuple[str, int, int]:
        """Verify a snapshot, and call ``take`` with each part; return its cluster, end and term.

        Raises:
          CorruptionError: a part is missing or damaged, or they are no snapshot.
          ConfigError: it has a newer format.
        """
        scanner = SnapshotScanner(path)
        for part in parts:
            data = self.read(part)
            scanner.feed(data)
            take(data)
        scanner.finish()
        assert scanner.header is not None, "a whole file has a header"
        meta = scanner.header.meta
        return meta.cluster, int(meta.end), int(meta.term)


def _contradicts(path: str, expected: str, found: str) -> CorruptionError:
    return CorruptionError(
        f"{path} is damaged: expected {expected}, found {found}",
        path=path,
        expected=expected,
        found=found,
        remedy="restore another backup, in which `viewstamp backup verify` finds no damage; take a new one with --full",
    )
