"""The applier: runs committed batches through the state machine, in order, and answers those who wait for them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
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
        self._waiting: list[tuple[Index, int, Callable[[], None]]] = []
        self._tiebreak = count()

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
            heappop(self._waiting)[2]()

    def answer_when_applied(self, index: Index, answer: Answer) -> None:
        """Answer the proposal whose batch starts at ``index``."""
        self._proposals[index] = answer

    def answer_retry(self, session: SessionId, sequence: Sequence, answer: Answer) -> None:
        """Answer a retry when the batch it repeats, which is in the log, is applied."""
        self._retries.setdefault((session, sequence), []).append(answer)

    def call_when_applied(self, index: Index, call: Callable[[], None]) -> None:
        """Call ``call`` as soon as ``index`` has been applied; at once if it has."""
        if index < self.applied_end:
            call()
        else:
            heappush(self._waiting, (index, next(self._tiebreak), call))

    def fail(self, error: ViewstampError) -> None:
        """Tell everybody who waits for a proposal that this node will not answer it; ``error`` does not say "no"."""
        answers = [*self._proposals.values(), *(answer for retries in self._retries.values() for answer in retries)]
        self._proposals = {}
        self._retries = {}
        for answer in answers:
            answer(error)
