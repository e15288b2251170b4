"""Linearizable reads (Raft §6.4): those that wait for a leader to confirm an index, and repeated requests for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from viewstamp.consensus.raft import Raft
from viewstamp.errors import ViewstampError
from viewstamp.ids import NodeId

__all__ = ["Barrier", "ReadIndex", "Reader"]

Reader = Callable[[ViewstampError | None], None]
"""A read that waits: called with None when it may query the state, or with the error that is its answer."""


class Barrier:
    """Reads that wait for one index. More of them may join until the index is requested.

    Invariants:
      * every reader is called once, unless it leaves: with None, after everything that was committed before it joined
        has been applied here, or with an error, ``seconds`` after the barrier was made
      * readers are called in a turn of the loop of their own, so a mistake in one of them ends neither the replica nor
        the others
    """

    __slots__ = ("_loop", "_on_current", "_timer", "began_at", "is_open", "readers")

    def __init__(
        self, began_at: float, seconds: float, on_current: Callable[[float], None], late: Callable[[], ViewstampError]
    ) -> None:
        """Begin without a reader.

        Args:
          began_at: the present time, which is not later than that of any reader.
          seconds: time until the readers get an error.
          on_current: called with ``began_at`` when this member is as fresh as the readers require.
          late: returns that error.
        """
        self.readers: dict[Reader, None] = {}
        self.is_open = True
        """Whether readers may join, because the index has not been requested yet."""
        self.began_at = began_at
        self._on_current = on_current
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._expire, late)

    def leave(self, reader: Reader) -> None:
        """Remove a reader, which is not called any more. Idempotent."""
        self.readers.pop(reader, None)
        if not self.readers:
            self._end()

    def release(self) -> None:
        """Call the readers, because the index is known and has been applied."""
        if self.readers:
            self._end()
            self._on_current(self.began_at)
            self._loop.call_soon(self._call, None)

    def _expire(self, late: Callable[[], ViewstampError]) -> None:
        self._end()
        self._call(late())

    def _end(self) -> None:
        self.is_open = False
        self._timer.cancel()

    def _call(self, error: ViewstampError | None) -> None:
        for reader in list(self.readers):
            if reader not in self.readers:
                continue  # It has left, for example because its connection has ended just now.
            del self.readers[reader]
            try:
                reader(error)
            except BaseException:
                self._loop.call_soon(self._call, error)
                raise


@dataclass(frozen=True, slots=True)
class _Question:
    """Reads with one common request, sent to ``leader`` in tick ``asked_at``; None = no leader was known."""

    leader: NodeId | None
    asked_at: int
    barriers: list[Barrier]


class ReadIndex:
    """Requests an index from the leader, at most once a tick while an answer is due, for all reads that wait.

    Invariants:
      * a barrier with readers is in ``unasked`` or in one question of ``asked``, until its index is known
      * barriers in ``asked`` are closed
    """

    def __init__(self, raft: Raft) -> None:
        self.unasked: list[Barrier] = []
        """Reads that wait for the next question, or whose question is to be repeated."""
        self.asked: dict[int, _Question] = {}
        """Questions without an answer, by token, the oldest first."""
        self._raft = raft
        self._token = 0
        self._newest_tick = 0
        """The tick of the newest question."""
        self._retry_ticks = raft.core.patience.least
        """Ticks without an answer before a question is repeated; it grows if answers take longer."""

    def ask(self, tick: int) -> None:
        """Ask for the index of all ``unasked`` reads, and repeat questions that got no answer.

        A question is repeated immediately if another member leads by now, because the earlier leader may be dead.
        While a question of this tick has no answer, reads wait and share the next one. So a quick network has one
        question at a time, and on a slow one a read waits for a tick at most.
        """
        leader = self._raft.core.leader
        while self.asked:
            token, question = next(iter(self.asked.items()))
            is_recent = tick - question.asked_at < self._retry_ticks
            if is_recent and question.leader == leader:
                break
            del self.asked[token]
            if not is_recent:
                self._set_retry(2 * self._retry_ticks)
            self.unasked.extend(barrier for barrier in question.barriers if barrier.readers)
        if not self.unasked or (self.asked and self._newest_tick == tick):
            return
        barriers, self.unasked = [barrier for barrier in self.unasked if barrier.readers], []
        if not barriers:
            return
        for barrier in barriers:
            barrier.is_open = False
        self._token += 1
        self._newest_tick = tick
        self.asked[self._token] = _Question(leader, tick, barriers)
        self._raft.read(self._token)

    def on_index(self, token: int, tick: int) -> list[Barrier]:
        """Return the reads whose index is known now; empty if the question was repeated meanwhile."""
        question = self.asked.pop(token, None)
        if question is None:
            return []
        self._set_retry(2 * (tick - question.asked_at))
        return question.barriers

    @property
    def held(self) -> int:
        """Reads that wait for an index."""
        asked = sum(len(barrier.readers) for question in self.asked.values() for barrier in question.barriers)
        return asked + sum(len(barrier.readers) for barrier in self.unasked)

    def _set_retry(self, ticks: int) -> None:
        patience = self._raft.core.patience
        self._retry_ticks = min(max(patience.least, ticks), patience.most)
