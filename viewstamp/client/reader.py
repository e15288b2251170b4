"""Reads a topic from any node, in chunks, one ahead of the caller; yields each position exactly once, in order."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

from viewstamp.client.checks import Staleness
from viewstamp.client.connection import NodeConnection
from viewstamp.client.options import ClientOptions
from viewstamp.client.router import Router
from viewstamp.client.runtime import Future, Runtime
from viewstamp.errors import FrameError, PeerError, RequestError, TrimmedError
from viewstamp.ids import Index, Position, TopicId
from viewstamp.wire.batch import Batch, Kind, Record, build_columns
from viewstamp.wire.columns import slice_columns
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import DescribeTopic, ReadTopic
from viewstamp.wire.schema import RequestBody

__all__ = ["TopicReader"]


class TopicReader:
    """One pass over a topic.

    Invariants:
      * each batch that it yields begins at the position after the one before; so no position is left out or repeated,
        even if several nodes answer
      * ``applied_index`` only grows, and a node answers only after it has applied that index; so a node that is behind,
        or has restarted, cannot show less than was read before
    """

    def __init__(
        self,
        runtime: Runtime,
        router: Router,
        options: ClientOptions,
        topic: str,
        start: int | None,
        *,
        end: int | None,
        follow: bool,
        node: str | None,
        staleness: Staleness | None = None,
    ) -> None:
        if start is not None and start < 1:
            raise RequestError(f"positions begin at 1, so a reader cannot start at {start}", remedy="start at 1")
        self.end = end
        """The position after the last one; None = the reader follows without end."""
        self._runtime = runtime
        self._router = router
        self._options = options
        self._topic = topic
        self._topic_id = TopicId(0)
        self._is_from_first = start is None
        """Whether it still has to begin at the first record that is kept."""
        self._start = self._position = Position(start or 1)
        """``_position``: the next one to fetch."""
        self._is_begun = False
        self._ahead: Future[list[Batch]] | None = None
        self._follow = follow
        self._node = node
        self._staleness = staleness or Staleness(stale=node is not None)
        """The bound of staleness that its requests carry."""
        self.age_seconds = 0.0
        """Upper bound of the age of the data when it began."""
        self.applied_index = 0
        """The index that a node must have applied before it answers."""

    async def records(self) -> AsyncGenerator[Record, None]:
        """Yield the records of the range, in order."""
        # Closed explicitly, because a reader that stops early must not leave the next chunk to the garbage collector.
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for record in self.cut(batch):
                    yield record

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches that hold a position of the range, in order. The next chunk is fetched meanwhile."""
        try:
            while (chunk := await self.next_chunk()) is not None:
                for batch in chunk:
                    yield batch
        finally:
            self.close()

    async def next_chunk(self) -> list[Batch] | None:
        """Return the next batches that have a position of the range; None = the range has ended.

        [] = there are none yet, if the reader follows. Cancelled: the next call continues at the same position.
        """
        await self.begin()
        if not self._wants(self._position):
            return None
        ahead, self._ahead = self._ahead, None
        try:
            batches = await (ahead or self._fetch(self._position))
        except TrimmedError as error:
            if not self._is_from_first:
                raise
            self._start = self._position = Position(max(error.first, self._position + 1))
            return []
        if batches:
            self._is_from_first = False
            self._position = Position(batches[-1].first_position + batches[-1].count)
            if self._wants(self._position):
                self._ahead = self._runtime.spawn(self._fetch(self._position))
        return [batch for batch in batches if self._wants(batch.first_position)]

    async def next_batches(self) -> list[Batch] | None:
        """As :meth:`next_chunk`, for callers that read a topic of either kind by its batches."""
        return await self.next_chunk()

    def cut(self, batch: Batch) -> list[Record]:
        """Return the records of a batch that are in the range."""
        records = batch.records()
        end = math.inf if self.end is None else self.end
        if batch.first_position < self._start or batch.first_position + batch.count > end:
            records = [record for record in records if self._start <= record.position < end]
        return records

    def close(self) -> None:
        """Cancel the request for the next chunk. Idempotent."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    def _wants(self, position: Position) -> bool:
        return self.end is None or position < self.end

    async def begin(self) -> None:
        """Get the topic's id, and set the end. Idempotent."""
        if self._is_begun:
            return
        _, frame = await self._ask(DescribeTopic(name=self._topic, **self._staleness), wait=0.0)
        topic = frame.body["topic"]
        self._topic_id = TopicId(topic["id"])
        if self._is_from_first:
            self._start = self._position = Position(topic["first_position"])
        self.applied_index = int(frame.body["applied_index"])
        self.age_seconds = float(frame.body["age"])
        if not self._follow:
            last = int(topic["last_position"])
            self.end = last + 1 if self.end is None else min(self.end, last + 1)
        self._is_begun = True

    async def _fetch(self, position: Position) -> list[Batch]:
        """Return the batches from ``position`` on; [] = there is none yet, if the reader follows.

        The first batch of an answer may begin before it. Two nodes, and the log and the archive of one node, divide
        the same records into different batches.
        """
        wait = self._options.follow_wait if self._follow else 0.0
        request = ReadTopic(
            topic=self._topic_id,
            position=position,
            bytes_max=self._options.read_bytes,
            applied_index=self.applied_index,
            wait=wait,
        )
        node, frame = await self._ask(request, wait=wait)
        batches = Batch.decode_all(frame.payload)
        if not batches and not self._follow:
            raise PeerError(
                f"{node.address} has no record at position {position} of {self._topic!r}, which was committed before",
                remedy="stop that node and compare its log with the others': viewstamp wal verify",
            )
        expected = position
        for batch in batches:
            wrong_start = batch.first_position > expected if expected == position else batch.first_position != expected
            if wrong_start or batch.first_position + batch.count <= expected or batch.first_position == 0:
                raise PeerError(f"{node.address} sent {batch!r} from {batch.first_position}, expected {expected}")
            if batch.topic != self._topic_id or batch.kind not in (Kind.RECORDS, Kind.STAGED):
                raise PeerError(f"{node.address} sent {batch!r}, which has no records of topic {self._topic_id}")
            expected = Position(batch.first_position + batch.count)
        if batches and batches[0].first_position < position:
            batches[0] = _from(batches[0], position)
        self.applied_index = max(self.applied_index, int(frame.body["applied_index"]))
        return batches

    async def _ask(self, request: RequestBody, *, wait: float) -> tuple[NodeConnection, Frame]:
        return await self._router.ask_any(request, seconds=self._options.timeout + wait, wait=wait, node=self._node)


def _from(batch: Batch, position: Position) -> Batch:
    """Return the records of a batch from a position on, as a batch. Raises FrameError if its layout is invalid."""
    skip = position - batch.first_position
    try:
        columns = slice_columns(batch.columns(), skip, batch.count)
    except (ValueError, IndexError, OverflowError) as error:
        raise FrameError(f"{batch!r} has an invalid layout: {error}") from error
    rest = build_columns(columns, topic=batch.topic)
    rest.stamp(
        term=batch.term,
        first_index=Index(batch.first_index + skip),
        previous_term=batch.previous_term,
        log_time=batch.log_time,
        first_position=position,
    )
    return rest
