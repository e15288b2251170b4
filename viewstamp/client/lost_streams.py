"""A client's calls about streams whose group is lost: it has no majority, and never gets one again.

| the stream | :meth:`LostStreamCalls.lose_stream` |
| --- | --- |
| is open or closing | seals it at its ordered end; records behind that lose their position |
| is sealed, and its group has a leader | changes nothing: no record of it is lost |
| is sealed, and its group has none | notes the loss. All its records have a position, and keep it |
| is lost or removed | changes nothing |
"""

from __future__ import annotations

from typing import NamedTuple

from viewstamp.client.admin import Admin
from viewstamp.client.checks import as_whole
from viewstamp.client.groups import Groups
from viewstamp.client.results import SpreadTopicInfo, spread_topic_info, topic_info
from viewstamp.client.router import Router
from viewstamp.client.runtime import Runtime
from viewstamp.client.streams import StreamCalls
from viewstamp.errors import PeerError, RequestError, UnavailableError
from viewstamp.ids import GroupId, NodeId
from viewstamp.wire.names import check_topic
from viewstamp.wire.requests import DescribeTopic
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.spread_requests import DescribeSpreadTopic, LoseStream

__all__ = ["LostStreamCalls", "StreamLoss"]

_LOOK_SECONDS = 3.0
"""The time in which a group has to answer, so that it is not lost."""


class StreamLoss(NamedTuple):
    """What is lost if a stream is given up, as far as it is known.

    Attributes:
      topic: the topic as group 0 has it.
      stream: the number of the stream.
      is_led: whether the group of the stream has a leader with a majority, so that it is not lost.
      nodes: for each node of the group that answers, the last position in the stream that it knows to be committed.
      silent: the nodes of the group that do not answer.
    """

    topic: SpreadTopicInfo
    stream: int
    is_led: bool
    nodes: dict[NodeId, int]
    silent: tuple[NodeId, ...]

    @property
    def end(self) -> int:
        """The position in the stream behind its last record with a position in the topic; those before stay."""
        return self.topic.ordered_ends[self.stream - 1]

    @property
    def lost_records(self) -> int:
        """The least number of acknowledged records that get no position. Nodes that are silent may have more."""
        return max([0, *(last + 1 - self.end for last in self.nodes.values())])


class LostStreamCalls:
    """Finds out what is lost with a stream, and ends it without its group."""

    def __init__(self, runtime: Runtime, router: Router, admin: Admin, groups: Groups, streams: StreamCalls) -> None:
        self._runtime = runtime
        self._router = router
        self._admin = admin
        self._groups = groups
        self._streams = streams

    async def describe_loss(self, name: str, stream: int, *, timeout: float | None = None) -> StreamLoss:
        """Find out what :meth:`lose_stream` would lose. It changes nothing. Of a sealed stream no position can be lost.

        It asks the nodes of the stream's group, each for at most three seconds.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: it has no stream of this number.
          AccessDeniedError: the token must not read the topic.
          UnavailableError: group 0 has no leader with a majority.
        """
        deadline = self._router.deadline(timeout)
        return await self._describe(await self._topic(name, deadline), stream, deadline)

    async def _topic(self, name: str, deadline: float) -> SpreadTopicInfo:
        frame = await self._router.ask(DescribeSpreadTopic(name=check_topic(name), stale=False), deadline=deadline)
        return spread_topic_info(frame.body["topic"], order=frame.body)

    async def _describe(self, found: SpreadTopicInfo, stream: int, deadline: float) -> StreamLoss:
        group = found.group_of(as_whole(stream, "a stream"))
        placed = await self._admin.list_groups(timeout=self._router.left(deadline))
        nodes = next(tuple(map(NodeId, each.hosts)) for each in placed if each.id == group)
        seconds = min(_LOOK_SECONDS, self._router.left(deadline))
        stale = DescribeTopic(name=found.topic_of(stream), stale=True)
        current = DescribeTopic(name=found.topic_of(stream), stale=False)
        asking = [self._runtime.spawn(self._ask(group, stale, node, seconds)) for node in nodes]
        leading = self._runtime.spawn(self._ask(group, current, None, seconds))
        try:
            answers = {node: await each for node, each in zip(nodes, asking, strict=True)}
            is_led = await leading is not None
        finally:
            for each in (*asking, leading):
                each.cancel()
        known = {node: last for node, last in answers.items() if last is not None}
        return StreamLoss(found, stream, is_led, known, tuple(node for node in nodes if node not in known))

    async def _ask(self, group: GroupId, request: RequestBody, node: str | None, seconds: float) -> int | None:
        """Return the last position of a stream by a node of its group, None = any; or None if there is no answer.

        A refusal is raised, because a node that refuses lives.
        """
        try:
            with self._groups.call(group) as parts:
                _, frame = await self._streams.ask(parts, request, seconds=seconds, node=node)
        except (UnavailableError, PeerError):
            return None
        return topic_info(frame.body["topic"], frame.body["age"]).last_position

    async def lose_stream(
        self, name: str, stream: int, *, into: int | None = None, timeout: float | None = None
    ) -> SpreadTopicInfo:
        """End a stream whose group never has a majority again. ACKNOWLEDGED RECORDS LOSE THEIR PLACE IN THE TOPIC.

        The stream ends behind its last record with a position in the topic, and another stream gets its keys at once.
        Records behind this end never get a position, also if they were acknowledged: :meth:`describe_loss` has the
        least number of them. The records of each key keep their order. There is no way back, also if the group is
        found again; then its records can be read by their stream. The same call again is harmless. Cancelled: the
        stream may be ended all the same.

        A stream that is sealed loses nothing by it: all its records have a position. It is noted as lost, so that it
        can be removed without its group when the topic is trimmed to ``lost_at``, and that readers can pass it from
        there on. If its group has a leader with a majority, nothing is changed.

        Args:
          name: the topic.
          stream: the number of the stream.
          into: the stream that gets its keys; None = the open one with the fewest slots.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: the group has a leader with a majority, so that :meth:`seal_stream` loses nothing; the stream
            is sealed and a member runs a release without such notes; or as for :meth:`seal_stream`. Nothing was
            changed.
          UnavailableError, OutcomeUnknownError: as for :meth:`configure_spread_topic`; the same call again is harmless.
        """
        deadline = self._router.deadline(timeout)
        found = await self._topic(name, deadline)
        is_sealed = as_whole(stream, "a stream") in found.sealed_streams
        is_settled = found.lost_at(stream) > 0 or found.gone_at(stream) > 0
        if not is_settled and (await self._describe(found, stream, deadline)).is_led:
            if is_sealed:
                return found
            raise RequestError(
                f"group {found.group_of(stream)}, which has stream {stream} of topic {name!r}, has a leader with a"
                " majority; nothing was changed",
                remedy=f"end the stream without a loss: viewstamp stream seal {name} {stream}",
            )
        request = LoseStream(
            name=name, stream=stream, into=as_whole(into or 0, "a stream"), is_sealed=is_sealed and not is_settled
        )
        frame = await self._admin.ask_leader(request, "the stream is not given up", deadline=deadline)
        lost = spread_topic_info(frame.body["topic"])
        if request.is_sealed and not lost.lost_at(stream):
            raise RequestError(
                f"stream {stream} of topic {name!r} is sealed, and the leader of group 0 runs a release that cannot"
                " give up such a stream; nothing was changed",
                remedy="upgrade all nodes",
            )
        return lost
