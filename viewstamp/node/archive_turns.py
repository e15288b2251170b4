"""The turns of the archivists of a node: all groups use one store, and the archive process works for one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from viewstamp.ids import GroupId
from viewstamp.node.group import Group
from viewstamp.node.run_objects import RunStore

__all__ = ["ArchiveTurns"]


class ArchiveTurns:
    """Lets one job of all archivists use the store at a time, and lets the store rest when there is none.

    Invariants:
      * the store rests only while no job exists
    """

    def __init__(self, store: RunStore | None, hosted: Mapping[GroupId, Group]) -> None:
        """Share ``store``; None = this node has none. ``hosted``: the groups that are open on this node."""
        self.store = store
        self.hosted = hosted
        self.lock = asyncio.Lock()
        """Held by the job that uses the store."""
        self._jobs = 0
        self._resting: asyncio.TimerHandle | None = None
        self._is_stopping = False

    def begin(self) -> None:
        """Note that a job begins."""
        self._jobs += 1
        self._keep_awake()

    def end(self, idle_seconds: float) -> None:
        """Note that a job has ended. Without a further one the store rests after ``idle_seconds``."""
        self._jobs -= 1
        if self.store is not None and not self._is_stopping and not self._jobs:
            self._keep_awake()
            self._resting = asyncio.get_running_loop().call_later(idle_seconds, self.store.rest)

    def stop(self) -> None:
        """Let the store rest no more, because it is closed. Idempotent."""
        self._is_stopping = True
        self._keep_awake()

    def _keep_awake(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
