"""What one member has made durable, and what a crash may leave of the writes that wait.

The real node sends every write through one lane, the control file's too (``viewstamp.node.log_store``): a write
is durable no earlier than all those before it. So a crash keeps a prefix of the queue. Within one write, an append may
keep some of its batches, and a truncation may have cut only a part of what it cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from viewstamp.consensus.core import MembershipEntry, Stored
from viewstamp.consensus.invariants import Durable
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.ready import AppendLog, EndSilence, TruncateLog, Write, WriteHistory, WriteTerm
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, Term
from viewstamp.wire.batch import Batch, Kind

__all__ = ["Disk", "left_by_a_crash"]


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The durable state of one member; immutable, so that worlds share it."""

    term: Term = Term(0)
    vote: str = ""
    history: TermHistory = field(default_factory=TermHistory)
    batches: tuple[Batch, ...] = ()
    commit_hint: Index = Index(1)
    silent_until: tuple[Term, Index] | None = None

    @property
    def end(self) -> Index:
        return self.batches[-1].end if self.batches else Index(1)

    @property
    def durable(self) -> Durable:
        return Durable(term=self.term, vote=self.vote, history=self.history, end=self.end)

    @property
    def pair(self) -> tuple[Term, Index]:
        """What the member would advertise."""
        return self.history.advertised(self.end).last_term, self.end

    def written(self, write: Write) -> Disk:
        """Return the disk after one write."""
        match write:
            case WriteTerm(term, vote):
                return replace(self, term=term, vote=vote)
            case WriteHistory(history):
                return replace(self, history=history)
            case EndSilence():
                return replace(self, silent_until=None)
            case TruncateLog(end):
                return self.cut(end)
            case AppendLog(batches):
                assert batches[0].first_index == self.end, f"{batches[0]!r} does not start at {self.end}"
                return replace(self, batches=(*self.batches, *batches))
            case _:
                raise AssertionError(f"{write} is not part of this world")

    def cut(self, end: Index) -> Disk:
        """Return the disk with the log up to ``end``; what was known to be committed beyond is not known any more."""
        kept = tuple(batch for batch in self.batches if batch.end <= end)
        return replace(self, batches=kept, commit_hint=min(self.commit_hint, end))

    def stored(self, hint: Membership) -> Stored:
        """Build what a core starts from, as ``viewstamp.node.recovery`` does; the whole log is in memory."""
        memberships = [MembershipEntry(Index(0), Term(0), hint)]
        for batch in self.batches:
            if batch.kind is Kind.MEMBERSHIP:
                membership = Membership.decode(batch.values()[0])
                memberships.append(MembershipEntry(batch.first_index, batch.term, membership))
        return Stored(
            term=self.term,
            vote=self.vote,
            history=self.history,
            end=self.end,
            commit_end=self.commit_hint,
            tail=list(self.batches),
            memberships=memberships,
            silent_until=self.silent_until,
        )


def left_by_a_crash(disk: Disk, writes: Sequence[Write]) -> list[Disk]:
    """Return every disk that a crash may leave of ``disk`` while ``writes`` are under way, the least first."""
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
