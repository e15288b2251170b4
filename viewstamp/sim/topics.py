"""The topics of a run: created, read by name, with the positions and records that clients have seen."""

from __future__ import annotations

import asyncio
import itertools
import math

from viewstamp.client.aio import Client
from viewstamp.errors import OutcomeUnknownError, StorageFullError, TopicExistsError, UnavailableError
from viewstamp.ids import Position
from viewstamp.sim.history import ReadFrom, Recorder
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.violation import Violation

__all__ = ["PASSING", "Observed", "Topics"]

PASSING = (UnavailableError, OutcomeUnknownError, StorageFullError)
"""Errors after which clients retry."""


class Observed:
    """The readers' observations: value and timestamp by topic and position, and the ends that each reader found.

    Invariants:
      * the record seen at a position is the same for every reader, for ever
    """

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, tuple[bytes, int]]] = {}
        self.ends: list[list[tuple[str, int]]] = []
        """For each reader: (topic, its last position), in the order of its reads."""

    def note(self, topic: str, position: int, value: bytes, timestamp: int) -> None:
        """Store a record. Raises Violation if another one was seen at its position."""
        seen = self.topics.setdefault(topic, {}).setdefault(position, (value, timestamp))
        if seen != (value, timestamp):
            raise Violation(
                "PositionsStay",
                f"{topic} {position} was {seen[0][:60]!r} of {seen[1]}, now it is {value[:60]!r} of {timestamp}",
            )


class Topics:
    """The state that all clients of a run share."""

    def __init__(self, swarm: Swarm) -> None:
        self.names = [f"topic-{number}" for number in range(swarm.topics)]
        ticks = itertools.count(1)
        self.history = Recorder(lambda: next(ticks))
        """All operations of clients, in the order of their events. Each topic and each journal is a partition."""
        self.acknowledged: dict[str, Position] = {}
        """By topic, the highest position that a client knows to be taken."""
        self.observed = Observed()
        self._swarm = swarm

    async def create(self, client: Client, topic: str) -> None:
        """Create a topic if it does not exist, however long that takes."""
        while True:
            try:
                await client.create_topic(topic, retain_bytes=self._swarm.retain_bytes)
                return
            except TopicExistsError:
                if not self._swarm.archive_settings:  # The operator of the archive changes the retention, too.
                    raise
                return
            except PASSING:
                await asyncio.sleep(0.1)

    def acknowledge(self, topic: str, position: Position) -> None:
        """Store that a position is taken; every later linearizable read has to show it."""
        self.acknowledged[topic] = max(position, self.acknowledged.get(topic, Position(0)))

    async def read(self, client: Client, topic: str, start: int | None, *, node: str | None = None) -> int:
        """Read a topic from ``start`` on (None = all that it keeps), and store the records.

        Return the position after the last record, 0 = there was none.

        Without ``node`` the records are those of one moment of the read. A named member may be behind: its records were
        the topic's at some earlier time.
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
