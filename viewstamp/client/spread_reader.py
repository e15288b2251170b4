"""Reads a topic with streams by position, in one order; ``merge.py`` has the rules, this module asks the nodes.

| event | effect |
| --- | --- |
| a node dies, or the leader of a group changes | another node of the group is asked; the reader goes on at the same \
position |
| no node of a group answers | the records of the other streams are read up to the first one that may be of this \
stream. Then the reader raises UnavailableError with the stream, after its timeout |
| such a stream is lost (``lose_stream``) | it is passed once all its records are trimmed, or are below the reader. A \
reader that waits for one looks at the state of group 0 again |
| a stream is removed | it is passed. Its positions were trimmed, so a reader that is below them gets TrimmedError |
| a stream is added | no known stream has its first position, so the reader reads the topic again, and goes on |
| a group, or group 0, has no majority | no new record gets a position, and the reader waits. What has a position can \
be read from any node that has it |
| a node lags | it sends less, or refuses; nothing is skipped |
| an answer is lost, doubled or late | each request has one answer, for a position that the reader still waits for |
| a node lies about the order | two streams with one position, or a position of no stream, end the reader with \
PeerError. Another false order is believed, as a false record would be |
| the caller is cancelled | the next call continues at the same position |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any, NamedTuple

from viewstamp.client.groups import Groups
from viewstamp.client.merge import Merge, Piece
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import SpreadRecord, SpreadTopicInfo, spread_topic_info
from viewstamp.client.routing import copies
from viewstamp.client.runtime import Future, Runtime
from viewstamp.client.streams import StreamCalls
from viewstamp.errors import PeerError, RequestError, TrimmedError, UnavailableError, ViewstampError
from viewstamp.ids import GlobalPosition, Position
from viewstamp.wire.batch import Batch, Kind, Record
from viewstamp.wire.spread_requests import DescribeSpreadTopic, ReadOrdered

__all__ = ["SpreadReader", "StreamPart", "pieces_of", "unanswered_stream"]

_SHARES = 8
"""The lanes of a reader hold at most about so many times ``read_bytes`` together."""
_SHARE_MIN = 16 * 1024
_NEEDED_SECONDS = 1.0
"""Time in which a node has to get a record that the reader needs next. Then another node is asked."""


class StreamPart(NamedTuple):
    """Records of one batch with consecutive positions in the topic.

    Attributes:
      batch: the batch, as its stream has it.
      first: the place of the first record in the batch, from 0.
      length: the number of records.
      position: the position of the first record in the topic.
      stream: the number of the stream.
    """

    batch: Batch
    first: int
    length: int
    position: GlobalPosition
    stream: int

    def records(self) -> list[Record]:
        """Decode the records."""
        shift = self.position - self.batch.first_position - self.first
        records = self.batch.records()[self.first : self.first + self.length]
        return [SpreadRecord.of(record, Position(record.position + shift), self.stream) for record in records]


class SpreadReader:
    """One pass over a topic with streams.

    Invariants:
      * the parts that it yields have the positions from its start on, each once, in order
      * at most one request of each stream is under way
    """

    def __init__(
        self,
        runtime: Runtime,
        groups: Groups,
        options: ClientOptions,
        topic: str,
        start: int | None,
        *,
        end: int | None,
        follow: bool,
        node: str | None,
        is_stale: bool = False,
    ) -> None:
        """Prepare a pass; sends nothing. ``is_stale``: the caller wants a bound of staleness, which is refused."""
        self._runtime = runtime
        self._groups = groups
        self._options = options
        self._topic = topic
        self._start = start
        self._end = end
        self._follow = follow
        self._node = node
        self._is_stale = is_stale
        self._calls = StreamCalls(runtime, options, groups)
        self._found: SpreadTopicInfo | None = None
        self._merge: Merge[StreamPart] | None = None
        self._share = options.read_bytes
        self._asking: dict[int, Future[None]] = {}
        """The requests under way, by stream."""
        self._failed: dict[int, BaseException] = {}
        """The streams whose last request has failed."""
        self._asked: set[int] = set()
        """The streams that have answered once."""
        self._changed: Future[None] | None = None
        """Resolved when a request has ended."""

    async def begin(self) -> None:
        """Find the streams, and set start and end. Idempotent.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: the caller wants a bound of staleness, or a node is of an earlier release.
          UnavailableError: no node of group 0 answered; or none of a group, if the reader begins at the first record.
        """
        if self._merge is not None:
            return
        router = self._groups.group_0.router
        frame = await router.ask(DescribeSpreadTopic(name=self._topic, stale=False), self._options.timeout)
        found = self._found = spread_topic_info(frame.body["topic"], order=frame.body)
        if self._is_stale:
            raise RequestError(
                f"topic {self._topic!r} has streams, whose nodes are stale by different ages; nothing was read",
                remedy="read one stream: stream=1; or read without a bound of staleness",
            )
        if not found.next_position:
            raise RequestError(
                f"a node does not know the order of topic {self._topic!r}, because it runs an earlier release",
                remedy="run the same release on all nodes; or read one stream: stream=1",
            )
        end = self._end
        if not self._follow:
            end = found.next_position if end is None else min(end, found.next_position)
        read_bytes = self._options.read_bytes
        self._share = max(_SHARE_MIN, min(read_bytes, _SHARES * read_bytes // found.streams))
        start = GlobalPosition(self._start or 1)
        merge = Merge[StreamPart](
            found.streams,
            start,
            GlobalPosition(end) if end is not None else None,
            exists_to=GlobalPosition(found.next_position),
        )
        if self._start is None:
            merge.skip_to(GlobalPosition(await self._find_start(found)))
        self._merge = merge

    async def _find_start(self, found: SpreadTopicInfo) -> int:
        """Return the position from which on all streams keep their records."""
        asking = {}
        first = 1
        for stream in range(1, found.streams + 1):
            if found.can_pass(stream, first):
                first = max(first, found.kept_from(stream))
                continue
            request = ReadOrdered(name=self._topic, stream=stream, position=1, needed=0, bytes_max=1, wait=0.0)
            asking[stream] = self._runtime.spawn(self._ask(stream, request))
        try:
            for stream, each in asking.items():
                try:
                    first = max(first, (await each)["kept_from"])
                except ViewstampError as error:
                    raise self._named(stream, error) from error
        finally:
            for each in asking.values():
                each.cancel()
        return first

    def _pass_lost(self, merge: Merge[StreamPart]) -> bool:
        """Pass the lost and removed streams that have nothing more for this reader; return whether there was one."""
        found = self._found
        assert found is not None, "it has begun"
        merge.add(found.streams)
        passed = [
            stream
            for stream in found.lost_streams | found.removed_streams
            if not merge.lanes[stream].is_passed and found.can_pass(stream, merge.position)
        ]
        for stream in passed:
            merge.pass_by(stream, GlobalPosition(found.kept_from(stream)))
        return bool(passed)

    async def _look_for_lost(self, merge: Merge[StreamPart]) -> bool:
        """Read the topic again, because a stream does not answer; return whether a lost one is passed now."""
        try:
            request = DescribeSpreadTopic(name=self._topic, stale=True)
            _, frame = await self._groups.group_0.router.ask_any(request, seconds=self._options.silence)
        except ViewstampError:
            return False
        self._found = spread_topic_info(frame.body["topic"])
        return self._pass_lost(merge)

    async def _look_for_added(self, merge: Merge[StreamPart]) -> bool:
        """Read the topic again, because no known stream has the next position; return whether it has further streams.

        Raises UnavailableError: the state of group 0 cannot be read linearizably.
        """
        if not merge.is_blocked:
            return False
        router = self._groups.group_0.router
        frame = await router.ask(DescribeSpreadTopic(name=self._topic, stale=False), self._options.timeout)
        self._found = spread_topic_info(frame.body["topic"])
        return merge.add(self._found.streams)

    async def records(self) -> AsyncGenerator[Record, None]:
        """Yield the records of the range, in order."""
        try:
            while (chunk := await self.next_chunk()) is not None:
                for part in chunk:
                    for record in self.cut(part):
                        yield record
        finally:
            self.close()

    async def next_chunk(self) -> Sequence[StreamPart] | None:
        """Return the next parts; None = the range has ended. Cancelled: the next call continues at the same position.

        Raises:
          TrimmedError: the next position was trimmed; ``first`` is the first one from which on everything is kept.
          UnavailableError: no node answers for a stream that may have the next position.
          PeerError: the answers of the nodes contradict each other.
        """
        await self.begin()
        merge = self._merge
        assert merge is not None, "it has begun"
        while not merge.is_over:
            taken = merge.take()
            self._pass_lost(merge)
            self._ask_all(merge)
            if taken:
                return [piece.item for _, piece in taken]
            if await self._look_for_added(merge):
                continue
            try:
                merge.check(self._found.lost_positions if self._found is not None else (0, 0))
            except TrimmedError as error:
                if self._start is not None or not merge.is_at_start:
                    raise
                merge.skip_to(GlobalPosition(error.first))
                continue
            for stream in merge.missing:
                if (failed := self._failed.pop(stream, None)) is not None:
                    if isinstance(failed, UnavailableError) and await self._look_for_lost(merge):
                        break
                    raise failed
            else:
                changed = self._changed = self._runtime.create_future()
                await changed
        self.close()
        return None

    def cut(self, part: StreamPart) -> list[Record]:
        """Return the records of a part that are in the range."""
        end = self._merge.end if self._merge is not None else None
        if end is not None and part.position + part.length > end:
            part = part._replace(length=end - part.position)
        return part.records()

    def close(self) -> None:
        """Cancel the requests under way. Idempotent."""
        asking, self._asking = self._asking, {}
        for each in asking.values():
            each.cancel()

    def _ask_all(self, merge: Merge[StreamPart]) -> None:
        """Send the requests that the lanes want."""
        missing = merge.missing
        for stream in merge.lanes:
            if stream in self._asking or not merge.wants(stream, self._share):
                continue
            failed = self._failed.get(stream)
            if failed is not None:
                if stream in missing or not isinstance(failed, UnavailableError):
                    continue  # It is raised when the reader needs this stream.
                del self._failed[stream]
            asking = self._asking[stream] = self._runtime.spawn(self._fetch(merge, stream))
            asking.add_done_callback(partial(self._on_done, stream))

    def _on_done(self, stream: int, done: Future[None]) -> None:
        if self._asking.get(stream) is not done:
            return
        del self._asking[stream]
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._failed[stream] = self._named(stream, error) if isinstance(error, ViewstampError) else error
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _named(self, stream: int, error: ViewstampError) -> ViewstampError:
        """Return an error that names the stream."""
        assert self._found is not None, "it has begun"
        if not isinstance(error, UnavailableError):
            return copies(error)()
        return unanswered_stream(self._found, stream, error)

    async def _fetch(self, merge: Merge[StreamPart], stream: int) -> None:
        """Ask for further records of a stream, and put them into its lane."""
        begin, needed = merge.lanes[stream].covered_to, merge.needs(stream)
        if needed:
            wait = min(_NEEDED_SECONDS, self._options.follow_wait)
        else:
            wait = self._options.follow_wait if stream in self._asked else 0.0
        request = ReadOrdered(
            name=self._topic, stream=stream, position=begin, needed=needed, bytes_max=self._share, wait=wait
        )
        body = await self._ask(stream, request)
        self._asked.add(stream)
        merge.put(
            stream,
            begin,
            pieces_of(stream, begin, body["runs"], Batch.decode_all(body["payload"])),
            known_to=GlobalPosition(body["known_to"]),
            kept_from=GlobalPosition(body["kept_from"]),
            has_more=body["more"],
        )

    async def _ask(self, stream: int, request: ReadOrdered) -> dict[str, Any]:
        """Ask the group of a stream; return the fields of the answer, and its payload."""
        assert self._found is not None, "it has begun"
        # The parts may end while the caller pauses. Then the next request makes new ones.
        with self._groups.call(self._found.group_of(stream)) as parts:
            seconds = self._options.timeout + request.wait
            _, frame = await self._calls.ask(parts, request, seconds=seconds, wait=request.wait, node=self._node)
        return {**frame.body, "payload": frame.payload}


def unanswered_stream(found: SpreadTopicInfo, stream: int, error: UnavailableError) -> UnavailableError:
    """Return the error of a stream whose group does not answer; of a lost one with the way to pass it."""
    remedy = error.remedy
    if lost_at := found.lost_at(stream):
        remedy = (
            f"the stream is lost: read from position {lost_at}; or delete what is below it for all readers:"
            f" viewstamp topic trim {found.name} --before {lost_at}"
        )
    return UnavailableError(
        f"stream {stream} of topic {found.name!r}, in group {found.group_of(stream)}: {error.message}", remedy=remedy
    )


def pieces_of(
    stream: int, begin: GlobalPosition, runs: Sequence[Sequence[int]], batches: Sequence[Batch]
) -> list[Piece[StreamPart]]:
    """Return the parts of an answer: the records that its runs name, from its batches.

    Raises:
      PeerError: a run names records that are not in the batches, or come before ``begin``.
    """
    pieces: list[Piece[StreamPart]] = []
    following = iter(batches)
    batch = next(following, None)
    for position, local, length in runs:
        at = local
        while at < local + length:
            while batch is not None and batch.first_position + batch.count <= at:
                batch = next(following, None)
            if batch is None or batch.first_position > at or batch.kind not in (Kind.RECORDS, Kind.STAGED):
                raise PeerError(f"a node sent the order of record {at} of stream {stream}, but not the record")
            count = min(local + length, batch.first_position + batch.count) - at
            global_position = GlobalPosition(position + at - local)
            part = StreamPart(batch, at - batch.first_position, count, global_position, stream)
            pieces.append(Piece(global_position, count, batch.size, part))
            at += count
    if pieces and pieces[0].position < begin:
        raise PeerError(f"a node sent position {pieces[0].position} of stream {stream}, expected {begin} or later")
    return pieces
