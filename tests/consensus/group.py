"""A group of real cores on modelled disks and a modelled network, in one thread and without time.

Nothing happens by itself: every delivery, every durable write, every report of one to a core, every tick and every
crash is one call. After each call, the invariants of ``viewstamp.consensus.invariants`` are checked. Scenarios make
these calls by name, the random schedules (``schedule.py``) make random ones.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from viewstamp.consensus.invariants import Durable, Facts, check, check_sent, check_stored
from viewstamp.consensus.membership import Change, Membership, MembershipEntry
from viewstamp.consensus.messages import Message, SnapshotOffer
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import (
    AppendLog,
    EndRecovery,
    Fetch,
    Ready,
    ResetLog,
    TruncateLog,
    Write,
    WriteHistory,
    WriteTerm,
)
from viewstamp.consensus.roles import Lifecycle, Role
from viewstamp.consensus.state import Campaign, CampaignPhase, Core, Leading, RaftOptions, SnapshotPoint, Stored
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Position, Term, Viewstamp
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = ["OPTIONS", "Disk", "Group", "Member", "Snapshot", "age", "names", "phase_of", "record"]

OPTIONS = RaftOptions(election_timeout_ticks=10, heartbeat_ticks=2)


def names(count: int) -> list[NodeId]:
    """Return the ids of the first ``count`` members."""
    return [NodeId(f"n{number}") for number in range(1, count + 1)]


def record(term: int, index: int, value: bytes = b"", *, previous_term: int | None = None, count: int = 1) -> Batch:
    """Return a batch that already has its place in the log."""
    batch = build_batch([value or b"%d.%d" % (term, index + at) for at in range(count)])
    batch.stamp(
        term=Term(term),
        first_index=Index(index),
        previous_term=Term(previous_term if previous_term is not None else term),
        log_time=0,
        first_position=Position(0),
    )
    return batch


def age(core: Core, ticks: int) -> None:
    """Let at least ``ticks`` pass since a member's last contact with its leader, or a leader's with its quorum."""
    if isinstance(core.state, Leading):
        core.state.ticks_since_check = max(core.state.ticks_since_check, ticks)
    else:
        core.ticks_since_leader = max(core.ticks_since_leader, ticks)


def phase_of(core: Core) -> CampaignPhase | None:
    """Return the phase of a candidate's campaign; None = the member is not a candidate."""
    return core.state.phase if isinstance(core.state, Campaign) else None


@dataclass(frozen=True)
class Snapshot:
    """A snapshot file: its point in the log, and the applied state, which here is every batch."""

    point: SnapshotPoint
    applied: tuple[Batch, ...]


@dataclass
class Disk:
    """The durable state of one member. A write is whole or absent, but an append may keep some of its batches."""

    term: Term = Term(0)
    vote: str = ""
    history: TermHistory = field(default_factory=TermHistory)
    batches: list[Batch] = field(default_factory=list)
    commit_hint: Index = Index(1)
    begin: Index = Index(1)
    """The first index of the log; the record before it has ``begin_term``."""
    begin_term: Term = Term(0)
    recovering_until: tuple[Term, Index] | None = None
    """The viewstamp that was advertised before the disk was damaged."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """Snapshot files, the newest last."""
    log: list[str] = field(default_factory=list)
    """Every write in words, in order."""

    @property
    def end(self) -> Index:
        return self.batches[-1].end if self.batches else self.begin

    def holds(self, point: SnapshotPoint) -> bool:
        """Return whether the log holds the snapshot's last record, with the same term in header and history."""
        last = Index(point.end - 1)
        found = [batch.term for batch in self.batches if batch.first_index <= last < batch.end]
        if self.begin == point.end:
            found = [self.begin_term]
        return found == [point.last_term] and self.history.term_at(last) == point.last_term

    def recover(self) -> None:
        """Reconcile the log with the newest snapshot (protocol rule 19); repeating it changes nothing."""
        if not self.snapshots or self.holds(self.snapshots[-1].point):
            return
        point = self.snapshots[-1].point
        self.write(ResetLog(point.end, point.last_term))
        self.write(WriteHistory(point.history))
        self.commit_hint = point.end

    def trim(self, first_index: Index) -> None:
        """Drop whole batches below ``first_index``."""
        while self.batches and self.batches[0].end <= first_index:
            batch = self.batches.pop(0)
            self.begin, self.begin_term = batch.end, batch.term
        self.log.append(f"trim {self.begin}")

    def write(self, write: Write) -> None:
        match write:
            case WriteTerm(term, vote):
                self.term, self.vote = term, vote
                self.log.append(f"term {term} vote {vote or '-'}")
            case EndRecovery():
                self.recovering_until = None
                self.log.append("end recovery")
            case WriteHistory(history):
                self.history = history
                self.log.append(f"history {history}")
            case TruncateLog(end):
                self.truncate(end)
            case ResetLog(end, term):
                self.batches, self.begin, self.begin_term = [], end, term
                self.log.append(f"reset {end} after term {term}")
            case AppendLog(batches):
                for batch in batches:
                    assert batch.first_index == self.end, f"{batch!r} does not start at the disk's end {self.end}"
                    self.batches.append(batch)
                    self.log.append(f"append {batch.term}.{batch.first_index}..{batch.last_index}")

    def truncate(self, end: Index) -> None:
        while self.batches and self.batches[-1].first_index >= end:
            self.batches.pop()
        assert self.end == end, f"{end} is no boundary of a log that ends at {self.end}"
        self.log.append(f"truncate {end}")

    def write_in_part(self, write: Write, entropy: random.Random) -> None:
        """Crash inside a write: do some batches of an append, or a part of a truncation's cut, and nothing else."""
        if isinstance(write, AppendLog):
            self.write(AppendLog(write.batches[: entropy.randrange(len(write.batches))]))
        elif isinstance(write, TruncateLog):
            ends = [batch.end for batch in self.batches if batch.end > write.end]
            if ends:
                self.truncate(entropy.choice(ends))

    def damage(self, end: int, *, is_end_known: bool = True) -> None:
        """Lose everything from ``end`` on, and store the advertised viewstamp, as recovery does (protocol rule 17)."""
        lost_end = self.end if is_end_known else Index(2**62)
        self.recovering_until = self.history.advertised(self.end).last_term, lost_end
        self.truncate(Index(end))
        self.commit_hint = min(self.commit_hint, Index(end))

    def durable(self) -> Durable:
        return Durable(term=self.term, vote=self.vote, history=self.history, end=self.end)

    def records(self) -> list[str]:
        """Return the log as ``term.index`` of each record."""
        return [f"{batch.term}.{index}" for batch in self.batches for index in range(batch.first_index, batch.end)]


@dataclass
class Pending:
    """The writes of one Ready that wait for the disk, and the messages to send when the last is durable."""

    writes: deque[Write]
    notice: Viewstamp
    after: list[Message]


class Member:
    """One member: its disk, and while it runs its core, its pending writes and its applied records."""

    def __init__(self, me: NodeId, disk: Disk) -> None:
        self.me = me
        self.disk = disk
        self.raft: Raft | None = None
        self.queue: deque[Pending] = deque()
        self.notices: deque[Pending] = deque()
        """Durable writes that have not been reported to the core."""
        self.fetches: list[tuple[Fetch, list[Batch]]] = []
        self.applied: list[Batch] = []
        self.offer: SnapshotOffer | None = None
        self.fetched: Snapshot | None = None
        """Its file is durable here, but not installed."""
        self.reads: dict[int, Index] = {}
        self.reads_asked: dict[int, Index] = {}

    @property
    def core(self) -> Core:
        assert self.raft is not None, f"{self.me} is down"
        return self.raft.core

    @property
    def is_up(self) -> bool:
        return self.raft is not None


class Group:
    """A group under test.

    ``messages`` is the network: every message that was sent and neither delivered nor dropped. With ``is_quick_disk``
    (the default) every write is durable as soon as it is handed out; otherwise :meth:`sync` makes it durable.
    """

    def __init__(
        self,
        members: int | list[NodeId] = 3,
        *,
        options: RaftOptions = OPTIONS,
        learners: Iterable[NodeId] = (),
        disks: dict[NodeId, Disk] | None = None,
        seed: int = 0,
        is_quick_disk: bool = True,
    ) -> None:
        voters = names(members) if isinstance(members, int) else members
        self.hint = Membership({v: f"at-{v}" for v in voters}, {learner: f"at-{learner}" for learner in learners})
        self.options = dict.fromkeys(self.hint.addresses, options)
        self.entropy = random.Random(seed)
        self.is_quick_disk = is_quick_disk
        self.messages: list[Message] = []
        self.sent: list[Message] = []
        """Every message that was ever sent, for scenarios that look back."""
        self.facts = Facts()
        self.applied: list[Batch] = []
        self.token = 0
        self.wall_us = 0
        self.members: dict[NodeId, Member] = {
            me: Member(me, (disks or {}).get(me) or Disk()) for me in self.hint.addresses
        }
        for me in self.members:
            self.start(me)

    def __getitem__(self, me: str) -> Member:
        return self.members[NodeId(me)]

    def up(self) -> list[Member]:
        """Return the members that run."""
        return [member for member in self.members.values() if member.is_up]

    # -- Starts and crashes ----------------------------------------------------------------------------------

    def start(self, me: str, *, options: RaftOptions | None = None, hint: Membership | None = None) -> None:
        """Start a member from the contents of its disk."""
        member = self[me]
        assert not member.is_up
        if options is not None:
            self.options[member.me] = options
        disk = member.disk
        check_stored(me, disk.history, disk.batches)
        disk.recover()
        memberships = [MembershipEntry(Index(0), Term(0), hint or self.hint)]
        applied: tuple[Batch, ...] = ()
        if disk.snapshots:
            memberships = [disk.snapshots[-1].point.membership]
            applied = disk.snapshots[-1].applied
        commit_end = max(disk.commit_hint, applied[-1].end if applied else Index(1))
        for batch in disk.batches:
            if batch.kind is Kind.MEMBERSHIP and batch.first_index > memberships[-1].index:
                value = Membership.decode(batch.values()[0])
                memberships.append(MembershipEntry(batch.first_index, batch.term, value))
        stored = Stored(
            term=disk.term,
            vote=disk.vote,
            history=disk.history,
            first_index=disk.begin,
            end=disk.end,
            commit_end=commit_end,
            log_time=max((batch.log_time for batch in [*applied[-1:], *disk.batches]), default=0),
            tail=[batch for batch in disk.batches if batch.end > commit_end],
            memberships=memberships,
            recovering_until=disk.recovering_until,
            promised_us=self.options[member.me].lease_us,
        )
        member.raft = Raft(member.me, self.options[member.me], stored, self.entropy)
        done = applied[-1].end if applied else Index(1)
        member.applied = [*applied, *(batch for batch in disk.batches if done < batch.end <= commit_end)]
        if disk.snapshots:
            point = disk.snapshots[-1].point
            member.raft.trimmed(disk.begin, (point.end, point.last_term))
        self.after(me)

    def add(self, me: str) -> Member:
        """Start a node with an empty disk that is not a member yet."""
        member = self.members[NodeId(me)] = Member(NodeId(me), Disk())
        self.options[member.me] = next(iter(self.options.values()))
        self.start(me)
        return member

    def crash(self, me: str, *, durable_writes: int = 0, torn: random.Random | None = None) -> None:
        """Kill a member: the first ``durable_writes`` of its pending writes are kept, the next may be torn."""
        member = self[me]
        for _ in range(durable_writes):
            self._write_one(member)
        if torn is not None and member.queue and member.queue[0].writes:
            member.disk.write_in_part(member.queue[0].writes[0], torn)
        member.raft = None
        member.queue.clear()
        member.notices.clear()
        member.fetches.clear()
        member.reads.clear()
        member.reads_asked.clear()
        member.offer = member.fetched = None

    def restart(self, me: str, *, options: RaftOptions | None = None) -> None:
        """Kill a member, dropping its pending writes, and start it again."""
        if self[me].is_up:
            self.crash(me)
        self.start(me, options=options)

    # -- Inputs ---------------------------------------------------------------------------------------------

    def tick(self, me: str, count: int = 1) -> None:
        """Let time pass for one member."""
        for _ in range(count):
            self.wall_us += 1000
            raft = self[me].raft
            assert raft is not None
            raft.tick(self.wall_us)
            self.after(me)

    def campaign(self, me: str) -> None:
        """Let a member's election timeout run out."""
        core = self[me].core
        self.tick(me, max(1, core.election_ticks - core.ticks_since_leader))

    def propose(self, me: str, *values: bytes) -> Viewstamp:
        """Propose one batch of ``values`` to a member."""
        raft = self[me].raft
        assert raft is not None
        viewstamp = raft.propose(build_batch(values or [b"x"]))
        self.after(me)
        return viewstamp

    def change(self, me: str, wanted: Change) -> Viewstamp:
        """Request a membership change from a member."""
        raft = self[me].raft
        assert raft is not None
        viewstamp = raft.change(wanted)
        self.after(me)
        return viewstamp

    def transfer(self, me: str, target: str | None = None) -> NodeId:
        """Ask a member to transfer its leadership."""
        raft = self[me].raft
        assert raft is not None
        chosen = raft.transfer(NodeId(target) if target is not None else None)
        self.after(me)
        return chosen

    def lose(self, me: str, lost: str) -> None:
        """Report to a member that another one's process seems to be dead, rightly or wrongly."""
        raft = self[me].raft
        assert raft is not None
        raft.lost_leader(NodeId(lost))
        self.after(me)

    def read(self, me: str) -> int:
        """Ask a member for a read, which must include everything that any member has committed by now."""
        self.token += 1
        member = self[me]
        assert member.raft is not None
        member.reads_asked[self.token] = self.facts.committed_end
        member.raft.read(self.token)
        self.after(me)
        return self.token

    def step(self, me: str, *messages: Message) -> None:
        """Step messages in one turn of a member; messages to a stopped member are lost."""
        member = self[me]
        if member.raft is None:
            return
        for message in messages:
            member.raft.step(message)
        self.after(me)

    # -- The network ----------------------------------------------------------------------------------------

    def matching(
        self,
        kind: type[Message] | tuple[type[Message], ...] = Message,
        *,
        source: str | None = None,
        target: str | None = None,
    ) -> list[Message]:
        """Return the matching messages in flight."""
        return [
            message
            for message in self.messages
            if isinstance(message, kind) and source in (None, message.source) and target in (None, message.target)
        ]

    def deliver(
        self,
        kind: type[Message] | tuple[type[Message], ...] = Message,
        *,
        source: str | None = None,
        target: str | None = None,
        keep: bool = False,
    ) -> list[Message]:
        """Deliver the matching messages in flight, in the order of sending; ``keep`` leaves a copy."""
        found = self.matching(kind, source=source, target=target)
        for message in found:
            if not keep:
                self._take(message)
            self.step(message.target, message)
        return found

    def drop(
        self,
        kind: type[Message] | tuple[type[Message], ...] = Message,
        *,
        source: str | None = None,
        target: str | None = None,
    ) -> list[Message]:
        """Lose the matching messages in flight."""
        found = self.matching(kind, source=source, target=target)
        for message in found:
            self._take(message)
        return found

    def _take(self, message: Message) -> None:
        for at, each in enumerate(self.messages):
            if each is message:
                del self.messages[at]
                return

    def settle(self, *only: str, rounds: int = 200) -> None:
        """Deliver and sync until no message is in flight among ``only`` (default: all running members).

        Others are lost.
        """
        chosen = [NodeId(me) for me in only] or [member.me for member in self.up()]
        for _ in range(rounds):
            for message in list(self.messages):
                self._take(message)
                if message.source in chosen and message.target in chosen:
                    self.step(message.target, message)
            for me in chosen:
                self.sync(me)
                self.answer_fetches(me)
                self.fetch_snapshot(me)
                self.install(me)
            if not self.messages and not any(self[me].queue for me in chosen):
                return
        raise AssertionError(f"the group does not come to rest: {self.messages[:5]}")

    def run(self, ticks: int, *only: str) -> None:
        """Let time pass for ``only`` (default: all running members), one tick at a time, settling after each."""
        for _ in range(ticks):
            for member in self.up():
                if not only or member.me in only:
                    self.tick(member.me)
            self.settle(*only)

    def elect(self, me: str, *only: str) -> None:
        """Make a member the leader.

        Its election timeout expires, and also those of the others, so that they give their votes.
        """
        self.let_vote_for(me, *only)
        self.campaign(me)
        self.settle(*only)
        assert self[me].core.role is Role.LEADER, f"{me} is {self[me].core.role} in term {self[me].core.term}"

    def let_vote_for(self, me: str, *only: str) -> None:
        """Let the others, or ``only`` some, consider their leader gone, without campaigning soon themselves."""
        for member in self.up():
            if member.me != me and (not only or member.me in only):
                age(member.core, member.core.options.election_timeout_ticks)
                member.core.election_ticks = (
                    member.core.ticks_since_leader + 2 * self.options[member.me].heartbeat_ticks
                )

    # -- The disks ------------------------------------------------------------------------------------------

    def sync(self, me: str, count: int | None = None) -> None:
        """Make ``count`` pending writes of a member durable (default: all), and report them to its core."""
        member = self[me]
        done = 0
        while member.queue and (count is None or done < count):
            self._write_one(member)
            done += 1
            if not member.queue:
                self.notify(me)  # This may hand out more writes.
        self.notify(me)

    def _write_one(self, member: Member) -> None:
        if not member.queue:
            return
        first = member.queue[0]
        if first.writes:
            member.disk.write(first.writes.popleft())
            check_stored(member.me, member.disk.history, member.disk.batches)
        if not first.writes:
            member.notices.append(member.queue.popleft())

    def write(self, me: str, count: int = 1) -> None:
        """Make writes durable without a report to the core."""
        for _ in range(count):
            self._write_one(self[me])

    def notify(self, me: str, count: int | None = None) -> None:
        """Report durable writes to the core."""
        member = self[me]
        done = 0
        while member.notices and (count is None or done < count):
            done += 1
            notice = member.notices.popleft()
            if member.raft is None:
                continue
            member.disk.commit_hint = max(
                member.disk.commit_hint, min(member.core.log.handed_end, member.core.log.durable_end)
            )
            member.raft.durable(notice.notice)
            for message in notice.after:
                if message.target == me:
                    member.raft.step(message)
                else:
                    self._send(member, message)
            self.after(me)

    def answer_fetches(self, me: str) -> None:
        """Return the batches that were read from disk to the core."""
        member = self[me]
        fetches, member.fetches = member.fetches, []
        for fetch, batches in fetches:
            self.step(me, fetch.answer(member.me, batches))

    # -- Snapshots ------------------------------------------------------------------------------------------

    def snapshot(self, me: str) -> Snapshot | None:
        """Take a snapshot of a member's applied and durable records; None = there is nothing new."""
        member = self[me]
        core = member.core
        applied = [batch for batch in member.applied if batch.end <= core.log.durable_end]
        newest = member.disk.snapshots[-1].point.end if member.disk.snapshots else 1
        if core.installing or not applied or applied[-1].end <= newest:
            return None
        end = applied[-1].end
        entry = MembershipEntry(Index(0), Term(0), self.hint)
        for batch in applied:
            if batch.kind is Kind.MEMBERSHIP:
                entry = MembershipEntry(batch.first_index, batch.term, Membership.decode(batch.values()[0]))
        point = SnapshotPoint(
            end=end,
            last_term=applied[-1].term,
            history=core.history.advertised(end),
            membership=entry,
            log_time=applied[-1].log_time,
        )
        snapshot = Snapshot(point, tuple(applied))
        member.disk.snapshots.append(snapshot)
        return snapshot

    def trim(self, me: str, first_index: Index | None = None) -> None:
        """Drop the records that the member's newest snapshot covers, or those of them below ``first_index``."""
        member = self[me]
        if not member.disk.snapshots or member.core.installing:
            return
        point = member.disk.snapshots[-1].point
        member.disk.trim(min(point.end, first_index or point.end))
        member.core.log.cache_bytes_max = 0
        member.core.log.evict()
        assert member.raft is not None
        member.raft.trimmed(member.disk.begin, (point.end, point.last_term))

    def fetch_snapshot(self, me: str) -> bool:
        """Copy the offered snapshot to a member; its file is durable afterwards."""
        member = self[me]
        offer, member.offer = member.offer, None
        if offer is None:
            return False
        found = [each for each in self[offer.source].disk.snapshots if each.point.end == offer.end]
        if not found or not self[offer.source].is_up:
            return False
        member.fetched = found[0]
        if not member.disk.snapshots or member.disk.snapshots[-1].point.end < offer.end:
            member.disk.snapshots.append(found[0])
        return True

    def install(self, me: str) -> bool | None:
        """Install a fetched snapshot; see ``Raft.install``."""
        member = self[me]
        if member.fetched is None or member.raft is None:
            return False
        snapshot = member.fetched
        taken = member.raft.install(snapshot.point)
        if taken is not None:
            member.fetched = None
        if taken:
            member.applied = list(snapshot.applied)
            member.fetches.clear()
        self.after(me)
        return taken

    # -- After every input ----------------------------------------------------------------------------------

    def after(self, me: str) -> None:
        """Perform the actions that the core requests, then check the invariants."""
        member = self[me]
        assert member.raft is not None
        self.check()
        ready = member.raft.ready()
        if ready is not None:
            self._act(member, ready)
        self.check()

    def check(self) -> None:
        """Check the invariants of all running members."""
        disks = {member.me: member.disk.durable() for member in self.members.values()}
        check(self.facts, [member.core for member in self.up()], disks)

    def _act(self, member: Member, ready: Ready) -> None:
        for message in ready.messages:
            self._send(member, message)
        if ready.durable is not None:
            # Even if this turn has no writes, its messages wait until the writes of earlier turns are durable.
            member.queue.append(Pending(deque(ready.writes), ready.durable, ready.messages_after_durable))
        member.offer = ready.offer or member.offer
        for batch in ready.committed:
            self._apply(member, batch)
        for token, index in ready.reads:
            needed = member.reads_asked.pop(token, None)
            if needed is not None:
                assert index + 1 >= needed, f"a read sees up to {index}, {needed} was committed when it was asked"
                member.reads[token] = index
        for fetch in ready.fetches:
            batches: list[Batch] = []
            size = 0
            for batch in member.disk.batches:
                if batch.first_index < fetch.start:
                    continue
                size += batch.size
                if batches and size > fetch.bytes_max:
                    break
                batches.append(batch)
            if fetch.start < member.disk.begin:
                batches = []  # They were trimmed meanwhile.
            else:
                assert [batch.first_index for batch in batches[:1]] == [fetch.start], f"{fetch} is not on disk"
            member.fetches.append((fetch, batches))
        if self.is_quick_disk:
            self.sync(member.me)

    def _send(self, member: Member, message: Message) -> None:
        check_sent(self.facts, message, member.disk.durable())
        self.messages.append(message)
        self.sent.append(message)

    def _apply(self, member: Member, batch: Batch) -> None:
        """Apply a committed batch, which must be the same on every member."""
        place = len(member.applied)
        end = member.applied[-1].end if member.applied else Index(1)
        assert batch.first_index == end, f"{member.me} applied up to {end}, now {batch!r}"
        member.applied.append(batch)
        if place < len(self.applied):
            assert bytes(self.applied[place].buffer) == bytes(batch.buffer), f"{member.me} applies {batch!r}"
        else:
            self.applied.append(batch)

    # -- Inspection ------------------------------------------------------------------------------------------

    def leaders(self) -> list[NodeId]:
        """Return the members that consider themselves leaders."""
        return [member.me for member in self.up() if member.core.role is Role.LEADER]

    def values(self, me: str) -> list[bytes]:
        """Return the values of the records that a member has applied."""
        return [value for batch in self[me].applied if batch.kind is Kind.RECORDS for value in batch.values()]

    def is_running(self, me: str) -> bool:
        """Return whether a member is RUNNING."""
        return self[me].core.lifecycle is Lifecycle.RUNNING


def with_slow_disks(leader: str = "n1") -> Group:
    """Return a RUNNING group of three, in which a write is durable only after :meth:`Group.sync` from now on."""
    group = Group(3)
    group.elect(leader)
    group.run(3)
    group.is_quick_disk = False
    return group
