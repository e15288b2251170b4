"""Removes old backups, and objects that no backup needs.

The order makes it safe: first the manifests of the old backups, the oldest first; then the objects that no remaining
manifest names. A crash in between leaves objects that the next run removes, and never a backup without an object.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.manifest import manifest_name
from viewstamp.backup.store import BackupStore
from viewstamp.errors import ConfigError

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of pruning: the ids of removed backups, and the number and the bytes of removed objects."""

    backups: list[str]
    objects: int
    bytes: int


def prune(store: BackupStore, keep: int) -> Pruned:
    """Keep the ``keep`` newest backups of each cluster; blocks. The caller holds the store.

    Raises:
      ConfigError: ``keep`` is below 1, or a manifest cannot be read: the objects that it needs are unknown then.
        Nothing was removed.
      StorageError, UnavailableError: the target refused; no object that is needed was removed.
    """
    if keep < 1:
        raise ConfigError(f"{keep} backups cannot be kept", remedy="keep at least 1")
    catalogue = BackupCatalogue.load(store)
    if catalogue.problems:
        raise ConfigError(
            f"{', '.join(catalogue.problems)} in {store.where} cannot be read, so the objects that they need are"
            " unknown; nothing was removed",
            remedy="remove a half-written manifest by hand; prune backups of a newer version with that version",
        )
    kept = [
        manifest
        for cluster in catalogue.clusters
        for manifest in [each for each in catalogue.manifests if each.cluster == cluster][-keep:]
    ]
    dropped = [manifest for manifest in catalogue.manifests if manifest not in kept]
    for manifest in dropped:
        store.check_held()
        store.remove(manifest_name(manifest.id))
    needed = {each.name for manifest in kept for each in manifest.objects}
    garbage = {name: size for name, size in catalogue.sizes.items() if name not in needed}
    for name in garbage:
        store.check_held()  # Before each, because a backup of another process may be using it by now.
        store.remove(name)
    return Pruned([each.id for each in dropped], len(garbage), sum(garbage.values()))
