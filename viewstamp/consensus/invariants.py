"""Invariants of a group, which tests and simulator check after every event.

Each invariant is a function of (facts, cores) that returns a complaint, or None. It reads the present cores and the
facts recorded before (:class:`Facts`), and changes neither. :func:`check` calls all of them, then records the present
state. They are cheap, because they skip state that did not change since the last check.

They fail earlier than a check for lost data: after 4 to 9 steps in the model checker, against 6 to 12.

=====================  ====================================================================================
OneLeader              a term has one leader
CursorsOrdered         handed <= committed <= end, durable <= end; all bounds of the windows to members hold
HistoriesAgree         a term has one past: in every history that names it, the same terms with the same begins
HistoryTrue            a member's history gives the same term as the header of each of its batches
LogMatching            a viewstamp names one batch, and one batch before it
CommittedStays         the committed prefix is the same on all members, and only grows
NeverCut               records that a member held durably and knew to be committed stay there, also after a restart
LeaderComplete         a new leader holds everything that was committed in earlier terms
FollowsLeader          under an announcement the follower's history is its leader's, its log not longer
AckKept                records that a member acknowledged stay there during that term, unless it is recovering
CommitOnQuorum         a leader commits only what a quorum holds durably in its term, by its acknowledgements
FindsOnQuorum          a follower that commits more than all leaders before it, too; its leader's notices count as well
=====================  ====================================================================================

and for each message that is sent, :func:`check_sent` compares it with the sender's disk at that moment:

=====================  ====================================================================================
AckDurable             an acknowledged end is on the disk, and so is the history of the term it is sent in; so is the
                       end that a leader tells
VoteDurable            term and vote are on the disk before a vote is sent or asked for; one vote in a term
AnnouncedDurable       the history of a term is on its leader's disk before the leader announces it
=====================  ====================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from viewstamp.consensus import standing
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    DurableNotice,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryResponse,
    Message,
    SnapshotOffer,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.state import Core, Leading
from viewstamp.consensus.term_history import TermHistory, TermStart
from viewstamp.ids import Index, NodeId, Term, Viewstamp
from viewstamp.wire.batch import Batch

__all__ = [
    "INVARIANTS",
    "OF_COMMITTED",
    "BatchIdentity",
    "BrokenInvariantError",
    "Durable",
    "Facts",
    "check",
    "check_sent",
    "check_stored",
    "terms_of",
]

_CHECKSUM = struct.Struct("<4xI")


class BrokenInvariantError(AssertionError):
    """An invariant of the protocol does not hold; ``invariant`` names it."""

    def __init__(self, invariant: str, complaint: str) -> None:
        super().__init__(f"{invariant}: {complaint}")
        self.invariant = invariant


class BatchIdentity(NamedTuple):
    """The identity of a batch: its end, the term before it, and its header's checksum, which covers all its bytes."""

    end: Index
    previous_term: Term
    checksum: int

    @classmethod
    def of(cls, batch: Batch) -> BatchIdentity:
        """Return the identity of a batch that has an index."""
        return cls(batch.end, batch.previous_term, _CHECKSUM.unpack_from(batch.buffer)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """The durable state of one member's disk: the least that a power cut would leave."""

    term: Term
    vote: str
    history: TermHistory
    end: Index


@dataclass(slots=True)
class Seen:
    """The part of one core that was checked already."""

    core: Core
    history: TermHistory
    end: Index
    commit_end: Index


@dataclass(slots=True)
class Facts:
    """The facts recorded in the life of a group. They outlive every member's restarts."""

    leaders: dict[Term, NodeId] = field(default_factory=dict)
    pasts: dict[Term, tuple[TermStart, ...]] = field(default_factory=dict)
    """The longest history up to each term that was seen."""
    batches: dict[Viewstamp, BatchIdentity] = field(default_factory=dict)
    committed: tuple[TermStart, ...] = ()
    """The terms of the committed prefix; by LogMatching they determine its records."""
    committed_end: Index = Index(1)
    commits: list[tuple[Term, Index]] = field(default_factory=list)
    """(term, end) of each commit end, with the term in which it was first seen."""
    kept_ends: dict[NodeId, Index] = field(default_factory=dict)
    """The largest end that was both durable and committed on each member while it was not recovering."""
    acknowledged: dict[tuple[NodeId, Term], Index] = field(default_factory=dict)
    """The largest end that each member acknowledged in each term. It stays when the disk is gone, because the
    acknowledgement still counts for the leader."""
    promised: dict[tuple[NodeId, Term], Index] = field(default_factory=dict)
    """The same, only for disks that still exist."""
    told: dict[tuple[NodeId, Term], Index] = field(default_factory=dict)
    """The largest durable end that each leader has told a member in its term."""
    votes: dict[tuple[NodeId, Term], NodeId] = field(default_factory=dict)
    seen: dict[NodeId, Seen] = field(default_factory=dict)

    def forget(self, member: NodeId) -> None:
        """Drop the promises of a member with a new disk, because they were only on the old one."""
        self.kept_ends.pop(member, None)
        self.promised = {key: end for key, end in self.promised.items() if key[0] != member}
        self.votes = {key: vote for key, vote in self.votes.items() if key[0] != member}

    def record(self, cores: Sequence[Core], disks: Mapping[NodeId, Durable]) -> None:
        """Record the present state of the cores."""
        for core in cores:
            log = core.log
            seen = self.seen.get(core.me)
            if seen is None or seen.core is not core or seen.history is not core.history:
                for at, start in enumerate(core.history.starts):
                    past = core.history.starts[: at + 1]
                    if len(past) > len(self.pasts.get(start.term, ())):
                        self.pasts[start.term] = past
            for batch in _unseen(self, core):
                self.batches[Viewstamp(batch.term, batch.first_index)] = BatchIdentity.of(batch)
            if core.leader == core.me:
                self.leaders[core.term] = core.me
            if log.commit_end > self.committed_end:
                terms = terms_of(core.history, log.commit_end)
                first = core.history.starts[0].term  # A trimmed history does not contain the terms before.
                self.committed = (*(start for start in self.committed if start.term < first), *terms)
                self.committed_end = log.commit_end
                self.commits.append((core.term, log.commit_end))
            disk = disks.get(core.me)
            durable_end = disk.end if disk is not None else log.durable_end
            kept = min(log.commit_end, log.durable_end, durable_end)
            if core.recovering_until is None:  # Ends of a recovering member do not count, because it may lose them.
                self.kept_ends[core.me] = max(self.kept_ends.get(core.me, Index(1)), kept)
            self.seen[core.me] = Seen(core, core.history, log.end, log.commit_end)


def terms_of(history: TermHistory, end: Index) -> tuple[TermStart, ...]:
    """Return the terms that have records below ``end``, each with its first index."""
    starts = history.starts
    following = [start.begin for start in starts[1:]] + [end]
    return tuple(
        start for start, next_begin in zip(starts, following, strict=True) if start.begin < min(next_begin, end)
    )


def _unseen(facts: Facts, core: Core) -> list[Batch]:
    """Return the batches in memory that are new since the last check; all of them if the history has changed."""
    seen = facts.seen.get(core.me)
    is_known = seen is not None and seen.core is core and seen.history is core.history
    return core.log.since(seen.end if seen is not None and is_known else Index(0))


# -- Invariants of the cores --------------------------------------------------------------------------------


def one_leader(facts: Facts, core: Core) -> str | None:
    """Check that no other member has led this term."""
    if core.leader != core.me:
        return None
    before = facts.leaders.get(core.term, core.me)
    return None if before == core.me else f"{before} and {core.me} both lead term {core.term}"


def cursors_ordered(facts: Facts, core: Core) -> str | None:
    """Check the order of the ends, and the leader's windows."""
    log = core.log
    if not (log.handed_end <= log.commit_end <= log.end and log.durable_end <= log.end):
        return (
            f"{core.me}: handed {log.handed_end}, committed {log.commit_end}, durable {log.durable_end}, end {log.end}"
        )
    leading = core.state
    for member, progress in leading.progress.items() if isinstance(leading, Leading) else ():
        if not progress.counted_end <= progress.durable_end <= progress.next_end <= log.end:
            return f"{core.me} sees {member} at {progress.durable_end}, sent {progress.next_end}, holds {log.end}"
        in_flight = sum(size for _, size in progress.in_flight)
        newest = progress.in_flight[-1][1] if progress.in_flight else 0
        if in_flight != progress.in_flight_bytes or (newest and in_flight - newest >= core.options.in_flight_bytes_max):
            return f"{core.me} has {in_flight} bytes in flight to {member}, and counts {progress.in_flight_bytes}"
    return None


def histories_agree(facts: Facts, core: Core) -> str | None:
    """Check that each term has the same past as in all histories before; a trimmed history holds a later part of it."""
    seen = facts.seen.get(core.me)
    if seen is not None and seen.core is core and seen.history is core.history:
        return None
    starts = core.history.starts
    for at, start in enumerate(starts):
        past = starts[: at + 1]
        known = facts.pasts.get(start.term, past)
        shorter = min(len(past), len(known))
        if past[-shorter:] != known[-shorter:]:
            return f"{core.me} has {past} as the past of term {start.term}, it was {known}"
    return None


def history_true(facts: Facts, core: Core) -> str | None:
    """Check the history against the headers of the batches."""
    for batch in _unseen(facts, core):
        if batch.first_index < core.first_index:
            continue  # It was dropped from the disk and is only in memory, so it is not sent any more.
        terms = {core.history.term_at(batch.first_index), core.history.term_at(batch.last_index)}
        if terms != {batch.term}:
            return f"{core.me} holds {batch!r}, its history {core.history} gives term {sorted(terms)}"
    return None


def log_matching(facts: Facts, core: Core) -> str | None:
    """Check that each viewstamp still names the same batch; by induction all before it is equal too."""
    for batch in _unseen(facts, core):
        known = facts.batches.get(Viewstamp(batch.term, batch.first_index))
        if known is not None and known != BatchIdentity.of(batch):
            return f"{core.me} holds {batch!r} as {BatchIdentity.of(batch)}, it was {known}"
    return None


def committed_stays(facts: Facts, core: Core) -> str | None:
    """Check the committed prefix, term by term, against the one recorded before."""
    seen = facts.seen.get(core.me)
    if seen is not None and seen.core is core:
        if core.log.commit_end < seen.commit_end:
            return f"{core.me} had committed up to {seen.commit_end}, now {core.log.commit_end}"
        if seen.history is core.history and seen.commit_end == core.log.commit_end:
            return None
    end = min(core.log.commit_end, facts.committed_end)
    mine, known = _committed_terms(facts, core, end)
    return None if mine == known else f"{core.me} has committed terms {mine} up to {end}, they were {known}"


def _committed_terms(facts: Facts, core: Core, end: Index) -> tuple[list[TermStart], list[TermStart]]:
    """Return the terms below ``end`` in this log, and those that were committed; both behind this history's first."""
    first = core.history.starts[0].begin
    mine = [start for start in terms_of(core.history, end) if start.begin > first]
    return mine, [start for start in facts.committed if first < start.begin < end]


def never_cut(facts: Facts, core: Core) -> str | None:
    """Check that a member keeps records that it held durably and knew to be committed, or is recovering (rule 17)."""
    if core.recovering_until is not None:
        return None
    kept = facts.kept_ends.get(core.me, Index(1))
    return None if core.log.end >= kept else f"{core.me} ends at {core.log.end}, it had committed and synced {kept}"


def leader_complete(facts: Facts, core: Core) -> str | None:
    """Check, when a leader is first seen, that it holds all records that earlier terms committed."""
    if core.leader != core.me or core.term in facts.leaders:
        return None
    end = max((end for term, end in facts.commits if term < core.term), default=Index(1))
    if core.log.end < end:
        return f"{core.me} leads term {core.term} and ends at {core.log.end}, {end} is committed"
    mine, known = _committed_terms(facts, core, end)
    return None if mine == known else f"{core.me} leads term {core.term} with {mine} up to {end}, committed: {known}"


def commit_on_quorum(facts: Facts, core: Core, disks: Mapping[NodeId, Durable]) -> str | None:
    """Check a leader's new commit end against the members' acknowledgements and its own disk."""
    seen = facts.seen.get(core.me)
    if core.leader != core.me or core.me not in disks or seen is None or seen.core is not core:
        return None
    if core.log.commit_end == seen.commit_end:
        return None
    end = core.log.commit_end
    holders = [voter for voter in core.membership.electors if facts.acknowledged.get((voter, core.term), 0) >= end]
    if disks[core.me].end >= end and disks[core.me].history.begin_of(core.term) is not None:
        holders.append(core.me)
    start = core.leading.term_start
    if end < start or not standing.is_majority(core.membership, holders):
        return f"{core.me} commits up to {end} in term {core.term} (from {start}), only {holders} hold it"
    return None


def finds_on_quorum(facts: Facts, core: Core, disks: Mapping[NodeId, Durable]) -> str | None:
    """Check a commit end above all before, of a follower, against its own disk and what the others have said."""
    end, term, leader = core.log.commit_end, core.term, core.leader
    seen = facts.seen.get(core.me)
    if leader in (None, core.me) or core.me not in disks or seen is None or seen.core is not core:
        return None
    if end <= facts.committed_end:
        return None
    holders = [voter for voter in core.membership.electors if facts.acknowledged.get((voter, term), 0) >= end]
    holders += [each for (each, told_in), told in facts.told.items() if told_in == term and told >= end]
    begin = disks[core.me].history.begin_of(term)
    if disks[core.me].end >= end and begin is not None and core.recovering_until is None:
        holders.append(core.me)
    start = core.history.starts[-1]
    if facts.leaders.get(start.term) == core.me and start.term < term:
        # It led until this turn, and may have counted the last acknowledgement before it heard of the newer term.
        term = start.term
        holders = [voter for voter in core.membership.electors if facts.acknowledged.get((voter, term), 0) >= end]
        if disks[core.me].end >= end:
            holders.append(core.me)
    if start.term != term or end < start.begin or not standing.is_majority(core.membership, holders):
        return f"{core.me} finds everything before {end} committed in term {term} (from {start}), {holders} hold it"
    return None


def follows_leader(facts: Facts, core: Core, leader: Core) -> str | None:
    """Check a follower against its leader, both in the same term."""
    mine, its = core.history.starts, leader.history.starts
    shorter = min(len(mine), len(its))  # The lengths differ, because each is trimmed to its own log.
    if mine[-shorter:] != its[-shorter:] or core.log.end > leader.log.end:
        return (
            f"{core.me} follows {leader.me} in term {core.term} with {core.history} up to {core.log.end},"
            f" the leader has {leader.history} up to {leader.log.end}"
        )
    return None


def ack_kept(facts: Facts, core: Core) -> str | None:
    """Check that the log reaches the end acknowledged in this term, or that the member is recovering (rule 17)."""
    if core.recovering_until is not None:
        return None
    said = facts.promised.get((core.me, core.term), Index(0))
    if core.log.end >= said:
        return None
    return f"{core.me} acknowledged {said} in term {core.term}, its log ends at {core.log.end}"


INVARIANTS: dict[str, Callable[[Facts, Core], str | None]] = {
    "OneLeader": one_leader,
    "CursorsOrdered": cursors_ordered,
    "HistoriesAgree": histories_agree,
    "HistoryTrue": history_true,
    "LogMatching": log_matching,
    "CommittedStays": committed_stays,
    "NeverCut": never_cut,
    "LeaderComplete": leader_complete,
    "AckKept": ack_kept,
}
"""The invariants of one core, in the order in which they are checked."""


OF_COMMITTED = frozenset({"CommittedStays", "NeverCut", "LeaderComplete"})
"""Invariants that fail in interval mode once a majority has lost power, because committed records may be lost."""


def check(
    facts: Facts,
    cores: Sequence[Core],
    disks: Mapping[NodeId, Durable] | None = None,
    *,
    skipped: Collection[str] = (),
) -> None:
    """Check every invariant of the running cores, then record their state.

    Args:
      facts: the facts of the earlier calls; this call adds the present ones.
      cores: the running members of one group.
      disks: the durable state of each member. Without it CommitOnQuorum is not checked, and the durable ends of the
        cores are used.
      skipped: names of invariants that are not checked; see :data:`OF_COMMITTED`.

    Raises:
      BrokenInvariantError: the first that does not hold.
    """
    disks = disks or {}
    leading = {core.term: core for core in cores if core.leader == core.me}
    for core in cores:
        for name, invariant in INVARIANTS.items():
            if name not in skipped:
                _demand(name, invariant(facts, core))
        _demand("CommitOnQuorum", commit_on_quorum(facts, core, disks))
        _demand("FindsOnQuorum", finds_on_quorum(facts, core, disks))
        leader = leading.get(core.term)
        if leader is not None and leader.me == core.leader and core is not leader and core.announced_number > 0:
            _demand("FollowsLeader", follows_leader(facts, core, leader))
        facts.record([core], disks)


def _demand(name: str, complaint: str | None) -> None:
    if complaint is not None:
        raise BrokenInvariantError(name, complaint)


# -- Invariants of the disks --------------------------------------------------------------------------------


def check_stored(me: NodeId, history: TermHistory, batches: Iterable[Batch]) -> None:
    """Check HistoryTrue on a disk: the stored history against the headers of the stored batches.

    Raises:
      BrokenInvariantError: they differ.
    """
    for batch in batches:
        if history.term_at(batch.first_index) != batch.term or history.term_at(batch.last_index) != batch.term:
            raise BrokenInvariantError("HistoryTrue", f"{me} has stored {batch!r} and the history {history}")


def check_sent(facts: Facts, message: Message, disk: Durable) -> None:
    """Check that the promises of ``message`` are on its sender's disk when it is sent, and record them.

    Raises:
      BrokenInvariantError: a promise is not on the disk.
    """
    me, term = message.source, message.term
    match message:
        case AppendResponse(end=end) | AnnouncementResponse(end=end) | HeartbeatResponse(end=end):
            knows = disk.term > term or (disk.term == term and disk.history.begin_of(term) is not None)
            if end > disk.end or not knows:
                raise BrokenInvariantError("AckDurable", f"{me} acknowledges {end} in term {term}, on disk: {disk}")
            if disk.term == term and not message.is_recovering:
                for said in (facts.acknowledged, facts.promised):
                    said[me, term] = max(end, said.get((me, term), Index(0)))
        case DurableNotice(end=end):
            if end > disk.end or disk.history.begin_of(term) is None:
                raise BrokenInvariantError("AckDurable", f"{me} tells {end} in term {term}, on disk: {disk}")
            facts.told[me, term] = max(end, facts.told.get((me, term), Index(0)))
        case VoteResponse(granted=True) | VoteRequest():
            voted_for = message.target if isinstance(message, VoteResponse) else me
            if disk.term < term or (disk.term == term and disk.vote != voted_for):
                raise BrokenInvariantError("VoteDurable", f"{me} votes for {voted_for} in {term}, on disk: {disk}")
            before = facts.votes.setdefault((me, term), voted_for)
            if before != voted_for:
                raise BrokenInvariantError("VoteDurable", f"{me} votes for {before} and {voted_for} in term {term}")
        case VoteResponse() | HistoryResponse():
            if disk.term < term:
                raise BrokenInvariantError("VoteDurable", f"{me} reports its history in {term}, on disk: {disk}")
        case Announcement() | AppendRequest() | HeartbeatRequest():
            if disk.history.begin_of(term) is None:
                raise BrokenInvariantError("AnnouncedDurable", f"{me} announces term {term}, on disk: {disk}")
        case SnapshotOffer(end=end):
            if disk.history.begin_of(term) is None or end > min(disk.end, facts.committed_end):
                raise BrokenInvariantError(
                    "OfferCommitted",
                    f"{me} offers a snapshot up to {end}, committed {facts.committed_end}, on disk: {disk}",
                )
        case _:
            pass
