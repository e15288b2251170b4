"""Linearizable reads (Raft §6.4): those that wait for a leader to confirm an index, and repeated requests for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from viewstamp.consensus.raft import Raft
from viewstamp.ids import NodeId

__all__ = ["ReadIndex"]


@dataclass(frozen=True, slots=True)
class _Question:
    """Reads with one common request, sent to ``leader`` in tick ``asked_at``; None = no leader was known."""

    leader: NodeId | None
    asked_at: int
    readers: list[asyncio.Future[None]]


class ReadIndex:
    """Requests an index from the leader once each turn, for all reads of that turn.

    Invariants:
      * a reader is in ``unasked`` or in one question of ``asked``, until its index is known or its future is done
    """

    def __init__(self, raft: Raft) -> None:
        self.unasked: list[asyncio.Future[None]] = []
        """Reads that arrived in this turn, or whose question is to be repeated."""
        self.asked: dict[int, _Question] = {}
        """Questions without an answer, by token, the oldest first."""
        self._raft = raft
        self._token = 0
        self._retry_ticks = raft.core.patience.least
        """Ticks without an answer before a question is repeated; it grows if answers take longer."""

    def ask(self, tick: int) -> None:
        """Ask for the index of all ``unasked`` reads, and repeat questions that got no answer.

        A question is repeated immediately if another member leads by now, because the earlier leader may be dead.
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
            self.unasked.extend(reader for reader in question.readers if not reader.done())
        if not self.unasked:
            return
        self._token += 1
        self.asked[self._token] = _Question(leader, tick, self.unasked)
        self.unasked = []
        self._raft.read(self._token)

    def on_index(self, token: int, tick: int) -> list[asyncio.Future[None]]:
        """Return the reads whose index is known now; empty if the question was repeated meanwhile."""
        question = self.asked.pop(token, None)
        if question is None:
            return []
        self._set_retry(2 * (tick - question.asked_at))
        return question.readers

    @property
    def held(self) -> int:
        """Reads that wait for an index, including those whose future is done since the last question."""
        return len(self.unasked) + sum(len(question.readers) for question in self.asked.values())

    def _set_retry(self, ticks: int) -> None:
        patience = self._raft.core.patience
        self._retry_ticks = min(max(patience.least, ticks), patience.most)
