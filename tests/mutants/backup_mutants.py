"""Planted mistakes in backups: their content, their joins, the test that they are whole, and pruning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.backup import prune as pruning
from viewstamp.backup import restore
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.create import BackupTaker
from viewstamp.backup.log_copier import LogCopier
from viewstamp.backup.manifest import LogCopy, Manifest, manifest_name
from viewstamp.backup.objects import LogPiece, StoredObject
from viewstamp.backup.source import ClusterSource, LogPoint
from viewstamp.backup.store import BackupStore, DirectoryStore
from viewstamp.backup.verify import BackupReader
from viewstamp.node import copying, group
from viewstamp.node.order_queries import HomeCut
from viewstamp.streams import joint_cut
from viewstamp.wire.batch import Batch, Kind

__all__ = ["BACKUP_MUTANTS"]


def backup_of_a_late_member() -> AbstractContextManager[None]:
    original = ClusterSource.__init__

    def init(self: ClusterSource, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **{**named, "stale": True})

    return patched(ClusterSource, __init__=init)


def backup_joins_blindly() -> AbstractContextManager[None]:
    """The last piece in the target is not compared with the source's term history."""
    original = LogCopier._check_joins

    def check(self: LogCopier, point: LogPoint) -> None:
        if self._pieces and self._pieces[-1].end <= point.end:
            return
        original(self, point)

    return patched(LogCopier, _check_joins=check)


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


def backup_groups_in_the_old_format() -> AbstractContextManager[None]:
    """A release before reads the manifest, and restores group 0 alone."""
    original = Manifest.encode

    def encode(self: Manifest) -> bytes:
        return original(replace(self, groups=()))

    return patched(Manifest, encode=encode)


def backup_shows_founders() -> AbstractContextManager[None]:
    def without(data: bytes, incarnations: Iterable[str]) -> bytes:
        return data

    return patched(copying, _without=without)


def backup_equal_founders() -> AbstractContextManager[None]:
    """The founders of a group get the same zeros, and the state refuses the second one."""

    def digest(incarnation: bytes) -> bytes:
        return b"0" * len(incarnation)

    return patched(copying, _digest=digest)


def restore_group_0_alone() -> AbstractContextManager[None]:
    original = restore.BackupChoice.__dict__["logs"].fget

    def logs(self: restore.BackupChoice) -> Sequence[LogCopy]:
        found: Sequence[LogCopy] = original(self)
        return found[:1]

    return patched(restore.BackupChoice, logs=property(logs))


def backup_cuts_nothing() -> AbstractContextManager[None]:
    """The logs of groups are taken to their ends, with positions that the order of the backup gives again."""
    return patched(joint_cut, _is_beyond=lambda batch, home: False)


def backup_cuts_at_the_version() -> AbstractContextManager[None]:
    """A CONTEXT of the version of the order is left out, although group 0 may have forgotten its runs."""
    original = joint_cut._is_beyond

    def is_beyond(batch: Batch, home: HomeCut) -> bool:
        return original(batch, replace(home, version=home.version - 1) if batch.kind is Kind.CONTEXT else home)

    return patched(joint_cut, _is_beyond=is_beyond)


def backup_cuts_at_any_context() -> AbstractContextManager[None]:
    """Records are left out that the order names."""

    def ends_before(batch: Batch, home: HomeCut, floor: int) -> bool:
        return batch.kind is Kind.CONTEXT

    return everywhere(joint_cut.ends_before, ends_before)


def backup_cuts_without(kind: Kind) -> AbstractContextManager[None]:
    """Records of one kind never end the cut of a group."""
    original = joint_cut._is_beyond

    def is_beyond(batch: Batch, home: HomeCut) -> bool:
        return batch.kind is not kind and original(batch, home)

    return patched(joint_cut, _is_beyond=is_beyond)


def backup_cuts_below_the_floor() -> AbstractContextManager[None]:
    """A record that was committed before the backup began is left out."""
    original = joint_cut.ends_before

    def ends_before(batch: Batch, home: HomeCut, floor: int) -> bool:
        return original(batch, home, 0)

    return everywhere(joint_cut.ends_before, ends_before)


def backup_ignores_the_placement() -> AbstractContextManager[None]:
    """Streams that were created or ended during the backup are not noticed."""

    async def check(self: BackupTaker, point: LogPoint) -> None:
        return None

    return patched(BackupTaker, _check_placement=check)


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
        Mutant(
            "backup-groups-in-the-old-format",
            "a release before restores group 0 of a backup with groups alone",
            backup_groups_in_the_old_format,
            rule="backup of groups",
        ),
        Mutant(
            "backup-shows-founders",
            "the records of group 0 leave a node with the incarnations of the founders of groups",
            backup_shows_founders,
            rule="backup of groups",
        ),
        Mutant(
            "backup-equal-founders",
            "all founders of a group have the same incarnation in a backup, so the group is not established",
            backup_equal_founders,
            rule="backup of groups",
        ),
        Mutant(
            "restore-group-0-alone",
            "a restore leaves the other groups out",
            restore_group_0_alone,
            rule="backup of groups",
        ),
        Mutant(
            "backup-cuts-nothing",
            "the log of a group is not cut at the order of the backup",
            backup_cuts_nothing,
            rule="backup of groups",
        ),
        Mutant(
            "backup-cuts-at-the-version",
            "the log of a group is cut below runs that group 0 has forgotten",
            backup_cuts_at_the_version,
            rule="backup of groups",
        ),
        Mutant(
            "backup-cuts-at-any-context",
            "the log of a group is cut at its first CONTEXT",
            backup_cuts_at_any_context,
            rule="backup of groups",
        ),
        Mutant(
            "backup-keeps-new-parts",
            "a new attempt of a sink finds the part of another one",
            lambda: backup_cuts_without(Kind.BEGIN_PART),
            rule="backup of groups",
        ),
        Mutant(
            "backup-keeps-placed-parts",
            "a part of a batch that is not committed is visible",
            lambda: backup_cuts_without(Kind.COMMIT),
            rule="backup of groups",
        ),
        Mutant(
            "backup-keeps-dropped-parts",
            "a committed batch lacks a part",
            lambda: backup_cuts_without(Kind.FORGET_SINK),
            rule="backup of groups",
        ),
        Mutant(
            "backup-cuts-below-the-floor",
            "a backup lacks a record that was acknowledged before",
            backup_cuts_below_the_floor,
            rule="backup of groups",
        ),
        Mutant(
            "backup-ignores-the-placement",
            "a group has streams that group 0 lacks",
            backup_ignores_the_placement,
            rule="backup of groups",
        ),
    )
}
"""The mutants by name."""
