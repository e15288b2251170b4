"""Lets leaders tell the members how far they are durable, as if callers waited on other nodes for each commit.

Then followers find commits before their leaders do, under all faults of a run, in all groups.
"""

from __future__ import annotations

import asyncio
import random

from viewstamp.ids import name_of
from viewstamp.sim.world import World

__all__ = ["Notices"]

_SECONDS = 0.01
"""The mean time between two moments at which all leaders are asked to."""


class Notices:
    """Asks the leaders again and again, from :meth:`start` to :meth:`stop`."""

    def __init__(self, world: World, entropy: random.Random) -> None:
        """Begin with nothing."""
        self._world = world
        self._entropy = entropy
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask."""
        self._task = self._world.loop.create_task(self._run())

    def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._entropy.expovariate(1 / _SECONDS))
            for member in self._world.members:
                if member.node is None or member.process is None or member.process.is_dead:
                    continue
                for group in member.node.groups.values():
                    replica = group.replica
                    if replica is not None and replica.is_leading:
                        names = frozenset(name_of(each) for each in replica.raft.core.membership.addresses)
                        member.process.call(replica.tell_durable_end, names)
