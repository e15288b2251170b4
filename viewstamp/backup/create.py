"""Takes a backup: the log of a source, its newest snapshot, and last the manifest.

| step | the process dies in it: the target has |
| --- | --- |
| 1. read the manifests; take the pieces that an earlier backup has | the earlier backups |
| 2. copy the log of group 0 from the end of these pieces on | the earlier backups, and pieces that no manifest names |
| 3. copy its newest snapshot, unless an earlier backup has it | the same, and parts of a snapshot |
| 4. the same for each other group, and look whether groups or streams were created since | the same |
| 5. check that all objects are there, and write the manifest | the earlier backups, or all of the new one |

If the log of a source contradicts the target, the cluster has lost committed records since (in interval mode), and the
backup fails. docs/design/0017-backup.md has the cut of the logs of several groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.log_copier import LogCopier, ObjectWriter
from viewstamp.backup.manifest import Manifest, manifest_name
from viewstamp.backup.options import BackupOptions
from viewstamp.backup.source import BackupSource, LogPoint
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

__all__ = ["BackupTaker"]

_PAUSE_SECONDS: Final = 0.5


class BackupTaker:
    """Takes one backup into a store that the caller holds (``BackupStore.held``)."""

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
        self._copiers: dict[int, LogCopier] = {}
        """By group."""
        self._node: str | None = None
        """The node that is read."""

    async def take(self) -> Manifest:
        """Take the backup, and return its manifest, which is durable. If cancelled, the target has no new backup.

        Raises:
          WrongClusterError: the target has backups of another cluster.
          CorruptionError: the source and the target contradict each other, or the source is damaged.
          UnavailableError: no node answered, or the target did not; the earlier backups are unchanged.
          StorageError: the target refused; StorageFullError: it is full. The earlier backups are unchanged.
        """
        catalogue = await in_thread(BackupCatalogue.load, self._store)
        writer = ObjectWriter(self._store, catalogue, is_full=self._options.is_full)
        error: ViewstampError | None = None
        for attempt in range(self._options.attempts):
            if attempt:
                await asyncio.sleep(_PAUSE_SECONDS)
            self._node = None
            try:
                point = await self._source.describe()
                self._node = point.node
                catalogue.check_cluster(point.cluster)
                return await self._copy(catalogue, writer, point)
            except (TrimmedError, UnavailableError, FrameError, CorruptionError) as reason:
                if reason is writer.final:
                    raise
                error = reason
            if self._node is not None:
                self._source.failed(self._node)
        assert error is not None, "every attempt returns or fails"
        raise UnavailableError(
            f"no backup was taken in {self._options.attempts} attempts: {error.message}",
            remedy=error.remedy or "run it again; the earlier backups are unchanged",
        ) from error

    async def _copy(self, catalogue: BackupCatalogue, writer: ObjectWriter, point: LogPoint) -> Manifest:
        home = await self._copier(0, catalogue, writer).copy(point)
        groups = []
        for group in point.groups:
            found = await self._source.describe_group(group)
            self._node = found.node
            groups.append(await self._copier(group, catalogue, writer).copy(found, point.cut, point.floors.get(group)))
        if point.groups:
            await self._check_placement(point)
        newest = catalogue.newest
        manifest = Manifest(
            id=self._new_id(catalogue, point),
            cluster=point.cluster,
            node=home.node,
            created_us=self._clock.wall_us(),
            release=self._release,
            end=home.end,
            term=home.term,
            log_time=home.log_time,
            snapshot=home.snapshot,
            log=home.log,
            chain=home.chain,
            lineage=home.lineage,
            topics=point.topics,
            sinks=point.sinks,
            actors=point.actors,
            sent_bytes=writer.sent_bytes,
            previous=newest.id if newest is not None else "",
            groups=tuple(groups),
        )
        await self._finish(writer, manifest)
        return manifest

    def _copier(self, group: int, catalogue: BackupCatalogue, writer: ObjectWriter) -> LogCopier:
        """Return the copier of a group, which has kept the pieces of an attempt before."""
        found = self._copiers.get(group)
        if found is None:
            found = self._copiers[group] = LogCopier(
                group, writer, self._source, clock=self._clock, options=self._options, on_bytes=self._on_bytes
            )
            if not self._options.is_full:
                found.take_known(catalogue)
        return found

    async def _check_placement(self, point: LogPoint) -> None:
        """Check that no stream or actor was created in a group since group 0 was described.

        Raises:
          UnavailableError: the placement has changed: a group may have what group 0 lacks, so the backup begins again.
        """
        if await self._source.placement() != point.placement:
            raise UnavailableError(
                "groups, topics with streams or actors of groups were created or changed during the backup",
                remedy="run it again; the earlier backups are unchanged",
            )

    # -- Writing --------------------------------------------------------------------------------------------

    async def _finish(self, writer: ObjectWriter, manifest: Manifest) -> None:
        """Check that all objects are there, because others may have removed some meanwhile; write the manifest."""
        fresh = await writer.in_store(BackupCatalogue.load, self._store)
        if missing := fresh.lacks(manifest.objects):
            raise UnavailableError(
                f"{len(missing)} objects of this backup have disappeared from {self._store.where}, the first is"
                f" {missing[0].name}; the backup was not completed",
                remedy="run it again, and find the program that removes objects there",
            )
        await writer.in_store(self._store.check_held)
        await writer.in_store(self._store.write, manifest_name(manifest.id), manifest.encode())

    def _new_id(self, catalogue: BackupCatalogue, point: LogPoint) -> str:
        made = datetime.fromtimestamp(self._clock.wall_us() / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
        backup, number = f"{made}-{point.end - 1}", 1
        while any(each.id == backup for each in catalogue.manifests) or manifest_name(backup) in catalogue.problems:
            number += 1
            backup = f"{made}-{point.end - 1}-{number}"
        return backup
