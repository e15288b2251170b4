"""Chooses the log that a new cluster begins with, from the files of the old one; read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from viewstamp.consensus.membership import Membership
from viewstamp.consensus.term_history import TermHistory
from viewstamp.enums import fast_members
from viewstamp.errors import ConfigError, CorruptionError, NoQuorumError, RequestError
from viewstamp.host.interfaces import Disk
from viewstamp.ids import Index, NodeId, Term
from viewstamp.node.data_dir import GROUPS_NAME, directories_of_groups
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.replay.chain import Chain, build_chain
from viewstamp.replay.read import ExtentReader
from viewstamp.replay.replay import OfflineReplay
from viewstamp.replay.replica import ReplicaFiles, ReplicaFinding, Snapshot, find_replicas, read_replica
from viewstamp.replay.visible import ReplayPlan, build_plan
from viewstamp.wal.control_file import CONTROL_NAMES
from viewstamp.wire.batch import Batch

__all__ = [
    "Basis",
    "ForkSource",
    "GroupSource",
    "check_unchanged",
    "check_without_groups",
    "has_groups",
    "judge_source",
]


_ABOUT_GROUPS = ("other group", "other groups")
"""The kinds of the findings that other groups are not read."""


@fast_members
class Basis(Enum):
    """The rule by which the log of the new cluster is chosen."""

    ELECTED = "a majority of the members, as an election would choose"
    """Nothing acknowledged is missing. With fewer members than a majority: NoQuorumError."""
    COMMITTED = "the part of one log that is known to be committed"
    """For a copy that was taken from a running node: later records of the cluster may be missing, and no record is
    there that the cluster did not commit."""
    SURVIVORS = "the best log of the files that are left"
    """Acknowledged records may be missing, and records may be there that were never acknowledged."""


@dataclass(frozen=True, slots=True)
class GroupSource:
    """A group of the new cluster: its placement, and the log that it begins with.

    Of an established group of the old cluster that is the log that its members elect. A group that the old one does not
    have (``is_new``) begins with an empty log (:meth:`ForkSource.empty`). With ``SURVIVORS`` so does a group of which
    no directory is left (``is_lost``).
    """

    placed: PlacedGroup
    source: ForkSource
    is_new: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether nothing is left of a group of the old cluster."""
        return not self.is_new and not self.source.replicas


@dataclass(slots=True, kw_only=True)
class ForkSource:
    """The log that a fork copies: the batches from ``start`` to ``end`` (half-open indices), and snapshots.

    Attributes:
      cluster: the id of the old cluster.
      chain: the batches with their copies.
      first_place, end_place: the places in the chain, half-open.
      start, end: the indices of the log that is copied.
      commit_end: all records below it were committed, as a replica knew; at most ``end``.
      snapshots: those that the log reaches back to, newest first; not yet verified.
      membership: the newest one of the old cluster in the files; None = the files have none.
      plan: the visible records of the whole chain; None with ``COMMITTED``, unless there are other groups.
      term: the highest term that any of the files knows.
      is_majority: whether a majority of the old members chose this log.
      control: the control files of each directory, as they were before it was read.
      groups: the other groups that the new cluster has too, each with its own log.
      takes_groups: whether the other groups were judged, so that the directories may hold some.
      left_behind: with ``SURVIVORS``, the groups in the directories that group 0 does not know; none is copied.
      begin_time: the log time at which the new cluster begins at the earliest, in microseconds since 1970.
      left: of another group, the nodes that have left it, by group 0; their old directories may be among the sources.
      behind: yields the records, without indices, that the new cluster has behind those of the fork; called for each
        member.
    """

    cluster: str
    chain: Chain
    first_place: int
    end_place: int
    start: int
    end: int
    commit_end: int
    snapshots: list[Snapshot]
    membership: Membership | None
    plan: ReplayPlan | None
    term: int
    is_majority: bool
    findings: list[ReplicaFinding]
    control: dict[str, bytes] = field(default_factory=dict)
    groups: list[GroupSource] = field(default_factory=list)
    takes_groups: bool = False
    left_behind: list[str] = field(default_factory=list)
    begin_time: int = 0
    left: frozenset[NodeId] = frozenset()
    behind: Callable[[], Iterable[Batch]] = tuple

    @classmethod
    def empty(cls, cluster: str) -> Self:
        """Return the source of a group that the old cluster does not have."""
        return cls(
            cluster=cluster,
            chain=Chain([], 1, 1, 1),
            first_place=0,
            end_place=0,
            start=1,
            end=1,
            commit_end=1,
            snapshots=[],
            membership=None,
            plan=None,
            term=0,
            is_majority=True,
            findings=[],
        )

    @property
    def logs(self) -> dict[int, ForkSource]:
        """The logs of all groups by their ids, that of group 0 first."""
        return {0: self, **{int(each.placed.id): each.source for each in self.groups}}

    @property
    def has_majorities(self) -> bool:
        """Whether a majority has chosen the log of each group, so that nothing acknowledged is missing."""
        return all(log.is_majority for log in self.logs.values()) and not any(each.is_lost for each in self.groups)

    @property
    def left_out(self) -> list[PlacedGroup]:
        """The other established groups of the old cluster that the new one does not have."""
        has = self.logs
        return [each for each in self.plan.groups if each.id not in has] if self.plan is not None else []

    @property
    def replicas(self) -> Sequence[ReplicaFiles]:
        """The directories that were read."""
        return self.chain.replicas

    @property
    def has_lost_power(self) -> bool:
        """Whether a member lost power in interval mode: then acknowledged records may be lost without a trace."""
        return any(replica.claim is not None and replica.claim.lost_power for replica in self.replicas)

    @property
    def last_log_time(self) -> int:
        """The log time of the last record; of the newest snapshot if the log has no record."""
        if self.end_place > self.first_place:
            return self._header(self.end_place - 1).log_time
        return self.snapshots[0].meta.log_time if self.snapshots else 0

    @property
    def last_term(self) -> Term:
        """The term of the last record; 0 = there is none."""
        if self.end_place > self.first_place:
            return Term(self.chain.link(self.end_place - 1).term)
        return self.snapshots[0].meta.term if self.snapshots else Term(0)

    @property
    def previous_term(self) -> Term:
        """The term of the record before ``start``; 0 = there is none."""
        if self.end_place > self.first_place:
            return Term(self.chain.link(self.first_place).previous_term)
        return self.last_term

    def history(self, base: Snapshot | None) -> TermHistory:
        """Return the term history of this log, given the oldest snapshot that goes with it; None = there is none."""
        known: list[tuple[int, int]] = [(0, 1)] if base is None or self.start == 1 else list(base.meta.history)
        begin = 1 if base is None or self.start == 1 else base.meta.end
        before: list[tuple[int, int]] = []
        for place in range(self.first_place, self.end_place):
            link = self.chain.link(place)
            if link.first_index >= begin and link.term != known[-1][0]:
                known.append((link.term, link.first_index))
            elif link.first_index < known[0][1] and (not before or before[-1][0] != link.term):
                before.append((link.term, link.first_index))  # A member with a longer log has taken no such snapshot.
        starts = before + [each for each in known if not before or each[0] > before[-1][0]]
        return TermHistory(starts).trimmed(Index(self.start))

    def batches(self, reader: ExtentReader) -> Iterator[Batch]:
        """Yield the batches in order, verified; blocking.

        Raises:
          CorruptionError: a batch has changed since it was judged, or is damaged in all replicas.
        """
        chain = self.chain
        for place in range(self.first_place, self.end_place):
            number, row = chain.copy(place)
            replica = chain.replicas[number]
            rows = replica.rows
            path = replica.paths[rows.files[row]]
            yield reader.read_at(path, rows.locations[row], rows.header(row))

    @property
    def bytes(self) -> int:
        """The bytes of the batches."""
        chain, total = self.chain, 0
        for place in range(self.first_place, self.end_place):
            number, row = chain.copy(place)
            total += chain.replicas[number].rows.size(row)
        return total

    def _header(self, place: int) -> Batch:
        number, row = self.chain.copy(place)
        return Batch.decode_header(self.chain.replicas[number].rows.header(row))


def has_groups(disk: Disk, sources: Sequence[str]) -> bool:
    """Return whether any of the data directories holds other groups than group 0. Raises as :func:`judge_source`."""
    return any(directories_of_groups(disk, directory) for directory in find_replicas(disk, sources))


def judge_source(
    disk: Disk,
    sources: Sequence[str],
    *,
    basis: Basis = Basis.ELECTED,
    until: int | None = None,
    until_time: int | None = None,
    with_groups: bool = False,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> ForkSource:
    """Read the files and choose the log; blocking. Nothing is changed.

    With ``with_groups`` each established group is judged too, by the same rule, from ``groups/`` in the directories.
    The logs of majorities of group 0 and of each group never contradict each other: see the design note. With
    ``COMMITTED`` the directories have to be those of a backup, which has cut the logs so that they do not. With
    ``SURVIVORS`` they may, and ``recovery.py`` brings them in step.

    Args:
      disk: the disk with the files.
      sources: data directories of members of one cluster, or the directory of a local cluster.
      basis: the rule.
      until: the last index to keep; None = all. A batch is kept or left out as a whole.
      until_time: keep batches up to this log time, in microseconds since 1970; None = all.
      with_groups: whether the other groups are judged too; without a cut.
      on_bytes: called now and then with the bytes read since the last call.

    Raises:
      NoQuorumError: with ``ELECTED``, fewer members than a majority, of group 0 or of another group.
      ConfigError: a path has no log, the directories do not belong together, hold other groups than group 0, or have a
        newer format; or a process uses one.
      CorruptionError: records are missing or damaged in all directories.
      RequestError: the files do not reach back to ``until``.
    """
    directories = find_replicas(disk, sources)
    takes_groups = with_groups and has_groups(disk, directories)
    if takes_groups:
        assert until is None, "the order of the records would be cut, and the records would not"
    else:
        for directory in directories:
            check_without_groups(disk, directory)
    control = {directory: _control_of(disk, directory) for directory in directories}
    replicas = [read_replica(disk, directory, on_bytes=on_bytes) for directory in directories]
    for replica in replicas:
        if holder := disk.lock_holder(replica.directory):
            raise ConfigError(
                f"{holder} uses {replica.directory}; nothing was changed",
                remedy="stop that node first, or take the files from a backup",
            )
    chain, plan, is_majority, findings = _choose(disk, replicas, basis)
    source = _cut(chain, plan, basis, is_majority, findings, until=until, until_time=until_time)
    source.control = control
    if takes_groups:
        if plan is None:
            source.plan = plan = build_plan(disk, chain)
        source.takes_groups = True
        source.groups = _judge_groups(disk, directories, source.cluster, plan, basis, on_bytes)
        if basis is Basis.SURVIVORS:
            known = {str(each.placed.id) for each in source.groups}
            source.left_behind = sorted(
                {
                    group
                    for directory in directories
                    for group, path in directories_of_groups(disk, directory).items()
                    if group not in known and disk.list_directory(f"{path}/wal")
                }
            )
        source.findings = [each for each in findings if each.kind not in _ABOUT_GROUPS]
        source.findings += [finding for each in source.groups for finding in each.source.findings]
    return source


def _judge_groups(
    disk: Disk,
    directories: Sequence[str],
    cluster: str,
    plan: ReplayPlan,
    basis: Basis,
    on_bytes: Callable[[int], None],
) -> list[GroupSource]:
    """Return the established groups, each with its log by the same rule. Raises as :func:`judge_source`."""
    found = []
    for placed in plan.groups:
        paths = [path for each in directories if (path := directories_of_groups(disk, each).get(str(placed.id)))]
        paths = [path for path in paths if disk.list_directory(f"{path}/wal")]
        if not paths and basis is Basis.SURVIVORS:
            found.append(GroupSource(placed, ForkSource.empty(cluster)))
            continue
        if not paths:
            raise NoQuorumError(
                f"no directory of group {placed.id} was found, which {', '.join(placed.hosts)} host; nothing was"
                " changed",
                remedy=f"put the directories {GROUPS_NAME}/{placed.id} back; to go on with group 0 alone, move"
                f" {GROUPS_NAME}/ of all nodes to a place outside of the data directories, and repeat the command",
            )
        try:
            source = judge_source(disk, paths, basis=basis, on_bytes=on_bytes)
        except NoQuorumError as error:
            raise NoQuorumError(f"group {placed.id}: {error.message}", remedy=error.remedy) from error
        source.left = frozenset(placed.left)
        found.append(GroupSource(placed, source))
    return found


def check_without_groups(disk: Disk, directory: str) -> None:
    """Check that a data directory holds no other group than group 0, because a new cluster would not have its records.

    Raises:
      ConfigError: it does.
    """
    if groups := directories_of_groups(disk, directory):
        raise ConfigError(
            f"{directory} also holds the groups {', '.join(groups)}, whose records would be left behind; nothing"
            " was changed",
            remedy=f"to go on with group 0 alone, move {directory}/{GROUPS_NAME} to a place outside of it, keep it, and"
            " repeat the command",
        )


def check_unchanged(disk: Disk, source: ForkSource) -> None:
    """Check that no node has run on the directories since they were judged; the caller holds the targets' locks.

    A node that has started since may have acknowledged more records. It writes its control file before its first
    message, so a changed control file shows that.

    Raises:
      ConfigError: a directory has changed.
    """
    for each in source.groups:
        check_unchanged(disk, each.source)
    for directory, before in source.control.items():
        if _control_of(disk, directory) != before:
            raise ConfigError(
                f"a node has run on {directory} since its files were judged; nothing was changed",
                remedy="stop that node, keep it from starting again, and repeat the command",
            )


def _control_of(disk: Disk, directory: str) -> bytes:
    copies = []
    for name in CONTROL_NAMES:
        if disk.exists(f"{directory}/{name}"):
            file = disk.open_read(f"{directory}/{name}")
            try:
                copies.append(file.read(0, file.size()))
            finally:
                file.close()
    return b"".join(copies)


def _choose(
    disk: Disk, replicas: Sequence[ReplicaFiles], basis: Basis
) -> tuple[Chain, ReplayPlan | None, bool, list[ReplicaFinding]]:
    if basis is Basis.COMMITTED:
        winner = max(replicas, key=lambda each: each.commit_hint)
        findings = [each for replica in replicas for each in replica.findings]
        return build_chain(replicas, winner), None, False, findings
    replay = OfflineReplay.of(disk, replicas, unsafe=basis is Basis.SURVIVORS)
    if replay.problem is not None:
        raise replay.problem
    chain, plan = replay.chain, replay.plan
    assert chain is not None, "there is a chain where there is no problem"
    assert plan is not None, "there is a plan where there is no problem"
    if chain.gaps and any(chain.link(place).first_index < chain.gaps[0].first for place in plan.place):
        raise _gap(chain)
    return chain, plan, replay.is_majority, replay.findings


def _cut(
    chain: Chain,
    plan: ReplayPlan | None,
    basis: Basis,
    is_majority: bool,
    findings: list[ReplicaFinding],
    *,
    until: int | None,
    until_time: int | None,
) -> ForkSource:
    """Return the part of the chain that is copied: above its gaps, and up to ``until``."""
    start = chain.gaps[0].end if chain.gaps else chain.begin
    limit = chain.end if until is None else min(chain.end, until + 1)
    if basis is Basis.COMMITTED:
        limit = min(limit, chain.commit_end)
    first = next((at for at in range(len(chain)) if chain.link(at).first_index >= start), len(chain))
    last = len(chain)
    while last > first and (chain.link(last - 1).end > limit or _is_after(chain, last - 1, until_time)):
        last -= 1
    is_cut = last < len(chain)
    end = chain.link(last - 1).end if last > first else start if is_cut else chain.end
    source = ForkSource(
        cluster=_cluster_of(chain),
        chain=chain,
        first_place=first,
        end_place=last,
        start=start,
        end=end,
        commit_end=min(end, chain.commit_end),
        snapshots=[],
        membership=_membership_of(chain),
        term=_highest_term(chain),
        plan=plan,
        is_majority=is_majority,
        findings=findings,
    )
    source.snapshots = _fitting(source)
    if start > 1 and not source.snapshots:
        if is_cut:
            oldest = min((s.meta.end for r in chain.replicas for s in r.snapshots if s.meta.end >= start), default=0)
            raise RequestError(
                f"the files do not reach back to index {end - 1}: their log begins at {start}, and the state before it"
                f" is known from index {oldest - 1} on",
                remedy=f"choose an index from {oldest - 1} on, or an older backup",
            )
        raise _gap(chain)
    for place in range(first, last):
        number, row = chain.copy(place)
        if row in chain.replicas[number].rows.unreadable:
            link = chain.link(place)
            raise CorruptionError(
                f"indices {link.first_index} to {link.end - 1} are damaged in all directories",
                path=chain.replicas[number].directory,
                expected="an intact copy",
                found="damaged ones",
                remedy="name the directories of more members, because one of them may have an intact copy",
            )
    return source


def _is_after(chain: Chain, place: int, until_time: int | None) -> bool:
    if until_time is None:
        return False
    number, row = chain.copy(place)
    return Batch.decode_header(chain.replicas[number].rows.header(row)).log_time > until_time


def _fitting(source: ForkSource) -> list[Snapshot]:
    """Return the snapshots that the log reaches back to and that it does not contradict, one for each viewstamp."""
    chain = source.chain
    terms = {chain.link(place).end: chain.link(place).term for place in range(source.first_place, source.end_place)}
    terms[source.start] = source.previous_term
    found: dict[tuple[int, int], Snapshot] = {}
    for replica in chain.replicas:
        for snapshot in replica.snapshots:
            end, term = snapshot.meta.end, snapshot.meta.term
            is_alone = source.first_place == source.end_place == len(chain) and end == source.end
            if source.start <= end <= source.end and (terms.get(end) == term or is_alone):
                found.setdefault((end, term), snapshot)
    return [found[at] for at in sorted(found, reverse=True)]


def _cluster_of(chain: Chain) -> str:
    ids = [replica.state.cluster_id for replica in chain.replicas if replica.state is not None]
    ids += [snapshot.meta.cluster for replica in chain.replicas for snapshot in replica.snapshots]
    if len(set(ids)) != 1:
        raise ConfigError(
            f"the files belong to {len(set(ids))} clusters: {', '.join(sorted(set(ids))) or 'none is named'}",
            remedy="name the files of one cluster, with a control file or a snapshot",
        )
    return ids[0]


def _membership_of(chain: Chain) -> Membership | None:
    known = [entry for replica in chain.replicas for entry in replica.memberships]
    return max(known, key=lambda entry: (entry.term, entry.index)).membership if known else None


def _highest_term(chain: Chain) -> int:
    terms = [0]
    for replica in chain.replicas:
        if replica.state is not None:
            terms += [replica.state.term, *(term for term, _ in replica.state.history)]
        terms += [term for snapshot in replica.snapshots for term, _ in snapshot.meta.history]
        terms += [snapshot.meta.term for snapshot in replica.snapshots]
        if len(replica.rows):
            terms.append(replica.rows.link(len(replica.rows) - 1).term)
    return max(terms)


def _gap(chain: Chain) -> CorruptionError:
    lost = ", ".join(f"{gap.first} to {gap.end - 1}" for gap in chain.gaps) or f"1 to {chain.begin - 1}"
    return CorruptionError(
        f"no directory holds the records at the indices {lost}, and no intact snapshot replaces them",
        path=chain.replicas[0].directory,
        expected="a log from its beginning, or from a snapshot on",
        found=f"no indices {lost}",
        remedy="name the directories of more members, or take an older backup",
    )
