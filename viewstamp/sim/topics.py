"""The topics of a run: created, read by name, and what clients know and have seen of them."""

from __future__ import annotations

import asyncio
import itertools
import math

from viewstamp.client.aio import Client
from viewstamp.errors import OutcomeUnknownError, StorageFullError, UnavailableError
from viewstamp.ids import Position
from viewstamp.sim.history import ReadFrom, Recorder
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.violation import Violation

__all__ = ["PASSING", "Observed", "Topics"]

PASSING = (UnavailableError, OutcomeUnknownError, StorageFullError)
"""What calls for trying again."""


class Observed:
    """What readers saw: by topic and position, value and timestamp; and where each of them found the end.

    Invariants:
      * what was seen at a position is what is seen there by everybody, for ever
    """

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, tuple[bytes, int]]] = {}
        self.ends: list[list[tuple[str, int]]] = []
        """For each reader: (topic, its last position), in the order in which it asked."""

    def note(self, topic: str, position: int, value: bytes, timestamp: int) -> None:
        """Take note of a record. Raises Violation where another one was seen at its position."""
        seen = self.topics.setdefault(topic, {}).setdefault(position, (value, timestamp))
        if seen != (value, timestamp):
            raise Violation(
                "PositionsStay",
                f"{topic} {position} was {seen[0][:60]!r} of {seen[1]}, now it is {value[:60]!r} of {timestamp}",
            )


class Topics:
    """What all clients of a run share."""

    def __init__(self, swarm: Swarm) -> None:
        self.names = [f"topic-{number}" for number in range(swarm.topics)]
        ticks = itertools.count(1)
        self.history = Recorder(lambda: next(ticks))
        """Everything that clients did, in the order of its happening. Each topic is a partition, and each journal."""
        self.acknowledged: dict[str, Position] = {}
        """By topic, the highest position that somebody knows to be taken."""
        self.observed = Observed()
        self._swarm = swarm

    async def create(self, client: Client, topic: str) -> None:
        """Create a topic, unless it is there, however long it takes."""
        while True:
            try:
                await client.create_topic(topic, retain_bytes=self._swarm.retain_bytes)
                return
            except PASSING:
                await asyncio.sleep(0.1)

    def acknowledge(self, topic: str, position: Position) -> None:
        """Take note that a position is taken: who asks from now on must be told so."""
        self.acknowledged[topic] = max(position, self.acknowledged.get(topic, Position(0)))

    async def read(self, client: Client, topic: str, start: int | None, *, node: str | None = None) -> int:
        """Read a topic from ``start`` on (None = all that it keeps), and write down what was seen.

        Return the position behind the last record that was there, 0 = there was none.

        Without ``node`` that is all that there was at one moment of it. A named member may be behind: what it says was
        there at some time before it said so.
        """
        operation = self.history.call(topic, ReadFrom(start or 1, is_whole=node is None))
        if node is not None:
            operation.called = -math.inf
        values: list[bytes] = []
        end = 0
        async for record in client.read(topic, start, node=node):
            if not values:
                operation.request = ReadFrom(record.position, is_whole=node is None)
            values.append(record.value)
            end = record.position + 1
            if not self._swarm.majority_loses_power:
                self.observed.note(topic, record.position, record.value, record.timestamp)
        if values or (start is not None and node is None):
            self.history.answered(operation, tuple(values))
        return end
