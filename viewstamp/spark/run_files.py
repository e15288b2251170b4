"""The files of runs, as tasks and the driver open them: the store of this process, and a check of the file."""

from __future__ import annotations

import os
from typing import NamedTuple

from viewstamp.archive.identity import check_content
from viewstamp.archive.location import open_store
from viewstamp.archive.run_file import RunFooter, RunReader, run_name
from viewstamp.archive.store import ObjectFile, ObjectStore
from viewstamp.client.runs import RunInfo
from viewstamp.ids import GROUP_0, ClusterId, GroupId, RunId

__all__ = ["RunFile", "borders", "open_run", "store_at"]

_stores: dict[tuple[int, str], ObjectStore] = {}
"""By process id, because Spark forks its workers, and connections do not survive a fork."""


class RunFile(NamedTuple):
    """The file of a committed run.

    Attributes:
      run: the id of the run.
      cluster: the cluster that wrote the file.
      size: of the file, in bytes.
      digest: as in the catalogue.
      group: the group of the topic, or of the stream.
    """

    run: int
    cluster: str
    size: int
    digest: str
    group: int = GROUP_0

    @classmethod
    def of(cls, run: RunInfo, own: str, group: int = GROUP_0) -> RunFile:
        """Return the file of a run of the catalogue; ``own`` is the id of the cluster that was asked."""
        return cls(run.id, run.origin or own, run.bytes, run.digest, group)

    @property
    def name(self) -> str:
        """The name of the object."""
        return run_name(ClusterId(self.cluster), RunId(self.run), GroupId(self.group))


def open_run(store: ObjectStore, file: RunFile) -> RunReader:
    """Open the file of a run, and compare its description with the catalogue. Raises CorruptionError."""
    reader = RunReader(ObjectFile(store, file.name, file.size), file.name)
    reader.check_identity(ClusterId(file.cluster), RunId(file.run), GroupId(file.group))
    check_content(file.name, f"records with digest {reader.footer.digest}", f"records with digest {file.digest}")
    return reader


def borders(footer: RunFooter, start: int, end: int, groups: int) -> list[int]:
    """Return positions between ``start`` and ``end`` that cut a run into pieces of about so many row groups."""
    inside = [group.first for group in footer.groups if start < group.first < end]
    return inside[groups - 1 :: groups] if footer.groups[0].first <= start else inside


def store_at(where: str) -> ObjectStore:
    """Return this process's store. Raises ConfigError: a package is missing."""
    key = os.getpid(), where
    if key not in _stores:
        _stores[key] = open_store(where)
    return _stores[key]
