"""Ordered appends of clients to the topics with streams of a run, and the invariants of their answers.

| invariant | sentence |
| --- | --- |
| OrderedIsLinearizable | an ordered append that begins after another one of its topic has returned has a higher \
global position, whichever streams they have |
| OrderedIsTrue | at the end each member has the returned global position for the record, unless it was trimmed |
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import StreamSealedError
from viewstamp.ids import Stream
from viewstamp.node.order_queries import GlobalPositionQuery
from viewstamp.node.state_machine import TopicQuery
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.tokens import with_token
from viewstamp.sim.topics import PASSING
from viewstamp.sim.violation import Violation
from viewstamp.wire.spreading import topic_of

__all__ = ["OrderedAppends"]

_PAUSE_SECONDS = 0.1
"""The pause before the next look for streams."""


class _Returned(NamedTuple):
    """An ordered append that has returned. The moments count all begins and ends of appends of the run."""

    stream: Stream
    position: int
    global_position: int
    begin: int
    end: int
    seconds: float
    """How long it took."""


class OrderedAppends:
    """Some clients, each with a writer for each stream."""

    def __init__(
        self,
        cluster: Cluster,
        streams: Callable[[], list[Stream]],
        *,
        clients: int = 2,
        pause_seconds: float = 0.1,
        appends_max: int = 100,
    ) -> None:
        """Prepare.

        Args:
          cluster: the cluster.
          streams: returns those that exist by now.
          clients: the number of clients.
          pause_seconds: the mean time between two appends of a writer.
          appends_max: the most appends of a writer, because their records stay in the log.
        """
        self._cluster = cluster
        self._streams = streams
        self._process = cluster.loop.client("ordered-appends")
        self._entropy = cluster.loop.entropy("ordered-appends")
        self._clients = clients
        self._pause_seconds = pause_seconds
        self._appends_max = appends_max
        self._tasks: list[asyncio.Task[None]] = []
        self._moments = itertools.count(1)
        self.returned: list[_Returned] = []
        self.failed = 0
        """The number of appends without a known global position."""
        self._is_over = False

    def start(self) -> None:
        """Begin to append when there are streams."""
        self._process.spawn(self._begin())

    def stop(self) -> None:
        """Append no more than the first record to each stream."""
        self._is_over = True

    @property
    def is_done(self) -> bool:
        """Whether there were streams, and nothing more is appended."""
        return bool(self._tasks) and all(task.done() for task in self._tasks)

    @property
    def counts(self) -> Counter[Stream]:
        """Return the number of appends to each stream that have returned."""
        return Counter(each.stream for each in self.returned)

    async def _begin(self) -> None:
        streams: list[Stream] = []
        while True:
            streams = self._streams()
            if streams:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        for number in range(self._clients):
            name = f"ordered-appends-{number}"
            client = Client(
                self._cluster.addresses,
                network=self._cluster.network.view(name),
                entropy=self._cluster.loop.entropy(name),
                options=with_token(self._cluster, ClientOptions(timeout=3.0)),
            )
            self._tasks += [self._process.spawn(self._write(client, stream)) for stream in streams]

    async def _write(self, client: Client, stream: Stream) -> None:
        topic, number = topic_of(stream.name), int(stream.name.rpartition(".")[2])
        for number_before in range(self._appends_max):
            await asyncio.sleep(self._entropy.expovariate(1 / self._pause_seconds))
            if self._is_over and number_before:
                return
            begin, started = next(self._moments), self._cluster.loop.time()
            try:
                receipt = await client.append(topic, b"ordered", stream=number, ordered=True)
            except StreamSealedError:
                return
            except PASSING:
                self.failed += 1
                continue
            assert receipt.global_position is not None, "it was ordered"
            end = next(self._moments)
            seconds = self._cluster.loop.time() - started
            self.returned.append(_Returned(stream, receipt.position, receipt.global_position, begin, end, seconds))

    def check(self) -> None:
        """Check the answers, when all members have settled and know the whole order. Raises Violation."""
        for topic in {topic_of(each.stream.name) for each in self.returned}:
            self._check_topic([each for each in self.returned if topic_of(each.stream.name) == topic])
        for each in self.returned:
            for member in self._cluster.members:
                hosted = member.group(each.stream.group)
                if hosted is None:
                    continue
                known = hosted.machine.query(GlobalPositionQuery(each.stream, each.position))
                try:
                    first = hosted.machine.query(TopicQuery(each.stream.name))["first_position"]
                except StreamSealedError:  # It was removed, after all its records had been trimmed.
                    first = each.position + 1
                if known != each.global_position and not (known is None and each.position < first):
                    raise Violation("OrderedIsTrue", f"{member.name} has position {known} for {each}")

    @staticmethod
    def _check_topic(returned: list[_Returned]) -> None:
        """Compare each append with the highest position that was returned before it began."""
        ended = sorted(returned, key=lambda each: each.end)
        before: _Returned | None = None
        for each in sorted(returned, key=lambda each: each.begin):
            while ended and ended[0].end < each.begin:
                last = ended.pop(0)
                before = last if before is None or last.global_position > before.global_position else before
            if before is not None and each.global_position <= before.global_position:
                raise Violation("OrderedIsLinearizable", f"{each} began after {before} had returned")
