"""Appends with keys to a topic whose streams end meanwhile, and the order of each key.

Several appends of a key are in flight at once, so that some of them are moved when their stream ends.

| invariant | sentence |
| --- | --- |
| KeyKeepsItsOrder | at the end the acknowledged records of a key have positions in the topic that rise in the order \
of the calls, also over the end of a stream. One behind the end of a lost stream has none |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Receipt, SpreadTopicInfo
from viewstamp.ids import Stream
from viewstamp.node.order_queries import GlobalPositionQuery
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.tokens import with_token
from viewstamp.sim.topics import PASSING
from viewstamp.sim.violation import Violation

__all__ = ["KeyedAppends"]

_KEYS = 4
_APPENDS_MAX = 16
"""The most appends of a key, because their records stay in the log."""
_IN_FLIGHT_MAX = 3
_PAUSE_SECONDS = 0.15
"""The mean time between two appends of a key."""
_LOOK_SECONDS = 0.2


class KeyedAppends:
    """A client that appends with keys."""

    def __init__(self, cluster: Cluster, topic: Callable[[], SpreadTopicInfo | None]) -> None:
        """Prepare. ``topic`` returns the topic once it exists."""
        self._cluster = cluster
        self._topic = topic
        self._process = cluster.loop.client("keyed-appends")
        self._entropy = cluster.loop.entropy("keyed-appends")
        self._returned: dict[bytes, dict[int, Receipt]] = {}
        """By key, the receipts of the calls by their numbers."""
        self._is_over = False

    def start(self) -> None:
        """Begin to append when there is a topic."""
        self._process.spawn(self._begin())

    def stop(self) -> None:
        """Append no more."""
        self._is_over = True

    async def _begin(self) -> None:
        while True:
            topic = self._topic()
            if topic is not None:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        client = Client(
            self._cluster.addresses,
            network=self._cluster.network.view("keyed-appends"),
            entropy=self._cluster.loop.entropy("keyed-appends-client"),
            options=with_token(self._cluster, ClientOptions(timeout=3.0)),
        )
        for number in range(_KEYS):
            self._process.spawn(self._write(client, topic.name, b"key %d" % number))

    async def _write(self, client: Client, topic: str, key: bytes) -> None:
        calls: set[asyncio.Task[None]] = set()
        for number in range(_APPENDS_MAX):
            await asyncio.sleep(self._entropy.expovariate(1 / _PAUSE_SECONDS))
            if len(calls) >= _IN_FLIGHT_MAX:
                _, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            if self._is_over:
                return
            calls.add(self._process.spawn(self._append(client, topic, key, number)))

    async def _append(self, client: Client, topic: str, key: bytes, number: int) -> None:
        try:
            receipt = await client.append(topic, b"%d" % number, key=key)
        except PASSING:
            return
        self._returned.setdefault(key, {})[number] = receipt

    def check(self) -> int:
        """Check each key, when all members have settled; return the number of records. Raises Violation."""
        topic = self._topic()
        member = next(each for each in self._cluster.members if each.is_up)
        for key, returned in self._returned.items():
            assert topic is not None, "it was appended to"
            last = 0
            for number, receipt in sorted(returned.items()):
                assert receipt.stream is not None, "the topic has streams"
                stream = Stream(topic.group_of(receipt.stream), topic.topic_of(receipt.stream))
                hosted = member.group(stream.group)
                if hosted is None:
                    continue
                position = hosted.machine.query(GlobalPositionQuery(stream, receipt.position))
                if position is not None and position <= last:
                    raise Violation("KeyKeepsItsOrder", f"call {number} of {key!r} is at {position}, behind {last}")
                last = position or last
        return sum(map(len, self._returned.values()))
