"""The mark of an unfinished fork in a data directory: a node does not start while it is there.

A fork (``viewstamp.fork``) makes the data directories of a new cluster out of the files of an old one. It leaves this
file in each directory that it writes, so that no node starts on a half of each:

| phase | the directory holds | to go on |
| --- | --- | --- |
| BUILDING | its old files, complete and unchanged, or none; new files under ``new-cluster/`` | repeat the fork; or \
remove the marks of all its directories, to go back |
| LEAVING | complete new files under ``new-cluster/``; the old ones are moved to the directory ``aside`` | repeat it |
| ENTERING | the new files are moved to their places | repeat it |

A mark is replaced by renaming a synced file, so it is complete. The first mark that leaves BUILDING decides the fork,
because by then the new files of all its directories are complete and durable.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum

from viewstamp.enums import fast_members
from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Disk
from viewstamp.wire.checksum import crc32c

__all__ = ["FORK_MARK_NAME", "STAGING_NAME", "ForkMark", "ForkPhase", "check_not_forking", "read_fork_mark"]

FORK_MARK_NAME = "fork.mark"
STAGING_NAME = "new-cluster"
"""The directory in which the new files are written."""


@fast_members
class ForkPhase(Enum):
    """The phases of a fork in one directory; the table in the module's docstring."""

    BUILDING = "building"
    LEAVING = "leaving"
    ENTERING = "entering"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkMark:
    """One directory's state of an unfinished fork.

    Attributes:
      fork: a random id, the same in all directories of the fork.
      source: the id of the old cluster.
      cluster: the id of the new cluster.
      phase: see the module.
      aside: the name of the directory for the old files, in the data directory.
      directories: the data directories that the fork writes.
    """

    fork: str
    source: str
    cluster: str
    phase: ForkPhase
    aside: str
    directories: tuple[str, ...]

    @property
    def is_decided(self) -> bool:
        """Whether the fork can only be finished, and no longer taken back."""
        return self.phase is not ForkPhase.BUILDING

    def moved_to(self, phase: ForkPhase) -> ForkMark:
        """Return the mark of another phase."""
        return replace(self, phase=phase)

    def place(self, disk: Disk, directory: str) -> None:
        """Write the mark, in the place of an earlier one; blocking, durable on return."""
        body = json.dumps({**asdict(self), "phase": self.phase.value}, sort_keys=True).encode()
        path = f"{directory}/{FORK_MARK_NAME}"
        file = create_anew(disk, f"{path}.temporary")
        try:
            file.write(0, [b"%08x " % crc32c(body), body])
            file.sync()
        finally:
            file.close()
        disk.rename(f"{path}.temporary", path)
        disk.sync_directory(directory)


def read_fork_mark(disk: Disk, directory: str) -> ForkMark | None:
    """Return the mark in a data directory; None = there is none. Blocking.

    Raises:
      CorruptionError: it is damaged.
      StorageError: the disk failed.
    """
    path = f"{directory}/{FORK_MARK_NAME}"
    try:
        file = disk.open_read(path)
    except FileNotFoundError:
        return None
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    try:
        checksum, _, body = data.partition(b" ")
        if int(checksum, 16) != crc32c(body):
            raise ValueError("another checksum")
        fields = json.loads(body)
        directories = tuple(map(str, fields.pop("directories")))
        return ForkMark(**{**fields, "phase": ForkPhase(fields["phase"]), "directories": directories})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptionError(
            f"the mark of a fork, {path}, cannot be read: {error}",
            path=path,
            expected="a mark with its checksum",
            found=repr(data[:40]),
            remedy="keep the directory; make the fork again from the old cluster's files into empty directories",
        ) from error


def check_not_forking(disk: Disk, directory: str) -> None:
    """Return if no fork of the directory is unfinished; blocking.

    Raises:
      ConfigError: one is; the message says how to finish it, or to go back.
      CorruptionError, StorageError: as :func:`read_fork_mark`.
    """
    mark = read_fork_mark(disk, directory)
    if mark is None:
        return
    again = "repeat the command that was interrupted (viewstamp cluster fork, recover or backup restore)"
    if not mark.is_decided:
        files = ", ".join(f"{each}/{FORK_MARK_NAME}" for each in mark.directories)
        again += f"; or, to keep the files as they were, remove {files}"
    raise ConfigError(
        f"a fork of cluster {mark.source} into the new cluster {mark.cluster} was interrupted in {directory}"
        f" ({mark.phase.value}); nothing was started",
        remedy=again,
    )
