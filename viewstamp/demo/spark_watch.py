"""Readers that look for a part of a micro-batch, which must never be visible."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from viewstamp.errors import UnavailableError, UnknownTopicError

if TYPE_CHECKING:
    from viewstamp.client.aio import Client

__all__ = ["PartialBatchWatch"]

LOOK_SECONDS: Final = 0.05


class PartialBatchWatch:
    """Reads a topic while it is written, from the applied records of each member, and notes the position of its end.

    ``ends`` are the last positions at which it may end. They come from the input, not from the cluster.
    """

    def __init__(self, client: Client, topic: str, ends: Collection[int]) -> None:
        self._client = client
        self._topic = topic
        self._ends = ends
        self._is_over = False
        self.looks = 0
        """Number of times that a reader reached the end of the topic."""
        self.partial = 0
        """Number of times that the records ended within a micro-batch."""
        self.end = 0
        """The last position that any reader has read."""

    async def run(self, nodes: Collection[str]) -> None:
        """Read from each of ``nodes`` again and again, until :meth:`finish`."""
        await asyncio.gather(*(self._follow(node) for node in nodes))

    def finish(self) -> None:
        """Make every reader read once more, and end."""
        self._is_over = True

    async def _follow(self, node: str) -> None:
        seen = 0
        while True:
            is_last = self._is_over
            try:
                seen = await self._read_on(node, seen)
            except (UnavailableError, UnknownTopicError):
                pass  # The node was killed, or has not caught up yet.
            else:
                self.note(seen)
            if is_last:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _read_on(self, node: str, seen: int) -> int:
        """Read the records of ``node`` after ``seen``, and return the last position."""
        async for batch in self._client.read_batches(self._topic, seen + 1, node=node):
            seen = batch.first_position + batch.count - 1
        return seen

    def note(self, end: int) -> None:
        """Count one look at the topic, which ended at ``end``."""
        self.looks += 1
        self.partial += end not in self._ends
        self.end = max(self.end, end)
