"""Readers of topics with streams, by position, while faults go on.

Each reader has a client of its own. Half of them read from any node, the others from one member each, which may lag.
A reader that gets UnavailableError goes on at its next position, and one that gets TrimmedError at the first position
that is kept. The first ``divided`` readers do not merge the streams: they plan the positions up to the end of the
topic, and read one stream after the other (``client/stream_ranges.py``).

| invariant | sentence |
| --- | --- |
| ReaderSeesTheOrder | a reader gets the positions of a topic from 1 on, each once, and all readers get the same \
record at a position |
| ReaderSkipsTheTrimmed | it leaves out only positions to which the topic was trimmed by the end |
| ReadersComeToTheEnd | when the faults have ended, each reader gets all records that have a position |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import SpreadRecord, SpreadTopicInfo
from viewstamp.client.stream_ranges import StreamRanges
from viewstamp.errors import CorruptionError, PeerError, TrimmedError, UnavailableError, UnknownTopicError
from viewstamp.ids import NodeId
from viewstamp.node.order_queries import TopicOrderQuery
from viewstamp.node.placement_queries import SpreadTopicQuery
from viewstamp.node.state_machine import StateMachine
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.tokens import with_token
from viewstamp.sim.violation import Violation

__all__ = ["OrderReaders"]

_LOOK_SECONDS = 0.1
_PAUSE_SECONDS = 0.1
"""The pause of a reader after an error."""

_Place = tuple[int, int, bytes]
"""The stream of a record, its position there, and its value."""


class OrderReaders:
    """Reads all spread topics of a cluster, and compares what the readers get."""

    def __init__(
        self, cluster: Cluster, topics: Callable[[], list[SpreadTopicInfo]], number: int = 4, *, divided: int = 0
    ) -> None:
        """Prepare ``number`` readers of each topic, ``divided`` of them by ranges; ``topics``: those that exist now."""
        self._cluster = cluster
        self._topics = topics
        self._number = number
        self._divided = divided
        self._process = cluster.loop.client("order-readers")
        self.was_damaged: Callable[[float], bool] = lambda began: False
        """Whether archived records could not be read at a moment since a time, because of a fault."""
        self._begun: set[str] = set()
        self.seen: dict[str, dict[int, _Place]] = {}
        """By topic and position, what the first reader got there."""
        self.positions: dict[tuple[str, int], int] = {}
        """By topic and reader, its next position."""
        self._kept: dict[str, int] = {}
        """By topic, the highest position at which a reader went on because those before it were trimmed."""

    def start(self) -> None:
        """Begin to read each topic when it exists."""
        self._process.spawn(self._look())

    async def _look(self) -> None:
        while True:
            for topic in self._topics():
                if topic.name not in self._begun:
                    self._begun.add(topic.name)
                    self.seen[topic.name] = {}
                    for number in range(self._number):
                        self.positions[topic.name, number] = 1
                        self._process.spawn(self._read(topic.name, number))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _read(self, topic: str, number: int) -> None:
        """Read for ever."""
        members = self._cluster.members
        node: NodeId | None = members[number // 2 % len(members)].name if number % 2 else None
        name = f"order-reader-{topic}-{number}"
        client = Client(
            self._cluster.addresses,
            network=self._cluster.network.view(name),
            entropy=self._cluster.loop.entropy(name),
            options=with_token(self._cluster, ClientOptions(timeout=2.0, follow_wait=1.0, read_bytes=600)),
        )
        ranges = StreamRanges(client)
        while True:
            began = self._cluster.loop.time()
            try:
                if number < self._divided:
                    await self._read_range(ranges, topic, number)
                    continue
                async for record in client.read(topic, self.positions[topic, number], follow=True, node=node):
                    assert isinstance(record, SpreadRecord), f"{record} of {topic}"
                    self._note(topic, number, record)
            except TrimmedError as error:
                self.positions[topic, number] = error.first
                self._kept[topic] = max(error.first, self._kept.get(topic, 1))
            except (UnavailableError, UnknownTopicError):  # A member that lags does not know the topic yet.
                await asyncio.sleep(_PAUSE_SECONDS)
            except CorruptionError as error:
                if not self.was_damaged(began):
                    self._cluster.fail(Violation("ReaderSeesTheOrder", f"reader {number} of {topic}: {error}"))
                    return
                await asyncio.sleep(_PAUSE_SECONDS)
            except (Violation, PeerError) as error:
                is_found = isinstance(error, Violation)
                self._cluster.fail(error if is_found else Violation("ReaderSeesTheOrder", str(error)))
                return

    async def _read_range(self, ranges: StreamRanges, topic: str, number: int) -> None:
        """Read the records up to the end of the topic, in pieces of at most two records."""
        found = await ranges.describe(topic)
        parts = await ranges.divide(found, self.positions[topic, number], found.last_position + 1)
        records = []
        for part in await ranges.cut(found, parts, 2):
            async for chunk in ranges.read(topic, part):
                records += [record for each in chunk for record in each.records()]
        for record in sorted(records, key=lambda record: record.position):
            assert isinstance(record, SpreadRecord), f"{record} of {topic}"
            self._note(topic, number, record)
        await asyncio.sleep(_PAUSE_SECONDS)

    def _note(self, topic: str, number: int, record: SpreadRecord) -> None:
        expected = self.positions[topic, number]
        place = (record.stream, record.stream_position, record.value)
        if record.position != expected:
            raise Violation("ReaderSeesTheOrder", f"reader {number} of {topic} got {record}, expected {expected}")
        if (known := self.seen[topic].setdefault(expected, place)) != place:
            raise Violation("ReaderSeesTheOrder", f"reader {number} of {topic} got {place} at {expected}, not {known}")
        self.positions[topic, number] = expected + 1

    @property
    def are_at_the_end(self) -> bool:
        """Whether each reader has all records that have a position in the state of each member."""
        members = [member for member in self._cluster.members if member.is_up]
        if any(member.node is None or member.node.group.parts is None for member in members):
            return False  # One starts, so its state is still to come.
        groups_0 = [member.machine for member in members]
        for topic in self._topics():
            try:
                ends = {machine.query(TopicOrderQuery(topic.name))[0] for machine in groups_0}
            except UnknownTopicError:  # A member with a new disk has not fetched the state yet.
                return False
            read = {self.positions.get((topic.name, number)) for number in range(self._number)}
            if self._number and ends != read:
                return False
        return True

    def check(self, places: Mapping[str, Mapping[int, tuple[int, int]]]) -> int:
        """Compare what was read with the order: the stream and the position in it, by topic and position.

        ``places`` need not have trimmed positions. Returns the number of records that were read. Raises Violation.
        """
        for topic, seen in self.seen.items():
            first = max(self._first_position(member.machine, topic) for member in self._cluster.members if member.is_up)
            if (skipped := self._kept.get(topic, 1)) > first:
                raise Violation("ReaderSkipsTheTrimmed", f"a reader of {topic} went on at {skipped}, {first} is kept")
            got = {position: place[:2] for position, place in seen.items() if position >= first}
            if got != (kept := {position: place for position, place in places[topic].items() if position >= first}):
                raise Violation("ReaderSeesTheOrder", f"readers of {topic} got {got}, and it has {kept}")
        return sum(map(len, self.seen.values()))

    @staticmethod
    def _first_position(machine: StateMachine, topic: str) -> int:
        return machine.query(SpreadTopicQuery(topic)).first_position
