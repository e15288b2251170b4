"""A client's call that moves a stream to another group: a new stream there, and the end of the old one into it."""

from __future__ import annotations

from viewstamp.client.checks import as_whole
from viewstamp.client.results import SpreadTopicInfo
from viewstamp.client.router import Router
from viewstamp.client.spread_topics import SpreadTopicCalls
from viewstamp.client.streams import StreamCalls
from viewstamp.errors import RequestError

__all__ = ["RelocationCalls"]


class RelocationCalls:
    """Moves streams between groups."""

    def __init__(self, router: Router, topics: SpreadTopicCalls, streams: StreamCalls) -> None:
        self._router = router
        self._topics = topics
        self._streams = streams

    async def move_stream(self, name: str, stream: int, group: int, *, timeout: float | None = None) -> SpreadTopicInfo:
        """Move the keys of a stream to another group. Returns when the end of the stream has begun.

        The topic gets a stream in the group, unless it has one there without slots. The old stream then ends into it,
        as by :meth:`seal_stream`: no append fails, the records of each key keep their order, and the records of the old
        stream stay where they are. The same call again goes on where it was interrupted. Cancelled: the stream may be
        added, and the old one may be ended.

        Example::

            *_, group = await client.list_groups()
            topic = await client.move_stream("parcels", 2, group.id)

        Args:
          name: the topic.
          stream: the number of the stream.
          group: the id of an established group.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: there is no such stream, it is in this group already, it ends into a stream of another group, or
            as :meth:`add_stream` and :meth:`seal_stream`.
          UnavailableError, OutcomeUnknownError: as for :meth:`seal_stream`; the same call again is harmless.
        """
        deadline = self._router.deadline(timeout)
        found = await self._topics.describe_spread_topic(name, timeout=self._router.left(deadline))
        if found.group_of(as_whole(stream, "a stream")) == as_whole(group, "the id of a group"):
            raise RequestError(
                f"stream {stream} of topic {name!r} is in group {group} already; nothing was changed",
                remedy="name another group: `viewstamp group list`",
            )
        ended = next((each for each in found.closed if each.stream == stream), None)
        if ended is not None:
            if found.group_of(ended.into) != group:
                raise RequestError(
                    f"stream {stream} of topic {name!r} is {ended.phase} into stream {ended.into}, which is in group"
                    f" {found.group_of(ended.into)}, not {group}; nothing was changed",
                    remedy=f"move stream {ended.into}",
                )
            return found
        used = {each for _, each in found.ranges} | {each.into for each in found.closed}
        unused = (each for each in found.open_streams if each not in used and found.group_of(each) == group)
        into = next(unused, 0)
        if not into:
            into = found.streams + 1
            await self._topics.add_stream(name, stream=into, group=group, timeout=self._router.left(deadline))
        await self._streams.describe_stream(name, into, timeout=self._router.left(deadline))
        return await self._topics.seal_stream(name, stream, into=into, timeout=self._router.left(deadline))
