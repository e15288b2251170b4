"""Planted mistakes in backups: their content, their joins, the test that they are whole, and pruning."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.backup import prune as pruning
from viewstamp.backup import restore
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.create import BackupTaker
from viewstamp.backup.manifest import Manifest, manifest_name
from viewstamp.backup.objects import LogPiece, StoredObject
from viewstamp.backup.source import ClusterSource, LogPoint
from viewstamp.backup.store import BackupStore, DirectoryStore
from viewstamp.backup.verify import BackupReader
from viewstamp.node import group
from viewstamp.wire.batch import Batch

__all__ = ["BACKUP_MUTANTS"]


def backup_of_a_late_member() -> AbstractContextManager[None]:
    original = ClusterSource.__init__

    def init(self: ClusterSource, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **{**named, "stale": True})

    return patched(ClusterSource, __init__=init)


def backup_joins_blindly() -> AbstractContextManager[None]:
    """The last piece in the target is not compared with the source's term history."""
    original = BackupTaker._check_joins

    def check(self: BackupTaker, point: LogPoint) -> None:
        if self._pieces and self._pieces[-1].end <= point.end:
            return
        original(self, point)

    return patched(BackupTaker, _check_joins=check)


def backup_names_first() -> AbstractContextManager[None]:
    """The manifest is written under its final name in two steps."""
    original = DirectoryStore.write

    def write(self: DirectoryStore, name: str, data: bytes) -> None:
        if name.startswith("manifests/"):
            original(self, name, data[: len(data) // 2])
        original(self, name, data)

    return patched(DirectoryStore, write=write)


def backup_prunes_objects_first() -> AbstractContextManager[None]:
    def prune(store: BackupStore, keep: int) -> pruning.Pruned:
        catalogue = BackupCatalogue.load(store)
        kept = catalogue.manifests[-keep:]
        needed = {each.name for manifest in kept for each in manifest.objects}
        for name in catalogue.sizes:
            if name not in needed:
                store.remove(name)
        dropped = [each for each in catalogue.manifests if each not in kept]
        for manifest in dropped:
            store.remove(manifest_name(manifest.id))
        return pruning.Pruned([each.id for each in dropped], 0, 0)

    return everywhere(pruning.prune, prune)


def backup_believes_digests() -> AbstractContextManager[None]:
    def check(self: StoredObject, data: bytes, where: str) -> None:
        return None

    return patched(StoredObject, check=check)


def backup_shows_incarnations() -> AbstractContextManager[None]:
    def conceal(batch: Batch) -> Batch:
        return batch

    return patched(group, conceal_batch=conceal)


def restore_cuts_too_late() -> AbstractContextManager[None]:
    """A backup reaches to a moment if its last record is at it, although later ones may have the same time."""

    def reaches(manifest: Manifest, until: int | None, until_time: int | None) -> bool:
        return until is None or manifest.end <= until

    return patched(restore, _reaches=reaches)


def backup_verifies_pieces_alone() -> AbstractContextManager[None]:
    """A piece is verified, and not whether its batches are those of its description."""
    original = BackupReader.read_piece

    def read_piece(self: BackupReader, piece: LogPiece) -> list[Batch]:
        try:
            return original(self, piece)
        except Exception:
            return []

    return patched(BackupReader, read_piece=read_piece)


BACKUP_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "backup-of-a-late-member",
            "a backup takes what a follower has applied, and not all that was acknowledged before",
            backup_of_a_late_member,
            rule="backup",
        ),
        Mutant(
            "backup-joins-blindly",
            "a backup continues the target although the cluster has lost committed records since",
            backup_joins_blindly,
            rule="backup",
        ),
        Mutant(
            "backup-names-first",
            "the manifest has its final name before it is complete",
            backup_names_first,
            rule="backup",
        ),
        Mutant(
            "backup-prunes-objects-first",
            "pruning removes objects before the manifests that name them",
            backup_prunes_objects_first,
            rule="backup",
        ),
        Mutant(
            "backup-believes-digests",
            "the digests of objects are not compared",
            backup_believes_digests,
            rule="backup",
        ),
        Mutant(
            "backup-shows-incarnations",
            "batches leave a node with the incarnations of members",
            backup_shows_incarnations,
            rule="backup",
        ),
        Mutant(
            "restore-cuts-too-late",
            "a restore up to a moment takes a backup that ends before it",
            restore_cuts_too_late,
            rule="backup",
        ),
        Mutant(
            "backup-verifies-nothing",
            "a damaged piece of the log counts as an empty one",
            backup_verifies_pieces_alone,
            rule="backup",
        ),
    )
}
"""The mutants by name."""
