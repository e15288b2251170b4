"""Reads one stream of a spread topic: finds its group, and asks there."""

from __future__ import annotations

from viewstamp.client.checks import Staleness, as_whole
from viewstamp.client.connection import NodeConnection
from viewstamp.client.group import GroupParts
from viewstamp.client.groups import Groups
from viewstamp.client.options import ClientOptions
from viewstamp.client.reader import TopicReader
from viewstamp.client.results import SpreadTopicInfo, TopicInfo, spread_topic_info, topic_info
from viewstamp.client.router import Router
from viewstamp.client.runtime import Runtime
from viewstamp.errors import UnavailableError, UnknownTopicError
from viewstamp.wire.frame import Frame
from viewstamp.wire.names import check_topic
from viewstamp.wire.requests import DescribeTopic
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.spread_requests import DescribeSpreadTopic

__all__ = ["StreamCalls", "TopicStreamReader"]

_LOOK_SECONDS = 0.1
"""Time between two requests for a stream that its group has not created yet."""


class StreamCalls:
    """Finds streams, and asks their groups."""

    def __init__(self, runtime: Runtime, options: ClientOptions, groups: Groups) -> None:
        self._runtime = runtime
        self._options = options
        self._groups = groups

    async def describe_stream(self, topic: str, stream: int, *, timeout: float | None = None) -> TopicInfo:
        """Describe one stream of a spread topic, linearizably. Waits until the leader of its group has created it.

        Example::

            info = await client.describe_stream("parcels", 3)
            print(info.first_position, info.last_position)

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: it has no stream of this number; streams have numbers from 1 on.
          StreamSealedError: the stream was removed.
          UnavailableError: no node of the group answered in time, or its leader has not created the stream yet.
        """
        router = self._groups.group_0.router
        deadline = router.deadline(timeout)
        found = await self.find(topic, router.left(deadline), stream=as_whole(stream, "a stream"))
        found.check_kept(stream)
        name = found.topic_of(stream)
        with self._groups.call(found.group_of(stream)) as parts:
            request = DescribeTopic(name=name, stale=False)
            _, frame = await self.ask(parts, request, seconds=router.left(deadline))
        return topic_info(frame.body["topic"], frame.body["age"])

    async def find(self, topic: str, seconds: float, *, stream: int = 1) -> SpreadTopicInfo:
        """Return a spread topic as any node has it, or as all have it if that one does not know it or ``stream`` yet.

        Raises:
          UnknownTopicError: no spread topic has this name.
          UnavailableError: no node answered in time.
        """
        router: Router = self._groups.group_0.router
        deadline = router.deadline(seconds)
        try:
            frame = await router.ask(DescribeSpreadTopic(name=check_topic(topic), stale=True), deadline=deadline)
            found = spread_topic_info(frame.body["topic"])
        except UnknownTopicError:
            found = None
        if found is None or stream > found.streams:
            frame = await router.ask(DescribeSpreadTopic(name=topic, stale=False), deadline=deadline)
            found = spread_topic_info(frame.body["topic"])
        return found

    async def ask(
        self, parts: GroupParts, request: RequestBody, *, seconds: float, wait: float = 0.0, node: str | None = None
    ) -> tuple[NodeConnection, Frame]:
        """Ask the nodes of a group about a stream, which its leader may not have created yet.

        Raises: as ``Router.ask_any``; UnavailableError also if the stream is not created in time.
        """
        time = self._runtime.time
        deadline = time() + seconds
        parts.router.start()
        while True:
            try:
                left = max(0.0, deadline - time())
                return await parts.router.ask_any(request, seconds=left, wait=wait, node=node)
            except UnknownTopicError as error:
                if time() + _LOOK_SECONDS >= deadline:
                    raise UnavailableError(
                        f"the leader of group {parts.group} has not created the stream yet: {error.message}",
                        remedy="try again; see whether the group has a leader: `viewstamp group list`",
                    ) from error
                await self._runtime.sleep(_LOOK_SECONDS)


class TopicStreamReader(TopicReader):
    """One pass over a stream, with the promises of :class:`TopicReader`."""

    def __init__(
        self,
        runtime: Runtime,
        groups: Groups,
        options: ClientOptions,
        topic: str,
        stream: int,
        start: int | None,
        *,
        end: int | None,
        follow: bool,
        node: str | None,
        staleness: Staleness | None = None,
    ) -> None:
        super().__init__(
            *(runtime, groups.group_0.router, options, topic, start),
            end=end,
            follow=follow,
            node=node,
            staleness=staleness,
        )
        self._calls = StreamCalls(runtime, options, groups)
        self._groups = groups
        self._stream = as_whole(stream, "a stream")
        self._found: SpreadTopicInfo | None = None

    async def begin(self) -> None:
        """Find the group of the stream, and begin as :meth:`TopicReader.begin`. Idempotent."""
        if self._found is None:
            found = await self._calls.find(self._topic, self._options.timeout, stream=self._stream)
            found.check_kept(self._stream)
            self._topic = found.topic_of(self._stream)
            self._found = found
        await super().begin()

    async def _ask(self, request: RequestBody, *, wait: float) -> tuple[NodeConnection, Frame]:
        assert self._found is not None, "it has begun"
        # The parts may end while the caller pauses. Then the next request makes new ones.
        with self._groups.call(self._found.group_of(self._stream)) as parts:
            seconds = self._options.timeout + wait
            return await self._calls.ask(parts, request, seconds=seconds, wait=wait, node=self._node)
