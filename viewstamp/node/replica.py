"""``Replica``: the actor that runs the role state machine. It is the only owner of one core and one log.

A turn steps all arrived messages, takes one ``Ready``, and carries it out:

1. messages that promise nothing are sent immediately (the followers write while this node does);
2. the writes go to the log store; messages that promise durability are sent when the writes are durable;
3. committed batches are applied, as many as a turn may take, and answered;
4. reads that are confirmed and applied are released.

The process may die between any two steps, because no message promises records that are not durable. Then the other
members may still commit proposals that this one has not answered. A caller that is cancelled only loses the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from viewstamp.actors import Actor
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import (
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
)
from viewstamp.consensus.quiet import completion_may_wait, is_quiet_longest, only_counts, response_may_wait
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import Ready
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import (
    BrokenRuleError,
    ClosedError,
    NotLeaderError,
    OutcomeUnknownError,
    PositionMismatchError,
    StorageFullError,
    ViewstampError,
)
from viewstamp.host.interfaces import Clock
from viewstamp.host.logger import Logger
from viewstamp.ids import Index, NodeId, Term, Viewstamp
from viewstamp.node.access import Credentials
from viewstamp.node.alarms import Alarms
from viewstamp.node.applier import Answer, Applier
from viewstamp.node.changes import ChangeMembers, MembershipChanges, Transfer
from viewstamp.node.health.latency import LatencyGauge
from viewstamp.node.inbox import (
    FromPeer,
    InstallSnapshot,
    Item,
    Join,
    LogTrimmed,
    LostPeer,
    Proposal,
    RememberPeer,
    WaitForIndex,
)
from viewstamp.node.log_clock import LogClock
from viewstamp.node.log_space import LogSpace
from viewstamp.node.log_store import LogStore
from viewstamp.node.peers.identity import joining_change
from viewstamp.node.ports import GroupControl, LogFetchPort, PeerPort, SnapshotOfferPort, SnapshotPort
from viewstamp.node.read_index import ReadIndex
from viewstamp.node.state_machine import Accepted, Answered, CommandResults, OutcomeQuery, Placement, Result
from viewstamp.node.ticker import Ticker
from viewstamp.value_class import value_class
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch

__all__ = ["Replica"]


@dataclass(slots=True, eq=False)
class _Durable:
    """The writes of one Ready, and all before them, are durable."""

    viewstamp: Viewstamp
    messages: list[Message]


@value_class(kw_only=False)
class _Tick:
    """Time has passed."""


@value_class(kw_only=False)
class _Beat:
    """The leaders of all groups of this node send their heartbeats now."""


@value_class(kw_only=False)
class _CommitEnd:
    """The members of these nodes learn the commit end now."""

    names: frozenset[NodeId]


@value_class(kw_only=False)
class _DurableEnd:
    """The members of these nodes learn the durable end as soon as the log is durable up to its present end."""

    names: frozenset[NodeId]


@value_class(kw_only=False)
class _GoOn:
    """There is more to apply, or to ask for."""


_TICK = _Tick()
_BEAT = _Beat()
_GO_ON = _GoOn()

_UPKEEP_SECONDS = 1.0
"""Interval in which a leader calls ``StateMachine.upkeep``."""


class Replica(Actor[Item | _Durable | _Tick | _Beat | _CommitEnd | _DurableEnd | _GoOn]):
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
        group: GroupControl,
        peers: PeerPort,
        snapshots: SnapshotPort,
        offers: SnapshotOfferPort,
        log_fetches: LogFetchPort,
        space: LogSpace,
        log_clock: LogClock,
        clock: Clock,
        alarms: Alarms,
        tick_seconds: float,
        log: Logger,
    ) -> None:
        self.raft = raft
        self.applier = applier
        self.is_leading = False
        self.led_terms = 0
        self.latency = LatencyGauge()
        """The lateness of this member; other code only reads it."""
        self.send: Callable[[Message], None] = peers.send
        """Sends messages to peers; checkers replace it to see them."""
        self._log_store = log_store
        self._wal = wal
        self._group = group
        self._peers = peers
        self._snapshots = snapshots
        self._offers = offers
        self._log_fetches = log_fetches
        self.space = space
        self._log_clock = log_clock
        self._clock = clock
        self._to_install: InstallSnapshot | None = None
        self._put: Callable[[_Durable], None] = _not_started
        """Puts a durable notice into the mailbox; looked up only once, because each write uses it."""
        self._put_quietly: Callable[[_Durable | FromPeer], None] = _not_started
        self._maybe_tell: Callable[[FromPeer], bool] = _not_started
        self._tell_now: Callable[[FromPeer], None] = _not_started
        self._counted: FromPeer | None = None
        """The heartbeat that only counts, while it is being taken."""
        self._ticker = Ticker(clock, tick_seconds, lambda seconds: alarms.set(seconds, self._ring))
        self._upkeep_ticks = max(1, round(_UPKEEP_SECONDS / tick_seconds))
        self._upkeep_due = 0
        """The tick of the next upkeep."""
        self._logger = log
        self._reads = ReadIndex(raft)
        self._has_leases = raft.core.options.lease_us > 0 or raft.core.held_back_us > 0
        self._changes = MembershipChanges(raft)
        self._known: tuple[NodeId | None, type, Term, Lifecycle, Membership] | None = None
        """The state in the last call of ``GroupControl.on_change``."""
        self._placements = 0
        """``Applier.placements`` when it was last reported."""
        self._orders = 0
        """``Applier.orders`` when it was last reported."""
        self._decisions = 0
        """``Applier.decisions`` when it was last reported."""
        self._ahead_end = Index(0)
        """``Core.ahead_end`` when it was last reported."""
        self._seen: tuple[object, ...] = ()
        """The values from which ``_known`` was last computed."""
        self._unhandled: list[Item | _Durable | _Tick | _Beat | _CommitEnd | _DurableEnd | _GoOn] = []
        """Messages that are never handled, because their turn failed or this replica ends; see :meth:`on_stop`."""

    # -- Turns ----------------------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Begin to tick."""
        ref = self.ref
        self._put, self._put_quietly, self._maybe_tell = ref.put, ref.put_quietly, ref.maybe_tell
        self._tell_now = ref.tell_now
        self._ticker.plan(1)

    def _ring(self) -> None:
        self.ref.put(_TICK)

    def on_messages(self, messages: list[Item | _Durable | _Tick | _Beat | _CommitEnd | _DurableEnd | _GoOn]) -> None:
        """Step all arrived messages, then carry out one Ready."""
        if messages[0] is self._counted:
            self._count(self._counted)
            return
        self.space.turn_bytes = 0
        has_ticked, has_beaten, is_resting, rest = False, False, self._ticker.is_resting, iter(messages)
        try:
            if self._has_leases:
                self.raft.begin_turn(int(self._clock.uptime() * 1e6))
            if is_resting and self._clock.monotonic() - self._ticker.counted_at >= self._ticker.tick_seconds:
                has_ticked = True
                self._catch_up()
            for item in rest:
                match item:
                    case FromPeer():
                        has_beaten = has_beaten or item.is_beat
                        self._on_message(item)
                    case Proposal(batch, answer, caller):
                        self._on_proposal(batch, answer, caller)
                    case _Durable(viewstamp, after):
                        self.raft.durable(viewstamp)
                        if after:
                            self._send_after_durable(after)
                    case WaitForIndex(barrier):
                        self._reads.unasked.append(barrier)
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
                        has_ticked = True
                        self._on_tick()
                    case _Beat():
                        has_beaten = True
                        self.raft.beat()
                    case _CommitEnd(names):
                        self.raft.tell_commit_end(names)
                    case _DurableEnd(names):
                        self.raft.tell_durable_end(names)
                    case _GoOn():
                        pass
        except Exception:
            self._unhandled += rest  # Otherwise their senders would wait for ever.
            raise
        if self._to_install is not None:
            self._maybe_install(self._to_install)
        reads, applier, core = self._reads, self.applier, self.raft.core
        if reads.asked or reads.unasked:
            reads.ask(self._ticker.count)
        ready = self.raft.ready()
        if ready is not None:
            self._act(ready)
            if reads.unasked and not reads.asked:
                self.ref.put(_GO_ON)  # Reads that waited for the answer of this turn are asked for in the next one.
        if applier.pending:
            applier.apply_turn()
            if applier.pending:
                self.ref.put(_GO_ON)
        if applier.placements != self._placements:
            self._placements = applier.placements
            self._group.on_placement()
        if applier.orders != self._orders:
            self._orders = applier.orders
            self._group.on_order()
        if core.ahead_end != self._ahead_end:
            self._ahead_end = core.ahead_end
            if core.ahead_end:
                self._group.on_found()
        if applier.decisions != self._decisions:
            self._decisions = applier.decisions
            self._group.on_decision()
        if self._changes.waiting:
            self._changes.note()
        # Attributes instead of properties, because this runs in every turn.
        committed, newest = core.memberships[0], core.memberships[-1]
        is_committed, is_announced = committed.index < core.log.commit_end, core.announced_number > 0
        seen = (core.state, core.leader, core.term, committed, is_committed, is_announced, newest)
        if seen != self._seen:
            self._seen = seen
            self._note_change()
        if core.leader == core.me and not self.is_leading:
            self._maybe_begin_leading()
        if has_ticked or is_resting:
            self._plan_ticks(has_ticked=has_ticked, has_beaten=has_beaten)

    def _note_change(self) -> None:
        """Check whether the state that the node reports has changed, after a value that it depends on has."""
        core = self.raft.core
        known = (core.leader, type(core.state), core.term, core.lifecycle, core.membership)
        if known != self._known:
            self._on_change(known)

    def on_dropped(self, messages: list[Item | _Durable | _Tick | _Beat | _CommitEnd | _DurableEnd | _GoOn]) -> None:
        """Keep the messages that arrived too late, for :meth:`on_stop`, which has the cause."""
        self._unhandled += messages

    def on_stop(self, error: BaseException | None) -> None:
        """Answer all pending requests: this member stops, or has failed because of ``error``.

        Nothing was written of those that were never handled. The outcome of the others is unknown.
        """
        self._ticker.stop()
        why = "is stopping" if error is None else f"has failed: {error!r}"
        refusal = ClosedError(f"{self.raft.core.me} {why}; nothing was written", remedy="ask another node")
        for item in self._unhandled:
            if isinstance(item, Proposal):
                item.answer(refusal)
            elif isinstance(item, ChangeMembers | Transfer):
                item.told(refusal)
        self._stop_leading(why)
        self._changes.fail(
            OutcomeUnknownError(
                f"{self.raft.core.me} {why}; the change may still be committed",
                token=None,
                remedy="check with `viewstamp members list`",
            )
        )

    def _act(self, ready: Ready) -> None:
        for message in ready.messages:
            self.send(message)
        if ready.durable is not None:
            done = _Durable(ready.durable, ready.messages_after_durable)
            self.latency.writing.append(self._clock.monotonic())
            if ready.writes:
                self._log_store.persist(ready.writes, partial(self._on_written, done))
            else:
                # Nothing to write now, but earlier writes may not be durable yet: wait until they are.
                self._wal.run(_nothing, partial(self._on_written, done))
        if ready.offer is not None:
            self._offers.offer(ready.offer)
        if ready.superseded:
            self._group.on_superseded(ready.superseded)
        if ready.committed:
            self.applier.pending.extend(ready.committed)
            # Written into the next group's header, limited there to the durable end (protocol rule 8).
            self._wal.commit_hint = ready.committed[-1].end
        for token, index in ready.reads:
            for barrier in self._reads.on_index(token, self._ticker.count):
                self.applier.call_when_applied(index, barrier.release)
        for fetch in ready.fetches:
            self._log_fetches.begin(fetch)

    def _on_written(self, done: _Durable, error: BaseException | None) -> None:
        """Note durable writes. Called on the event loop; ``Wal.start(on_failed)`` handles a failure."""
        if error is None:
            self.latency.ended_write(self._clock.monotonic())
            is_busy = self.is_leading and not self._ticker.is_resting
            may_wait = is_busy and not done.messages and completion_may_wait(self.raft.core)
            (self._put_quietly if may_wait else self._put)(done)

    def on_response(self, item: FromPeer, response: AppendResponse) -> None:
        """Take a response of a follower, as a message to ``ref``; without a turn if it changes nothing by itself."""
        if self.is_leading and not self._ticker.is_resting and response_may_wait(self.raft.core, response):
            self._put_quietly(item)
        else:
            self._maybe_tell(item)

    def on_beat(self, item: FromPeer, message: HeartbeatRequest | HeartbeatResponse) -> None:
        """Take a heartbeat of a BEATS frame, or its response, as a message to ``ref``; at less cost if it only counts.

        A follower then answers in a short turn: while it rests, it has nothing to apply, to ask for or to install, so
        nothing else of a turn is due. A leader steps responses in the turn of its next beat.
        """
        is_resting = self._ticker.is_resting and not self._has_leases
        if not is_resting or not only_counts(self.raft.core, message):
            self._maybe_tell(item)
        elif isinstance(message, HeartbeatResponse):
            self._put_quietly(item)
        elif self._ticker.is_due:
            self._maybe_tell(item)
        else:
            self._counted = item
            self._tell_now(item)
            self._counted = None

    def _count(self, item: FromPeer) -> None:
        """Take a turn for a heartbeat that only counts."""
        raft, core, ticks = self.raft, self.raft.core, self._ticker.catch_up()
        if ticks:
            raft.tick(core.wall_us, has_room=core.has_room, ticks=ticks)
        raft.step(item.message)
        ready = raft.ready()
        if ready is not None:
            self._act(ready)
        self._ticker.plan(raft.quiet_ticks(), moves=True)

    # -- Inputs ---------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Send the heartbeats of this leader in its next turn, if it is idle. Never awaits."""
        self.ref.put(_BEAT)

    def tell_commit_end(self, names: frozenset[NodeId]) -> None:
        """Send the commit end in the next turn to members of these nodes that it would reach with the next tick.

        Never awaits.
        """
        self.ref.put(_CommitEnd(names))

    def tell_durable_end(self, names: frozenset[NodeId]) -> None:
        """Let members of these nodes find the commit of what was proposed here; see :meth:`Raft.tell_durable_end`.

        Never awaits.
        """
        self.ref.put(_DurableEnd(names))

    def _on_message(self, item: FromPeer) -> None:
        message = item.message
        if isinstance(message, AppendRequest) and message.batches:
            batches = self.space.fitting(message.batches)
            if not batches:
                return  # Drop the message: the leader retransmits it, and by then there may be room.
            if len(batches) < len(message.batches):
                message = replace(message, batches=batches)  # The leader goes on after them at its next heartbeat.
        try:
            self.raft.step(message)
        except BrokenRuleError as error:  # Nothing has changed. (A ContradictionError stops this node.)
            if item.refuse is not None:
                item.refuse(error)

    def _send_after_durable(self, messages: list[Message]) -> None:
        for message in messages:
            if message.target == self.raft.core.me:
                self.raft.step(message)
            else:
                self.send(message)

    def _on_join(self, join: Join) -> None:
        """Take the next step of adding a node that lost its disk. The node repeats its request until it is added.

        It has only the addresses in its settings, and the leader may not be among them, so members forward requests.
        """
        raft, member = self.raft, join.member
        if raft.core.leader != raft.core.me:
            if raft.core.leader is not None and join.is_direct:
                self._peers.pass_on(raft.core.leader, member, join.address)
            return
        change = joining_change(raft.core.membership, member, join.address, is_heard=raft.is_responding)
        if change is None:
            self._group.on_join(join)
        else:
            with suppress(ViewstampError):
                self.raft.change(change)
                self._logger.warning("= a node that lost its disk joins anew", member=member, change=str(change))

    def _on_tick(self) -> None:
        now = self._clock.monotonic()
        ticks, late = self._ticker.on_timer(now)
        self.latency.ticked(now, late)
        self._pass_ticks(ticks)

    def _catch_up(self) -> None:
        """Count the ticks of a rest that a message ends early."""
        ticks, core = self._ticker.catch_up(), self.raft.core
        if ticks == 0:
            return
        if core.leader == core.me:
            self._pass_ticks(ticks)
        else:  # Ticks of a quiet follower only count. It checks clock and free space when the timer fires.
            self.raft.tick(core.wall_us, has_room=core.has_room, ticks=ticks)

    def _pass_ticks(self, ticks: int) -> None:
        count = self.space.tick = self._ticker.count
        self.raft.tick(self._log_clock.tick(), has_room=self.space.can_lead, ticks=ticks)
        if self.is_leading and count >= self._upkeep_due:
            self._upkeep_due = count + self._upkeep_ticks
            core = self.raft.core
            batch = self.applier.machine.upkeep(core.log_time, max(core.log_time, core.wall_us))
            if batch is not None:
                self._on_proposal(batch, _ignore)

    def _plan_ticks(self, *, has_ticked: bool, has_beaten: bool) -> None:
        """Sleep until the next tick in which the core, or another part of a turn, has work.

        The timer is never set further ahead than a core can be quiet. So if no tick was counted in this turn, and the
        core is quiet for that long, the timer need not change. A beat moves it on the leader, because it was set for
        the heartbeats that have just been sent, and on a follower, because the next beat comes before the new time. So
        the timers of idle followers do not fire.
        """
        reads = self._reads
        waits = reads.asked or reads.unasked or self._changes.waiting or self._to_install or self.applier.pending
        if has_ticked or waits or not is_quiet_longest(self.raft.core):
            self._ticker.plan(1 if waits else self.raft.quiet_ticks(), moves=has_beaten)

    def _on_proposal(self, batch: Batch, answer: Answer, caller: Credentials | None = None) -> None:
        try:
            leading = self.raft.check_propose(batch.size)
            if not self.is_leading:
                raise self._not_leading("is still taking over")
            self.space.check(batch)
            admission = self.applier.machine.admit(batch, caller)
        except StorageFullError as error:
            self.space.note_full(error, batch.size)
            answer(self._known_outcome(batch, error, caller))
            return
        except ViewstampError as error:
            answer(error)
            return
        except Exception:
            self._unhandled.append(Proposal(batch, answer, caller))
            raise
        match admission:
            case Accepted(first_position, instead):
                batch = instead or batch
                batch.first_position = first_position
                self.raft.append_checked(leading, batch)
                self.space.admitted(batch.size)
                self.applier.answer_when_applied(batch.first_index, answer)
            case Answered(result):
                answer(result)
            case _:
                self.applier.answer_retry(batch.session, batch.sequence, answer)

    def _known_outcome(
        self, batch: Batch, refusal: StorageFullError, caller: Credentials | None
    ) -> Result | ViewstampError:
        """Answer a retry of an applied batch although the log is full; refuse everything else.

        The batch was not admitted, so its caller has not been checked yet.
        """
        machine, is_alive = self.applier.machine, True
        if caller is not None and machine.gate.access.is_on:
            try:
                machine.gate.check_sender(caller, batch)
            except ViewstampError as error:
                return error
            is_alive = caller.is_alive
        try:
            outcome = machine.query(OutcomeQuery(batch.session, batch.sequence, batch.topic, batch.first_position))
        except PositionMismatchError as error:
            return error
        except ViewstampError:
            return refusal
        assert outcome is None or isinstance(outcome, Placement | CommandResults)
        if isinstance(outcome, CommandResults) and not is_alive:
            return CommandResults(outcome.receipt, None)
        return outcome

    # -- Leading --------------------------------------------------------------------------------------------

    def _maybe_install(self, item: InstallSnapshot) -> None:
        """Install a snapshot when no write is in flight, unless it is not needed any more."""
        taken = self.raft.install(item.point)
        if taken is None:
            return
        self._to_install = None
        if taken:
            self._logger.info("= snapshot installed", index=item.point.end - 1)
            self._snapshots.let_go()
            self.applier.adopt(item.prepared, item.point)

    def _maybe_begin_leading(self) -> None:
        """Admit proposals when this member leads, is RUNNING, and has applied all records of earlier terms."""
        core = self.raft.core
        if core.lifecycle is not Lifecycle.RUNNING or self.applier.applied_end < core.log.commit_end:
            return
        self.applier.machine.begin_leading()
        self.is_leading = True
        self.led_terms += 1
        self._group.on_change()

    def _on_change(self, known: tuple[NodeId | None, type, Term, Lifecycle, Membership]) -> None:
        """Log the new state, fail the proposals of a term in which this member leads no more, and notify the node."""
        core, before = self.raft.core, self._known
        self._known = known
        was_leader_of = before[2] if before is not None and before[0] == core.me else None
        self._logger.info(
            "= state",
            term=core.term,
            role=core.role.value,
            leader=core.leader,
            lifecycle=core.lifecycle.value,
            end=core.log.end,
        )
        if core.leader == core.me and core.leading.elected_without:
            self._logger.error(
                "! elected by members that lost power: acknowledged records may be lost",
                missing=", ".join(core.leading.elected_without),
                remedy="the missing members move records that the group does not have to damaged-<n> in their data_dir",
            )
            core.leading.elected_without = ()
        if was_leader_of is not None and (core.leader != core.me or core.term != was_leader_of):
            self._stop_leading("does not lead any more")
        self._group.on_change()

    def _stop_leading(self, why: str) -> None:
        if self.is_leading:
            self.is_leading = False
            self.applier.machine.stop_leading()
        self.applier.fail(
            OutcomeUnknownError(
                f"{self.raft.core.me} {why}; records in its log may still be committed",
                token=None,
                remedy="ask the leader, in the same session, for the outcome",
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

    @property
    def held_readers(self) -> int:
        """Linearizable reads that wait for a leader to confirm them."""
        return self._reads.held

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status`` of this member."""
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
            "full": self.space.status,
            "clock": self._log_clock.status,
            **self.latency.status(self._clock.monotonic()),
        }


def _ignore(_: Result | ViewstampError) -> None:
    """Do nothing, because the state machine repeats a proposal of its own that was refused."""


def _not_started(_: object) -> NoReturn:
    raise AssertionError("nothing is written before the replica runs")


def _nothing() -> None:
    """Do nothing; the job only marks its place in the executor's queue."""
