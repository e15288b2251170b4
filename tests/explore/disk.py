"""The durable state of one member, and the states that a crash may leave while writes are pending.

The real node sends every write, also of the control file, through one executor (``viewstamp.node.log_store``), so a
write is durable no earlier than all writes before it. A crash therefore keeps a prefix of the queue. Within one write,
it may keep some batches of an append, or a part of the cut of a truncation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from viewstamp.consensus.invariants import Durable
from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.ready import AppendLog, EndRecovery, ResetLog, TruncateLog, Write, WriteHistory, WriteTerm
from viewstamp.consensus.state import SnapshotPoint, Stored
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, Term
from viewstamp.node.running_mark import UNKNOWN_END
from viewstamp.wire.batch import Batch, Kind

__all__ = ["Disk", "left_by_a_crash"]


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The durable state of one member; immutable, so that worlds can share it."""

    term: Term = Term(0)
    vote: str = ""
    history: TermHistory = field(default_factory=TermHistory)
    batches: tuple[Batch, ...] = ()
    commit_hint: Index = Index(1)
    recovering_until: tuple[Term, Index] | None = None
    lost_power: bool = False
    synced_end: Index | None = None
    """In interval mode: the end that every write except an append of records syncs; None = every write is synced."""
    peers: tuple[str, ...] = ()
    """The members that were met, if disks have names."""
    begin: Index = Index(1)
    """The first index of the log; the record before it has ``begin_term``."""
    begin_term: Term = Term(0)
    snapshot: SnapshotPoint | None = None
    """The newest snapshot file, which is intact."""

    @property
    def end(self) -> Index:
        return self.batches[-1].end if self.batches else self.begin

    @property
    def durable(self) -> Durable:
        return Durable(term=self.term, vote=self.vote, history=self.history, end=self.end)

    @property
    def pair(self) -> tuple[Term, Index]:
        """The viewstamp that the member would advertise."""
        return self.history.advertised(self.end).last_term, self.end

    def written(self, write: Write) -> Disk:
        """Return the disk after one write."""
        after = self._written(write)
        is_records = isinstance(write, AppendLog) and all(each.kind is Kind.RECORDS for each in write.batches)
        if self.synced_end is None or is_records:
            return after
        return replace(after, synced_end=after.end)

    def without_unsynced(self, end: Index) -> Disk:
        """Return the disk after a power loss that left the log up to ``end``, marked as by ``node.recovering``."""
        if self.history.last_term < self.term:
            return self.cut(end)
        pair = self.recovering_until or (self.history.last_term, Index(UNKNOWN_END))
        return replace(self.cut(end), recovering_until=pair, lost_power=True, synced_end=end)

    def _written(self, write: Write) -> Disk:
        match write:
            case WriteTerm(term, vote):
                return replace(self, term=term, vote=vote)
            case WriteHistory(history):
                return replace(self, history=history)
            case EndRecovery():
                return replace(self, recovering_until=None, lost_power=False)
            case TruncateLog(end):
                return self.cut(end)
            case ResetLog(end, term):
                return replace(self, batches=(), begin=end, begin_term=term)
            case AppendLog(batches):
                assert batches[0].first_index == self.end, f"{batches[0]!r} does not start at {self.end}"
                return replace(self, batches=(*self.batches, *batches))
            case _:
                raise AssertionError(f"{write} is not part of this world")

    def cut(self, end: Index) -> Disk:
        """Return the disk with the log cut at ``end``; a commit hint beyond it is lowered to ``end``."""
        kept = tuple(batch for batch in self.batches if batch.end <= end)
        return replace(self, batches=kept, commit_hint=min(self.commit_hint, end))

    def with_snapshot(self, point: SnapshotPoint) -> Disk:
        """Return the disk with one more snapshot file; the newest one counts."""
        if self.snapshot is not None and self.snapshot.end >= point.end:
            return self
        return replace(self, snapshot=point)

    def without_before(self, end: Index) -> Disk:
        """Return the disk with the log from ``end`` on; the records before it are in the snapshot."""
        kept = tuple(batch for batch in self.batches if batch.first_index >= end)
        return replace(self, batches=kept, begin=end, begin_term=self.term_of(Index(end - 1)))

    def term_of(self, index: Index) -> Term:
        """Return the term in the header of the record at ``index``; 0 if the log does not contain it."""
        if index == self.begin - 1:
            return self.begin_term
        return next((each.term for each in self.batches if each.first_index <= index < each.end), Term(0))

    def holds(self, point: SnapshotPoint) -> bool:
        """Return whether the log holds the snapshot's last record.

        Its term must be the same in its header and in the history.
        """
        last = Index(point.end - 1)
        is_described = self.history.starts[0].begin <= last and self.history.term_at(last) == point.last_term
        return is_described and self.end >= point.end and self.term_of(last) == point.last_term

    def recovered(self) -> Disk:
        """Reconcile the log with the newest snapshot (protocol rule 19); repeating it changes nothing."""
        point = self.snapshot
        if point is None or self.holds(point):
            return self
        settled = self.written(ResetLog(point.end, point.last_term)).written(WriteHistory(point.history))
        return replace(settled, commit_hint=point.end)

    def stored(self, hint: Membership) -> Stored:
        """Return the initial state of a core, built as by ``viewstamp.node.replay``; the whole log is in memory."""
        base = self.snapshot
        memberships = [base.membership if base is not None else MembershipEntry(Index(0), Term(0), hint)]
        for batch in self.batches:
            if batch.kind is Kind.MEMBERSHIP and batch.first_index > memberships[-1].index:
                membership = Membership.decode(batch.values()[0])
                memberships.append(MembershipEntry(batch.first_index, batch.term, membership))
        return Stored(
            term=self.term,
            vote=self.vote,
            history=self.history,
            first_index=self.begin,
            end=self.end,
            commit_end=max(self.commit_hint, base.end if base is not None else self.begin),
            tail=list(self.batches),
            memberships=memberships,
            recovering_until=self.recovering_until,
            lost_power=self.lost_power,
        )


def left_by_a_crash(disk: Disk, writes: Sequence[Write]) -> list[Disk]:
    """Return every disk that a crash may leave while ``writes`` are pending, the one with the fewest writes first."""
    found = [disk]
    for write in writes:
        found.extend(_torn(disk, write))
        disk = disk.written(write)
        found.append(disk)
    return found


def _torn(disk: Disk, write: Write) -> Iterable[Disk]:
    if isinstance(write, AppendLog):
        for count in range(1, len(write.batches)):
            yield disk.written(AppendLog(write.batches[:count]))
    elif isinstance(write, TruncateLog):
        for batch in reversed(disk.batches):
            if batch.first_index > write.end:
                yield disk.cut(batch.first_index)
