"""The data directory of a group: control file, snapshots and log, which belong to one group on one node of one cluster.

| path | holds |
| --- | --- |
| ``control-a``, ``control-b`` | term, vote, history and identity (``wal/control_file.py``) |
| ``snapshots/`` | images of the state machine (``snapshots/store.py``) |
| ``wal/`` | the log (``wal/log.py``) |
| ``groups/<g>/`` | the same for each other group that the node hosts |
| ``damaged-<n>/`` | files that a repair has set aside |
| ``old-cluster-<n>/`` | files of the cluster that these files belonged to before a fork (``viewstamp.fork``) |
| ``fork.mark``, ``new-cluster/`` | an unfinished fork (``fork_mark.py``) |
| ``settings-members`` | the addresses in the settings at the last start (``address_check.py``) |

Opening it removes leftovers of unfinished snapshots. A log of a version without log ids gets one, which is durable in
the control file before the first segment has it. So a process that dies in between does not affect the next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.host.interfaces import Disk, Host
from viewstamp.ids import GROUP_0, ClusterId, GroupId, NodeId
from viewstamp.node.fork_mark import check_not_forking
from viewstamp.node.snapshots.store import SnapshotStore
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.format import NO_LOG_ID
from viewstamp.wal.recovery import check_without_log_id

__all__ = ["GROUPS_NAME", "DataDir", "check_owner", "directories_of_groups"]

GROUPS_NAME: Final = "groups"


class DataDir:
    """An open data directory; blocking.

    Invariants:
      * ``state`` is the content of the control file; None = the directory is new
    """

    def __init__(self, disk: Disk, path: str, control: ControlFile, snapshots: SnapshotStore, log_id: bytes) -> None:
        """Made by :meth:`open`."""
        self.disk = disk
        self.path = path
        self.control = control
        self.state = control.state
        self.snapshots = snapshots
        self.log_id = log_id
        """The identity of the log, which each of its segments contains."""

    @classmethod
    def open(cls, host: Host, path: str, *, node: NodeId, cluster: ClusterId, group: GroupId = GROUP_0) -> DataDir:
        """Read control file and snapshots; the log is opened by the replay.

        Raises:
          ConfigError: another node's, cluster's or group's directory, an unfinished fork, or files of a newer format.
          CorruptionError: data without a control file, or a control file of which no copy is intact.
          StorageError: the disk failed.
        """
        disk = host.disk
        check_not_forking(disk, path)
        control = ControlFile.open(disk, path)
        state = control.state
        if state is not None:
            check_owner(path, state, node=node, cluster=cluster)
        if state is not None and state.group != group:
            raise ConfigError(
                f"{path} holds group {state.group}, and group {group} should be there",
                remedy="put the directories of the groups back to their places; nothing was changed",
            )
        snapshots = SnapshotStore.open(disk, f"{path}/snapshots", cluster, group)
        log_id = state.log_id if state is not None else NO_LOG_ID
        is_without_id = log_id == NO_LOG_ID
        if is_without_id:
            log_id = host.entropy.randbytes(len(NO_LOG_ID))
        directory = cls(disk, path, control, snapshots, log_id)
        if state is None and snapshots.stored:
            raise directory.orphan(f"a snapshot up to index {snapshots.stored[0].end - 1}")
        if state is not None and is_without_id:
            check_without_log_id(disk, directory.wal_path)
            directory.write(replace(state, log_id=log_id))
        return directory

    @property
    def wal_path(self) -> str:
        """The directory of the log."""
        return f"{self.path}/wal"

    def write(self, state: ControlState) -> ControlState:
        """Store ``state`` if it has changed, and return it; durable on return."""
        if state != self.state:
            self.control.write(state)
            self.state = state
        return state

    def orphan(self, found: str) -> CorruptionError:
        """Return the error about data without a control file. Nothing has been changed."""
        return CorruptionError(
            f"{self.path} holds {found}, but no control file",
            path=self.path,
            expected="control-a or control-b",
            found="neither",
            remedy="put the file back if it was moved; without its vote and term history this member must not take"
            " part, the others go on without it",
        )


def check_owner(path: str, state: ControlState, *, node: NodeId, cluster: ClusterId) -> None:
    """Raise ConfigError if the directory at ``path`` is not that of a node of a cluster."""
    if (state.cluster_id, state.node_id) != (cluster, node):
        raise ConfigError(
            f"{path} holds node {state.node_id} of cluster {state.cluster_id}, the settings say node {node} of cluster"
            f" {cluster}",
            remedy="correct [node] data_dir, [node] id or [cluster] id; nothing was changed",
        )


def directories_of_groups(disk: Disk, path: str) -> Mapping[str, str]:
    """Return the directories of other groups than 0 in a data directory, by the names of the groups; {} = none."""
    return {name: f"{path}/{GROUPS_NAME}/{name}" for name in sorted(disk.list_directory(f"{path}/{GROUPS_NAME}"))}
