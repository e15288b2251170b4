"""Chooses the stream of each append to a spread topic. Pure.

| the records | their stream |
| --- | --- |
| one or more have a key | that of the slot of the key; all keys of an atomic append must have the same stream, and \
records without a key go with them |
| none has a key, and the caller names a stream | that one |
| none has a key | that of the batch that is being gathered, or waits. The next one has the next stream, since batches \
that were divided by record would be small |
| a key, and the caller names another stream | refused, because the record would be out of the order of its key |
| any, and the caller names a sealed stream | refused |
| any, and the caller expects a position without a stream | refused, because a position belongs to a stream |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from viewstamp.client.results import SpreadTopicInfo
from viewstamp.client.send_queue import Ticket
from viewstamp.errors import RequestError, StreamSealedError
from viewstamp.ids import Stream
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.spreading import slot_of

__all__ = ["StreamChoice"]


class StreamChoice:
    """The choice for one spread topic.

    Invariants:
      * all records with the same key have the same stream, in each client and each release, until it is sealed
      * the route is that of the newest state of group 0 that was read
    """

    def __init__(self, topic: SpreadTopicInfo, stream: int, batch_bytes: int) -> None:
        """Begin.

        Args:
          topic: the spread topic.
          stream: gets the first records without a key.
          batch_bytes: the size of a batch, which counts while such records wait in the queue of their group.
        """
        self.topic = topic
        self._open = topic.open_streams
        """The streams that get records without a key."""
        self._batch_bytes = batch_bytes
        self._current = stream
        self._last: Ticket | None = None
        """The newest append without a key; None = there was none."""
        self._places: dict[int, Stream] = {}
        self._joined_bytes = 0
        """Bytes of such records that were given to the present stream."""

    def choose(
        self, keys: Sequence[bytes | None] | None, size: int, *, stream: int | None, expects_position: bool
    ) -> int:
        """Return the stream of the records of one append, which take ``size`` bytes of a batch.

        Raises:
          RequestError: there is no such stream, the keys have several, or the expected position belongs to none.
        """
        topic = self.topic
        if stream is not None:
            topic.group_of(stream)
            if topic.closed and stream in topic.sealed_streams:
                raise StreamSealedError(
                    f"stream {stream} of topic {topic.name!r} is {topic.phase_of(stream)}; nothing was written",
                    remedy="leave out the stream, or name an open one: `viewstamp topic describe`",
                )
        elif expects_position:
            raise RequestError(
                f"topic {topic.name!r} is spread over {topic.streams} streams, and a position belongs to a stream;"
                " nothing was written",
                remedy="name the stream too: append(..., stream=1, expected_position=...)",
            )
        chosen, first = stream, None
        for key in keys or ():
            if key is None:
                continue
            of_key = topic.stream_of(slot_of(key, topic.slots))
            if chosen is None:
                chosen, first = of_key, key
            elif chosen != of_key and first is None:
                raise RequestError(
                    f"the key {brief_repr(key)} belongs to stream {of_key} of topic {topic.name!r}, not to stream"
                    f" {chosen}; nothing was written",
                    remedy="leave out the stream, or the key",
                )
            elif chosen != of_key:
                raise RequestError(
                    f"the keys {brief_repr(first)} and {brief_repr(key)} of one atomic append belong to the streams"
                    f" {chosen} and {of_key} of topic {topic.name!r}; nothing was written",
                    remedy="append them apart, or give records that belong together the same key",
                )
        return self._gathering(size) if chosen is None else chosen

    def place(self, stream: int) -> Stream:
        """Return the group of a stream and its name there, which never change. One object serves all appends to it."""
        place = self._places.get(stream)
        if place is None:
            place = self._places[stream] = Stream(self.topic.group_of(stream), self.topic.topic_of(stream))
        return place

    def joined(self, stream: int, ticket: Ticket) -> None:
        """Take note of the batch, or the place in a queue, that records without a key have got."""
        self._joined_bytes = ticket.size + (self._joined_bytes if stream == self._current else 0)
        self._current, self._last = stream, ticket

    def _gathering(self, size: int) -> int:
        """Return the stream whose batch takes ``size`` further bytes, or the next one if that batch takes no more."""
        if self._current not in self._open:
            return self._next()
        if self._last is None:
            return self._current
        batch = self._last.batch
        if batch is None:
            takes_more = self._joined_bytes + size <= self._batch_bytes
        else:
            takes_more = batch.is_open and batch.bytes + size <= batch.bytes_max
        if takes_more:
            return self._current
        return self._next()

    def _next(self) -> int:
        """Return the next open stream after the present one."""
        return next((each for each in self._open if each > self._current), self._open[0])

    def update(self, topic: SpreadTopicInfo) -> None:
        """Take a newer route; one with fewer sealed streams is older, and has no effect."""
        if len(topic.sealed_streams) > len(self.topic.sealed_streams):
            self.topic = topic
            self._open = topic.open_streams

    def extend(self, topic: SpreadTopicInfo) -> None:
        """Take the streams that were added to the topic. Its slots stay: only :meth:`update` changes where keys go."""
        new = range(self.topic.streams + 1, topic.streams + 1)
        if new:
            self.topic = replace(self.topic, groups=topic.groups)
            self._open = [*self._open, *(stream for stream in new if stream in topic.open_streams)]

    def leave(self, stream: int) -> None:
        """Give a stream no more records without a key, because it has answered "sealed"."""
        self._open = [each for each in self._open if each != stream] or self._open
