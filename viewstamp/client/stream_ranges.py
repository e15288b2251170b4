"""Reads a range of positions of a topic with streams, each stream by itself: for readers that divide the work.

``SpreadReader`` merges the streams, so it sees at each position whether one of them has it. A reader of one stream does
not. So the work is planned first: a **place** is the position in a stream of its first record at a global position or
behind it. The places at both ends of a range say which records of each stream are in it, and how many.

| the places of all streams at both ends | the range |
| --- | --- |
| are known, and the records between them are as many as the positions | is complete |
| some are not known, because their records were trimmed; the others have all positions | is complete: those streams \
have no record in it |
| the same, but the others have fewer positions | was trimmed: TrimmedError |
| are known, and the records are more or fewer than the positions | contradicts the order: PeerError |

The positions of a range exist: it ends at the topic's next position, of a linearizable read of group 0, or before it.
So nothing in a range is pending: a node that does not know whose its positions are lags, refuses, and the client asks
another one.

Whoever reads a stream of a range (:meth:`StreamRanges.read`) counts: its records follow one another in the stream, from
the one place to the other.

| between plan and read | effect |
| --- | --- |
| records of the stream are trimmed, and the stream may be removed | TrimmedError, with the first position from which \
on the stream is kept |
| a node dies, lags, or the leader changes | another node is asked, at the same position |
| a node sends a record of another place in the stream, or too few | PeerError; nothing is skipped |
| the caller is cancelled, or dies | nothing was changed; the range is read again |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from viewstamp.client.client import BaseClient
from viewstamp.client.merge import end_of_rising
from viewstamp.client.results import SpreadTopicInfo, TopicInfo, spread_topic_info, topic_info
from viewstamp.client.spread_reader import SpreadReader, StreamPart, pieces_of, unanswered_stream
from viewstamp.client.streams import StreamCalls
from viewstamp.errors import PeerError, TrimmedError, UnavailableError, ViewstampError
from viewstamp.ids import GlobalPosition, Position
from viewstamp.wire.batch import Batch
from viewstamp.wire.requests import DescribeTopic, FindTime
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.spread_requests import DescribeSpreadTopic, ReadOrdered

__all__ = ["DividedTopic", "Place", "StreamRange", "StreamRanges", "cut_at", "divide"]

ResultT = TypeVar("ResultT")

_NEEDED_SECONDS = 1.0
"""Time in which a node has to get a record that exists. Then another node is asked."""
_ASKED_MAX = 16
"""Places that are asked for at the same time, to cut a range."""
_PLACES_MAX = 64
"""Positions of which the places are remembered, because a range often begins where the one before it has ended."""


class Place(NamedTuple):
    """The first record of a stream at a global position, or behind it.

    Attributes:
      local: its position in the stream; None = it was trimmed, so nobody knows.
      kept_from: the records of the stream from the position on and below this one were trimmed; 1 = none was.
    """

    local: int | None
    kept_from: int = 1


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The records of one stream in a range of global positions; all bounds are half-open.

    Attributes:
      stream: the number of the stream, from 1 on.
      start, end: the global positions.
      first, last_end: the positions in the stream, from the place at ``start`` to that at ``end``.
    """

    stream: int
    start: int
    end: int
    first: int
    last_end: int

    @property
    def records(self) -> int:
        """The number of its records."""
        return self.last_end - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedTopic(TopicInfo):
    """A topic with streams, with the attributes of a plain one.

    ``first_position`` is the global position from which on all streams keep their records, ``last_position`` the last
    one that was given, and ``bytes`` the size of the kept records of all streams, also of those without a position.

    Attributes:
      found: the topic; ``next_position`` and ``ordered_ends`` are of one moment.
      archived_ends: for each stream, from stream 1 on, the position in it behind its last archived record, or a lower
        one, because any node answers; 1 = none is known to be archived.
    """

    found: SpreadTopicInfo
    archived_ends: tuple[int, ...] = ()


def divide(topic: str, start: int, end: int, at_start: Sequence[Place], at_end: Sequence[Place]) -> list[StreamRange]:
    """Return the records of each stream that has some in a range of global positions. Pure.

    Args:
      topic: the name of the topic, for errors.
      start: the first position.
      end: the position after the last one; all positions of the range exist.
      at_start: the places at ``start``, from stream 1 on.
      at_end: those at ``end``.

    Raises:
      TrimmedError: a position of the range was trimmed; ``first`` is one from which on all streams keep their records.
      PeerError: the places contradict each other.
    """
    found, missing, kept_from = [], end - start, start
    for stream, (one, other) in enumerate(zip(at_start, at_end, strict=True), 1):
        kept_from = max(kept_from, one.kept_from, other.kept_from)
        if one.local is None or other.local is None:
            continue
        if other.local < one.local:
            missing = -1  # A stream goes back.
            break
        if other.local > one.local:
            found.append(StreamRange(stream, start, end, one.local, other.local))
            missing -= other.local - one.local
    if missing > 0 and kept_from > start:
        raise TrimmedError(
            f"some of the positions {start} to {end - 1} of topic {topic!r} have been trimmed; all records from"
            f" position {kept_from} on are kept",
            first=kept_from,
            remedy=f"read from {kept_from}",
        )
    if missing:
        raise PeerError(
            f"the streams of topic {topic!r} do not have one record at each of the positions {start} to {end - 1}:"
            f" {list(zip(at_start, at_end, strict=True))}; nothing was skipped",
            remedy="compare the nodes of the streams' groups: viewstamp doctor",
        )
    return found


def cut_at(topic: str, part: StreamRange, places: Sequence[tuple[int, int | None]]) -> list[StreamRange]:
    """Cut a part of a stream at global positions within it, without pieces that have no record; [] = it cannot be cut.

    Args:
      topic: the name of the topic, for errors.
      part: the part.
      places: rising global positions, each with the place of the stream there; None = its record was trimmed.

    Raises:
      PeerError: a place contradicts the others.
    """
    pieces, start, first = [], part.start, part.first
    for end, last_end in [*places, (part.end, part.last_end)]:
        if last_end is None:
            return []
        if not 0 <= last_end - first <= end - start:
            raise PeerError(
                f"stream {part.stream} of topic {topic!r} is at record {first} at position {start}, and at {last_end}"
                f" at {end}; nothing was skipped",
                remedy="compare the nodes of the streams' groups: viewstamp doctor",
            )
        if first < last_end:
            pieces.append(StreamRange(part.stream, start, end, first, last_end))
        start, first = end, last_end
    return pieces


class StreamRanges:
    """The calls of a client for ranges of topics with streams."""

    def __init__(self, client: BaseClient) -> None:
        """Use the connections of ``client``; sends nothing."""
        self._options = client._options
        self._groups = client._groups
        self._router = client._router
        self._calls = StreamCalls(client._runtime, client._options, client._groups)
        self._runtime = client._runtime
        self.known: set[str] = set()
        """Topics that were described. A topic with streams remains one."""
        self._places: dict[tuple[str, int], list[Place]] = {}
        """The places at the positions that were looked for last, if all are known. They never change."""

    async def describe(self, topic: str, *, timeout: float | None = None) -> DividedTopic:
        """Describe a topic with streams: its end, linearizably, and its beginning and size, as any nodes have them.

        Raises:
          UnknownTopicError: no topic with streams has this name.
          UnavailableError: no node of a group, which the error names, has answered in time.
        """
        self._router.start()
        deadline = self._router.deadline(timeout)
        frame = await self._router.ask(DescribeSpreadTopic(name=topic, stale=False), deadline=deadline)
        found = spread_topic_info(frame.body["topic"], order=frame.body)
        if not found.next_position:
            raise PeerError(
                f"a node does not know the order of topic {topic!r}, because it runs an earlier release",
                remedy="run the same release on all nodes",
            )
        self.known.add(topic)
        seconds = self._router.left(deadline)

        async def describe(stream: int) -> tuple[int, int, int]:
            if found.can_pass(stream, 1):
                return 0, found.kept_from(stream), 1
            body = await self._ask(found, stream, DescribeTopic(name=found.topic_of(stream), stale=True), seconds)
            info = topic_info(body["topic"], body["age"])
            archived_end = 1 if info.archived is None else info.archived.last_position + 1
            if info.first_position == 1:
                return info.bytes, 1, archived_end
            request = ReadOrdered(name=topic, stream=stream, position=1, needed=0, bytes_max=1, wait=0.0)
            return info.bytes, (await self._ask(found, stream, request, seconds))["kept_from"], archived_end

        streams = await _together(map(describe, range(1, found.streams + 1)))
        self._remember(topic, found.next_position, [Place(end) for end in found.ordered_ends])
        return DividedTopic(
            name=topic,
            first_position=Position(min(max(kept_from for _, kept_from, _ in streams), found.next_position)),
            last_position=Position(found.next_position - 1),
            bytes=sum(size for size, _, _ in streams),
            retain_bytes=found.retain_bytes,
            retain_seconds=found.retain_seconds,
            schema=found.schema,
            found=found,
            archived_ends=tuple(archived_end for _, _, archived_end in streams),
        )

    async def divide(self, topic: DividedTopic, start: int, end: int) -> list[StreamRange]:
        """Return the records of each stream that has some in a range of positions of the topic, which exist.

        Raises:
          TrimmedError, PeerError: as :func:`divide`.
          UnavailableError: no node of a group, which the error names, has answered in time.
        """
        if start >= end:
            return []
        return divide(topic.name, start, end, await self._all(topic.found, start), await self._all(topic.found, end))

    async def cut(self, topic: DividedTopic, parts: Sequence[StreamRange], records_max: int) -> list[StreamRange]:
        """Cut parts until each has at most ``records_max`` records, and return them by position.

        A part is larger only if its records were trimmed meanwhile.

        Raises:
          PeerError: a place contradicts those at the ends of its part.
          UnavailableError: as :meth:`divide`.
        """
        turns = asyncio.Semaphore(_ASKED_MAX)

        async def at(stream: int, position: int) -> tuple[int, int | None]:
            async with turns:
                return position, (await self._find(topic.found, stream, position)).local

        async def cut(part: StreamRange) -> list[StreamRange]:
            count = min(-(-part.records // records_max), part.end - part.start)
            inside = [part.start + (part.end - part.start) * i // count for i in range(1, count)]
            return cut_at(topic.name, part, await _together(at(part.stream, position) for position in inside))

        done: list[StreamRange] = []
        left = list(parts)
        while left:
            done += [part for part in left if part.records <= records_max]
            left = [part for part in left if part.records > records_max]
            smaller = await _together(cut(part) for part in left)
            done += [part for part, pieces in zip(left, smaller, strict=True) if not pieces]
            left = [piece for pieces in smaller for piece in pieces]
        return sorted(done, key=lambda part: (part.start, part.stream))

    async def place(self, topic: DividedTopic, stream: int, position: int) -> Place:
        """Return the place of a stream at a position that exists, or at the topic's next one."""
        return await self._find(topic.found, stream, position)

    async def find_time(self, topic: DividedTopic, stream: int, timestamp: int) -> int:
        """Return a position in a stream at or before its first record whose log time is ``timestamp`` or later."""
        request = FindTime(name=topic.found.topic_of(stream), timestamp=timestamp)
        return int((await self._ask(topic.found, stream, request, self._options.timeout))["position"])

    async def read(self, topic: str, part: StreamRange) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Yield the records of a range, in order. The next ones are fetched while the caller handles these.

        Raises:
          TrimmedError: records of it were trimmed; ``first`` is the position from which on the stream is kept.
          UnavailableError: no node of the stream's group has answered in time.
          PeerError: a node has sent other records than those of the plan.
        """
        found = await self._calls.find(topic, self._options.timeout, stream=part.stream)
        if gone_at := found.gone_at(part.stream):
            raise _trimmed(topic, part, part.start, gone_at)
        position, expected, kept_from = part.start, part.first, part.start
        ahead = self._runtime.spawn(self._fetch(found, part.stream, position))
        try:
            while expected < part.last_end:
                chunk, known_to, kept = await ahead
                if kept > position:  # Otherwise nothing from there on was trimmed.
                    kept_from = max(kept_from, kept)
                if known_to < part.end:
                    ahead = self._runtime.spawn(self._fetch(found, part.stream, known_to))
                chunk = [_cut(each, part.end) for each in chunk if each.position < part.end]
                for each in chunk:
                    local = each.batch.first_position + each.first
                    if local > expected and part.start < kept_from <= each.position:
                        raise _trimmed(topic, part, position, kept_from)
                    if local != expected or local + each.length > part.last_end:
                        raise _contradicts(topic, part, expected, f"sent record {local}")
                    expected = local + each.length
                if chunk:
                    yield chunk
                if known_to >= part.end and expected < part.last_end:
                    if kept_from > part.start:
                        raise _trimmed(topic, part, position, kept_from)
                    raise _contradicts(topic, part, expected, "has no further one")
                position = known_to
        finally:
            ahead.cancel()

    async def merged(self, topic: str, start: int, end: int) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Yield the records of all streams in a range of positions, which exist, in the order of the topic.

        Raises as ``SpreadReader.next_chunk``; the records up to the position of the error were yielded.
        """
        reader = SpreadReader(
            *(self._runtime, self._groups, self._options, topic, start), end=end, follow=False, node=None
        )
        self._router.start()
        try:
            while (chunk := await reader.next_chunk()) is not None:
                yield [_cut(each, end) for each in chunk if each.position < end]
        finally:
            reader.close()

    async def _fetch(self, found: SpreadTopicInfo, stream: int, begin: int) -> tuple[list[StreamPart], int, int]:
        """Return the next records of a stream, the position up to which these are all, and ``kept_from``."""
        request = ReadOrdered(
            name=found.name,
            stream=stream,
            position=begin,
            needed=begin,
            bytes_max=self._options.read_bytes,
            wait=_NEEDED_SECONDS,
        )
        body = await self._ask(found, stream, request, self._options.timeout)
        batches = Batch.decode_all(body["payload"])
        pieces = pieces_of(stream, GlobalPosition(begin), body["runs"], batches)
        at = end_of_rising(pieces, stream, GlobalPosition(begin))
        if body["known_to"] < max(at, begin + 1):
            raise PeerError(f"stream {stream} was sent from {begin} with the end {body['known_to']}, before {at}")
        return [piece.item for piece in pieces], body["known_to"], body["kept_from"]

    async def _all(self, found: SpreadTopicInfo, position: int) -> list[Place]:
        """Return the places of all streams at a position."""
        known = self._places.get((found.name, position), [])
        if len(known) >= found.streams:
            return known[: found.streams]
        # Streams that were added since are looked for.
        further = range(len(known) + 1, found.streams + 1)
        places = [*known, *await _together(self._find(found, stream, position) for stream in further)]
        self._remember(found.name, position, places)
        return places

    def _remember(self, topic: str, position: int, places: list[Place]) -> None:
        if all(place.local is not None for place in places):
            self._places[topic, position] = places
            while len(self._places) > _PLACES_MAX:
                del self._places[next(iter(self._places))]

    async def _find(self, found: SpreadTopicInfo, stream: int, position: int) -> Place:
        at = position
        if found.can_pass(stream, position) and position < (kept_from := found.kept_from(stream)):
            return Place(None, kept_from)
        if found.can_pass(stream, position):
            return Place(found.ordered_ends[stream - 1])
        while at < found.next_position:
            # A batch is sent only if its first record is needed. So a first answer may only say where that one is.
            request = ReadOrdered(
                name=found.name, stream=stream, position=at, needed=at, bytes_max=1, wait=_NEEDED_SECONDS
            )
            body = await self._ask(found, stream, request, self._options.timeout)
            if body["kept_from"] > at:
                return Place(None, body["kept_from"])
            if body["runs"]:
                return Place(body["runs"][0][1])
            if body["known_to"] <= at:
                raise PeerError(f"stream {stream} of topic {found.name!r} has no record at {at}, and none behind it")
            at = body["known_to"]
        return Place(found.ordered_ends[stream - 1])

    async def _ask(self, found: SpreadTopicInfo, stream: int, request: RequestBody, seconds: float) -> dict[str, Any]:
        """Ask the group of a stream; return the fields of the answer, and its payload."""
        wait = request.wait if isinstance(request, ReadOrdered) else 0.0
        group = found.group_of(stream)
        try:
            with self._groups.call(group) as parts:
                _, frame = await self._calls.ask(parts, request, seconds=seconds + wait, wait=wait)
        except UnavailableError as error:
            raise unanswered_stream(found, stream, error) from error
        return {**frame.body, "payload": frame.payload}


async def _together(work: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """Return the results of all; the first error cancels the others."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _cut(part: StreamPart, end: int) -> StreamPart:
    """Return the records of a part before a global position."""
    return part._replace(length=min(part.length, end - part.position))


def _trimmed(topic: str, part: StreamRange, position: int, kept_from: int) -> TrimmedError:
    return TrimmedError(
        f"records of stream {part.stream} of topic {topic!r} from position {position} on have been trimmed; those from"
        f" position {kept_from} on are kept",
        first=kept_from,
        remedy=f"read from {kept_from}",
    )


def _contradicts(topic: str, part: StreamRange, expected: int, what: str) -> ViewstampError:
    return PeerError(
        f"stream {part.stream} of topic {topic!r} has the records {part.first} to {part.last_end - 1} at the positions"
        f" {part.start} to {part.end - 1}, but where record {expected} should follow, a node {what}; nothing was"
        " skipped",
        remedy="compare the nodes of the streams' groups: viewstamp doctor",
    )
