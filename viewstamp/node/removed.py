"""Removes the directory of a group that was removed, or that this node has left, with its records.

The id of a removed group is never used again, and a node that has left a group is never added to it again. The caller
has the end in the applied state of group 0, so its record is committed, and has closed the group.
Nothing on the disk is changed before the names and the control file are checked:

| the directory | this node |
| --- | --- |
| missing | does nothing |
| has a control file of this node and group | removes it |
| has no control file, and one that step 2 has renamed: its removal was interrupted | removes it |
| has neither | removes it if it holds nothing, as that of a cancelled group (``cancelled.py``) |
| has a control file of another node, cluster or group, or none that is intact; or another file than a member has | \
leaves it, and reports the reason |

The removal goes on at the next start if the process dies:

| step | if the process or the machine dies before the next step |
| --- | --- |
| 1. both copies of the control file are made equal | the directory is that of the member, complete |
| 2. each copy is renamed, and the directory synced | one copy is enough for a complete member, with its newest vote. \
Without any, no member can be opened from the directory: its records are refused as orphans, or it has none |
| 3. the files and the directories of the log, of the snapshots and of repairs | the third row |
| 4. the renamed copies | one is enough: the third row. Without any the directory is empty: the fourth row |
| 5. the directory | an empty directory is the fourth row, a missing one the first |

Step 2 precedes the others because a node whose group 0 lags after a restart has the group as established again. With a
control file and a part of the log, it would take part in the group and lack records that it has acknowledged. If
nothing is left, it makes a directory with another id, as after the loss of a disk, and no leader adds that id to the
group: docs/design/0026, "Members of an established group".

The member may have been a founder, or have another id because it joined after a loss of its disk.
"""

from __future__ import annotations

import re

from viewstamp.errors import ConfigError
from viewstamp.host.interfaces import Disk
from viewstamp.node.cancelled import remove_cancelled
from viewstamp.node.options import NodeOptions
from viewstamp.wal.control_file import CONTROL_NAMES, ControlFile, read_control_state

__all__ = ["remove_removed"]

_RENAMED = tuple(f"{name}.removed" for name in CONTROL_NAMES)
_DIRECTORIES = re.compile("wal|snapshots|damaged-[0-9]+")
_FILES = frozenset({*CONTROL_NAMES, *(f"{name}.temporary" for name in CONTROL_NAMES), *_RENAMED})


def remove_removed(disk: Disk, options: NodeOptions) -> bool:
    """Remove the directory of a group that has ended on this node, durably; return whether there was one. Blocks.

    Raises:
      ConfigError, CorruptionError: the directory is not that of a member of the group on this node; it is unchanged.
      StorageError: the disk failed; the rest of the directory stays.
    """
    path = options.data_dir
    if not disk.exists(path):
        return False
    names = disk.list_directory(path)
    if others := [name for name in names if name not in _FILES and not _DIRECTORIES.fullmatch(name)]:
        raise _unexpected(path, f"has {', '.join(others)}")
    state = read_control_state(disk, path)
    if state is None and not any(name in names for name in _RENAMED):
        return remove_cancelled(disk, options)
    if state is not None:
        found = state.cluster_id, state.node_id, state.group
        if found != (options.cluster, options.node, options.group):
            raise _unexpected(
                path, f"has the control file of node {found[1]} of cluster {found[0]} for group {found[2]}"
            )
        ControlFile.open(disk, path)
        for name, renamed in zip(CONTROL_NAMES, _RENAMED, strict=True):
            disk.rename(f"{path}/{name}", f"{path}/{renamed}")
        disk.sync_directory(path)
    for name in names:
        if _DIRECTORIES.fullmatch(name):
            _remove_directory(disk, f"{path}/{name}")
    _remove_directory(disk, path)
    return True


def _remove_directory(disk: Disk, path: str) -> None:
    """Remove a directory with its files, durably."""
    for name in disk.list_directory(path):
        disk.remove(f"{path}/{name}")
    disk.sync_directory(path)
    disk.remove_directory(path)


def _unexpected(path: str, found: str) -> ConfigError:
    return ConfigError(
        f"{path} belongs to a group that was removed, or that this node has left, and {found}, which no member of that"
        " group on this node has; it stays",
        remedy="move it out of the way if nothing in it is needed",
    )
