"""The applier: runs committed batches through the state machine, in order, and answers those who wait for them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from viewstamp.errors import RequestError, ViewstampError
from viewstamp.ids import Index, Sequence, SessionId
from viewstamp.node.state_machine import Result, StateMachine
from viewstamp.wire.batch import Batch, Kind

__all__ = ["Answer", "Applier"]

Answer = Callable[[Result | ViewstampError], None]
"""Told once what became of a proposal."""


class Applier:
    """Follows the commit index.

    Invariants:
      * ``applied_end`` only grows; every batch before it has been applied once
      * whoever waits is answered once: by a result, by ``fail``, or by ``applied_end`` passing their index
    """

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self.applied_end = Index(1)
        self._proposals: dict[Index, Answer] = {}
        self._retries: dict[tuple[SessionId, Sequence], list[Answer]] = {}
        self._waiting: list[tuple[Index, int, _Waiter]] = []
        self._tiebreak = count()
        self._gone = 0
        """How many of those in ``_waiting`` do not wait any more."""

    def apply(self, batches: list[Batch]) -> None:
        """Apply committed ``batches``, which follow on each other. Never awaits.

        Raises:
          CorruptionError: a batch contradicts the state; the node stops.
        """
        for batch in batches:
            assert batch.first_index == self.applied_end, f"{batch!r} after {self.applied_end}"
            try:
                result: Result | ViewstampError = self.machine.apply(batch)
            except RequestError as error:
                result = error  # A deterministic refusal is the replicated result.
            self.applied_end = batch.end
            answer = self._proposals.pop(batch.first_index, None)
            if answer is not None:
                answer(result)
            if self._retries and batch.kind is Kind.RECORDS:
                for retry in self._retries.pop((batch.session, batch.sequence), ()):
                    retry(result)
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
        """Answer a retry when the batch it repeats, which is in the log, is applied."""
        self._retries.setdefault((session, sequence), []).append(answer)

    def call_when_applied(self, index: Index, call: Callable[[], None]) -> Callable[[], None]:
        """Call ``call`` as soon as ``index`` has been applied; at once if it has. Return what gives that up.

        Who gives up is forgotten, however far the index is: a log may be idle for days, and readers come and go.
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
        """How many that wait for an index are held, those included that have given up and were not cleared yet."""
        return len(self._waiting)

    def fail(self, error: ViewstampError) -> None:
        """Tell everybody who waits for a proposal that this node will not answer it; ``error`` does not say "no"."""
        answers = [*self._proposals.values(), *(answer for retries in self._retries.values() for answer in retries)]
        self._proposals = {}
        self._retries = {}
        for answer in answers:
            answer(error)


class _Waiter:
    """Somebody who waits for an index; ``call`` None = called, or given up."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call


def _nothing() -> None:
    """There is nothing to give up: it has been called."""
