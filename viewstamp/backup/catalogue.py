"""The backups in a target: their manifests, and the objects that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from viewstamp.backup.manifest import Manifest, manifest_name
from viewstamp.backup.objects import LOG, MANIFESTS, SNAPSHOTS, LogPiece, StoredObject
from viewstamp.backup.store import BackupStore
from viewstamp.errors import ConfigError, CorruptionError, ViewstampError, WrongClusterError

__all__ = ["BackupCatalogue"]


@dataclass(slots=True)
class BackupCatalogue:
    """The content of a target when it was read.

    ``manifests`` are the whole ones, the oldest first: in the order of the ends of their logs. ``problems`` has the
    error of each other manifest. ``sizes`` are those of the objects that are there.
    """

    where: str
    manifests: list[Manifest] = field(default_factory=list)
    problems: dict[str, ViewstampError] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, store: BackupStore) -> BackupCatalogue:
        """Read all manifests, and list the objects; blocks.

        Raises:
          StorageError, UnavailableError: the target cannot be read.
        """
        found = cls(store.where)
        for name in store.list_sizes(MANIFESTS):
            if not name.endswith(".json"):
                continue
            try:
                manifest = Manifest.decode(store.read(name), f"{store.where}/{name}")
                if manifest_name(manifest.id) != name:
                    raise CorruptionError(
                        f"{store.where}/{name} is the manifest of backup {manifest.id}: it was renamed",
                        path=f"{store.where}/{name}",
                        remedy="give it back its name",
                    )
                found.manifests.append(manifest)
            except FileNotFoundError:
                continue  # It was pruned meanwhile.
            except (ConfigError, CorruptionError) as error:
                found.problems[name] = error
        found.manifests.sort(key=lambda each: (each.end, each.created_us, each.id))
        found.sizes = {**store.list_sizes(LOG), **store.list_sizes(SNAPSHOTS)}
        return found

    @property
    def newest(self) -> Manifest | None:
        """The backup with the highest end of its log; None = there is none."""
        return self.manifests[-1] if self.manifests else None

    def find(self, backup: str | None) -> Manifest:
        """Return the backup with this id, or the newest for None.

        Raises:
          ConfigError: there is no such backup, or None is not clear because backups of several clusters are here.
          CorruptionError, ConfigError: its manifest is half-written, or newer.
        """
        if backup is not None:
            if (error := self.problems.get(manifest_name(backup))) is not None:
                raise error
            for manifest in self.manifests:
                if manifest.id == backup:
                    return manifest
        elif len(self.clusters) > 1:
            raise ConfigError(
                f"{self.where} has backups of several clusters: {', '.join(self.clusters)}",
                remedy="name the backup, as `viewstamp backup list` shows it",
            )
        elif self.newest is not None:
            return self.newest
        wanted = "no backup" if backup is None else f"no backup {backup}"
        broken = f"; {len(self.problems)} manifests cannot be read: {', '.join(self.problems)}" if self.problems else ""
        raise ConfigError(
            f"{self.where} has {wanted}{broken}",
            remedy="check the name of the target; `viewstamp backup list` shows the backups in it",
        )

    @property
    def clusters(self) -> Sequence[str]:
        """The ids of the clusters with backups here, sorted."""
        return sorted({manifest.cluster for manifest in self.manifests})

    def check_cluster(self, cluster: str) -> None:
        """Check that all backups here are of this cluster, because indices of two clusters have nothing in common.

        Raises:
          WrongClusterError: another cluster has backups here; nothing was changed.
        """
        others = [each for each in self.clusters if each != cluster]
        if others:
            raise WrongClusterError(
                f"{self.where} has backups of cluster {', '.join(others)}; this is cluster {cluster}; nothing was"
                " written",
                remedy="give each cluster a target of its own; a restored cluster is a new one",
            )

    def lacks(self, objects: Sequence[StoredObject]) -> list[StoredObject]:
        """Return those of ``objects`` that are missing here, or have another size."""
        return [each for each in objects if self.sizes.get(each.name) != each.size]

    def pieces_up_to(self, manifest: Manifest) -> list[LogPiece]:
        """Return the pieces of a backup's log, preceded by those of earlier backups that join it without a gap."""
        by_end: dict[int, LogPiece] = {}
        for other in self.manifests:
            if other.cluster == manifest.cluster:
                for piece in other.log:
                    known = by_end.get(piece.end)
                    if known is None or piece.start < known.start:
                        by_end[piece.end] = piece
        pieces = list(manifest.log)
        while pieces:
            before = by_end.get(pieces[0].start)
            if before is None or before.last_term != pieces[0].previous_term or self.lacks([before]):
                break
            pieces.insert(0, before)
        return pieces
