"""The applier: runs committed batches through the state machine, in order, and answers the calls that wait for them.

Actors' commands call the user's code, and a member that catches up gets thousands of them at a time. So a turn applies
only a part of the committed batches, and heartbeats, votes and appends are handled in between.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.state import SnapshotPoint
from viewstamp.errors import RequestError, ViewstampError
from viewstamp.host.interfaces import Clock
from viewstamp.ids import Index, Sequence, SessionId, Term
from viewstamp.node.state_machine import Result, StateMachine
from viewstamp.wire.batch import Batch, Kind

__all__ = ["Answer", "Applier", "resolve"]

Answer = Callable[[Result | ViewstampError], None]
"""Called once with the outcome of a proposal."""

_TURN_BYTES = 64 * 1024
"""Bytes of actors' commands that are applied in one turn: some thousand calls, a few milliseconds."""
_FOLLOWED = frozenset(
    {
        *(Kind.FORK_GROUPS, Kind.SPREAD_TOPIC, Kind.CONFIGURE_SPREAD, Kind.CONFIGURE_SPREAD_SCHEMA),
        *(Kind.CONFIGURE_SPREAD_ARCHIVE, Kind.TRIM_SPREAD),
        *(Kind.ADD_STREAM, Kind.CLOSE_STREAM, Kind.SEALED_STREAM, Kind.LOSE_STREAM, Kind.LOSE_SEALED_STREAM),
        Kind.GONE_STREAM,
        *(Kind.HOST_GROUP, Kind.UNHOST_GROUP, Kind.LEFT_GROUP),
        *(Kind.RECOVER_ORDER, Kind.REMOVE_GROUP),
    }
)
"""Records about topics with streams and hosts of groups, which other groups follow, and about the end of a group."""
_ORDERING = frozenset({Kind.ORDER, Kind.CONTEXT})
"""Records about the global positions of streams, for which callers wait."""
_CHAINS_KEPT = 8192
"""Batches whose chains are kept. Older reports of other members are not compared, because the next report can be."""


class Applier:
    """Follows the commit index.

    Invariants:
      * ``applied_end`` only grows; every batch before it has been applied once, or is in the snapshot that was adopted
      * committed batches that are not applied are in ``pending``, in order
      * each waiting call is answered once: by a result, by ``fail``, or when ``applied_end`` passes its index
    """

    def __init__(self, machine: StateMachine, clock: Clock) -> None:
        self.machine = machine
        self.applied_end = Index(1)
        self.applied_term = Term(0)
        """The term of the last record applied."""
        self.log_time = 0
        """The log time of the last batch applied."""
        self.membership: MembershipEntry | None = None
        """The membership in force at ``applied_end``; None = no record and no snapshot had one yet."""
        self.placements = 0
        """Number of applied records about groups and streams, and of adopted snapshots; the replica reports each."""
        self.orders = 0
        """Number of applied records about global positions, and of adopted snapshots; the replica reports each."""
        self.decisions = 0
        """Number of applied COMMIT_PARTS, and of adopted snapshots; the replica reports each."""
        self.unsaved_bytes = 0
        """Bytes of the batches applied since the newest snapshot's cut, which a restart has to apply again."""
        self.unsaved_seconds = 0.0
        """Seconds that applying those took here, and will take about again."""
        self.due_bytes = math.inf
        """``due`` is set, once, when ``unsaved_bytes`` reaches this."""
        self.due = asyncio.Event()
        """Set when a snapshot is due; its waiter clears it."""
        self.pending: deque[Batch] = deque()
        """Committed batches, in order, that the next turns apply; the replica appends to it."""
        self.chains: deque[tuple[Index, int, int]] = deque(maxlen=_CHAINS_KEPT)
        """(end, chain, lineage) after each of the newest batches applied in turns, rising; a new deque with each
        snapshot that is adopted."""
        self._clock = clock
        self._proposals: dict[Index, Answer] = {}
        self._retries: dict[tuple[SessionId, Sequence], list[Answer]] = {}
        self._waiting: list[tuple[Index, int, _Waiter]] = []
        self._tiebreak = count()
        self._gone = 0
        """Number of entries of ``_waiting`` that were given up."""

    def apply_turn(self) -> None:
        """Apply a part of ``pending``, limited by ``_TURN_BYTES``. Never awaits.

        Raises:
          CorruptionError: a batch contradicts the state; the node stops.
          OutdatedCodeError: it holds a command that this release does not have; the node stops.
          anything else: user code failed for a reason of this machine, for example its memory; the node stops.
        """
        pending, machine = self.pending, self.machine
        left, lineage = _TURN_BYTES, machine.lineage
        started = self._clock.monotonic()
        while pending and left > 0:
            batch = pending.popleft()
            self._apply(batch)
            if batch.kind is Kind.COMMANDS or batch.kind is Kind.INSTANCES:
                left -= batch.size
                lineage = machine.lineage  # Only these change it.
            self.chains.append((batch.end, machine.chain, lineage))
        self.unsaved_seconds += self._clock.monotonic() - started
        if self._waiting:
            self._call_waiting()
        if self.unsaved_bytes >= self.due_bytes:
            self.due_bytes = math.inf
            self.due.set()

    def apply_to(self, pending: deque[Batch], commit_end: int) -> None:
        """Take the batches below ``commit_end`` out of ``pending`` and apply them; see :meth:`apply_turn`."""
        started = self._clock.monotonic()
        while pending and pending[0].end <= commit_end:
            self._apply(pending.popleft())
        self.unsaved_seconds += self._clock.monotonic() - started

    def _apply(self, batch: Batch) -> None:
        assert batch.first_index == self.applied_end, f"{batch!r} after {self.applied_end}"
        try:
            result: Result | ViewstampError = self.machine.apply(batch)
        except RequestError as error:
            result = error  # A deterministic refusal is the replicated result.
        self.applied_end = batch.end
        self.applied_term = batch.term
        self.log_time = batch.log_time
        self.unsaved_bytes += batch.size
        if batch.kind is Kind.MEMBERSHIP:
            membership = Membership.decode(batch.values()[0])
            self.membership = MembershipEntry(batch.first_index, batch.term, membership)
        elif Kind.PLACE_GROUP <= batch.kind <= Kind.CANCEL_GROUP or batch.kind in _FOLLOWED:
            self.placements += 1
        elif batch.kind in _ORDERING:
            self.orders += 1
        elif batch.kind is Kind.COMMIT_PARTS:
            self.decisions += 1
        answer = self._proposals.pop(batch.first_index, None)
        if answer is not None:
            answer(result)
        if self._retries and batch.kind in (Kind.RECORDS, Kind.COMMANDS, Kind.STAGED):
            for retry in self._retries.pop((batch.session, batch.sequence), ()):
                retry(result)

    def adopt(self, prepared: object, point: SnapshotPoint) -> None:
        """Replace the state by a snapshot's, which holds everything before its end. Calls waiting for that are made."""
        self.pending.clear()
        self.chains = deque(maxlen=_CHAINS_KEPT)
        self.machine.adopt(prepared)
        self.applied_end = point.end
        self.applied_term = point.last_term
        self.log_time = point.log_time
        self.membership = point.membership
        self.placements += 1
        self.orders += 1
        self.decisions += 1
        self.unsaved_bytes, self.unsaved_seconds = 0, 0.0
        self._call_waiting()

    def _call_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] < self.applied_end:
            waiter = heappop(self._waiting)[2]
            call, waiter.call = waiter.call, None
            if call is not None:
                call()
            else:
                self._gone -= 1

    def answer_when_applied(self, index: Index, answer: Answer) -> None:
        """Answer the proposal whose batch starts at ``index``."""
        self._proposals[index] = answer

    def answer_retry(self, session: SessionId, sequence: Sequence, answer: Answer) -> None:
        """Answer a retry when the original batch, which is in the log, is applied."""
        self._retries.setdefault((session, sequence), []).append(answer)

    def call_when_applied(self, index: Index, call: Callable[[], None]) -> Callable[[], None]:
        """Call ``call`` when ``index`` has been applied, now if it has been. Returns a function that gives it up.

        Calls that were given up are dropped soon, also if the index is far away, because a log may be idle for days
        while readers come and go.
        """
        if index < self.applied_end:
            call()
            return _nothing
        waiter = _Waiter(call)
        heappush(self._waiting, (index, next(self._tiebreak), waiter))

        def give_up() -> None:
            if waiter.call is None:
                return
            waiter.call = None
            self._gone += 1
            if 2 * self._gone > len(self._waiting):
                self._waiting = [entry for entry in self._waiting if entry[2].call is not None]
                heapify(self._waiting)
                self._gone = 0

        return give_up

    @property
    def held_waiters(self) -> int:
        """Number of calls that wait for an index, including those that were given up and are not dropped yet."""
        return len(self._waiting)

    def fail(self, error: ViewstampError) -> None:
        """Fail all waiting proposals with ``error``, which leaves open whether they are committed."""
        answers = [*self._proposals.values(), *(answer for retries in self._retries.values() for answer in retries)]
        self._proposals = {}
        self._retries = {}
        for answer in answers:
            answer(error)


class _Waiter:
    """A call that waits for an index; ``call`` None = made, or given up."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call


def resolve(future: asyncio.Future[None]) -> None:
    """Resolve a waiter's future, unless it has been cancelled or has timed out."""
    if not future.done():
        future.set_result(None)


def _nothing() -> None:
    """Do nothing, because the call has been made and cannot be given up."""
