"""Damage to durable data on disks, and the disks that have not yet regained their former contents.

The budget is an invariant: **fewer members than a majority can spare are damaged and not yet repaired, among the
current voters and those about to become voters; in a joint membership, in each of the two sets**. That is at most f of
2 f + 1. Beyond the budget the product only promises to stop with a message, not to lose nothing. A member is repaired
when the bytes on its disk reach the viewstamp (last term, end) that they reached before, and it is not recovering; or
when its id is no longer a member. If the term and the vote were lost too, only the second is possible, unless no record
had named the lost disk: the first named disk is the member's.

The end of the log above the commit hint that is certainly in the control file is never damaged, because its loss could
not be distinguished from a power cut (``docs/wal-format.md``, the window). Anything below may be damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewstamp.consensus.standing import majority
from viewstamp.ids import GROUP_0, GroupId, NodeId, name_of
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.disk_log import DiskLog, DiskLogs, core_of
from viewstamp.sim.violation import Violation
from viewstamp.wal.control_file import CONTROL_NAMES, decode_copy
from viewstamp.wal.format import SEGMENT_HEADER_SIZE
from viewstamp.wal.truncation import MARK_NAME

if TYPE_CHECKING:
    import random

    from viewstamp.consensus.invariants import Facts
    from viewstamp.consensus.membership import Membership

__all__ = ["DAMAGE_BY_KIND", "Damages"]

_SECTOR = 512


@dataclass(frozen=True, slots=True)
class _Damage:
    """One damage: the log held ``first`` to ``pair`` before; ``is_final`` = that disk never votes again.

    ``is_power`` = nothing but power losses in interval mode, after which the member still votes.
    """

    member: Member
    first: int
    pair: tuple[int, int]
    starts: int
    is_final: bool
    is_power: bool


class Damages:
    """The damaged members of a group, by the ids under which they were members.

    A lost disk takes the copies of all groups on it, so it has to be within the budget of each of them.

    Invariants:
      * BudgetKept: see above
      * SilentForAReason: a member recovers only if its disk was damaged (protocol rule 17)
    """

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        disks: DiskLogs,
        group: GroupId = GROUP_0,
        founders: frozenset[NodeId] = frozenset(),
    ) -> None:
        """Begin without damage; ``founders`` are the voters before the first record, none = all members."""
        self.others: list[Damages] = []
        """Those of the other groups; only group 0 has some."""
        self.on_disk_loss: Callable[[], None] = lambda: None
        """Called before a disk is lost; may add to ``others``."""
        self.present: dict[NodeId, _Damage] = {}
        self.planned: list[frozenset[NodeId]] = []
        """Sets of voters that the operator is about to request."""
        self._damaged_once: set[str] = set()
        """The names of all machines with disks that were ever damaged."""
        self._cluster = cluster
        self._facts = facts
        self._disks = disks
        self._group = group
        self._founders = founders

    def __contains__(self, member: NodeId) -> bool:
        return member in self.present

    def allows(self, member: NodeId) -> bool:
        """Return whether one more member may be damaged.

        Two kinds of voters count as missing. One whose disk no record names cannot help to elect (protocol rule 18).
        One that has never stored a membership record cannot tell a lost disk from a new one: together with an empty
        disk it begins a group, as at the first start. In another group than 0 it can, because its founders begin with
        the disks that group 0 has on record. Before the first of them has, all of them can still report another disk.
        """
        membership = self._disks.membership
        named = membership.incarnations if membership is not None else {}
        sets = self._sets()
        missing = {voter for voters in sets for voter in voters if voter not in named or not self._has_records(voter)}
        if self._group != GROUP_0:
            missing = {voter for voter in missing if membership is not None and voter not in named}
        return all(self._is_within({*self.present, *missing, member}, voters) for voters in sets)

    def _has_records(self, voter: NodeId) -> bool:
        log = self._disks.by_name.get(name_of(voter))
        return log is not None and log.end > 1

    def allows_voters(self, voters: Iterable[NodeId]) -> bool:
        """Return whether these may become the voters, given the present damage."""
        return self._is_within(self.present, frozenset(voters))

    def do(self, kind: str, member: Member, entropy: random.Random) -> bool:
        """Damage a member's disk; return whether anything was done. Its process must be down, except for "flip"."""
        return self.inflict(kind, member, lambda _: DAMAGE_BY_KIND[kind](member, self._disks, entropy))

    def lose_directory(self, member: Member) -> bool:
        """Remove the files of this group on a machine with a dead process; return whether the budget allows it."""
        return self.inflict("lost-directory", member, lambda _: _lose_directory(member, self._group))

    def inflict(self, kind: str, member: Member, damage: Callable[[DiskLog], bool]) -> bool:
        """Apply ``damage`` to a member's disk if the budget allows it; return whether anything was done."""
        if kind == "lost-disk":
            self.on_disk_loss()
        damaged = [self, *self.others] if kind == "lost-disk" else [self]
        held = [each._held(member) for each in damaged]
        if not all(each.allows(member.id_in(each._group)) for each in damaged):
            return False
        if kind in _FINAL and not self._belongs(member):
            return False
        if member.foreign is not None:
            return False  # The own file will be restored unchanged.
        if not damage(self._disks.by_name[member.name]):
            return False
        member.disk.damages += 1
        for each, before in zip(damaged, held, strict=True):
            each._note_damage(kind, member, before)
        return True

    def _held(self, member: Member) -> tuple[int, tuple[int, int]]:
        """Return the first index and the last viewstamp on a member's disk."""
        log = self._disks.by_name[member.name]
        log.look(member.disk.volume)
        return log.first, log.pair

    def _note_damage(self, kind: str, member: Member, held: tuple[int, tuple[int, int]]) -> None:
        me = member.id_in(self._group)
        self._note(member, held, is_final=kind in _FINAL and self._may_vote(me))
        if kind in _FINAL:
            # Until its peers have refused it, it comes back under its old name, and empty.
            self._facts.forget(me)
        group = f" of group {self._group}" if self._group else ""
        self._cluster.note(me, "!", f"damage {kind}, held {held[1]}{group}")

    def lose_power(self, member: Member) -> bool:
        """Count a power cut in interval mode as damage; return whether it is within the budget.

        The caller cuts the power.
        """
        affected = [each for each in (self, *self.others) if member.name in each._disks.by_name]
        held = [each._held(member) for each in affected]
        if not all(each._allows_power_loss(member.id_in(each._group)) for each in affected):
            return False
        for each, before in zip(affected, held, strict=True):
            each._note(member, before, is_final=False, is_power=True)
            self._cluster.note(member.id_in(each._group), "!", f"loses power, held {before[1]}")
        return True

    def _allows_power_loss(self, member: NodeId) -> bool:
        """Return whether one more member may lose power in interval mode.

        If no member has another damage, a voter whose disk no record names does not count as missing, because all
        others still vote, and an election does not wait for that voter.
        """
        if not all(each.is_power for each in self.present.values()):
            return self.allows(member)
        return all(self._is_within({*self.present, member}, voters) for voters in self._sets())

    def _note(
        self, member: Member, held: tuple[int, tuple[int, int]], *, is_final: bool, is_power: bool = False
    ) -> None:
        """Record that a disk no longer holds ``held``, its first index and its last viewstamp."""
        first, pair = held
        self._damaged_once.add(member.name)
        me = member.id_in(self._group)
        before = self.present.get(me)
        self.present[me] = _Damage(
            member,
            first if before is None else min(first, before.first),
            pair if before is None else max(pair, before.pair),
            member.starts,
            is_final or (before is not None and before.is_final),
            is_power and (before is None or before.is_power),
        )

    def may_refuse(self, member: Member) -> bool:
        """Return whether a machine may refuse to start for good: it was damaged, and is no longer a member.

        The damage may have taken the record that removed the machine. Its remaining log may then name it as the only
        voter of the group. It must not begin with an empty log, because it cannot distinguish this case from a group
        of one member that lost its log.
        """
        return member.name in self._damaged_once and not self._belongs(member)

    def check_silence(self) -> None:
        """Raise Violation if a member is recovering although its disk has never lost anything.

        For example, a commit hint above the durable end would cause this after a power cut; on all members at once it
        would end the group.
        """
        for member in self._cluster.members:
            core = core_of(member, self._group)
            if core is None or core.recovering_until is None or member.name in self._damaged_once:
                continue
            raise Violation(
                "SilentForAReason", f"{core.me} lost nothing and is recovering until {core.recovering_until}"
            )

    def settle(self) -> None:
        """Drop the repaired members. Raises Violation if the budget is exceeded."""
        sets = self._sets()
        for member in [*self.present]:
            if not any(member in voters for voters in sets) or self._is_repaired(member):
                del self.present[member]
                self._cluster.note(member, "=", "repaired")
        for voters in sets:
            if not self._is_within(self.present, voters):
                raise Violation("BudgetKept", f"of {sorted(voters)} {list(self.present)} are damaged")

    def _is_repaired(self, member: NodeId) -> bool:
        damage = self.present[member]
        hosted = damage.member.group(self._group)
        if hosted is None or hosted.replica is None:
            return False
        if damage.is_final and not self._is_named(member, hosted.incarnation):
            return False
        log = self._disks.by_name[damage.member.name]
        needed = hosted.machine.keep_from()
        begins = needed is None or log.first <= max(damage.first, needed)
        speaks = hosted.replica.raft.core.recovering_until is None
        return speaks and begins and not log.has_gap and (damage.is_final or log.pair >= damage.pair)

    def _is_named(self, member: NodeId, incarnation: str) -> bool:
        membership = self._disks.membership
        return membership is not None and membership.incarnations.get(member) == incarnation

    def _sets(self) -> list[frozenset[NodeId]]:
        """Return every set of voters that counts now or soon, including the learners that become voters."""
        sets = [*self.planned]
        for membership in self._current():
            replaced = set(membership.joining.values())
            sets.append(frozenset(membership.voters))
            sets.append(frozenset((*(each for each in membership.voters if each not in replaced), *membership.joining)))
            if membership.is_joint:
                sets.append(frozenset(membership.outgoing))
        if not sets:  # Before the first record, and while no node runs, the settings name the voters.
            members = [each for each in self._cluster.members if each.name in (self._founders or {each.name})]
            sets.append(frozenset(member.id_in(self._group) for member in members))
        return sets

    def _current(self) -> list[Membership]:
        """Return the newest committed membership, and later ones in any log that may still be committed.

        A lagging member may hold an uncommitted membership that the newest committed one has replaced, and start with
        it. But it can no longer be elected with that membership.
        """
        newest = self._disks.entry
        memberships = [newest.membership] if newest is not None else []
        for member in self._cluster.members:
            core = core_of(member, self._group)
            if core is not None:
                begin = max(core.log.commit_end, newest.index if newest is not None else 0)
                memberships += [each.membership for each in core.memberships if each.index >= begin]
        return memberships

    def _may_vote(self, member: NodeId) -> bool:
        """Return whether an id may have a vote.

        An id without a vote has forgotten none, and may begin anew unchanged. In another group than 0 the founders have
        votes before the first of them has opened the group.
        """
        if self._group != GROUP_0 and not self._memberships():
            return True
        return any(member in membership.electors for membership in self._memberships())

    def _belongs(self, member: Member) -> bool:
        """Return whether a machine is a member now or may be soon, under any id.

        A removed machine that lost its whole disk has only its settings left. They may tell it to begin a group on its
        own, and then it looks the same as a new machine. Records before its removal, which another member may still
        hold behind its commit end, do not make it a member.
        """
        return any(member.name in map(name_of, membership.addresses) for membership in self._current())

    def _memberships(self) -> list[Membership]:
        """Return the newest committed membership and those in the logs of all running nodes."""
        newest = self._disks.membership
        memberships = [] if newest is None else [newest]
        for each in self._cluster.members:
            core = core_of(each, self._group)
            if core is not None:
                memberships += [entry.membership for entry in core.memberships]
        return memberships

    def _is_within(self, damaged: Iterable[NodeId], voters: frozenset[NodeId]) -> bool:
        return sum(member in voters for member in damaged) <= len(voters) - majority(len(voters))


def _flip(member: Member, disks: DiskLogs, entropy: random.Random) -> bool:
    """Flip one bit."""
    place = _place(member, disks, entropy)
    if place is None:
        return False
    path, offset = place
    member.disk.volume.find(path).flip(offset, entropy.randrange(8))
    return True


def _tear(member: Member, disks: DiskLogs, entropy: random.Random) -> bool:
    """Zero some sectors of a write, as if they had never arrived."""
    place = _place(member, disks, entropy)
    if place is None:
        return False
    path, offset = place
    inode = member.disk.volume.find(path)
    start = offset // _SECTOR * _SECTOR
    log = disks.by_name[member.name]
    written = log.written(path) if path in log.paths() else len(inode.data)
    end = min(start + entropy.choice((1, 1, 4)) * _SECTOR, written)
    inode.spoil(start, bytes(max(0, end - start)))
    return True


def _drop_segment(member: Member, disks: DiskLogs, entropy: random.Random) -> bool:
    """Remove a file of the log."""
    paths = disks.by_name[member.name].paths()
    if not paths:
        return False
    member.disk.volume.lose(entropy.choice(paths))
    return True


def _lose_tail(member: Member, disks: DiskLogs, entropy: random.Random) -> bool:
    """Lose the end of the newest file of the log: it is zeroed, cut or emptied.

    A node notices the loss because its log ends below the commit hint. While it repairs a hole below the hint, it
    cannot notice that the end behind the hole is lost too, so the end stays.
    """
    log = disks.by_name[member.name]
    log.look(member.disk.volume)
    newest = log.newest
    if newest is None or log.reached < _certain_hint(member):
        return False
    path, written = newest
    volume = member.disk.volume
    inode = volume.find(path)
    at = entropy.choice((0, entropy.randrange(written), entropy.randrange(written)))
    before = bytes(inode.data)
    inode.spoil(at, bytes(len(inode.data) - at))
    log.look(volume)
    if log.reached >= _certain_hint(member):
        inode.spoil(0, before)
        log.look(volume)
        return False
    if entropy.random() < 0.5:
        inode.cut(at)
    return True


def _foreign_segment(member: Member, disks: DiskLogs, entropy: random.Random) -> bool:
    """Replace a file of the log by another member's file, as a careless person might.

    The node has to refuse it by name; then the world restores the node's own file. A source file that was itself put in
    its place is left out, because it may be one of this node's own files.
    """
    own, volume = disks.by_name[member.name].paths(), member.disk.volume
    others = [
        (other.disk.volume, path, disks.by_name[other.name].log_id(path))
        for other in member.cluster.members
        if other is not member and other.name in disks.by_name
        for path in disks.by_name[other.name].paths()
        if path != other.foreign_path
    ]
    if not own or not others or volume.possible(f"{member.data_dir}/wal/{MARK_NAME}"):
        return False
    path = entropy.choice(own)
    source, other_path, log_id = entropy.choice(others)
    inode = volume.find(path)
    own_bytes, foreign_bytes = bytes(inode.data), bytes(source.find(other_path).data)
    member.foreign = path, own_bytes, foreign_bytes[:SEGMENT_HEADER_SIZE], log_id
    inode.become(foreign_bytes)
    return True


def _certain_hint(member: Member) -> int:
    """Return the lowest commit hint that a power cut now may leave in the control file; 0 = none."""
    volume = member.disk.volume
    names = volume.certain_names(member.data_dir)
    copies = [names[name] for name in CONTROL_NAMES if name in names]
    states = [decode_copy(bytes(copy.data)) for copy in copies if copy.is_synced]
    return max((state.commit_hint for state in states if state is not None), default=0)


def _lose_control(member: Member, disks: DiskLogs, entropy: random.Random) -> bool:
    """Lose term, vote and identity: both copies of the control file."""
    if disks.by_name[member.name].end == 1:
        return False  # A node with an empty log cannot notice the loss, and waits for an operator.
    volume = member.disk.volume
    for name in CONTROL_NAMES:
        path = f"{member.data_dir}/{name}"
        if volume.exists(path):
            if entropy.random() < 0.5:
                volume.lose(path)
            else:
                volume.find(path).flip(entropy.randrange(64))
    return True


def _lose_directory(member: Member, group: GroupId) -> bool:
    """Remove the files of a group, because people may remove its directory."""
    directory, volume = member.directory_of(group), member.disk.volume
    for path in (directory, f"{directory}/wal", f"{directory}/snapshots"):
        for name in list(volume.names(path)):
            volume.lose(f"{path}/{name}")
    return True


def _lose_disk(member: Member, disks: DiskLogs, entropy: random.Random) -> bool:
    """Replace the disk by an empty one."""
    member.disk.replace()
    return True


DAMAGE_BY_KIND: Mapping[str, Callable[[Member, DiskLogs, random.Random], bool]] = {
    "flip": _flip,
    "tear": _tear,
    "drop-segment": _drop_segment,
    "lose-tail": _lose_tail,
    "foreign-segment": _foreign_segment,
    "lost-control": _lose_control,
    "lost-disk": _lose_disk,
}
"""The functions that do the damage, by the kinds of ``swarm.DAMAGES``."""
_FINAL = ("lost-control", "lost-disk", "lost-directory")


def _place(member: Member, disks: DiskLogs, entropy: random.Random) -> tuple[str, int] | None:
    """Draw a byte of the log or of a snapshot that is certainly durable, because a later write shows it."""
    log = disks.by_name[member.name]
    paths = [path for path in log.paths() if log.written(path) > 0]
    if member.is_up and paths:
        paths.pop()  # A running node scrubs only the sealed segments.
    snapshots = [
        f"{member.data_dir}/snapshots/{name}"
        for name in sorted(member.disk.volume.certain_names(f"{member.data_dir}/snapshots"))
    ]
    if snapshots and entropy.random() < 0.2:
        path = entropy.choice(snapshots)
        size = len(member.disk.volume.find(path).data)
        return (path, entropy.randrange(size)) if size else None
    if not paths:
        return None
    path = entropy.choice(paths)
    return path, entropy.randrange(log.written(path))
