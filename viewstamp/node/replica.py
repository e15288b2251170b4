"""``Replica``: the actor that runs the role state machine. It owns one core and one log; nobody else touches them.

A turn steps everything that arrived, takes one ``Ready``, and does as it says:

1. what may leave at once leaves (the followers write while this node does);
2. the writes go to the log store; what promises durability leaves when they are durable;
3. what is committed is applied, as much as a turn may take, and answered;
4. reads that are confirmed and applied are released.

The process may die between any two lines: nothing was said that is not durable, and what was not said may
still be done by the others. A caller that is cancelled only gives up the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from viewstamp.actors import Actor
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import AppendRequest, BatchesRead, Message, SnapshotOffer
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import Fetch, Ready
from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.state import SnapshotPoint
from viewstamp.errors import (
    BrokenRuleError,
    ClosedError,
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    StorageFullError,
    ViewstampError,
)
from viewstamp.host.interfaces import Clock
from viewstamp.host.logger import Logger
from viewstamp.ids import Index, NodeId, Term, Viewstamp
from viewstamp.node.applier import Answer, Applier
from viewstamp.node.changes import ChangeMembers, MembershipChanges, Transfer
from viewstamp.node.health.headroom import Headroom
from viewstamp.node.health.latency import LatencyGauge
from viewstamp.node.log_clock import LogClock
from viewstamp.node.log_store import LogStore
from viewstamp.node.peers.identity import joining_change
from viewstamp.node.state_machine import Accepted, Answered, CommandResults, OutcomeQuery, Placement, Result
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, Kind

__all__ = [
    "FromPeer",
    "InstallSnapshot",
    "Item",
    "Join",
    "LogTrimmed",
    "LostPeer",
    "Proposal",
    "RememberPeer",
    "Replica",
    "WaitForIndex",
    "resolve",
]


@dataclass(slots=True, eq=False)
class FromPeer:
    """A consensus message has arrived; ``refuse`` ends the connection that it came over, None = it came over none."""

    message: Message
    refuse: Callable[[ViewstampError], None] | None = None


@dataclass(slots=True, eq=False)
class Proposal:
    """A client's batch, checked; ``answer`` is told once what became of it."""

    batch: Batch
    answer: Answer


@dataclass(frozen=True, slots=True)
class WaitForIndex:
    """A linearizable read: ``reader`` is resolved when this node has applied all that was committed when it asked.

    Who does not wait any more, with the future done, is forgotten.
    """

    reader: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class RememberPeer:
    """A peer was met for the first time: from now on it is known by this incarnation."""

    peer: NodeId
    incarnation: str


@dataclass(frozen=True, slots=True)
class LostPeer:
    """The process of a peer seems to be dead: its connection has ended, and nobody answers there."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """A leader's snapshot is durable here as a file, and ``prepared`` from it: let it stand for the log before it."""

    point: SnapshotPoint
    prepared: object


@dataclass(frozen=True, slots=True)
class LogTrimmed:
    """The log on disk begins at ``first_index`` now; ``base`` is (end, last term) of the snapshot before it."""

    first_index: Index
    base: tuple[Index, Term]


@dataclass(slots=True, eq=False)
class _Durable:
    """The writes of one Ready, and all before them, are durable."""

    viewstamp: Viewstamp
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class _Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class _GoOn:
    """There is more to apply."""


@dataclass(frozen=True, slots=True)
class _Question:
    """Reads that ``leader`` was asked about as one, in tick ``asked_at``; None = nobody could be asked."""

    leader: NodeId | None
    asked_at: int
    readers: list[asyncio.Future[None]]


@dataclass(frozen=True, slots=True)
class Join:
    """A reborn node asks to be added; ``is_direct``: by itself, so that who does not lead passes it on."""

    member: NodeId
    address: str
    is_direct: bool = True


Item = (
    FromPeer
    | Proposal
    | WaitForIndex
    | RememberPeer
    | LostPeer
    | Join
    | ChangeMembers
    | Transfer
    | InstallSnapshot
    | LogTrimmed
    | _Durable
    | _Tick
    | _GoOn
)

_TICK = _Tick()
_GO_ON = _GoOn()

_URGENT = frozenset(
    {
        Kind.TRIM_TOPIC,
        Kind.CONFIGURE_TOPIC,
        Kind.ABORT_ATTEMPTS,
        Kind.FORGET_SINK,
        Kind.EXPIRE_SESSIONS,
        Kind.MEMBERSHIP,
    }
)
"""What makes room, and the record of a new leader, without which nobody can make any: admitted into the last of it."""

_QUIET_SECONDS = 10.0
_UPKEEP_SECONDS = 1.0
"""How often a leader asks the state machine for what it should propose by itself."""

_LEADING_BYTES = 4096
"""What a leader may have to write without being able to refuse it: the membership record of its term."""


class Replica(Actor[Item]):
    """One member's replica of the log.

    Invariants:
      * ``is_leading`` only while the core leads, is RUNNING, and everything of earlier terms has been applied
      * a proposal is answered exactly once: applied, refused, or "this node does not lead any more"
    """

    def __init__(
        self,
        raft: Raft,
        log_store: LogStore,
        wal: Wal,
        applier: Applier,
        *,
        send: Callable[[Message], None],
        fetch: Callable[[Fetch], None],
        on_offer: Callable[[SnapshotOffer], None],
        pass_on: Callable[[NodeId, NodeId, str], None],
        on_install: Callable[[], None],
        on_superseded: Callable[[str], None],
        explain_full: Callable[[], str],
        is_behind: Callable[[], bool],
        clock: Clock,
        clock_bound_seconds: float,
        tick_seconds: float,
        log: Logger,
    ) -> None:
        self.raft = raft
        self.applier = applier
        self.is_leading = False
        self.led_terms = 0
        self.full: StorageFullError | None = None
        """Why this member takes no batches at present; None = it does."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after a turn in which role, term, leader, lifecycle or membership changed."""
        self._log_store = log_store
        self._wal = wal
        self.send = send
        """Where messages to peers go; checkers listen here."""
        self._fetch = fetch
        self._pass_on = pass_on
        """Tells the leader of one that asks to join."""
        self._on_offer = on_offer
        """Hears of a leader's snapshot that this member needs."""
        self._on_superseded = on_superseded
        """Called with the reason when this node has to set its log aside and begin anew."""
        self._on_install = on_install
        """Called before the state is replaced: whoever copies it has to let go."""
        self._explain_full = explain_full
        """Says what would make room in a full log."""
        self._is_behind = is_behind
        """Says whether a bounded log has to wait for a snapshot."""
        self.headroom = Headroom(raft, lambda: wal.bytes_left if wal.bytes_max else None)
        self._explained = (0, "")
        """The tick in which that was asked last, and what it said."""
        self._to_install: InstallSnapshot | None = None
        self.latency = LatencyGauge()
        """How late this member is; others only look."""
        self._clock = clock
        self.log_clock = LogClock(clock, raft.core, bound_seconds=clock_bound_seconds, log=log)
        """The time that records get; it has to be given the reports of other members."""
        self._tick_seconds = tick_seconds
        self._tick_due = 0.0
        """When the next tick should come."""
        self._read_retry_ticks = raft.core.patience.least
        """After so many ticks without an answer the leader is asked again; more where answers take longer."""
        self._upkeep_ticks = max(1, round(_UPKEEP_SECONDS / tick_seconds))
        self._quiet_ticks = round(_QUIET_SECONDS / tick_seconds)
        self._full_told_from = 0
        """From which tick on it is said again that the disk is full: a small batch may fit in between."""
        self._log = log
        self._reads: dict[int, _Question] = {}
        """What the leader has been asked and has not answered, by token, the oldest first."""
        self._unconfirmed: list[asyncio.Future[None]] = []
        self._token = 0
        self._ticks = 0
        self._turn_bytes = 0
        """Bytes of batches that this turn has taken, from a leader or clients: room is reserved for them at its end."""
        self._changes = MembershipChanges(raft)
        self._known: tuple[NodeId | None, type, Term, Lifecycle, Membership] | None = None
        """What ``on_change`` was called for last."""

    # -- Turns ----------------------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Begin to tick."""
        self._schedule_tick()

    def on_messages(self, messages: list[Item]) -> None:
        """Step everything that arrived, then act on one Ready."""
        self._turn_bytes = 0
        for item in messages:
            match item:
                case FromPeer():
                    self._on_message(item)
                case Proposal(batch, answer):
                    self._on_proposal(batch, answer)
                case _Durable(viewstamp, after):
                    self._on_durable(viewstamp, after)
                case WaitForIndex(reader):
                    self._unconfirmed.append(reader)
                case RememberPeer(peer, incarnation):
                    self._log_store.remember_peer(peer, incarnation)
                    self.raft.note_incarnation(peer, incarnation)
                case LostPeer(peer):
                    self.raft.lost_leader(peer)
                case Join():
                    self._on_join(item)
                case ChangeMembers():
                    self._changes.begin(item)
                case Transfer():
                    self._changes.begin_transfer(item)
                case InstallSnapshot():
                    self._to_install = item
                case LogTrimmed(first_index, base):
                    self.raft.trimmed(first_index, base)
                case _Tick():
                    self._on_tick()
                case _GoOn():
                    pass
        if self._to_install is not None:
            self._maybe_install(self._to_install)
        if self._reads or self._unconfirmed:
            self._ask_reads()
        ready = self.raft.ready()
        if ready is not None:
            self._act(ready)
        if not self.applier.is_idle:
            self.applier.apply_turn()
            if not self.applier.is_idle:
                self.ref.put(_GO_ON)
        self._changes.note()
        self._note_changes()

    def on_dropped(self, messages: list[Item]) -> None:
        """Answer proposals that came too late to be looked at: nothing of them was written."""
        for item in messages:
            if isinstance(item, Proposal):
                item.answer(ClosedError(f"{self.raft.core.me} is stopping", remedy="ask another node"))
            elif isinstance(item, ChangeMembers | Transfer):
                item.told(ClosedError(f"{self.raft.core.me} is stopping", remedy="ask another node"))

    def on_stop(self, error: BaseException | None) -> None:
        """Tell everybody who waits that this node answers no more."""
        self._stop_leading("this node is stopping")
        self._changes.fail(
            OutcomeUnknownError(
                f"{self.raft.core.me} is stopping: the change may still be committed",
                token=None,
                remedy="look with `viewstamp members list`",
            )
        )

    def _act(self, ready: Ready) -> None:
        for message in ready.messages:
            self.send(message)
        if ready.durable is not None:
            done = _Durable(ready.durable, ready.messages_after_durable)
            self.latency.began_write(self._clock.monotonic())
            if ready.writes:
                self._log_store.persist(ready.writes, lambda error: self._on_written(done, error))
            else:
                # Nothing to write now, but what was written before may be on its way: wait behind it.
                self._wal.run(_nothing, lambda error: self._on_written(done, error))
        if ready.offer is not None:
            self._on_offer(ready.offer)
        if ready.superseded:
            self._on_superseded(ready.superseded)
        if ready.committed:
            self.applier.hand_over(ready.committed)
            self._log_store.set_commit_end(ready.committed[-1].end)
        for token, index in ready.reads:
            question = self._reads.pop(token, None)
            if question is not None:
                self._set_read_retry(2 * (self._ticks - question.asked_at))
            for reader in question.readers if question is not None else ():
                self.applier.call_when_applied(index, partial(resolve, reader))
        for fetch in ready.fetches:
            self._fetch(fetch)

    def _on_written(self, done: _Durable, error: BaseException | None) -> None:
        """Hear from the writer, on the event loop; a failure stops the whole node by another way."""
        if error is None:
            self.latency.ended_write(self._clock.monotonic())
            self.ref.put(done)

    # -- Inputs ---------------------------------------------------------------------------------------------

    def _on_message(self, item: FromPeer) -> None:
        message = item.message
        if isinstance(message, AppendRequest) and not self._has_room(message.batches):
            return  # As if lost: the leader sends it again.
        try:
            self.raft.step(message)
        except BrokenRuleError as error:  # Nothing has changed. (A ContradictionError stops this node.)
            if item.refuse is not None:
                item.refuse(error)

    def _has_room(self, batches: tuple[Batch, ...]) -> bool:
        is_urgent = True
        for batch in batches:
            self._turn_bytes += batch.size
            is_urgent = is_urgent and batch.kind in _URGENT
        if batches and not is_urgent and self._is_behind():
            return False
        try:
            self._wal.check_room(self._turn_bytes, urgent=is_urgent)
        except StorageFullError as error:
            self._note_full(error)
            return False
        self.full = None
        return True

    def _note_full(self, error: StorageFullError) -> None:
        if self.full is None or self._explained[0] != self._ticks:  # Once a tick: it looks at every topic.
            self._explained = self._ticks, self._explain_full()
        if self._explained[1]:
            error.remedy = f"{self._explained[1]}; {error.remedy}"
        if self.full is None and self._ticks >= self._full_told_from:
            self._full_told_from = self._ticks + self._quiet_ticks
            self._log.error("! full", reason=error.message, remedy=error.remedy)
        self.full = error

    def _on_durable(self, viewstamp: Viewstamp, messages: list[Message]) -> None:
        self.raft.durable(viewstamp)
        for message in messages:
            if message.target == self.raft.core.me:
                self.raft.step(message)
            else:
                self.send(message)

    def _schedule_tick(self) -> None:
        self._tick_due = self._clock.monotonic() + self._tick_seconds
        self.schedule(self._tick_seconds, _TICK)

    def _on_join(self, join: Join) -> None:
        """Take the next step of adding a node that has lost its disk; it asks again.

        It knows the members of its settings only, and none of them may lead: they tell the leader.
        """
        raft, member = self.raft, join.member
        if raft.core.leader != raft.core.me:
            if raft.core.leader is not None and join.is_direct:
                self._pass_on(raft.core.leader, member, join.address)
            return
        change = joining_change(raft.core.membership, member, join.address, is_heard=raft.is_responding)
        if change is not None:
            with suppress(ViewstampError):
                self.raft.change(change)
                self._log.warning("= a node that lost its disk joins anew", member=member, change=str(change))

    def _on_tick(self) -> None:
        now = self._clock.monotonic()
        self.latency.ticked(now, now - self._tick_due)
        self._schedule_tick()
        self._ticks += 1
        self.raft.tick(self.log_clock.tick(), has_room=self._can_lead())
        if self.is_leading and self._ticks % self._upkeep_ticks == 0:
            core = self.raft.core
            batch = self.applier.machine.upkeep(core.log_time, max(core.log_time, core.wall_us))
            if batch is not None:
                self._on_proposal(batch, _ignore)

    def _can_lead(self) -> bool:
        """Say whether this node could write what a new leader has to: elected without room for it, it would fail."""
        try:
            self._wal.check_room(_LEADING_BYTES, urgent=True)
        except StorageFullError as error:
            self._note_full(error)
            return False
        return True

    def _on_proposal(self, batch: Batch, answer: Answer) -> None:
        try:
            self.raft.check_propose(batch.size)
            if not self.is_leading:
                raise self._not_leading("is still taking over")
            is_urgent = batch.kind in _URGENT
            if not is_urgent and self._is_behind():
                raise OverloadedError(
                    f"{self.raft.core.me} has to take a snapshot before its bounded log grows further",
                    remedy="try again in a moment",
                )
            self._wal.check_room(self._turn_bytes + batch.size, urgent=is_urgent, spared=self.headroom.spared_bytes)
            admission = self.applier.machine.admit(batch)
        except StorageFullError as error:
            self._note_full(error)
            answer(self._known_outcome(batch, error))
            return
        except ViewstampError as error:
            answer(error)
            return
        match admission:
            case Accepted(first_position, instead):
                batch = instead or batch
                self._turn_bytes += batch.size
                batch.first_position = first_position
                viewstamp = self.raft.propose(batch)
                self.headroom.admit(batch.size)
                self.applier.answer_when_applied(viewstamp.index, answer)
            case Answered(result):
                answer(result)
            case _:
                self.applier.answer_retry(batch.session, batch.sequence, answer)

    def _known_outcome(self, batch: Batch, refusal: StorageFullError) -> Result | ViewstampError:
        """Answer a retry of what was applied although nothing new can be written; everything else is refused."""
        try:
            outcome = self.applier.machine.query(OutcomeQuery(session=batch.session, sequence=batch.sequence))
        except ViewstampError:
            return refusal
        assert outcome is None or isinstance(outcome, Placement | CommandResults)
        return outcome

    # -- Reads ----------------------------------------------------------------------------------------------

    def _ask_reads(self) -> None:
        """Ask for the index of the reads that came this turn, as one; ask again for those that got no answer.

        At once where another one leads by now: who was asked may be dead.
        """
        while self._reads:
            token, question = next(iter(self._reads.items()))
            is_recent = self._ticks - question.asked_at < self._read_retry_ticks
            if is_recent and question.leader == self.raft.core.leader:
                break
            del self._reads[token]
            if not is_recent:
                self._set_read_retry(2 * self._read_retry_ticks)
            self._unconfirmed.extend(reader for reader in question.readers if not reader.done())
        if not self._unconfirmed:
            return
        self._token += 1
        self._reads[self._token] = _Question(self.raft.core.leader, self._ticks, self._unconfirmed)
        self._unconfirmed = []
        self.raft.read(self._token)

    def _set_read_retry(self, ticks: int) -> None:
        patience = self.raft.core.patience
        self._read_retry_ticks = min(max(patience.least, ticks), patience.most)

    # -- Leading --------------------------------------------------------------------------------------------

    def _maybe_install(self, item: InstallSnapshot) -> None:
        """Install a snapshot as soon as no write is under way, unless it has become useless meanwhile."""
        taken = self.raft.install(item.point)
        if taken is None:
            return
        self._to_install = None
        if taken:
            self._log.info("= snapshot installed", index=item.point.end - 1)
            self._on_install()
            self.applier.adopt(item.prepared, item.point)

    def _note_changes(self) -> None:
        self._look_for_changes()
        core = self.raft.core
        if not self.is_leading and core.leader == core.me and core.lifecycle is Lifecycle.RUNNING:
            if self.applier.applied_end < core.log.commit_end:
                return  # What earlier terms left is being applied: until then nothing is admitted.
            self.applier.machine.begin_leading()
            self.is_leading = True
            self.led_terms += 1
            self.on_change()

    def _look_for_changes(self) -> None:
        core, before = self.raft.core, self._known
        # Attributes instead of properties, because this runs in every turn.
        membership = core.memberships[-1].membership
        self._known = known = (core.leader, type(core.state), core.term, core.lifecycle, membership)
        if known == before:
            return
        was_leader_of = before[2] if before is not None and before[0] == core.me else None
        self._log.info(
            "= state",
            term=core.term,
            role=core.role.value,
            leader=core.leader,
            lifecycle=core.lifecycle.value,
            end=core.log.end,
        )
        if core.leader == core.me and core.leading.elected_without:
            self._log.error(
                "! elected by members that lost power: acknowledged records may be lost",
                missing=", ".join(core.leading.elected_without),
                remedy="the missing members set aside what the group does not have, as damaged-<n> in their data_dir",
            )
            core.leading.elected_without = ()
        if was_leader_of is not None and (core.leader != core.me or core.term != was_leader_of):
            self._stop_leading("does not lead any more")
        self.on_change()

    def _stop_leading(self, why: str) -> None:
        if self.is_leading:
            self.is_leading = False
            self.applier.machine.stop_leading()
        self.applier.fail(
            OutcomeUnknownError(
                f"{self.raft.core.me} {why}: what it had put into its log may still be committed",
                token=None,
                remedy="ask the leader, in the same session, what became of it",
            )
        )

    def _not_leading(self, why: str) -> NotLeaderError:
        core = self.raft.core
        leader = core.leader if core.leader != core.me else None
        return NotLeaderError(
            f"{core.me} {why}",
            leader=leader,
            address=core.membership.addresses.get(leader) if leader else None,
            remedy="send it again, in the same session, to the leader",
        )

    def on_batches_read(self, fetch: Fetch, batches: list[Batch]) -> None:
        """Take what was read from disk for a member that is far behind."""
        core = self.raft.core
        message = BatchesRead(
            source=core.me,
            target=core.me,
            term=fetch.term,
            member=fetch.member,
            number=fetch.number,
            start=fetch.start,
            batches=tuple(batches),
        )
        self.ref.put(FromPeer(message))

    @property
    def held_readers(self) -> int:
        """How many linearizable reads wait for a leader to confirm them; those that gave up only until the next try."""
        return len(self._unconfirmed) + sum(len(question.readers) for question in self._reads.values())

    def _full_now(self) -> list[str] | None:
        """Say why this member takes no batches, and what would help; looks again, as nobody may have asked it since."""
        if self.full is not None:
            with suppress(StorageFullError):
                self._wal.check_room(_LEADING_BYTES)
                self.full = None
        return None if self.full is None else [self.full.message, self.full.remedy]

    @property
    def status(self) -> dict[str, object]:
        """What ``viewstamp status`` shows of this member."""
        core = self.raft.core
        return {
            "role": core.role.value,
            "lifecycle": core.lifecycle.value,
            "term": core.term,
            "leader": core.leader,
            "history": [list(start) for start in core.history.starts],
            "commit_index": core.log.commit_end - 1,
            "applied_index": self.applier.applied_end - 1,
            "durable_index": core.log.durable_end - 1,
            "last_index": core.log.end - 1,
            "led_terms": self.led_terms,
            "silent_until": list(core.recovering_until) if core.recovering_until is not None else None,
            "lost_power": core.lost_power,
            "full": self._full_now(),
            "clock": self.log_clock.status,
            **self.latency.status(self._clock.monotonic()),
        }


def resolve(future: asyncio.Future[None]) -> None:
    """Tell who waits, if anybody still does."""
    if not future.done():
        future.set_result(None)


def _ignore(_: Result | ViewstampError) -> None:
    """What nobody asked for is asked for again where it was refused."""


def _nothing() -> None:
    """A job that only marks its place in the executor."""
