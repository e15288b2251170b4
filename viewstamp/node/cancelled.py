"""Removes the directory of a group that was cancelled, because its id is never used again.

A group that was cancelled was never established, so its founders have created an empty log and never voted. The caller
has the cancellation in the applied state of group 0, so its record is committed. The directory is removed only if it is
as that state says. Nothing on the disk is changed before all of it is checked:

| the directory | this node |
| --- | --- |
| missing | does nothing |
| has the control file that this founder wrote when it created the directory, and an empty log | removes it |
| has no control file, and an empty log or none: its creation or its removal was interrupted | removes it |
| has a control file with anything else (a vote, another id of the member, another group, node or cluster), or a \
record, a snapshot, any file that a founder does not create, or is damaged | leaves it, and reports the reason |

The removal goes on at the next start if the process dies:

| step | if the process or the machine dies before the next step |
| --- | --- |
| 1. the files of ``wal/``, then that directory | the control file is intact, and an empty log may lack segments: the \
second row |
| 2. ``snapshots/``, which is empty | the same |
| 3. the control file, copy by copy | one intact copy is enough: the second row. Without any: the third row |
| 4. the directory | an empty directory is the third row, a missing one the first |

Each directory is synced before it is removed, and its parent after it. A removal that a power cut undoes is repeated.
"""

from __future__ import annotations

from dataclasses import fields

from viewstamp.errors import ConfigError
from viewstamp.host.interfaces import Disk
from viewstamp.node.options import NodeOptions
from viewstamp.wal.control_file import CONTROL_NAMES, ControlState, read_control_state
from viewstamp.wal.format import TEMPORARY_NAME, parse_segment_name, parse_spare_name
from viewstamp.wal.recovery import Survey

__all__ = ["remove_cancelled"]

_SNAPSHOTS, _WAL = "snapshots", "wal"
_KNOWN = frozenset({*CONTROL_NAMES, *(f"{name}.temporary" for name in CONTROL_NAMES), _SNAPSHOTS, _WAL})
"""The names in the directory of a founder whose group is not established."""


def remove_cancelled(disk: Disk, options: NodeOptions) -> bool:
    """Remove the directory of a cancelled group, durably; return whether there was one. Blocks.

    Raises:
      ConfigError, CorruptionError: the directory is not that of a founder of a cancelled group; it is unchanged.
      StorageError: the disk failed; the rest of the directory stays.
    """
    path = options.data_dir
    if not disk.exists(path):
        return False
    _check_names(disk, path)
    _check_log(disk, path, _check_control(disk, options))
    for name in (_WAL, _SNAPSHOTS):
        if disk.exists(f"{path}/{name}"):
            _remove(disk, f"{path}/{name}")
    _remove(disk, path)
    return True


def _check_names(disk: Disk, path: str) -> None:
    others = [name for name in disk.list_directory(path) if name not in _KNOWN]
    others += [f"{_SNAPSHOTS}/{name}" for name in disk.list_directory(f"{path}/{_SNAPSHOTS}")]
    others += [f"{_WAL}/{name}" for name in disk.list_directory(f"{path}/{_WAL}") if not _is_of_log(name)]
    if others:
        raise _unexpected(path, f"has {', '.join(others)}")


def _is_of_log(name: str) -> bool:
    return name == TEMPORARY_NAME or parse_segment_name(name) is not None or parse_spare_name(name) is not None


def _check_control(disk: Disk, options: NodeOptions) -> bytes | None:
    """Return the id of the log by the control file; None = there is no control file."""
    found = read_control_state(disk, options.data_dir)
    if found is None:
        return None
    created = ControlState(
        cluster_id=options.cluster,
        node_id=options.node,
        incarnation=found.incarnation,
        log_id=found.log_id,
        group=options.group,
    )
    pairs = [(each.name, getattr(found, each.name), getattr(created, each.name)) for each in fields(ControlState)]
    if others := [f"{name} {value!r}" for name, value, expected in pairs if value != expected]:
        raise _unexpected(options.data_dir, f"has a control file with {', '.join(others)}")
    return found.log_id


def _check_log(disk: Disk, path: str, log_id: bytes | None) -> None:
    found = Survey(disk=disk, directory=f"{path}/{_WAL}", log_id=log_id)
    for item in found.walk():
        if isinstance(item, tuple):
            raise _unexpected(path, f"has a log with a record at index {item[1].first_index}")
    if found.judgement.corruption is not None:
        raise found.error()


def _remove(disk: Disk, directory: str) -> None:
    """Remove a directory with its files, durably."""
    for name in disk.list_directory(directory):
        disk.remove(f"{directory}/{name}")
    disk.sync_directory(directory)
    disk.remove_directory(directory)


def _unexpected(path: str, found: str) -> ConfigError:
    return ConfigError(
        f"{path} belongs to a group that was cancelled, and {found}, which no founder of such a group has; it stays",
        remedy="move it out of the way if it is a copy of another directory; otherwise report it with the log of the"
        " node",
    )
