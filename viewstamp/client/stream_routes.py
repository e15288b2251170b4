"""Finds out whether a topic is one of group 0, or spread over streams of other groups, before the first append to it.

| the nodes answer | effect |
| --- | --- |
| group 0 has a topic of this name | its id is stored for the sender of group 0 |
| no such topic, and any node knows a spread topic of this name | its route is stored. A node that lags lacks it, or \
has it without the end of some streams: then their groups answer "sealed" (``stream_moves.py``) |
| that node does not know one either | a linearizable read decides, because the node may lag |
| the route is known, and the caller names a stream behind its last one | a linearizable read finds the streams that \
were added; the slots of the others stay as they are |
| neither exists; or the nodes are of a release without spread topics | UnknownTopicError |
| group 0 has no majority | a route is read from the applied state of any node. A topic of group 0, and the absence of \
a topic, need the majority: the caller waits until its timeout |

A name is that of a topic or of a spread topic, and neither can be removed. So what was found stays true.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from viewstamp.client.append import Held, TopicAppend
from viewstamp.client.group import GroupParts
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import spread_topic_info
from viewstamp.client.routing import Reaction, closed_error, copies, reaction
from viewstamp.client.runtime import Runtime
from viewstamp.client.stream_choice import StreamChoice
from viewstamp.errors import PeerError, RequestError, UnknownTopicError, ViewstampError
from viewstamp.ids import TopicId
from viewstamp.wire.requests import DescribeTopic
from viewstamp.wire.spread_requests import DescribeSpreadTopic

__all__ = ["StreamRoutes"]


class StreamRoutes:
    """The routes that a client knows, and the appends that wait for one.

    Invariants:
      * appends that wait for the same name begin in the order of their calls, also on trio, which does not wake tasks
        in that order
      * for each name at most one task asks the nodes
    """

    def __init__(self, runtime: Runtime, options: ClientOptions, home: GroupParts, entropy: random.Random) -> None:
        """Begin without routes; ``home`` are the parts for group 0."""
        self.spread: dict[str, StreamChoice] = {}
        """The spread topics that are known, by name."""
        self._runtime = runtime
        self._seconds = options.silence
        self._batch_bytes = options.batch_bytes
        self._home = home
        self._entropy = entropy
        self._waiting: dict[str, dict[Held, int]] = {}
        """By the name of the topic, in the order of the calls. A task asks for each of the names."""

    def knows(self, topic: str, stream: int | None = None) -> bool:
        """Return whether appends to this topic, or to a stream of it that the caller names, need not wait."""
        choice = self.spread.get(topic)
        if choice is not None:
            return stream is None or stream <= choice.topic.streams
        return topic in self._home.sender.queue.topics

    async def begin(self, topic: str, begin: Callable[[], TopicAppend | Held], seconds: float) -> TopicAppend | Held:
        """Call ``begin`` when the route of ``topic`` is known; return or raise what it does.

        Cancelled: the append is given up; if it was not sent, it never is.

        Raises:
          UnknownTopicError: there is no such topic.
          UnavailableError: the route was not found within ``seconds``; nothing was written.
        """
        if topic not in self._waiting:
            self._waiting[topic] = {}
            self._runtime.spawn(self._ask(topic))
        waiting = Held(self._runtime.create_future(), begin, self._waiting[topic])
        try:
            return await self._runtime.within(seconds, waiting.begun)
        except BaseException as error:
            waiting.abandon()
            if isinstance(error, TimeoutError):
                raise self._home.sender.unsent(seconds) from None
            raise
        finally:
            self._waiting.get(topic, {}).pop(waiting, None)

    async def find(self, topic: str, seconds: float) -> bool:
        """Return whether a topic has streams, when that is known.

        Raises:
          UnknownTopicError: there is no such topic.
          UnavailableError: it was not found within ``seconds``; nothing was written.
        """
        if not self.knows(topic):
            self._home.router.start()
            try:
                await self._runtime.within(seconds, self._find_soon(topic))
            except TimeoutError:
                raise self._home.sender.unsent(seconds) from None
        return topic in self.spread

    async def _find_soon(self, topic: str) -> None:
        while not self.knows(topic):
            try:
                await self._find(topic)
            except ViewstampError as error:
                if reaction(error) is Reaction.FINAL or isinstance(error, PeerError):
                    raise

    def close(self) -> None:
        """Fail the appends that wait, with ClosedError."""
        for topic in list(self._waiting):
            self._fail(topic, closed_error)

    def _fail(self, topic: str, error: Callable[[], ViewstampError]) -> None:
        for waiting in self._waiting.pop(topic, ()):
            if not waiting.begun.done():
                waiting.begun.set_exception(error())

    async def _ask(self, topic: str) -> None:
        """Ask the nodes until the route is known or refused, or no append waits for it."""
        while self._waiting.get(topic):
            try:
                await self._find(topic)
            except ViewstampError as error:
                if reaction(error) is Reaction.FINAL or isinstance(error, PeerError):
                    self._fail(topic, copies(error))
                    return
                # Otherwise ask again, because the waiting callers have timeouts of their own.
            else:
                break
        for waiting in self._waiting.pop(topic, ()):
            if not waiting.begun.done():
                try:
                    waiting.begun.set_result(waiting.begin())
                except ViewstampError as error:
                    waiting.begun.set_exception(error)

    async def _find(self, topic: str) -> None:
        """Find the topic once. Raises UnknownTopicError, and any error of the nodes."""
        home = self._home
        try:
            _, frame = await home.router.ask_any(DescribeTopic(name=topic, stale=False), seconds=self._seconds)
        except ViewstampError as error:
            is_unknown = isinstance(error, UnknownTopicError)
            if isinstance(error, PeerError) or (reaction(error) is Reaction.FINAL and not is_unknown):
                raise
            if not await self._find_spread(topic, is_stale=True) and not (
                is_unknown and await self._find_spread(topic, is_stale=False)
            ):
                raise
        else:
            home.sender.queue.topics[topic] = TopicId(frame.body["topic"]["id"])

    async def _find_spread(self, topic: str, *, is_stale: bool) -> bool:
        """Store the route of a spread topic; return whether there is one. Raises UnavailableError, PeerError."""
        known = self.spread.get(topic)
        request = DescribeSpreadTopic(name=topic, stale=is_stale and known is None)
        try:
            _, frame = await self._home.router.ask_any(request, seconds=self._seconds)
        except RequestError:  # There is none; or the node is of a release that knows none.
            return False
        found = spread_topic_info(frame.body["topic"])
        if known is not None:
            known.extend(found)
            return True
        first = self._entropy.randrange(found.streams) + 1
        self.spread[topic] = StreamChoice(found, first, self._batch_bytes)
        return True
