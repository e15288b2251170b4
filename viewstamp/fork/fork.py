"""The fork over all directories, in an order in which a death at any line does no harm.

| step | the process dies in it: the directories hold |
| --- | --- |
| 1. judge the source; nothing is written | their old files, or nothing |
| 2. lock the targets, and write the mark BUILDING into each | their old files, with marks in some of them |
| 3. write the new files under ``new-cluster/`` of each target, synced; check them, and that the source is unchanged | \
their old files and marks; or the mark |
| 4. write the mark LEAVING into each: the first one decides | complete new files in all, the marks of both phases |
| 5. in each: move the old files aside; mark ENTERING; move the new ones in; remove the mark | each the old files, \
the new ones or the mark |

With a mark no node starts. A repetition of the fork begins again at step 1 if no mark is decided, and otherwise goes on
in step 4 or 5, where each single move can be repeated. Node settings are the caller's: a node whose settings name
another cluster than its files does not start.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from viewstamp.consensus.membership import Membership
from viewstamp.errors import ConfigError, CorruptionError, RequestError, StorageError
from viewstamp.fork.build import Blueprint, build, remove_files
from viewstamp.fork.judge import ForkSource, check_unchanged, check_without_groups
from viewstamp.host.interfaces import Disk, Lock
from viewstamp.ids import GROUP_0, GroupId, NodeId, Term
from viewstamp.node.data_dir import GROUPS_NAME, directories_of_groups
from viewstamp.node.fork_mark import FORK_MARK_NAME, STAGING_NAME, ForkMark, ForkPhase, read_fork_mark
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.replay.replica import ReplicaFinding
from viewstamp.wal.control_file import CONTROL_NAMES, read_control_state

__all__ = ["ForkResult", "NewMember", "finish_fork", "fork"]

SEGMENT_BYTES = 16 * 1024 * 1024
_LOG_ID_BYTES = 16
_PLACES = ("snapshots", "wal")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMember:
    """A voter of the new cluster: its name, the address that the others reach it at, and its data directory."""

    node: NodeId
    address: str
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkResult:
    """The new cluster. ``end`` is the index behind its last record; ``term`` that of its first own records.

    ``source_end`` is the index behind the last record of the old one; 0 = unknown, because an interrupted fork was
    finished. ``aside`` has the directory with the old files for each target that had some. ``groups`` are the other
    groups that the new cluster has.
    """

    source: str
    cluster: str
    term: int
    end: int
    aside: dict[str, str]
    findings: list[ReplicaFinding]
    groups: tuple[int, ...] = ()
    source_end: int = 0


def fork(
    disk: Disk,
    source: ForkSource,
    *,
    cluster: str,
    members: Sequence[NewMember],
    entropy: random.Random,
    segment_bytes: int = SEGMENT_BYTES,
    origin: str = "",
    on_bytes: Callable[[int], None] = lambda _: None,
    check: Callable[[Sequence[str]], None] = lambda _: None,
) -> ForkResult:
    """Make the data directories of a new cluster; blocking, durable on return. See the module about interruptions.

    Example::

        source = judge_source(disk, ["/backup/n1"], basis=Basis.COMMITTED)
        fork(disk, source, cluster="orders-2", members=[NewMember(...)], entropy=random.SystemRandom())

    Args:
      disk: the disk with all directories.
      source: the log to begin with.
      cluster: the id of the new cluster.
      members: its voters. A directory may be one of the source's, else it holds no data; it is created if missing.
      entropy: for the identities of the new disks.
      segment_bytes: size of the segments of the new logs.
      origin: a text for the audit log of the new cluster, behind the id of the old one, for example the backup.
      on_bytes: called now and then with the bytes of the log that were written since the last call.
      check: called with the directories of the complete new files, before the fork is decided; an error takes it back.

    Raises:
      RequestError: the id is the old cluster's, or members share a name, an address or a directory.
      ConfigError: a target holds other data or groups, or a fork of it is decided and unfinished (:func:`finish_fork`);
        or a node has run on a directory of the source since it was judged.
      DirectoryInUseError: a process uses a target.
      CorruptionError: the source is damaged; nothing was changed but marks and new files, which a repetition removes.
      StorageError: the disk failed; StorageFullError: it is full. Then the same.
    """
    _check(source, cluster, members)
    directories = [posixpath.normpath(member.directory) for member in members]
    owned = {posixpath.normpath(replica.directory) for replica in source.replicas}
    for directory in directories:
        disk.make_directory(directory)
    blueprint = _blueprint(source, cluster, members, entropy, origin)
    with _locked(disk, directories):
        for directory in directories:
            _check_target(disk, directory, owned, keeps_groups=source.takes_groups or bool(source.groups))
        check_unchanged(disk, source)
        fork_id = f"{entropy.getrandbits(64):016x}"
        marks = {
            directory: ForkMark(
                fork=fork_id,
                source=source.cluster,
                cluster=cluster,
                phase=ForkPhase.BUILDING,
                aside=_free_name(disk, directory),
                directories=tuple(directories),
            )
            for directory in directories
        }
        try:
            for directory, mark in marks.items():
                mark.place(disk, directory)
            for member, directory in zip(members, directories, strict=True):
                staging = f"{directory}/{STAGING_NAME}"
                places = [(staging, source, blueprint)]
                places += [
                    (f"{staging}/{GROUPS_NAME}/{plan.group}", each.source, plan)
                    for each, plan in zip(source.groups, blueprint.groups, strict=True)
                    if member.node in plan.membership.addresses
                ]
                for place, log, plan in places:
                    build(
                        disk,
                        place,
                        log,
                        plan,
                        node=member.node,
                        log_id=entropy.randbytes(_LOG_ID_BYTES),
                        segment_bytes=segment_bytes,
                        on_bytes=on_bytes,
                    )
            check([f"{directory}/{STAGING_NAME}" for directory in directories])
            check_unchanged(disk, source)
        except BaseException:
            _take_back(disk, directories)
            raise
        groups = tuple(int(each.placed.id) for each in source.groups)
        done = _finish(disk, marks)
        return replace(done, findings=source.findings, groups=groups, source_end=source.end)


def _blueprint(
    source: ForkSource, cluster: str, members: Sequence[NewMember], entropy: random.Random, origin: str
) -> Blueprint:
    def of(
        log: ForkSource,
        voters: Sequence[NewMember],
        group: GroupId,
        groups: Sequence[Blueprint] = (),
        streams: tuple[str, ...] = (),
    ) -> Blueprint:
        membership = Membership(
            {member.node: member.address for member in voters},
            generation=log.membership.generation + 1 if log.membership is not None else 1,
            incarnations={member.node: f"{entropy.getrandbits(64):016x}" for member in voters},
        )
        term = Term(log.term + 1)
        return Blueprint(
            cluster=cluster,
            membership=membership,
            term=term,
            origin=origin,
            group=group,
            groups=tuple(groups),
            streams=streams,
        )

    groups = [
        of(
            each.source,
            _founders(each.placed, members),
            each.placed.id,
            streams=each.placed.streams if each.is_new else (),
        )
        for each in source.groups
    ]
    return of(source, members, GROUP_0, groups)


def _founders(placed: PlacedGroup, members: Sequence[NewMember]) -> list[NewMember]:
    """Return the new members that host a group: those of the hosts' names, then others, up to the same number."""
    number = min(len(placed.hosts), len(members))
    turn = placed.id % len(members)  # The others begin at another member for each group, so that groups spread.
    others = [member for member in (*members[turn:], *members[:turn]) if member.node not in placed.hosts]
    return [*(member for member in members if member.node in placed.hosts), *others][:number]


def _take_back(disk: Disk, directories: Sequence[str]) -> None:
    """Remove the marks and the new files of a fork that failed before it was decided, as far as the disk allows."""
    for directory in directories:
        with suppress(StorageError, OSError):
            remove_files(disk, f"{directory}/{STAGING_NAME}")
            if disk.exists(f"{directory}/{FORK_MARK_NAME}"):
                disk.remove(f"{directory}/{FORK_MARK_NAME}")
                disk.sync_directory(directory)


def finish_fork(disk: Disk, directories: Sequence[str]) -> ForkResult | None:
    """Finish a fork that was decided and interrupted; None = there is none in these directories. Blocking.

    Raises:
      ConfigError: the fork has directories that are not named here.
      DirectoryInUseError: a process uses a directory of the fork.
      CorruptionError: a mark is damaged.
      StorageError: the disk failed.
    """
    given = {posixpath.normpath(directory) for directory in directories}
    found = [read_fork_mark(disk, directory) for directory in sorted(given)]
    mark = next((each for each in found if each is not None and _is_decided(disk, each)), None)
    if mark is None:
        return None
    if not given.issuperset(mark.directories):
        raise ConfigError(
            f"an interrupted fork writes {', '.join(mark.directories)}, and not all of them were named; nothing was"
            " changed",
            remedy="name all of them; if the given directories are copies of them, remove the copies",
        )
    with _locked(disk, mark.directories):
        marks = {directory: read_fork_mark(disk, directory) for directory in mark.directories}
        return _finish(
            disk, {directory: each for directory, each in marks.items() if each is not None and each.fork == mark.fork}
        )


def _is_decided(disk: Disk, mark: ForkMark) -> bool:
    """Return whether a fork can only be finished: a directory of it has left BUILDING, or is finished."""
    for directory in mark.directories:
        other = read_fork_mark(disk, directory)
        if other is not None and other.fork == mark.fork:
            if other.is_decided:
                return True
        else:
            with suppress(CorruptionError):
                state = read_control_state(disk, directory)
                if state is not None and state.cluster_id == mark.cluster:
                    return True
    return False


def _check(source: ForkSource, cluster: str, members: Sequence[NewMember]) -> None:
    if cluster == source.cluster:
        raise RequestError(
            f"the new cluster cannot have the id of the old one, {cluster}",
            remedy="choose another id, because members and clients tell clusters apart by it",
        )
    if not members:
        raise RequestError("a cluster needs a member", remedy="name at least one")
    for what, values in (
        ("node id", [str(member.node) for member in members]),
        ("address", [member.address for member in members]),
        ("data directory", [posixpath.normpath(member.directory) for member in members]),
    ):
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise RequestError(f"two members have the {what} {twice[0]}", remedy="give each member its own")


def _check_target(disk: Disk, directory: str, owned: set[str], *, keeps_groups: bool) -> None:
    if directory not in owned or not keeps_groups:
        check_without_groups(disk, directory)
    mark = read_fork_mark(disk, directory)
    if mark is not None and _is_decided(disk, mark):
        raise ConfigError(
            f"a fork of {directory} into cluster {mark.cluster} was interrupted after it was decided",
            remedy="finish that one first: repeat the same command",
        )
    if directory not in owned and (found := list(_files(disk, directory))):
        raise ConfigError(
            f"{directory} holds data already ({found[0]}); nothing was changed",
            remedy="name an empty directory for each member of the new cluster",
        )


def _finish(disk: Disk, marks: dict[str, ForkMark]) -> ForkResult:
    """Decide the fork, if it is not decided, and move the files of each directory."""
    for directory, mark in marks.items():
        if not mark.is_decided:
            marks[directory] = mark.moved_to(ForkPhase.LEAVING)
            marks[directory].place(disk, directory)
    aside: dict[str, str] = {}
    for directory, mark in marks.items():
        _install(disk, directory, mark)
        if disk.exists(f"{directory}/{mark.aside}"):
            aside[directory] = f"{directory}/{mark.aside}"
    last = next(iter(marks))
    state = read_control_state(disk, last)
    assert state is not None, "the new control file has been moved in"
    return ForkResult(
        source=marks[last].source,
        cluster=state.cluster_id,
        term=state.term,
        end=state.commit_hint,
        aside=aside,
        findings=[],
    )


def _install(disk: Disk, directory: str, mark: ForkMark) -> None:
    """Move the old files of one directory aside and the new ones in, then remove the mark. Can be repeated."""
    staging = f"{directory}/{STAGING_NAME}"
    if mark.phase is ForkPhase.LEAVING:
        _move_all(disk, directory, f"{directory}/{mark.aside}")
        mark = mark.moved_to(ForkPhase.ENTERING)
        mark.place(disk, directory)
    _move_all(disk, staging, directory)
    remove_files(disk, staging)
    disk.remove(f"{directory}/{FORK_MARK_NAME}")
    disk.sync_directory(directory)


def _move_all(disk: Disk, source: str, target: str) -> None:
    """Move the files of a data directory, the control file last; durable on return."""
    for path in _files(disk, source):
        place = posixpath.dirname(f"{target}/{path}")
        disk.make_directory(place)
        disk.rename(f"{source}/{path}", f"{target}/{path}")
        disk.sync_directory(place)
        disk.sync_directory(posixpath.dirname(f"{source}/{path}"))


def _files(disk: Disk, directory: str) -> Iterator[str]:
    """Yield the files of a data directory that belong to its cluster, relative to it; the control file last.

    Those of other groups come first.
    """
    for group, path in directories_of_groups(disk, directory).items():
        for name in _files(disk, path):
            yield f"{GROUPS_NAME}/{group}/{name}"
    for place in _PLACES:
        for name in disk.list_directory(f"{directory}/{place}"):
            yield f"{place}/{name}"
    for name in disk.list_directory(directory):
        if name.startswith(CONTROL_NAMES):
            yield name


def _free_name(disk: Disk, directory: str) -> str:
    number = 1
    while disk.exists(f"{directory}/old-cluster-{number}"):
        number += 1
    return f"old-cluster-{number}"


@contextmanager
def _locked(disk: Disk, directories: Sequence[str]) -> Iterator[None]:
    held: list[Lock] = []
    try:
        for directory in directories:
            held.append(disk.lock(directory))
        yield
    finally:
        for lock in held:
            lock.release()
